"""Walk of the commit log from one record to the next, across its files.

Owns the steps of that walk for recovery, rebuild and verification; must not decide what a bad place means, nor write.
Sources: CommitLog.recoverNormally and recoverAbnormally of RocketMQ.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from storage.rocketmq.format import scan
from storage.rocketmq.format.message import PADDING_SIZE, peek
from storage.rocketmq.format.scan import BAD, PADDING, SHORT
from storage.rocketmq.log.file_sequence import FileSequence

CHUNK_BYTES: Final = 1 << 18  # objects made from it stay in the processor's cache
END: Final = "end"  # the walk reached `stop`, or no file covers the position


class LogRange(NamedTuple):
    """A run of adjacent good records: their positions in the log, and their bytes in `data`.

    `data` begins at the physical offset `start`.
    """

    records: Sequence[tuple[int, int]]  # (physical offset, size)
    data: bytes
    start: int


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
        records, at, reason = scan.walk(data, 0, len(data), position, check_crc=check_crc)
        if reason == SHORT and not records:
            data = _whole_record(run, data, position, file_end)
            records, at, reason = scan.walk(data, 0, len(data), position, check_crc=check_crc)
        if records:
            yield LogRange(records, data, position)
        position += at
        if reason == PADDING or position == file_end:
            position = file_end
        elif reason != SHORT or not records:
            yield Stop(position, BAD if reason == SHORT else reason)
            return
    yield Stop(position, END)


def _whole_record(run: FileSequence, data: bytes, position: int, file_end: int) -> bytes:
    """Return the bytes of the record at `position`, at most to the end of its file."""
    size = peek(data, 0)[0] if len(data) >= PADDING_SIZE else 0
    if not len(data) < size <= file_end - position:
        return data
    return run.read(position, size)
