"""Segments: rolling at the exact limits, the files of a live segment, and the files after a close."""

from __future__ import annotations

from pathlib import Path

import pytest

from storage import LogStore, Record, StoreOptions, open_store
from storage.errors import RecordTooLarge
from storage.kafka.format.batch import BatchHeader, check_crc
from storage.kafka.format.sparse_index import offset_index, time_index
from tests.unit.kafka.log.batches import data_batch
from tests.unit.kafka.workshop import T0, Workshop, only_partition, values

SIZE = len(data_batch())
INDEX_BYTES, TIME_INDEX_BYTES = 10_485_760, 10_485_756


def append_at(store: LogStore, *times_ms: int) -> None:
    """Append one batch for each time."""
    for time_ms in times_ms:
        store.append(T0, [Record(None, b"x", (), time_ms)])


@pytest.mark.parametrize(
    ("segment_bytes", "bases"),
    [
        (3 * SIZE, [0, 3]),
        (3 * SIZE - 1, [0, 2]),
        (4 * SIZE - 1, [0, 3]),
        (4 * SIZE, [0]),
        (SIZE, [0, 1, 2, 3]),
    ],
)
def test_a_segment_is_rolled_when_the_next_append_would_not_fit(
    shop: Workshop, segment_bytes: int, bases: list[int]
) -> None:
    store = shop.open_with_topic({"internal.segment.bytes": str(segment_bytes)})
    append_at(store, 1, 1, 1, 1)
    assert shop.bases() == bases
    assert len(values(store)) == 4


def test_the_whole_appended_set_counts(shop: Workshop) -> None:
    store = shop.open_with_topic({"internal.segment.bytes": str(3 * SIZE)})
    append_at(store, 1, 1)
    store.append_batches(T0, data_batch(0) + data_batch(0))
    assert shop.bases() == [0, 2]


def test_what_no_segment_can_hold_is_refused(shop: Workshop) -> None:
    store = shop.open_with_topic({"internal.segment.bytes": str(3 * SIZE)})
    append_at(store, 1)
    with pytest.raises(RecordTooLarge) as refusal:
        store.append_batches(T0, data_batch(0) * 4)
    assert refusal.value.facts()["limit_bytes"] == 3 * SIZE
    assert (shop.bases(), store.bounds(T0).end) == ([0], 1)


@pytest.mark.parametrize(
    ("times_ms", "bases"),
    [
        ((1000, 2000), [0]),
        ((1000, 2001), [0, 1]),
        ((1000, 500, 2000, 2001), [0, 3]),
        ((5000, 1, 6000), [0]),
        ((1000, 5000, 6000, 6001), [0, 1, 3]),
    ],
)
def test_a_segment_is_rolled_when_record_times_leave_its_first_behind(
    shop: Workshop, times_ms: tuple[int, ...], bases: list[int]
) -> None:
    store = shop.open_with_topic({"segment.ms": "1000"})
    append_at(store, *times_ms)
    assert shop.bases() == bases


def test_jitter_shortens_the_time(shop: Workshop) -> None:
    store = shop.open_with_topic({"segment.ms": "1000", "segment.jitter.ms": "400"})
    append_at(store, 1000, 1600, 1601)
    assert shop.bases() == [0, 2]


def test_the_first_time_is_known_again_after_a_restart(shop: Workshop) -> None:
    with shop.open_with_topic({"segment.ms": "1000"}) as store:
        store.append(T0, [Record(None, b"x", (), 1000)])
    with shop.open({"segment.ms": "1000"}) as store:
        store.append(T0, [Record(None, b"x", (), 2000)])
        store.append(T0, [Record(None, b"x", (), 2001)])
    assert shop.bases() == [0, 2]


def test_a_full_offset_index_rolls(shop: Workshop) -> None:
    store = shop.open_with_topic({"index.interval.bytes": "0", "segment.index.bytes": "40"})
    append_at(store, *[1] * 7)
    assert shop.bases() == [0, 6], "the first batch and five entries, then the next"


def test_a_full_time_index_rolls_with_one_slot_kept(shop: Workshop) -> None:
    store = shop.open_with_topic({"index.interval.bytes": "0", "segment.index.bytes": "48"})
    append_at(store, *range(1, 7))
    assert shop.bases() == [0, 4], "four slots of 12 bytes, the last one for the closing entry"
    store.close()
    assert len(time_index.decode_entries(shop.bytes_of(0, ".timeindex"))) == 3


def test_an_empty_segment_never_rolls_however_small_its_index(shop: Workshop) -> None:
    """A segment that rolled onto its own base offset would be there twice, and retention would remove its files."""
    store = shop.open_with_topic(
        {"segment.index.bytes": "12", "retention.bytes": str(2 * SIZE + 1)}
    )
    append_at(store, 1, 2, 3)
    store.flush()
    assert [segment.base_offset for segment in only_partition(store).segments()] == [0, 1, 2]
    found = store.offset_for_time(T0, 1)
    assert found is not None
    assert found.offset == 0
    store.enforce_retention(shop.clock.now_ms)
    assert values(store) == [b"x"] * 3


def test_offsets_beyond_31_bits_roll(shop: Workshop) -> None:
    store = shop.open_with_topic()
    append_at(store, 1)
    store.append_batches(T0, data_batch(2**31 - 1), keep_offsets=True)
    assert shop.bases() == [0]
    store.append_batches(T0, data_batch(2**31), keep_offsets=True)
    assert shop.bases() == [0, 2**31]
    store.close()
    with shop.open() as again:
        assert [r.offset for r in again.scan(T0)] == [0, 2**31 - 1, 2**31]


