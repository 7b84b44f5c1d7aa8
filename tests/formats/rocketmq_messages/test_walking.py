"""The walk over a log: it accepts the same records as the decoder, stops where it should, and returns the reason."""

from __future__ import annotations

import struct
from itertools import accumulate, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.errors import Corrupt, Truncated
from storage.rocketmq.format.message import MAGIC_PADDING, decode_message, encode_padding, peek
from storage.rocketmq.format.queue_entry import in_order
from storage.rocketmq.format.scan import BAD, BLANK, PADDING, SHORT, records_in, unmatched
from storage.rocketmq.log.scan import LogRange
from tests.formats.rocketmq_messages.cases import CASES, Case, walked

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
    assert walked(LOG, 0, len(LOG), 0) == (WHOLE, len(LOG), SHORT)


def test_physical_offsets_count_from_the_position() -> None:
    data = b"skipped" + LOG
    moved = [(start + (1 << 40), size) for start, size in WHOLE]
    assert walked(data, 7, len(data), 1 << 40) == (moved, len(data), SHORT)
    assert walked(data, 7 + STARTS[3], len(data), 0)[0][0] == (0, len(RECORDS[3]))


def test_every_end() -> None:
    """The data may end at any byte, and so may the range of the walk."""
    for end in range(len(LOG) + 1):
        whole = [one for one in WHOLE if sum(one) <= end]
        expected = (whole, STARTS[len(whole)], SHORT)
        assert walked(LOG, 0, end, 0) == expected
        assert walked(LOG[:end], 0, len(LOG), 0) == expected


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
        found, position, why = walked(data, 0, len(data), 0)
        assert (len(found), position, why) == (len(before), STARTS[len(before)], reason)


@pytest.mark.parametrize("at", range(len(CASES)), ids=map(str, CASES))
def test_a_flipped_bit_anywhere_in_a_record(at: int) -> None:
    for bit in range(len(RECORDS[at]) * 8):
        damaged = bytearray(RECORDS[at] + RECORDS[0])
        damaged[bit // 8] ^= 1 << bit % 8
        data = bytes(damaged)
        found, position, why = walked(data, 0, len(data), 0)
        assert (found, position) == by_decoding(data, check_crc=True)
        assert position in (0, len(data))
        assert why in (BAD, SHORT)


def test_the_crc_is_looked_at_when_asked_for() -> None:
    crc = bytearray(LOG)
    crc[STARTS[2] + 11] ^= 1
    assert walked(bytes(crc), 0, len(LOG), 0) == (WHOLE[:2], STARTS[2], BAD)
    assert walked(bytes(crc), 0, len(LOG), 0, check_crc=False) == (WHOLE, len(LOG), SHORT)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_topic_that_is_no_utf8_is_kept(case: Case) -> None:
    """The real store keeps such a record and the records after it."""
    topic = case.message.topic.encode()
    data = case.data.replace(topic, b"\xff" * len(topic)) + RECORDS[0]
    found, position, _ = walked(data, 0, len(data), 0)
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
    found, position, _ = walked(bytes(content), 0, len(content), 0, check_crc=check_crc)
    assert (found, position) == by_decoding(bytes(content), check_crc=check_crc)


@given(st.data())
def test_records_that_no_entry_points_to(data: st.DataObject) -> None:
    """Ranges of adjacent records; the next part of the log goes on where the known offsets of this part end."""
    known = data.draw(st.lists(st.integers(-5, len(LOG) + 400), max_size=4))
    known += data.draw(st.lists(st.sampled_from(STARTS), max_size=2 * len(STARTS)))
    packed = b"".join(at.to_bytes(8, "big", signed=True) for at in sorted(known))
    middle = data.draw(st.sampled_from(STARTS))
    missing: list[int] = []
    at = 0
    for begin, end in ((0, middle), (middle, len(LOG))):
        ranges, at = unmatched(LOG, begin, end, 0, known=packed, at=at)
        assert all(one[1] < other[0] for one, other in pairwise(ranges))
        missing += [start for first, stop in ranges for start, _ in records_in(LOG, first, stop, 0)]
    assert missing == [start for start, _ in WHOLE if start not in known]


def test_part_of_a_range() -> None:
    whole = LogRange(LOG, 1000, len(LOG), 1000 + WHOLE[-1][0])
    assert whole.records == [(1000 + start, size) for start, size in WHOLE]
    assert whole.end == 1000 + len(LOG)
    for stop in range(990, whole.end + 10):
        part = whole.before(stop)
        expected = [one for one in whole.records if one[0] < stop]
        assert (part.records if part else []) == expected
        assert part is None or (part.last, part.end) == (expected[-1][0], sum(expected[-1]))


@given(st.lists(st.lists(st.integers(-(1 << 63), (1 << 63) - 1), max_size=9), max_size=5))
def test_positions_of_many_queues_in_order(queues: list[list[int]]) -> None:
    """Ascending parts are merged, others are sorted."""
    doubted = frozenset(queues[0][:2] if queues else ())
    for parts, without in ((queues, doubted), ([sorted(q) for q in queues], frozenset[int]())):
        packed = [struct.pack(f">{len(part)}q", *part) for part in parts]
        expected = sorted(at for part in parts for at in part if at not in without)
        assert in_order(packed, without) == struct.pack(f">{len(expected)}q", *expected)
