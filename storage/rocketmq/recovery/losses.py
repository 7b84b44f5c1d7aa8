"""Reports of a start about damage in the log: findings, what readers lose by a cut, and the owners of bad places.

Owns the wording of these reports, and which record was stored at a bad place: by its queue entry, or by the rest of its
header. An entry outweighs a header, because readers follow the entry. Must not decide about cuts
(storage.rocketmq.recovery.examine does), nor write.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Final, NamedTuple

from storage.errors import Corrupt, DataError, IoFailure
from storage.findings import finding
from storage.model import Finding, Loss
from storage.rocketmq.format.message import FIXED_SIZE_V4, Message, decode_message
from storage.rocketmq.format.queue_entry import UNIT_SIZE
from storage.rocketmq.format.suspect_fields import is_folder_name, suspect_parts
from storage.rocketmq.index.dispatch_request import Dispatch
from storage.rocketmq.index.light_queues import is_lmq
from storage.rocketmq.index.queues import Queue, QueueTable
from storage.rocketmq.log.file_sequence import FileSequence
from storage.rocketmq.recovery.evidence import LogEnd, lost_log_finding, lost_offsets_finding
from storage.rocketmq.recovery.plan import Damage, StorePlan


def add_findings(plan: StorePlan, *, clean: bool, torn: bool, cutting: bool) -> None:
    """Add findings about the log to the plan and, if `cutting`, the losses by the cut at its end.

    `torn`: bytes that are no record follow the end.
    """
    owners = Owners(plan.run, plan.queues)
    plan.findings += [damage_finding(plan.run, damage, owners) for damage in plan.damages]
    plan.findings += _gap_findings(plan.run)
    plan.findings += _broken_findings(plan)
    plan.findings += _evidence_findings(plan, clean=clean, torn=torn)
    if not cutting:
        return
    reason = "missing" if plan.lost else "damaged" if plan.damages else "torn"
    losses = [
        _loss(plan, reason, queue=queue, first_offset=cut)
        for (topic, queue_id), cut in plan.queue_ends.items()
        if (queue := plan.queues.get(topic, queue_id)) is not None
    ]
    if not losses and plan.data_end > plan.log_end and (torn or plan.damages):
        losses = [_loss(plan, reason)]
    if plan.go_on_at is not None:
        losses += _passed(plan, [loss for loss in losses if loss.topic])
    plan.losses += losses
    if losses and not plan.damages and not plan.lost:
        plan.findings.append(_tail_finding(plan, clean=clean))


def _loss(
    plan: StorePlan, reason: str, *, queue: Queue | None = None, first_offset: int = -1
) -> Loss:
    """Return what the readers of a queue lose; without a queue, bytes that are in no queue.

    If nothing is cut off the log, the loss is the entries that are cut off the queue.
    """
    run, position, end = plan.run, plan.log_end, plan.data_end
    if queue is not None and end <= position:
        run, position, end = (
            queue.units.run,
            first_offset * UNIT_SIZE,
            queue.units.end * UNIT_SIZE,
        )
    path, in_file = run.place_of(position)
    size_bytes = end - position
    if queue is None:
        return new_loss(path, in_file, size_bytes, reason)
    offsets = first_offset, queue.units.end
    return new_loss(path, in_file, size_bytes, reason, queue=queue.partition, offsets=offsets)


def new_loss(
    path: Path,
    position: int,
    size_bytes: int,
    reason: str,
    *,
    queue: tuple[str, int] = ("", -1),
    offsets: tuple[int, int | None] = (-1, None),
) -> Loss:
    """Return a loss in a file; `queue` and `offsets` (first, next): of the queue that loses records, if one does."""
    return Loss(
        topic=queue[0],
        partition=queue[1],
        path=str(path),
        position=position,
        size_bytes=size_bytes,
        first_offset=offsets[0],
        next_offset=offsets[1],
        reason=reason,
    )


def _passed(plan: StorePlan, losses: Sequence[Loss]) -> list[Loss]:
    """Return the losses if the log continues above its end.

    These are offsets without an entry, and the bytes of missing log files if no queue accounts for them.
    """
    found = [
        new_loss(
            plan.queues.root / lost.queue.topic / str(lost.queue.partition),
            lost.end * UNIT_SIZE,
            0,
            "missing",
            queue=lost.queue,
            offsets=(lost.end, lost.used.next_offset),
        )
        for lost in plan.lost_offsets
        if lost.certain
    ]
    if not losses and not found and plan.go_on_at is not None:
        path, position = plan.run.place_of(plan.log_end)
        found.append(new_loss(path, position, plan.go_on_at - plan.log_end, "missing"))
    return found


def _evidence_findings(plan: StorePlan, *, clean: bool, torn: bool) -> list[Finding]:
    found = [lost_offsets_finding(lost, plan.queues.root) for lost in plan.lost_offsets]
    if plan.lost:
        log = LogEnd(
            run=plan.run, queues=plan.queues, end=plan.log_end, torn=torn, clean=clean, last=None
        )
        found.insert(0, lost_log_finding(plan.lost, log))
    return found


def damage_finding(run: FileSequence, damage: Damage, owners: Owners) -> Finding:
    """Return the finding for a bad place followed by good records, with the record stored there if it is known."""
    path, position = run.place_of(damage.position)
    topic, partition, offset = owners.of(damage.position, damage.next_good or run.limit) or UNKNOWN
    return finding(
        "damaged-record",
        path,
        position=position,
        topic=topic,
        partition=partition,
        offset=offset,
        expected="a record",
        found=damage.reason,
        message=f"no good record at physical offset {damage.position}, and a good one follows at "
        f"{damage.next_good}",
    )


def _broken_findings(plan: StorePlan) -> list[Finding]:
    return [
        finding(
            "broken-queue",
            plan.queues.root / topic / str(queue_id),
            topic=topic,
            partition=queue_id,
            message="files of the queue are missing or have wrong names, or its entries lead to records of "
            "another queue: the next start rebuilds it from the log",
        )
        for topic, queue_id in plan.broken_queues
    ]


def _gap_findings(run: FileSequence) -> list[Finding]:
    """Return findings for files missing between others. Readers get an error for each of their records."""
    return [
        finding(
            "missing-log-file",
            run.path(before + run.file_bytes),
            position=0,
            expected=f"the log from physical offset {before + run.file_bytes} to {after}",
            found="nothing",
            message="a file is missing between others: its records are lost",
        )
        for before, after in pairwise(run.bases)
        if after != before + run.file_bytes
    ]


def _tail_finding(plan: StorePlan, *, clean: bool) -> Finding:
    path, position = plan.run.place_of(plan.log_end)
    lost = clean and bool(plan.queue_ends)
    return finding(
        "log-ends-early" if lost else "torn-tail",
        path,
        position=position,
        message=f"the log ends at physical offset {plan.log_end}; "
        f"{len(plan.queue_ends)} queues have entries that point after it",
    )


def refused_record(run: FileSequence, dispatch: Dispatch) -> Finding:
    """Return the finding for a record that no queue accepts, because of its offset or its topic."""
    if not is_folder_name(dispatch.topic):
        path, position = run.place_of(dispatch.physical_offset)
        return finding(
            "suspect-header",
            path,
            severity="error",
            position=position,
            topic=dispatch.topic,
            partition=dispatch.queue_id,
            offset=dispatch.queue_offset,
            message="no folder can have the name of this record's topic: the record is in no queue",
        )
    return finding(
        "impossible-queue-offset",
        run.directory,
        position=dispatch.physical_offset,
        topic=dispatch.topic,
        partition=dispatch.queue_id,
        offset=dispatch.queue_offset,
        message=f"the queue offset {dispatch.queue_offset} of this record does not fit the records of its queue around "
        "it: it has no entry in the queue",
    )


def moved_record(run: FileSequence, dispatch: Dispatch) -> Finding:
    """Return the finding for a queue that was built without the offsets of missing records."""
    return finding(
        "unit-offset-differs",
        run.directory,
        position=dispatch.physical_offset,
        topic=dispatch.topic,
        partition=dispatch.queue_id,
        offset=dispatch.queue_offset,
        message="records before this one are missing: it follows them without a gap, as in the real store",
    )


# ---- owners of bad places ----


ADDRESS: Final = frozenset({"topic", "queue_id", "queue_offset", "physical_offset"})
UNKNOWN: Final = (None, None, None)
FILLERS_PASSED: Final = 64
_FAR: Final = 1 << 63


class Owner(NamedTuple):
    """The queue of a record, and the record's offset in it."""

    topic: str
    partition: int
    offset: int


