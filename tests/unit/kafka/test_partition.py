"""A single partition: epochs, publishing, sequences over restarts, retention, and concurrent threads."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

import pytest

from storage import Isolation, LogStore, Record, TopicPartition
from storage.errors import (
    FencedProducer,
    OffsetOutOfRange,
    OutOfOrderSequence,
    UnknownTopic,
)
from storage.files import OverlayFileSystem
from storage.kafka.format.checkpoints import encode_clean_shutdown
from storage.kafka.format.producer_snapshot import decode_snapshot
from storage.kafka.log import encoding, reading
from storage.kafka.log.reading import Limits
from storage.kafka.store import KafkaStore
from tests.beside import beside
from tests.unit.files.guarded import Watched
from tests.unit.kafka.log.batches import data_batch
from tests.unit.kafka.workshop import (
    ROOT,
    T0,
    Workshop,
    only_partition,
    put_sequenced,
    put_value,
    values,
)

SIZE = len(data_batch())
THREE = {"internal.segment.bytes": str(3 * SIZE)}

Restart = Callable[[Workshop, LogStore], Workshop]


def stopped(shop: Workshop, store: LogStore) -> Workshop:
    store.close()
    return shop


def killed(shop: Workshop, store: LogStore) -> Workshop:
    store.flush()
    return shop.after_kill()


restarts = pytest.mark.parametrize("restart", [stopped, killed])


# ---- leader epochs ---------------------------------------------------------------------------------------------------


@restarts
def test_the_epoch_rises_with_the_first_append_after_a_start(
    shop: Workshop, restart: Restart
) -> None:
    store = shop.open_with_topic()
    put_value(store, b"0")
    put_value(store, b"1")
    assert shop.epochs() == [(0, 0)]
    shop = restart(shop, store)
    store = shop.open()
    assert shop.epochs() == [(0, 0)]
    put_value(store, b"2")
    put_value(store, b"3")
    assert shop.epochs() == [(0, 0), (1, 2)]
    shop = restart(shop, store)
    shop = restart(shop, shop.open())
    store = shop.open()
    put_value(store, b"4")
    assert shop.epochs() == [(0, 0), (1, 2), (2, 4)]
    (segment,) = only_partition(store).segments()
    assert [b.header.leader_epoch for b in segment.batches(0, stop_offset=9)] == [0, 0, 1, 1, 2]


def test_the_epoch_is_on_disk_before_its_first_batch() -> None:
    watched = Watched(OverlayFileSystem())
    shop = Workshop(watched)
    with shop.open_with_topic() as store:
        put_value(store, b"0")
    store = shop.open()
    watched.log.clear()
    put_value(store, b"1")
    steps = [step for step in watched.log if step[0] in ("write", "datasync", "rename", "sync_dir")]
    assert steps == [
        ("write", ".logserver.store.json.tmp"),
        ("datasync", ".logserver.store.json.tmp"),
        ("rename", ".logserver.store.json"),
        ("sync_dir", "store"),
        ("write", "leader-epoch-checkpoint.tmp"),
        ("datasync", "leader-epoch-checkpoint.tmp"),
        ("rename", "leader-epoch-checkpoint"),
        ("sync_dir", "t-0"),
        ("write", "00000000000000000000.log"),
    ]


def sessions(shop: Workshop, count: int) -> list[int]:
    """Return the epoch of each batch after `count` more starts with one append each."""
    for _ in range(count):
        with shop.open() as store:
            put_value(store, b"ours")
    found = shop.open(read_only=True)
    (segment,) = only_partition(found).segments()
    epochs = [b.header.leader_epoch for b in segment.batches(0, stop_offset=99)]
    found.close()
    return epochs


def test_a_broker_s_epoch_is_not_raised(shop: Workshop) -> None:
    """The epoch of a broker's store is not raised.

    The broker's controller knows the newest epoch and leads with the next; an epoch of our own would conflict with it.
    """
    shop.open_with_topic().close()
    shop.fs.remove(ROOT / ".logserver.store.json")
    assert sessions(shop, 3) == [0, 0, 0]


def test_nor_is_ours_once_a_broker_has_led(shop: Workshop) -> None:
    shop.open_with_topic().close()
    assert sessions(shop, 3) == [1, 2, 3]
    store = shop.open()
    store.append_batches(T0, data_batch(3, epoch=5), keep_offsets=True)
    store.close()
    assert sessions(shop, 3) == [1, 2, 3, 5, 5, 5, 5]


def test_nor_is_ours_once_a_broker_has_stopped_here(shop: Workshop) -> None:
    """Our epoch is not raised after a broker stopped here: it may have led with no higher epoch than ours."""
    shop.open_with_topic().close()
    assert sessions(shop, 2) == [1, 2]
    shop.put(ROOT / ".kafka_cleanshutdown", encode_clean_shutdown(7))
    assert sessions(shop, 3) == [1, 2, 2, 2, 2]


def test_kept_epochs_make_entries(shop: Workshop) -> None:
    store = shop.open_with_topic()
    for offset, epoch in ((0, 0), (1, 0), (2, 4), (3, 7)):
        store.append_batches(T0, data_batch(offset, epoch=epoch), keep_offsets=True)
    assert shop.epochs() == [(0, 0), (4, 2), (7, 3)]
    put_value(store, b"x")
    assert shop.epochs()[-1][0] >= 7


# ---- publishing ------------------------------------------------------------------------------------------------------


def test_what_is_held_shows_with_the_flush_and_what_stands_behind_it_too(shop: Workshop) -> None:
    store = shop.open_with_topic()
    put_value(store, b"0")
    assert store.bounds(T0).end == 1
    store.append(T0, [Record(None, b"1")], publish=False)
    put_value(store, b"2")
    assert (store.bounds(T0).end, only_partition(store).next_offset) == (1, 3)
    store.flush()
    assert store.bounds(T0).end == 3
    put_value(store, b"3")
    assert store.bounds(T0).end == 4


def test_a_roll_publishes_nothing(shop: Workshop) -> None:
    store = shop.open_with_topic(THREE)
    for n in range(7):
        store.append(T0, [Record(None, b"%d" % n)], publish=False)
    assert shop.bases() == [0, 3, 6]
    assert (store.bounds(T0).end, only_partition(store).flushed_offset) == (0, 6)
    store.flush()
    assert (store.bounds(T0).end, only_partition(store).flushed_offset) == (7, 7)


def test_a_flush_with_nothing_to_sync_does_not_sync() -> None:
    watched = Watched(OverlayFileSystem())
    store = Workshop(watched).open_with_topic()
    put_value(store, b"0")
    store.flush()
    watched.log.clear()
    store.flush()
    assert watched.log == []


def test_reads_end_at_the_published_end(shop: Workshop) -> None:
    store = shop.open_with_topic()
    put_value(store, b"0")
    store.append(T0, [Record(None, b"1")], publish=False)
    page = store.read(T0, 0)
    assert ([r.value for r in page.records], page.next_offset) == ([b"0"], 1)
    assert store.read_batches(T0, 1).data == b""
    with pytest.raises(OffsetOutOfRange):
        store.read(T0, 2)


# ---- producers over restarts -----------------------------------------------------------------------------------------


@restarts
def test_producers_are_known_after_a_restart(shop: Workshop, restart: Restart) -> None:
    store = shop.open_with_topic(THREE)
    for sequence in range(5):
        put_sequenced(store, 7, sequence)
    put_sequenced(store, 8, 0, epoch=2, count=2)
    shop = restart(shop, store)
    store = shop.open(THREE)
    again = put_sequenced(store, 7, 4)
    assert (again.duplicate, again.base_offset) == (True, 4)
    with pytest.raises(OutOfOrderSequence):
        put_sequenced(store, 7, 6)
    with pytest.raises(FencedProducer):
        put_sequenced(store, 8, 2, epoch=1)
    assert put_sequenced(store, 7, 5).base_offset == 7
    assert put_sequenced(store, 8, 2, epoch=2).base_offset == 8
    assert store.new_producer_id() > 8


def test_snapshots_lie_at_the_rolls_and_at_the_close(shop: Workshop) -> None:
    store = shop.open_with_topic({"internal.segment.bytes": "150"})
    assert shop.bases(".snapshot") == []
    for sequence in range(5):
        put_sequenced(store, 7, sequence)
    assert (shop.bases(), shop.bases(".snapshot")) == ([0, 2, 4], [2, 4])
    store.close()
    assert shop.bases(".snapshot") == [2, 4, 5]
    found = {
        base: [
            (e.producer_id, e.last_sequence)
            for e in decode_snapshot(shop.bytes_of(base, ".snapshot"))
        ]
        for base in (2, 4, 5)
    }
    assert found == {2: [(7, 1)], 4: [(7, 3)], 5: [(7, 4)]}
    shop.open().close()
    assert shop.bases(".snapshot") == [2, 4, 5], "no other without an append"


def test_a_snapshot_in_the_middle_goes_when_it_is_not_the_last(shop: Workshop) -> None:
    with shop.open_with_topic() as store:
        put_sequenced(store, 7, 0)
    with shop.open() as store:
        put_sequenced(store, 7, 1)
    assert shop.bases(".snapshot") == [1, 2]
    shop.open().close()
    assert shop.bases(".snapshot") == [2]


def test_a_snapshot_above_the_end_does_not_keep_a_new_one_away(shop: Workshop) -> None:
    """A clean stop writes the producer snapshot at the log end, although a snapshot with a higher offset exists."""
    store = shop.open_with_topic()
    put_sequenced(store, 7, 0)
    store.close()
    shop.put(shop.path(900, ".snapshot"), shop.bytes_of(1, ".snapshot"))
    with shop.open(
        accept_loss=True
    ) as again:  # otherwise refused: this name says that the log once reached 900
        assert put_sequenced(again, 7, 1).base_offset == 900
    assert 901 in shop.bases(".snapshot")
    assert shop.open().recovery.findings == []


def test_silent_producers_are_forgotten_at_a_start(shop: Workshop) -> None:
    settings = {"producer.id.expiration.ms": "1000"}
    with shop.open_with_topic(settings) as store:
        put_sequenced(store, 7, 0)
    shop.clock.now_ms += 999
    with shop.open(settings) as store, pytest.raises(OutOfOrderSequence):
        put_sequenced(store, 7, 5)
    shop.clock.now_ms += 1
    with shop.open(settings) as store:
        assert put_sequenced(store, 7, 5).base_offset == 1
        assert store.new_producer_id() > 7, "an id once seen is not given again"


# ---- retention -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("topic", ["__transaction_state", "__share_group_state"])
def test_what_coordinators_know_is_not_deleted(shop: Workshop, topic: str) -> None:
    """Coordinator topics ignore the store's retention: the broker compacts one of them and prunes the other itself."""
    store = shop.open({**THREE, "retention.ms": "1000", "retention.bytes": "1"})
    store.create_topic(topic, 1)
    for _ in range(7):
        store.append(TopicPartition(topic, 0), [Record(b"key", b"state")])
    assert store.enforce_retention(1 << 60).segments_deleted == 0
    assert store.bounds(TopicPartition(topic, 0)) == (0, 7, 7)


