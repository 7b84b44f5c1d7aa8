"""An index file: a hash table from strings to records, chained by entry number.

Owns the bytes, the hash and the indexed strings; must not know other files of the run.
Big-endian; from RocketMQ's IndexHeader, IndexFile and IndexService.

    position    bytes  field                  note
    0           8      begin timestamp        store time of the first record, ms, i64
    8           8      end timestamp          store time of the last record put
    16          8      begin physical offset  of the first record
    24          8      end physical offset    of the last record put
    32          4      hash slot count        slots in use, i32
    36          4      index count            number of the NEXT entry, i32: begins at 1
    40          4 s    slots                  number of the newest entry of the chain, 0: none
    40 + 4 s    20     entry 0                never used
    ...         20 n   entries

    entry
    0           4      key hash               not negative, i32
    4           8      physical offset        of the record, i64
    12          4      time difference        whole seconds after the begin timestamp, i32
    16          4      previous               entry in the same slot, 0: none

The file does not store the number of slots s and entries n: its length is 40 + 4 s + 20 n. A string's
slot is its hash modulo s. The strings are not stored, so different strings may match the same entry.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

from storage.coding.hashes import java_hash
from storage.errors import InvalidArgument, Truncated

KIND: Final = "index file"
HEADER: Final = struct.Struct(
    ">"
    "q"  # begin timestamp
    "q"  # end timestamp
    "q"  # begin physical offset
    "q"  # end physical offset
    "i"  # hash slot count
    "i"  # index count
)
HEADER_SIZE: Final = 40
assert HEADER.size == HEADER_SIZE
SLOT: Final = struct.Struct(">i")
SLOT_SIZE: Final = 4
assert SLOT.size == SLOT_SIZE
ENTRY: Final = struct.Struct(
    ">"
    "i"  # key hash
    "q"  # physical offset
    "i"  # time difference
    "i"  # previous
)
ENTRY_SIZE: Final = 20
assert ENTRY.size == ENTRY_SIZE

FIRST_ENTRY: Final = 1
DEFAULT_SLOTS: Final = 5_000_000
DEFAULT_ENTRIES: Final = 20_000_000
MAX_SECONDS: Final = 0x7FFFFFFF
TAG_TYPE: Final = "T"
"""The index type of tags: their strings are `topic#T#tag`."""


class IndexHeader(NamedTuple):
    """The first 40 bytes. `index_count` is the number of the next entry."""

    begin_timestamp_ms: int = 0
    end_timestamp_ms: int = 0
    begin_physical_offset: int = 0
    end_physical_offset: int = 0
    hash_slot_count: int = 0
    index_count: int = FIRST_ENTRY


class IndexEntry(NamedTuple):
    """An entry for one string of one record. `previous` is the number of the next older entry of the slot."""

    key_hash: int
    physical_offset: int
    time_diff_s: int
    previous: int


def encode_header(header: IndexHeader) -> bytes:
    """Return the 40 bytes of a header. Raises InvalidArgument for a number that does not fit."""
    try:
        return HEADER.pack(*header)
    except struct.error as error:
        raise InvalidArgument(f"{KIND}: {header} does not fit", field="header") from error


def decode_header(data: bytes, position: int = 0) -> IndexHeader:
    """Return the header at `position`, as it is stored (a new file's count is 0). Raises Truncated."""
    _require(data, position, HEADER_SIZE)
    return IndexHeader._make(HEADER.unpack_from(data, position))


def encode_entry(entry: IndexEntry) -> bytes:
    """Return the 20 bytes of an entry. Raises InvalidArgument for a number that does not fit."""
    try:
        return ENTRY.pack(*entry)
    except struct.error as error:
        raise InvalidArgument(f"{KIND}: {entry} does not fit", field="entry") from error


def decode_entry(data: bytes, position: int = 0) -> IndexEntry:
    """Return the entry at `position`. Raises Truncated."""
    _require(data, position, ENTRY_SIZE)
    return IndexEntry._make(ENTRY.unpack_from(data, position))


def decode_entries(data: bytes) -> list[IndexEntry]:
    """Return all entries in `data`. Raises Truncated if it ends inside an entry."""
    whole = len(data) // ENTRY_SIZE * ENTRY_SIZE
    entries = list(map(IndexEntry._make, ENTRY.iter_unpack(memoryview(data)[:whole])))
    if whole < len(data):
        _require(data, whole, ENTRY_SIZE)
    return entries


def _require(data: bytes, position: int, size_bytes: int) -> None:
    if len(data) - position < size_bytes:
        raise Truncated(
            f"{KIND}: {max(0, len(data) - position)} bytes at position {position}, "
            f"{size_bytes} are needed",
            kind=KIND,
            position=position,
            needed=size_bytes,
        )


def file_size(slots: int, entries: int) -> int:
    """Return the length of a file with this many slots and entries (entry 0 is included)."""
    return HEADER_SIZE + slots * SLOT_SIZE + entries * ENTRY_SIZE


def slot_position(slot: int) -> int:
    """Return the position of a slot, counted from 0."""
    return HEADER_SIZE + slot * SLOT_SIZE


def entry_position(slots: int, number: int) -> int:
    """Return the position of an entry; the first used entry is number 1."""
    return HEADER_SIZE + slots * SLOT_SIZE + number * ENTRY_SIZE


def key_hash(text: str) -> int:
    """Return the hash stored in an entry: the absolute value of Java's hash, or 0 for the one int that has no positive
    counterpart.
    """
    hashed = java_hash(text)
    return abs(hashed) if hashed != -1 << 31 else 0


def time_diff_s(store_timestamp_ms: int, begin_timestamp_ms: int) -> int:
    """Return the time stored in an entry: whole seconds since the header's begin timestamp, within
    [0, 2^31); 0 while there is no begin timestamp.
    """
    if begin_timestamp_ms <= 0 or store_timestamp_ms <= begin_timestamp_ms:
        return 0
    return min((store_timestamp_ms - begin_timestamp_ms) // 1000, MAX_SECONDS)


def index_string(topic: str, key: str, index_type: str | None = None) -> str:
    """Return the string that is indexed for a key of a topic, or for a value of an index type."""
    return f"{topic}#{key}" if index_type is None else f"{topic}#{index_type}#{key}"


def index_keys(topic: str, properties: dict[str, str], *, with_tags: bool = True) -> list[str]:
    """Return the strings indexed for a record, in order: its unique key, each of its keys (repeated keys too), its tag
    (`with_tags`: 5.5.0 indexes it, 4.x does not).
    """
    prefix = topic + "#"
    strings: list[str] = []
    unique_key = properties.get("UNIQ_KEY")
    if unique_key is not None:
        strings.append(prefix + unique_key)
    keys = properties.get("KEYS")
    if keys and " " in keys:
        strings += [prefix + key for key in keys.split(" ") if key]
    elif keys:
        strings.append(prefix + keys)
    tags = properties.get("TAGS")
    if with_tags and tags:
        strings.append(f"{prefix}{TAG_TYPE}#{tags}")
    return strings
