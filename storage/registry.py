"""Backend names and their factories, imported only on demand.

Owns the only table of backends and the detection of a directory's content; must not import a backend at module level.
The import checker does not see the strings, so a test imports each of them.
"""

from __future__ import annotations

import importlib
import importlib.util
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, NamedTuple

from storage.columns import SPLIT_BYTES, Chunk, Damage, ReadSplit, Split, Splitter
from storage.contract import Clock, LogStore, OnForeseen, StoreOptions, SupportsInspect, TaskRunner
from storage.errors import (
    InvalidArgument,
    IoFailure,
    NotOffered,
    StorageError,
    UnsupportedFormat,
)
from storage.files import (
    FileSystem,
    FollowingFileSystem,
    RealFileSystem,
    Recognized,
    SkippingFileSystem,
    make_root,
    stored_backend,
)
from storage.kafka_clients.contract import ClientBatches
from storage.model import ConversionReport, StoredFile, TopicPartition
from storage.shared import staged_append
from storage.shared.atomic_store import new_store
from storage.shared.own_files import own_file_findings
from storage.shared.staged_append import StagedForm, StagedWrite, finish_staged
from storage.shared.staged_files import StagedWriter, other_folders

# An interrupted first start leaves its lock file.
_NO_CONTENT: Final = frozenset({"lost+found", ".lock", "lock"})


class Backend(NamedTuple):
    """The entry points of a backend, as module:function; None if the backend has no such entry point.

    `settings`: a sequence of the names of the store's settings.
    """

    open_store: str
    recognize: str | None
    open_inspector: str | None
    list_files: str | None
    settings: str | None = None
    open_splitter: str | None = None
    read_split: str | None = None
    staging: str | None = None
    unreadable: str | None = None
    client_batches: str | None = None


class Detected(NamedTuple):
    """The content of a directory. `adopted`: logserver created the store or opened it for writing before
    (`.logserver.store.json` exists).
    """

    backend: str
    adopted: bool


BACKENDS: Final[dict[str, Backend]] = {
    "kafka": Backend(
        open_store="storage.kafka.store:open_kafka",
        recognize="storage.kafka.state.root:recognize",
        open_inspector="storage.kafka.tools:open_inspector",
        list_files="storage.kafka.state.file_listing:list_files",
        settings="storage.kafka.state.settings:SETTING_NAMES",
        open_splitter="storage.kafka.columns.splits:open_splitter",
        read_split="storage.kafka.columns.read:read_split",
        staging="storage.kafka.tools.staging:KafkaStaging",
        unreadable="storage.kafka.state.file_listing:unread_findings",
        client_batches="storage.kafka_clients.contract:StoredBatches",
    ),
    "rocketmq": Backend(
        open_store="storage.rocketmq.store:open_rocketmq",
        recognize="storage.rocketmq.state.root:recognize",
        open_inspector="storage.rocketmq.tools:open_inspector",
        list_files="storage.rocketmq.state.file_listing:list_files",
        settings="storage.rocketmq.state.settings:STORE_SETTINGS",
        open_splitter="storage.rocketmq.columns.split_plan:open_splitter",
        read_split="storage.rocketmq.columns.read:read_split",
        staging="storage.rocketmq.tools.staging:RocketMQStaging",
        unreadable="storage.rocketmq.state.file_listing:unread_findings",
        client_batches="storage.kafka_clients.over_messages:BatchesOverMessages",
    ),
    "memory": Backend(
        open_store="storage.memory.store:open_memory",
        recognize=None,
        open_inspector=None,
        list_files=None,
    ),
}


def wall_clock_ms() -> int:
    """Return milliseconds since the epoch by the machine's clock: the default `Clock`."""
    return time.time_ns() // 1_000_000


def backends() -> Sequence[str]:
    """Return the names that `open_store` accepts."""
    return tuple(BACKENDS)


def setting_names(backend: str) -> Sequence[str]:
    """Return the names that `StoreOptions.settings` may contain for a backend."""
    door = BACKENDS[backend].settings
    names: Sequence[str] = () if door is None else resolve(door)
    return names


def serves_kafka_clients(backend: str) -> bool:
    """Return whether the stores of a backend can be offered to Kafka clients."""
    return BACKENDS[backend].client_batches is not None


def client_batches_of(store: LogStore) -> ClientBatches | None:
    """Return the record batches of a store for Kafka clients; None for a backend that offers none."""
    door = BACKENDS[store.capabilities.backend].client_batches
    if door is None:
        return None
    batches: ClientBatches = resolve(door)(store)
    return batches


