"""Queue entries, some of which may be damaged: which of them can be right, and where in the queue a position is.

Owns that judgement, which compares entries with each other; must not read more of a record than its size.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Container, Iterator, Sequence
from itertools import pairwise
from typing import Final

from storage.errors import Corrupt
from storage.rocketmq.format.queue_entry import QueueEntry
from storage.rocketmq.index.consume_queue import ConsumeQueue
from storage.rocketmq.log.commit_log import CommitLog
from storage.rocketmq.queue import UNITS_AT_ONCE, fitting_entries

UNITS_BESIDE: Final = 32  # read on both sides, to judge which of two entries is out of order
UNITS_PROBED: Final = 15  # their median directs a bisection, so that a few damaged ones do not


def judged_units(
    log: CommitLog, units: ConsumeQueue, visible: range, part: range, *, backward: bool
) -> Iterator[tuple[int, QueueEntry, bool]]:
    """Yield (offset, entry, whether it can be right) for a part of the visible offsets, without fillers.

    An entry can be right if it points into the log and its position rises with the positions of most others.
    """
    blocks = range(part.start // UNITS_AT_ONCE, -(-part.stop // UNITS_AT_ONCE))
    order = -1 if backward else 1
    for block in blocks[::order]:
        low = max(part.start, block * UNITS_AT_ONCE)
        high = min(part.stop, (block + 1) * UNITS_AT_ONCE)
        begin = max(visible.start, low - UNITS_BESIDE)
        found = units_as_they_stand(units, begin, min(visible.stop, high + UNITS_BESIDE) - begin)
        right = _right(log, found)
        for offset in range(low, high)[::order]:
            unit = found[offset - begin]
            if not unit.is_filler:
                yield offset, unit, offset - begin in right


def units_as_they_stand(units: ConsumeQueue, offset: int, count: int) -> Sequence[QueueEntry]:
    """Return `count` entries. Each entry of a missing file is replaced by an invalid entry."""
    try:
        return units.read(offset, count)
    except Corrupt:
        if count == 1:
            return [QueueEntry(-1, 0, 0)]
        half = count // 2
        return [
            *units_as_they_stand(units, offset, half),
            *units_as_they_stand(units, offset + half, count - half),
        ]


def offsets_near(units: ConsumeQueue, visible: range, physical_offset: int) -> range:
    """Narrow the visible offsets down to a range around the first record at or after a physical offset.

    Where they exist, the range also has an entry before that position and one at or after it.
    """
    low, high = visible.start, visible.stop
    while high - low > 4 * UNITS_PROBED:
        middle = (low + high) // 2
        probed = units_as_they_stand(units, middle, UNITS_PROBED)
        places = sorted(u.physical_offset for u in probed if u.is_valid and not u.is_filler)
        if not places:
            break
        if places[len(places) // 2] < physical_offset:
            low = middle
        else:
            high = middle + UNITS_PROBED
    return range(low, high)


def _right(log: CommitLog, units: Sequence[QueueEntry]) -> Container[int]:
    """Return which entries can be right.

    Of entries out of order, those where no record of their size begins are rejected, and then as few others as
    possible.
    """
    fitting = fitting_entries(log, units)
    falls = [
        pair
        for pair in pairwise(fitting)
        if units[pair[0]].physical_offset >= units[pair[1]].physical_offset
    ]
    if not falls:
        return range(len(units)) if len(fitting) == len(units) else set(fitting)
    doubtful = {index for pair in falls for index in pair}
    kept = [index for index in fitting if index not in doubtful or _is_record(log, units[index])]
    return _longest_rise(kept, [units[index].physical_offset for index in kept])


def _is_record(log: CommitLog, unit: QueueEntry) -> bool:
    try:
        return log.size_at(unit.physical_offset) == unit.size
    except Corrupt:
        return False


def _longest_rise(indexes: Sequence[int], places: Sequence[int]) -> set[int]:
    """Return the indexes of the longest series of places in which each place is above the one before."""
    least: list[int] = []  # the smallest place that ends a series of this length
    ends: list[int] = []  # the number of that place
    before: list[int] = []  # for each place, the number of the one before it in its series
    for number, place in enumerate(places):
        length = bisect_left(least, place)
        before.append(ends[length - 1] if length else -1)
        least[length : length + 1] = [place]
        ends[length : length + 1] = [number]
    rise = set()
    number = ends[-1] if ends else -1
    while number >= 0:
        rise.add(indexes[number])
        number = before[number]
    return rise
