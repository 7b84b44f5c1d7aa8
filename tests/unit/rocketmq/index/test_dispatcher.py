"""The dispatcher: queues and index follow the appends, with and without a thread, on a full disk, after a fence."""

from __future__ import annotations

import errno
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import pytest

from storage import LogStore
from storage.errors import DiskFull, StoreFenced
from storage.files import Fence, HandleCache, OverlayFileSystem, make_root
from storage.model import ProducerSequence, Record, TopicPartition
from storage.rocketmq.format.queue_entry import UNIT
from storage.rocketmq.index.consume_queue import ConsumeQueue
from storage.rocketmq.index.dispatcher import (
    PENDING_APPENDS,
    PENDING_BYTES,
    Builder,
    Dispatcher,
)
from tests.beside import beside
from tests.robustness.crash.faulty import FaultyFileSystem, fails, no_fault
from tests.unit.rocketmq.workshop import T0, Workshop, check_lookups, put_value, values

Units = TypeVar("Units", bound=ConsumeQueue)
T1 = TopicPartition("t", 1)
DEADLINE_S = 30
VALUES = [b"value-%02d" % n for n in range(14)]


class Slow(Builder):
    """A builder that builds nothing and counts its calls."""

    def __init__(self) -> None:
        self.built = 0

    def take(self, data: bytes, physical_offset: int, size_bytes: int) -> None:
        pass

    def build(self) -> None:
        self.built += 1


@pytest.fixture
def often_switched() -> Iterator[None]:
    """The shortest possible interval between thread switches."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def wait_until(done: Callable[[], bool]) -> None:
    """Wait until `done` returns true; fail after DEADLINE_S seconds."""
    end = time.monotonic() + DEADLINE_S
    while not done():
        assert time.monotonic() < end
        time.sleep(0.001)


def lag(store: LogStore) -> object:
    """Return how many bytes of the log the queues have not taken in yet."""
    return store.stats().details["dispatch_lag_bytes"]


def test_appends_are_dispatched_by_whoever_looks(shop: Workshop) -> None:
    store = shop.open_with_topic()
    for value in VALUES:
        put_value(store, value)
    assert shop.queue_bases() == []
    assert lag(store) == store.log.end > 0
    assert values(store) == VALUES
    assert lag(store) == 0
    assert shop.queue_bases() == [0, 100, 200]


@pytest.mark.parametrize("look", ["find", "find_by_id", "offset_for_time", "checkpoint", "close"])
def test_every_look_dispatches_first(shop: Workshop, look: str) -> None:
    store = shop.open_with_topic()
    result = put_value(store, b"v")
    if look == "find":
        assert len(store.find("t", key="v").records) == 1
    elif look == "find_by_id":
        store.find_by_id(store.record_id(T0, result.locators[0]))
    elif look == "offset_for_time":
        assert store.offset_for_time(T0, 0) is not None
    elif look == "checkpoint":
        store.checkpoint()
    else:
        store.close()
    assert shop.queue_bases() == [0]


def test_the_thread_dispatches_by_itself(shop: Workshop) -> None:
    with shop.open(thread=True) as store:
        store.create_topic("t", 1)
        for value in VALUES:
            put_value(store, value)
        wait_until(lambda: lag(store) == 0)
        assert shop.queue_bases() == [0, 100, 200]
        check_lookups(store)


def test_the_thread_ends_with_the_store(shop: Workshop) -> None:
    before = set(threading.enumerate())
    with shop.open(thread=True) as store:
        store.create_topic("t", 1)
        (started,) = set(threading.enumerate()) - before
    assert not started.is_alive()


def test_read_only_starts_no_thread(shop: Workshop) -> None:
    shop.open_with_topic().close()
    before = set(threading.enumerate())
    with shop.open(thread=True, read_only=True):
        assert set(threading.enumerate()) <= before


@pytest.mark.usefixtures("often_switched")
def test_submitting_beside_a_step() -> None:
    dispatcher = Dispatcher(Slow(), position=0, fence=Fence(Path("/store")))

    def submit() -> None:
        for end in range(50_000):
            dispatcher.submit(b"", end)

    beside(submit, dispatcher.step)
    dispatcher.step()
    assert dispatcher.position == 49_999


def test_who_is_far_ahead_does_the_work() -> None:
    builder = Slow()
    dispatcher = Dispatcher(builder, position=0, fence=Fence(Path("/store")))
    for end in range(PENDING_APPENDS):
        dispatcher.make_way()
        dispatcher.submit(b"", end)
    assert builder.built == 0
    dispatcher.make_way()
    assert (builder.built > 0, dispatcher.position) == (True, PENDING_APPENDS - 1)


def test_who_is_far_ahead_in_bytes_does_the_work() -> None:
    builder = Slow()
    dispatcher = Dispatcher(builder, position=0, fence=Fence(Path("/store")))
    dispatcher.submit(bytes(PENDING_BYTES - 1), 0)
    dispatcher.make_way()
    assert builder.built == 0
    dispatcher.submit(b"x", PENDING_BYTES - 1)
    dispatcher.make_way()
    assert (builder.built, dispatcher.position) == (2, PENDING_BYTES)


class Taking(Slow):
    """A builder that notes what it takes."""

    def __init__(self) -> None:
        super().__init__()
        self.taken: list[tuple[bytes, int, int]] = []

    def take(self, data: bytes, physical_offset: int, size_bytes: int) -> None:
        self.taken.append((data, physical_offset, size_bytes))


def test_adjacent_appends_are_passed_over_together() -> None:
    """A padding ends a file of the log: the records after it are taken at their own offset."""
    builder = Taking()
    dispatcher = Dispatcher(builder, position=5, fence=Fence(Path("/store")))
    for records, physical_offset in ((b"aa", 5), (b"b", 7), (b"cc", 20), (b"d", 22)):
        dispatcher.submit(records, physical_offset)
    dispatcher.step()
    assert builder.taken == [(b"aab", 5, 3), (b"ccd", 20, 3)]
    dispatcher.submit(b"e", 30)
    dispatcher.step()
    assert builder.taken[2:] == [(b"e", 30, 1)]
    assert (builder.built, dispatcher.position) == (2, 31)


# ---- when the disk fails ----


def on_queues(number: int, operation: str = "write") -> Callable[[str, Path], None]:
    """Return a fault that affects only the queues' files."""
    fault = fails(number, operation)
    return lambda done, path: fault(done, path) if "consumequeue" in path.parts else None


