"""Ranges of the log, processed as parts (perhaps in parallel), with results in log order.

Owns the cuts of the log into ranges. Owns the repetition of a range that did not begin where the previous range
ended, or whose guess of the state before it was wrong. Must not know how a range is processed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Final, Protocol, TypeVar

from storage.contract import TaskRunner
from storage.rocketmq.log.file_sequence import FileSequence
from storage.rocketmq.recovery.resync import first_record
from storage.rocketmq.tools.log_walk import LogWalk
from storage.rocketmq.tools.verify.index import BEGIN, IndexPlace
from storage.rocketmq.tools.verify.queues import Key, QueueState, Range

RANGE_BYTES: Final = 64 << 20


@dataclass(slots=True, kw_only=True)
class Reached:
    """The state at the beginning of a range: of the walk, of the queues met so far, and of the index."""

    last_store_timestamp_ms: int = 0
    next_offsets: dict[Key, int] = field(default_factory=dict)
    gaps: list[Range] = field(default_factory=list)
    queues: dict[Key, QueueState] = field(default_factory=dict)
    index: IndexPlace = BEGIN

    def take(self, latest: Reached) -> None:
        """Update this state with the state after the next range. `latest.gaps` holds only the gaps of that range."""
        self.last_store_timestamp_ms = latest.last_store_timestamp_ms
        self.next_offsets.update(latest.next_offsets)
        self.gaps += latest.gaps
        self.queues.update(latest.queues)
        self.index = latest.index


@dataclass(frozen=True, slots=True, kw_only=True)
class RangeTask:
    """The records that begin in [start, until) of the log. `reached` None: the state at `start` is guessed."""

    start: int
    until: int
    reached: Reached | None = None


class Result(Protocol):
    """The result of one range. `goes_on_at` is the start of the next range, None at the end of the log. `looked_back`:
    the result depended on the log before the range. `reached`: see Reached.take.
    """

    @property
    def goes_on_at(self) -> int | None: ...
    @property
    def looked_back(self) -> bool: ...
    @property
    def reached(self) -> Reached: ...


R = TypeVar("R", bound=Result)


def resume(walk: LogWalk, part: RangeTask) -> int:
    """Give a walk the state at the beginning of its range. Return the number of gaps known so far."""
    if part.reached is None:
        return 0
    known = part.reached
    walk.resume(
        last_store_timestamp_ms=known.last_store_timestamp_ms,
        next_offsets=known.next_offsets,
        gaps=known.gaps,
    )
    return len(known.gaps)


def reached_by(walk: LogWalk, known_gaps: int) -> Reached:
    """Return the state that a walk has reached. Its gaps are those after the first `known_gaps`."""
    return Reached(
        last_store_timestamp_ms=walk.last_store_timestamp_ms,
        next_offsets=walk.next_offsets,
        gaps=walk.gaps[known_gaps:],
    )


def in_order(
    log: FileSequence,
    run: TaskRunner,
    work: Callable[[RangeTask], R],
    reached: Reached,
    fits: Callable[[R], bool] = lambda result: True,
) -> Iterator[R]:
    """Yield the results of all ranges in log order. `reached` is updated with each result before it is yielded.
    `fits` returns whether the guess of a range equals the reached state; if not, the range is processed again.
    """
    handed_out: deque[RangeTask] = deque()  # parts whose results are still missing
    position: int | None = log.start

    def parts() -> Iterator[RangeTask]:
        for start, until in cuts(log):
            part = RangeTask(start=start, until=until)
            if not handed_out:  # all earlier results are merged, so the state is known
                if position is None:
                    return
                if position >= until > start:
                    continue
                part = replace(part, start=position, reached=reached)
            handed_out.append(part)
            yield part

    for result in run(work, parts()):
        part = handed_out.popleft()
        if position is None or position >= part.until > part.start:
            continue  # the previous range already went past this one
        guessed = part.reached is None
        if guessed and (part.start != position or result.looked_back or not fits(result)):
            (result,) = run(work, [replace(part, start=position, reached=reached)])
        position = result.goes_on_at
        reached.take(result.reached)
        yield result


def cuts(run: FileSequence) -> Iterator[tuple[int, int]]:
    """Yield ranges [start, end) of the log, of about RANGE_BYTES. Each begins at a good record that stores its own
    physical offset, the first such record of its window. The last range ends at the end of the files.
    """
    start, stop = run.start, run.data_end(run.start)
    wanted = start + RANGE_BYTES
    while wanted < stop:
        cut = first_record(run, wanted, min(wanted + RANGE_BYTES, stop))
        if cut is not None:
            yield start, cut
            start = cut
        wanted += RANGE_BYTES
    yield start, run.limit
