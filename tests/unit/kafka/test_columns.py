"""Columns of a split: the records of the codec, only the requested columns, and damage reported as by other readers."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from storage import Isolation, OffsetRange, Record
from storage.coding.varint import encode_varint
from storage.columns import COMMON_COLUMNS, OFFSET, TIMESTAMP, VALUE, Chunk, Slices
from storage.contract import StoreOptions
from storage.errors import Corrupt, DataError, IoFailure
from storage.files import OverlayFileSystem
from storage.kafka.columns import read, record_fields
from storage.kafka.columns.read import read_split
from storage.kafka.columns.record_fields import read_varints
from storage.kafka.columns.split_plan import SegmentRange
from storage.kafka.format.batch import (
    HEADER_SIZE,
    decode_header,
    decode_records,
    encode_batch,
    seal,
)
from storage.kafka.tools import open_inspector
from storage.model import Finding, TopicPartition
from tests.chunks import columns_of, rows_of
from tests.unit.kafka.log.batches import data_batch
from tests.unit.kafka.log.splitting import splitter_of, whole
from tests.unit.kafka.test_splits import DENSE, made_records
from tests.unit.kafka.workshop import ROOT, T0, Workshop, put_value, read_around

LOG = Path("/0.log")
FAR = 1 << 62
WALKS = (0, 1 << 60)  # values of record_fields.SIDE_BY_SIDE: always side by side, never


def file_of(data: bytes) -> OverlayFileSystem:
    """Return a file system with these bytes as a log."""
    fs = OverlayFileSystem()
    file = fs.open(LOG, create=True)
    file.pwrite(data, 0)
    file.close()
    return fs


def piece_of(data: bytes, start: int = 0, end: int = FAR) -> SegmentRange:
    """Return a piece that covers the whole log, limited to the offsets in [start, end)."""
    return SegmentRange(LOG, T0, 0, len(data), 0, FAR, start, end)


def chunks_of(
    data: bytes,
    wanted: Sequence[str] = COMMON_COLUMNS,
    *,
    found: list[Finding] | None = None,
    check_crcs: bool = True,
    start: int = 0,
    end: int = FAR,
) -> list[Chunk]:
    """Return the chunks of a log; `found` receives the damage findings."""
    on_damage = None if found is None else found.append
    plan = (piece_of(data, start, end),)
    return list(
        read_split(plan, wanted, check_crcs=check_crcs, on_damage=on_damage, fs=file_of(data))
    )


# ---- the codec's records -------------------------------------------------------------------------


def offsets_of(chunks: list[Chunk]) -> list[int]:
    return [offset for chunk in chunks for offset in columns_of(chunk)[OFFSET]]


@given(
    st.lists(st.tuples(made_records, st.integers(0, 4), st.booleans()), max_size=6),
    st.integers(0, 8),
    st.integers(0, 30),
)
@settings(deadline=None)
def test_a_run_of_batches_gives_the_records_of_the_codec(
    made: list[tuple[list[Record], int, bool]], start: int, length: int
) -> None:
    log = b""
    expected: list[tuple[Any, ...]] = []
    for records, codec, append_time in made:
        batch = encode_batch(
            records,
            base_offset=len(expected),
            leader_epoch=0,
            now_ms=7,
            codec=codec,
            log_append_time=append_time,
        )
        log += batch
        expected += [(*record, int(append_time)) for record in decode_records(batch)]
    end = start + length
    with patch.object(record_fields, "SIDE_BY_SIDE", WALKS[length % 2]):
        rows = list(rows_of(chunks_of(log, start=start, end=end)))
    assert [
        (r.offset, r.timestamp_ms, r.key, r.value, list(r.headers), r.timestamp_type) for r in rows
    ] == [(o, t, k, v, list(h), kind) for o, t, k, v, h, kind in expected if start <= o < end]
    counted = chunks_of(log, (), start=start, end=end)
    assert sum(chunk.rows for chunk in counted) == len(rows)
    assert all(not chunk.columns for chunk in counted)


BATCH = encode_batch(
    [
        Record(b"key", b"value" * 30, [("TAGS", b"t"), ("name", None)], 2**41),
        Record(None, None, (), 5),
        Record(b"", b"", [("", b"")], -1),
        Record(b"k" * 70, bytes(9000), [("KEYS", b"a b")] * 3, 2**62),
    ],
    base_offset=10,
    leader_epoch=0,
    now_ms=0,
)


def sealed(payload: bytes, **changes: int) -> bytes:
    """Return the batch with other records or header fields and a valid CRC."""
    return seal(decode_header(BATCH)._replace(**changes), payload) + payload


def check_as_codec(batch: bytes) -> bool:
    """Check that the columns equal the codec's records, or that both report corruption.

    Both ways to follow the record lengths must agree. Return True if there are records.
    """
    answers = set()
    for least in WALKS:
        with patch.object(record_fields, "SIDE_BY_SIDE", least):
            answers.add(is_as_codec(batch))
    (answer,) = answers
    return answer


def is_as_codec(batch: bytes) -> bool:
    """See check_as_codec."""
    found: list[Finding] = []
    rows = list(rows_of(chunks_of(batch, found=found)))
    try:
        expected = decode_records(batch)
    except DataError:
        assert rows == []
        (finding,) = found
        assert finding.code in {"undecodable-batch", "trailing-bytes"}
        with pytest.raises(Corrupt, match=r"/0\.log: batch at position 0 cannot be decoded"):
            chunks_of(batch)
        return False
    assert found == []
    stated = [(r.offset, r.timestamp_ms, r.key, r.value, list(r.headers)) for r in rows]
    assert stated == [(o, t, k, v, list(h)) for o, t, k, v, h in expected]
    return True


@pytest.mark.one_in(5)
@pytest.mark.parametrize("at", range(HEADER_SIZE, HEADER_SIZE + 290))
def test_records_that_lie_under_a_good_crc_are_corrupt(at: int) -> None:
    payload = bytearray(BATCH[HEADER_SIZE:])
    place = at - HEADER_SIZE
    for value in (0, 1, 2, 0x7F, 0x80, 0xFF, payload[place] ^ 1, payload[place] + 2 & 0xFF):
        changed = bytearray(payload)
        changed[place] = value
        check_as_codec(sealed(bytes(changed)))


@given(st.randoms(use_true_random=False))
@settings(max_examples=300, deadline=None)
def test_records_that_were_mangled_are_what_the_codec_says(rng: random.Random) -> None:
    payload = bytearray(BATCH[HEADER_SIZE:])
    for _ in range(rng.randrange(1, 4)):
        at = rng.randrange(min(len(payload), 330))
        number = encode_varint(rng.choice((-1, 0, 1, 300, 2**31, 2**63 - 1, -(2**63))))
        payload[at : at + rng.randrange(3)] = rng.choice((number, b"\xff" * 11, b"\x80\x00", b""))
    count = rng.choice((4, 4, 4, 3, 0, 1))
    check_as_codec(sealed(bytes(payload), count=count, last_offset_delta=rng.choice((3, 3, 9))))


@pytest.mark.parametrize(
    "deltas", [b"\0\2", b"\0\0", b"\2\0", b"\0\6", b"\1\2", b"\2\4\6", b"\0\6\2", b"\4\2\0\6"]
)
def test_offsets_that_do_not_rise_are_read_as_the_codec_reads_them(deltas: bytes) -> None:
    records = b"".join(b"\x0c\x00\x00" + bytes([d]) + b"\x01\x01\x00" for d in deltas)
    for last in (0, 2, len(deltas) - 1):
        assert check_as_codec(sealed(records, count=len(deltas), last_offset_delta=last))


def test_varints_of_every_length() -> None:
    numbers = [
        0,
        -1,
        1,
        63,
        -64,
        64,
        8191,
        8192,
        *(2**n for n in range(14, 63)),
        2**63 - 1,
        -(2**63),
    ]
    data = b"".join(map(encode_varint, numbers))
    starts = np.cumsum([0, *(len(encode_varint(n)) for n in numbers)])
    found, after = read_varints(np.frombuffer(data, np.uint8), starts[:-1])
    assert found.tolist() == numbers
    assert after.tolist() == starts[1:].tolist()


# ---- requested columns ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "wanted", [(), (OFFSET,), (TIMESTAMP,), (VALUE,), (OFFSET, VALUE), ("tag",)]
)
def test_only_what_is_asked_for_is_there(wanted: tuple[str, ...]) -> None:
    (chunk,) = chunks_of(BATCH, wanted)
    (whole_chunk,) = chunks_of(BATCH)
    assert chunk.rows == whole_chunk.rows
    assert set(chunk.columns) == set(wanted)
    assert columns_of(chunk) == {name: columns_of(whole_chunk)[name] for name in wanted}


def test_a_column_of_another_backend_is_left_out() -> None:
    (chunk,) = chunks_of(BATCH, ("message_id", OFFSET))
    assert set(chunk.columns) == {OFFSET}


def test_chunks_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read, "CHUNK_BYTES", 20_000)
    log = b""
    for number in range(300):
        records = [Record(None, bytes([number % 256]) * 500)] * 2
        codec = number // 40 % 5
        log += encode_batch(records, base_offset=2 * number, leader_epoch=0, now_ms=0, codec=codec)
    chunks = chunks_of(log)
    assert offsets_of(chunks) == list(range(600))
    held = [chunk.columns[VALUE] for chunk in chunks]
    sizes = [len(column.data) for column in held if isinstance(column, Slices)]
    assert len(sizes) == len(chunks)
    assert max(sizes) <= 21_500
    assert sorted(sizes)[len(sizes) // 2] > 9000


# ---- damage --------------------------------------------------------------------------------------


@pytest.fixture
def hundred(shop: Workshop) -> Workshop:
    """A cleanly stopped store with a hundred batches in one segment."""
    with shop.open_with_topic(DENSE) as store:
        for number in range(100):
            store.append(T0, [Record(b"%d" % number, bytes(100))] * 2)
    return shop


def read_all(
    shop: Workshop, split_bytes: int, found: list[Finding] | None = None, *, check_crcs: bool = True
) -> list[int]:
    """Return the offsets of the partition's rows."""
    splitter = splitter_of(shop, DENSE)
    splits = splitter.plan(whole(splitter), split_bytes=split_bytes)
    splitter.close()
    on_damage = None if found is None else found.append
    return [
        offset
        for split in splits
        for chunk in read_split(
            split.plan, {OFFSET}, check_crcs=check_crcs, on_damage=on_damage, fs=shop.fs
        )
        for offset in columns_of(chunk)[OFFSET]
    ]


