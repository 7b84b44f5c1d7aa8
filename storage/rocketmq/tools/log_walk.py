"""The commit log from one end to the other, over everything that is wrong with it.

Owns the walk that all tools share: records, paddings, and a finding for every bad place that good
records follow; must not write, and must not know what a record is looked at for.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Generator, Iterator, Mapping, Sequence
from typing import Final, NamedTuple, Unpack

from storage.errors import DataError
from storage.findings import RecordFacts, finding
from storage.model import Finding
from storage.notes import Meter, Notes
from storage.rocketmq.behind import Behind, LogSoFar
from storage.rocketmq.file_run import FileRun
from storage.rocketmq.format.message import (
    MAGIC_V1,
    MAGIC_V2,
    PADDING_SIZE,
    Message,
    decode_message,
    peek,
)
from storage.rocketmq.format.walking import BAD, BLANK, PADDING
from storage.rocketmq.owners import UNKNOWN, Owners
from storage.rocketmq.queues import QueueTable
from storage.rocketmq.walking import Stop, Stretch, walk_log

MAX_SHOWN_BYTES: Final = 16 << 20
"""Read of a bad place at most, to say what is wrong with it."""


def overlap(ranges: Sequence[tuple[int, int]], start: int, end: int) -> bool:
    """Return whether one of the ranges lies in [start, end), at least in part. They are in order, and apart."""
    after = bisect_left(ranges, (end,))
    return after > 0 and start < ranges[after - 1][1]


def why_bad(run: FileRun, physical_offset: int) -> DataError | None:
    """What is wrong with the record at a place; None where it can be decoded."""
    head = run.read(physical_offset, PADDING_SIZE)
    try:
        size, magic = peek(head, 0)
        if magic in (MAGIC_V1, MAGIC_V2) and size > PADDING_SIZE:  # else its size tells nothing
            head = run.read(physical_offset, min(size, MAX_SHOWN_BYTES))
        decode_message(head)
    except DataError as error:
        return error
    return None


class Padding(NamedTuple):
    """The rest of a file that was left out."""

    physical_offset: int
    size: int


class Placed(NamedTuple):
    """A good record, where it lies, and its bytes: `data[position : position + message.size]`."""

    physical_offset: int
    message: Message
    data: bytes
    position: int


class LogWalk:
    """One walk over the log from `start` (None: its beginning) to `end`, or only up to the first record
    at or behind `until`. `queues` (perhaps empty) help to tell records from old bytes.
    """

    def __init__(
        self,
        run: FileRun,
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
        """`clean`: the last stop was a clean one, so that zeros end the log unless a unit leads on.
        `origin`: where what `meter` counts began (None: at `start`).
        """
        self.run = run
        self.notes = notes
        self._start = run.start if start is None else start
        self.position = self._start  # behind the last thing that was good
        self.last_store_timestamp_ms = 0
        self.gaps: list[
            tuple[int, int]
        ] = []  # physical offsets [start, end) of bad places, in order
        self.torn: Stop | None = None  # the end of the log, where bytes that are no record follow
        self._behind = Behind(run, queues)
        self._owners = Owners(run, queues)
        self._origin = self._start if origin is None else origin
        self._end = end
        self._until = end if until is None else until
        self._clean = clean
        self._meter = meter or Meter()
        self.next_offsets: dict[tuple[str, int], int] = {}
        self.goes_on_at: int | None = self._start  # behind the walk; None: the log has ended
        self.looked_back = False  # something depended on what is in front of `start`

    def records(self) -> Iterator[Placed]:
        """The good records, in order."""
        return (item for item in self.items() if isinstance(item, Placed))

    def items(self) -> Iterator[Placed | Padding]:
        """The good records and the paddings, in order."""
        for item in self.stretches():
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
        """What walks over all that is in front of `start` have met, before this one begins."""
        self.last_store_timestamp_ms = last_store_timestamp_ms
        self.next_offsets = dict(next_offsets)
        self.gaps = list(gaps)

    def stretches(self) -> Iterator[Stretch | Padding]:
        """The same, records that lie side by side together."""
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
                wanted = self._wanted(step)
                if wanted.records:
                    last, size = wanted.records[-1]
                    position = self.position = last + size
                    yield wanted
                    self._meter.reach(self.position - self._origin)
                if self.position >= self._until or wanted is not step:
                    position = self.position
                    break
        self.goes_on_at = position

    def _wanted(self, stretch: Stretch) -> Stretch:
        """The records that begin in front of `until`."""
        if stretch.records[-1][0] < self._until:
            return stretch
        stop = bisect_left(stretch.records, (self._until, 0))
        return stretch._replace(records=stretch.records[:stop])

    def _paddings(self, position: int) -> Generator[Padding, None, int | None]:
        """What the walk stepped over to come to `position`; returns where a good record lies behind one of them.

        A padding goes to the end of its file: with a record behind it that counts, its bytes are damage.
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

    def _so_far(self) -> LogSoFar:
        return LogSoFar(self.last_store_timestamp_ms, lambda *key: self.next_offsets.get(key, 0))

    def _note_gap(self, stop: Stop, following: int) -> None:
        """Take in a bad place that a good record follows."""
        self.looked_back = True
        self.gaps.append((stop.position, following))
        self.notes.add(self._damage(stop, following))

    def placed(self, stretch: Stretch) -> Iterator[Placed]:
        """The records of a stretch, or of a part of one, as values."""
        for at, _ in stretch.records:
            position = at - stretch.start
            message = decode_message(stretch.data, position, check_crc=False)
            self.last_store_timestamp_ms = message.store_timestamp_ms
            if message.in_queue:
                key = message.topic, message.queue_id
                self.next_offsets[key] = message.queue_offset + 1
            yield Placed(at, message, stretch.data, position)

    def _beyond(self, stop: Stop) -> int | None:
        """Where good records go on behind the place where the walk stopped; None for the end."""
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
        """Whether one of the bad places that were met lies in [start, end), at least in part."""
        self.looked_back |= start < self._start
        return overlap(self.gaps, start, end)

    def _damage(self, stop: Stop, following: int) -> Finding:
        if self.run.base_of(stop.position) is None:
            what = f"{following - stop.position} bytes of the log have no file"
            return self.finding("missing-file", "error", stop.position, what)
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
        """What is wrong with the record at a place."""
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
        """A finding at a place of the log, told by file and position in it."""
        base = self.run.base_of(physical_offset)
        path = self.run.directory if base is None else self.run.path(base)
        return finding(
            code,
            path,
            severity=severity,
            position=physical_offset - (base or 0),
            message=message,
            **facts,
        )
