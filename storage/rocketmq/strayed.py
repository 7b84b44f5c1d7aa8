"""Records that may name the wrong queue: the only one of its queue, with the offset that another of the topic lacks.

Owns this judgement; must not read whole queues, nor change what is served. RocketMQ's CRC covers the body only, and a
queue id that was damaged is a likely number. Where the entries of the old queue are left, they contradict it (see
queue_proof); queues that were built from the log alone do not.

    in the log        t-0: 0 1 2 4 5     t-2: 3      the record of t-2 has the offset that t-0 lacks: error
                      t-0: 0 1 2         t-2: 3      the same at the end of t-0: a warning, and only in a log that has
                      t-0: 1 2 3         t-2: 0      all of its files: else retention may have taken the others
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final

from storage.errors import DataError
from storage.findings import finding
from storage.model import Finding, TopicPartition
from storage.rocketmq.commit_log import record_at
from storage.rocketmq.file_run import FileRun
from storage.rocketmq.format.message import Message
from storage.rocketmq.lmq import is_lmq
from storage.rocketmq.queues import Queue, QueueTable

MISSING_BEFORE: Final = 4
"""So many records that are missing before a place are allowed for: entries that were built without them are lower."""


def strayed_findings(
    queues: QueueTable, run: FileRun, begin: Callable[[Queue], int]
) -> Iterator[Finding]:
    """Yield a finding for each such record, once the ends of the queues are known. `begin`: a queue's first offset with
    a record.
    """
    for queue in queues:
        units = queue.units
        if units.is_empty or is_lmq(queue.partition.topic) or not _is_single(queue, begin):
            continue
        others = [q for q in queues.of_topic(queue.partition.topic) if q is not queue]
        message = _record(queue, run, units.end - 1) if others else None
        if message is None or message.queue_offset != units.end - 1:
            continue
        found = _lacking(others, run, message, begin)
        if found is not None:
            lacking, severity = found
            named, expected = queue.partition, lacking.partition
            what = f"it is the only record of {named}, and {expected} lacks its offset {message.queue_offset}"
            yield strayed(run, message, expected, what, severity)


def _is_single(queue: Queue, begin: Callable[[Queue], int]) -> bool:
    """Whether the queue has one entry; not where a file of it cannot be read."""
    try:
        return queue.units.end - begin(queue) == 1
    except DataError:
        return False


def strayed(
    run: FileRun, message: Message, expected: TopicPartition, what: str, severity: str = "error"
) -> Finding:
    """Return the finding for a record that names another queue than it is likely of; `what` says why."""
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


def _lacking(
    others: Iterable[Queue], run: FileRun, message: Message, begin: Callable[[Queue], int]
) -> tuple[Queue, str] | None:
    """The queue that lacks the record, and the severity; one that lacks it between two records goes before others."""
    is_complete = not run.start
    likely: Queue | None = None
    for queue in others:
        if _lacks_between(queue, run, message):
            return queue, "error"
        if likely is None and is_complete and _lacks_at_end(queue, run, message, begin):
            likely = queue
    return None if likely is None else (likely, "warning")


def _lacks_between(queue: Queue, run: FileRun, message: Message) -> bool:
    """Whether the queue goes on with the next offset in the log after the record, and the entry before it leads to the
    one before.
    """
    offset, at = message.queue_offset, message.physical_offset
    for entry in range(offset, max(offset - MISSING_BEFORE, queue.units.start), -1):
        before = _record(queue, run, entry - 1)
        after = _record(queue, run, entry) or _record(queue, run, entry + 1)  # over a filler
        if before is None or after is None:
            continue
        if (before.queue_offset, after.queue_offset) == (offset - 1, offset + 1):
            return before.physical_offset < at < after.physical_offset
    return False


def _lacks_at_end(
    queue: Queue, run: FileRun, message: Message, begin: Callable[[Queue], int]
) -> bool:
    """Whether the queue ends before the offset of the record, or begins after the first one."""
    offset, at = message.queue_offset, message.physical_offset
    units = queue.units
    if offset:
        last = _record(queue, run, units.end - 1)
        return last is not None and last.queue_offset == offset - 1 and last.physical_offset < at
    try:
        first = _record(queue, run, begin(queue))
    except DataError:
        return False
    return first is not None and first.queue_offset == 1 and at < first.physical_offset


def _record(queue: Queue, run: FileRun, offset: int) -> Message | None:
    """The good record of this queue to which an entry leads; None without one."""
    units = queue.units
    if not max(units.start, units.first_offset) <= offset < units.end:
        return None
    try:
        unit = units.unit(offset)
        message = (
            None if unit.is_filler or not unit.is_valid else record_at(run, unit.physical_offset)
        )
    except DataError:
        return None
    if message is None or (message.topic, message.queue_id) != queue.partition:
        return None
    return message
