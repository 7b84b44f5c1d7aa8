"""What a cleaning keeps: the newest records, tombstones until their horizon, producers, transactions, the log's end."""

from __future__ import annotations

import pytest

from storage.errors import OutOfOrderSequence
from storage.kafka.format.batch import encode_batch
from tests.unit.kafka.compaction.cleaning import DAY_MS, Cleaning
from tests.unit.kafka.log.batches import data_batch, marker
from tests.unit.kafka.workshop import T0, put_sequenced

CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]


@pytest.mark.parametrize("codec", CODECS)
def test_the_newest_record_of_each_key_stays(cleaning: Cleaning, codec: str) -> None:
    cleaning.create(compression_type="producer" if codec == "none" else codec)
    cleaning.put((b"a", b"1"), (b"b", b"1"), (b"a", b"2"))
    cleaning.put((b"c", b"1"), (b"a", b"3"))
    cleaning.roll()
    cleaning.put((b"a", b"4"))
    report = cleaning.clean()
    assert (report.records_dropped, report.finished) == (2, True)
    assert cleaning.left() == [(1, b"b", b"1"), (3, b"c", b"1"), (4, b"a", b"3"), (6, b"a", b"4")]
    bounds = cleaning.store.bounds(T0)
    assert (bounds.start, bounds.end) == (0, 7)
    first = cleaning.headers()[0]
    assert (first.base_offset, first.last_offset, first.count) == (0, 2, 1)
    assert first.codec == CODECS.index(codec)


def test_times_of_a_rewritten_batch_count_from_its_first_record(cleaning: Cleaning) -> None:
    store = cleaning.create()
    batch = encode_batch(
        [(b"a", b"1", (), 500), (b"b", b"1", (("h", b"v"),), 900), (b"c", b"1", (), 700)],
        base_offset=0, leader_epoch=0, now_ms=0,
    )  # fmt: skip
    store.append_batches(T0, batch)
    cleaning.put((b"a", b"2"), (b"c", b"2"))
    cleaning.roll()
    cleaning.clean()
    first = cleaning.headers()[0]
    assert (first.base_timestamp, first.max_timestamp, first.count) == (900, 900, 1)
    record = next(iter(store.scan(T0)))
    assert (record.offset, record.timestamp_ms, record.headers) == (1, 900, [("h", b"v")])


def test_with_append_times_every_record_keeps_that_of_its_batch(cleaning: Cleaning) -> None:
    cleaning.create(message_timestamp_type="LogAppendTime")
    cleaning.put((b"a", b"1"), (b"b", b"1"))
    time_ms = cleaning.shop.clock.now_ms
    cleaning.shop.clock.now_ms += 5
    cleaning.put((b"a", None))
    cleaning.roll()
    cleaning.clean()
    first, second = cleaning.headers()[:2]
    assert (first.base_timestamp, first.max_timestamp) == (time_ms, time_ms)
    assert second.has_delete_horizon
    times = [record.timestamp_ms for record in cleaning.store.scan(T0)]
    assert times[:2] == [time_ms, time_ms + 5]


def test_tombstones_go_after_their_horizon(cleaning: Cleaning) -> None:
    cleaning.create()
    cleaning.put((b"a", b"1"), (b"b", b"1"))
    cleaning.put((b"a", None), (b"c", b"1"))
    tombstone_ms = cleaning.shop.clock.now_ms
    cleaning.roll()
    cleaning.clean()
    assert cleaning.left() == [(1, b"b", b"1"), (2, b"a", None), (3, b"c", b"1")]
    horizon_ms = cleaning.shop.clock.now_ms + DAY_MS
    second = cleaning.headers()[1]
    assert (second.has_delete_horizon, second.base_timestamp) == (True, horizon_ms)
    assert second.max_timestamp == tombstone_ms
    assert [r.timestamp_ms for r in cleaning.store.scan(T0)][1:3] == [tombstone_ms] * 2

    cleaning.shop.clock.now_ms = horizon_ms - 1
    cleaning.roll()
    cleaning.clean()
    assert (2, b"a", None) in cleaning.left()
    assert cleaning.headers()[1].base_timestamp == horizon_ms, "set once"

    cleaning.shop.clock.now_ms = horizon_ms
    cleaning.roll()
    cleaning.clean()
    assert cleaning.left() == [(1, b"b", b"1"), (3, b"c", b"1")]


def test_a_key_that_comes_back_stays(cleaning: Cleaning) -> None:
    cleaning.create(delete_retention_ms="0")
    cleaning.put((b"a", b"1"))
    cleaning.put((b"a", None))
    cleaning.roll()
    cleaning.clean()
    cleaning.put((b"a", b"2"))
    cleaning.roll()
    cleaning.clean()
    assert [(key, value) for _, key, value in cleaning.left()] == [(b"a", b"2")]


def test_records_without_a_key_go(cleaning: Cleaning) -> None:
    cleaning.create(cleanup_policy="delete")
    cleaning.put_old((None, b"1"), (b"a", b"1"), (None, None))
    cleaning.configs({"cleanup.policy": "compact"})
    cleaning.roll()
    report = cleaning.clean()
    assert report.keyless_dropped == 2
    assert cleaning.left() == [(1, b"a", b"1")]


