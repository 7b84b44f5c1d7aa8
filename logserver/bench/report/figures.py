"""Figures from results: for each workload, target and metric the spread over repeats and the ratio to a baseline.

Owns the arithmetic of a report; must not know how it is shown. A ratio is taken repeat by repeat: the targets take
turns, so a slow moment of the machine affects both.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import msgspec

from logserver.bench.report.comparability import is_alike, is_offered, is_same_work, is_sound
from logserver.bench.result import (
    METRICS,
    OPTIONAL_FACTS,
    Better,
    Result,
    Run,
    Scale,
    Spread,
    numbers,
    spreads,
)
from storage.errors import InvalidArgument

PREFERRED_KIND: Final = "logserver"


class Figure(msgspec.Struct, frozen=True, kw_only=True):
    """One metric of one target under one workload.

    - `alike`: the target did the requested work, and its figure was not limited by something else (see likeness.py).
    - `ratio`: this figure divided by the baseline's; None if the baseline has none, if either is not alike, and if the
      workload itself sets the figure.
    - `change`: this figure divided by the same target's median at the first place of the series; None if it did other
      work there, if either is not sound, and at the first place.
    """

    workload: str
    scale: Scale | None
    target: str
    metric: str
    unit: str
    better: Better
    spread: Spread
    repeats: int
    alike: bool
    baseline: str
    ratio: Spread | None
    change: Spread | None


def merged(results: Sequence[Result]) -> Result:
    """Merge results into one document: all their runs, without their generators. It is complete if each result is. The
    first result gives the environment; fields missing in it come from the others.

    Raises InvalidArgument if a workload ran twice on the same target.
    """
    first = results[0]
    runs: dict[tuple[str, str], Run] = {}
    for result in results:
        for run in result.runs:
            key = run.workload.name, run.target.name
            if key in runs:
                message = f"two of the results have {key[0]} on {key[1]}: give one of them"
                raise InvalidArgument(message, field="from")
            runs[key] = run
    environments = [result.environment for result in results]
    known = {
        name: next(filter(None, (getattr(each, name) for each in environments)), None)
        for name in OPTIONAL_FACTS
    }
    reasons = [result.incomplete_reason or "cut short" for result in results if not result.complete]
    return Result(
        complete=not reasons,
        incomplete_reason="; ".join(reasons) or None,
        began=min(result.began for result in results),
        command=first.command,
        quick=any(result.quick for result in results),
        environment=msgspec.structs.replace(first.environment, **known),
        runs=list(runs.values()),
    )


def targets(result: Result) -> list[str]:
    """Return the target names in order of first appearance."""
    return list(dict.fromkeys(run.target.name for run in result.runs))


def choose_baseline(result: Result, wanted: str | None) -> str:
    """Choose the baseline of ratios: the wanted target, else the first of our own servers, else the first target.

    Raises InvalidArgument for an unknown target, and for a result without runs.
    """
    names = targets(result)
    if not names:
        raise InvalidArgument("the result has no runs: there is nothing to report", field="from")
    if wanted is not None:
        check_baseline(names, wanted)
        return wanted
    ours = [run.target.name for run in result.runs if run.target.kind == PREFERRED_KIND]
    return (ours or names)[0]


def check_baseline(names: Sequence[str], wanted: str) -> None:
    """Raise InvalidArgument if the wanted baseline is none of the targets."""
    if wanted not in names:
        message = f"baseline: {wanted!r} is none of the targets {', '.join(names)}"
        raise InvalidArgument(message, field="baseline")


def figures_of(result: Result, baseline: str) -> list[Figure]:
    """Return all figures of a result, by workload, then by metric, then by target."""
    firsts = _firsts_of_series(result.runs)
    return [
        figure
        for workload in dict.fromkeys(run.workload.name for run in result.runs)
        for figure in _of_workload(
            [run for run in result.runs if run.workload.name == workload], baseline, firsts
        )
    ]


def _firsts_of_series(runs: Sequence[Run]) -> dict[tuple[str, str], Run]:
    """Return the first run of each series by axis and target."""
    placed = [(run.workload.scale, run) for run in runs if run.workload.scale and run.repeats]
    placed.sort(key=lambda each: each[0].value, reverse=True)
    return {(scale.name, run.target.name): run for scale, run in placed}


def _of_workload(
    runs: Sequence[Run], baseline: str, firsts: Mapping[tuple[str, str], Run]
) -> Iterator[Figure]:
    found = {run.target.name: spreads(run.repeats) for run in runs}
    base = next((run for run in runs if run.target.name == baseline), None)
    for metric, about in METRICS.items():
        for run in runs:
            spread = found[run.target.name].get(metric)
            if spread is None:
                continue
            yield Figure(
                workload=run.workload.name,
                scale=run.workload.scale,
                target=run.target.name,
                metric=metric,
                unit=about.unit,
                better=about.better,
                spread=spread,
                repeats=repeats_with(run, metric),
                alike=is_alike(run, metric),
                baseline=baseline,
                ratio=None if base is None or base is run else ratio_of(run, base, metric),
                change=_change(run, metric, spread, firsts),
            )


def _change(
    run: Run, metric: str, after: Spread, firsts: Mapping[tuple[str, str], Run]
) -> Spread | None:
    """Compute the change along a series. The runs did not take turns, so each repeat is compared with the first run's
    median.
    """
    scale = run.workload.scale
    first = firsts.get((scale.name, run.target.name)) if scale else None
    if first is None or first is run or not is_same_work(run, first):
        return None
    if not (is_sound(run, metric) and is_sound(first, metric)):
        return None
    before = spreads(first.repeats).get(metric)
    return after.by(before.median) if before is not None and before.median else None


def repeats_with(run: Run, metric: str) -> int:
    """Return the number of repeats that have this metric."""
    return sum(metric in numbers(repeat) for repeat in run.repeats)


def ratio_of(run: Run, base: Run, metric: str) -> Spread | None:
    """Compute the ratio repeat by repeat; None in three cases:

    - no repeat has both values;
    - either run is not alike;
    - the workload offers this rate.
    """
    if is_offered(run, metric) or not (is_alike(run, metric) and is_alike(base, metric)):
        return None
    pairs = (
        (numbers(mine).get(metric), numbers(theirs).get(metric))
        for mine, theirs in zip(run.repeats, base.repeats, strict=False)
    )
    ratios = [mine / theirs for mine, theirs in pairs if mine is not None and theirs]
    return Spread.of(ratios) if ratios else None
