"""Evidence in the files of a store of offsets that were used: physical offsets of the log, and offsets of its queues.

Owns reading that evidence, comparing it with the log and the queues that exist, and the findings about it; must not
decide how a start reacts, nor write. A log file or a queue's folder missing at the end of the log leaves no hole: only
other files still name the offsets that it held.

    file                       names
    checkpoint                 physical offsets (three), times of the newest record (three)
    index/*                    the physical offset of the newest record that is indexed
    consumequeue/*             for each record its physical offset and its size
    .logserver.*.json          the end of the log; the producers' file also offsets of queues
    config/consumerOffset.json, delayOffset.json      offsets of queues
    .logserver.idempotency     offsets of queues, given to requests with a key

An offset that a torn record at the log end explains is no evidence of loss: such a record is cut as usual. After an
unclean stop this holds for every physical offset in a log file that exists.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

from storage.errors import Corrupt, IoFailure
from storage.findings import finding
from storage.model import Finding, TopicPartition
from storage.request_journal import JOURNAL_FILE, JournalOffsets, journal_offsets
from storage.rocketmq.format import names
from storage.rocketmq.format.checkpoint import Checkpoint
from storage.rocketmq.format.message import MAGIC_PADDING, MAGIC_V1, MAGIC_V2, PADDING_SIZE, peek
from storage.rocketmq.format.queue_entry import UNIT_SIZE
from storage.rocketmq.index.key_index import KeyIndex
from storage.rocketmq.index.queues import Queue, QueueTable
from storage.rocketmq.log.commit_log import record_at
from storage.rocketmq.log.file_sequence import FileSequence
from storage.rocketmq.state.root import StoreDirectory

SHOWN: Final = 4
"""The number of pieces of evidence named in one message."""
QUEUE_ENDS_EARLY: Final = "queue-ends-early"
"""The code of the finding of `lost_offsets_finding`."""
_CHECKPOINT_STARTS: Final = ("logics_physical_offset",)
_CHECKPOINT_ENDS: Final = ("confirm_physical_offset", "master_flushed_offset")
_CHECKPOINT_NAMES: Final = {
    "logics_physical_offset": "logicsPhysicalOffset",
    "confirm_physical_offset": "confirmPhyOffset",
    "master_flushed_offset": "masterFlushedOffset",
}

Key = tuple[str, int]


class UsedPosition(NamedTuple):
    """A byte of the log that was written: its physical offset, and the file and field that name it."""

    path: Path
    name: str
    position: int


class UsedOffset(NamedTuple):
    """A queue offset below which all offsets were given to records, and the file and field that name it.

    `log_end`: a log that reaches this physical offset had the record, so its queue tells the offset; None: not known.
    """

    path: Path
    name: str
    queue: TopicPartition
    next_offset: int
    log_end: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """Offsets that the small files and the index of a store name. Queue entries are read only when needed."""

    checkpoint_path: Path
    checkpoint: Checkpoint
    has_checkpoint: bool = False
    positions: Sequence[UsedPosition] = ()
    # logserver had synced the log up to these before it wrote the file
    synced: Sequence[UsedPosition] = ()
    offsets: Sequence[UsedOffset] = ()
    configured: Mapping[str, int] = field(
        default_factory=dict
    )  # queues by topic in config/topics.json
    unread: Sequence[Finding] = ()  # findings about damaged files that name offsets


@dataclass(frozen=True, slots=True, kw_only=True)
class LogEnd:
    """The end of a log as it was found.

    `torn`: bytes that are not a record follow. `last`: physical offset and store time of the last record. `trusted`:
    logserver wrote the log and was killed; it syncs all records below a group's offset. `next_offset`: returns the
    offset after a queue's last record in the log.
    """

    run: FileSequence
    queues: QueueTable
    end: int
    torn: bool
    clean: bool
    last: tuple[int, int] | None
    trusted: bool = False
    next_offset: Callable[[str, int], int] = field(default=lambda topic, queue_id: 0)


def read_evidence(
    directory: StoreDirectory, checkpoint: Checkpoint, index: KeyIndex | None
) -> Evidence:
    """Collect the offsets that the files name. Unreadable files add nothing: the check of each file reports them.

    `directory` must be a separate object, so that its findings are not reported twice.
    """
    table = directory.topics(read_only=True)
    synced = tuple(_of_synced_log(directory, index))
    journal = journal_offsets(directory.fs, directory.path, clean=not directory.is_unclean())
    return Evidence(
        checkpoint_path=directory.path / names.CHECKPOINT,
        checkpoint=checkpoint,
        has_checkpoint=directory.fs.exists(directory.path / names.CHECKPOINT),
        positions=[
            *_of_checkpoint(directory.path / names.CHECKPOINT, checkpoint),
            *_of_index(index),
            *synced,
            *_of_deletions(directory),
        ],
        synced=synced,
        offsets=[
            *_of_groups(directory),
            *_of_producers(directory),
            *_of_delays(directory),
            *_of_journal(directory, journal),
        ],
        unread=journal.findings,
        configured={
            topic: len(table.info(topic, ()).partitions)
            for topic in table.topics
            if topic not in directory.deleted_topics().unfinished
        },
    )


def _of_checkpoint(path: Path, checkpoint: Checkpoint) -> Iterator[UsedPosition]:
    for name in (*_CHECKPOINT_STARTS, *_CHECKPOINT_ENDS):
        value = getattr(checkpoint, name)
        if value > 0:
            is_end = name in _CHECKPOINT_ENDS
            yield UsedPosition(path, f"{_CHECKPOINT_NAMES[name]} {value}", value - is_end)


def _of_index(index: KeyIndex | None) -> Iterator[UsedPosition]:
    """Yield the newest record of each index file if the header matches the last entry: a header has no checksum."""
    for file in () if index is None else index.index_files:
        last = file.header.end_physical_offset
        with suppress(IoFailure):  # an unreadable file is no evidence
            if file.has_entries and not file.is_blank and file.last_entry_position() == last:
                yield UsedPosition(file.path, f"endPhyOffset {last}", last)


def _of_synced_log(directory: StoreDirectory, index: KeyIndex | None) -> Iterator[UsedPosition]:
    """Yield the newest bytes that logserver's own files name. The log was synced before each of them was written.

    Without an index the facts about it may be older than a cut of the log.
    """
    snapshot = directory.producers()
    proof = None if index is None else directory.index_proof()
    if snapshot is not None and snapshot.physical_offset > 0:
        end = snapshot.physical_offset
        yield UsedPosition(directory.path / names.PRODUCERS_FILE, f"physical_offset {end}", end - 1)
    if proof is not None:
        last = proof.last_record
        yield UsedPosition(directory.path / names.INDEX_FILE, f"last_record {last}", last)


def _of_deletions(directory: StoreDirectory) -> Iterator[UsedPosition]:
    for topic, end in directory.deleted_topics().topics.items():
        if end > 0:
            path = directory.path / names.DELETED_FILE
            yield UsedPosition(path, f"the end {end} of deleted topic {topic}", end - 1)


def _of_producers(directory: StoreDirectory) -> Iterator[UsedOffset]:
    snapshot = directory.producers()
    if snapshot is None:
        return
    path = directory.path / names.PRODUCERS_FILE
    for queue, states in snapshot.by_queue().items():
        for state in states:
            if state.batches:
                last = state.batches[-1].last_offset
                name = f"offset {last} of producer {state.producer_id}"
                yield UsedOffset(path, name, queue, last + 1, snapshot.physical_offset)


def _of_groups(directory: StoreDirectory) -> Iterator[UsedOffset]:
    table = directory.offsets().table
    for group in table.groups():
        for queue, offset in table.of_group(group).items():
            name = f"offset {offset} of group {group}"
            yield UsedOffset(directory.offsets_path, name, queue, offset)


def _of_journal(directory: StoreDirectory, journal: JournalOffsets) -> Iterator[UsedOffset]:
    path = directory.path / JOURNAL_FILE
    for queue, end in journal.ends.items():
        yield UsedOffset(path, f"offset {end - 1} of a request", queue, end)


def _of_delays(directory: StoreDirectory) -> Iterator[UsedOffset]:
    path = directory.config / names.DELAY_OFFSETS
    for level, offset in directory.delay_progress().by_level.items():
        queue = TopicPartition(names.SCHEDULE_TOPIC, level - 1)
        yield UsedOffset(path, f"offset {offset} of delay level {level}", queue, offset)


# ---- physical offsets ----


class LostPositions(NamedTuple):
    """Evidence of records after the log end. `times`: the checkpoint has times later than the last record's."""

    named: Sequence[UsedPosition]
    times: bool

    def __bool__(self) -> bool:
        return bool(self.named) or self.times

    @property
    def highest(self) -> int:
        """The highest physical offset that any file names; -1 if none does."""
        return max((used.position for used in self.named), default=-1)


