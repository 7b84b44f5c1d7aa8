"""The bytes of RocketMQ's transactions: half messages, op records, and the messages that they become.

Owns the properties of these records and their changes; must not know queues or decide anything. Sources:
TransactionalMessageBridge, TransactionalMessageServiceImpl and EndTransactionProcessor of RocketMQ 5.5.0; the golden
store `broker` has such records of the real broker.

    half message    topic RMQ_SYS_TRANS_HALF_TOPIC, queue 0, no transaction bits in the sys flag, its own tags;
                    its properties besides the user's:
                    TRAN_MSG=true, PGROUP                     by the client: a half message, and the group of producers
                    REAL_TOPIC, REAL_QID                      where a commit puts it
                    __transactionId__                         its UNIQ_KEY
                    CHECK_IMMUNITY_TIME_IN_SECONDS            the time before the first check, if it has its own
                    TRANSACTION_CHECK_TIMES                   how often it was checked: each check writes it again
                    TRAN_PREPARED_QUEUE_OFFSET                the queue offset of its first half message
                    __LOGSERVER_TXN                           ours alone: ID:TIMEOUT_MS:PREPARED_MS:NUMBER, the id and
                                                              time-out of its transaction, and its own time and number
    op record       topic RMQ_SYS_TRANS_OP_HALF_TOPIC, the same queue, tag d; __LOGSERVER_TXN, again ours alone,
                    names the ended transactions and their outcomes: "c:ID r:ID d:ID"; a broker reads the body only
    committed       the real topic and queue, sys flag COMMIT, the physical offset of its half message in the field
                    prepared offset; REAL_TOPIC and REAL_QID are dropped, and of a message with __LOGSERVER_TXN that
                    and the three other names that are not reserved, so that its user gets the headers that were sent

The body of an op record:

    position  bytes  field      note
    0         n      offset     queue offset of a half message that has ended, decimal digits
    .         1      separator  a comma after each offset; 4.x has one offset, without a comma
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from sys import intern
from typing import Final, NamedTuple

from storage.model import RawMessage, TopicPartition
from storage.rocketmq.format.message import TRANSACTION_COMMIT, TRANSACTION_MASK, Message
from storage.rocketmq.format.names import HALF_TOPIC, OP_TOPIC, SCHEDULE_TOPIC
from storage.rocketmq.format.properties import (
    CRC32,
    DELAY,
    NAME_VALUE_SEPARATOR,
    PRODUCER_GROUP,
    PROPERTY_SEPARATOR,
    REAL_QUEUE_ID,
    REAL_TOPIC,
    TAGS,
    TRANSACTION_ID,
    TRANSACTION_MARK,
    UNIQ_KEY,
    WAIT,
    decode_properties,
    encode_properties,
)

CHECK_TIMES: Final = "TRANSACTION_CHECK_TIMES"
IMMUNITY_S: Final = "CHECK_IMMUNITY_TIME_IN_SECONDS"
PREPARED_QUEUE_OFFSET: Final = "TRAN_PREPARED_QUEUE_OFFSET"
REMOVE_TAG: Final = "d"
OFFSET_SEPARATOR: Final = ","
OP_BODY_BYTES: Final = 4096
"""Most bytes of an op record's body (transactionOpMsgMaxSize)."""
OP_MARK_BYTES: Final = 8192
"""Most bytes of the outcomes in one op record: its properties hold 32,767."""

_DROPPED_OF_OURS: Final = (
    *(REAL_TOPIC, REAL_QUEUE_ID, TRANSACTION_MARK),
    *(TRANSACTION_ID, IMMUNITY_S, CHECK_TIMES),
)
_SEPARATOR: Final = PROPERTY_SEPARATOR.encode()
_NAME_END: Final = NAME_VALUE_SEPARATOR.encode()
_NUMBER: Final = re.compile(r"\d{1,18}", re.ASCII)
_QUEUE_ID: Final = re.compile(r"[+]?\d{1,9}", re.ASCII)
_PLAIN_ID: Final = re.compile(r"[0-9A-Za-z_-]{1,64}", re.ASCII)
_MARK: Final = re.compile(r"([0-9A-Za-z_-]{1,64}):(\d{1,18}):(\d{1,18}):(\d{1,18})", re.ASCII)


