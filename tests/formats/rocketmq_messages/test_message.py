"""Decoding of commit log records: the table, cuts, flipped bits, broken records, padding, sizes, versions."""

from __future__ import annotations

from contextlib import suppress
from zlib import crc32

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.errors import Corrupt, InvalidArgument, InvalidTopic, Truncated
from storage.rocketmq.format import message
from storage.rocketmq.format.message import (
    FIXED_SIZE_V4,
    HOSTS_V6,
    MAGIC_PADDING,
    MAGIC_V1,
    MAGIC_V2,
    TRANSACTION_COMMIT,
    TRANSACTION_MASK,
    TRANSACTION_PREPARED,
    TRANSACTION_ROLLBACK,
    Message,
    decode_message,
    encode_padding,
    magic_for,
    message_size,
    peek,
)
from storage.rocketmq.format.message_encoding import encode_messages
from tests.formats.rocketmq_messages.cases import (
    CASES,
    Case,
    field_positions,
    new_message,
    placement,
)

GIVEN_BACK = {
    "queue_id",
    "flag",
    "queue_offset",
    "physical_offset",
    "born_timestamp_ms",
    "born_host",
    "store_timestamp_ms",
    "store_host",
    "reconsume_times",
    "prepared_transaction_offset",
    "properties",
}
"""Fields without a check: a record with a flipped bit there is another valid record."""


def bits_of(positions: tuple[int, int]) -> range:
    start, size = positions
    return range(start * 8, (start + size) * 8)


