"""The batch header: fields, impossible values, the range of the CRC, stamping, and a walk from header to header."""

from __future__ import annotations

import struct
from collections.abc import Callable

import pytest

from storage.errors import Corrupt, InvalidArgument, Truncated
from storage.kafka.format.batch import (
    HEADER_SIZE,
    MAX_BASE_OFFSET,
    BatchHeader,
    check_crc,
    check_offered,
    decode_header,
    decode_records,
    encode_batch,
    is_whole_misfit,
    restamp_append_time,
    restamp_latest,
    scan_headers,
    seal,
    split_batches,
    stamp,
)
from tests.formats.kafka_batches.cases import COMPACTED, MS, PRODUCED, Case

ALL = PRODUCED + COMPACTED
NEEDS_NO_CRC = range(17)

# field: (position, struct, another legal value or None, an illegal value or None)
FIELDS: dict[str, tuple[int, str, int | None, int | None]] = {
    "base_offset": (0, ">q", MAX_BASE_OFFSET, -1),
    "length": (8, ">i", None, 48),
    "leader_epoch": (12, ">i", -1, None),
    "magic": (16, ">b", None, 1),
    "crc": (17, ">I", 7, None),
    "attributes": (21, ">h", -4, 0x05),
    "last_offset_delta": (23, ">i", 2**31 - 1, -1),
    "base_timestamp": (27, ">q", -(2**63), None),
    "max_timestamp": (35, ">q", 2**63 - 1, None),
    "producer_id": (43, ">q", 2**63 - 1, None),
    "producer_epoch": (51, ">h", 2**15 - 1, None),
    "base_sequence": (53, ">i", 2**31 - 1, None),
    "count": (57, ">i", 0, 2**31 - 1),
}
WRONG = [
    *(
        (name, row[3])
        for name, row in FIELDS.items()
        if row[3] is not None and name not in ("attributes", "count")
    ),
    ("magic", 0),
    ("magic", 7),
    ("magic", -2),
    ("length", 0),
    ("length", -(2**31)),
    ("base_offset", MAX_BASE_OFFSET + 1),
    ("base_offset", -(2**63)),
]
NOT_OFFERED = [
    ("attributes", 0x05),
    ("attributes", 0x06),
    ("attributes", 0x07),
    ("attributes", -1),
    ("count", -1),
    ("count", 2),
]


def named(case: Case) -> str:
    return case.name


def with_field(data: bytes, name: str, value: int) -> bytes:
    position, shape, _, _ = FIELDS[name]
    changed = bytearray(data)
    struct.pack_into(shape, changed, position, value)
    return bytes(changed)


def batch_at(base_offset: int, texts: int = 1) -> bytes:
    records = [(None, b"v%d" % index, (), MS) for index in range(texts)]
    return encode_batch(records, base_offset=base_offset, leader_epoch=3, now_ms=MS)


def test_fields_stand_in_wire_order() -> None:
    assert BatchHeader._fields == tuple(FIELDS)


@pytest.mark.parametrize("case", ALL, ids=named)
def test_both_directions(case: Case) -> None:
    header = decode_header(case.data)
    assert seal(header, case.data[HEADER_SIZE:]) == case.data[:HEADER_SIZE]
    assert header.base_offset == case.base_offset
    assert header.size_bytes == len(case.data)
    assert check_crc(case.data, 0, header)
    assert decode_header(b"..." + case.data, 3) == header
    assert check_crc(b"..." + case.data + b"...", 3, header)


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_any_buffer_will_do(kind: Callable[[bytes], bytes]) -> None:
    data = kind(PRODUCED[0].data)
    assert decode_header(data) == decode_header(PRODUCED[0].data)
    assert [position for position, _ in split_batches(data)] == [0]
    assert len(scan_headers(data, 0, len(data))) == 1


@pytest.mark.parametrize(
    ("name", "legal"), [(name, row[2]) for name, row in FIELDS.items() if row[2] is not None]
)
def test_every_field_is_read_from_its_place(name: str, legal: int) -> None:
    data = PRODUCED[0].data
    header = decode_header(with_field(data, name, legal))
    assert header == decode_header(data)._replace(**{name: legal})


@pytest.mark.parametrize(("name", "value"), WRONG)
def test_what_no_batch_can_have(name: str, value: int) -> None:
    data = b"..." + with_field(PRODUCED[0].data, name, value)
    with pytest.raises(Corrupt) as caught:
        decode_header(data, 3)
    facts = caught.value.facts()
    assert (facts["kind"], facts["position"], facts["found"]) == ("batch", 3, str(value))
    assert name.replace("_", " ") in caught.value.message


