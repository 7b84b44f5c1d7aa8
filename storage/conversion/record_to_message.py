"""A Kafka record as a RocketMQ message, and back: data that has no place in a message is encoded, or rejected.

Owns that mapping; must not do IO. In the message:

    body            the value
    born timestamp  the timestamp
    properties      __kafka_offset                 the offset; it marks the message
                    __kafka_time_type              LogAppendTime, if the record has it
                    every header with a legal name and value, in its place (including TAGS and KEYS)
                    __SHARDINGKEY                  the key
                    KEYS                           the header KEYS, preceded by the key: the store's index uses it
                    __kafka_keys                   the header KEYS, if it differs from the property

and encoded, base64 as in RFC 4648:

    __kafka_null_value   1            the value is null
    __kafka_key          =BASE64      a key that is not text, is empty, or holds a separator, or a NUL and a space
    __kafka_header_N     NAME.VALUE   the header at place N, both in base64; VALUE `-`: null

A message is such a record if it has the mark and converting it there and back gives the same message.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from storage.conversion import records
from storage.conversion.records import (
    KafkaRecord,
    Problem,
    QueuedMessage,
    base64_text,
    from_base64,
)
from storage.errors import UnrepresentableRecord
from storage.model import Header, RawMessage
from storage.rocketmq.format.properties import (
    KEY_SEPARATOR,
    KEYS,
    MAX_PROPERTIES_BYTES,
    NUL,
    SEPARATORS,
    SHARDING_KEY,
    TAGS,
    decode_properties,
    encode_properties,
)
from storage.rocketmq.log.record_run import NOT_THE_USERS

HOLDS_NUL: Final = "holds a NUL"
_KEPT: Final = frozenset({KEYS, TAGS})
_RESERVED: Final = NOT_THE_USERS - _KEPT


class _Encoding:
    """The properties of one record under construction, and the problems that had to be encoded."""

    def __init__(self, record: KafkaRecord) -> None:
        self.problems: list[Problem] = []
        self.properties = {records.OFFSET: str(record.offset)}
        if record.log_append_time:
            self.properties[records.TIME_TYPE] = records.APPEND_TIME
        if record.value is None:
            self._encode("value", "is null", records.NULL_VALUE, "1")
        self._key = self._take_key(record.key)
        for place, (name, value) in enumerate(record.headers):
            self._take_header(place, name, value)
        if self._key and KEYS not in self.properties:
            self.properties[KEYS] = self._key

    def _encode(self, field: str, problem: str, name: str, value: str) -> None:
        self.problems.append(Problem(field, problem))
        self.properties[name] = value

    def _take_key(self, key: bytes | None) -> str | None:
        """Add the key; return it as a lookup key. Return None if it is missing, encoded, or would be split at a
        space.
        """
        if key is None:
            return None
        text, problem = _as_text(key)
        if problem == HOLDS_NUL and KEY_SEPARATOR.encode() not in key:
            text, problem = key.decode(), ""  # confirmed by its copy in KEYS
        if problem:
            self._encode("key", problem, records.KEY, "=" + base64_text(key))
            return None
        self.properties[SHARDING_KEY] = text
        return None if KEY_SEPARATOR in text else text

    def _take_header(self, place: int, name: str, value: bytes | None) -> None:
        text, problem = _as_text(value)
        problem = self._name_problem(name) or (problem and f"the value {problem}")
        if problem:
            encoded = f"{base64_text(name.encode('utf-8', 'surrogatepass'))}."
            encoded += "-" if value is None else base64_text(value)
            self._encode("headers", problem, f"{records.HEADER}{place}", encoded)
        elif name == KEYS:
            self._take_keys(text)
        else:
            self.properties[name] = text

    def _take_keys(self, keys: str) -> None:
        found = keys
        if self._key and self._key not in keys.split(KEY_SEPARATOR):
            found = f"{self._key}{KEY_SEPARATOR}{keys}"
        self.properties[KEYS] = found
        if found != keys or keys == self.properties.get(SHARDING_KEY):
            self.properties[records.KEYS_HEADER] = keys

    def _name_problem(self, name: str) -> str:
        if not name:
            return "a name is empty"
        if name in _RESERVED or name.startswith(records.PROPERTY_PREFIX):
            return "a name is reserved"
        if name in self.properties:
            return "a name comes twice"
        if any(separator in name for separator in SEPARATORS):
            return "a name holds a separator, 01 or 02"
        if NUL in name:
            return "a name holds a NUL"
        return "" if _is_unicode(name) else "a name is no UTF-8 text"


def _as_text(data: bytes | None) -> tuple[str, str]:
    """Return (the text for a property, the reason if it cannot be one)."""
    if not data:
        return "", "is null" if data is None else "is empty"
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return "", "is no UTF-8 text"
    if any(separator in text for separator in SEPARATORS):
        return "", "holds a separator, 01 or 02"
    return ("", HOLDS_NUL) if NUL in text else (text, "")


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def encode(record: KafkaRecord, store_timestamp_ms: int) -> tuple[QueuedMessage, Sequence[Problem]]:
    """Return (the message of a record, the problems that had to be encoded).

    Raises UnrepresentableRecord (field) for properties that are larger than a message can have.
    """
    encoding = _Encoding(record)
    try:
        properties = encode_properties(encoding.properties)
    except UnrepresentableRecord as error:
        raise UnrepresentableRecord(
            f"take more than {MAX_PROPERTIES_BYTES} bytes as properties", field="headers"
        ) from error
    message = RawMessage(
        body=record.value or b"",
        properties=properties,
        born_timestamp_ms=record.timestamp_ms,
        born_host=records.HOST,
    )
    return QueuedMessage(message, record.offset, store_timestamp_ms), encoding.problems


def decode(queued: QueuedMessage) -> KafkaRecord | None:
    """Return the record from which `encode` made this message; None for any other message."""
    properties = decode_properties(queued.message.properties)
    if records.OFFSET not in properties:
        return None
    try:
        record = _decoded(queued, properties)
        again, _ = encode(record, queued.store_timestamp_ms)
    except (ValueError, UnrepresentableRecord):
        return None
    return record if again._replace(offset=queued.offset) == queued else None


def _decoded(queued: QueuedMessage, properties: dict[str, str]) -> KafkaRecord:
    """Return the record of a message, before the check of the way back. Raises ValueError."""
    key: bytes | None = None
    if records.KEY in properties:
        key = from_base64(properties[records.KEY][1:])
    elif SHARDING_KEY in properties:
        key = properties[SHARDING_KEY].encode()
    value = None if records.NULL_VALUE in properties else queued.message.body
    return KafkaRecord(
        int(properties[records.OFFSET]),
        queued.message.born_timestamp_ms,
        key,
        value,
        _headers(properties),
        records.TIME_TYPE in properties,
    )


def _headers(properties: dict[str, str]) -> list[Header]:
    """Return the headers that the properties represent. Raises ValueError."""
    headers: list[Header] = []
    for name, text in properties.items():
        if name.startswith(records.HEADER):
            headers.append(_header(text))
        elif name == KEYS:
            keys = properties.get(records.KEYS_HEADER)
            if keys is not None or text != properties.get(SHARDING_KEY):
                headers.append((KEYS, (text if keys is None else keys).encode()))
        elif name != SHARDING_KEY and not name.startswith(records.PROPERTY_PREFIX):
            headers.append((name, text.encode()))
    return headers


def _header(text: str) -> Header:
    """Decode one encoded header. Raises ValueError."""
    name, _, value = text.partition(".")
    header = from_base64(name).decode("utf-8", "surrogatepass")
    return header, None if value == "-" else from_base64(value)
