"""One queue of an open store: appending messages to the log for it, and reading its records by offset.

Owns the append lock, the order of an append's steps and the undo of a failed append, and the way from an offset to
records; must not flush. Sources: CommitLog.asyncPutMessage and asyncPutMessages, DefaultMessageStore.getMessage of
RocketMQ. What readers may see of a queue is in index/queues.py.

    append   encode, without the lock -> place (padding, roll) -> write -> dispatch -> visible; all messages, or none
    read     offset -> queue entry -> record -> StoredRecord
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from storage.contract import Clock
from storage.errors import Corrupt, InvalidArgument, IoFailure, RecordTooLarge, StorageError
from storage.files import Fence
from storage.findings import finding
from storage.model import (
    AppendResult,
    Finding,
    ProducerSequence,
    StoredRecord,
    TopicPartition,
)
from storage.rocketmq.format.message import Message
from storage.rocketmq.format.names import SCHEDULE_TOPIC
from storage.rocketmq.format.queue_entry import UNIT_SIZE, QueueEntry, reach
from storage.rocketmq.index.consume_queue import ConsumeQueue
from storage.rocketmq.index.light_queues import is_in_lmq
from storage.rocketmq.index.queues import Queue
from storage.rocketmq.log.commit_log import CommitLog
from storage.rocketmq.log.file_sequence import FileSequence
from storage.rocketmq.log.reading import locator_of, to_stored
from storage.rocketmq.log.record_run import RecordRun
from storage.rocketmq.recovery.store_files import OpenedStore
from storage.rocketmq.state.settings import StoreSettings
from storage.shared.sequencing import SequencedBatch

UNITS_AT_ONCE: Final = 1024
ENTRIES_READ: Final = 4096  # of a queue that is read in order
WINDOW_BYTES: Final = 1 << 20
NEAR_BYTES: Final = 8 << 10  # records closer than this are read together
WRONG_PLACE: Final = "the unit leads to no record of this queue"
RECORD_EXTRA_BYTES: Final = 64 << 10  # for all of a record except its body (MessageExtEncoder)
_new_result: Final = tuple.__new__
"""Create an AppendResult as `AppendResult(...)` does, without one Python call."""


class Appender:
    """The appender to all queues of a store. `lock` orders appends, deletions and the log end."""

    def __init__(
        self,
        parts: OpenedStore,
        fence: Fence,
        settings: StoreSettings,
        clock: Clock,
    ) -> None:
        self.lock = threading.RLock()
        self._log = log = parts.log
        self._coverage = parts.coverage
        self._dispatcher = parts.dispatcher
        self._fence = fence
        self._clock = clock
        self._store_host = settings.store_host
        self._largest_record = log.largest_record
        self._batch_bytes = min(settings.max_message_bytes + RECORD_EXTRA_BYTES, log.largest_record)
        self._first_locator = locator_of(settings.store_host, 0)

    def append(
        self,
        queue: Queue,
        run: RecordRun,
        *,
        producer: ProducerSequence | None,
        publish: bool,
    ) -> AppendResult:
        """Append encoded records (lock held). A repeat of a producer's earlier append writes nothing and returns
        the earlier offsets. Raises OutOfOrderSequence, FencedProducer and the errors of `append_run`.
        """
        now_ms = self._clock()
        if producer is None:
            return self.append_run(queue, run, now_ms, publish=publish)
        known = queue.producers.find_duplicate(producer, run.count)
        if known is not None:
            return self._first_answer(queue, known)
        queue.producers.check(producer)
        result = self.append_run(queue, run, now_ms, publish=publish)
        queue.producers.add(
            producer, run.count, base_offset=result.base_offset, timestamp_ms=now_ms
        )
        return result

    def _first_answer(self, queue: Queue, known: SequencedBatch) -> AppendResult:
        first, last = known.base_offset, known.last_offset
        self._dispatcher.catch_up(queue, last + 1)
        start = max(first, queue.units.start)
        units = queue.units.read(start, last + 1 - start)
        locators = [self._first_locator + unit.physical_offset for unit in units]
        return AppendResult(first, last, -1, locators, duplicate=True)

    def begin_at(self, physical_offset: int) -> None:
        """Set the physical offset at which the log of an empty store begins. Raises InvalidArgument."""
        if self._log.end or physical_offset < 0:
            raise InvalidArgument(
                f"start_physical_offset {physical_offset}: only the log of an empty store can begin "
                f"elsewhere, this one ends at {self._log.end}",
                field="start_physical_offset",
            )
        self._log.begin_at(physical_offset)

    def append_run(
        self,
        queue: Queue,
        run: RecordRun,
        time_ms: int,
        *,
        publish: bool,
    ) -> AppendResult:
        """Append encoded records with this store time (lock held). On an error none of them stays."""
        if run.largest_bytes > self._largest_record:
            self.check_sizes(run)
        first_offset = following = queue.next_offset
        log = self._log
        log_end = log.end
        first_locator = self._first_locator
        if run.store_host is not self._store_host:
            first_locator = locator_of(run.store_host, 0)
        written: list[tuple[bytes, int]] = []
        locators: list[int] = []
        self._dispatcher.make_way()
        with self._fence.guarding():
            try:
                for part in (
                    (run,) if run.size_bytes <= self._batch_bytes else run.parts(self._batch_bytes)
                ):
                    position = log.reserve(part.size_bytes)
                    data = part.placed(following, position, time_ms)
                    log.write(data)
                    written.append((data, position))
                    locators += part.starts(first_locator + position)
                    following += part.queued
            except StorageError:
                self._take_back(log_end, run.size_bytes)
                raise
        if run.has_keys_beside and self._coverage is not None:
            self._coverage.exclude_keys([(log_end, log.end)])  # before a reader sees the records
        for data, position in written:
            self._dispatcher.submit(data, position)
        queue.advance(following - first_offset, log_end=log.end, publish=publish)
        # The delay of a message counts from its store time, which a producer wants to know.
        answered_ms = time_ms if queue.partition.topic == SCHEDULE_TOPIC else -1
        # fmt: off
        result: AppendResult = _new_result(AppendResult, (
            first_offset, following - 1, answered_ms, locators, False,
        ))
        # fmt: on
        return result

    def is_prompt(self, run: RecordRun) -> bool:
        """Return whether an append of these records only hands bytes to the kernel (lock held)."""
        log, files = self._log, self._log.run.files
        path = log.path_for(run.size_bytes)
        if path is None or run.size_bytes > self._batch_bytes or self._dispatcher.is_full:
            return False
        return files.room > 0 or files.is_writable(path)

    def check_sizes(self, run: RecordRun) -> None:
        """Raise RecordTooLarge if a record does not fit a file of the log; no lock is needed."""
        limit = self._largest_record
        if run.largest_bytes > limit:
            sizes = run.sizes()
            index = next(index for index, size in enumerate(sizes) if size > limit)
            raise RecordTooLarge(
                f"record {index} takes {sizes[index]} bytes: a commit log file holds {limit} at most",
                size_bytes=sizes[index],
                limit_bytes=limit,
                index=index,
            )

    def _take_back(self, log_end: int, written_bytes: int) -> None:
        """Undo the writes of a failed append; if that fails too, the store is fenced. Raises IoFailure."""
        try:
            self._log.rewind(log_end, written_bytes=written_bytes)
        except IoFailure as error:
            raise IoFailure(f"undoing an append: {error.message}", **error.facts()) from error


# ---- reading ----


class Limits(NamedTuple):
    """The limits of one read: it returns at least one record, and then no more than these."""

    max_records: int
    max_bytes: int


class QueueReader:
    """A reader of one queue of a store, for any number of threads at any time."""

    def __init__(self, log: CommitLog, units: ConsumeQueue, partition: TopicPartition) -> None:
        self._log = log
        self._units = units
        self._partition = partition

    def read(self, offset: int, end: int, limits: Limits) -> tuple[Sequence[StoredRecord], int]:
        """Return (records from `offset` on below `end`, offset to continue from). See LogStore.read."""
        records: list[StoredRecord] = []
        size_bytes = 0
        while offset < end and len(records) < max(limits.max_records, 1):
            try:
                units = self._units_at(offset, end, max(limits.max_records, 1) - len(records))
            except Corrupt:
                if records:
                    break
                raise
            stop = offset + len(units)
            for unit, record in self._records(units, offset, bool(records)):
                if record is not None:
                    size_bytes += unit.size
                    if records and size_bytes > limits.max_bytes:
                        return records, offset
                    records.append(record)
                offset += 1
            if offset < stop:
                break  # stopped before a damaged record
        return records, offset

    def _units_at(self, offset: int, end: int, count: int) -> Sequence[QueueEntry]:
        """Return entries from `offset` on, all of one file.

        If there are none, raises Corrupt with the offset after the gap.
        """
        run = self._units.run
        in_file = run.file_bytes // UNIT_SIZE
        count = min(end - offset, count, UNITS_AT_ONCE, in_file - offset % in_file)
        try:
            units = self._units.read(offset, count)
        except Corrupt as error:
            behind = [base // UNIT_SIZE for base in run.bases if base > offset * UNIT_SIZE]
            stop = min([*behind, end])
            raise damaged(error, self._partition, offset, next_good_offset=stop) from error
        if not units:
            missing = unit_error(run, offset, "the queue ends before this unit")
            raise damaged(missing, self._partition, offset, next_good_offset=end)
        return units

    def _stored(self, message: Message, offset: int, unit: QueueEntry) -> StoredRecord:
        try:
            record = to_stored(message, offset, unit.physical_offset)
        except Corrupt as error:
            raise self._log.damage(unit.physical_offset, error.message) from error
        if record.suspect:
            self._log.suspect_records += 1
        return record

    def _records(
        self, units: Sequence[QueueEntry], offset: int, begun: bool
    ) -> Iterator[tuple[QueueEntry, StoredRecord | None]]:
        """Yield the entries with their records; a filler has no record.

        Stops before a damaged record. If nothing was read before it, raises Corrupt instead.
        """
        data, start = b"", 0
        fitting = frozenset(fitting_entries(self._log, units))
        for at, unit in enumerate(units):
            if unit.is_filler:
                yield unit, None
                continue
            position = unit.physical_offset - start
            try:
                if at not in fitting:
                    raise unit_error(self._units.run, offset + at, WRONG_PLACE, unit)
                if not 0 <= position <= len(data) - unit.size:
                    start, position = unit.physical_offset, 0
                    data = self._window(units, at)
                record = self._stored(self._checked(data, position, unit), offset + at, unit)
            except Corrupt as error:
                if begun or at:
                    return
                raise damaged(error, self._partition, offset + at) from error
            yield unit, record

    def _window(self, units: Sequence[QueueEntry], at: int) -> bytes:
        """Return the bytes of the record of `units[at]` and of the records close after it."""
        return self._log.read(units[at].physical_offset, window_bytes(units, at))

    def _checked(self, data: bytes, position: int, unit: QueueEntry) -> Message:
        message = self._log.checked(data, position, unit.physical_offset)
        check_address(self._log, self._partition, message, unit.physical_offset)
        return message


def entries_from(queue: Queue, offset: int, end: int) -> Sequence[QueueEntry]:
    """Return entries from `offset` on; none if their file is missing."""
    try:
        return queue.units.read(offset, min(ENTRIES_READ, end - offset))
    except Corrupt:
        return ()


def after_gap(queue: Queue, offset: int, end: int) -> int:
    """Return the offset at which the next file of a queue begins."""
    bases = (base // UNIT_SIZE for base in queue.units.run.bases)
    return min([*(base for base in bases if base > offset), end])


def check_address(
    log: CommitLog, partition: TopicPartition, message: Message, physical_offset: int
) -> None:
    """Raise Corrupt unless the record at a physical offset belongs to this queue."""
    if (message.topic, message.queue_id) != partition and not is_in_lmq(message, partition):
        raise log.damage(
            physical_offset,
            f"the unit of {partition} points to a record of another queue",
            expected=str(partition),
            found=f"{message.topic}-{message.queue_id}",
        )


def damaged(
    error: Corrupt, partition: TopicPartition, offset: int, *, next_good_offset: int | None = None
) -> Corrupt:
    """Return the error with the offsets of the damaged record and of the record to continue with."""
    facts = {
        **error.facts(),
        "topic": partition.topic,
        "partition": partition.partition,
        "offset": offset,
        "next_good_offset": offset + 1 if next_good_offset is None else next_good_offset,
    }
    return Corrupt(f"{partition} offset {offset}: {error.message}", **facts)


def unreadable(partition: TopicPartition, offset: int, error: Corrupt) -> Finding:
    """Return the finding for a record that cannot be read."""
    facts = error.facts()
    path, position = facts.get("path"), facts.get("position")
    return finding(
        "damaged-record",
        str(path),
        position=position if isinstance(position, int) else None,
        topic=partition.topic,
        partition=partition.partition,
        offset=offset,
        expected=_text(facts.get("expected")),
        found=_text(facts.get("found")),
        message=error.message.removeprefix(f"{path}: position {position}: "),
    )


def _text(value: object) -> str | None:
    return None if value is None else str(value)


def unit_error(
    run: FileSequence, offset: int, what: str, unit: QueueEntry | None = None
) -> Corrupt:
    """Return the error for an entry of a queue with these files: the file, the position in it, and what was found."""
    path, position = run.place_of(offset * UNIT_SIZE)
    return Corrupt(
        f"{path}: position {position}: {what}",
        kind="consumequeue",
        path=str(path),
        position=position,
        found=None if unit is None else f"{unit.size} bytes at {unit.physical_offset}",
    )


def window_bytes(units: Sequence[QueueEntry], at: int) -> int:
    """Return how many bytes to read for the record of `units[at]` and for the records close after it."""
    return reach(units, at, near_bytes=NEAR_BYTES, limit_bytes=WINDOW_BYTES)


def fitting_entries(log: CommitLog, units: Sequence[QueueEntry]) -> Sequence[int]:
    """Return which entries point to a place in the log with room for the record."""
    low, high, largest = log.start, log.end, log.largest_record
    return [
        index
        for index, (at, size, _) in enumerate(units)
        if low <= at <= high - size and 0 < size <= largest
    ]
