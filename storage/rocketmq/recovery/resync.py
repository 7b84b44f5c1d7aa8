"""Data after the offset where a walk of the log ended: nothing, old bytes, or records that count.

Owns the question whether good records follow a bad place; must not decide what to do then, nor
write. RocketMQ leaves old bytes after a cut. A record there counts only if an entry of its
queue points to it, or if it continues the log: its store time is no earlier than the
last record's, and its queue offset no lower than the next of its queue.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from storage.errors import Corrupt
from storage.rocketmq.format.message import (
    FIXED_SIZE_V4,
    MAGIC_POSITION,
    PADDING_SIZE,
    Message,
    decode_message,
    encode_padding,
)
from storage.rocketmq.index.queues import Queue, QueueTable
from storage.rocketmq.log.commit_log import record_at
from storage.rocketmq.log.file_sequence import FileSequence
from storage.rocketmq.log.scan import LogRange

SECTOR_BYTES: Final = 512
SIZE_BYTES: Final = 4
FIRST_WINDOW_BYTES: Final = 1 << 14
WINDOW_BYTES: Final = 1 << 20
_MAGIC: Final = re.compile(rb"\xda\xa3\x20[\xa7\xab]")
_PADDING_MAGIC: Final = re.compile(rb"\xcb\xd4\x31\x94")
_ZERO_SECTOR: Final = bytes(SECTOR_BYTES)


class LogSoFar(NamedTuple):
    """The state of a walk where it stops: the last store time, and the next offset of a queue."""

    last_store_timestamp_ms: int
    next_offset: Callable[[str, int], int]


def sound_part(log_range: LogRange) -> LogRange | None:
    """Return `log_range` up to its first record that a crash has torn after its body; unchanged if none is torn, None
    if the first is. RocketMQ accepts such a record, so this is only for use after a crash of logserver.
    """
    for position, size in log_range.records:
        if _is_torn(log_range.data, position - log_range.start, size):
            return log_range.before(position)
    return log_range


def _is_torn(data: bytes, position: int, size: int) -> bool:
    """Return whether a record ends in zeros or has a sector of zeros in its properties. Its CRC covers only
    the body, so that nothing else reveals a lost write after the body.
    """
    end = position + size
    if data[end - 1] and (size < SECTOR_BYTES or data.find(_ZERO_SECTOR, position, end) < 0):
        return False
    message = decode_message(data, position, check_crc=False)
    tail = message.properties or message.topic.encode()
    return tail.endswith(b"\0") or _ZERO_SECTOR in message.properties


class Behind:
    """The search after bad places of one walk. Positions must be given in ascending order.

    Each entry of a queue is followed once: a record found for an earlier position is also the answer for a later
    position before it. The end of the data is searched once.
    """

    def __init__(self, run: FileSequence, queues: QueueTable) -> None:
        self._run = run
        self._pointers = [_Pointer(run, queue) for queue in queues]
        self._data_end: int | None = None

    def next_good(
        self, position: int, so_far: LogSoFar, *, looking: bool = True, before: int | None = None
    ) -> int | None:
        """Return the first record after `position`, and before `before` if given, that counts; None if there is none.
        `looking` False: only queue entries are followed, and the bytes after `position` are not searched.
        """
        found = [
            at for pointer in self._pointers if (at := pointer.first_behind(position)) is not None
        ]
        pointed = min(found, default=None)
        if before is not None and (pointed is None or pointed >= before):
            pointed = None
        if not looking:
            return pointed
        stop = pointed or before or self._end_of_data(position)
        for at in _candidates(self._run, position, stop):
            message = record_at(self._run, at)
            if message is not None and _goes_on(message, so_far):
                return at
        return pointed

    def _end_of_data(self, position: int) -> int:
        if self._data_end is None:
            self._data_end = self._run.data_end(position)
        return max(self._data_end, position)


class _Pointer:
    """The first good record after a position to which an entry of one queue points; the position only rises."""

    def __init__(self, run: FileSequence, queue: Queue) -> None:
        self._run = run
        self._queue = queue
        self._next = 0  # the offset after the entry that led to `_found`
        self._found: int | None = -1

    def first_behind(self, position: int) -> int | None:
        """Return the physical offset of the record; None if there is none, or if a file of the queue is missing."""
        if self._found is not None and self._found <= position:
            try:
                self._found = self._follow(position)
            except Corrupt:
                self._found = None
        return self._found

    def _follow(self, position: int) -> int | None:
        units, limit = self._queue.units, self._run.limit
        for offset in range(max(self._next, units.first_at(position + 1)), units.end):
            unit = units.unit(offset)
            if unit.physical_offset >= limit:
                return None
            if unit.physical_offset <= position:
                continue  # a damaged entry: physical offsets rise
            message = record_at(self._run, unit.physical_offset)
            if message is not None and (message.topic, message.queue_id) == self._queue.partition:
                self._next = offset + 1
                return unit.physical_offset
        return None


def first_record(run: FileSequence, start: int, stop: int) -> int | None:
    """Return the first offset in [start, stop) of a good record that contains this offset; None without one."""
    candidates = _candidates(run, start - 1, stop)
    return next((at for at in candidates if record_at(run, at) is not None), None)


def _goes_on(message: Message, so_far: LogSoFar) -> bool:
    if message.store_timestamp_ms < so_far.last_store_timestamp_ms:
        return False
    if not message.in_queue:
        return True
    return message.queue_offset >= so_far.next_offset(message.topic, message.queue_id)


def _candidates(run: FileSequence, position: int, stop: int) -> Iterator[int]:
    """Yield the offsets in (position, stop) at which a record may begin: a record's magic is 4 bytes after them."""
    for base in run.bases:
        begin, end = max(base, position + 1), min(base + run.file_bytes, stop)
        window_bytes = FIRST_WINDOW_BYTES  # the next record is usually near
        while begin < end:
            data = run.read(begin, min(window_bytes, end - begin) + FIXED_SIZE_V4)
            for match in _MAGIC.finditer(data, MAGIC_POSITION):
                at = match.start() - MAGIC_POSITION
                if at < window_bytes and begin + at < end:
                    yield begin + at
            begin += window_bytes
            window_bytes = min(2 * window_bytes, WINDOW_BYTES)


