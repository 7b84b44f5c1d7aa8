"""Whether the entries in a queue's folder are those of this queue: folders may have been swapped, renamed or copied.

Owns the comparison of a queue's newest entry with its record, and the judgement; must not read whole queues. A start
reads one record of each queue. More are read only where that one names another queue:

    entries whose records were read            judgement
    none names this queue, two or more others  the folder is of another queue: made again from the log
    some name this queue                       one record, or its entry, is damaged: the queue stays
    a single one, which names another queue    as in the first line if that queue's entry with this offset is wrong,
                                               else the queue stays, and the other one gets an entry if it has none

Without this such a queue ends where another one does, and offsets that were used are given again.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from storage.errors import DataError
from storage.rocketmq.commit_log import record_at
from storage.rocketmq.file_run import FileRun
from storage.rocketmq.format.message import Message
from storage.rocketmq.lmq import is_in_lmq
from storage.rocketmq.queues import Queue, QueueTable

NEWEST: Final = 8
"""Of so many entries at the end of a queue, the newest that is no filler is compared."""

Key = tuple[str, int]


class Foreign(NamedTuple):
    """Queues whose entries are those of other queues. `doubted`: physical offsets of records that name another queue
    than the only one that has an entry for them; both keep the offset.
    """

    queues: list[Key]
    doubted: frozenset[int]


def foreign_queues(queues: QueueTable, run: FileRun) -> Foreign:
    """Compare each queue, once its end is known, with the records of the log."""
    found: list[Key] = []
    doubted: set[int] = set()
    for queue in queues:
        strangers = list(_strangers(queue, run))
        if not strangers:
            continue
        first = strangers[0]
        owner = queues.get(first.topic, first.queue_id)
        if len(strangers) > 1 or (owner is not None and _is_swapped(owner, run, first)):
            found.append((queue.partition.topic, queue.partition.partition))
        elif owner is None or first.queue_offset >= owner.units.end:
            doubted.add(first.physical_offset)
    return Foreign(found, frozenset(doubted))


def _strangers(queue: Queue, run: FileRun) -> Iterator[Message]:
    """Yield records of other queues to which entries lead; none where one entry leads to a record of the queue."""
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
    """The good record to which an entry leads; None for a filler, and where no such record is."""
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
    """Whether the queue that a record names has the record of yet another queue in its place."""
    at = message.queue_offset
    if not owner.units.first_offset <= at < owner.units.end:
        return False
    found = _record(owner, run, at)
    return found is not None and not _is_of(found, owner)
