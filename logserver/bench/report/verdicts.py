"""Verdicts: each goal next to the measured ratio, reached or not, and why not.

Owns finding a goal's ratio in a result of `compare` and in the JSON of the benchmarks in scripts/; must not define
goals: they are in logserver/bench/goals.toml.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from logserver.bench.goals import COMMANDS, COMPARE, GOALS, HTTP, Goal
from logserver.bench.result import Repeat, Result, Run, Spread, errors_of, spreads
from logserver.validation import in_words
from storage.errors import InvalidArgument

NO_STORE, BARE = "no-store", "bare"
CONNECTIONS: Final = 16  # the HTTP goals are set for this number
OPERATIONS: Final = (
    "append",
    "fetch",
    "key_lookup",
    "time_lookup",
)  # those with a latency in a series
LARGE: Final = {"store_bytes": 1e9, "partitions": 10_000}  # least size of a large store


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """A goal with its measured ratio. `reached` is None if it was not measured, or if the goal sets no
    limit for the build.
    """

    path: str
    yardstick: str
    target: str  # the target that was measured
    floor: float | None
    goal: float | None
    most: bool  # floor and goal are upper limits
    ratio: Spread | None
    compiled: bool | None
    reached: bool | None
    why: str
    command: str

    @property
    def words(self) -> str:
        """The verdict in words, with the kind of build and whether the limit is within the spread."""
        if self.ratio is None:
            return "not measured here"
        kind = "compiled" if self.compiled else "plain Python"
        if self.reached is None:
            return f"no goal for {kind}"
        limit = self.goal if self.compiled else self.floor
        inside = limit is not None and self.ratio.minimum < limit < self.ratio.maximum
        close = ", within the spread" if inside else ""
        return f"{'reached' if self.reached else 'NOT reached'} ({kind}{close})"


class Measured(NamedTuple):
    """The ratio of a goal in one run."""

    source: str
    row: str
    ratio: Spread
    compiled: bool
    target: str = ""


class _Measures(msgspec.Struct):
    """The fields needed from the JSON of a benchmark in scripts/."""

    bench: str
    compiled: bool
    rows: list[dict[str, Any]]


def verdicts(result: Result, others: Sequence[Measured]) -> list[Verdict]:
    """Return every goal, once for each run that measured it; a goal that no run measured has no ratio."""
    measured = [*others, *_of_result(result)]
    found: list[Verdict] = []
    for goal in GOALS:
        hits = [m for m in measured if (m.source, m.row) == (goal.source, goal.row)]
        found += [_verdict(goal, hit) for hit in hits] or [_verdict(goal, None)]
    return found


def counted(found: Sequence[Verdict], *, compiled: bool) -> str:
    """Return how many limits of this kind of build were reached, how many were not, and how many were not measured."""
    limits = {(g.path, g.yardstick) for g in found if (g.goal if compiled else g.floor) is not None}
    mine = [g for g in found if g.compiled is compiled and g.reached is not None]
    missing = len(limits - {(g.path, g.yardstick) for g in mine})
    reached = sum(g.reached is True for g in mine)
    return f"{reached} reached, {len(mine) - reached} not, {missing} not measured here"


def _verdict(goal: Goal, hit: Measured | None) -> Verdict:
    ratio = None if hit is None else hit.ratio
    compiled = None if hit is None else hit.compiled
    reached = None if hit is None else goal.reached(hit.ratio.median, compiled=hit.compiled)
    return Verdict(
        path=goal.path,
        yardstick=goal.yardstick,
        target="" if hit is None else hit.target,
        floor=goal.floor,
        goal=goal.goal,
        most=goal.most,
        ratio=ratio,
        compiled=compiled,
        reached=reached,
        why=goal.why if reached is False else "",
        command=COMMANDS[goal.source],
    )


# ---- benchmarks in scripts/ ----------------------------------------------------------------------


def read_measured(path: Path) -> list[Measured]:
    """Read the ratios from a benchmark's JSON file. Raises OSError, and InvalidArgument for any other content."""
    data = path.read_bytes()
    try:
        found = msgspec.json.decode(data, type=_Measures)
        return list(_of_load_test(found) if found.bench == HTTP else _of_bench(found))
    except (msgspec.MsgspecError, ArithmeticError, KeyError, TypeError, AttributeError) as error:
        problem = f"{type(error).__name__} {error}"
        if isinstance(error, msgspec.DecodeError):
            problem = in_words(error, _Measures, data, whole="the file")
        message = f"{path}: is not the JSON of a benchmark in scripts/: {problem}"
        raise InvalidArgument(message, field="measured") from None


def _of_bench(found: _Measures) -> Iterator[Measured]:
    for row in found.rows:
        if row["ratio"] is not None:
            yield Measured(found.bench, row["name"], _spread(row["ratio"]), found.compiled)


def _spread(value: object) -> Spread:
    return msgspec.convert(value, Spread)


def _of_load_test(found: _Measures) -> Iterator[Measured]:
    for row in found.rows:
        if row["loop"] != "closed" or row["acks"] not in {"1", None}:
            continue
        what = row["operation"]
        what += "" if what.startswith("raw") else f" {row['records']}"
        if row["concurrency"] == CONNECTIONS:
            yield from _of_servers(what, row["servers"], compiled=found.compiled)
        elif row["concurrency"] == 1:
            for own, ratio in _by_ceilings(what, row["servers"], (BARE,)):
                yield Measured(HTTP, f"{own}, 1 connection", ratio, found.compiled)