@pytest.mark.parametrize(("name", "value"), NOT_OFFERED)
def test_what_is_read_but_not_appended(name: str, value: int) -> None:
    header = decode_header(with_field(PRODUCED[0].data, name, value))
    with pytest.raises(Corrupt, match=name) as caught:
        check_offered(header, 3)
    facts = caught.value.facts()
    assert (facts["kind"], facts["position"], facts["found"]) == ("batch", 3, str(value))


@pytest.mark.parametrize(
    ("name", "value"), [("base_offset", -1), ("base_offset", 2**63 - 1), ("last_offset_delta", -2)]
)
def test_a_whole_batch_that_has_no_place_is_known(name: str, value: int) -> None:
    data = with_field(PRODUCED[0].data, name, value)
    if name == "last_offset_delta":
        payload = data[HEADER_SIZE:]
        header = decode_header(PRODUCED[0].data)._replace(last_offset_delta=value)
        data = seal(header, payload) + payload
    assert is_whole_misfit(b"..." + data + b"...", 3)
    assert not is_whole_misfit(data[:-1], 0)
    assert not is_whole_misfit(data[:-1] + bytes([data[-1] ^ 1]), 0)
    assert not is_whole_misfit(with_field(data, "magic", 7), 0)


@pytest.mark.parametrize("cut", range(HEADER_SIZE))
def test_a_cut_header(cut: int) -> None:
    with pytest.raises(Truncated) as caught:
        decode_header(PRODUCED[0].data[:cut])
    assert caught.value.facts() == {"kind": "batch", "position": 0, "needed": HEADER_SIZE}


@pytest.mark.parametrize("position", [-1, len(PRODUCED[0].data) - HEADER_SIZE + 1, 10**9])
def test_a_position_outside(position: int) -> None:
    with pytest.raises(Truncated):
        decode_header(PRODUCED[0].data, position)


@pytest.mark.parametrize("cut", range(HEADER_SIZE, len(PRODUCED[0].data)))
def test_a_cut_batch(cut: int) -> None:
    data = PRODUCED[0].data
    header = decode_header(data)
    with pytest.raises(Truncated) as caught:
        check_crc(data[:cut], 0, header)
    assert caught.value.facts()["needed"] == len(data)
    with pytest.raises(Truncated):
        split_batches(data[:cut])
    with pytest.raises(Truncated):
        decode_records(data[:cut])
    with pytest.raises(Truncated):
        restamp_append_time(bytearray(data[:cut]), 0, MS)
    assert scan_headers(data, 0, cut) == []


@pytest.mark.parametrize("case", ALL, ids=named)
def test_one_flipped_bit(case: Case) -> None:
    """After the magic every flipped bit is found; before it, only fields outside the CRC can change unnoticed."""
    for position in range(len(case.data)):
        for bit in range(8):
            data = bytearray(case.data)
            data[position] ^= 1 << bit
            try:
                found = split_batches(bytes(data))
            except (Corrupt, Truncated):
                continue
            assert position in NEEDS_NO_CRC
            ((_, header),) = found
            assert (header.base_offset, header.leader_epoch) != decode_header(case.data)[0:3:2]


def test_flags() -> None:
    header = decode_header(PRODUCED[0].data)
    for attributes in range(0x80):
        if attributes & 7 > 4:
            continue
        changed = header._replace(attributes=attributes)
        assert changed.codec == attributes & 7
        assert changed.is_log_append_time == bool(attributes & 8)
        assert changed.is_transactional == bool(attributes & 16)
        assert changed.is_control == bool(attributes & 32)
        assert changed.has_delete_horizon == bool(attributes & 64)


@pytest.mark.parametrize(
    ("base_sequence", "last_offset_delta", "last_sequence"),
    [
        (0, 0, 0),
        (5, 9, 14),
        (2**31 - 1, 0, 2**31 - 1),
        (2**31 - 1, 1, 0),
        (2**31 - 3, 10, 7),
        (-1, 4, -1),
    ],
)
def test_sequences_wrap(base_sequence: int, last_offset_delta: int, last_sequence: int) -> None:
    header = decode_header(PRODUCED[0].data)._replace(
        base_sequence=base_sequence, last_offset_delta=last_offset_delta
    )
    assert header.last_sequence == last_sequence


def test_offsets() -> None:
    header = decode_header(COMPACTED[1].data)
    assert (header.base_offset, header.last_offset, header.next_offset) == (276, 278, 279)


def test_stamping_keeps_the_crc() -> None:
    data = PRODUCED[1].data
    buffer = bytearray(b"..." + data + b"...")
    stamp(buffer, 3, base_offset=2**40, leader_epoch=9)
    header = decode_header(buffer, 3)
    assert header == decode_header(data)._replace(base_offset=2**40, leader_epoch=9)
    assert check_crc(buffer, 3, header)
    assert buffer[:3] == buffer[-3:] == b"..."


