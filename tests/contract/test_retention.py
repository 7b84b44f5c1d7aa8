"""Retention: nothing goes unless it is set, it is changed while the store is open, and readers in the middle of it."""

from __future__ import annotations

import threading
from collections.abc import Mapping

import pytest

from storage.contract import LogStore, SupportsRetentionSettings
from storage.errors import InvalidConfig, StoreReadOnly
from storage.model import Record, TopicPartition
from tests.contract.harness import StoreFactory, read_all
from tests.contract.test_log_life import Reader

DAYS_MS = 1000 * 86_400_000
# by backend: small files, the setting that deletes all that is old, and other values of the settings
SMALL: Mapping[str, Mapping[str, str]] = {
    "kafka": {"internal.segment.bytes": "500"},
    "rocketmq": {"mappedFileSizeCommitLog": "2048"},
}
OLD = {"kafka": ("log.retention.ms", "3600000"), "rocketmq": ("fileReservedTime", "1")}
BAD = {
    "kafka": [("log.retention.ms", "soon"), ("retention", "1"), ("num.partitions", "2")],
    "rocketmq": [("fileReservedTime", "0"), ("deleteWhen", "04"), ("storeHost", "127.0.0.1:1")],
}
PARTITION = TopicPartition("t", 0)


def opened(factory: StoreFactory) -> LogStore:
    """Open a store of small files, if the backend has settings of retention."""
    backend = factory.flavour.backend
    store = factory.open(settings=SMALL.get(backend, {}))
    assert isinstance(store, SupportsRetentionSettings) == (backend in OLD)
    if not isinstance(store, SupportsRetentionSettings):
        pytest.skip(f"{backend} deletes nothing")
    store.create_topic("t", 1)
    return store


def fill(factory: StoreFactory, store: LogStore, first: int, count: int) -> None:
    for n in range(first, first + count):
        store.append(PARTITION, [Record(None, b"%d" % n, (), factory.clock.now_ms)])
    store.flush()


def test_a_change_holds_at_once_and_can_be_taken_back(disk_factory: StoreFactory) -> None:
    """The next pass deletes by it; the next start has the settings that it is given."""
    factory, store = disk_factory, opened(disk_factory)
    assert isinstance(store, SupportsRetentionSettings)
    name, value = OLD[factory.flavour.backend]
    fill(factory, store, 0, 60)
    later_ms = factory.clock.now_ms + 4 * DAYS_MS
    assert set(store.retention_settings().values()) == {None}
    assert store.enforce_retention(later_ms).segments_deleted == 0
    store.change_retention({name: value})
    assert store.retention_settings()[name] == value
    report = store.enforce_retention(later_ms)
    assert report.segments_deleted > 0
    stats = store.stats()
    assert (stats.deleted_segments, stats.deleted_bytes) == (
        report.segments_deleted,
        report.bytes_deleted,
    )
    start = store.bounds(PARTITION).start
    assert start > 0
    assert [r.offset for r in read_all(store, PARTITION)] == list(range(start, 60))
    store.change_retention({name: None})
    assert set(store.retention_settings().values()) == {None}
    fill(factory, store, 60, 60)
    assert store.enforce_retention(later_ms).segments_deleted == 0
    store.change_retention({name: value})
    store.close()
    again = factory.open(settings=SMALL[factory.flavour.backend])
    assert isinstance(again, SupportsRetentionSettings)
    assert set(again.retention_settings().values()) == {None}


def test_other_settings_are_refused(store_factory: StoreFactory) -> None:
    """A bad value, a setting that is fixed, and an unknown one change nothing, whatever is changed with them."""
    store = opened(store_factory)
    assert isinstance(store, SupportsRetentionSettings)
    backend = store_factory.flavour.backend
    name, value = OLD[backend]
    for bad, bad_value in BAD[backend]:
        more = {} if bad in {"deleteWhen", name} else {name: value}
        with pytest.raises(InvalidConfig) as refused:
            store.change_retention({**more, bad: bad_value})
        assert refused.value.facts()["name"] == bad
    assert set(store.retention_settings().values()) == {None}


def test_a_read_only_store_changes_nothing(durable_factory: StoreFactory) -> None:
    store = durable_factory.reopen(opened(durable_factory), read_only=True)
    assert isinstance(store, SupportsRetentionSettings)
    with pytest.raises(StoreReadOnly):
        store.change_retention({})


@pytest.mark.usefixtures("quick_turns")
def test_readers_in_the_middle_of_a_deletion(disk_factory: StoreFactory) -> None:
    """A reader whose segment or file is deleted meanwhile gets both bounds, and never another record."""
    factory, store = disk_factory, opened(disk_factory)
    assert isinstance(store, SupportsRetentionSettings)
    name, value = OLD[factory.flavour.backend]
    store.change_retention({name: value})
    done = threading.Event()
    readers = [Reader(store, PARTITION, done) for _ in range(3)]
    for reader in readers:
        reader.start()
    deleted = 0
    for first in range(0, 400, 40):
        fill(factory, store, first, 40)
        later_ms = factory.clock.now_ms + 4 * DAYS_MS
        deleted += store.enforce_retention(later_ms).segments_deleted
    done.set()
    for reader in readers:
        reader.join()
    assert [reader.wrong for reader in readers] == [[], [], []]
    assert deleted > 10