def is_compiled() -> bool:
    """Return whether the hot codec modules run compiled (same source, built by mypyc) or interpreted."""
    spec = importlib.util.find_spec("storage.coding.varint")
    return spec is not None and not (spec.origin or "").endswith(".py")


def resolve(target: str) -> Any:
    """Import the module of "module:name" and return the object `name`."""
    module, _, name = target.partition(":")
    return getattr(importlib.import_module(module), name)


def open_store(
    backend: str,
    path: Path | str,
    options: StoreOptions | None = None,
    *,
    fs: FileSystem | None = None,
    clock: Clock = wall_clock_ms,
    read_only: bool = False,
) -> LogStore:
    """Open the store at `path`, or create it unless `read_only`. On return recovery has run, and an interrupted staged
    append is finished.

    `read_only`: unreadable bytes are skipped and reported as damage of their records, and symbolic links are followed.
    A writable start rejects both.

    Raises InvalidArgument for an unknown backend, UnsupportedFormat for another format's directory, StoreLocked,
    DamagedStore (see `RecoveryReport`), InvalidConfig for a bad setting, IoFailure.
    """
    if backend not in BACKENDS:
        raise InvalidArgument(
            f"backend {backend!r} is unknown: choose one of {', '.join(BACKENDS)}", field="backend"
        )
    factory = resolve(BACKENDS[backend].open_store)
    options = options or StoreOptions()
    disk = fs or (FollowingFileSystem() if read_only else RealFileSystem())
    if read_only:
        disk = SkippingFileSystem(disk)
    store: LogStore = factory(Path(path), options, fs=disk, clock=clock, read_only=read_only)
    findings = list(store.recovery.findings)
    if BACKENDS[backend].recognize is not None:
        findings += own_file_findings(disk, Path(path))
    report_unreadable = BACKENDS[backend].unreadable
    if read_only and report_unreadable is not None:
        findings += resolve(report_unreadable)(disk)
    store.recovery = replace(store.recovery, findings=findings)
    if not read_only and BACKENDS[backend].staging is not None:
        try:
            finish_staged(store, staged_form(backend, clock), accept_loss=options.accept_loss)
        except BaseException:
            store.close()
            raise
    return store


def staged_form(backend: str, clock: Clock = wall_clock_ms) -> StagedForm:
    """Return a backend's form of staged records. Raises NotOffered if the backend has no files."""
    door = BACKENDS[backend].staging
    if door is None:
        raise NotOffered(f"the {backend} backend takes no staged records", feature="staging")
    form: StagedForm = resolve(door)(clock)
    return form


def detect(path: Path | str, *, fs: FileSystem | None = None) -> Detected | None:
    """Return the backend whose store the directory contains; None if it is missing or empty.

    Raises UnsupportedFormat if it contains other files, IoFailure if it cannot be read.
    """
    fs = fs or FollowingFileSystem()
    path = Path(path)
    if not fs.exists(path):
        return None
    if not fs.is_dir(path, follow=True):
        raise UnsupportedFormat(f"{path} is a file, not a store's directory", path=str(path))
    for name, seen in _recognized(fs, path).items():
        if seen.adopted is not None:
            return Detected(name, seen.adopted)
    names = [name for name in fs.list_dir(path) if name not in _NO_CONTENT]
    if not names:
        return None
    raise UnsupportedFormat(
        f"{path} is no store of a known backend ({', '.join(BACKENDS)}): it holds {_shown(names)}",
        path=str(path),
    )


def open_inspector(
    path: Path | str,
    options: StoreOptions | None = None,
    *,
    fs: FileSystem | None = None,
    clock: Clock = wall_clock_ms,
) -> SupportsInspect:
    """Open PATH (a store, a partition directory or one file) for reading only; see SupportsInspect.

    Unreadable bytes below PATH are skipped and reported, and links are followed. Raises UnsupportedFormat if no backend
    recognizes PATH, IoFailure if PATH itself cannot be read.
    """
    fs = fs or FollowingFileSystem()
    path = Path(path)
    if not fs.exists(path):
        raise IoFailure(f"{path} does not exist", path=str(path), operation="open", errno=2)
    if fs.is_dir(path, follow=True):
        fs.list_dir(path)
    else:
        fs.open(path).close()
    fs = SkippingFileSystem(fs)
    for name in _recognized(fs, path) if fs.is_dir(path, follow=True) else BACKENDS:
        door = BACKENDS[name].open_inspector
        if door is None:
            continue
        found: SupportsInspect | None = resolve(door)(
            path, options or StoreOptions(), fs=fs, clock=clock
        )
        if found is not None:
            return found
    inside = f": it holds {_shown(fs.list_dir(path))}" if fs.is_dir(path, follow=True) else ""
    raise UnsupportedFormat(
        f"{path} is no store, partition directory or file of a known backend{inside}",
        path=str(path),
    )


