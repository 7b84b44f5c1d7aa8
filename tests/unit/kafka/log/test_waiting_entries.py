"""Index entries wait in memory while a segment takes appends: the content of the files meanwhile, and lookups."""

from __future__ import annotations

import errno
from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest

from storage import LogStore, TopicPartition
from storage.errors import DiskFull, StoreFenced
from storage.files import OverlayFileSystem
from storage.files.fs import FileSystem
from storage.kafka.format import names
from storage.kafka.format.batch import decode_header
from storage.kafka.format.sparse_index import offset_index, time_index
from storage.kafka.index.indexes import rebuild_indexes
from storage.kafka.log.log_file import StoredBatch, walk
from tests.robustness.crash.counted import CountedReads
from tests.robustness.crash.faulty import FaultyFileSystem, fails, no_fault
from tests.robustness.crash.power import Power
from tests.robustness.crash.relay import Relay
from tests.unit.kafka.recovery.outage import after_cut, fill, safe_place, sync_files
from tests.unit.kafka.workshop import ROOT, T0, Workshop, only_partition, put_value, values

DENSE = {"index.interval.bytes": "0"}  # every batch but a segment's first has an entry
ROLLING = {**DENSE, "internal.segment.bytes": "600", "segment.index.bytes": "1200"}
VALUES = [b"value %2d" % n for n in range(30)]
INDEXES = (names.INDEX, names.TIME_INDEX)


class Steps(Relay):
    """A disk that counts its steps, by operation and suffix."""

    def __init__(self, fs: FileSystem) -> None:
        super().__init__(fs)
        self.counts: Counter[tuple[str, str]] = Counter()

    def step(self, operation: str, path: Path) -> None:
        self.counts[operation, path.suffix] += 1


def in_files(shop: Workshop, base_offset: int = 0) -> tuple[list[int], list[int]]:
    """Return the relative offsets of the entries that the two index files of a segment have."""
    offsets = offset_index.leading_entries(shop.bytes_of(base_offset, names.INDEX))
    times = time_index.leading_entries(shop.bytes_of(base_offset, names.TIME_INDEX))
    return [offset for offset, _ in offsets], [offset for _, offset in times]


def check_lookups(store: LogStore, wanted: list[bytes]) -> None:
    """Check that each offset and each time leads to its record."""
    assert values(store) == wanted
    for record in store.scan(T0):
        assert list(store.read(T0, record.offset, max_records=1).records) == [record]
        found = store.offset_for_time(T0, record.timestamp_ms)
        assert found is not None
        assert found.offset == record.offset


# ---- the work of an append -------------------------------------------------------------------------------------------


def test_an_append_is_one_write(shop: Workshop) -> None:
    steps = Steps(shop.fs)
    other = Workshop(steps)
    store = other.open_with_topic(DENSE)
    put_value(store, VALUES[0])
    steps.counts.clear()
    fill(other, store, VALUES[1:])
    assert steps.counts == {("write", names.LOG): len(VALUES) - 1}


def test_a_partition_at_rest_has_one_open_file(shop: Workshop) -> None:
    """As many partitions as files may be open: after the first round no append opens, syncs or closes a file."""
    steps = Steps(shop.fs)
    other = Workshop(steps)
    count = 40
    store = other.open(DENSE, open_files=count)
    store.create_topic("t", count)
    for number in range(count):
        put_value(store, b"first", TopicPartition("t", number))
    steps.counts.clear()
    for _ in range(5):
        for number in range(count):
            put_value(store, b"more", TopicPartition("t", number))
        assert store.stats().open_files == count
    assert steps.counts == {("write", names.LOG): 5 * count}
    store.flush()
    store.checkpoint()
    assert store.stats().open_files == count
    assert in_files(other) == ([1, 2, 3, 4, 5], [0])


# ---- lookups ---------------------------------------------------------------------------------------------------------


def test_lookups_find_the_waiting_entries(shop: Workshop) -> None:
    counted = CountedReads(shop.fs)
    other = Workshop(counted)
    store = other.open_with_topic(DENSE)
    fill(other, store, VALUES)
    assert in_files(other) == ([], [])
    check_lookups(store, VALUES)
    (segment,) = only_partition(store).segments()
    before = counted.count_bytes
    next(segment.batches(29, stop_offset=30))
    near = counted.count_bytes - before
    assert 0 < near < segment.size_bytes


