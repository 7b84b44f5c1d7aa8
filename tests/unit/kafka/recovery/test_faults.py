"""A disk that fills up at one step: the operation is undone, or the store is fenced."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from storage import Isolation, TopicPartition
from storage.errors import DiskFull, StoreFenced
from storage.files import OverlayFileSystem
from tests.robustness.crash.faulty import (
    FaultyFileSystem,
    disk_full,
    fails,
    no_fault,
)
from tests.unit.kafka.log.batches import data_batch, marker
from tests.unit.kafka.workshop import ROOT, T0, Workshop, put_value, values


@pytest.fixture
def faulty() -> FaultyFileSystem:
    """A disk with injected faults, used by `shop`."""
    return FaultyFileSystem(OverlayFileSystem())


@pytest.fixture
def shop(faulty: FaultyFileSystem) -> Workshop:
    """A workshop for one store on the disk with faults."""
    return Workshop(faulty)


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
def test_an_append_needs_no_space_for_its_index_entry(
    shop: Workshop, faulty: FaultyFileSystem, suffix: str
) -> None:
    settings = {"index.interval.bytes": "0"}
    store = shop.open_with_topic(settings)
    for n in range(3):
        shop.clock.now_ms += 1
        put_value(store, b"%d" % n)
    faulty.fault = fails(errno.ENOSPC, "write", name=suffix)
    for n in range(3, 5):
        shop.clock.now_ms += 1
        put_value(store, b"%d" % n)
    during_appends = faulty.failed
    store.flush()
    store.checkpoint()
    assert (during_appends, faulty.failed) == (None, ("write", shop.path(0, suffix)))
    faulty.fault = no_fault
    shop.clock.now_ms += 1
    put_value(store, b"5")
    store.close()
    indexes = [shop.bytes_of(0, ".index"), shop.bytes_of(0, ".timeindex")]
    found = shop.after_kill()
    found.fs.remove(ROOT / ".kafka_cleanshutdown")
    with found.open(settings) as again:
        assert values(again) == [b"%d" % n for n in range(6)]
    assert [found.bytes_of(0, ".index"), found.bytes_of(0, ".timeindex")] == indexes


@pytest.mark.parametrize("name", [".log", ".index", ".timeindex", ".snapshot"])
def test_a_roll_without_space_leaves_no_segment(
    shop: Workshop, faulty: FaultyFileSystem, name: str
) -> None:
    settings = {"internal.segment.bytes": "300"}
    store = shop.open_with_topic(settings)
    for n in range(3):
        put_value(store, b"value %d" % n)
    faulty.fault = fails(errno.ENOSPC, "create", name=name)
    with pytest.raises(DiskFull):
        put_value(store, b"too long for what is left of the segment" * 3)
    assert shop.bases() == [0]
    put_value(store, b"fits")
    faulty.fault = no_fault
    put_value(store, b"too long for what is left of the segment" * 3)
    assert shop.bases() == [0, 4]
    for found in (shop.after_kill(), shop):
        store.close() if found is shop else None
        with found.open(settings) as again:
            assert again.recovery.findings == []
            assert len(values(again)) == 5


def test_an_abort_without_space_in_the_index_fences(
    shop: Workshop, faulty: FaultyFileSystem
) -> None:
    store = shop.open_with_topic()
    data = data_batch(producer=(9, 0, 0), transactional=True)
    store.append_batches(T0, data)
    faulty.fault = fails(errno.ENOSPC, "create", name=".txnindex")
    with pytest.raises(StoreFenced):
        store.append_batches(T0, marker(0, 9, commit=False))
    faulty.fault = no_fault
    store.close()
    with shop.open() as again:
        assert again.bounds(T0) == (0, 2, 2)
        assert list(again.scan(T0, isolation=Isolation.READ_COMMITTED)) == []


def test_a_topic_that_finds_no_space_is_not_there(shop: Workshop, faulty: FaultyFileSystem) -> None:
    store = shop.open()
    before = list(shop.fs.list_dir(ROOT))
    faulty.fault = lambda operation, path: (
        disk_full(operation, path) if operation == "rename" and path.name == "t-1" else None
    )
    with pytest.raises(DiskFull):
        store.create_topic("t", 3)
    assert list(shop.fs.list_dir(ROOT)) == before
    assert store.topics() == {}
    faulty.fault = no_fault
    store.create_topic("t", 3, {"segment.ms": "5"})
    store.close()
    with shop.open() as again:
        assert [(t.name, len(t.partitions), t.configs) for t in again.topics().values()] == [
            ("t", 3, {"segment.ms": "5"})
        ]


def test_all_of_a_topic_is_made_inside_the_store(shop: Workshop, faulty: FaultyFileSystem) -> None:
    store = shop.open()
    touched: list[Path] = []
    faulty.fault = lambda operation, path: touched.append(path)
    store.create_topic("t", 2)
    store.delete_topic("t")
    assert {path for path in touched if ROOT not in path.parents} <= {ROOT}, (
        "next to it another file system may be mounted, and no file can be renamed across"
    )


@pytest.mark.parametrize("last", [1, 2, 3])
def test_a_topic_that_could_not_be_deleted_goes_on(
    shop: Workshop, faulty: FaultyFileSystem, last: int
) -> None:
    """If any folder finds no space for its new name, the topic stays complete and accepts records."""
    store = shop.open()
    store.create_topic("t", 3)
    addresses = [TopicPartition("t", number) for number in range(3)]
    for address in addresses:
        put_value(store, b"kept", address)
    store.flush()
    renames = 0

    def full(operation: str, path: Path) -> None:
        nonlocal renames
        if operation == "rename" and path.name.endswith("-delete"):
            renames += 1
            if renames == last:
                disk_full(operation, path)

    faulty.fault = full
    with pytest.raises(DiskFull):
        store.delete_topic("t")
    faulty.fault = no_fault
    assert list(store.topics()) == ["t"]
    for address in addresses:
        put_value(store, b"more", address)
        store.flush([address])
        assert values(store, address) == [b"kept", b"more"]
    store.delete_topic("t")
    assert list(store.topics()) == []


@pytest.mark.parametrize("renames", [1, 2, 3])
def test_a_topic_that_cannot_be_made_leaves_no_part_of_it(
    shop: Workshop, faulty: FaultyFileSystem, renames: int
) -> None:
    """A failed creation leaves no partial topic, not even after a kill at any step of the cleanup."""
    store = shop.open()
    seen = looked = 0

    def look() -> None:
        nonlocal looked
        faulty.fault = no_fault
        with shop.after_kill().open() as found:
            topics = found.topics()
            assert not topics or len(topics["p"].partitions) == 3
            assert [f for f in found.recovery.findings if f.severity == "error"] == []
        looked += 1
        faulty.fault = full

    def full(operation: str, path: Path) -> None:
        nonlocal seen
        if operation == "rename" and path.name.startswith("p-") and "." not in path.name:
            seen += 1
            if seen == renames:
                disk_full(operation, path)
        if seen >= renames:
            look()

    faulty.fault = full
    with pytest.raises(DiskFull):
        store.create_topic("p", 3)
    look()
    assert looked > renames
    faulty.fault = no_fault
    assert list(store.create_topic("p", 3).partitions) == [0, 1, 2]
