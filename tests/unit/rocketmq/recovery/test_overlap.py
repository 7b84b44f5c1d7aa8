"""Bad places of the log are found without a check of each place."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from storage.rocketmq.tools.log_walk import overlap
from storage.rocketmq.tools.verify.queues import damaged_in


class Counted(list[tuple[int, int]]):
    """A list that counts the accesses to its items."""

    looks = 0

    def __getitem__(self, at: int) -> tuple[int, int]:  # type: ignore[override]  # no slices here
        self.looks += 1
        return super().__getitem__(at)


@pytest.mark.parametrize(
    "ranges", [[], [(4, 9)], [(0, 1), (1, 3), (7, 8)], [(at, at + 5) for at in range(0, 60, 7)]]
)
def test_an_overlap_is_found(ranges: Sequence[tuple[int, int]]) -> None:
    is_damaged = damaged_in(ranges)
    for start in range(-1, 70):
        for end in range(start + 1, 72):
            wanted = any(begin < end and start < stop for begin, stop in ranges)
            assert overlap(ranges, start, end) is wanted
            assert is_damaged(start, end) is wanted


def test_a_lookup_among_many_is_short() -> None:
    places = Counted((at, at + 3) for at in range(0, 1_000_000, 10))
    rng = random.Random(1)
    for _ in range(1000):
        at = rng.randrange(1_000_000)
        assert overlap(places, at, at + 1) is (at % 10 < 3)
    assert places.looks < 1000 * 40
