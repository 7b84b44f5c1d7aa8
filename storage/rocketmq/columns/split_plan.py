"""A RocketMQ store, cut into splits: where the log is cut, and which entries of each queue fall between two cuts.

Owns the contract of a Splitter, the content of a split, and both decisions, made from some entries alone; must not read
records. A split is a range of the commit log, and for each queue the run of its entries that point there. Queues decide
which records are rows: records of deleted topics, paddings and prepared messages are in no queue.

The requested queues are sampled: one entry in a fixed number, each standing for as many records of its size. The log is
cut where the samples before add up to one split. One hot queue, and queues in some parts of the log only, thus give
splits of one size. The part of a queue that belongs to a split is then found by bisection.

    log         |       cut        cut              |
    queue 0     u u u u u | u u u u u | u u u u u u u
    queue 1               | u         |            u
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from storage.columns import SPLIT_BYTES, OffsetRange, Split, check_plan
from storage.contract import Clock, StoreOptions
from storage.errors import OffsetOutOfRange, UnknownPartition, UnknownTopic
from storage.files import FileSystem
from storage.model import Bound, Finding, Isolation, OffsetBounds, TimedOffset, TopicPartition
from storage.rocketmq.columns.queue_entries import UNIT_DTYPE, EntryRange, SplitPlan
from storage.rocketmq.columns.tail import TailedQueue, TailedStore
from storage.rocketmq.format.names import is_system_topic
from storage.rocketmq.format.queue_entry import FILLER_SIZE
from storage.rocketmq.index.consume_queue import UNITS_AT_ONCE
from storage.rocketmq.index.queues import Queue
from storage.rocketmq.lookup.by_time import find_time
from storage.rocketmq.recovery.evidence import QUEUE_ENDS_EARLY
from storage.rocketmq.state.root import BACKEND

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from storage.columns import Numbers

SAMPLES: Final = 32  # per split: the accuracy of its size
SAMPLED_TOGETHER: Final = 256  # entries closer than this are read together
UNITS_READ: Final = 1024  # a range of this many entries is read whole, not bisected
UNITS_PROBED: Final = 15  # their median directs the bisection, so that a few damaged ones do not


class Asked(NamedTuple):
    """Offsets [first, end) of one queue, at least one."""

    partition: TopicPartition
    units: TailedQueue
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


def _units(queue: TailedQueue, offset: int, count: int) -> NDArray[np.void]:
    return np.frombuffer(queue.raw(offset, count), UNIT_DTYPE)


def borders(asked: Asked, places: Sequence[int]) -> Sequence[int]:
    """Return, for each ascending position of the log, the first requested offset with a record at or after it.

    The result is ascending even if entries are damaged.
    """
    found: list[int] = []
    _bisect(asked.units, asked.first, asked.end, places, found)
    return found


def _bisect(
    queue: TailedQueue, low: int, high: int, places: Sequence[int], found: list[int]
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


def _places(queue: TailedQueue, offset: int, count: int) -> Numbers:
    """Return the positions that entries point to. Fillers point before all others, as their records would."""
    places: Numbers = _units(queue, offset, count)["position"].astype(np.int64)
    return places


def open_splitter(
    path: Path, options: StoreOptions, *, fs: FileSystem, clock: Clock
) -> RocketMQSplitter:
    """See storage.open_splitter."""
    return RocketMQSplitter(TailedStore(path, options, fs=fs, clock=clock))


class RocketMQSplitter:
    """See Splitter."""

    backend = BACKEND

    def __init__(self, known: TailedStore) -> None:
        self._known = known

    def partitions(self) -> Sequence[TopicPartition]:
        return [queue.partition for queue in self._known.queues]

    def is_internal(self, topic: str) -> bool:
        return is_system_topic(topic)

    def bounds(self, partition: TopicPartition) -> OffsetBounds:
        return self._queue(partition).bounds()

    def offset_for_time(self, partition: TopicPartition, timestamp_ms: int) -> TimedOffset | None:
        """See Splitter. The search is by store time, with the answers of the real store."""
        queue = self._queue(partition)
        end = queue.bounds().end
        return find_time(self._known.log, queue.units, timestamp_ms, end=end, bound=Bound.LOWER)

    def offset_before_time(self, partition: TopicPartition, timestamp_ms: int) -> int:
        """See Splitter. Return the start: lookups use the store time, but the column is the born time."""
        return self._queue(partition).bounds().start

    def plan(
        self,
        ranges: Sequence[OffsetRange],
        *,
        split_bytes: int = SPLIT_BYTES,
        min_splits: int = 1,
        isolation: Isolation = Isolation.READ_UNCOMMITTED,
    ) -> Sequence[Split]:
        """See Splitter. `isolation` changes nothing: a prepared message is in no queue that consumers read."""
        check_plan(split_bytes=split_bytes, min_splits=min_splits)
        asked = [self._asked(wanted) for wanted in ranges if self._checked(wanted)]
        if not asked:
            return []
        cuts = cut_log(
            asked,
            record_bytes=self._record_bytes(),
            split_bytes=split_bytes,
            min_splits=min_splits,
        )
        found = [borders(queue, cuts.places) for queue in asked]
        edges = [
            [queue.first, *inner, queue.end] for queue, inner in zip(asked, found, strict=True)
        ]
        splits = [
            self._split(asked, [(edge[number], edge[number + 1]) for edge in edges], size_bytes)
            for number, size_bytes in enumerate(cuts.size_bytes)
        ]
        return [split for split in splits if split is not None]

    def refresh(self) -> None:
        self._known.refresh()

    def missing(self) -> Sequence[Finding]:
        return [
            found
            for found in self._known.findings
            if found.code == QUEUE_ENDS_EARLY and found.severity == "error"
        ]

    def findings(self) -> Sequence[Finding]:
        return self._known.findings

    def close(self) -> None:
        self._known.close()

    def _queue(self, partition: TopicPartition) -> Queue:
        queue = self._known.queues.get(*partition)
        if queue is None:
            count = len(self._known.queues.of_topic(partition.topic))
            if not count:
                raise UnknownTopic(partition.topic)
            raise UnknownPartition(*partition, partitions=count)
        return queue

    def _checked(self, wanted: OffsetRange) -> bool:
        """Return whether the range has an offset. Raises UnknownTopic, UnknownPartition, OffsetOutOfRange."""
        bounds = self._queue(wanted.partition).bounds()
        for offset in (wanted.start, wanted.end):
            if not bounds.start <= offset <= bounds.end:
                raise OffsetOutOfRange(
                    *wanted.partition, offset=offset, earliest=bounds.start, latest=bounds.end
                )
        return wanted.start < wanted.end

    def _asked(self, wanted: OffsetRange) -> Asked:
        known = self._known.queues.add_known(*wanted.partition)
        return Asked(wanted.partition, known, wanted.start, wanted.end)

    def _record_bytes(self) -> int:
        """Return the mean bytes of the log for each record, including bytes that are no record."""
        log = self._known.log
        records = sum(queue.units.end - queue.units.start for queue in self._known.queues)
        return (log.end - log.start) // max(records, 1) + 1

    def _split(
        self, asked: Sequence[Asked], parts: Sequence[tuple[int, int]], size_bytes: int
    ) -> Split | None:
        """Return the split of these parts of the queues; None if they have no entry."""
        log = self._known.log
        runs = [
            EntryRange(queue.partition, first, end, queue.units.carried(first, end))
            for queue, (first, end) in zip(asked, parts, strict=True)
            if first < end
        ]
        plan = SplitPlan(
            root=str(self._known.path),
            log_file_bytes=log.run.file_bytes,
            queue_file_bytes=self._known.queues.file_bytes,
            log_start=log.start,
            log_end=log.end,
            log_bases=log.run.bases,
            log_folders=[str(folder) for folder in log.run.folders],
            runs=runs,
        )
        return Split(backend=BACKEND, size_bytes=size_bytes, plan=plan) if runs else None
