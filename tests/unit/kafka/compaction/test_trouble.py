"""Damage, a full disk, a deletion in the middle, and readers and writers at the same time: nothing is lost."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from storage import Isolation, LogStore, Record, TopicPartition
from storage.contract import StoreOptions
from storage.errors import DiskFull, StoreReadOnly, UnrepresentableRecord
from storage.files import OverlayFileSystem, RealFileSystem
from storage.kafka.format.batch import HEADER_SIZE, decode_header, seal
from storage.kafka.store import open_kafka
from tests.contract.harness import ManualClock
from tests.robustness.crash.faulty import FaultyFileSystem, disk_full, no_fault
from tests.unit.kafka.compaction.cleaning import COMPACT, Cleaning
from tests.unit.kafka.log.batches import data_batch
from tests.unit.kafka.workshop import ROOT, T0, Workshop

SMALL_STEP = 1
CLEANINGS = 5


def two_segments(cleaning: Cleaning, **configs: str) -> None:
    cleaning.create(**configs)
    for value in (b"1", b"2", b"3"):
        cleaning.put((b"a", value), (b"b", value))
        cleaning.roll()


def test_a_damaged_batch_leaves_the_partition_alone(cleaning: Cleaning) -> None:
    two_segments(cleaning)
    cleaning.shop.overwrite(HEADER_SIZE + 9, b"?", base_offset=0)
    before = {
        name: cleaning.shop.fs.read_bytes(ROOT / "t-0" / name) for name in cleaning.shop.names()
    }
    report = cleaning.clean()
    assert report.finished
    assert "damaged batch at position 0" in str(report.uncleanable)
    assert report.cleaned_up_to is None
    assert before == {
        name: cleaning.shop.fs.read_bytes(ROOT / "t-0" / name) for name in cleaning.shop.names()
    }
    status = cleaning.store.stats().compaction
    assert status is not None
    assert [(u["topic"], u["partition"]) for u in status.uncleanable] == [("t", 0)]
    assert cleaning.clean().partition is None, "not tried again"
    assert cleaning.put((b"a", b"4")) == 9

    cleaning.store.create_topic("u", 1, {**COMPACT, "internal.segment.bytes": "100"})
    for value in (b"1", b"2"):
        cleaning.store.append(TopicPartition("u", 0), [Record(b"k", value)])
    cleaning.store.flush()
    assert cleaning.clean().partition == TopicPartition("u", 0), "others are cleaned"


def test_records_that_cannot_be_decoded_are_damage(cleaning: Cleaning) -> None:
    """Their CRC is right: a producer sent them, and an older server stored them."""
    cleaning.create(cleanup_policy="delete")
    whole = bytearray(data_batch(key=b"a"))
    whole[HEADER_SIZE] ^= 2  # the length of the record

    header = decode_header(whole)
    bad = seal(header, bytes(whole[HEADER_SIZE:])) + bytes(whole[HEADER_SIZE:])
    cleaning.store.append_batches(T0, bad)
    cleaning.configs({"cleanup.policy": "compact"})
    cleaning.roll()
    assert "cannot be decoded" in str(cleaning.clean().uncleanable)


def test_a_full_disk_is_tried_again() -> None:
    fs = FaultyFileSystem(OverlayFileSystem())
    cleaning = Cleaning(Workshop(fs))
    two_segments(cleaning)
    before = cleaning.left()
    names = cleaning.shop.names()
    fs.fault = disk_full
    with pytest.raises(DiskFull):
        cleaning.clean()
    assert (cleaning.left(), cleaning.shop.names()) == (before, names)
    fs.fault = no_fault
    assert cleaning.store.stats().fenced is None
    assert cleaning.clean().cleaned_up_to == 8
    assert cleaning.left() == [(6, b"a", b"3"), (7, b"b", b"3")]


def waiting(cleaning: Cleaning) -> list[str]:
    return [name for name in cleaning.shop.names() if name.endswith(".deleted")]


@pytest.mark.parametrize("by", ["compaction", "retention"])
def test_replaced_files_are_removed_after_a_delay(cleaning: Cleaning, by: str) -> None:
    """As the broker does: a reader that has listed a segment can read it for a while."""
    two_segments(cleaning, file_delete_delay_ms="5000")
    before = {
        name: cleaning.shop.fs.read_bytes(ROOT / "t-0" / name)
        for name in cleaning.shop.names()
        if name.endswith((".log", ".index"))
    }
    cleaning.clean()
    left = waiting(cleaning)
    active = f"{max(cleaning.shop.bases()):020}"
    assert {f"{name}.deleted" for name in before if not name.startswith(active)} <= set(left)
    for name in left:
        if name.endswith((".log.deleted", ".index.deleted")):
            kept = cleaning.shop.fs.read_bytes(ROOT / "t-0" / name)
            assert kept == before[name.removesuffix(".deleted")]
    assert cleaning.store.stats().details["deleted_files_waiting"] == len(left)
    for passed_ms, expected in ((4999, left), (1, [])):
        cleaning.shop.clock.now_ms += passed_ms
        if by == "compaction":
            cleaning.clean()
        else:
            cleaning.store.enforce_retention(cleaning.shop.clock.now_ms)
        assert waiting(cleaning) == expected


def test_a_segment_that_is_replaced_twice_waits_again(cleaning: Cleaning) -> None:
    two_segments(cleaning, file_delete_delay_ms="5000")
    cleaning.clean()
    cleaning.shop.clock.now_ms += 4000
    cleaning.put((b"a", b"4"))
    cleaning.roll()
    cleaning.clean()
    cleaning.shop.clock.now_ms += 4000
    cleaning.clean()
    assert f"{0:020}.log.deleted" in waiting(cleaning)
    cleaning.shop.clock.now_ms += 1000
    cleaning.clean()
    assert waiting(cleaning) == []


def test_replaced_files_make_room_on_a_full_disk() -> None:
    fs = FaultyFileSystem(OverlayFileSystem())
    cleaning = Cleaning(Workshop(fs))
    two_segments(cleaning)
    cleaning.clean()
    cleaning.put((b"a", b"4"))
    cleaning.roll()
    assert waiting(cleaning)
    fs.fault = disk_full
    with pytest.raises(DiskFull):
        cleaning.clean()
    fs.fault = no_fault
    assert waiting(cleaning) == []


def test_a_start_removes_replaced_files(cleaning: Cleaning) -> None:
    two_segments(cleaning)
    cleaning.clean()
    cleaning.store.close()
    assert waiting(cleaning)
    with cleaning.shop.open():
        assert waiting(cleaning) == []


def test_a_deleted_topic_ends_its_cleaning(cleaning: Cleaning) -> None:
    two_segments(cleaning)
    assert not cleaning.clean(max_bytes=SMALL_STEP).finished
    cleaning.store.delete_topic("t")
    assert cleaning.clean().finished
    assert cleaning.clean().partition is None
    assert cleaning.store.stats().fenced is None
    cleaning.store.create_topic("t", 1, COMPACT)
    assert not [name for name in cleaning.shop.names() if name.endswith(".cleaned")]


def test_retention_in_the_middle_ends_a_cleaning(cleaning: Cleaning) -> None:
    two_segments(cleaning, cleanup_policy="compact,delete", retention_ms="1000")
    assert not cleaning.clean(max_bytes=SMALL_STEP).finished
    cleaning.shop.clock.now_ms += 5000
    assert cleaning.store.enforce_retention(cleaning.shop.clock.now_ms).segments_deleted == 4
    report = cleaning.clean()
    assert (report.finished, report.uncleanable, report.cleaned_up_to) == (True, None, None)
    cleaning.put((b"a", b"5"))
    cleaning.roll()
    assert cleaning.clean().finished
    assert cleaning.left() == [(9, b"a", b"5")]


def test_a_stop_in_the_middle_leaves_no_file(cleaning: Cleaning) -> None:
    two_segments(cleaning)
    for _ in range(2):
        assert not cleaning.clean(max_bytes=SMALL_STEP).finished
    cleaning.store.close()
    assert not [name for name in cleaning.shop.names() if name.endswith(".cleaned")]
    cleaning.store = cleaning.shop.open()
    assert cleaning.store.recovery.clean_shutdown
    cleaning.clean()
    assert cleaning.left() == [(6, b"a", b"3"), (7, b"b", b"3")]


def test_a_read_only_store_is_not_cleaned(cleaning: Cleaning) -> None:
    two_segments(cleaning)
    cleaning.store.close()
    with cleaning.shop.open(read_only=True) as store, pytest.raises(StoreReadOnly):
        store.compact(0)


def test_readers_of_a_segment_that_is_replaced_read_on(cleaning: Cleaning) -> None:
    """A reader has chosen its segment before the swap, and opens the file after it."""
    two_segments(cleaning)
    partition = cleaning.store.partition(T0)
    chosen = partition.segments()
    original, waits = partition._segment_at, [True]

    def slow(offset: int) -> object:
        if waits and waits.pop():
            cleaning.clean()
            return chosen.at(offset)
        return original(offset)

    partition._segment_at = slow  # type: ignore[method-assign, assignment]
    records = cleaning.store.read(T0, 0).records
    assert [(r.offset, r.value) for r in records if r.key != b"end"] == [(6, b"3"), (7, b"3")]


# ---- records without a key ----


def test_a_record_without_a_key_is_refused(cleaning: Cleaning) -> None:
    store = cleaning.create()
    with pytest.raises(UnrepresentableRecord, match="record 1: it has no key") as refused:
        store.append(T0, [Record(b"a", b"1"), Record(None, b"2")])
    assert refused.value.facts() == {"field": "key", "index": 1, "indexes": [1]}
    batches = data_batch(key=b"a", count=2) + data_batch(0, key=None)
    with pytest.raises(UnrepresentableRecord, match="record 2: it has no key"):
        store.check_client_batches("t", batches)
    with pytest.raises(UnrepresentableRecord, match="record 2: it has no key"):
        store.append_batches(T0, batches, client=True)
    with pytest.raises(UnrepresentableRecord):
        store.preview_topic("t", [Record(None, b"x")])
    assert store.bounds(T0).end == 0
    store.append_batches(T0, data_batch(key=b""), client=True)
    assert store.bounds(T0).end == 1


# ---- at the same time ----


class Traffic:
    """Threads that append and read until the block ends."""

    def __init__(self, store: LogStore) -> None:
        self.store = store
        self.problems: list[str] = []
        self.newest: dict[bytes, bytes] = {}
        self._stopped = threading.Event()
        self._threads = [threading.Thread(target=work) for work in (self._append, self._read)]

    def __enter__(self) -> Traffic:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        for thread in self._threads:
            thread.join()

    def _append(self) -> None:
        number = 0
        while not self._stopped.is_set():
            key, value = b"k%d" % (number % 7), b"%d" % number
            self.store.append(T0, [Record(key, value)])
            self.newest[key] = value
            number += 1
            if number % 20 == 0:
                self.store.flush()
        self.store.flush()

    def _read(self) -> None:
        while not self._stopped.is_set():
            previous = -1
            try:
                for record in self.store.scan(T0, isolation=Isolation.READ_COMMITTED):
                    if record.offset <= previous:
                        self.problems.append(f"{record.offset} after {previous}")
                    previous = record.offset
                self.store.offset_for_time(T0, 0)
            except Exception as error:  # noqa: BLE001  (every error is a problem)
                self.problems.append(repr(error))


def test_appends_and_reads_go_on_during_cleanings(tmp_path: Path) -> None:
    clock = ManualClock()
    store = open_kafka(
        tmp_path / "s", StoreOptions(), fs=RealFileSystem(), clock=clock, read_only=False
    )
    store.create_topic("t", 1, {**COMPACT, "internal.segment.bytes": "2000"})
    cleanings = 0
    with Traffic(store) as traffic:
        while cleanings < CLEANINGS and not traffic.problems:
            cleanings += store.compact(clock(), max_bytes=SMALL_STEP).finished
    assert traffic.problems == []
    found = {record.key: record.value for record in store.scan(T0)}
    assert found == traffic.newest
    store.close()
