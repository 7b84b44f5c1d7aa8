"""A sparse log, as `preallocate=true` leaves it after a crash: its holes are not read, whatever follows them."""

from __future__ import annotations

import pytest

from storage import StoreOptions
from storage.files import OverlayFileSystem
from storage.kafka.tools import open_inspector
from tests.robustness.crash.counted import CountedReads
from tests.unit.kafka.log.batches import data_batch
from tests.unit.kafka.workshop import ROOT, Workshop, read_around, values

SIZE = 2**31 - 1
FEW_BYTES = 64 << 20  # limit of bytes read from a log of 2 GB with a few small batches


def sparse_log(shop: Workshop, batches: dict[int, bytes], *, stopped: bool = False) -> Workshop:
    """Write a log of 2 GB with these bytes at these positions and holes between them; return the killed store.

    `stopped`: after a clean stop, so zeros in the middle are not a write that a crash lost.
    """
    store = shop.open_with_topic({"log.preallocate": "true"})
    store.flush()
    if stopped:
        store.close()
    killed = shop.after_kill()
    killed.truncate(SIZE)
    for position, data in batches.items():
        killed.overwrite(position, data)
    return killed


def counted(shop: Workshop) -> tuple[CountedReads, Workshop]:
    """Return the same directory with all of its reads counted."""
    fs = CountedReads(shop.fs)
    other = Workshop(fs)
    other.clock.now_ms = shop.clock.now_ms
    return fs, other


HEAD = data_batch(0, count=3)

CASES = {
    "one hole up to the end": {0: HEAD},
    "garbage far after it": {0: HEAD, SIZE // 2: b"\x02garbage" * 100},
    "garbage at the very end": {0: HEAD, SIZE - 9: b"\xff" * 9},
    "nothing at all": {},
}


@pytest.mark.parametrize("name", CASES)
def test_a_hole_at_the_end_costs_nothing(shop: Workshop, name: str) -> None:
    killed = sparse_log(shop, CASES[name])
    fs, looked_at = counted(killed)
    inspector = open_inspector(ROOT, StoreOptions(), fs=fs, clock=killed.clock)
    assert inspector is not None
    codes = {found.code for found in inspector.verify()}
    assert codes & {"zero-tail", "torn-tail"}
    inspector.close()
    store = looked_at.open({"log.preallocate": "true"})
    assert len(values(store)) == (3 if CASES[name] else 0)
    store.close()
    assert fs.count_bytes < FEW_BYTES


def test_batches_behind_a_hole_are_found(shop: Workshop) -> None:
    far = SIZE - (1 << 20) - 5  # not a multiple of the page size
    behind = data_batch(4, count=2) + data_batch(6)
    fs, looked_at = counted(sparse_log(shop, {0: HEAD, far: behind}, stopped=True))
    store = looked_at.open(read_only=True)
    records, (error,) = read_around(store)
    assert [record.offset for record in records] == [0, 1, 2, 4, 5, 6]
    assert (error.facts()["position"], error.facts()["next_good_offset"]) == (len(HEAD), 4)
    store.close()
    assert fs.count_bytes < FEW_BYTES


def test_a_batch_that_begins_in_the_end_of_a_hole(shop: Workshop) -> None:
    """The base offset of a batch begins with zeros, which may be stored as a hole."""
    page = 1 << 30
    for before in (1, 3, 7):
        shop = sparse_log(Workshop(OverlayFileSystem()), {0: HEAD}, stopped=True)
        shop.overwrite(page, data_batch(3, count=2)[before:])  # the first bytes are in a hole
        records, errors = read_around(shop.open(read_only=True))
        assert [record.offset for record in records] == [0, 1, 2, 3, 4]
        assert errors == []