@pytest.mark.parametrize("operation", ["create", "truncate", "write"])
def test_a_full_disk_keeps_records_pending(faulty: FaultyFileSystem, operation: str) -> None:
    shop = Workshop(faulty)
    store = shop.open_with_topic()
    put_value(store, b"first")
    assert values(store) == [b"first"]
    faulty.fault = on_queues(errno.ENOSPC, operation)
    for value in VALUES:
        put_value(store, value)
    store.flush()
    for _ in range(3):
        assert values(store) == [b"first", *VALUES], "they are in memory"
        check_lookups(store)
    assert store.stats().fenced is None
    assert lag(store) != 0
    faulty.fault = no_fault
    assert values(store) == [b"first", *VALUES]
    check_lookups(store)
    assert lag(store) == 0
    store.close()
    with shop.open() as again:
        assert again.recovery.clean_shutdown
        assert values(again) == [b"first", *VALUES]
        check_lookups(again)


def test_units_in_memory_and_units_in_files_are_one_queue(faulty: FaultyFileSystem) -> None:
    """Entries of the last file come first, then entries only in memory; a checkpoint writes them every third time."""
    shop = Workshop(faulty)
    store = shop.open_with_topic()
    stored = []
    for value in VALUES:
        faulty.fault = on_queues(errno.ENOSPC)
        stored.append(value)
        put_value(store, value)
        assert values(store) == stored
        assert store.queue(T0).units.readable_end == len(stored) > store.queue(T0).units.end
        if len(stored) % 3 == 0:
            faulty.fault = no_fault
            store.checkpoint()
            assert store.queue(T0).units.end == len(stored)
            assert values(store) == stored
    faulty.fault = no_fault
    check_lookups(store)


class WrittenBetween(ConsumeQueue):
    """A queue that writes its held entries in the middle of a read, after the first access to a field of FIELDS."""

    FIELDS = frozenset({"_held", "end"})
    armed = False

    def __getattribute__(self, name: str) -> object:
        found = super().__getattribute__(name)
        if name in WrittenBetween.FIELDS and self.armed:
            self.armed = False
            self.append(UNITS, 0, 200)
        return found