def test_append_time() -> None:
    case = PRODUCED[4]
    buffer = bytearray(b"..." + case.data + b"...")
    restamp_append_time(buffer, 3, MS + 999)
    header = decode_header(buffer, 3)
    assert header.is_log_append_time
    assert check_crc(buffer, 3, header)
    assert header.max_timestamp == MS + 999
    assert header.base_timestamp == decode_header(case.data).base_timestamp
    records = decode_records(bytes(buffer), 3)
    assert records == [(offset, MS + 999, *rest) for offset, _, *rest in case.records]
    assert buffer[3 + HEADER_SIZE :] == case.data[HEADER_SIZE:] + b"..."


@pytest.mark.parametrize("case", ALL, ids=named)
def test_another_latest_time(case: Case) -> None:
    buffer = bytearray(b"..." + case.data + b"...")
    restamp_latest(buffer, 3, MS + 999)
    header = decode_header(buffer, 3)
    assert check_crc(buffer, 3, header)
    before = decode_header(case.data)
    assert header == before._replace(max_timestamp=MS + 999, crc=header.crc)
    assert buffer[3 + HEADER_SIZE :] == case.data[HEADER_SIZE:] + b"..."
    with pytest.raises(Truncated):
        restamp_latest(bytearray(case.data[:-1]), 0, MS)


def test_append_time_outside_64_bits() -> None:
    buffer = bytearray(PRODUCED[0].data)
    with pytest.raises(InvalidArgument):
        restamp_append_time(buffer, 0, 2**63)
    assert buffer == PRODUCED[0].data


def test_split_finds_every_batch() -> None:
    parts = [case.data for case in ALL]
    found = split_batches(b"".join(parts))
    positions = [sum(map(len, parts[:index])) for index in range(len(parts))]
    assert found == [
        (position, decode_header(part)) for position, part in zip(positions, parts, strict=True)
    ]
    assert split_batches(b"") == []


@pytest.mark.parametrize("tail", [b"\0", bytes(60), bytes(61), b"x" * 100])
def test_split_refuses_what_follows(tail: bytes) -> None:
    data = PRODUCED[0].data
    with pytest.raises((Truncated, Corrupt)) as caught:
        split_batches(data + tail)
    assert caught.value.facts()["position"] == len(data)


def test_split_names_the_first_wrong_crc() -> None:
    data = bytearray(batch_at(0) + batch_at(1) + batch_at(2))
    size = len(batch_at(0))
    data[2 * size - 1] ^= 1
    data[3 * size - 1] ^= 1
    with pytest.raises(Corrupt) as caught:
        split_batches(bytes(data))
    facts = caught.value.facts()
    assert (facts["position"], facts["field"]) == (size, "crc")
    assert facts["expected"] != facts["found"]


def test_scan_walks_to_the_end() -> None:
    parts = [batch_at(0, 3), batch_at(3), batch_at(10, 2)]
    data = b"..." + b"".join(parts)
    expected = []
    position = 3
    for base_offset, next_offset, part in zip((0, 3, 10), (3, 4, 12), parts, strict=True):
        expected.append((position, base_offset, next_offset, len(part)))
        position += len(part)
    assert scan_headers(data, 3, len(data)) == expected
    assert scan_headers(data, 3, len(data) + 1000) == expected
    for cut in range(3, len(data)):
        whole = [row for row in expected if row[0] + row[3] <= cut]
        assert scan_headers(data, 3, cut) == whole
        assert scan_headers(data[:cut], 3, len(data)) == whole


@pytest.mark.parametrize(
    ("name", "value"), [row for row in WRONG if row[0] not in ("attributes", "count")]
)
def test_scan_ends_at_an_implausible_header(name: str, value: int) -> None:
    first = batch_at(0)
    data = first + with_field(batch_at(1), name, value) + batch_at(2)
    assert scan_headers(data, 0, len(data)) == [(0, 0, 1, len(first))]


@pytest.mark.parametrize("base_offset", [0, 2])
def test_scan_ends_where_offsets_fall_back(base_offset: int) -> None:
    first = batch_at(0, 3)
    data = first + batch_at(base_offset)
    assert scan_headers(data, 0, len(data)) == [(0, 0, 3, len(first))]


@pytest.mark.parametrize("tail", [bytes(1000), b"\xff" * 1000])
def test_scan_ends_at_what_is_no_batch(tail: bytes) -> None:
    first = batch_at(0)
    assert scan_headers(first + tail, 0, 10_000) == [(0, 0, 1, len(first))]
