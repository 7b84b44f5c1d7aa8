"""Checks of queue entries against the log.

Owns the rules for queue entries; the records of a log range are passed in, in order. Must not walk the log. The rules:

- An entry is right if it leads to the record with its queue offset, and has that record's size and tags code.
- Before the first record that still exists, entries may lead to deleted records, or be fillers.
- Entries for which no record was met are judged last, when the whole log is known.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Final, NamedTuple, Unpack

from storage.errors import Corrupt
from storage.findings import Comparison, finding
from storage.model import TopicPartition
from storage.rocketmq.format.message import Message
from storage.rocketmq.format.queue_entry import UNIT_SIZE, QueueEntry
from storage.rocketmq.index.dispatch_request import Dispatch
from storage.rocketmq.index.queues import Queue, QueueTable
from storage.rocketmq.queue import UNITS_AT_ONCE
from storage.rocketmq.tools.log_walk import overlap
from storage.rocketmq.tools.verify import due_times
from storage.shared.diagnostics import Tallies

EXTENSION: Final = -(1 << 31)
"""A tags code below this value is a position in consumequeue_ext."""


def no_record(_: int) -> Message | None:
    """Return None: `QueueContext.record_at` for a caller that does not read the log."""
    return None


class QueueContext(NamedTuple):
    """Facts about the log:

    - `rebuilt_from`: after a crash, a start rebuilds missing entries from this physical offset on. None after a clean
    stop.
    - `damaged_between`: whether a bad place was met in [start, end).
    - `extended`: tags codes may be positions in consumequeue_ext.
    - `levels_given`: the delay levels are known; otherwise they are assumed.
    - `fillers_hide`: the real store skips records after a filler.
    - `record_at`: returns the good record that begins at a physical offset, or None.
    """

    log_start: int
    rebuilt_from: int | None
    damaged_between: Callable[[int, int], bool]
    extended: bool = False
    levels_given: bool = False
    fillers_hide: bool = False
    record_at: Callable[[int], Message | None] = no_record


class QueueState(NamedTuple):
    """The checked state of a queue. `next_offset`: the first offset whose entry is not judged yet. `following`: the
    offset after the last record; None: no record was met. `last_at`: the physical offset of the last record.
    """

    next_offset: int
    following: int | None = None
    last_at: int = 0


Key = tuple[str, int]
Range = tuple[int, int]


class QueueChecks:
    """The queues of a store, checked with the records of a log range."""

    def __init__(
        self,
        queues: QueueTable,
        tallies: Tallies,
        surroundings: QueueContext,
        state_of: Callable[[Queue], QueueState],
    ) -> None:
        """Create the checks. `state_of` returns the state of a queue at the start of the range; it is called when the
        queue is first met.
        """
        self._queues = queues
        self._tallies = tallies
        self._surroundings = surroundings
        self._state_of = state_of
        self._checks: dict[Key, QueueCheck] = {}
        self.began: dict[Key, QueueState] = {}
        self.first_missing: int | None = None  # first record without an entry

    def meet(self, dispatch: Dispatch) -> None:
        """Check a good record that belongs to a queue."""
        key = dispatch.topic, dispatch.queue_id
        check = self._checks.get(key)
        if check is None:
            queue = self._queues.add(*key)
            state = self.began[key] = self._state_of(queue)
            check = QueueCheck(queue, self._tallies, self._surroundings, state)
            self._checks[key] = check
        if not check.meet(dispatch) and self.first_missing is None:
            self.first_missing = dispatch.physical_offset

    def ended(self) -> dict[Key, QueueState]:
        """Return the state after the range of each queue that was met."""
        return {key: check.state for key, check in self._checks.items()}

    def unmatched(self) -> dict[Key, list[Range]]:
        """Return the ranges [first, stop) of offsets, by queue, that no record matched."""
        return {key: check.unmatched for key, check in self._checks.items() if check.unmatched}


def damaged_in(gaps: Sequence[Range]) -> Callable[[int, int], bool]:
    """Return `QueueContext.damaged_between` for these bad places of the log, which are sorted."""
    return partial(overlap, gaps)


def at_first(queue: Queue) -> QueueState:
    """Return the state of a queue at the beginning of the log."""
    return QueueState(queue.units.first_offset)


def guessed(queue: Queue, position: int, *, log_start: int) -> QueueState:
    """Return the state of a queue at a record of the log, on the assumption that everything before it is right."""
    units = queue.units
    try:
        following = units.first_at(position)
        before = units.unit(following - 1) if following > units.first_offset else None
    except Corrupt:  # the queue has no file at that offset
        return at_first(queue)
    if before is None or before.is_filler or before.physical_offset < log_start:
        return at_first(queue)
    return QueueState(following, following, before.physical_offset)


def judge_units(
    queue: Queue,
    unmatched: Range,
    tallies: Tallies,
    surroundings: QueueContext,
    *,
    log_end: int,
) -> None:
    """Judge the entries in [first, stop) for which no record was met. The whole log must be known."""
    QueueCheck(queue, tallies, surroundings, at_first(queue)).judge(unmatched, log_end)


def wrong_units(queue: Queue, surroundings: QueueContext) -> set[int]:
    """Return the offsets of impossible entries in a queue for which the whole log has no record."""
    check = QueueCheck(queue, Tallies(), surroundings, at_first(queue))
    return {offset for offset, _ in check.wrong((queue.units.first_offset, queue.units.end))}


class QueueCheck:
    """The check of one queue, from one state to the next."""

    def __init__(
        self, queue: Queue, tallies: Tallies, surroundings: QueueContext, state: QueueState
    ) -> None:
        self._partition = queue.partition
        self._units = queue.units
        self._tallies = tallies
        self._log_start, self._rebuilt_from, self._damaged_between, *_ = surroundings
        self._extended, self._levels_given = surroundings.extended, surroundings.levels_given
        self._fillers_hide = surroundings.fillers_hide
        self._record_at = surroundings.record_at
        self._next, self._following, self._last_at = state
        self.unmatched: list[Range] = []  # [first, stop) of entries without a record
        self._block: Sequence[QueueEntry] = ()
        self._block_start = 0

    @property
    def state(self) -> QueueState:
        """The checked state of the queue."""
        return QueueState(self._next, self._following, self._last_at)

    def meet(self, dispatch: Dispatch) -> bool:
        """Check a record of the queue. Return whether it has an entry, right or wrong."""
        offset, at = dispatch.queue_offset, dispatch.physical_offset
        self._check_offset(dispatch)
        unit = self._unit(offset)
        if unit is not None and unit.physical_offset == at:
            self._pass_to(offset)
            self._next = max(self._next, offset + 1)
            self._compare(dispatch, unit)
            return True
        beside = self._unit(self._next)
        if beside is not None and beside.physical_offset == at:
            self._report(
                "unit-offset-differs",
                "warning",
                self._next,
                "the queue entry points to a record with another offset",
                expected=f"offset {self._next}",
                found=f"offset {offset}",
            )
            self._next += 1
            return True
        if unit is None or not any(unit):
            rebuilt = self._rebuilt_from is not None and at >= self._rebuilt_from
            severity = "info" if rebuilt else "warning"
            what = f"the record at physical offset {at} has no queue entry: consumers do not get it"
            self._report("missing-unit", severity, offset, what)
            return False
        self._pass_to(offset)
        self._next = max(self._next, offset + 1)
        self._report(
            "wrong-unit",
            "error",
            offset,
            "the queue entry points to another place than its record",
            expected=f"{dispatch.size} bytes at {at}",
            found=f"{unit.size} bytes at {unit.physical_offset}",
        )
        return True

    def _check_offset(self, dispatch: Dispatch) -> None:
        """Check that the offsets of the queue's records are consecutive."""
        offset, following = dispatch.queue_offset, self._following
        last_at, self._last_at = self._last_at, dispatch.physical_offset
        self._following = offset + 1 if following is None else max(following, offset + 1)
        if following is None or offset == following:
            return
        if offset > following and self._damaged_between(last_at, dispatch.physical_offset):
            return
        if offset > following:
            code, what = "offset-gap", f"{offset - following} offsets are missing in the log"
        else:
            code, what = "offset-repeated", "two records of the queue have the same offset"
        self._report(
            code,
            "warning",
            following,
            f"{what}, before physical offset {dispatch.physical_offset}",
            expected=f"offset {following}",
            found=f"offset {offset}",
        )

    def _compare(self, dispatch: Dispatch, unit: QueueEntry) -> None:
        if unit.size != dispatch.size:
            self._report(
                "wrong-unit",
                "error",
                dispatch.queue_offset,
                "the queue entry has another size than its record",
                expected=f"{dispatch.size} bytes",
                found=f"{unit.size} bytes",
            )
        elif unit.tags_code != dispatch.tags_code and not (
            self._extended and unit.tags_code < EXTENSION
        ):
            code, severity = "wrong-tags-code", "warning"
            what = "the queue entry has the hash of another tag: consumers that filter by tag may miss the record"
            if not self._levels_given and due_times.is_believed(unit, dispatch):
                code, severity, what = due_times.CODE, "info", due_times.WHAT
            self._report(
                code,
                severity,
                dispatch.queue_offset,
                what,
                expected=f"{dispatch.tags_code}",
                found=f"{unit.tags_code}",
            )

    def _pass_to(self, offset: int) -> None:
        if self._next < offset:
            self.unmatched.append((self._next, offset))

    def judge(self, unmatched: Range, log_end: int) -> None:
        """Judge entries for which the whole log has no record."""
        for offset, unit in self.wrong(unmatched):
            at = unit.physical_offset
            if not unit.is_valid:
                code, severity, what = (
                    "bad-unit",
                    "error",
                    "the queue entry is not valid: its position or size is impossible",
                )
            elif at >= log_end:
                code = "unit-beyond-log"
                severity = "error" if self._rebuilt_from is None else "warning"
                what = f"the queue entry points after the end of the log at {log_end}"
            elif self._is_renamed(offset, unit):
                continue
            else:
                code, severity = "unit-points-nowhere", "error"
                what = "no record of this queue begins where the queue entry points"
            self._report(code, severity, offset, what, found=f"{unit.size} bytes at {at}")
        if self._fillers_hide:
            self._judge_fillers(unmatched)

    def _is_renamed(self, offset: int, unit: QueueEntry) -> bool:
        """Report an entry that leads to a record of its size, but of another queue. Return whether it was reported."""
        message = self._record_at(unit.physical_offset)
        if message is None or message.size != unit.size:
            return False
        found = TopicPartition(message.topic, message.queue_id)
        if found == self._partition:
            return False
        self._report(
            "suspect-header",
            "error",
            offset,
            f"the record at physical offset {unit.physical_offset}, where the queue entry points, names another "
            "queue: its topic or queue id is damaged, or the entry is",
            expected=str(self._partition),
            found=str(found),
        )
        return True

    def _judge_fillers(self, unmatched: Range) -> None:
        """Report the fillers after the first entry that leads to a record."""
        first = self._units.first_offset
        while (unit := self._unit(first)) is not None and unit.is_filler:
            first += 1
        for offset in range(max(unmatched[0], first), unmatched[1]):
            unit = self._unit(offset)
            if unit is not None and unit.is_filler:
                self._report(
                    "filler-in-queue",
                    "warning",
                    offset,
                    "in a pull over this filler the real store skips the records of the first log file",
                )

    def wrong(self, unmatched: Range) -> Iterator[tuple[int, QueueEntry]]:
        """Yield entries without a record in the whole log that no lost record explains."""
        for offset in range(*unmatched):
            unit = self._unit(offset)
            if unit is None or unit.is_filler:
                continue
            at = unit.physical_offset
            lost = at < self._log_start or self._damaged_between(at, at + 1)
            if not (unit.is_valid and lost):
                yield offset, unit

    def _unit(self, offset: int) -> QueueEntry | None:
        """Return the entry at an offset; None if there is none."""
        if not self._units.first_offset <= offset < self._units.end:
            return None
        if not 0 <= offset - self._block_start < len(self._block):
            try:
                self._block = self._units.read(offset, UNITS_AT_ONCE)
            except Corrupt:
                return None
            self._block_start = offset
        return self._block[offset - self._block_start]

    def _report(
        self, code: str, severity: str, offset: int, what: str, **facts: Unpack[Comparison]
    ) -> None:
        path, position = self._units.run.place_of(offset * UNIT_SIZE)
        self._tallies.add(
            finding(
                code,
                path,
                severity=severity,
                position=position,
                topic=self._partition.topic,
                partition=self._partition.partition,
                offset=offset,
                message=what,
                **facts,
            )
        )