class Owners:
    """Lookup of the owners of bad places in one log. In ascending order of places each entry is read about once."""

    def __init__(self, run: FileSequence, queues: QueueTable) -> None:
        self._run = run
        self._queues = queues
        self._entries: dict[tuple[str, int], _Entries] = {}

    def of(self, start: int, stop: int) -> Owner | None:
        """Return the owner of the first record in [start, stop); None if nothing names it."""
        message = _header(self._run, start)
        if message is None:
            found = self._by_entries(start, stop)
            return None if found is None else found[1]
        queue = self._queues.get(message.topic, message.queue_id)
        entry = None if queue is None else self._entries_of(queue).first(start)
        if entry is not None and entry[0] == start:
            return Owner(message.topic, message.queue_id, entry[1])
        found = self._by_entries(start, start + 1)
        if found is not None:
            return found[1]
        return Owner(message.topic, message.queue_id, message.queue_offset)

    def _by_entries(self, start: int, stop: int) -> tuple[int, Owner] | None:
        """Return the first position in [start, stop) that an entry points to, and the record that was there."""
        lowest, found = stop, None
        for queue in self._queues:
            if is_lmq(queue.partition.topic):
                continue
            entry = self._entries_of(queue).first(start)
            if entry is not None and entry[0] < lowest:
                lowest = entry[0]
                found = lowest, Owner(*queue.partition, entry[1])
        return found

    def _entries_of(self, queue: Queue) -> _Entries:
        return self._entries.setdefault(queue.partition, _Entries(queue))