def six_segments(shop: Workshop, configs: dict[str, str]) -> LogStore:
    """Write records at 0, 1000, ... 17000 ms, three to a segment."""
    store = shop.open(THREE)
    store.create_topic("t", 1, configs)
    for n in range(18):
        store.append(T0, [Record(None, b"x", (), n * 1000)])
    store.flush()
    return store


def test_nothing_goes_unless_it_is_asked_for(shop: Workshop) -> None:
    store = six_segments(shop, {})
    report = store.enforce_retention(1 << 60)
    assert (report.segments_deleted, shop.bases()) == (0, [0, 3, 6, 9, 12, 15])


def test_records_that_are_not_flushed_stay(shop: Workshop) -> None:
    """Unflushed records are not deleted; otherwise their flush would acknowledge records that are already lost."""
    store = shop.open(THREE)
    store.create_topic("t", 1, {"retention.ms": "0"})
    for n in range(3):
        store.append(T0, [Record(None, b"x", (), n)])
    store.flush()
    for n in range(6):
        store.append(T0, [Record(None, b"y", (), n)], publish=False)
    assert shop.bases() == [0, 3, 6]
    assert store.enforce_retention(1 << 50).segments_deleted == 1
    assert shop.bases() == [3, 6]
    store.flush()
    assert values(store) == [b"y"] * 6
    assert store.enforce_retention(1 << 50).segments_deleted == 2


