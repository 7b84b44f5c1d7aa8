"""The hashes of the real servers: Java's String.hashCode, and murmur2, by which Kafka's producers choose partitions.

Owns the arithmetic; must not know the meaning of a text, nor topics. Both servers place entries by Java's hash (groups
in Kafka, keys in RocketMQ's index): h = 31 h + unit over the UTF-16 units in 32 bits. Source of murmur2: Utils.murmur2
and BuiltInPartitioner of Kafka's clients. The key is read as little-endian 32-bit words; the last one to three bytes
are mixed in at the end.

Nearly all hashed text has only units that fit in a byte. Such text is read as two numbers in base 31: a unit is 31 high
+ low, so the hash is 31 number(highs) + number(lows). Python's own number parser then does the loop. It is six times
faster than a loop in Python over 40 characters, and not slower than a compiled loop.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import unpack, unpack_from
from typing import TYPE_CHECKING, Final

from storage.errors import InvalidArgument

if TYPE_CHECKING:
    from mypy_extensions import i64

MASK: Final = 0xFFFFFFFF
SIGN: Final = 0x80000000
BASE: Final = 31
MAX_DIGITS: Final = 640
"""The interpreter may reject numbers with more digits (sys.int_info.str_digits_check_threshold)."""

SEED: Final = 0x9747B28C
FACTOR: Final = 0x5BD1E995

CACHED: Final = 1 << 16  # number of string parts with a cached hash
SUFFIX: Final = 3
SUFFIX_POWER: Final = 31**3
MIDDLE: Final = 8
MIDDLE_POWER: Final = 31**8

_DIGITS: Final = b"0123456789abcdefghijklmnopqrstu"
_HIGH: Final = bytes([_DIGITS[unit // BASE] for unit in range(256)])
_LOW: Final = bytes([_DIGITS[unit % BASE] for unit in range(256)])


def java_hash(text: str) -> int:
    """Return the hash as Java's int: signed, 32 bits. A lone surrogate counts as its UTF-16 unit."""
    try:
        data = text.encode("latin-1")
    except UnicodeEncodeError:
        return _hash_units(text)
    if not 0 < len(data) <= MAX_DIGITS:
        return _hash_units(text)
    high: int = int(data.translate(_HIGH), BASE)
    hashed: int = high * BASE + int(data.translate(_LOW), BASE) & MASK
    return (hashed ^ SIGN) - SIGN


def _hash_units(text: str) -> int:
    """Return the hash of any text, unit by unit."""
    units = text.encode("utf-16-be", "surrogatepass")
    hashed: i64 = 0
    unit: i64
    for unit in unpack(f">{len(units) // 2}H", units):
        hashed = hashed * BASE + unit & MASK
    return (hashed ^ SIGN) - SIGN


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


class KeyHasher:
    """A hasher of strings that often begin alike: h(a + b) = h(a) * 31^len(b) + h(b), in 32 bits.

    A string is split before its last 3 characters, and the part before them again before its last 8. In a
    unique key these parts are the counter and the time; the part before them is the same for all keys of a
    client. A non-ASCII string is hashed as a whole: a character may be two units of UTF-16.
    """

    def __init__(self) -> None:
        self.prefixes: dict[str, int] = {}
        self.suffixes: dict[str, int] = {}
        self._beginnings: dict[str, int] = {}

    def java_hash(self, text: str) -> int:
        """Return Java's hash as 32 bits without a sign."""
        if not text.isascii():
            return java_hash(text) & MASK
        start, end = text[:-SUFFIX], text[-SUFFIX:]
        prefix = self.prefixes.get(start)
        if prefix is None:
            prefix = self._hash_prefix(start)
            _keep(self.prefixes, start, prefix)
        if len(end) < SUFFIX:
            return java_hash(text) & MASK
        suffix = self.suffixes.get(end)
        if suffix is None:
            suffix = java_hash(end) & MASK
            _keep(self.suffixes, end, suffix)
        return prefix * SUFFIX_POWER + suffix & MASK

    def _hash_prefix(self, text: str) -> int:
        start, end = text[:-MIDDLE], text[-MIDDLE:]
        if not start:
            return java_hash(text) & MASK
        beginning = self._beginnings.get(start)
        if beginning is None:
            beginning = java_hash(start) & MASK
            _keep(self._beginnings, start, beginning)
        return beginning * MIDDLE_POWER + java_hash(end) & MASK


def _keep(cache: dict[str, int], text: str, hashed: int) -> None:
    """Cache a hash. A full cache is emptied, since the strings in use change with time."""
    if len(cache) >= CACHED:
        cache.clear()
    cache[text] = hashed
