"""Transactions: half messages, their end and their checks, and the order of the writes.

Owns the progress of the broker's check in consumerOffset.json; must not decide when it is called. Which half messages
wait is in half_queues.py. Sources: TransactionalMessageBridge,
TransactionalMessageServiceImpl.check and EndTransactionProcessor of RocketMQ 5.5.0; the bytes are in
format/half_message.py.

    commit     the messages to their real queues -> the op record, with the outcome -> sync the log, show all of them
    rollback   the op record -> sync
    check      the half messages again, with the number of their checks -> sync -> progress of the half and op queue
    discard    the messages to TRANS_CHECK_MAX_TIME_TOPIC -> the op record -> sync -> progress

A check works in steps, each with its sync, and releases the lock in between; the progress follows the last one.
All are appended to one log, so a crash leaves a beginning of these writes, and no reader sees a message before the op
record is on disk. A start that finds a message in its real queue whose half message has no op record, which a broker
leaves too, does not deliver it again. The broker collects op records for three seconds; here the answer waits for them.
"""

from __future__ import annotations

import itertools
import logging
import secrets
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from time import sleep
from typing import Final, Protocol

from storage.contract import Clock
from storage.errors import (
    CallerError,
    Corrupt,
    InvalidTopic,
    NotOffered,
    StorageError,
    UnknownPartition,
    UnknownTopic,
)
from storage.half_messages import (
    HalfChecked,
    HalfEnd,
    HalfEnded,
    HalfOutcome,
    HalfTransaction,
    Prepared,
)
from storage.model import (
    AppendResult,
    CommittedOffset,
    FindQuery,
    FoundPage,
    GroupCommit,
    RawMessage,
    Record,
    TopicPartition,
)
from storage.rocketmq.format import half_message, names
from storage.rocketmq.format.half_message import HalfFields, HalfMark
from storage.rocketmq.format.message import TRANSACTION_COMMIT, TRANSACTION_MASK
from storage.rocketmq.format.properties import (
    PRODUCER_GROUP,
    REAL_QUEUE_ID,
    REAL_TOPIC,
    TRANSACTION_MARK,
    TRANSACTION_PREPARED,
)
from storage.rocketmq.half_queues import (
    GROUP,
    HalfQueue,
    HalfQueues,
    Reader,
    Transaction,
    Waiting,
    half_queue,
)
from storage.rocketmq.index.queues import Queue
from storage.rocketmq.log.reading import locator_of, locator_text
from storage.rocketmq.lookup.find import LocatedMessage
from storage.rocketmq.recovery.store_files import OpenedStore
from storage.rocketmq.retries import check_group
from storage.rocketmq.state.settings import StoreSettings

log = logging.getLogger(__name__)

HALF: Final = TopicPartition(names.HALF_TOPIC, 0)
MAX_TIME: Final = TopicPartition(names.CHECK_MAX_TIME_TOPIC, 0)
DEFAULT_RESERVED_MS: Final = 72 * 3_600_000  # fileReservedTime of the broker
PAUSE_S: Final = 0.0003
"""The time between two steps of reading: others get the processor, and this lock."""
CHECKED_AT_ONCE: Final = 200
CHECK_STEP_BYTES: Final = 1 << 20
"""Transactions and messages of one step of a check, and the bytes that it writes: the lock is held meanwhile."""
LOOKED_UP_AT_ONCE: Final = 100
"""Messages that a check looks for in their real queues before it lets others take the lock."""
LOOKED_UP: Final = 20_000
"""Messages that one check looks for: the other services of the store wait for it."""


