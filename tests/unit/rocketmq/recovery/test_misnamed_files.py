"""A queue file with the name of another position: its entries get other offsets than the records contain."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from storage import StoreOptions
from storage.files import OverlayFileSystem
from storage.model import TopicPartition
from storage.rocketmq.format.names import file_name
from storage.rocketmq.store import open_rocketmq
from tests.unit.rocketmq.recovery.foreign_log import Message, inspector, write_log, write_topics
from tests.unit.rocketmq.test_dump_gaps import places, queues_built_over_damage
from tests.unit.rocketmq.workshop import ROOT, SMALL, T0, Workshop, put_file, put_value, values

QUEUE = ROOT / "consumequeue" / "t" / "0"
FILE = 100  # bytes of a queue file: five entries
NEW = Path("/w/new")
Change = Callable[[Workshop], None]


def value(offset: int) -> bytes:
    return b"value-%d" % offset


def fill(shop: Workshop, first: int, count: int) -> None:
    """Write a store with one queue, which has `count` offsets from `first` on."""
    write_log(shop, [Message("t", first + n, value(first + n)) for n in range(count)])
    write_topics(
        shop, {"t": {"topicName": "t", "readQueueNums": 1, "writeQueueNums": 1, "perm": 6}}
    )
    with closing(shop.open()) as store:
        assert values(store) == [value(first + n) for n in range(count)]


def path(base: int) -> Path:
    return QUEUE / file_name(base)


def rename(one: int, other: int) -> Change:
    def change(shop: Workshop) -> None:
        if shop.fs.exists(path(other)):
            shop.fs.remove(path(other))
        shop.fs.rename(path(one), path(other))

    return change


def swap(one: int, other: int) -> Change:
    def change(shop: Workshop) -> None:
        shop.fs.rename(path(one), QUEUE / "x")
        shop.fs.rename(path(other), path(one))
        shop.fs.rename(QUEUE / "x", path(other))

    return change


def copy(one: int, other: int) -> Change:
    return lambda shop: put_file(shop.fs, path(other), shop.fs.read_bytes(path(one)))


CHANGES = {
    "the only file gets the name of the beginning": (30, 4, rename(600, 0)),
    "the only file, full": (30, 5, rename(600, 0)),
    "the only file, one entry": (30, 1, rename(600, 0)),
    "the only file, a lower name": (30, 4, rename(600, 500)),
    "the only file, a higher name": (0, 4, rename(0, 500)),
    "an only file that begins in the middle": (32, 2, rename(600, 0)),
    "the second file before the first": (5, 10, rename(200, 0)),
    "the second, not full, before the first": (5, 8, rename(200, 0)),
    "the last over the one before it": (0, 15, rename(200, 100)),
    "the first over the second": (0, 10, copy(0, 100)),
    "the second over the first": (0, 10, copy(100, 0)),
    "two swapped": (0, 12, swap(0, 100)),
    "two last swapped": (0, 15, swap(100, 200)),
    "a copy at the end": (0, 10, copy(0, 200)),
}
every_change = pytest.mark.parametrize(("first", "count", "change"), CHANGES.values(), ids=CHANGES)


@every_change
@pytest.mark.parametrize("clean", [True, False])
def test_no_record_is_served_at_another_offset(
    first: int, count: int, change: Change, clean: bool, shop: Workshop
) -> None:
    fill(shop, first, count)
    change(shop)
    if not clean:
        put_file(shop.fs, ROOT / "abort", b"")
    wanted = [(n, value(n)) for n in range(first, first + count)]
    with closing(shop.open(read_only=True)) as store:
        assert [(r.offset, r.value) for r in store.scan(T0)] == wanted
    with closing(shop.open()) as store:
        assert [(r.offset, r.value) for r in store.scan(T0)] == wanted
        assert store.bounds(T0) == (first, first + count, first + count)
        assert put_value(store, b"more").base_offset == first + count
    with closing(shop.open()) as store:
        assert [f.code for f in store.recovery.findings] == []


@every_change
def test_the_file_is_named(first: int, count: int, change: Change, shop: Workshop) -> None:
    fill(shop, first, count)
    change(shop)
    with inspector(shop) as tools:
        reported = [f for f in tools.verify() if f.code == "wrong-file-name"]
    assert reported
    for found in reported:
        assert found.path.startswith(str(QUEUE))
        assert (found.topic, found.partition, found.severity) == ("t", 0, "warning")
        assert found.expected != found.found
    with closing(shop.open(read_only=True)) as store:
        codes = [f.code for f in store.recovery.findings]
        assert "wrong-file-name" in codes
        assert "broken-queue" in codes


@every_change
def test_a_salvage_keeps_the_offsets(
    first: int, count: int, change: Change, shop: Workshop
) -> None:
    fill(shop, first, count)
    change(shop)
    with inspector(shop) as tools:
        report = tools.salvage(NEW)
    assert report.losses == []
    assert report.kept_records == count
    options = StoreOptions(settings=SMALL)
    with closing(open_rocketmq(NEW, options, fs=shop.fs, clock=shop.clock, read_only=False)) as new:
        found = [(r.offset, r.value) for r in new.scan(T0)]
        assert found == [(n, value(n)) for n in range(first, first + count)]


@every_change
def test_a_rebuild_mends_it(first: int, count: int, change: Change, shop: Workshop) -> None:
    fill(shop, first, count)
    change(shop)
    with inspector(shop) as tools:
        tools.rebuild("consumequeue", write=True)
    with closing(shop.open(read_only=True)) as store:
        assert [f.code for f in store.recovery.findings] == []
        assert [r.offset for r in store.scan(T0)] == list(range(first, first + count))


def codes_of(shop: Workshop) -> list[str]:
    with inspector(shop) as tools:
        verified = [f.code for f in tools.verify()]
    with closing(shop.open(read_only=True)) as store:
        return verified + [f.code for f in store.recovery.findings]


@pytest.mark.parametrize("lost", [1, 2, 3, 4, 6])
@pytest.mark.parametrize("after", [3, 7, 9])
def test_a_queue_built_over_lost_records_is_left_as_it_is(lost: int, after: int) -> None:
    """The entries follow each other, and from one entry on they differ from the offsets in the records."""
    shop = Workshop(OverlayFileSystem())
    offsets = [*range(after), *range(after + lost, 25)]
    write_log(shop, [Message("t", n, value(n)) for n in offsets])
    with closing(shop.open()) as store:
        assert len(values(store)) == len(offsets)
    assert "wrong-file-name" not in codes_of(shop)
    assert "broken-queue" not in codes_of(shop)


def test_a_whole_store_has_none(shop: Workshop) -> None:
    with closing(shop.open_with_topic(partitions=2)) as store:
        for number in range(24):
            put_value(store, value(number), TopicPartition("t", number % 2))
    assert codes_of(shop) == []


def test_a_queue_over_damage_is_not_taken_for_one() -> None:
    shop = Workshop(OverlayFileSystem())
    with closing(shop.open_with_topic(partitions=2)) as store:
        for number in range(24):
            put_value(store, b"v%d" % (number // 2), TopicPartition("t", number % 2))
    assert len(places(shop)) == 24
    queues_built_over_damage(shop)
    with closing(shop.open(accept_loss=True)):
        pass
    assert "wrong-file-name" not in codes_of(shop)