UNITS = UNIT.pack(0, 100, 0) + UNIT.pack(100, 100, 0)


def new_queue(kind: type[Units]) -> Units:
    """Return a queue without entries, in files of five entries."""
    fs, folder = OverlayFileSystem(), Path("/store/consumequeue/t/0")
    make_root(fs, folder)
    return kind(HandleCache(fs, 8), folder, 100)


@pytest.mark.parametrize(
    "look", [lambda units: units.readable_end, lambda units: len(units.read(0, 9))]
)
def test_units_that_get_written_while_somebody_looks(look: Callable[[ConsumeQueue], int]) -> None:
    units = new_queue(WrittenBetween)
    units.hold(UNITS)
    assert (look(units), units.end) == (2, 0)
    units.armed = True
    assert look(units) == 2
    assert (look(units), units.end) == (2, 2)


def test_what_is_held_stays_until_all_of_it_is_written() -> None:
    units = new_queue(ConsumeQueue)
    units.hold(UNITS)
    units.append(UNITS[: len(UNITS) // 2], 0, 100)
    assert (units.end, units.readable_end) == (1, 2)
    assert [unit.physical_offset for unit in units.read(0, 9)] == [0, 100]
    assert [unit.physical_offset for unit in units.read(1, 9)] == [100]


@pytest.mark.parametrize("part", ["consumequeue", "index"])
@pytest.mark.parametrize("scan", [False, True])
def test_the_first_look_on_a_full_disk_finds_all(
    faulty: FaultyFileSystem, part: str, *, scan: bool
) -> None:
    """The index finds the records that it holds, and a scan finds the records that it has no room for."""
    store = Workshop(faulty).open_with_topic(partitions=2)
    for address in (T0, T1):
        put_value(store, b"v", address)
        put_value(store, b"x", address)
    store.checkpoint()
    fault = fails(errno.ENOSPC, "write")
    faulty.fault = lambda done, path: fault(done, path) if part in path.parts else None
    for address in (T0, T1):
        put_value(store, b"w", address)
        put_value(store, b"v", address)
    forward = store.find("t", key="v", scan=scan)
    assert [(partition, record.offset) for partition, record in forward.records] == [
        *((0, 0), (1, 0)),
        *((0, 3), (1, 3)),
    ]
    assert forward.scanned == (8 if scan else 6), "of four records in the index two have the key"
    backward = store.find("t", key="v", scan=scan, backward=True)
    assert backward.records == forward.records[::-1]


@pytest.mark.usefixtures("often_switched")
def test_readers_beside_a_disk_that_is_full_now_and_then(faulty: FaultyFileSystem) -> None:
    """Entries move from memory into files during reads: no entry is missed or returned twice."""
    store = Workshop(faulty).open_with_topic()

    def watch() -> None:
        seen = values(store)
        assert seen == [b"%d" % number for number in range(len(seen))]

    def write() -> None:
        for number in range(150):
            faulty.fault = on_queues(errno.ENOSPC) if number % 3 else no_fault
            put_value(store, b"%d" % number)
            if number % 3 == 0:
                store.checkpoint()

    beside(write, watch, watch)
    assert len(values(store)) == 150


def test_a_repeat_on_a_full_disk_gets_its_first_answer(faulty: FaultyFileSystem) -> None:
    shop = Workshop(faulty)
    store = shop.open_with_topic()
    faulty.fault = on_queues(errno.ENOSPC)
    producer = ProducerSequence(store.new_producer_id(), 0, 0)
    first = store.append(T0, [Record(None, b"v")], producer=producer)
    again = store.append(T0, [Record(None, b"v")], producer=producer)
    assert again == first._replace(duplicate=True)
    assert values(store) == [b"v"]


def test_appends_are_refused_before_too_much_is_pending(faulty: FaultyFileSystem) -> None:
    """The log has space, but the queues, on a disk of their own, have none."""
    shop = Workshop(faulty)
    store = shop.open_with_topic()
    faulty.fault = on_queues(errno.ENOSPC)
    for number in range(PENDING_APPENDS):
        put_value(store, b"%d" % number)
    end = store.log.end
    with pytest.raises(DiskFull):
        put_value(store, b"refused")
    assert store.log.end == end
    stored = [b"%d" % number for number in range(PENDING_APPENDS)]
    assert values(store) == stored
    faulty.fault = no_fault
    put_value(store, b"after")
    assert values(store) == [*stored, b"after"]


def test_the_thread_tries_again_on_a_full_disk(faulty: FaultyFileSystem) -> None:
    shop = Workshop(faulty)
    with shop.open(thread=True) as store:
        store.create_topic("t", 1)
        faulty.fault = on_queues(errno.ENOSPC)
        put_value(store, b"v")
        wait_until(lambda: store.stats().details["dispatch_failure"] is not None)
        faulty.fault = no_fault
        wait_until(lambda: lag(store) == 0)
        assert store.stats().details["dispatch_failure"] is None
        assert values(store) == [b"v"]


@pytest.mark.parametrize("operation", ["write", "datasync", "sync_dir"])
def test_a_broken_queue_file_fences(faulty: FaultyFileSystem, operation: str) -> None:
    """Accepted records can still be read by offset, also from queues with no entry in a file yet."""
    shop = Workshop(faulty)
    store = shop.open_with_topic(partitions=2)
    put_value(store, b"first")
    assert values(store) == [b"first"]
    before = shop.files()
    faulty.fault = on_queues(errno.EIO, operation)
    put_value(store, b"second")
    put_value(store, b"beside", T1)
    store.flush()
    for _ in range(2):
        assert (values(store), values(store, T1)) == ([b"first", b"second"], [b"beside"])
        check_lookups(store, indexed=operation != "write")
        check_lookups(store, T1, indexed=operation != "write")
    faulty.fault = no_fault
    assert values(store) == [b"first", b"second"]
    with pytest.raises(StoreFenced):
        put_value(store, b"third")
    after = {name: data for name, data in shop.files().items() if "consumequeue" in name}
    assert {name for name in before if "consumequeue" in name} <= set(after)
    assert not any(after[name].strip(b"\0") for name in after if name not in before)
    store.close()
    with shop.open() as again:
        assert (values(again), values(again, T1)) == ([b"first", b"second"], [b"beside"])
        check_lookups(again)


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO])
def test_an_index_that_cannot_be_written_keeps_nobody_from_reading(
    faulty: FaultyFileSystem, number: int
) -> None:
    """Earlier, the first read after an append failed with the index file's error, and the second read succeeded."""
    shop = Workshop(faulty)
    store = shop.open_with_topic()
    fault = fails(number, "write")
    faulty.fault = lambda done, path: fault(done, path) if "index" in path.parts else None
    for value in VALUES:
        put_value(store, value)
    assert values(store) == VALUES
    faulty.fault = no_fault
    store.close()
    with shop.open() as again:
        assert values(again) == VALUES
        check_lookups(again)


