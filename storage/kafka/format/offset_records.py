"""Keys and values of the records in `__consumer_offsets` that contain a group's committed offsets.

Owns their bytes, in both directions; must not know which record counts or where it is stored. Other
types (2: a classic group, 3 and up: groups of the newer protocols) are recognised by their key and
ignored. Big-endian; from Kafka's OffsetCommitKey.json, OffsetCommitValue.json and
GroupCoordinatorRecordSerde.

Key, all types. A string is an i16 length (-1: null) and as many bytes of UTF-8:

    position  bytes  field             note
    0         2      type              0 or 1: an offset, alike but for the number
    2         2 + n  group             string
    .         2 + n  topic             string
    .         4      partition         i32

Value. A null value means that there is no offset any more:

    position  bytes  field             note
    0         2      version           0 to 4; 4.3.1 writes 4
    2         8      offset            the next record that the group wants, i64
    10        4      leader epoch      version 3 and up; -1: not known
    .         2 + n  metadata          string; in version 4 compact: a uvarint n + 1 (0: null) and n bytes
    .         8      commit timestamp  ms, i64
    .         8      expire timestamp  version 1 only, ms, i64; -1: none
    .         ...    tagged fields     version 4: uvarint count; each uvarint tag, uvarint size, bytes

    tag       bytes  field             note
    0         16     topic id          left out where it is not known
    10000     0      beyond the end    this server's own: the log ended below the offset when it was committed

The broker ignores a tag that it does not know, and keeps the record as it is.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from storage.coding.varint import decode_uvarint, encode_uvarint
from storage.errors import Corrupt, DataError, UnsupportedFormat
from storage.kafka.format.properties import UUID_BYTES

KIND: Final = "offset record"
OFFSET_TYPES: Final = (0, 1)
NEWEST_VERSION: Final = 4
_TOPIC_ID_TAG: Final = 0
_BEYOND_END_TAG: Final = 10_000
_I16: Final = 2
_I32: Final = 4
_I64: Final = 8


class OffsetKey(NamedTuple):
    """The group and the partition of a committed offset."""

    group: str
    topic: str
    partition: int


class OffsetValue(NamedTuple):
    """A committed offset. `topic_id` is 16 bytes, or None if the record has none.

    `is_beyond_end`: this server wrote the record, and the log ended below the offset then.
    """

    offset: int
    leader_epoch: int
    metadata: str
    commit_timestamp_ms: int
    topic_id: bytes | None
    is_beyond_end: bool = False


def encode_key(key: OffsetKey) -> bytes:
    """Encode a key, type 1. Names have at most 32,767 bytes."""
    parts = (_number(1, _I16), _string(key.group), _string(key.topic), _number(key.partition, _I32))
    return b"".join(parts)


def encode_value(value: OffsetValue) -> bytes:
    """Encode a value, version 4."""
    metadata = value.metadata.encode()
    tags = []
    if value.topic_id is not None:
        tags.append(bytes((_TOPIC_ID_TAG, UUID_BYTES)) + value.topic_id)
    if value.is_beyond_end:
        tags.append(encode_uvarint(_BEYOND_END_TAG) + b"\0")
    return b"".join(
        (
            _number(NEWEST_VERSION, _I16),
            _number(value.offset, _I64),
            _number(value.leader_epoch, _I32),
            encode_uvarint(len(metadata) + 1),
            metadata,
            _number(value.commit_timestamp_ms, _I64),
            encode_uvarint(len(tags)),
            *tags,
        )
    )


def decode_key(data: bytes) -> OffsetKey | None:
    """Decode the key of an offset; None for a record of another type. Raises Corrupt, Truncated."""
    fields = _Fields(data)
    if fields.number(_I16) not in OFFSET_TYPES:
        return None
    return OffsetKey(fields.string(), fields.string(), fields.number(_I32))


def decode_value(data: bytes) -> OffsetValue:
    """Decode a value of any version. Raises UnsupportedFormat for an unknown version, Corrupt, Truncated."""
    fields = _Fields(data)
    version = fields.number(_I16)
    if not 0 <= version <= NEWEST_VERSION:
        raise UnsupportedFormat(f"{KIND}: value of version {version}", kind=KIND, found=version)
    offset = fields.number(_I64)
    leader_epoch = fields.number(_I32) if version >= 3 else -1
    metadata = fields.compact_string() if version >= 4 else fields.string()
    commit_timestamp_ms = fields.number(_I64)
    if version == 1:
        fields.number(_I64)
    tags = fields.tags() if version >= 4 else {}
    topic_id = tags.get(_TOPIC_ID_TAG)
    if topic_id is not None and len(topic_id) != UUID_BYTES:
        raise _corrupt(f"a topic id of {len(topic_id)} bytes")
    is_beyond_end = _BEYOND_END_TAG in tags
    return OffsetValue(offset, leader_epoch, metadata, commit_timestamp_ms, topic_id, is_beyond_end)


def _number(value: int, size_bytes: int) -> bytes:
    return value.to_bytes(size_bytes, "big", signed=True)


def _string(text: str) -> bytes:
    data = text.encode()
    return _number(len(data), _I16) + data


class _Fields:
    """A reader of fields from front to back. Bytes after the last field are ignored."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def number(self, size_bytes: int) -> int:
        return int.from_bytes(self._take(size_bytes), "big", signed=True)

    def string(self) -> str:
        """Read a string. A null string counts as empty: null has no meaning in these fields."""
        return self._text(max(self.number(_I16), 0))

    def compact_string(self) -> str:
        return self._text(max(self._uvarint() - 1, 0))

    def tags(self) -> dict[int, bytes]:
        return {self._uvarint(): self._take(self._uvarint()) for _ in range(self._uvarint())}

    def _uvarint(self) -> int:
        value, self._at = decode_uvarint(self._data, self._at)
        return value

    def _text(self, size_bytes: int) -> str:
        data = self._take(size_bytes)
        try:
            return data.decode()
        except UnicodeDecodeError as error:
            raise _corrupt(f"a text that is no UTF-8: {error}") from error

    def _take(self, size_bytes: int) -> bytes:
        stop = self._at + size_bytes
        if stop > len(self._data):
            raise _corrupt(f"{len(self._data)} bytes end inside a field at {self._at}")
        data = self._data[self._at : stop]
        self._at = stop
        return data


def _corrupt(problem: str) -> DataError:
    return Corrupt(f"{KIND}: {problem}", kind=KIND, position=None, expected=None, found=problem)
