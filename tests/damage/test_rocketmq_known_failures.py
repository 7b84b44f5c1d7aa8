"""Seven ways in which the real RocketMQ loses records or lookups, each tested on our engine.

They are reported for RocketMQ itself: apache/rocketmq 467, 1434, 678, 3868 (and 8007), 4463, 1153 (and 7233), and
alibaba/rocketmq 331 (with apache/rocketmq 2398). Each test is named after the failure there.
"""

from __future__ import annotations

import errno
import threading
from collections.abc import Iterable, Sequence
from contextlib import nullcontext
from pathlib import Path

import pytest

from storage import LogStore, RawMessage, Record, StoreOptions, SupportsRawMessages, TopicPartition
from storage import open_store as open_any
from storage.errors import DiskFull
from storage.files import FileSystem, OverlayFileSystem
from storage.files.failures import io_failure
from storage.files.fs import File
from storage.rocketmq.format.checkpoint import Checkpoint, decode_checkpoint
from storage.rocketmq.format.properties import encode_properties
from tests.contract.harness import ManualClock, copy_tree
from tests.golden.rocketmq_stores import files_below, put, walk
from tests.robustness.crash.faulty import Fault, FaultyFileSystem, no_fault
from tests.robustness.crash.power import Power
from tests.robustness.crash.relay import Relay, RelayFile

ROOT = Path("/data/store")
QUEUES = [TopicPartition("orders", 0), TopicPartition("orders", 1), TopicPartition("paid", 0)]
FILE_BYTES = 1024
SETTINGS = {
    "mappedFileSizeCommitLog": str(FILE_BYTES),
    "mappedFileSizeConsumeQueue": "200",
    "maxHashSlotNum": "20",
    "maxIndexNum": "60",
}
DERIVED = ("consumequeue", "index")
"""The folders derived from the commit log; with the checkpoint, all that may be older than the log after a crash."""
Numbers = Sequence[int]


class Moment(Relay):
    """A file layer that passes every call to `fs`.

    While `still` is held no thread can write, as at the moment of a kill.
    """

    def __init__(self, fs: FileSystem) -> None:
        super().__init__(fs)
        self.still = threading.Lock()

    def wrap(self, file: File) -> File:
        return MomentFile(self, file)


class MomentFile(RelayFile):
    """A file of `Moment`."""

    def __init__(self, moment: Moment, file: File) -> None:
        super().__init__(moment, file)
        self._moment = moment

    def pwrite(self, data: bytes, position: int) -> None:
        with self._moment.still:
            super().pwrite(data, position)


class Shop:
    """One store on a file system, and the numbers of the records appended to it."""

    def __init__(self, fs: FileSystem) -> None:
        self.fs = fs
        self.clock = ManualClock()
        self.written: list[int] = []

    def open(self, *, accept_loss: bool = False) -> LogStore:
        options = StoreOptions(settings=SETTINGS, accept_loss=accept_loss)
        return open_any("rocketmq", ROOT, options, fs=self.fs, clock=self.clock)

    def begin(self) -> LogStore:
        """Create a new store with its topics."""
        self.fs.make_dir(ROOT.parent)
        store = self.open()
        store.create_topic("orders", 2)
        store.create_topic("paid", 1)
        return store

    def append(self, store: LogStore, numbers: Iterable[int], *, publish: bool = True) -> None:
        """Append one record for each number, a second apart, to the queues in turn."""
        for number in numbers:
            self.clock.now_ms += 1000
            store.append(queue_of(number), [record(number)], publish=publish)
            self.written.append(number)

    def after_kill(self) -> Shop:
        """Return the files that the next start finds if the process is killed now, between two of its writes."""
        copy = OverlayFileSystem()
        with self.fs.still if isinstance(self.fs, Moment) else nullcontext():
            copy_tree(self.fs, ROOT, copy, ROOT)
        return self.on(copy)

    def on(self, fs: FileSystem) -> Shop:
        """Return the same shop on another disk."""
        found = Shop(fs)
        found.clock.now_ms = self.clock.now_ms
        found.written = list(self.written)
        return found

    def derived(self) -> dict[str, bytes]:
        """Return the current queue and index files."""
        return files_below(self.fs, ROOT, *DERIVED)

    def with_older(self, derived: dict[str, bytes], checkpoint: bytes | None = None) -> Shop:
        """Return the shop as after a crash that lost later writes to queues and index."""
        found = self.after_kill()
        for part in DERIVED:
            found.fs.remove_tree(ROOT / part)
        for name, data in derived.items():
            put(found.fs, ROOT / name, data)
        if checkpoint is not None:
            put(found.fs, ROOT / "checkpoint", checkpoint)
        return found

    def checkpoint(self) -> Checkpoint:
        return decode_checkpoint(self.fs.read_bytes(ROOT / "checkpoint"))

    def log_files(self) -> dict[str, bytes]:
        return files_below(self.fs, ROOT, "commitlog")

    def places(self) -> list[tuple[int, int]]:
        """Return (physical offset, size) of every record of the log."""
        return [(m.physical_offset, m.size) for m in walk(self.log_files())]


