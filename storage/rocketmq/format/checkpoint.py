"""The checkpoint file of a store: the time up to which log, queues and index are on disk.

Owns the bytes only; must not decide when it is written. Big-endian; from RocketMQ's
StoreCheckpoint.

    position  bytes  field                    note
    0         8      physic msg timestamp     store time of the last flushed record, ms, i64
    8         8      logics msg timestamp     store time of the last record in a flushed queue
    16        8      index msg timestamp      end time of the last FULL index file
    24        8      master flushed offset    5.0 and later
    32        8      confirm physical offset  5.3 and later
    40        8      logics physical offset   5.5: start of the last record in a flushed queue
    48        4048   zeros

Older versions write fewer numbers; missing numbers are read as 0.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

from storage.errors import InvalidArgument, Truncated

KIND: Final = "checkpoint"
FILE_SIZE: Final = 4096
_FIELDS: Final = struct.Struct(
    ">"
    "q"  # physic msg timestamp
    "q"  # logics msg timestamp
    "q"  # index msg timestamp
    "q"  # master flushed offset
    "q"  # confirm physical offset
    "q"  # logics physical offset
)
FIELDS_SIZE: Final = 48
assert _FIELDS.size == FIELDS_SIZE
OLDEST_SIZE: Final = 24
"""Size of the three numbers that version 4 writes."""


class Checkpoint(NamedTuple):
    """The six numbers of a checkpoint; 0 means unknown."""

    physic_msg_timestamp_ms: int = 0
    logics_msg_timestamp_ms: int = 0
    index_msg_timestamp_ms: int = 0
    master_flushed_offset: int = 0
    confirm_physical_offset: int = 0
    logics_physical_offset: int = 0


def encode_checkpoint(checkpoint: Checkpoint) -> bytes:
    """Return the whole file, 4096 bytes. Raises InvalidArgument for a number that does not fit 64 bits."""
    for name, value in zip(Checkpoint._fields, checkpoint, strict=True):
        if not -1 << 63 <= value < 1 << 63:
            raise InvalidArgument(f"{name} {value} does not fit 64 bits", field=name)
    return _FIELDS.pack(*checkpoint).ljust(FILE_SIZE, b"\0")


def decode_checkpoint(data: bytes) -> Checkpoint:
    """Return the numbers of a checkpoint file of any version; all 0 for an empty file.

    Bytes after the first 48 are ignored, as in the real store. Raises Truncated for a file that is
    shorter than the oldest form.
    """
    if data and len(data) < OLDEST_SIZE:
        raise Truncated(
            f"{KIND}: {len(data)} bytes, the oldest form has {OLDEST_SIZE}",
            kind=KIND,
            position=len(data),
            needed=OLDEST_SIZE,
        )
    whole = data[: len(data) // 8 * 8][:FIELDS_SIZE]
    return Checkpoint._make(_FIELDS.unpack(whole.ljust(FIELDS_SIZE, b"\0")))
