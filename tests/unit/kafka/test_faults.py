"""A full disk, a broken disk and a kill at every single change that a store's life makes to its disk.

What was acknowledged is there afterwards, once and in order; a full disk leaves the store usable, anything else fences
it; a topic is there whole or not at all; nothing lies about that does not belong.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from storage import Isolation, LogStore, Record, TopicPartition
from storage.errors import DiskFull, IoFailure, StorageError, StoreFenced
from storage.files import OverlayFileSystem
from storage.kafka.format.batch import encode_batch, encode_control_batch
from storage.kafka.format.names import parse_partition_dir
from tests.unit.kafka.faults import (
    Fault,
    FaultyFileSystem,
    Killed,
    at_change,
    broken,
    disk_full,
    fails,
    killed,
    no_fault,
)
from tests.unit.kafka.workshop import ROOT, T0, Workshop, put_sequenced, put_value, values

SETTINGS = {"internal.segment.bytes": "400", "index.interval.bytes": "90"}
VALUES = [b"value %2d" % n for n in range(12)]
CONFIGS = {"retention.ms": "60000"}
U0 = TopicPartition("u", 0)
Step = Callable[[LogStore], object]


class Life:
    """One run of a store: its steps in order, what was acknowledged, and what went wrong."""

    def __init__(self) -> None:
        self.memory = OverlayFileSystem()
        self.fs = FaultyFileSystem(self.memory)
        self.shop = Workshop(self.fs)
        self.acknowledged: list[bytes] = []
        self.errors: list[BaseException] = []

    def steps(self) -> Iterator[Step]:
        """Everything that writes."""
        yield lambda store: store.create_topic("t", 1)
        for value in VALUES[:6]:
            yield from self._produce(value)
        yield lambda store: store.create_topic("u", 2, CONFIGS)
        yield lambda store: store.append(U0, [Record(b"k", b"kept by no one", (), 1)])
        yield lambda store: store.alter_topic("u", {"retention.ms": "1"})
        yield lambda store: store.new_producer_id()
        yield lambda store: store.checkpoint()
        for value in VALUES[6:]:
            yield from self._produce(value)
        yield lambda store: store.enforce_retention(10_000_000)
        yield lambda store: store.delete_topic("u")

    def _produce(self, value: bytes) -> Iterator[Step]:
        yield lambda store: store.append(T0, [Record(None, value, (), 1)])

        def acknowledge(store: LogStore) -> None:
            store.flush()
            self.acknowledged.append(value)

        yield acknowledge

    def run(self, *, retries: int) -> None:
        """Live it; a step that finds the disk full is tried again, a fence or a kill ends it all."""
        try:
            with self.shop.open(SETTINGS) as store:
                for step in self.steps():
                    self._do(step, store, retries)
        except (StoreFenced, IoFailure, Killed) as error:
            self.errors.append(error)

    def _do(self, step: Step, store: LogStore, retries: int) -> None:
        for _ in range(retries):
            try:
                step(store)
            except DiskFull as error:
                self.errors.append(error)
            else:
                return
        step(store)

    def reopened(self) -> Workshop:
        """What the next process finds."""
        return Workshop(OverlayFileSystem(self.memory))


def changes_in_all() -> int:
    life = Life()
    before = life.fs.changes
    life.run(retries=0)
    assert life.acknowledged == VALUES
    return life.fs.changes - before


CHANGES = changes_in_all()


def check_found(life: Life) -> None:
    """Open what is left: sound and dense, and what was acknowledged is there once and in order."""
    shop = life.reopened()
    with shop.open(SETTINGS) as store:
        assert [f for f in store.recovery.findings if f.severity == "error"] == []
        addresses = [
            TopicPartition(t.name, n) for t in store.topics().values() for n in t.partitions
        ]
        for address in addresses:
            _check_dense(store, address)
        found = values(store) if "t" in store.topics() else []
        assert found == VALUES[: len(found)]
        assert found[: len(life.acknowledged)] == life.acknowledged
        _check_topics(store)
    _check_names(shop, addresses)


def _check_dense(store: LogStore, address: TopicPartition) -> None:
    offsets = [record.offset for record in store.scan(address)]
    bounds = store.bounds(address)
    assert offsets == list(range(bounds.start, bounds.end))


def _check_topics(store: LogStore) -> None:
    topics = store.topics()
    assert set(topics) <= {"t", "u"}
    if "u" in topics:
        assert topics["u"].configs in (CONFIGS, {"retention.ms": "1"}, {})


def _check_names(shop: Workshop, addresses: list[TopicPartition]) -> None:
    """Nothing lies beside the store but what was cut, and in it no folder but the partitions'."""
    assert set(shop.fs.list_dir(ROOT.parent)) == {ROOT.name, *shop.cut_dirs()}
    folders = [name for name in shop.fs.list_dir(ROOT) if shop.fs.is_dir(ROOT / name)]
    assert [parse_partition_dir(name) for name in folders] == addresses


