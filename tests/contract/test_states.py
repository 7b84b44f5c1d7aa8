"""A store that is closed, reopened, opened read-only or killed: its behaviour, and the calls it rejects."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest

from storage.contract import LogStore
from storage.errors import InvalidConfig, StoreClosed, StoreReadOnly
from storage.model import OffsetBounds, ProducerSequence, Record, StoredRecord, TopicPartition
from tests.contract.harness import (
    StoreFactory,
    append_each,
    flavour_of,
    read_all,
    texts,
    values,
)

PARTITION = TopicPartition("events", 0)

WRITES: Mapping[str, Callable[[LogStore], object]] = {
    "create_topic": lambda store: store.create_topic("new", 1),
    "create_topic (same again)": lambda store: store.create_topic("events", 2),
    "create_topic (bad name)": lambda store: store.create_topic("..", 1),
    "alter_topic": lambda store: store.alter_topic("events", config_of(store)),
    "delete_topic": lambda store: store.delete_topic("events"),
    "append": lambda store: store.append(PARTITION, texts("a")),
    "append (held)": lambda store: store.append(PARTITION, texts("a"), publish=False),
    "append (sequenced)": lambda store: store.append(
        PARTITION, texts("a"), producer=ProducerSequence(1, 0, 0)
    ),
    "checkpoint": lambda store: store.checkpoint(),
    "enforce_retention": lambda store: store.enforce_retention(0),
    "new_producer_id": lambda store: store.new_producer_id(),
}

READS: Mapping[str, Callable[[LogStore], object]] = {
    "topics": lambda store: store.topics(),
    "read": lambda store: store.read(PARTITION, 0),
    "bounds": lambda store: store.bounds(PARTITION),
    "offset_for_time": lambda store: store.offset_for_time(PARTITION, 0),
    "find": lambda store: store.find("events", key="k"),
    "find_by_id": lambda store: store.find_by_id(flavour_of(store).first_id),
    "flush": lambda store: store.flush(),
    "flush (named)": lambda store: store.flush([PARTITION]),
    "stats": lambda store: store.stats(),
    "scan": lambda store: list(store.scan(PARTITION)),
}


def config_of(store: LogStore) -> dict[str, str]:
    """Return a topic config of the store's backend."""
    config = flavour_of(store).config
    return {config.name: config.value}


def fill(store: LogStore) -> list[StoredRecord]:
    """Create two partitions with records of several kinds, flush them, and return the records of events-0."""
    store.create_topic("events", 2, config_of(store))
    append_each(store, PARTITION, [Record(b"k", b"%d" % i, (), 1000 + i) for i in range(5)])
    store.append(PARTITION, [Record(None, b"", [("h", b"1")], tag="red", lookup_keys=["x"])] * 3)
    store.append(TopicPartition("events", 1), texts("other"))
    store.flush()
    return read_all(store, PARTITION)


@pytest.mark.parametrize("call", [*WRITES.values(), *READS.values()], ids=[*WRITES, *READS])
def test_closed_store(store: LogStore, call: Callable[[LogStore], object]) -> None:
    """Every call to a closed store is StoreClosed, but a second close does nothing."""
    fill(store)
    store.close()
    with pytest.raises(StoreClosed) as refused:
        call(store)
    assert refused.value.code == "store-closed"
    store.close()


def test_closed_by_with(store_factory: StoreFactory) -> None:
    """A store is its own context manager: the end of the block closes it."""
    with store_factory.open() as store:
        fill(store)
    with pytest.raises(StoreClosed):
        store.topics()


@pytest.mark.parametrize("call", WRITES.values(), ids=WRITES.keys())
def test_read_only_store(store_factory: StoreFactory, call: Callable[[LogStore], object]) -> None:
    """Every call that would write is StoreReadOnly, even if it has another fault."""
    with store_factory.open() as store:
        fill(store)
    store = store_factory.open(read_only=True)
    assert store.read_only
    before = dict(store.topics())
    with pytest.raises(StoreReadOnly) as refused:
        call(store)
    assert refused.value.code == "store-read-only"
    assert "path" in refused.value.facts()
    assert dict(store.topics()) == before


