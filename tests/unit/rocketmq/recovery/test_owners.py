"""Findings of damaged records name topic, partition and offset, from the queue entry or the record's header."""

from __future__ import annotations

import struct
from collections.abc import Callable
from contextlib import closing

import pytest

from storage.errors import DamagedStore
from storage.model import Finding, TopicPartition
from tests.unit.rocketmq.recovery.foreign_log import inspector
from tests.unit.rocketmq.test_dump_gaps import places
from tests.unit.rocketmq.workshop import ROOT, Workshop, put_file, put_value

COUNT = 12
QUEUE_ID, QUEUE_OFFSET, BODY = 12, 20, 88

Place = tuple[int, int]


@pytest.fixture
def shop() -> Workshop:
    """A store with two queues that were written in turn."""
    shop = Workshop()
    with shop.open_with_topic(partitions=2) as store:
        for number in range(COUNT):
            for queue in range(2):
                put_value(store, b"v%d" % number, TopicPartition("t", queue))
    return shop


def patch(shop: Workshop, physical_offset: int, data: bytes) -> None:
    base = max(base for base in shop.log_bases() if base <= physical_offset)
    shop.overwrite(shop.log_path(base), physical_offset - base, data)


def damaged(shop: Workshop) -> list[Finding]:
    with inspector(shop) as tools:
        return [f for f in tools.verify() if f.code == "damaged-record"]


def names(found: list[Finding]) -> list[tuple[str | None, int | None, int | None]]:
    return [(f.topic, f.partition, f.offset) for f in found]


def body(shop: Workshop, place: Place) -> None:
    patch(shop, place[0] + BODY, b"\xff\xff")


def zeros(shop: Workshop, place: Place) -> None:
    patch(shop, place[0], bytes(place[1]))


def magic(shop: Workshop, place: Place) -> None:
    patch(shop, place[0] + 4, b"\0\1\2\3")


def garbage(shop: Workshop, place: Place) -> None:
    patch(shop, place[0], b"\xa5" * place[1])


def size(shop: Workshop, place: Place) -> None:
    patch(shop, place[0], b"\0\0\0\x5b")


def other_queue_too(shop: Workshop, place: Place) -> None:
    body(shop, place)
    patch(shop, place[0] + QUEUE_ID, struct.pack(">i", 7))


def other_offset_too(shop: Workshop, place: Place) -> None:
    body(shop, place)
    patch(shop, place[0] + QUEUE_OFFSET, struct.pack(">q", 9))


Damage = Callable[[Workshop, Place], None]
DAMAGES: list[Damage] = [body, zeros, magic, garbage, other_queue_too, other_offset_too]


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("record", [(0, 0), (1, 3), (0, 9)])
def test_the_entry_names_the_record(
    record: tuple[int, int], damage: Damage, shop: Workshop
) -> None:
    damage(shop, places(shop)[record])
    assert names(damaged(shop)) == [("t", *record)]


@pytest.mark.parametrize("record", [(0, 0), (1, 3), (0, 9)])
def test_without_entries_the_header_does(record: tuple[int, int], shop: Workshop) -> None:
    body(shop, places(shop)[record])
    shop.fs.remove_tree(ROOT / "consumequeue")
    assert names(damaged(shop)) == [("t", *record)]


@pytest.mark.parametrize("damage", [size, magic, garbage])
def test_where_nothing_is_known_nothing_is_named(damage: Damage, shop: Workshop) -> None:
    damage(shop, places(shop)[1, 3])
    shop.fs.remove_tree(ROOT / "consumequeue")
    assert set(names(damaged(shop))) == {(None, None, None)}


@pytest.mark.parametrize(("at", "data"), [(QUEUE_ID, b"\xff" * 4), (QUEUE_OFFSET, b"\xff" * 8)])
def test_a_header_that_cannot_be_right_names_nothing(at: int, data: bytes, shop: Workshop) -> None:
    place = places(shop)[1, 3]
    body(shop, place)
    patch(shop, place[0] + at, data)
    shop.fs.remove_tree(ROOT / "consumequeue")
    assert names(damaged(shop)) == [(None, None, None)]


def test_each_of_many_bad_places_is_named(shop: Workshop) -> None:
    wanted = [(1, 1), (0, 4), (1, 4), (0, 5), (1, 8)]
    found = places(shop)
    for number, record in enumerate(wanted):
        DAMAGES[number](shop, found[record])
    named = {(f.topic, f.partition, f.offset) for f in damaged(shop)}
    assert named <= {("t", *record) for record in wanted}  # adjacent bad places are one place
    assert {("t", 1, 1), ("t", 0, 4), ("t", 1, 8)} <= named


@pytest.mark.parametrize("damage", DAMAGES[:4])
def test_a_refused_start_and_a_dump_name_it(damage: Damage, shop: Workshop) -> None:
    damage(shop, places(shop)[1, 3])
    put_file(shop.fs, ROOT / "abort", b"")
    shop.fs.remove(ROOT / "checkpoint")
    with pytest.raises(DamagedStore) as refused:
        shop.open()
    reported = refused.value.facts()["findings"]
    assert isinstance(reported, list)
    assert names([f for f in reported if f.code == "damaged-record"]) == [("t", 1, 3)]
    with closing(shop.open(read_only=True)) as store:
        found = [f for f in store.recovery.findings if f.code == "damaged-record"]
        assert names(found) == [("t", 1, 3)]
    with inspector(shop) as tools:
        for _ in tools.dump("records"):
            pass
        assert [f.code for f in tools.findings() if f.topic is not None] == ["damaged-record"]
