"""The path of a produce request: choice of partitions, checks before anything is stored, time of the answer.

Owns the rules of a produce request, and the topic that a request creates; must not know HTTP or a backend. The writer
decides how requests share appends. All methods are called on one event loop.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import partial
from typing import Final, TypeAlias

from msgspec import structs

from logserver.config import HOUR_MS
from logserver.errors import Busy, NotReady, TimedOut
from logserver.idempotency.keys import KeyedWriter
from logserver.metrics import Metrics
from logserver.service.commit import Writer, without_waiting
from logserver.service.delay import outcomes_of, split
from logserver.service.partitioning import Partitioner, address, only_partition
from logserver.service.requests import (
    Acks,
    AppendOutcome,
    PartitionAppend,
    Produce,
    ProduceBatches,
)
from logserver.service.topics import TopicCatalog, check_new_name, check_open
from logserver.transactions import half
from logserver.transactions.half import HalfTransactions
from logserver.transactions.service import Transactions
from storage import (
    LogStore,
    Prepared,
    ProducerEpoch,
    ProducerSequence,
    Record,
    SupportsHalfMessages,
    TopicInfo,
    TopicPartition,
    client_batches_of,
)
from storage.errors import (
    NotOffered,
    RecordTooLarge,
    UnknownPartition,
    UnknownTopic,
    UnrepresentableRecord,
)

log = logging.getLogger(__name__)

Converted: TypeAlias = Callable[[Sequence[AppendOutcome]], list[AppendOutcome]]
"""Changes outcomes of records that wait elsewhere into the terms of the request. May read records; blocks."""

MAX_AHEAD_MS: Final = HOUR_MS  # a broker's default of message.timestamp.after.max.ms
WARN_AGAIN_MS: Final = 60_000
MAX_WARNED_TOPICS: Final = 1000
PROMPT_CHECK_BYTES: Final = 1 << 20
"""Uncompressed batches up to this size are checked by the thread that appends them: a hop would take longer."""
# Stands for the marks that the parts of a request with a key get when they are appended.
_ANY_MARK: Final = ProducerSequence(0, 0, 0)


class Producer:
    """Stores produce requests in one open, writable store."""

    def __init__(
        self,
        topics: TopicCatalog,
        writer: Writer,
        keyed_writer: KeyedWriter,
        metrics: Metrics,
        transactions: Transactions,
        *,
        half_transactions: HalfTransactions | None = None,
    ) -> None:
        self._access = topics.access
        self._transactions = transactions
        self._half_transactions = half_transactions
        self._store = store = topics.access.store
        self._batches = client_batches_of(store)
        self._topics = topics
        self._writer = writer
        self._keyed_writer = keyed_writer
        self._metrics = metrics
        self._partitioner = Partitioner()
        self._warned_ms: dict[str, int] = {}  # by topic, the time of the last warning
        self._created: set[str] = set()  # topics that requests have created
        # Only one request at a time may unpack compressed batches.
        self._unpacking = asyncio.Lock()
        topics.listeners.append(self._topic_changed)

    async def produce(self, request: Produce) -> list[AppendOutcome]:
        """Append records; on return they are as durable as `acks` requires.

        With acks=0 the result holds only the records that the store rejects, and then no record of the request is
        stored.

        A record that fails alone has an outcome with an error. An error of the whole request is raised: UnknownTopic,
        InvalidTopic, OutOfOrderSequence, FencedProducer, RecordTooLarge (of a request with a sequence, a key or a
        transaction), KeyReused, TransactionEnded, StoreReadOnly, StoreFenced, DiskFull, TimedOut.

        In a transaction each part is all or nothing; after an error other parts may be stored in the transaction.
        """
        try:
            return await self._produce(request)
        except UnknownTopic:
            await self._deleted_meanwhile()
        return await self._produce(request)

    async def _produce(self, request: Produce) -> list[AppendOutcome]:
        info: TopicInfo | None = self._topics.get(request.topic)
        is_new = info is None
        if info is None:
            info = await self._preview(request.topic, request.partition)
            is_new = request.topic not in self._topics
        check_open(info)
        parts, failed = self._partitioner.parts(info, request)
        parts, impossible, converted = self._placed(request, parts)
        failed += impossible
        unanswered = request.acks is Acks.NONE
        is_whole = request.prepared is not None or (
            request.transaction is not None and len(parts) > 1
        )
        if is_new or unanswered or is_whole:
            refused = failed + await self._refused(parts, request, converted)
            if len(refused) == len(request.records) or (refused and unanswered):
                return refused
        if is_new:
            await self.create_topic(request.topic)
        if not parts:
            return failed
        relaxed = self._store.capabilities.messages and without_waiting(request.records)
        if relaxed and request.acks is Acks.ALL:
            request = structs.replace(request, acks=Acks.WRITTEN)
        outcomes = await self._append(parts, request)
        if converted is not None:
            outcomes = await self._access.run(converted, outcomes)
            await self._topics.refresh(part.partition for part in parts)
        self._count(request, outcomes)
        return failed + outcomes if failed else outcomes

    def _placed(
        self, request: Produce, parts: list[PartitionAppend]
    ) -> tuple[list[PartitionAppend], Sequence[AppendOutcome], Converted | None]:
        """Return the parts where the records wait for their time or for the end of their transaction, the records that
        cannot wait, and the change of the outcomes into outcomes of the records; None: no record waits.
        """
        store = self._store
        if request.prepared is not None:
            assert isinstance(store, SupportsHalfMessages)
            halves, places = half.split(store.half_messages, request, parts, request.prepared)
            return halves, (), partial(half.outcomes_of, places=places)
        if request.delays is None:
            return parts, (), None
        parts, impossible, waits = split(store, request, parts, self._access.clock())
        return parts, impossible, partial(outcomes_of, waits=waits, store=store) if waits else None

    async def _refused(
        self,
        parts: Sequence[PartitionAppend],
        request: Produce,
        converted: Converted | None,
    ) -> list[AppendOutcome]:
        """Return the records that the store would reject. Raises what `_refusals` raises."""
        marked = request.producer or request.key or request.transaction or request.prepared
        refused = await self._access.run(_refusals, self._store, parts, whole=marked is not None)
        return refused if converted is None else converted(refused)

    def _count(self, request: Produce, outcomes: Sequence[AppendOutcome]) -> None:
        if request.acks is not Acks.NONE:
            stored = 0
            for outcome in outcomes:
                if outcome.error is None:
                    stored += len(outcome.positions)
            self._metrics.produced(records=stored, size_bytes=request.size_bytes)

    def far_ahead(
        self, topic: str, records: Sequence[Record], outcomes: Sequence[AppendOutcome]
    ) -> Sequence[int]:
        """Return the positions of records whose time is far ahead of the server's clock, and log the largest time.

        Such a time is most likely in another unit than milliseconds, and retention by time keeps the record until then.
        A record that was rejected, or that has the time of its append, is not reported. A topic is logged at most once
        a minute.
        """
        now_ms = self._access.clock()
        latest_ms = now_ms + MAX_AHEAD_MS
        ahead = [at for at, record in enumerate(records) if (record.timestamp_ms or 0) > latest_ms]
        if not ahead:
            return ()
        unaffected = {
            position
            for outcome in outcomes
            if outcome.error is not None or outcome.timestamp_ms >= 0
            for position in outcome.positions
        }
        ahead = [position for position in ahead if position not in unaffected]
        if ahead and now_ms - self._warned_ms.get(topic, -WARN_AGAIN_MS) >= WARN_AGAIN_MS:
            if len(self._warned_ms) >= MAX_WARNED_TOPICS:
                self._warned_ms.clear()
            self._warned_ms[topic] = now_ms
            log.warning(
                "topic %s: the timestamp %d is more than 1 hour ahead of the server's clock: send milliseconds since "
                "the epoch; retention by time keeps the record until then",
                topic,
                max(records[position].timestamp_ms or 0 for position in ahead),
            )
        return ahead

    async def new_id(self) -> int:
        """Return a producer id above every id that was seen or allocated."""
        return await self._access.run(self._store.new_producer_id)

    async def check_target(self, topic: str, partition: int | None) -> None:
        """Check that records can be sent to the topic, before the first record arrives.

        Raises what `produce` raises for the topic and, with `partition`, UnknownPartition.
        """
        info = await self._target(topic, partition)
        if partition is not None:
            address(info, partition)

    async def produce_batches(self, request: ProduceBatches) -> list[AppendOutcome]:
        """Append whole batches of a client: all or nothing. Raises InvalidBatch, NotOffered and what `produce`
        raises.
        """
        try:
            return await self._produce_batches(request)
        except UnknownTopic:
            await self._deleted_meanwhile()
        return await self._produce_batches(request)

    async def submit_batches(
        self,
        partition: TopicPartition,
        data: bytes,
        acks: Acks,
        *,
        transaction: ProducerEpoch | None = None,
        born_host: bytes | None = None,
    ) -> asyncio.Future[list[AppendOutcome]]:
        """Check a client's batches and queue them. Return the future of their outcome.

        `born_host`: the address of the client, as in `LogStore.append`. `transaction`: the producer of the transaction
        that they belong to; the caller is a member of it (`Member`) until the future is done.

        Batches that are queued by one call after the return of another with the same `acks` are appended after them. No
        topic is created.
        Raises UnknownTopic, UnknownPartition, and what `produce_batches` raises for bytes that no log takes. The
        future raises the errors of the append.
        """
        target = self._topics.partition(*partition)
        check_open(self._topics.info(partition.topic))
        part = PartitionAppend(target, data, (), born_host=born_host, transaction=transaction)
        store = self._batches
        is_packed = store is not None and store.are_compressed(data)
        if store is not None and (is_packed or len(data) > PROMPT_CHECK_BYTES):
            async with self._unpacking if is_packed else nullcontext():
                checked = await self._access.run(
                    store.check_client_batches, target.topic, data, transaction
                )
            part.records, part.checked = checked, True
        answer = self._writer.submit([part], acks)
        if answer.done():
            self._count_batches(len(data), answer)
        else:
            answer.add_done_callback(partial(self._count_batches, len(data)))
        if acks is Acks.NONE:
            answer.add_done_callback(self._note_dropped)
        return answer

    def _count_batches(self, size_bytes: int, answer: asyncio.Future[list[AppendOutcome]]) -> None:
        if not answer.cancelled() and answer.exception() is None:
            stored = sum(len(outcome.positions) for outcome in answer.result())
            self._metrics.produced(records=stored, size_bytes=size_bytes)

    async def _produce_batches(self, request: ProduceBatches) -> list[AppendOutcome]:
        info = await self._target(request.topic, request.partition)
        number = only_partition(info) if request.partition is None else request.partition
        target = address(info, number)
        is_new = request.topic not in self._topics
        part = await self._checked(target, request, is_new=is_new)
        if is_new:
            await self.create_topic(request.topic)
        outcomes = await self._append([part], request)
        stored = sum(len(outcome.positions) for outcome in outcomes)
        self._metrics.produced(records=stored, size_bytes=len(request.data))
        return outcomes

    async def _checked(
        self, target: TopicPartition, request: ProduceBatches, *, is_new: bool
    ) -> PartitionAppend:
        """Check a client's batches in a thread, so that the writer continues with other requests. It checks short ones
        itself.

        Compressed batches are checked for one request at a time, since each may unpack to 256 MiB.
        """
        store = self._batches
        if store is None or not self._store.capabilities.batch_bytes:
            backend = self._store.capabilities.backend
            raise NotOffered(f"backend {backend} takes no record batches", feature="batches")
        is_packed = store.are_compressed(request.data)
        async with self._unpacking if is_packed else nullcontext():
            await self._preview_batches(request, is_new=is_new)
            is_short = not is_packed and len(request.data) <= PROMPT_CHECK_BYTES
            if is_short and request.transaction is None:
                return PartitionAppend(target, request.data, ())
            data = await self._access.run(
                store.check_client_batches, request.topic, request.data, request.transaction
            )
        return PartitionAppend(target, data, (), checked=True, transaction=request.transaction)

    async def _preview_batches(self, request: ProduceBatches, *, is_new: bool) -> None:
        if request.transaction is None and (is_new or request.acks is Acks.NONE):
            await self._access.run(self._store.preview_topic, request.topic, request.data)

    async def _deleted_meanwhile(self) -> None:
        """Wait until the deletion of a topic has ended, for a second attempt of a request.

        The second attempt finds the new topic of that name, or creates it. Nothing is stored twice: the records of
        the first attempt were deleted with the topic, and after the error the writer stores no more records of it.
        """
        await self._topics.changed()  # the store deletes a topic before the server forgets it

    async def _append(
        self, parts: Sequence[PartitionAppend], request: Produce | ProduceBatches
    ) -> list[AppendOutcome]:
        if request.transaction is not None:
            answer = await self._submit_in_transaction(request.transaction, parts, request.acks)
        elif isinstance(request, Produce) and request.prepared is not None:
            answer = await self._submit_prepared(request.prepared, parts)
        elif isinstance(request, Produce) and request.key is not None:
            answer = self._keyed_writer.append(request.key, parts, request.acks)
        else:
            answer = self._writer.submit(parts, request.acks)
        if request.acks is Acks.NONE:
            request.reservation.release_when(answer)
            answer.add_done_callback(self._note_dropped)
            return []
        if request.timeout_ms is not None:
            await asyncio.wait((answer,), timeout=request.timeout_ms / 1000)
            if not answer.done():
                request.reservation.release_when(answer)
                answer.add_done_callback(_ignore)
                raise TimedOut(
                    f"the write was not confirmed within timeout={request.timeout_ms} ms: "
                    "it may still be stored",
                    timeout_ms=request.timeout_ms,
                )
        try:
            return await answer
        except UnknownPartition as error:
            if len(parts) > 1:  # the other parts may be stored
                raise
            # The partition existed before: the topic was deleted, and created again with fewer partitions.
            raise UnknownTopic(request.topic) from error

    async def _submit_in_transaction(
        self, producer: ProducerEpoch, parts: Sequence[PartitionAppend], acks: Acks
    ) -> asyncio.Future[list[AppendOutcome]]:
        """Add the partitions to the transaction of a producer, then queue the parts. The transaction ends after them.

        A part without a sequence number continues the producer's sequence in its partition.
        """
        member = await self._transactions.join(producer, [part.partition for part in parts])
        for part in parts:
            if part.producer is None and not isinstance(part.records, bytes):
                part.producer = member.mark()
        try:
            answer = self._writer.submit(parts, acks)
        except NotReady:
            member.leave()
            raise
        answer.add_done_callback(lambda _: member.leave())
        return answer

    async def _submit_prepared(
        self, transaction: Prepared, parts: Sequence[PartitionAppend]
    ) -> asyncio.Future[list[AppendOutcome]]:
        """Queue the half messages of a transaction, which ends after them. They wait for the disk as with acks=all:
        else a commit after a power loss could find only some of them.
        """
        assert self._half_transactions is not None
        entry = await self._half_transactions.join(transaction)
        try:
            answer = self._writer.submit(parts, Acks.ALL)
        except NotReady:
            entry.leave()
            raise
        answer.add_done_callback(lambda _: entry.leave())
        return answer

    async def _target(self, topic: str, partition: int | None) -> TopicInfo:
        """Return the topic of a request, which may not exist yet. Raises what `produce` raises for the topic."""
        info = self._topics.get(topic) or await self._preview(topic, partition)
        check_open(info)
        return info

    async def create_topic(self, topic: str) -> None:
        """Create the topic of a request, with the store's defaults. Raises Busy if requests have created too many
        topics, and what the store raises.
        """
        limit = self._access.settings.max_auto_created_topics
        if len(self._created) >= limit:
            self._created.intersection_update(self._topics)
        if len(self._created) >= limit:
            raise Busy(
                f"requests have created {len(self._created)} topics, the limit is {limit} "
                "(max_auto_created_topics): create this one by PUT /topics"
            )
        _, is_new = await self._topics.create(topic, None, None)
        if is_new:
            self._created.add(topic)

    async def _preview(self, topic: str, partition: int | None) -> TopicInfo:
        """Return the topic that a produce request to an unknown topic would create."""
        if not self._access.settings.auto_create_topics:
            raise UnknownTopic(topic)
        check_new_name(topic)
        info = await self._access.run(self._store.preview_topic, topic)
        if partition is not None and partition not in info.partitions:
            raise UnknownTopic(topic)
        return info

    def _topic_changed(self, name: str) -> None:
        if name not in self._topics:
            self._partitioner.forget(name)

    def _note_dropped(self, answer: asyncio.Future[list[AppendOutcome]]) -> None:
        if (
            answer.cancelled()
            or answer.exception() is not None
            or any(outcome.error is not None for outcome in answer.result())
        ):
            self._metrics.dropped()


def _refusals(
    store: LogStore, parts: Sequence[PartitionAppend], *, whole: bool
) -> list[AppendOutcome]:
    """Return the records that the store would reject, each as an outcome with its error. Blocking.

    Called in two cases:
    - before a topic is created for a request: a request that is rejected whole would leave an empty topic
    - before an answer that does not wait for the append

    `whole`: a part is all or nothing (the request has a sequence or a key), and its error is raised. An error that is
    not about one record is always raised.
    """
    return [
        outcome
        for part in parts
        for outcome in _refused(store, part, range(len(part.records)), whole)
    ]


def _refused(
    store: LogStore, part: PartitionAppend, span: range, whole: bool
) -> list[AppendOutcome]:
    producer = part.producer or (_ANY_MARK if whole else None)
    try:
        store.preview_topic(
            part.partition.topic,
            part.records[span.start : span.stop],
            compression=part.compression,
            producer=producer,
        )
    except (RecordTooLarge, UnrepresentableRecord) as error:
        if whole:
            raise
        if len(span) == 1:
            return [
                AppendOutcome(part.partition.partition, (part.positions[span.start],), -1, error)
            ]
        middle = len(span) // 2
        return [
            *_refused(store, part, span[:middle], whole),
            *_refused(store, part, span[middle:], whole),
        ]
    return []


def _ignore(answer: asyncio.Future[list[AppendOutcome]]) -> None:
    """Read the error of an answer that no caller waits for, so that asyncio does not log it as never retrieved."""
    if not answer.cancelled():
        answer.exception()
