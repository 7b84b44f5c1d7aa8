"""The conclusions of a report: statements on the two designs that the figures of a run support.

Owns the statements. Must not claim more than was measured: a statement is left out where the figures do not support it,
as in runs with errors. What the designs promise before any figure is text of the template, and each of its statements
has a test (tests/comparison/test_differences.py).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Final

from logserver.bench.report.figures import Figure, ratio_of, repeats_with
from logserver.bench.report.format import ratio_text, value_text
from logserver.bench.report.verdicts import design_of
from logserver.bench.result import METRICS, Result, Run, Spread, errors_of, spreads

REAL_ONES: Final = "Of the real servers"
LEAST_REPEATS: Final = 2  # fewer have no spread
UNLIKE: Final = "not quite the same work: see what was left out"
NOTHING_OF_REAL: Final = (
    "Of the real servers nothing follows for the designs: see what was left out."
)
# Workload, metric, and the statement up to its figures.
STATEMENTS: Final = (
    ("hot-topic", "published_records_per_s", "one hot topic takes"),
    ("tail-and-catch-up", "catch_up_records_per_s", "a backlog, while new records arrive, is read at"),
    ("topics-1000", "published_records_per_s", "a thousand topics take"),
    ("topics-1000", "publish_latency.p99_us", "of a thousand topics 99 of 100 requests are answered within"),
    ("topics-10000", "published_records_per_s", "ten thousand topics take"),
    ("topics-10000", "publish_latency.p99_us", "of ten thousand topics 99 of 100 requests are answered within"),
    ("sync-flush-64", "published_records_per_s", "64 producers of one topic that wait for the disk publish"),
    ("sync-flush-64-topics", "published_records_per_s",
     "64 producers that wait for the disk, each on its own topic, publish"),
    ("key-and-time-lookups", "key_lookup_latency.p50_us", "the median lookup by key in a large store takes"),
    ("disk-per-record", "disk_bytes_per_record", "a record takes on disk"),
    ("disk-per-keyed-record", "disk_bytes_per_record", "a record with a key that is indexed takes on disk"),
    ("recovery-after-kill", "recovery_s", "a start after kill -9 takes"),
)  # fmt: skip


def conclusions(result: Result, figures: Sequence[Figure]) -> list[str]:
    """Return the statements that the figures of this run support; none on speed for a quick run."""
    if result.quick:
        return [
            "This run was a quick one: its figures check that all works, and say nothing about speed."
        ]
    wrong = {(run.workload.name, run.target.name) for run in result.runs if errors_of(run)}
    figures = [f for f in figures if (f.workload, f.target) not in wrong]
    unlike = {(run.workload.name, run.target.name) for run in result.runs if run.not_done}
    runs = {(run.workload.name, run.target.name): run for run in result.runs}
    found: list[str] = []
    for who, kafka, rocketmq in _pairs(result):
        statements = [
            statement
            for workload, metric, what in STATEMENTS
            if (one := runs.get((workload, kafka)))
            and (other := runs.get((workload, rocketmq)))
            and not (errors_of(one) or errors_of(other))
            for statement in _beside(one, other, metric, f"{who}, {what}")
        ]
        found += statements or ([NOTHING_OF_REAL] if who == REAL_ONES and found else [])
    return found + list(_over_topics(figures, unlike)) or [
        "This run has nothing to compare the designs by."
    ]


def _pairs(result: Result) -> Iterator[tuple[str, str, str]]:
    """Yield the pairs to compare: our server with each backend, and the real servers. A pair is a label and two target
    names.
    """
    for who, ours in (("In this server", True), (REAL_ONES, False)):
        names: Mapping[str, str] = {
            design_of(run): run.target.name
            for run in result.runs
            if (run.target.kind == "logserver") == ours and run.target.kind != "http"
        }
        if len(names) == 2:
            yield who, names["kafka"], names["rocketmq"]


def _beside(kafka: Run, rocketmq: Run, metric: str, what: str) -> Iterator[str]:
    """Yield one statement; none if either run lacks the figure, or did not do comparable work."""
    one, other = (spreads(run.repeats).get(metric) for run in (kafka, rocketmq))
    ratio = ratio_of(rocketmq, kafka, metric)
    if one is None or other is None or ratio is None or not ratio.median:
        return
    unit = METRICS[metric].unit
    first, second = (value_text(spread.median, unit) for spread in (one, other))
    verdict = _more(ratio) if _apart(one, other) else "no difference beyond the spread"
    if min(repeats_with(run, metric) for run in (kafka, rocketmq)) < LEAST_REPEATS:
        verdict = "of a single repeat, which has no spread to tell a difference by"
    size_bytes = kafka.workload.fields.get("messageSize")
    remarks = [] if size_bytes is None else [f"values of {size_bytes:,} bytes"]
    remarks += [UNLIKE] if kafka.not_done or rocketmq.not_done else []
    told_of = f" ({'; '.join(remarks)})" if remarks else ""
    yield f"{what} {first} in Kafka's format and {second} in RocketMQ's: {verdict}{told_of}."


def _apart(one: Spread, other: Spread) -> bool:
    """Return whether two ranges do not overlap."""
    return one.maximum < other.minimum or other.maximum < one.minimum


def _more(ratio: Spread) -> str:
    """Return which of the two is more and by how much, repeat by repeat. `ratio` is RocketMQ's by Kafka's."""
    design = "RocketMQ's"
    if ratio.median < 1:
        least = ratio.minimum or ratio.median
        ratio = Spread(minimum=1 / ratio.maximum, median=1 / ratio.median, maximum=1 / least)
        design = "Kafka's"
    median, _, spread = ratio_text(ratio).partition(" ")
    return f"{median} times{spread and f' {spread}'} as much in {design}"


def _over_topics(figures: Sequence[Figure], unlike: Collection[tuple[str, str]]) -> Iterator[str]:
    series = [f for f in figures if f.scale is not None and f.scale.name == "topics"]
    rates = [f for f in series if f.metric == "published_records_per_s"]
    for target in dict.fromkeys(f.target for f in rates):
        mine = sorted(
            ((f.scale.value, f) for f in rates if f.target == target and f.scale),
            key=lambda placed: placed[0],
        )
        (first, before), (last, after) = mine[0], mine[-1]
        told_so = f" ({UNLIKE})" if any((f.workload, target) in unlike for f in rates) else ""
        if (
            first < last
            and after.change is not None
            and min(before.repeats, after.repeats) >= LEAST_REPEATS
        ):
            share = f"{_share_text(after.change)} of what it publishes"
            if not _apart(before.spread, after.spread):
                share = "what it publishes: no difference beyond the spread"
            yield f"From {first:,.0f} to {last:,.0f} topics {target} keeps {share}{told_so}."


def _share_text(share: Spread) -> str:
    return f"{share.median:.0%} ({share.minimum:.0%} - {share.maximum:.0%})"
