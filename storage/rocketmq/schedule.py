"""Delayed messages: which wait, which are due, and their delivery to the topics that they are for.

Owns the order of a delivery's steps and config/delayOffset.json; must not decide when it is called. Sources:
ScheduleMessageService and HookUtils.transformDelayLevelMessage of RocketMQ 5.5.0.

    a delayed message    a record of SCHEDULE_TOPIC_XXXX, queue = level - 1, with the properties DELAY, REAL_TOPIC and
                         REAL_QID; the tags code of its queue entry is the time of its delivery
    its delivery         a new record of REAL_TOPIC with the same body, properties, flags, born time, hosts and
                         reconsumeTimes; its tags code is that of its tag again

    step    read the entries that are due -> append the new records -> sync the log, show them -> delayOffset.json

A step may fail after it appended records of some topics, as on a full disk. Its messages then leave one by one, so that
the next steps, which may fail too, do not deliver the same ones again and again.

So after a crash messages may be delivered again, but none is lost. The messages of a level leave in the order of its
queue. Unlike the broker, a message is never delivered before the time of its entry, not even if the clock was set back
(correctDeliverTimestamp), and queues above the highest level of the setting are delivered too.
"""

from __future__ import annotations

import heapq
import logging
import re
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import islice
from struct import Struct
from typing import Final, Protocol

from storage.contract import Clock
from storage.errors import CallerError, Corrupt, InvalidArgument, NotOffered, StorageError
from storage.files import Fence
from storage.findings import finding
from storage.model import (
    AppendResult,
    DelayedPage,
    DelayedRecord,
    DelayLevel,
    Delivery,
    Finding,
    OffsetBounds,
    Record,
    TopicPartition,
)
from storage.rocketmq.format import names
from storage.rocketmq.format.properties import (
    DELAY,
    KEYS,
    REAL_QUEUE_ID,
    REAL_TOPIC,
    TAGS,
    UNIQ_KEY,
    decode_properties,
)
from storage.rocketmq.format.queue_entry import DELAYS_MS, QueueEntry, first_after
from storage.rocketmq.index.queues import Queue
from storage.rocketmq.log.due_messages import QUEUE_ID, DueRecords
from storage.rocketmq.log.encoding import Encoder
from storage.rocketmq.log.reading import locator_of
from storage.rocketmq.log.record_run import RecordRun
from storage.rocketmq.queue import (
    WRONG_PLACE,
    after_gap,
    check_address,
    entries_from,
    fitting_entries,
    unit_error,
    window_bytes,
)
from storage.rocketmq.recovery.store_files import OpenedStore
from storage.rocketmq.state.live_data import TIMER_CHECK
from storage.rocketmq.state.root import StoreDirectory

log = logging.getLogger(__name__)

TIMERS_CODE: Final = "timed-messages-wait"
TIMER_TOPIC: Final = TopicPartition("rmq_sys_wheel_timer", 0)
TIMER_DUE: Final = "TIMER_OUT_MS"
TIMER_CANCELS: Final = "TIMER_DEL_UNIQKEY"
_TIMER_CHECK: Final = Struct(
    ">q"
)  # config/timercheck begins with the time up to which the wheel was read
TIMERS_PROBED: Final = 1000

DELIVERED_BYTES: Final = 8 << 20  # of one append, more for a larger record
SINGLE_RECORDS: Final = 100  # of a delivery whose messages leave one by one: each is synced
_CURSOR: Final = re.compile(r"\d{1,10}:\d{1,19}(,\d{1,10}:\d{1,19})*", re.ASCII)


class Home(Protocol):
    """The methods of the store that deliveries need."""

    files: OpenedStore

    encoder: Encoder

    def append_run(
        self, partition: TopicPartition, run: RecordRun, *, publish: bool = True
    ) -> AppendResult:
        """Append records of `encoder`, as SupportsRawMessages.append_messages does."""

    def check_offered(self, topic: str) -> None:
        """Raise NotOffered for a topic that only a broker can write."""

    def flush(self, partitions: Iterable[TopicPartition] | None = None) -> None:
        """See LogStore.flush."""


