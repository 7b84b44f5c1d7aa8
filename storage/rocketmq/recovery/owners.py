"""Owners of bad places in the log: the record that was stored there, by its queue entry or by the rest of its header.

Owns that answer; must not judge the place. A header with another position, or with an impossible topic, proves nothing.
An entry outweighs a header, because readers follow the entry.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from storage.errors import Corrupt, DataError, IoFailure
from storage.rocketmq.format.message import FIXED_SIZE_V4, Message, decode_message
from storage.rocketmq.format.suspect import suspect_parts
from storage.rocketmq.index.light_queues import is_lmq
from storage.rocketmq.index.queues import Queue, QueueTable
from storage.rocketmq.log.file_sequence import FileRun

ADDRESS: Final = frozenset({"topic", "queue_id", "queue_offset", "physical_offset"})
UNKNOWN: Final = (None, None, None)
FILLERS_PASSED: Final = 64
_FAR: Final = 1 << 63


class Owner(NamedTuple):
    """The queue of a record, and the record's offset in it."""

    topic: str
    partition: int
    offset: int


class Owners:
    """Lookup of the owners of bad places in one log. In ascending order of places each entry is read about once."""

    def __init__(self, run: FileRun, queues: QueueTable) -> None:
        self._run = run
        self._queues = queues
        self._entries: dict[tuple[str, int], _Entries] = {}

    def of(self, start: int, stop: int) -> Owner | None:
        """Return the owner of the first record in [start, stop); None if nothing names it."""
        message = _header(self._run, start)
        if message is None:
            found = self._by_entries(start, stop)
            return None if found is None else found[1]
        queue = self._queues.get(message.topic, message.queue_id)
        entry = None if queue is None else self._entries_of(queue).first(start)
        if entry is not None and entry[0] == start:
            return Owner(message.topic, message.queue_id, entry[1])
        found = self._by_entries(start, start + 1)
        if found is not None:
            return found[1]
        return Owner(message.topic, message.queue_id, message.queue_offset)

    def _by_entries(self, start: int, stop: int) -> tuple[int, Owner] | None:
        """Return the first position in [start, stop) that an entry points to, and the record that was there."""
        lowest, found = stop, None
        for queue in self._queues:
            if is_lmq(queue.partition.topic):
                continue
            entry = self._entries_of(queue).first(start)
            if entry is not None and entry[0] < lowest:
                lowest = entry[0]
                found = lowest, Owner(*queue.partition, entry[1])
        return found

    def _entries_of(self, queue: Queue) -> _Entries:
        return self._entries.setdefault(queue.partition, _Entries(queue))


class _Entries:
    """The entries of one queue. An entry that was found also answers for later positions up to its own."""

    def __init__(self, queue: Queue) -> None:
        self._queue = queue
        self._known_from = _FAR
        self._physical_offset = -1
        self._offset = -1

    def first(self, position: int) -> tuple[int, int] | None:
        """Return (physical offset, queue offset) of the first entry that points to `position` or beyond."""
        if not self._known_from <= position <= self._physical_offset:
            self._known_from = position
            self._physical_offset, self._offset = self._found(position) or (_FAR, -1)
        return None if self._offset < 0 else (self._physical_offset, self._offset)

    def _found(self, position: int) -> tuple[int, int] | None:
        units = self._queue.units
        try:
            offset = units.first_at(position)
            for at in range(offset, min(offset + FILLERS_PASSED, units.end)):
                unit = units.unit(at)
                if not unit.is_filler:
                    right = unit.is_valid and unit.physical_offset >= position
                    return (unit.physical_offset, at) if right else None
        except (Corrupt, IoFailure):  # a file of the queue is missing
            pass
        return None


def _header(run: FileRun, at: int) -> Message | None:
    """Return the record at a position, whatever its CRC, if its lengths add up and its address is plausible."""
    if run.base_of(at) is None:
        return None
    size = int.from_bytes(run.read(at, 4), "big", signed=True)
    if not FIXED_SIZE_V4 <= size <= run.file_bytes:
        return None
    try:
        message = decode_message(run.read(at, size), check_crc=False)
    except DataError:
        return None
    if not message.in_queue or ADDRESS & set(suspect_parts(message, at)):
        return None
    return message