def test_read_only_serves(durable_factory: StoreFactory) -> None:
    """A store opened read-only can be read completely, and the other read calls change nothing."""
    with durable_factory.open() as store:
        records = fill(store)
    store = durable_factory.open(read_only=True)
    assert read_all(store, PARTITION) == records
    for call in READS.values():
        call(store)
    assert read_all(store, PARTITION) == records


def test_read_only_changes_no_byte(durable_factory: StoreFactory) -> None:
    """Opening, reading and closing a store read-only keeps every file's bytes and modification time."""
    with durable_factory.open() as store:
        fill(store)
    files = sorted(path for path in durable_factory.path.rglob("*") if path.is_file())
    before = [(path, path.read_bytes(), path.stat().st_mtime_ns) for path in files]
    with durable_factory.open(read_only=True) as store:
        for call in READS.values():
            call(store)
    files = sorted(path for path in durable_factory.path.rglob("*") if path.is_file())
    assert [(path, path.read_bytes(), path.stat().st_mtime_ns) for path in files] == before


@pytest.mark.parametrize("value", ["many", "", "0", "1.5"])
def test_bad_setting(store_factory: StoreFactory, value: str) -> None:
    """A setting is checked when the store is opened; a store that fails to open creates nothing."""
    name = store_factory.flavour.partitions_setting
    with pytest.raises(InvalidConfig) as refused:
        store_factory.open(settings={name: value})
    assert refused.value.facts()["name"] == name
    assert not store_factory.fs.exists(store_factory.path)
    store_factory.open()


def test_new_store_is_clean(store: LogStore) -> None:
    """A new store has nothing to recover, and is not fenced."""
    assert not store.read_only
    assert list(store.recovery.losses) == []
    assert dict(store.topics()) == {}
    assert store.stats().fenced is None


@pytest.mark.parametrize("stop", ["close", "kill"])
def test_reopen(durable_factory: StoreFactory, stop: str) -> None:
    """After a clean or unclean stop flushed data is unchanged, and offsets continue."""
    store = durable_factory.open()
    records = fill(store)
    topics = dict(store.topics())
    store = durable_factory.reopen(store) if stop == "close" else durable_factory.after_kill()
    assert store.recovery.clean_shutdown == (stop == "close")
    assert list(store.recovery.losses) == []
    assert dict(store.topics()) == topics
    assert read_all(store, PARTITION) == records
    assert store.bounds(PARTITION) == OffsetBounds(0, 8, 8)
    assert len(store.find("events", key="x").records) == 3
    record_id = store.record_id(PARTITION, records[4].locator)
    assert store.find_by_id(record_id) == (PARTITION, records[4])
    assert store.append(PARTITION, texts("next")).base_offset == 8
    assert values(read_all(store, PARTITION))[-1] == b"next"


def test_reopen_again_and_again(durable_factory: StoreFactory) -> None:
    """Each start continues the offsets of the previous run, whether records were written or not."""
    expected = list[bytes]()
    for turn in range(6):
        with durable_factory.open() as store:
            assert store.recovery.clean_shutdown or turn == 0
            store.create_topic("events", 1)
            assert values(read_all(store, PARTITION)) == expected
            if turn % 3 != 1:
                expected.append(b"%d" % turn)
                assert store.append(PARTITION, texts(str(turn))).base_offset == len(expected) - 1


def test_close_flushes(durable_factory: StoreFactory) -> None:
    """A clean stop keeps and publishes held records."""
    store = durable_factory.open()
    store.create_topic("events", 1)
    store.append(PARTITION, texts("held"), publish=False)
    store = durable_factory.reopen(store)
    assert values(read_all(store, PARTITION)) == [b"held"]


@pytest.mark.parametrize("call", ["checkpoint", "enforce_retention"])
def test_upkeep_changes_nothing_unasked(store: LogStore, call: str) -> None:
    """A checkpoint changes nothing that a reader sees; retention deletes nothing without a setting."""
    store.create_topic("events", 2)
    append_each(store, PARTITION, [Record(b"k", b"v", (), i) for i in range(20)])
    before = read_all(store, PARTITION)
    if call == "checkpoint":
        store.checkpoint()
    else:
        report = store.enforce_retention(1 << 50)
        assert (report.segments_deleted, report.bytes_deleted) == (0, 0)
    assert read_all(store, PARTITION) == before
