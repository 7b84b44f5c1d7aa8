"""A staged append: the staged files of one write are appended to a store all or nothing, across any crash.

Owns the note that makes the append atomic, `.logserver.staged.json`, and the steps of a start that finds one; must not
know the meaning of a run's bytes (`StagedForm` of each backend does). Steps of a write, which holds the store's lock:

    1  the tasks' files exist and are synced; the store is unchanged
    2  the note has `pending`: these files, and the end of each partition      from here on it is decided
    3  runs are appended, partitions flushed
    4  the note has no `pending`, and this unit of its writer is done          one change of one file

After a crash before step 2 the folder has no meaning. After a later crash the next writable start finishes the write:
records of the runs that a partition already contains from its noted end on are skipped, and all other records are
appended. Only records that exist count. So the result is also right if a power loss cut the end of a log, or if a real
broker has appended meanwhile. The units of a writer are numbered, and steps 2 and 4 change the same note. So a repeated
unit writes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple, Protocol

import msgspec

from storage.coding.json_file import decode_json
from storage.contract import LogStore
from storage.errors import (
    CallerError,
    Corrupt,
    DamagedStore,
    DataError,
    InvalidArgument,
    IoFailure,
    MissingPartitions,
    RecordTooLarge,
    StorageError,
    UnknownPartition,
)
from storage.files import FileSystem, atomic_write, is_missing
from storage.model import Record, TopicPartition
from storage.shared.journal import OnDisk
from storage.shared.root_files import json_text, kept_name
from storage.shared.staged_files import StagedFile, read_runs

NOTE: Final = ".logserver.staged.json"
KEPT_WRITERS: Final = 1000
_RESERVE: Final = "reserve"
_ZEROS: Final = bytes(1 << 20)


class TopicShape(NamedTuple):
    """The facts about a topic that an encoder of records needs: its partition numbers, the size limit of a run in
    bytes, and its compression (None: none).
    """

    partitions: Sequence[int]
    limit_bytes: int
    compression: str | None = None


class RunEncoder(Protocol):
    """An encoder of records into runs, without a store. For one thread."""

    def encode(
        self, records: Sequence[Record], shape: TopicShape, *, compression: str | None
    ) -> Sequence[tuple[int, bytes]]:
        """Return (records, bytes) of each run. Raises UnrepresentableRecord, RecordTooLarge (with `index`)."""


class StagedForm(Protocol):
    """The form in which one backend stages records."""

    def shape(self, store: LogStore | None, topic: str) -> TopicShape:
        """Return the shape of a topic; if the topic or the store does not exist yet, the shape that it will have."""

    def encoder(self) -> RunEncoder:
        """Return a new encoder."""

    def put(self, store: LogStore, partition: TopicPartition, data: bytes) -> None:
        """Append a run."""

    def missing(
        self, store: LogStore, partition: TopicPartition, offset: int, data: bytes
    ) -> tuple[int, bytes]:
        """Return the number of records of a run that are already stored at `offset`, and a run of all other records
        (may be empty).
        """


class Unit(NamedTuple):
    """A numbered write of a writer (a micro-batch of a query)."""

    writer: str
    number: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StagedWrite:
    """A complete write. `topics`: the number of partitions that each topic was assumed to have when records were
    assigned to partitions; a missing topic is created with this number.
    """

    folder: Path
    files: Sequence[StagedFile]
    topics: Mapping[str, int]
    unit: Unit | None = None

    def size_bytes(self) -> int:
        """Return the size of all files."""
        return sum(file.size_bytes for file in self.files)


class Pending(msgspec.Struct, kw_only=True):
    """A write that is decided. `ends`: the end of each partition before the write."""

    folder: str
    files: list[tuple[str, int]]
    new_topics: dict[str, int]
    ends: list[tuple[str, int, int]]
    unit: Unit | None = None


class Note(msgspec.Struct, kw_only=True):
    """The content of `.logserver.staged.json`. `units`: the newest unit of each writer, the latest writer last."""

    version: int = 1
    pending: Pending | None = None
    units: dict[str, int] = msgspec.field(default_factory=dict)


def last_unit(store: LogStore, writer: str) -> int | None:
    """Return the number of the writer's newest unit in the store; None if it has none."""
    return _read_note(store).units.get(writer) if isinstance(store, OnDisk) else None


def _is_done(store: LogStore, unit: Unit) -> bool:
    last = last_unit(store, unit.writer)
    return last is not None and last >= unit.number


def is_pending(fs: FileSystem, path: Path, folder: Path) -> bool:
    """Return whether the store at `path` still needs the files of this folder."""
    if not fs.exists(path / NOTE):
        return False
    pending = _load_note(fs, path).pending
    return pending is not None and pending.folder == folder.name


