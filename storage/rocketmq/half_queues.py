"""The half and op queues of a store in memory: which half messages wait, and how the last transactions ended.

Owns this state, which it derives from the queues, and reading it in short steps; must not write to the store, nor
decide how a transaction ends: that is transactions.py. Sources: TransactionalMessageBridge.fetchConsumeOffset and
TransactionalMessageServiceImpl.fillOpRemoveMap of RocketMQ 5.5.0; the bytes are in format/half_message.py.

    first step     the outcomes of the op records before the progress of the check; half messages and op records from
                   the progress on
    later steps    what was appended since

The op records come first: they may name half messages that are not read yet. A half message that has ended is not read.
"""

from __future__ import annotations

import logging
from collections import OrderedDict, deque
from collections.abc import Container, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Final, NamedTuple, Protocol

from storage.errors import Corrupt
from storage.half_messages import HalfOutcome
from storage.model import CommittedOffset, TopicPartition
from storage.rocketmq.format import half_message, names
from storage.rocketmq.format.half_message import HalfFields
from storage.rocketmq.format.message import Message
from storage.rocketmq.format.queue_entry import QueueEntry
from storage.rocketmq.index.queues import Queue
from storage.rocketmq.log.commit_log import CommitLog
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

log = logging.getLogger(__name__)

GROUP: Final = "CID_RMQ_SYS_TRANS"
"""The group whose offsets in the half and op queues are the progress of the check (MixAll.CID_SYS_RMQ_TRANS)."""
KEPT_OUTCOMES: Final = 10_000
KEPT_OP_RECORDS: Final = 1000
"""Op records before the progress that a start reads for the outcomes in them."""
STEP_MESSAGES: Final = 128  # 2 ms
READ_IN_A_STEP_BYTES: Final = 1 << 20


class Home(Protocol):
    """The parts of the store that are read."""

    files: OpenedStore

    def committed(self, group: str) -> Mapping[TopicPartition, CommittedOffset]:
        """See SupportsGroupOffsets.committed."""


class Copy(NamedTuple):
    """A half message in the log, by the entry of its queue."""

    offset: int
    entry: QueueEntry


class Reader:
    """A reader of messages that keeps the bytes of the log that it read last: messages of one time are adjacent.
    `read_bytes`: how much it has read.
    """

    def __init__(self, log_: CommitLog) -> None:
        self.read_bytes = 0
        self._log = log_
        self._data, self._start = b"", 0

    def message(self, of: TopicPartition, entries: Sequence[QueueEntry], at: int = 0) -> Message:
        """Return the message of a queue that `entries[at]` leads to. Raises Corrupt."""
        physical_offset, size, _ = entries[at]
        position = physical_offset - self._start
        if not 0 <= position <= len(self._data) - size:
            if physical_offset < self._log.start:
                raise self._log.damage(
                    physical_offset, "the record was deleted with the head of the log"
                )
            self._data = self._log.read(physical_offset, window_bytes(entries, at))
            self._start, position = physical_offset, 0  # not before the read, which may fail
            self.read_bytes += len(self._data)
        message = self._log.checked(self._data, position, physical_offset)
        check_address(self._log, of, message, physical_offset)
        return message


class Waiting:
    """A message that waits, and its half messages: the newest counts. `older`: the others, in order.

    `is_found`: it may be in its real queue already, because an earlier process began to end it. `is_delivered`: it is
    there.
    """

    __slots__ = (
        "entry",
        "fields",
        "host",
        "is_delivered",
        "is_found",
        "offset",
        "older",
        "prepared_ms",
        "queue_id",
        "transaction",
    )

    def __init__(
        self,
        transaction: Transaction,
        queue_id: int,
        fields: HalfFields,
        message: Message,
        *,
        is_found: bool,
    ) -> None:
        self.transaction = transaction
        self.queue_id = queue_id
        self.older: tuple[Copy, ...] = ()
        mark = fields.mark
        self.prepared_ms = message.born_timestamp_ms if mark is None else mark.prepared_ms
        self.is_found = is_found
        self.is_delivered = False

    offset: int
    entry: QueueEntry
    fields: HalfFields
    host: bytes

    @property
    def copies(self) -> Sequence[Copy]:
        """All its half messages, in order."""
        return (*self.older, Copy(self.offset, self.entry))


