"""Keys and values of the records in `__transaction_state`: the state of each transactional id.

Owns their bytes; must not know which record counts or where it is stored. Big-endian; from Kafka's
TransactionLogKey.json, TransactionLogValue.json and TransactionLog. Values are written in version 1, as by a broker
with transaction.version 1 or 2, and read in every version by the table of messages.

Key:

    position  bytes  field               note
    0         2      type                0, i16
    2         2 + n  transactional id    i16 length and as many bytes of UTF-8

Value. A null value means that the id was removed:

    position  bytes  field               note
    0         2      version             1, i16
    2         8      producer id         i64
    10        2      producer epoch      i16
    12        4      timeout             ms, i32
    16        1      status              see TransactionStatus, i8
    17        ...    partitions          uvarint count + 1 (0: null, of status 0), then for each topic:
                       name              uvarint length + 1, and as many bytes of UTF-8
                       numbers           uvarint count + 1, each i32
                       tagged fields     0
    .         8      last update         ms, i64
    .         8      start               ms, i64; -1: no transaction yet
    .         ...    tagged fields       uvarint count; each uvarint tag, uvarint size, bytes; defaults are left out

    tag       bytes  field               note
    0         8      previous id         producer id before this record, i64, default -1
    1         8      next id             producer id after the end of the transaction, i64, default -1
    2         2      client version      of the client's protocol, i16, default 0
"""

from __future__ import annotations

import struct
from typing import Any, Final

from storage.coding.varint import encode_uvarint
from storage.errors import Corrupt, InvalidArgument
from storage.kafka.format.messages.codec import decode
from storage.model import TopicPartition
from storage.transactions import TransactionState, TransactionStatus

KIND: Final = "transaction state"
VERSION: Final = 1
MAX_ID_BYTES: Final = 2**15 - 1
_KEY_TYPE: Final = b"\0\0"
_HEAD: Final = struct.Struct(
    ">"
    "h"  # version
    "q"  # producer id
    "h"  # producer epoch
    "i"  # timeout
    "b"  # status
)
_TIMES: Final = struct.Struct(
    ">"
    "q"  # last update
    "q"  # start
)
_ID: Final = struct.Struct(">q")
_SHORT: Final = struct.Struct(">h")
_NUMBER: Final = struct.Struct(">i")
_LONG_TAG: Final = b"\x08"  # the size of the field
_SHORT_TAG: Final = b"\x02"
assert _HEAD.size == 17
assert _TIMES.size == 16
assert _ID.size == 8
assert _SHORT.size == 2
assert _NUMBER.size == 4


def encode_key(transactional_id: str) -> bytes:
    """Encode a key. Raises InvalidArgument for an id that is not text or too long."""
    try:
        data = transactional_id.encode()
    except UnicodeEncodeError as error:
        raise InvalidArgument(
            "transactional_id holds half a surrogate pair", field="transactional_id"
        ) from error
    if not 1 <= len(data) <= MAX_ID_BYTES:
        raise InvalidArgument(
            f"transactional_id has {len(data)} bytes, it must have 1 to {MAX_ID_BYTES}",
            field="transactional_id",
        )
    return b"".join((_KEY_TYPE, _SHORT.pack(len(data)), data))


def encode_value(state: TransactionState) -> bytes:
    """Encode a state that is not DEAD. Raises InvalidArgument for a value out of range."""
    try:
        head = _HEAD.pack(VERSION, state.producer_id, state.epoch, state.timeout_ms, state.status)
        times = _TIMES.pack(state.update_ms, state.start_ms)
    except struct.error as error:
        raise InvalidArgument(f"{KIND}: {error}", field="state") from error
    parts = b"\0" if state.status is TransactionStatus.EMPTY else _partitions(state.partitions)
    return b"".join((head, parts, times, _tags(state)))


def _partitions(partitions: frozenset[TopicPartition]) -> bytes:
    topics: dict[str, list[int]] = {}
    for topic, number in sorted(partitions):
        topics.setdefault(topic, []).append(number)
    parts = [encode_uvarint(len(topics) + 1)]
    for topic, numbers in topics.items():
        name = topic.encode()
        parts += encode_uvarint(len(name) + 1), name, encode_uvarint(len(numbers) + 1)
        parts += map(_NUMBER.pack, numbers)
        parts.append(b"\0")
    return b"".join(parts)


def _tags(state: TransactionState) -> bytes:
    tags: list[bytes] = []
    if state.previous_producer_id != -1:
        tags.append(b"\0" + _LONG_TAG + _ID.pack(state.previous_producer_id))
    if state.next_producer_id != -1:
        tags.append(b"\1" + _LONG_TAG + _ID.pack(state.next_producer_id))
    if state.client_version:
        tags.append(b"\2" + _SHORT_TAG + _SHORT.pack(state.client_version))
    return b"".join((encode_uvarint(len(tags)), *tags))


def decode_key(data: bytes) -> str:
    """Return the transactional id. Raises Corrupt for another type of key, and for one that is not whole."""
    if data[:2] != _KEY_TYPE:
        raise _corrupt(f"key of type {data[:2].hex()}")
    transactional_id: str = decode("TransactionLogKey", 0, data, 2).fields["transactionalId"]
    return transactional_id


def decode_value(transactional_id: str, data: bytes) -> TransactionState:
    """Decode a value of any version. Raises UnsupportedFormat for an unknown version, Corrupt, Truncated."""
    if len(data) < _SHORT.size:
        raise _corrupt(f"value of {len(data)} bytes")
    (version,) = _SHORT.unpack_from(data)
    fields: dict[str, Any] = decode("TransactionLogValue", version, data, _SHORT.size).fields
    try:
        status = TransactionStatus(fields["transactionStatus"])
    except ValueError:
        raise _corrupt(f"status {fields['transactionStatus']}") from None
    return TransactionState(
        transactional_id,
        fields["producerId"],
        fields["producerEpoch"],
        fields["transactionTimeoutMs"],
        status,
        fields["transactionLastUpdateTimestampMs"],
        frozenset(
            TopicPartition(topic["topic"], number)
            for topic in fields["transactionPartitions"] or ()
            for number in topic["partitionIds"]
        ),
        fields["transactionStartTimestampMs"],
        fields.get("previousProducerId", -1),
        fields.get("nextProducerId", -1),
        fields.get("clientTransactionVersion", 0),
    )


def _corrupt(problem: str) -> Corrupt:
    return Corrupt(f"{KIND}: {problem}", kind=KIND, position=None, expected=None, found=problem)
