"""Queue entries that wait in memory for their files: the order of the syncs, and who does not wait for them."""

from __future__ import annotations

import errno
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from storage.errors import DiskFull, StoreFenced
from storage.files import HandleCache, OverlayFileSystem, make_root
from storage.model import TopicPartition
from storage.rocketmq.format.queue_entry import UNIT, UNIT_SIZE
from storage.rocketmq.index import consume_queue, dispatcher
from storage.rocketmq.index.consume_queue import ConsumeQueue, settle
from storage.rocketmq.store import RocketMQStore
from tests.robustness.crash.faulty import FaultyFileSystem, no_fault
from tests.unit.rocketmq.index.test_dispatcher import lag, on_queues, wait_until
from tests.unit.rocketmq.workshop import ROOT, Workshop, check_lookups, put_value, values

TOPICS = [TopicPartition(f"t{number}", 0) for number in range(20)]
QUEUES = ROOT / "consumequeue"
ENTRIES = b"".join(UNIT.pack(100 * number, 100, 0) for number in range(14))
DEADLINE_S = 30


def put_in_each(store: RocketMQStore, value: bytes) -> None:
    """Append this value to each topic."""
    for address in TOPICS:
        put_value(store, value, address)


def many_topics(shop: Workshop, *, thread: bool = False) -> RocketMQStore:
    """Open a store with twenty topics."""
    store = shop.open(thread=thread)
    for address in TOPICS:
        store.create_topic(address.topic, 1)
    return store


class Stuck:
    """A disk on which the first sync of a queue file does not return until `free` is set."""

    def __init__(self, faulty: FaultyFileSystem) -> None:
        self.reached = threading.Event()
        self.free = threading.Event()
        faulty.fault = self._wait

    def _wait(self, operation: str, path: Path) -> None:
        if operation == "datasync" and "consumequeue" in path.parts:
            self.reached.set()
            assert self.free.wait(DEADLINE_S)


@contextmanager
def stuck_disk(faulty: FaultyFileSystem) -> Iterator[Stuck]:
    """Run a block in which syncs of queue files do not return; let them return at its end."""
    stuck = Stuck(faulty)
    try:
        yield stuck
    finally:
        stuck.free.set()


# ---- the order of the syncs ----


def test_a_round_syncs_each_new_file_and_folder_once(faulty: FaultyFileSystem) -> None:
    """All files are created, then synced, then each changed folder is synced once, then the entries are written."""
    store = many_topics(Workshop(faulty))
    put_in_each(store, b"v")
    store._dispatcher.build()
    done: list[tuple[str, Path]] = []
    faulty.fault = lambda operation, path: done.append((operation, path))
    store._dispatcher.write_waiting()
    faulty.fault = no_fault
    files = [QUEUES / address.topic / "0" / f"{0:020}" for address in TOPICS]
    folders = {QUEUES, *(file.parent for file in files), *(file.parent.parent for file in files)}
    counts = Counter(done)
    assert {path: counts["datasync", path] for path in files} == dict.fromkeys(files, 1)
    synced = {path: count for (operation, path), count in counts.items() if operation == "sync_dir"}
    assert synced == dict.fromkeys({*folders, ROOT}, 1)
    assert sum(operation == "datasync" for operation, _ in done) == len(files)
    assert {path for operation, path in done if operation != "sync_dir"} <= {*files, *folders}
    order = [operation for operation, _ in done if operation != "create"]
    steps = ["make_dir", "truncate", "datasync", "sync_dir", "write"]
    places = {
        step: [at for at, operation in enumerate(order) if operation == step] for step in steps
    }
    assert max(places["make_dir"] + places["truncate"]) < min(places["datasync"])
    assert max(places["datasync"]) < min(places["sync_dir"])
    assert max(places["sync_dir"]) < min(places["write"])


def test_rounds_are_bounded(faulty: FaultyFileSystem, monkeypatch: pytest.MonkeyPatch) -> None:
    """Appends and readers may come between two rounds."""
    monkeypatch.setattr(consume_queue, "FILES_AT_ONCE", 8)
    store = many_topics(Workshop(faulty))
    put_in_each(store, b"v")
    rounds: list[str] = []
    faulty.fault = lambda operation, path: (
        rounds.append(operation) if path in {QUEUES, ROOT} else None
    )
    store.checkpoint()
    faulty.fault = no_fault
    assert rounds.count("sync_dir") >= 3
    assert [values(store, address) for address in TOPICS] == [[b"v"]] * len(TOPICS)


# ---- who does not wait ----


def test_neither_appends_nor_readers_wait_for_queue_files(
    faulty: FaultyFileSystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dispatcher, "PENDING_APPENDS", 4)
    store = many_topics(Workshop(faulty), thread=True)
    with stuck_disk(faulty) as stuck:
        put_value(store, b"first", TOPICS[0])
        assert stuck.reached.wait(DEADLINE_S)
        for value in (b"a", b"b", b"c"):
            put_in_each(store, value)
        store.flush()
        assert values(store, TOPICS[0]) == [b"first", b"a", b"b", b"c"]
        assert [values(store, address) for address in TOPICS[1:]] == [[b"a", b"b", b"c"]] * 19
        check_lookups(store, TOPICS[7])
        assert lag(store) == store.log.end, "no entry is in a file"
    wait_until(lambda: lag(store) == 0)
    assert [values(store, address) for address in TOPICS[1:]] == [[b"a", b"b", b"c"]] * 19
    store.close()