# ---- the files -------------------------------------------------------------------------------------------------------


def test_live_indexes_have_their_full_size_and_closed_ones_their_content(shop: Workshop) -> None:
    store = shop.open_with_topic(
        {"internal.segment.bytes": str(3 * SIZE), "index.interval.bytes": "0"}
    )
    append_at(store, 1, 2, 3, 4)

    def sizes(base_offset: int) -> tuple[int, int]:
        return (
            shop.fs.size(shop.path(base_offset, ".index")),
            shop.fs.size(shop.path(base_offset, ".timeindex")),
        )

    assert (sizes(0), sizes(3)) == ((16, 24), (INDEX_BYTES, TIME_INDEX_BYTES))
    store.close()
    assert (sizes(0), sizes(3)) == ((16, 24), (0, 12))
    with shop.open() as again:
        assert (sizes(0), sizes(3)) == ((16, 24), (0, 12)), "not before an append"
        append_at(again, 5)
        assert sizes(3) == (INDEX_BYTES, TIME_INDEX_BYTES)


def test_live_files_are_sparse(tmp_path: Path) -> None:
    settings = {"preallocate": "true", "internal.segment.bytes": "50000000"}
    with open_store("kafka", tmp_path / "s", StoreOptions(settings=settings)) as store:
        store.create_topic("t", 1)
        store.append(T0, [Record(None, b"x", (), 1)])
        folder = tmp_path / "s" / "t-0"
        sizes = {p.suffix: p.stat().st_size for p in folder.iterdir() if p.stem.isdigit()}
        blocks = sum(p.stat().st_blocks for p in folder.iterdir())
    assert sizes == {".log": 50_000_000, ".index": INDEX_BYTES, ".timeindex": TIME_INDEX_BYTES}
    assert blocks * 512 < 100_000
    sizes = {p.suffix: p.stat().st_size for p in folder.iterdir() if p.stem.isdigit()}
    assert sizes == {".log": SIZE, ".index": 0, ".timeindex": 12, ".snapshot": 10}


def test_a_preallocated_log_is_cut_at_roll_and_close(shop: Workshop) -> None:
    store = shop.open_with_topic({"internal.segment.bytes": "150", "preallocate": "true"})
    append_at(store, 1, 1, 1)
    assert [len(shop.bytes_of(base)) for base in shop.bases()] == [2 * SIZE, 150]
    store.close()
    assert [len(shop.bytes_of(base)) for base in shop.bases()] == [2 * SIZE, SIZE]


def test_the_closing_entry_of_the_time_index(shop: Workshop) -> None:
    store = shop.open_with_topic()
    append_at(store, 5, 9, 7)
    store.close()
    assert time_index.decode_entries(shop.bytes_of(0, ".timeindex")) == [(9, 1)]
    assert offset_index.decode_entries(shop.bytes_of(0, ".index")) == []


def test_a_changed_interval_counts_from_the_next_append(shop: Workshop) -> None:
    store = shop.open_with_topic({"index.interval.bytes": "100000"})
    append_at(store, 1, 2, 3)
    store.alter_topic("t", {"index.interval.bytes": "0"})
    append_at(store, 4, 5)
    (segment,) = only_partition(store).segments()
    assert segment.offset_index.entries() == [(3, 3 * SIZE), (4, 4 * SIZE)]


def test_a_new_segment_takes_the_changed_settings(shop: Workshop) -> None:
    store = shop.open_with_topic({"segment.index.bytes": "80"})
    append_at(store, 1)
    store.alter_topic("t", {"segment.index.bytes": "160", "internal.segment.bytes": str(SIZE)})
    append_at(store, 1)
    assert [shop.fs.size(shop.path(base, ".index")) for base in (0, 1)] == [0, 160]


@pytest.mark.parametrize("records", [1, 3])
def test_a_fetch_of_batches_checks_those_that_it_hands_out_alone(
    shop: Workshop, monkeypatch: pytest.MonkeyPatch, records: int
) -> None:
    """Only returned batches need a CRC check.

    The index names the batch before the wanted batch. That batch, and batches that no longer fit, are recognised by
    their headers.
    """
    store = shop.open_with_topic({"index.interval.bytes": "1"})
    for _ in range(6):
        store.append(T0, [Record(None, b"x" * 5000)] * records)
    checked: list[int] = []

    def counted(data: bytes, at: int, header: BatchHeader) -> bool:
        checked.append(header.base_offset)
        return check_crc(data, at, header)

    monkeypatch.setattr("storage.kafka.log.log_file.check_crc", counted)
    whole = store.read_batches(T0, 0).data
    size_bytes = len(whole) // 6
    for number in range(6):
        for offset in range(number * records, (number + 1) * records):
            for max_bytes in (1, size_bytes, 2 * size_bytes - 1, 2 * size_bytes):
                checked.clear()
                page = store.read_batches(T0, offset, max_bytes=max_bytes)
                fitting = range(number, min(number + max(max_bytes // size_bytes, 1), 6))
                assert page.data == whole[number * size_bytes : fitting.stop * size_bytes]
                assert page.next_offset == fitting.stop * records
                if (
                    number != 1
                ):  # no entry names the first batch, so a read of the second batch starts at the first
                    assert checked == [batch * records for batch in fitting]
