"""Transactions of RocketMQ's format: the asynchronous interface for HTTP, for transactions of any number of half
messages.

Owns the transactions that have begun in this process, the order of requests to one of them, and the queue of their
ends: those that come while the store ends others are ended together. Must not know HTTP or a queue: the store finds
open transactions again after a restart (`storage.half_messages`). Use it on the event loop only; `step` is for the
thread of upkeep.

    begin        a transaction with an id of its own; its transactional id is the group of its producers
    resolve      which transaction a request belongs to: begun by this program, now or before a restart
    join         the right to append to it; call `leave` after the append
    end_by_id    of any transaction, a RocketMQ client's too
    listed       the open ones; those whose producers must name the outcome are Unknown

A transaction without a message is in no store: it is forgotten after its time-out, and by a restart.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Final, NamedTuple

from logserver.errors import Busy, NotReady, TransactionEnded, UnknownTransaction
from logserver.service.delay import Delivered
from logserver.service.requests import AppendOutcome, PartitionAppend, Produce
from logserver.service.topics import TopicCatalog
from logserver.service.upkeep import Service
from storage import (
    HalfChecked,
    HalfEnd,
    HalfEnded,
    HalfMessages,
    HalfOutcome,
    HalfTransaction,
    Prepared,
    Record,
    StorageError,
    TopicPartition,
    TransactionStatus,
)
from storage.errors import InvalidArgument, InvalidTopic, NotOffered

log = logging.getLogger(__name__)

DEFAULT_GROUP: Final = "logserver"
"""The group of producers of a transaction without a transactional id."""
ONGOING: Final = TransactionStatus.ONGOING.label
UNKNOWN: Final = "Unknown"
DISCARDED: Final = "Discarded"
KEPT_OUTCOMES: Final = 10_000
ENDED_AT_ONCE: Final = 1000
_STATES: Final = {
    HalfOutcome.COMMITTED: TransactionStatus.COMPLETE_COMMIT,
    HalfOutcome.ROLLED_BACK: TransactionStatus.COMPLETE_ABORT,
}


class HalfBegun(NamedTuple):
    """A transaction that has begun. It has no producer: the log keeps no ids of producers."""

    id: str
    producer: None = None


class HalfListed(NamedTuple):
    """An open transaction. `found`: its messages in the store, None for none."""

    id: str
    transactional_id: str
    state: str
    timeout_ms: int
    started_ms: int | None
    updated_ms: int
    found: HalfTransaction | None


class HalfEntry:
    """A transaction of this program in memory. `has_messages`: an append has begun, so the store may have some."""

    __slots__ = ("begun_ms", "has_messages", "idle", "is_ended", "lock", "prepared", "writing")

    def __init__(self, prepared: Prepared, begun_ms: int, *, has_messages: bool = False) -> None:
        self.prepared = prepared
        self.begun_ms = begun_ms
        self.has_messages = has_messages
        self.lock = asyncio.Lock()
        self.is_ended = False
        self.writing = 0
        self.idle: asyncio.Future[None] | None = None

    def leave(self) -> None:
        """Allow the transaction to end: an append has ended or failed."""
        self.writing -= 1
        if not self.writing and self.idle is not None:
            self.idle.set_result(None)
            self.idle = None

    async def settled(self) -> None:
        """Wait until no append of the transaction is under way."""
        while self.writing:
            if self.idle is None:
                self.idle = asyncio.get_running_loop().create_future()
            await asyncio.shield(self.idle)


class HalfTransactions:
    """The transactions of a store with half messages. `delivered` is called in another thread; see `Delivered`."""

    def __init__(
        self,
        topics: TopicCatalog,
        halves: HalfMessages,
        published: Callable[[TopicPartition], None],
        delivered: Delivered,
    ) -> None:
        self._topics = topics
        self._access = topics.access
        self._halves = halves
        self._published = published
        self._delivered = delivered
        self._entries: dict[str, HalfEntry] = {}
        self._outcomes: OrderedDict[str, TransactionStatus] = OrderedDict()  # without a message
        self._queue: list[tuple[HalfEnd, asyncio.Future[HalfEnded]]] = []
        self._ending: asyncio.Task[None] | None = None
        self._loop = asyncio.get_running_loop()
        self._closed = False

    async def stop(self) -> None:
        """End the transactions in the queue, and accept no more."""
        self._closed = True
        while self._ending is not None:
            await asyncio.wait((self._ending,))

    def _check_writable(self) -> None:
        self._access.check_writable()
        if self._closed:
            raise NotReady("the server is stopping", state="stopping")

    # ---- a transaction ----

    async def begin(self, transactional_id: str | None, timeout_ms: int) -> HalfBegun:
        """Begin a transaction. `transactional_id`: the group of its producers, which a broker asks for the outcome too.

        Raises InvalidArgument (transactional_id, timeout_ms), Busy, StoreReadOnly, StoreFenced.
        """
        self._check_writable()
        if not 1 <= timeout_ms <= self._halves.max_timeout_ms:
            raise InvalidArgument(
                f"timeout_ms is {timeout_ms}: need 1 to {self._halves.max_timeout_ms} (fileReservedTime)",
                field="timeout_ms",
            )
        group = DEFAULT_GROUP if transactional_id is None else transactional_id
        try:
            self._halves.check_group(group)
        except InvalidArgument as error:
            raise InvalidArgument(
                f"transactional_id is the group of the producers: {error.message}",
                field="transactional_id",
            ) from error
        limit = self._access.settings.max_transactional_ids
        if len(self._entries) >= limit:
            raise Busy(
                f"{len(self._entries)} transactions are open, the limit is {limit} (max_transactional_ids): end some"
            )
        prepared = Prepared(secrets.token_hex(12), group, timeout_ms)
        self._entries[prepared.id] = HalfEntry(prepared, self._access.clock())
        return HalfBegun(prepared.id)

    async def resolve(self, transaction_id: str) -> Prepared:
        """Return the open transaction of this program with this id, for its next messages.

        Raises UnknownTransaction, TransactionEnded; InvalidArgument for the transaction of a RocketMQ client, which is
        one message.
        """
        entry = self._entries.get(transaction_id)
        if entry is not None:
            return entry.prepared
        found = await self._access.run(self._halves.find, transaction_id)
        if isinstance(found, HalfOutcome):
            raise _ended(transaction_id, _label(found))
        known = self._outcomes.get(transaction_id)
        if known is not None:
            raise _ended(transaction_id, known.label)
        if found is None:
            raise _unknown(transaction_id)
        if not found.is_ours:
            raise InvalidArgument(
                f"transaction {transaction_id} is a message of a RocketMQ client: it takes no more records, and can be "
                "committed or rolled back",
                field="transaction",
            )
        prepared = Prepared(found.id, found.group, found.timeout_ms)
        entry = HalfEntry(prepared, found.started_ms, has_messages=True)
        return self._entries.setdefault(found.id, entry).prepared

    async def join(self, transaction: Prepared) -> HalfEntry:
        """Return the transaction, which does not end before `leave`. Raises what `resolve` raises."""
        self._check_writable()
        if transaction.id not in self._entries:
            await self.resolve(transaction.id)
        entry = self._entries[transaction.id]
        async with entry.lock:
            if entry.is_ended:
                await self.resolve(transaction.id)  # raises: its entry is removed
                raise _ended(transaction.id, None)
            entry.has_messages = True
            entry.writing += 1
            return entry

    def no_offsets(self) -> NotOffered:
        """Return the error for offsets of a group: they are in a file, and no transaction covers it."""
        return NotOffered(
            f"offsets in a transaction are not offered by the {self._access.store.capabilities.backend} backend: "
            "commit them after the transaction",
            feature="transaction-offsets",
        )

    async def end_by_id(self, transaction_id: str, *, commit: bool) -> TransactionStatus:
        """End the transaction with this id, and return its state: on return its outcome is durable, and consumers see
        its messages. A repeated request is answered as before.

        Appends that are under way are waited for. Raises UnknownTransaction, TransactionEnded with the other outcome,
        and what the store raises: repeat the request then.
        """
        self._check_writable()
        wanted = TransactionStatus.COMPLETE_COMMIT if commit else TransactionStatus.COMPLETE_ABORT
        entry = self._entries.get(transaction_id)
        if entry is None:
            status = await self._end(HalfEnd(transaction_id, commit))
        else:
            async with entry.lock:
                await entry.settled()
                status = await self._end_entry(entry, wanted)
        if status is None:
            raise _unknown(transaction_id)
        if status is not wanted:
            raise _ended(transaction_id, status.label)
        return status

    async def _end_entry(
        self, entry: HalfEntry, wanted: TransactionStatus
    ) -> TransactionStatus | None:
        """End a transaction in memory; the entry's lock must be held."""
        name = entry.prepared.id
        status = None
        if entry.has_messages:
            status = await self._end(HalfEnd(name, wanted is TransactionStatus.COMPLETE_COMMIT))
        if status is None:  # without a message
            status = self._outcomes.setdefault(name, wanted)
            if len(self._outcomes) > KEPT_OUTCOMES:
                self._outcomes.popitem(last=False)
        self._forget(entry)
        return status

    def _forget(self, entry: HalfEntry) -> None:
        entry.is_ended = True
        if self._entries.get(entry.prepared.id) is entry:
            del self._entries[entry.prepared.id]

    async def _end(self, wish: HalfEnd) -> TransactionStatus | None:
        """End a transaction with the next round; None if the store has none with this id. Also if the caller is
        cancelled, it returns after the round.
        """
        done: asyncio.Future[HalfEnded] = self._loop.create_future()
        self._queue.append((wish, done))
        if self._ending is None:
            self._ending = asyncio.create_task(self._rounds())
        try:
            ended = await asyncio.shield(done)
        except asyncio.CancelledError:
            await asyncio.wait((done,))
            raise
        if ended.error is not None:
            raise ended.error
        if ended.outcome is None:
            return self._outcomes.get(wish.id)
        if ended.outcome is HalfOutcome.DISCARDED:
            raise _ended(wish.id, DISCARDED)
        return _STATES[ended.outcome]

    async def _rounds(self) -> None:
        """Make rounds until the queue is empty."""
        try:
            while self._queue:
                taken = self._queue[:ENDED_AT_ONCE]
                del self._queue[:ENDED_AT_ONCE]
                await self._round(taken)
        finally:
            self._ending = None

    async def _round(self, taken: Sequence[tuple[HalfEnd, asyncio.Future[HalfEnded]]]) -> None:
        try:
            ended = await self._access.run(self._halves.end, [wish for wish, _ in taken])
            partitions = list(dict.fromkeys(at for one in ended for at in one.partitions))
            own = [TopicPartition(topic, 0) for topic in self._halves.topics]
            await self._topics.refresh([*partitions, *own])
        except StorageError as error:
            _fail(taken, error)
            return
        except Exception as error:  # a bug: the callers that wait must get an error all the same
            log.exception("a round of transactions broke")
            _fail(taken, error)
            return
        for (_, done), one in zip(taken, ended, strict=True):
            done.set_result(one)
        for partition in partitions:
            self._published(partition)

    @asynccontextmanager
    async def deleting(self, topic: str) -> AsyncIterator[None]:
        """Allow the deletion of a topic. Raises InvalidTopic for a topic of the half messages, as the broker does."""
        if topic in self._halves.topics:
            raise InvalidTopic(
                f"topic {topic!r} cannot be deleted: it is the state of transactions", topic=topic
            )
        yield

    # ---- lists and time ----

    async def listed(self, state: str | None = None) -> Sequence[HalfListed]:
        """Return the open transactions (in this state only): those with messages first, in the order of these."""
        now_ms = self._access.clock()
        found = await self._access.run(self._halves.transactions)
        rows = [
            HalfListed(
                one.id,
                one.group,
                UNKNOWN if one.is_unknown(now_ms) else ONGOING,
                one.timeout_ms,
                one.started_ms,
                one.updated_ms,
                one,
            )
            for one in found
        ]
        known = {one.id for one in found}
        rows += [
            HalfListed(name, group, ONGOING, timeout_ms, None, entry.begun_ms, None)
            for entry in self._entries.values()
            for name, group, timeout_ms in (entry.prepared,)
            if name not in known and not entry.is_ended
        ]
        return [row for row in rows if state in {None, row.state}]

    def services(self) -> Sequence[Service]:
        """Return the work for the upkeep of a writable store."""
        return [
            Service(name="transactions", interval_ms=self._halves.check_interval_ms, step=self.step)
        ]

    def step(self, now_ms: int) -> None:
        """Check the messages that wait too long, and forget transactions without a message after their time-out.
        Blocks; not for the thread of the event loop.
        """
        checked = self._halves.check(now_ms)
        if checked.partitions:
            self._delivered(checked.partitions, self._access.store.topics())
        self._loop.call_soon_threadsafe(self._after_check, checked, now_ms)

    def _after_check(self, checked: HalfChecked, now_ms: int) -> None:
        """Forget the transactions that were ended, and late ones without a message. If a message has come meanwhile,
        the store finds the transaction again.
        """
        ended = set(checked.ended)
        for name, entry in list(self._entries.items()):
            is_late = now_ms - entry.begun_ms > entry.prepared.timeout_ms
            is_idle = not entry.writing and not entry.lock.locked()
            if name in ended or (is_late and is_idle and name not in checked.waiting):
                self._forget(entry)