NOTHING_LOST: Final = LostPositions((), times=False)


def lost_positions(evidence: Evidence, log: LogEnd) -> LostPositions:
    """Return evidence of records after the log end, except positions that a torn record there explains."""
    if is_end_proved(evidence, log):
        return NOTHING_LOST
    torn_end = _torn_end(log)

    def is_lost(position: int) -> bool:
        if position < log.end:
            return False
        if position >= log.run.limit or log.run.base_of(position) is None:
            return True
        return log.clean and position >= torn_end

    used = [used for used in (*evidence.positions, *_of_queues(log)) if is_lost(used.position)]
    if (
        used
        and all(found.path == evidence.checkpoint_path for found in used)
        and _is_last_time(evidence.checkpoint, log)
    ):
        used = []  # the checkpoint's times say that no record followed; its offset has no checksum
    return LostPositions(used, _has_lost_times(evidence, log, torn_end))


def _torn_end(log: LogEnd) -> int:
    """Return the position after the torn bytes at the log end, as far as their data and the record's size show."""
    if not log.torn:
        return log.end
    if log.run.base_of(log.end) is None:
        return log.end  # no file exists: nothing is torn
    end = log.run.data_end(log.end)
    head = log.run.read(log.end, PADDING_SIZE)
    if len(head) == PADDING_SIZE:
        size, magic = peek(head, 0)
        left = log.run.file_end(log.end) - log.end
        if magic in (MAGIC_V1, MAGIC_V2) and 0 < size <= left:
            end = max(end, log.end + size)
    return max(end, log.end + 1)


