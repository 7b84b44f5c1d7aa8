"""Backend names and the factories behind them, imported only when asked for.

Owns the one table of backends and the detection of what a directory holds; must not import a
backend by itself. The strings are invisible to the import checker: a test imports each of them.
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
from storage.errors import InvalidArgument, IoFailure, NotOffered, UnsupportedFormat
from storage.files import (
    FileSystem,
    FollowingFileSystem,
    RealFileSystem,
    Recognized,
    SkippingFileSystem,
    stored_backend,
)
from storage.interface import Clock, LogStore, OnForeseen, StoreOptions, SupportsInspect
from storage.model import ConversionReport, StoredFile, TopicPartition
from storage.own_files import own_file_findings
from storage.parts import RunParts
from storage.staged_append import StagedForm, finish_staged

# A first start that was cut off leaves its lock.
_NO_CONTENT: Final = frozenset({"lost+found", ".lock", "lock"})


class Backend(NamedTuple):
    """Where a backend's doors are, as module:function; None where it has no such door.

    `settings`: the names of the store's settings, as a sequence.
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


class Detected(NamedTuple):
    """What a directory holds. `adopted`: made by us, or taken over before (`.logserver.store.json`
    is there).
    """

    backend: str
    adopted: bool


BACKENDS: Final[dict[str, Backend]] = {
    "kafka": Backend(
        open_store="storage.kafka.store:open_kafka",
        recognize="storage.kafka.directory:recognize",
        open_inspector="storage.kafka.tools:open_inspector",
        list_files="storage.kafka.physical:list_files",
        settings="storage.kafka.settings:SETTING_NAMES",
        open_splitter="storage.kafka.splits:open_splitter",
        read_split="storage.kafka.columns:read_split",
        staging="storage.kafka.staging:KafkaStaging",
        unreadable="storage.kafka.physical:unread_findings",
    ),
    "rocketmq": Backend(
        open_store="storage.rocketmq.store:open_rocketmq",
        recognize="storage.rocketmq.directory:recognize",
        open_inspector="storage.rocketmq.tools:open_inspector",
        list_files="storage.rocketmq.physical:list_files",
        settings="storage.rocketmq.settings:STORE_SETTINGS",
        open_splitter="storage.rocketmq.splits:open_splitter",
        read_split="storage.rocketmq.columns:read_split",
        staging="storage.rocketmq.staging:RocketMQStaging",
        unreadable="storage.rocketmq.physical:unread_findings",
    ),
    "memory": Backend(
        open_store="storage.memory:open_memory",
        recognize=None,
        open_inspector=None,
        list_files=None,
    ),
}


def wall_clock_ms() -> int:
    """Milliseconds since the epoch by the machine's clock: the default `Clock`."""
    return time.time_ns() // 1_000_000


def backends() -> Sequence[str]:
    """The names that `open_store` takes."""
    return tuple(BACKENDS)


def setting_names(backend: str) -> Sequence[str]:
    """The names that `StoreOptions.settings` may have for a backend."""
    door = BACKENDS[backend].settings
    names: Sequence[str] = () if door is None else resolve(door)
    return names


def is_compiled() -> bool:
    """Whether the hot codec modules run compiled (one source, built by mypyc) or interpreted."""
    spec = importlib.util.find_spec("storage.coding.varint")
    return spec is not None and not (spec.origin or "").endswith(".py")


