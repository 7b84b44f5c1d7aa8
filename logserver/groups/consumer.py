"""Consumer instances: positions, delivered records, polls and commits of each one; the table of all instances.

Owns the rules of reading as a group, the limit of instances and the search for idle ones; must not know HTTP. A
position moves when an answer has been delivered, not before. So a poll that failed gets the same records again, and an
auto-commit covers only records that were delivered before. Polls of one instance take turns; a newer poll ends the
wait of the earlier poll, which may be the same request sent twice. Use it on the event loop only.
"""

from __future__ import annotations

import asyncio
import logging
import math
import uuid
from bisect import bisect_right
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from functools import partial
from typing import Final

from logserver.errors import Busy, ConsumerState, UnknownConsumer
from logserver.groups.config import ConsumerConfig, check_group_name, check_instance_name
from logserver.groups.coordinator import Coordinator, Subscription
from logserver.groups.offsets import Acknowledgement, Offsets
from logserver.groups.reading import (
    NOT_MOVED,
    GroupRead,
    Reading,
    Reset,
    Slice,
    check_range,
    read_again,
    read_batch,
    reset_positions,
    timed_positions,
)
from logserver.groups.registry import Registry
from logserver.groups.unacknowledged import MAX_HELD, Unacknowledged
from logserver.service.topics import TopicCatalog
from storage import CommittedOffset, SupportsRetry, TopicPartition

log = logging.getLogger(__name__)

SWEEP_S: Final = 1.0


