"""Lookups by key miss no record, whatever the index files contain: where they do not cover the log, it is scanned."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager

import pytest

from storage import LogStore, Record
from storage.errors import Corrupt
from storage.model import FindQuery, RawMessage
from storage.rocketmq.format.index_file import (
    ENTRY_SIZE,
    HEADER_SIZE,
    entry_position,
    slot_position,
)
from storage.rocketmq.format.properties import encode_properties
from storage.rocketmq.store import RocketMQStore
from tests.unit.rocketmq.recovery.foreign_log import inspector
from tests.unit.rocketmq.workshop import ROOT, T0, Workshop, put_file, put_value

INDEX = ROOT / "index"
PROOF = ROOT / ".logserver.index.json"
SLOTS = 7
VALUES = [b"value-%02d" % number for number in range(40)]
TIMES = 2_000
"""Milliseconds between records, so that index entries differ in their seconds."""


def filled(shop: Workshop, **settings: str) -> None:
    """Fill a store with a record for each value and stop it cleanly; two keys a record, eleven entries a file."""
    with closing(shop.open_with_topic(settings)) as store:
        put_all(shop, store, VALUES)


def put_all(shop: Workshop, store: LogStore, values: list[bytes]) -> None:
    for value in values:
        put_value(store, value)
        shop.clock.now_ms += TIMES


def names(shop: Workshop) -> list[str]:
    return shop.names("index")


def in_file(number: int, position: int, data: bytes) -> Callable[[Workshop], None]:
    """Return a function that overwrites bytes of the index file with this number."""
    return lambda shop: shop.overwrite(INDEX / names(shop)[number], position, data)


def in_entry(number: int, entry: int, at: int, data: bytes) -> Callable[[Workshop], None]:
    return in_file(number, entry_position(SLOTS, entry) + at, data)


def removed(number: int) -> Callable[[Workshop], None]:
    return lambda shop: shop.fs.remove(INDEX / names(shop)[number])


def with_content(number: int, make: Callable[[bytes], bytes]) -> Callable[[Workshop], None]:
    def change(shop: Workshop) -> None:
        path = INDEX / names(shop)[number]
        put_file(shop.fs, path, make(shop.fs.read_bytes(path)))

    return change


def all_removed(shop: Workshop) -> None:
    for name in names(shop):
        shop.fs.remove(INDEX / name)


def a_folder(shop: Workshop) -> None:
    path = INDEX / names(shop)[3]
    shop.fs.remove(path)
    shop.fs.make_dir(path)


def swapped_slots(shop: Workshop) -> None:
    """Swap two slots; sums over slots and chains stay the same."""
    path = INDEX / names(shop)[2]
    data = bytearray(shop.fs.read_bytes(path))
    slots = [data[slot_position(n) : slot_position(n + 1)] for n in range(SLOTS)]
    one, other = sorted(range(SLOTS), key=lambda n: slots[n])[-2:]
    data[slot_position(one) : slot_position(one + 1)] = slots[other]
    data[slot_position(other) : slot_position(other + 1)] = slots[one]
    put_file(shop.fs, path, bytes(data))


def another_file(shop: Workshop) -> None:
    """Replace a file by a copy of another, as from an earlier life of the store: consistent in itself."""
    found = names(shop)
    put_file(shop.fs, INDEX / found[4], shop.fs.read_bytes(INDEX / found[1]))


def an_earlier_life(shop: Workshop) -> None:
    """Replace all index files by files of a store with other records at the same physical offsets."""
    other = Workshop()
    with closing(other.open_with_topic()) as store:
        put_all(other, store, [b"other-%02d" % number for number in range(40)])
    for name in names(shop):
        shop.fs.remove(INDEX / name)
    for name in names(other):
        put_file(shop.fs, INDEX / name, other.fs.read_bytes(INDEX / name))


def beside_an_earlier_life(shop: Workshop) -> None:
    """Add one more file, of an earlier life, before the other files."""
    other = Workshop()
    with closing(other.open_with_topic()) as store:
        put_all(other, store, [b"other-%02d" % number for number in range(9)])
    put_file(shop.fs, INDEX / "20000101000000000", other.fs.read_bytes(INDEX / names(other)[0]))


DAMAGES: dict[str, Callable[[Workshop], None]] = {
    "the first file is gone": removed(0),
    "a middle file is gone": removed(3),
    "the last file is gone": removed(-1),
    "all files are gone": all_removed,
    "the folder is gone": lambda shop: shop.fs.remove_tree(INDEX),
    "an empty file": with_content(2, lambda data: b""),
    "an empty last file": with_content(-1, lambda data: b""),
    "a short file": with_content(2, lambda data: data[:-50]),
    "a file without its entries": with_content(2, lambda data: data[:60]),
    "a long file": with_content(2, lambda data: data + bytes(60)),
    "a file of zeros": with_content(2, lambda data: bytes(len(data))),
    "a last file of zeros": with_content(-1, lambda data: bytes(len(data))),
    "a folder in the place of a file": a_folder,
    "zeros in the header": in_file(2, 0, bytes(HEADER_SIZE)),
    "an end before the last record": in_file(2, 24, bytes(8)),
    "a begin after the last record": in_file(2, 16, struct.pack(">q", 1 << 40)),
    "a count that is too small": in_file(2, 36, struct.pack(">i", 5)),
    "a count that is too large": in_file(2, 36, struct.pack(">i", 5000)),
    "another begin time": in_file(2, 0, struct.pack(">q", 5)),
    "zeroed slots": in_file(2, HEADER_SIZE, bytes(12)),
    "swapped slots": swapped_slots,
    "a zeroed entry": in_entry(2, 6, 0, bytes(ENTRY_SIZE)),
    "zeroed entries in the last file": in_entry(-1, 1, 0, bytes(2 * ENTRY_SIZE)),
    "another hash": in_entry(2, 6, 0, struct.pack(">i", 12345)),
    "another place": in_entry(2, 6, 4, struct.pack(">q", 17)),
    "another time": in_entry(2, 6, 12, struct.pack(">i", 777_777)),
    "a negative time": in_entry(2, 6, 12, struct.pack(">i", -1)),
    "a chain that ends early": in_entry(2, 10, 16, bytes(4)),
    "a chain that leads elsewhere": in_entry(2, 10, 16, struct.pack(">i", 9)),
    "random bytes in the middle": in_file(2, 100, bytes(range(7, 107))),
    "the content of another file": another_file,
    "an index of an earlier life": an_earlier_life,
    "a file of an earlier life next to the others": beside_an_earlier_life,
}


def check_all(store: LogStore, values: list[bytes] | None = None) -> set[bool]:
    """Check that key (both directions, time range) and unique id find every record; return all values of `indexed`."""
    indexed = set()
    for value in VALUES if values is None else values:
        for backward in (False, True):
            page = store.find("t", key=value, backward=backward)
            assert [record.value for _, record in page.records] == [value], value
            assert page.complete
            indexed.add(page.indexed)
        found = store.find("t", unique_id=value.decode())
        assert [record.value for _, record in found.records] == [value], value
        at_ms = found.records[0][1].store_timestamp_ms
        assert at_ms is not None
        timely = store.find("t", key=value, from_ms=at_ms - 1, to_ms=at_ms + 1)
        assert [record.value for _, record in timely.records] == [value], value
    assert not store.find("t", key="value-none").records
    return indexed


def check_tools(shop: Workshop, values: list[bytes] | None = None) -> None:
    """Check with the tools that each key finds one record."""
    with inspector(shop) as tools:
        for value in VALUES if values is None else values:
            found = list(tools.find(FindQuery(topic="t", key=value.decode())))
            assert len(found) == 1, value


@pytest.mark.one_in(2)
@pytest.mark.parametrize("remembered", [True, False], ids=["remembered", "unknown"])
@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_nothing_is_missed(
    damage: Callable[[Workshop], None], remembered: bool, shop: Workshop
) -> None:
    filled(shop)
    damage(shop)
    if not remembered:
        shop.fs.remove(PROOF)
    check_tools(shop)
    with closing(shop.open(read_only=True)) as store:
        check_all(store)
    with closing(shop.open()) as store:
        check_all(store)
        put_all(shop, store, [b"more-%d" % number for number in range(9)])
        more = [*VALUES, *(b"more-%d" % number for number in range(9))]
        check_all(store, more)
    check_tools(shop, more)
    with closing(shop.open()) as store:
        check_all(store, more)


@pytest.mark.parametrize("remembered", [True, False], ids=["remembered", "unknown"])
@pytest.mark.parametrize("read_only", [False, True])
def test_a_good_index_is_asked(remembered: bool, read_only: bool, shop: Workshop) -> None:
    filled(shop)
    if not remembered:
        shop.fs.remove(PROOF)
    with closing(shop.open(read_only=read_only)) as store:
        assert check_all(store) == {True}


def test_a_remembered_index_is_not_compared_with_the_log(shop: Workshop) -> None:
    filled(shop)
    with closing(shop.open()) as store:
        assert store.coverage is not None
        assert store.coverage.unknown(0, store.log.end) == []
        put_value(store, b"more")
        assert store.find("t", key=b"more").indexed
    with closing(shop.open()) as store:
        assert check_all(store, [*VALUES, b"more"]) == {True}
        assert store.coverage is not None
        assert store.coverage.unknown(0, store.log.end) == []


@pytest.mark.parametrize(
    "damage", ["the first file is gone", "a middle file is gone", "an empty file", "a short file"]
)
def test_a_writable_start_rebuilds(damage: str, shop: Workshop) -> None:
    filled(shop)
    DAMAGES[damage](shop)
    with closing(shop.open()) as store:
        assert check_all(store) == {True}


@contextmanager
def off(shop: Workshop) -> Iterator[RocketMQStore]:
    """Yield the store with its index switched off."""
    with closing(shop.open({"messageIndexEnable": "false"})) as store:
        yield store


PARTS = {
    "in the middle": (10, 30),
    "at the begin": (0, 20),
    "of one record": (17, 18),
    "at the end": (25, 40),
    "all the time": (0, 40),
}


@pytest.mark.parametrize("remembered", [True, False], ids=["remembered", "unknown"])
@pytest.mark.parametrize("part", PARTS.values(), ids=PARTS)
def test_while_it_is_switched_off_and_after(
    part: tuple[int, int], remembered: bool, shop: Workshop
) -> None:
    first, stop = part
    shop.open_with_topic({"messageIndexEnable": "false"}).close()
    with closing(shop.open()) as store:
        put_all(shop, store, VALUES[:first])
    with off(shop) as store:
        put_all(shop, store, VALUES[first:stop])
        assert check_all(store, VALUES[:stop]) == {False}
    if not remembered and shop.fs.exists(PROOF):
        shop.fs.remove(PROOF)
    check_tools(shop, VALUES[:stop])
    with closing(shop.open(read_only=True)) as store:
        check_all(store, VALUES[:stop])
    with closing(shop.open()) as store:
        assert check_all(store, VALUES[:stop]) == {True}, "it was rebuilt"
        put_all(shop, store, VALUES[stop:])
        assert check_all(store) == {True}
    with closing(shop.open()) as store:
        assert check_all(store) == {True}


def test_after_a_kill_it_is_compared(shop: Workshop) -> None:
    with closing(shop.open_with_topic()) as store:
        put_all(shop, store, VALUES[:20])
    store = shop.open()
    put_all(shop, store, VALUES[20:])
    store.flush()
    with closing(shop.after_kill().open()) as again:
        assert check_all(again) == {True}


def test_a_log_that_was_cut_and_written_again_is_another_one(shop: Workshop) -> None:
    """The proof of a stop does not count for records that a broker without an index later wrote over older ones."""
    filled(shop)
    proof = shop.fs.read_bytes(PROOF)
    index = {name: shop.fs.read_bytes(INDEX / name) for name in names(shop)}
    other = Workshop()
    others = [*VALUES[:15], *(b"other-%02d" % number for number in range(25))]
    with closing(other.open_with_topic()) as store:
        put_all(other, store, others)
    for name in other.names("index"):
        other.fs.remove(INDEX / name)
    for name, data in index.items():
        put_file(other.fs, INDEX / name, data)
    put_file(other.fs, PROOF, proof)
    with closing(other.open(read_only=True)) as store:
        check_all(store, others)
    check_tools(other, others)
    with closing(other.open()) as store:
        check_all(store, others)


def test_a_key_that_is_in_no_lookup_keys_is_found(shop: Workshop) -> None:
    """Other producers store such records: the index has no string for the key."""
    with closing(shop.open_with_topic()) as store:
        put_value(store, b"before")
        raw = RawMessage(
            body=b"v", properties=encode_properties({"__SHARDINGKEY": "alone", "KEYS": "other"})
        )
        store.append_messages(T0, [raw])
        put_value(store, b"after")
        assert [r.value for _, r in store.find("t", key="alone").records] == [b"v"]
    with closing(shop.open()) as store:
        assert [r.value for _, r in store.find("t", key="alone").records] == [b"v"]
        assert store.find("t", unique_id="after").indexed
    shop.fs.remove(PROOF)
    with closing(shop.open(read_only=True)) as store:
        assert [r.value for _, r in store.find("t", key="alone").records] == [b"v"]


@pytest.mark.parametrize("key", ["T#red", "T#"])
def test_a_key_that_looks_like_a_tag(key: str, shop: Workshop) -> None:
    with closing(shop.open_with_topic()) as store:
        store.append(T0, [Record(key.encode(), b"by key"), Record(None, b"by tag", tag="red")])
        page = store.find("t", key=key)
        assert ([r.value for _, r in page.records], page.indexed) == ([b"by key"], False)


UNIT = 20
BAD_UNITS = {
    "one entry of zeros": (5, bytes(UNIT)),
    "several entries of zeros": (5, bytes(3 * UNIT)),
    "the first entries of zeros": (0, bytes(2 * UNIT)),
    "an entry after the log": (7, struct.pack(">qiq", 1 << 40, 155, 0)),
    "an entry inside a record": (7, struct.pack(">qiq", 40, 155, 0)),
    "an entry of a negative size": (7, struct.pack(">qiq", 700, -1, 0)),
}


@pytest.mark.parametrize("backward", [False, True])
@pytest.mark.parametrize("bad", BAD_UNITS.values(), ids=BAD_UNITS)
def test_a_record_that_its_queue_does_not_lead_to_is_damage(
    bad: tuple[int, bytes], backward: bool, shop: Workshop
) -> None:
    """As in a scan: an answer that claims to be complete does not leave the record out. The tools find the record."""
    first, data = bad
    settings = {"mappedFileSizeConsumeQueue": "2000"}
    filled(shop, **settings)
    shop.overwrite(ROOT / "consumequeue/t/0" / f"{0:020}", first * UNIT, data)
    hidden = range(first, first + len(data) // UNIT)
    with closing(shop.open(settings, read_only=True)) as store:
        for number, value in enumerate(VALUES):
            if number in hidden:
                with pytest.raises(Corrupt) as reported:
                    store.find("t", key=value, backward=backward)
                assert reported.value.facts()["offset"] == number
            else:
                page = store.find("t", key=value, backward=backward)
                assert [record.value for _, record in page.records] == [value]
    with inspector(shop, settings) as tools:
        for value in VALUES:
            assert len(list(tools.find(FindQuery(topic="t", key=value.decode())))) == 1
