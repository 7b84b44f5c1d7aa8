"""A generated workload in both backends: the same records, offsets, order, and answers by time and by key.

The expected answers are computed from the workload, so that a fault common to both backends is detected.
tests/robustness/stateful compares each backend with the model; here the backends are compared with each other, over
every kind of stop.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.comparison.sides import FLAVOURS, Side
from tests.comparison.workload import Workload, partitions

SEEDS = (1, 2)


@pytest.fixture
def sides() -> Iterator[list[Side]]:
    """Both backends with the workload's topics; a test may replace them."""
    both = [Side(flavour) for flavour in FLAVOURS]
    for side in both:
        side.make_topics()
    yield both
    for side in both:
        side.end()


@pytest.fixture(params=SEEDS)
def workload(request: pytest.FixtureRequest) -> Workload:
    return Workload.of(request.param)


def test_the_workload_is_worth_comparing(workload: Workload) -> None:
    """The workload contains every promised case, and enough data to roll the files of both backends."""
    records = [record for step in workload.steps for record in step.records]
    assert len({step.partition for step in workload.steps}) == len(partitions()) - 1
    assert {step.codec for step in workload.steps} == {None, "none", "lz4", "zstd"}
    assert {len(step.records) for step in workload.steps} >= {1, 17, 60}
    assert {record.value for record in records} >= {b""}
    assert any(record.headers for record in records)
    assert any(record.tag for record in records)
    assert sum(len(record.value or b"") for record in records) > 2 * (16 << 10)
    lengths = {len(hits) for hits in workload.answers().found.values()}
    assert (min(lengths), max(lengths) > 50) == (0, True)


def test_directly(sides: list[Side], workload: Workload) -> None:
    expected = workload.answers()
    for side in sides:
        side.play(workload.steps)
        assert side.answers(workload) == expected, side.backend


@pytest.mark.parametrize("stop", [Side.close_and_open, Side.kill_and_open], ids=["close", "kill"])
def test_over_stops(sides: list[Side], workload: Workload, stop: Callable[[Side], None]) -> None:
    """A clean or unclean stop after every third of the work changes nothing."""
    expected = workload.answers()
    third = len(workload.steps) // 3
    for side in sides:
        for begin in range(0, len(workload.steps), third):
            side.play(workload.steps[begin : begin + third])
            stop(side)
        assert side.answers(workload) == expected, side.backend


def test_after_a_loss_of_power(sides: list[Side], workload: Workload) -> None:
    """After a power loss at least the flushed records exist, and sending missing records again gives the same log."""
    expected = workload.answers()
    first = workload.steps[: len(workload.steps) * 2 // 3]
    last_flush = max(number for number, step in enumerate(first) if step.flush)
    flushed = Workload(first[: last_flush + 1]).answers()
    for side in sides:
        side.play(first)
        side.lose_power_and_open()
        left = side.answers(workload)
        for partition in partitions():
            sure, there = flushed.records[partition], left.records[partition]
            assert len(sure) <= len(there), (side.backend, partition)
            assert there == expected.records[partition][: len(there)], (side.backend, partition)
        side.send_what_is_missing(workload.steps)
        assert side.answers(workload) == expected, side.backend


@pytest.mark.slow
def test_converted_there_and_back(sides: list[Side], workload: Workload) -> None:
    """A converted store gives the same answers as its source, and so does the store converted back."""
    expected = workload.answers()
    for side, other in (sides, sides[::-1]):
        side.play(workload.steps)
        there = side.converted(other.flavour)
        back = there.converted(side.flavour)
        for made in (there, back):
            assert made.store.recovery.clean_shutdown
            assert made.answers(workload) == expected, (side.backend, made.backend)
            made.end()
