"""An invented result of a full comparison: figures that are easy to recognise, and every kind of entry.

Owns the fixture of the report's tests; must not contain measured values.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Final

from logserver.bench.report import render
from logserver.bench.report.contents import Document
from logserver.bench.result import (
    Environment,
    Generator,
    Kind,
    Latency,
    NotDone,
    Repeat,
    Result,
    Run,
    Scale,
    Spread,
    TargetFacts,
    WorkloadFacts,
)

TARGETS: Final[tuple[tuple[str, Kind, float], ...]] = (
    ("logserver-kafka", "logserver", 1.0),
    ("logserver-rocketmq", "logserver", 0.6),
    ("kafka", "kafka", 2.0),
    ("rocketmq", "rocketmq", 1.4),
)
OURS: Final = TARGETS[:2]
PLAIN: Final = ("hot-topic", "hot-topic-at-rate", "fan-out", "tail-and-catch-up")
TOPICS: Final = (1, 64, 256, 1_000, 10_000)
HOSTILE: Final = "<script>alert('1')</script> & | \"quoted\""


def latency(base_us: float) -> Latency:
    return Latency(
        count=100_000,
        p50_us=base_us,
        p90_us=base_us * 2,
        p99_us=base_us * 8,
        p99_9_us=base_us * 40,
        max_us=base_us * 100,
    )


def repeats(seed: int, speed: float, count: int = 3) -> list[Repeat]:
    """Return repeats that published 100,000 records/s times `speed`, with some spread."""
    dice = Random(seed)
    made = []
    for _ in range(count):
        by = speed * (0.9 + 0.2 * dice.random())
        made.append(
            Repeat(
                seconds=15.0,
                published_records=int(1_500_000 * by),
                published_records_per_s=100_000 * by,
                published_mb_per_s=10 * by,
                consumed_records_per_s=90_000 * by,
                publish_latency=latency(1_000 / by),
                end_to_end_latency=latency(2_500 / by),
                server_cpu_s_per_million_records=6 / by,
                server_rss_bytes=int(80e6 / by),
                disk_bytes_per_record=130 / by,
                start_s=0.4 / by,
                generator_busy_share=0.5,
            )
        )
    return made


def scaled(name: str, scale: Scale) -> WorkloadFacts:
    return WorkloadFacts(name=name, fields={}, scale=scale)


def _runs() -> list[Run]:
    made: list[Run] = []
    for place, name in enumerate(PLAIN):
        for number, (target, kind, speed) in enumerate(TARGETS):
            made.append(
                Run(
                    workload=WorkloadFacts(name=name, fields={"topics": 1}),
                    target=TargetFacts(name=target, kind=kind, version="1.0"),
                    repeats=repeats(10 * place + number, speed * (1 + place)),
                )
            )
    for topics in TOPICS:
        for number, (target, kind, speed) in enumerate(OURS if topics == 10_000 else TARGETS):
            fall = topics ** (-0.3 if "rocketmq" not in target else -0.1)
            made.append(
                Run(
                    workload=scaled(f"topics-{topics}", Scale("topics", topics)),
                    target=TargetFacts(name=target, kind=kind),
                    repeats=repeats(topics + number, speed * fall),
                )
            )
    for size in (1e7, 1e8, 1e9, 1e10):
        for number, (target, kind, speed) in enumerate(OURS):
            looked = latency(60 / speed)
            made.append(
                Run(
                    workload=scaled(f"size-{size:.0e}", Scale("store_bytes", size)),
                    target=TargetFacts(name=target, kind=kind),
                    repeats=[
                        Repeat(
                            append_latency=latency(90 + number),
                            fetch_latency=looked,
                            key_lookup_latency=latency(60 if number else size / 1e5),
                            time_lookup_latency=looked,
                            start_s=0.5,
                            restart_s=0.6,
                            empty_rss_bytes=55_000_000,
                        )
                    ],
                )
            )
    made += [
        Run(
            workload=WorkloadFacts(name="key-and-time-lookups", fields={}),
            target=TargetFacts(name=target, kind=kind),
            repeats=[Repeat(key_lookup_latency=latency(us), time_lookup_latency=latency(80))] * 3,
        )
        for (target, kind, _), us in zip(OURS, (40_000.0, 65.0), strict=True)
    ]
    return made + _recoveries()


def _recoveries() -> list[Run]:
    """Return recoveries of stores; our stores hold twice as many records as the others."""
    return [
        Run(
            workload=WorkloadFacts(name="recovery-after-kill", fields={}),
            target=TargetFacts(name=target, kind=kind),
            repeats=[
                Repeat(
                    restart_s=0.5 / speed,
                    recovery_s=seconds / speed,
                    recovery_load_s=0.4 if kind == "kafka" else None,
                    stored_records=1_000_000 if kind == "logserver" else 500_000,
                )
                for seconds in (1.5, 1.6)
            ],
        )
        for target, kind, speed in TARGETS
    ]


def full() -> Result:
    """Return a complete result."""
    runs = _runs()
    runs[4].errors.append(HOSTILE)
    runs[2].not_done.append(NotDone("keyDistributor", "the peer's tool has no keys"))
    runs[5].repeats[1] = Repeat(
        published_records_per_s=50_000.0,
        offered_records_per_s=100_000.0,
        rate_held=False,
        unsent_requests=1234,
        generator_busy_share=0.95,
    )
    return Result(
        complete=True,
        began="2026-01-02T03:04:05Z",
        command=["logserver", "compare", "--report", "report.html"],
        environment=Environment(
            cpu="Example CPU",
            cores=2,
            memory_bytes=8_000_000_000,
            system="Linux 6.0",
            python="3.11.7",
            compiled=True,
            packages={"aiohttp": "3.13", "msgspec": "0.20"},
            java="17",
            kafka="4.3.1",
            rocketmq="5.5.0",
            server_cores=[0],
            generator_cores=[1],
        ),
        generator=Generator(
            ceiling_requests_per_s=Spread(minimum=140_000, median=150_000, maximum=151_000),
            offered_requests_per_s=20_000,
            made_requests_per_s=Spread(minimum=19_990, median=20_000, maximum=20_001),
            rate_error_share=0.0005,
            latency=latency(40),
        ),
        runs=runs,
    )


def partial() -> Result:
    """Return a result that was interrupted after its first runs."""
    result = full()
    result.complete, result.incomplete_reason = False, "interrupted"
    result.generator = None
    result.runs = result.runs[:3]
    return result


def small(values: dict[str, Sequence[float]], workload: str = "w") -> Result:
    """Return one workload on each of these targets, with the records per second of each repeat."""
    result = full()
    result.runs = [
        Run(
            workload=WorkloadFacts(name=workload, fields={}),
            target=TargetFacts(name=name, kind="logserver"),
            repeats=[Repeat(published_records_per_s=value) for value in rates],
        )
        for name, rates in values.items()
    ]
    return result


def chapter(document: Document, title: str) -> str:
    """Return the Markdown text of a chapter; `title` is the beginning of its title."""
    _, found, text = render.markdown(document).partition(f"\n## {title}")
    assert found, title
    return text.partition("\n## ")[0]
