"""Whole batches: the table in both directions, cuts and flips inside the records, broken records, random records."""

from __future__ import annotations

import re
from contextlib import suppress
from typing import Any

import lz4.frame
import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.coding.varint import INT64_MAX, INT64_MIN, TABLE_SIZE, encode_varint
from storage.errors import Corrupt, InvalidArgument, Truncated, UnrepresentableRecord
from storage.kafka.format.batch import (
    HEADER_SIZE,
    MAX_BASE_OFFSET,
    check_crc,
    check_records,
    decode_header,
    decode_records,
    encode_batch,
    seal,
    split_batches,
)
from storage.kafka.format.compression import compress
from storage.kafka.format.record import Part
from storage.model import Record
from tests.formats.kafka_batches.cases import COMPACTED, MS, PRODUCED, Case, DecodedRecord

CODECS = [0, 1, 2, 3, 4]
PLAIN = decode_header(PRODUCED[0].data)

timestamps = st.integers(INT64_MIN, INT64_MAX) | st.integers(MS - 10_000, MS + 10_000)
blobs = st.none() | st.binary(max_size=100) | st.sampled_from([b"", bytes(63), bytes(64)])
names = st.text(st.characters(exclude_categories=["Cs"]), max_size=10)
records = st.builds(
    Record,
    key=blobs,
    value=blobs | st.binary(min_size=8_190, max_size=8_200),
    headers=st.lists(st.tuples(names, blobs), max_size=4),
    timestamp_ms=timestamps,
)


def named(case: Case) -> str:
    return case.name


def to_encode(decoded: list[DecodedRecord]) -> list[tuple[Any, ...]]:
    return [(key, value, headers, time) for _, time, key, value, headers in decoded]


def encoded(given_: list[Any], **options: Any) -> bytes:
    return encode_batch(
        given_, **{"base_offset": 0, "leader_epoch": 0, "now_ms": MS, "codec": 0} | options
    )


def with_records(payload: bytes, **fields: int) -> bytes:
    """Return a batch of one record, with `payload` as the bytes of its records and a valid CRC."""
    header = PLAIN._replace(**fields)
    return seal(header, payload) + payload


def as_record(body: bytes) -> bytes:
    return encode_varint(len(body)) + body


@pytest.mark.parametrize("case", PRODUCED + COMPACTED, ids=named)
def test_decoding(case: Case) -> None:
    assert decode_records(case.data) == case.records
    assert decode_records(b"\xff" * 5 + case.data + b"\xff" * 5, 5) == case.records
    assert decode_records(case.data, header=decode_header(case.data)) == case.records


@pytest.mark.parametrize("case", PRODUCED, ids=named)
def test_encoding(case: Case) -> None:
    data = encoded(to_encode(case.records), base_offset=case.base_offset, **case.options)
    assert data == case.data


def test_the_model_s_record_is_taken_as_it_is() -> None:
    case = PRODUCED[1]
    given_ = [
        Record(key, value, headers, time, "tag", ("lookup key",))
        for _, time, key, value, headers in case.records
    ]
    assert encoded(given_, base_offset=101) == case.data
    assert encode_batch(tuple(given_), base_offset=101, leader_epoch=0, now_ms=0) == case.data


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("case", PRODUCED, ids=named)
def test_every_codec(case: Case, codec: int) -> None:
    data = encoded(
        to_encode(case.records), base_offset=case.base_offset, codec=codec, **case.options
    )
    header = decode_header(data)
    assert header.codec == codec
    assert check_crc(data, 0, header)
    assert decode_records(b"..." + data + b"...", 3) == case.records


