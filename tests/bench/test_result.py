"""The result document: it is read as it was written, and repeats are summarised together."""

from __future__ import annotations

import msgspec
import pytest

from logserver.bench.result import (
    METRICS,
    Environment,
    Latency,
    Repeat,
    Result,
    Run,
    Scale,
    Spread,
    TargetFacts,
    WorkloadFacts,
    from_json,
    held,
    numbers,
    spreads,
    to_json,
)

ENVIRONMENT = Environment(
    cpu="a cpu",
    cores=2,
    memory_bytes=1 << 30,
    system="Linux",
    python="3.11",
    compiled=False,
    packages={"msgspec": "1"},
)


def run(*repeats: Repeat) -> Run:
    """Return a run with these repeats."""
    return Run(
        workload=WorkloadFacts(name="topics-64", fields={"topics": 64}, scale=Scale("topics", 64)),
        target=TargetFacts(name="logserver-kafka", kind="logserver"),
        repeats=list(repeats),
    )


def test_a_document_is_read_as_it_was_written() -> None:
    latency = Latency(count=3, p50_us=1.5, max_us=9)
    taken = run(Repeat(seconds=1.0, published_records=7, publish_latency=latency))
    result = Result(environment=ENVIRONMENT, complete=True, runs=[taken])
    assert from_json(to_json(result)) == result


def test_another_version_is_refused() -> None:
    made = to_json(Result(environment=ENVIRONMENT)).replace(b'_version": 1', b'_version": 2')
    with pytest.raises(ValueError, match="format_version: 2, this reads 1"):
        from_json(made)


def test_repeats_are_told_together_and_what_was_not_measured_is_left_out() -> None:
    repeats = [
        Repeat(
            published_records_per_s=rate,
            key_lookup_latency=Latency(count=1, p50_us=10 * rate),
            rate_held=rate > 1,
        )
        for rate in (3.0, 1.0, 2.0)
    ]
    assert spreads([*repeats, Repeat(recovery_s=0.5)]) == {
        "published_records_per_s": Spread(minimum=1, median=2, maximum=3),
        "key_lookup_latency.count": Spread(minimum=1, median=1, maximum=1),
        "key_lookup_latency.p50_us": Spread(minimum=10, median=20, maximum=30),
        "recovery_s": Spread(minimum=0.5, median=0.5, maximum=0.5),
    }
    assert held(run(*repeats)) is False
    assert held(run(*repeats[:1])) is True
    assert held(run(Repeat(recovery_s=0.5))) is None


def test_every_metric_is_a_number_of_a_repeat() -> None:
    values = {
        name: Latency(count=10_000, p50_us=1, p90_us=1, p99_us=1, p99_9_us=1, max_us=1, mean_us=1)
        if "Latency" in str(kind)
        else 1
        for name, kind in Repeat.__annotations__.items()
        if name not in {"errors", "rate_held"}
    }
    everything = msgspec.convert(values, Repeat, from_attributes=True)
    assert METRICS.keys() <= numbers(everything).keys()