class Home(Protocol):
    """The methods of the store that transactions need."""

    files: OpenedStore

    def queue(self, partition: TopicPartition) -> Queue:
        """Return a queue. Raises UnknownTopic, UnknownPartition."""

    def append_messages(
        self,
        partition: TopicPartition,
        messages: Sequence[RawMessage],
        *,
        store_host: bytes | None = None,
        publish: bool = True,
        is_stored: bool = False,
    ) -> AppendResult:
        """See RocketMQStore.append_messages and SupportsRawMessages.append_messages."""

    def check_offered(self, topic: str) -> None:
        """Raise NotOffered for a topic that only a broker can write."""

    def flush(self, partitions: Iterable[TopicPartition] | None = None) -> None:
        """See LogStore.flush."""

    def find_page(self, topic: str, query: FindQuery) -> FoundPage:
        """See LogStore.find_page."""

    def record_id(self, partition: TopicPartition, locator: int) -> str:
        """See LogStore.record_id."""

    def message_by_id(self, record_id: str) -> LocatedMessage:
        """Return a message. Raises RecordNotFound."""

    def commit_offsets(self, commits: Sequence[GroupCommit], *, durable: bool = True) -> None:
        """See SupportsGroupOffsets.commit_offsets."""

    def committed(self, group: str) -> Mapping[TopicPartition, CommittedOffset]:
        """See SupportsGroupOffsets.committed."""

    def create_own_topic(self, topic: str) -> None:
        """Create a topic of the broker's own, with one queue, if it is missing."""


@dataclass(slots=True)
class _Check:
    """A check in progress: the transactions to look at, the messages of those before that are due, and the result."""

    now_ms: int
    transactions: deque[Transaction]
    due: deque[Waiting] = field(default_factory=deque)
    checked: int = 0
    ended: list[str] = field(default_factory=list)
    partitions: dict[TopicPartition, None] = field(default_factory=dict)

    @property
    def is_left(self) -> bool:
        """Whether there is more to do."""
        return bool(self.transactions or self.due)


