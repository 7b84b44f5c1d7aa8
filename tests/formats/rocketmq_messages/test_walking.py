"""The walk over a log: it accepts the same records as the decoder, stops where it should, and returns the reason."""

from __future__ import annotations

from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.errors import Corrupt, Truncated
from storage.rocketmq.format.message import MAGIC_PADDING, decode_message, encode_padding, peek
from storage.rocketmq.format.scan import BAD, BLANK, PADDING, SHORT, walk
from tests.formats.rocketmq_messages.cases import CASES, Case

RECORDS = [case.data for case in CASES]
LOG = b"".join(RECORDS)
STARTS = [*accumulate(map(len, RECORDS), initial=0)]
WHOLE = [(start, len(record)) for start, record in zip(STARTS, RECORDS, strict=False)]


def by_decoding(data: bytes, *, check_crc: bool) -> tuple[list[tuple[int, int]], int]:
    """Return the good records at the start of `data` and their end, decoded one after another."""
    found = []
    position = 0
    while position < len(data):
        try:
            size = decode_message(data, position, check_crc=check_crc).size
        except Corrupt as error:
            if error.facts().get("field") != "topic":
                break
            size, _ = peek(data, position)
        except Truncated:
            break
        found.append((position, size))
        position += size
    return found, position


def test_all_kinds_of_records() -> None:
    assert walk(LOG, 0, len(LOG), 0) == (WHOLE, len(LOG), SHORT)


def test_physical_offsets_count_from_the_position() -> None:
    data = b"skipped" + LOG
    moved = [(start + (1 << 40), size) for start, size in WHOLE]
    assert walk(data, 7, len(data), 1 << 40) == (moved, len(data), SHORT)
    assert walk(data, 7 + STARTS[3], len(data), 0)[0][0] == (0, len(RECORDS[3]))


def test_every_end() -> None:
    """The data may end at any byte, and so may the range of the walk."""
    for end in range(len(LOG) + 1):
        whole = [one for one in WHOLE if sum(one) <= end]
        expected = (whole, STARTS[len(whole)], SHORT)
        assert walk(LOG, 0, end, 0) == expected
        assert walk(LOG[:end], 0, len(LOG), 0) == expected


@pytest.mark.parametrize(
    ("tail", "reason"),
    [
        (b"", SHORT),
        (b"\0\0\0", SHORT),
        (b"\0\0\0\1", SHORT),
        (b"\0\0\0\1\0\0\0", SHORT),
        (bytes(4), BLANK),
        (bytes(7), BLANK),
        (bytes(8), BLANK),
        (bytes(200), BLANK),
        (bytes(4) + b"\1" * 50, BLANK),
        (encode_padding(8), PADDING),
        (encode_padding(9) + b"x", PADDING),
        (encode_padding(5000) + b"x" * 100, PADDING),
        (bytes(4) + MAGIC_PADDING.to_bytes(4, signed=True), PADDING),
        (b"\xff" * 8, BAD),
        (b"\xff" * 200, BAD),
        (b"\0\0\0\x5a" + RECORDS[0][4:], BAD),
        (b"\x80\0\0\0" + RECORDS[0][4:], BAD),
        (b"\x7f\0\0\0" + RECORDS[0][4:], SHORT),
        (RECORDS[0][:40], SHORT),
        (RECORDS[0][:-1], SHORT),
    ],
)
def test_why_it_ends(tail: bytes, reason: str) -> None:
    for before in ([], RECORDS[:1], RECORDS):
        data = b"".join([*before, tail])
        found, position, why = walk(data, 0, len(data), 0)
        assert (len(found), position, why) == (len(before), STARTS[len(before)], reason)


@pytest.mark.parametrize("at", range(len(CASES)), ids=map(str, CASES))
def test_a_flipped_bit_anywhere_in_a_record(at: int) -> None:
    for bit in range(len(RECORDS[at]) * 8):
        damaged = bytearray(RECORDS[at] + RECORDS[0])
        damaged[bit // 8] ^= 1 << bit % 8
        data = bytes(damaged)
        found, position, why = walk(data, 0, len(data), 0)
        assert (found, position) == by_decoding(data, check_crc=True)
        assert position in (0, len(data))
        assert why in (BAD, SHORT)


def test_the_crc_is_looked_at_when_asked_for() -> None:
    crc = bytearray(LOG)
    crc[STARTS[2] + 11] ^= 1
    assert walk(bytes(crc), 0, len(LOG), 0) == (WHOLE[:2], STARTS[2], BAD)
    assert walk(bytes(crc), 0, len(LOG), 0, check_crc=False) == (WHOLE, len(LOG), SHORT)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_topic_that_is_no_utf8_is_kept(case: Case) -> None:
    """The real store keeps such a record and the records after it."""
    topic = case.message.topic.encode()
    data = case.data.replace(topic, b"\xff" * len(topic)) + RECORDS[0]
    found, position, _ = walk(data, 0, len(data), 0)
    assert (len(found), position) == (2, len(data))
    assert set(decode_message(data).topic) <= {"\ufffd"}


@given(st.data())
def test_the_walk_and_the_decoder_agree(data: st.DataObject) -> None:
    run = data.draw(st.lists(st.sampled_from(RECORDS), min_size=1, max_size=4))
    content = bytearray(b"".join(run))
    for _ in range(data.draw(st.integers(0, 3))):
        at = data.draw(st.integers(0, len(content) - 1))
        content[at : at + data.draw(st.integers(0, 4))] = data.draw(st.binary(max_size=4))
    check_crc = data.draw(st.booleans())
    found, position, _ = walk(bytes(content), 0, len(content), 0, check_crc=check_crc)
    assert (found, position) == by_decoding(bytes(content), check_crc=check_crc)