class _Entries:
    """The entries of one queue. An entry that was found also answers for later positions up to its own."""

    def __init__(self, queue: Queue) -> None:
        self._queue = queue
        self._known_from = _FAR
        self._physical_offset = -1
        self._offset = -1

    def first(self, position: int) -> tuple[int, int] | None:
        """Return (physical offset, queue offset) of the first entry that points to `position` or beyond."""
        if not self._known_from <= position <= self._physical_offset:
            self._known_from = position
            self._physical_offset, self._offset = self._found(position) or (_FAR, -1)
        return None if self._offset < 0 else (self._physical_offset, self._offset)

    def _found(self, position: int) -> tuple[int, int] | None:
        units = self._queue.units
        try:
            offset = units.first_at(position)
            for at in range(offset, min(offset + FILLERS_PASSED, units.end)):
                unit = units.unit(at)
                if not unit.is_filler:
                    right = unit.is_valid and unit.physical_offset >= position
                    return (unit.physical_offset, at) if right else None
        except (Corrupt, IoFailure):  # a file of the queue is missing
            pass
        return None


def _header(run: FileSequence, at: int) -> Message | None:
    """Return the record at a position, whatever its CRC, if its lengths add up and its address is plausible."""
    if run.base_of(at) is None:
        return None
    size = int.from_bytes(run.read(at, 4), "big", signed=True)
    if not FIXED_SIZE_V4 <= size <= run.file_bytes:
        return None
    try:
        message = decode_message(run.read(at, size), check_crc=False)
    except DataError:
        return None
    if not message.in_queue or ADDRESS & set(suspect_parts(message, at)):
        return None
    return message