@pytest.mark.parametrize("start", [1, 5, 9])
def test_a_lookup_by_time_answers_nothing_below_the_start(shop: Workshop, start: int) -> None:
    """The log start may be inside a batch, as delete-records leaves it."""
    store = shop.open_with_topic()
    store.append(T0, [Record(None, b"x", (), 1000 + n) for n in range(10)])
    store.close()
    shop.put(ROOT / "log-start-offset-checkpoint", b"0\n1\nt 0 %d\n" % start)
    again = shop.open()
    assert again.bounds(T0).start == start
    for time_ms in range(1000, 1010):
        found = again.offset_for_time(T0, time_ms)
        assert found is not None
        assert found.offset == max(start, time_ms - 1000)


def test_segments_below_the_start_do_not_answer_a_lookup_by_time(shop: Workshop) -> None:
    """After a kill they are there until the next retention, with the same times as later segments."""
    store = shop.open_with_topic({"internal.segment.bytes": "150"})
    for value in range(8):
        store.append(T0, [Record(None, b"%d" % value, (), 1000)])
    store.close()
    start = shop.bases()[2]
    shop.put(ROOT / "log-start-offset-checkpoint", b"0\n1\nt 0 %d\n" % start)
    again = shop.open()
    assert shop.bases()[0] < start
    found = again.offset_for_time(T0, 1000)
    assert found is not None
    assert found.offset == start


