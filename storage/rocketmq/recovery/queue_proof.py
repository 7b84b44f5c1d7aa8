"""Proof that a queue's entries belong to it, that each of its files has its own name, and that its records name it.

Owns the comparison of a few entries with their records, and the judgement; must not read whole queues, nor change
records. Folders and files may have been swapped, renamed or copied. A start reads one record of each queue, and an
entry of each of its files if there are several. It reads more only if that record names another queue or another
offset, or if the files are not in the order of the log:

    entries whose records were read            judgement
    none names this queue, two or more others  the folder is of another queue: rebuilt from the log
    some name this queue                       one record, or its entry, is damaged: the queue stays
    a single one, which names another queue    as in the first line if that queue's entry with this offset is wrong,
                                               else the queue stays, and the other one gets an entry if it has none

A file's name gives the offset of its first entry. If a file was renamed, copied over another or swapped with it, its
entries differ from the offsets in their records. The difference is the same number of whole files for all of them. A
queue that was built without lost records differs too, but not from the beginning of a file on: there the file before it
differs as well.

Without this check such a queue ends where another queue does, and used offsets are assigned again; or its records get
other offsets.

A record may name the wrong queue: RocketMQ's CRC covers the body only, and a damaged queue id is a plausible number. If
the entries of the old queue exist, they contradict it. Queues that were built from the log alone do not:

    in the log        t-0: 0 1 2 4 5     t-2: 3      the record of t-2 has the offset that t-0 lacks: error
                      t-0: 0 1 2         t-2: 3      the same at the end of t-0: a warning, and only in a log that has
                      t-0: 1 2 3         t-2: 0      all of its files: else retention may have deleted the others

That check takes time in proportion to the number of queues. Of each queue of a topic the first and the last record are
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
from storage.rocketmq.format.names import file_name
from storage.rocketmq.format.queue_entry import UNIT_SIZE
from storage.rocketmq.index.light_queues import is_in_lmq, is_lmq, lmq_offsets
from storage.rocketmq.index.queues import Queue, QueueTable
from storage.rocketmq.log.commit_log import record_at
from storage.rocketmq.log.file_sequence import FileSequence

NEWEST: Final = 8
"""Entries searched at the end of a queue, or at either end of a file, for one that is no filler."""

Key = tuple[str, int]


class Foreign(NamedTuple):
    """Queues whose entries belong to other queues.

    - `doubted`: physical offsets of records that name another queue than the only one with an entry for them. Both
      queues keep the offset.
    - `single`: records that name another queue, and are the only record of the queue whose entry points to them.
    """

    queues: list[Key]
    doubted: frozenset[int]
    single: list[tuple[Message, TopicPartition]]


def foreign_queues(queues: QueueTable, run: FileSequence) -> Foreign:
    """Compare each queue with the records of the log. The ends of the queues must be known."""
    found: list[Key] = []
    doubted: set[int] = set()
    single: list[tuple[Message, TopicPartition]] = []
    for queue in queues:
        strangers = list(_strangers(queue, run))
        if not strangers:
            continue
        first = strangers[0]
        owner = queues.get(first.topic, first.queue_id)
        if len(strangers) > 1 or (owner is not None and _is_swapped(owner, run, first)):
            found.append(queue.partition)
            continue
        single.append((first, queue.partition))
        if owner is None or first.queue_offset >= owner.units.end:
            doubted.add(first.physical_offset)
    return Foreign(found, frozenset(doubted), single)


def _strangers(queue: Queue, run: FileSequence) -> Iterator[Message]:
    """Yield records of other queues that entries point to; none if one entry points to a record of its own queue."""
    units = queue.units
    first, end = max(units.start, units.first_offset), units.end
    found: list[Message] = []
    newest = range(end - 1, max(first, end - NEWEST) - 1, -1)
    last = next((message for at in newest if (message := _record(queue, run, at))), None)
    if last is None or _is_of(last, queue):
        return
    found.append(last)
    for at in dict.fromkeys((end - 2, (first + end) // 2, first)):
        message = _record(queue, run, at) if first <= at < end else None
        if message is None or message.physical_offset == last.physical_offset:
            continue
        if _is_of(message, queue):
            return
        found.append(message)
    yield from found


def _record(queue: Queue, run: FileSequence, offset: int) -> Message | None:
    """Return the good record that an entry points to; None for a filler, or if there is no such record."""
    try:
        unit = queue.units.unit(offset)
        if unit.is_filler or not unit.is_valid:
            return None
        return record_at(run, unit.physical_offset)
    except DataError:
        return None


def _is_of(message: Message, queue: Queue) -> bool:
    partition = queue.partition
    return (message.topic, message.queue_id) == partition or is_in_lmq(message, partition)


def _is_swapped(owner: Queue, run: FileSequence, message: Message) -> bool:
    """Return whether the queue that a record names has the record of a third queue at that offset."""
    at = message.queue_offset
    if not owner.units.first_offset <= at < owner.units.end:
        return False
    found = _record(owner, run, at)
    return found is not None and not _is_of(found, owner)


# ---- names of files ----


class Misnamed(NamedTuple):
    """A file of a queue that begins at position `base` by its name, and at `right` by the records of its entries."""

    queue: Queue
    base: int
    right: int

    def finding(self) -> Finding:
        """Return the finding for this file."""
        topic, partition = self.queue.partition
        return finding(
            "wrong-file-name",
            self.queue.units.run.path(self.base),
            severity="warning",
            topic=topic,
            partition=partition,
            offset=self.base // UNIT_SIZE,
            expected=file_name(self.right),
            found=file_name(self.base),
            message=f"the records of its entries say that the file begins at offset {self.right // UNIT_SIZE}: it was "
            "renamed or copied. The next start rebuilds the queue from the log",
        )


def misnamed_files(queues: QueueTable, run: FileSequence) -> Iterator[Misnamed]:
    """Yield the files whose entries belong at another position of their queue. The ends of the queues must be known."""
    for queue in queues:
        for base in queue.units.run.bases if _is_in_doubt(queue, run) else ():
            shift = _shift_of(queue, run, base)
            if shift and shift != _first_shift(queue, run, _newest_before(queue, base)):
                yield Misnamed(queue, base, base + shift * UNIT_SIZE)


def _is_in_doubt(queue: Queue, run: FileSequence) -> bool:
    """Return whether the newest record has another offset than its entry, or the files are not in the order of the log.

    Every other change of names leaves a gap between two files.
    """
    units = queue.units
    if _first_shift(queue, run, _newest_before(queue, units.end * UNIT_SIZE)):
        return True
    last = -1
    for base in units.run.bases[:-1] and units.run.bases:
        first = base // UNIT_SIZE
        places = (_place(queue, at) for at in range(first, min(first + NEWEST, units.end)))
        place = next((found for found in places if found is not None), None)
        if place is not None and place <= last:
            return True
        last = last if place is None else place
    return False


def _place(queue: Queue, offset: int) -> int | None:
    """Return the physical offset that an entry points to; None for a filler or an invalid entry."""
    try:
        unit = queue.units.unit(offset)
    except DataError:
        return None
    return unit.physical_offset if unit.is_valid and not unit.is_filler else None


def _shift_of(queue: Queue, run: FileSequence, base: int) -> int:
    """Return by how much the offsets in the records of a file's entries differ from the entries.

    The result is 0 unless the difference is a number of whole files, and the same for all compared entries.
    """
    units = queue.units
    first, stop = base // UNIT_SIZE, min((base + units.run.file_bytes) // UNIT_SIZE, units.end)
    oldest = range(first, min(first + NEWEST, stop))
    newest = range(stop - 1, max(first, stop - NEWEST) - 1, -1)
    found: set[int] = set()
    for places in (oldest, range((first + stop) // 2, stop)[:1], newest):
        shift = _first_shift(queue, run, places)
        if shift is not None:
            found.add(shift)
        if found and (len(found) > 1 or 0 in found):
            return 0
    shift = found.pop() if found else 0
    return 0 if shift % (units.run.file_bytes // UNIT_SIZE) else shift


def _newest_before(queue: Queue, position: int) -> range:
    """Return the offsets of some entries before a position in the files of a queue, newest first."""
    stop = position // UNIT_SIZE
    return range(stop - 1, max(queue.units.first_offset, stop - NEWEST) - 1, -1)


def _first_shift(queue: Queue, run: FileSequence, places: range) -> int | None:
    return next((s for at in places if (s := _shift_at(queue, run, at)) is not None), None)


def _shift_at(queue: Queue, run: FileSequence, offset: int) -> int | None:
    """Return the offset in an entry's record minus the offset of the entry; None without a record of this queue."""
    message = _record(queue, run, offset)
    if message is None:
        return None
    topic = queue.partition.topic
    if (message.topic, message.queue_id) == queue.partition:
        return message.queue_offset - offset
    in_lmq = lmq_offsets(message).get(topic) if is_in_lmq(message, queue.partition) else None
    return None if in_lmq is None else in_lmq - offset


