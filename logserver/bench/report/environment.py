"""The chapters around the figures of a report: warnings, goals, the generator, omissions, the environment.

Owns these chapters; must not choose the figures: contents.py does.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, Final

from logserver.bench.report.comparability import (
    FULL_CORE,
    REAL,
    busy_generator_share,
    falling_cpu,
    full_core_share,
    rising_rates,
)
from logserver.bench.report.conclusions import METHOD
from logserver.bench.report.document import LeftOut, Section, Table
from logserver.bench.report.format import range_told, ratio_told, short, told
from logserver.bench.report.verdicts import Verdict
from logserver.bench.result import (
    NOT_TOLD_BY_ALL,
    Generator,
    Result,
    Run,
    Spread,
    errors_of,
    held,
)

NAMED: Final = 3  # runs with errors that a warning names
ALIKE: Final = (
    "cpu",
    "cores",
    "system",
    "python",
    "compiled",
    "packages",
    "server_cores",
    "generator_cores",
)
ANY: Final = "any"
UNEVEN: Final = 1.2  # times as much in one result as in another: the machine's speed changed


def warnings(result: Result) -> Iterator[str]:
    """Yield warnings about the result as a whole."""
    if not result.complete:
        reason = result.incomplete_reason or "the run was cut short"
        yield f"Partial result: {reason}. What was measured until then is here."
    if result.quick:
        yield "Quick run: it checks that all works and counts right. Its figures say little."
    wrong = [f"{r.workload.name} on {r.target.name}" for r in result.runs if errors_of(r)]
    if wrong:
        more = f" and {len(wrong) - NAMED} more" if len(wrong) > NAMED else ""
        told_of = ", ".join(wrong[:NAMED])
        yield f"Errors in {told_of}{more}: their figures carry no conclusion. The end of this report tells them."


def mixed(results: Sequence[Result]) -> Iterator[str]:
    """Yield warnings about several results put together: ratios need one machine and the same software."""
    unlike = [
        f"{name.replace('_', ' ')} {' and '.join(values)}"
        for name in (*ALIKE, *NOT_TOLD_BY_ALL)
        if len(values := _values(results, name)) > 1
    ]
    if unlike:
        yield (
            f"Results that were not taken alike are put together: {'; '.join(unlike)}. The environment told is that of "
            "the first."
        )
    if split := _split(results):
        yield (
            f"Not all targets of {', '.join(split)} are of one result: these did not take turns, and the ratios "
            "between them hold whatever changed meanwhile."
        )
    ceilings = [r.generator.ceiling_requests_per_s.median for r in results if r.generator]
    if ceilings and max(ceilings) > UNEVEN * min(ceilings):
        yield (
            f"The machine was not alike in all of the results that are put together: the load generator alone did "
            f"{short(min(ceilings))} to {short(max(ceilings))} requests/s. Ratios of targets that took turns within "
            "a result hold; figures of different results do not stand side by side."
        )


def _split(results: Sequence[Result]) -> list[str]:
    """Return workloads with targets from several results."""
    names = [dict.fromkeys(run.workload.name for run in result.runs) for result in results]
    return [name for name, count in Counter(chain(*names)).items() if count > 1]


def _values(results: Sequence[Result], name: str) -> list[str]:
    """Return the distinct values of a field in the environments."""
    found = dict.fromkeys(_value_told(getattr(result.environment, name)) for result in results)
    if name in NOT_TOLD_BY_ALL:
        found.pop(ANY, None)
    return list(found)


def _value_told(value: object) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {version}" for name, version in value.items())
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return ANY if value is None else str(value)


def facts(results: Sequence[Result], baseline: str) -> Iterator[str]:
    """Yield when, where and by which commands each result was measured, and the baseline of ratios."""
    for result in results:
        machine = result.environment
        yield f"Taken {result.began} on {machine.cores} cores of {machine.cpu}: {' '.join(result.command)}"
    yield f"Ratios are to {baseline}. {METHOD}"


def goals(found: Sequence[Verdict]) -> Section:
    """Build the chapter of goals with their measured ratios."""
    counts = [_counted(found, compiled=compiled) for compiled in (True, False)]
    rows = [
        [
            f"{goal.path}{f' ({goal.target})' if goal.target else ''}",
            _verdict_told(goal),
            ratio_told(goal.ratio),
            _told_goal(goal.floor, goal),
            _told_goal(goal.goal, goal),
            goal.yardstick,
            goal.why if goal.ratio else f"{goal.command} measures it: no result of it is here",
        ]
        for goal in sorted(found, key=lambda goal: goal.ratio is None)
    ]
    return Section(
        name="goals",
        title="The goals",
        paragraphs=[
            "Each is a ratio to its yardstick: the floor binds plain Python, the goal the compiled package. The middle "
            "of the repeats decides; where the spread holds the limit too, it says so. Goals that another script "
            "measures were measured by it, in a run of its own, on the machine that its own table names. A yardstick "
            "with a figure is not from the same run: Karapace's were taken once, on another machine.",
            f"Of the goals (compiled) {counts[0]}; of the floors (plain Python) {counts[1]}.",
        ],
        tables=[
            Table(
                title="Goals and measured ratios",
                columns=["Path", "Verdict", "Measured", "Floor", "Goal", "Yardstick", "Why"],
                rows=rows,
                remarks=2,
            )
        ],
    )


def _counted(found: Sequence[Verdict], *, compiled: bool) -> str:
    """Return how many of the limits for this kind of build were reached, how many were not, and how many were not
    measured.
    """
    bound = {(g.path, g.yardstick) for g in found if (g.goal if compiled else g.floor) is not None}
    mine = [g for g in found if g.compiled is compiled and g.reached is not None]
    missing = len(bound - {(g.path, g.yardstick) for g in mine})
    reached = sum(g.reached is True for g in mine)
    return f"{reached} reached, {len(mine) - reached} not, {missing} not measured here"


def _told_goal(value: float | None, goal: Verdict) -> str:
    if value is None:
        return "-"
    return f"at most {value:g}" if goal.most else f"{value:g}"


def _verdict_told(goal: Verdict) -> str:
    if goal.ratio is None:
        return "not measured here"
    kind = "compiled" if goal.compiled else "plain Python"
    if goal.reached is None:
        return f"no goal for {kind}"
    limit = goal.goal if goal.compiled else goal.floor
    inside = limit is not None and goal.ratio.minimum < limit < goal.ratio.maximum
    close = ", within the spread" if inside else ""
    return f"{'reached' if goal.reached else 'NOT reached'} ({kind}{close})"


def generator(results: Sequence[Result]) -> Section:
    """Build the chapter of the generator's ceiling and its error, for each result."""
    measured = [(result.began, result.generator) for result in results if result.generator]
    if not measured:
        return Section(
            name="generator",
            title="The load generator itself",
            paragraphs=["It was not measured in this run."],
        )
    return Section(
        name="generator",
        title="The load generator itself",
        paragraphs=[
            "Against a socket that answers without looking: no figure of ours that was taken with it can be above its "
            "ceiling, and of a latency near its own at the offered rate a part is the generator's. The real brokers "
            f"are loaded by tools of their own. Where any of them was busy for more than {FULL_CORE:.0%} of a core, it "
            "may have been the limit: that stands among what was left out, and no ratio is drawn."
        ],
        tables=[
            Table(
                title="Ceiling and error" + (f", {began}" if len(measured) > 1 else ""),
                columns=["What", "Median", "Min - max"],
                rows=_generator_rows(made),
                labels=1,
            )
            for began, made in measured
        ],
    )


