"""What limits the figures of a report: warnings about its results, and the parts of runs that were left out.

Owns these texts; must not compute a figure. The rules of comparability are in comparability.py.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import Final

import msgspec

from logserver.bench.report.comparability import (
    REAL,
    busy_generator_share,
    falling_cpu,
    full_core_share,
    rising_rates,
)
from logserver.bench.report.format import range_text, short
from logserver.bench.result import OPTIONAL_FACTS, Result, Run, Spread, errors_of, held

NAMED: Final = 3  # runs with errors that a warning names
ALIKE: Final = (
    "cpu", "cores", "system", "python", "compiled", "packages", "server_cores", "generator_cores",
)  # fmt: skip
ANY: Final = "any"
UNEVEN: Final = 1.2  # times as much in one result as in another: the machine's speed changed


class LeftOut(msgspec.Struct, frozen=True):
    """A part of a run that was left out, did not hold, or failed."""

    workload: str
    target: str
    what: str


def warnings(merged: Result, results: Sequence[Result]) -> Iterator[str]:
    """Yield warnings about the report as a whole."""
    if not merged.complete:
        reason = merged.incomplete_reason or "the run was cut short"
        yield f"Partial result: {reason}. The report has everything that was measured until then."
    if merged.quick:
        yield "Quick run: it checks that everything works and that counts agree. Its figures say little."
    wrong = [f"{r.workload.name} on {r.target.name}" for r in merged.runs if errors_of(r)]
    if wrong:
        more = f" and {len(wrong) - NAMED} more" if len(wrong) > NAMED else ""
        names = ", ".join(wrong[:NAMED])
        yield f"Errors in {names}{more}: their figures support no conclusion. The errors are listed at the end."
    yield from _mixed(results)


def _mixed(results: Sequence[Result]) -> Iterator[str]:
    """Yield warnings about several results in one report: ratios need one machine and the same software."""
    unlike = [
        f"{name.replace('_', ' ')} {' and '.join(values)}"
        for name in (*ALIKE, *OPTIONAL_FACTS)
        if len(values := _values(results, name)) > 1
    ]
    if unlike:
        yield (
            f"The results come from different environments: {'; '.join(unlike)}. The environment shown is that of the "
            "first result."
        )
    names = [dict.fromkeys(run.workload.name for run in result.runs) for result in results]
    split = [name for name, count in Counter(chain(*names)).items() if count > 1]
    if split:
        yield (
            f"Not all targets of {', '.join(split)} are of one result: they did not take turns, so the ratios between "
            "them include every change of the machine between the results."
        )
    ceilings = [r.generator.ceiling_requests_per_s.median for r in results if r.generator]
    if ceilings and max(ceilings) > UNEVEN * min(ceilings):
        yield (
            f"The machine was not equally fast in all results: the load generator alone did {short(min(ceilings))} to "
            f"{short(max(ceilings))} requests/s. Ratios of targets that took turns within a result hold; figures of "
            "different results cannot be compared."
        )


def _values(results: Sequence[Result], name: str) -> list[str]:
    """Return the distinct values of a field in the environments."""
    found = dict.fromkeys(listed(getattr(result.environment, name)) for result in results)
    if name in OPTIONAL_FACTS:
        found.pop(ANY, None)
    return list(found)


def listed(value: object) -> str:
    """Format a field of an environment."""
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {version}" for name, version in value.items())
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return ANY if value is None else str(value)


def left_out(result: Result) -> Iterator[LeftOut]:
    """Yield the parts of a result that were not done, did not hold, or failed, by workload and target."""
    most = max((len(run.repeats) for run in result.runs), default=0)
    for run in result.runs:
        begun = run.repeats or not run.notes  # else the notes say why it was left out
        cut_short = not result.complete and len(run.repeats) < most and begun
        texts = [f"cut short: {len(run.repeats)} of {most} repeats"] if cut_short else []
        texts += [f"{part.field}: {part.reason}" for part in run.not_done]
        texts += [*run.notes, *errors_of(run), *_limits(run)]
        for text in texts:
            yield LeftOut(run.workload.name, run.target.name, text)


def _limits(run: Run) -> Iterator[str]:
    """Yield reasons why a rate did not hold, and why figures of a run are not the target's own."""
    if held(run) is False and not run.notes:  # a finished run's notes say it already
        yield _not_held(run)
    if run.target.kind in REAL and (lasted := _short_run(run)):
        yield lasted
    if full := full_core_share(run):
        yield (
            f"the server was busy for {full:.0%} of its core: its processor time is the time available, not the time "
            "needed"
        )
    if rates := rising_rates(run):
        yield f"got faster from repeat to repeat, {_shorts(rates)} records/s: it was not warm"
    if seconds := falling_cpu(run):
        yield f"took less processor time from repeat to repeat, {_shorts(seconds)} s: it was not warm"
    if busy := busy_generator_share(run):
        yield f"{run.target.driver} was busy for {busy:.0%} of a core: it may be the limit"


def _shorts(values: Sequence[float]) -> str:
    return ", ".join(map(short, values))


def _short_run(run: Run) -> str:
    """Return a note if a run published for less than half of the time, else "": its tool sends an estimated number."""
    asked_s = 60 * run.workload.fields.get("testDurationMinutes", 0)
    rates = [(r.published_records, r.published_records_per_s) for r in run.repeats]
    lasted_s = [records / rate for records, rate in rates if records and rate]
    if not lasted_s or min(lasted_s) > asked_s / 2:
        return ""
    return f"measured for {min(lasted_s):.1f} s of {asked_s:.0f} s: its tool sends a number of records, not for a time"


def _not_held(run: Run) -> str:
    missed = [repeat for repeat in run.repeats if repeat.rate_held is False]
    offered = missed[0].offered_records_per_s
    rate = "" if offered is None else f" of {short(offered)} records/s"
    unsent = sum(repeat.unsent_requests or 0 for repeat in run.repeats)
    made = [r.published_records_per_s for r in run.repeats if r.published_records_per_s]
    published = f", {range_text(Spread.of(made), 'records/s')} published" if made else ""
    share = f"{len(missed)} of {len(run.repeats)} repeats"
    return (
        f"the offered rate{rate} was NOT held in {share}{published}; {unsent:,} requests not sent"
    )
