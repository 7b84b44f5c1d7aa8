"""Deletion of the log's head by age and by disk use, only if it is set; queues and index follow the log."""

from __future__ import annotations

import errno
from collections.abc import Mapping
from pathlib import Path

import pytest

from storage import LogStore, StoreOptions, open_inspector
from storage.errors import DiskFull, OffsetOutOfRange, RecordNotFound
from storage.files import File, OverlayFileSystem
from storage.rocketmq.store import RocketMQStore
from tests.beside import beside
from tests.contract.harness import ManualClock
from tests.robustness.crash.faulty import FaultyFileSystem, fails, no_fault
from tests.robustness.crash.power import Power, moments
from tests.unit.rocketmq.recovery.outage import safe_place
from tests.unit.rocketmq.workshop import (
    LOG_BYTES,
    ROOT,
    SMALL,
    T0,
    Workshop,
    check_lookups,
    on,
    place_of,
    put_value,
    values,
)

HOUR_MS = 3_600_000
AN_HOUR = {"fileReservedTime": "1"}
VALUES = [b"value-%02d" % n for n in range(30)]
PER_FILE = 6


class Filling(OverlayFileSystem):
    """A disk that reports how full it is."""

    percent = 50

    def used_percent(self, path: object) -> int:
        return self.percent


@pytest.fixture
def shop() -> Workshop:
    """A workshop on a disk that knows the time of each write."""
    clock = ManualClock()
    return Workshop(Filling(clock=clock), clock)


def fill(shop: Workshop, settings: Mapping[str, str]) -> RocketMQStore:
    """Return a store of five log files with six records each, with ten minutes between two records."""
    store = shop.open_with_topic(settings)
    for value in VALUES:
        shop.clock.now_ms += HOUR_MS // 6
        put_value(store, value)
    store.flush()
    assert shop.log_bases()[:5] == [n * LOG_BYTES for n in range(5)]
    return store


def check_start(store: LogStore, shop: Workshop, start: int) -> None:
    """Check that no lookup finds the first `start` records, and that each other record is found."""
    assert store.bounds(T0) == (start, len(VALUES), len(VALUES))
    assert values(store) == VALUES[start:]
    check_lookups(store)
    assert list(store.find("t", key=VALUES[0]).records) == (
        [] if start else [(0, store.read(T0, 0).records[0])]
    )
    if start:
        with pytest.raises(OffsetOutOfRange) as refused:
            store.read(T0, start - 1)
        assert refused.value.earliest == start
        found = store.offset_for_time(T0, 0)
        assert found is not None
        assert found.offset == start


def test_nothing_goes_unless_it_is_set(shop: Workshop) -> None:
    store = fill(shop, {})
    report = store.enforce_retention(shop.clock.now_ms + 10_000 * HOUR_MS)
    assert (report.segments_deleted, report.bytes_deleted) == (0, 0)
    check_start(store, shop, 0)


def test_by_age(shop: Workshop) -> None:
    """Files last written an hour ago or earlier are deleted in order; the rest of queues and index stays readable."""
    store = fill(shop, AN_HOUR)
    report = store.enforce_retention(shop.clock.now_ms)
    assert (report.segments_deleted, report.bytes_deleted) == (3, 3 * LOG_BYTES)
    assert shop.log_bases()[0] == 3 * LOG_BYTES
    assert shop.queue_bases()[0] == 300, "a queue file goes with its last unit"
    check_start(store, shop, 3 * PER_FILE)
    assert store.enforce_retention(shop.clock.now_ms).segments_deleted == 0
    store.close()
    with shop.open(AN_HOUR) as again:
        assert again.bounds(T0) == (18, 30, 30)
        assert values(again) == VALUES[18:]
        check_lookups(again)