def _of_queues(log: LogEnd) -> Iterator[UsedPosition]:
    """Yield the last entry of each queue that points after the log end, unless the log has the record with its
    offset elsewhere: then the entry is wrong.
    """
    for queue in log.queues:
        units = queue.units
        if units.last_end <= log.end:
            continue
        offset = units.end - 1
        try:
            unit = units.unit(offset)
        except Corrupt:
            continue
        topic, queue_id = queue.partition
        if unit.is_valid and not unit.is_filler and offset >= log.next_offset(topic, queue_id):
            name = f"{unit.physical_offset} at offset {offset}"
            yield UsedPosition(units.directory, name, unit.physical_offset)


def _is_last_time(checkpoint: Checkpoint, log: LogEnd) -> bool:
    times = (checkpoint.physic_msg_timestamp_ms, checkpoint.logics_msg_timestamp_ms)
    return log.clean and log.last is not None and set(times) == {log.last[1]}


def _has_lost_times(evidence: Evidence, log: LogEnd, torn_end: int) -> bool:
    """Return whether the newest record of the checkpoint, judged by its times alone, is missing in the log."""
    checkpoint = evidence.checkpoint
    if not log.clean or torn_end > log.end:
        return False
    newest = max(
        checkpoint.physic_msg_timestamp_ms,
        checkpoint.logics_msg_timestamp_ms,
        checkpoint.index_msg_timestamp_ms,
    )
    return newest > (0 if log.last is None else log.last[1])


def is_end_proved(evidence: Evidence, log: LogEnd) -> bool:
    """Return whether the checkpoint of a clean stop names the last record of the log, or says that the log has no
    record: then no later record was lost.
    """
    if not log.clean or not evidence.has_checkpoint:
        return False
    if any(used.position >= log.end for used in evidence.synced):
        return False  # the log, its queues and the checkpoint are older than logserver's own files
    if log.last is None:
        return not log.run.bases and evidence.checkpoint == Checkpoint()
    return evidence.checkpoint.logics_physical_offset == log.last[0]


