"""Transactions of one store: the asynchronous interface for HTTP and for a wire protocol.

Owns the transactional ids in memory, the order of requests to one id, and the queue of changes: those that come while
a round of writes is under way go into the next round together. Must not know HTTP or a wire protocol. Use it on the
event loop only; `step` is for the thread of upkeep.

The two ways in, for the same transactions:

    HTTP           begin        a transaction with an id of its own, `Begun.id`
                   resolve      its producer, from that id
    wire protocol  initialise   InitProducerId of a transactional id
                   check_owner  that a request's transactional id and producer belong together
                   enter        Produce, if its partitions were added before; else `join`
                   join_offsets, enter_offsets, store_offsets    AddOffsetsToTxn and TxnOffsetCommit

    both           join         AddPartitionsToTxn, or the first produce request of a partition: the partitions belong
                                to the transaction before a record is written; call `Member.leave` after the append
                   commit_offsets    all of the above for offsets, in one call
                   end          EndTxn; `bump` False for a client of a protocol before transaction.version 2
                   states       ListTransactions, DescribeTransactions

Requests to one transactional id are done one after another. So no caller gets an answer such as
CONCURRENT_TRANSACTIONS: it waits.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict, deque
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Final, NamedTuple, cast

from logserver.errors import Busy, NotReady, TopicInUse, TransactionEnded, UnknownTransaction
from logserver.groups.overview import Groups
from logserver.service.topics import INTERNAL_TOPICS, TopicCatalog
from logserver.service.upkeep import Service
from logserver.transactions import machine
from logserver.transactions.ids import (
    UNNAMED,
    check_name,
    ended_id,
    id_of,
    parsed_id,
    unknown_id,
)
from logserver.transactions.machine import COMPLETE, IDLE, Answered, Ending
from logserver.transactions.steps import Change, TransactionStore, perform
from storage import (
    CommittedOffset,
    GroupCommit,
    ProducerEpoch,
    ProducerSequence,
    SupportsGroupOffsets,
    SupportsTransactions,
    TopicPartition,
    TransactionState,
    TransactionStatus,
)
from storage.errors import NotOffered
from storage.transactions import EPOCH_A_TRANSACTION

log = logging.getLogger(__name__)

STEP_MS: Final = 10_000  # transaction.abort.timed.out.transaction.cleanup.interval.ms
KEPT_OUTCOMES: Final = 10_000
EXPIRED_AT_ONCE: Final = 1000


class Begun(NamedTuple):
    """A transaction that has begun, and its producer."""

    id: str
    producer: ProducerEpoch


class Listed(NamedTuple):
    """A transactional id and its state. `id` names its transaction, as in `Begun`."""

    id: str
    state: TransactionState


class Entry:
    """A transactional id in memory.

    `state` is the newest stored state; None before the first. `begun_ms`: the time of `begin`, while the transaction
    has no partition yet. `writing`: appends of the transaction that are under way. `is_fresh`: an epoch of this
    process, which no client of an earlier one has. `succeeded`: the producer that asked for the current epoch, so that
    it gets the same one if it asks again.
    """

    __slots__ = ("begun_ms", "idle", "is_fresh", "lock", "name", "state", "succeeded", "writing")

    def __init__(self, name: str, state: TransactionState | None = None) -> None:
        self.name = name
        self.state = state
        self.lock = asyncio.Lock()
        self.begun_ms: int | None = None
        self.writing = 0
        self.idle: asyncio.Future[None] | None = None
        self.is_fresh = False
        self.succeeded: ProducerEpoch | None = None

    @property
    def is_open(self) -> bool:
        """Whether a transaction is open, perhaps still without a partition."""
        state = self.state
        return self.begun_ms is not None or (
            state is not None and state.status is TransactionStatus.ONGOING
        )

    async def settled(self) -> None:
        """Wait until no append of the transaction is under way."""
        while self.writing:
            if self.idle is None:
                self.idle = asyncio.get_running_loop().create_future()
            await asyncio.shield(self.idle)


class Member:
    """The right to append to the partitions of a transaction. `leave` it once the append has ended or failed: the
    transaction ends after that.
    """

    __slots__ = ("_entry", "producer")

    def __init__(self, entry: Entry, producer: ProducerEpoch) -> None:
        self.producer = producer
        self._entry = entry
        entry.writing += 1

    def mark(self, sequence: int = -1) -> ProducerSequence:
        """Return the mark of an append; without a sequence, the partition numbers it."""
        return ProducerSequence(*self.producer, sequence, transactional=True)

    def leave(self) -> None:
        """Allow the transaction to end."""
        entry = self._entry
        entry.writing -= 1
        if not entry.writing and entry.idle is not None:
            entry.idle.set_result(None)
            entry.idle = None


class _Queued(NamedTuple):
    """A change in the queue. `is_remembered`: if it ends a transaction, a later request of its client gets the outcome
    as its answer; else that client is fenced.
    """

    entry: Entry
    change: Change
    done: asyncio.Future[None]
    is_remembered: bool


class Transactions:
    """The transactions of one store. All calls raise NotOffered if the store has none."""

    def __init__(
        self, topics: TopicCatalog, groups: Groups, published: Callable[[TopicPartition], None]
    ) -> None:
        """Create the coordinator. `published` is called with each partition in which a transaction has ended."""
        self._topics = topics
        self._groups = groups
        self._access = topics.access
        self._published = published
        store = self._access.store
        self._kept_in: TransactionStore | None = None  # None: the store has no transactions
        if isinstance(store, SupportsTransactions):
            self._kept_in = cast("TransactionStore", store)
        self._durable = self._access.settings.flush != "os"
        self._entries: dict[str, Entry] = {}
        self._by_producer: dict[int, Entry] = {}
        self._unnamed: deque[Entry] = deque()  # may be used for the next transaction without a name
        self._unnamed_count = 0
        self._outcomes: OrderedDict[ProducerEpoch, TransactionStatus] = OrderedDict()
        self._queue: list[_Queued] = []
        self._writing: asyncio.Task[None] | None = None
        self._rounds = asyncio.Lock()  # held during a round of writes
        self._loading: asyncio.Task[None] | None = None
        self._loop = asyncio.get_running_loop()
        self._closed = False

    # ---- start and stop ----

    def start(self) -> None:
        """Begin to load the states. If the store is writable, ends whose outcome is stored are completed."""
        if self._kept_in is not None:
            self._loading = asyncio.create_task(self._load())
            self._loading.add_done_callback(_retrieved)

    async def stop(self) -> None:
        """Complete the changes in the queue, and accept no more."""
        self._closed = True
        if self._loading is not None:
            await asyncio.wait((self._loading,))
        while self._writing is not None:
            await asyncio.wait((self._writing,))

    async def _load(self) -> None:
        for state in await self._access.run(self._store().transactions):
            entry = Entry(state.transactional_id)
            self._entries[entry.name] = entry
            self._apply(entry, state)
            if entry.name.startswith(UNNAMED):
                number = entry.name.removeprefix(UNNAMED)
                self._unnamed_count = max(
                    self._unnamed_count, int(number) if number.isdecimal() else 0
                )
                if state.status in IDLE:
                    self._unnamed.append(entry)
        if self._access.store.read_only:
            return
        decided = [e for e in self._entries.values() if e.state and e.state.status.is_prepared]
        if decided:
            log.info("transactions: %d whose outcome is stored are completed", len(decided))
        for entry in decided:
            self._queued(entry, machine.resumed(_state(entry), self._access.clock()))

    async def _loaded(self) -> TransactionStore:
        store = self._store()
        if self._loading is not None and not self._loading.done():
            await asyncio.wait((self._loading,))
        if self._loading is not None:
            self._loading.result()
        return store

    async def _writable(self) -> TransactionStore:
        """Return the store, loaded and writable."""
        store = await self._loaded()
        self._access.check_writable()
        if self._closed:
            raise NotReady("the server is stopping", state="stopping")
        return store

    def _store(self) -> TransactionStore:
        if self._kept_in is None:
            backend = self._access.store.capabilities.backend
            raise NotOffered(f"backend {backend} has no transactions", feature="transactions")
        return self._kept_in

    # ---- a producer ----

    async def begin(self, transactional_id: str | None, timeout_ms: int) -> Begun:
        """Begin a transaction, and fence an earlier one with the same transactional id: if it is open, it is rolled
        back. Without an id the transaction has one of the server's own.

        Raises InvalidArgument (transactional_id, timeout_ms), Busy, StoreReadOnly, StoreFenced, DiskFull.
        """
        store = await self._writable()
        machine.check_timeout(timeout_ms, store.transaction_limits)
        if transactional_id is not None:
            check_name(transactional_id)
        async with self._held(transactional_id) as entry:
            if transactional_id is not None or not entry.is_fresh:
                await self._initialise(entry, timeout_ms)
            state = _state(entry)
            if state.timeout_ms != timeout_ms:  # stored with the first partition
                entry.state = state = state._replace(timeout_ms=timeout_ms)
            entry.begun_ms = self._access.clock()
        producer = ProducerEpoch(state.producer_id, state.epoch)
        return Begun(id_of(producer), producer)

    async def initialise(
        self, transactional_id: str, timeout_ms: int, known: ProducerEpoch | None = None
    ) -> ProducerEpoch:
        """Return the producer of a transactional id from now on; earlier ones are fenced, and an open transaction is
        rolled back (InitProducerId).

        `known`: the producer that the client has had; raises FencedProducer if a newer one exists. A request that is
        repeated, with the same `known`, gets the same answer. Raises what `begin` raises.
        """
        store = await self._writable()
        check_name(transactional_id)
        machine.check_timeout(timeout_ms, store.transaction_limits)
        async with self._held(transactional_id) as entry:
            state = entry.state
            if known is not None and state is not None:
                if known == entry.succeeded and state.status is TransactionStatus.EMPTY:
                    return ProducerEpoch(state.producer_id, state.epoch)
                is_current = known == (state.producer_id, state.epoch)
                if not is_current and not machine.is_end_of(state, known):
                    raise machine.fenced(known, state)
            await self._initialise(entry, timeout_ms)
            entry.succeeded = known
            return ProducerEpoch(_state(entry).producer_id, _state(entry).epoch)

    async def _initialise(self, entry: Entry, timeout_ms: int) -> None:
        """Store a state with a higher epoch. The entry's lock must be held."""
        await self._finish(entry)
        if entry.is_open and entry.state is not None:
            await self._end(entry, commit=False, bump=True, is_remembered=False)
        new_id = machine.NO_PRODUCER
        if machine.needs_producer_id(entry.state):
            new_id = await self._access.run(self._store().new_producer_id)
        now_ms = self._access.clock()
        await self._change(
            entry,
            machine.initialised(entry.state, entry.name, timeout_ms, now_ms, new_id=new_id),
        )
        entry.is_fresh = True
        entry.succeeded = None

    def _entry(self, name: str) -> Entry:
        entry = self._entries.get(name)
        if entry is None:
            limit = self._access.settings.max_transactional_ids
            if len(self._entries) >= limit:
                raise Busy(
                    f"there are {len(self._entries)} transactional ids, the limit is {limit} "
                    "(max_transactional_ids): use fewer, or wait until unused ones have expired "
                    "(transactional.id.expiration.ms)"
                )
            entry = self._entries[name] = Entry(name)
        return entry

    def _unused(self) -> Entry:
        """Return the entry of a transaction without a name, and keep it for this one."""
        while self._unnamed:
            entry = self._unnamed.popleft()
            state = entry.state
            if entry.name in self._entries and state is not None and state.status in IDLE:
                return entry
        self._unnamed_count += 1
        return self._entry(f"{UNNAMED}{self._unnamed_count}")

    @asynccontextmanager
    async def _held(self, name: str | None) -> AsyncIterator[Entry]:
        """Hold the lock of the entry of a transactional id. None: of an entry for a transaction without an id, which is
        kept for another one if this one could not begin.

        A new entry is removed if its first state could not be stored, and an unused one at the end of its time. Callers
        that have waited for its lock then take the entry that is known now: else two producers would have one id.
        """
        while True:
            entry = self._unused() if name is None else self._entry(name)
            async with entry.lock:
                if self._entries.get(entry.name) is not entry:
                    continue
                try:
                    yield entry
                except BaseException:
                    if name is None and entry.state is not None:
                        self._unnamed.append(entry)
                    raise
                finally:
                    if entry.state is None:
                        del self._entries[entry.name]
                return

    async def resolve(self, transaction_id: str) -> ProducerEpoch:
        """Return the producer of an open transaction, from `Begun.id`.

        Raises UnknownTransaction; TransactionEnded if it has ended; FencedProducer if a newer transaction has the same
        transactional id.
        """
        await self._loaded()
        producer = parsed_id(transaction_id)
        entry = self._of(producer)
        state = _state(entry)
        if producer == (state.producer_id, state.epoch):
            is_named = not entry.name.startswith(UNNAMED)
            if is_named and state.status is TransactionStatus.EMPTY and entry.begun_ms is None:
                entry.begun_ms = (
                    state.update_ms
                )  # begun before a restart, and still without a record
            if entry.is_open:
                return producer
        outcome = self._outcomes.get(producer)
        if outcome is not None:
            raise ended_id(transaction_id, outcome)
        if machine.is_end_of(state, producer):
            raise ended_id(transaction_id, state.status)
        if producer.producer_id == state.producer_id and producer.epoch >= state.epoch:
            raise unknown_id(transaction_id)
        if entry.name.startswith(UNNAMED):  # no other client shares its id, so it has ended
            raise ended_id(transaction_id, None)
        raise machine.fenced(producer, state)

    def _of(self, producer: ProducerEpoch) -> Entry:
        entry = self._by_producer.get(producer.producer_id)
        if entry is None or entry.state is None:
            raise unknown_id(id_of(producer))
        return entry

    def transaction_of(self, data: bytes) -> ProducerEpoch | None:
        """Return the producer whose transaction a client's batch belongs to. See SupportsTransactions."""
        return None if self._kept_in is None else self._kept_in.transaction_of(data)

    async def check_owner(self, transactional_id: str, producer: ProducerEpoch) -> None:
        """Raise UnknownTransaction unless the producer's id is, or was last, the one of this transactional id."""
        await self._loaded()
        entry = self._entries.get(transactional_id)
        if entry is None or self._by_producer.get(producer.producer_id) is not entry:
            raise UnknownTransaction(
                f"producer {producer.producer_id} is not the one of the transactional id "
                f"{transactional_id[:80]!r}",
                producer_id=producer.producer_id,
            )

    # ---- a transaction ----

    async def join(
        self,
        producer: ProducerEpoch,
        partitions: Collection[TopicPartition],
        *,
        version: int = EPOCH_A_TRANSACTION,
    ) -> Member:
        """Add partitions to the transaction of a producer, and return the right to append to them. On return it is
        durable that they belong to the transaction. The caller has checked that they exist.

        Raises UnknownTransaction, FencedProducer, TransactionEnded, and what the store raises.
        """
        await self._writable()
        entry = self._of(producer)
        async with entry.lock:
            state = await self._in_time(entry, producer)
            now_ms = self._access.clock()
            wanted = machine.with_partitions(state, partitions, now_ms, version=version)
            if wanted is not state:
                await self._change(entry, wanted)
                entry.begun_ms = None
            return Member(entry, producer)

    async def enter(
        self, producer: ProducerEpoch, partitions: Collection[TopicPartition]
    ) -> Member:
        """Return the right to append to partitions that were added before, for a client that adds them by a request of
        its own. Raises what `join` raises: TransactionEnded for a partition that is not in an open transaction.
        """
        await self._writable()
        entry = self._of(producer)
        async with entry.lock:
            state = await self._in_time(entry, producer)
            if not (entry.is_open and state.partitions.issuperset(partitions)):
                raise machine.ended(state, "the partition was not added to it")
            return Member(entry, producer)

    async def _in_time(self, entry: Entry, producer: ProducerEpoch) -> TransactionState:
        """Return the state if its transaction may go on. The entry's lock must be held."""
        state = machine.check_producer(entry.state, producer)
        if machine.is_overdue(state, self._access.clock()):
            await self._end(entry, commit=False, bump=True)
            raise ended_id(id_of(producer), TransactionStatus.COMPLETE_ABORT)
        return state

    async def join_offsets(
        self, producer: ProducerEpoch, group: str, *, version: int = EPOCH_A_TRANSACTION
    ) -> Member:
        """Add the offsets of a group to the transaction of a producer, as `join` adds partitions."""
        home = await self._home(producer, group)
        return await self.join(producer, (home,), version=version)

    async def enter_offsets(self, producer: ProducerEpoch, group: str) -> Member:
        """Return the right to commit offsets of a group that were added before, as `enter`."""
        return await self.enter(producer, (await self._home(producer, group),))

    async def _home(self, producer: ProducerEpoch, group: str) -> TopicPartition:
        """Return the partition of a group's offsets, for the current producer of a transactional id."""
        store = await self._writable()
        machine.check_producer(self._of(producer).state, producer)
        home = await self._access.run(store.offsets_partition, group)
        await self._note_topic(home.topic)
        return home

    async def commit_offsets(
        self, producer: ProducerEpoch, group: str, offsets: Mapping[TopicPartition, CommittedOffset]
    ) -> None:
        """Commit offsets of a group in the transaction of a producer: they count once it is committed.

        Raises what `join` and `SupportsGroupOffsets.commit_offsets` raise.
        """
        await self._writable()
        machine.check_producer(self._of(producer).state, producer)
        await self._groups.check_commit(group, offsets)
        await self.store_offsets(await self.join_offsets(producer, group), group, offsets)

    async def store_offsets(
        self, member: Member, group: str, offsets: Mapping[TopicPartition, CommittedOffset]
    ) -> None:
        """Commit offsets that the caller has checked, with the right to do so. The right is left once they are written,
        also if the caller is cancelled before.
        """
        keeper = cast("SupportsGroupOffsets", self._store())
        commit = GroupCommit(group, offsets, member.producer)
        writing = asyncio.ensure_future(
            self._access.run(keeper.commit_offsets, [commit], durable=False)
        )
        writing.add_done_callback(lambda done: _left(member, done))
        await asyncio.shield(writing)

    async def end(
        self, producer: ProducerEpoch, *, commit: bool, bump: bool = True
    ) -> ProducerEpoch:
        """End the transaction of a producer: on return it is decided, durable, and seen by readers of committed
        records. Return the producer of the next transaction. A repeated request is answered as before.

        Appends that are under way are waited for. Without a partition there is nothing to end: a rollback only raises
        the epoch. Raises UnknownTransaction, FencedProducer, TransactionEnded (with the other outcome), and what the
        store raises: after DiskFull the outcome may be fixed, and a repeat of the request completes it.
        """
        await self._writable()
        entry = self._of(producer)
        async with entry.lock:
            known = self._outcomes.get(producer)
            if known is None:
                await entry.settled()
                await self._end_of(entry, producer, commit=commit, bump=bump)
            elif (known in machine.COMMITS) != commit:
                raise ended_id(id_of(producer), known)
            return ProducerEpoch(_state(entry).producer_id, _state(entry).epoch)

    async def end_by_id(self, transaction_id: str, *, commit: bool) -> TransactionStatus:
        """End the transaction with this id (`Begun.id`) and return its state. A repeated request is answered as before.

        Raises what `resolve` and `end` raise.
        """
        wanted = TransactionStatus.COMPLETE_COMMIT if commit else TransactionStatus.COMPLETE_ABORT
        decided = TransactionStatus.PREPARE_COMMIT if commit else TransactionStatus.PREPARE_ABORT
        try:
            producer = await self.resolve(transaction_id)
        except TransactionEnded as error:
            state = error.facts().get("state")
            if state == wanted.label:
                return wanted
            if state != decided.label:
                raise
            producer = parsed_id(transaction_id)
        await self.end(producer, commit=commit)
        return wanted

    async def _end_of(
        self, entry: Entry, producer: ProducerEpoch, *, commit: bool, bump: bool
    ) -> None:
        state = entry.state
        now_ms = self._access.clock()
        is_current = state is not None and producer == (state.producer_id, state.epoch)
        if is_current and entry.begun_ms is not None:
            await self._end(entry, commit=commit, bump=bump)
            return
        if is_current and state is not None and machine.is_overdue(state, now_ms) and commit:
            await self._end(entry, commit=False, bump=True)
            raise ended_id(id_of(producer), TransactionStatus.COMPLETE_ABORT)
        found = machine.end_of(state, producer, commit=commit, bump=bump, now_ms=now_ms)
        if isinstance(found, Ending):
            await self._change(entry, found)
        elif found is not Answered.BEFORE:
            await self._end(entry, commit=commit, bump=bump)

    async def _end(
        self, entry: Entry, *, commit: bool, bump: bool, is_remembered: bool = True
    ) -> None:
        """End the open transaction of an entry. Its lock must be held."""
        state = _state(entry)
        await entry.settled()
        next_id = machine.NO_PRODUCER
        if machine.needs_next_producer_id(state, bump=bump):
            next_id = await self._access.run(self._store().new_producer_id)
        now_ms = self._access.clock()
        ending = machine.ending(state, commit=commit, now_ms=now_ms, bump=bump, next_id=next_id)
        await self._change(entry, ending, is_remembered=is_remembered)

    async def _finish(self, entry: Entry) -> None:
        """Complete an end whose outcome is stored."""
        if entry.state is not None and entry.state.status.is_prepared:
            await self._change(entry, machine.resumed(entry.state, self._access.clock()))

    @asynccontextmanager
    async def deleting(self, topic: str) -> AsyncIterator[None]:
        """Make no change while a topic is deleted. Raises TopicInUse if open transactions need it: their states, or
        offsets of groups in them. A transaction whose outcome is stored counts as open until it is complete.
        """
        if topic not in INTERNAL_TOPICS or self._kept_in is None:
            yield
            return
        store = await self._loaded()
        async with self._rounds:
            holds_states = topic == store.transactions_topic
            needing = [
                entry.name
                for entry in self._entries.values()
                if (state := entry.state) is not None
                and (state.status is TransactionStatus.ONGOING or state.status.is_prepared)
                and (holds_states or any(at.topic == topic for at in state.partitions))
            ]
            if needing:
                raise TopicInUse(
                    f"topic {topic!r} is needed by {len(needing)} open transactions, such as that of the "
                    f"transactional id {needing[0][:80]!r}: end them first",
                    topic=topic,
                    transactional_id=needing[0],
                )
            yield

    # ---- states ----

    async def state(self, transactional_id: str) -> TransactionState | None:
        """Return the state of a transactional id; None for an unknown id. Raises NotOffered."""
        await self._loaded()
        entry = self._entries.get(transactional_id)
        return None if entry is None else entry.state

    async def states(self, statuses: Collection[TransactionStatus] = ()) -> Sequence[Listed]:
        """Return the states of all transactional ids (of these statuses only), by id. Raises NotOffered."""
        await self._loaded()
        return [
            Listed(id_of(machine.transaction_of(state)), state)
            for _, entry in sorted(self._entries.items())
            if (state := entry.state) is not None and (not statuses or state.status in statuses)
        ]

    # ---- time ----

    def services(self) -> Sequence[Service]:
        """Return the work for the upkeep of a writable store; none if the store has no transactions."""
        if self._kept_in is None:
            return ()
        return [
            Service(name="transactions", interval_ms=STEP_MS, step=self.step, lag_ms=self.lag_ms)
        ]

    def step(self, now_ms: int) -> None:
        """Roll back transactions that have lasted longer than their time-out, complete ends that have failed in the
        middle, and remove ids that are unused. Blocks; not for the thread of the event loop.
        """
        asyncio.run_coroutine_threadsafe(self.expire(now_ms), self._loop).result()

    async def expire(self, now_ms: int) -> None:
        """Do the work of `step` on the event loop. Raises what the store raises."""
        store = await self._loaded()
        due = [entry for entry in self._entries.values() if self._is_due(store, entry, now_ms)]
        for begin in range(0, len(due), EXPIRED_AT_ONCE):
            some = due[begin : begin + EXPIRED_AT_ONCE]
            results = await asyncio.gather(
                *(self._expire(store, entry, now_ms) for entry in some), return_exceptions=True
            )
            for result in results:
                if isinstance(result, BaseException):
                    raise result

    def lag_ms(self, now_ms: int) -> int:
        """Return for how long the oldest transaction has been over its time-out. Any thread may call it."""
        overdue = [
            now_ms - state.start_ms - state.timeout_ms
            for entry in list(self._entries.values())
            if (state := entry.state) is not None and machine.is_overdue(state, now_ms)
        ]
        return max(overdue, default=0)

    def _is_due(self, store: TransactionStore, entry: Entry, now_ms: int) -> bool:
        state = entry.state
        if state is None:
            return False
        if entry.begun_ms is not None:
            return entry.begun_ms + state.timeout_ms <= now_ms
        return (
            state.status.is_prepared
            or machine.is_overdue(state, now_ms)
            or machine.is_unused(state, now_ms, store.transaction_limits)
        )

    async def _expire(self, store: TransactionStore, entry: Entry, now_ms: int) -> None:
        async with entry.lock:
            if self._closed or not self._is_due(store, entry, now_ms):  # changed meanwhile
                return
            await self._finish(entry)
            if entry.is_open:
                log.info("transactions: %s is rolled back: its time-out has passed", entry.name)
                await self._end(entry, commit=False, bump=True)
            elif machine.is_unused(_state(entry), now_ms, store.transaction_limits):
                await self._change(entry, machine.dead(_state(entry), now_ms))

    # ---- the queue of changes ----

    async def _change(
        self, entry: Entry, wanted: TransactionState | Ending, *, is_remembered: bool = True
    ) -> None:
        """Make a change with the next round of writes. The entry's lock must be held: also if the caller is cancelled,
        until the state is known.
        """
        done = self._queued(entry, wanted, is_remembered=is_remembered)
        try:
            await asyncio.shield(done)
        except asyncio.CancelledError:
            await asyncio.wait((done,))
            raise

    def _queued(
        self, entry: Entry, wanted: TransactionState | Ending, *, is_remembered: bool = True
    ) -> asyncio.Future[None]:
        done: asyncio.Future[None] = self._loop.create_future()
        self._queue.append(_Queued(entry, Change(wanted), done, is_remembered))
        if self._writing is None:
            self._writing = asyncio.create_task(self._write())
        return done

    async def _write(self) -> None:
        """Make rounds until the queue is empty."""
        try:
            while self._queue:
                async with self._rounds:
                    taken, self._queue = self._queue, []
                    await self._round(taken)
        finally:
            self._writing = None

    async def _round(self, taken: Sequence[_Queued]) -> None:
        changes = [queued.change for queued in taken]
        broken: Exception | None = None
        try:
            await self._access.run(perform, self._store(), changes, durable=self._durable)
            await self._note_topic(self._store().transactions_topic)
        except Exception as error:  # a bug: the callers that wait must get an error all the same
            log.exception("a round of transactions broke")
            broken = error
        for queued in taken:
            self._take_over(queued)
            failed = queued.change.error or broken
            if failed is None:
                queued.done.set_result(None)
            else:
                queued.done.set_exception(failed)
                queued.done.exception()  # retrieved: a caller may have been cancelled
        for partition in {p for change in changes for p in _ended_in(change)}:
            self._published(partition)

    async def _note_topic(self, name: str) -> None:
        """Add a topic that the store created by itself to the server's topics."""
        if name not in self._topics:
            topics = await self._access.run(self._access.store.topics)
            self._topics.note(name, topics.get(name))

    def _take_over(self, queued: _Queued) -> None:
        """Take over the newest state that the store has."""
        entry, change = queued.entry, queued.change
        if change.stored is None:
            return
        self._apply(entry, change.stored)
        if not isinstance(change.wanted, Ending) or change.stored.status not in COMPLETE:
            return
        entry.begun_ms = None
        prepared = change.wanted.prepared
        if queued.is_remembered and prepared.client_version >= EPOCH_A_TRANSACTION:
            self._outcomes[machine.transaction_of(prepared)] = change.stored.status
            if len(self._outcomes) > KEPT_OUTCOMES:
                self._outcomes.popitem(last=False)
        if entry.name.startswith(UNNAMED):
            self._unnamed.append(entry)

    def _apply(self, entry: Entry, state: TransactionState) -> None:
        if state.status is TransactionStatus.DEAD:
            self._entries.pop(entry.name, None)
            for producer_id in (state.producer_id, state.previous_producer_id):
                if self._by_producer.get(producer_id) is entry:
                    del self._by_producer[producer_id]
            return
        entry.state = state
        self._by_producer[state.producer_id] = entry
        if state.previous_producer_id not in {state.producer_id, machine.NO_PRODUCER}:
            self._by_producer.setdefault(state.previous_producer_id, entry)


def _state(entry: Entry) -> TransactionState:
    assert entry.state is not None
    return entry.state


def _ended_in(change: Change) -> frozenset[TopicPartition]:
    """Return the partitions in which readers see the end of a transaction now."""
    if isinstance(change.wanted, Ending) and change.error is None:
        return change.wanted.prepared.partitions
    return frozenset()


def _left(member: Member, done: asyncio.Future[None]) -> None:
    """Leave a transaction after a write. Its error is the caller's, who may be cancelled."""
    if not done.cancelled():
        done.exception()
    member.leave()


def _retrieved(loading: asyncio.Task[None]) -> None:
    """Log why the states cannot be loaded; each call raises it too."""
    if not loading.cancelled() and loading.exception() is not None:
        log.error("transactions cannot be loaded: %s", loading.exception())
