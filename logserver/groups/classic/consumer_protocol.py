"""The bytes that Kafka's consumers exchange in a group of type `consumer`: subscriptions and assignments.

Owns their layout. Groups only pass these bytes on; they are decoded to show a group, and encoded to show a group that
the server assigns by itself as Kafka's tools expect it. Big-endian; from Kafka's ConsumerProtocolSubscription.json and
ConsumerProtocolAssignment.json. A string is an i16 length and UTF-8; versions only append fields, which are ignored.

Subscription:

    position  bytes  field      note
    0         2      version    0 and up
    2         4      topics     i32 count; each a string
    .         ...    user data, and from version 1 on: owned partitions, generation, rack

Assignment:

    position  bytes  field       note
    0         2      version     0 and up
    2         4      topics      i32 count; each a string, an i32 count of partitions, and as many i32
    .         4 + n  user data   i32 length (-1: null)
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from typing import Final

from storage import TopicPartition

PROTOCOL_TYPE: Final = "consumer"
_I16: Final = struct.Struct(">h")
_I32: Final = struct.Struct(">i")


class _Broken(Exception):
    """The bytes do not have this layout."""


class _Fields:
    """A reader of fields from front to back."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def number(self, layout: struct.Struct) -> int:
        number: int = layout.unpack(self._take(layout.size))[0]
        return number

    def count(self, item_bytes: int) -> int:
        """Read the count of a list, whose items have at least `item_bytes` each."""
        count = self.number(_I32)
        if not 0 <= count * item_bytes <= len(self._data) - self._at:
            raise _Broken
        return count

    def string(self) -> str:
        try:
            return self._take(self.number(_I16)).decode()
        except UnicodeDecodeError as error:
            raise _Broken from error

    def _take(self, size_bytes: int) -> bytes:
        end = self._at + size_bytes
        if size_bytes < 0 or end > len(self._data):
            raise _Broken
        taken = self._data[self._at : end]
        self._at = end
        return taken


def decode_subscription(data: bytes) -> Sequence[str]:
    """Return the topics of a subscription; none if the bytes have another layout: a client may send any bytes."""
    fields = _Fields(data)
    try:
        fields.number(_I16)
        return [fields.string() for _ in range(fields.count(_I16.size))]
    except _Broken:
        return ()


def decode_assignment(data: bytes) -> Sequence[TopicPartition]:
    """Return the partitions of an assignment; none if the bytes have another layout."""
    fields = _Fields(data)
    partitions = []
    try:
        fields.number(_I16)
        for _ in range(fields.count(_I16.size + _I32.size)):
            topic = fields.string()
            numbers = [fields.number(_I32) for _ in range(fields.count(_I32.size))]
            partitions += [TopicPartition(topic, number) for number in numbers]
    except _Broken:
        return ()
    return partitions


def encode_subscription(topics: Iterable[str]) -> bytes:
    """Encode a subscription of version 0 without user data."""
    names = [_string(topic) for topic in topics]
    return b"".join((_I16.pack(0), _I32.pack(len(names)), *names, _I32.pack(-1)))


def encode_assignment(partitions: Iterable[TopicPartition]) -> bytes:
    """Encode an assignment of version 0 without user data."""
    topics: dict[str, list[int]] = {}
    for topic, partition in partitions:
        topics.setdefault(topic, []).append(partition)
    parts = [_I16.pack(0), _I32.pack(len(topics))]
    for topic, numbers in topics.items():
        parts += [_string(topic), _I32.pack(len(numbers)), *map(_I32.pack, numbers)]
    return b"".join((*parts, _I32.pack(-1)))


def _string(text: str) -> bytes:
    data = text.encode()
    return _I16.pack(len(data)) + data