class Consumer:
    """One instance, a member of its group from the start. Its calls may run concurrently.

    Raises ConsumerExists if the group has a member with this name.
    """

    def __init__(
        self,
        topics: TopicCatalog,
        coordinator: Coordinator,
        offsets: Offsets,
        config: ConsumerConfig,
        *,
        group: str,
        name: str,
    ) -> None:
        self.config = config
        self._topics = topics
        self._access = topics.access
        self._coordinator = coordinator
        self._offsets = offsets
        # The next offset in each partition of the member; a partition without an entry is not located yet.
        self._positions: dict[TopicPartition, int] = {}
        # Partitions that a seek or reassignment changed since the current poll began to read: the poll must not move
        # them.
        self._moved: set[TopicPartition] = set()
        # The positions at the last commit, or as found in the commits: an equal position needs no new commit.
        self._committed: dict[TopicPartition, int] = {}
        self._auto_committed_ms = self._access.clock()
        self._turn = asyncio.Lock()
        self._polls = 0  # polls in progress, including polls that wait for their turn
        self._changed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._last_first: TopicPartition | None = None  # the first partition of the last poll
        self._held = Unacknowledged()
        self._closed = False
        self.member = coordinator.join(
            group,
            name,
            session_timeout_ms=self._access.settings.consumer_idle_ms,
            reassigned=self._reassigned,
        )

    @property
    def group(self) -> str:
        """The name of the group."""
        return self.member.group.name

    @property
    def retry_topic(self) -> str | None:
        """The topic of messages that the group handed back; None if the store has no such topics."""
        return self.member.group.retry_topic

    @property
    def topics(self) -> Sequence[str]:
        """The topics of the subscription; for a pattern the topics that match it now."""
        subscription = self.member.subscription
        if subscription is None:
            return ()
        if subscription.pattern is None:
            return sorted(subscription.topics)
        return self.member.group.topics(subscription)

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """Mark a call in progress: the instance is not idle inside the block."""
        self.member.busy += 1
        try:
            yield
        finally:
            self.member.busy -= 1
            self._coordinator.seen(self.member)

    # -- partitions

    async def subscribe(self, subscription: Subscription) -> None:
        """Take a share of these topics; the positions are fixed on return.

        Replaces a subscription of the same kind. Raises ConsumerState if there is a subscription of the other kind,
        or assigned partitions.
        """
        known = None
        if subscription.pattern is not None:  # in a thread: thousands of long names take a while
            known = await self._access.run(subscription.pattern.matching, tuple(self._topics))
        before = self.member.subscription
        other_kind = before is not None and (before.pattern is None) != (
            subscription.pattern is None
        )
        if other_kind or (before is None and self.member.partitions):
            raise self._exclusive()
        self._coordinator.subscribe(self.member, subscription, known)
        await self._begin()

    async def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Read exactly these partitions, even if other members read them too; the positions are fixed on return.

        Raises ConsumerState if there is a subscription.
        """
        if self.member.subscription is not None:
            raise self._exclusive()
        self._coordinator.pin(self.member, tuple(sorted(set(partitions))))
        await self._begin()

    def unsubscribe(self) -> None:
        """Drop the subscription or the assigned partitions."""
        if self.member.subscription is None:
            self._coordinator.pin(self.member, ())
        else:
            self._coordinator.subscribe(self.member, None)

    # -- positions

    async def seek(
        self, offsets: Mapping[TopicPartition, int], times_ms: Mapping[TopicPartition, int]
    ) -> None:
        """Continue at these offsets, and at the first records at or after these times.

        Raises ConsumerState for a partition that is not assigned to the instance, OffsetOutOfRange for an offset
        after the end.
        """
        self._check_own([*offsets, *times_ms])
        await self._access.run(check_range, self._access.store, offsets, from_start=False)
        timed = await self._access.run(timed_positions, self._access.store, times_ms)
        self._move({**offsets, **timed})

    async def seek_to(self, end: Reset, partitions: Sequence[TopicPartition]) -> None:
        """Continue at the earliest or latest offset of these partitions (empty: all partitions of the instance).

        Raises ConsumerState for a partition that is not assigned to the instance.
        """
        self._check_own(partitions)
        chosen = partitions or self.member.partitions
        self._move(await self._ends(chosen, end))

    # -- commits

    async def commit(self, offsets: Mapping[TopicPartition, CommittedOffset]) -> None:
        """Commit these next offsets, of any partitions. Auto-commit does not change them until more records are
        delivered.

        On return they are durable as the flush mode requires. Raises OffsetOutOfRange for an offset after the end,
        UnknownTopic, UnknownPartition, StoreReadOnly, ...
        """
        wanted = {partition: committed.offset for partition, committed in offsets.items()}
        await self._access.run(check_range, self._access.store, wanted, from_start=False)
        await self._offsets.commit(self.group, offsets)
        for partition, offset in wanted.items():
            self._held.take_below(partition, offset)
        self._committed |= {at: self._positions[at] for at in offsets if at in self._positions}

    async def commit_consumed(self) -> None:
        """Commit the positions in the instance's partitions: all delivered records, but only up to the first record
        that is held and not acknowledged.

        On return they are durable as the flush mode requires. Raises StoreReadOnly, ...
        """
        await self._commit_progress(self._positions)

    def held(
        self, records: Iterable[tuple[TopicPartition, int]]
    ) -> Sequence[tuple[TopicPartition, int]]:
        """Return the records among these that were delivered to be acknowledged, and were not yet."""
        return [record for record in records if self._held.holds(*record)]

    async def acknowledge(
        self, records: Iterable[tuple[TopicPartition, int]]
    ) -> Sequence[tuple[TopicPartition, int]]:
        """Acknowledge records that were delivered with an invisibility time, and commit how far all are acknowledged.

        Return the records that were held; any other is ignored: it was acknowledged before, or is no longer this
        instance's. On return the commit is durable as the flush mode requires. After an error the records are held as
        before, so that the call can be repeated. Raises StoreReadOnly, DiskFull, ...
        """
        self._access.check_writable()
        taken = {
            record: due_ms for record in records if (due_ms := self._held.take(*record)) is not None
        }
        partitions = {partition for partition, _ in taken} & self._positions.keys()
        if partitions:
            try:
                await self._commit_progress({at: self._positions[at] for at in sorted(partitions)})
            except Exception:
                for (partition, offset), due_ms in taken.items():
                    if partition in self._positions:  # else it was reassigned meanwhile
                        self._held.add(partition, [offset], due_ms)
                raise
            self._wake()  # a poll may wait for room
        return list(taken)

    async def _commit_progress(self, positions: Mapping[TopicPartition, int]) -> None:
        progress = self._held.progress(positions)
        await self._offsets.commit(self.group, self._kept(progress))
        self._committed |= {at: progress[at] for at in progress if at in self._positions}

    async def committed(
        self, partitions: Iterable[TopicPartition]
    ) -> Mapping[TopicPartition, CommittedOffset]:
        """Return the group's committed offsets in these partitions; partitions without a commit are left out."""
        committed = await self._offsets.committed(self.group)
        return {
            partition: committed[partition] for partition in partitions if partition in committed
        }

    async def close(self) -> None:
        """Leave the group and end a poll that waits. With auto-commit the delivered records are committed on return."""
        self._closed = True
        self._coordinator.leave(self.member)
        self._wake()
        await self._offsets.settled()

    # -- polls

    @asynccontextmanager
    async def poll(
        self,
        *,
        timeout_ms: int,
        max_bytes: int,
        until: asyncio.Future[None] | None = None,
        invisible_ms: int | None = None,
    ) -> AsyncIterator[GroupRead]:
        """Yield records of the instance's partitions, waiting for them, but not longer than `until`.

        The block delivers the records: positions move at its end, but not if it raises. With `invisible_ms` the
        records are held until they are acknowledged: a record that is not acknowledged within this time from now is
        delivered again, by the next poll of this kind.

        Raises UnknownConsumer if the instance is closed meanwhile, ConsumerState if it has no partitions or no start
        position, OffsetOutOfRange without a reset, Corrupt, Busy. May be cancelled.
        """
        self._polls += 1
        self._wake()
        try:
            async with self._turn:
                self._auto_commit_when_due()
                with self._woken_by(until):
                    batch = await self._wait_for_batch(
                        timeout_ms, max_bytes, until, holds=invisible_ms is not None
                    )
                due_ms = None if invisible_ms is None else self._access.clock() + invisible_ms
                yield batch
                self._delivered(batch, due_ms)
        finally:
            self._polls -= 1

    async def _wait_for_batch(
        self,
        timeout_ms: int,
        max_bytes: int,
        until: asyncio.Future[None] | None,
        *,
        holds: bool,
    ) -> GroupRead:
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + timeout_ms / 1000
        while True:
            self._check_reading()
            changed = self._changed
            await self._locate()
            tickets = {at: self._access.waiters.ticket(at) for at in self._positions}
            self._moved.clear()
            batch = await self._read(max_bytes, holds=holds)
            left_s = deadline_s - loop.time()
            enough = batch.full or batch.size_bytes >= self.config.min_bytes
            over = left_s <= 0 or self._polls > 1 or (until is not None and until.done())
            if (batch.slices and enough) or over:
                return batch
            due_s = self._due_s() if holds else left_s
            woken = await self._access.waiters.changed(tickets, min(left_s, due_s), or_done=changed)
            # A record that is due may need one more wait: its time is by another clock than the event loop's.
            if not woken and (left_s <= due_s or self._access.waiters.closed):
                return batch

    async def _read(self, max_bytes: int, *, holds: bool) -> GroupRead:
        """Read once. `holds`: first the records that were held and whose time is over, then as many new records as may
        be held.
        """
        reading = self._reading(max_bytes)
        store = self._access.store
        if holds:
            due = self._held.due(self._access.clock())
            if due:
                again, gone = await self._access.run(read_again, store, due, reading)
                for record in gone:
                    self._held.take(*record)
                slices = [part for part in again.slices if part.partition in self._positions]
                if slices:
                    return GroupRead(slices=slices, size_bytes=again.size_bytes, full=True)
            room = MAX_HELD - len(self._held)
            reading = replace(reading, max_records=max(min(reading.max_records, room), 0))
        return self._own(await self._access.run(read_batch, store, reading))

    def _due_s(self) -> float:
        """Return how long it takes until a held record is due."""
        next_ms = self._held.next_due_ms()
        return math.inf if next_ms is None else max(next_ms - self._access.clock(), 0) / 1000

    def _reading(self, max_bytes: int) -> Reading:
        """Return a request to read at all positions. It begins with the partition after the one that was first in the
        last poll.
        """
        partitions = sorted(self._positions)
        first = 0 if self._last_first is None else bisect_right(partitions, self._last_first)
        turns = partitions[first:] + partitions[:first]
        limit = self._access.settings.max_records_per_request
        return Reading(
            positions=[(partition, self._positions[partition]) for partition in turns],
            max_records=min(limit, self.config.max_records or limit),
            max_bytes=max_bytes,
            reset=self.config.reset,
            isolation=self.config.isolation,
        )

    def _own(self, batch: GroupRead) -> GroupRead:
        """Return the slices with records. Drop slices of a partition that was reassigned or moved during the read.

        Positions of slices without records advance at once: their offsets hold no record for the reader.
        """
        slices = []
        for part in batch.slices:
            if part.records and self._stands_at(part):
                slices.append(part)
            else:
                self._advance(part)
        if batch.failed is not None and not slices:
            self._last_first, error = batch.failed
            raise error
        size_bytes = batch.size_bytes if slices else 0
        return GroupRead(slices=slices, size_bytes=size_bytes, full=batch.full)

    def _delivered(self, batch: GroupRead, due_ms: int | None) -> None:
        for part in batch.slices:
            at = part.partition
            offsets = [record.offset for record in part.records]
            # Delivered again: it may have been acknowledged meanwhile.
            is_again = part.begin == NOT_MOVED
            if due_ms is not None and (is_again or self._stands_at(part)):
                chosen = [o for o in offsets if not is_again or self._held.holds(at, o)]
                self._held.add(at, chosen, due_ms)
            self._advance(part)
        if batch.slices:
            self._last_first = batch.slices[0].partition

    def _advance(self, part: Slice) -> None:
        """Set the position after the slice, unless it was moved meanwhile."""
        if self._stands_at(part):
            self._positions[part.partition] = part.next_offset

    def _stands_at(self, part: Slice) -> bool:
        """Return whether the position is at the start of the slice. A seek to the same offset counts as a move."""
        partition = part.partition
        return partition not in self._moved and self._positions.get(partition) == part.begin

    # -- internal

    async def _begin(self) -> None:
        """Fix the positions. Without a reset the next poll does this, and reports a partition that has no position."""
        if self.config.reset is not Reset.NONE:
            await self._locate()

    async def _locate(self) -> None:
        """Fix the unknown positions: the committed offset, else the position that the reset defines."""
        if self._positions.keys() >= set(self.member.partitions):
            return
        committed = await self._offsets.committed(self.group)
        missing = [at for at in self.member.partitions if at not in self._positions]
        # Kafka clients may commit a negative offset, for one that is not known: it counts as none.
        positions = {
            at: committed[at].offset
            for at in missing
            if at in committed and committed[at].offset >= 0
        }
        fresh = [at for at in missing if at not in positions]
        # Every retry counts, as for the Java client: a group that starts at the end of its topics handed it back.
        retries = [at for at in fresh if at.topic == self.retry_topic]
        others = [at for at in fresh if at.topic != self.retry_topic]
        if retries:
            positions |= await self._ends(retries, Reset.EARLIEST)
        if others:
            positions |= await self._ends(others, self.config.reset)
        own = set(self.member.partitions)
        for partition, offset in positions.items():
            if partition in own and partition not in self._positions:
                self._positions[partition] = offset
                if partition in committed:
                    self._committed[partition] = offset

    async def _ends(
        self, partitions: Sequence[TopicPartition], end: Reset
    ) -> Mapping[TopicPartition, int]:
        return await self._access.run(
            reset_positions, self._access.store, partitions, end, self.config.isolation
        )

    def _reassigned(self, partitions: Sequence[TopicPartition]) -> None:
        """Take the new partitions. Positions in removed partitions are committed before their next owner begins."""
        gone = {at: offset for at, offset in self._positions.items() if at not in set(partitions)}
        if gone:
            self._auto_commit(gone)
        self._moved |= gone.keys()
        for partition in gone:
            self._held.drop(partition)
            del self._positions[partition]
            self._committed.pop(partition, None)
        self._wake()

    def _move(self, positions: Mapping[TopicPartition, int]) -> None:
        own = set(self.member.partitions)
        chosen = {at: offset for at, offset in positions.items() if at in own}
        self._moved |= chosen.keys()
        self._positions |= chosen
        for partition in chosen:
            self._held.drop(partition)
        self._wake()

    def _wake(self) -> None:
        """End a wait: the state of this instance has changed."""
        changed, self._changed = self._changed, asyncio.get_running_loop().create_future()
        changed.set_result(None)

    @contextmanager
    def _woken_by(self, until: asyncio.Future[None] | None) -> Iterator[None]:
        """Let the end of `until` end a wait inside the block."""
        if until is None:
            yield
            return

        def wake(_: asyncio.Future[None]) -> None:
            self._wake()

        until.add_done_callback(wake)
        try:
            yield
        finally:
            until.remove_done_callback(wake)

    def _auto_commit_when_due(self) -> None:
        now_ms = self._access.clock()
        if now_ms - self._auto_committed_ms >= self.config.commit_interval_ms:
            self._auto_committed_ms = now_ms
            self._auto_commit(self._positions)

    def _auto_commit(self, positions: Mapping[TopicPartition, int]) -> None:
        """Commit the positions that have changed, without waiting; a failure is logged."""
        progress = self._held.progress(positions)
        fresh = {at: offset for at, offset in progress.items() if self._committed.get(at) != offset}
        if fresh and self.config.auto_commit and not self._access.store.read_only:
            self._committed |= fresh
            answer = self._offsets.submit(self.group, self._kept(fresh))
            answer.add_done_callback(partial(self._auto_committed, fresh))

    def _auto_committed(
        self, offsets: Mapping[TopicPartition, int], answer: Acknowledgement
    ) -> None:
        error = answer.exception()
        if error is not None:
            log.warning("group %r: offsets could not be committed: %s", self.group, error)
            for partition in offsets:
                self._committed.pop(partition, None)

    def _kept(
        self, positions: Mapping[TopicPartition, int]
    ) -> Mapping[TopicPartition, CommittedOffset]:
        """Return the offsets to commit, without partitions that no longer exist."""
        topics = self._topics
        return {
            at: CommittedOffset(offset)
            for at, offset in positions.items()
            if at.topic in topics and at.partition in topics[at.topic].partitions
        }

    def _check_own(self, partitions: Iterable[TopicPartition]) -> None:
        own = set(self.member.partitions)
        for partition in partitions:
            if partition not in own:
                raise self._state(f"{partition} is not assigned to it")

    def _check_reading(self) -> None:
        if self._closed:
            raise UnknownConsumer(group=self.group, instance=self.member.name)
        if self.member.subscription is None and not self.member.partitions:
            raise self._state("it has neither a subscription nor assigned partitions")

    def _exclusive(self) -> ConsumerState:
        return self._state(
            "a subscription to topics, one to a pattern, and assigned partitions exclude each "
            "other: delete the subscription first"
        )

    def _state(self, problem: str) -> ConsumerState:
        return ConsumerState(
            f"consumer instance {self.member.name!r} of group {self.group!r}: {problem}",
            group=self.group,
            instance=self.member.name,
        )