def _of_servers(
    what: str, servers: Mapping[str, Mapping[str, Any]], *, compiled: bool
) -> Iterator[Measured]:
    for own, ratio in _by_ceilings(what, servers, (NO_STORE, BARE)):
        yield Measured(HTTP, own, ratio, compiled)
    for name, server in servers.items():
        own = f"{what} {name}"
        if name != "kafka" and "kafka" in servers:
            by = servers["kafka"]["records_per_s"]["median"]
            ratio = _spread(server["records_per_s"]).by(by)
            yield Measured(HTTP, f"{own} by kafka", ratio, compiled)
        yield from _by_references(own, server, compiled=compiled)


def _by_ceilings(
    what: str, servers: Mapping[str, Mapping[str, Any]], ceilings: Sequence[str]
) -> Iterator[tuple[str, Spread]]:
    """Yield the name and the ratio of each server by each ceiling."""
    for name, server in servers.items():
        for ceiling in ceilings:
            if ceiling in server["ratios"]:
                yield f"{what} {name} by {ceiling}", _spread(server["ratios"][ceiling])


def _by_references(own: str, server: Mapping[str, Any], *, compiled: bool) -> Iterator[Measured]:
    """Yield the ratios of a server to yardsticks of other runs: records a second, and processor time per record."""
    for goal in GOALS:
        if goal.source != HTTP or goal.reference is None:
            continue
        if goal.row == own:
            ratio = _spread(server["records_per_s"]).by(goal.reference)
            yield Measured(HTTP, own, ratio, compiled)
        elif goal.row == f"{own} by cpu" and server["cpu_s_per_million"] is not None:
            used = _spread(server["cpu_s_per_million"])
            values = (used.minimum, used.median, used.maximum)
            ratio = Spread.of([goal.reference / seconds for seconds in values])
            yield Measured(HTTP, goal.row, ratio, compiled)


# ---- results of compare --------------------------------------------------------------------------


def _of_result(result: Result) -> Iterator[Measured]:
    compiled = result.environment.compiled
    if result.quick:
        return
    right = [run for run in result.runs if run.repeats and not errors_of(run)]
    ours = [run for run in right if run.target.kind == "logserver"]
    for target in dict.fromkeys(run.target.name for run in ours):
        mine = [run for run in ours if run.target.name == target]
        whole = [run for run in result.runs if run.target.name == target]
        empty = spreads([repeat for run in mine for repeat in run.repeats])
        if "start_s" in empty:
            yield Measured(COMPARE, "start", empty["start_s"], compiled, target)
        if "empty_rss_bytes" in empty:
            held = empty["empty_rss_bytes"].by(1e6)
            yield Measured(COMPARE, "memory", held, compiled, target)
        yield from _against_peers(mine, right, target, compiled=compiled)
        yield from _flat(whole, mine, target, compiled=compiled)


def design_of(run: Run) -> str:
    """Return the design of a run's target: kafka or rocketmq."""
    return "rocketmq" if "rocketmq" in run.target.name else "kafka"


def _against_peers(
    mine: Sequence[Run], runs: Sequence[Run], target: str, *, compiled: bool
) -> Iterator[Measured]:
    """Yield recovery ratios: the load time in a real broker's log by the time that kill -9 adds to our start.
    Both are per record.
    """
    for run in mine:
        design = design_of(run)
        peers = [r for r in runs if r.target.kind == design and r.workload == run.workload]
        for peer in peers:
            pairs = [
                (_by_record(theirs, theirs.recovery_load_s), _by_record(ours, _added_s(ours)))
                for theirs, ours in zip(peer.repeats, run.repeats, strict=False)
            ]
            ratios = [theirs / ours for theirs, ours in pairs if theirs and ours]
            if ratios:
                yield Measured(COMPARE, f"recovery {design}", Spread.of(ratios), compiled, target)


def _added_s(repeat: Repeat) -> float | None:
    if repeat.recovery_s is None or repeat.restart_s is None:
        return None
    return max(repeat.recovery_s - repeat.restart_s, 0.0)


def _by_record(repeat: Repeat, seconds: float | None) -> float | None:
    return seconds / repeat.stored_records if seconds and repeat.stored_records else None


def _size(run: Run) -> float:
    return run.workload.scale.value if run.workload.scale else 0.0


def _flat(
    whole: Sequence[Run], right: Sequence[Run], target: str, *, compiled: bool
) -> Iterator[Measured]:
    """Yield ratios of the largest place of each series to its smallest, with both spreads included; none if either run
    failed.
    """
    for axis, large_from in LARGE.items():
        series = [run for run in whole if run.workload.scale and run.workload.scale.name == axis]
        series.sort(key=_size)
        if len(series) < 2 or _size(series[-1]) < large_from:
            continue
        if series[0] not in right or series[-1] not in right:
            continue
        small, large = (spreads(run.repeats) for run in (series[0], series[-1]))
        design = design_of(series[0])
        for what in OPERATIONS:
            name = f"{what}_latency"
            first, last = small.get(f"{name}.p50_us"), large.get(f"{name}.p50_us")
            if first and last and first.minimum:
                ratio = Spread(
                    minimum=last.minimum / first.maximum,
                    median=last.median / first.median,
                    maximum=last.maximum / first.minimum,
                )
                yield Measured(COMPARE, f"{name} by {axis} {design}", ratio, compiled, target)