class HalfMark(NamedTuple):
    """The value of `__LOGSERVER_TXN` in a half message. `number` tells it from others of its transaction."""

    id: str
    timeout_ms: int
    prepared_ms: int
    number: int

    def text(self) -> str:
        """Return the value of the property."""
        return f"{self.id}:{self.timeout_ms}:{self.prepared_ms}:{self.number}"


class HalfFields(NamedTuple):
    """What a half message says of itself.

    - `key`: the same for all half messages of one message.
    - `unique_id`: empty if it can be no id of a transaction.
    - `partition`: None if it names no queue of a topic.
    - `immunity_ms`: None for the store's default.
    - `first_offset`: the queue offset of its first half message, -1 if it does not say so.
    - `level`: of its delay, 0 for none.
    """

    key: str
    transaction_id: str
    mark: HalfMark | None
    group: str
    partition: TopicPartition | None
    unique_id: str
    checks: int
    immunity_ms: int | None
    first_offset: int
    level: int


class OpFields(NamedTuple):
    """What an op record says: the queue offsets of half messages, and outcomes by transaction."""

    offsets: Sequence[int]
    outcomes: Sequence[tuple[str, str]]


def half_fields(message: Message, queue_id: int, offset: int) -> HalfFields:
    """Return what a half message says, which has this offset in its queue. Values that make no sense count as
    missing.
    """
    properties = decode_properties(message.properties)
    value = properties.get
    mark = parse_mark(value(TRANSACTION_MARK))
    unique_id = value(UNIQ_KEY, "")
    if not _PLAIN_ID.fullmatch(unique_id):
        unique_id = ""
    first_offset = _number(value(PREPARED_QUEUE_OFFSET), -1)
    seconds = _number(value(IMMUNITY_S), -1)
    if mark is not None:
        key, transaction_id = mark.text(), mark.id
    else:
        place = f"{queue_id}-{offset if first_offset < 0 else first_offset}"
        key, transaction_id = unique_id or place, unique_id or f"half-{place}"
    return HalfFields(
        key,
        transaction_id,
        mark,
        intern(value(PRODUCER_GROUP, "")),
        _real_partition(value(REAL_TOPIC, ""), value(REAL_QUEUE_ID, "")),
        unique_id,
        _number(value(CHECK_TIMES), 0),
        None if seconds < 0 else seconds * 1000,
        first_offset,
        _number(value(DELAY), 0),
    )


def parse_mark(text: str | None) -> HalfMark | None:
    """Parse a result of `HalfMark.text`; None for any other text."""
    found = None if text is None else _MARK.fullmatch(text)
    if found is None:
        return None
    transaction_id, timeout_ms, prepared_ms, number = found.groups()
    return HalfMark(transaction_id, int(timeout_ms), int(prepared_ms), int(number))


def _number(text: str | None, default: int) -> int:
    return int(text) if text is not None and _NUMBER.fullmatch(text) else default


@lru_cache(maxsize=1024)
def _real_partition(topic: str, number: str) -> TopicPartition | None:
    """Return where a commit puts a message; None for no queue, or for one of the transactions' own topics."""
    if not topic or topic in {HALF_TOPIC, OP_TOPIC} or not _QUEUE_ID.fullmatch(number):
        return None
    return TopicPartition(topic, int(number))


def _edited(stored: bytes, dropped: Iterable[str], added: Mapping[str, str]) -> bytes:
    """Return stored properties without some, and with others at their end. All others stay byte by byte."""
    heads = tuple(name.encode() + _NAME_END for name in (CRC32, *dropped, *added))
    pieces = [piece for piece in stored.split(_SEPARATOR) if piece and not piece.startswith(heads)]
    kept = b"".join(piece + _SEPARATOR for piece in pieces)
    return kept + encode_properties(dict(added))


def _again(message: Message, properties: bytes) -> RawMessage:
    return RawMessage(
        message.body,
        properties,
        message.flag,
        message.sys_flag & ~TRANSACTION_MASK,
        message.born_timestamp_ms,
        message.born_host,
        message.reconsume_times,
    )


