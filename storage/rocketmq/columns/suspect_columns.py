"""The suspect parts of many records at once.

Owns a quick check of all records of a piece; must not judge the records that it stops at: `format.suspect` decides
whether and where they are suspect. For properties it checks the order of the separators, and whether there is a NUL or
a byte above 7F.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from storage.contract import Slices
from storage.rocketmq.columns.gather import cut
from storage.rocketmq.columns.record_columns import BORN_TIMESTAMP, Records
from storage.rocketmq.format.message import TRANSACTION_MASK, decode_message
from storage.rocketmq.format.suspect import (
    END_OF_TIME_MS,
    KNOWN_FLAGS,
    MAX_PORT,
    MAX_TIMES,
    suspect_parts,
)

if TYPE_CHECKING:
    from typing import TypeAlias

    from numpy.typing import NDArray

    Flags: TypeAlias = NDArray[np.bool_]

PHYSICAL_OFFSET: Final = 28
QUEUE_OFFSET: Final = 20


def suspects(records: Records) -> Slices:
    """Return the suspect parts of each record, with spaces between them; empty for nearly all records."""
    starts = np.zeros(len(records.starts), np.int64)
    lengths = np.zeros_like(starts)
    text = b""
    for row in np.flatnonzero(_doubtful_headers(records) | _doubtful_properties(records)).tolist():
        message = decode_message(records.data, int(records.starts[row]), check_crc=False)
        parts = " ".join(suspect_parts(message, int(records.units.positions[row]))).encode()
        starts[row], lengths[row] = len(text), len(parts)
        text += parts
    return Slices(text, starts, lengths)


def _doubtful_headers(records: Records) -> Flags:
    """Return which records have a number that needs a closer check. Their topics and queue ids match their queues."""
    flags, positions = records.sys_flags, records.units.positions
    doubtful: Flags = records.number(PHYSICAL_OFFSET, ">i8") != positions
    doubtful |= records.number(QUEUE_OFFSET, ">i8") < 0
    doubtful |= (flags < 0) | (flags > KNOWN_FLAGS)
    doubtful |= (flags & ~TRANSACTION_MASK) > 0xFF  # a compression type
    born, stored = records.number(BORN_TIMESTAMP, ">i8"), records.store_timestamps()
    doubtful |= (born < -1) | (born >= END_OF_TIME_MS) | (stored < 0) | (stored >= END_OF_TIME_MS)
    for ports in records.ports():
        doubtful |= ports > MAX_PORT
    times = records.reconsume_times()
    doubtful |= (times < 0) | (times > MAX_TIMES) | (records.prepared_offsets() != 0)
    return doubtful


def _doubtful_properties(records: Records) -> Flags:
    """Return which records have properties that need a closer check.

    In good properties 01 and 02 alternate, with a name before each 01.
    """
    starts, ends = records.property_bounds()
    raw = np.frombuffer(b"".join(cut(records.data, starts, ends)), np.uint8)
    edges = np.zeros(len(starts) + 1, np.int64)
    np.cumsum(ends - starts, out=edges[1:])

    def row_of(places: NDArray[np.intp]) -> NDArray[np.intp]:
        """Return the records that these bytes belong to."""
        return np.searchsorted(edges, places, side="right") - 1

    doubtful = np.zeros(len(starts), np.bool_)
    doubtful[row_of(np.flatnonzero((raw == 0) | (raw > 0x7F)))] = True
    marks = np.flatnonzero((raw == 1) | (raw == 2))
    rows, kinds = row_of(marks), raw[marks]
    before = np.append(np.uint8(2), kinds[:-1])  # a record begins as after an 02
    is_first = np.append(True, rows[1:] != rows[:-1])[: len(rows)]
    before = np.where(is_first, 2, before[: len(rows)])
    is_nameless = (kinds == 1) & ((marks == edges[rows]) | (raw[marks - 1] == 2))
    doubtful[rows[(kinds == before) | is_nameless]] = True
    last_kinds = np.full(len(starts), 2)
    last_kinds[rows] = kinds  # of several marks the last one stays
    is_open = (ends > starts) & (np.append(raw, np.uint8(2))[edges[1:] - 1] != 2)
    doubtful |= is_open & (last_kinds == 2)
    return doubtful