@pytest.mark.parametrize("split_bytes", [1, 2000, 1 << 26])
@pytest.mark.parametrize("at", [0, 8, 16, 20, 70])
def test_a_damaged_batch_is_told_as_reads_and_verify_tell_it(
    hundred: Workshop, split_bytes: int, at: int
) -> None:
    position = 4 * decode_header(hundred.bytes_of(0)).size_bytes
    hundred.overwrite(position + at, bytes([hundred.bytes_of(0)[position + at] ^ 0x7F]))
    with hundred.open(DENSE, read_only=True) as store:
        records, errors = read_around(store)
    same = ("kind", "path", "position", "next_good_offset")
    with pytest.raises(Corrupt) as caught:
        read_all(hundred, split_bytes)
    stated, known = caught.value.facts(), errors[0].facts()
    assert [stated[name] for name in same] == [known[name] for name in same]
    found: list[Finding] = []
    assert read_all(hundred, split_bytes, found) == [record.offset for record in records]
    inspector = open_inspector(ROOT, StoreOptions(), fs=hundred.fs, clock=hundred.clock)
    assert inspector is not None
    bad = {"damaged-batch", "misplaced-batch"}
    verified = [f for f in inspector.verify() if f.code in bad]
    assert [(f.code, f.path, f.position) for f in found] == [
        (f.code, f.path, f.position) for f in verified
    ]