def test_the_last_sequence_of_a_producer_survives(cleaning: Cleaning) -> None:
    store = cleaning.create(cleanup_policy="delete")
    put_sequenced(store, 7, 0, count=2)
    put_sequenced(store, 7, 2)
    put_sequenced(store, 8, 0)
    cleaning.configs({"cleanup.policy": "compact"})
    cleaning.roll()
    cleaning.clean()
    kept = [(h.producer_id, h.base_sequence, h.count) for h in cleaning.headers()]
    assert kept == [(7, 2, 0), (8, 0, 0), (-1, -1, 1)]
    store.close()
    for snapshot in cleaning.shop.bases(".snapshot"):
        cleaning.shop.fs.remove(cleaning.shop.path(snapshot, ".snapshot"))
    cleaning.store = cleaning.shop.open()
    cleaning.configs({"cleanup.policy": "delete"})
    with pytest.raises(OutOfOrderSequence):
        put_sequenced(cleaning.store, 7, 4)
    put_sequenced(cleaning.store, 7, 3)


def test_the_end_of_the_range_stays_as_an_empty_batch(cleaning: Cleaning) -> None:
    cleaning.create()
    cleaning.put((b"a", b"1"))
    cleaning.put((b"a", b"2"), (b"b", b"1"))
    cleaning.roll()
    cleaning.put((b"a", b"3"), (b"b", b"2"))
    cleaning.roll()
    cleaning.clean()
    last = cleaning.headers()[-2]
    assert (last.base_offset, last.next_offset, last.count) == (4, 6, 2)
    cleaning.put((b"a", b"4"), (b"b", b"3"), (b"end", b"y"))
    cleaning.roll()
    cleaning.put((b"end", b"z"))
    cleaning.roll()
    cleaning.clean()
    assert [value for _, _, value in cleaning.left()] == [b"4", b"3"]


# ---- transactions ----


def transact(cleaning: Cleaning, sequence: int, key: bytes, *, commit: bool) -> None:
    data = data_batch(key=key, value=b"t", producer=(9, 0, sequence), transactional=True)
    cleaning.store.append_batches(T0, data)
    end = marker(0, 9, commit=commit, time_ms=cleaning.shop.clock.now_ms)
    cleaning.store.append_batches(T0, end)


def test_records_of_aborted_transactions_go_and_their_marker_later(cleaning: Cleaning) -> None:
    cleaning.create()
    cleaning.put((b"a", b"1"))
    transact(cleaning, 0, b"a", commit=False)
    transact(cleaning, 1, b"b", commit=True)
    cleaning.roll()
    cleaning.clean()
    assert cleaning.left() == cleaning.committed() == [(0, b"a", b"1"), (3, b"b", b"t")]
    assert [(h.base_offset, h.is_control) for h in cleaning.headers()[:4]] == [
        (0, False), (2, True), (3, False), (4, True),
    ]  # fmt: skip
    assert cleaning.shop.bases(".txnindex") == [0], "its data was there in this round"

    cleaning.roll()
    cleaning.clean()
    abort = cleaning.headers()[1]
    assert (abort.is_control, abort.has_delete_horizon) == (True, True)
    assert not cleaning.headers()[3].has_delete_horizon, "its transaction has data"
    assert cleaning.shop.bases(".txnindex") == []

    cleaning.shop.clock.now_ms += DAY_MS
    cleaning.roll()
    cleaning.clean()
    assert [h.base_offset for h in cleaning.headers() if h.is_control] == [4]
    assert cleaning.committed() == [(0, b"a", b"1"), (3, b"b", b"t")]


def test_an_open_transaction_is_not_cleaned(cleaning: Cleaning) -> None:
    store = cleaning.create()
    cleaning.put((b"a", b"1"))
    cleaning.roll()
    data = data_batch(key=b"a", value=b"t", producer=(9, 0, 0), transactional=True)
    store.append_batches(T0, data)
    cleaning.roll()
    cleaning.put((b"a", b"2"))
    cleaning.roll()
    report = cleaning.clean()
    assert report.cleaned_up_to == 1, (
        "the segment with the open transaction and all later ones stay"
    )
    store.append_batches(T0, marker(0, 9, commit=False))
    cleaning.roll()
    cleaning.clean()
    assert cleaning.left() == [(4, b"a", b"2")]


def test_the_marker_of_a_producer_without_data_keeps_its_epoch(cleaning: Cleaning) -> None:
    """With transactions of version 2 a marker has the next epoch, which fences older producers."""
    cleaning.create()
    transact(cleaning, 0, b"a", commit=True)
    end = marker(0, 9, commit=True, producer_epoch=1, time_ms=cleaning.shop.clock.now_ms)
    cleaning.store.append_batches(T0, end)
    for _ in range(3):
        cleaning.put((b"a", b"2"))
        cleaning.roll()
        cleaning.clean()
        cleaning.shop.clock.now_ms += 2 * DAY_MS
    kept = [(h.producer_epoch, h.count) for h in cleaning.headers() if h.is_control]
    assert kept[-1][0] == 1
