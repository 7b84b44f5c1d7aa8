"""Prompt appends of a store: they store what other appends store, and never create, close or sync a file."""

from __future__ import annotations

import errno
import threading

import pytest

from storage import Record, SupportsPromptAppend, TopicPartition
from storage.errors import (
    DiskFull,
    StoreClosed,
    StoreFenced,
    StoreReadOnly,
    UnrepresentableRecord,
)
from storage.files import OverlayFileSystem
from storage.rocketmq.format.names import SCHEDULE_TOPIC
from storage.rocketmq.index import dispatcher
from storage.rocketmq.store import RocketMQStore
from tests.unit.files.guarded import Watched, failing
from tests.unit.rocketmq.workshop import T0, Workshop, put_value, values

LOG = "00000000000000000000"


@pytest.fixture
def watched() -> Watched:
    return Watched(OverlayFileSystem())


@pytest.fixture
def shop(watched: Watched) -> Workshop:
    return Workshop(watched)


def put_promptly(store: RocketMQStore, value: bytes) -> int | None:
    """Append a value; return its offset, or None if the append needs a wait."""
    result = store.append_promptly(T0, [Record(None, value)])
    return None if result is None else result.base_offset


def test_only_bytes_are_handed_to_the_kernel(shop: Workshop, watched: Watched) -> None:
    """Over many files of the log; whatever cannot be done promptly changes nothing at all."""
    store = shop.open_with_topic()
    assert isinstance(store, SupportsPromptAppend)
    refused = 0
    for number in range(200):
        value = b"%d" % number
        watched.log.clear()
        before = shop.log_bases()
        if put_promptly(store, value) is None:
            assert watched.log == []
            refused += 1
            put_value(store, value)
        else:
            assert {step for step, _ in watched.log} == {"write"}
            assert shop.log_bases() == before
    assert len(shop.log_bases()) > 3
    assert (
        refused == len(shop.log_bases()) - 1
    )  # the first append, and one for each roll; one file is spare
    assert values(store) == [b"%d" % number for number in range(200)]
    store.close()
    assert values(shop.open()) == [b"%d" % number for number in range(200)]


def test_the_result_is_that_of_other_appends(shop: Workshop) -> None:
    store = shop.open_with_topic()
    put_value(store, b"a")
    prompt = store.append_promptly(T0, [Record(b"k", b"v"), Record(b"k", b"v")])
    other = store.append(T0, [Record(b"k", b"v"), Record(b"k", b"v")])
    assert prompt is not None
    assert prompt._replace(base_offset=3, last_offset=4, locators=other.locators) == other
    page = store.read(T0, 0)
    stored = [(record.offset, record.locator) for record in page.records][1:]
    assert stored == list(enumerate((*prompt.locators, *other.locators), 1))
    found = store.find("t", key="k")
    assert [record.offset for _, record in found.records] == [1, 2, 3, 4]


def test_no_thread_is_waited_for(shop: Workshop, watched: Watched) -> None:
    store = shop.open_with_topic()
    put_value(store, b"a")
    begun, end = threading.Event(), threading.Event()

    def hold() -> None:
        begun.set()
        assert end.wait(30)

    watched.before["write", LOG] = hold
    other = threading.Thread(target=put_value, args=(store, b"b"))
    other.start()
    assert begun.wait(30)
    try:
        assert put_promptly(store, b"c") is None
    finally:
        end.set()
        other.join()
    assert put_promptly(store, b"c") == 2


def test_records_that_wait_for_their_queues_need_a_wait(
    shop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The append after too many builds queues and index first."""
    store = shop.open_with_topic()
    put_value(store, b"a")
    monkeypatch.setattr(dispatcher, "PENDING_APPENDS", 2)
    assert [put_promptly(store, b"b"), put_promptly(store, b"c")] == [1, None]
    put_value(store, b"c")
    assert put_promptly(store, b"d") == 3


def test_a_disk_that_must_be_asked_needs_a_wait(shop: Workshop) -> None:
    store = shop.open_with_topic({"diskSpaceWarningLevelRatio": "99"})
    put_value(store, b"a")
    assert put_promptly(store, b"b") == 1
    shop.clock.now_ms += 60_000
    assert put_promptly(store, b"c") is None


def test_no_file_is_closed_for_an_append(shop: Workshop) -> None:
    """Closing another file may sync it."""
    store = shop.open(open_files=1)
    store.create_topic("t", 1)
    put_value(store, b"a")
    assert values(store) == [b"a"]
    with store.files.run.files.borrow(store.queue(T0).units.run.path(0)):
        pass
    assert put_promptly(store, b"b") is None
    put_value(store, b"b")
    assert put_promptly(store, b"c") == 2


def test_what_has_no_queue_needs_a_wait(shop: Workshop) -> None:
    """The thread then finds the error, or creates the queue of a delay level."""
    store = shop.open_with_topic()
    for partition in (
        TopicPartition("none", 0),
        TopicPartition("t", 99),
        TopicPartition(SCHEDULE_TOPIC, 3),
    ):
        assert store.append_promptly(partition, [Record(None, b"a")]) is None


def test_errors_are_those_of_other_appends(shop: Workshop) -> None:
    store = shop.open_with_topic()
    put_value(store, b"a")
    with pytest.raises(UnrepresentableRecord):
        store.append_promptly(T0, [Record(None, None)])
    assert store.bounds(T0).end == 1
    store.close()
    read_only = shop.open(read_only=True)
    for closed, expected in ((store, StoreClosed), (read_only, StoreReadOnly)):
        with pytest.raises(expected):
            put_promptly(closed, b"b")


def test_a_failed_write_fences_the_store(shop: Workshop, watched: Watched) -> None:
    store = shop.open_with_topic()
    put_value(store, b"a")
    watched.before["write", LOG] = failing(errno.EIO)
    for _ in range(2):
        with pytest.raises(StoreFenced):
            put_promptly(store, b"b")
    assert store.bounds(T0).end == 1


def test_a_full_disk_leaves_nothing(shop: Workshop, watched: Watched) -> None:
    store = shop.open_with_topic()
    put_value(store, b"a")
    watched.before["write", LOG] = full
    with pytest.raises(DiskFull):
        put_promptly(store, b"b")
    assert put_promptly(store, b"c") == 1
    assert values(store) == [b"a", b"c"]


def full() -> None:
    raise DiskFull("no space", path="/f", operation="write", errno=errno.ENOSPC)