# ---- produce requests ----


def split(
    halves: HalfMessages,
    request: Produce,
    parts: Sequence[PartitionAppend],
    transaction: Prepared,
) -> tuple[list[PartitionAppend], Mapping[int, int]]:
    """Return the part with the half messages of a request, and by position the partition of each record.

    Raises InvalidArgument for records with delays: a message waits for one thing.
    """
    if request.delays is not None and any(delay is not None for delay in request.delays):
        raise InvalidArgument(
            "records with delay_level, deliver_at or delay_ms do not go with a transaction",
            field="transaction",
        )
    places: dict[int, int] = {}
    rows: list[tuple[int, TopicPartition, Record]] = []
    for part in parts:
        for position, record in zip(part.positions, part.records, strict=True):
            assert isinstance(record, Record)
            places[position] = part.partition.partition
            rows.append((position, *halves.prepared(record, part.partition, transaction)))
    rows.sort(key=lambda row: row[0])
    if not rows:
        return [], places
    half = PartitionAppend(
        rows[0][1],
        [record for _, _, record in rows],
        [position for position, _, _ in rows],
        request.compression,
        None,
        request.born_host,
    )
    return [half], places


def outcomes_of(
    outcomes: Sequence[AppendOutcome], places: Mapping[int, int]
) -> list[AppendOutcome]:
    """Return the outcomes in the terms of the request: each record has the partition that it is for, and no offset."""
    return [
        AppendOutcome(
            places[position],
            (position,),
            -1,
            outcome.error,
            outcome.locators[index : index + 1],
            is_prepared=outcome.error is None,
        )
        for outcome in outcomes
        for index, position in enumerate(outcome.positions)
    ]


def _fail(taken: Sequence[tuple[HalfEnd, asyncio.Future[HalfEnded]]], error: Exception) -> None:
    for _, done in taken:
        done.set_exception(error)
        done.exception()  # retrieved: a caller may have been cancelled


def _label(outcome: HalfOutcome) -> str:
    return DISCARDED if outcome is HalfOutcome.DISCARDED else _STATES[outcome].label


def _unknown(transaction_id: str) -> UnknownTransaction:
    return UnknownTransaction(
        f"no transaction has the id {transaction_id[:80]!r}", id=transaction_id[:80]
    )


def _ended(transaction_id: str, state: str | None) -> TransactionEnded:
    return TransactionEnded(
        f"transaction {transaction_id[:80]} has ended{'' if state is None else f': {state}'}; begin another one",
        id=transaction_id[:80],
        state=state,
    )
