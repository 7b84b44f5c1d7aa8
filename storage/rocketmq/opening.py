"""Opening a store: load, examine, decide, and only then change anything.

Owns the order of a start and its report; must not serve. A writable start that is refused has
changed nothing.

    sizes -> load -> examine -> refuse? -> abort -> keep a copy of what is cut -> repair
"""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from storage.errors import DamagedStore
from storage.files import HandleCache, write_durably
from storage.interface import Clock, StoreOptions
from storage.model import Finding, RecoveryReport
from storage.rocketmq.commit_log import CommitLog
from storage.rocketmq.directory import StoreDirectory, StoreFile
from storage.rocketmq.dispatch import dispatch_of
from storage.rocketmq.dispatcher import Builder
from storage.rocketmq.file_run import FileRun
from storage.rocketmq.format.checkpoint import Checkpoint
from storage.rocketmq.key_index import KeyIndex
from storage.rocketmq.plan import StorePlan
from storage.rocketmq.queues import QueueTable
from storage.rocketmq.recovery import IndexFileState, RecoveryContext, examine
from storage.rocketmq.repair import (
    apply_index,
    apply_log,
    apply_queues,
    build_missing,
    forget_missing_files,
    keep_aside,
)
from storage.rocketmq.settings import Sizes, StoreSettings
from storage.rocketmq.topic_files import TopicFiles
from storage.sequencing import Producers


@dataclass(frozen=True, slots=True, kw_only=True)
class Opening:
    """How a store is being opened; `stored` is its store file, None when it is not ours yet."""

    directory: StoreDirectory
    files: HandleCache
    options: StoreOptions
    settings: StoreSettings
    sizes: Sizes
    stored: StoreFile | None
    topics: TopicFiles
    clock: Clock
    read_only: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenedStore:
    """The parts of a store that has recovered. `index` is None where it is switched off."""

    log: CommitLog
    queues: QueueTable
    index: KeyIndex | None
    builder: Builder
    checkpoint: Checkpoint  # as it was found, with what recovery confirmed
    report: RecoveryReport


def open_parts(opening: Opening) -> OpenedStore:
    """Recover the store. Raises DamagedStore when a writable start has to be refused."""
    started_ms = opening.clock()
    directory = opening.directory
    clean = not directory.is_unclean()
    checkpoint = directory.checkpoint()
    run = _load_log(opening)
    queues = _load_queues(opening)
    index = _load_index(opening)
    snapshot = directory.producers()
    context = RecoveryContext(
        run=run,
        queues=queues,
        index_files=[] if index is None else _index_states(index),
        checkpoint=checkpoint,
        clean=clean,
        ours=opening.stored is not None and (clean or directory.is_left_by_us()),
        read_only=opening.read_only,
        accept_loss=opening.options.accept_loss,
        index_enabled=index is not None,
        deleted=opening.topics.deleted,
        queued=0 if opening.stored is None else opening.stored.queued,
        producers_position=None if snapshot is None else snapshot.physical_offset,
        progress=opening.options.progress,
    )
    plan = examine(context)
    _refuse_damaged(opening, plan)
    if not opening.read_only:
        directory.write_abort()
        _keep_losses(opening, plan, started_ms)
    opening.topics.end_deletions_at(plan.log_end, read_only=opening.read_only)
    builder = Builder(queues, index, opening.topics.deleted)
    _repair(opening, plan, builder)
    if plan.last_record is not None:
        position, message = plan.last_record
        builder.last = dispatch_of(message, position, with_tags=opening.settings.index_tags)
    if snapshot is not None:
        for partition, states in snapshot.by_queue().items():
            queue = queues.get(*partition)
            if queue is not None:
                queue.producers = Producers(states)
    _take_in_sequences(plan)
    report = RecoveryReport(
        clean_shutdown=clean,
        elapsed_ms=opening.clock() - started_ms,
        partitions=len(queues),
        segments_scanned=len([b for b in run.bases if b + run.file_bytes > plan.accepted_from]),
        bytes_scanned=plan.bytes_scanned,
        indexes_rebuilt=_rebuilt(plan),
        findings=_findings(index, builder, plan),
        losses=plan.losses,
    )
    return OpenedStore(
        log=CommitLog(run, end=plan.log_end),
        queues=queues,
        index=index,
        builder=builder,
        checkpoint=_confirmed(checkpoint, plan),
        report=report,
    )


