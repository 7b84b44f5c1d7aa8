"""An explorer of crash states: at each change of a workload, several mixtures of kept changes are opened and checked.

Owns the choice of crash states, their count, and the order of the checks in each; must not know a format. A state
that occurs several times is counted once. In a share of the states the power fails again while the store recovers.
"""

from __future__ import annotations

import gc
import random
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from tests.robustness.crash.crash import Crash, Starts
from tests.robustness.crash.disk import Change, Choice, Disk, Write
from tests.robustness.crash.history import Closed, History, Served
from tests.robustness.crash.invariants import Broken
from tests.robustness.crash.ram import Ram
from tests.robustness.crash.recorder import Noted, Recorder
from tests.robustness.crash.workload import Backend, Workload

SECTORS = (512, 512, 4096)
THOROUGH = 0.2  # share of the states that are also checked by every lookup
SECOND_AT_ONCE = 4  # crashes during one recovery


# ---- what a crash keeps ----


def choices(dice: random.Random) -> Iterator[tuple[str, Choice]]:
    """Yield the ways to lose changes; each call draws different ones."""

    def sectors(keeps: Callable[[int, int], bool]) -> Choice:
        size = dice.choice(SECTORS)
        return lambda pending: _kept(pieces(pending, size), keeps, size)

    share, early = dice.choice([0.1, 0.5, 0.9]), dice.random()
    yield "kill", lambda pending: pending
    yield "nothing", lambda pending: ()
    yield "names", lambda pending: [change for change in pending if not isinstance(change, Write)]
    yield "prefix", sectors(lambda number, count: number < early * count)
    yield "some", sectors(lambda number, count: dice.random() < share)
    yield "files", lambda pending: _of_some_files(pending, dice)
    yield "most", sectors(lambda number, count: dice.random() < 0.97)


