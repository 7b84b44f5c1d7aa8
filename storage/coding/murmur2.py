"""Kafka's murmur2 hash of a key, and the partition that the default producer chooses for a keyed record.

Owns the arithmetic; must not know topics. Source: Utils.murmur2 and BuiltInPartitioner of Kafka's clients. The key is
read as little-endian 32-bit words; the last one to three bytes are mixed in at the end.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import unpack_from
from typing import TYPE_CHECKING, Final

from storage.errors import InvalidArgument

if TYPE_CHECKING:
    from mypy_extensions import i64

SEED: Final = 0x9747B28C
FACTOR: Final = 0x5BD1E995
MASK: Final = 0xFFFFFFFF
SIGN: Final = 0x80000000


def murmur2(data: bytes) -> int:
    """Return the hash as Java's int: signed, 32 bits."""
    size: i64 = len(data)
    words: i64 = size // 4
    hashed: i64 = SEED ^ size
    word: i64
    for word in unpack_from(f"<{words}I", data):
        word = word * FACTOR & MASK
        word = (word ^ word >> 24) * FACTOR & MASK
        hashed = hashed * FACTOR & MASK ^ word
    if size % 4:
        hashed = (hashed ^ int.from_bytes(data[words * 4 :], "little")) * FACTOR & MASK
    hashed = (hashed ^ hashed >> 13) * FACTOR & MASK
    hashed ^= hashed >> 15
    return (hashed ^ SIGN) - SIGN


def partition_for_key(key: bytes, partitions: int) -> int:
    """Return the partition of a keyed record among `partitions`. Raises InvalidArgument for fewer than 1."""
    if partitions < 1:
        raise InvalidArgument(f"{partitions} partitions: need at least 1", field="partitions")
    return (murmur2(key) & 0x7FFFFFFF) % partitions


def partitions_for_keys(keys: Sequence[bytes | None], partitions: int) -> list[int]:
    """Return the partition of each key as `partition_for_key`; -1 for a missing key."""
    if partitions < 1:
        raise InvalidArgument(f"{partitions} partitions: need at least 1", field="partitions")
    return [-1 if key is None else (murmur2(key) & 0x7FFFFFFF) % partitions for key in keys]
