"""Queue entries that point nowhere, or out of order: each is reported, and none hides another record."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from storage import LogStore, TopicPartition
from storage.errors import Corrupt
from storage.rocketmq import queue
from storage.rocketmq.format.names import file_name
from storage.rocketmq.format.queue_entry import UNIT, UNIT_SIZE
from storage.rocketmq.index.queues import Queue
from storage.rocketmq.lookup import entries
from storage.rocketmq.store import RocketMQStore
from tests.unit.rocketmq.workshop import ROOT, T0, Workshop, put_value, values

COUNT = 90
QUEUES = 3
IN_FILE = 5  # entries in a file of the small store
SIZE = 150  # approximate size of a record
BAD = 17  # offset of the entry that is overwritten


def queue_file(target: TopicPartition, offset: int) -> str:
    """Return the path, below the root, of the queue file with the entry of `offset`."""
    base = offset // IN_FILE * IN_FILE * UNIT_SIZE
    return f"consumequeue/{target.topic}/{target.partition}/{file_name(base)}"


def overwrite(shop: Workshop, target: TopicPartition, offset: int, unit: bytes) -> None:
    path = ROOT / queue_file(target, offset)
    shop.overwrite(path, offset % IN_FILE * UNIT_SIZE, unit)


def unit_of(shop: Workshop, target: TopicPartition, offset: int) -> bytes:
    data = shop.fs.read_bytes(ROOT / queue_file(target, offset))
    return data[offset % IN_FILE * UNIT_SIZE :][:UNIT_SIZE]


def filled(shop: Workshop, count: int = COUNT) -> RocketMQStore:
    """Return a store with the values v0, v1, ... appended to the queues in turn, all of them with queue entries."""
    store = shop.open_with_topic(partitions=QUEUES)
    for n in range(count):
        put_value(store, b"v%d" % n, T0._replace(partition=n % QUEUES))
    store.flush()
    assert len(store.find("t", limit=count).records) == count
    return store


def first_queue(store: LogStore) -> Queue:
    assert isinstance(store, RocketMQStore)
    queue = store.queues.get(*T0)
    assert queue is not None
    return queue


def followed(store: LogStore, **asked: Any) -> tuple[list[int], list[dict[str, object]]]:
    """Follow a query over all pages and past all damage; return the found numbers, and the facts of each damage."""
    found: list[int] = []
    stated: list[dict[str, object]] = []
    cursor = None
    for _ in range(3 * COUNT):
        try:
            page = store.find("t", cursor=cursor, **asked)
        except Corrupt as error:
            stated.append(error.facts())
            if stated[-1]["cursor"] is None:
                return found, stated
            cursor = str(stated[-1]["cursor"])
            continue
        found += [int((record.value or b"")[1:]) for _, record in page.records]
        if page.complete:
            return found, stated
        cursor = page.cursor
    pytest.fail("the cursor does not come to an end")


def all_but(bad: set[int], *, backward: bool) -> list[int]:
    return [n for n in range(COUNT) if n not in bad][:: -1 if backward else 1]


def copied(offset: int) -> Callable[[Workshop], bytes]:
    return lambda shop: unit_of(shop, T0, offset)


def made(physical_offset: int, size: int) -> Callable[[Workshop], bytes]:
    return lambda shop: UNIT.pack(physical_offset, size, 0)


UNITS = {
    "zeros": made(0, 0),
    "a negative place": made(-5, SIZE),
    "a negative size": made(9 * SIZE, -(1 << 31)),
    "a size over a file's": made(9 * SIZE, 1 << 20),
    "far outside": made(1 << 40, SIZE),
    "a little outside": made(1 << 17, SIZE),
    "inside a record after it": made(60 * SIZE + 7, SIZE),
    "inside a record before": made(7, SIZE),
    "a record before": copied(3),
    "a record after it": copied(25),
}
every_unit = pytest.mark.parametrize("unit", UNITS.values(), ids=UNITS)
both_ways = pytest.mark.parametrize("backward", [False, True])


@pytest.mark.one_in(3)
@every_unit
@both_ways
@pytest.mark.parametrize("limit", [1, 7, 1000])
def test_a_query_tells_the_bad_unit_and_finds_all_others(
    shop: Workshop, unit: Callable[[Workshop], bytes], limit: int, backward: bool
) -> None:
    with filled(shop) as store:
        overwrite(shop, T0, BAD, unit(shop))
        found, stated = followed(store, limit=limit, backward=backward)
        assert found == all_but({BAD * QUEUES}, backward=backward)
        (facts,) = stated
        named = ("topic", "partition", "offset", "next_good_offset", "path", "position")
        assert [facts[name] for name in named] == [
            *("t", 0, BAD, BAD + 1),
            *(str(ROOT / queue_file(T0, BAD)), BAD % IN_FILE * UNIT_SIZE),
        ]


@both_ways
@pytest.mark.parametrize("offsets", [range(4), range(9, 21), range(25, 30), range(30)])
def test_bad_units_side_by_side_are_one_damage(
    shop: Workshop, offsets: range, backward: bool
) -> None:
    """The bad entries are at the start, in the middle or at the end of a queue, or fill the queue."""
    with filled(shop) as store:
        for offset in offsets:
            overwrite(shop, T0, offset, bytes(UNIT_SIZE))
        found, stated = followed(store, limit=7, backward=backward)
        assert found == all_but({offset * QUEUES for offset in offsets}, backward=backward)
        (facts,) = stated
        assert (facts["offset"], facts["next_good_offset"]) == (offsets.start, offsets.stop)


@both_ways
@pytest.mark.parametrize("seed", range(12))
def test_units_overwritten_at_random(
    shop: Workshop, monkeypatch: pytest.MonkeyPatch, seed: int, backward: bool
) -> None:
    """Some bad entries are alone, and some at the ends of the range that is checked at once, which is small here."""
    for module in (queue, entries):
        monkeypatch.setattr(module, "UNITS_AT_ONCE", 8)
    monkeypatch.setattr(entries, "UNITS_BESIDE", 3)
    monkeypatch.setattr(entries, "UNITS_PROBED", 5)
    dice = random.Random(seed)
    with filled(shop) as store:
        bad = {(n % QUEUES, n // QUEUES) for n in dice.sample(range(0, COUNT, 4), 5)}
        for number, offset in bad:
            made_up = UNIT.pack(dice.randrange(COUNT * SIZE), dice.randrange(-9, 1 << 11), 0)
            target = T0._replace(partition=number)
            overwrite(shop, target, offset, dice.choice([made_up, bytes(UNIT_SIZE)]))
        found, stated = followed(store, limit=dice.choice([1, 4, 50]), backward=backward)
        assert found == all_but({n + at * QUEUES for n, at in bad}, backward=backward)
        assert {(facts["partition"], facts["offset"]) for facts in stated} == bad
        assert len(stated) == len(bad)


@both_ways
def test_a_file_of_the_queue_that_is_gone_is_one_damage(shop: Workshop, backward: bool) -> None:
    with filled(shop) as store:
        queue = first_queue(store)
        queue.units.run.remove([10 * UNIT_SIZE])
        found, stated = followed(store, limit=7, backward=backward)
        assert found == all_but(
            {offset * QUEUES for offset in range(10, 10 + IN_FILE)}, backward=backward
        )
        assert [(facts["offset"], facts["next_good_offset"]) for facts in stated] == [(10, 15)]
        assert readable(store) == [
            n for n in range(0, COUNT, QUEUES) if n // QUEUES // IN_FILE != 2
        ]


def test_the_index_leads_past_bad_units(shop: Workshop) -> None:
    """A lookup by key needs no queue entry but the one of the found record."""
    with filled(shop) as store:
        overwrite(shop, T0, BAD, bytes(UNIT_SIZE))
        overwrite(shop, T0, BAD - 2, UNIT.pack(1 << 40, SIZE, 0))
        for n in (0, 14 * QUEUES, 16 * QUEUES, COUNT - 1):
            page = store.find("t", key=b"v%d" % n)
            assert (len(page.records), page.indexed) == (1, True)


def readable(store: LogStore) -> Sequence[int]:
    """Return the numbers that fetches of the first queue find when they continue at the reported offsets."""
    found: list[int] = []
    offset, end = 0, store.bounds(T0).end
    for _ in range(COUNT):
        if offset == end:
            return found
        try:
            page = store.read(T0, offset)
        except Corrupt as error:
            going_on = error.facts()["next_good_offset"]
            assert isinstance(going_on, int)
            assert going_on > offset
            offset = going_on
            continue
        found += [int((record.value or b"")[1:]) for record in page.records]
        offset = page.next_offset
    pytest.fail("the reads do not come to an end")


@pytest.mark.parametrize("name", [name for name in UNITS if not name.startswith("a record")])
def test_a_read_goes_on_behind_a_bad_unit(shop: Workshop, name: str) -> None:
    """This holds also where one read covers the records before and after the bad entry."""
    with filled(shop) as store:
        overwrite(shop, T0, BAD, UNITS[name](shop))
        assert readable(store) == [n for n in range(0, COUNT, QUEUES) if n != BAD * QUEUES]
        with pytest.raises(Corrupt) as caught:
            store.read(T0, BAD)
        assert caught.value.facts()["next_good_offset"] == BAD + 1
        assert store.read(T0, BAD - 1).next_offset == BAD


def test_a_negative_size_close_behind_the_record_before(shop: Workshop) -> None:
    """The entry is not taken for a part of the range that one read covers."""
    with shop.open_with_topic() as store:
        for value in (b"a", b"b", b"c"):
            put_value(store, value)
        assert values(store) == [b"a", b"b", b"c"]
        place, _, _ = UNIT.unpack(unit_of(shop, T0, 1))
        overwrite(shop, T0, 1, UNIT.pack(place, -(1 << 31), 0))
        assert [record.value for record in store.read(T0, 0).records] == [b"a"]
        with pytest.raises(Corrupt):
            store.read(T0, 1)
        assert [record.value for record in store.read(T0, 2).records] == [b"c"]


def test_a_queue_that_ends_too_early_is_told(shop: Workshop) -> None:
    """A read of an offset without an entry fails, and the error contains the offset to continue at."""
    with filled(shop, 9) as store:
        queue = first_queue(store)
        queue.published = 5
        assert store.read(T0, 0).next_offset == 3
        with pytest.raises(Corrupt) as caught:
            store.read(T0, 3)
        facts = caught.value.facts()
        assert (facts["offset"], facts["next_good_offset"]) == (3, 5)
        assert facts["path"] == str(ROOT / queue_file(T0, 3))


def test_a_start_tells_of_the_queue_that_it_cuts(shop: Workshop) -> None:
    """The log loses nothing: an entry points beyond its end."""
    filled(shop).close()
    last = COUNT // QUEUES - 1
    overwrite(shop, T0, last, UNIT.pack(1 << 40, SIZE, 0))
    with shop.open() as store:
        (loss,) = store.recovery.losses
        assert (loss.topic, loss.partition, loss.first_offset) == (*T0, last)
        assert loss.path == str(ROOT / queue_file(T0, last))
        assert (loss.position, loss.size_bytes) == (last % IN_FILE * UNIT_SIZE, UNIT_SIZE)
