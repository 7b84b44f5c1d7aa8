"""The entries of a queue that is followed: entries that no file holds yet are kept in memory."""

from __future__ import annotations

from pathlib import Path

from storage.files import HandleCache, OverlayFileSystem
from storage.rocketmq.columns.tail import TailedQueue
from tests.unit.rocketmq.workshop import UNIT


def test_units_are_added_in_place() -> None:
    """The cost of an append depends only on the new entries: known entries are not copied."""
    queue = TailedQueue(HandleCache(OverlayFileSystem()), Path("/q"), 100 * UNIT)
    tail = queue.tail
    for step in range(1, 4):
        queue.append(bytes([step]) * UNIT, queue.end, step)
        queue.forget_stored()
        assert queue.tail is tail
    assert queue.raw(1, 9) == bytes([2]) * UNIT + bytes([3]) * UNIT
