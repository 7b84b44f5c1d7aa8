"""The harness of a benchmark: warm up, take turns with a peer, repeat, and report spread and verdict.

Owns timing and the report; must not know the measured work. A goal is a ratio of two rates from one run: our turns and
the peer's alternate, so a slow moment of the machine affects both.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import NamedTuple

from rich.console import Console

from logserver.bench.environment import machine
from logserver.bench.goals import goal_of
from logserver.bench.result import Spread

TURN_S = 0.2
"""The least length of a turn: its work is repeated until then."""


class Turn(NamedTuple):
    """A piece of work that measured its own time: `units` done correctly, in `seconds` for `timed` units (0: all
    units).
    """

    units: int
    seconds: float
    timed: int = 0

    @property
    def rate(self) -> float:
        """Units a second."""
        return (self.timed or self.units) / self.seconds


Work = Callable[[], int | Turn]


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One comparison. `ours` and `peer` do a piece of work and return its number of `unit`s, which must be `expected`.

    - Without a `peer` the ratio is the rate divided by `reference` units a second, if one is given.
    - The goal is in logserver/bench/goals.py, under the names of benchmark and row.
    - `count` replaces `ours` in the warm-up: it counts the units that `ours` only assumes.
    - `once`: a turn is one piece of work, done by another process. Work that returns a Turn is also done once.
    - `latency`: shown as the time of a unit.
    """

    name: str
    unit: str
    ours: Work
    expected: int
    peer: Work | None = None
    peer_name: str = ""
    count: Callable[[], int] | None = None
    reference: float | None = None
    once: bool = False
    latency: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """The result of a row. Rates are units a second; without timing only the counts are set."""

    name: str
    unit: str
    counted: int
    expected: int
    peer_name: str
    latency: bool = False
    floor: float | None = None
    goal: float | None = None
    target: float | None = None
    ours: Spread | None = None
    peer: Spread | None = None
    ratio: Spread | None = None

    @property
    def count_ok(self) -> bool:
        """Whether each side did the expected number of units."""
        return self.counted == self.expected

    @property
    def reached(self) -> bool | None:
        """Whether the median ratio reaches the target; None without a ratio or a target."""
        if self.ratio is None or self.target is None:
            return None
        return self.ratio.median >= self.target


@dataclass(slots=True, kw_only=True)
class Bench:
    """The runner of the benchmark `name`. `quick` only checks counts; `compiled` selects the target."""

    name: str
    compiled: bool
    quick: bool = False
    repeats: int = 5
    results: list[Result] = field(default_factory=list)
    console: Console = field(default_factory=lambda: Console(stderr=True, highlight=False))

    def take(self, row: Row) -> Result:
        """Measure one row; store and return its result."""
        with self.console.status(f"{row.name}: warming up"):
            counted = {_units((row.count or row.ours)())}
            counted |= {_units(row.peer())} if row.peer else set()
        wrong = counted - {row.expected}
        goal = goal_of(self.name, row.name)
        result = Result(
            name=row.name,
            unit=row.unit,
            counted=wrong.pop() if wrong else row.expected,
            expected=row.expected,
            peer_name=row.peer_name,
            latency=row.latency,
            floor=None if goal is None else goal.floor,
            goal=None if goal is None else goal.goal,
            target=None if goal is None else goal.target(compiled=self.compiled),
        )
        if not self.quick:
            result = self._timed(row, result)
        self.results.append(result)
        self.console.print(f"  {row.name}: {'done' if result.count_ok else 'WRONG COUNT'}")
        return result

    def _timed(self, row: Row, counted: Result) -> Result:
        ours: list[float] = []
        peer: list[float] = []
        for turn in range(self.repeats):
            with self.console.status(f"{row.name}: turn {turn + 1} of {self.repeats}"):
                if row.peer:
                    peer.append(_rate(row.peer, once=row.once))
                elif row.reference:
                    peer.append(row.reference)
                ours.append(_rate(row.ours, once=row.once))
        ratios = [mine / theirs for mine, theirs in zip(ours, peer, strict=False)]
        return replace(
            counted,
            ours=Spread.of(ours),
            peer=Spread.of(peer) if row.peer else None,
            ratio=Spread.of(ratios) if ratios else None,
        )


def _units(done: int | Turn) -> int:
    return done.units if isinstance(done, Turn) else done


def _rate(work: Work, *, once: bool) -> float:
    """Measure units a second over one turn: by wall clock for other processes, by processor time for work of this
    process.

    Both agree on an idle machine; processor time is less affected by other load. A Turn's own time is used as it is.
    """
    now = time.perf_counter if once else time.process_time
    units = 0
    began = now()
    while True:
        done = work()
        if isinstance(done, Turn):
            return done.rate
        units += done
        elapsed_s = now() - began
        if once or elapsed_s >= TURN_S:
            return units / elapsed_s


