"""Where the log is cut into splits, and which entries of each queue fall between two cuts.

Owns both decisions, made from some entries alone; must not read records. The requested queues are sampled: one entry in
a fixed number, each standing for as many records of its size. The log is cut where the samples before add up to one
split. One hot queue, and queues in some parts of the log only, thus give splits of one size. The part of a queue that
belongs to a split is then found by bisection.

    log         |       cut        cut              |
    queue 0     u u u u u | u u u u u | u u u u u u u
    queue 1               | u         |            u
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from storage.model import TopicPartition
from storage.rocketmq.columns.queue_entries import UNIT_DTYPE
from storage.rocketmq.columns.tail_queues import KnownQueue
from storage.rocketmq.format.queue_entry import FILLER_SIZE

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from storage.contract import Numbers

SAMPLES: Final = 32  # per split: the accuracy of its size
SAMPLED_TOGETHER: Final = 256  # entries closer than this are read together
UNITS_AT_ONCE: Final = 50_000
UNITS_READ: Final = 1024  # a range of this many entries is read whole, not bisected
UNITS_PROBED: Final = 15  # their median directs the bisection, so that a few damaged ones do not


class Asked(NamedTuple):
    """Offsets [first, end) of one queue, at least one."""

    partition: TopicPartition
    units: KnownQueue
    first: int
    end: int


class Cuts(NamedTuple):
    """The positions of the log where splits begin; the first split begins at the start of the log.

    `size_bytes`: the approximate size of each split, so one more than there are positions.
    """

    places: Sequence[int]
    size_bytes: Sequence[int]


def cut_log(
    asked: Sequence[Asked], *, record_bytes: int, split_bytes: int, min_splits: int
) -> Cuts:
    """Return where to cut, so that each split has about `split_bytes` at most.

    There are `min_splits` splits if there are as many records. `record_bytes`: a mean, which determines the number of
    samples.
    """
    total = sum(end - first for _, _, first, end in asked)
    splits = max(total * record_bytes // split_bytes + 1, min_splits)
    distance = max(total // (splits * SAMPLES), 1)
    samples = [_samples(queue, distance) for queue in asked]
    places = np.concatenate([positions for positions, _ in samples])
    weights = np.concatenate([sizes for _, sizes in samples])
    order = np.argsort(places, kind="stable")
    places, until = places[order], weights[order].cumsum()
    if not len(places):
        return Cuts([], [0])
    splits = min(max(-(-int(until[-1]) // split_bytes), min_splits), len(places))
    at = np.searchsorted(until, np.arange(1, splits) * (until[-1] / splits), side="right")
    steps = np.arange(1, splits)
    at = np.maximum.accumulate(np.maximum(at, steps) - steps) + steps
    at = np.minimum(at, len(places) - splits + steps)
    sizes = np.diff(until[at - 1], prepend=0, append=until[-1])
    return Cuts(places[at].tolist(), sizes.tolist())


def _samples(asked: Asked, distance: int) -> tuple[Numbers, Numbers]:
    """Return (positions, sizes times the records they stand for) of some entries of a queue."""
    _, queue, first, end = asked
    if distance <= SAMPLED_TOGETHER:
        step = UNITS_AT_ONCE // distance * distance
        parts = [
            _units(queue, at, min(step, end - at))[::distance] for at in range(first, end, step)
        ]
    else:
        parts = [_units(queue, at, 1) for at in range(first, end, distance)]
    units = np.concatenate(parts)
    sizes = units["size"].astype(np.int64)
    good = (sizes > 0) & (sizes < FILLER_SIZE) & (units["position"] >= 0)
    return units["position"][good].astype(np.int64), sizes[good] * distance


def _units(queue: KnownQueue, offset: int, count: int) -> NDArray[np.void]:
    return np.frombuffer(queue.raw(offset, count), UNIT_DTYPE)


def borders(asked: Asked, places: Sequence[int]) -> Sequence[int]:
    """Return, for each ascending position of the log, the first requested offset with a record at or after it.

    The result is ascending even if entries are damaged.
    """
    found: list[int] = []
    _bisect(asked.units, asked.first, asked.end, places, found)
    return found


def _bisect(
    queue: KnownQueue, low: int, high: int, places: Sequence[int], found: list[int]
) -> None:
    """Add the borders of these positions, which are all in [low, high]."""
    if not places:
        return
    if high - low <= UNITS_READ:
        positions = np.maximum.accumulate(_places(queue, low, high - low))
        found += (np.searchsorted(positions, places) + low).tolist()
        return
    middle = (low + high) // 2
    probed = np.sort(_places(queue, middle, UNITS_PROBED))
    at = bisect_left(places, int(probed[len(probed) // 2]) + 1)
    _bisect(queue, low, middle + UNITS_PROBED, places[:at], found)
    _bisect(queue, max(middle, found[-1] if found else low), high, places[at:], found)


def _places(queue: KnownQueue, offset: int, count: int) -> Numbers:
    """Return the positions that entries point to. Fillers point before all others, as their records would."""
    places: Numbers = _units(queue, offset, count)["position"].astype(np.int64)
    return places
