"""A walk over the commit log from start to end, across all damage.

Owns the walk that all tools share: records, paddings, and a finding for every bad place that good
records follow; must not write, and must not know the purpose of the walk.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Generator, Iterator, Mapping, Sequence
from typing import Final, NamedTuple, Unpack

from storage.errors import DataError
from storage.findings import RecordFacts, finding
from storage.model import Finding
from storage.rocketmq.format.message import (
    MAGIC_V1,
    MAGIC_V2,
    PADDING_SIZE,
    Message,
    decode_message,
    peek,
)
from storage.rocketmq.format.names import file_name
from storage.rocketmq.format.scan import BAD, BLANK, PADDING
from storage.rocketmq.index.queues import QueueTable
from storage.rocketmq.log.file_sequence import FileSequence
from storage.rocketmq.log.scan import LogRange, Stop, walk_log
from storage.rocketmq.recovery.losses import UNKNOWN, Owners
from storage.rocketmq.recovery.resync import Behind, LogSoFar
from storage.shared.diagnostics import Meter, Notes

MAX_SHOWN_BYTES: Final = 16 << 20
"""Limit on the bytes read at a bad place to describe its error."""


def missing_files(run: FileSequence, begin: int) -> Finding:
    """Return the finding for the files that are missing between position `begin` and the next file of the run."""
    following = min(base for base in run.bases if base > begin and not base % run.file_bytes)
    return finding(
        "missing-file",
        run.directory / file_name(begin),
        expected=f"a file that begins at {begin}",
        found=f"the next begins at {following}",
        message=f"{following - begin} bytes have no file",
    )


def overlap(ranges: Sequence[tuple[int, int]], start: int, end: int) -> bool:
    """Return whether a range overlaps [start, end). The ranges are sorted and do not overlap each other."""
    after = bisect_left(ranges, (end,))
    return after > 0 and start < ranges[after - 1][1]


def why_bad(run: FileSequence, physical_offset: int) -> DataError | None:
    """Return the error of the record at a physical offset; None if it can be decoded."""
    head = run.read(physical_offset, PADDING_SIZE)
    try:
        size, magic = peek(head, 0)
        if magic in (MAGIC_V1, MAGIC_V2) and size > PADDING_SIZE:  # else size is meaningless
            head = run.read(physical_offset, min(size, MAX_SHOWN_BYTES))
        decode_message(head)
    except DataError as error:
        return error
    return None


class Padding(NamedTuple):
    """The unused rest of a file."""

    physical_offset: int
    size: int


class Placed(NamedTuple):
    """A good record, its physical offset, and its bytes: `data[position : position + message.size]`."""

    physical_offset: int
    message: Message
    data: bytes
    position: int


class LogWalk:
    """A walk over the log from `start` (None: log start) to `end`, or only up to the first record at or after `until`.
    `queues` (perhaps empty) help to distinguish records from old bytes.
    """

    def __init__(
        self,
        run: FileSequence,
        queues: QueueTable,
        notes: Notes,
        *,
        start: int | None = None,
        end: int,
        until: int | None = None,
        meter: Meter | None = None,
        origin: int | None = None,
        clean: bool = False,
    ) -> None:
        """Create the walk. `clean`: the last stop was clean, so zeros end the log unless a queue entry leads to a
        record after them. `origin`: the position where `meter` starts to count (None: at `start`).
        """
        self.run = run
        self.notes = notes
        self._start = run.start if start is None else start
        self.position = self._start  # position after the last good record or padding
        self.last_store_timestamp_ms = 0
        self.gaps: list[
            tuple[int, int]
        ] = []  # bad places as physical offsets [start, end), in order
        self.torn: Stop | None = None  # set if the log ends before bytes that are not a record
        self._behind = Behind(run, queues)
        self._owners = Owners(run, queues)
        self._origin = self._start if origin is None else origin
        self._end = end
        self._until = end if until is None else until
        self._clean = clean
        self._meter = meter or Meter()
        self.next_offsets: dict[tuple[str, int], int] = {}
        self.goes_on_at: int | None = self._start  # after the walk; None: the log ended
        self.looked_back = False  # a result depended on the log before `start`

    def records(self) -> Iterator[Placed]:
        """Return the good records, in order."""
        return (item for item in self.items() if isinstance(item, Placed))

    def items(self) -> Iterator[Placed | Padding]:
        """Yield the good records and the paddings, in order."""
        for item in self.log_ranges():
            if isinstance(item, Padding):
                yield item
            else:
                yield from self.placed(item)

    def resume(
        self,
        *,
        last_store_timestamp_ms: int,
        next_offsets: Mapping[tuple[str, int], int],
        gaps: Sequence[tuple[int, int]],
    ) -> None:
        """Set the state that walks over the log before `start` have reached. Call it before this walk begins."""
        self.last_store_timestamp_ms = last_store_timestamp_ms
        self.next_offsets = dict(next_offsets)
        self.gaps = list(gaps)

    def log_ranges(self) -> Iterator[LogRange | Padding]:
        """Yield the same items, but adjacent records together as one `LogRange`."""
        position: int | None = self._start
        while position is not None and position < self._until:
            self.position = position
            for step in walk_log(self.run, position, self._end):
                hidden = yield from self._paddings(
                    min(step.position, self._end) if isinstance(step, Stop) else step.start
                )
                if hidden is not None:
                    position = hidden
                    break
                if isinstance(step, Stop):
                    position = self._beyond(step)
                    break
                wanted = step.before(self._until)
                if wanted is not None:
                    position = self.position = wanted.end
                    yield wanted
                    self._meter.reach(self.position - self._origin)
                if self.position >= self._until or wanted is not step:
                    position = self.position
                    break
        self.goes_on_at = position

    def _paddings(self, position: int) -> Generator[Padding, None, int | None]:
        """Yield the paddings between the walk and `position`; return the position of a good record inside a padding, if
        any.

        A padding extends to the end of its file. If a valid record is inside it, the padding's bytes are damage.
        """
        while self.position < position:
            start, file_end = self.position, self.run.file_end(self.position)
            hidden = self._behind.next_good(start, self._so_far(), before=file_end)
            if hidden is not None:
                self._note_gap(Stop(start, PADDING), hidden)
                return hidden
            head = self.run.read(start, PADDING_SIZE)
            yield Padding(start, peek(head, 0)[0])
            self.position = file_end
        return None

    def settle(self) -> None:
        """Bring the public fields up to date; for a walk whose owner does not do so after every `LogRange`."""

    def _so_far(self) -> LogSoFar:
        self.settle()
        return LogSoFar(self.last_store_timestamp_ms, lambda *key: self.next_offsets.get(key, 0))

    def _note_gap(self, stop: Stop, following: int) -> None:
        """Record and report a bad place that a good record follows."""
        self.looked_back = True
        self.gaps.append((stop.position, following))
        self.notes.add(self._damage(stop, following))

    def placed(
        self, log_range: LogRange, records: Sequence[tuple[int, int]] | None = None
    ) -> Iterator[Placed]:
        """Yield the records of a `LogRange`, or only these of it, decoded."""
        for at, _ in log_range.records if records is None else records:
            position = at - log_range.start
            message = decode_message(log_range.data, position, check_crc=False)
            self.last_store_timestamp_ms = message.store_timestamp_ms
            if message.in_queue:
                key = message.topic, message.queue_id
                self.next_offsets[key] = message.queue_offset + 1
            yield Placed(at, message, log_range.data, position)

    def _beyond(self, stop: Stop) -> int | None:
        """Return the position where good records continue after a stop; None at the end of the log."""
        if stop.position >= self._end:
            return None
        if stop.position >= self._until:
            return stop.position
        looking = not self._clean or stop.reason != BLANK
        following = self._behind.next_good(stop.position, self._so_far(), looking=looking)
        if following is None or not stop.position < following < self._end:
            self.torn = stop if stop.reason == BAD else None
            return None
        self._note_gap(stop, following)
        return following

    def damaged_between(self, start: int, end: int) -> bool:
        """Return whether a bad place that was met overlaps [start, end)."""
        self.looked_back |= start < self._start
        return overlap(self.gaps, start, end)

    def _damage(self, stop: Stop, following: int) -> Finding:
        if self.run.base_of(stop.position) is None:
            return missing_files(self.run, stop.position - stop.position % self.run.file_bytes)
        if stop.reason == BLANK:
            found = "zeros"
        elif stop.reason == BAD:
            found = self.why(stop.position)
        else:
            found = stop.reason
        topic, partition, offset = self._owners.of(stop.position, following) or UNKNOWN
        return self.finding(
            "damaged-record",
            "error",
            stop.position,
            f"no good record at physical offset {stop.position}, and a good one follows at {following}",
            topic=topic,
            partition=partition,
            offset=offset,
            expected="a record",
            found=found,
        )

    def why(self, physical_offset: int) -> str:
        """Return a description of the error in the record at a physical offset."""
        error = why_bad(self.run, physical_offset)
        return BAD if error is None else error.message

    def finding(
        self,
        code: str,
        severity: str,
        physical_offset: int,
        message: str,
        **facts: Unpack[RecordFacts],
    ) -> Finding:
        """Return a finding located at a physical offset, given as a file and the position in it."""
        path, position = self.run.place_of(physical_offset)
        return finding(code, path, severity=severity, position=position, message=message, **facts)
