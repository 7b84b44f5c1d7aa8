"""Indexes of the active segment that are wrong after a clean stop: reported, rebuilt, never sealed as they are."""

from __future__ import annotations

import struct

import pytest

from storage.files import OverlayFileSystem
from storage.kafka.format.sparse_index import offset_index, time_index
from storage.kafka.log.segment import Segment
from tests.unit.kafka.workshop import ROOT, Workshop, only_partition, put_value, values

DENSE = {"index.interval.bytes": "0"}
COUNT = 8
MARKER = ROOT / ".kafka_cleanshutdown"


@pytest.fixture
def stopped(shop: Workshop) -> Workshop:
    """A cleanly stopped store of eight batches, each but the first with an index entry."""
    with shop.open_with_topic(DENSE) as store:
        for n in range(COUNT):
            shop.clock.now_ms += 10
            put_value(store, b"value %d" % n)
    return shop


def append_to(shop: Workshop, suffix: str, data: bytes) -> None:
    shop.put(shop.path(0, suffix), shop.bytes_of(0, suffix) + data)


def change_entry(shop: Workshop, suffix: str, at: int, data: bytes) -> None:
    whole = shop.bytes_of(0, suffix)
    shop.put(shop.path(0, suffix), whole[:at] + data + whole[at + len(data) :])


def offset_entry(relative_offset: int, position: int) -> bytes:
    return struct.pack(">ii", relative_offset, position)


def time_entry(time_ms: int, relative_offset: int) -> bytes:
    return struct.pack(">qi", time_ms, relative_offset)


def check_right(shop: Workshop, *indexed: int) -> None:
    """Check that the index files contain entries for exactly these batches."""
    offsets = offset_index.decode_entries(shop.bytes_of(0, ".index"))
    assert offsets == [(offset, 75 * offset) for offset in indexed]
    times = time_index.decode_entries(shop.bytes_of(0, ".timeindex"))
    assert [offset for _, offset in times] == list(indexed)


WRONG = {
    "high": (".index", None, offset_entry(0x7FFFFFFF, 0x7FFFFFFF), "wrong-index-entry"),
    "inside": (".index", None, offset_entry(COUNT, 540), "wrong-index-entry"),
    "offset": (".index", 6 * 8, offset_entry(9, 525), "wrong-index-entry"),
    "falls": (".index", 2 * 8, offset_entry(0x4003, 225), "bad-index"),
    "odd": (".index", None, b"abc", "bad-index"),
    "time high": (".timeindex", None, time_entry(1 << 60, COUNT - 1), "wrong-index-entry"),
    "time after it": (".timeindex", None, time_entry(1 << 60, 1 << 30), "wrong-index-entry"),
    "time falls": (".timeindex", 12, time_entry(1, 2), "bad-index"),
    "time odd": (".timeindex", None, b"abc", "bad-index"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_entry_is_told_and_mended_before_it_is_sealed(stopped: Workshop, name: str) -> None:
    suffix, at, data, code = WRONG[name]
    if at is None:
        append_to(stopped, suffix, data)
    else:
        change_entry(stopped, suffix, at, data)
    with stopped.open(DENSE) as store:
        assert [(f.code, f.severity, f.path) for f in store.recovery.findings] == [
            (code, "warning", str(stopped.path(0, suffix)))
        ]
        assert not stopped.fs.exists(MARKER)
        for value in (b"value 8", b"value 9"):
            stopped.clock.now_ms += 10
            put_value(store, value)
    assert stopped.fs.exists(MARKER)
    check_right(stopped, *range(1, COUNT), 9)  # the first batch after a start gets no entry
    assert stopped.open(DENSE).recovery.findings == []


@pytest.mark.parametrize("name", WRONG)
def test_it_is_mended_though_nothing_is_appended(stopped: Workshop, name: str) -> None:
    suffix, at, data, _ = WRONG[name]
    append_to(stopped, suffix, data) if at is None else change_entry(stopped, suffix, at, data)
    stopped.open(DENSE).close()
    check_right(stopped, *range(1, COUNT))


def test_reading_only_changes_nothing(stopped: Workshop) -> None:
    append_to(stopped, ".index", offset_entry(0x7FFFFFFF, 0x7FFFFFFF))
    fs = OverlayFileSystem(stopped.fs)
    with Workshop(fs).open(DENSE, read_only=True) as store:
        assert [f.code for f in store.recovery.findings] == ["wrong-index-entry"]
        assert len(values(store)) == COUNT
    assert list(fs.changed()) == []


def test_right_indexes_are_let_be(stopped: Workshop) -> None:
    before = {suffix: stopped.bytes_of(0, suffix) for suffix in (".index", ".timeindex")}
    with stopped.open(DENSE) as store:
        assert (store.recovery.findings, store.recovery.indexes_rebuilt) == ([], 0)
    assert {suffix: stopped.bytes_of(0, suffix) for suffix in before} == before


@pytest.mark.parametrize("data", [bytes(8), bytes(800), offset_entry(3, 0x7FFFFFFF)])
def test_entries_of_an_empty_log_that_name_no_batch_are_removed(
    shop: Workshop, data: bytes
) -> None:
    shop.open_with_topic(DENSE).close()
    append_to(shop, ".index", data)
    with shop.open(DENSE) as store:
        assert {f.code for f in store.recovery.findings} <= {"wrong-index-entry"}
        assert put_value(store, b"first").base_offset == 0
    assert shop.bytes_of(0, ".index") == b""


def test_a_last_entry_that_names_a_damaged_batch_shows_the_damage(stopped: Workshop) -> None:
    stopped.overwrite(75 * 7 + 25, b"X")
    with stopped.open(DENSE) as store:
        assert [(f.code, f.position) for f in store.recovery.findings] == [("torn-tail", 75 * 7)]
        assert len(values(store)) == 7
    check_right(stopped, *range(1, 7))


def test_a_closed_segments_damaged_index_is_mended_at_the_stop(shop: Workshop) -> None:
    settings = DENSE | {"internal.segment.bytes": "300"}
    with shop.open_with_topic(settings) as store:
        for n in range(COUNT):
            shop.clock.now_ms += 10
            put_value(store, b"value %d" % n)
    right = shop.bytes_of(0, ".index")
    shop.put(shop.path(0, ".index"), right[:8] + bytes(4) + right[12:])
    store = shop.open(settings)
    segment: Segment = only_partition(store).segments()[0]
    assert segment.offset_index.entries() == offset_index.decode_entries(right)
    store.close()
    assert shop.bytes_of(0, ".index") == right
