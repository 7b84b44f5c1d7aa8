"""Whether the units of the queues tell the truth about the log.

Owns the judgement of units, fed with the records of the log in order; must not read the log. A unit
is right if it leads to the record that bears its offset, with that one's size and tag. In front of
the first record that is there, units may lead to what was deleted, or be fillers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from storage.errors import Corrupt
from storage.model import Finding
from storage.notes import Tallies
from storage.rocketmq.dispatch import Dispatch
from storage.rocketmq.format.queue_unit import UNIT_SIZE, Unit
from storage.rocketmq.queues import Queue, QueueTable

UNITS_AT_ONCE: Final = 1024
EXTENSION: Final = -(1 << 31)
"""A tags code below this is a place in consumequeue_ext."""


class Surroundings(NamedTuple):
    """What is known of the log. `rebuilt_from`: after a crash, the physical offset from which on a
    start makes what is missing; None after a clean stop. `damaged_between`: whether a bad place was
    met in [start, end). `extended`: tags codes may be places in consumequeue_ext.
    """

    log_start: int
    rebuilt_from: int | None
    damaged_between: Callable[[int, int], bool]
    extended: bool = False


class QueueChecks:
    """All queues of a store, met by the records of its log."""

    def __init__(self, queues: QueueTable, tallies: Tallies, surroundings: Surroundings) -> None:
        self._queues = queues
        self._tallies = tallies
        self._surroundings = surroundings
        self._checks = {
            (queue.partition.topic, queue.partition.partition): self._check(queue)
            for queue in queues
        }
        self.first_missing: int | None = None  # physical offset of a record that lacks its unit

    def meet(self, dispatch: Dispatch) -> None:
        """A good record that belongs into a queue."""
        key = dispatch.topic, dispatch.queue_id
        check = self._checks.get(key)
        if check is None:
            check = self._checks[key] = self._check(self._queues.add(*key))
        if not check.meet(dispatch) and self.first_missing is None:
            self.first_missing = dispatch.physical_offset

    def _check(self, queue: Queue) -> _QueueCheck:
        return _QueueCheck(queue, self._tallies, self._surroundings)

    def finish(self, log_end: int) -> None:
        """The end of the log."""
        for check in self._checks.values():
            check.finish(log_end)


class _QueueCheck:
    """One queue."""

    def __init__(self, queue: Queue, tallies: Tallies, surroundings: Surroundings) -> None:
        self._partition = queue.partition
        self._units = queue.units
        self._tallies = tallies
        self._log_start, self._rebuilt_from, self._damaged_between, self._extended = surroundings
        self._next = queue.units.first_offset  # units before it are judged
        self._following: int | None = None  # the offset after that of the last record
        self._last_at = 0
        self._unmatched: list[tuple[int, int]] = []  # [first, stop) of units no record was met for
        self._block: Sequence[Unit] = ()
        self._block_start = 0

    def meet(self, dispatch: Dispatch) -> bool:
        """A record of the queue; whether it has a unit, right or wrong."""
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
                "the unit's record bears another offset",
                expected=f"offset {self._next}",
                found=f"offset {offset}",
            )
            self._next += 1
            return True
        if unit is None or not any(unit):
            rebuilt = self._rebuilt_from is not None and at >= self._rebuilt_from
            severity = "info" if rebuilt else "warning"
            what = f"the record at physical offset {at} has no unit: consumers do not get it"
            self._report("missing-unit", severity, offset, what)
            return False
        self._pass_to(offset)
        self._next = max(self._next, offset + 1)
        self._report(
            "wrong-unit",
            "error",
            offset,
            "the unit leads to another place than its record",
            expected=f"{dispatch.size} bytes at {at}",
            found=f"{unit.size} bytes at {unit.physical_offset}",
        )
        return True

    def _check_offset(self, dispatch: Dispatch) -> None:
        """Offsets of a queue's records follow each other."""
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
            code, what = "offset-repeated", "two records of the log bear one offset of the queue"
        self._report(
            code,
            "warning",
            following,
            f"{what}, before physical offset {dispatch.physical_offset}",
            expected=f"offset {following}",
            found=f"offset {offset}",
        )

    def _compare(self, dispatch: Dispatch, unit: Unit) -> None:
        if unit.size != dispatch.size:
            self._report(
                "wrong-unit",
                "error",
                dispatch.queue_offset,
                "the unit tells another size than its record has",
                expected=f"{dispatch.size} bytes",
                found=f"{unit.size} bytes",
            )
        elif unit.tags_code != dispatch.tags_code and not (
            self._extended and unit.tags_code < EXTENSION
        ):
            self._report(
                "wrong-tags-code",
                "warning",
                dispatch.queue_offset,
                "the unit tells another tag: consumers that ask for one may not get the record",
                expected=f"{dispatch.tags_code}",
                found=f"{unit.tags_code}",
            )

    def _pass_to(self, offset: int) -> None:
        if self._next < offset:
            self._unmatched.append((self._next, offset))

    def finish(self, log_end: int) -> None:
        """Judge the units that no record was met for."""
        self._pass_to(self._units.end)
        for first, stop in self._unmatched:
            for offset in range(first, stop):
                unit = self._unit(offset)
                if unit is not None and not unit.is_filler:
                    self._judge(offset, unit, log_end)

    def _judge(self, offset: int, unit: Unit, log_end: int) -> None:
        at = unit.physical_offset
        if unit.is_valid and (at < self._log_start or self._damaged_between(at, at + 1)):
            return
        if not unit.is_valid:
            code, severity, what = "bad-unit", "error", "no unit: its place or size cannot be"
        elif at >= log_end:
            code, severity = "unit-beyond-log", "error" if self._rebuilt_from is None else "warning"
            what = f"the unit leads behind the end of the log at {log_end}"
        else:
            code, severity = "unit-points-nowhere", "error"
            what = "no record of this queue begins where the unit leads"
        self._report(code, severity, offset, what, found=f"{unit.size} bytes at {at}")

    def _unit(self, offset: int) -> Unit | None:
        """The unit at an offset; None where none can be."""
        if not self._units.first_offset <= offset < self._units.end:
            return None
        if not 0 <= offset - self._block_start < len(self._block):
            try:
                self._block = self._units.read(offset, UNITS_AT_ONCE)
            except Corrupt:
                return None
            self._block_start = offset
        return self._block[offset - self._block_start]

    def _report(self, code: str, severity: str, offset: int, what: str, **facts: str) -> None:
        run = self._units.run
        position = offset * UNIT_SIZE
        base = run.base_of(position)
        self._tallies.add(
            Finding(
                code=code,
                severity=severity,
                path=str(run.directory if base is None else run.path(base)),
                position=position - (base or 0),
                topic=self._partition.topic,
                partition=self._partition.partition,
                offset=offset,
                message=what,
                **facts,
            )
        )
