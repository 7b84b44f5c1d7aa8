"""Where the records of many batches begin.

Owns the two ways to follow the chains of lengths, one for each batch; must not look into a record.
Many short chains are followed side by side, the first record of all batches, then the second; few
long ones, whose steps would be too many for what is done in each, one after another.

    batch 0   r0 -> r1 -> r2 -> r3         step 0: r0 of all three
    batch 1   r0 -> r1                     step 1: r1 of all three
    batch 2   r0 -> r1 -> r2               step 2: r2 of batches 0 and 2 ...
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from storage.kafka.format.record import MIN_RECORD_BYTES
from storage.kafka.format.record_positions import add_positions
from storage.kafka.record_fields import read_varints

if TYPE_CHECKING:
    from collections.abc import Sequence

    from storage.columns import Numbers
    from storage.kafka.record_fields import Bytes

SIDE_BY_SIDE: Final = 100
"""Chains that are followed at once, on the average of all steps, from which on that is faster."""


def find_starts(
    data: bytes, view: Bytes, *, begins: Numbers, ends: Numbers, counts: Numbers
) -> tuple[Numbers, Sequence[int]]:
    """(the position of each record, the indexes of batches whose records do not fill them).

    Batch i has counts[i] records in data[begins[i] : ends[i]]. Positions make sense only where all
    batches are filled.
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
    # How many batches have a record of this number: those before the first that has not so many.
    widths = np.searchsorted(-left, -np.arange(int(left[0])), side="left")
    for number, width in enumerate(widths.tolist()):
        found[firsts[:width] + number] = at[:width]
        lengths, after = read_varints(view, at[:width])
        # A length beyond the batch stays there: it cannot come back to its end.
        lengths = np.minimum(lengths, stops[:width] + 1)
        at[:width] = after + np.maximum(lengths, 0)
    return found, longest_first[at != stops].tolist()