def _recognized(fs: FileSystem, path: Path) -> Mapping[str, Recognized]:
    """Ask each backend once whether it recognizes a directory, and return the answers, the most likely backend first.

    First come backends whose files exist, then the backend that the store file names. The store file may be damaged, or
    belong to another store.
    """
    named = stored_backend(fs, path)
    seen: dict[str, Recognized] = {
        name: resolve(backend.recognize)(fs, path, named)
        for name, backend in BACKENDS.items()
        if backend.recognize is not None
    }
    order = sorted(seen, key=lambda name: (not seen[name].holds_files, name != named))
    return {name: seen[name] for name in order}


def _shown(names: Sequence[str]) -> str:
    return ", ".join(names[:5]) or "nothing"


def convert_store(
    source: Path | str,
    target: Path | str,
    *,
    to: str,
    encode: bool = False,
    replace: bool = False,
    topics: Sequence[str] = (),
    options: StoreOptions | None = None,
    target_options: StoreOptions | None = None,
    on_foreseen: OnForeseen | None = None,
    run: TaskRunner | None = None,
    split_bytes: int = SPLIT_BYTES,
    fs: FileSystem | None = None,
    clock: Clock = wall_clock_ms,
) -> ConversionReport:
    """Convert the records of the store at `source` into a new store of the backend `to` at `target`.

    Return a report of the data that the new store could not keep; the new store contains the report too.

    - `encode`: data of a record that has no place in the other format is encoded reversibly. Without it the record is
      left out.
    - `replace`: a target that an earlier conversion of this source made is first moved to `TARGET.replaced-TIME`.
    - `on_foreseen` receives notes on data that will be left out, as far as known before the work begins: topics, and
      fields of the first records of each partition.
    - `topics`: convert only these topics.
    - `options` are the options of the source, whose `progress` is called; `target_options` belong to the new store.
    - `run`: does the work in parts of about `split_bytes`, where the same two paths are visible; None: the work is done
      here.

    The source is not changed, and a server may be running on it. The new store is durable and cleanly stopped on
    return; on an error no new store exists.

    Raises InvalidArgument (to) for a target that is not empty or is inside the source, and for a source of the backend
    `to`; UnsupportedFormat for a source that is not a store; UnknownTopic, InvalidConfig, DiskFull.
    """
    fs = fs or FollowingFileSystem()
    source, target = Path(source), Path(target)
    if not fs.exists(source):
        raise IoFailure(f"{source} does not exist", path=str(source), operation="open", errno=2)
    detected = detect(source, fs=fs)
    if detected is None:
        raise UnsupportedFormat(f"{source} holds no store: it is empty", path=str(source))
    resolve("storage.conversion.request:check_direction")(detected.backend, to)
    order = resolve("storage.conversion.request:Order")(
        source=source,
        target=target,
        to=to,
        encode=encode,
        replace=replace,
        topics=topics,
        options=options or StoreOptions(),
        target_options=target_options or StoreOptions(),
        run=run,
        split_bytes=split_bytes,
    )
    report: ConversionReport = resolve("storage.conversion.convert:convert")(
        order, fs=fs, clock=clock, on_foreseen=on_foreseen
    )
    return report


def list_files(
    backend: str,
    path: Path | str,
    partition: TopicPartition | None = None,
    *,
    after: str = "",
    fs: FileSystem | None = None,
) -> Iterator[StoredFile]:
    """Yield the files of the store at `path`, or of one partition only, as they are on disk now.

    Files are ordered by their names from the store down; only files after the file `after` are returned. No file is
    opened, and no link is followed. Works alongside a running server, which may be the caller. The iterator raises
    IoFailure. Raises NotOffered for a backend without files.
    """
    door = BACKENDS[backend].list_files
    if door is None:
        raise NotOffered(f"the {backend} backend keeps no files", feature="files")
    found: Iterator[StoredFile] = resolve(door)(
        fs or RealFileSystem(), Path(path), partition, after=after
    )
    return found


