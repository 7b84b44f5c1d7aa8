"""A full disk, a broken disk and a kill at every single change that a store's life makes to its disk.

What was acknowledged is there afterwards, once and in order, and found by every lookup; a full disk leaves the store
usable, anything else fences it; a topic is there whole or not at all; nothing lies about that does not belong.
"""

from __future__ import annotations

import errno
import json
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from storage import LogStore, ProducerSequence, Record, TopicPartition
from storage.errors import DiskFull, IoFailure, StorageError, StoreFenced
from storage.files import OverlayFileSystem
from storage.rocketmq.format.names import file_name
from tests.contract.harness import ManualClock
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
from tests.unit.rocketmq.workshop import (
    LOG_BYTES,
    ROOT,
    T0,
    Workshop,
    check_lookups,
    keyed,
    on,
    place_of,
    put_file,
    put_sequenced,
    put_value,
    values,
)

VALUES = [b"value-%02d" % n for n in range(14)]
CONFIGS = {"topicSysFlag": "1"}
RETENTION = {"fileReservedTime": "1"}
HOUR_MS = 3_600_000
U0 = TopicPartition("u", 0)
Step = Callable[[LogStore], object]


class Life:
    """One run of a store: its steps in order, what was acknowledged, and what went wrong."""

    def __init__(self) -> None:
        clock = ManualClock()
        self.memory = OverlayFileSystem(clock=clock)
        self.fs = FaultyFileSystem(self.memory)
        self.shop = Workshop(self.fs, clock)
        self.acknowledged: list[bytes] = []
        self.errors: list[BaseException] = []
        self.opened = False

    def steps(self) -> Iterator[Step]:
        """Everything that writes."""
        yield lambda store: store.create_topic("u", 2, CONFIGS)
        yield lambda store: store.append(U0, [Record(b"k", b"kept by no one" * 40)])
        yield lambda store: store.append(U0, [Record(b"k", b"kept by no one" * 40)])
        yield lambda store: store.create_topic("t", 1)
        yield from self._keep_first_files_old()
        for value in VALUES[:6]:
            yield from self._produce(value)
        yield lambda store: store.alter_topic("u", {"topicSysFlag": "2"})
        yield lambda store: store.new_producer_id()
        yield lambda store: store.checkpoint()
        for value in VALUES[6:]:
            yield from self._produce(value)
        yield lambda store: store.enforce_retention(self.shop.clock.now_ms)
        yield lambda store: store.delete_topic("u")

    def _keep_first_files_old(self) -> Iterator[Step]:
        """What follows is written an hour later, so that retention takes only what was before."""

        def later(store: LogStore) -> None:
            self.shop.clock.now_ms += HOUR_MS

        yield later

    def _produce(self, value: bytes) -> Iterator[Step]:
        """A record, as a producer's or not, in a batch of its own; then its acknowledgement."""
        sequence = VALUES.index(value)
        producer = ProducerSequence(7, 0, sequence // 3) if sequence % 3 == 0 else None
        yield lambda store: store.append(T0, [keyed(value)], producer=producer)

        def acknowledge(store: LogStore) -> None:
            store.flush()
            self.acknowledged.append(value)

        yield acknowledge
        if sequence % 2:
            yield lambda store: store.read(T0, 0)  # which dispatches

    def run(self, *, retries: int) -> None:
        """Live it; a step that finds the disk full is tried again, a fence or a kill ends it all."""
        try:
            with self.shop.open(RETENTION) as store:
                self.opened = True
                for step in self.steps():
                    self.shop.clock.now_ms += 1
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
        return on(OverlayFileSystem(self.memory), self.shop)


def changes_in_all() -> int:
    life = Life()
    before = life.fs.changes
    life.run(retries=0)
    assert life.errors == []
    assert life.acknowledged == VALUES
    assert 0 not in life.shop.log_bases(), "retention has taken something"
    return life.fs.changes - before


CHANGES = changes_in_all()


def check_found(life: Life) -> None:
    """Open what is left: sound and dense, and what was acknowledged is there once and in order."""
    shop = life.reopened()
    with shop.open(RETENTION) as store:
        assert [f for f in store.recovery.findings if f.severity == "error"] == []
        found = values(store) if "t" in store.topics() else []
        assert found == VALUES[: len(found)]
        assert found[: len(life.acknowledged)] == life.acknowledged
        _check_topics(store)
        put_value(store, b"afterwards") if "t" in store.topics() else None
    with shop.open(RETENTION) as store:
        assert store.recovery.clean_shutdown
        assert list(store.recovery.losses) == []
        if "t" in store.topics():
            assert values(store) == [*found, b"afterwards"]
            check_lookups(store)
        assert set(shop.names("consumequeue")) <= set(store.topics())
    assert set(shop.fs.list_dir(ROOT.parent)) == {ROOT.name, *shop.cut_dirs()}


def _check_topics(store: LogStore) -> None:
    topics = store.topics()
    assert set(topics) <= {"t", "u"}
    if "u" in topics:
        assert topics["u"].configs in (CONFIGS, {"topicSysFlag": "2"})


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
    assert life.errors or count == CHANGES
    if life.opened:
        assert life.memory.exists(ROOT / "abort") is (count < CHANGES), "all is done before it goes"
    check_found(life)


@pytest.mark.parametrize("count", range(1, CHANGES + 1))
def test_a_kill(count: int) -> None:
    life = Life()
    life.fs.fault = at_change(life.fs, count, killed)
    life.run(retries=0)
    assert [type(error) for error in life.errors] == [Killed]
    check_found(life)


# ---- a recovery that is itself cut off ----


def a_torn_store() -> OverlayFileSystem:
    """A log of some files never stopped cleanly: of the last record only the first half is there, a queue's last file
    and the index are gone, and a topic is half deleted.
    """
    memory = OverlayFileSystem()
    shop = Workshop(memory)
    store = shop.open_with_topic()
    store.create_topic("u", 1)
    gone = store.append(U0, [Record(b"k", b"of the topic that is deleted")])
    last = [put_value(store, value) for value in VALUES][-1]
    check_lookups(store)
    memory.remove(ROOT / "consumequeue/t/0" / file_name(shop.queue_bases()[-1]))
    memory.remove_tree(ROOT / "index")
    deleted = {"topics": {"u": place_of(gone) + 1}, "unfinished": ["u"]}
    put_file(memory, ROOT / ".logserver.deleted.json", json.dumps(deleted).encode())
    base, position = divmod(place_of(last), LOG_BYTES)
    shop.overwrite(shop.log_path(base * LOG_BYTES), position + 80, bytes(500))
    return memory


TORN = a_torn_store()
_AT = Workshop(TORN).open(read_only=True).log.end
TORN_BYTES = Workshop(TORN).log_bytes()[_AT:].rstrip(b"\0")
assert 60 < len(TORN_BYTES) < 80


def recover(fault: Fault, count: int) -> tuple[OverlayFileSystem, int]:
    """Open the torn store on a disk with one bad moment; what is there then, and how many changes were made."""
    memory = OverlayFileSystem(TORN)
    fs = FaultyFileSystem(memory)
    shop = Workshop(fs)
    before = fs.changes
    fs.fault = at_change(fs, count, fault)
    with suppress(StorageError, Killed):
        shop.open()
    return memory, fs.changes - before


RECOVERY_CHANGES = recover(killed, 10_000)[1]


@pytest.mark.parametrize("fault", [disk_full, broken, killed])
@pytest.mark.parametrize("count", range(1, RECOVERY_CHANGES + 1))
def test_a_recovery_may_be_cut_off_anywhere(fault: Fault, count: int) -> None:
    memory, _ = recover(fault, count)
    shop = Workshop(OverlayFileSystem(memory))
    with shop.open() as store:
        assert values(store) == VALUES[:-1]
        assert list(store.topics()) == ["t"]
        assert store.bounds(T0) == (0, len(VALUES) - 1, len(VALUES) - 1)
        check_lookups(store)
        put_value(store, VALUES[-1])
    with shop.open() as store:
        assert values(store) == VALUES
        check_lookups(store)
    kept = [
        shop.fs.read_bytes(ROOT.parent / name / "commitlog" / part)
        for name in shop.cut_dirs()
        for part in shop.names(f"../{name}/commitlog")
    ]
    assert kept == [TORN_BYTES]


# ---- one by one ----


@pytest.fixture
def faulty() -> FaultyFileSystem:
    """The disk of `shop`."""
    return FaultyFileSystem(OverlayFileSystem())


@pytest.fixture
def shop(faulty: FaultyFileSystem) -> Workshop:
    """A place for one store on a disk with bad moments."""
    return Workshop(faulty)


def in_log(fault: Fault) -> Fault:
    """A fault of the log's files only."""
    return lambda operation, path: (
        fault(operation, path) if path.parent.name == "commitlog" else None
    )


def test_nothing_of_an_append_stays_on_a_full_disk(
    shop: Workshop, faulty: FaultyFileSystem
) -> None:
    store = shop.open_with_topic()
    put_value(store, b"before")
    log = shop.log_bytes()
    faulty.fault = in_log(fails(errno.ENOSPC, "write"))
    for _ in range(3):
        with pytest.raises(DiskFull) as failure:
            put_sequenced(store, 7, 0)
        assert failure.value.facts()["path"] == str(shop.log_path())
    assert shop.log_bytes() == log, "half of it had been written"
    assert store.bounds(T0).end == 1
    assert store.stats().fenced is None
    faulty.fault = no_fault
    assert put_sequenced(store, 7, 0).base_offset == 1, "no duplicate: the first try is forgotten"
    store.close()
    assert values(shop.open()) == [b"before", b"7/0"]


@pytest.mark.parametrize("change", range(1, 9))
def test_nothing_of_an_append_over_several_files_stays(
    shop: Workshop, faulty: FaultyFileSystem, change: int
) -> None:
    store = shop.open_with_topic()
    put_value(store, b"before")
    faulty.fault = at_change(faulty, change, disk_full)
    try:
        put_sequenced(store, 7, 0, count=14)
    except DiskFull:
        assert store.log.end < LOG_BYTES
        assert shop.log_bytes().rstrip(b"\0").count(b"7/") == 0
        assert store.bounds(T0).end == 1
        assert not put_sequenced(store, 7, 0, count=14).duplicate
    assert values(store) == [b"before", *(b"7/%d" % n for n in range(14))]
    found = shop.after_kill()
    with found.open() as again:
        assert values(again) == values(store)
        check_lookups(again)


def test_a_failed_write_fences(shop: Workshop, faulty: FaultyFileSystem) -> None:
    store = shop.open_with_topic()
    put_value(store, b"before")
    store.flush()
    faulty.fault = in_log(fails(errno.EIO, "write"))
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
    assert shop.fs.exists(ROOT / "abort")
    with shop.open() as again:
        assert not again.recovery.clean_shutdown
        assert values(again) == [b"before"]


@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC, errno.EDQUOT])
def test_a_failed_sync_fences_and_publishes_nothing(
    shop: Workshop, faulty: FaultyFileSystem, number: int
) -> None:
    store = shop.open_with_topic()
    put_value(store, b"before")
    store.flush()
    store.append(T0, [keyed(b"unsure")], publish=False)
    faulty.fault = in_log(fails(number, "datasync"))
    with pytest.raises(StoreFenced):
        store.flush()
    faulty.fault = no_fault
    assert store.bounds(T0).end == 1
    with pytest.raises(StoreFenced):
        store.flush()
    assert store.bounds(T0).end == 1, "a sync that failed is never tried again"
    assert values(store) == [b"before"]
    store.close()
    assert shop.fs.exists(ROOT / "abort")
    with shop.open() as again:
        assert values(again) == [b"before", b"unsure"], "it had been written, and now it is synced"


def test_a_topic_that_finds_no_space_is_not_there(shop: Workshop, faulty: FaultyFileSystem) -> None:
    store = shop.open()
    before = shop.files()
    faulty.fault = lambda operation, path: (
        disk_full(operation, path) if operation == "rename" and path.name == "topics.json" else None
    )
    with pytest.raises(DiskFull):
        store.create_topic("t", 3)
    assert store.topics() == {}
    assert shop.files() == before
    faulty.fault = no_fault
    store.create_topic("t", 3, {"topicSysFlag": "5"})
    store.close()
    with shop.open() as again:
        assert [(t.name, len(t.partitions), t.configs) for t in again.topics().values()] == [
            ("t", 3, {"topicSysFlag": "5"})
        ]


def test_all_that_is_written_lies_in_the_store(shop: Workshop, faulty: FaultyFileSystem) -> None:
    store = shop.open()
    touched: set[Path] = set()
    faulty.fault = lambda operation, path: touched.add(path)
    store.create_topic("t", 2)
    for value in VALUES:
        put_value(store, value)
    store.delete_topic("t")
    store.close()
    assert {path for path in touched if ROOT not in path.parents} <= {ROOT}