def test_a_fence_elsewhere_hides_nothing(faulty: FaultyFileSystem) -> None:
    """Records that were accepted before the log broke, but were not yet dispatched, are served."""
    shop = Workshop(faulty)
    store = shop.open_with_topic()
    for value in VALUES[:3]:
        put_value(store, value)
    fault = fails(errno.EIO, "write")
    faulty.fault = lambda done, path: fault(done, path) if "commitlog" in path.parts else None
    with pytest.raises(StoreFenced):
        put_value(store, b"lost")
    assert values(store) == VALUES[:3]
    check_lookups(store)


@pytest.mark.parametrize("operation", ["write", "datasync"])
def test_a_failed_write_of_its_own_is_never_tried_again(
    faulty: FaultyFileSystem, operation: str
) -> None:
    """The kernel may have dropped the pages: a second attempt that succeeds would prove nothing."""
    store = Workshop(faulty).open_with_topic()
    put_value(store, b"one")
    faulty.fault = on_queues(errno.EIO, operation)
    with pytest.raises(StoreFenced):
        store.checkpoint()
    changed: list[tuple[str, Path]] = []
    faulty.fault = lambda done, path: (
        changed.append((done, path)) if "consumequeue" in path.parts else None
    )
    for _ in range(3):
        with pytest.raises(StoreFenced):
            store._dispatcher.step()
        store._dispatcher.try_step()
    assert changed == []
