"""Fixed-size entries in a file that may be preallocated: where the zeros begin, and the entries
before them.

Owns the arithmetic shared by `.index` and `.timeindex`; must not know the meaning of an entry. While
its segment is active, such a file has megabytes of zeros after a few entries. So the tail is skipped
in blocks, never entry by entry.

    position  bytes     field     note
    0         n * size  entries   an entry's own last bytes may be zero
    n * size  any       zeros     preallocated, absent once the file is trimmed
"""

from __future__ import annotations

from struct import Struct
from typing import Any

from storage.errors import Corrupt, Truncated

_BLOCK_BYTES = 1 << 16
_ZEROS = bytes(_BLOCK_BYTES)


def content_end(data: bytes) -> int:
    """Return the position after the last byte that is not zero; 0 if all bytes are zero.

    Blocks are compared from the end (a memcmp each: 10 MB of zeros take about a millisecond), then
    the last block that is not all zeros is stripped byte by byte.
    """
    end = len(data)
    while end >= _BLOCK_BYTES and data[end - _BLOCK_BYTES : end] == _ZEROS:
        end -= _BLOCK_BYTES
    start = max(0, end - _BLOCK_BYTES)
    return start + len(data[start:end].rstrip(b"\0"))


def unpack_before(data: bytes, end: int, entry: Struct) -> list[Any]:
    """Return the whole entries that contain the bytes before `end`. The last entry may reach past `end`,
    because its own last bytes may be zero.

    With s = the entry's size these are ceil(end / s) entries, but no more than floor(len(data) / s).
    """
    count = min(-(-end // entry.size), len(data) // entry.size)
    return list(entry.iter_unpack(memoryview(data)[: count * entry.size]))


def require_end(kind: str, data: bytes, *, position: int, end: int, size_bytes: int) -> None:
    """Raise unless the good entries, which end at `position`, cover the content, which ends at `end`.

    Raises Truncated if an incomplete entry follows, else Corrupt.
    """
    if end <= position:
        return
    left = len(data) - position
    if left < size_bytes:
        raise Truncated(
            f"{kind}: {left} bytes at position {position}, an entry has {size_bytes}",
            kind=kind,
            position=position,
            needed=size_bytes,
        )
    raise Corrupt(
        f"{kind}: the entry at position {position} does not rise above the one before it",
        kind=kind,
        position=position,
        expected="a rising entry",
        found=data[position : position + size_bytes].hex(),
    )
