"""Proof that a queue's entries belong to it, and that each of its files has its own name.

Owns the comparison of a few entries with their records, and the judgement; must not read whole queues. Folders and
files may have been swapped, renamed or copied. A start reads one record of each queue, and an entry of each of its
files if there are several. It reads more only if that record names another queue or another offset, or if the files are
not in the order of the log:

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
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from storage.errors import DataError
from storage.findings import finding
from storage.model import Finding, TopicPartition
from storage.rocketmq.format.message import Message
from storage.rocketmq.format.names import file_name
from storage.rocketmq.format.queue_entry import UNIT_SIZE
from storage.rocketmq.index.light_queues import is_in_lmq, lmq_offsets
from storage.rocketmq.index.queues import Queue, QueueTable
from storage.rocketmq.log.commit_log import record_at
from storage.rocketmq.log.file_sequence import FileRun

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


def foreign_queues(queues: QueueTable, run: FileRun) -> Foreign:
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
            found.append((queue.partition.topic, queue.partition.partition))
            continue
        single.append((first, queue.partition))
        if owner is None or first.queue_offset >= owner.units.end:
            doubted.add(first.physical_offset)
    return Foreign(found, frozenset(doubted), single)


def _strangers(queue: Queue, run: FileRun) -> Iterator[Message]:
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


def _record(queue: Queue, run: FileRun, offset: int) -> Message | None:
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


def _is_swapped(owner: Queue, run: FileRun, message: Message) -> bool:
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


def misnamed_files(queues: QueueTable, run: FileRun) -> Iterator[Misnamed]:
    """Yield the files whose entries belong at another position of their queue. The ends of the queues must be known."""
    for queue in queues:
        for base in queue.units.run.bases if _is_in_doubt(queue, run) else ():
            shift = _shift_of(queue, run, base)
            if shift and shift != _first_shift(queue, run, _newest_before(queue, base)):
                yield Misnamed(queue, base, base + shift * UNIT_SIZE)


def _is_in_doubt(queue: Queue, run: FileRun) -> bool:
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


def _shift_of(queue: Queue, run: FileRun, base: int) -> int:
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


def _first_shift(queue: Queue, run: FileRun, places: range) -> int | None:
    return next((s for at in places if (s := _shift_at(queue, run, at)) is not None), None)


def _shift_at(queue: Queue, run: FileRun, offset: int) -> int | None:
    """Return the offset in an entry's record minus the offset of the entry; None without a record of this queue."""
    message = _record(queue, run, offset)
    if message is None:
        return None
    topic = queue.partition.topic
    if (message.topic, message.queue_id) == queue.partition:
        return message.queue_offset - offset
    in_lmq = lmq_offsets(message).get(topic) if is_in_lmq(message, queue.partition) else None
    return None if in_lmq is None else in_lmq - offset
