"""Prompt reads of a partition: they return what other reads return, and read nothing that is not in memory."""

from __future__ import annotations

from pathlib import Path

import pytest

from storage import Isolation, Record, prompt_batches_of
from storage.errors import Corrupt, OffsetOutOfRange, UnknownPartition, UnknownTopic
from storage.files import (
    PROMPT_BATCHES,
    PROMPT_READ_BYTES,
    File,
    FileSystem,
    OverlayFileSystem,
    RealFileSystem,
)
from storage.kafka.format.txn_index import AbortedTransaction
from storage.kafka.log.segment import PROMPT_ABORTED
from storage.kafka.store import KafkaStore
from storage.model import TopicPartition
from storage.prompt import BatchView
from storage.transactions import PartitionMarker
from tests.robustness.crash.relay import Relay, RelayFile
from tests.unit.kafka.log.batches import data_batch
from tests.unit.kafka.workshop import T0, Workshop, put_value

SMALL_SEGMENTS = {"internal.segment.bytes": "2000", "log.index.interval.bytes": "100"}
PLAIN, COMMITTED = Isolation.READ_UNCOMMITTED, Isolation.READ_COMMITTED


class PageCache(Relay):
    """A disk whose page cache has every byte, except those at `cold_from` and after it."""

    def __init__(self, fs: FileSystem) -> None:
        super().__init__(fs)
        self.cold_from = 1 << 62
        self.opens = 0
        self.reads = 0

    def step(self, operation: str, path: Path) -> None:
        self.opens += operation == "open"

    def wrap(self, file: File) -> File:
        return CachedBytes(self, file)


class CachedBytes(RelayFile):
    """A file of a `PageCache`."""

    def __init__(self, cache: PageCache, file: File) -> None:
        super().__init__(cache, file)
        self._cache = cache

    def pread(self, size_bytes: int, position: int) -> bytes:
        self._cache.reads += 1
        return super().pread(size_bytes, position)

    def pread_cached(self, size_bytes: int, position: int) -> bytearray | None:
        data = bytearray(super().pread(size_bytes, position))
        is_cached = len(data) == size_bytes and position + size_bytes <= self._cache.cold_from
        return data if is_cached else None


@pytest.fixture
def cache() -> PageCache:
    return PageCache(OverlayFileSystem())


@pytest.fixture
def shop(cache: PageCache) -> Workshop:
    return Workshop(cache)


def prompt(
    store: KafkaStore, offset: int, max_bytes: int = 1 << 20, isolation: Isolation = PLAIN
) -> BatchView | None:
    return store.read_batches_promptly(T0, offset, max_bytes=max_bytes, isolation=isolation)


def the_same(
    store: KafkaStore, offset: int, max_bytes: int, isolation: Isolation
) -> BatchView | None:
    """Return a prompt read, which is compared with an ordinary one."""
    found = prompt(store, offset, max_bytes, isolation)
    wanted = store.read_batches(T0, offset, max_bytes=max_bytes, isolation=isolation)
    assert type(wanted.data) is bytes
    if found is not None:
        assert (bytes(found.data), *found[1:]) == wanted
    return found


@pytest.mark.parametrize("isolation", [PLAIN, COMMITTED])
def test_every_offset_of_many_segments(
    shop: Workshop, cache: PageCache, isolation: Isolation
) -> None:
    store = shop.open_with_topic(SMALL_SEGMENTS)
    for number in range(120):
        put_value(store, b"%d" % number)
    for max_bytes in (1, 100, 250, 1900, 1 << 20):
        for offset in range(121):
            found = the_same(store, offset, max_bytes, isolation)
            if isolation is PLAIN or offset >= shop.bases()[-1]:
                assert found is not None
    for offset in range(121):
        cache.reads = cache.opens = 0
        prompt(store, offset, 1000, isolation)
        assert (cache.reads, cache.opens) == (0, 0)


def test_bytes_that_are_not_in_memory(shop: Workshop, cache: PageCache) -> None:
    store = shop.open_with_topic()
    for _ in range(10):
        put_value(store, bytes(100))
    size_bytes = len(store.read_batches(T0, 0).data)
    for cache.cold_from in range(0, size_bytes, 7):
        assert prompt(store, 0) is None
        assert prompt(store, 10) is not None  # there is nothing to read
    cache.cold_from = size_bytes
    assert prompt(store, 0) is not None


def test_a_file_system_that_does_not_know() -> None:
    shop = Workshop()
    store = shop.open_with_topic()
    put_value(store, b"a")
    assert prompt(store, 0) is None
    assert the_same(store, 1, 1 << 20, PLAIN) is not None


def test_files_and_indexes_that_are_not_open(shop: Workshop, cache: PageCache) -> None:
    """An ordinary read opens and loads them; after that, the read needs no wait."""
    store = shop.open_with_topic(SMALL_SEGMENTS)
    for number in range(60):
        put_value(store, b"%d" % number)
    store.close()
    store = shop.open(SMALL_SEGMENTS)
    cache.opens = 0
    assert prompt(store, 0) is None
    assert cache.opens == 0
    store.read_batches(T0, 0)
    assert the_same(store, 0, 100, PLAIN) is not None