def queue_of(number: int) -> TopicPartition:
    return QUEUES[number % len(QUEUES)]


def record(number: int) -> Record:
    return Record(None, b"value %3d" % number, tag=f"t{number % 3}", lookup_keys=[f"k{number}"])


def check_whole(store: LogStore, written: Numbers) -> None:
    """Check that every record is in its queue, dense and in order, and is found by its key."""
    assert store.recovery.losses == []
    for queue in QUEUES:
        mine = [number for number in written if queue_of(number) == queue]
        read = list(store.scan(queue))
        assert [r.value for r in read] == [b"value %3d" % number for number in mine], queue
        assert [r.offset for r in read] == list(range(len(mine)))
    check_found(store, written)


def check_found(store: LogStore, numbers: Numbers) -> None:
    """Check that these records are found by key, through the index."""
    for number in numbers:
        page = store.find(queue_of(number).topic, key=f"k{number}")
        assert [r.value for _, r in page.records] == [b"value %3d" % number], number
        assert page.indexed


def in_file(places: Sequence[tuple[int, int]], file: int) -> list[int]:
    """Return the numbers of the records in the file with this number."""
    return [n for n, (position, _) in enumerate(places) if position // FILE_BYTES == file]


@pytest.fixture
def shop() -> Shop:
    return Shop(Moment(OverlayFileSystem()))


@pytest.fixture
def power() -> Power:
    found = Power()
    found.make_dir(ROOT.parent)
    for parent in ROOT.parents:
        found.sync_dir(parent)
    return found


# ---- 1: 467 ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kept_bytes", [6, 60, 92])
def test_damaged_tail_then_message_missed(shop: Shop, kept_bytes: int) -> None:
    """RocketMQ's queue still had the cut record's entry, so the next record's entry was skipped as a repeat."""
    shop.append(shop.begin(), range(13))
    found = shop.after_kill()
    last, size = found.places()[-1]
    path = ROOT / "commitlog" / f"{last - last % FILE_BYTES:020}"
    put(found.fs, path, bytes(size - kept_bytes), last % FILE_BYTES + kept_bytes)
    store = found.open()
    assert [loss.reason for loss in store.recovery.losses] != []
    found.written.pop()
    found.append(store, range(12, 21))
    read = [r.value for queue in QUEUES for r in store.scan(queue)]
    assert sorted(v for v in read if v) == [b"value %3d" % n for n in range(21)]
    with found.after_kill().open() as again:
        check_whole(again, range(21))
    store.close()
    with found.open() as again:
        check_whole(again, range(21))


# ---- 2: 1434 ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("files_back", [1, 2, 3])
def test_previous_commit_log_file_not_dispatched_again(shop: Shop, files_back: int) -> None:
    """RocketMQ's recovery began with the last file, while the queues lacked the end of the file before it."""
    store = shop.begin()
    shop.append(store, range(40))
    shop.append(store, range(40, 41))
    last_file = shop.places()[-1][0] // FILE_BYTES
    assert last_file > 3
    cut = in_file(shop.places(), last_file - files_back)[-3]
    again = Shop(Moment(OverlayFileSystem()))
    store = again.begin()
    again.append(store, range(cut))
    store.flush()
    store.checkpoint()
    store.bounds(QUEUES[0])
    older, checkpoint = again.derived(), again.fs.read_bytes(ROOT / "checkpoint")
    again.append(store, range(cut, 41))
    found = again.with_older(older, checkpoint)
    with found.open() as recovered:
        assert not recovered.recovery.clean_shutdown
        check_whole(recovered, range(41))


# ---- 3: 678 ----------------------------------------------------------------------------------------------------------


def test_checkpoint_ahead_of_the_queue_is_never_written(power: Power) -> None:
    """RocketMQ's checkpoint covered times and offsets of entries not yet on disk; a power cut lost these entries."""
    shop = Shop(power)
    cuts: list[OverlayFileSystem] = []
    store = shop.begin()

    def look(operation: str, path: Path) -> None:
        cuts.append(power.cut())

    power.before = look
    for start in range(0, 30, 6):
        shop.append(store, range(start, start + 6))
        store.flush()
        store.checkpoint()
    store.close()
    power.before = lambda operation, path: None
    seen = set()
    for fs in [*cuts, power.cut()]:
        found = shop.on(fs)
        if not fs.exists(ROOT / "checkpoint"):
            continue
        checkpoint = found.checkpoint()
        seen.add(checkpoint.logics_physical_offset)
        assert checkpoint.logics_physical_offset <= last_durable(found)
    assert len(seen) > 3


def last_durable(shop: Shop) -> int:
    """Return the physical offset of the last record up to which every record has its queue entry."""
    data = files_below(shop.fs, ROOT, "consumequeue")
    pointed = {
        int.from_bytes(content[at : at + 8], "big")
        for content in data.values()
        for at in range(0, len(content), 20)
        if int.from_bytes(content[at + 8 : at + 12], "big") > 0
    }
    last = 0
    for position, _ in shop.places():
        if position not in pointed:
            break
        last = position
    return last


@pytest.mark.parametrize("missing", [1, 5, 20])
def test_checkpoint_ahead_of_the_queue_is_seen_through(shop: Shop, missing: int) -> None:
    """A RocketMQ before 5.5 leaves such files: the queues lack entries that the checkpoint covers."""
    store = shop.begin()
    shop.append(store, range(40 - missing))
    check_found(store, range(40 - missing))  # all of it is dispatched
    older = shop.derived()
    shop.append(store, range(40 - missing, 40))
    store.flush()
    store.checkpoint()
    assert shop.checkpoint().logics_physical_offset == shop.places()[-1][0]
    found = shop.with_older(older)
    with found.open() as recovered:
        check_whole(recovered, range(40))


# ---- 4: 3868, 8007 ---------------------------------------------------------------------------------------------------


def test_index_destroyed_on_abort(shop: Shop) -> None:
    """RocketMQ deleted the index file in use, and rebuilt it only from where recovery of the log began."""
    store = shop.begin()
    shop.append(store, range(35))
    store.flush()
    store.checkpoint()
    shop.append(store, range(35, 50))
    assert len(shop.log_files()) > 4
    assert len(files_below(shop.fs, ROOT, "index")) > 1
    with shop.after_kill().open() as recovered:
        assert not recovered.recovery.clean_shutdown
        check_found(recovered, range(50))


# ---- 5: 4463 ---------------------------------------------------------------------------------------------------------


def test_index_unflushed_at_stop(power: Power) -> None:
    """RocketMQ's clean stop reported that nothing needs recovery, but the index file in use had never been synced."""
    shop = Shop(power)
    store = shop.begin()
    shop.append(store, range(25))
    store.close()
    found = shop.on(power.cut())
    assert not found.fs.exists(ROOT / "abort")
    assert found.derived() == shop.derived()
    with found.open() as reopened:
        assert reopened.recovery.clean_shutdown
        check_whole(reopened, range(25))


def test_a_power_cut_during_a_stop_is_no_clean_stop(power: Power) -> None:
    """At each step of a stop either the marker exists, or all data is on disk."""
    shop = Shop(power)
    store = shop.begin()
    shop.append(store, range(25))
    cuts: list[OverlayFileSystem] = []
    power.before = lambda operation, path: cuts.append(power.cut())
    store.flush()
    flushed = len(cuts)
    store.close()
    power.before = lambda operation, path: None
    for fs in cuts[flushed:]:
        found = shop.on(fs)
        if not fs.exists(ROOT / "abort"):
            assert found.derived() == shop.derived()
        with found.open() as reopened:
            check_whole(reopened, range(25))


# ---- 6: 1153, 7233 ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("raw", [False, True])
def test_checkpoint_stuck_at_0(shop: Shop, raw: bool) -> None:
    """RocketMQ left the checkpoint at 0 if no client awaited the records, or they were appended as bytes.

    Every start then read the whole log.
    """
    store = shop.begin()
    if raw:
        append_raw(shop, store, range(60))
    else:
        shop.append(store, range(60), publish=True)
    store.flush()
    store.checkpoint()
    places = shop.places()
    checkpoint = shop.checkpoint()
    assert checkpoint.physic_msg_timestamp_ms == shop.clock.now_ms
    assert checkpoint.logics_msg_timestamp_ms == shop.clock.now_ms
    assert checkpoint.logics_physical_offset == places[-1][0]
    end = sum(places[-1])
    assert end > 6 * FILE_BYTES
    with shop.after_kill().open() as recovered:
        check_whole(recovered, range(60))
        assert recovered.recovery.bytes_scanned <= 2 * FILE_BYTES


def append_raw(shop: Shop, store: LogStore, numbers: Iterable[int]) -> None:
    assert isinstance(store, SupportsRawMessages)
    for number in numbers:
        shop.clock.now_ms += 1000
        properties = encode_properties({"KEYS": f"k{number}", "TAGS": "t", "WAIT": "false"})
        message = RawMessage(body=b"value %3d" % number, properties=properties)
        store.append_messages(queue_of(number), [message])
        shop.written.append(number)


# ---- 7: 331, 2398 ----------------------------------------------------------------------------------------------------


TAKES_SPACE = frozenset({"write", "create", "make_dir"})
"""Truncating a file, or extending it without writing a byte, needs no space."""


def full(*parts: str) -> Fault:
    """Return a fault: no space for anything below these folders."""

    def fault(operation: str, path: Path) -> None:
        if operation in TAKES_SPACE and any(part in str(path) for part in parts):
            raise io_failure(errno.ENOSPC, path, operation)

    return fault


@pytest.mark.parametrize(
    "parts", [("",), ("/commitlog",), ("/consumequeue",), ("/index",), ("/consumequeue", "/index")]
)
@pytest.mark.parametrize("closing", [False, True])
def test_not_writable_again_after_disk_full(parts: tuple[str, ...], closing: bool) -> None:
    """RocketMQ marked the store as broken for good if a queue could not be written, even once there was space again."""
    fs = FaultyFileSystem(OverlayFileSystem())
    shop = Shop(fs)
    store = shop.begin()
    shop.append(store, range(12))
    fs.fault = full(*parts)
    stored: list[int] = []
    for number in range(12, 32):
        shop.clock.now_ms += 1000
        try:
            store.append(queue_of(number), [record(number)])
        except DiskFull:
            continue
        stored.append(number)
    assert stored == [] or parts not in (("",), ("/commitlog",))
    fs.fault = no_fault
    assert store.stats().fenced is None
    everything = [*range(12), *stored]
    later = range(32, 50)
    shop.append(store, later)
    store.flush()
    everything += later
    for queue in QUEUES:
        mine = [b"value %3d" % number for number in everything if queue_of(number) == queue]
        assert [r.value for r in store.scan(queue)] == mine
    check_found(store, everything)
    if closing:
        store.close()
    with shop.after_kill().open() as reopened:
        assert reopened.recovery.clean_shutdown is closing
        check_whole(reopened, everything)
