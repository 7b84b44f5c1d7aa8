"""How a benchmark is taken and told: warm up, repeat, compare with a peer in turns, print spread and verdict.

Owns timing and the report; knows nothing of what is measured. A goal is a ratio of two rates from one run: ours and the
peer's turns alternate, so that a slow moment of the machine hits both.
"""

from __future__ import annotations

import json
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

TURN_S = 0.2
"""A turn repeats its work for at least so long."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One comparison. `ours` and `peer` do a piece of work and give how many `unit`s it was: always `expected`.

    Without a `peer` the ratio is the rate against `reference` units a second. `floor` binds plain Python, `goal`
    compiled codecs. `count`, where there is one, is the warm-up that really counts what `ours` only lets happen.
    `once`: one piece of work, done by another process, is a turn.
    """

    name: str
    unit: str
    ours: Callable[[], int]
    expected: int
    floor: float
    goal: float
    peer: Callable[[], int] | None = None
    peer_name: str = ""
    count: Callable[[], int] | None = None
    reference: float = 1.0
    once: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """The smallest, middle and largest of the turns."""

    minimum: float
    median: float
    maximum: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        """From at least one value."""
        return cls(minimum=min(values), median=statistics.median(values), maximum=max(values))


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What a row came to. Rates are units a second; without timing only the counts are known."""

    name: str
    unit: str
    counted: int
    expected: int
    peer_name: str
    target: float | None = None
    ours: Spread | None = None
    peer: Spread | None = None
    ratio: Spread | None = None

    @property
    def count_ok(self) -> bool:
        """Whether each side did the work that it was given."""
        return self.counted == self.expected

    @property
    def reached(self) -> bool | None:
        """Whether the middle ratio is at the target; None where nothing was timed."""
        if self.ratio is None or self.target is None:
            return None
        return self.ratio.median >= self.target


@dataclass(slots=True, kw_only=True)
class Bench:
    """Takes rows. `quick` counts only; `compiled` says which target binds."""

    compiled: bool
    quick: bool = False
    repeats: int = 5
    results: list[Result] = field(default_factory=list)

    def take(self, row: Row) -> Result:
        """Measure one row, remember and give its result."""
        print(f"  {row.name} ...", file=sys.stderr, flush=True)
        counted = {(row.count or row.ours)()} | ({row.peer()} if row.peer else set())  # the warm-up
        wrong = counted - {row.expected}
        result = Result(
            name=row.name,
            unit=row.unit,
            counted=wrong.pop() if wrong else row.expected,
            expected=row.expected,
            peer_name=row.peer_name,
        )
        if not self.quick:
            result = self._timed(row, result)
        self.results.append(result)
        return result

    def _timed(self, row: Row, counted: Result) -> Result:
        ours: list[float] = []
        peer: list[float] = []
        for _ in range(self.repeats):
            peer.append(_rate(row.peer, once=row.once) if row.peer else row.reference)
            ours.append(_rate(row.ours, once=row.once))
        return replace(
            counted,
            target=row.goal if self.compiled else row.floor,
            ours=Spread.of(ours),
            peer=Spread.of(peer) if row.peer else None,
            ratio=Spread.of([mine / theirs for mine, theirs in zip(ours, peer, strict=True)]),
        )


def _rate(work: Callable[[], int], *, once: bool) -> float:
    """Units a second over one turn: by the clock for other processes, by this one's own time for what it does itself.

    The two say the same on a machine at rest; the second suffers less from what else runs.
    """
    now = time.perf_counter if once else time.process_time
    units = 0
    began = now()
    while True:
        units += work()
        elapsed_s = now() - began
        if once or elapsed_s >= TURN_S:
            return units / elapsed_s


def machine() -> dict[str, str]:
    """What the figures were taken on."""
    cpu = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.is_file():
        for line in info.read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                cpu = line.partition(":")[2].strip()
                break
    return {
        "cpu": cpu,
        "cores": str(os.cpu_count()),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
    }


def versions(*packages: str) -> dict[str, str]:
    """Of the installed distributions; "none" for one that is not there."""
    found = {}
    for package in packages:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "none"
    return found


def report_text(bench: Bench, about: dict[str, str]) -> str:
    """The table for people: a line of facts, then a line a row."""
    lines = [", ".join(f"{name} {value}" for name, value in about.items()), ""]
    kind = "goal" if bench.compiled else "floor"
    header = f"{'':34}{'ours min / median / max':>32}{'peer median':>14}{'ratio':>22}{kind:>8}"
    lines.append(header if not bench.quick else f"{'':34}{'counted':>12}{'expected':>12}")
    lines += [_line(result) for result in bench.results]
    return "\n".join(lines)


def _line(result: Result) -> str:
    if result.ours is None or result.ratio is None:
        verdict = "" if result.count_ok else "  WRONG"
        return f"{result.name:34}{result.counted:>12,}{result.expected:>12,}{verdict}"
    ours, ratio = result.ours, result.ratio
    rates = " / ".join(_short(rate) for rate in (ours.minimum, ours.median, ours.maximum))
    peer = _short(result.peer.median) if result.peer else "-"
    ratios = f"{ratio.median:.2f} ({ratio.minimum:.2f}-{ratio.maximum:.2f})"
    verdict = "reached" if result.reached else "NOT reached"
    if not result.count_ok:
        verdict = f"WRONG COUNT {result.counted} of {result.expected}"
    unit = f"{result.unit}/s"
    return (
        f"{result.name:34}{rates + ' ' + unit:>32}{peer:>14}{ratios:>22}"
        f"{result.target:>8.2f}  {verdict}"
    )


def _short(rate: float) -> str:
    for size, suffix in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if rate >= size:
            return f"{rate / size:.2f}{suffix}"
    return f"{rate:.1f}"


def report_json(bench: Bench, about: dict[str, str]) -> str:
    """The same for programs."""
    rows = [
        asdict(result) | {"reached": result.reached, "count_ok": result.count_ok}
        for result in bench.results
    ]
    return json.dumps({"about": about, "compiled": bench.compiled, "rows": rows}, indent=2)