def test_the_last_file_stays(shop: Workshop) -> None:
    """The last file with records stays, and the last file of each queue and of the index."""
    store = fill(shop, AN_HOUR)
    store.enforce_retention(shop.clock.now_ms + 100 * HOUR_MS)
    assert values(store)[-1:] in ([VALUES[-1]], [])
    assert len(shop.log_bases()) >= 1
    assert len(shop.queue_bases()) >= 1
    assert len(shop.names("index")) >= 1
    assert put_value(store, b"next").base_offset == len(VALUES)
    store.close()
    with shop.open(AN_HOUR) as again:
        assert values(again)[-1] == b"next"
        assert again.bounds(T0).end == len(VALUES) + 1


def test_only_in_its_hours(shop: Workshop) -> None:
    import time

    store = fill(shop, {**AN_HOUR, "deleteWhen": "04;05"})
    now_ms = shop.clock.now_ms + 48 * HOUR_MS
    hours = {time.localtime((now_ms + n * HOUR_MS) // 1000).tm_hour: n for n in range(24)}
    assert store.enforce_retention(now_ms + hours[6] * HOUR_MS).segments_deleted == 0
    assert store.enforce_retention(now_ms + hours[3] * HOUR_MS).segments_deleted == 0
    assert store.enforce_retention(now_ms + hours[5] * HOUR_MS).segments_deleted > 0


def test_by_disk_use(shop: Workshop) -> None:
    """One file a pass is deleted, whatever its age, as long as the disk is fuller than the limit."""
    assert isinstance(shop.fs, Filling)
    store = fill(shop, {"diskMaxUsedSpaceRatio": "75"})
    shop.fs.percent = 75
    assert store.enforce_retention(shop.clock.now_ms).segments_deleted == 0
    shop.fs.percent = 76
    for count in (1, 2):
        assert store.enforce_retention(shop.clock.now_ms).segments_deleted == 1
        check_start(store, shop, count * PER_FILE)


def test_expired_files_go_at_any_hour_if_the_disk_is_filling(shop: Workshop) -> None:
    """Above 75 %: only those that have expired."""
    import time

    assert isinstance(shop.fs, Filling)
    store = fill(shop, {**AN_HOUR, "deleteWhen": "04", "diskMaxUsedSpaceRatio": "75"})
    now_ms = shop.clock.now_ms
    if time.localtime(now_ms // 1000).tm_hour == 4:
        pytest.skip("the hour of the deletion")
    shop.fs.percent = 75
    assert store.enforce_retention(now_ms).segments_deleted == 0
    shop.fs.percent = 76
    assert store.enforce_retention(now_ms).segments_deleted == 3
    assert store.enforce_retention(now_ms).segments_deleted == 0
    check_start(store, shop, 3 * PER_FILE)


@pytest.mark.parametrize("name", ["diskSpaceCleanForciblyRatio", "diskSpaceWarningLevelRatio"])
def test_the_oldest_files_go_by_force(shop: Workshop, name: str) -> None:
    """Above 85 %, and 90 %: whatever their age and the hour, never the last one."""
    assert isinstance(shop.fs, Filling)
    store = fill(shop, {"fileReservedTime": "1000", "deleteWhen": "04", name: "85"})
    shop.fs.percent = 85
    assert store.enforce_retention(shop.clock.now_ms).segments_deleted == 0
    shop.fs.percent = 86
    assert store.enforce_retention(shop.clock.now_ms).segments_deleted == 4
    check_start(store, shop, 4 * PER_FILE)
    assert store.enforce_retention(shop.clock.now_ms).segments_deleted == 0


def test_above_the_last_limit_no_record_is_taken(shop: Workshop) -> None:
    """The disk is asked every ten seconds, and every second while it is too full; reads go on."""
    assert isinstance(shop.fs, Filling)
    store = fill(shop, {"diskSpaceWarningLevelRatio": "90"})
    shop.fs.percent = 91
    put_value(store, b"within ten seconds")
    shop.clock.now_ms += 10_000
    for _ in range(2):
        with pytest.raises(DiskFull, match="above diskSpaceWarningLevelRatio=90"):
            put_value(store, b"refused")
    assert store.stats().fenced is None
    assert store.stats().details["disk_used_percent"] == 91
    assert values(store) == [*VALUES, b"within ten seconds"]
    shop.fs.percent = 90
    shop.clock.now_ms += 1_000
    put_value(store, b"taken")


@pytest.mark.parametrize("are_built", [True, False])
def test_a_full_disk_is_what_it_is_for(are_built: bool) -> None:
    """Queue entries that wait for disk space prevent only the deletion of their own records, so that none is lost."""
    clock = ManualClock()
    faulty = FaultyFileSystem(Filling(clock=clock))
    shop = Workshop(faulty, clock)
    store = fill(shop, AN_HOUR)
    if are_built:
        assert values(store) == VALUES
    put_value(store, b"waits")
    store.flush()
    faulty.fault = fails(errno.ENOSPC, "write")
    if are_built:
        assert store.enforce_retention(clock.now_ms).segments_deleted == 3
        assert values(store) == [*VALUES[18:], b"waits"]
    else:
        with pytest.raises(DiskFull):
            store.enforce_retention(clock.now_ms)
        assert values(store) == [*VALUES, b"waits"]
    faulty.fault = no_fault
    store.enforce_retention(clock.now_ms)
    assert values(store) == [*VALUES[18:], b"waits"]
    check_lookups(store)


def test_ids_of_deleted_records_are_unknown(shop: Workshop) -> None:
    store = shop.open_with_topic(AN_HOUR)
    first = put_value(store, VALUES[0])
    for value in VALUES[1:]:
        put_value(store, value)
    store.flush()
    store.enforce_retention(shop.clock.now_ms + 2 * HOUR_MS)
    assert place_of(first) == 0
    with pytest.raises(RecordNotFound):
        store.find_by_id(store.record_id(T0, first.locators[0]))


def test_an_id_whose_record_is_deleted_beside_the_lookup_is_unknown(
    shop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The record is deleted between the lookup in the table of files and the read of the file."""
    store = fill(shop, AN_HOUR)
    number = store.record_id(T0, store.read(T0, 0).records[0].locator)
    store.close()
    store = shop.open(AN_HOUR)  # no file is held open yet
    open_file = shop.fs.open
    deleted: list[Path] = []

    def deleting(path: Path, **options: bool) -> File:
        if path == shop.log_path(0) and not deleted:
            deleted.append(path)
            assert store.enforce_retention(shop.clock.now_ms).segments_deleted
        return open_file(path, **options)

    monkeypatch.setattr(shop.fs, "open", deleting)
    with pytest.raises(RecordNotFound):
        store.find_by_id(number)
    assert deleted


def test_a_queue_that_lost_all_its_records(shop: Workshop) -> None:
    """The queue is empty, and its next offset stays the same, also after a restart."""
    store = shop.open_with_topic(AN_HOUR, partitions=2)
    other = T0._replace(partition=1)
    put_value(store, b"early", other)
    for value in VALUES:
        put_value(store, value)
    store.flush()
    store.enforce_retention(shop.clock.now_ms + 2 * HOUR_MS)
    assert store.bounds(other) == (1, 1, 1)
    assert list(store.read(other, 1).records) == []
    store.close()
    again = shop.open(AN_HOUR)
    assert again.bounds(other) == (1, 1, 1)
    assert list(again.read(other, 1).records) == []
    assert put_value(again, b"late", other).base_offset == 1


def test_files_go_from_the_first_on(shop: Workshop) -> None:
    """The log's files are durably removed first, one after another; the files of queues and index follow."""
    faulty = FaultyFileSystem(shop.fs)
    store = fill(Workshop(faulty, shop.clock), AN_HOUR)
    values(store)
    store.checkpoint()
    done: list[tuple[str, str]] = []
    faulty.fault = lambda operation, path: done.append((operation, str(path.relative_to(ROOT))))
    store.enforce_retention(shop.clock.now_ms)
    del done[: done.index(("remove", f"commitlog/{0:020d}"))]  # a checkpoint comes first
    for n in range(3):
        gone = ("remove", f"commitlog/{n * LOG_BYTES:020d}")
        assert done[2 * n : 2 * n + 2] == [gone, ("sync_dir", "commitlog")]
    assert [path for operation, path in done[6:] if operation == "remove"][:3] == [
        f"consumequeue/t/0/{n:020d}" for n in (0, 100, 200)
    ]


def test_power_lost_in_a_deletion() -> None:
    clock = ManualClock()
    power = Power(OverlayFileSystem(clock=clock))
    shop = safe_place(power)
    shop.clock = clock
    store = fill(shop, AN_HOUR)
    values(store)
    for cut in moments(power, lambda: store.enforce_retention(clock.now_ms)):
        with on(cut, shop).open(AN_HOUR) as again:
            start = again.bounds(T0).start
            assert start in (0, 6, 12, 18)
            assert values(again) == VALUES[start:]
            check_lookups(again)


def test_readers_meanwhile(shop: Workshop) -> None:
    """A read during a deletion returns records or raises OffsetOutOfRange, and raises no other error."""
    store = fill(shop, {"diskMaxUsedSpaceRatio": "10"})

    def look() -> None:
        for offset in range(0, len(VALUES), 5):
            try:
                page = store.read(T0, offset, max_records=3)
            except OffsetOutOfRange:
                continue
            assert [r.value for r in page.records] == VALUES[offset : page.next_offset]
        for value in VALUES[::7]:
            store.find("t", key=value)
            store.find("t", key=value, scan=True)
        store.offset_for_time(T0, shop.clock.now_ms - HOUR_MS)

    def delete() -> None:
        for _ in range(6):
            store.enforce_retention(shop.clock.now_ms)

    beside(delete, look, look, look)
    assert values(store) == VALUES[24:]


def test_the_record_indexed_last_on_disk_goes_with_the_head(shop: Workshop) -> None:
    """After a kill the index continues at the start of the log, because the record where it ended is deleted."""
    many = {**AN_HOUR, "maxIndexNum": "1000"}
    store = shop.open_with_topic(many)
    put_value(store, VALUES[0])
    store.checkpoint()
    for value in VALUES[1:]:
        shop.clock.now_ms += HOUR_MS // 6
        put_value(store, value)
    store.enforce_retention(shop.clock.now_ms)
    after = shop.after_kill()
    with after.open(many) as again:
        assert not again.recovery.clean_shutdown
        check_start(again, after, 3 * PER_FILE)
    store.close()


def test_the_first_record_of_an_index_file_goes_with_the_head(shop: Workshop) -> None:
    """The seconds of the file's entries still count from that record when the file is repaired after a kill."""
    many = {**AN_HOUR, "maxIndexNum": "1000"}
    store = shop.open_with_topic(many)
    for value in VALUES:
        shop.clock.now_ms += HOUR_MS // 6
        put_value(store, value)
        if value == VALUES[20]:
            store.checkpoint()
    store.enforce_retention(shop.clock.now_ms)
    assert store.index is not None
    store.index.index_files[-1].write_entries()
    after = shop.after_kill()
    with after.open(many) as again:
        check_start(again, after, 3 * PER_FILE)
    inspector = open_inspector(ROOT, StoreOptions(settings={**SMALL, **many}), fs=after.fs)
    assert [finding for finding in inspector.verify() if finding.severity != "info"] == []
    inspector.close()
    store.close()


def test_queues_are_synced_before_their_records_go() -> None:
    """An entry of a deleted record cannot be built again, and the next entry depends on it.

    The checkpoint before a deletion syncs the queues too, but a full disk can prevent this.
    """
    faulty = FaultyFileSystem(Filling(clock=ManualClock()))
    shop = Workshop(faulty, ManualClock())
    store = shop.open_with_topic()
    for value in VALUES:
        put_value(store, value)
    store.flush()
    assert values(store) == VALUES
    done: list[tuple[str, str]] = []
    faulty.fault = lambda operation, path: done.append((operation, path.relative_to(ROOT).parts[0]))
    store.files.delete_head([0])
    assert ("datasync", "consumequeue") in done[: done.index(("remove", "commitlog"))]
