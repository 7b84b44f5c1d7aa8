"""Transactions without an end: producer, epoch, first offset and age, and when they count as hanging."""

from __future__ import annotations

import pytest

from storage import StoreOptions
from storage.kafka.tools import open_inspector
from storage.model import Finding
from tests.unit.kafka.log.batches import data_batch, marker
from tests.unit.kafka.workshop import ROOT, T0, Workshop

MINUTE_MS = 60_000
BEGUN_MS = 1_700_000_000_000


def transaction(offset: int, producer: int, *, epoch: int = 0, time_ms: int = BEGUN_MS) -> bytes:
    return data_batch(offset, producer=(producer, epoch, 0), transactional=True, times_ms=[time_ms])


def verified(shop: Workshop, *batches: bytes, now_ms: int, clean: bool = True) -> list[Finding]:
    """Return the hanging transactions that `verify` reports for these batches; check `inspect` against them."""
    shop.clock.now_ms = now_ms
    store = shop.open_with_topic()
    for batch in batches:
        store.append_batches(T0, batch, keep_offsets=True)
    if clean:
        store.close()
    else:
        store.flush()
    inspector = open_inspector(ROOT, StoreOptions(), fs=shop.fs, clock=shop.clock)
    assert inspector is not None
    found = [f for f in inspector.verify() if f.code == "hanging-transaction"]
    summary = inspector.summary()
    stated = [f for f in summary["findings"] if f["code"] == "hanging-transaction"]  # type: ignore[attr-defined]
    assert [f["message"] for f in stated] == [f.message for f in found]
    inspector.close()
    return found


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize(
    ("age_ms", "severity"),
    [
        (0, "info"),
        (20 * MINUTE_MS, "info"),
        (20 * MINUTE_MS + 1, "warning"),
        (3 * 24 * 60 * MINUTE_MS, "warning"),
        (-MINUTE_MS, "info"),
    ],
)
def test_the_age_decides(shop: Workshop, age_ms: int, severity: str, clean: bool) -> None:
    """A transaction hangs when it is older than the longest timeout and a grace; times in the future count as young."""
    batches = (data_batch(0), transaction(1, 7, epoch=3), data_batch(2, count=3))
    (found,) = verified(shop, *batches, now_ms=BEGUN_MS + age_ms, clean=clean)
    assert (found.severity, found.topic, found.partition, found.offset) == (severity, "t", 0, 1)
    assert found.found == "producer 7, epoch 3"
    assert "producer 7, epoch 3: a transaction is open from offset 1 on" in found.message
    if age_ms == 3 * 24 * 60 * MINUTE_MS:
        assert "3 days old" in found.message


def test_each_open_one_is_reported_from_its_first_record(shop: Workshop) -> None:
    found = verified(
        shop,
        transaction(0, 9, epoch=1),
        transaction(1, 5),
        data_batch(2, producer=(9, 1, 1), transactional=True, times_ms=[BEGUN_MS + MINUTE_MS]),
        now_ms=BEGUN_MS + 100 * MINUTE_MS,
    )
    assert [(f.offset, f.found) for f in found] == [
        (0, "producer 9, epoch 1"),
        (1, "producer 5, epoch 0"),
    ]
    assert "1 hour old" in found[0].message, "the age is that of the last record"


@pytest.mark.parametrize("commit", [True, False])
def test_an_ended_one_is_not(shop: Workshop, commit: bool) -> None:
    """An ended transaction is not reported; a later open transaction of the same producer is."""
    batches = (transaction(0, 7), marker(1, 7, commit=commit))
    assert verified(shop, *batches, now_ms=BEGUN_MS * 2) == []
    again = data_batch(2, producer=(7, 0, 1), transactional=True, times_ms=[BEGUN_MS])
    store = shop.open()
    store.append_batches(T0, again, keep_offsets=True)
    store.close()
    inspector = open_inspector(ROOT, StoreOptions(), fs=shop.fs, clock=shop.clock)
    assert inspector is not None
    assert [f.offset for f in inspector.verify() if f.code == "hanging-transaction"] == [2]
    inspector.close()