@pytest.mark.parametrize("codec", CODECS)
@given(given_=st.lists(records, min_size=1, max_size=5), now_ms=timestamps)
def test_any_records_come_back(codec: int, given_: list[Record], now_ms: int) -> None:
    data = encoded(given_, base_offset=77, codec=codec, now_ms=now_ms, leader_epoch=5)
    ((_, header),) = split_batches(data)
    assert decode_records(data) == [
        (77 + index, r.timestamp_ms, r.key, r.value, r.headers or ())
        for index, r in enumerate(given_)
    ]
    assert header.base_timestamp == given_[0].timestamp_ms
    assert header.max_timestamp == max(r.timestamp_ms or 0 for r in given_)
    assert (header.count, header.last_offset_delta) == (len(given_), len(given_) - 1)
    assert (header.leader_epoch, header.attributes) == (5, codec)
    assert header[9:12] == (-1, -1, -1)


def test_more_records_than_the_table_of_varints() -> None:
    given_ = [(None, b"%d" % index, (), MS + index) for index in range(TABLE_SIZE + 3)]
    data = encoded(given_)
    assert [(r[0], r[1], r[3]) for r in decode_records(data)] == [
        (index, MS + index, b"%d" % index) for index in range(TABLE_SIZE + 3)
    ]


def test_a_missing_timestamp_is_now() -> None:
    given_ = [(None, b"a", (), None), (None, b"b", (), MS - 5), (None, b"c", (), None)]
    data = encoded(given_)
    assert [record[1] for record in decode_records(data)] == [MS, MS - 5, MS]
    header = decode_header(data)
    assert (header.base_timestamp, header.max_timestamp) == (MS, MS)


def test_append_time_is_every_record_s_time() -> None:
    given_ = [(None, b"a", (), MS - 9), (None, b"b", (), MS + 9)]
    data = encoded(given_, log_append_time=True)
    header = decode_header(data)
    assert (header.attributes, header.base_timestamp, header.max_timestamp) == (8, MS - 9, MS)
    assert [record[1] for record in decode_records(data)] == [MS, MS]


@pytest.mark.parametrize(
    ("first", "second"),
    [(INT64_MIN, INT64_MAX), (INT64_MAX, INT64_MIN), (0, INT64_MIN), (-1, INT64_MAX)],
)
def test_time_differences_wrap_as_in_java(first: int, second: int) -> None:
    given_ = [(None, b"a", (), first), (None, b"b", (), second)]
    assert [record[1] for record in decode_records(encoded(given_))] == [first, second]


def test_the_largest_offsets() -> None:
    given_ = [(None, b"a", (), MS)] * 3
    data = encoded(given_, base_offset=MAX_BASE_OFFSET)
    assert [record[0] - MAX_BASE_OFFSET for record in decode_records(data)] == [0, 1, 2]


def test_no_record() -> None:
    with pytest.raises(InvalidArgument):
        encoded([])


@pytest.mark.parametrize(
    ("second", "field"),
    [
        ((None, b"v", (), INT64_MAX + 1), "timestamp"),
        ((None, b"v", (), INT64_MIN - 1), "timestamp"),
        ((None, b"v", (), 10**30), "timestamp"),
        ((None, b"v", [("\ud800", b"")], MS), "headers"),
    ],
)
def test_what_cannot_be_kept(second: tuple[Any, ...], field: str) -> None:
    for given_, index in (([(None, b"v", (), MS), second], 1), ([second], 0)):
        with pytest.raises(UnrepresentableRecord) as caught:
            encoded(given_)
        assert caught.value.facts() == {"field": field, "index": index}


def test_a_time_just_outside_64_bits_beside_one_just_inside() -> None:
    with pytest.raises(UnrepresentableRecord) as caught:
        encoded([(None, b"v", (), INT64_MAX - 1), (None, b"v", (), INT64_MAX + 1)])
    assert caught.value.facts()["index"] == 1


@pytest.mark.parametrize(
    "option",
    [
        {"base_offset": 2**63},
        {"leader_epoch": 2**31},
        {"producer_id": 2**63},
        {"producer_epoch": 2**15},
        {"base_sequence": 2**31},
        {"codec": 5},
        {"codec": -1},
        {"log_append_time": True, "now_ms": 2**63},
    ],
)
def test_a_header_field_out_of_range(option: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgument):
        encoded([(None, b"v", (), MS)], **option)