@pytest.mark.parametrize("flushed", [0, 10, 30])
def test_a_reader_beside_the_store_finds_every_record(shop: Workshop, flushed: int) -> None:
    store = shop.open_with_topic(ROLLING)
    fill(shop, store, VALUES[:flushed])
    store.flush()
    store.checkpoint()
    fill(shop, store, VALUES[flushed:])
    with shop.open(ROLLING, read_only=True) as other:
        assert other.recovery.findings == []
        check_lookups(other, VALUES)
    check_lookups(store, VALUES)


# ---- what the files have ---------------------------------------------------------------------------------------------


def test_a_checkpoint_writes_the_entries_of_durable_batches(shop: Workshop) -> None:
    store = shop.open_with_topic(DENSE)
    fill(shop, store, VALUES[:10])
    store.checkpoint()
    assert in_files(shop) == ([], [])
    store.flush()
    fill(shop, store, VALUES[10:])
    assert in_files(shop) == ([], [])
    store.checkpoint()
    durable = list(range(1, 10))
    assert in_files(shop) == (durable, durable)
    store.checkpoint()
    assert in_files(shop) == (durable, durable)
    store.close()
    everything = list(range(1, len(VALUES)))
    assert in_files(shop) == (everything, everything)


@pytest.mark.parametrize("checkpoints", [0, 3, 10])
def test_closed_files_have_the_entries_of_a_rebuild(shop: Workshop, checkpoints: int) -> None:
    """Whenever the entries are written, rolled and closed segments have the files that the rule gives."""
    store = shop.open_with_topic({**ROLLING, "index.interval.bytes": "90"})
    for number, value in enumerate(VALUES):
        fill(shop, store, [value])
        if checkpoints and number % checkpoints == 0:
            store.flush()
            store.checkpoint()
    store.close()
    assert len(shop.bases()) > 2
    for base_offset in shop.bases():
        file = shop.fs.open(shop.path(base_offset))
        items = walk(file, position=0, end=file.size(), next_offset=base_offset)
        good = [(item.position, item.header) for item in items if isinstance(item, StoredBatch)]
        file.close()
        rebuilt = rebuild_indexes(good, base_offset=base_offset, interval_bytes=90)
        assert shop.bytes_of(base_offset, names.INDEX) == b"".join(
            offset_index.encode_entry(*entry) for entry in rebuilt.offsets
        )
        assert shop.bytes_of(base_offset, names.TIME_INDEX) == b"".join(
            time_index.encode_entry(*entry) for entry in rebuilt.times
        )


def check_no_entry_beyond_the_log(cut: Workshop) -> int:
    """Check that each entry of the offset indexes names a whole batch of its log; return the number of entries."""
    count = 0
    for base_offset in cut.bases():
        log = cut.bytes_of(base_offset)
        for relative_offset, position in offset_index.leading_entries(
            cut.bytes_of(base_offset, names.INDEX)
        ):
            header = decode_header(log, position)
            assert header.last_offset == base_offset + relative_offset
            assert position + header.size_bytes <= len(log)
            count += 1
    return count


def test_no_entry_points_beyond_the_durable_log(power: Power) -> None:
    """The power fails at each step, on a disk that has all written bytes of indexes, and the synced bytes of logs."""
    shop = safe_place(power)
    store = shop.open_with_topic(ROLLING)
    found = [0]

    def look(operation: str, path: Path) -> None:
        power.before = lambda operation, path: None
        for suffix in INDEXES:
            sync_files(power, shop, suffix)
        found.append(check_no_entry_beyond_the_log(after_cut(power, shop)))
        power.before = look

    power.before = look
    for number, value in enumerate(VALUES[:20]):
        fill(shop, store, [value])
        if number % 3 == 0:
            store.checkpoint()
        if number % 4 == 0:
            store.flush()
    store.close()
    power.before = lambda operation, path: None
    assert len(shop.bases()) > 2
    assert max(found) == 20 - len(shop.bases())


# ---- starts ----------------------------------------------------------------------------------------------------------


def test_a_start_after_a_kill_rebuilds_them_and_one_after_a_clean_stop_does_not_scan(
    shop: Workshop,
) -> None:
    store = shop.open_with_topic(DENSE)
    fill(shop, store, VALUES)
    (segment,) = only_partition(store).segments()
    waiting = segment.offset_index.entries(), segment.time_index.entries()
    size_bytes = segment.size_bytes
    after_kill = shop.after_kill().open(DENSE)
    found = after_kill.recovery
    assert (found.bytes_scanned, found.indexes_rebuilt, found.findings) == (size_bytes, 1, [])
    (segment,) = only_partition(after_kill).segments()
    assert (segment.offset_index.entries(), segment.time_index.entries()) == waiting
    check_lookups(after_kill, VALUES)
    after_kill.close()
    store.close()
    with shop.open(DENSE) as again:
        last_batch = size_bytes - offset_index.decode_entries(shop.bytes_of(0, names.INDEX))[-1][1]
        assert (again.recovery.bytes_scanned, again.recovery.indexes_rebuilt) == (last_batch, 0)
        check_lookups(again, VALUES)


