"""The known queues of a store that other processes may be writing to; no file is written.

Owns where the entries of a queue are found: in its files, as far as these contain exactly the known entries,
and after that in memory; must not read records. The dispatcher's Builder adds entries: an entry that a
server has not written yet, or never will, is made from its record.

    offsets   start ......... tail_start | ............ end
    units     in the queue's files       | `tail`, until the files hold them too
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from storage.errors import IoFailure
from storage.files import HandleCache
from storage.rocketmq.format.queue_entry import FILLER, UNIT, UNIT_SIZE, QueueEntry
from storage.rocketmq.index.consume_queue import ConsumeQueue
from storage.rocketmq.index.queues import Queue, QueueTable

COMPARED_BYTES: Final = (1 << 20) // UNIT_SIZE * UNIT_SIZE


class KnownQueue(ConsumeQueue):
    """One known queue: it is read from files and memory, and appended to in memory."""

    def __init__(self, files: HandleCache, directory: Path, file_bytes: int) -> None:
        super().__init__(files, directory, file_bytes)
        self.tail_start = 0
        self.tail = bytearray()  # mutable: a follower appends to it many times

    def take_over(self, units: ConsumeQueue, *, are_stored: bool) -> None:
        """Set the entries that another read of the queue found. `are_stored`: the files contain all of them."""
        self.run.load()
        self.start, self.end, self.last_end = units.start, units.end, units.last_end
        self.tail_start = self.end
        if are_stored or not units.run.bases:
            return
        self.tail_start = units.first_offset
        chunks = units.run.chunks(units.run.start, units.end * UNIT_SIZE, COMPARED_BYTES)
        self.tail = bytearray().join(data for _, data in chunks)
        self.forget_stored()

    @property
    def first_offset(self) -> int:
        """The offset of the first entry that is known, or that a file has room for."""
        if not self.run.bases:
            return self.tail_start
        return min(super().first_offset, self.tail_start)

    def make_room(self, offset: int) -> None:
        """Do nothing: entries stay in memory, so no file is needed."""

    def append(self, units: bytes, offset: int, last_end: int) -> None:
        """Append entries in memory. In an empty queue, fillers go before them, from the start of a file."""
        if self.is_empty and self.end != offset:
            in_file = self.run.file_bytes // UNIT_SIZE
            self.tail_start = offset - offset % in_file
            self.tail = bytearray(FILLER * (offset - self.tail_start))
            self.start = self.end = offset
        self.tail += units
        self.end += len(units) // UNIT_SIZE
        self.last_end = last_end

    def raw(self, offset: int, count: int) -> bytes:
        """Return the bytes of the known entries from `offset` on, at most `count`. Raises Corrupt, IoFailure."""
        stop = min(offset + count, self.end)
        stored = b""
        if offset < self.tail_start:
            begin, end = offset * UNIT_SIZE, min(stop, self.tail_start) * UNIT_SIZE
            stored = b"".join(data for _, data in self.run.chunks(begin, end, COMPARED_BYTES))
            offset = min(stop, self.tail_start)
        first = (offset - self.tail_start) * UNIT_SIZE
        return stored + bytes(self.tail[first : (stop - self.tail_start) * UNIT_SIZE])

    def read(self, offset: int, count: int) -> Sequence[QueueEntry]:
        """Read entries as ConsumeQueue.read does."""
        return list(map(QueueEntry._make, UNIT.iter_unpack(self.raw(offset, max(count, 0)))))

    def carried(self, first: int, end: int) -> bytes:
        """Return the bytes of the entries in [first, end) that the files do not contain."""
        first = max(first, self.tail_start)
        return self.raw(first, end - first) if first < end else b""

    def forget_stored(self) -> None:
        """Drop the entries from memory that the files now contain."""
        if self.tail and self.run.base_of((self.end - 1) * UNIT_SIZE) is None:
            self.run.load()
        done = 0
        while done < len(self.tail):
            wanted = bytes(self.tail[done : done + COMPARED_BYTES])
            same = _alike(wanted, self._stored(self.tail_start * UNIT_SIZE + done, len(wanted)))
            if not same:
                break
            done += same
        del self.tail[:done]
        self.tail_start += done // UNIT_SIZE

    def _stored(self, position: int, size_bytes: int) -> bytes:
        """Return the bytes of one file at a position; no bytes if the file is missing or unreadable."""
        if self.run.base_of(position) is None:
            return b""
        try:
            return self.run.read(position, size_bytes)
        except IoFailure:
            return b""


def _alike(wanted: bytes, found: bytes) -> int:
    """Return the number of equal bytes at the beginning of both, in whole entries."""
    if found[: len(wanted)] == wanted:
        return len(wanted)
    low, high = 0, min(len(wanted), len(found)) // UNIT_SIZE
    while low < high:
        middle = (low + high + 1) // 2
        if wanted[: middle * UNIT_SIZE] == found[: middle * UNIT_SIZE]:
            low = middle
        else:
            high = middle - 1
    return low * UNIT_SIZE


class KnownQueues(QueueTable):
    """The known queues of a store by topic and queue id; no queue file is written."""

    def units_of(self, topic: str, queue_id: int) -> KnownQueue:
        """Return a queue without known entries."""
        return KnownQueue(self.files, self.root / topic / str(queue_id), self.file_bytes)

    def add_known(self, topic: str, queue_id: int) -> KnownQueue:
        """Return the entries of a queue, which is added if it does not exist."""
        return self.known(self.add(topic, queue_id))

    def known(self, queue: Queue) -> KnownQueue:
        """Return the entries of one of these queues."""
        assert isinstance(queue.units, KnownQueue)
        return queue.units

    def use_files(self, files: HandleCache) -> None:
        """Read through these files from now on: files on disk may have been replaced."""
        self.files = files
        for queue in self:
            queue.units.run.files = files