def lost_log_finding(lost: LostPositions, log: LogEnd) -> Finding:
    """Return the finding for a log that ends before records named in other files: a log file or its end is missing."""
    path, position = log.run.place_of(log.end)
    named = [f"{used.path} names {used.name}" for used in lost.named]
    if lost.times:
        named.append("the times in checkpoint are later than the last record's")
    shown = "; ".join(named[:SHOWN]) + (
        f"; {len(named) - SHOWN} more" if len(named) > SHOWN else ""
    )
    what = "the log has no files" if not log.run.bases else f"the log ends at {log.end}"
    return finding(
        "log-ends-early",
        path,
        position=position,
        expected=f"records up to physical offset {lost.highest} at least"
        if lost.named
        else "records up to the times of the checkpoint",
        found=what,
        message=f"{what}, and other files name later records: {shown}",
    )


def newest_record(run: FileSequence, checkpoint: Checkpoint, end: int) -> tuple[int, int] | None:
    """Return (physical offset, store time) of the record that a checkpoint names, if it is the last of a log that ends
    at `end`; None if this is not certain.
    """
    position = checkpoint.logics_physical_offset
    message = record_at(run, position) if position > 0 else None
    if message is None:
        return None
    behind = position + message.size
    if behind < end and run.base_of(behind) is not None:
        head = run.read(behind, PADDING_SIZE)
        is_padded = len(head) == PADDING_SIZE and peek(head, 0)[1] == MAGIC_PADDING
        behind = run.file_end(position) if is_padded else behind
    return (position, message.store_timestamp_ms) if behind >= end else None


# ---- offsets of queues ----


class LostOffsets(NamedTuple):
    """A queue that ends before an offset that another file names as used."""

    queue: TopicPartition
    end: int
    used: UsedOffset
    certain: bool  # records are missing; else the offset may be of an earlier topic of this name


def lost_offsets(evidence: Evidence, log: LogEnd) -> Sequence[LostOffsets]:
    """Return, for each queue of an existing topic, the highest used offset if it is above the queue's end."""
    highest: dict[Key, UsedOffset] = {}
    for used in evidence.offsets:
        key = used.queue.topic, used.queue.partition
        if used.log_end is not None and used.log_end <= log.end:
            continue
        if key not in highest or used.next_offset > highest[key].next_offset:
            highest[key] = used
    topics = {queue.partition.topic for queue in log.queues} | evidence.configured.keys()
    proved = log.trusted or is_end_proved(evidence, log)
    found = []
    for (topic, queue_id), used in highest.items():
        if topic in log.queues.batch_topics or topic not in topics:
            continue
        queue = log.queues.get(topic, queue_id)
        if queue is None and queue_id >= evidence.configured.get(topic, queue_id + 1):
            continue  # the topic has fewer queues now
        end = max(0 if queue is None else queue.units.end, log.next_offset(topic, queue_id))
        if used.next_offset > end:
            whole = proved and (end > 0 or log.run.start == 0)
            found.append(LostOffsets(used.queue, end, used, not whole))
    return found


def lost_offsets_finding(lost: LostOffsets, directory: Path) -> Finding:
    """Return the finding for a queue that ends before a used offset."""
    what = (
        "records of the queue are missing, or its folder is"
        if lost.certain
        else "the log is whole, so the offset is most likely that of an earlier topic of this name"
    )
    return finding(
        QUEUE_ENDS_EARLY,
        directory / lost.queue.topic / str(lost.queue.partition),
        severity="error" if lost.certain else "warning",
        topic=lost.queue.topic,
        partition=lost.queue.partition,
        offset=lost.end,
        expected=f"offsets up to {lost.used.next_offset}",
        found=f"the queue ends at {lost.end}",
        message=f"{lost.used.path} names {lost.used.name}, above the end {lost.end} of the queue: {what}",
    )


def deleted_topic_findings(evidence: Evidence, queues: QueueTable) -> Iterator[Finding]:
    """Yield findings for topics that only committed or journaled offsets name, as after the deletion of a topic."""
    topics = {queue.partition.topic for queue in queues} | evidence.configured.keys()
    first_used: dict[str, UsedOffset] = {}
    for used in evidence.offsets:
        topic = used.queue.topic
        if topic not in topics and topic not in queues.batch_topics and used.next_offset > 0:
            first_used.setdefault(topic, used)
    for topic, used in first_used.items():
        yield finding(
            "name-of-deleted-topic",
            used.path,
            topic=topic,
            message=f"{used.name} is of topic {topic!r}, which has neither queues nor a configuration",
        )


