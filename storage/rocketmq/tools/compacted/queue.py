"""The logs of topics that a broker compacts (cleanup.policy=COMPACTION), read queue by queue.

Owns the way from an entry to its record, and the checks of both; must not write. From CompactionLog and
SparseConsumeQueue of RocketMQ 5.5.0:

    compaction/compactionLog/TOPIC/QUEUE/%020d   records as in the commit log; the name is the position of the first
                                                 byte. The physical offset of a record is its position here
    compaction/compactionCq/TOPIC/QUEUE/%020d    the sparse entries of the records in the log file of the same name
    compaction/position-checkpoint               JSON: the queue offset up to which each queue is compacted

A log file and its file of entries are created and replaced together. A compaction replaces all files but the last by
the newest record of each key, so positions and queue offsets are missing between them. The entries say what exists: a
file of entries ends before its first invalid entry, and bytes of the log that no entry names are not read. Nor are
the folders `compacting` and `replicating` in a queue, which a crash leaves.
"""

from __future__ import annotations

import errno
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, TypeAlias

from storage.coding.varint import INT64_MAX
from storage.errors import Corrupt, DataError, IoFailure
from storage.files import FileSystem, HandleCache, is_missing, unless_missing
from storage.findings import finding
from storage.model import Finding, TopicPartition
from storage.rocketmq.format import names
from storage.rocketmq.format.message import Message, decode_message
from storage.rocketmq.format.queue_entry import (
    SPARSE_UNIT_SIZE,
    SparseEntry,
    decode_sparse_units,
)
from storage.shared.diagnostics import Notes

READ_BYTES: Final = 4096 * SPARSE_UNIT_SIZE
LOOKS: Final = 5
"""How often in a row the files of a queue are listed without a new record, before a damaged record counts."""


Place: TypeAlias = tuple[Path, int, int]
"""A file of a list: its folder, its base, and the time of its last change in ms."""


def queues_of(fs: FileSystem, root: Path) -> Iterator[TopicPartition]:
    """Yield the queues of the store at `root` that have a folder with files in `compaction`."""
    folder = root / names.COMPACTION
    found = {
        TopicPartition(topic, queue_id)
        for kind in (names.COMPACTION_LOG, names.COMPACTION_QUEUE)
        for topic in _folders(fs, folder / kind)
        for name in _folders(fs, folder / kind / topic)
        if (queue_id := names.parse_queue_id(name)) is not None
        and bases_in(fs, folder / kind / topic / name)
    }
    yield from sorted(found)


def _folders(fs: FileSystem, path: Path) -> Sequence[str]:
    if not fs.is_dir(path):
        return ()
    return [name for name in fs.list_dir(path) if fs.is_dir(path / name)]


def bases_in(fs: FileSystem, folder: Path) -> Sequence[int]:
    """Return the positions that the files of a folder are named after, ascending."""
    if not fs.is_dir(folder):
        return ()
    return sorted(
        base
        for name in fs.list_dir(folder)
        if (base := names.parse_file_name(name)) is not None and not fs.is_dir(folder / name)
    )