def test_damage_beside_what_is_asked_for_is_no_matter() -> None:
    log = bytearray(b"".join(data_batch(at, value=bytes(50)) for at in range(5)))
    size_bytes = len(log) // 5
    log[size_bytes + 70] ^= 1
    log[3 * size_bytes + 70] ^= 1
    assert offsets_of(chunks_of(bytes(log), start=2, end=3)) == [2]
    for start, end in ((1, 3), (2, 4), (0, 2), (3, 4)):
        with pytest.raises(Corrupt):
            chunks_of(bytes(log), start=start, end=end)


def test_without_crcs_a_flipped_byte_is_not_seen(hundred: Workshop) -> None:
    hundred.overwrite(HEADER_SIZE + 50, b"\x55")
    assert read_all(hundred, 1 << 26, check_crcs=False) == list(range(200))


def test_a_file_that_ends_before_the_split_is_damage(hundred: Workshop) -> None:
    splitter = splitter_of(hundred, DENSE)
    (split,) = splitter.plan(whole(splitter))
    splitter.close()
    size_bytes = len(hundred.bytes_of(0))
    for cut in (size_bytes - 1, size_bytes // 2, 61, 0):
        hundred.truncate(cut)
        with pytest.raises(Corrupt, match=r"expected .* bytes, found .* bytes"):
            list(read_split(split.plan, {OFFSET}, check_crcs=True, on_damage=None, fs=hundred.fs))
        found: list[Finding] = []
        chunks = list(
            read_split(
                split.plan, {OFFSET}, check_crcs=False, on_damage=found.append, fs=hundred.fs
            )
        )
        assert offsets_of(chunks) == list(range(len(offsets_of(chunks))))
        assert len(offsets_of(chunks)) >= 2 * (cut * 100 // size_bytes - 1)
        assert [finding.code for finding in found] == ["damaged-batch"]


def test_a_file_that_is_gone_is_named(shop: Workshop) -> None:
    store = shop.open_with_topic({"internal.segment.bytes": "150"})
    for number in range(8):
        put_value(store, b"value %d" % number)
    splitter = splitter_of(shop)
    (split,) = splitter.plan(whole(splitter))
    splitter.close()
    shop.fs.remove(shop.path(2))
    with pytest.raises(IoFailure, match=r"t-0/0+2\.log"):
        list(read_split(split.plan, {OFFSET}, check_crcs=True, on_damage=None, fs=shop.fs))
    found: list[Finding] = []
    chunks = list(
        read_split(split.plan, {OFFSET}, check_crcs=True, on_damage=found.append, fs=shop.fs)
    )
    assert offsets_of(chunks) == [0, 1, 4, 5, 6, 7]
    assert [(f.code, Path(f.path).name) for f in found] == [("missing-file", shop.path(2).name)]


def test_what_lies_behind_an_open_transaction_is_not_planned(shop: Workshop) -> None:
    store = shop.open_with_topic()
    put_value(store, b"before")
    store.append_batches(T0, data_batch(producer=(9, 0, 0), transactional=True))
    put_value(store, b"behind")
    splitter = splitter_of(shop)
    assert splitter.bounds(T0) == (0, 1, 3)
    for end in (1, 2, 3):
        (split,) = splitter.plan([OffsetRange(T0, 0, end)], isolation=Isolation.READ_COMMITTED)
        chunks = list(read_split(split.plan, {OFFSET}, check_crcs=True, on_damage=None, fs=shop.fs))
        assert offsets_of(chunks) == [0]
    assert splitter.plan([OffsetRange(T0, 1, 3)], isolation=Isolation.READ_COMMITTED) == []
    splitter.close()


def test_a_chunk_of_many_partitions_tells_whose_each_row_is(shop: Workshop) -> None:
    store = shop.open_with_topic(partitions=3)
    for number in (0, 2, 1, 1, 2):
        put_value(store, b"%d" % number, TopicPartition("t", number))
    splitter = splitter_of(shop)
    (split,) = splitter.plan(whole(splitter))
    splitter.close()
    (chunk,) = read_split(split.plan, {VALUE}, check_crcs=True, on_damage=None, fs=shop.fs)
    assert chunk.partitions == [TopicPartition("t", number) for number in range(3)]
    assert chunk.codes is not None
    assert chunk.codes.tolist() == [0, 1, 1, 2, 2]
    assert columns_of(chunk)[VALUE] == [b"%d" % code for code in chunk.codes.tolist()]
