"""Verification of a store: read all files and report errors.

Owns the order of the checks, the merge of the log ranges, and the check of the checkpoint. files.py checks
names and small files, log_range.py a log range with its queue and index entries, unmatched.py the remaining
entries. Must not repair: the files are checked as they are stored. Memory does not grow with the log: some
numbers for each queue, and one finding for each file and code.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Final

from storage.contract import Counted, Progress, TaskRunner, no_progress, not_counted, run_serially
from storage.findings import finding
from storage.model import FileCount, Finding
from storage.rocketmq.format.queue_entry import UNIT_SIZE
from storage.rocketmq.recovery.evidence import (
    LogEnd,
    before_log_findings,
    deleted_topic_findings,
    files_behind_findings,
    lost_head_findings,
    lost_log_finding,
    lost_offsets,
    lost_offsets_finding,
    lost_positions,
    missing_config_findings,
    newest_record,
)
from storage.rocketmq.recovery.queue_proof import misnamed_files, strayed_findings
from storage.rocketmq.state import live_data
from storage.rocketmq.state.file_listing import unread_findings
from storage.rocketmq.tools.compacted.rows import check_compacted
from storage.rocketmq.tools.log_tasks import Reached, in_order
from storage.rocketmq.tools.snapshot import StoreSnapshot, snapshot_of
from storage.rocketmq.tools.unrecovered import UnrecoveredStore
from storage.rocketmq.tools.verify import files
from storage.rocketmq.tools.verify.index import without_tags
from storage.rocketmq.tools.verify.log_range import RangeResult, check_range
from storage.rocketmq.tools.verify.queues import Key, QueueState, Range, at_first
from storage.rocketmq.tools.verify.unmatched import check_file_of_index, check_rest, rest_parts
from storage.shared.diagnostics import Meter, Notes, Tallies

WHAT: Final = "verifying"


def check_store(
    raw: UnrecoveredStore,
    progress: Progress = no_progress,
    *,
    run: TaskRunner = run_serially,
    counted: Counted = not_counted,
) -> Iterator[Finding]:
    """Yield every finding: of names and small files, of the log, then of queues and index by file. `run` executes the
    log ranges.
    """
    notes = Notes()
    notes.add(*raw.findings)
    notes.add(*files.check_names(raw))
    notes.add(*files.check_small_files(raw))
    notes.add(*live_data.findings(raw.directory, raw.queues.batch_topics))
    notes.add(*check_compacted(raw.files, raw.root))
    notes.add(*(found.finding() for found in misnamed_files(raw.queues, raw.run)))
    begin = raw.run.start
    notes.add(*strayed_findings(raw.queues, raw.run, lambda queue: queue.units.first_at(begin)))
    if not raw.clean:
        notes.add(_unclean(raw))
    yield from notes.take()
    if live_data.dledger_folders(raw.directory):
        return  # queues and index refer to DLedger's log, which is not read
    snapshot = snapshot_of(raw)
    log = _Log(raw, notes)
    for _ in log.read(snapshot, run, progress):
        yield from notes.take()
    tallies = log.tallies
    rest = rest_parts(log.unmatched(), log.reached.index, log_end=log.end, gaps=log.reached.gaps)
    for of_rest in run(partial(check_rest, snapshot), rest):
        tallies.merge(of_rest)
    for of_file, count in run(
        partial(check_file_of_index, snapshot), range(len(snapshot.index_paths or ()))
    ):
        tallies.merge(of_file)
        counted(count)
    notes.add(*_check_checkpoint(raw, log))
    notes.add(*_check_evidence(raw, log))
    yield from notes.take()
    for count in log.counts():
        counted(count)
    yield from tallies.all()
    notes.add(*unread_findings(raw.fs))
    yield from notes.take()


def _unclean(raw: UnrecoveredStore) -> Finding:
    return finding(
        "unclean-stop",
        raw.root,
        message="the file abort exists: a server is running, or the next start recovers the store",
    )


class _Log:
    """The results of the log ranges, merged in log order."""

    def __init__(self, raw: UnrecoveredStore, notes: Notes) -> None:
        self.reached = Reached()
        self.end = raw.run.start
        self.latest_ms = 0
        self.first_missing: int | None = None
        self._raw = raw
        self._notes = notes
        self._tallies = Tallies()
        self._early = Tallies()  # tags missing in the index before the first tag was found
        self._keys_met = self._tags_met = False
        self._unmatched: dict[Key, list[Range]] = {}
        self._counts: dict[int, tuple[int, int]] = {}

    def read(self, snapshot: StoreSnapshot, run: TaskRunner, progress: Progress) -> Iterator[None]:
        """Read the whole log. Yields after each range, so that the caller can report findings early."""
        log = self._raw.run
        meter = Meter(progress, WHAT, log.limit - log.start)
        here = run is run_serially  # then a part reports its own progress
        work = partial(check_range, snapshot, meter=meter if here else None)
        for result in in_order(log, run, work, self.reached, self._fits):
            self._take(result)
            if not here:
                meter.reach(self.end - log.start)
            yield

    def _fits(self, result: RangeResult) -> bool:
        """Return whether the state that a part guessed equals the state reached."""
        return result.index_began == self.reached.index and all(
            state == self.state(key) for key, state in result.began.items()
        )

    def state(self, key: Key) -> QueueState:
        """Return the checked state of a queue."""
        known = self.reached.queues.get(key)
        queue = self._raw.queues.get(*key)
        return known or (QueueState(0) if queue is None else at_first(queue))

    def next_offset(self, topic: str, queue_id: int) -> int:
        """Return the offset after the last record of a queue in the log, with or without an entry; 0 without one."""
        known = self.reached.queues.get((topic, queue_id))
        return 0 if known is None else known.following or 0

    def _take(self, result: RangeResult) -> None:
        self.end = result.end
        self._notes.add(*result.notes)
        self._tallies.merge(result.tallies)
        (self._tallies if self._tags_met else self._early).merge(result.early)
        self._keys_met |= result.keys_met
        self._tags_met |= result.tags_met
        for key, ranges in result.unmatched.items():
            self._unmatched.setdefault(key, []).extend(ranges)
        if self.first_missing is None:
            self.first_missing = result.first_missing
        self.latest_ms = max(self.latest_ms, result.latest_ms)
        for base, (records, size_bytes) in result.counts.items():
            before = self._counts.get(base, (0, 0))
            self._counts[base] = before[0] + records, before[1] + size_bytes

    @property
    def tallies(self) -> Tallies:
        """Findings in the log, and between the log and the files derived from it."""
        tagless = without_tags(self._early)
        if tagless is not None and self._keys_met and not self._tags_met:
            self._tallies.add(tagless)
        return self._tallies

    def unmatched(self) -> Iterator[tuple[Key, Range]]:
        """Yield the ranges of entries of every queue for which no record was met."""
        queues = {queue.partition: queue for queue in self._raw.queues}
        for key, queue in queues.items():
            for passed in self._unmatched.get(key, ()):
                yield key, passed
            yield key, (self.state(key).next_offset, queue.units.end)

    def counts(self) -> Iterator[FileCount]:
        """Yield records and bytes of each log file, then entries and bytes of each queue file."""
        run = self._raw.run
        for base in run.bases:
            yield FileCount(str(run.path(base)), None, None, *self._counts.get(base, (0, 0)))
        for queue in self._raw.queues:
            units = queue.units.run
            for base in units.bases:
                used = max(min(queue.units.end * UNIT_SIZE - base, units.file_bytes), 0)
                path = str(units.path(base))
                entries = used // UNIT_SIZE
                yield FileCount(path, *queue.partition, entries, used, is_log=False)


def _check_checkpoint(raw: UnrecoveredStore, log: _Log) -> Iterator[Finding]:
    checkpoint, latest_ms, end = raw.checkpoint, log.latest_ms, log.end
    facts = [
        ("logicsPhysicalOffset", checkpoint.logics_physical_offset, end, "the end of the log"),
        ("confirmPhyOffset", checkpoint.confirm_physical_offset, end + 1, "the end of the log"),
        ("physicMsgTimestamp", checkpoint.physic_msg_timestamp_ms, latest_ms + 1, "the log"),
        ("logicsMsgTimestamp", checkpoint.logics_msg_timestamp_ms, latest_ms + 1, "the log"),
    ]
    if raw.index is not None and raw.index.index_files:
        ends_ms = max(file.header.end_timestamp_ms for file in raw.index.index_files)
        index_ms = checkpoint.index_msg_timestamp_ms
        facts.append(("indexMsgTimestamp", index_ms, ends_ms + 1, "the index"))
    for field, value, limit, what in facts:
        if value >= limit and value > 0:
            yield _ahead(raw, f"{field} below {limit}", f"{value}", f"{field} is ahead of {what}")
    missing = log.first_missing
    if missing is not None and 0 < checkpoint.logics_physical_offset >= missing:
        reached = f"{checkpoint.logics_physical_offset}"
        what = "the checkpoint is ahead of the queues: a record before it has no queue entry"
        yield _ahead(raw, f"logicsPhysicalOffset below {missing}", reached, what)


def _check_evidence(raw: UnrecoveredStore, log: _Log) -> Iterator[Finding]:
    """Yield findings for records and offsets that other files refer to, but neither the log nor the queues have."""
    last = newest_record(raw.run, raw.checkpoint, log.end)
    end = LogEnd(
        run=raw.run,
        queues=raw.queues,
        end=log.end,
        torn=raw.run.data_end(log.end) > log.end,
        clean=raw.clean,
        last=last or (log.end - 1, log.latest_ms),
        trusted=not raw.clean and raw.is_ours,
        next_offset=log.next_offset,
    )
    evidence = raw.read_evidence()
    if lost := lost_positions(evidence, end):
        yield lost_log_finding(lost, end)
    for queue in lost_offsets(evidence, end):
        yield lost_offsets_finding(queue, raw.directory.consume_queue)
    yield from deleted_topic_findings(evidence, raw.queues)
    yield from evidence.unread
    yield from lost_head_findings(raw.run, raw.queues, clean=raw.clean)
    yield from before_log_findings(raw.run, raw.queues)
    yield from files_behind_findings(raw.run, log.end, clean=raw.clean)
    yield from missing_config_findings(raw.directory)


def _ahead(raw: UnrecoveredStore, expected: str, found: str, what: str) -> Finding:
    return finding(
        "checkpoint-ahead", raw.root / "checkpoint", expected=expected, found=found, message=what
    )
