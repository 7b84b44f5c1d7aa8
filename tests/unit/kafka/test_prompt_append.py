"""Prompt appends of a partition: they store what other appends store, and never create or sync a file."""

from __future__ import annotations

import errno
import threading

import pytest

from storage import AppendResult, Record, SupportsPromptAppend, TopicPartition
from storage.errors import (
    DiskFull,
    InvalidBatch,
    NotOffered,
    StoreClosed,
    StoreFenced,
    StoreReadOnly,
    UnrepresentableRecord,
)
from storage.files import OverlayFileSystem
from storage.kafka.format.batch import encode_batch
from storage.kafka.store import KafkaStore
from tests.unit.files.guarded import Watched, failing
from tests.unit.kafka.log.batches import data_batch, lying, marker
from tests.unit.kafka.workshop import T0, Workshop, only_partition, put_value, values

PROMPT_STEPS = {"open", "close", "write", "truncate"}  # a file open for reading is opened again
SMALL_SEGMENTS = {"internal.segment.bytes": "2000", "log.index.interval.bytes": "100"}


@pytest.fixture
def watched() -> Watched:
    return Watched(OverlayFileSystem())


@pytest.fixture
def shop(watched: Watched) -> Workshop:
    return Workshop(watched)


def put_promptly(store: KafkaStore, value: bytes) -> int | None:
    """Append a value; return its offset, or None if the append needs a wait."""
    result = store.append_promptly(T0, [Record(None, value)])
    return None if result is None else result.base_offset


def test_only_bytes_are_handed_to_the_kernel(shop: Workshop, watched: Watched) -> None:
    """Over many segments and index entries, whatever cannot be done promptly changes nothing at all."""
    store = shop.open_with_topic(SMALL_SEGMENTS)
    assert isinstance(store, SupportsPromptAppend)
    refused = 0
    for number in range(200):
        value = b"%d" % number
        watched.log.clear()
        before = shop.names()
        if put_promptly(store, value) is None:
            assert watched.log == []
            refused += 1
            put_value(store, value)
        else:
            assert {step for step, _ in watched.log} <= PROMPT_STEPS
            assert shop.names() == before
    assert len(shop.bases()) > 3
    assert refused == len(shop.bases()) - 1  # one for each roll
    assert values(store) == [b"%d" % number for number in range(200)]
    store.close()
    assert values(shop.open()) == [b"%d" % number for number in range(200)]


def test_the_bytes_are_those_of_other_appends() -> None:
    logs = []
    for prompt in (True, False):
        shop = Workshop()
        store = shop.open_with_topic()
        for value in (b"a", b"b" * 5000, b"c"):
            if prompt:
                assert put_promptly(store, value) is not None
            else:
                put_value(store, value)
        store.close()
        logs.append([shop.bytes_of(0, suffix) for suffix in (".log", ".index", ".timeindex")])
    assert logs[0] == logs[1]


def test_the_first_append_of_a_start_needs_a_wait(shop: Workshop) -> None:
    """It makes the leader epoch durable, and may read and mend the index files."""
    with shop.open_with_topic() as store:
        put_value(store, b"a")
    store = shop.open()
    assert put_promptly(store, b"b") is None
    put_value(store, b"b")
    assert put_promptly(store, b"c") == 2


def test_no_thread_is_waited_for(shop: Workshop, watched: Watched) -> None:
    store = shop.open_with_topic()
    put_value(store, b"a")
    begun, end = threading.Event(), threading.Event()

    def hold() -> None:
        begun.set()
        assert end.wait(30)

    watched.before["write", "00000000000000000000.log"] = hold
    other = threading.Thread(target=put_value, args=(store, b"b"))
    other.start()
    assert begun.wait(30)
    try:
        assert put_promptly(store, b"c") is None
    finally:
        end.set()
        other.join()
    assert put_promptly(store, b"c") == 2


