"""The records of Kafka's internal topics: the messages in their keys and values.

Owns the ways in which a record identifies its messages; must not know topics of users. From Kafka's
CoordinatorRecordSerde (groups, transactions, share groups), AbstractApiMessageSerde (metadata of the cluster and of
remote logs) and ControlRecordUtils.

    topic                    key                          value
    __consumer_offsets       i16 type, message            i16 version, message; null: deleted
    __transaction_state      i16 type, message            i16 version, message; null: deleted
    __share_group_state      i16 type, message            i16 version, message; null: deleted
    __cluster_metadata       none                         uvarint frame 1, uvarint type, uvarint version, message
    __remote_log_metadata    none                         the same
    a control record         i16 version, i16 type        i16 version, message
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from storage.coding.varint import decode_uvarint
from storage.errors import Corrupt, DataError, UnsupportedFormat
from storage.kafka.format import names
from storage.kafka.format.messages.codec import Decoded, Fields, decode
from storage.kafka.format.messages.schema import Field, by_key, messages
from storage.kafka.format.properties import uuid_text

FRAME_VERSION: Final = 1

_KEYED: Final = {
    names.GROUP_OFFSETS_TOPIC: "group",
    names.TRANSACTION_STATE_TOPIC: "transaction",
    names.SHARE_STATE_TOPIC: "share",
}
_FRAMED: Final = {
    names.CLUSTER_METADATA_TOPIC: "metadata",
    names.REMOTE_LOG_METADATA_TOPIC: "remote-log",
}
_CONTROL: Final = {
    0: ("EndTxnMarker", "ABORT"),
    1: ("EndTxnMarker", "COMMIT"),
    2: ("LeaderChangeMessage", "LEADER_CHANGE"),
    3: ("SnapshotHeaderRecord", "SNAPSHOT_HEADER"),
    4: ("SnapshotFooterRecord", "SNAPSHOT_FOOTER"),
    5: ("KRaftVersionRecord", "KRAFT_VERSION"),
    6: ("VotersRecord", "KRAFT_VOTERS"),
}
DECODED_TOPICS: Final = frozenset({*_KEYED, *_FRAMED})


class RecordContent(NamedTuple):
    """The decoded content of a record. `type` None: unknown; `problem`: why key or value are left as bytes."""

    type: str | None
    version: int | None
    key: Fields | bytes | None
    value: Fields | bytes | None
    problem: DataError | None


def decode_record(topic: str, key: bytes | None, value: bytes | None) -> RecordContent:
    """Decode a record of one of DECODED_TOPICS. If key or value are left as bytes, `problem` says why."""
    try:
        if topic in _KEYED:
            return _keyed(_KEYED[topic], key, value)
        return _framed(_FRAMED[topic], key, value)
    except DataError as error:
        return RecordContent(None, None, key, value, error)


def decode_control(key: bytes | None, value: bytes | None) -> RecordContent:
    """Decode a control record, of any topic."""
    try:
        number = _number(key, 2, "control record")
        name, label = _CONTROL.get(number, (None, None))
        if name is None:
            raise _unknown("control record", "type", number)
        version = _number(value, 0, name)
        # Later messages have their version as their first field; transaction markers have it before their fields.
        fields = _whole(name, version, value, 2 if name == "EndTxnMarker" else 0)
        return RecordContent(label, version, None, fields, None)
    except DataError as error:
        return RecordContent(None, None, key, value, error)


def _keyed(kind: str, key: bytes | None, value: bytes | None) -> RecordContent:
    number = _number(key, 0, f"{kind} record")
    message = by_key(f"{kind}-key").get(number)
    if message is None:
        raise _unknown(f"{kind} record", "type", number)
    name = message.name.removesuffix("Key")
    key_fields = _whole(message.name, 0, key, 2)
    if value is None:
        return RecordContent(name, None, key_fields, None, None)
    try:
        version = _number(value, 0, name)
        value_name = by_key(f"{kind}-value")[number].name
        return RecordContent(name, version, key_fields, _whole(value_name, version, value, 2), None)
    except DataError as error:
        return RecordContent(name, None, key_fields, value, error)


def _framed(kind: str, key: bytes | None, value: bytes | None) -> RecordContent:
    if value is None:
        raise Corrupt(f"{kind} record: no value", kind=kind, expected="a value", found=None)
    frame, at = decode_uvarint(value, 0)
    if frame != FRAME_VERSION:
        raise _unknown(f"{kind} record", "frame version", frame)
    number, at = decode_uvarint(value, at)
    version, at = decode_uvarint(value, at)
    message = by_key(kind).get(number)
    if message is None:
        raise _unknown(f"{kind} record", "type", number)
    return RecordContent(message.name, version, key, _whole(message.name, version, value, at), None)


def _whole(name: str, version: int, data: bytes | None, at: int) -> Fields:
    """Decode a message that must end where its bytes end. UUIDs become text as Kafka writes them."""
    found: Decoded = decode(name, version, data or b"", at)
    if found.end != len(data or b""):
        extra = len(data or b"") - found.end
        raise Corrupt(
            f"{name} version {version}: {extra} bytes after its end",
            kind=name,
            position=found.end,
            expected="the end",
            found=f"{extra} bytes",
        )
    return shown(name, version, found.fields)


def _number(data: bytes | None, at: int, kind: str) -> int:
    if data is None or len(data) < at + 2:
        raise Corrupt(f"{kind}: no type or version", kind=kind, expected="2 bytes", found=data)
    return int.from_bytes(data[at : at + 2], "big", signed=True)


def _unknown(kind: str, what: str, number: int) -> UnsupportedFormat:
    return UnsupportedFormat(f"{kind}: {what} {number} is not known", kind=kind, found=number)


def shown(name: str, version: int, fields: Mapping[str, Any]) -> Fields:
    """Return the fields of a message as Kafka's tools show them: UUIDs as text, no tagged field with its default."""
    return _shown(messages()[name].fields, version, fields)


def _shown(schema: Sequence[Field], version: int, fields: Mapping[str, Any]) -> Fields:
    by_name = {field.name: field for field in schema}
    found: Fields = {}
    for name, value in fields.items():
        field = by_name.get(name)
        if field is None:
            found[name] = value  # unknown tags
        elif version not in field.tagged or value != field.default:
            found[name] = _shown_value(field, version, value)
    return found


def _shown_value(field: Field, version: int, value: Any) -> Any:
    if field.is_array and value is not None:
        return [_shown_one(field, version, one) for one in value]
    return _shown_one(field, version, value)


def _shown_one(field: Field, version: int, value: Any) -> Any:
    if isinstance(value, Mapping):
        return _shown(field.fields, version, value)
    return uuid_text(value) if field.type == "uuid" and value is not None else value