class HalfMessageStore:
    """The half messages of one store: see storage.half_messages.HalfMessages."""

    topics = frozenset({names.HALF_TOPIC, names.OP_TOPIC})
    group = GROUP

    def __init__(
        self, home: Home, clock: Clock, settings: Callable[[], StoreSettings], levels: int
    ) -> None:
        """Read nothing yet. `settings` returns the settings of now; `levels`: the number of delay levels."""
        self.check_interval_ms = settings().check_interval_ms
        self._home = home
        self._clock = clock
        self._settings = settings
        self._levels = levels
        self._lock = threading.Lock()
        self._numbers = itertools.count(secrets.randbits(32))
        self._halves = HalfQueues(home)
        self._unflushed: dict[TopicPartition, None] = {}  # an earlier call failed before its sync

    @property
    def max_timeout_ms(self) -> int:
        """See HalfMessages.max_timeout_ms."""
        return self._settings().file_reserved_ms or DEFAULT_RESERVED_MS

    @property
    def count(self) -> int:
        """See HalfMessages.count."""
        return len(self._halves.transactions)

    @contextmanager
    def _caught_up(self) -> Iterator[None]:
        """Hold the lock, with all read that was appended. While much is read, the lock is released between steps."""
        self._lock.acquire()
        try:
            while not self._halves.step():
                self._lock.release()
                try:
                    sleep(PAUSE_S)
                finally:
                    self._lock.acquire()
            yield
        finally:
            self._lock.release()

    # ---- half messages ----

    def check_group(self, group: str) -> None:
        """See HalfMessages.check_group."""
        check_group(group)

    def prepared(
        self, record: Record, partition: TopicPartition, transaction: Prepared
    ) -> tuple[TopicPartition, Record]:
        """See HalfMessages.prepared."""
        mark = HalfMark(transaction.id, transaction.timeout_ms, self._clock(), next(self._numbers))
        self._home.check_offered(partition.topic)
        properties = {
            **(record.properties or {}),
            TRANSACTION_PREPARED: "true",
            PRODUCER_GROUP: transaction.group,
            REAL_TOPIC: partition.topic,
            REAL_QUEUE_ID: str(partition.partition),
            half_message.IMMUNITY_S: str(-(-transaction.timeout_ms // 1000)),
            TRANSACTION_MARK: mark.text(),
        }
        return HALF, record._replace(properties=properties)

    def transactions(self) -> Sequence[HalfTransaction]:
        """See HalfMessages.transactions."""
        with self._caught_up():
            return [self._described(one) for one in self._open()]

    def find(self, transaction_id: str) -> HalfTransaction | HalfOutcome | None:
        """See HalfMessages.find."""
        with self._caught_up():
            outcome = self._halves.outcomes.get(transaction_id)
            if outcome is not None:
                return outcome
            found = self._halves.transactions.get(transaction_id)
            if found is None:
                return None
            return HalfOutcome.DISCARDED if found.is_cut else self._described(found)

    def _open(self) -> list[Transaction]:
        """Return the transactions without an outcome."""
        transactions = self._halves.transactions.values()
        return [
            one for one in transactions if not one.is_cut and one.id not in self._halves.outcomes
        ]

    def _described(self, one: Transaction) -> HalfTransaction:
        waiting, first = one.waiting.values(), one.first
        partitions = {each.fields.partition for each in waiting} - {None}
        return HalfTransaction(
            id=one.id,
            group=first.fields.group,
            is_ours=first.fields.mark is not None,
            partitions=sorted(each for each in partitions if each is not None),
            messages=len(waiting),
            record_id=locator_text(locator_of(first.host, first.entry.physical_offset)),
            started_ms=min(each.prepared_ms for each in waiting),
            updated_ms=one.updated_ms,
            timeout_ms=self._timeout_ms(first.fields),
            checks=max(each.fields.checks for each in waiting),
        )

    def _timeout_ms(self, fields: HalfFields) -> int:
        if fields.mark is not None:
            return fields.mark.timeout_ms
        immunity_ms = fields.immunity_ms
        return self._settings().transaction_timeout_ms if immunity_ms is None else immunity_ms

    # ---- the end of a transaction ----

    def end(self, ends: Sequence[HalfEnd]) -> Sequence[HalfEnded]:
        """See HalfMessages.end."""
        with self._caught_up():
            results = [HalfEnded(None)] * len(ends)
            decided: dict[str, HalfOutcome] = {}
            for at, wish in enumerate(ends):
                try:
                    results[at] = self._decide(wish, decided)
                except StorageError as error:
                    results[at] = HalfEnded(None, error=error)
            try:
                self._write_ops(decided)
                self._flush()
            except StorageError as error:
                return [
                    result if result.error or result.outcome is None else HalfEnded(None, (), error)
                    for result in results
                ]
            return results

    def _decide(self, wish: HalfEnd, decided: dict[str, HalfOutcome]) -> HalfEnded:
        """Return the result of a wish; append the messages of a transaction that it commits."""
        known = decided.get(wish.id) or self._halves.outcomes.get(wish.id)
        one = self._halves.transactions.get(wish.id)
        if known is not None or one is None:
            return HalfEnded(known)
        for waiting in one.waiting.values():
            self._find_delivered(waiting)
        if one.is_delivered:  # an earlier commit was interrupted: its outcome is fixed
            wanted = HalfOutcome.COMMITTED
        elif one.is_cut:  # the next check ends it
            return HalfEnded(HalfOutcome.DISCARDED)
        elif wish.commit:
            self._check_targets(one)
            wanted = HalfOutcome.COMMITTED
        else:
            wanted = HalfOutcome.ROLLED_BACK
        partitions = self._deliver(one) if wanted is HalfOutcome.COMMITTED else ()
        decided[wish.id] = wanted
        return HalfEnded(wanted, partitions)

    def _find_delivered(self, waiting: Waiting) -> None:
        """Look for a message in its real queue, and in that of its delay level, if it may be there."""
        if waiting.is_found:
            targets = half_message.targets(waiting.fields, self._levels)
            waiting.is_delivered |= any(self._is_in(target, waiting) for target in targets)
            waiting.is_found = False

    def _is_in(self, target: TopicPartition, waiting: Waiting) -> bool:
        """Return whether the message of a half message is in a queue. Our message names its half message; a client's
        may name one from before the progress, and has a unique id that no other message has.
        """
        fields = waiting.fields
        if not fields.unique_id:
            return False
        places = [copy.entry.physical_offset for copy in waiting.copies]
        query = FindQuery(unique_id=fields.unique_id)
        with suppress(UnknownTopic, UnknownPartition, Corrupt, NotOffered):
            for number, record in self._home.find_page(target.topic, query).records:
                if number != target.partition:
                    continue
                record_id = self._home.record_id(target, record.locator)
                found = self._home.message_by_id(record_id).message
                is_named = fields.mark is None or found.prepared_transaction_offset in places
                if is_named and found.sys_flag & TRANSACTION_MASK == TRANSACTION_COMMIT:
                    return True
        return False

    def _check_targets(self, one: Transaction) -> None:
        """Raise UnknownTopic or UnknownPartition if a queue of a transaction was deleted: an append would create it.
        Raise NotOffered for a topic that only a broker can write: no message of the transaction may be seen before.
        """
        for waiting in one.waiting.values():
            if waiting.fields.partition is not None:
                self._home.check_offered(waiting.fields.partition.topic)
                self._home.queue(waiting.fields.partition)

    def _deliver(self, one: Transaction) -> Sequence[TopicPartition]:
        """Append the messages of a transaction to their queues. Raises what `append_messages` raises, InvalidTopic for
        a message that names no queue, and Corrupt.
        """
        groups: dict[tuple[TopicPartition, bytes], list[tuple[Waiting, RawMessage]]] = {}
        left = [waiting for waiting in one.waiting.values() if not waiting.is_delivered]
        entries = [waiting.entry for waiting in left]
        reader = Reader(self._home.files.log)
        for at, waiting in enumerate(left):
            if waiting.fields.partition is None:
                raise InvalidTopic(
                    f"transaction {one.id} has a message that names no queue of a topic: it can be rolled back",
                    topic="",
                )
            message = reader.message(half_queue(waiting.queue_id), entries, at)
            target, raw = half_message.committed(
                message, waiting.fields, entries[at].physical_offset, self._levels
            )
            groups.setdefault((target, message.store_host), []).append((waiting, raw))
        for (target, host), group in groups.items():
            messages = [raw for _, raw in group]
            self._append(target, messages, host)
            self._unflushed[target] = None
            for waiting, _ in group:
                waiting.is_delivered = True
        return list(dict.fromkeys(target for target, _ in groups))

    def _write_ops(self, decided: Mapping[str, HalfOutcome]) -> None:
        """Append the op records of transactions, and take their messages off."""
        for number, state in self._halves.by_number.items():
            ended = []
            for transaction_id, outcome in decided.items():
                one = self._halves.transactions.get(transaction_id)
                if one is not None:
                    mine = [each for each in one.waiting.values() if each.queue_id == number]
                    offsets = [copy.offset for each in mine for copy in each.copies]
                    ended.append((transaction_id, outcome.value, offsets))
            messages = half_message.op_messages(
                [row for row in ended if row[2]], self._clock(), self._settings().store_host
            )
            if messages:
                target = TopicPartition(names.OP_TOPIC, number)
                result = self._home.append_messages(target, messages, publish=False)
                self._unflushed[target] = None
                self._halves.remember((name, code) for name, code, offsets in ended if offsets)
                self._take_over_ops(number, state, result, messages)

    def _take_over_ops(
        self, number: int, state: HalfQueue, result: AppendResult, messages: Sequence[RawMessage]
    ) -> None:
        if state.op is None:
            state.op = self._home.files.queues.get(names.OP_TOPIC, number)
        for at, message in enumerate(messages, result.base_offset):
            offsets = message.body.decode().rstrip(half_message.OFFSET_SEPARATOR)
            self._halves.note_op(
                state, at, [*map(int, offsets.split(half_message.OFFSET_SEPARATOR))]
            )

    def _append(self, target: TopicPartition, messages: Sequence[RawMessage], host: bytes) -> None:
        """Append messages that the store has as half messages."""
        self._home.append_messages(target, messages, store_host=host, publish=False, is_stored=True)

    def _flush(self) -> None:
        """Make all appended records durable and visible, also those that an earlier call could not sync."""
        for partition in list(self._unflushed):
            with suppress(CallerError):  # the topic was deleted meanwhile
                self._home.flush([partition])
            del self._unflushed[partition]

    # ---- checks ----

    def check(self, now_ms: int) -> HalfChecked:
        """See HalfMessages.check. Requests can take the lock between two steps."""
        self._look_up()
        with self._caught_up():
            work = _Check(now_ms, deque(self._halves.transactions.values()))
        while True:
            with self._caught_up():
                self._check_some(work)
            if not work.is_left:
                break
            sleep(PAUSE_S)
        with self._caught_up():
            self._write_progress()
            waiting = set(self._halves.transactions)
        return HalfChecked(work.checked, work.ended, list(work.partitions), waiting)

    def _check_some(self, work: _Check) -> None:
        """Look at some transactions: end those that are over, and write half messages that are due again. All that is
        written is durable on return. The messages of a transaction that ends are written in one step, however many.
        """
        looked = size_bytes = 0
        decided: dict[str, HalfOutcome] = {}
        again: list[Waiting] = []
        while work.is_left and looked < CHECKED_AT_ONCE and size_bytes < CHECK_STEP_BYTES:
            looked += 1
            if work.due:
                waiting = work.due.popleft()
                if self._waits(waiting):
                    again.append(waiting)
                    size_bytes += waiting.entry.size
                continue
            one = work.transactions.popleft()
            if one.is_found or not self._is_known(one):  # a later check looks for its messages
                continue
            outcome = self._fixed_outcome(one, work.now_ms)
            if outcome is None:
                every = one.waiting.values()
                work.due += [each for each in every if self._is_due(each, work.now_ms)]
            elif self._settle(one, outcome, work.partitions):
                decided[one.id] = outcome
                looked += len(one.waiting)
                size_bytes += sum(each.entry.size for each in one.waiting.values())
        self._write_ops(decided)
        work.ended += decided
        work.checked += self._write_again(again)
        self._flush()
        # Else requests would have to read these messages, and each time more of them.
        while not self._halves.step():
            pass

    def _is_known(self, one: Transaction) -> bool:
        """Return whether a transaction is still open: a request may have ended it between two steps."""
        return self._halves.transactions.get(one.id) is one

    def _waits(self, waiting: Waiting) -> bool:
        """Return whether a message still waits for the end of its transaction, which no request has named yet."""
        one = waiting.transaction
        is_open = self._is_known(one) and one.id not in self._halves.outcomes
        return is_open and one.waiting.get(waiting.fields.key) is waiting

    def _look_up(self) -> None:
        """Look for messages that a start found in their real queues. Requests can take the lock in between."""
        with self._caught_up():
            transactions = self._halves.transactions.values()
            every = (each for one in transactions for each in one.waiting.values() if each.is_found)
            left = list(itertools.islice(every, LOOKED_UP))
        for start in range(0, len(left), LOOKED_UP_AT_ONCE):
            with self._lock:
                for waiting in left[start : start + LOOKED_UP_AT_ONCE]:
                    self._find_delivered(waiting)
            sleep(0.001)  # else this thread takes the lock again before a waiting one wakes

    def _fixed_outcome(self, one: Transaction, now_ms: int) -> HalfOutcome | None:
        """Return the outcome of a transaction that no producer has to name any more; None: it is open."""
        if one.id in self._halves.outcomes:
            return self._halves.outcomes[one.id]
        if one.is_delivered:
            return HalfOutcome.COMMITTED
        if one.is_cut or any(self._is_hopeless(each, now_ms) for each in one.waiting.values()):
            return HalfOutcome.DISCARDED
        return None

    def _is_hopeless(self, waiting: Waiting, now_ms: int) -> bool:
        """Return whether a message was checked too often, or is older than the log's time (needDiscard, needSkip)."""
        return (
            waiting.fields.checks >= self._settings().check_max
            or now_ms - waiting.prepared_ms > self.max_timeout_ms
        )

    def _is_due(self, waiting: Waiting, now_ms: int) -> bool:
        """Return whether the producers of a message are to be asked. One from the future is due, as in the broker."""
        age_ms = now_ms - waiting.prepared_ms
        return age_ms < 0 or age_ms > self._timeout_ms(waiting.fields)

    def _settle(
        self, one: Transaction, outcome: HalfOutcome, partitions: dict[TopicPartition, None]
    ) -> bool:
        """Append the messages of a transaction that ends: one to be discarded, or one whose outcome was fixed before
        all its messages were taken off. False: a message cannot be read or stored, so that it waits.
        """
        try:
            if outcome is HalfOutcome.DISCARDED:
                self._discard(one)
                partitions[MAX_TIME] = None
            elif outcome is HalfOutcome.COMMITTED:
                partitions |= dict.fromkeys(self._deliver(one))
        except (Corrupt, CallerError) as error:
            log.error("transaction %s is not ended: %s", one.id, error.message)  # noqa: TRY400
            return False
        return True

    def _discard(self, one: Transaction) -> None:
        """Append the messages of a transaction to TRANS_CHECK_MAX_TIME_TOPIC."""
        self._home.create_own_topic(MAX_TIME.topic)
        groups: dict[bytes, list[RawMessage]] = {}
        for waiting in one.waiting.values():
            message = self._halves.newest(waiting)
            groups.setdefault(message.store_host, []).append(half_message.discarded(message))
        for host, messages in groups.items():
            self._append(MAX_TIME, messages, host)
            self._unflushed[MAX_TIME] = None
        log.warning("transaction %s is discarded: no producer has ended it", one.id)

    def _write_again(self, due: Sequence[Waiting]) -> int:
        """Append the half messages again, with the number of their checks; return how many."""
        count = 0
        group: list[RawMessage] = []
        place: tuple[int, bytes] | None = None
        for waiting in due:
            at = waiting.queue_id, waiting.host
            if group and at != place:
                count += self._put_back(place, group)
                group = []
            place = at
            try:
                message = self._halves.newest(waiting)
                group.append(half_message.checked(message, waiting.fields, waiting.offset))
            except (Corrupt, CallerError) as error:
                log.error("a half message is not checked: %s", error.message)  # noqa: TRY400
        if group:
            count += self._put_back(place, group)
        return count

    def _put_back(self, place: tuple[int, bytes] | None, group: Sequence[RawMessage]) -> int:
        """Append half messages, and return how many. One without room for the number of its checks is logged: it waits
        until it is too old.
        """
        assert place is not None
        number, host = place
        target = half_queue(number)
        try:
            self._append(target, group, host)
        except CallerError as error:
            if len(group) == 1:
                log.error("a half message is not checked: %s", error.message)  # noqa: TRY400
                return 0
            return sum(self._put_back(place, [message]) for message in group)
        self._unflushed[target] = None
        return len(group)

    def _write_progress(self) -> None:
        """Write the progress of the check if it has changed: the first half message that still waits, and the first op
        record that names it or a later one.
        """
        stored = self._home.committed(GROUP)
        changed = {
            partition: CommittedOffset(offset)
            for partition, offset in self._halves.progress().items()
            if partition not in stored or stored[partition].offset != offset
        }
        if changed:
            self._home.commit_offsets([GroupCommit(GROUP, changed)])
