"""Length-prefixed blobs, and a reader that moves over one part of a buffer; both check lengths against the part's end.

Owns positions; must not know any structure. The prefix is a zig-zag varint; a negative prefix means null.

    position  bytes  field   note
    0         1..10  length  -1: null; 0: empty
    .         n      bytes
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from storage.coding.varint import decode_varint
from storage.errors import Corrupt

if TYPE_CHECKING:
    from mypy_extensions import i64


def decode_blob(data: bytes, position: i64, end: i64) -> tuple[bytes | None, i64]:
    """Return (the bytes or None, next position) of the blob at `position`.

    Raises Corrupt if its length exceeds `end`, before any bytes are copied; Truncated if `data` ends inside the length.
    """
    size_bytes, position = decode_varint(data, position)
    if size_bytes < 0:
        return None, position
    if size_bytes > end - position:
        raise Corrupt(
            f"a length of {size_bytes} reaches over the end",
            kind="blob",
            position=position,
            expected=f"at most {end - position}",
            found=f"{size_bytes}",
        )
    following = position + size_bytes
    return data[position:following], following


class Cursor:
    """A reader of `data[position:end]` from front to back. To check that all bytes were read, compare `position` with
    `end`.
    """

    def __init__(self, data: bytes, position: i64, end: i64) -> None:
        self.data: bytes = data
        self.position: i64 = position
        self.end: i64 = end

    def varint(self) -> i64:
        """Read a zig-zag number. Raises as `decode_varint`."""
        value, self.position = decode_varint(self.data, self.position)
        return value

    def blob(self) -> bytes | None:
        """Read length-prefixed bytes. Raises as `decode_blob`."""
        value, self.position = decode_blob(self.data, self.position, self.end)
        return value
