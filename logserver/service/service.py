"""The asynchronous interface of one store: start and stop, health, reading, and the objects for everything else.

Owns the server's life cycle and the calls from the event loop to the blocking store. Must not know HTTP or a backend.
All methods are called on one event loop.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import ClassVar, Final, ParamSpec, TypeAlias, TypeVar

from logserver.config import Settings
from logserver.groups.overview import Groups
from logserver.groups.retries import Retries
from logserver.idempotency.keys import KeyedWriter, open_keyed_writer
from logserver.metrics import Metrics
from logserver.service.access import ServerState, StoreAccess
from logserver.service.commit import Writer
from logserver.service.delay import Delivered, delivery, no_delays
from logserver.service.fetch import (
    ReadResult,
    SomePage,
    Waiters,
    poll,
    read_batch_page,
    read_batches_promptly,
    read_page,
)
from logserver.service.fetch_many import (
    FetchMany,
    PartitionPage,
    ReadMany,
    poll_many,
    read_many,
    read_promptly,
)
from logserver.service.follow import follow_pages
from logserver.service.maintenance import maintenance
from logserver.service.memory_budget import MemoryBudget, Reservation
from logserver.service.produce import Producer
from logserver.service.requests import Fetch, Follow
from logserver.service.topics import TopicCatalog, cluster_id_of
from logserver.service.upkeep import ServiceStatus, Upkeep
from logserver.transactions.half import HalfTransactions
from logserver.transactions.service import Transactions
from storage import (
    Batches,
    ClientBatches,
    Clock,
    DelayedPage,
    EpochEnd,
    FindQuery,
    FoundPage,
    LogStore,
    OffsetBounds,
    Page,
    Progress,
    PromptBatches,
    StoredRecord,
    StoreStats,
    SupportsClusterId,
    SupportsDelay,
    SupportsHalfMessages,
    SupportsLeaderEpochs,
    SupportsRetentionSettings,
    TimedOffset,
    TopicInfo,
    TopicPartition,
    client_batches_of,
    prompt_batches_of,
    wall_clock_ms,
)
from storage.errors import CallerError, NotOffered

P = ParamSpec("P")
T = TypeVar("T")
Opener: TypeAlias = Callable[[Progress], LogStore]

READERS: Final = 4
SEARCHERS: Final = 2  # threads of their own, so that a long scan does not delay a fetch
DISK_FULL_BELOW_BYTES: Final = 1 << 20
NODE_ID: Final = 1  # of a store without one


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """The health of the server. `state`: starting, recovering, ready, stopping or failed; `progress` while
    recovering.
    """

    state: str
    read_only: bool = False
    fenced: str | None = None
    disk_full: bool = False
    progress: tuple[str, int, int] | None = None

    @property
    def ready(self) -> bool:
        """True if clients should send requests to this server."""
        return self.state == "ready" and not self.needs_help

    @property
    def needs_help(self) -> bool:
        """True if the server does not get ready by itself."""
        return self.state == "failed" or self.fenced is not None or self.disk_full


class LogService:
    """The service of one store. `opener` opens the store; it blocks, and `start` calls it in a thread."""

    producer_type: ClassVar[type[Producer]] = Producer

    def __init__(self, settings: Settings, opener: Opener, *, clock: Clock = wall_clock_ms) -> None:
        self.settings = settings
        self.metrics = Metrics()
        self.budget = MemoryBudget(settings.max_in_flight_bytes)
        self.answers = MemoryBudget(settings.max_answer_bytes, "answers")
        self.stopping = asyncio.Event()  # set once: streams then end cleanly
        self.waiters = Waiters(settings.max_waiting_fetches)
        self._opener = opener
        self._clock = clock
        self.started_ms = clock()
        self._state = ServerState()
        self._threads = ThreadPoolExecutor(max_workers=READERS, thread_name_prefix="store")
        self._reading = asyncio.Semaphore(2 * READERS)
        self._search_threads = ThreadPoolExecutor(SEARCHERS, thread_name_prefix="search")
        # What `stop` closes: set by `start`.
        self._store: LogStore | None = None
        self._access: StoreAccess | None = None
        self._writer: Writer | None = None
        self._keyed_writer: KeyedWriter | None = None
        self._upkeep: Upkeep | None = None
        self._groups: Groups | None = None
        self._transactions: Transactions | None = None
        self._half_transactions: HalfTransactions | None = None  # with half messages alone
        # Set by `start`, before the state is ready.
        self._topics: TopicCatalog
        self._client_batches: ClientBatches | None
        self._prompt_batches: PromptBatches | None
        self._producer: Producer
        self._retries: Retries
        gauge = self.metrics.gauge
        gauge("waiting_fetches", "Fetches that wait for records.", lambda: self.waiters.count)
        gauge("queued_requests", "Requests that wait to be written.", lambda: self.queued)
        gauge("in_flight_bytes", "Bytes of requests in flight.", lambda: self.budget.held_bytes)
        gauge("answer_bytes", "Bytes of answers on their way.", lambda: self.answers.held_bytes)
        self.metrics.watch_store(lambda: None if self._store is None else self._store.stats())
        self.metrics.watch_services(self.services)

    # -- start, stop, health

    async def start(self) -> None:
        """Open the store (it recovers in a thread) and begin. Before this returns every call raises NotReady."""
        try:
            store = await self._run(self._opener, self._state.note_progress)
        except BaseException:
            self._state.name = "failed"
            raise
        self._store = store
        self._client_batches = client_batches_of(store)
        self._prompt_batches = prompt_batches_of(store)
        access = StoreAccess(
            store=store,
            state=self._state,
            settings=self.settings,
            run=self._run,
            waiters=self.waiters,
            clock=self._clock,
        )
        topics = await self._run(store.topics)
        writer = self._writer = Writer(
            store,
            sync=self.settings.flush == "sync",
            metrics=self.metrics,
            published=self.waiters.notify,
        )
        if store.read_only:
            self._begin_reading(TopicCatalog(access, topics))
        else:
            keyed_writer = self._keyed_writer = await open_keyed_writer(access, writer.submit)
            transactions = self._begin_reading(TopicCatalog(access, topics, keyed_writer))
            self._producer = self.producer_type(
                self._topics,
                writer,
                keyed_writer,
                self.metrics,
                transactions,
                half_transactions=self._half_transactions,
            )
            services = [
                *maintenance(
                    store, self.settings, writer.take_unflushed, keyed_writer.keys.journal
                ),
                *delivery(store, self.settings.delivery_interval_ms, self._delivered_from_thread()),
                *(self._half_transactions or transactions).services(),
            ]
            self._upkeep = Upkeep(services, self._clock)
            self._upkeep.start()
        self._access = access
        if self._state.name != "stopping":
            self._state.name = "ready"

    def _begin_reading(self, topics: TopicCatalog) -> Transactions:
        """Create what a read-only server has too: topics, groups and transactions."""
        self._topics = topics
        self._groups = Groups(topics)
        self._groups.start(self.metrics)
        self._retries = Retries(
            topics, self._groups, self.budget, lambda request: self.producer.produce(request)
        )
        transactions = self._transactions = Transactions(topics, self._groups, self.waiters.notify)
        transactions.start()
        topics.deleting = transactions.deleting
        store = topics.access.store
        if isinstance(store, SupportsHalfMessages):
            self._half_transactions = HalfTransactions(
                topics, store.half_messages, self.waiters.notify, self._delivered_from_thread()
            )
            topics.deleting = self._half_transactions.deleting
            halves = store.half_messages
            about = "Open transactions of half messages, at the last request or check."
            self.metrics.gauge("open_transactions", about, lambda: halves.count)
        return transactions

    def begin_stop(self) -> None:
        """Reject new requests and end long polls; requests in progress continue."""
        self._state.name = "stopping"
        self.stopping.set()
        self.waiters.close()
        if self._groups is not None:
            self._groups.begin_stop()

    async def stop(self) -> None:
        """Answer the queued requests, then flush, trim and mark the store as cleanly stopped."""
        self.begin_stop()
        if self._groups is not None:
            await self._groups.stop()
        if self._writer is not None:
            await self._writer.close()
        if self._upkeep is not None:
            await self._upkeep.stop()
        if self._transactions is not None:
            await self._transactions.stop()
        if self._half_transactions is not None:
            await self._half_transactions.stop()
        keyed_writer, self._keyed_writer = self._keyed_writer, None
        if keyed_writer is not None:
            await keyed_writer.close()
        store, self._store = self._store, None
        if store is not None:
            await self._run(store.close)
        self._threads.shutdown(wait=False)
        self._search_threads.shutdown(wait=False)

    async def health(self) -> Health:
        """Return the current health of the server. Never raises NotReady."""
        state, store = self._state, self._store
        if store is None or state.name != "ready":
            if state.is_recovering:
                return Health(state="recovering", progress=state.progress)
            return Health(state=state.name)
        stats = await self._run(store.stats)
        # As of the last append; check whether the disk is still full.
        no_space = self._writer is not None and self._writer.disk_full
        return Health(
            state=state.name,
            read_only=store.read_only,
            fenced=stats.fenced,
            disk_full=no_space and _is_full(self.settings.data),
        )

    @property
    def uptime_ms(self) -> int:
        """The time since this process began to serve, in milliseconds."""
        return max(self._clock() - self.started_ms, 0)

    @property
    def queued(self) -> int:
        """The number of requests that wait for their group to be written."""
        return 0 if self._writer is None else self._writer.queued

    @property
    def cluster_id(self) -> str:
        """The cluster id from the store's directory, or a constant if the store has none. Raises NotReady."""
        return cluster_id_of(self.store)

    @property
    def node_id(self) -> int:
        """The number of this node from the store's directory, or `NODE_ID` if the store has none. Raises NotReady."""
        store = self.store
        stored = store.node_id if isinstance(store, SupportsClusterId) else None
        return NODE_ID if stored is None else stored

    async def leader_epochs(self, topics: Sequence[TopicInfo]) -> Sequence[Sequence[int]]:
        """Return the leader epochs of each topic's partitions; 0 for a partition that is deleted meanwhile. Raises
        NotOffered if the store has no batches for Kafka clients.
        """
        return await self._run(_leader_epochs, self.batches, topics)

    async def stats(self) -> StoreStats:
        """Return the store's sizes and counters."""
        return await self._run(self.store.stats)

    def services(self) -> list[ServiceStatus]:
        """Return the state of the store's periodic work; empty if the store is read-only or not open."""
        return [] if self._upkeep is None else self._upkeep.status()

    async def render_metrics(self) -> bytes:
        """Return all metrics as Prometheus text, also while no store is open."""
        return await self._run(self.metrics.render)

    def retention_settings(self) -> Mapping[str, str | None]:
        """Return the settings of retention in force; None: not set. Empty if the store has none to change."""
        store = self.store
        if isinstance(store, SupportsRetentionSettings):
            return store.retention_settings()
        return {}

    async def change_retention(self, changes: Mapping[str, str | None]) -> None:
        """Change settings of retention until the store is closed. Raises InvalidConfig, NotOffered, StoreReadOnly."""
        store = self.store
        if not isinstance(store, SupportsRetentionSettings):
            raise NotOffered(
                f"backend {store.capabilities.backend} deletes nothing", feature="retention"
            )
        await self._run(store.change_retention, changes)

    # -- the parts; all raise NotReady while the store is not open

    @property
    def store(self) -> LogStore:
        """The open store, for its capabilities and properties."""
        self._state.check_ready()
        return self._topics.access.store

    @property
    def batches(self) -> ClientBatches:
        """The store as Kafka clients see it. Raises NotOffered for a store that is not for them."""
        self._state.check_ready()
        if self._client_batches is None:
            raise NotOffered(
                f"backend {self.store.capabilities.backend} has no record batches",
                feature="batches",
            )
        return self._client_batches

    @property
    def topics(self) -> TopicCatalog:
        """The topics."""
        self._state.check_ready()
        return self._topics

    @property
    def groups(self) -> Groups:
        """The consumer groups and their instances."""
        if self._groups is None or self._state.name != "ready":
            raise self._state.not_ready()
        return self._groups

    @property
    def retries(self) -> Retries:
        """The messages that groups hand back."""
        self._state.check_ready()
        return self._retries

    @property
    def transactions(self) -> Transactions:
        """The transactions. Its calls raise NotOffered if the store has none."""
        if self._transactions is None or self._state.name != "ready":
            raise self._state.not_ready()
        return self._transactions

    @property
    def http_transactions(self) -> Transactions | HalfTransactions:
        """The transactions over HTTP: of half messages if the store has these. Raises NotReady."""
        transactions = self.transactions
        return self._half_transactions or transactions

    @property
    def producer(self) -> Producer:
        """The path of produce requests. Raises StoreReadOnly."""
        if self._access is None:
            raise self._state.not_ready()
        self._access.check_writable()
        return self._producer

    # -- reading

    async def bounds(self, partition: TopicPartition) -> OffsetBounds:
        """Return the first, last stable and next offset of a partition."""
        return await self._run(self.store.bounds, partition)

    async def offset_for_time(
        self, partition: TopicPartition, timestamp_ms: int
    ) -> TimedOffset | None:
        """Return the first record at or after a time."""
        return await self._run(self.store.offset_for_time, partition, timestamp_ms)

    async def newest_time(self, partition: TopicPartition) -> TimedOffset | None:
        """Return the record with the largest time."""
        return await self._run(self.store.newest_time, partition)

    async def end_of_epoch(self, partition: TopicPartition, leader_epoch: int) -> EpochEnd | None:
        """Return the end of a leader epoch. Raises NotOffered if the store keeps none."""
        store = self.store
        if not isinstance(store, SupportsLeaderEpochs):
            raise NotOffered(
                f"backend {store.capabilities.backend} keeps no leader epochs",
                feature="leader_epochs",
            )
        return await self._run(store.end_of_epoch, partition, leader_epoch)

    async def fetch(self, request: Fetch) -> Page:
        """Return records, waiting for them as `request` says; an empty page if the time expires.

        Raises UnknownTopic, UnknownPartition, OffsetOutOfRange, Corrupt, Busy. May be cancelled.
        """
        return await poll(request, partial(self._read, read_page), self.waiters)

    async def fetch_batches(self, request: Fetch) -> Batches:
        """Return whole batches as stored, waiting for them as `request` says; `max_records` and `tag` do not apply.

        Raises what `fetch` raises, and NotOffered if the backend has no batches.
        """
        return await poll(request, self._read_batches, self.waiters)

    async def _read_batches(self, request: Fetch) -> ReadResult[Batches]:
        store, prompt = self.store, self._prompt_batches
        if prompt is not None:
            self._topics.partition(*request.partition)
            result = read_batches_promptly(store, prompt, request)
            if result is not None:
                if request.reservation is not None:
                    request.reservation.grow_to(result.size_bytes)
                return result
        return await self._read(read_batch_page, request)

    async def fetch_many(
        self, request: FetchMany, reservation: Reservation
    ) -> Sequence[PartitionPage]:
        """Return whole batches of many partitions, waiting for them as `request` says. `reservation` grows to their
        size.

        An error of one partition is in its page. Raises NotOffered if the backend has no batches, and Busy. May be
        cancelled.
        """

        async def read(request: FetchMany) -> ReadMany:
            batches = self.batches
            begun: Sequence[PartitionPage] = ()
            if self._prompt_batches is not None:
                result, is_whole = read_promptly(batches, self._prompt_batches, request)
                reservation.grow_to(result.size_bytes)  # also while it waits for a thread
                if is_whole:
                    return result
                begun = result.pages
            async with self._reading:
                result = await self._run(read_many, batches, request, begun)
                reservation.grow_to(result.size_bytes)
            return result

        return await poll_many(request, read, self.waiters)

    def follow(self, request: Follow) -> AsyncGenerator[Page, None]:
        """Yield records as they arrive, page by page; a page without records at least every `heartbeat_ms`.

        Raises what `fetch` raises, NotReady when the server stops. May be cancelled.
        """
        return follow_pages(self.fetch, request, beat_ms=self.settings.heartbeat_ms)

    async def find(self, topic: str, query: FindQuery) -> FoundPage:
        """Return one page of a topic's records by key, id, tag or time.

        A page scans at most as many records as the setting max_scanned_records. Raises what `LogStore.find` raises.
        May be cancelled.
        """
        limited = replace(query, max_scanned=self.settings.max_scanned_records)
        find = partial(self.store.find_page, topic, limited)
        return await asyncio.get_running_loop().run_in_executor(self._search_threads, find)

    async def find_by_id(self, record_id: str) -> tuple[TopicPartition, StoredRecord]:
        """Return the record with this id, and its partition. Raises RecordNotFound."""
        return await self._run(self.store.find_by_id, record_id)

    async def delayed(self, limit: int, cursor: str | None, *, timers: bool) -> DelayedPage:
        """Return one page of the messages that wait for their time; `timers`: the messages of RocketMQ's timer.

        Raises InvalidArgument for a cursor of no page, NotOffered if the store keeps no delayed messages.
        """
        store = self.store
        if not isinstance(store, SupportsDelay):
            raise no_delays(store, "this call")
        page = store.delays.timers if timers else store.delays.waiting
        return await asyncio.get_running_loop().run_in_executor(
            self._search_threads, page, limit, cursor
        )

    async def _read(
        self, read: Callable[[LogStore, Fetch], ReadResult[SomePage]], request: Fetch
    ) -> ReadResult[SomePage]:
        store = self.store
        self._topics.partition(*request.partition)
        # Limits the number of pages that are on their way to the loop and not counted in the budget yet.
        async with self._reading:
            result = await self._run(read, store, request)
            if request.reservation is not None:
                request.reservation.grow_to(result.size_bytes)
        return result

    # -- internal

    def _delivered_from_thread(self) -> Delivered:
        """Return a function for other threads, after which readers of these partitions find their new records."""
        loop = asyncio.get_running_loop()

        def wake(partitions: Sequence[TopicPartition], topics: Mapping[str, TopicInfo]) -> None:
            self._topics.learn(topics)
            for partition in partitions:
                self.waiters.notify(partition)

        def delivered(
            partitions: Sequence[TopicPartition], topics: Mapping[str, TopicInfo]
        ) -> None:
            loop.call_soon_threadsafe(wake, partitions, topics)

        return delivered

    async def _run(self, call: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a blocking call in a thread."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, partial(call, *args, **kwargs))


def _leader_epochs(batches: ClientBatches, topics: Sequence[TopicInfo]) -> Sequence[Sequence[int]]:
    return [
        [_leader_epoch(batches, info.name, number) for number in info.partitions] for info in topics
    ]


def _leader_epoch(batches: ClientBatches, topic: str, number: int) -> int:
    try:
        return batches.leader_epoch(TopicPartition(topic, number))
    except CallerError:
        return 0


def _is_full(data: Path) -> bool:
    """Return whether the file system of `data` has almost no free space, or the free space cannot be read."""
    try:
        space = os.statvfs(data)
    except OSError:
        return True
    return space.f_bavail * space.f_frsize < DISK_FULL_BELOW_BYTES