def _generator_rows(made: Generator) -> list[list[str]]:
    ceiling, rate = made.ceiling_requests_per_s, made.made_requests_per_s
    return [
        [
            "As fast as possible, requests/s",
            short(ceiling.median),
            range_told(ceiling, "requests/s"),
        ],
        [
            f"Offered {short(made.offered_requests_per_s)} requests/s, made",
            short(rate.median),
            range_told(rate, "requests/s"),
        ],
        ["Error at the offered rate", f"{made.rate_error_share:.2%}", ""],
        ["Its own latency, p50", _us(made.latency.p50_us), ""],
        ["Its own latency, p90", _us(made.latency.p90_us), ""],
        ["Its own latency, p99", _us(made.latency.p99_us), ""],
    ]


def _us(value: float | None) -> str:
    return "" if value is None else told(value, "us")


def left_out(result: Result) -> Iterator[LeftOut]:
    """Yield the parts of a result that were not done, did not hold, or failed, by workload and target."""
    most = max((len(run.repeats) for run in result.runs), default=0)
    for run in result.runs:
        names = run.workload.name, run.target.name
        begun = run.repeats or not run.notes  # else the notes say why it was left out
        if not result.complete and len(run.repeats) < most and begun:
            yield LeftOut(*names, f"cut short: {len(run.repeats)} of {most} repeats")
        for part in run.not_done:
            yield LeftOut(*names, f"{part.field}: {part.reason}")
        for text in (*run.notes, *errors_of(run)):
            yield LeftOut(*names, text)
        if held(run) is False and not run.notes:  # a finished run's notes say it already
            yield LeftOut(*names, _not_held(run))
        if run.target.kind in REAL and (short_of := _briefly(run)):
            yield LeftOut(*names, short_of)
        for text in _not_its_own(run):
            yield LeftOut(*names, text)


