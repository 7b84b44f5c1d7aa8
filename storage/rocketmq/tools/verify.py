"""Verifying a store: everything that lies in it is read, and what is wrong is told.

Owns the order of the checks, and that of the checkpoint; names and small files are checked by
verify_files, records by record_check, units by check_queues, the index by check_index. Must not
repair: the files are looked at as they lie there. One walk over the log serves all of them, in
memory that does not grow with the store.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from storage.interface import Progress
from storage.model import Finding
from storage.notes import Meter, Notes, Tallies
from storage.rocketmq.dispatch import dispatch_of
from storage.rocketmq.format import names
from storage.rocketmq.tools import verify_files
from storage.rocketmq.tools.check_index import IndexCheck
from storage.rocketmq.tools.check_queues import QueueChecks, Surroundings
from storage.rocketmq.tools.log_walk import LogWalk, Placed
from storage.rocketmq.tools.raw import RawStore
from storage.rocketmq.tools.record_check import RecordCheck, note_tail

WHAT: Final = "verifying"


def check_store(raw: RawStore, progress: Progress) -> Iterator[Finding]:
    """Every finding: of names and small files, of the log, then of queues and index by file."""
    notes = Notes()
    notes.add(*raw.findings)
    notes.add(*verify_files.check_names(raw))
    notes.add(*verify_files.check_small_files(raw))
    if not raw.clean:
        notes.add(_unclean(raw))
    yield from notes.take()
    check = _LogCheck(raw, notes, progress)
    for _ in check.run():
        yield from notes.take()
    yield from notes.take()
    yield from check.tallies.all()


def _unclean(raw: RawStore) -> Finding:
    return Finding(
        code="unclean-stop",
        severity="info",
        path=str(raw.root),
        message="abort is there: a server is running, or the next start recovers",
    )


class _LogCheck:
    """One walk over the log, with everything that is derived from it beside it."""

    def __init__(self, raw: RawStore, notes: Notes, progress: Progress) -> None:
        run = raw.run
        meter = Meter(progress, WHAT, run.limit - run.start)
        self.tallies = Tallies()
        self._raw = raw
        self._notes = notes
        self._walk = LogWalk(run, raw.queues, notes, end=run.limit, meter=meter, clean=raw.clean)
        rebuilt_from = None if raw.clean else raw.checkpoint.logics_physical_offset
        surroundings = Surroundings(
            run.start,
            rebuilt_from,
            self._walk.damaged_between,
            extended=raw.fs.exists(raw.root / names.QUEUE_EXTENSION),
        )
        self._queues = QueueChecks(raw.queues, self.tallies, surroundings)
        self._index = None
        if raw.index is not None:
            self._index = IndexCheck(
                raw.index.index_files,
                raw.files,
                self.tallies,
                surroundings,
                directory=raw.directory.index,
            )
        self._records = RecordCheck(self._walk, self.tallies)

    def run(self) -> Iterator[None]:
        """Check; comes back now and then, so that what was met can be told."""
        for number, placed in enumerate(self._walk.records()):
            self._records.meet(placed)
            self._derived(placed)
            if number % 1024 == 0:
                yield
        end = self._walk.position
        self._queues.finish(end)
        if self._index is not None:
            self._index.finish(end)
        note_tail(self._walk, self._notes)
        self._check_checkpoint(end)

    def _derived(self, placed: Placed) -> None:
        """Compare what follows from a record with what lies in queues and index."""
        at, message = placed.physical_offset, placed.message
        deleted = at < self._raw.deleted.get(message.topic, 0)
        dispatch = dispatch_of(message, at, with_tags=self._raw.settings.index_tags)
        if dispatch.is_queued and not deleted:
            self._queues.meet(dispatch)
        if self._index is not None:
            self._index.meet(dispatch, deleted=deleted)

    def _check_checkpoint(self, end: int) -> None:
        checkpoint, latest_ms = self._raw.checkpoint, self._records.latest_ms
        facts = [
            ("logicsPhysicalOffset", checkpoint.logics_physical_offset, end, "the end of the log"),
            ("confirmPhyOffset", checkpoint.confirm_physical_offset, end + 1, "the end of the log"),
            ("physicMsgTimestamp", checkpoint.physic_msg_timestamp_ms, latest_ms + 1, "the log"),
            ("logicsMsgTimestamp", checkpoint.logics_msg_timestamp_ms, latest_ms + 1, "the log"),
        ]
        index = self._raw.index
        if index is not None and index.index_files:
            ends_ms = max(file.header.end_timestamp_ms for file in index.index_files)
            index_ms = checkpoint.index_msg_timestamp_ms
            facts.append(("indexMsgTimestamp", index_ms, ends_ms + 1, "the index"))
        for field, value, limit, what in facts:
            if value >= limit and value > 0:
                self._ahead(f"{field} below {limit}", f"{value}", f"{field} is ahead of {what}")
        missing = self._queues.first_missing
        if missing is not None and 0 < checkpoint.logics_physical_offset >= missing:
            reached = f"{checkpoint.logics_physical_offset}"
            what = "the checkpoint is ahead of the queues: a record before it has no unit"
            self._ahead(f"logicsPhysicalOffset below {missing}", reached, what)

    def _ahead(self, expected: str, found: str, what: str) -> None:
        self._notes.add(
            Finding(
                code="checkpoint-ahead",
                severity="warning",
                path=str(self._raw.root / "checkpoint"),
                expected=expected,
                found=found,
                message=what,
            )
        )
