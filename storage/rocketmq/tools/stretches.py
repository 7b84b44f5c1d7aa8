"""Stretches of the log, done by whoever does parts, and taken in the order of the log.

Owns where the log is cut, and what is done with a stretch that did not begin where the one before it
ended, or guessed wrong what had come before it: it is done again. Must not know what is done with a
stretch.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Final, Protocol, TypeVar

from storage.parts import RunParts
from storage.rocketmq.behind import first_told
from storage.rocketmq.file_run import FileRun
from storage.rocketmq.tools.check_index import BEGIN, IndexPlace
from storage.rocketmq.tools.check_queues import Key, QueueState, Range
from storage.rocketmq.tools.log_walk import LogWalk

STRETCH_BYTES: Final = 64 << 20


@dataclass(slots=True, kw_only=True)
class Reached:
    """What is known where a stretch begins: of the walk, of queues that were met, and of the index."""

    last_store_timestamp_ms: int = 0
    next_offsets: dict[Key, int] = field(default_factory=dict)
    gaps: list[Range] = field(default_factory=list)
    queues: dict[Key, QueueState] = field(default_factory=dict)
    index: IndexPlace = BEGIN

    def take(self, latest: Reached) -> None:
        """Go on with what a stretch has reached; its gaps are the new ones."""
        self.last_store_timestamp_ms = latest.last_store_timestamp_ms
        self.next_offsets.update(latest.next_offsets)
        self.gaps += latest.gaps
        self.queues.update(latest.queues)
        self.index = latest.index


@dataclass(frozen=True, slots=True, kw_only=True)
class StretchPart:
    """The records that begin in [start, until) of the log. `reached` None: it is guessed."""

    start: int
    until: int
    reached: Reached | None = None


class Result(Protocol):
    """`goes_on_at`: where the next stretch begins, None at the end of the log. `looked_back`: something
    depended on the log in front of the stretch. `reached`: see Reached.take.
    """

    @property
    def goes_on_at(self) -> int | None: ...
    @property
    def looked_back(self) -> bool: ...
    @property
    def reached(self) -> Reached: ...


R = TypeVar("R", bound=Result)


def resume(walk: LogWalk, part: StretchPart) -> int:
    """Tell a walk what is known where its stretch begins; the number of gaps that are known."""
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
    """What a walk has reached."""
    return Reached(
        last_store_timestamp_ms=walk.last_store_timestamp_ms,
        next_offsets=walk.next_offsets,
        gaps=walk.gaps[known_gaps:],
    )


def in_order(
    log: FileRun,
    run: RunParts,
    work: Callable[[StretchPart], R],
    reached: Reached,
    fits: Callable[[R], bool] = lambda result: True,
) -> Iterator[R]:
    """The results of all stretches. `reached` goes on with each of them before it is handed out;
    `fits`: whether what one guessed is what is reached.
    """
    given: deque[StretchPart] = deque()  # parts without results
    position: int | None = log.start

    def parts() -> Iterator[StretchPart]:
        for start, until in cuts(log):
            part = StretchPart(start=start, until=until)
            if not given:  # all before it were taken in
                if position is None:
                    return
                if position >= until > start:
                    continue
                part = replace(part, start=position, reached=reached)
            given.append(part)
            yield part

    for result in run(work, parts()):
        part = given.popleft()
        if position is None or position >= part.until > part.start:
            continue  # the stretch before it went beyond it
        guessed = part.reached is None
        if guessed and (part.start != position or result.looked_back or not fits(result)):
            (result,) = run(work, [replace(part, start=position, reached=reached)])
        position = result.goes_on_at
        reached.take(result.reached)
        yield result


def cuts(run: FileRun) -> Iterator[tuple[int, int]]:
    """The log in stretches [start, end) of about STRETCH_BYTES that begin where a record begins: the
    first in each that is good and tells its own place. The last one goes to the end of the files.
    """
    start, stop = run.start, run.data_end(run.start)
    wanted = start + STRETCH_BYTES
    while wanted < stop:
        cut = first_told(run, wanted, min(wanted + STRETCH_BYTES, stop))
        if cut is not None:
            yield start, cut
            start = cut
        wanted += STRETCH_BYTES
    yield start, run.limit
