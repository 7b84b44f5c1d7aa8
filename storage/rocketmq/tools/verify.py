"""Verifying a store: everything that lies in it is read, and what is wrong is told.

Owns the order of the checks and those of the records themselves; names and small files are checked
by verify_files, units by check_queues, the index by check_index. Must not repair: the files are
looked at as they lie there. One walk over the log serves all of them, in memory that does not grow
with the store.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from storage.errors import DataError
from storage.interface import Progress
from storage.model import Finding
from storage.rocketmq.dispatch import Dispatch, dispatch_of
from storage.rocketmq.format.body import decompress
from storage.rocketmq.format.message import COMPRESSED
from storage.rocketmq.format.properties import check_crc_property, has_crc_property
from storage.rocketmq.reading import MAX_BODY_BYTES
from storage.rocketmq.tools import verify_files
from storage.rocketmq.tools.check_index import IndexCheck
from storage.rocketmq.tools.check_queues import QueueChecks, Surroundings
from storage.rocketmq.tools.log_walk import LogWalk, Placed
from storage.rocketmq.tools.notes import Meter, Notes, Tallies
from storage.rocketmq.tools.raw import RawStore

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
        surroundings = Surroundings(run.start, rebuilt_from, self._walk.damaged_between)
        self._queues = QueueChecks(raw.queues, self.tallies, surroundings)
        self._index = None
        if raw.index is not None:
            self._index = IndexCheck(raw.index, raw.files, self.tallies, surroundings)
        self._latest_ms = 0

    def run(self) -> Iterator[None]:
        """Check; comes back now and then, so that what was met can be told."""
        for number, placed in enumerate(self._walk.records()):
            self._check_record(placed)
            if number % 1024 == 0:
                yield
        end = self._walk.position
        self._queues.finish(end)
        if self._index is not None:
            self._index.finish(end)
        self._check_tail()
        self._check_checkpoint(end)

    def _check_record(self, placed: Placed) -> None:
        at, message = placed.physical_offset, placed.message
        if message.physical_offset != at:
            self._tell(
                "wrong-physical-offset",
                "warning",
                placed,
                "the record tells another place in the log than it has",
                expected=str(at),
                found=str(message.physical_offset),
            )
        record = placed.data[placed.position : placed.position + message.size]
        if has_crc_property(record) and not check_crc_property(record):
            self._tell("wrong-property-crc", "error", placed, "the CRC over the record is wrong")
        if message.sys_flag & COMPRESSED:
            try:
                decompress(message.body, message.sys_flag, MAX_BODY_BYTES)
            except DataError as error:
                what = f"the body cannot be decompressed: {error.message}"
                self._tell("undecodable-body", "error", placed, what)
        self._latest_ms = max(self._latest_ms, message.store_timestamp_ms)
        if at >= self._raw.deleted.get(message.topic, 0):
            with_tags = self._raw.settings.index_tags
            self._compare(dispatch_of(message, at, with_tags=with_tags))

    def _compare(self, dispatch: Dispatch) -> None:
        if dispatch.is_queued:
            self._queues.meet(dispatch)
        if self._index is not None:
            self._index.meet(dispatch)

    def _tell(self, code: str, severity: str, placed: Placed, what: str, **facts: str) -> None:
        message = placed.message
        self.tallies.add(
            self._walk.finding(
                code,
                severity,
                placed.physical_offset,
                what,
                topic=message.topic,
                partition=message.queue_id,
                offset=message.queue_offset,
                **facts,
            )
        )

    def _check_tail(self) -> None:
        torn = self._walk.torn
        if torn is not None:
            self._notes.add(
                self._walk.finding(
                    "torn-tail",
                    "warning",
                    torn.position,
                    f"bytes behind the last good record, at physical offset {torn.position}",
                    expected="a record, or zeros",
                    found=self._walk.why(torn.position),
                )
            )

    def _check_checkpoint(self, end: int) -> None:
        checkpoint, latest_ms = self._raw.checkpoint, self._latest_ms
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