class Transaction:
    """An open transaction: its messages by their keys, in the order of their first half messages.

    `is_cut`: the deletion of the log's head took some of its messages.
    """

    __slots__ = ("id", "is_cut", "updated_ms", "waiting")

    def __init__(self, transaction_id: str) -> None:
        self.id = transaction_id
        self.is_cut = False
        self.waiting: dict[str, Waiting] = {}
        self.updated_ms = 0

    @property
    def first(self) -> Waiting:
        """Its first message that waits."""
        return next(iter(self.waiting.values()))

    @property
    def is_delivered(self) -> bool:
        """Whether a message of it is in its real queue."""
        return any(one.is_delivered for one in self.waiting.values())

    @property
    def is_found(self) -> bool:
        """Whether a message of it may be in its real queue."""
        return any(one.is_found for one in self.waiting.values())


class HalfQueue:
    """What was read of a half queue and its op queue.

    `ops`: op records from the progress on, with the half messages that they name; `ended`: all of these.
    `found_before`: where the queue ended when it was first looked at.
    """

    def __init__(self, half: Queue, next_half: int) -> None:
        self.half = half
        self.start = half.bounds().start
        self.next_half = next_half
        self.found_before = half.appended()[0]
        self.op: Queue | None = None
        self.next_op = -1
        self.op_progress = 0
        self.by_offset: dict[int, Waiting] = {}
        self.ops: deque[tuple[int, Sequence[int]]] = deque()
        self.ended: set[int] = set()


