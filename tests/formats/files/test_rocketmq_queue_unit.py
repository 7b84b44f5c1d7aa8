"""Consume queue entries: one table for both directions, every cut, every flipped bit, tags and delays."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.coding.hashes import java_hash
from storage.errors import InvalidArgument, Truncated
from storage.rocketmq.format.queue_entry import (
    FILLER,
    MAX_DELAY_LEVEL,
    UNIT,
    UNIT_SIZE,
    QueueEntry,
    code_of,
    decode_units,
    delay_code,
    encode_unit,
    tags_code,
)

CASES = [
    pytest.param([], "", id="empty"),
    pytest.param(
        [QueueEntry(0, 1, 0)], "0000000000000000 00000001 0000000000000000", id="smallest"
    ),
    pytest.param(
        [QueueEntry(528, 181, 171595206), QueueEntry(709, 91, -1)],
        "0000000000000210 000000b5 000000000a3a55c6 00000000000002c5 0000005b ffffffffffffffff",
        id="two, a negative hash with its sign extended",
    ),
    pytest.param(
        [QueueEntry(2**63 - 1, 2**31 - 1, -(2**63))],
        "7fffffffffffffff 7fffffff 8000000000000000",
        id="largest",
    ),
    pytest.param(
        [QueueEntry(0, 0x7FFFFFFF, 0)], "0000000000000000 7fffffff 0000000000000000", id="filler"
    ),
]
THREE = [QueueEntry(1, 100, 7), QueueEntry(2**40, 91, -7), QueueEntry(2**62, 2**20, 2**50)]


def encode(units: list[QueueEntry]) -> bytes:
    return b"".join(encode_unit(*unit) for unit in units)


@pytest.mark.parametrize(("units", "text"), CASES)
def test_both_directions(units: list[QueueEntry], text: str) -> None:
    data = bytes.fromhex(text)
    assert encode(units) == data
    assert decode_units(data) == units
    assert all(unit.is_valid for unit in units)


@pytest.mark.parametrize("cut", range(len(encode(THREE))))
def test_cut_at_every_byte(cut: int) -> None:
    data = encode(THREE)[:cut]
    whole = cut // UNIT_SIZE
    if cut % UNIT_SIZE:
        with pytest.raises(Truncated) as caught:
            decode_units(data)
        assert caught.value.facts()["position"] == whole * UNIT_SIZE
        assert caught.value.facts()["needed"] == UNIT_SIZE
    else:
        assert decode_units(data) == THREE[:whole]


@pytest.mark.parametrize("bit", range(len(encode(THREE)) * 8))
def test_a_flipped_bit_never_passes_for_the_same(bit: int) -> None:
    data = bytearray(encode(THREE))
    data[bit // 8] ^= 1 << bit % 8
    assert decode_units(bytes(data)) != THREE


@pytest.mark.parametrize("unit", [(-1, 91, 0), (0, 0, 0), (0, -1, 0)])
def test_what_is_no_unit(unit: tuple[int, int, int]) -> None:
    """Free space and damage are returned among the entries, marked as invalid."""
    data = encode(THREE[:1]) + UNIT.pack(*unit)
    assert decode_units(data) == [THREE[0], unit]
    assert [found.is_valid for found in decode_units(data)] == [True, False]


@pytest.mark.parametrize(
    ("unit", "field"),
    [
        ((-1, 1, 0), "physical_offset"),
        ((2**63, 1, 0), "physical_offset"),
        ((0, 0, 0), "size"),
        ((0, 2**31, 0), "size"),
        ((0, 1, 2**63), "tags_code"),
        ((0, 1, -(2**63) - 1), "tags_code"),
    ],
)
def test_what_is_no_unit_is_not_encoded(unit: tuple[int, int, int], field: str) -> None:
    with pytest.raises(InvalidArgument) as refused:
        encode_unit(*unit)
    assert refused.value.facts()["field"] == field


def test_fillers_are_units_that_stand_for_nothing() -> None:
    (unit,) = decode_units(FILLER)
    assert unit.is_filler
    assert unit.is_valid
    assert not THREE[0].is_filler
    assert not QueueEntry(1, 0x7FFFFFFF, 0).is_filler


@given(st.binary(max_size=100))
def test_any_whole_units_decode(data: bytes) -> None:
    data = data[: len(data) // UNIT_SIZE * UNIT_SIZE]
    assert b"".join(UNIT.pack(*unit) for unit in decode_units(data)) == data


@pytest.mark.parametrize(
    ("tags", "code"),
    [
        (None, 0),
        ("", 0),
        ("TagA", 2598919),
        ("Aa", 2112),
        ("BB", 2112),
        ("polygenelubricants", -(2**31)),
        ("日本", 835047),
        ("\U0001f600", 1772899),
    ],
)
def test_tags_code(tags: str | None, code: int) -> None:
    assert tags_code(tags) == code == java_hash(tags or "")


@pytest.mark.parametrize(
    ("level", "wait_ms"),
    [(1, 1000), (2, 5000), (4, 30_000), (5, 60_000), (14, 600_000), (18, 7_200_000)],
)
def test_delay_levels(level: int, wait_ms: int) -> None:
    assert delay_code(level, 17) == 17 + wait_ms


def test_a_level_above_the_highest_is_the_highest() -> None:
    assert delay_code(99, 0) == delay_code(MAX_DELAY_LEVEL, 0) == 7_200_000
    for level in (0, -1):
        with pytest.raises(InvalidArgument):
            delay_code(level, 0)


def test_a_broker_may_have_levels_of_its_own() -> None:
    assert [delay_code(level, 5, (100, 20, 7)) for level in (1, 2, 3, 4, 18)] == [
        105,
        25,
        12,
        12,
        12,
    ]
    assert code_of("SCHEDULE_TOPIC_XXXX", {"DELAY": "2"}, 5, (100, 20)) == 25
    assert code_of("orders", {"DELAY": "2"}, 5, (100, 20)) == 0


@pytest.mark.parametrize(
    ("topic", "properties", "code"),
    [
        ("orders", {"TAGS": "TagA"}, 2598919),
        ("orders", {"TAGS": "TagA", "DELAY": "3"}, 2598919),
        ("orders", {}, 0),
        ("SCHEDULE_TOPIC_XXXX", {"TAGS": "TagA", "DELAY": "3"}, 1_010_000),
        ("SCHEDULE_TOPIC_XXXX", {"TAGS": "TagA", "DELAY": "0"}, 2598919),
        ("SCHEDULE_TOPIC_XXXX", {"TAGS": "TagA", "DELAY": "soon"}, 2598919),
        ("SCHEDULE_TOPIC_XXXX", {"TAGS": "TagA"}, 2598919),
    ],
)
def test_code_of_a_record(topic: str, properties: dict[str, str], code: int) -> None:
    assert code_of(topic, properties, 1_000_000) == code