def has_zeroed_sector(run: FileSequence, start: int, end: int) -> bool:
    """Return whether a sector of a file within [start, end) is all zeros, which means a lost write.

    - The rest of the sector that contains `start` counts, unless it is so short that it could be zeros of a size.
    - The last sector counts also if the file ends within it.
    - The record at `end` may begin in a zeroed sector, since its size begins with zeros.
    - The padding of a file is zeros and does not count.
    """
    limit = end + SIZE_BYTES - 1
    base = run.base_of(start)
    while base is not None and base < limit:
        begin = max(start, base)
        stop = min(limit, base + run.file_bytes)
        stop = _padding_at(run, begin, stop, base + run.file_bytes) or stop
        rest_bytes = min(-(begin - base) % SECTOR_BYTES, end - begin)
        if rest_bytes >= SIZE_BYTES and not run.read(begin, rest_bytes).strip(b"\0"):
            return True
        if _has_zeros(run, begin + -(begin - base) % SECTOR_BYTES, stop):
            return True
        base = run.base_of(base + run.file_bytes)
    return False


def _padding_at(run: FileSequence, begin: int, stop: int, end: int) -> int | None:
    """Return where the padding of the file that ends at `end` begins, in [begin, stop); None if it has none there."""
    for at in range(begin, stop, WINDOW_BYTES):
        data = run.read(at, min(WINDOW_BYTES, stop - at) + PADDING_SIZE)
        for match in _PADDING_MAGIC.finditer(data, MAGIC_POSITION):
            position = at + match.start() - MAGIC_POSITION
            if run.read(position, PADDING_SIZE) == encode_padding(end - position):
                return position
    return None


def _has_zeros(run: FileSequence, begin: int, stop: int) -> bool:
    """Return whether a sector between two positions of one file is zeros; the first sector begins at `begin`."""
    while begin < stop:
        data = run.read(begin, min(WINDOW_BYTES, stop - begin))
        if not data:
            return False
        if (
            run.base_of(begin + len(data)) != run.base_of(begin)
            and len(data) % SECTOR_BYTES >= SIZE_BYTES
        ):
            data += bytes(-len(data) % SECTOR_BYTES)  # the file ends within a sector
        for at in range(0, len(data) - SECTOR_BYTES + 1, SECTOR_BYTES):
            if data.startswith(_ZERO_SECTOR, at):
                return True
        begin += max(len(data) - len(data) % SECTOR_BYTES, SECTOR_BYTES)
    return False
