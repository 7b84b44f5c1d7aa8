"""Fixed-size entries in a file that may be preallocated: where the zeros begin, and what lies
before them.

Owns the arithmetic shared by `.index` and `.timeindex`; must not know what an entry means. While
its segment is active such a file is megabytes of zeros behind a few entries, so the tail is skipped
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
    """The position after the last byte that is not zero; 0 when there is none.

    Blocks are compared from the end (a memcmp each: 10 MB of zeros take about a millisecond), then
    the last block that is not all zeros is stripped byte by byte.
    """
    end = len(data)
    while end >= _BLOCK_BYTES and data[end - _BLOCK_BYTES : end] == _ZEROS:
        end -= _BLOCK_BYTES
    start = max(0, end - _BLOCK_BYTES)
    return start + len(data[start:end].rstrip(b"\0"))


def unpack_before(data: bytes, end: int, entry: Struct) -> list[Any]:
    """The whole entries that hold the bytes before `end`: the last of them reaches over it when it
    ends in zeros.

    With s = the entry's size that is ceil(end / s) entries, but no more than floor(len(data) / s).
    """
    count = min(-(-end // entry.size), len(data) // entry.size)
    return list(entry.iter_unpack(memoryview(data)[: count * entry.size]))


def require_end(kind: str, data: bytes, *, position: int, end: int, size_bytes: int) -> None:
    """Raise unless the good entries, which stop at `position`, cover the content, which stops at
    `end`.

    Truncated when what follows is the beginning of one entry, else Corrupt.
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
