"""The start positions of the records of many batches.

Owns the two ways to follow the chains of record lengths, one chain for each batch; must not read a record's content.
Many short chains are followed side by side: the first record of all batches, then the second, and so on. A few long
chains are followed one after another: side by side they would need many steps with little work in each.

    batch 0   r0 -> r1 -> r2 -> r3         step 0: r0 of all three
    batch 1   r0 -> r1                     step 1: r1 of all three
    batch 2   r0 -> r1 -> r2               step 2: r2 of batches 0 and 2 ...
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from storage.kafka.columns.record_fields import read_varints
from storage.kafka.format.record import MIN_RECORD_BYTES
from storage.kafka.format.record_scan import add_positions

if TYPE_CHECKING:
    from collections.abc import Sequence

    from storage.contract import Numbers
    from storage.kafka.columns.record_fields import Bytes

SIDE_BY_SIDE: Final = 100
"""The average number of chains per step from which on following them side by side is faster."""


def find_starts(
    data: bytes, view: Bytes, *, begins: Numbers, ends: Numbers, counts: Numbers
) -> tuple[Numbers, Sequence[int]]:
    """Return (the position of each record, the indexes of batches that their records do not fill exactly).

    Batch i has counts[i] records in data[begins[i] : ends[i]]. The positions are valid only if all batches are filled.
    """
    lying = np.flatnonzero(counts > (ends - begins) // MIN_RECORD_BYTES)
    if lying.size:
        return begins, lying.tolist()
    if counts.sum() < SIDE_BY_SIDE * counts.max():
        return _one_after_another(data, begins, ends, counts)
    return _side_by_side(view, begins, ends, counts)


def _one_after_another(
    data: bytes, begins: Numbers, ends: Numbers, counts: Numbers
) -> tuple[Numbers, Sequence[int]]:
    found: list[int] = []
    batches = zip(begins.tolist(), ends.tolist(), counts.tolist(), strict=True)
    lying = [
        index
        for index, (begin, end, count) in enumerate(batches)
        if not add_positions(found, data, begin, end, count)
    ]
    return np.array(found, np.int64), lying


def _side_by_side(
    view: Bytes, begins: Numbers, ends: Numbers, counts: Numbers
) -> tuple[Numbers, Sequence[int]]:
    longest_first = np.argsort(-counts, kind="stable")
    left = counts[longest_first]
    firsts = (np.cumsum(counts) - counts)[longest_first]
    stops = ends[longest_first]
    at = begins[longest_first].copy()
    found = np.empty(int(counts.sum()), np.int64)
    # For each record number, how many batches have that record: all batches before the first one with fewer records.
    widths = np.searchsorted(-left, -np.arange(int(left[0])), side="left")
    for number, width in enumerate(widths.tolist()):
        found[firsts[:width] + number] = at[:width]
        lengths, after = read_varints(view, at[:width])
        # A length beyond the batch leaves the chain after the batch's end: it cannot return to the end.
        lengths = np.minimum(lengths, stops[:width] + 1)
        at[:width] = after + np.maximum(lengths, 0)
    return found, longest_first[at != stops].tolist()
