"""The asynchronous face of one store: produce, fetch with wait, topics, offsets, health, start and
stop.

Owns the server's life, the topics as it knows them, and the way between the event loop and the
blocking store; what becomes of a produce request is `producing`'s business. Must not know HTTP or a
backend. All methods are called on one event loop.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Final, ParamSpec, TypeAlias, TypeVar

from msgspec import structs

from logserver.auto_create import check_new_name
from logserver.budget import Budget, Hold
from logserver.config import Settings
from logserver.errors import NotReady
from logserver.following import follow_pages
from logserver.groups.log import Log
from logserver.groups.overview import Groups
from logserver.health import Health, is_full
from logserver.idempotency import Idempotency, open_idempotency
from logserver.metrics import Metrics
from logserver.partitioning import address
from logserver.polling import poll
from logserver.producing import Producing
from logserver.reading import Look, SomePage, read_batch_page, read_page
from logserver.requests import Fetch, Find, Follow, Produce, ProduceBatches
from logserver.upkeep import Upkeep
from logserver.waiters import Waiters
from logserver.writer import Run, Writer
from storage import (
    BatchPage,
    Clock,
    FoundPage,
    LogStore,
    OffsetBounds,
    Page,
    Progress,
    StoredRecord,
    StoreStats,
    TimedOffset,
    TopicInfo,
    TopicPartition,
    wall_clock_ms,
)
from storage.errors import StoreReadOnly, UnknownTopic

log = logging.getLogger(__name__)

P = ParamSpec("P")
T = TypeVar("T")
Opener: TypeAlias = Callable[[Progress], LogStore]

READERS: Final = 4
SEARCHERS: Final = 2  # threads of their own: a long scan holds up no fetch


class LogService:
    """One store, served. `opener` opens it and blocks; it is called in a thread by `start`."""

    def __init__(self, settings: Settings, opener: Opener, *, clock: Clock = wall_clock_ms) -> None:
        self.settings = settings
        self.metrics = Metrics()
        self.budget = Budget(settings.max_in_flight_bytes)
        self.answers = Budget(settings.max_answer_bytes, "answers")
        self.stopping = asyncio.Event()  # set once: streams end in order
        self._opener = opener
        self._clock = clock
        self._state = "starting"
        # Written by the opening thread, read by the loop: one tuple, replaced as a whole.
        self._progress: tuple[str, int, int] | None = None
        self._waiters = Waiters(settings.max_waiting_fetches)
        self._threads = ThreadPoolExecutor(max_workers=READERS, thread_name_prefix="store")
        self._reading = asyncio.Semaphore(2 * READERS)
        self._search_threads = ThreadPoolExecutor(SEARCHERS, thread_name_prefix="search")
        self._upkeep_thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="upkeep")
        self._topics: dict[str, TopicInfo] = {}
        self._topic_changes = asyncio.Lock()
        self._store: LogStore | None = None
        self._writer: Writer | None = None
        self._keyed: Idempotency | None = None
        self._producing: Producing | None = None
        self._upkeep: Upkeep | None = None
        self._groups: Groups | None = None
        gauge = self.metrics.gauge
        gauge("waiting_fetches", "Fetches that wait for records.", lambda: self.waiting)
        gauge("queued_requests", "Requests that wait to be written.", lambda: self.queued)
        gauge("in_flight_bytes", "Bytes of requests in flight.", lambda: self.budget.held_bytes)
        gauge("answer_bytes", "Bytes of answers on their way.", lambda: self.answers.held_bytes)
        self.metrics.watch_store(lambda: None if self._store is None else self._store.stats())

    # -- life

    async def start(self) -> None:
        """Open the store (it recovers in a thread) and begin. Until this returns every call raises
        NotReady.
        """
        try:
            store = await self._run(self._opener, self._note_progress)
        except BaseException:
            self._state = "failed"
            raise
        self._store = store
        self._topics = dict(await self._run(store.topics))
        self._writer = Writer(
            store,
            sync=self.settings.flush == "sync",
            metrics=self.metrics,
            published=self._waiters.notify,
        )
        if not store.read_only:
            submit = self._writer.submit
            self._keyed = await open_idempotency(
                store, self.settings, submit=submit, run=self._run, clock=self._clock
            )
            self._producing = Producing(
                store=store,
                settings=self.settings,
                metrics=self.metrics,
                writer=self._writer,
                keyed=lambda: self._keyed,
                topics=lambda: self._topics,
                topic_changes=self._topic_changes,
                create_topic=self.create_topic,
                run=self._run,
            )
        self._upkeep = Upkeep(
            store,
            self.settings,
            take_unflushed=self._writer.take_unflushed,
            journal=None if self._keyed is None else self._keyed.book.journal,
            clock=self._clock,
            executor=self._upkeep_thread,
        )
        self._upkeep.start()
        self._groups = Groups(
            Log(
                store=store,
                settings=self.settings,
                topics=lambda: self._topics,
                note_topic=self._note_topic,
                run=self._run,
                waiters=self._waiters,
                clock=self._clock,
            )
        )
        self._groups.start(self.metrics)
        if self._state != "stopping":
            self._state = "ready"

    def begin_stop(self) -> None:
        """Refuse new requests, end long polls; what is under way goes on."""
        self._state = "stopping"
        self.stopping.set()
        self._waiters.close()

    async def stop(self) -> None:
        """Answer what is queued, then flush, trim and mark the store as stopped cleanly."""
        self.begin_stop()
        if self._groups is not None:
            await self._groups.stop()
        if self._writer is not None:
            await self._writer.close()
        if self._upkeep is not None:
            await self._upkeep.stop()
        keyed, self._keyed = self._keyed, None
        if keyed is not None:
            await keyed.close()
        store, self._store = self._store, None
        if store is not None:
            await self._run(store.close)
        self._threads.shutdown(wait=False)
        self._search_threads.shutdown(wait=False)
        self._upkeep_thread.shutdown(wait=False)

    async def health(self) -> Health:
        """How the server is now; never raises NotReady."""
        store = self._store
        if store is None or self._state != "ready":
            recovering = self._state == "starting" and self._progress is not None
            state = "recovering" if recovering else self._state
            return Health(state=state, progress=self._progress if recovering else None)
        stats = await self._run(store.stats)
        no_space = self._writer is not None and self._writer.disk_full  # at the last append: still?
        disk_full = no_space and is_full(self.settings.data)
        return Health(
            state=self._state,
            read_only=store.read_only,
            fenced=stats.fenced,
            disk_full=disk_full,
        )

    @property
    def waiting(self) -> int:
        """How many fetches wait for records."""
        return self._waiters.count

    @property
    def queued(self) -> int:
        """How many requests wait for their group to be written."""
        return 0 if self._writer is None else self._writer.queued

    def hold(self, size_bytes: int) -> Hold:
        """Hold bytes of the budget for a request about to be read. Raises Busy."""
        return self.budget.hold(size_bytes)

    @property
    def store(self) -> LogStore:
        """The open store, for what it says about itself. Raises NotReady."""
        return self._open()

    async def stats(self) -> StoreStats:
        """The store's sizes and counters."""
        return await self._run(self._open().stats)

    async def render_metrics(self) -> bytes:
        """All metrics as Prometheus text; also while there is no store."""
        return await self._run(self.metrics.render)

    @property
    def groups(self) -> Groups:
        """The consumer groups and their instances. Raises NotReady."""
        if self._groups is None or self._state != "ready":
            raise self._not_ready()
        return self._groups

    # -- topics

    def topics(self) -> Sequence[str]:
        """All topic names in order."""
        self._open()
        return sorted(self._topics)

    def topic(self, name: str) -> TopicInfo:
        """One topic. Raises UnknownTopic."""
        self._open()
        info = self._topics.get(name)
        if info is None:
            raise UnknownTopic(name)
        return info

    def partition(self, topic: str, number: int) -> TopicPartition:
        """The address of a partition that exists. Raises UnknownTopic, UnknownPartition."""
        return address(self.topic(topic), number)

    async def create_topic(
        self, topic: str, partitions: int | None, configs: Mapping[str, str] | None
    ) -> tuple[TopicInfo, bool]:
        """Create a topic, or find it in that shape: then False. Raises what the store raises."""
        store = self._writable()
        async with self._topic_changes:
            known = self._topics.get(topic)
            if (
                known is not None
                and partitions in {None, len(known.partitions)}
                and configs is None
            ):
                return known, False
            if known is None:
                check_new_name(topic)
            info = await self._run(store.create_topic, topic, partitions, configs)
            self._note_topic(topic, info)
            return info, known is None

    async def alter_topic(self, topic: str, configs: Mapping[str, str | None]) -> TopicInfo:
        """Set topic configs; None resets one."""
        store = self._writable()
        self.topic(topic)
        async with self._topic_changes:
            info = await self._run(store.alter_topic, topic, configs)
            self._note_topic(topic, info)
            return info

    async def delete_topic(self, topic: str) -> None:
        """Delete a topic with its records; those who wait on it are told that it is gone."""
        store = self._writable()
        info = self.topic(topic)
        async with self._topic_changes:
            await self._run(store.delete_topic, topic)
            self._note_topic(topic, None)
            if self._producing is not None:
                self._producing.partitioner.forget(topic)
            for number in info.partitions:
                self._waiters.forget(TopicPartition(topic, number))
            if self._keyed is not None:
                await self._keyed.forget_topic(topic)

    # -- reading

    async def bounds(self, partition: TopicPartition) -> OffsetBounds:
        """First, stable and next offset."""
        return await self._run(self._open().bounds, partition)

    async def offset_for_time(
        self, partition: TopicPartition, timestamp_ms: int
    ) -> TimedOffset | None:
        """The first record at or after a time."""
        return await self._run(self._open().offset_for_time, partition, timestamp_ms)

    async def fetch(self, request: Fetch) -> Page:
        """Records, waiting for them as `request` says; an empty page when the time is up.

        Raises UnknownTopic, UnknownPartition, OffsetOutOfRange, Corrupt, Busy. May be cancelled.
        """
        return await poll(request, partial(self._look, read_page), self._waiters)

    async def fetch_batches(self, request: Fetch) -> BatchPage:
        """Whole batches as stored, waiting for them as `request` says; `max_records` and `tag` do
        not apply.

        Raises what `fetch` raises, and NotOffered where the backend has no batches.
        """
        return await poll(request, partial(self._look, read_batch_page), self._waiters)

    def follow(self, request: Follow) -> AsyncGenerator[Page, None]:
        """Records as they come, page by page; a page without any at least every `heartbeat_ms`.

        Raises what `fetch` raises, NotReady when the server stops. May be cancelled.
        """
        return follow_pages(self.fetch, request, beat_ms=self.settings.heartbeat_ms)

    async def find(self, request: Find) -> FoundPage:
        """One page of a topic's records by what they carry; what a page looks at is bounded by the
        setting max_scanned_records. Raises what `LogStore.find` raises. May be cancelled.
        """
        look = partial(
            self._open().find,
            max_scanned=self.settings.max_scanned_records,
            **structs.asdict(request),
        )
        return await asyncio.get_running_loop().run_in_executor(self._search_threads, look)

    async def find_by_id(self, record_id: str) -> tuple[TopicPartition, StoredRecord]:
        """The record with this id, and where it is. Raises RecordNotFound."""
        return await self._run(self._open().find_by_id, record_id)

    async def _look(
        self, read: Callable[[LogStore, Fetch], Look[SomePage]], request: Fetch
    ) -> Look[SomePage]:
        self.partition(*request.partition)
        async with self._reading:  # so few pages are on their way to the loop, and not counted yet
            look = await self._run(read, self._open(), request)
            if request.hold is not None:
                request.hold.reach(look.size_bytes)
        return look

    # -- writing

    async def produce(self, request: Produce) -> list[Run]:
        """Append records; see `Producing.produce`. Raises what it does, NotReady, StoreReadOnly."""
        return await self._ways_in().produce(request)

    async def check_target(self, topic: str, partition: int | None) -> None:
        """Whether records can be sent there; see `Producing.check_target`."""
        await self._ways_in().check_target(topic, partition)

    async def produce_batches(self, request: ProduceBatches) -> list[Run]:
        """Append a client's whole batches; see `Producing.produce_batches`."""
        return await self._ways_in().produce_batches(request)

    async def new_producer_id(self) -> int:
        """An id above every one seen or handed out."""
        return await self._run(self._writable().new_producer_id)

    # -- inside

    async def _run(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """A blocking call in a thread."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, lambda: call(*args, **kwargs))

    def _open(self) -> LogStore:
        if self._store is None or self._state != "ready":
            raise self._not_ready()
        return self._store

    def _writable(self) -> LogStore:
        store = self._open()
        if store.read_only:
            raise StoreReadOnly(
                f"{self.settings.data} is served read-only: to write, restart the server with --write "
                "and without --read-only",
                path=str(self.settings.data),
            )
        return store

    def _ways_in(self) -> Producing:
        self._writable()
        if self._producing is None:
            raise self._not_ready()
        return self._producing

    def _not_ready(self) -> NotReady:
        if self._state == "starting" and self._progress is not None:
            what, done, total = self._progress
            told = f"the server is recovering: {what}, {done} of {total}; try again later"
            progress = {"what": what, "done": done, "total": total}
            return NotReady(told, state="recovering", progress=progress)
        return NotReady(f"the server is {self._state}: try again later", state=self._state)

    def _note_topic(self, name: str, info: TopicInfo | None) -> None:
        self._topics.pop(name, None)
        if info is not None:
            self._topics[name] = info
        if self._groups is not None:
            self._groups.topic_changed(name)

    def _note_progress(self, what: str, done: int, total: int) -> None:
        """Called by the opening thread. Raising here ends a recovery that nobody waits for any
        more.
        """
        if self._state == "stopping":
            raise NotReady("stopped while recovering", state="stopping")
        self._progress = (what, done, total)
