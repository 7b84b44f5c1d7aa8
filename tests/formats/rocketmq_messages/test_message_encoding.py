"""Encoding of commit log records: the table the other way, runs of records, hosts, limits, random messages."""

from __future__ import annotations

from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.errors import InvalidArgument, InvalidTopic, UnrepresentableRecord
from storage.model import RawMessage
from storage.rocketmq.format import message_encoding
from storage.rocketmq.format.message import (
    BORN_HOST_V6,
    HOSTS_V6,
    MAGIC_V1,
    MAGIC_V2,
    STORE_HOST_V6,
    TRANSACTION_COMMIT,
    TRANSACTION_PREPARED,
    TRANSACTION_ROLLBACK,
    decode_message,
)
from storage.rocketmq.format.message_encoding import (
    LENGTH_TABLE_SIZE,
    Placement,
    encode_messages,
)
from tests.formats.rocketmq_messages.cases import CASES, Case, new_message, placement

PLACE = Placement(
    topic=b"orders",
    magic=MAGIC_V1,
    queue_id=3,
    queue_offset=70,
    physical_offset=5_000_000_000,
    store_timestamp_ms=1_700_000_000_000,
    store_host=bytes(8),
)
PLAIN = RawMessage(b"body", b"a\x01b\x02")

int32 = st.integers(-(1 << 31), (1 << 31) - 1)
int64 = st.integers(-(1 << 63), (1 << 63) - 1)
hosts = st.binary(min_size=8, max_size=8) | st.binary(min_size=20, max_size=20)
messages = st.builds(
    RawMessage,
    body=st.binary(max_size=300),
    properties=st.binary(max_size=100),
    flag=int32,
    sys_flag=int32,
    born_timestamp_ms=int64,
    born_host=hosts,
    reconsume_times=int32,
    prepared_transaction_offset=int64,
)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_encoding(case: Case) -> None:
    assert encode_messages([new_message(case.message)], placement(case.message)) == [case.data]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_host_bits_that_are_given_do_not_count(case: Case) -> None:
    for bits in (0, BORN_HOST_V6, STORE_HOST_V6, HOSTS_V6):
        new = new_message(case.message)
        new = new._replace(sys_flag=new.sys_flag | bits)
        assert encode_messages((new,), placement(case.message)) == [case.data]


@given(st.lists(messages, max_size=5), hosts)
def test_both_ways_write_the_same(given_: list[RawMessage], host: bytes) -> None:
    """The way for compiled code, which writes field by field, and the one for interpreted code."""
    place = PLACE._replace(store_host=host)
    assert message_encoding._encode(given_, place) == message_encoding._encode_plainly(
        given_, place
    )


def test_no_messages() -> None:
    assert encode_messages([], PLACE) == []


def test_what_a_sender_need_not_give() -> None:
    found = decode_message(encode_messages([PLAIN], PLACE)[0])
    assert (found.flag, found.sys_flag, found.born_timestamp_ms, found.reconsume_times) == (0,) * 4
    assert found.prepared_transaction_offset == 0
    assert found.born_host.hex() == "7f00000100000000"


def test_a_run_counts_on() -> None:
    kinds = [0, TRANSACTION_PREPARED, TRANSACTION_COMMIT, TRANSACTION_ROLLBACK, 0]
    given_ = [PLAIN._replace(sys_flag=kind, body=b"x" * n) for n, kind in enumerate(kinds)]
    records = encode_messages(given_, PLACE)
    found = [decode_message(record) for record in records]
    assert [one.queue_offset for one in found] == [70, 0, 71, 0, 72]
    starts = accumulate(map(len, records[:-1]), initial=PLACE.physical_offset)
    assert [one.physical_offset for one in found] == list(starts)
    assert {one.store_timestamp_ms for one in found} == {PLACE.store_timestamp_ms}
    assert {(one.topic, one.queue_id) for one in found} == {("orders", 3)}