def test_batches_of_clients_are_those_of_other_appends(watched: Watched) -> None:
    """Plain, compressed, sequenced and sent again, with a wrong largest time, over several segments."""
    batches = [
        data_batch(value=b"a" * 900),
        data_batch(value=b"b" * 900, producer=(7, 0, 0)),
        data_batch(value=b"b" * 900, producer=(7, 0, 0)),
        lying(data_batch(value=b"c"), max_timestamp=5),
        encode_batch(
            [Record(None, b"d" * 900)] * 3, base_offset=0, leader_epoch=-1, now_ms=1000, codec=1
        ),
        data_batch(value=b"e" * 900),
    ]
    logs, results = [], []
    for prompt in (True, False):
        shop = Workshop(watched) if prompt else Workshop()
        store = shop.open_with_topic(SMALL_SEGMENTS)
        answers: list[AppendResult] = []
        refused = 0
        for batch in batches:
            watched.log.clear()
            done = store.append_batches_promptly(T0, batch) if prompt else None
            if prompt and done is None:
                assert watched.log == []
                refused += 1
            elif prompt:
                assert {step for step, _ in watched.log} <= PROMPT_STEPS
            answers.append(done or store.append_batches(T0, batch, client=True))
        assert refused == (len(shop.bases()) - 1 if prompt else 0)
        assert len(shop.bases()) > 1
        store.close()
        logs.append([shop.bytes_of(base, ".log") for base in shop.bases()])
        results.append(answers)
    assert logs[0] == logs[1]
    assert results[0] == results[1]
    assert [answer.duplicate for answer in results[0]].count(True) == 1


def test_batches_that_no_log_takes_are_refused(shop: Workshop) -> None:
    store = shop.open_with_topic()
    put_value(store, b"a")
    wrong = bytearray(data_batch())
    wrong[-1] ^= 1
    for data, expected in (
        (bytes(wrong), InvalidBatch),
        (marker(0, 7, commit=True), NotOffered),
        (data_batch(producer=(7, 0, 0), transactional=True), NotOffered),
    ):
        with pytest.raises(expected):
            store.append_batches_promptly(T0, data)
    assert only_partition(store).next_offset == 1


def test_compression_needs_a_wait(shop: Workshop) -> None:
    store = shop.open_with_topic()
    assert put_promptly(store, b"a") == 0
    store.alter_topic("t", {"compression.type": "gzip"})
    assert put_promptly(store, b"b") is None


def test_no_file_is_closed_for_an_append(shop: Workshop) -> None:
    """Closing another file may sync it."""
    store = shop.open(open_files=1)
    store.create_topic("t", 2)
    put_value(store, b"a")
    put_value(store, b"other", TopicPartition("t", 1))
    assert put_promptly(store, b"b") is None
    assert values(store) == [b"a"]


def test_errors_are_those_of_other_appends(shop: Workshop) -> None:
    store = shop.open_with_topic()
    put_value(store, b"a")
    with pytest.raises(UnrepresentableRecord):
        store.append_promptly(T0, [Record(None, b"b", properties={"p": "1"})])
    assert only_partition(store).next_offset == 1
    store.close()
    read_only = shop.open(read_only=True)
    for closed, expected in ((store, StoreClosed), (read_only, StoreReadOnly)):
        with pytest.raises(expected):
            put_promptly(closed, b"b")


def test_a_failed_write_fences_the_store(shop: Workshop, watched: Watched) -> None:
    store = shop.open_with_topic()
    put_value(store, b"a")
    watched.before["write", "00000000000000000000.log"] = failing(errno.EIO)
    for _ in range(2):
        with pytest.raises(StoreFenced):
            put_promptly(store, b"b")
    assert store.bounds(T0).end == 1


def test_a_full_disk_leaves_nothing(shop: Workshop, watched: Watched) -> None:
    store = shop.open_with_topic()
    put_value(store, b"a")
    watched.before["write", "00000000000000000000.log"] = full
    with pytest.raises(DiskFull):
        put_promptly(store, b"b")
    assert put_promptly(store, b"c") == 1
    assert values(store) == [b"a", b"c"]


def full() -> None:
    raise DiskFull("no space", path="/f", operation="write", errno=errno.ENOSPC)


def test_a_log_that_is_open_needs_no_room(shop: Workshop) -> None:
    """When as many files are open as may be, appends to those that are open for writing are prompt as before."""
    store = shop.open(open_files=4)
    store.create_topic("t", 6)
    for number in (1, 2, 3, 4, 5, 0):
        put_value(store, b"first", TopicPartition("t", number))
    assert store.stats().open_files == 4
    assert put_promptly(store, b"next") == 1
    assert store.append_promptly(TopicPartition("t", 1), [Record(None, b"next")]) is None
