"""A file in the place of a folder that a start creates: readers ignore and report the file, a writable start fails."""

from __future__ import annotations

from contextlib import closing

import pytest

from storage.errors import DamagedStore
from storage.model import FindQuery, TopicPartition
from tests.unit.rocketmq.recovery.foreign_log import inspector
from tests.unit.rocketmq.workshop import ROOT, Workshop, put_file, put_value, values

T1 = TopicPartition("t", 1)
VALUES = [b"value-%02d" % number for number in range(12)]
PLACES = ["consumequeue", "consumequeue/t", "consumequeue/t/1", "index"]


def filled(shop: Workshop) -> None:
    with closing(shop.open_with_topic(partitions=2)) as store:
        for value in VALUES:
            put_value(store, value, T1)


def block(shop: Workshop, place: str, data: bytes) -> None:
    if shop.fs.exists(ROOT / place):
        shop.fs.remove_tree(ROOT / place)
    put_file(shop.fs, ROOT / place, data)


@pytest.mark.parametrize("data", [b"", b"text"])
@pytest.mark.parametrize("place", PLACES)
def test_it_costs_a_reader_nothing(place: str, data: bytes, shop: Workshop) -> None:
    filled(shop)
    block(shop, place, data)
    before = shop.files()
    with closing(shop.open(read_only=True)) as store:
        reported = {f.path: f.severity for f in store.recovery.findings if f.code == "unknown-file"}
        assert reported == {str(ROOT / place): "error"}
        assert values(store, T1) == VALUES
        assert store.find("t", key=VALUES[3]).records
    with inspector(shop) as tools:
        assert len(list(tools.find(FindQuery(topic="t", key=VALUES[5].decode())))) == 1
        assert str(ROOT / place) in [f.path for f in tools.verify()]
    assert shop.files() == before


@pytest.mark.parametrize("place", PLACES)
def test_a_writable_start_says_what_to_do(place: str, shop: Workshop) -> None:
    filled(shop)
    block(shop, place, b"x")
    before = shop.files()
    with pytest.raises(DamagedStore, match="Move it away") as refused:
        shop.open()
    assert refused.value.facts()["path"] == str(ROOT / place)
    assert shop.fs.read_bytes(ROOT / place) == b"x"
    if "/" not in place:
        assert shop.files() == before
    shop.fs.remove(ROOT / place)
    with closing(shop.open()) as store:
        assert values(store, T1) == VALUES
        assert put_value(store, b"more", T1).base_offset == len(VALUES)


@pytest.mark.parametrize(
    "place",
    ["consumequeue/notes.txt", "consumequeue/strange", "consumequeue/t/README", "consumequeue/t/9"],
)
def test_a_file_in_no_folders_place_is_left_alone(place: str, shop: Workshop) -> None:
    filled(shop)
    put_file(shop.fs, ROOT / place, b"x")
    with closing(shop.open()) as store:
        assert values(store, T1) == VALUES
    assert shop.fs.read_bytes(ROOT / place) == b"x"
