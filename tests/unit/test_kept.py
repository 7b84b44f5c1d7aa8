"""Losses in earlier reports are found without a check of every loss."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from storage.files import OverlayFileSystem, RealFileSystem
from storage.model import Loss, LossReport, TopicPartition
from storage.shared.loss_report import (
    CUT_REPORT,
    SALVAGE_REPORT,
    is_reported,
    known_losses,
    reported_ranges,
    write_report,
)


def loss(first: int, stop: int | None, partition: int = 0) -> Loss:
    return Loss(
        topic="t",
        partition=partition,
        path="f",
        position=0,
        size_bytes=0,
        first_offset=first,
        next_offset=stop,
        reason="missing",
    )


def test_the_losses_of_each_partition_are_known() -> None:
    fs, root = OverlayFileSystem(RealFileSystem()), Path("/kept/store")
    cut = root.with_name("store.cut-17")
    fs.make_dir(root)
    fs.make_dir(cut)
    for path, losses in [
        (root / SALVAGE_REPORT, [loss(5, 9), loss(0, 2, partition=1)]),
        (cut / CUT_REPORT, [loss(1, 3), loss(4, None)]),
    ]:
        write_report(fs, path, LossReport(store=str(root), losses=losses, lost_bytes=0))
    known = known_losses(fs, root)
    assert {address: len(losses) for address, losses in known.items()} == {
        TopicPartition("t", 0): 3,
        TopicPartition("t", 1): 1,
    }
    assert reported_ranges(known[TopicPartition("t", 0)]) == [range(1, 3), range(5, 9)]


@pytest.mark.parametrize(
    ("losses", "ranges"),
    [
        ([], []),
        ([loss(7, 9), loss(0, 3), loss(2, 5)], [range(5), range(7, 9)]),
        ([loss(0, 9), loss(2, 4), loss(9, 12)], [range(12)]),
        ([loss(3, None), loss(1, 2)], [range(1, 2)]),
    ],
)
def test_ranges_are_in_order_and_apart(losses: list[Loss], ranges: list[range]) -> None:
    assert reported_ranges(losses) == ranges


def test_a_range_is_reported_where_one_holds_all_of_it() -> None:
    rng = random.Random(3)
    ranges = reported_ranges([loss(at, at + rng.randrange(1, 9)) for at in range(0, 200, 10)])
    for first in range(210):
        for stop in range(first + 1, first + 12):
            holds = any(r.start <= first and stop <= r.stop for r in ranges)
            assert is_reported(ranges, first, stop) is holds