def pending_ends(fs: FileSystem, path: Path) -> Mapping[TopicPartition, int]:
    """Return the ends of the partitions before an unfinished write to the store at `path`."""
    try:
        pending = _load_note(fs, path).pending
    except (Corrupt, IoFailure):  # own_file_findings reports them
        return {}
    ends = () if pending is None else pending.ends
    return {TopicPartition(topic, partition): end for topic, partition, end in ends}


def append_staged(store: LogStore, form: StagedForm, write: StagedWrite) -> bool:
    """Append a write to an open store that no other thread uses meanwhile; durable on return. Return False if its unit
    is already stored, and nothing was written.

    Raises the errors of `append`, with the store unchanged. The disk may still fail, or fill up in spite of the
    reserved space. Then the next writable start, or the next write to this store, continues the write. It raises
    DamagedStore if the write's files are missing.
    """
    finish_staged(store, form, accept_loss=False)
    if write.unit is not None and _is_done(store, write.unit):
        return False
    _check(store, form, write)
    reserve = _Reserve(_disk(store).fs, write)
    try:
        note = _read_note(store)
        note.pending = _pending(store, write)
        for named in (write.folder, write.folder.parent):
            _disk(store).fs.sync_dir(named)  # the note must name only durable files
        _write_note(store, note)
        _finish(store, form, note, reserve, resumed=False)
    finally:
        reserve.remove()
    return True


def fill_new(store: LogStore, form: StagedForm, write: StagedWrite) -> None:
    """Append a write to a new store that no reader sees yet; durable after the store's close."""
    _check(store, form, write)
    _make_topics(store, dict(write.topics))
    files = [(write.folder / file.name, file.size_bytes) for file in write.files]
    _put_runs(store, form, files, {})
    store.flush()
    _write_note(store, _done(Note(), write.unit))


def finish_staged(store: LogStore, form: StagedForm, *, accept_loss: bool) -> None:
    """Finish a write that a crash has interrupted; called at a writable start.

    Raises DamagedStore if its files, or the note, are missing or damaged, unless `accept_loss`: then the part that is
    stored stays.
    """
    disk = _disk(store)
    if not disk.fs.exists(disk.path / NOTE):
        return
    try:
        note = _read_note(store)
    except Corrupt as error:
        _go_on_without_note(disk, error, accept_loss=accept_loss)
        return
    if note.pending is None:
        return
    folder = disk.path.resolve().with_name(note.pending.folder)
    try:
        _finish(store, form, note, None, resumed=True)
    except (CallerError, DataError, IoFailure, MissingPartitions) as error:
        if isinstance(error, IoFailure) and not is_missing(error):
            raise
        if not accept_loss:
            raise DamagedStore(
                f"{disk.path}: an append was interrupted, and cannot be finished from {folder}: "
                f"{error.message}. Bring the folder back, serve the rest with --read-only, or keep the part that is "
                "stored with --accept-loss",
                path=str(folder),
                position=None,
                findings=(),
            ) from error
        note.pending = None
        _write_note(store, note)
    disk.fs.remove_tree(folder)


def _disk(store: LogStore) -> OnDisk:
    if not isinstance(store, OnDisk):
        raise InvalidArgument("a store in memory takes no staged files", field="path")
    return store


def _read_note(store: LogStore) -> Note:
    disk = _disk(store)
    return _load_note(disk.fs, disk.path)


def _load_note(fs: FileSystem, root: Path) -> Note:
    """Read the note. Raises Corrupt, which names the file: without the note it is unknown which units are stored."""
    path = root / NOTE
    try:
        return decode_json(fs.read_bytes(path), Note) if fs.exists(path) else Note()
    except Corrupt as error:
        facts = {**error.facts(), "path": str(path)}
        raise Corrupt(f"{path}: {error.message}", **facts) from error


def _go_on_without_note(disk: OnDisk, error: Corrupt, *, accept_loss: bool) -> None:
    """Refuse the start, or keep the unreadable note under another name."""
    path = disk.path / NOTE
    kept = disk.path / kept_name(NOTE)
    if not accept_loss:
        raise DamagedStore(
            f"{error.message}. The file tells whether an append was interrupted, and which writes of Spark are stored. "
            "Bring it back from a copy, serve the store with --read-only, or go on without it with --accept-loss: it "
            f"is kept as {kept.name} then, and a write that comes again is stored again",
            path=str(path),
            position=None,
            findings=(),
        ) from error
    disk.fs.rename(path, kept)
    disk.fs.sync_dir(disk.path)


def _write_note(store: LogStore, note: Note) -> None:
    disk = _disk(store)
    atomic_write(disk.fs, disk.path / NOTE, json_text(note))