def open_splitter(
    path: Path | str,
    options: StoreOptions | None = None,
    *,
    permissive: bool = False,
    fs: FileSystem | None = None,
    clock: Clock = wall_clock_ms,
) -> Splitter:
    """Open the store at `path` to cut it into splits; see Splitter. `permissive`: unreadable files and folders are
    skipped; without it they raise IoFailure.

    Raises UnsupportedFormat if `path` is not a store, IoFailure if it is missing or cannot be read, NotOffered for a
    backend without files.
    """
    fs = fs or FollowingFileSystem()
    path = Path(path)
    if not fs.exists(path):
        raise IoFailure(f"{path} does not exist", path=str(path), operation="open", errno=2)
    detected = detect(path, fs=fs)
    if detected is None:
        raise UnsupportedFormat(f"{path} holds no store: it is empty", path=str(path))
    door = BACKENDS[detected.backend].open_splitter
    if door is None:
        raise NotOffered(f"the {detected.backend} backend has no splits", feature="splits")
    if permissive:
        fs = SkippingFileSystem(fs)
    splitter: Splitter = resolve(door)(path, options or StoreOptions(), fs=fs, clock=clock)
    return splitter


def read_split(
    split: Split,
    columns: Collection[str],
    *,
    check_crcs: bool = True,
    on_damage: Damage | None = None,
) -> Iterator[Chunk]:
    """Yield the rows of a split in chunks, with only these `columns` (names of `storage.contract`). Memory is bounded
    by a few chunks, whatever the split's size, and one record.

    `on_damage` None: the iterator raises Corrupt, with file and position, at the first damage, and IoFailure for a file
    that has disappeared. Otherwise `on_damage` receives each finding, and the rows after the damage follow.
    """
    door = BACKENDS[split.backend].read_split
    if door is None:
        raise NotOffered(f"the {split.backend} backend has no splits", feature="splits")
    reader: ReadSplit = resolve(door)
    return reader(split.plan, columns, check_crcs=check_crcs, on_damage=on_damage)


# ---- staged appends: many writers fill one store at once, and one process commits ----------------
#
#     open_staged(folder, name)       each task: writes its runs, encoded by `staged_form(backend).encoder()`
#     append_staged(store, write)     the committing process: into an existing store
#     make_staged(backend, path, ..)  the committing process: as a new store, which appears at once or not at all


def open_staged(folder: Path, name: str, *, fs: FileSystem | None = None) -> StagedWriter:
    """Create a new staged file, and its folder. Use each name once, also in a task that is run again."""
    return StagedWriter(fs or RealFileSystem(), folder, name)


def append_staged(store: LogStore, write: StagedWrite, *, clock: Clock = wall_clock_ms) -> bool:
    """Append a write to an open store; durable on return. See staged_append.append_staged."""
    form = staged_form(store.capabilities.backend, clock)
    return staged_append.append_staged(store, form, write)


def make_staged(
    backend: str,
    path: Path,
    write: StagedWrite,
    *,
    options: StoreOptions | None = None,
    fs: FileSystem | None = None,
    clock: Clock = wall_clock_ms,
) -> None:
    """Make a new store from a write: on return it exists under its name and is durable; on an error it does not exist.

    Raises InvalidArgument unless `path` is missing or empty, and the errors of an append.
    """
    fs = fs or RealFileSystem()
    make_root(fs, write.folder)
    made = write.folder / "store"
    if fs.exists(made):
        fs.remove_tree(made)  # left by a commit that was killed
    with new_store(fs, path, sources=(), now_ms=clock(), made=made) as place:
        store = open_store(backend, place, options, fs=fs, clock=clock)
        try:
            staged_append.fill_new(store, staged_form(backend, clock), write)
        finally:
            store.close()


def remove_staged(folder: Path, *, fs: FileSystem | None = None) -> None:
    """Remove the folder of a write that is done or abandoned; files that cannot be removed stay."""
    try:
        (fs or RealFileSystem()).remove_tree(folder)
    except StorageError:
        return


def is_pending(store: Path, folder: Path, *, fs: FileSystem | None = None) -> bool:
    """Return whether the store still needs the files of this folder."""
    return staged_append.is_pending(fs or RealFileSystem(), store, folder)


def staged_folders(store: Path, *, fs: FileSystem | None = None) -> list[tuple[Path, int]]:
    """Return all staging folders next to a store, each with its last change in milliseconds."""
    fs = fs or RealFileSystem()
    return [(folder, fs.mtime_ms(folder)) for folder in other_folders(fs, store)]