def pieces(pending: Sequence[Change], size: int) -> Sequence[Change]:
    """Split writes at sector boundaries.

    A last piece without bytes stands for the length of the file after the write.
    """
    found: list[Change] = []
    for change in pending:
        if not isinstance(change, Write):
            found.append(change)
            continue
        begin, end = change.position, change.position + len(change.data)
        for sector in range(begin // size, -(-end // size)):
            at, stop = max(begin, sector * size), min(end, (sector + 1) * size)
            found.append(Write(change.node, at, change.data[at - begin : stop - begin]))
        found.append(Write(change.node, end, b""))
    return found


def _kept(
    parts: Sequence[Change], keeps: Callable[[int, int], bool], size: int
) -> Sequence[Change]:
    """Return the parts that `keeps` selects by number and count, plus all earlier writes to the same sectors.

    A disk stores a sector as a whole, as it was at some moment.
    """
    found: list[Change] = []
    sectors: set[tuple[int, int]] = set()
    for number in reversed(range(len(parts))):
        part = parts[number]
        place = (
            (part.node, part.position // size) if isinstance(part, Write) and part.data else None
        )
        if place in sectors or keeps(number, len(parts)):
            found.append(part)
            if place is not None:
                sectors.add(place)
    return found[::-1]


def _of_some_files(pending: Sequence[Change], dice: random.Random) -> Sequence[Change]:
    lucky = {change.node for change in pending if dice.random() < 0.3}
    return [change for change in pending if change.node in lucky]


# ---- exploring ----


@dataclass
class Report:
    """The counts of checked states, and the broken invariants.

    `later`: starts after the first start of a state. `alike`: the later starts that began from files checked before
    (see crash.py).
    """

    backend: str
    workloads: int = 0
    states: int = 0
    second: int = 0
    later: int = 0
    alike: int = 0
    kinds: Counter[str] = field(default_factory=Counter)
    broken: list[str] = field(default_factory=list)

    def add(self, other: Report) -> None:
        """Add the counts of another worker."""
        self.workloads += other.workloads
        self.states += other.states
        self.second += other.second
        self.later += other.later
        self.alike += other.alike
        self.kinds += other.kinds
        self.broken += other.broken


@dataclass(frozen=True)
class Plan:
    """The amount to explore: distinct states with one crash, and states with a second crash during recovery.

    `stop_at_first`: stop at the first broken invariant instead of continuing. `share`: the share of a workload's
    moments that is checked; moments right after a clean stop are always checked.
    """

    states: int
    second: int
    seed: int = 0
    stop_at_first: bool = True
    share: float = 1.0


class Explorer:
    """An explorer of one backend.

    `reported` is called with the report after each state; it may raise an exception to stop.
    """

    def __init__(
        self, backend: Backend, plan: Plan, reported: Callable[[Report], None] = lambda report: None
    ) -> None:
        self.report = Report(backend.name)
        self._backend = backend
        self._plan = plan
        self._told = reported
        self._seen: set[Hashable] = set()
        self._starts = Starts()

    def run(self) -> Report:
        """Run workloads until the plan is met or an invariant is broken."""
        plan, report, seed = self._plan, self.report, self._plan.seed * 1000
        with rarely_collected():
            while report.states < plan.states or report.second < plan.second:
                self._starts = Starts()
                self._workload(seed)
                report.later += self._starts.count
                report.alike += self._starts.alike
                report.workloads += 1
                seed += 1
                if report.broken and plan.stop_at_first:
                    break
        return report

    def _workload(self, seed: int) -> None:
        workload = Workload(self._backend, seed, sync=seed % 4 != 3)
        try:
            recorder = workload.run()
        except Exception as error:
            error.add_note(f"workload {seed}")
            raise
        dice = random.Random(seed)
        history = History()
        for disk in moments(recorder, history):
            if not history.closed and dice.random() > self._plan.share:
                continue
            for kind, choice in choices(dice):
                crash = self._crash(history, disk.left(choice), workload.clock.now_ms)
                if kind == "kill":
                    crash.killed, crash.disk = True, disk
                if self._is_new(crash):
                    self._look(crash, kind, f"workload {seed}", dice)
                if self._is_done():
                    return

    def _crash(self, history: History, state: Ram, now_ms: int) -> Crash:
        return Crash(self._backend, history, state, now_ms, starts=self._starts)

    def _is_new(self, crash: Crash) -> bool:
        history = crash.history
        key = len(history.acked), len(history.going), crash.killed, crash.state.digest()
        known = key in self._seen
        self._seen.add(key)
        return not known

    def _look(self, crash: Crash, kind: str, name: str, dice: random.Random) -> None:
        report, plan = self.report, self._plan
        report.kinds[kind] += 1
        report.states += 1
        at = f"state {report.states} ({name}, {kind})"
        try:
            crash.check(thorough=dice.random() < THOROUGH)
            if report.second * plan.states < report.states * plan.second:
                self._again(crash, dice)
        except Broken as broken:
            report.broken.append(f"{at}: {broken}")
        except Exception as error:
            error.add_note(at)
            raise
        self._told(report)

    def _again(self, crash: Crash, dice: random.Random) -> None:
        """Let the power fail again while the store recovers from this crash, or right after the recovery."""
        recorder, history = crash.recover()
        chosen = set(
            dice.sample(range(len(recorder.events) + 1), min(SECOND_AT_ONCE, len(recorder.events)))
        )
        for number, disk in enumerate(moments(recorder, history)):
            if number in chosen:
                kind, choice = dice.choice(list(choices(dice)))
                second = self._crash(history, disk.left(choice), crash.now_ms)
                second.killed = kind == "kill"
                self.report.second += self._is_new(second)
                second.check(thorough=False)

    def _is_done(self) -> bool:
        report, plan = self.report, self._plan
        if report.broken and plan.stop_at_first:
            return True
        return report.states >= plan.states and report.second >= plan.second


@contextmanager
def rarely_collected() -> Iterator[None]:
    """Let the garbage collector run rarely: each state leaves thousands of unused reference cycles."""
    thresholds = gc.get_threshold()
    gc.freeze()
    gc.set_threshold(50_000, *thresholds[1:])
    try:
        yield
    finally:
        gc.set_threshold(*thresholds)
        gc.unfreeze()


def moments(recorder: Recorder, history: History) -> Iterator[Disk]:
    """Yield the disk at the start and after each change of a recording.

    `history` is updated in step. The recording itself is not changed.
    """
    disk = recorder.disk.after_kill()
    yield disk
    for number, event in enumerate(recorder.events):
        if isinstance(event, Noted):
            history.note(event.note)
            if isinstance(event.note, Closed | Served):
                yield disk
            continue
        history.closed = False
        disk.feed(number, event)
        yield disk
