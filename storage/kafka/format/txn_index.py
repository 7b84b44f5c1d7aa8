"""The `.txnindex` file of a segment: the transactions that have their ABORT marker in this segment.

Owns the bytes only; must not know when a transaction is open. Big-endian; from Kafka's AbortedTxn
and TransactionIndex. The file does not exist before a transaction with data in the partition is
aborted; it is never preallocated.

    position  bytes  field               note
    0         2      version             0, i16
    2         8      producer id         i64
    10        8      first offset        of the transaction's first data batch, i64
    18        8      last offset         of the ABORT marker, i64; strictly rising
    26        8      last stable offset  i64: the smallest first offset of the other transactions open
                                         then, or the offset after the marker
    34        ...    more entries
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

from storage.errors import Corrupt, InvalidArgument, Truncated, UnsupportedFormat

KIND: Final = "transaction index"
VERSION: Final = 0
_ENTRY: Final = struct.Struct(
    ">"
    "h"  # version
    "q"  # producer id
    "q"  # first offset
    "q"  # last offset
    "q"  # last stable offset
)
ENTRY_SIZE: Final = 34
assert _ENTRY.size == ENTRY_SIZE


class AbortedTransaction(NamedTuple):
    """One aborted transaction; offsets are absolute."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


def encode_entry(entry: AbortedTransaction) -> bytes:
    """Encode one entry, 34 bytes. Raises InvalidArgument if no transaction can have such offsets, or a value does
    not fit.
    """
    problem = _problem(entry)
    if problem is not None:
        raise InvalidArgument(f"aborted transaction: {problem}", field="entry")
    try:
        return _ENTRY.pack(VERSION, *entry)
    except struct.error as error:
        raise InvalidArgument(f"aborted transaction: {error}", field="entry") from error


def decode_entries(data: bytes) -> list[AbortedTransaction]:
    """Return all entries of a whole file, in marker order.

    Raises UnsupportedFormat for another version, Corrupt for impossible offsets and Truncated for an
    incomplete entry at the end.
    """
    whole_bytes = len(data) // ENTRY_SIZE * ENTRY_SIZE
    entries: list[AbortedTransaction] = []
    last_offset = -1
    for version, *fields in _ENTRY.iter_unpack(memoryview(data)[:whole_bytes]):
        position = len(entries) * ENTRY_SIZE
        entry = AbortedTransaction(*fields)
        _check(entry, version=version, position=position, after=last_offset)
        entries.append(entry)
        last_offset = entry.last_offset
    if whole_bytes < len(data):
        raise Truncated(
            f"{KIND}: {len(data) - whole_bytes} bytes at position {whole_bytes}, "
            f"an entry has {ENTRY_SIZE}",
            kind=KIND,
            position=whole_bytes,
            needed=ENTRY_SIZE,
        )
    return entries


def _check(entry: AbortedTransaction, *, version: int, position: int, after: int) -> None:
    if version != VERSION:
        raise UnsupportedFormat(
            f"{KIND}: version {version} at position {position}, only {VERSION} is known",
            kind=KIND,
            position=position,
            expected=VERSION,
            found=version,
        )
    problem = _problem(entry)
    if problem is None and entry.last_offset <= after:
        problem = f"last offset {entry.last_offset} is not above {after} of the entry before"
    if problem is not None:
        raise Corrupt(
            f"{KIND}: {problem} (entry at position {position})",
            kind=KIND,
            position=position,
            expected="first offset < last offset, rising",
            found=tuple(entry),
        )


def _problem(entry: AbortedTransaction) -> str | None:
    """Return the reason why an entry is impossible, None if it is valid.

    The marker comes after the data, and the last stable offset is at most the offset after the marker.
    """
    if entry.producer_id < 0:
        return f"producer id {entry.producer_id} is negative"
    if not 0 <= entry.first_offset < entry.last_offset:
        return f"first offset {entry.first_offset} is not in [0, {entry.last_offset})"
    if not 0 <= entry.last_stable_offset <= entry.last_offset + 1:
        limit = entry.last_offset + 1
        return f"last stable offset {entry.last_stable_offset} is not in [0, {limit}]"
    return None
