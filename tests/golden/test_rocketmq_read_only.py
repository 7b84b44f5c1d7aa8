"""A RocketMQ store opened read-only stays unchanged: no byte, time or name changes, whatever damage it has."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

import pytest

from storage import LogStore, Record, StoreOptions, TopicPartition, open_store
from storage.errors import Corrupt, DataError, StoreReadOnly
from storage.files import RealFileSystem
from tests.cli.runner import run, settings_options
from tests.golden import rocketmq_stores as stores
from tests.golden.rocketmq_stores import GoldenStore, Recipe, by_id
from tests.golden.trees import picture
from tests.robustness.process.server import Server

KINDS = ("records", "commitlog", "consumequeue", "indexfile", "checkpoints", "offsets")
SERVED = ("basic", "unclean", "unclean-late", "broker", "deleted-head")


def use_all_of_it(store: LogStore) -> int:
    """Read every record, look up times, ids and keys; return the number of records."""
    store.stats()
    for topic in store.topics():
        with suppress(Corrupt):
            store.find(topic, key="no such key")
            store.find(topic, tag="no such tag")
    return sum(_use_queue(store, address) for address in stores.addresses(store))


def _use_queue(store: LogStore, address: TopicPartition) -> int:
    store.offset_for_time(address, 0)
    count, at = 0, store.bounds(address).start
    while at < store.bounds(address).end:
        try:
            page = store.read(address, at)
        except Corrupt as error:
            following = error.facts()["next_good_offset"]
            if not isinstance(following, int):
                break
            at = following
            continue
        count += len(page.records)
        at = page.next_offset
    return count


def everything_about(path: Path, golden: GoldenStore) -> None:
    """Run every reading command."""
    options = settings_options(golden.settings)
    run("inspect", path, *options)
    for kind in KINDS:
        run("dump", path, "--what", kind, *options)
    run("find", path, "--key", "k1", *options)
    run("find", path, "--key", "k1", "--raw", *options)
    run("find", path, "--grep", "nothing has this", *options)
    run("find", path, "--from", "1700000000000", *options)
    run("offsets", path, "--time", "1700000000000", *options)
    run("verify", path, *options)
    for kind in ("consumequeue", "indexfile"):
        run("rebuild", path, "--what", kind, *options)


@pytest.mark.parametrize("golden", stores.all_stores(), ids=by_id)
def test_nothing_changes(golden: GoldenStore) -> None:
    before = picture(golden.folder)
    store = stores.open_golden(golden, read_only=True)
    assert store.read_only
    assert use_all_of_it(store) == len(golden.expected())
    with pytest.raises(StoreReadOnly):
        store.append(next(iter(golden.queues)), [Record(None, b"")])
    store.close()
    assert picture(golden.folder) == before


@pytest.mark.parametrize("golden", stores.all_stores(), ids=by_id)
def test_looking_changes_nothing(golden: GoldenStore) -> None:
    before = picture(golden.folder)
    everything_about(golden.root, golden)
    assert picture(golden.folder) == before


@pytest.mark.parametrize("name", SERVED)
def test_serving_read_only_changes_nothing(name: str) -> None:
    golden = stores.golden(name)
    before = picture(golden.folder)
    options = [f"--set={name}={value}" for name, value in golden.settings.items()]
    with Server(golden.root, "--read-only", *options) as server, server.client() as client:
        for (topic, number), (start, end) in golden.queues.items():
            path = f"/topics/{topic.replace('%', '%25')}/partitions/{number}/offsets"
            answer = client.call("GET", path)
            assert answer.body == {"beginning_offset": start, "end_offset": end}, path
        server.stop()
    assert picture(golden.folder) == before


@pytest.mark.slow
@pytest.mark.one_in(3)
@pytest.mark.parametrize("recipe", stores.recipes(), ids=by_id)
def test_a_damaged_store_stays_as_it_is(recipe: Recipe, tmp_path: Path) -> None:
    root = stores.copy_store(recipe.store, tmp_path / "store")
    recipe.apply(RealFileSystem(), root)
    for path in [root, *root.rglob("*")]:
        os.utime(path, ns=(10**18, 10**18))
    before = picture(tmp_path)
    with suppress(DataError), stores.open_golden(recipe.store, path=root, read_only=True) as store:
        use_all_of_it(store)
    everything_about(root, recipe.store)
    assert picture(tmp_path) == before


def test_settings_do_not_make_it_write() -> None:
    golden = stores.golden("many")
    before = picture(golden.folder)
    options = StoreOptions(settings={**golden.settings, "fileReservedTime": "1"})
    with open_store("rocketmq", golden.root, options, read_only=True) as store:
        use_all_of_it(store)
        with pytest.raises(StoreReadOnly):
            store.enforce_retention(stores.MADE_AT_MS * 2)
    assert picture(golden.folder) == before
