"""The checkpoint file: both directions, the numbers of each version, every cut, every flipped bit."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.errors import InvalidArgument, Truncated
from storage.rocketmq.format.checkpoint import (
    FIELDS_SIZE,
    FILE_SIZE,
    OLDEST_SIZE,
    Checkpoint,
    decode_checkpoint,
    encode_checkpoint,
)

CASES = [
    pytest.param(Checkpoint(), "", id="nothing"),
    pytest.param(
        Checkpoint(1700012633423, 1700012633423, 1700012625729, 0, 0, 146654),
        "0000018bd0a62d4f 0000018bd0a62d4f 0000018bd0a60f41"
        "0000000000000000 0000000000000000 0000000000023cde",
        id="5.5.0",
    ),
    pytest.param(
        Checkpoint(-1, 2**63 - 1, -(2**63), 1, 2, 3),
        "ffffffffffffffff 7fffffffffffffff 8000000000000000"
        "0000000000000001 0000000000000002 0000000000000003",
        id="extremes",
    ),
]
FULL = Checkpoint(11, 12, 13, 14, 15, 16)


@pytest.mark.parametrize(("checkpoint", "text"), CASES)
def test_both_directions(checkpoint: Checkpoint, text: str) -> None:
    data = bytes.fromhex(text).ljust(FILE_SIZE, b"\0")
    assert encode_checkpoint(checkpoint) == data
    assert decode_checkpoint(data) == checkpoint


@pytest.mark.parametrize("cut", range(FIELDS_SIZE + 1))
def test_cut_at_every_byte(cut: int) -> None:
    """Older versions write three to five numbers; missing numbers are 0."""
    data = encode_checkpoint(FULL)[:cut]
    if 0 < cut < OLDEST_SIZE:
        with pytest.raises(Truncated) as caught:
            decode_checkpoint(data)
        assert caught.value.facts() == {"kind": "checkpoint", "position": cut, "needed": 24}
    else:
        whole = cut // 8
        assert decode_checkpoint(data) == (*FULL[:whole], *[0] * (6 - whole))


@pytest.mark.parametrize("bit", range(FIELDS_SIZE * 8))
def test_a_flipped_bit_shows(bit: int) -> None:
    data = bytearray(encode_checkpoint(FULL))
    data[bit // 8] ^= 1 << bit % 8
    assert decode_checkpoint(bytes(data)) != FULL


def test_what_is_behind_the_numbers_is_not_looked_at() -> None:
    data = bytearray(encode_checkpoint(FULL))
    data[FIELDS_SIZE:] = b"\xff" * (FILE_SIZE - FIELDS_SIZE)
    assert decode_checkpoint(bytes(data)) == FULL
    assert decode_checkpoint(bytes(data) + b"more") == FULL


@pytest.mark.parametrize("field", Checkpoint._fields)
@pytest.mark.parametrize("value", [2**63, -(2**63) - 1])
def test_a_number_that_does_not_fit_is_named(field: str, value: int) -> None:
    with pytest.raises(InvalidArgument) as refused:
        encode_checkpoint(FULL._replace(**{field: value}))
    assert refused.value.facts()["field"] == field


@given(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=6, max_size=6))
def test_round_trip(numbers: list[int]) -> None:
    checkpoint = Checkpoint(*numbers)
    assert decode_checkpoint(encode_checkpoint(checkpoint)) == checkpoint