@pytest.mark.parametrize("count", range(1, CHANGES + 1))
def test_a_disk_that_is_full_for_a_moment(count: int) -> None:
    life = Life()
    life.fs.fault = at_change(life.fs, count, disk_full)
    life.run(retries=1)
    assert [type(error) for error in life.errors] in ([], [DiskFull])
    assert life.acknowledged in ([], VALUES), "at most the start or the end failed"
    check_found(life)


@pytest.mark.parametrize("count", range(1, CHANGES + 1))
def test_a_disk_with_an_error(count: int) -> None:
    life = Life()
    life.fs.fault = at_change(life.fs, count, broken)
    life.run(retries=0)
    assert all(isinstance(error, StoreFenced | IoFailure) for error in life.errors)
    marked = life.memory.exists(ROOT / ".kafka_cleanshutdown")
    assert marked is (count == CHANGES), "all but the last sync is done before the marker is there"
    check_found(life)


@pytest.mark.parametrize("count", range(1, CHANGES + 1))
def test_a_kill(count: int) -> None:
    life = Life()
    life.fs.fault = at_change(life.fs, count, killed)
    life.run(retries=0)
    assert [type(error) for error in life.errors] == [Killed]
    check_found(life)


# ---- a recovery that is itself cut off -------------------------------------------------------------------------------


def a_torn_store() -> OverlayFileSystem:
    """Six segments never stopped cleanly; the last batch is torn, an index lost, a topic half deleted."""
    memory = OverlayFileSystem()
    shop = Workshop(memory)
    store = shop.open_with_topic(SETTINGS)
    for value in VALUES:
        put_value(store, value)
    shop.truncate(len(shop.bytes_of(shop.bases()[-1])) - 5, base_offset=shop.bases()[-1])
    memory.remove(shop.path(0, ".index"))
    memory.make_dir(ROOT / f"u-0.{'0' * 32}-delete")
    return memory


TORN = a_torn_store()
TORN_BYTES = Workshop(TORN).bytes_of(10)[-71:]


def recover(fault: Fault, count: int) -> tuple[OverlayFileSystem, int]:
    """Open the torn store on a disk with one bad moment; what is there then, and how many changes were made."""
    memory = OverlayFileSystem(TORN)
    fs = FaultyFileSystem(memory)
    shop = Workshop(fs)
    before = fs.changes
    fs.fault = at_change(fs, count, fault)
    with suppress(StorageError, Killed):
        shop.open(SETTINGS)
    return memory, fs.changes - before


RECOVERY_CHANGES = recover(killed, 10_000)[1]


@pytest.mark.parametrize("fault", [disk_full, broken, killed])
@pytest.mark.parametrize("count", range(1, RECOVERY_CHANGES + 1))
def test_a_recovery_may_be_cut_off_anywhere(fault: Fault, count: int) -> None:
    memory, _ = recover(fault, count)
    shop = Workshop(OverlayFileSystem(memory))
    with shop.open(SETTINGS) as store:
        assert values(store) == VALUES[:-1]
        assert store.bounds(T0) == (0, len(VALUES) - 1, len(VALUES) - 1)
    _check_names(shop, [T0])
    torn = [
        shop.fs.read_bytes(ROOT.parent / name / str(T0) / kept)
        for name in shop.cut_dirs()
        for kept in shop.fs.list_dir(ROOT.parent / name / str(T0))
    ]
    assert torn == [TORN_BYTES]