@given(st.lists(messages, max_size=4), hosts, st.sampled_from([MAGIC_V1, MAGIC_V2]))
def test_any_messages_come_back(given_: list[RawMessage], host: bytes, magic: int) -> None:
    place = PLACE._replace(store_host=host, magic=magic, topic="тема".encode())
    records = encode_messages(given_, place)
    data = b"".join(records)
    position = 0
    queue_offset = PLACE.queue_offset
    for message, record in zip(given_, records, strict=True):
        found = decode_message(data, position)
        host_bits = STORE_HOST_V6 * (len(host) == 20)
        host_bits |= BORN_HOST_V6 * (len(message.born_host) == 20)
        assert new_message(found) == message._replace(sys_flag=message.sys_flag & ~HOSTS_V6)
        assert found.sys_flag & HOSTS_V6 == host_bits
        assert found.physical_offset == PLACE.physical_offset + position
        assert found.queue_offset == (queue_offset if found.in_queue else 0)
        assert (found.size, found.magic, found.store_host) == (len(record), magic, host)
        queue_offset += found.in_queue
        position += found.size


@pytest.mark.parametrize(
    "size", [0, 1, LENGTH_TABLE_SIZE - 1, LENGTH_TABLE_SIZE, LENGTH_TABLE_SIZE + 1, 32767]
)
def test_properties_of_every_length(size: int) -> None:
    given_ = PLAIN._replace(properties=b"p" * size)
    assert decode_message(encode_messages([given_], PLACE)[0]).properties == b"p" * size


def test_properties_over_the_limit() -> None:
    with pytest.raises(UnrepresentableRecord, match="32768 bytes: the limit is 32767") as caught:
        encode_messages([PLAIN, PLAIN._replace(properties=bytes(32768))], PLACE)
    assert caught.value.facts() == {"field": "properties", "index": 1}


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("flag", 1 << 31),
        ("flag", -(1 << 31) - 1),
        ("flag", 1 << 70),
        ("sys_flag", 1 << 31),
        ("sys_flag", 1 << 70),
        ("born_timestamp_ms", 1 << 63),
        ("reconsume_times", 1 << 31),
        ("prepared_transaction_offset", -(1 << 63) - 1),
    ],
)
def test_numbers_that_do_not_fit(field: str, value: int) -> None:
    bad = PLAIN._replace(**{field: value})  # type: ignore[arg-type]  # a field by its name
    with pytest.raises(UnrepresentableRecord, match="record 2: a number") as caught:
        encode_messages([PLAIN, PLAIN, bad], PLACE)
    assert caught.value.facts() == {"field": "message", "index": 2}


@pytest.mark.parametrize("field", ["queue_offset", "physical_offset"])
def test_offsets_at_the_limit_of_their_field(field: str) -> None:
    """The first record has the highest possible offset, the second one has none."""
    place = PLACE._replace(**{field: (1 << 63) - 1})  # type: ignore[arg-type]  # a field by its name
    assert getattr(decode_message(encode_messages([PLAIN], place)[0]), field) == (1 << 63) - 1
    with pytest.raises(UnrepresentableRecord) as caught:
        encode_messages([PLAIN, PLAIN], place)
    assert caught.value.facts() == {"field": "message", "index": 1}


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *((field, 1 << 63) for field in ("queue_offset", "physical_offset", "store_timestamp_ms")),
        *((field, -(1 << 63) - 1) for field in ("queue_offset", "physical_offset")),
        ("queue_id", 1 << 31),
        ("queue_id", 1 << 70),
    ],
)
def test_a_place_that_does_not_fit(field: str, value: int) -> None:
    with pytest.raises(UnrepresentableRecord) as caught:
        encode_messages([PLAIN], PLACE._replace(**{field: value}))  # type: ignore[arg-type]  # likewise
    assert caught.value.facts() == {"field": "message", "index": 0}


@pytest.mark.parametrize("size", [0, 4, 7, 9, 16, 19, 21])
def test_hosts_of_another_size(size: int) -> None:
    with pytest.raises(InvalidArgument, match=f"a host has {size} bytes"):
        encode_messages([PLAIN._replace(born_host=bytes(size))], PLACE)
    with pytest.raises(InvalidArgument) as caught:
        encode_messages([PLAIN], PLACE._replace(store_host=bytes(size)))
    assert caught.value.facts() == {"field": "host"}


@pytest.mark.parametrize(("magic", "limit"), [(MAGIC_V1, 127), (MAGIC_V2, 32767)])
def test_a_topic_over_the_limit_of_its_version(magic: int, limit: int) -> None:
    place = PLACE._replace(magic=magic, topic=b"t" * limit)
    assert decode_message(encode_messages([PLAIN], place)[0]).topic == "t" * limit
    with pytest.raises(InvalidTopic, match=f"{limit + 1} bytes: the limit is {limit}"):
        encode_messages([PLAIN], place._replace(topic=b"t" * (limit + 1)))
