"""Walk of the commit log from one record to the next, across its files.

Owns the steps of that walk for recovery, rebuild and verification; must not decide what a bad place means, nor write.
Sources: CommitLog.recoverNormally and recoverAbnormally of RocketMQ.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from storage.rocketmq.format import scan
from storage.rocketmq.format.message import PADDING_SIZE, peek
from storage.rocketmq.format.scan import BAD, PADDING, SHORT
from storage.rocketmq.log.file_sequence import FileSequence

CHUNK_BYTES: Final = 1 << 18  # objects made from it stay in the processor's cache
END: Final = "end"  # the walk reached `stop`, or no file covers the position


class LogRange(NamedTuple):
    """A run of adjacent good records: the first `size_bytes` of `data`, which begins at the physical offset `start`.

    `last`: the physical offset of the last record.
    """

    data: bytes
    start: int
    size_bytes: int
    last: int

    @property
    def end(self) -> int:
        """The physical offset after the last record."""
        return self.start + self.size_bytes

    @property
    def records(self) -> Sequence[tuple[int, int]]:
        """(physical offset, size) of each record; made at each use."""
        return scan.records_in(self.data, 0, self.size_bytes, self.start)

    def before(self, stop: int) -> LogRange | None:
        """Return the records that begin before this physical offset; None if there are none."""
        if self.last < stop:
            return self
        records = self.records
        count = bisect_left(records, (stop, 0))
        if not count:
            return None
        last, size = records[count - 1]
        return self._replace(size_bytes=last + size - self.start, last=last)


class Stop(NamedTuple):
    """The place where a walk ended, and the reason: END, BLANK or BAD."""

    position: int
    reason: str


def walk_log(
    run: FileSequence, position: int, stop: int, *, check_crc: bool = True
) -> Iterator[LogRange | Stop]:
    """Yield the good records from `position`, where a record begins, to `stop`; at the end yield the Stop."""
    while position < stop:
        base = run.base_of(position)
        if base is None:
            break
        file_end = base + run.file_bytes
        data = run.read(position, min(CHUNK_BYTES, stop - position))
        walked = scan.walk(data, 0, len(data), check_crc=check_crc)
        if walked.reason == SHORT and not walked.end:
            data = _whole_record(run, data, position, file_end)
            walked = scan.walk(data, 0, len(data), check_crc=check_crc)
        size_bytes, last, reason = walked
        if size_bytes:
            yield LogRange(data, position, size_bytes, position + last)
        position += size_bytes
        if reason == PADDING or position == file_end:
            position = file_end
        elif reason != SHORT or not size_bytes:
            yield Stop(position, BAD if reason == SHORT else reason)
            return
    yield Stop(position, END)


def _whole_record(run: FileSequence, data: bytes, position: int, file_end: int) -> bytes:
    """Return the bytes of the record at `position`, at most to the end of its file."""
    size = peek(data, 0)[0] if len(data) >= PADDING_SIZE else 0
    if not len(data) < size <= file_end - position:
        return data
    return run.read(position, size)