# ---- one by one ------------------------------------------------------------------------------------------------------


@pytest.fixture
def faulty() -> FaultyFileSystem:
    """The disk of `shop`."""
    return FaultyFileSystem(OverlayFileSystem())


@pytest.fixture
def shop(faulty: FaultyFileSystem) -> Workshop:
    """A place for one store on a disk with bad moments."""
    return Workshop(faulty)


def test_nothing_of_an_append_stays_on_a_full_disk(
    shop: Workshop, faulty: FaultyFileSystem
) -> None:
    store = shop.open_with_topic()
    put_value(store, b"before")
    log = shop.bytes_of(0)
    faulty.fault = fails(errno.ENOSPC, "write", name=".log")
    for _ in range(3):
        with pytest.raises(DiskFull) as failure:
            put_sequenced(store, 7, 0)
        assert failure.value.facts()["path"] == str(shop.path(0))
    assert shop.bytes_of(0) == log, "half of it had been written"
    assert store.bounds(T0).end == 1
    assert store.stats().fenced is None
    faulty.fault = no_fault
    assert put_sequenced(store, 7, 0).base_offset == 1, "no duplicate: the first try is forgotten"
    store.close()
    assert values(shop.open()) == [b"before", b"7/0"]


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
def test_nothing_of_an_append_stays_when_its_index_entry_finds_no_space(
    shop: Workshop, faulty: FaultyFileSystem, suffix: str
) -> None:
    settings = {"index.interval.bytes": "0"}
    store = shop.open_with_topic(settings)
    for n in range(3):
        shop.clock.now_ms += 1
        put_value(store, b"%d" % n)
    log = shop.bytes_of(0)
    faulty.fault = fails(errno.ENOSPC, "write", name=suffix)
    shop.clock.now_ms += 1
    with pytest.raises(DiskFull):
        put_value(store, b"lost")
    assert shop.bytes_of(0) == log
    faulty.fault = no_fault
    for n in range(3, 6):
        shop.clock.now_ms += 1
        put_value(store, b"%d" % n)
    store.close()
    indexes = [shop.bytes_of(0, ".index"), shop.bytes_of(0, ".timeindex")]
    found = shop.after_kill()
    found.fs.remove(ROOT / ".kafka_cleanshutdown")
    with found.open(settings) as again:
        assert values(again) == [b"%d" % n for n in range(6)]
    assert [found.bytes_of(0, ".index"), found.bytes_of(0, ".timeindex")] == indexes


@pytest.mark.parametrize("name", [".log", ".index", ".timeindex", ".snapshot"])
def test_a_roll_without_space_leaves_no_segment(
    shop: Workshop, faulty: FaultyFileSystem, name: str
) -> None:
    settings = {"internal.segment.bytes": "300"}
    store = shop.open_with_topic(settings)
    for n in range(3):
        put_value(store, b"value %d" % n)
    faulty.fault = fails(errno.ENOSPC, "create", name=name)
    with pytest.raises(DiskFull):
        put_value(store, b"too long for what is left of the segment" * 3)
    assert shop.bases() == [0]
    put_value(store, b"fits")
    faulty.fault = no_fault
    put_value(store, b"too long for what is left of the segment" * 3)
    assert shop.bases() == [0, 4]
    for found in (shop.after_kill(), shop):
        store.close() if found is shop else None
        with found.open(settings) as again:
            assert again.recovery.findings == []
            assert len(values(again)) == 5