# ---- the head of the log ----


def lost_head_findings(
    run: FileSequence, queues: Iterable[Queue], *, clean: bool
) -> Iterator[Finding]:
    """Yield a finding if the log begins after all records of whole files of a queue: its first files are missing.

    Retention removes such queue files together with the log files, except the last file
    (ConsumeQueue.deleteExpiredFile); it keeps some index files.
    """
    start = run.start
    if not run.bases or start == 0 or not clean:
        return
    kept: list[Path] = []
    for queue in queues:
        units = queue.units
        try:
            first = units.first_at(start) * UNIT_SIZE
        except Corrupt:
            continue
        kept += [
            units.run.path(base)
            for base in units.run.bases[:-1]
            if base + units.run.file_bytes <= first
        ]
    if kept:
        more = f" and {len(kept) - 1} more files" if len(kept) > 1 else ""
        yield finding(
            "log-begins-late",
            run.path(start),
            position=0,
            expected=f"log files before physical offset {start}",
            found="none",
            message=f"{kept[0]}{more} lead only to records before {start}, where the log begins: retention would have "
            "removed them, so log files are missing",
        )


def before_log_findings(run: FileSequence, queues: Iterable[Queue]) -> Iterator[Finding]:
    """Yield a finding for each queue with entries that point before the log start.

    Retention leaves such entries in the first file of a queue. If the first log files are lost, only these entries
    still name their records.
    """
    start = run.start
    for queue in queues if run.bases and start else ():
        units = queue.units
        try:
            first = units.first_at(start)
            last = units.read(first - 1, 1) if first > units.first_offset else ()
        except (Corrupt, IoFailure):
            continue  # reported where the queue is checked
        if not last or last[0].is_filler:
            continue
        topic, queue_id = queue.partition
        yield finding(
            "entries-before-log",
            units.directory,
            topic=topic,
            partition=queue_id,
            offset=units.first_offset,
            message=f"the entries before offset {first} lead to records before physical offset {start}, where the log "
            "begins: retention deleted the records, or the first log files are missing",
        )


def missing_config_findings(directory: StoreDirectory) -> Iterator[Finding]:
    """Yield a finding if topics.json is missing although other files, its `.bak` included, exist in config/."""
    path = directory.config / names.TOPICS
    fs = directory.fs
    if fs.exists(path):
        return
    beside = [n for n in directory.config_files() if not n.endswith(names.TEMPORARY)]
    files = [f"config/{name}" for name in beside]
    if files:
        yield finding(
            "missing-config-file",
            path,
            expected="the broker's topics",
            found="no file",
            message=f"{files[0]} is there, and topics.json is missing: topics without records are lost, and the "
            "configuration of the others",
        )


# ---- log files after the end of the log ----


class FileBehind(NamedTuple):
    """A log file after the end of the log, and its number of data bytes."""

    base: int
    size_bytes: int


def files_behind(run: FileSequence, end: int) -> Iterator[FileBehind]:
    """Yield log files that begin at or after the end of the log and hold data, but not the file that holds the end."""
    for base in run.bases:
        if base < end or base == run.base_of(end):
            continue
        size_bytes = run.data_end_in(base, base) - base
        if size_bytes:
            yield FileBehind(base, size_bytes)


def files_behind_findings(run: FileSequence, end: int, *, clean: bool) -> Iterator[Finding]:
    """Report these files. After an unclean stop they may come from a write that did not finish."""
    for behind in files_behind(run, end):
        yield finding(
            "log-file-behind-end",
            run.path(behind.base),
            severity="error" if clean else "warning",
            position=0,
            expected="zeros",
            found=f"{behind.size_bytes} bytes of data",
            message=f"the log ends at {end}, and this file holds {behind.size_bytes} bytes that no record of the log "
            "leads to: a copy under a wrong name, or log files before it are missing",
        )
