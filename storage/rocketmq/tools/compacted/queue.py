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

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from storage.errors import Corrupt, DataError
from storage.files import FileSystem, HandleCache
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

    def records(self, notes: Notes) -> Iterator[tuple[SparseEntry, Message]]:
        """Yield entries and their records by queue offset, as the broker's consumers get them. A record that is damaged
        or is not the entry's becomes a finding in `notes`.
        """
        bases = bases_in(self._files.fs, self.log)
        last = -1
        for path, position, entry in self.entries():
            try:
                if entry.queue_offset <= last:
                    raise _corrupt(f"queue offset {entry.queue_offset} follows {last}")
                last = entry.queue_offset
                message = self._message(bases, entry)
            except DataError as error:
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

    def mismatches(self) -> Iterator[Finding]:
        """Yield a finding for each file without its counterpart (CompactionLog.TopicPartitionLog.sanityCheck)."""
        fs = self._files.fs
        logs, queues = set(bases_in(fs, self.log)), set(bases_in(fs, self.queue))
        topic, queue_id = self.partition
        for base in sorted(logs ^ queues):
            folder, other = (self.log, self.queue) if base in logs else (self.queue, self.log)
            yield finding(
                "compaction-mismatch",
                folder / names.file_name(base),
                topic=topic,
                partition=queue_id,
                message=f"{other} has no file of this name: the broker does not load this log",
            )


def _corrupt(what: str) -> Corrupt:
    return Corrupt(what, kind="compacted record", position=None, expected=None, found=None)
