"""Many threads on a store: order, density and visibility are kept."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest

from storage.contract import LogStore
from storage.model import ProducerSequence, Record, TopicPartition
from tests.contract.harness import StoreFactory, read_all, texts

WRITERS = 8
APPENDS = 60
NEW_PRODUCERS = 600
DEADLINE_S = 600  # only a hanging test takes so long

pytestmark = pytest.mark.usefixtures("quick_turns")


@pytest.fixture
def store(disk_factory: StoreFactory) -> LogStore:
    """An open, empty, writable store on the real disk."""
    return disk_factory.open()


def together(*works: Callable[[], None]) -> None:
    """Run each work in its own thread, all started at the same moment; raise the first failure."""
    barrier = threading.Barrier(len(works))

    def begin(work: Callable[[], None]) -> None:
        barrier.wait(DEADLINE_S)
        work()

    with ThreadPoolExecutor(len(works)) as threads:
        for future in [threads.submit(begin, work) for work in works]:
            future.result(DEADLINE_S)


def write(store: LogStore, partitions: list[TopicPartition], writer: int) -> None:
    """Append to each partition in turn, one to three records at once; every fourth append is held and then flushed."""
    for turn in range(APPENDS):
        partition = partitions[(writer + turn) % len(partitions)]
        records = [Record(b"%d" % writer, b"%d.%d" % (turn, i)) for i in range(1 + turn % 3)]
        held = turn % 4 == 0
        result = store.append(partition, records, publish=not held)
        assert result.last_offset - result.base_offset == len(records) - 1
        if held:
            store.flush([partition])
            assert store.bounds(partition).end > result.last_offset


def follow(store: LogStore, partition: TopicPartition, done: threading.Event) -> None:
    """Read after the writers: offsets are dense, and never after the published end, which never falls."""
    offset = end = 0
    while not (done.is_set() and offset == store.bounds(partition).end):
        page = store.read(partition, offset, max_records=50)
        assert [r.offset for r in page.records] == list(range(offset, page.next_offset))
        assert page.next_offset <= page.bounds.end <= store.bounds(partition).end
        assert page.bounds.end >= end
        offset, end = page.next_offset, page.bounds.end


def test_writers_and_readers(store: LogStore) -> None:
    """Eight writers on two partitions with parallel readers: no gap, no repeat, and each writer's order is kept."""
    store.create_topic("events", 2)
    partitions = [TopicPartition("events", 0), TopicPartition("events", 1)]
    done = threading.Event()
    left = threading.Semaphore(0)

    def work(writer: int) -> None:
        try:
            write(store, partitions, writer)
        finally:
            left.release()

    def finish() -> None:
        try:
            for _ in range(WRITERS):
                assert left.acquire(timeout=DEADLINE_S)
            store.flush()
        finally:
            done.set()

    readers = [partial(follow, store, partition, done) for partition in partitions * 2]
    together(finish, *readers, *(partial(work, writer) for writer in range(WRITERS)))

    for number, partition in enumerate(partitions):
        by_writer = defaultdict[bytes | None, list[bytes | None]](list)
        for record in read_all(store, partition):
            by_writer[record.key].append(record.value)
        for writer in range(WRITERS):
            turns = [t for t in range(APPENDS) if (writer + t) % 2 == number]
            expected = [b"%d.%d" % (t, i) for t in turns for i in range(1 + t % 3)]
            assert by_writer[b"%d" % writer] == expected


def test_nothing_shows_before_the_flush(store: LogStore, partition: TopicPartition) -> None:
    """Held appends of many threads, and appends published after them, stay invisible until a flush."""
    store.append(partition, texts("shown"))
    store.append(partition, texts("held"), publish=False)

    def work(publish: bool) -> None:
        for _ in range(APPENDS):
            store.append(partition, texts("behind"), publish=publish)
            assert store.read(partition, 0).bounds.end == 1

    together(*(partial(work, number % 2 == 0) for number in range(WRITERS)))
    store.flush([partition])
    assert store.bounds(partition).end == 2 + WRITERS * APPENDS


def test_repeats_race(store: LogStore, partition: TopicPartition) -> None:
    """The same sequenced append from many threads at once is stored exactly once."""
    results = list[bool]()

    def work() -> None:
        for sequence in range(20):
            mark = ProducerSequence(1, 0, sequence)
            result = store.append(partition, texts(str(sequence)), producer=mark)
            assert result.base_offset == sequence
            results.append(result.duplicate)
            barrier.wait(DEADLINE_S)

    barrier = threading.Barrier(4)
    together(*[work] * 4)
    assert sorted(results) == [False] * 20 + [True] * 60
    assert [r.value for r in read_all(store, partition)] == [b"%d" % i for i in range(20)]


def test_producer_ids_are_unique(store: LogStore) -> None:
    """No two threads get the same producer id."""
    ids = list[int]()
    together(*[lambda: ids.extend(store.new_producer_id() for _ in range(25))] * WRITERS)
    assert len(set(ids)) == len(ids) == 25 * WRITERS


def test_topics_come_and_go(store: LogStore) -> None:
    """Creating, listing and deleting topics in many threads does not disturb any thread."""

    def work(number: int) -> None:
        for turn in range(5):
            partition = TopicPartition(f"t{number}", turn % 2)
            store.create_topic(partition.topic, 2)
            assert store.append(partition, texts("v")).base_offset == 0
            assert partition.topic in store.topics()
            store.delete_topic(partition.topic)

    together(*(partial(work, number) for number in range(4)))
    assert dict(store.topics()) == {}


def test_producer_ids_beside_new_producers(store: LogStore, partition: TopicPartition) -> None:
    """Each new producer id is larger than all earlier ids, while new producers appear in the partition.

    A checkpoint, which also reads the producers, keeps this.
    """
    done = threading.Event()
    ids: list[int] = []

    def bring() -> None:
        try:
            for producer_id in range(10, 10 + NEW_PRODUCERS):
                first = ProducerSequence(producer_id, 0, 0)
                store.append(partition, texts("first"), producer=first, publish=False)
        finally:
            done.set()

    def ask() -> None:
        while not done.is_set():
            ids.append(store.new_producer_id())

    together(bring, ask)
    store.checkpoint()
    assert ids == sorted(set(ids))
    assert store.new_producer_id() > max(9 + NEW_PRODUCERS, *ids)
