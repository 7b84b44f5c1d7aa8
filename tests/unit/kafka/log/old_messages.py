"""Messages of format v0 and v1, built by hand from the layout of Kafka's LegacyRecord: our code never writes them."""

from __future__ import annotations

import struct
import zlib

from tests.contract.harness import START_MS


def old_message(offset: int, *, magic: int = 1, value: bytes = b"value") -> bytes:
    """Encode one uncompressed message."""
    key = b"key"
    covered = struct.pack(">bb", magic, 0)
    covered += struct.pack(">q", START_MS + offset) if magic == 1 else b""
    covered += struct.pack(">i", len(key)) + key + struct.pack(">i", len(value)) + value
    body = struct.pack(">I", zlib.crc32(covered)) + covered
    return struct.pack(">qi", offset, len(body)) + body


def old_log(count: int, *, first: int = 0, magic: int = 1) -> bytes:
    """Return `count` consecutive messages."""
    return b"".join(old_message(first + n, magic=magic) for n in range(count))
