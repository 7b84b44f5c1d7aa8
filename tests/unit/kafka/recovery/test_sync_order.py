"""Power loss at every moment, on a disk that keeps only synced data: all promises made before it hold.

See docs/reliability.md, "How".
"""

from __future__ import annotations

import errno
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from storage import LogStore, Record, StoreOptions, TopicPartition
from storage.errors import DiskFull, OutOfOrderSequence
from storage.files import OverlayFileSystem, atomic_write
from storage.kafka.format.checkpoints import decode_offsets, encode_offsets
from storage.kafka.format.producer_snapshot import decode_snapshot
from storage.kafka.store import KafkaStore, open_kafka
from tests.contract.harness import ManualClock
from tests.robustness.crash.faulty import FaultyFileSystem, fails, no_fault
from tests.robustness.crash.power import Power, moments
from tests.unit.kafka.recovery.outage import (
    SETTINGS,
    VALUES,
    abort_one,
    after_cut,
    check_whole,
    committed,
    fill,
    folder,
    on,
    safe_place,
)
from tests.unit.kafka.workshop import ROOT, T0, Workshop, put_sequenced, put_value, values

MARKER = ROOT / ".kafka_cleanshutdown"


@pytest.fixture
def shop(power: Power) -> Workshop:
    """A workshop on a disk that can lose its power."""
    return safe_place(power)


# ---- flushed records -------------------------------------------------------------------------------------------------


def test_flushed_records_of_all_segments_are_there(power: Power, shop: Workshop) -> None:
    store = shop.open_with_topic(SETTINGS)
    fill(shop, store, VALUES)
    assert len(shop.bases()) > 3
    store.flush()
    found = after_cut(power, shop)
    assert found.bases() == shop.bases()
    check_whole(found, VALUES)


def test_each_flush_holds_until_the_next(power: Power, shop: Workshop) -> None:
    store = shop.open_with_topic(SETTINGS)
    for count, value in enumerate(VALUES, 1):
        fill(shop, store, [value])
        for cut in moments(power, store.flush)[:-1]:
            found = values(on(cut, shop).open(SETTINGS))
            assert found == VALUES[: len(found)], "a beginning of what was written"
            assert len(found) >= count - 1
        check_whole(after_cut(power, shop), VALUES[:count])


def test_a_flush_shows_what_came_during_it(power: Power, shop: Workshop) -> None:
    """Records that need no sync of their own wait for earlier records that do, and are published with them."""
    store = shop.open_with_topic()
    store.append(T0, [Record(None, b"all")], publish=False)
    put_value(store, b"one, behind it")
    assert store.bounds(T0).end == 0

    def append_more(operation: str, path: Path) -> None:
        if operation == "datasync":
            power.before = lambda operation, path: None
            put_value(store, b"one, during the sync")

    power.before = append_more
    store.flush()
    assert values(store) == [b"all", b"one, behind it", b"one, during the sync"]
    assert values(after_cut(power, shop).open())[:1] == [b"all"]


def test_a_flush_does_not_show_what_waits_for_the_next(power: Power, shop: Workshop) -> None:
    store = shop.open_with_topic()
    store.append(T0, [Record(None, b"first")], publish=False)

    def append_more(operation: str, path: Path) -> None:
        if operation == "datasync":
            power.before = lambda operation, path: None
            put_value(store, b"one")
            store.append(T0, [Record(None, b"second")], publish=False)

    power.before = append_more
    store.flush()
    shown = values(store)
    assert shown == [b"first"]
    store.flush()
    assert values(store) == [b"first", b"one", b"second"]


def test_nothing_that_waits_for_its_sync_is_shown_before_it(power: Power, shop: Workshop) -> None:
    store = shop.open_with_topic(SETTINGS)
    for value in VALUES:
        store.append(T0, [Record(None, value)], publish=False)
        shown = values(store)
        found = values(after_cut(power, shop).open(SETTINGS))
        assert found[: len(shown)] == shown
    store.flush()
    assert values(store) == VALUES