def test_a_long_read_is_for_a_thread(shop: Workshop) -> None:
    store = shop.open_with_topic({"message.max.bytes": "4000000"})
    for _ in range(3):
        store.append(T0, [Record(None, bytes(400_000))])
    store.append(T0, [Record(None, bytes(2_000_000))])
    assert prompt(store, 0, PROMPT_READ_BYTES + 1) is None
    assert the_same(store, 0, PROMPT_READ_BYTES, PLAIN) is not None
    assert prompt(store, 3, PROMPT_READ_BYTES) is None  # the first batch is returned whole
    assert prompt(store, 4, 1 << 30) is not None


def test_many_small_batches_are_for_a_thread(shop: Workshop) -> None:
    """A megabyte of them takes 60 ms."""
    store = shop.open_with_topic()
    for _ in range(PROMPT_BATCHES + 10):
        put_value(store, b"v")
    assert prompt(store, 0) is None
    assert the_same(store, 100, 1 << 20, PLAIN) is not None
    assert the_same(store, 0, 10_000, PLAIN) is not None


def test_many_segments_are_for_a_thread(shop: Workshop) -> None:
    """The limit of bytes is that of all segments together; at the end of one, the next may have a batch too long."""
    store = shop.open_with_topic({"internal.segment.bytes": "500000"})
    for _ in range(10):
        put_value(store, bytes(400_000))
    assert len(shop.bases()) == 10
    assert prompt(store, 0, 16 << 20) is None
    for max_bytes in (1, 800_200, PROMPT_READ_BYTES):
        assert the_same(store, 0, max_bytes, PLAIN) is not None


def test_many_aborted_transactions_are_for_a_thread(shop: Workshop) -> None:
    store = shop.open_with_topic()
    put_value(store, b"a")
    index = store.partition(T0).segments()[0].txn_index
    for count in (PROMPT_ABORTED, PROMPT_ABORTED + 1):
        index.hold([AbortedTransaction(7, 0, 0, 1)] * count)
        found = the_same(store, 0, 1000, COMMITTED)
        assert (found is None) == (count > PROMPT_ABORTED)


def test_few_other_bytes_stay_in_memory(shop: Workshop) -> None:
    store = shop.open_with_topic()
    for size in (1000, 300_000, 1000):
        put_value(store, bytes(size))
    for max_bytes in (1000, 200_000, 302_000, 1 << 20):
        found = prompt(store, 0, max_bytes)
        assert found is not None
        data = found.data
        held_bytes = data.__alloc__() if isinstance(data, bytearray) else len(data)
        assert held_bytes <= len(data) + (64 << 10)


def test_damage_is_for_a_thread(shop: Workshop) -> None:
    """It raises the error there; batches before the damage need none."""
    store = shop.open_with_topic()
    ends = [put_value(store, b"v" * 50).base_offset for _ in range(3)]
    size_bytes = len(store.read_batches(T0, 2).data)
    shop.overwrite(size_bytes + 70, b"\xff")
    assert prompt(store, ends[1]) is None
    with pytest.raises(Corrupt):
        store.read_batches(T0, ends[1])
    assert the_same(store, 0, 1 << 20, PLAIN) is not None


def test_errors_are_those_of_other_reads(shop: Workshop) -> None:
    store = shop.open_with_topic()
    put_value(store, b"a")
    with pytest.raises(OffsetOutOfRange):
        prompt(store, 2)
    for address, error in ((("none", 0), UnknownTopic), (("t", 1), UnknownPartition)):
        with pytest.raises(error):
            store.read_batches_promptly(TopicPartition(*address), 0, max_bytes=1, isolation=PLAIN)


def test_aborted_transactions_are_named(shop: Workshop) -> None:
    """After a start their index is not in memory: an ordinary read loads it."""
    store = shop.open_with_topic()
    for number, commit in enumerate((True, False, True)):
        now_ms = shop.clock.now_ms  # else the markers begin a new segment
        data = data_batch(times_ms=(now_ms,), producer=(7, 0, number), transactional=True)
        store.append_batches(T0, data)
        put_marker(store, commit=commit)
    found = the_same(store, 0, 1 << 20, COMMITTED)
    assert found is not None
    assert [aborted.first_offset for aborted in found.aborted] == [2]
    store.close()
    store = shop.open()
    assert prompt(store, 0, isolation=COMMITTED) is None
    assert the_same(store, 0, 1 << 20, COMMITTED) is None
    assert the_same(store, 0, 1 << 20, COMMITTED) is not None


def put_marker(store: KafkaStore, *, commit: bool) -> None:
    marker = PartitionMarker(7, 0, commit, 0)
    store.partition(T0).append_markers([marker], publish=True, are_checked=False)


def test_the_disk_itself(tmp_path: Path) -> None:
    """The kernel may have any bytes in memory or not; what a read returns is the same."""
    path, data = tmp_path / "f", bytes(range(256)) * 1000
    fs = RealFileSystem()
    file = fs.open(path, create=True)
    file.pwrite(data, 0)
    for position, size_bytes in ((0, 10), (5000, 200_000), (0, len(data)), (len(data), 0)):
        found = file.pread_cached(size_bytes, position)
        assert found is None or found == data[position : position + size_bytes]
    assert file.pread_cached(10, len(data) - 9) is None
    file.close()
    assert file.pread_cached(10, 0) is None


def test_only_a_store_of_batches_has_such_reads(shop: Workshop) -> None:
    store = shop.open_with_topic()
    assert prompt_batches_of(store) is store
