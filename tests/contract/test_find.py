"""find and ids: records by key, lookup key, tag and time, page by page; a record by its id."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from storage.contract import LogStore
from storage.errors import InvalidArgument, NotOffered, RecordNotFound
from storage.model import FoundPage, Record, TopicPartition
from tests.contract.flavours import Flavour
from tests.contract.harness import StoreFactory, append_each, read_all, texts

KEYS = (b"a", b"b", b"", None, b"\xff\x00")


@pytest.fixture
def filled(store_factory: StoreFactory, store: LogStore, partition: TopicPartition) -> LogStore:
    """A store with records in events-0 and events-1: keys in turn (those the backend can represent), every third record
    tagged, times 0, 10, 20...
    """
    any_key = store_factory.flavour.keeps_any_key
    for number in (0, 1):
        records = [
            Record(
                KEYS[i % 5] if any_key or KEYS[i % 5] in (b"a", b"b") else None,
                f"{number}.{i}".encode(),
                (),
                i * 10,
                "red" if i % 3 == 0 else None,
                ["x", "long-key"] if i % 4 == 0 else [],
            )
            for i in range(30)
        ]
        target = TopicPartition("events", number)
        store_factory.put(store, target, records[:10], per_append=1)
        store_factory.put(store, target, records[10:])
    return store


def ids(page: FoundPage) -> list[tuple[int, int]]:
    """Return (partition, offset) of found records, sorted: each backend has its own order."""
    return sorted((number, record.offset) for number, record in page.records)


def both(offsets: range | list[int]) -> list[tuple[int, int]]:
    """Return these offsets in each of the two partitions."""
    return [(number, offset) for number in (0, 1) for offset in offsets]


@pytest.mark.parametrize(
    ("key", "first"),
    [("a", 0), (b"a", 0), ("b", 1), (b"", 2), ("", 2), (b"\xff\x00", 4)],
)
def test_by_record_key(filled: LogStore, flavour: Flavour, key: str | bytes, first: int) -> None:
    """A key finds all its records in all partitions; text stands for its UTF-8, and an empty key is not null."""
    page = filled.find("events", key=key)
    kept = flavour.keeps_any_key or first in (0, 1)
    assert ids(page) == (both(range(first, 30, 5)) if kept else [])
    assert (page.complete, page.cursor) == (True, None)
    assert page.time_axis == filled.capabilities.time_axis
    assert page.indexed == filled.capabilities.indexed_keys


@pytest.mark.parametrize("key", ["x", "long-key", b"long-key"])
def test_by_lookup_key(filled: LogStore, key: str | bytes) -> None:
    """A record is found by each of its lookup keys, like by its key."""
    assert ids(filled.find("events", key=key)) == both(range(0, 30, 4))


def test_found_by_either_is_found_once(store: LogStore, partition: TopicPartition) -> None:
    """A record with a key that is also its lookup key is found once."""
    store.append(partition, [Record(b"k", b"1", lookup_keys=["k", "j"]), Record(b"j", b"2")])
    assert ids(store.find("events", key="k")) == [(0, 0)]
    assert ids(store.find("events", key="j")) == [(0, 0), (0, 1)]


@pytest.mark.parametrize("key", ["", "X", "long", "x long-key", "a\n"])
def test_keys_are_compared_whole(store: LogStore, partition: TopicPartition, key: str) -> None:
    """A part of a key, another case, or several keys together find nothing."""
    store.append(partition, [Record(b"a", b"v", lookup_keys=["x", "long-key"]), Record(None, b"v")])
    page = store.find("events", key=key)
    assert (ids(page), page.complete) == ([], True)


def test_by_tag(filled: LogStore) -> None:
    """A tag finds all records with the tag."""
    assert ids(filled.find("events", tag="red")) == both(range(0, 30, 3))
    assert ids(filled.find("events", tag="re")) == []


def test_key_and_tag(filled: LogStore) -> None:
    """With key and tag, a record must match both."""
    assert ids(filled.find("events", key="a", tag="red")) == both([0, 15])


@pytest.mark.parametrize(
    ("from_ms", "to_ms", "offsets"),
    [
        (100, 150, range(10, 16)),
        (101, 149, range(11, 15)),
        (290, None, range(29, 30)),
        (291, None, range(0)),
        (None, 0, range(1)),
        (None, -1, range(0)),
        (150, 150, range(15, 16)),
        (200, 100, range(0)),
    ],
)
def test_time_range(
    filled: LogStore, from_ms: int | None, to_ms: int | None, offsets: range
) -> None:
    """A time range includes both ends, and selects records without a key too."""
    page = filled.find("events", from_ms=from_ms, to_ms=to_ms)
    assert (ids(page), page.complete) == (both(offsets), True)
    with_key = filled.find("events", key="a", from_ms=from_ms, to_ms=to_ms)
    assert ids(with_key) == both([offset for offset in offsets if offset % 5 == 0])


@pytest.mark.parametrize("unit_ms", [1, 1000, 1_000_000])
def test_time_range_out_of_order(
    store_factory: StoreFactory, store: LogStore, partition: TopicPartition, unit_ms: int
) -> None:
    """Records after a record with a later time are found too, even if the store's clock went back."""
    times_ms = [time_ms * unit_ms for time_ms in (500, 100, 900, 100, 300, 100)]
    records = [Record(b"k", b"v", (), time_ms) for time_ms in times_ms]
    store_factory.put(store, partition, records, per_append=1)
    found = store.find("events", key="k", from_ms=100 * unit_ms, to_ms=300 * unit_ms)
    assert ids(found) == [(0, n) for n in (1, 3, 4, 5)]