@pytest.mark.parametrize("case", PRODUCED, ids=named)
def test_every_cut_of_the_records_is_corrupt(case: Case) -> None:
    """The header's length fits the cut: the batch is complete, but its records are not."""
    payload = case.data[HEADER_SIZE:]
    header = decode_header(case.data)
    for cut in range(len(payload)):
        data = seal(header, payload[:cut]) + payload[:cut]
        for followed in (data, data + case.data):
            with pytest.raises(Corrupt) as caught:
                decode_records(followed)
            assert caught.value.facts()["position"] == 0


@pytest.mark.parametrize("case", PRODUCED, ids=named)
def test_every_flip_in_the_records_is_a_value_or_corrupt(case: Case) -> None:
    for position in range(HEADER_SIZE, len(case.data)):
        for bit in range(8):
            data = bytearray(case.data)
            data[position] ^= 1 << bit
            with suppress(Corrupt):  # a flipped offset delta may drop a record
                assert len(decode_records(bytes(data))) <= len(case.records)


RECORD = b"\0\0\0\x02k\x02v\0"
BROKEN = {
    "nothing there": (b"", "1 records do not fit into 0 bytes"),
    "less than any record takes": (as_record(b"\0\0\0\1\1"), "1 records do not fit into 6 bytes"),
    "a length over the end": (b"\x12" + RECORD, "length reaches over the end of the batch"),
    "a length that is too small": (b"\x0e" + RECORD, "do not fill its length"),
    "a negative length": (b"\x0f" + RECORD, "reaches over the end"),
    "an endless length": (b"\x80" * 20, "64 bits"),
    "a byte too many": (as_record(RECORD) + b"\0", "1 bytes follow the last record"),
    "a record too many": (as_record(RECORD) * 2, "9 bytes follow the last record"),
    "a byte too many in the record": (as_record(RECORD + b"\0"), "do not fill its length"),
    "a key over the end": (as_record(b"\0\0\0\x14k\x02v\0"), "a length of 10 reaches over the end"),
    "a value over the end": (as_record(b"\0\0\0\x01\x08v\0"), "a length of 4 reaches over the end"),
    "a huge key": (as_record(b"\0\0\0" + encode_varint(2**40) + b"\x02v\0"), "over the end"),
    "the largest key": (as_record(b"\0\0\0" + encode_varint(INT64_MAX) + b"\x02v\0"), "over the"),
    "a huge offset delta": (as_record(b"\0\0" + encode_varint(INT64_MAX) + b"\x01\x01\0"), "delta"),
    "a header count below 0": (as_record(b"\0\0\0\x02k\x02v\x01"), "header count is -1"),
    "a huge header count": (
        as_record(b"\0\0\0\x02k\x02v" + encode_varint(2**50)),
        "header count is",
    ),
    "a header missing": (as_record(b"\0\0\0\x02k\x02v\x04\x02a\x02b"), "over the end"),
    "a null header name": (as_record(b"\0\0\0\x02k\x02v\x02\x01\x02b"), "header name is null"),
    "a header name over the end": (as_record(b"\0\0\0\x02k\x02v\x02\x14a\x01"), "over the end"),
}


@pytest.mark.parametrize("what", BROKEN)
def test_what_breaks_the_records(what: str) -> None:
    payload, message = BROKEN[what]
    data = with_records(payload)
    for position in (0, 4):
        for tail in (b"", PRODUCED[0].data):
            with pytest.raises(Corrupt, match=re.escape(message)) as caught:
                decode_records(bytes(position) + data + tail, position)
            facts = caught.value.facts()
            assert (facts["kind"], facts["position"]) == ("batch", position)


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("what", BROKEN)
def test_a_producers_broken_records_are_refused(what: str, codec: int) -> None:
    data = with_records(compress(codec, BROKEN[what][0]), attributes=codec)
    for position in (0, 4):
        for tail in (b"", PRODUCED[0].data):
            with pytest.raises(Corrupt) as caught:
                check_records(bytes(position) + data + tail, position, decode_header(data))
            facts = caught.value.facts()
            assert (facts["kind"], facts["position"]) == ("batch", position)