@pytest.mark.parametrize(
    ("configs", "now_ms", "bases"),
    [
        ({"retention.ms": "5000"}, 7000, [0, 3, 6, 9, 12, 15]),
        ({"retention.ms": "5000"}, 7001, [3, 6, 9, 12, 15]),
        ({"retention.ms": "5000"}, 22_000, [15]),
        ({"retention.ms": "5000"}, 1 << 50, [18]),
        ({"retention.ms": "-1"}, 1 << 50, [0, 3, 6, 9, 12, 15]),
        ({"retention.ms": "0"}, 14_000, [12, 15]),
        ({"retention.bytes": str(15 * SIZE + 1)}, 0, [0, 3, 6, 9, 12, 15]),
        ({"retention.bytes": str(15 * SIZE)}, 0, [3, 6, 9, 12, 15]),
        ({"retention.bytes": "1"}, 0, [15]),
        ({"retention.bytes": "0"}, 0, [18]),
    ],
)
def test_leading_segments_go_by_time_or_size(
    shop: Workshop, configs: dict[str, str], now_ms: int, bases: list[int]
) -> None:
    store = six_segments(shop, configs)
    report = store.enforce_retention(now_ms)
    assert shop.bases() == bases
    assert shop.bases(".index") == shop.bases(".timeindex") == bases
    assert all(offset >= bases[0] for offset in shop.bases(".snapshot"))
    deleted = bases[0] // 3
    assert (report.segments_deleted, report.bytes_deleted) == (deleted, deleted * 3 * SIZE)
    assert store.bounds(T0) == (bases[0], 18, 18)
    assert shop.epochs() == [(0, bases[0])]
    if deleted:
        with pytest.raises(OffsetOutOfRange) as refusal:
            store.read(T0, bases[0] - 1)
        assert refusal.value.facts()["earliest"] == bases[0]
    for found in (shop.after_kill(), stopped(shop, store)):
        with found.open(THREE) as again:
            assert again.bounds(T0) == (bases[0], 18, 18)
            assert again.recovery.findings == []
            assert len(values(again)) == 18 - bases[0]


def test_what_was_not_published_yet_stays(shop: Workshop) -> None:
    store = shop.open(THREE)
    store.create_topic("t", 1, {"retention.ms": "0"})
    for n in range(7):
        store.append(T0, [Record(None, b"x", (), n)], publish=False)
    store.enforce_retention(1 << 50)
    assert (shop.bases(), store.bounds(T0)) == ([0, 3, 6], (0, 0, 0))
    store.flush()
    store.enforce_retention(1 << 50)
    assert (shop.bases(), store.bounds(T0)) == ([7], (7, 7, 7))
    store.append(T0, [Record(None, b"next", (), 9)])
    assert values(store) == [b"next"]


def deleted(shop: Workshop) -> list[str]:
    return [name for name in shop.names() if name.endswith(".deleted")]


def test_deleted_files_are_renamed_and_go_after_the_delay(shop: Workshop) -> None:
    """As the broker's: LocalLog.deleteSegmentFiles."""
    store = six_segments(shop, {"retention.ms": "5000", "file.delete.delay.ms": "1000"})
    names = {name for name in shop.names() if name.startswith(f"{0:020d}") and "snap" not in name}
    store.enforce_retention(7001)
    assert {name.removesuffix(".deleted") for name in deleted(shop)} == names
    assert store.stats().details["deleted_files_waiting"] == len(names)
    store.enforce_retention(8000)
    assert {name.removesuffix(".deleted") for name in deleted(shop)} == names, (
        "one more millisecond"
    )
    store.enforce_retention(8001)
    assert deleted(shop) == []
    assert store.stats().details["deleted_files_waiting"] == 0
    assert (shop.bases(), store.bounds(T0)) == ([3, 6, 9, 12, 15], (3, 18, 18))


