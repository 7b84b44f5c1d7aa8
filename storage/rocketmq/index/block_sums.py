"""Checksums over the blocks of a file: a reader of a few bytes can check that they have not changed.

Owns the sums of one file; must not read it. Only blocks that are read get checked, each once.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from typing import Final
from zlib import crc32

BLOCK_BYTES: Final = 1 << 16


class BlockSums:
    """The sums of the first `size_bytes` of a file; the last block may be shorter."""

    def __init__(self, size_bytes: int, sums: bytes) -> None:
        """`sums`: bytes as in `encoded`."""
        self.size_bytes = size_bytes
        self._sums = array("I", sums[: len(sums) // 4 * 4])
        self._checked = bytearray(len(self._sums))

    @classmethod
    def of(cls, size_bytes: int, blocks: Iterable[bytes]) -> BlockSums:
        """Return the sums of a file that consists of these blocks."""
        return cls(size_bytes, array("I", map(crc32, blocks)).tobytes())

    @property
    def encoded(self) -> bytes:
        """The sums of all blocks, four bytes each."""
        return self._sums.tobytes()

    @property
    def is_whole(self) -> bool:
        """Whether there is a sum for each block."""
        return len(self._sums) == -(-self.size_bytes // BLOCK_BYTES)

    def around(self, position: int, size_bytes: int) -> tuple[int, int] | None:
        """Return [start, stop) of the blocks that contain these bytes; None if all of them were checked."""
        first = position // BLOCK_BYTES
        stop = min(-(-(position + size_bytes) // BLOCK_BYTES), len(self._sums))
        if self._checked.find(0, first, stop) < 0:
            return None
        return first * BLOCK_BYTES, min(stop * BLOCK_BYTES, self.size_bytes)

    def fit(self, start: int, data: bytes) -> bool:
        """Return whether whole blocks from `start` on are unchanged; matching blocks are not checked again."""
        first = start // BLOCK_BYTES
        for number in range(first, first + -(-len(data) // BLOCK_BYTES)):
            at = (number - first) * BLOCK_BYTES
            if crc32(data[at : at + BLOCK_BYTES]) != self._sums[number]:
                return False
            self._checked[number] = 1
        return True
