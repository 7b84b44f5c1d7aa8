"""`find` on a RocketMQ store: the order of the log, real keys and tags, and answers that need more than the index."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from api.http.errors import as_api_error
from storage import (
    FoundPage,
    LogStore,
    RawMessage,
    Record,
    StoreOptions,
    TopicPartition,
    open_store,
)
from storage.contract import SupportsRawMessages
from storage.errors import Corrupt, InvalidArgument, RecordNotFound
from storage.files import FileSystem, OverlayFileSystem
from storage.rocketmq.format.index_file import key_hash
from storage.rocketmq.format.names import SCHEDULE_TOPIC
from storage.rocketmq.format.properties import encode_properties
from storage.rocketmq.index.record_pass import STRING
from storage.rocketmq.store import RocketMQStore
from tests.golden.rocketmq_stores import physical_offset, put

PATH = Path("/store")
MS = 1_700_000_000_000
SMALL = {
    "mappedFileSizeCommitLog": "4096",
    "mappedFileSizeConsumeQueue": "200",
    "maxHashSlotNum": "7",
    "maxIndexNum": "20",
}
"""Files so small that the found records are in several files of each kind."""


class Clock:
    """A clock that advances by `step_ms` at each call."""

    def __init__(self) -> None:
        self.now_ms = MS
        self.step_ms = 1000

    def __call__(self) -> int:
        self.now_ms += self.step_ms
        return self.now_ms


def open_at(fs: FileSystem, clock: Clock, *, read_only: bool = False, **settings: str) -> LogStore:
    options = StoreOptions(settings={**SMALL, **settings})
    return open_store("rocketmq", PATH, options, fs=fs, clock=clock, read_only=read_only)


@pytest.fixture
def fs() -> OverlayFileSystem:
    return OverlayFileSystem()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def store(fs: OverlayFileSystem, clock: Clock) -> Iterator[LogStore]:
    with open_at(fs, clock) as store:
        store.create_topic("events", 3)
        store.create_topic("others", 2)
        yield store


def searches(*asked: dict[str, Any]) -> Sequence[dict[str, Any]]:
    """Return several sets of arguments for `find`."""
    return asked


def queue(number: int, topic: str = "events") -> TopicPartition:
    return TopicPartition(topic, number)


def fill(store: LogStore, count: int = 60) -> None:
    """Append records to the queues in turn, with a key of their own and a key shared with others."""
    for n in range(count):
        record = Record(
            f"own-{n}".encode(),
            f"value {n}".encode() * (1 + n % 7),
            tag="red" if n % 4 == 0 else "blue",
            lookup_keys=[f"shared-{n % 5}", f"with space {n}".replace(" ", "_")],
            properties={"UNIQ_KEY": f"7F00000100{n:022X}"},
        )
        store.append(queue(n % 3), [record])
        store.append(queue(n % 2, "others"), [record])


def numbers(page: FoundPage) -> list[int]:
    """Return the numbers of the records that were found, in the order of the page."""
    return [int((record.value or b"").split(b"value ")[1]) for _, record in page.records]


def find_all(store: LogStore, *, limit: int = 7, **asked: Any) -> list[int]:
    """Return the numbers on all pages of a search, following the cursors."""
    found: list[int] = []
    cursor = None
    for _ in range(100):
        page = store.find("events", limit=limit, cursor=cursor, **asked)
        found += numbers(page)
        if page.complete:
            return found
        cursor = page.cursor
    pytest.fail("the cursor does not come to an end")


@pytest.mark.slow
@pytest.mark.parametrize("backward", [False, True])
@pytest.mark.parametrize("scan", [False, True])
@pytest.mark.parametrize("limit", [1, 7, 100])
@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ({}, range(60)),
        ({"key": "own-17"}, [17]),
        ({"key": b"own-17"}, [17]),
        ({"key": "shared-3"}, range(3, 60, 5)),
        ({"key": "with_space_9"}, [9]),
        ({"key": "with space 9"}, []),
        ({"key": "own-17 shared-2"}, []),
        ({"key": ""}, []),
        ({"key": b"\xff"}, []),
        ({"unique_id": f"7F00000100{59:022X}"}, [59]),
        ({"unique_id": "7F00000100"}, []),
        ({"tag": "red"}, range(0, 60, 4)),
        ({"tag": "re"}, []),
        ({"key": "shared-3", "tag": "red"}, [8, 28, 48]),
        ({"key": "shared-3", "unique_id": f"7F00000100{8:022X}"}, [8]),
        ({"key": "shared-4", "unique_id": f"7F00000100{8:022X}"}, []),
    ],
)
def test_in_the_order_of_the_log(
    store: LogStore, asked: Any, expected: Any, limit: int, scan: bool, backward: bool
) -> None:
    """This holds over all queues of the topic and for each kind of lookup; pages miss and repeat no record."""
    fill(store)
    found = find_all(store, limit=limit, scan=scan, backward=backward, **asked)
    assert found == list(expected)[:: -1 if backward else 1]


@pytest.mark.parametrize(
    ("asked", "indexed"),
    [
        ({"key": "own-1"}, True),
        ({"key": b"own-1"}, True),
        ({"unique_id": "7F"}, True),
        ({"key": "own-1", "tag": "red"}, True),
        ({"key": "own 1"}, False),
        ({"key": "own-1", "scan": True}, False),
        ({"tag": "red"}, False),
        ({"from_ms": MS}, False),
        ({}, False),
    ],
)
def test_what_the_index_answers(store: LogStore, asked: Any, indexed: bool) -> None:
    fill(store, 9)
    page = store.find("events", **asked)
    assert page.indexed is indexed
    assert page.time_axis == "store_timestamp"


def test_without_an_index_the_answers_are_the_same(fs: OverlayFileSystem, clock: Clock) -> None:
    with open_at(fs, clock, messageIndexEnable="false") as store:
        store.create_topic("events", 3)
        store.create_topic("others", 2)
        fill(store, 20)
        page = store.find("events", key="shared-3")
        assert (numbers(page), page.indexed, page.scanned) == ([3, 8, 13, 18], False, 20)


def test_the_index_spares_the_scan(store: LogStore) -> None:
    fill(store)
    assert store.find("events", key="own-17").scanned < 10
    assert store.find("events", key="own-17", scan=True).scanned == 60


@pytest.mark.parametrize("index_tags", ["true", "false"])
def test_strings_with_one_hash_never_come_back(
    fs: OverlayFileSystem, clock: Clock, index_tags: str
) -> None:
    """The keys, tags and topics have hashes that collide."""
    with open_at(fs, clock, indexTags=index_tags) as store:
        for topic in ("tAa", "tBB"):
            store.create_topic(topic, 1)
            for word in ("Aa", "BB"):
                record = Record(None, f"{topic} {word}".encode(), tag=word, lookup_keys=[word])
                store.append(queue(0, topic), [record])
        for asked in searches({"key": "BB"}, {"tag": "BB"}):
            for topic in ("tAa", "tBB"):
                (found,) = store.find(topic, **asked).records
                assert found[1].value == f"{topic} BB".encode()


@pytest.mark.parametrize("scan", [False, True])
def test_nothing_is_no_key(store: LogStore, scan: bool) -> None:
    store.append(queue(0), [Record(None, b"value 1")])
    for asked in searches({"key": ""}, {"key": b"\xff"}, {"unique_id": ""}, {"tag": ""}):
        assert numbers(store.find("events", scan=scan, **asked)) == []


def test_a_unit_that_points_to_another_queue_is_told(
    fs: OverlayFileSystem, store: LogStore
) -> None:
    fill(store, 6)
    store.checkpoint()  # by now all queue entries are written
    units = PATH / "consumequeue" / "events" / "0" / f"{0:020}"
    others = PATH / "consumequeue" / "others" / "0" / f"{0:020}"
    put(fs, units, fs.read_bytes(others)[20:40], 20)
    page = store.find("events")
    assert numbers(page) == [0, 1, 2]
    with pytest.raises(Corrupt, match="another queue") as caught:
        store.find("events", cursor=page.cursor)
    assert caught.value.facts()["offset"] == 1
    assert numbers(store.find("events", cursor=str(caught.value.facts()["cursor"]))) == [4, 5]
    assert numbers(store.find("events", key="own-1")) == [1]


@pytest.mark.parametrize("scan", [False, True])
@pytest.mark.parametrize("key", ["shared-3", None])
def test_store_times_are_compared_exactly_also_backward_ones(
    store: LogStore, clock: Clock, key: str | None, scan: bool
) -> None:
    """The index keeps seconds, and no time before the first time of its file."""
    times = [MS + 5000, MS + 5999, MS + 6000, MS + 1, MS + 6001, MS - 99_999, MS + 9000, MS + 5999]
    for n, time_ms in enumerate(times * 4):
        clock.now_ms, clock.step_ms = time_ms, 0
        record = Record(b"k", f"value {n}".encode(), (), MS, lookup_keys=["shared-3"])
        store.append(queue(n % 3), [record])
    stored = [record.store_timestamp_ms for _, record in store.find("events", limit=100).records]
    assert stored == times * 4
    for from_ms, to_ms in [
        (MS + 5999, MS + 6000),
        (MS + 6001, MS + 6001),
        (MS - 99_999, MS + 1),
        (None, MS),
        (MS + 6001, None),
        (MS + 9001, None),
        (MS + 6000, MS + 5999),
    ]:
        wanted = [
            n
            for n, time_ms in enumerate(times * 4)
            if (from_ms is None or time_ms >= from_ms) and (to_ms is None or time_ms <= to_ms)
        ]
        assert find_all(store, key=key, from_ms=from_ms, to_ms=to_ms, scan=scan) == wanted


def raw(store: LogStore, target: TopicPartition, sys_flag: int = 0, **properties: str) -> None:
    assert isinstance(store, SupportsRawMessages)
    message = RawMessage(
        body=b"value 1", properties=encode_properties(properties), sys_flag=sys_flag
    )
    store.append_messages(target, [message])


@pytest.mark.parametrize("scan", [False, True])
def test_what_is_in_no_queue_is_not_found(store: LogStore, scan: bool) -> None:
    """Prepared messages are in the index only, rolled back messages in neither index nor queue."""
    for sys_flag in (4, 12, 8, 0):
        raw(store, queue(0), sys_flag, KEYS="k", UNIQ_KEY="u", TAGS="t")
    for asked in searches({"key": "k"}, {"unique_id": "u"}, {"tag": "t"}, {}):
        found = store.find("events", scan=scan, **asked)
        assert [record.offset for _, record in found.records] == [0, 1]


def test_a_tag_in_the_schedule_topic(store: LogStore) -> None:
    """The queue entries of this topic hold times instead of tag hashes."""
    raw(store, queue(2, SCHEDULE_TOPIC), DELAY="3", TAGS="red", KEYS="k")
    raw(store, queue(2, SCHEDULE_TOPIC), DELAY="3", TAGS="blue", KEYS="k")
    for tag, offset in (("red", 0), ("blue", 1)):
        ((number, record),) = store.find(SCHEDULE_TOPIC, tag=tag).records
        assert (number, record.offset) == (2, offset)


def test_keys_that_repeat_are_found_once(store: LogStore) -> None:
    raw(store, queue(0), KEYS="k k  j k")
    assert [r.offset for _, r in store.find("events", key="k").records] == [0]


@pytest.mark.parametrize("backward", [False, True])
def test_records_larger_than_what_is_read_at_once(clock: Clock, backward: bool) -> None:
    """Both directions are read, with large records next to small ones, across the ends of files."""
    fs = OverlayFileSystem()
    with open_at(fs, clock, mappedFileSizeCommitLog="400000") as store:
        store.create_topic("events", 2)
        sizes = [10, 70_000, 10, 10, 150_000, 64 << 10, 3, 200_000, 10, 300_000, 1]
        for n, size in enumerate(sizes):
            store.append(queue(n % 2), [Record(b"k", b"v" * size)])
        for asked in searches({}, {"key": "k"}):
            page = store.find("events", backward=backward, max_bytes=1 << 30, **asked)
            found = [len(record.value or b"") for _, record in page.records]
            assert found == sizes[:: -1 if backward else 1]


def test_the_cursor_is_a_place_in_the_log(store: LogStore) -> None:
    """Records that are appended to any queue between two pages do not change the results among the older records."""
    fill(store, 20)
    for backward in (False, True):
        first = store.find("events", limit=5, backward=backward)
        fill(store, 2)
        rest = store.find("events", limit=100, cursor=first.cursor, backward=backward)
        found = numbers(first) + numbers(rest)
        old = list(range(20))
        assert found[-20:] == old[::-1] if backward else found[:20] == old


@pytest.mark.parametrize("cursor", ["log:", "log:-1", "log:x", "0:5", "log:" + "9" * 30, "-log:1"])
def test_other_text_is_no_cursor(store: LogStore, cursor: str) -> None:
    with pytest.raises(InvalidArgument) as refused:
        store.find("events", cursor=cursor)
    assert refused.value.facts()["field"] == "cursor"


def damage(fs: OverlayFileSystem, at: int) -> None:
    """Flip a bit in the body of the record at a physical offset."""
    base = at - at % 4096
    path = PATH / "commitlog" / f"{base:020}"
    body = at - base + 88  # the position of a body when both hosts are IPv4
    byte = fs.read_bytes(path)[body]
    put(fs, path, bytes([byte ^ 1]), body)


def place_of(store: LogStore, key: str) -> int:
    """Return the physical offset of the record with this key."""
    ((number, record),) = store.find("events", key=key).records
    return physical_offset(store, queue(number), record)


@pytest.mark.parametrize("backward", [False, True])
@pytest.mark.parametrize("limit", [1, 3, 100])
@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ({"key": "own-7"}, []),
        ({"key": "shared-2"}, [2, 12, 17]),
        ({"key": "shared-2", "scan": True}, [2, 12, 17]),
        ({"tag": "blue"}, [n for n in range(20) if n % 4 and n != 7]),
        ({}, [n for n in range(20) if n != 7]),
    ],
)
def test_a_damaged_record_is_told_once_and_passed_with_its_cursor(
    fs: OverlayFileSystem, store: LogStore, asked: Any, expected: Any, limit: int, backward: bool
) -> None:
    """Records found before the damage come first; the cursor in the error leads to the rest."""
    fill(store, 20)
    at = place_of(store, "own-7")
    damage(fs, at)
    found: list[int] = []
    reported = []
    cursor = None
    for _ in range(60):
        try:
            page = store.find("events", limit=limit, cursor=cursor, backward=backward, **asked)
        except Corrupt as error:
            reported.append(error.facts())
            cursor = str(reported[-1]["cursor"])
            continue
        found += numbers(page)
        cursor = page.cursor
        if page.complete:
            break
    assert found == expected[:: -1 if backward else 1]
    (facts,) = reported
    assert facts["position"] == at % 4096
    assert str(facts["path"]).endswith(f"{at - at % 4096:020}")
    named = [facts[name] for name in ("topic", "partition", "offset", "next_good_offset")]
    assert named == ["events", 1, 2, 3]
    assert as_api_error(Corrupt("", **facts)).facts["cursor"] == facts["cursor"]


def test_nothing_lies_before_the_log_s_first_record(fs: OverlayFileSystem, store: LogStore) -> None:
    """A backward search has no cursor past the first record."""
    store.append(queue(0), [Record(b"k", b"value 1" * 20)])
    damage(fs, 0)
    for asked in searches({}, {"key": "k"}):
        with pytest.raises(Corrupt) as caught:
            store.find("events", backward=True, **asked)
        assert caught.value.facts()["cursor"] is None
        assert "cursor" not in as_api_error(caught.value).facts


def test_entries_that_lead_nowhere_are_passed_over(store: LogStore) -> None:
    """The real store does not cut its index with the log: entries may point into later records."""
    fill(store, 9)
    assert isinstance(store, RocketMQStore)
    assert store.index is not None
    at = place_of(store, "own-8")
    for place in (at, at + 3, at + 4, store.log.end + 100, 1 << 40):
        store.index.put_strings(STRING.pack(key_hash("events#own-2"), place, MS))
    assert numbers(store.find("events", key="own-2")) == [2]
    assert numbers(store.find("events", key="own-2", backward=True)) == [2]


@pytest.mark.parametrize("backward", [False, True])
def test_an_index_that_lacks_the_older_records(
    fs: OverlayFileSystem, clock: Clock, backward: bool
) -> None:
    """Records before the first index file are scanned, in pages like the rest."""
    with open_at(fs, clock) as store:
        store.create_topic("events", 3)
        store.create_topic("others", 2)
        fill(store, 40)
    names = fs.list_dir(PATH / "index")
    for name in names[: len(names) // 2]:
        fs.remove(PATH / "index" / name)
    with open_at(fs, clock) as store:
        for key, wanted in (("shared-3", range(3, 40, 5)), ("own-0", [0]), ("own-39", [39])):
            for limit in (1, 3, 100):
                found = find_all(store, key=key, limit=limit, backward=backward)
                assert found == list(wanted)[:: -1 if backward else 1]
        assert store.find("events", key="own-39", backward=True, limit=1).scanned == 1


def test_an_index_file_that_cannot_be_read_is_no_reason_to_miss_records(
    fs: OverlayFileSystem, clock: Clock
) -> None:
    with open_at(fs, clock) as store:
        store.create_topic("events", 3)
        store.create_topic("others", 2)
        fill(store, 40)
    name = fs.list_dir(PATH / "index")[3]
    put(fs, PATH / "index" / name, bytes(500))
    with open_at(fs, clock, read_only=True) as store:
        page = store.find("events", key="shared-3")
        assert (numbers(page), page.indexed) == (list(range(3, 40, 5)), False)
    with open_at(fs, clock) as store:
        page = store.find("events", key="shared-3")
        assert (numbers(page), page.indexed) == (list(range(3, 40, 5)), True), "it was rebuilt"
        fill(store, 4)
        assert numbers(store.find("events", key="own-3")) == [3, 3]


def test_by_id(store: LogStore) -> None:
    fill(store, 9)
    for number, record in store.find("events").records:
        record_id = store.record_id(queue(number), record.locator)
        assert store.find_by_id(record_id) == (queue(number), record)
        host, place = record_id[:16], record_id[16:]
        for other in (
            f"7F000001{0:08X}{place}",  # another port
            f"{host}{int(place, 16) + 1:016X}",  # inside the record
            f"{host}{1 << 40:016X}",
            record_id + "0",
        ):
            with pytest.raises(RecordNotFound) as refused:
                store.find_by_id(other)
            assert refused.value.facts()["id"] == other


def test_records_of_a_topic_made_again(store: LogStore) -> None:
    """The deleted records are still in the log, and are not found."""
    fill(store, 9)
    old = store.find("events", key="own-3").records[0]
    old_id = store.record_id(queue(old[0]), old[1].locator)
    store.delete_topic("events")
    with pytest.raises(RecordNotFound):
        store.find_by_id(old_id)
    store.create_topic("events", 3)
    assert numbers(store.find("events", key="own-3")) == []
    assert numbers(store.find("events")) == []
    store.append(queue(0), [Record(b"own-3", b"value 99")])
    assert numbers(store.find("events", key="own-3")) == [99]
    assert numbers(store.find("events", scan=True)) == [99]
    with pytest.raises(RecordNotFound):
        store.find_by_id(old_id)


def test_what_is_not_published_is_not_found(store: LogStore) -> None:
    """A record that waits for its flush is already in the index."""
    store.append(queue(0), [Record(b"k", b"value 1")], publish=False)
    for asked in searches({"key": "k"}, {}):
        assert numbers(store.find("events", **asked)) == []
    store.flush()
    for asked in searches({"key": "k"}, {}):
        assert numbers(store.find("events", **asked)) == [1]


def test_after_reopening(fs: OverlayFileSystem, clock: Clock) -> None:
    with open_at(fs, clock) as store:
        store.create_topic("events", 3)
        store.create_topic("others", 2)
        fill(store, 30)
    with open_at(fs, clock) as store:
        fill(store, 1)
        assert find_all(store, key="shared-0", limit=2) == [0, 5, 10, 15, 20, 25, 0]
        assert find_all(store, tag="red", backward=True) == [0, 28, 24, 20, 16, 12, 8, 4, 0]