def _not_its_own(run: Run) -> Iterator[str]:
    """Yield reasons why figures of a run are not the target's own."""
    if full := full_core_share(run):
        what = (
            f"the server was busy for {full:.0%} of its core: its processor time is what there was"
        )
        yield f"{what}, not what it needed"
    if rates := rising_rates(run):
        told_of = ", ".join(short(rate) for rate in rates)
        yield f"got faster from repeat to repeat, {told_of} records/s: it was not warm"
    if seconds := falling_cpu(run):
        told_of = ", ".join(short(each) for each in seconds)
        yield f"took less processor time from repeat to repeat, {told_of} s: it was not warm"
    if busy := busy_generator_share(run):
        yield f"{run.target.driver} was busy for {busy:.0%} of a core: it may be the limit"


def _briefly(run: Run) -> str:
    """Return a note if a run published for less than half of the time; else "". Its tool sends a number of records,
    which was estimated.
    """
    asked_s = 60 * run.workload.fields.get("testDurationMinutes", 0)
    rates = [(r.published_records, r.published_records_per_s) for r in run.repeats]
    lasted_s = [records / rate for records, rate in rates if records and rate]
    if not lasted_s or min(lasted_s) > asked_s / 2:
        return ""
    return f"measured for {min(lasted_s):.1f} s of {asked_s:.0f} s: its tool sends a number of records, not for a time"


def _not_held(run: Run) -> str:
    missed = sum(repeat.rate_held is False for repeat in run.repeats)
    offered = next(r.offered_records_per_s for r in run.repeats if r.rate_held is False)
    rate = "" if offered is None else f" of {short(offered)} records/s"
    unsent = sum(repeat.unsent_requests or 0 for repeat in run.repeats)
    share = f"{missed} of {len(run.repeats)} repeats"
    made = [r.published_records_per_s for r in run.repeats if r.published_records_per_s]
    made_told = f", {range_told(Spread.of(made), 'records/s')} published" if made else ""
    return (
        f"the offered rate{rate} was NOT held in {share}{made_told}; {unsent:,} requests not sent"
    )


def not_done(left_out: Sequence[LeftOut], *, complete: bool) -> Section:
    """Build the chapter of parts that were left out."""
    workloads: dict[tuple[str, str], list[str]] = {}
    for part in left_out:
        workloads.setdefault((part.target, part.what), []).append(part.workload)
    rows = [[target, what, ", ".join(names)] for (target, what), names in workloads.items()]
    if not rows:
        return Section(
            name="left-out",
            title="What was left out",
            paragraphs=[
                "Nothing: all was done, held and counted."
                if complete
                else "Nothing of what was begun; the run was cut short."
            ],
        )
    return Section(
        name="left-out",
        title="What was left out, did not hold, or went wrong",
        tables=[
            Table(
                title="By target and workload",
                columns=["Target", "What", "Workloads"],
                rows=rows,
                labels=3,
            )
        ],
    )


def environment(result: Result) -> Section:
    """Build the chapter of the machine, the versions and the targets."""
    machine = result.environment
    rows = [
        ["Processor", f"{machine.cores} cores, {machine.cpu}"],
        ["Memory", "" if machine.memory_bytes is None else told(machine.memory_bytes, "bytes")],
        ["System", machine.system],
        ["File system of the stores", machine.file_system or "not known"],
        [
            "Python",
            f"{machine.python}, our package {'compiled' if machine.compiled else 'as plain Python'}",
        ],
        *([name, value] for name, value in machine.packages.items()),
        ["Java", machine.java or "none"],
        ["Kafka", machine.kafka or "took no part"],
        ["RocketMQ", machine.rocketmq or "took no part"],
        ["Cores of the servers", _value_told(machine.server_cores)],
        ["Cores of the generator", _value_told(machine.generator_cores)],
    ]
    versions = {run.target.name: run.target for run in result.runs}
    about = [
        [name, target.kind, target.version or "", target.driver]
        for name, target in versions.items()
    ]
    return Section(
        name="environment",
        title="Environment",
        tables=[
            Table(title="Machine and versions", columns=["What", "Value"], rows=rows),
            Table(
                title="Workloads",
                columns=["Workload", "Fields that differ from the first one's"],
                rows=_workloads(result),
            ),
            Table(
                title="Targets",
                columns=["Target", "Kind", "Version", "Load by"],
                rows=about,
                labels=4,
            ),
        ],
    )


def _workloads(result: Result) -> list[list[str]]:
    """Return the fields of each workload; for all but the first only the fields that differ from the first one's."""
    found = {run.workload.name: _flat(run.workload.fields) for run in result.runs}
    first = next(iter(found.values()))
    return [
        [
            name,
            ", ".join(
                f"{k} {v}" for k, v in fields.items() if fields is first or first.get(k) != v
            ),
        ]
        for name, fields in found.items()
    ]


def _flat(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Flatten nested tables of fields into one level."""
    flat: dict[str, Any] = {}
    for name, value in fields.items():
        flat |= _flat(value) if isinstance(value, dict) else {name: value}
    return flat