# ---- files that belong to the records --------------------------------------------------------------------------------


def test_a_snapshot_outlives_the_segments_that_it_sums_up(power: Power, shop: Workshop) -> None:
    settings = {**SETTINGS, "log.retention.bytes": "500"}
    store = shop.open_with_topic(settings)
    put_sequenced(store, 7, 0, count=2)
    put_sequenced(store, 7, 2)
    fill(shop, store, VALUES[:8])
    store.flush()
    assert store.enforce_retention(shop.clock.now_ms).segments_deleted
    assert shop.bases()[0] > 2
    assert len(shop.bases()) > 1, (
        "the snapshot at the log's start does not count, as with the broker"
    )
    found = after_cut(power, shop)
    assert found.bases() == shop.bases()
    with found.open(settings) as again:
        assert again.recovery.findings == []
        with pytest.raises(OutOfOrderSequence):
            put_sequenced(again, 7, 4)
        assert put_sequenced(again, 7, 2).duplicate
        assert put_sequenced(again, 7, 3).base_offset == 11


def test_rolled_segments_are_complete_below_the_recovery_point(
    power: Power, shop: Workshop
) -> None:
    """Recovery does not read rolled segments below the recovery point again, so all of their files must be durable."""
    store = shop.open_with_topic(SETTINGS)
    put_sequenced(store, 7, 0)
    fill(shop, store, VALUES)
    store.flush()
    store.checkpoint()
    found = after_cut(power, shop)
    active = shop.bases()[-1]
    assert found.offsets("recovery-point-offset-checkpoint")[T0] > active
    rolled = {n: data for n, data in folder(shop).items() if not n.startswith(f"{active:020d}.")}
    snapshot = f"{active:020d}.snapshot"
    rolled[snapshot] = folder(shop)[snapshot]
    assert {n: data for n, data in folder(found).items() if n in rolled} == rolled
    check_whole(found, [b"7/0", *VALUES])


@pytest.mark.parametrize("stop", ["power", "clean"])
def test_aborted_records_stay_hidden(power: Power, shop: Workshop, stop: str) -> None:
    store = shop.open_with_topic(SETTINGS)
    abort_one(store)
    if stop == "power":
        fill(shop, store, VALUES)
        store.flush()
        store.checkpoint()
        wanted = [b"stays", *VALUES]
        assert shop.bases(".txnindex") == [0]
    else:
        store.close()
        wanted = [b"stays"]
    found = after_cut(power, shop)
    with found.open(SETTINGS) as again:
        assert again.recovery.clean_shutdown is (stop == "clean")
        assert again.recovery.findings == []
        assert committed(again) == wanted
    assert found.bytes_of(0, ".txnindex") == shop.bytes_of(0, ".txnindex")
    assert len(found.bytes_of(0, ".txnindex")) == 34


def test_an_epoch_is_durable_before_its_first_batch_is_written(
    power: Power, shop: Workshop
) -> None:
    shop.open_with_topic().close()
    for epoch in range(1, 4):
        store = shop.open()
        known: list[list[tuple[int, int]]] = []

        def look(operation: str, path: Path, known: list[list[tuple[int, int]]] = known) -> None:
            if operation == "write" and path.suffix == ".log":
                known.append(after_cut(power, shop).epochs())

        power.before = look
        put_value(store, b"x")
        power.before = lambda operation, path: None
        assert [epochs[-1] for epochs in known] == [(epoch, epoch - 1)]
        store.close()


def test_a_batch_whose_epoch_finds_no_space_is_not_written() -> None:
    fs = FaultyFileSystem(OverlayFileSystem())
    shop = Workshop(fs)
    with shop.open_with_topic() as store:
        put_value(store, b"before")
    store = shop.open()
    fs.fault = fails(errno.ENOSPC, "write", name="leader-epoch-checkpoint.tmp")
    with pytest.raises(DiskFull):
        put_value(store, b"lost")
    fs.fault = no_fault
    put_value(store, b"after")
    store.close()
    with shop.open() as again:
        assert values(again) == [b"before", b"after"]
        assert again.recovery.findings == []