def test_a_producers_broken_record_is_named() -> None:
    payload = as_record(RECORD) + as_record(b"\0\0\x02\x02k\x02v\x02\x01\x02b")
    data = with_records(payload, count=2, last_offset_delta=1)
    with pytest.raises(Corrupt, match="record 1: a header name is null"):
        check_records(data, 0, decode_header(data))


@pytest.mark.parametrize("deltas", [(1, 0), (0, 0), (0, 2), (1, 2)])
def test_a_producers_offsets_count_from_0(deltas: tuple[int, int]) -> None:
    payload = b"".join(
        as_record(b"\0\0" + encode_varint(delta) + b"\x02k\x02v\0") for delta in deltas
    )
    data = with_records(payload, count=2, last_offset_delta=2)
    with pytest.raises(Corrupt, match=r"its offset delta is \d, it must be \d"):
        check_records(data, 0, decode_header(data))


@pytest.mark.parametrize("case", PRODUCED, ids=named)
def test_what_a_producer_may_send_is_what_can_be_read(case: Case) -> None:
    """With every bit flipped, the check agrees with the decoder, although it builds no records."""
    for position in range(HEADER_SIZE, len(case.data)):
        for bit in range(8):
            data = bytearray(case.data)
            data[position] ^= 1 << bit
            assert latest_checked(bytes(data)) == latest_decoded(bytes(data)), (position, bit)


def latest_checked(data: bytes) -> int | None:
    try:
        return check_records(data, 0, decode_header(data))
    except Corrupt:
        return None


def latest_decoded(data: bytes) -> int | None:
    """Return the largest time of the records; None if they cannot be read or an offset is missing."""
    header = decode_header(data)
    try:
        found = decode_records(data)
    except Corrupt:
        return None
    if [record[0] - header.base_offset for record in found] != list(range(header.count)):
        return None
    return max(record[1] for record in found)


@given(st.lists(records, min_size=1, max_size=5), st.sampled_from(CODECS))
def test_the_latest_time_of_a_producers_batch(given_: list[Record], codec: int) -> None:
    """The time is at least Kafka's "no timestamp"; a batch with log-append time has the time of its header."""
    data = encoded(given_, codec=codec)
    latest = max(record.timestamp_ms or 0 for record in given_)
    assert check_records(data, 0, decode_header(data)) == max(latest, -1)
    appended = encoded(given_, codec=codec, log_append_time=True)
    assert check_records(appended, 0, decode_header(appended)) == MS


def test_a_producers_lz4_blocks_must_not_be_linked() -> None:
    """Linked blocks are refused: they can be read here, but by no client of Kafka."""
    value = bytes(200_000)  # more than one block: a single block is never linked
    payload = as_record(b"\0\0\0\1" + encode_varint(len(value)) + value + b"\0")
    data = with_records(lz4.frame.compress(payload, block_linked=True), attributes=3)
    assert decode_records(data)[0][3] == value
    with pytest.raises(Corrupt, match="linked"):
        check_records(data, 0, decode_header(data))
    data = with_records(lz4.frame.compress(payload, block_linked=False), attributes=3)
    assert check_records(data, 0, decode_header(data)) == PLAIN.base_timestamp


@pytest.mark.parametrize("codec", CODECS[1:])
def test_a_producers_bomb_is_refused(codec: int) -> None:
    data = with_records(compress(codec, bytes(100_000)), attributes=codec)
    with pytest.raises(Corrupt, match="over the limit of 99999 bytes"):
        check_records(data, 0, decode_header(data), max_bytes=99_999)


