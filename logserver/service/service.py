"""The asynchronous interface of one store: produce, fetch with wait, topics, offsets, health, start and stop.

Owns the server's life cycle, its view of the topics, and the calls from the event loop to the blocking store;
`producing` owns the rules of a produce request. Must not know HTTP or a backend. All methods are called on one event
loop.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import Final, ParamSpec, TypeAlias, TypeVar

from logserver.config import Settings
from logserver.errors import NotReady
from logserver.groups.log import Log
from logserver.groups.overview import Groups
from logserver.idempotency.keys import KeyedWriter, open_keyed_writer
from logserver.metrics import Metrics
from logserver.service.commit import Writer
from logserver.service.fetch import ReadResult, SomePage, read_batch_page, read_page
from logserver.service.follow import follow_pages
from logserver.service.health import Health, is_full
from logserver.service.memory_budget import MemoryBudget
from logserver.service.partitioning import address
from logserver.service.polling import poll
from logserver.service.produce import Producing
from logserver.service.requests import AppendOutcome, Fetch, Follow, Produce, ProduceBatches
from logserver.service.topic_rules import check_new_name
from logserver.service.upkeep import Upkeep
from logserver.service.waiters import Waiters
from storage import (
    BatchPage,
    Clock,
    FindQuery,
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
SEARCHERS: Final = 2  # threads of their own, so that a long scan does not delay a fetch


class LogService:
    """The service of one store. `opener` opens the store; it blocks, and `start` calls it in a thread."""

    def __init__(self, settings: Settings, opener: Opener, *, clock: Clock = wall_clock_ms) -> None:
        self.settings = settings
        self.metrics = Metrics()
        self.budget = MemoryBudget(settings.max_in_flight_bytes)
        self.answers = MemoryBudget(settings.max_answer_bytes, "answers")
        self.stopping = asyncio.Event()  # set once: streams then end cleanly
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
        self._keyed: KeyedWriter | None = None
        self._producing: Producing | None = None
        self._upkeep: Upkeep | None = None
        self._groups: Groups | None = None
        gauge = self.metrics.gauge
        gauge("waiting_fetches", "Fetches that wait for records.", lambda: self.waiting)
        gauge("queued_requests", "Requests that wait to be written.", lambda: self.queued)
        gauge("in_flight_bytes", "Bytes of requests in flight.", lambda: self.budget.held_bytes)
        gauge("answer_bytes", "Bytes of answers on their way.", lambda: self.answers.held_bytes)
        self.metrics.watch_store(lambda: None if self._store is None else self._store.stats())

    # -- start, stop, health

    async def start(self) -> None:
        """Open the store (it recovers in a thread) and begin. Before this returns every call raises NotReady."""
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
            self._keyed = await open_keyed_writer(
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
            journal=None if self._keyed is None else self._keyed.keys.journal,
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
        """Reject new requests and end long polls; requests in progress continue."""
        self._state = "stopping"
        self.stopping.set()
        self._waiters.close()

    async def stop(self) -> None:
        """Answer the queued requests, then flush, trim and mark the store as cleanly stopped."""
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
        """Return the current health of the server. Never raises NotReady."""
        store = self._store
        if store is None or self._state != "ready":
            recovering = self._state == "starting" and self._progress is not None
            state = "recovering" if recovering else self._state
            return Health(state=state, progress=self._progress if recovering else None)
        stats = await self._run(store.stats)
        # As of the last append; check whether the disk is still full.
        no_space = self._writer is not None and self._writer.disk_full
        disk_full = no_space and is_full(self.settings.data)
        return Health(
            state=self._state,
            read_only=store.read_only,
            fenced=stats.fenced,
            disk_full=disk_full,
        )

    @property
    def waiting(self) -> int:
        """The number of fetches that wait for records."""
        return self._waiters.count

    @property
    def queued(self) -> int:
        """The number of requests that wait for their group to be written."""
        return 0 if self._writer is None else self._writer.queued

    @property
    def store(self) -> LogStore:
        """The open store, for its capabilities and properties. Raises NotReady."""
        return self._open()

    async def stats(self) -> StoreStats:
        """Return the store's sizes and counters."""
        return await self._run(self._open().stats)

    async def render_metrics(self) -> bytes:
        """Return all metrics as Prometheus text, also while no store is open."""
        return await self._run(self.metrics.render)

    @property
    def groups(self) -> Groups:
        """The consumer groups and their instances. Raises NotReady."""
        if self._groups is None or self._state != "ready":
            raise self._not_ready()
        return self._groups

    # -- topics

    def topics(self) -> Sequence[str]:
        """Return all topic names in order."""
        self._open()
        return sorted(self._topics)

    def topic(self, name: str) -> TopicInfo:
        """Return one topic. Raises UnknownTopic."""
        self._open()
        info = self._topics.get(name)
        if info is None:
            raise UnknownTopic(name)
        return info

    def partition(self, topic: str, number: int) -> TopicPartition:
        """Return the address of a partition that exists. Raises UnknownTopic, UnknownPartition."""
        return address(self.topic(topic), number)

    async def create_topic(
        self, topic: str, partitions: int | None, configs: Mapping[str, str] | None
    ) -> tuple[TopicInfo, bool]:
        """Create a topic, or find an existing topic of the same shape: then the second value is False. Raises what
        the store raises.
        """
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
        """Set topic configs; the value None resets a config."""
        store = self._writable()
        self.topic(topic)
        async with self._topic_changes:
            info = await self._run(store.alter_topic, topic, configs)
            self._note_topic(topic, info)
            return info

    async def delete_topic(self, topic: str) -> None:
        """Delete a topic with its records, and wake the fetches that wait on it: they then find that it is deleted."""
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
        """Return the first, last stable and next offset of a partition."""
        return await self._run(self._open().bounds, partition)

    async def offset_for_time(
        self, partition: TopicPartition, timestamp_ms: int
    ) -> TimedOffset | None:
        """Return the first record at or after a time."""
        return await self._run(self._open().offset_for_time, partition, timestamp_ms)

    async def fetch(self, request: Fetch) -> Page:
        """Return records, waiting for them as `request` says; an empty page if the time expires.

        Raises UnknownTopic, UnknownPartition, OffsetOutOfRange, Corrupt, Busy. May be cancelled.
        """
        return await poll(request, partial(self._look, read_page), self._waiters)

    async def fetch_batches(self, request: Fetch) -> BatchPage:
        """Return whole batches as stored, waiting for them as `request` says; `max_records` and `tag` do not apply.

        Raises what `fetch` raises, and NotOffered if the backend has no batches.
        """
        return await poll(request, partial(self._look, read_batch_page), self._waiters)

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
        look = partial(self._open().find_page, topic, limited)
        return await asyncio.get_running_loop().run_in_executor(self._search_threads, look)

    async def find_by_id(self, record_id: str) -> tuple[TopicPartition, StoredRecord]:
        """Return the record with this id, and its partition. Raises RecordNotFound."""
        return await self._run(self._open().find_by_id, record_id)

    async def _look(
        self, read: Callable[[LogStore, Fetch], ReadResult[SomePage]], request: Fetch
    ) -> ReadResult[SomePage]:
        self.partition(*request.partition)
        # Limits the number of pages that are on their way to the loop and not counted in the budget yet.
        async with self._reading:
            look = await self._run(read, self._open(), request)
            if request.reservation is not None:
                request.reservation.grow_to(look.size_bytes)
        return look

    # -- writing

    async def produce(self, request: Produce) -> list[AppendOutcome]:
        """Append records; see `Producing.produce`. Raises what it raises, NotReady, StoreReadOnly."""
        return await self._ways_in().produce(request)

    async def check_target(self, topic: str, partition: int | None) -> None:
        """Check that records can be sent to a topic; see `Producing.check_target`."""
        await self._ways_in().check_target(topic, partition)

    async def produce_batches(self, request: ProduceBatches) -> list[AppendOutcome]:
        """Append a client's whole batches; see `Producing.produce_batches`."""
        return await self._ways_in().produce_batches(request)

    async def new_producer_id(self) -> int:
        """Return a producer id above every id that was seen or allocated."""
        return await self._run(self._writable().new_producer_id)

    # -- internal

    async def _run(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a blocking call in a thread."""
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
        """Record the progress of recovery; the opening thread calls it.

        Raises NotReady if the server is stopping: this ends a recovery that no caller waits for.
        """
        if self._state == "stopping":
            raise NotReady("stopped while recovering", state="stopping")
        self._progress = (what, done, total)