class HalfQueues:
    """The half queues of one store with their op queues. Not thread-safe: the caller holds a lock."""

    def __init__(self, home: Home) -> None:
        """Read nothing yet."""
        self.by_number: dict[int, HalfQueue] = {}
        self.transactions: dict[str, Transaction] = {}
        self.outcomes: OrderedDict[str, HalfOutcome] = OrderedDict()
        self._home = home
        self._counted = 0  # queues of the store when its half queues were listed

    def step(self) -> bool:
        """Read more of what was appended since the last call; at the first call, since the progress. Return whether
        all of it is read: until then `transactions` has not all, and may have some that have ended.

        A step reads STEP_MESSAGES messages and READ_IN_A_STEP_BYTES, and no more than one large message in addition.
        """
        queues = self._home.files.queues
        known = [state.half for state in self.by_number.values()]
        if any(queues.get(*half.partition) is not half for half in known):  # deleted meanwhile
            self.by_number.clear()
            self.transactions.clear()
        if self._counted != len(queues) or not self.by_number:
            self._counted = len(queues)
            for half in queues.of_topic(names.HALF_TOPIC):
                number = half.partition.partition
                if number not in self.by_number:
                    self.by_number[number] = HalfQueue(half, self._start(half))
        for number, state in self.by_number.items():
            op = queues.get(names.OP_TOPIC, number)
            if op is not None and state.op is not op:
                state.op = op
                state.op_progress = self._start(op)
                state.next_op = max(op.bounds().start, state.op_progress - KEPT_OP_RECORDS)
            if not self._read_ops(state) or not self._read_half(number, state):
                return False
            self._drop_deleted(state)
        return True

    def _start(self, queue: Queue) -> int:
        """Return the progress of the check in a queue (fetchConsumeOffset), within the queue's bounds."""
        bounds = queue.bounds()
        committed = self._home.committed(GROUP).get(queue.partition)
        offset = bounds.start if committed is None else committed.offset
        return min(max(offset, bounds.start), bounds.end)

    def _messages(
        self, queue: Queue, offset: int, end: int, ended: Container[int] = ()
    ) -> tuple[Sequence[tuple[int, QueueEntry, Message]], int]:
        """Return (offset, entry, message) of the next messages of a queue, and the offset to continue from.

        Those at the offsets `ended` are passed over, damaged ones too: these are logged.
        """
        files = self._home.files
        files.catch_up(queue, end)
        entries = entries_from(queue, offset, min(end, offset + STEP_MESSAGES))
        if not entries:
            return (), after_gap(queue, offset, end)
        reader = Reader(files.log)
        found: list[tuple[int, QueueEntry, Message]] = []
        fitting = frozenset(fitting_entries(files.log, entries))
        for at, entry in enumerate(entries):
            if offset + at in ended or entry.is_filler:
                continue
            if reader.read_bytes >= READ_IN_A_STEP_BYTES:
                return found, offset + at
            try:
                if at not in fitting:
                    raise unit_error(queue.units.run, offset + at, WRONG_PLACE, entry)
                found.append((offset + at, entry, reader.message(queue.partition, entries, at)))
            except Corrupt as error:
                place = f"{queue.partition} offset {offset + at}"
                log.error("%s: passed over: %s", place, error.message)  # noqa: TRY400
        return found, offset + len(entries)

    def newest(self, waiting: Waiting) -> Message:
        """Return the newest half message of a message. Raises Corrupt."""
        reader = Reader(self._home.files.log)
        return reader.message(half_queue(waiting.queue_id), [waiting.entry])

    # ---- op records ----

    def remember(self, outcomes: Iterable[tuple[str, str]]) -> None:
        """Remember outcomes by transaction, as op records name them."""
        for transaction_id, code in outcomes:
            with suppress(ValueError):  # of a later version
                self.outcomes[transaction_id] = HalfOutcome(code)
        while len(self.outcomes) > KEPT_OUTCOMES:
            self.outcomes.popitem(last=False)

    def _read_ops(self, state: HalfQueue) -> bool:
        if state.op is None:
            return True
        end = state.op.appended()[0]
        if state.next_op >= end:
            return True
        messages, following = self._messages(state.op, state.next_op, end)
        for at, _, message in messages:
            found = half_message.op_fields(message)
            self.remember(found.outcomes)
            if at >= state.op_progress:
                self.note_op(state, at, found.offsets)
        state.next_op = following
        return following >= end

    def note_op(self, state: HalfQueue, op_offset: int, offsets: Sequence[int]) -> None:
        """Take the messages off that an op record names, each with all its half messages."""
        state.ops.append((op_offset, offsets))
        state.ended.update(offsets)
        state.next_op = op_offset + 1
        for offset in offsets:
            waiting = state.by_offset.get(offset)
            if waiting is not None:
                self._take_off(state, waiting)

    def _take_off(self, state: HalfQueue, waiting: Waiting) -> None:
        one = waiting.transaction
        for copy in waiting.copies:
            state.by_offset.pop(copy.offset, None)
        one.waiting.pop(waiting.fields.key, None)
        if not one.waiting:
            self.transactions.pop(one.id, None)

    # ---- half messages ----

    def _read_half(self, number: int, state: HalfQueue) -> bool:
        end = state.half.appended()[0]
        if state.next_half >= end:
            return True
        messages, following = self._messages(state.half, state.next_half, end, state.ended)
        for at, entry, message in messages:
            fields = half_message.half_fields(message, number, at)
            if fields.first_offset not in state.ended:
                self._take_in(number, state, Copy(at, entry), fields, message)
        state.next_half = following
        return following >= end

    def _take_in(
        self, number: int, state: HalfQueue, copy: Copy, fields: HalfFields, message: Message
    ) -> None:
        """Add a half message."""
        one = self.transactions.get(fields.transaction_id)
        if one is None:
            one = self.transactions[fields.transaction_id] = Transaction(fields.transaction_id)
        known = one.waiting.get(fields.key)
        if known is None or known.queue_id != number:
            is_found = copy.offset < state.found_before or one.id in self.outcomes
            known = Waiting(one, number, fields, message, is_found=is_found)
            one.waiting[fields.key] = known
        else:
            known.older = (*known.older, Copy(known.offset, known.entry))
        known.offset, known.entry = copy
        known.fields = fields
        known.host = message.store_host
        one.updated_ms = max(one.updated_ms, message.store_timestamp_ms)
        state.by_offset[known.offset] = known

    def _drop_deleted(self, state: HalfQueue) -> None:
        """Drop the messages whose half messages were deleted with the head of the log.

        No commit may deliver the others of their transactions: they will be discarded.
        """
        start = state.half.bounds().start
        if start == state.start:
            return
        state.start = start
        for waiting in dict.fromkeys(state.by_offset.values()):
            if waiting.offset < start:
                one = waiting.transaction
                log.warning("transaction %s: a message was deleted before it ended", one.id)
                self._take_off(state, waiting)
                one.is_cut = not (waiting.is_delivered or one.is_delivered)
                if one.is_cut and not one.waiting:
                    self.remember([(one.id, HalfOutcome.DISCARDED.value)])

    # ---- the progress ----

    def progress(self) -> Mapping[TopicPartition, int]:
        """Return the progress of the check, by queue: the first half message that still waits, and the first op record
        that names it or a later one. Half messages before it are forgotten: no start reads them again.
        """
        offsets: dict[TopicPartition, int] = {}
        for state in self.by_number.values():
            newest = (waiting.offset for waiting in state.by_offset.values())
            half_offset = min(newest, default=state.next_half)
            for offset in [offset for offset in state.by_offset if offset < half_offset]:
                waiting = state.by_offset.pop(offset)
                waiting.older = tuple(each for each in waiting.older if each.offset >= half_offset)
            while state.ops and all(offset < half_offset for offset in state.ops[0][1]):
                state.ended.difference_update(state.ops.popleft()[1])
            offsets[state.half.partition] = half_offset
            if state.op is not None:
                offsets[state.op.partition] = state.ops[0][0] if state.ops else state.next_op
        return offsets


def half_queue(number: int) -> TopicPartition:
    """Return the half queue with this number."""
    return TopicPartition(names.HALF_TOPIC, number)