@pytest.mark.parametrize("end", [killed, stopped])
def test_a_start_removes_files_that_still_waited(
    shop: Workshop, end: Callable[[Workshop, LogStore], Workshop]
) -> None:
    store = six_segments(shop, {"retention.ms": "5000"})
    store.enforce_retention(10_001)
    assert deleted(shop) != []
    found = end(shop, store)
    with found.open(THREE) as again:
        assert again.recovery.findings == []
        assert again.bounds(T0) == (6, 18, 18)
    assert deleted(found) == []


def test_no_delay_removes_at_the_next_pass(shop: Workshop) -> None:
    store = six_segments(shop, {"retention.ms": "5000", "file.delete.delay.ms": "0"})
    store.enforce_retention(7001)
    store.enforce_retention(7001)
    assert deleted(shop) == []


# ---- threads ---------------------------------------------------------------------------------------------------------


def test_an_append_that_meets_a_deletion_finds_no_topic(shop: Workshop) -> None:
    store = shop.open_with_topic(partitions=2)
    partition = only_partition(store)  # the object that a thread got just before the deletion
    put_value(store, b"x")
    store.delete_topic("t")
    with pytest.raises(UnknownTopic):
        partition.append([Record(None, b"late")], compression=None, producer=None, publish=True)
    with pytest.raises(UnknownTopic):
        partition.read(0, Limits(1, 1), Isolation.READ_UNCOMMITTED)
    partition.flush()
    assert partition.enforce_retention(0).segments_deleted == 0
    assert store.stats().fenced is None
    store.create_topic("t", 1)
    assert put_value(store, b"new").base_offset == 0


def test_appends_reads_and_deletions_at_the_same_time(shop: Workshop) -> None:
    store = shop.open(THREE)
    calls: list[Callable[[], object]] = [
        lambda: put_value(store, b"x"),
        lambda: store.read(T0, 0),
        lambda: store.flush(),
        lambda: store.offset_for_time(T0, 0),
    ]

    def hammer(call: Callable[[], object]) -> None:
        with suppress(UnknownTopic):
            call()

    def come_and_go() -> None:
        for _ in range(60):
            store.create_topic("t", 1)
            store.delete_topic("t")

    beside(come_and_go, *(partial(hammer, call) for call in calls))
    assert store.stats().fenced is None


def test_readers_that_lose_their_segment_to_retention_are_out_of_range(shop: Workshop) -> None:
    store = six_segments(shop, {"retention.ms": "0"})

    def read() -> None:
        with suppress(OffsetOutOfRange):
            list(store.scan(T0))
            store.offset_for_time(T0, 4000)

    def write() -> None:
        for n in range(40):
            for k in range(6):
                store.append(T0, [Record(None, b"x", (), 20_000 + 10 * n + k)])
            store.flush()
            store.enforce_retention(1 << 50)

    beside(write, read, read, read)


@pytest.mark.parametrize(
    ("reader", "read"),
    [
        ("read_records", lambda store: store.read(T0, 0)),
        ("read_bytes", lambda store: store.read_batches(T0, 0, max_bytes=1)),
    ],
    ids=["records", "batches"],
)
def test_a_segment_that_goes_before_it_is_read(
    shop: Workshop,
    monkeypatch: pytest.MonkeyPatch,
    reader: str,
    read: Callable[[KafkaStore], object],
) -> None:
    """The reader is out of range: it must not get the records of the next segment as if none were between."""
    store = six_segments(shop, {})
    assert isinstance(store, KafkaStore)
    bases = [segment.base_offset for segment in store.partition(T0).segments()]
    original = getattr(reading, reader)

    def late(*arguments: Any, **named: Any) -> object:
        if store.bounds(T0).start == 0:
            store.delete_records(T0, bases[2])
        return original(*arguments, **named)

    monkeypatch.setattr(reading, reader, late)
    with pytest.raises(OffsetOutOfRange) as refused:
        read(store)
    assert refused.value.earliest == bases[2]
    assert store.read(T0, bases[2], max_records=1).records[0].offset == bases[2]


class Held(list[Record]):
    """Records that can be watched: a plain list has no weak references."""


def test_encoded_records_are_free_at_once() -> None:
    """A cycle of references would hold the values of every request until the next garbage collection."""
    records = Held([Record(None, b"v" * 100)] * 4)
    watched = weakref.ref(records)
    gc.collect()
    gc.disable()
    try:
        mark = encoding.Stamp(0, 0, 0, log_append_time=False)
        encoded = encoding.encode_records(
            records, mark, compression="none", producer=None, limit_bytes=200
        )
        assert len(encoded.batches) == 4
        del records
        assert watched() is None
    finally:
        gc.enable()