class CompactedQueue:
    """One queue of a compacted topic. `compaction`: the folder with the logs and the entries of all queues."""

    def __init__(self, files: HandleCache, compaction: Path, partition: TopicPartition) -> None:
        topic, queue_id = partition
        self.partition = partition
        self.log = compaction / names.COMPACTION_LOG / topic / str(queue_id)
        self.queue = compaction / names.COMPACTION_QUEUE / topic / str(queue_id)
        self._files = files

    def entries(
        self, bases: Sequence[int] | None = None
    ) -> Iterator[tuple[Path, int, SparseEntry]]:
        """Yield (file, position in it, entry) of the valid entries. `bases`: only of these files."""
        for base in bases_in(self._files.fs, self.queue) if bases is None else bases:
            path = self.queue / names.file_name(base)
            position = 0
            while data := self._read(path, position, READ_BYTES):
                for entry in decode_sparse_units(data):
                    if not entry.is_valid:
                        break
                    yield path, position, entry
                    position += SPARSE_UNIT_SIZE
                else:
                    if len(data) == READ_BYTES:
                        continue
                break

    def records(
        self, notes: Notes, *, but: range = range(0)
    ) -> Iterator[tuple[SparseEntry, Message]]:
        """Yield entries and their records by queue offset, as the broker's consumers get them. A record that is damaged
        or is not the entry's becomes a finding in `notes`. `but`: not the records with these queue offsets.

        If a running broker replaces files meanwhile, the files are listed again, and the records after the last one
        follow. Raises IoFailure (run it again) if records before it may have been missed.
        """
        reached, looks_left = -1, LOOKS
        while True:
            looks_left -= 1
            listed = self.listed()
            try:
                for entry, message in self._listed_records(listed, notes, but, reached):
                    yield entry, message
                    reached, looks_left = entry.queue_offset, LOOKS
            except IoFailure as error:
                if not is_missing(error) or not looks_left:
                    raise
            else:
                if not _has_missed(listed, self.listed()):
                    return
                if reached >= 0 or not looks_left:
                    raise self._replaced()
            self._forget(listed)

    def offsets(self, *, but: range) -> range:
        """Return the range from the first to the last queue offset of the entries, without the offsets `but`."""
        for _ in range(LOOKS):
            listed, first, end = self.listed(), 0, 0
            with unless_missing():
                for _, _, entry in self.entries(self._entry_bases(listed)):
                    offset = entry.queue_offset
                    if offset not in but:
                        first = min(first, offset) if end else offset
                        end = max(end, offset + 1)
                if self.listed() == listed:
                    return range(first, end)
            self._forget(listed)
        raise self._replaced()

    def _entry_bases(self, listed: Sequence[Place]) -> Sequence[int]:
        return [base for folder, base, _ in listed if folder == self.queue]

    def _forget(self, listed: Sequence[Place]) -> None:
        for folder, base, _ in listed:
            self._files.forget(folder / names.file_name(base), sync=False)

    def _replaced(self) -> IoFailure:
        """Return the error for files that were replaced, as of a missing file: list them again."""
        return IoFailure(
            f"{self.log}: a running broker replaced files while they were read: run it again",
            path=str(self.log),
            operation="read",
            errno=errno.ENOENT,
        )

    def listed(self) -> Sequence[Place]:
        """Return (folder, base, time of the last change in ms) of each file. A compaction of the broker changes this
        list; appends change only the last file, so that its time is left out.
        """
        fs, found = self._files.fs, list[Place]()
        for folder in (self.log, self.queue):
            for base in bases_in(fs, folder):
                changed_ms = -1
                with unless_missing():  # it is replaced now
                    changed_ms = fs.mtime_ms(folder / names.file_name(base))
                found.append((folder, base, changed_ms))
            if found:
                found[-1] = (*found[-1][:2], 0)
        return found

    def _listed_records(
        self, listed: Sequence[Place], notes: Notes, but: range, reached: int
    ) -> Iterator[tuple[SparseEntry, Message]]:
        bases = [base for folder, base, _ in listed if folder == self.log]
        last = -1
        for path, position, entry in self.entries(self._entry_bases(listed)):
            try:
                if entry.queue_offset <= last:
                    raise _corrupt(f"queue offset {entry.queue_offset} follows {last}")
                last = entry.queue_offset
                if last in but or last <= reached:
                    continue
                message = self._message(bases, entry)
            except DataError as error:
                if self.listed() != listed:
                    raise self._replaced() from error
                notes.add(self._bad(path, position, entry, error))
            else:
                yield entry, message

    def _message(self, bases: Sequence[int], entry: SparseEntry) -> Message:
        """Return the record of an entry. Raises Corrupt, Truncated."""
        at = bisect_right(bases, entry.physical_offset) - 1
        if at < 0:
            raise _corrupt(f"no log file holds position {entry.physical_offset}")
        path = self.log / names.file_name(bases[at])
        message = decode_message(self._read(path, entry.physical_offset - bases[at], entry.size))
        wanted = (*self.partition, entry.queue_offset, entry.physical_offset, entry.size)
        found = (
            message.topic,
            message.queue_id,
            message.queue_offset,
            message.physical_offset,
            message.size,
        )
        if found != wanted:
            raise _corrupt(f"another record is at position {entry.physical_offset}")
        return message

    def _read(self, path: Path, position: int, size_bytes: int) -> bytes:
        with self._files.borrow(path) as file:
            return file.pread(size_bytes, position)

    def _bad(self, path: Path, position: int, entry: SparseEntry, error: DataError) -> Finding:
        topic, queue_id = self.partition
        return finding(
            "bad-compacted-record",
            path,
            position=position,
            topic=topic,
            partition=queue_id,
            offset=entry.queue_offset,
            message=error.message,
        )

    def mismatches(self) -> Sequence[Finding]:
        """Return a finding for each file without its counterpart (CompactionLog.TopicPartitionLog.sanityCheck)."""
        alone: Sequence[tuple[Path, int]] = ()
        for _ in range(LOOKS):
            listed = self.listed()
            alone = self._alone(listed)
            if not alone or self.listed() == listed:
                break
        return [self._mismatch(*place) for place in alone]

    def _alone(self, listed: Sequence[Place]) -> Sequence[tuple[Path, int]]:
        count = Counter(base for _, base, _ in listed)
        return sorted((f, base) for f, base, _ in listed if count[base] == 1)

    def _mismatch(self, folder: Path, base: int) -> Finding:
        topic, queue_id = self.partition
        other = self.queue if folder == self.log else self.log
        return finding(
            "compaction-mismatch",
            folder / names.file_name(base),
            topic=topic,
            partition=queue_id,
            message=f"{other} has no file of this name: the broker does not load this log",
        )


def _has_missed(listed: Sequence[Place], now: Sequence[Place]) -> bool:
    """Return whether files exist now that were not in a list, other than new ones at the end."""
    known = {place[:2] for place in listed}
    newest = max((base for _, base, _ in listed), default=INT64_MAX)
    return any((folder, base) not in known and base < newest for folder, base, _ in now)


def _corrupt(what: str) -> Corrupt:
    return Corrupt(what, kind="compacted record", position=None, expected=None, found=None)