# ---- records that name the wrong queue ----


MISSING_BEFORE: Final = 4
"""Limit on missing records before a place. Entries that were built without these records are lower."""
LOOKS: Final = 1024
LOOKS_PER_QUEUE: Final = 4
"""Limit on the pairs of queue and offset checked in a topic: LOOKS, or more if it has many queues."""

Begin = Callable[[Queue], int]


def strayed_findings(queues: QueueTable, run: FileSequence, begin: Begin) -> Iterator[Finding]:
    """Yield a finding for each such record. The ends of the queues must be known.

    `begin`: returns a queue's first offset with a record.
    """
    for topic, of_topic in groupby(queues, lambda queue: queue.partition.topic):
        filled = [queue for queue in of_topic if not queue.units.is_empty]
        if len(filled) > 1 and not is_lmq(topic):
            yield from _findings([_Entries(queue, run, begin) for queue in filled], run)


def strayed(
    run: FileSequence,
    message: Message,
    expected: TopicPartition,
    what: str,
    severity: str = "error",
) -> Finding:
    """Return the finding for a record that probably belongs to another queue than the one it names; `what` says why."""
    path, position = run.place_of(message.physical_offset)
    return finding(
        "suspect-header",
        path,
        severity=severity,
        position=position,
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

    def __init__(self, queue: Queue, run: FileSequence, begin: Begin) -> None:
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


def _findings(of_topic: list[_Entries], run: FileSequence) -> Iterator[Finding]:
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