def targets(fields: HalfFields, levels: int) -> Sequence[TopicPartition]:
    """Return the queues that a commit puts a message in, in this order: that of its delay level if it has one, then its
    real one. None if it names no queue.
    """
    real = fields.partition
    if real is None:
        return ()
    if fields.level <= 0:
        return (real,)
    return TopicPartition(SCHEDULE_TOPIC, min(fields.level, levels) - 1), real


def committed(
    message: Message, fields: HalfFields, physical_offset: int, levels: int
) -> tuple[TopicPartition, RawMessage]:
    """Return the message that a half message at a physical offset becomes by a commit, and its queue: that of its delay
    level if it has one (HookUtils.transformDelayLevelMessage; `levels`: the number of levels).

    The half message must name a queue.
    """
    target, *_ = targets(fields, levels)
    added: dict[str, str] = {}
    if fields.level > 0:
        assert fields.partition is not None
        added = {
            DELAY: str(target.partition + 1),
            REAL_TOPIC: fields.partition.topic,
            REAL_QUEUE_ID: str(fields.partition.partition),
        }
    dropped = (REAL_TOPIC, REAL_QUEUE_ID) if fields.mark is None else _DROPPED_OF_OURS
    raw = _again(message, _edited(message.properties, dropped, added))
    return target, raw._replace(
        sys_flag=raw.sys_flag | TRANSACTION_COMMIT, prepared_transaction_offset=physical_offset
    )


def checked(message: Message, fields: HalfFields, offset: int) -> RawMessage:
    """Return the half message that is written again by a check (putBackHalfMsgQueue). A message without a unique id
    names its first half message from now on: `offset` if this is it.
    """
    added = {CHECK_TIMES: str(fields.checks + 1)}
    if not fields.unique_id:
        first = offset if fields.first_offset < 0 else fields.first_offset
        added[PREPARED_QUEUE_OFFSET] = str(first)
    return _again(message, _edited(message.properties, (), added))


def discarded(message: Message) -> RawMessage:
    """Return the message for the topic of messages that were checked too often (toMessageExtBrokerInner)."""
    return _again(message, _edited(message.properties, (), {}))


# ---- op records ----


def op_fields(message: Message) -> OpFields:
    """Return what an op record says; nothing for another tag (fillOpRemoveMap)."""
    properties = decode_properties(message.properties)
    if properties.get(TAGS) != REMOVE_TAG:
        return OpFields((), ())
    pieces = message.body.decode(errors="replace").split(OFFSET_SEPARATOR)
    offsets = [int(piece) for piece in pieces if _NUMBER.fullmatch(piece)]
    marks = (mark.partition(":") for mark in properties.get(TRANSACTION_MARK, "").split(" "))
    return OpFields(offsets, [(name, outcome) for outcome, _, name in marks if name])


def op_messages(
    ended: Sequence[tuple[str, str, Sequence[int]]], born_ms: int, host: bytes
) -> list[RawMessage]:
    """Return the op records that end transactions, as few as possible. `ended`: id, outcome and the queue offsets of
    each. The outcome of a transaction is in each record with one of its offsets.
    """
    records: list[RawMessage] = []
    body, marks = "", ""

    def close() -> None:
        properties = {WAIT: "true", TAGS: REMOVE_TAG}
        if marks:
            properties[TRANSACTION_MARK] = marks.rstrip(" ")
        records.append(
            RawMessage(
                body.encode(),
                encode_properties(properties),
                born_timestamp_ms=born_ms,
                born_host=host,
            )
        )

    for transaction_id, outcome, offsets in ended:
        mark, is_marked = f"{outcome}:{transaction_id} ", False
        for offset in offsets:
            piece = f"{offset}{OFFSET_SEPARATOR}"
            too_long = len(body) + len(piece) > OP_BODY_BYTES
            if body and (too_long or len(marks) + len(mark) > OP_MARK_BYTES):
                close()
                body, marks, is_marked = "", "", False
            if not is_marked:
                marks, is_marked = marks + mark, True
            body += piece
    if body:
        close()
    return records
