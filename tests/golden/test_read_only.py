"""A store opened read-only stays unchanged: no byte, time or name changes, whatever damage it has."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import pytest

from storage import Isolation, LogStore, StoreOptions, TopicPartition, detect, open_store
from storage.errors import Corrupt, StoreReadOnly
from storage.model import Record
from tests.golden import stores
from tests.golden.trees import picture

HEALTHY = [f"{name}/data" for name in stores.healthy_stores()]
DAMAGED = [f"{stores.DAMAGED}/{name}/data" for name in stores.damaged_variants()]


def use_all_of_it(store: LogStore) -> int:
    """Read every record and batch, look up times, search; return the number of records."""
    store.stats()
    addresses = [TopicPartition(t.name, n) for t in store.topics().values() for n in t.partitions]
    for topic in store.topics():
        with suppress(Corrupt):
            store.find(topic, key=b"no such key")
    return sum(_use_partition(store, address) for address in addresses)


def _use_partition(store: LogStore, address: TopicPartition) -> int:
    store.offset_for_time(address, 0)
    count = 0
    at: object = store.bounds(address).start
    while isinstance(at, int) and at < store.bounds(address).end:
        try:
            page = store.read(address, at)
            store.read(address, at, isolation=Isolation.READ_COMMITTED, max_records=1)
        except Corrupt as error:
            at = error.facts()["next_good_offset"]
            continue
        count += len(page.records)
        at = page.next_offset
    return count


@pytest.mark.parametrize("where", HEALTHY + DAMAGED)
def test_nothing_changes(where: str) -> None:
    root = stores.KAFKA / where
    before = picture(root.parent)
    assert detect(root) == ("kafka", False)
    store = open_store("kafka", root, read_only=True)
    assert store.read_only
    assert use_all_of_it(store) > 0
    address = TopicPartition(next(iter(store.topics())), 0)
    with pytest.raises(StoreReadOnly):
        store.append(address, [Record(None, b"")])
    store.close()
    assert picture(root.parent) == before


def test_a_store_of_ours_in_use_stays_as_it_is(tmp_path: Path) -> None:
    address = TopicPartition("t", 0)
    with open_store("kafka", tmp_path / "store") as owner:
        owner.create_topic("t", 1)
        owner.append(address, [Record(None, b"one")])
        before = picture(tmp_path)
        with open_store("kafka", tmp_path / "store", read_only=True) as reader:
            assert [r.value for r in reader.scan(address)] == [b"one"]
            owner_appends = owner.append(address, [Record(None, b"two")])
            assert [r.value for r in reader.scan(address)] == [b"one"], "a view as of opening"
        after = picture(tmp_path)
        assert owner_appends.base_offset == 1
        changed = {name for name in after if after[name] != before.get(name)}
        assert changed == {"store/t-0/00000000000000000000.log"}


def test_settings_do_not_make_it_write(tmp_path: Path) -> None:
    root = stores.copy_store(stores.KAFKA / "compacted" / "data", tmp_path / "store")
    before = picture(tmp_path)
    options = StoreOptions(settings={"retention.ms": "1", "retention.bytes": "1"})
    with open_store("kafka", root, options, read_only=True) as store:
        use_all_of_it(store)
        with pytest.raises(StoreReadOnly):
            store.enforce_retention(stores.MADE_AT_MS * 2)
    assert picture(tmp_path) == before