def resolve(target: str) -> Any:
    """The object that "module:name" means, importing the module now."""
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
    """Open (or make, unless `read_only`) the store at `path`; it has recovered when this returns, and
    finished a staged append that was interrupted.

    `read_only`: what cannot be read is skipped and reported, as damage of the records in it, and symbolic links are
    followed. A start for writing refuses them.

    Raises InvalidArgument for an unknown backend, UnsupportedFormat for another format's directory,
    StoreLocked, DamagedStore (see `RecoveryReport`), InvalidConfig for a bad setting, IoFailure.
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
    """How a backend stages records. Raises NotOffered where it has no files."""
    door = BACKENDS[backend].staging
    if door is None:
        raise NotOffered(f"the {backend} backend takes no staged records", feature="staging")
    form: StagedForm = resolve(door)(clock)
    return form


def detect(path: Path | str, *, fs: FileSystem | None = None) -> Detected | None:
    """Which backend's store the directory holds; None when it is missing or empty.

    Raises UnsupportedFormat when it holds something else, IoFailure when it cannot be read.
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
    """Open PATH (a store, a partition directory or one file) for looking only; see SupportsInspect.

    What cannot be read below PATH is skipped and reported, links are followed. Raises UnsupportedFormat when no backend
    knows PATH, IoFailure when PATH itself cannot be read.
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
    """Ask each backend once what it sees in a directory. The likeliest come first: those whose files are there, then
    the one that the store file names. The file may be damaged, or another store's.
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
    run: RunParts | None = None,
    split_bytes: int = SPLIT_BYTES,
    fs: FileSystem | None = None,
    clock: Clock = wall_clock_ms,
) -> ConversionReport:
    """Make a new store of the backend `to`, at `target`, of the records of the store at `source`, and
    tell what of them it could not keep; the report is kept in the new store too.

    `encode`: what a record has and the other format has no place for is encoded reversibly, instead of
    leaving the record out. `replace`: a target that an earlier conversion of this source made is moved
    to `TARGET.replaced-TIME` first. `on_foreseen` gets what will be left out, as far as it is known before
    the work begins: topics, and fields of the first records of each partition. `topics`: only these.
    `options` are the source's, whose `progress` is called; `target_options` those of the new store.
    `run`: who does it in parts of about `split_bytes`, each of which is done where the same two paths are
    seen; None: it is done here. The source is not changed, and a server may be running on it; the new
    store is durable and cleanly stopped on return; on an error there is none.

    Raises InvalidArgument (to) for a target that holds something or lies in the source, and for a
    source of the backend `to`; UnsupportedFormat for a source that is no store; UnknownTopic,
    InvalidConfig, DiskFull.
    """
    fs = fs or FollowingFileSystem()
    source, target = Path(source), Path(target)
    if not fs.exists(source):
        raise IoFailure(f"{source} does not exist", path=str(source), operation="open", errno=2)
    detected = detect(source, fs=fs)
    if detected is None:
        raise UnsupportedFormat(f"{source} holds no store: it is empty", path=str(source))
    resolve("storage.conversion.converting:check_direction")(detected.backend, to)
    order = resolve("storage.conversion.order:Order")(
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
    report: ConversionReport = resolve("storage.conversion.converting:convert")(
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
    """The files of the store at `path`, or those of one partition alone, as they lie on the disk now:
    one at a time, ordered by the names from the store down, only those behind the file `after`.

    Nothing is opened, and no link is followed. Works beside a running server, which may be the caller.
    The iterator raises IoFailure. Raises NotOffered for a backend without files.
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
    """Open the store at `path` to be cut into splits; see Splitter. `permissive`: files and folders that
    cannot be read are skipped; without it they raise IoFailure.

    Raises UnsupportedFormat when `path` is no store, IoFailure when it is missing or cannot be read,
    NotOffered for a backend that keeps no files.
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
    """The rows of a split, in chunks; only `columns` of them (names of `storage.columns`). Memory is
    bounded by some chunks, whatever the split's size, and one record.

    `on_damage` None: the iterator raises Corrupt, with file and position, at the first damage, and
    IoFailure for a file that has vanished; else it is told what is wrong and the rows behind follow.
    """
    door = BACKENDS[split.backend].read_split
    if door is None:
        raise NotOffered(f"the {split.backend} backend has no splits", feature="splits")
    reader: ReadSplit = resolve(door)
    return reader(split.plan, columns, check_crcs=check_crcs, on_damage=on_damage)