def pages(
    store: LogStore,
    *,
    key: str | None = None,
    limit: int,
    max_scanned: int = 1_000_000,
    max_bytes: int = 1 << 20,
    backward: bool = False,
) -> Iterator[FoundPage]:
    """Follow the cursor to the end and yield the pages; fail after more pages than records plus one."""
    cursor = None
    for _ in range(61):
        page = store.find(
            "events",
            key=key,
            limit=limit,
            max_scanned=max_scanned,
            max_bytes=max_bytes,
            cursor=cursor,
            backward=backward,
        )
        yield page
        assert page.complete == (page.cursor is None)
        if page.complete:
            return
        cursor = page.cursor
    pytest.fail("the cursor does not come to an end")


def in_order(page: FoundPage) -> list[tuple[int, int]]:
    """Return (partition, offset) of found records in the given order."""
    return [(number, record.offset) for number, record in page.records]


@pytest.mark.one_in(3)
@pytest.mark.parametrize("limit", [1, 2, 5, 6, 100])
@pytest.mark.parametrize("max_scanned", [1, 7, 30, 1000])
@pytest.mark.parametrize("key", ["a", None])
@pytest.mark.parametrize("backward", [False, True])
def test_cursor(
    filled: LogStore, limit: int, max_scanned: int, key: str | None, backward: bool
) -> None:
    """Pages respect `limit` and `max_scanned`; together they equal the result of a single call."""
    whole = filled.find("events", key=key, limit=1000, backward=backward)
    found = list[tuple[int, int]]()
    for page in pages(filled, key=key, limit=limit, max_scanned=max_scanned, backward=backward):
        assert len(page.records) <= limit
        assert page.scanned <= max_scanned
        found += in_order(page)
    assert found == in_order(whole)
    assert sorted(found) == both(range(0, 30, 5) if key else range(30))


@pytest.mark.parametrize(
    ("key", "tag", "from_ms", "to_ms"),
    [
        (None, None, None, None),
        ("a", None, None, None),
        ("long-key", None, 50, 250),
        (None, "red", 100, None),
        ("b", None, None, 150),
        ("x", "red", 120, 120),
        ("absent", None, None, None),
    ],
)
def test_backward(
    filled: LogStore, key: str | None, tag: str | None, from_ms: int | None, to_ms: int | None
) -> None:
    """A backward search returns the same records in exactly the reverse order."""
    forth, back = (
        filled.find(
            "events", key=key, tag=tag, from_ms=from_ms, to_ms=to_ms, limit=100, backward=backward
        )
        for backward in (False, True)
    )
    assert list(back.records) == list(reversed(forth.records))
    assert (back.complete, back.indexed) == (True, forth.indexed)


def test_within_a_partition_by_offset(filled: LogStore) -> None:
    """In a forward search the offsets of each partition rise, whatever the order of partitions."""
    found = in_order(filled.find("events", limit=100))
    for number in (0, 1):
        assert [place for place in found if place[0] == number] == [(number, n) for n in range(30)]


def test_newest_first(filled: LogStore) -> None:
    """The first page of a backward search begins with the last record of a partition."""
    (number, offset), *_ = in_order(filled.find("events", limit=3, backward=True))
    assert offset == filled.bounds(TopicPartition("events", number)).end - 1


def test_a_cursor_holds_for_its_direction(filled: LogStore) -> None:
    """A cursor of the other direction is rejected, because it would skip or repeat records."""
    for backward in (False, True):
        cursor = filled.find("events", limit=2, backward=backward).cursor
        with pytest.raises(InvalidArgument) as refused:
            filled.find("events", limit=2, cursor=cursor, backward=not backward)
        assert refused.value.facts()["field"] == "cursor"


@pytest.mark.parametrize("backward", [False, True])
def test_pages_within_bytes(store: LogStore, partition: TopicPartition, backward: bool) -> None:
    """A page has at most `max_bytes`, but at least one record of any size."""
    sizes = [10, 200, 30, 40, 30, 300, 10, 10]
    append_each(store, partition, [Record(None, b"v" * size) for size in sizes])
    found = list[int]()
    for page in pages(store, limit=100, max_bytes=100, backward=backward):
        taken = [len(record.value or b"") for _, record in page.records]
        assert len(taken) == 1 or sum(taken) <= 100
        found += taken
    assert found == (sizes[::-1] if backward else sizes)