def test_a_producers_batch_that_is_cut() -> None:
    data = PRODUCED[0].data
    with pytest.raises(Truncated):
        check_records(data[:-1], 0, decode_header(data))


def test_the_broken_record_is_named() -> None:
    payload = as_record(RECORD) + as_record(b"\0\0\x02\x02k\x14v\0")
    with pytest.raises(Corrupt, match="record 1: a length of 10 reaches over the end"):
        decode_records(with_records(payload, count=2, last_offset_delta=1))


@pytest.mark.parametrize(
    ("deltas", "shown"),
    [
        ((0, 0), [0]),
        ((1, 2), [1, 2]),
        ((2, 1, 0), [2]),
        ((-1, 0, 1), [0, 1]),
        ((0, 2, 1, 3), [0, 2, 3]),
        ((0, 2**31 - 1), [0, 2**31 - 1]),
        ((-1,), []),
    ],
)
@pytest.mark.parametrize("last", [0, 1, 9])
def test_offsets_are_read_as_the_consumer_reads_them(
    deltas: tuple[int, ...], shown: list[int], last: int
) -> None:
    payload = b"".join(
        as_record(b"\0\0" + encode_varint(delta) + b"\x02k\x02v\0") for delta in deltas
    )
    data = with_records(payload, count=len(deltas), last_offset_delta=last)
    base = decode_header(data).base_offset
    assert [record[0] - base for record in decode_records(data)] == shown


@pytest.mark.parametrize("count", [-1, -(2**31)])
def test_a_count_below_0(count: int) -> None:
    with pytest.raises(Corrupt, match=f"a count of {count} records"):
        decode_records(with_records(as_record(RECORD), count=count))


def test_a_count_without_records() -> None:
    """A count alone costs neither memory nor time, even if it claims 2^31 - 1 records."""
    data = with_records(as_record(RECORD), count=2**31 - 1, last_offset_delta=2**31 - 1)
    with pytest.raises(Corrupt, match="2147483647 records do not fit into 9 bytes"):
        decode_records(data)
    data = with_records(as_record(RECORD) + bytes(20), count=2, last_offset_delta=9)
    with pytest.raises(Corrupt, match="record 1: "):
        decode_records(data)


def test_record_attributes_are_ignored() -> None:
    data = with_records(as_record(b"\xff" + RECORD[1:]))
    assert decode_records(data) == [(0, PLAIN.base_timestamp, b"k", b"v", ())]


def test_a_header_name_in_latin_1_is_read_as_kafkas_consumer_reads_it() -> None:
    data = with_records(as_record(b"\0\0\0\x02k\x02v\x02\x08caf\xe9\x01"))
    assert decode_records(data)[0][4] == [("caf\ufffd", None)]


def test_no_headers_are_the_same_however_long_their_count_is_written() -> None:
    """Kafka reads a varint with more bytes than necessary, and the record is the same."""
    data = with_records(as_record(RECORD[:-1] + b"\x80\x80\0"))
    assert decode_records(data) == [(0, PLAIN.base_timestamp, b"k", b"v", ())]


def numbered(count: int, **options: Any) -> bytes:
    """Return a batch of records with a key and a value of 10 bytes together."""
    return encoded([(b"key", b"%07d" % index, (), MS) for index in range(count)], **options)


