"""Batch bodies: the real client's encoding both ways, every cut, flipped bits of lengths, random members."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.errors import Corrupt, DataError, Truncated, UnrepresentableRecord
from tests.formats.rocketmq_messages.batch_body import (
    MIN_MEMBER_SIZE,
    BatchMember,
    decode_batch_body,
    encode_batch_body,
)

DATA = bytes.fromhex(
    "00000020 00000000 00000000 00000007 00000005 68656c6c6f 0005 5441475301"
    "00000016 00000000 00000000 ffffffff 00000000 0000"
    "0000001e 00000000 00000000 00000000 00000000 0008 6b016b027a016102"
)
MEMBERS = [
    BatchMember(b"hello", b"TAGS\1", 7),
    BatchMember(b"", b"", -1),
    BatchMember(b"", b"k\1k\2z\1a\2"),
]
ENDS = [0, 32, 54, 84]

members = st.builds(
    BatchMember,
    body=st.binary(max_size=50),
    properties=st.binary(max_size=50),
    flag=st.integers(-(1 << 31), (1 << 31) - 1),
)


def test_both_ways() -> None:
    assert decode_batch_body(DATA) == MEMBERS
    assert encode_batch_body(MEMBERS) == DATA
    assert decode_batch_body(b"") == []
    assert encode_batch_body([]) == b""


def test_magic_and_crc_are_not_looked_at() -> None:
    assert decode_batch_body(DATA[:4] + b"\xff" * 8 + DATA[12:]) == MEMBERS


@given(st.lists(members, max_size=5))
def test_any_members_come_back(given_: list[BatchMember]) -> None:
    assert decode_batch_body(encode_batch_body(iter(given_))) == given_


def test_every_cut() -> None:
    for cut in range(len(DATA)):
        if cut in ENDS:
            assert decode_batch_body(DATA[:cut]) == MEMBERS[: ENDS.index(cut)]
            continue
        with pytest.raises(Truncated) as caught:
            decode_batch_body(DATA[:cut])
        start = max(end for end in ENDS if end < cut)
        assert caught.value.facts()["position"] == start


@pytest.mark.parametrize("at", [0, 1, 2, 3, 16, 17, 18, 19, 25, 26, 32, 54, 70, 74])
def test_lengths_that_do_not_add_up(at: int) -> None:
    for bit in range(8):
        damaged = bytearray(DATA)
        damaged[at] ^= 1 << bit
        with pytest.raises(DataError):
            decode_batch_body(bytes(damaged))


def test_a_member_that_is_too_small() -> None:
    for size in (-1, 0, MIN_MEMBER_SIZE - 1):
        with pytest.raises(Corrupt, match="member at 32") as caught:
            decode_batch_body(DATA[:32] + size.to_bytes(4, signed=True) + DATA[36:])
        facts = {"kind": "batch member", "position": 32, "expected": f"{size}"}
        assert facts.items() >= caught.value.facts().items()


@given(st.binary(max_size=100), st.sampled_from([b"", DATA[:22]]))
def test_any_bytes_are_members_or_damage(data: bytes, head: bytes) -> None:
    with suppress(DataError):
        found = decode_batch_body(head + data)
        assert sum(MIN_MEMBER_SIZE + len(m.body) + len(m.properties) for m in found) == len(
            head + data
        )


def test_what_does_not_fit() -> None:
    assert len(encode_batch_body([BatchMember(b"", bytes(32767))])) == 32767 + MIN_MEMBER_SIZE
    with pytest.raises(UnrepresentableRecord, match="32768 bytes: the limit is 32767") as caught:
        encode_batch_body([MEMBERS[0], BatchMember(b"", bytes(32768))])
    assert caught.value.facts() == {"field": "properties", "index": 1}
    for flag in (1 << 31, -(1 << 31) - 1):
        with pytest.raises(UnrepresentableRecord) as caught:
            encode_batch_body([BatchMember(b"", b"", flag)])
        assert caught.value.facts() == {"field": "flag", "index": 0}
