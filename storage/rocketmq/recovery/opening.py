"""Opening of a store: load, examine, decide, and only then change anything.

Owns the order of a start and its report; must not serve requests. A writable start that is refused has changed nothing.

    sizes -> load -> examine -> refuse? -> note topics others deleted -> abort -> copy cut bytes -> repair
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import msgspec

from storage.contract import Clock, StoreOptions
from storage.errors import Corrupt, DamagedStore, IoFailure
from storage.files import HandleCache
from storage.model import Finding, Loss, RecoveryReport
from storage.rocketmq.format import names
from storage.rocketmq.format.checkpoint import Checkpoint
from storage.rocketmq.format.properties import has_crc_property
from storage.rocketmq.index.consume_queue import ConsumeQueue
from storage.rocketmq.index.dispatcher import Builder, BuildOptions, Last
from storage.rocketmq.index.index_coverage import IndexCoverage, record_end
from storage.rocketmq.index.key_index import KeyIndex
from storage.rocketmq.index.key_index_file import wrong_fields, wrong_header
from storage.rocketmq.index.queues import Queue, QueueTable
from storage.rocketmq.log.commit_log import CommitLog, store_time_at
from storage.rocketmq.log.file_sequence import FileSequence
from storage.rocketmq.recovery.evidence import (
    Evidence,
    lost_head_findings,
    missing_config_findings,
    read_evidence,
)
from storage.rocketmq.recovery.examine import IndexFileState, RecoveryContext, examine
from storage.rocketmq.recovery.index_proof import Known, LostFile, known_of
from storage.rocketmq.recovery.losses import moved_record, refused_record
from storage.rocketmq.recovery.plan import StorePlan
from storage.rocketmq.recovery.queue_proof import strayed_findings
from storage.rocketmq.recovery.repair import (
    apply_index,
    apply_log,
    apply_queues,
    build_missing,
    forget_missing_files,
    go_on_above,
    keep_aside,
    raise_queues,
    sync_queues,
)
from storage.rocketmq.recovery.store_files import OpenedStore
from storage.rocketmq.state import live_data
from storage.rocketmq.state.root import IndexProof, ProducerSnapshot, StoreDirectory, StoreFile
from storage.rocketmq.state.settings import Sizes, StoreSettings
from storage.rocketmq.state.topics import TopicFiles
from storage.shared.loss_report import keep_losses
from storage.shared.sequencing import Producers, ProducerState


@dataclass(frozen=True, slots=True, kw_only=True)
class Opening:
    """The inputs of a start. `stored`: the store file of this program; None if it has not taken over the store yet."""

    directory: StoreDirectory
    files: HandleCache
    options: StoreOptions
    settings: StoreSettings
    sizes: Sizes
    stored: StoreFile | None
    topics: TopicFiles
    clock: Clock
    read_only: bool


def open_parts(opening: Opening) -> OpenedStore:
    """Recover the store, and return its parts. Raises DamagedStore if a writable start is refused."""
    started_ms = opening.clock()
    directory = opening.directory
    clean = not directory.is_unclean()
    checkpoint = directory.checkpoint()
    run = load_log(opening.files, directory, opening.sizes)
    queues = _load_queues(opening)
    found_index = _look_at_index(opening, run, clean=clean)
    index = found_index.index
    snapshot = directory.producers()
    context = RecoveryContext(
        run=run,
        queues=queues,
        index_files=found_index.states,
        checkpoint=checkpoint,
        clean=clean,
        ours=opening.stored is not None and (clean or directory.is_left_by_us()),
        read_only=opening.read_only,
        accept_loss=opening.options.accept_loss,
        index_enabled=index is not None,
        index_end=found_index.known.end,
        index_lost=found_index.lost,
        deleted=opening.topics.deleted_records(clean=clean),
        queued=0 if opening.stored is None else opening.stored.queued,
        producers_position=None if snapshot is None else snapshot.physical_offset,
        evidence=_evidence(opening, checkpoint, index),
        passed_gaps=() if opening.stored is None else opening.stored.gaps,
        progress=opening.options.progress,
    )
    plan = examine(context)
    plan.findings += lost_head_findings(run, queues, clean=clean)
    _refuse_damaged(opening, plan)
    opening.topics.take_in_deletions(
        context.deleted.found, log_end=plan.log_end, read_only=opening.read_only
    )
    if not opening.read_only:
        directory.write_abort()
        _keep_losses(directory, plan, started_ms)
    found_end = plan.log_end
    opening.topics.end_deletions_at(found_end, read_only=opening.read_only)
    builder = Builder(queues, index, opening.topics.deleted, _build_options(opening, run))
    built_from = _repair(opening, plan, builder, clean=clean)
    log = CommitLog(run, end=plan.log_end)
    if plan.last_record is not None:
        builder.last = Last(plan.last_record[0], plan.last_record[1].store_timestamp_ms)
    _restore_producers(plan, snapshot, found_end)
    return OpenedStore(
        files=opening.files,
        run=run,
        log=log,
        queues=queues,
        index=index,
        coverage=_coverage(found_index, plan, log, built_from),
        builder=builder,
        checkpoint=_confirmed(checkpoint, plan),
        report=_report(opening, plan, builder, found_index, started_ms, clean=clean),
        with_crc=_goes_on_with_crc(opening.settings, plan),
        passed_gaps=plan.passed_gaps,
        topics=opening.topics,
    )


def _build_options(opening: Opening, run: FileSequence) -> BuildOptions:
    settings = opening.settings
    return BuildOptions(
        with_fillers=run.lacks_first, with_tags=settings.index_tags, delays_ms=settings.delays_ms
    )


def _report(
    opening: Opening,
    plan: StorePlan,
    builder: Builder,
    found_index: _FoundIndex,
    started_ms: int,
    *,
    clean: bool,
) -> RecoveryReport:
    """Return the report: what the start found and did."""
    found = [*_findings(opening, builder, plan), *found_index.findings]
    return RecoveryReport(
        clean_shutdown=clean,
        elapsed_ms=opening.clock() - started_ms,
        partitions=len(plan.queues),
        segments_scanned=len(
            [b for b in plan.run.bases if b + plan.run.file_bytes > plan.accepted_from]
        ),
        bytes_scanned=plan.bytes_scanned,
        indexes_rebuilt=_rebuilt(plan),
        findings=found,
        losses=plan.losses,
    )


def _evidence(opening: Opening, checkpoint: Checkpoint, index: KeyIndex | None) -> Evidence:
    apart = StoreDirectory(
        opening.directory.fs, opening.directory.path, enable_lmq=opening.settings.enable_lmq
    )
    return read_evidence(apart, checkpoint, index)


def _goes_on_with_crc(settings: StoreSettings, plan: StorePlan) -> bool:
    """Return whether new records get a CRC. If no setting says so, the newest record decides.

    A broker that requires the CRC in every record ends its log before the first record without it.
    """
    if settings.append_crc is not None:
        return settings.append_crc
    return plan.last_record is not None and has_crc_property(plan.last_record[1].properties)


def _rebuilt(plan: StorePlan) -> int:
    """Return the number of index files to remove or repair, plus one if queues lack entries."""
    files = len({*plan.doomed_index_files, *plan.doubtful_index_files})
    return int(plan.build_queues_from is not None) + files


def _confirmed(checkpoint: Checkpoint, plan: StorePlan) -> Checkpoint:
    """Return the checkpoint with the last record that recovery walked, as CommitLog.setConfirmOffset does.

    A confirmed position at or after the end of the log becomes 0.
    """
    if plan.last_record is not None:
        return checkpoint._replace(confirm_physical_offset=plan.last_record[0])
    if checkpoint.confirm_physical_offset < plan.log_end:
        return checkpoint
    return checkpoint._replace(confirm_physical_offset=0)


def load_log(files: HandleCache, directory: StoreDirectory, sizes: Sizes) -> FileSequence:
    """Load the files of the commit log as they are on disk."""
    run = FileSequence(
        files,
        directory.commit_log,
        sizes.commit_log_bytes,
        kind=names.COMMIT_LOG,
        folders=directory.log_folders,
    )
    run.load()
    return run


def _load_queues(opening: Opening) -> QueueTable:
    """Load every queue that has a folder or an entry in topics.json, except queues of deleted topics."""
    directory = opening.directory
    queues = QueueTable(
        opening.files,
        directory.consume_queue,
        opening.sizes.consume_queue_bytes,
        batch_topics=opening.topics.batch_topics,
    )
    for topic, info in opening.topics.infos().items():
        for queue_id in info.partitions:
            queues.add(topic, queue_id).units.run.load()
    return queues


def load_index(
    files: HandleCache, directory: StoreDirectory, sizes: Sizes, *, clock: Clock
) -> KeyIndex:
    """Load the files of the key index as they are on disk."""
    index = KeyIndex(
        files,
        directory.index,
        slots=sizes.index_slots,
        entries=sizes.index_entries,
        clock=clock,
    )
    index.load()
    return index


@dataclass(frozen=True, slots=True)
class _FoundIndex:
    """The key index as found on disk, what the last stop stored about it, and which part of that is still valid."""

    index: KeyIndex | None = None
    proof: IndexProof | None = None
    known: Known = field(default_factory=Known)
    states: Sequence[IndexFileState] = ()
    lost: LostFile | None = None
    findings: Sequence[Finding] = ()


def _look_at_index(opening: Opening, run: FileSequence, *, clean: bool) -> _FoundIndex:
    """Load the key index. No state of the index is a reason to refuse a start."""
    if not opening.settings.index_enabled:
        return _FoundIndex()
    directory = opening.directory
    index = load_index(opening.files, directory, opening.sizes, clock=opening.clock)
    proof = directory.index_proof()
    states, wrong = _index_states(index, run, proof, clean=clean)
    known = known_of(proof, CommitLog(run, end=run.limit), index)
    return _FoundIndex(index, proof, known, states, _lost_file(opening, index, known, run), wrong)


def _coverage(
    found: _FoundIndex, plan: StorePlan, log: CommitLog, built_from: int
) -> IndexCoverage | None:
    """Return which ranges of the log the index is known to cover after the repair; None without an index."""
    if found.index is None:
        return None
    covered = known_of(found.proof, log, found.index).covered
    coverage = IndexCoverage(log, found.index, covered, built_from=built_from)
    coverage.exclude((damage.position, damage.next_good or log.end) for damage in plan.damages)
    coverage.exclude_keys(found.known.key_holes)
    coverage.exclude_keys(plan.keys_beside)
    return coverage


def _index_states(
    index: KeyIndex, run: FileSequence, proof: IndexProof | None, *, clean: bool
) -> tuple[list[IndexFileState], list[Finding]]:
    """Return the state of each index file and, after a clean stop, findings about wrong headers.

    Only writing of the last file may have been cut short. A header that cannot be confirmed counts as cut short: the
    file's own entries then show what it holds. A header stored at the last stop of this program is not compared again.
    """
    remembered = {file.name: file.header for file in proof.files} if proof is not None else {}
    files = index.index_files
    states: list[IndexFileState] = []
    findings: list[Finding] = []
    time_of = partial(store_time_at, run)
    for file in files:
        try:
            is_ahead = file.is_blank or (not clean and file is files[-1] and file.is_ahead)
            is_known = remembered.get(file.path.name) == list(file.header)
            wrong = None if is_known else next(wrong_fields(file, time_of), None)
        except (Corrupt, IoFailure) as error:
            index.set_aside(file, error)
            continue
        if clean and wrong is not None:
            findings.append(wrong_header(file, *wrong))
        is_ahead = is_ahead or wrong is not None
        states.append(IndexFileState(file.path.name, file.header, file.is_full, is_ahead))
    return states, findings


def _lost_file(
    opening: Opening, index: KeyIndex, known: Known, run: FileSequence
) -> LostFile | None:
    """Return the first index file that is missing, empty or unreadable. A writable start rebuilds it and all later
    files.

    Files longer than the settings say are left alone: most likely the settings are wrong.
    """
    if index.are_longer or (not index.index_files and opening.stored is None):
        return known.lost
    files = index.index_files
    empty = [file.path for file in files[:-1] if not file.has_entries]
    bad = min((path.name for path in (*index.misfits, *empty)), default=None)
    if bad is None:
        return known.lost
    ends = [file.header.end_physical_offset for file in files if file.path.name < bad]
    lost = LostFile(bad, max(ends, default=run.start))
    return lost if known.lost is None else min(lost, known.lost)


def _refuse_damaged(opening: Opening, plan: StorePlan) -> None:
    refusal = plan.refusal
    if refusal is None or opening.read_only:
        return
    way = "cut there" if plan.damages else "restore the files, or go on above those offsets"
    raise DamagedStore(
        f"{refusal.path}: position {refusal.position}: {refusal.message}. "
        "Nothing but the lock file has been changed. Serve the rest with --read-only, copy it with `logserver "
        f"salvage`, or {way} with --accept-loss",
        path=refusal.path,
        position=refusal.position,
        findings=plan.findings,
    )


def _keep_losses(directory: StoreDirectory, plan: StorePlan, now_ms: int) -> None:
    """Copy what will be cut to a folder next to the store, with a report (JSON, ranges per queue)."""

    def copy(kept_dir: Path) -> Sequence[Loss]:
        keep_aside(plan, kept_dir)
        return plan.losses

    if plan.losses:
        keep_losses(directory.fs, directory.path, now_ms, copy)


def _repair(opening: Opening, plan: StorePlan, builder: Builder, *, clean: bool) -> int:
    """Carry out the plan. Return the position from which the index certainly has all records from now on.

    The index is cut before the log. Otherwise, after a crash in between, an entry that points to a removed log file
    would prove to the next start that records are lost. If the log continues above lost records, that proof is needed
    until the new log file is on disk: the index is then cut afterwards.
    """
    index, cut_at = builder.index, plan.log_end
    forget_missing_files(plan)
    apply_queues(plan)
    index_from = None
    if index is not None and plan.go_on_at is None:
        index_from = apply_index(plan, index, cut_at)
    if not opening.read_only or plan.data_end > plan.log_end:
        apply_log(plan)
    sync_queues(plan, opening.options.repair, opening.options.progress)
    if plan.go_on_at is not None:
        go_on_above(plan, opening.clock(), with_crc=_goes_on_with_crc(opening.settings, plan))
        index_from = None if index is None else apply_index(plan, index, cut_at)
    built_from = _built_from(plan, builder.index, index_from)
    indexed_from = build_missing(
        plan,
        builder,
        index_from,
        progress=opening.options.progress,
    )
    built_from = max(built_from, plan.log_end if indexed_from is None else indexed_from)
    raise_queues(plan)
    for queue in plan.queues:
        head = max(plan.run.start, builder.deleted.get(queue.partition.topic, 0))
        queue.units.start = queue.units.first_at(head)
        if not opening.read_only and not clean:
            queue.units.drop_outlived()  # an interrupted deletion; after a clean stop, log files are missing instead
        queue.next_offset = queue.published = queue.units.end
    return built_from


def _built_from(plan: StorePlan, index: KeyIndex | None, index_from: int | None) -> int:
    """Return where the records begin that this start may index, after those that an index file already has."""
    log = CommitLog(plan.run, end=plan.log_end)
    if index is None or index_from is None:
        return log.end
    first = index_from if plan.index_border_again else record_end(log, index_from)
    ends = [file.header.end_physical_offset for file in index.index_files if file.has_entries]
    first = max(first, *ends) if ends else first  # the last indexed record is put again
    return min(max(first, log.start), log.end)


def _restore_producers(plan: StorePlan, snapshot: ProducerSnapshot | None, found_end: int) -> None:
    """Restore the producers from the snapshot, and then from the log after it. `found_end`: the log's end before the
    repair.
    """
    if snapshot is not None:
        end = min(found_end, snapshot.physical_offset)
        for partition, states in snapshot.by_queue().items():
            queue = plan.queues.get(*partition)
            if queue is not None:
                stored = (_still_stored(plan.run, queue, state, end) for state in states)
                queue.producers = Producers(stored)
    _take_in_sequences(plan)


def _still_stored(run: FileSequence, queue: Queue, state: ProducerState, end: int) -> ProducerState:
    """Return a producer's state without the newest batches that have no record in the log below `end`: a request that
    repeats one of them is a new one.

    They were lost or cut, or are of an earlier topic of this name.
    """
    batches = list(state.batches)
    while batches and not _is_stored(run, queue.units, batches[-1].last_offset, end):
        batches.pop()
    return msgspec.structs.replace(state, batches=batches)


def _is_stored(run: FileSequence, units: ConsumeQueue, offset: int, end: int) -> bool:
    """Return whether a queue entry leads to a record below `end`, or was deleted by age."""
    if offset < units.start:
        return True
    if offset >= units.end:
        return False
    try:
        unit = units.unit(offset)
    except Corrupt:  # a file of the queue is missing
        return True
    at = unit.physical_offset
    return not unit.is_filler and at < end and run.base_of(at) is not None


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


def _findings(opening: Opening, builder: Builder, plan: StorePlan) -> list[Finding]:
    found = list(plan.findings)
    found += live_data.findings(opening.directory, opening.topics.batch_topics)
    found += missing_config_findings(opening.directory)
    if builder.index is not None:
        found += builder.index.findings
    found += [refused_record(plan.run, dispatch) for dispatch in builder.refused]
    found += [moved_record(plan.run, dispatch) for dispatch in builder.moved.values()]
    found += strayed_findings(plan.queues, plan.run, lambda queue: queue.units.start)
    return found
