"""Whether a record is good: the decoder decides, and the two fast copies of its checks agree with it on any bytes.

The copies are the walk over a log (`format.scan`) and the checks of many records at once (`columns.records`). The
columns may doubt a record that is good (its topic is not UTF-8): then `columns.read` asks the decoder.
"""

from __future__ import annotations

import random

import numpy as np
import pytest

from scripts.diff_fuzz_cases import mutated
from storage.errors import DataError
from storage.model import TopicPartition
from storage.rocketmq.columns.queue_entries import Units
from storage.rocketmq.columns.records import Addresses, Records
from storage.rocketmq.columns.slices import LogSlice
from storage.rocketmq.format.message import FIXED_SIZE_V4, Message, decode_message
from tests.formats.rocketmq_messages.cases import CASES, walked

ROUNDS = 2000


def decoded(data: bytes, *, check_crc: bool) -> Message | None:
    try:
        return decode_message(data, check_crc=check_crc)
    except DataError:
        return None


def first_size(data: bytes, *, check_crc: bool) -> int | None:
    """Return the size of the first record by the walk; None if it finds none."""
    found, _, _ = walked(data, 0, len(data), 0, check_crc=check_crc)
    return found[0][1] if found else None


def in_columns(data: bytes, address: TopicPartition, *, check_crc: bool) -> bool:
    """Return whether the columns take the record that begins here, whose entry has the size in its first field."""
    size = int.from_bytes(data[:4], "big", signed=True)
    if not FIXED_SIZE_V4 <= size <= len(data):
        return False  # no entry of this size is followed: see columns.read
    entry = Units(*(np.array([value]) for value in (0, size, 0, 0)))
    piece = LogSlice(entry, data, np.array([0]))
    return bool(Records(piece, Addresses([address]), check_crcs=check_crc).good[0])


def agree(data: bytes, address: TopicPartition) -> bool:
    """Check all three on one record; return whether it is good."""
    for check_crc in (True, False):
        message = decoded(data, check_crc=check_crc)
        assert first_size(data, check_crc=check_crc) == (None if message is None else message.size)
        at_home = message is not None and (message.topic, message.queue_id) == address
        is_text = message is not None and "\ufffd" not in message.topic
        taken = in_columns(data, address, check_crc=check_crc)
        assert taken <= at_home
        assert taken == at_home or not is_text
    return decoded(data, check_crc=True) is not None


def test_whole_records_are_good() -> None:
    for case in CASES:
        message = decode_message(case.data)
        assert agree(case.data, TopicPartition(message.topic, message.queue_id))
        assert agree(case.data, TopicPartition(message.topic + "x", message.queue_id))


@pytest.mark.parametrize("seed", range(4))
def test_changed_records(seed: int) -> None:
    rng = random.Random(seed)
    good = 0
    for _ in range(ROUNDS // 4):
        data = rng.choice(CASES).data
        message = decode_message(data)
        address = TopicPartition(message.topic, message.queue_id)
        good += agree(mutated(rng, data + rng.choice((b"", data, bytes(40)))), address)
    assert 0 < good < ROUNDS // 4


def test_every_byte_of_the_lengths() -> None:
    """Each byte of a record set to each limit value."""
    for case in CASES:
        message = decode_message(case.data)
        address = TopicPartition(message.topic, message.queue_id)
        for at in range(min(len(case.data), 110)):
            for value in (0, 0x7F, 0xFF):
                agree(case.data[:at] + bytes([value]) + case.data[at + 1 :], address)
