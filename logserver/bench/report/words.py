"""The chapter in plain words: what the two designs are, what follows for who must choose, and what this run adds.

Owns those words. What is said of the designs is stated as tests (tests/comparison/test_differences.py); what is said of
speed is worked out from the figures, and left out where they do not carry it: of runs with errors.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Final

from logserver.bench.report.document import Section, Table
from logserver.bench.report.figures import Figure
from logserver.bench.report.telling import times, told
from logserver.bench.report.verdicts import design_of
from logserver.bench.result import Result, errors_of

DESIGNS: Final = (
    ("Where a record goes", "the log of its partition", "one commit log for all, and a unit of 20 bytes in its queue"),
    ("Durable on disk", "one sync for each partition written", "one sync for all partitions together"),
    ("Found by time", "the record's own time, any order", "the time of the append"),
    ("Found by key", "a scan of the topic", "an index of keys"),
    ("After a crash", "a torn append goes whole; other partitions keep all",
     "whole messages before the tear stay; what came later goes in every queue"),
    ("Deleting old records", "by topic", "the oldest files of all topics together"),
    ("What a record may hold", "null values, any key, repeated headers",
     "text keys and headers, each once; no null value"),
)  # fmt: skip
KAFKA_IF: Final = (
    "Take Kafka's design where records come in large batches to few partitions, where readers go through whole "
    "partitions, where a topic has a retention of its own, or where values may be null (compacted topics)."
)
ROCKETMQ_IF: Final = (
    "Take RocketMQ's design where records are spread thin over many topics, where each must be on disk before it is "
    "answered, or where people look for single messages by a key. How much of that shows on this machine say the "
    "figures below."
)
METHOD: Final = (
    "A ratio is taken repeat by repeat, for the targets take turns; it is told as the middle one with the smallest and "
    "the largest. Two ranges that overlap are no difference. Absolute figures hold for this machine alone."
)


def section(result: Result, figures: Sequence[Figure]) -> Section:
    """The whole chapter."""
    return Section(
        name="choosing",
        title="What follows for someone who must choose",
        paragraphs=[KAFKA_IF, ROCKETMQ_IF],
        points=conclusions(result, figures),
        tables=[
            Table(
                title="The two designs",
                columns=["", "Kafka", "RocketMQ"],
                rows=DESIGNS,
                labels=3,
                about="Each row is shown by a test of its own, not by a figure.",
            )
        ],
    )


def conclusions(result: Result, figures: Sequence[Figure]) -> list[str]:
    """What the figures of this run say, one statement each; nothing of a quick run."""
    if result.quick:
        return [
            "This run was a quick one: its figures check that all works, and say nothing about speed."
        ]
    wrong = {(run.workload.name, run.target.name) for run in result.runs if errors_of(run)}
    figures = [f for f in figures if (f.workload, f.target) not in wrong]
    by = {(f.workload, f.target, f.metric): f for f in figures}
    unlike = {(run.workload.name, run.target.name) for run in result.runs if run.not_done}
    found = [
        statement
        for who, kafka, rocketmq in _pairs(result)
        for statement in _beside(by, unlike, who, (kafka, rocketmq))
    ]
    return found + list(_over_topics(figures, unlike)) or [
        "This run has nothing to compare the designs by."
    ]


def _pairs(result: Result) -> Iterator[tuple[str, str, str]]:
    """Our server with each backend, and the real ones: who they are, and the names of the two."""
    for who, ours in (("In this server", True), ("Of the real servers", False)):
        names: Mapping[str, str] = {
            design_of(run): run.target.name
            for run in result.runs
            if (run.target.kind == "logserver") == ours and run.target.kind != "http"
        }
        if len(names) == 2:
            yield who, names["kafka"], names["rocketmq"]


LEAST_REPEATS: Final = 2  # from which there is a spread
UNLIKE: Final = " (not quite the same work: see what was left out)"
SAID: Final = (
    ("hot-topic", "published_records_per_s", "one hot topic takes"),
    ("topics-1000", "published_records_per_s", "a thousand topics take"),
    ("sync-flush-64", "published_records_per_s", "64 producers that wait for the disk get through"),
    ("key-and-time-lookups", "key_lookup_latency.p50_us", "the middle lookup by key takes"),
    ("disk-per-record", "disk_bytes_per_record", "a record takes on disk"),
    ("recovery-after-kill", "recovery_s", "a start after kill -9 takes"),
)


def _beside(
    by: Mapping[tuple[str, str, str], Figure],
    unlike: Collection[tuple[str, str]],
    who: str,
    names: tuple[str, str],
) -> Iterator[str]:
    kafka, rocketmq = names
    for workload, metric, what in SAID:
        one, other = by.get((workload, kafka, metric)), by.get((workload, rocketmq, metric))
        if one is None or other is None or not one.spread.median:
            continue
        first, second = (told(f.spread.median, f.unit) for f in (one, other))
        verdict = _more(one, other) if _apart(one, other) else "no difference beyond the spread"
        if min(one.repeats, other.repeats) < LEAST_REPEATS:
            verdict = "of a single repeat, which has no spread to tell a difference by"
        if any((workload, name) in unlike for name in names):
            verdict += UNLIKE
        yield f"{who}, {what} {first} in Kafka's format and {second} in RocketMQ's: {verdict}."


def _apart(one: Figure, other: Figure) -> bool:
    """Whether their ranges do not overlap."""
    return one.spread.maximum < other.spread.minimum or other.spread.maximum < one.spread.minimum


def _more(kafka: Figure, rocketmq: Figure) -> str:
    """Which of the two is more, and how much."""
    first, second = kafka.spread.median, rocketmq.spread.median
    if first > second > 0:
        return f"{times(first / second)} times as much in Kafka's"
    return (
        f"{times(second / first)} times as much in RocketMQ's"
        if second
        else "nothing in RocketMQ's"
    )


def _over_topics(figures: Sequence[Figure], unlike: Collection[tuple[str, str]]) -> Iterator[str]:
    series = [f for f in figures if f.scale is not None and f.scale.name == "topics"]
    rates = [f for f in series if f.metric == "published_records_per_s"]
    for target in dict.fromkeys(f.target for f in rates):
        mine = sorted(
            ((f.scale.value, f) for f in rates if f.target == target and f.scale),
            key=lambda placed: placed[0],
        )
        (first, before), (last, after) = mine[0], mine[-1]
        told_so = UNLIKE if any((f.workload, target) in unlike for f in rates) else ""
        if (
            first < last
            and before.spread.median
            and min(before.repeats, after.repeats) >= LEAST_REPEATS
        ):
            share = f"{after.spread.median / before.spread.median:.0%} of what it publishes"
            if not _apart(before, after):
                share = "what it publishes: no difference beyond the spread"
            yield f"From {first:,.0f} to {last:,.0f} topics {target} keeps {share}{told_so}."