def flipped(data: bytes, bit: int) -> bytes:
    out = bytearray(data)
    out[bit // 8] ^= 1 << bit % 8
    return bytes(out)


def with_bytes(case: Case, field: str, content: bytes) -> bytes:
    """Return the record with these bytes in place of a field."""
    start, size = field_positions(case.message)[field]
    return case.data[:start] + content + case.data[start + size :]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_fields_that_compiled_code_reads(case: Case) -> None:
    start = message.FIXED_FIELDS[case.message.sys_flag & HOSTS_V6].size
    data = b"before" + case.data
    *fields, body_size = message._fields_at(data, 6, 6 + start)
    assert (*fields, body_size) == (*case.message[:14], len(case.message.body))


@pytest.mark.parametrize("case", CASES, ids=str)
def test_decoding(case: Case) -> None:
    assert decode_message(case.data) == case.message
    assert decode_message(b"\xff" * 5 + case.data + b"\xff" * 5, 5) == case.message
    assert type(decode_message(case.data)) is Message


@pytest.mark.parametrize("case", CASES, ids=str)
def test_every_cut_is_truncated(case: Case) -> None:
    for cut in range(len(case.data)):
        for position in (0, 3):
            with pytest.raises(Truncated) as caught:
                decode_message(b"..."[:position] + case.data[:cut], position)
            needed = case.message.size if cut >= 8 else 8
            assert caught.value.facts() == {
                "kind": "message",
                "position": position,
                "needed": needed,
            }


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_flipped_bit_is_refused_or_is_that_field(case: Case) -> None:
    for field, positions in field_positions(case.message).items():
        for bit in bits_of(positions):
            try:
                found = decode_message(flipped(case.data, bit))
            except (Corrupt, Truncated):
                assert field not in GIVEN_BACK
                continue
            changed = {
                name
                for name, one, other in zip(Message._fields, found, case.message, strict=True)
                if one != other
            }
            assert changed == {field}
            unguarded = field in GIVEN_BACK or field in {"topic", "sys_flag"}
            assert unguarded or (field == "body_crc" and not case.message.body)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_lengths_and_the_body_are_guarded(case: Case) -> None:
    fields = {"size", "magic", "body length", "body", "topic length", "properties length"}
    for field in fields | ({"body_crc"} if case.message.body else set()):
        for bit in bits_of(field_positions(case.message)[field]):
            with pytest.raises((Corrupt, Truncated)):
                decode_message(flipped(case.data, bit) + bytes(9))


@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_crc_is_looked_at_when_asked_for(case: Case) -> None:
    data = with_bytes(case, "body_crc", b"\x7f\xff\xff\xff")
    message = case.message._replace(body_crc=0x7FFFFFFF)
    assert decode_message(data, check_crc=False) == message
    if not case.message.body:
        assert decode_message(data) == message
        return
    with pytest.raises(Corrupt, match="CRC of the body is wrong") as caught:
        decode_message(b"." + data, 1)
    assert caught.value.facts() == {
        "kind": "message",
        "position": 1,
        "field": "crc",
        "expected": "7fffffff",
        "found": f"{crc32(case.message.body) & 0x7FFFFFFF:08x}",
    }


def test_the_crc_has_no_top_bit() -> None:
    body = next(b"%d" % n for n in range(99) if crc32(b"%d" % n) >> 31)
    message = new_message(CASES[0].message)._replace(body=body)
    [data] = encode_messages([message], placement(CASES[0].message))
    assert decode_message(data).body_crc == crc32(body) - (1 << 31)
    with pytest.raises(Corrupt, match="CRC"):
        decode_message(flipped(data, 8 * 8 + 7))


def test_another_magic() -> None:
    with pytest.raises(Corrupt, match="the magic is daa320a8") as caught:
        decode_message(with_bytes(CASES[0], "magic", bytes.fromhex("daa320a8")))
    assert caught.value.facts() == {
        "kind": "message",
        "position": 0,
        "field": "magic",
        "expected": "daa320a7 or daa320ab",
        "found": "daa320a8",
    }
    with pytest.raises(Corrupt, match="magic is cbd43194"):
        decode_message(encode_padding(200) + bytes(192))
    with pytest.raises(Corrupt, match="magic is 00000000"):
        decode_message(bytes(200))


@pytest.mark.parametrize("size", [-(1 << 31), -1, 0, 8, FIXED_SIZE_V4 - 1])
def test_a_size_under_the_smallest(size: int) -> None:
    data = with_bytes(CASES[0], "size", size.to_bytes(4, signed=True))
    for given_ in (data, data[:20]):
        with pytest.raises(Corrupt, match=f"total size is {size}") as caught:
            decode_message(given_)
        assert caught.value.facts()["expected"] == f"at least {FIXED_SIZE_V4}"


@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize("field", ["body length", "topic length", "properties length"])
def test_lengths_that_do_not_add_up(case: Case, field: str) -> None:
    _, size = field_positions(case.message)[field]
    limit = 1 << 8 * size - 1
    for length in {0, 1, limit - 1, -1, -limit, case.message.size, len(case.message.body) + 1}:
        if not -limit <= length < limit:
            continue
        data = with_bytes(case, field, length.to_bytes(size, signed=True))
        if data == case.data:
            continue
        with pytest.raises(Corrupt, match="do not add up to the total size") as caught:
            decode_message(data + bytes(300))
        facts = caught.value.facts()
        assert facts["expected"] == f"{case.message.size}"
        assert f"{field.split()[0]} {length}" in str(facts["found"])


def test_a_record_cut_in_its_ipv6_hosts() -> None:
    """A record with the flag for IPv6 hosts and the size for IPv4 hosts is corrupt: it has no room for them."""
    (case,) = [one for one in CASES if one.name == "no properties"]
    data = with_bytes(case, "sys_flag", (0x30).to_bytes(4))
    with pytest.raises(Corrupt, match="do not add up"):
        decode_message(data)


def test_a_topic_that_is_no_utf8() -> None:
    """Invalid UTF-8 in a topic is replaced as in the real store, which puts the record in a queue of another topic."""
    message = decode_message(with_bytes(CASES[0], "topic", b"\xff" * 10))
    assert message.topic == "\ufffd" * 10


def test_a_v1_topic_has_127_bytes() -> None:
    message = CASES[0].message
    data = encode_messages([new_message(message)], placement(message)._replace(topic=b"t" * 127))[0]
    assert decode_message(data).topic == "t" * 127
    longer = (len(data) + 1).to_bytes(4) + data[4:-130] + bytes([128]) + b"t" * 128 + bytes(2)
    with pytest.raises(Corrupt, match="do not add up") as caught:
        decode_message(longer)
    assert "topic -128" in str(caught.value.facts()["found"])


def test_properties_have_32767_bytes() -> None:
    message = CASES[0].message
    most = new_message(message)._replace(properties=b"p" * 32767)
    [data] = encode_messages([most], placement(message))
    assert decode_message(data).properties == b"p" * 32767
    start = len(data) - 32767
    more = (len(data) + 1).to_bytes(4) + data[4 : start - 2] + b"\x80\0" + b"p" * 32768
    with pytest.raises(Corrupt, match="do not add up"):
        decode_message(more)


@given(st.data())
def test_damage_raises_nothing_else(data: st.DataObject) -> None:
    case = data.draw(st.sampled_from(CASES))
    content = bytearray(case.data)
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(content) - 1))
        content[at : at + data.draw(st.integers(0, 4))] = data.draw(st.binary(max_size=4))
    check_crc = data.draw(st.booleans())
    with suppress(Corrupt, Truncated):
        found = decode_message(bytes(content), check_crc=check_crc)
        if "\ufffd" in found.topic:
            return  # the original bytes of the topic are lost
        [again] = encode_messages([new_message(found)], placement(found))
        assert found == decode_message(again)._replace(
            queue_offset=found.queue_offset, body_crc=found.body_crc
        )