@pytest.mark.parametrize("codec", [0, 4])
@pytest.mark.parametrize(
    ("part", "first", "most"),
    [
        (Part(0, 5, 10**6), 0, 6),
        (Part(700, 5, 10**6), 600, 6),
        (Part(700, 0, 0), 600, 2),
        (Part(1099, 5, 10**6), 999, 1),
        (Part(1100, 5, 10**6), 1000, 0),
        (Part(10**18, 5, 10**6), 1000, 0),
        (Part(50, 10**30, 1000), 0, 256),
        (Part(50, 10**30, 10**30), 0, 1000),
    ],
)
def test_of_a_part_few_records_are_decoded(codec: int, part: Part, first: int, most: int) -> None:
    """Few means: the page, the record after it, and the rest of the run with it if the page is limited by bytes."""
    data = numbered(1000, base_offset=100, codec=codec)
    found = decode_records(data, part=part)
    assert found == decode_records(data)[first : first + len(found)]
    at_least = min(most, 1000 - first, part.max_bytes // 10 + 2)
    assert at_least <= len(found) <= most


@given(
    deltas=st.lists(st.integers(-1, 40), max_size=60),
    last=st.integers(0, 40),
    part=st.builds(
        Part, st.integers(-1, 50), st.integers(-1, 70), st.integers(-1, 100) | st.just(10**30)
    ),
)
def test_a_part_ends_with_the_record_after_the_page(
    deltas: list[int], last: int, part: Part
) -> None:
    payload = b"".join(
        as_record(b"\0\0" + encode_varint(delta) + b"\x02k\x02v\0") for delta in deltas
    )
    data = with_records(payload, count=len(deltas), last_offset_delta=last)
    wanted = [record for record in decode_records(data) if record[0] >= part.from_offset]
    found = decode_records(data, part=part)
    assert found == wanted[: len(found)]
    after = [
        index
        for index, record in enumerate(wanted)
        if index > 0
        and record[0] <= decode_header(data).last_offset
        and (index >= part.max_records or 2 * index > part.max_bytes)
    ]
    assert len(found) > after[0] if after else found == wanted


@pytest.mark.parametrize("broken", range(1, 20))
@pytest.mark.parametrize("part", [Part(0, 1, 100), Part(11, 2, 100), Part(19, 5, 0)])
@pytest.mark.parametrize(
    "body",
    [
        b"\0\0\x02\x02k\x14v\0",
        b"\0\0\x02\x02k\x02v\x02\x01\x01",
        b"\0\0\x02\x02k\x02v\x02\x02n\x02v?",
        RECORD + b"?",
        RECORD[:-1],
    ],
)
def test_a_record_outside_of_the_part_is_checked(broken: int, part: Part, body: bytes) -> None:
    bodies = [b"\0\0" + encode_varint(index) + b"\x02k\x02v\0" for index in range(20)]
    bodies[broken] = body
    data = with_records(b"".join(map(as_record, bodies)), count=20, last_offset_delta=19)
    with pytest.raises(Corrupt) as whole:
        decode_records(data)
    with pytest.raises(Corrupt, match=f"^batch at 0: record {broken}: ") as partial:
        decode_records(data, part=part)
    assert partial.value.message == whole.value.message
    assert partial.value.facts() == whole.value.facts()


@pytest.mark.parametrize("codec", CODECS[1:])
def test_compressed_records_that_are_broken(codec: int) -> None:
    header = PLAIN._replace(attributes=codec)
    payload = b"no block of any codec"
    with pytest.raises(Corrupt) as caught:
        decode_records(b"..." + seal(header, payload) + payload, 3)
    assert caught.value.facts()["position"] == 3


@pytest.mark.parametrize("codec", CODECS[1:])
def test_records_over_the_limit(codec: int) -> None:
    data = encoded([(None, bytes(100_000), (), MS)], codec=codec)
    size_bytes = len(encoded([(None, bytes(100_000), (), MS)])) - HEADER_SIZE
    assert len(decode_records(data, max_bytes=size_bytes)) == 1
    with pytest.raises(Corrupt):
        decode_records(data, max_bytes=size_bytes - 1)


def test_a_cut_batch_is_truncated() -> None:
    data = PRODUCED[0].data
    for cut in range(len(data)):
        with pytest.raises(Truncated):
            decode_records(data[:cut])


@given(st.binary(max_size=80))
def test_any_payload_is_records_or_corrupt(payload: bytes) -> None:
    data = with_records(payload, count=3, last_offset_delta=10)
    try:
        found = decode_records(data)
    except Corrupt:
        return
    assert len(found) == 3
