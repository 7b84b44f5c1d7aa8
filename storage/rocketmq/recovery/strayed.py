"""Records that may name the wrong queue: the only record of its queue, with an offset that another queue lacks.

Owns this judgement; must not read whole queues, nor change records. RocketMQ's CRC covers the body only, and a damaged
queue id is a plausible number. If the entries of the old queue exist, they contradict it (see queue_proof).
Queues that were built from the log alone do not.

    in the log        t-0: 0 1 2 4 5     t-2: 3      the record of t-2 has the offset that t-0 lacks: error
                      t-0: 0 1 2         t-2: 3      the same at the end of t-0: a warning, and only in a log that has
                      t-0: 1 2 3         t-2: 0      all of its files: else retention may have deleted the others

The check takes time in proportion to the number of queues. Of each queue of a topic the first and the last record are
read at most once, and only if the topic has such a record. More records of a queue are read only if these two, or a
filler, show that records between them are missing.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator
from itertools import chain, groupby, islice
from typing import Final, NamedTuple

from storage.errors import DataError
from storage.findings import finding
from storage.model import Finding, TopicPartition
from storage.rocketmq.format.message import Message
from storage.rocketmq.index.light_queues import is_lmq
from storage.rocketmq.index.queues import Queue, QueueTable
from storage.rocketmq.log.commit_log import record_at
from storage.rocketmq.log.file_sequence import FileRun

MISSING_BEFORE: Final = 4
"""Limit on missing records before a place. Entries that were built without these records are lower."""
LOOKS: Final = 1024
LOOKS_PER_QUEUE: Final = 4
"""Limit on the pairs of queue and offset checked in a topic: LOOKS, or more if it has many queues."""

Begin = Callable[[Queue], int]


def strayed_findings(queues: QueueTable, run: FileRun, begin: Begin) -> Iterator[Finding]:
    """Yield a finding for each such record. The ends of the queues must be known.

    `begin`: returns a queue's first offset with a record.
    """
    for topic, of_topic in groupby(queues, lambda queue: queue.partition.topic):
        filled = [queue for queue in of_topic if not queue.units.is_empty]
        if len(filled) > 1 and not is_lmq(topic):
            yield from _findings([_Entries(queue, run, begin) for queue in filled], run)


def strayed(
    run: FileRun, message: Message, expected: TopicPartition, what: str, severity: str = "error"
) -> Finding:
    """Return the finding for a record that probably belongs to another queue than the one it names; `what` says why."""
    at = message.physical_offset
    base = run.base_of(at) or 0
    return finding(
        "suspect-header",
        run.path(base),
        severity=severity,
        position=at - base,
        topic=message.topic,
        partition=message.queue_id,
        offset=message.queue_offset,
        expected=str(expected),
        found=str(TopicPartition(message.topic, message.queue_id)),
        message=f"no checksum covers the queue id of this record: {what}",
    )


class _Place(NamedTuple):
    """The places of a record: its offset in the queue, and its physical offset."""

    offset: int
    physical_offset: int


class _Entries:
    """A queue and the records read through its entries. Each record is read once."""

    def __init__(self, queue: Queue, run: FileRun, begin: Begin) -> None:
        self.queue = queue
        self._run = run
        self._places: dict[int, _Place | None] = {}
        try:
            self._begin: int | None = begin(queue)
        except DataError:  # a file of the queue cannot be read
            self._begin = None

    @property
    def is_single(self) -> bool:
        """Whether exactly one entry of the queue points into the log."""
        return self._begin is not None and self.queue.units.end - self._begin == 1

    @property
    def first(self) -> _Place | None:
        """The first record of the queue that is in the log."""
        return None if self._begin is None else self.place(self._begin)

    @property
    def last(self) -> _Place | None:
        """The last record of the queue."""
        return self.place(self.queue.units.end - 1)

    def single(self) -> _Place | None:
        """Return the only record of the queue, if its entry has the same offset."""
        last = self.last if self.is_single else None
        return last if last is not None and last.offset == self.queue.units.end - 1 else None

    def place(self, entry: int) -> _Place | None:
        """Return the good record of this queue that an entry points to; None if there is none."""
        if entry not in self._places:
            message = self.message(entry)
            self._places[entry] = (
                None if message is None else _Place(message.queue_offset, message.physical_offset)
            )
        return self._places[entry]

    def message(self, entry: int) -> Message | None:
        """Return the whole record that an entry points to, under the conditions of `place`."""
        units = self.queue.units
        if not max(units.start, units.first_offset) <= entry < units.end:
            return None
        try:
            unit = units.unit(entry)
            message = (
                None
                if unit.is_filler or not unit.is_valid
                else record_at(self._run, unit.physical_offset)
            )
        except DataError:
            return None
        if message is None or (message.topic, message.queue_id) != self.queue.partition:
            return None
        return message

    @property
    def shift(self) -> int | None:
        """The difference of offset and entry, if it is the same for the first and the last record; else None."""
        first, last = self.first, self.last
        if first is None or last is None or self._begin is None:
            return None
        shift = first.offset - self._begin
        return shift if shift == last.offset - (self.queue.units.end - 1) else None

    def within(self, offsets: list[int]) -> list[int]:
        """Return which of the ascending offsets may be missing between two records."""
        low = self.queue.units.start if self._begin is None else self._begin
        high = self.queue.units.end + MISSING_BEFORE
        return offsets[bisect_right(offsets, low) : bisect_left(offsets, high)]

    def may_lack(self, offset: int, strays: Collection[int]) -> bool:
        """Return whether to read more than the records at the two ends.

        If both ends have the same shift, that depends on the entry with this offset. It must be a filler, be invalid,
        or point to one of `strays` (physical offsets of the records in question).
        """
        shift = self.shift
        if shift is None:
            return True
        entry = offset - shift
        if not (0 <= shift < MISSING_BEFORE and entry < self.queue.units.end):
            return False
        try:
            unit = self.queue.units.unit(entry)
        except DataError:
            return False
        return unit.is_filler or not unit.is_valid or unit.physical_offset in strays

    def gap(self, offset: int) -> tuple[int, int] | None:
        """Return the physical offsets of the records around a missing offset; None if no such gap is found."""
        for entry in range(offset, max(offset - MISSING_BEFORE, self.queue.units.start), -1):
            before = self.place(entry - 1)
            if before is None or before.offset != offset - 1:
                continue
            after = self.place(entry) or self.place(entry + 1)  # skip a filler
            if after is not None and after.offset == offset + 1:
                return before.physical_offset, after.physical_offset
        return None


def _findings(of_topic: list[_Entries], run: FileRun) -> Iterator[Finding]:
    """Yield the findings of one topic."""
    singles = [(each, place) for each in of_topic if (place := each.single()) is not None]
    if not singles:
        return
    gaps = _gaps(of_topic, [place for _, place in singles])
    ends = _Ends(of_topic, {place.offset for _, place in singles}) if not run.start else None
    for each, place in singles:
        expected, severity = _between(gaps.get(place.offset, ()), place), "error"
        if expected is None and ends is not None:
            expected, severity = ends.lacking(place), "warning"
        message = None if expected is None else each.message(each.queue.units.end - 1)
        if expected is None or message is None:
            continue
        named = each.queue.partition
        what = f"it is the only record of {named}, and {expected} lacks its offset {place.offset}"
        yield strayed(run, message, expected, what, severity)


class _Gap(NamedTuple):
    """A queue that lacks an offset between two records.

    `number`: the queue's place in the table; `before` and `after`: the physical offsets of the two records.
    """

    number: int
    partition: TopicPartition
    before: int
    after: int


def _between(gaps: Iterable[_Gap], place: _Place) -> TopicPartition | None:
    """Return the first queue that lacks a record at the position in the log where this one is."""
    at = place.physical_offset
    return next((gap.partition for gap in gaps if gap.before < at < gap.after), None)


def _gaps(of_topic: list[_Entries], singles: list[_Place]) -> dict[int, list[_Gap]]:
    """Return, by offset of such a record, the queues that lack it between two records, in the order of the table."""
    offsets = sorted({place.offset for place in singles if place.offset})
    strays = {place.physical_offset for place in singles}
    if not offsets:
        return {}
    longer = [(number, each) for number, each in enumerate(of_topic) if not each.is_single]
    uneven = [item for item in longer if item[1].shift is None]
    even = [item for item in longer if item[1].shift is not None]
    found: defaultdict[int, list[_Gap]] = defaultdict(list)
    looks = max(LOOKS, LOOKS_PER_QUEUE * len(of_topic))
    pairs = ((*item, offset) for item in chain(uneven, even) for offset in item[1].within(offsets))
    for number, each, offset in islice(pairs, looks):
        gap = each.gap(offset) if each.may_lack(offset, strays) else None
        if gap is not None:
            found[offset].append(_Gap(number, each.queue.partition, *gap))
    return {offset: sorted(gaps) for offset, gaps in found.items()}


class _Ends:
    """Queues that lack an offset after their last record, or before their first record.

    For each offset only queues are kept that come first in the table for some position of the log.
    """

    def __init__(self, of_topic: list[_Entries], offsets: set[int]) -> None:
        self._ends: defaultdict[int, list[tuple[int, TopicPartition]]] = defaultdict(list)
        self._begins: list[tuple[int, TopicPartition]] = []
        after = any(offsets)
        for each in of_topic:
            last = each.last if after else None
            if last is not None and last.offset + 1 in offsets:
                _keep(self._ends[last.offset + 1], -last.physical_offset, each.queue.partition)
            first = each.first if 0 in offsets else None
            if first is not None and first.offset == 1:
                _keep(self._begins, first.physical_offset, each.queue.partition)

    def lacking(self, place: _Place) -> TopicPartition | None:
        """Return the first queue that ends before the record, or begins after it."""
        offset, at = place
        kept = self._ends.get(offset, ()) if offset else self._begins
        number = bisect_right(kept, -at if offset else at, key=lambda item: item[0])
        return kept[number][1] if number < len(kept) else None


def _keep(kept: list[tuple[int, TopicPartition]], rank: int, partition: TopicPartition) -> None:
    """Add a queue if its rank is above the rank of all queues before it."""
    if not kept or rank > kept[-1][0]:
        kept.append((rank, partition))