def test_entries_go_on_after_a_restart(shop: Workshop) -> None:
    for part in range(3):
        store = shop.open_with_topic(DENSE) if not part else shop.open(DENSE)
        fill(shop, store, VALUES[part * 10 : part * 10 + 10])
        check_lookups(store, VALUES[: part * 10 + 10])
        store.close()
    offsets, times = in_files(shop)
    first_of_a_run = {0, 10, 20}  # the count of bytes begins again at a start
    assert offsets == [n for n in range(len(VALUES)) if n not in first_of_a_run]
    assert all(a < b for a, b in pairwise(times))
    assert times[-1] == len(VALUES) - 1


# ---- a disk that fails -----------------------------------------------------------------------------------------------


@pytest.fixture
def faulty() -> FaultyFileSystem:
    """A disk with injected faults."""
    return FaultyFileSystem(OverlayFileSystem())


@pytest.mark.parametrize("suffix", INDEXES)
def test_on_a_full_disk_entries_wait_on(faulty: FaultyFileSystem, suffix: str) -> None:
    shop = Workshop(faulty)
    store = shop.open_with_topic(DENSE)
    fill(shop, store, VALUES)
    store.flush()
    faulty.fault = fails(errno.ENOSPC, "write", name=suffix)
    store.checkpoint()
    assert faulty.failed is not None
    check_lookups(store, VALUES)
    fill(shop, store, [b"more"])
    faulty.fault = no_fault
    store.flush()
    store.checkpoint()
    everything = list(range(1, len(VALUES) + 1))
    assert in_files(shop) == (everything, everything)


@pytest.mark.parametrize("operation", ["write", "truncate"])
@pytest.mark.parametrize("suffix", INDEXES)
def test_a_roll_that_finds_no_space_can_be_repeated(
    faulty: FaultyFileSystem, suffix: str, operation: str
) -> None:
    shop = Workshop(faulty)
    store = shop.open_with_topic(ROLLING)
    kept = 0
    while len(shop.bases()) < 2:  # fails at the first append that would roll
        faulty.fault = fails(errno.ENOSPC, operation, name=suffix) if kept else no_fault
        try:
            fill(shop, store, [VALUES[kept]])
        except DiskFull:
            break
        kept += 1
    assert faulty.failed is not None
    faulty.fault = no_fault
    assert values(store) == VALUES[:kept]
    fill(shop, store, VALUES[kept:])
    check_lookups(store, VALUES)
    store.close()
    with shop.open(ROLLING) as again:
        assert (again.recovery.clean_shutdown, again.recovery.findings) == (True, [])
        check_lookups(again, VALUES)
    for base_offset in shop.bases():
        assert in_files(shop, base_offset)[0], "one entry at least"


@pytest.mark.parametrize("suffix", INDEXES)
def test_a_store_is_fenced_if_its_indexes_cannot_be_written(
    faulty: FaultyFileSystem, suffix: str
) -> None:
    shop = Workshop(faulty)
    store = shop.open_with_topic(DENSE)
    fill(shop, store, VALUES)
    store.flush()
    faulty.fault = fails(errno.EIO, "write", name=suffix)
    with pytest.raises(StoreFenced):
        store.checkpoint()
    faulty.fault = no_fault
    with pytest.raises(StoreFenced):
        put_value(store, b"lost")
    store.close()
    with shop.open(DENSE) as again:
        assert not again.recovery.clean_shutdown
        check_lookups(again, VALUES)


def test_a_first_append_without_space_leaves_a_clean_stop(faulty: FaultyFileSystem) -> None:
    """The marker of a clean stop never covers a preallocated index."""
    shop = Workshop(faulty)
    store = shop.open_with_topic(DENSE)
    faulty.fault = fails(errno.ENOSPC, "truncate", name=names.TIME_INDEX)
    with pytest.raises(DiskFull):
        put_value(store, b"lost")
    faulty.fault = no_fault
    store.close()
    assert [shop.fs.size(shop.path(0, suffix)) for suffix in INDEXES] == [0, 0]
    assert shop.fs.exists(ROOT / names.CLEAN_SHUTDOWN)