class Schedule:
    """The delayed messages of one store: see storage.contract.Delays."""

    def __init__(
        self,
        home: Home,
        directory: StoreDirectory,
        fence: Fence,
        clock: Clock,
        delays_ms: Sequence[int] | None,
    ) -> None:
        self.levels = [
            DelayLevel(level, delay_ms) for level, delay_ms in enumerate(delays_ms or DELAYS_MS, 1)
        ]
        self._home = home
        self._directory = directory
        self._fence = fence
        self._clock = clock
        self._lock = (
            threading.Lock()
        )  # for a delivery; `_offsets` and `_due_ms` are replaced as a whole
        self._stored = directory.delay_progress()
        self._offsets: Mapping[int, int] = self._corrected(self._stored.by_level)
        self._due_ms: Mapping[int, int] = {}  # by level, of the first message that waits
        self._single_until: dict[int, int] = {}  # by level, the end of a step that failed

    def _corrected(self, offsets: Mapping[int, int]) -> Mapping[int, int]:
        """Return the offsets within the bounds of their queues (ScheduleMessageService.correctDelayOffset)."""
        return {
            level: min(max(offsets.get(level, 0), bounds.start), bounds.end)
            for level, bounds in self._bounds()
        }

    def _queues(self) -> Iterator[tuple[int, Queue]]:
        for queue in self._home.files.queues.of_topic(names.SCHEDULE_TOPIC):
            yield queue.partition.partition + 1, queue

    def _bounds(self) -> Iterator[tuple[int, OffsetBounds]]:
        for level, queue in self._queues():
            yield level, queue.bounds()

    # ---- scheduling ----

    def delayed(
        self, record: Record, partition: TopicPartition, level: int
    ) -> tuple[TopicPartition, Record]:
        """See Delays.delayed."""
        if not 1 <= level <= len(self.levels):
            raise InvalidArgument(
                f"delay level {level} is none of this store: levels are 1 to {len(self.levels)}",
                field="delay_level",
            )
        self._home.check_offered(partition.topic)
        properties = {
            **(record.properties or {}),
            DELAY: str(level),
            REAL_TOPIC: partition.topic,
            REAL_QUEUE_ID: str(partition.partition),
        }
        target = TopicPartition(names.SCHEDULE_TOPIC, level - 1)
        return target, record._replace(properties=properties)

    # ---- delivery ----

    def deliver(self, now_ms: int, *, max_records: int = 1 << 62) -> Delivery:
        """See Delays.deliver."""
        with self._lock:
            delivered: dict[TopicPartition, None] = {}
            count, refused = 0, None
            offsets = dict(self._offsets)
            if any(offsets.get(level, 0) < end for level, end in self._single_until.items()):
                max_records = min(max_records, SINGLE_RECORDS)
            try:
                for level, queue in self._queues():
                    if count >= max_records:
                        break
                    try:
                        for partitions, passed in self._deliver_level(
                            level, queue, offsets, now_ms
                        ):
                            delivered |= dict.fromkeys(partitions)
                            count += passed
                            if count >= max_records:
                                break
                    except NotOffered as error:  # the other levels do not wait for this one
                        refused = error
            finally:
                self._remember(offsets)
            return Delivery(tuple(delivered), count, count >= max_records, refused)

    def _deliver_level(
        self, level: int, queue: Queue, offsets: dict[int, int], now_ms: int
    ) -> Iterator[tuple[Sequence[TopicPartition], int]]:
        """Deliver the due messages of a level in parts; yield partitions and number of messages of each."""
        if self._due_ms.get(level, now_ms) > now_ms:
            return
        bounds = queue.bounds()
        offset = max(offsets.get(level, 0), bounds.start)
        due_ms: int | None = None
        while offset < bounds.end and due_ms is None:
            offset, entries, due_ms = self._due_entries(queue, offset, bounds.end, now_ms)
            if entries:
                self._due_ms = {**self._due_ms, level: entries[0].tags_code}
            while entries:
                is_single = offset < self._single_until.get(level, 0)
                limit_bytes = 0 if is_single else DELIVERED_BYTES
                taken, due = self._read(queue, offset, entries, limit_bytes)
                partitions = []
                try:
                    for partition, run in due.runs():
                        self._append(partition, run)
                        partitions.append(partition)
                except StorageError:
                    end = max(self._single_until.get(level, 0), offset + taken)
                    self._single_until[level] = end
                    raise
                # The queue of the level too: the offset below must name a record that is on disk.
                for each in (*partitions, queue.partition):
                    with suppress(CallerError):  # the topic was deleted meanwhile, with the record
                        self._home.flush([each])
                entries, offset = entries[taken:], offset + taken
                offsets[level] = offset
                yield partitions, taken
        offsets[level] = offset
        known = {at: due for at, due in self._due_ms.items() if at != level}
        self._due_ms = known if due_ms is None else {**known, level: due_ms}

    def _due_entries(
        self, queue: Queue, offset: int, end: int, now_ms: int
    ) -> tuple[int, Sequence[QueueEntry], int | None]:
        """Return (the offset of the first entry, entries that are due, the time of the next entry if that is not due).

        A range of the queue whose file is missing is passed over, as the broker does.
        """
        self._home.files.catch_up(queue, end)
        entries = entries_from(queue, offset, end)
        if not entries:
            after = after_gap(queue, offset, end)
            log.error(
                "%s: offsets %d to %d are missing: passed over", queue.partition, offset, after
            )
            return after, (), None
        at = first_after(entries, now_ms)
        if at < len(entries):
            return offset, entries[:at], entries[at].tags_code
        return offset, entries, None

    def _read(
        self, queue: Queue, offset: int, entries: Sequence[QueueEntry], limit_bytes: int
    ) -> tuple[int, DueRecords]:
        """Return the number of entries read, and the records that deliver theirs; those that cannot be read or stored
        are logged and passed over. Ends before a message that only a broker can deliver, and raises NotOffered only if
        that is the first one: the messages before it leave once, and not again by each delivery.
        """
        files = self._home.files
        data, start, size_bytes, at = b"", 0, 0, 0
        due = DueRecords(self._home.encoder, queue.partition, self._home.check_offered)
        while at < len(entries):
            number, entry = at, entries[at]
            if size_bytes and size_bytes + entry.size > limit_bytes and not entry.is_filler:
                return at, due
            at += 1
            if entry.is_filler:
                continue
            physical_offset = entry.physical_offset
            try:
                if not fitting_entries(files.log, [entry]):
                    raise unit_error(queue.units.run, offset + number, WRONG_PLACE, entry)
                if not 0 <= physical_offset - start <= len(data) - entry.size:
                    data = files.log.read(physical_offset, window_bytes(entries, number))
                    start = physical_offset  # not before the read, which may fail
                    data = data[: files.log.end - start]
                taken, taken_bytes = due.take(
                    data, start, entries, number, limit_bytes - size_bytes
                )
                size_bytes += taken_bytes
                if taken:
                    at = number + taken
                    continue
                message = files.log.checked(data, physical_offset - start, physical_offset)
                check_address(files.log, queue.partition, message, physical_offset)
                due.put(message)
                size_bytes += entry.size
            except NotOffered:
                if not number:
                    raise
                return number, due
            except (Corrupt, CallerError) as error:
                log.error(  # noqa: TRY400
                    "%s offset %d: not delivered: %s",
                    queue.partition,
                    offset + number,
                    error.message,
                )
        return len(entries), due

    def _append(self, partition: TopicPartition, run: RecordRun) -> None:
        """Append records of one partition. A record that no store could hold is logged and passed over."""
        try:
            self._home.append_run(partition, run, publish=False)
        except NotOffered:
            raise  # only this program cannot store them: the broker will
        except CallerError as error:
            if run.count == 1:
                log.error("%s: a delayed message is not delivered: %s", partition, error.message)  # noqa: TRY400
                return
            for record in run.parts(0):
                self._append(partition, record)

    def _remember(self, offsets: Mapping[int, int]) -> None:
        """Write the offsets if they have changed; durable on return. They name only records that are durable."""
        changed = {
            level: offset
            for level, offset in offsets.items()
            if offset != self._stored.by_level.get(level, 0)
        }
        self._offsets = offsets
        if changed:
            stored = self._stored.changed(changed, now_ms=self._clock())
            with self._fence.guarding():
                self._directory.write_delay_progress(stored)
            self._stored = stored

    def lag_ms(self, now_ms: int) -> int:
        """See Delays.lag_ms."""
        return max([0, *(now_ms - due_ms for due_ms in self._due_ms.values())])

    # ---- listing ----

    def waiting(self, limit: int, cursor: str | None = None) -> DelayedPage:
        """See Delays.waiting."""
        starts = self._starts(cursor)
        levels = [
            self._entries_of(level, queue, starts.get(level, 0)) for level, queue in self._queues()
        ]
        found = list(islice(heapq.merge(*levels), limit + 1))
        positions = dict(starts)
        records = []
        for due_ms, level, offset, entry in found[:limit]:
            positions[level] = offset + 1
            record = self._delayed_record(level, offset, entry, due_ms)
            if record is not None:
                records.append(record)
        more = ",".join(f"{level}:{offset}" for level, offset in sorted(positions.items()))
        return DelayedPage(records, more if len(found) > limit else None)

    def _starts(self, cursor: str | None) -> Mapping[int, int]:
        """Return, by level, where a listing begins: at the offset of the cursor, or at the first waiting message."""
        starts = {level: self._offsets.get(level, 0) for level, _ in self._queues()}
        if cursor is None:
            return starts
        if not _CURSOR.fullmatch(cursor):
            raise InvalidArgument(f"cursor {cursor[:80]!r} is of no page before", field="cursor")
        for place in cursor.split(","):
            level, offset = map(int, place.split(":"))
            if level in starts:
                starts[level] = max(starts[level], offset)
        return starts

    def _entries_of(
        self, level: int, queue: Queue, offset: int
    ) -> Iterator[tuple[int, int, int, QueueEntry]]:
        bounds = queue.bounds()
        offset = max(offset, bounds.start)
        self._home.files.catch_up(queue, bounds.end)
        while offset < bounds.end:
            entries = entries_from(queue, offset, bounds.end)
            for at, entry in enumerate(entries, offset):
                if not entry.is_filler:
                    yield entry.tags_code, level, at, entry
            offset = offset + len(entries) if entries else after_gap(queue, offset, bounds.end)

    def _delayed_record(
        self, level: int | None, offset: int, entry: QueueEntry, due_ms: int | None
    ) -> DelayedRecord | None:
        """Return one message of the schedule or timer topic; None if it cannot be read."""
        log_ = self._home.files.log
        try:
            data = log_.read(entry.physical_offset, entry.size)
            message = log_.checked(data, 0, entry.physical_offset)
        except StorageError:
            return None
        properties = decode_properties(message.properties)
        if due_ms is None:
            text = properties.get(TIMER_DUE, "")
            if not text.isdecimal() or TIMER_CANCELS in properties:
                return None
            due_ms = int(text)
        queue_id = properties.get(REAL_QUEUE_ID, "")
        return DelayedRecord(
            locator=locator_of(message.store_host, entry.physical_offset),
            topic=properties.get(REAL_TOPIC),
            partition=int(queue_id) if QUEUE_ID.fullmatch(queue_id) else None,
            level=level,
            deliver_at_ms=due_ms,
            timestamp_ms=message.born_timestamp_ms,
            store_timestamp_ms=message.store_timestamp_ms,
            offset=offset,
            unique_id=properties.get(UNIQ_KEY),
            tag=properties.get(TAGS),
            lookup_keys=tuple(filter(None, properties.get(KEYS, "").split(" "))),
        )

    # ---- RocketMQ 5's timers ----

    def timers(self, limit: int, cursor: str | None = None) -> DelayedPage:
        """See Delays.timers."""
        queue = self._home.files.queues.get(*TIMER_TOPIC)
        if cursor is not None and not (
            cursor.isascii() and cursor.isdecimal() and len(cursor) < 20
        ):
            raise InvalidArgument(f"cursor {cursor[:80]!r} is of no page before", field="cursor")
        if queue is None:
            return DelayedPage([], None)
        bounds = queue.bounds()
        offset = max(int(cursor or 0), bounds.start)
        self._home.files.catch_up(queue, bounds.end)
        read_ms = self._timers_read_ms()
        records: list[DelayedRecord] = []
        stop = min(offset + max(limit, TIMERS_PROBED), bounds.end)
        while offset < stop and len(records) < limit:
            records += self._timer_at(queue, offset, read_ms)
            offset += 1
        return DelayedPage(records, str(offset) if offset < bounds.end else None)

    def _timer_at(self, queue: Queue, offset: int, read_ms: int) -> Iterator[DelayedRecord]:
        try:
            entry = queue.units.unit(offset)
        except Corrupt:
            return
        record = None if entry.is_filler else self._delayed_record(None, offset, entry, None)
        if record is not None and record.deliver_at_ms > read_ms:
            yield record

    def _timers_read_ms(self) -> int:
        """Return the time up to which the broker has delivered its timers; 0 if it is not known."""
        path = self._directory.config / TIMER_CHECK
        if TIMER_CHECK not in self._directory.config_files():
            return 0
        data = self._directory.fs.read_bytes(path)
        return _TIMER_CHECK.unpack_from(data)[0] if len(data) >= _TIMER_CHECK.size else 0

    def timer_findings(self) -> Iterator[Finding]:
        """Yield a finding if timed messages wait, or may wait: only a broker delivers them."""
        queue = self._home.files.queues.get(*TIMER_TOPIC)
        if queue is None:
            return
        end = queue.bounds().end
        first = max(queue.bounds().start, end - TIMERS_PROBED)
        page = self.timers(TIMERS_PROBED, str(first))
        if page.records or first > queue.bounds().start:
            yield finding(
                TIMERS_CODE,
                self._directory.path / names.CONSUME_QUEUE / TIMER_TOPIC.topic,
                topic=TIMER_TOPIC.topic,
                message=f"{len(page.records)} of the newest {end - first} timed messages wait for their time: only a "
                "broker delivers them; they stay as they are",
            )
