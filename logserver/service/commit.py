"""Group commit: many requests, one thread hop, one flush of each partition.

Owns the queues between the event loop and the store's blocking appends, and the split of a request that must not fail
as a whole. Must not know HTTP, topics or partitioners.

A commit queue has one thread. While the thread works on a group, the next group gathers, so the group grows with the
load, and each group pays one hop and one flush. In sync mode there are two queues. `acks=all` goes through the durable
queue: append unpublished, flush, then answer. Everything else goes through the relaxed queue, which never waits for a
disk, so an acks=1 request is not delayed by the fsync of another request. In the other modes all requests go through
the relaxed queue.

    request -> submit -> queue [request, ...] -> thread: append, append, ..., flush -> loop: answers

A hop costs 60 to 110 us of processor time, a small append into the page cache 20 us and its encoding. So the relaxed
queue makes small appends of a group on the event loop, if the store can make them without a wait: see
SupportsPromptAppend. Order and errors are as in the thread: a queue has one group at a time, and a group's appends are
made in order. The first append that is not made leaves the rest of its group to the thread, which also finds the
invalid record. Whole batches of a client do not wait for the group either: nothing can join them in one batch.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from time import perf_counter
from typing import Final, TypeAlias, cast

from logserver.errors import NotReady
from logserver.idempotency.journal import JournalEntries, write_completed, write_started
from logserver.metrics import Metrics
from logserver.service.requests import Acks, AppendOutcome, PartitionAppend
from storage import (
    AppendResult,
    LogStore,
    Record,
    StorageError,
    SupportsPromptAppend,
    TopicPartition,
    client_batches_of,
    prompt_batches_of,
)
from storage.errors import CallerError, DiskFull, NotOffered, RecordTooLarge, UnrepresentableRecord

log = logging.getLogger(__name__)

# Parts up to these sizes are appended together: one batch, one write. Larger parts gain nothing.
SHARED_PART_RECORDS: Final = 256
SHARED_PART_BYTES: Final = 64 << 10
SHARED_RECORDS: Final = 4096
SHARED_BYTES: Final = 512 << 10

# Appends up to this number of records, of SHARED_PART_BYTES in all, are made on the event loop: it is busy for up to
# 0.6 ms, with 2 us for each record. A client's batches need no encoding: 1 MB takes 0.3 ms, of records of 100 bytes
# 0.5 ms.
PROMPT_RECORDS: Final = 256
PROMPT_BATCH_BYTES: Final = 1 << 20
# The kernel can block a write, to slow down the writers of a slow disk. Then all groups go to the thread, for so many
# times the time that the loop was blocked: for at most 0.5 % of the time. A turn of another thread or program (5 ms of
# Python's lock, a few of the scheduler) delays a group too, but rarely the next ones. So it takes several slow groups
# in a row, or one that no such turn explains.
SLOW_S: Final = 0.005
SLOW_IN_A_ROW: Final = 3
BLOCKED_S: Final = 0.1
AVOID_TIMES: Final = 200

# Up to this number of invalid records, the valid records of a request stay in as few batches as possible.
KEPT_TOGETHER_FAULTS: Final = 8


class Request:
    """One request in a queue. The thread fills `outcomes` or sets `error`; the loop reads them after the hop.

    `entries`: the journal entries to write before and after the records.
    """

    def __init__(
        self,
        parts: Sequence[PartitionAppend],
        answer: asyncio.Future[list[AppendOutcome]],
        entries: JournalEntries | None = None,
    ) -> None:
        self.parts = parts
        self.answer = answer
        self.entries = entries
        self.outcomes: list[AppendOutcome] = []
        self.error: StorageError | None = None


class SharedAppend:
    """Parts for one partition and codec that are appended together, in the order of arrival. `size_bytes` None: one
    part, which is appended by itself.
    """

    __slots__ = ("_count", "_has_entries", "_size_bytes", "parts")

    def __init__(self, request: Request, part: PartitionAppend, size_bytes: int | None) -> None:
        self.parts = [(request, part)]
        self._count = len(part.records)
        self._size_bytes = size_bytes
        self._has_entries = request.entries is not None

    def take(self, request: Request, part: PartitionAppend, size_bytes: int) -> bool:
        """Add a part; return False if it does not fit or has another codec."""
        count = self._count + len(part.records)
        filled_bytes = (self._size_bytes or 0) + size_bytes
        if (
            count > SHARED_RECORDS
            or filled_bytes > SHARED_BYTES
            or part.compression != self.parts[0][1].compression
        ):
            return False
        self.parts.append((request, part))
        self._count, self._size_bytes = count, filled_bytes
        self._has_entries = self._has_entries or request.entries is not None
        return True

    @property
    def is_small(self) -> bool:
        """True if the append takes little time, and needs neither an entry in the journal nor a codec of its own."""
        size_bytes, part = self._size_bytes, self.parts[0][1]
        if isinstance(part.records, bytes):
            return self._count <= PROMPT_BATCH_BYTES and not self._has_entries
        is_plain = part.compression is None and not self._has_entries
        is_small = size_bytes is not None and size_bytes <= SHARED_PART_BYTES
        return is_small and is_plain and self._count <= PROMPT_RECORDS

    def records(self) -> Sequence[Record]:
        """Return the records of all parts; none of these parts is bytes."""
        if len(self.parts) == 1:
            return cast("Sequence[Record]", self.parts[0][1].records)
        records: list[Record] = []
        for _, part in self.parts:
            records += cast("Sequence[Record]", part.records)
        return records

    def born_hosts(self) -> Sequence[bytes]:
        """Return the sender of each record, or an empty sequence if one of the parts has no sender."""
        hosts: list[bytes] = []
        for _, part in self.parts:
            if part.born_host is None:
                return ()
            hosts += [part.born_host] * len(part.records)
        return hosts


class CommitGroup:
    """The work of one hop. Written by the queue's thread, read by the loop after the hop. `left`: the appends that are
    not made yet.
    """

    def __init__(self, requests: Sequence[Request]) -> None:
        self.requests = requests
        self.left = _shared(requests)
        self.touched: dict[TopicPartition, None] = {}
        self.appends = 0
        self.append_s = 0.0
        self.flush_s = 0.0

    def appended_to(self, partition: TopicPartition) -> None:
        """Note a successful append to a partition; only such partitions are flushed and published."""
        self.touched[partition] = None
        self.appends += 1

    def stored(self, shared: SharedAppend, result: AppendResult) -> None:
        """Note the result of a shared append, and give each of its requests its outcome."""
        request, part = shared.parts[0]
        partition = part.partition
        self.appended_to(partition)
        if isinstance(part.records, bytes):
            request.outcomes.append(_outcome_of_batches(partition, result))
            return
        begin = 0
        for request, part in shared.parts:
            end = begin + len(part.positions)
            request.outcomes.append(
                AppendOutcome(
                    partition.partition,
                    part.positions,
                    result.base_offset + begin,
                    None,
                    result.locators[begin:end],
                    result.timestamp_ms,
                )
            )
            begin = end

    def fail(self, error: StorageError, partition: TopicPartition | None = None) -> None:
        """Set the error on each request (of `partition` only) that has no error yet."""
        for request in self.requests:
            if partition is None or any(part.partition == partition for part in request.parts):
                request.error = request.error or error


Finished: TypeAlias = Callable[[CommitGroup], None]


class CommitQueue:
    """A queue and its thread. `durable`: append unpublished, flush each partition once per group, then answer."""

    def __init__(self, store: LogStore, *, durable: bool, name: str, finished: Finished) -> None:
        self._store = store
        self._prompt = store if isinstance(store, SupportsPromptAppend) and not durable else None
        self._batches = client_batches_of(store)
        # A store of messages places and indexes each record of a batch: too long for the loop.
        self._prompt_batches = None if self._prompt is None else prompt_batches_of(store)
        self._slow_s: list[float] = []  # the times of the newest groups in a row that were slow
        self._avoid_until_s = 0.0  # until then all groups go to the thread
        self._durable = durable
        self._finished = finished
        self._queue: list[Request] = []
        self._idle = asyncio.Event()
        self._idle.set()
        self._loop = asyncio.get_running_loop()
        self._worker = ThreadPoolExecutor(max_workers=1, thread_name_prefix=name)

    @property
    def queued(self) -> int:
        """The number of requests that wait for the next hop."""
        return len(self._queue)

    def submit(self, request: Request) -> None:
        """Queue a request. The hop starts after all other callbacks that are ready on the loop, so their requests
        join it. Whole batches gain nothing by that: if they need no hop, the request is answered on return.
        """
        self._queue.append(request)
        if self._idle.is_set():
            self._idle.clear()
            if self._prompt_batches is not None and isinstance(request.parts[0].records, bytes):
                self._start()
            else:
                self._loop.call_soon(self._start)

    async def drain(self) -> None:
        """Wait until everything queued has been answered, then end the thread."""
        await self._idle.wait()
        self._worker.shutdown(wait=False)

    def _start(self) -> None:
        group = CommitGroup(self._queue)
        self._queue = []
        try:
            self.commit_promptly(group)
        except Exception as error:  # noqa: BLE001  # a bug: reported like one in the thread
            self._committed(group, error)
            return
        if not group.left:
            self._committed(group, None)
            return
        self._worker.submit(self.commit, group).add_done_callback(
            lambda done: self._loop.call_soon_threadsafe(self._committed, group, done.exception())
        )

    def _committed(self, group: CommitGroup, broken: BaseException | None) -> None:
        if self._queue:
            self._start()
        else:
            self._idle.set()
        self._finished(group)
        if broken is not None:
            log.error("a group commit broke", exc_info=broken)
        for request in group.requests:
            _answer(request, broken or request.error)

    def commit_promptly(self, group: CommitGroup) -> None:
        """Make the small appends of a group without a wait, up to the first that needs one or fails. Runs on the loop;
        tests call it directly.
        """
        store, begun = self._prompt, perf_counter()
        if store is None or begun < self._avoid_until_s:
            return
        made = 0
        for shared in group.left:
            if not shared.is_small or group.append_s > SLOW_S:
                break
            try:
                result = self._append_promptly(store, shared)
            except StorageError:  # nothing is stored
                result = None
            group.append_s = perf_counter() - begun
            if result is None:
                break
            group.stored(shared, result)
            made += 1
        del group.left[:made]
        if group.append_s > SLOW_S:
            self._slow_s.append(group.append_s)
            if len(self._slow_s) == SLOW_IN_A_ROW or group.append_s > BLOCKED_S:
                self._avoid_until_s = perf_counter() + AVOID_TIMES * sum(self._slow_s, 0.0)
                self._slow_s.clear()
        elif self._slow_s:
            self._slow_s.clear()

    def _append_promptly(
        self, store: SupportsPromptAppend, shared: SharedAppend
    ) -> AppendResult | None:
        part = shared.parts[0][1]
        if not isinstance(part.records, bytes):
            return store.append_promptly(part.partition, shared.records(), shared.born_hosts())
        if self._prompt_batches is None:
            return None
        return self._prompt_batches.append_batches_promptly(
            part.partition, part.records, checked=part.checked, transaction=part.transaction
        )

    def commit(self, group: CommitGroup) -> None:
        """Append all requests of the group, and flush each partition once. Runs in the queue's thread; tests call it
        directly.
        """
        begun = perf_counter()
        journaled = [(r, r.entries) for r in group.requests if r.entries is not None]
        if journaled:
            try:
                write_started([entries for _, entries in journaled], durable=self._durable)
            except StorageError as error:
                for request, _ in journaled:
                    request.error = error
        for shared in group.left:
            if len(shared.parts) == 1 or not self._append_shared(group, shared):
                for request, part in shared.parts:
                    if request.error is None:
                        self._append_part(group, request, part)
        if journaled:
            write_completed((entries, request.outcomes) for request, entries in journaled)
        appended = perf_counter()
        group.append_s += appended - begun
        if self._durable and group.touched:
            self._flush(group)
            group.flush_s = perf_counter() - appended

    def _flush(self, group: CommitGroup) -> None:
        """Flush the partitions of a group. If this fails, all requests of the group fail.

        If a topic was deleted meanwhile, only requests that wrote to it fail.
        """
        try:
            self._store.flush(group.touched)
        except CallerError:
            self._flush_one_by_one(group)
        except StorageError as error:
            group.fail(error)

    def _flush_one_by_one(self, group: CommitGroup) -> None:
        for partition in group.touched:
            try:
                self._store.flush([partition])
            except CallerError as error:
                group.fail(error, partition)
            except StorageError as error:
                group.fail(error)
                return

    def _append_shared(self, group: CommitGroup, shared: SharedAppend) -> bool:
        """Append small parts for one partition together; return False if they must be tried one by one."""
        if any(request.error is not None for request, _ in shared.parts):
            return False  # store no more parts of a failed request
        first = shared.parts[0][1]
        try:
            result = self._store.append(
                first.partition,
                shared.records(),
                compression=first.compression,
                born_hosts=shared.born_hosts(),
                publish=not self._durable,
            )
        except (CallerError, DiskFull):
            return False
        except StorageError as error:
            for request, _ in shared.parts:
                request.error = error
            return True
        group.stored(shared, result)
        return True

    def _append_part(self, group: CommitGroup, request: Request, part: PartitionAppend) -> None:
        """Append one part by itself. An error of the whole request goes to `request.error`, any other to an outcome."""
        try:
            if isinstance(part.records, bytes):
                request.outcomes.append(self._append_batches(group, part, part.records))
            else:
                request.outcomes += self._append_records(group, part, part.records)
        except StorageError as error:
            request.error = error

    def _append_batches(
        self, group: CommitGroup, part: PartitionAppend, data: bytes
    ) -> AppendOutcome:
        if self._batches is None:
            backend = self._store.capabilities.backend
            raise NotOffered(f"backend {backend} takes no record batches", feature="batches")
        result = self._batches.append_batches(
            part.partition,
            data,
            publish=not self._durable,
            checked=part.checked,
            transaction=part.transaction,
            born_host=part.born_host,
        )
        group.appended_to(part.partition)
        return _outcome_of_batches(part.partition, result)

    def _append_records(
        self, group: CommitGroup, part: PartitionAppend, records: Sequence[Record]
    ) -> list[AppendOutcome]:
        """Append records; leave out records that fail alone, and split records that are too large together.

        A sequenced append is all or nothing, so its error is raised. Around the first invalid records the valid ones
        stay together. If there are many invalid records, halving limits the number of attempts.
        """
        number = part.partition.partition
        outcomes: list[AppendOutcome] = []
        faults = 0
        pending = [(0, len(records))]
        while pending:
            begin, end = pending.pop()
            positions = part.positions[begin:end]
            try:
                result = self._append_one(part, records[begin:end])
            except (RecordTooLarge, UnrepresentableRecord) as error:
                if part.producer is not None:
                    raise
                if end - begin == 1:
                    outcomes.append(AppendOutcome(number, positions, -1, error))
                    continue
                faults += 1
                index = error.facts().get("index") if faults <= KEPT_TOGETHER_FAULTS else None
                pending += reversed(_pieces(begin, end, index))
            else:
                group.appended_to(part.partition)
                base_offset, _, timestamp_ms, locators, _ = result
                outcomes.append(
                    AppendOutcome(number, positions, base_offset, None, locators, timestamp_ms)
                )
        return outcomes

    def _append_one(self, part: PartitionAppend, records: Sequence[Record]) -> AppendResult:
        return self._store.append(
            part.partition,
            records,
            compression=part.compression,
            producer=part.producer,
            born_hosts=() if part.born_host is None else [part.born_host] * len(records),
            publish=not self._durable,
        )


class Writer:
    """The entry point of appends: queues by flush mode, and the set of partitions that upkeep must flush.

    Use it on the event loop only, except `take_unflushed`. `published` is called with each partition in which readers
    may see new records.
    """

    def __init__(
        self,
        store: LogStore,
        *,
        sync: bool,
        metrics: Metrics,
        published: Callable[[TopicPartition], None],
    ) -> None:
        self._metrics = metrics
        self._published = published
        self._unflushed: set[TopicPartition] = set()
        self._unflushed_lock = threading.Lock()
        self._closed = False
        self.disk_full = False  # as of the last group
        self._relaxed = CommitQueue(
            store, durable=False, name="append", finished=self._relaxed_finished
        )
        self._durable = (
            CommitQueue(store, durable=True, name="commit", finished=self._durable_finished)
            if sync
            else self._relaxed
        )

    @property
    def queued(self) -> int:
        """The number of requests that wait for the hop of their group."""
        return sum(queue.queued for queue in {self._relaxed, self._durable})

    def submit(
        self, parts: Sequence[PartitionAppend], acks: Acks, entries: JournalEntries | None = None
    ) -> asyncio.Future[list[AppendOutcome]]:
        """Queue one request. Return a future of its outcomes, or of the error of the whole request.

        With `entries` the parts are marked, each by its own producer. Raises NotReady once the writer is closing.
        """
        if self._closed:
            raise NotReady("the server is stopping", state="stopping")
        answer: asyncio.Future[list[AppendOutcome]] = asyncio.get_running_loop().create_future()
        queue = self._durable if acks is Acks.ALL else self._relaxed
        queue.submit(Request(parts, answer, entries))
        return answer

    def take_unflushed(self) -> set[TopicPartition]:
        """Return the partitions with unflushed appends since the last call. Any thread may call it."""
        with self._unflushed_lock:
            taken, self._unflushed = self._unflushed, set()
        return taken

    async def close(self) -> None:
        """Accept no more requests, and answer all queued ones."""
        self._closed = True
        await self._relaxed.drain()
        if self._durable is not self._relaxed:
            await self._durable.drain()

    def _relaxed_finished(self, group: CommitGroup) -> None:
        with self._unflushed_lock:
            self._unflushed.update(group.touched)
        self._group_finished(group)

    def _durable_finished(self, group: CommitGroup) -> None:
        self._metrics.flushed(group.flush_s)
        self._group_finished(group)

    def _group_finished(self, group: CommitGroup) -> None:
        self._metrics.committed(
            requests=len(group.requests), appends=group.appends, append_s=group.append_s
        )
        full = any(isinstance(request.error, DiskFull) for request in group.requests)
        if full or group.appends:
            self.disk_full = full
        for partition in group.touched:
            self._published(partition)


def without_waiting(records: Iterable[Record]) -> bool:
    """Return whether no record must be on disk before its answer.

    Each record says so by its property WAIT, read like RocketMQ's Message.isWaitStoreMsgOK.
    """
    return all(
        record.properties is not None and record.properties.get("WAIT", "true").lower() != "true"
        for record in records
    )


def _outcome_of_batches(partition: TopicPartition, result: AppendResult) -> AppendOutcome:
    count = result.last_offset - result.base_offset + 1
    return AppendOutcome(
        partition.partition, range(count), result.base_offset, timestamp_ms=result.timestamp_ms
    )


def _answer(request: Request, error: BaseException | None) -> None:
    if request.answer.done():  # the client's handler was cancelled
        return
    if error is not None:
        request.answer.set_exception(error)
    else:
        request.answer.set_result(request.outcomes)


def _shared(requests: Sequence[Request]) -> list[SharedAppend]:
    """Return the parts of a group, in order of arrival per partition; small parts for one partition and codec are
    joined.
    """
    done: list[SharedAppend] = []
    open_ones: dict[TopicPartition, SharedAppend] = {}
    for request in requests:
        for part in request.parts:
            size_bytes = _shareable_bytes(part)
            filling = open_ones.get(part.partition)
            if size_bytes is None:
                open_ones.pop(part.partition, None)
                done.append(SharedAppend(request, part, None))
            elif filling is None or not filling.take(request, part, size_bytes):
                filling = open_ones[part.partition] = SharedAppend(request, part, size_bytes)
                done.append(filling)
    return done


def _shareable_bytes(part: PartitionAppend) -> int | None:
    """Return the approximate size of a part; None if the part must be appended by itself."""
    records = part.records
    if (
        part.producer is not None
        or isinstance(records, bytes)
        or len(records) > SHARED_PART_RECORDS
    ):
        return None
    size_bytes = 0
    for key, value, headers, _, _, lookup_keys, _ in records:
        if key:
            size_bytes += len(key)
        if value:
            size_bytes += len(value)
        if headers:
            size_bytes += sum(len(name) + len(content or b"") for name, content in headers)
        if lookup_keys:
            size_bytes += sum(map(len, lookup_keys))
    return size_bytes if size_bytes <= SHARED_PART_BYTES else None


def _pieces(begin: int, end: int, index: object) -> list[tuple[int, int]]:
    """Return the ranges to try next after records failed together: around the invalid record, else two halves."""
    if isinstance(index, int) and 0 <= index < end - begin:
        at = begin + index
        pieces = [(begin, at), (at, at + 1), (at + 1, end)]
    else:
        middle = (begin + end) // 2
        pieces = [(begin, middle), (middle, end)]
    return [(first, last) for first, last in pieces if first < last]