def test_headers_count_for_a_page(store: LogStore, partition: TopicPartition) -> None:
    """Headers count with more than their bytes, so a page of many small headers is bounded too."""
    headers = [(f"h{number}", b"v") for number in range(100)]
    append_each(store, partition, [Record(None, b"", headers) for _ in range(5)])
    found = [len(page.records) for page in pages(store, limit=100, max_bytes=100 * 40)]
    assert found == [1] * 5


@pytest.mark.parametrize("key", ["a", "x", None])
def test_a_scan_finds_the_same(filled: LogStore, key: str | None) -> None:
    """A scan of the records finds the same records as an index."""
    asked = filled.find("events", key=key, from_ms=40, limit=100)
    scanned = filled.find("events", key=key, from_ms=40, limit=100, scan=True)
    assert (ids(scanned), scanned.indexed) == (ids(asked), False)


def test_cursor_goes_on_over_new_records(filled: LogStore, partition: TopicPartition) -> None:
    """Records appended between two pages do not change the results for earlier records."""
    first = filled.find("events", key="a", limit=3)
    filled.append(partition, [Record(b"a", b"late")])
    rest = filled.find("events", key="a", limit=100, cursor=first.cursor)
    found = ids(first) + ids(rest)
    assert len(found) == len(set(found))
    assert set(both(range(0, 30, 5))) <= set(found) <= {*both(range(0, 30, 5)), (0, 30)}


def test_budget_is_told(filled: LogStore) -> None:
    """A page without a record within its budget is not complete, and reports how many records were scanned."""
    page = filled.find("events", tag="none", max_scanned=10)
    assert (list(page.records), page.scanned, page.complete) == ([], 10, False)
    assert page.cursor


@pytest.mark.parametrize("cursor", ["", "nonsense", "0", "-1:5", "0:5:5", "0:x", "9:0", "ü", "\0"])
def test_bad_cursor(filled: LogStore, cursor: str) -> None:
    """A text that is not a cursor is rejected with the argument's name."""
    with pytest.raises(InvalidArgument) as refused:
        filled.find("events", key="a", cursor=cursor)
    assert refused.value.facts()["field"] == "cursor"


@pytest.mark.parametrize(("field", "value"), [("limit", 0), ("limit", -1), ("max_scanned", 0)])
def test_bad_limits(filled: LogStore, field: str, value: int) -> None:
    """A limit below 1 is rejected: such pages would never end."""
    limits = {"limit": 32, "max_scanned": 1000, field: value}
    with pytest.raises(InvalidArgument) as refused:
        filled.find("events", limit=limits["limit"], max_scanned=limits["max_scanned"])
    assert refused.value.facts()["field"] == field


def test_unique_ids_are_not_offered(filled: LogStore) -> None:
    """A backend without unique ids rejects a query by unique id, instead of finding nothing."""
    if filled.capabilities.messages:
        assert ids(filled.find("events", unique_id="7F000001")) == []
        return
    with pytest.raises(NotOffered) as refused:
        filled.find("events", unique_id="7F000001")
    assert refused.value.facts()["feature"] == "unique_id"


def test_every_record_has_an_id(filled: LogStore) -> None:
    """An id finds its record, and no two records have the same id."""
    seen = set[str]()
    for number in (0, 1):
        partition = TopicPartition("events", number)
        for record in read_all(filled, partition):
            record_id = filled.record_id(partition, record.locator)
            assert filled.find_by_id(record_id) == (partition, record)
            seen.add(record_id)
    assert len(seen) == 60


def test_ids_name_topic_partition_and_offset(
    store: LogStore, partition: TopicPartition, flavour: Flavour
) -> None:
    """A backend without ids of its own uses topic:partition:offset."""
    result = store.append(partition, texts("a", "b"))
    found = [store.record_id(partition, n) for n in result.locators]
    assert found[0] == flavour.first_id
    assert (found[1] == "events:0:1") == (not store.capabilities.messages)


@pytest.mark.parametrize(
    "record_id",
    [
        "",
        "nonsense",
        "events",
        "events:0",
        "events:0:",
        "events:0:1",
        "events:2:0",
        "events:-1:0",
        "events:0:-1",
        "events:0:x",
        "events:0:0:0",
        "none:0:0",
        "../events:0:0",
        "events:0:" + "9" * 40,
        "events:0:" + "9" * 5000,
        "événements:0:0",
        "\0",
    ],
)
def test_no_such_id(store: LogStore, partition: TopicPartition, record_id: str) -> None:
    """An id without a record, and a text that is not an id, are RecordNotFound with the id."""
    store.append(partition, texts("the only one"))
    with pytest.raises(RecordNotFound) as refused:
        store.find_by_id(record_id)
    assert refused.value.code == "record-not-found"
    assert refused.value.facts() == {"id": record_id}