class Consumers:
    """Consumer instances by group and name."""

    def __init__(self, topics: TopicCatalog, offsets: Offsets, registry: Registry) -> None:
        store = topics.access.store
        self.coordinator = Coordinator(
            topics,
            topics.access.clock,
            registry.http,
            store.retry_topic if isinstance(store, SupportsRetry) else lambda _: None,
        )
        self._offsets = offsets
        self._registry = registry
        self._topics = topics
        self._access = topics.access
        self._instances: dict[tuple[str, str], Consumer] = {}
        self._sweeping: asyncio.Task[None] | None = None

    @property
    def count(self) -> int:
        """The number of instances."""
        return len(self._instances)

    def start(self) -> None:
        """Begin to close idle instances."""
        self._sweeping = asyncio.create_task(self._sweep())

    async def stop(self) -> None:
        """Close all instances; their auto-commits are stored on return."""
        if self._sweeping is not None:
            self._sweeping.cancel()
            await asyncio.wait((self._sweeping,))
        for consumer in list(self._instances.values()):
            await self._close(consumer)

    def create(self, group: str, name: str | None, config: ConsumerConfig) -> Consumer:
        """Create an instance; without a name it gets a generated one. Raises InvalidGroup, ConsumerExists, Busy (too
        many instances or groups), ConsumerState if members of the group use Kafka's protocol.
        """
        check_group_name(group, rocketmq=self._access.store.capabilities.messages)
        if name is None:
            name = f"consumer-{uuid.uuid4()}"
        check_instance_name(name)
        self._registry.check_open_to_http(group)
        self._offsets.admit(group)
        limit = self._access.settings.max_consumer_instances
        if self.count >= limit and (group, name) not in self._instances:
            raise Busy(
                f"there are {self.count} consumer instances, the limit is {limit} "
                "(max_consumer_instances): delete some or try again later"
            )
        consumer = Consumer(
            self._topics, self.coordinator, self._offsets, config, group=group, name=name
        )
        self._instances[group, name] = consumer
        return consumer

    @contextmanager
    def using(self, group: str, name: str) -> Iterator[Consumer]:
        """Yield an instance for one call, during which it is not idle. Raises UnknownConsumer."""
        consumer = self._instances.get((group, name))
        if consumer is None:
            raise UnknownConsumer(group=group, instance=name)
        with consumer.in_use():
            yield consumer

    async def delete(self, group: str, name: str) -> None:
        """Close an instance; other members get its partitions. Raises UnknownConsumer."""
        with self.using(group, name) as consumer:
            await self._close(consumer)

    async def close_idle(self) -> int:
        """Close the instances that were idle for too long. Return their number."""
        silent = self.coordinator.silent()
        for member in silent:
            consumer = self._instances.get((member.group.name, member.name))
            if consumer is not None:
                log.info("group %r: consumer %r was idle", member.group.name, member.name)
                await self._close(consumer)
        return len(silent)

    async def _close(self, consumer: Consumer) -> None:
        self._instances.pop((consumer.group, consumer.member.name), None)
        await consumer.close()

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(SWEEP_S)
            try:
                await self.close_idle()
            except Exception:  # a bug: the sweep must go on for other instances
                log.exception("closing idle consumers broke")