# ---- a clean stop ----------------------------------------------------------------------------------------------------


@pytest.fixture
def stopping(shop: Workshop) -> Iterator[KafkaStore]:
    """A store with rolled segments, unflushed records, a producer and an aborted transaction."""
    store = shop.open_with_topic(SETTINGS)
    fill(shop, store, VALUES[:6])
    store.flush()
    abort_one(store)
    put_sequenced(store, 7, 0)
    yield store
    store.close()


def test_the_marker_of_a_clean_stop_comes_last(
    power: Power, shop: Workshop, stopping: LogStore
) -> None:
    cuts = moments(power, stopping.close)
    marked = [cut for cut in cuts if cut.exists(MARKER)]
    assert 0 < len(marked) < len(cuts)
    assert cuts[-1].exists(MARKER)
    end = 11  # 6 values, 2 + 1 of the transaction, "stays", the producer's record
    for cut in marked:
        found = on(cut, shop)
        assert folder(found) == folder(shop)
        assert f"{end:020d}.snapshot" in folder(found)
        for name in ("recovery-point-offset-checkpoint", "replication-offset-checkpoint"):
            assert found.offsets(name) == {T0: end}
        with found.open(SETTINGS) as again:
            assert again.recovery.clean_shutdown
            assert again.recovery.findings == []
            assert committed(again) == [*VALUES[:6], b"stays", b"7/0"]
            assert put_sequenced(again, 7, 0).duplicate


def test_a_power_loss_during_a_clean_stop_loses_nothing_flushed(
    power: Power, shop: Workshop, stopping: LogStore
) -> None:
    for cut in moments(power, stopping.close):
        with on(cut, shop).open(SETTINGS) as again:
            assert again.recovery.findings == []
            found = committed(again)
            assert found[:6] == VALUES[:6]
            assert b"gone" not in found


def test_the_marker_is_durably_gone_before_anything_is_written(
    power: Power, shop: Workshop
) -> None:
    with shop.open_with_topic(SETTINGS) as store:
        fill(shop, store, VALUES[:3])
    store = shop.open(SETTINGS)
    assert not power.cut().exists(MARKER)
    fill(shop, store, VALUES[3:6])
    store.flush()
    check_whole(after_cut(power, shop), VALUES[:6])


def test_a_snapshot_of_a_clean_stop_is_there(power: Power, shop: Workshop) -> None:
    store = shop.open_with_topic()
    put_sequenced(store, 7, 0, count=3)
    store.close()
    found = after_cut(power, shop)
    assert [e.last_sequence for e in decode_snapshot(found.bytes_of(3, ".snapshot"))] == [2]


# ---- checkpoints -----------------------------------------------------------------------------------------------------


def test_checkpoints_name_only_what_is_synced(power: Power, shop: Workshop) -> None:
    store = shop.open_with_topic(SETTINGS)
    for count, value in enumerate(VALUES):
        fill(shop, store, [value])
        store.checkpoint()
        if count % 5 == 4:
            store.flush()
        if count % 5 == 3:
            store.append(T0, [Record(None, b"unsure")], publish=False)
        cut = power.cut()
        points = decode_offsets(cut.read_bytes(ROOT / "recovery-point-offset-checkpoint"))
        marks = decode_offsets(cut.read_bytes(ROOT / "replication-offset-checkpoint"))
        with on(cut, shop).open(SETTINGS) as again:
            end = again.bounds(T0).end
        assert marks[T0] <= points[T0] <= end


# ---- topics ----------------------------------------------------------------------------------------------------------