def test_a_checkpoint_creates_files_while_appends_go_on(faulty: FaultyFileSystem) -> None:
    """It waits for the files itself: it claims that all earlier entries are in them."""
    shop = Workshop(faulty)
    store = many_topics(shop)
    put_in_each(store, b"before")
    with ThreadPoolExecutor(1) as pool:
        with stuck_disk(faulty) as stuck:
            checkpoint = pool.submit(store.checkpoint)
            assert stuck.reached.wait(DEADLINE_S)
            put_in_each(store, b"during")
            assert not checkpoint.done()
        checkpoint.result(DEADLINE_S)
    faulty.fault = no_fault
    assert all(store.queue(address).units.end >= 1 for address in TOPICS)
    assert [values(store, address) for address in TOPICS] == [[b"before", b"during"]] * 20
    with shop.after_kill().open() as again:
        assert [values(again, address) for address in TOPICS] == [[b"before", b"during"]] * 20


def test_a_topic_is_deleted_with_the_entries_that_wait(faulty: FaultyFileSystem) -> None:
    shop = Workshop(faulty)
    store = many_topics(shop, thread=True)
    with ThreadPoolExecutor(1) as pool:
        with stuck_disk(faulty) as stuck:
            put_in_each(store, b"v")
            assert stuck.reached.wait(DEADLINE_S)
            deletion = pool.submit(store.delete_topic, TOPICS[3].topic)
        deletion.result(DEADLINE_S)
    wait_until(lambda: lag(store) == 0)
    assert not faulty.exists(QUEUES / TOPICS[3].topic)
    store.close()
    assert not faulty.exists(QUEUES / TOPICS[3].topic)


def test_appends_are_refused_before_too_many_entries_wait(
    faulty: FaultyFileSystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dispatcher, "WAITING_BYTES", 10 * UNIT_SIZE)
    store = many_topics(Workshop(faulty), thread=True)
    faulty.fault = on_queues(errno.ENOSPC, "truncate")
    stored = 0

    def refused() -> bool:
        nonlocal stored
        try:
            put_value(store, b"v", TOPICS[0])
        except DiskFull:
            return True
        stored += 1
        return False

    wait_until(refused)
    assert stored >= 10
    assert values(store, TOPICS[0]) == [b"v"] * stored
    faulty.fault = no_fault
    put_value(store, b"after", TOPICS[0])
    assert values(store, TOPICS[0]) == [b"v"] * stored + [b"after"]
    store.close()


@pytest.mark.parametrize("operation", ["datasync", "sync_dir"])
def test_a_failed_sync_of_a_round_fences_and_writes_no_entry(
    faulty: FaultyFileSystem, operation: str
) -> None:
    """The file may have lost its length: an entry in it would keep the next start from using the store."""
    store = many_topics(Workshop(faulty))
    put_in_each(store, b"v")
    faulty.fault = on_queues(errno.EIO, operation)
    with pytest.raises(StoreFenced):
        store.checkpoint()
    changed: list[tuple[str, Path]] = []
    faulty.fault = lambda done, path: (
        changed.append((done, path)) if "consumequeue" in path.parts else None
    )
    with pytest.raises(StoreFenced):
        store._dispatcher.step()
    assert [values(store, address) for address in TOPICS] == [[b"v"]] * len(TOPICS)
    assert changed == []


# ---- one queue ----


def new_queue() -> ConsumeQueue:
    """Return a queue without entries, in files of five entries."""
    fs, folder = OverlayFileSystem(), Path("/store/consumequeue/t/0")
    make_root(fs, folder)
    return ConsumeQueue(HandleCache(fs, 8), folder, 5 * UNIT_SIZE)


def offsets_of(queue: ConsumeQueue) -> Sequence[int]:
    """Return the physical offsets of all entries that can be read."""
    found: list[int] = []
    while len(found) < queue.readable_end:
        found += [entry.physical_offset for entry in queue.read(len(found), 99)]
    return found


def test_entries_are_read_in_order_wherever_they_are() -> None:
    """Some in files, some waiting, some only held for readers; a file is written as soon as it is durable."""
    queue = new_queue()
    assert queue.take(ENTRIES[: 3 * UNIT_SIZE], 0, 300) == 3 * UNIT_SIZE
    queue.hold(ENTRIES[3 * UNIT_SIZE : 9 * UNIT_SIZE])
    assert (queue.end, queue.taken_end, queue.readable_end) == (0, 3, 9)
    assert queue.take(ENTRIES[3 * UNIT_SIZE : 8 * UNIT_SIZE], 3, 800) == 5 * UNIT_SIZE
    assert (queue.end, queue.taken_end, queue.readable_end) == (0, 8, 9)
    assert queue.write_taken() == 0
    written = []
    while queue.is_waiting:
        assert offsets_of(queue) == [100 * number for number in range(9)]
        queue.make_room(queue.end)
        settle([queue])
        written.append(queue.write_taken())
    assert written == [5 * UNIT_SIZE, 3 * UNIT_SIZE]
    assert (queue.end, queue.taken_end, queue.readable_end) == (8, 8, 9)
    assert queue.take(ENTRIES[8 * UNIT_SIZE : 10 * UNIT_SIZE], 8, 1000) == 0, "the file has room"
    assert queue.take(ENTRIES[10 * UNIT_SIZE :], 10, 1400) == 4 * UNIT_SIZE
    assert offsets_of(queue) == [100 * number for number in range(14)]
    assert queue.last_end == 1400