def parser(description: str, java: str) -> argparse.ArgumentParser:
    """Return the options that all benchmarks share. `java`: help text that says what runs without Java."""
    options = argparse.ArgumentParser(description=description)
    options.add_argument("--quick", action="store_true", help="time nothing, check the counts")
    form = options.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="the report as JSON")
    form.add_argument("--markdown", action="store_true", help="the table as Markdown")
    options.add_argument("--repeats", type=_repeats, default=5, help="turns of a row, at least 3")
    options.add_argument("--only", default="", metavar="TEXT", help="rows with TEXT in their name")
    options.add_argument("--no-java", action="store_true", help=java)
    return options


def _repeats(text: str) -> int:
    if not text.isdecimal() or int(text) < 3:
        raise argparse.ArgumentTypeError("a number of at least 3 is needed")
    return int(text)


def run(bench: Bench, rows: Iterable[Row], given: argparse.Namespace, about: dict[str, str]) -> int:
    """Measure the selected rows and print the report as requested; return the exit status, 1 for a wrong count."""
    for row in rows:
        if given.only in row.name:
            bench.take(row)
    about = machine() | {"package": "compiled" if bench.compiled else "plain Python"} | about
    if given.json:
        print(report_json(bench, about))
    elif given.markdown and not bench.quick:
        print(report_markdown(bench.results))
    else:
        print(report_text(bench, about))
    return 0 if all(result.count_ok for result in bench.results) else 1


def report_text(bench: Bench, about: dict[str, str]) -> str:
    """Format the table for people: a line of facts, then a line per row."""
    lines = [", ".join(f"{name} {value}" for name, value in about.items()), ""]
    if bench.quick:
        lines.append(f"{'':34}{'counted':>12}{'expected':>12}")
    else:
        lines.append(
            f"{'':34}{'ours min / median / max':>34}{'peer median':>14}{'ratio':>22}{'floor':>7}{'goal':>7}"
        )
    lines += [_line(result) for result in bench.results]
    return "\n".join(lines)


def _line(result: Result) -> str:
    if result.ours is None:
        verdict = "" if result.count_ok else "  WRONG"
        return f"{result.name:34}{result.counted:>12,}{result.expected:>12,}{verdict}"
    rates, peer, ratio, floor, goal = _cells(result, result.ours)
    return (
        f"{result.name:34}{rates:>34}{peer:>14}{ratio:>22}{floor:>7}{goal:>7}  {_verdict(result)}"
    )


def report_markdown(results: Sequence[Result]) -> str:
    """Format the table as Markdown."""
    lines = [
        "| path | ours: min / median / max | yardstick's median | ratio: median (min-max) | floor | goal | |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for result in results:
        if result.ours is not None:
            verdict = _verdict(result).replace("NOT reached", "**not reached**")
            cells = (result.name, *_cells(result, result.ours), verdict)
            lines.append(f"| {' | '.join(cells)} |".replace("|  |", "| |"))
    return "\n".join(lines)


def _cells(result: Result, ours: Spread) -> tuple[str, str, str, str, str]:
    """Format our rates, the peer's rate, the ratio, floor and goal."""
    spread = [_rate_text(result, rate) for rate in (ours.minimum, ours.median, ours.maximum)]
    if result.latency:
        spread.reverse()  # the highest rate is the shortest time
    rates = " / ".join(spread) + ("" if result.latency else f" {result.unit}/s")
    peer = _rate_text(result, result.peer.median) if result.peer else "-"
    ratio = result.ratio
    ratios = f"{ratio.median:.2f} ({ratio.minimum:.2f}-{ratio.maximum:.2f})" if ratio else "-"
    floor, goal = (
        "-" if target is None else f"{target:.2f}" for target in (result.floor, result.goal)
    )
    return rates, peer, ratios, floor, goal


def _verdict(result: Result) -> str:
    if not result.count_ok:
        return f"WRONG COUNT {result.counted} of {result.expected}"
    if result.reached is None:
        return ""
    return "reached" if result.reached else "NOT reached"


def _rate_text(result: Result, rate: float) -> str:
    """Format a rate, or the time of a unit."""
    return f"{1e6 / rate:.1f} us" if result.latency else short(rate)


def short(rate: float) -> str:
    """Format a rate with three significant figures or more."""
    for size, suffix in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if rate >= size:
            return f"{rate / size:.2f}{suffix}"
    return f"{rate:.1f}"


def report_json(bench: Bench, about: dict[str, str]) -> str:
    """Format the report as JSON for programs."""
    rows = [
        asdict(result) | {"reached": result.reached, "count_ok": result.count_ok}
        for result in bench.results
    ]
    made = {"bench": bench.name, "about": about, "compiled": bench.compiled, "rows": rows}
    return json.dumps(made, indent=2)