def test_a_failed_write_fences(shop: Workshop, faulty: FaultyFileSystem) -> None:
    store = shop.open_with_topic()
    put_value(store, b"before")
    store.flush()
    faulty.fault = fails(errno.EIO, "write", name=".log")
    with pytest.raises(StoreFenced):
        put_value(store, b"lost")
    faulty.fault = no_fault
    assert store.stats().fenced is not None
    for refused in (
        lambda: put_value(store, b"x"),
        lambda: store.create_topic("u"),
        store.new_producer_id,
        store.checkpoint,
        lambda: store.delete_topic("t"),
        lambda: store.enforce_retention(0),
    ):
        with pytest.raises(StoreFenced):
            refused()
    assert values(store) == [b"before"], "what there was is still served"
    store.close()
    assert not shop.fs.exists(ROOT / ".kafka_cleanshutdown")
    with shop.open() as again:
        assert not again.recovery.clean_shutdown
        assert values(again) == [b"before"]
        assert [f.code for f in again.recovery.findings] == ["torn-tail"]


@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC, errno.EDQUOT])
def test_a_failed_sync_fences_and_publishes_nothing(
    shop: Workshop, faulty: FaultyFileSystem, number: int
) -> None:
    store = shop.open_with_topic()
    put_value(store, b"before")
    store.flush()
    store.append(T0, [Record(None, b"unsure")], publish=False)
    faulty.fault = fails(number, "datasync", name=".log")
    with pytest.raises(StoreFenced):
        store.flush()
    faulty.fault = no_fault
    assert store.bounds(T0).end == 1
    with pytest.raises(StoreFenced):
        store.flush()
    assert store.bounds(T0).end == 1, "a sync that failed is never tried again"
    assert values(store) == [b"before"]
    store.close()
    assert not shop.fs.exists(ROOT / ".kafka_cleanshutdown")
    with shop.open() as again:
        assert values(again) == [b"before", b"unsure"], "it had been written, and now it is synced"


def test_an_abort_without_space_in_the_index_fences(
    shop: Workshop, faulty: FaultyFileSystem
) -> None:
    store = shop.open_with_topic()
    data = encode_batch(
        [(None, b"x", (), 1)],
        base_offset=0,
        leader_epoch=0,
        now_ms=1,
        producer_id=9,
        producer_epoch=0,
        base_sequence=0,
        transactional=True,
    )
    store.append_batches(T0, data, transactions=True)
    abort = encode_control_batch(
        commit=False,
        coordinator_epoch=0,
        producer_id=9,
        producer_epoch=0,
        base_offset=1,
        leader_epoch=0,
        timestamp_ms=2,
    )
    faulty.fault = fails(errno.ENOSPC, "create", name=".txnindex")
    with pytest.raises(StoreFenced):
        store.append_batches(T0, abort, transactions=True)
    faulty.fault = no_fault
    store.close()
    with shop.open() as again:
        assert again.bounds(T0) == (0, 2, 2)
        assert list(again.scan(T0, isolation=Isolation.READ_COMMITTED)) == []


def test_a_topic_that_finds_no_space_is_not_there(shop: Workshop, faulty: FaultyFileSystem) -> None:
    store = shop.open()
    before = list(shop.fs.list_dir(ROOT))
    faulty.fault = lambda operation, path: (
        disk_full(operation, path) if operation == "rename" and path.name == "t-1" else None
    )
    with pytest.raises(DiskFull):
        store.create_topic("t", 3)
    assert list(shop.fs.list_dir(ROOT)) == before
    assert store.topics() == {}
    faulty.fault = no_fault
    store.create_topic("t", 3, {"segment.ms": "5"})
    store.close()
    with shop.open() as again:
        assert [(t.name, len(t.partitions), t.configs) for t in again.topics().values()] == [
            ("t", 3, {"segment.ms": "5"})
        ]


def test_all_of_a_topic_is_made_inside_the_store(shop: Workshop, faulty: FaultyFileSystem) -> None:
    store = shop.open()
    touched: list[Path] = []
    faulty.fault = lambda operation, path: touched.append(path)
    store.create_topic("t", 2)
    store.delete_topic("t")
    assert {path for path in touched if ROOT not in path.parents} <= {ROOT}, (
        "beside it another file system may lie, from which nothing can be renamed"
    )
