"""Records of `__transaction_state`: the same bytes as the real broker's and as the table of messages."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.errors import Corrupt, DataError, InvalidArgument
from storage.kafka.format.batch import decode_records, split_batches
from storage.kafka.format.messages.codec import encode
from storage.kafka.format.transaction_records import (
    decode_key,
    decode_value,
    encode_key,
    encode_value,
)
from storage.model import TopicPartition
from storage.transactions import TransactionState, TransactionStatus

BROKER = Path(__file__).parent / "internal_topics" / "transaction-state.log"
TEXT = st.text(st.characters(codec="utf-8"), min_size=1, max_size=300)
INT64 = st.integers(-(2**63), 2**63 - 1)
STATUSES = [status for status in TransactionStatus if status is not TransactionStatus.DEAD]
STATES = st.builds(
    TransactionState,
    TEXT,
    INT64,
    st.integers(-1, 2**15 - 1),
    st.integers(0, 2**31 - 1),
    st.sampled_from(STATUSES),
    INT64,
    st.frozensets(
        st.builds(TopicPartition, st.sampled_from(["a", "b", "ü" * 100]), st.integers(0, 300)),
        max_size=200,
    ),
    INT64,
    INT64,
    INT64,
    st.integers(0, 2**15 - 1),
)


def broker_records() -> list[tuple[bytes, bytes]]:
    data = BROKER.read_bytes()
    return [
        (key, value)
        for at, header in split_batches(data)
        for _, _, key, value, _ in decode_records(data, at, header=header)
        if key is not None and value is not None
    ]


def test_the_broker_s_records_are_written_again_to_the_same_bytes() -> None:
    found = broker_records()
    assert len(found) > 5
    statuses = set()
    for key, value in found:
        transactional_id = decode_key(key)
        state = decode_value(transactional_id, value)
        assert (encode_key(transactional_id), encode_value(state)) == (key, value)
        statuses.add(state.status)
    assert {0, 1, 2, 4} <= statuses


@given(STATES)
def test_a_state_is_read_as_it_was_written(state: TransactionState) -> None:
    key, value = encode_key(state.transactional_id), encode_value(state)
    found = decode_value(decode_key(key), value)
    if state.status is TransactionStatus.EMPTY:
        state = state._replace(partitions=frozenset())
    assert found == state


@given(STATES)
def test_the_bytes_are_those_of_the_table_of_messages(state: TransactionState) -> None:
    topics = sorted({partition.topic for partition in state.partitions})
    fields = {
        "producerId": state.producer_id,
        "producerEpoch": state.epoch,
        "transactionTimeoutMs": state.timeout_ms,
        "transactionStatus": int(state.status),
        "transactionPartitions": None
        if state.status is TransactionStatus.EMPTY
        else [
            {
                "topic": topic,
                "partitionIds": sorted(n for name, n in state.partitions if name == topic),
            }
            for topic in topics
        ],
        "transactionLastUpdateTimestampMs": state.update_ms,
        "transactionStartTimestampMs": state.start_ms,
        "previousProducerId": state.previous_producer_id,
        "nextProducerId": state.next_producer_id,
        "clientTransactionVersion": state.client_version,
    }
    assert encode_value(state) == b"\0\1" + encode("TransactionLogValue", 1, fields)
    key = encode("TransactionLogKey", 0, {"transactionalId": state.transactional_id})
    assert encode_key(state.transactional_id) == b"\0\0" + key


def test_version_0_is_read() -> None:
    """A broker below transaction.version 1 writes it."""
    fields = {
        "producerId": 9,
        "producerEpoch": 3,
        "transactionTimeoutMs": 60_000,
        "transactionStatus": 3,
        "transactionPartitions": [{"topic": "t", "partitionIds": [1, 0]}],
        "transactionLastUpdateTimestampMs": 5,
        "transactionStartTimestampMs": 4,
    }
    found = decode_value("tx", b"\0\0" + encode("TransactionLogValue", 0, fields))
    assert found == TransactionState(
        "tx",
        9,
        3,
        60_000,
        TransactionStatus.PREPARE_ABORT,
        5,
        frozenset({TopicPartition("t", 0), TopicPartition("t", 1)}),
        4,
    )


def test_damaged_bytes_are_refused() -> None:
    key, value = broker_records()[1]
    for data in (b"", b"\0", b"\0\1\0\1x", key[:5]):
        with pytest.raises(DataError):
            decode_key(data)
    for stop in range(len(value)):
        with pytest.raises(DataError):
            decode_value("tx", value[:stop])
    with pytest.raises(Corrupt, match="status 99"):
        decode_value("tx", value[:16] + b"\x63" + value[17:])
    with pytest.raises(DataError):
        decode_value("tx", b"\0\x09" + value[2:])


@pytest.mark.parametrize("transactional_id", ["", "\ud800", "x" * 32_768])
def test_an_id_that_cannot_be_stored(transactional_id: str) -> None:
    with pytest.raises(InvalidArgument) as refusal:
        encode_key(transactional_id)
    assert refusal.value.facts() == {"field": "transactional_id"}


def test_a_value_out_of_range() -> None:
    state = TransactionState("t", 1, 2**15, 1, TransactionStatus.ONGOING, 1)
    with pytest.raises(InvalidArgument):
        encode_value(state)