def _check(store: LogStore, form: StagedForm, write: StagedWrite) -> None:
    """Check every condition that could reject a run later, before the write is decided."""
    known = store.topics()
    for topic, count in write.topics.items():
        info = known.get(topic) or store.preview_topic(topic)
        if topic in known and len(info.partitions) != count:
            raise InvalidArgument(
                f"topic {topic!r} has {len(info.partitions)} partitions, and the records were "
                f"placed as if it had {count}: it has been made or changed meanwhile",
                field="partition",
            )
    for part in (part for file in write.files for part in file.parts):
        shape = form.shape(store, part.topic)
        numbers = shape.partitions if part.topic in known else range(write.topics[part.topic])
        if part.partition not in numbers:
            raise UnknownPartition(part.topic, part.partition, len(numbers))
        if part.largest_bytes > shape.limit_bytes:
            raise RecordTooLarge(
                f"a run for {part.topic}-{part.partition} has {part.largest_bytes} bytes: the topic "
                f"takes {shape.limit_bytes}",
                size_bytes=part.largest_bytes,
                limit_bytes=shape.limit_bytes,
                index=0,
            )


def _pending(store: LogStore, write: StagedWrite) -> Pending:
    known = store.topics()
    parts = {TopicPartition(p.topic, p.partition) for file in write.files for p in file.parts}
    return Pending(
        folder=write.folder.name,
        files=[(file.name, file.size_bytes) for file in write.files],
        new_topics={topic: count for topic, count in write.topics.items() if topic not in known},
        ends=[(*part, store.bounds(part).end) for part in sorted(parts) if part.topic in known],
        unit=write.unit,
    )


def _finish(
    store: LogStore, form: StagedForm, note: Note, reserve: _Reserve | None, *, resumed: bool
) -> None:
    """Do steps 3 and 4."""
    pending = note.pending
    assert pending is not None
    disk = _disk(store)
    folder = disk.path.resolve().with_name(pending.folder)
    files = [(folder / name, size_bytes) for name, size_bytes in pending.files]
    for path, _ in files:
        disk.fs.size(path)  # all files exist, before the first is read
    _make_topics(store, pending.new_topics)
    ends: dict[TopicPartition, int] = {}
    if resumed:
        made = (
            TopicPartition(topic, number)
            for topic in pending.new_topics
            for number in store.topics()[topic].partitions
        )
        ends = {TopicPartition(t, p): end for t, p, end in pending.ends} | dict.fromkeys(made, 0)
    _put_runs(store, form, files, ends, reserve)
    store.flush()
    _write_note(store, _done(note, pending.unit))


def _done(note: Note, unit: Unit | None) -> Note:
    note.pending = None
    if unit is not None:
        note.units.pop(unit.writer, None)
        note.units[unit.writer] = unit.number
        for writer in list(note.units)[:-KEPT_WRITERS]:
            del note.units[writer]
    return note


def _make_topics(store: LogStore, topics: Mapping[str, int]) -> None:
    """Create missing topics. A topic that a crash left partly created, without records, is created again."""
    for topic, count in topics.items():
        info = store.topics().get(topic)
        if info is not None and len(info.partitions) != count:
            if any(store.bounds(TopicPartition(topic, n)).end for n in info.partitions):
                raise UnknownPartition(topic, count - 1, len(info.partitions))
            store.delete_topic(topic)
            info = None
        if info is None:
            store.create_topic(topic, count)


def _put_runs(
    store: LogStore,
    form: StagedForm,
    files: Sequence[tuple[Path, int]],
    ends: dict[TopicPartition, int],
    reserve: _Reserve | None = None,
) -> None:
    """Append the runs in order. `ends`: partitions that may already contain the first of their runs, from this offset
    on.
    """
    fs = _disk(store).fs
    for path, size_bytes in files:
        for run in read_runs(fs, path, size_bytes):
            partition, data = TopicPartition(run.topic, run.partition), run.data
            if reserve is not None:
                reserve.give_back(len(data))
            if partition in ends:
                offset = max(ends.pop(partition), store.bounds(partition).start)
                there, data = form.missing(store, partition, offset, data)
                if not data:
                    ends[partition] = offset + there
            if data:
                form.put(store, partition, data)


class _Reserve:
    """Disk space for the runs, held by a file that shrinks while they are appended: a full disk is reported before the
    write is decided.
    """

    def __init__(self, fs: FileSystem, write: StagedWrite) -> None:
        self._fs = fs
        self._path = write.folder / _RESERVE
        self._size = 0
        fs.make_dir(write.folder)
        self._file = fs.open(self._path, write=True, create=True)
        try:
            while self._size < write.size_bytes():
                self._file.pwrite(_ZEROS, self._size)
                self._size += len(_ZEROS)
        except BaseException:
            self.remove()
            raise

    def give_back(self, size_bytes: int) -> None:
        """Release `size_bytes` that are about to be written to the store."""
        self._size = max(self._size - size_bytes, 0)
        self._file.truncate(self._size)

    def remove(self) -> None:
        """Remove the file; a second call does nothing."""
        self._file.close()
        try:
            self._fs.remove(self._path)
        except StorageError:
            return