@given(st.binary(max_size=200), st.sampled_from([b"", bytes.fromhex("0000006f daa320a7")]))
def test_any_bytes_raise_nothing_else(data: bytes, head: bytes) -> None:
    with suppress(Corrupt, Truncated):
        decode_message(head + data)


def test_transactions() -> None:
    plain = CASES[0].message
    kinds = {
        0: True,
        TRANSACTION_PREPARED: False,
        TRANSACTION_COMMIT: True,
        TRANSACTION_ROLLBACK: False,
    }
    for bits, in_queue in kinds.items():
        for others in (0, 0x7FFFFFFF & ~TRANSACTION_MASK):
            message = plain._replace(sys_flag=bits | others)
            assert (message.transaction, message.in_queue) == (bits, in_queue)


def test_every_bit_of_the_sys_flag_is_kept() -> None:
    message = CASES[0].message
    for flag in [*(1 << bit for bit in range(11)), 0x7CF, -1]:
        new = new_message(message)._replace(sys_flag=flag)
        found = decode_message(encode_messages([new], placement(message))[0])
        assert found.sys_flag == flag & ~HOSTS_V6


def test_peek() -> None:
    assert peek(CASES[0].data, 0) == (110, MAGIC_V1)
    assert peek(b"..." + CASES[-1].data[:8], 3) == (CASES[-1].message.size, MAGIC_V2)
    assert peek(encode_padding(300), 0) == (300, MAGIC_PADDING)
    assert peek(bytes(8), 0) == (0, 0)
    for position in (-1, 1, 9):
        with pytest.raises(Truncated):
            peek(bytes(8), position)


def test_padding() -> None:
    assert encode_padding(8).hex() == "00000008cbd43194"
    assert encode_padding(16201).hex() == "00003f49cbd43194"
    assert encode_padding((1 << 31) - 1).hex() == "7fffffffcbd43194"
    for size in (-1, 0, 7, 1 << 31):
        with pytest.raises(InvalidArgument) as caught:
            encode_padding(size)
        assert caught.value.facts() == {"field": "size"}


@pytest.mark.parametrize("case", CASES, ids=str)
def test_message_size(case: Case) -> None:
    message = case.message
    size = message_size(
        topic_bytes=len(message.topic.encode()),
        body_bytes=len(message.body),
        properties_bytes=len(message.properties),
        sys_flag=message.sys_flag,
        magic=message.magic,
    )
    assert size == message.size == len(case.data)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_version_follows_from_the_topic(case: Case) -> None:
    assert magic_for(case.message.topic) == case.message.magic


def test_the_version_counts_characters_of_java() -> None:
    assert magic_for("") == MAGIC_V1
    assert magic_for("t" * 127) == MAGIC_V1
    assert magic_for("t" * 128) == MAGIC_V2
    assert magic_for("ü" * 63) == MAGIC_V1
    assert magic_for("ü" * 128) == MAGIC_V2
    assert magic_for("\U0001f680" * 64) == MAGIC_V2  # 128 UTF-16 code units
    assert magic_for("t" * 32767) == MAGIC_V2


@pytest.mark.parametrize(
    ("topic", "limit"),
    [("ü" * 64, 127), ("主" * 43, 127), ("\U0001f680" * 63, 127), ("t" * 32768, 32767)],
)
def test_topics_that_no_record_holds(topic: str, limit: int) -> None:
    with pytest.raises(InvalidTopic, match=f"the limit is {limit}") as caught:
        magic_for(topic)
    assert caught.value.facts() == {"topic": topic}


def test_a_topic_that_is_no_text() -> None:
    with pytest.raises(InvalidTopic, match="not valid Unicode"):
        magic_for("a\ud800")