def test_a_created_topic_is_there_whole(power: Power, shop: Workshop) -> None:
    store = shop.open(SETTINGS)
    made = store.create_topic("u", 2, {"retention.ms": "60000"})
    found = after_cut(power, shop)
    for number in made.partitions:
        at = TopicPartition("u", number)
        assert found.names(at) == shop.names(at)
        assert found.epochs(at) == [(0, 0)]
    with found.open(SETTINGS) as again:
        assert again.topics() == {"u": made}
        assert again.recovery.findings == []


def test_a_topic_is_never_there_in_part(power: Power, shop: Workshop) -> None:
    store = shop.open(SETTINGS)
    cuts = moments(power, lambda: store.create_topic("u", 2))
    made = store.topics()["u"]
    seen = []
    for cut in cuts:
        with on(cut, shop).open(SETTINGS) as again:
            assert again.topics() in ({}, {"u": made})
            seen.append(bool(again.topics()))
    assert seen == sorted(seen)
    assert seen[-1]


def test_the_first_records_of_a_new_topic_are_there(power: Power, shop: Workshop) -> None:
    store = shop.open_with_topic()
    put_value(store, b"first")
    store.flush()
    check_whole(after_cut(power, shop), [b"first"])


def test_a_deleted_topic_is_gone(power: Power, shop: Workshop) -> None:
    store = shop.open_with_topic(SETTINGS, partitions=2)
    fill(shop, store, VALUES)
    known = put_sequenced(store, 70, 0)
    store.flush()
    assert known.base_offset == len(VALUES)
    seen = []
    for cut in moments(power, lambda: store.delete_topic("t")):
        with on(cut, shop).open(SETTINGS) as again:
            if again.topics():
                assert values(again) == [*VALUES, b"70/0"], "there whole"
            seen.append(bool(again.topics()))
            assert again.new_producer_id() > 70
    assert all(before >= after for before, after in pairwise(seen))
    assert not seen[-1]
    assert seen[0]


@pytest.mark.parametrize("again", ["same run", "next run"])
def test_a_topic_made_again_has_nothing_of_the_old(
    power: Power, shop: Workshop, again: str
) -> None:
    """The checkpoints of the old topic are removed too; otherwise the new log would begin at the old log start."""
    shop.open_with_topic(SETTINGS).close()
    log_starts = encode_offsets({T0: 5})
    atomic_write(power, ROOT / "log-start-offset-checkpoint", log_starts)
    store = shop.open(SETTINGS)
    fill(shop, store, VALUES)
    store.flush()
    store.checkpoint()
    store.delete_topic("t")
    if again == "next run":
        shop = after_cut(power, shop)
        power = Power(shop.fs)
        shop = on(power, shop)
        store = shop.open(SETTINGS)
    store.create_topic("t", 1)
    put_value(store, b"new")
    store.flush()
    check_whole(after_cut(power, shop), [b"new"])


# ---- the store itself ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "there",
    [
        "/",
        "/w",
        "/w/store",
    ],
)
def test_a_new_store_is_there_after_its_first_flush(there: str) -> None:
    """The store is durable, whichever folders above it existed before; `there` is the deepest of them."""
    memory = OverlayFileSystem()
    memory.make_dir(Path(there))
    power = Power(memory)
    options = StoreOptions()
    store = open_kafka(ROOT, options, fs=power, clock=ManualClock(), read_only=False)
    store.create_topic("t", 1)
    put_value(store, b"first")
    store.flush()
    found = Workshop(power.cut())
    identity = ROOT / "meta.properties"
    assert found.fs.read_bytes(identity) == memory.read_bytes(identity)
    assert values(found.open()) == [b"first"]


def test_producer_ids_are_not_given_twice(power: Power, shop: Workshop) -> None:
    store = shop.open()
    given = [store.new_producer_id() for _ in range(3)]
    assert after_cut(power, shop).open().new_producer_id() > max(given)


def test_altered_configs_are_there(power: Power, shop: Workshop) -> None:
    store = shop.open_with_topic()
    altered = store.alter_topic("t", {"retention.ms": "5"})
    assert after_cut(power, shop).open().topics()["t"].configs == altered.configs