def _rebuilt(plan: StorePlan) -> int:
    """How many of queues (as one) and index files were not as they should be."""
    files = len({*plan.doomed_index_files, *plan.doubtful_index_files})
    return int(plan.build_queues_from is not None) + files


def _confirmed(checkpoint: Checkpoint, plan: StorePlan) -> Checkpoint:
    """The checkpoint with the last record that recovery walked, as CommitLog.setConfirmOffset."""
    if plan.last_record is None:
        return checkpoint
    return checkpoint._replace(confirm_physical_offset=plan.last_record[0])


def _load_log(opening: Opening) -> FileRun:
    run = FileRun(
        opening.files,
        opening.directory.commit_log,
        opening.sizes.commit_log_bytes,
        kind="commitlog",
    )
    run.load()
    return run


def _load_queues(opening: Opening) -> QueueTable:
    """Every queue that has a folder, or that topics.json tells; a deleted topic's are left out."""
    directory = opening.directory
    queues = QueueTable(opening.files, directory.consume_queue, opening.sizes.consume_queue_bytes)
    for topic, info in opening.topics.infos().items():
        for queue_id in info.partitions:
            queues.add(topic, queue_id).units.run.load()
    return queues


def _load_index(opening: Opening) -> KeyIndex | None:
    if not opening.settings.index_enabled:
        return None
    index = KeyIndex(
        opening.files,
        opening.directory.index,
        slots=opening.sizes.index_slots,
        entries=opening.sizes.index_entries,
        clock=opening.clock,
    )
    index.load()
    return index


def _index_states(index: KeyIndex) -> list[IndexFileState]:
    return [
        IndexFileState(file.path.name, file.header, file.is_full, file.is_blank)
        for file in index.index_files
    ]


def _refuse_damaged(opening: Opening, plan: StorePlan) -> None:
    refusal = plan.refusal
    if refusal is None or opening.read_only:
        return
    raise DamagedStore(
        f"{refusal.path}: position {refusal.position}: {refusal.message}. "
        "Nothing but the lock file has been changed. Serve the rest with --read-only, or cut there with --accept-loss",
        path=refusal.path,
        position=refusal.position,
        findings=plan.findings,
    )


def _keep_losses(opening: Opening, plan: StorePlan, now_ms: int) -> None:
    """Copy what will be cut beside the store, with a report of it (JSON, ranges per queue)."""
    if not plan.losses:
        return
    path, fs = opening.directory.path, opening.directory.fs
    kept_dir = path.parent / f"{path.name}.cut-{now_ms}"
    fs.make_dir(kept_dir)
    keep_aside(plan, kept_dir)
    data = msgspec.json.format(msgspec.json.encode({"store": str(path), "losses": plan.losses}))
    write_durably(fs, kept_dir / "report.json", data)
    fs.sync_dir(kept_dir)
    fs.sync_dir(path.parent)


def _repair(opening: Opening, plan: StorePlan, builder: Builder) -> None:
    forget_missing_files(plan)
    if not opening.read_only or plan.data_end > plan.log_end:
        apply_log(plan)
    apply_queues(plan)
    index_from = None if builder.index is None else apply_index(plan, builder.index)
    build_missing(
        plan,
        builder,
        index_from,
        with_tags=opening.settings.index_tags,
        progress=opening.options.progress,
    )
    for queue in plan.queues:
        head = max(plan.run.start, builder.deleted.get(queue.partition.topic, 0))
        queue.units.start = queue.units.first_at(head)
        queue.next_offset = queue.published = queue.units.end


def _take_in_sequences(plan: StorePlan) -> None:
    for append in plan.sequenced:
        queue = plan.queues.get(append.topic, append.queue_id)
        if (
            queue is not None
            and queue.producers.find_duplicate(append.producer, append.records) is None
        ):
            queue.producers.add(
                append.producer,
                append.records,
                base_offset=append.base_offset,
                timestamp_ms=append.store_timestamp_ms,
            )


def _findings(index: KeyIndex | None, builder: Builder, plan: StorePlan) -> list[Finding]:
    found = list(plan.findings)
    if index is not None:
        found += index.findings
    for dispatch in builder.refused:
        found.append(
            Finding(
                code="impossible-queue-offset",
                severity="error",
                path=str(plan.run.directory),
                position=dispatch.physical_offset,
                topic=dispatch.topic,
                partition=dispatch.queue_id,
                offset=dispatch.queue_offset,
                message="the record's queue offset lies far behind its queue's end",
            )
        )
    return found
