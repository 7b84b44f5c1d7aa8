"""Aborted transactions: hidden whatever happens to their index, and whatever is cut from the log."""

from __future__ import annotations

import pytest

from storage import Isolation
from storage.files import OverlayFileSystem, RealFileSystem
from tests.golden import stores
from tests.golden.stores import GoldenPartition
from tests.unit.kafka.log.batches import data_batch, marker
from tests.unit.kafka.workshop import ROOT, T0, Workshop, values

MIXED = GoldenPartition("txn", "txn-mixed-0")
INDEXES = sorted(path.name for path in MIXED.data.glob("*.txnindex"))


@pytest.mark.parametrize("name", INDEXES)
@pytest.mark.parametrize("content", [b"x" * 34, b"x", b"\0" * 34, b"\0" * 500])
def test_a_damaged_transaction_index_is_reported_and_rebuilt(name: str, content: bytes) -> None:
    path = MIXED.data / name
    for read_only in (True, False):
        fs = OverlayFileSystem(RealFileSystem())
        stores.put(fs, path, content)
        with stores.open_golden(
            MIXED.root, MIXED.settings, fs=fs, read_only=read_only, clock=lambda: 0
        ) as store:
            assert store.recovery.clean_shutdown
            assert [(f.code, f.path) for f in store.recovery.findings] == [("bad-index", str(path))]
            scan = store.scan(MIXED.address, isolation=Isolation.READ_COMMITTED)
            found = [stores.as_row(MIXED.address, record) for record in scan]
            assert found == MIXED.lines(stores.COMMITTED)
        if not read_only:
            assert fs.read_bytes(path) == path.read_bytes()


def committed(shop: Workshop) -> list[bytes | None]:
    with shop.open() as store:
        return [record.value for record in store.scan(T0, isolation=Isolation.READ_COMMITTED)]


@pytest.mark.parametrize("clean", [True, False])
def test_an_abort_that_is_cut_is_cut_from_the_index_too(shop: Workshop, clean: bool) -> None:
    part = data_batch(0, value=b"part", producer=(9, 0, 0), transactional=True)
    first = shop.open_with_topic()
    first.append_batches(T0, part)
    first.append_batches(T0, marker(0, 9, commit=False))
    size = shop.fs.size(shop.path(0))
    first.close()
    assert len(shop.bytes_of(0, ".txnindex")) == 34
    shop.truncate(size - 3)
    if not clean:
        shop.fs.remove(ROOT / ".kafka_cleanshutdown")
    store = shop.open()
    assert store.recovery.clean_shutdown is clean
    assert store.bounds(T0) == (0, 0, 2), "open again, and above the offset that a checkpoint names"
    assert ".txnindex" not in "".join(shop.names())
    store.append_batches(T0, marker(0, 9, commit=True))
    assert store.bounds(T0) == (0, 3, 3)
    store.close()
    assert committed(shop) == [b"part"]


def test_transactions_go_on_over_restarts(shop: Workshop) -> None:
    store = shop.open_with_topic({"internal.segment.bytes": "150"})
    for turn in range(6):
        value = b"%d" % turn
        part = data_batch(0, value=value, producer=(9, 0, turn), transactional=True)
        store.append_batches(T0, part)
        if turn % 2:
            store.close()
        else:
            store.flush()
            shop = shop.after_kill()
        store = shop.open({"internal.segment.bytes": "150"})
        assert store.bounds(T0).stable == 2 * turn
        end = marker(0, 9, commit=turn % 3 != 0)
        store.append_batches(T0, end)
        assert store.bounds(T0).stable == 2 * turn + 2
    store.close()
    assert committed(shop) == [b"1", b"2", b"4", b"5"]
    with shop.open() as again:
        assert values(again) == [b"%d" % turn for turn in range(6)]


def test_the_last_stable_offset_is_never_below_the_start(shop: Workshop) -> None:
    """A transaction open since before the log start does not keep the last stable offset below it, as in UnifiedLog."""
    store = shop.open_with_topic()
    part = data_batch(0, value=b"part", producer=(9, 0, 0), transactional=True)
    store.append_batches(T0, part)
    store.append_batches(T0, data_batch(0, value=b"plain"))
    assert store.bounds(T0) == (0, 0, 2)
    store.close()
    shop.put(ROOT / "log-start-offset-checkpoint", b"0\n1\nt 0 1\n")
    with shop.open() as again:
        assert again.bounds(T0) == (1, 1, 2)
        assert not again.read(T0, 1, isolation=Isolation.READ_COMMITTED).records
        assert [record.value for record in again.read(T0, 1).records] == [b"plain"]
