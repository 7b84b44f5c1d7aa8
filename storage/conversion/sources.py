"""The source of a conversion: the records of a store, by partition, in the state that recovery would produce.

Owns which records are converted (those visible to readers of committed records) and how all other records are reported;
must not change the store or take its lock, so a server or a real broker may run on it. Memory: one batch of a
partition, or a window of the log.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Final, Protocol

from storage.coding.varint import INT64_MAX
from storage.contract import Clock, StoreOptions
from storage.conversion.counters import Fates
from storage.conversion.records import KafkaRecord, QueuedMessage
from storage.errors import Corrupt
from storage.files import FileSystem, HandleCache
from storage.findings import finding
from storage.kafka.format.record import DecodedRecord
from storage.kafka.log.log_file import OLD_FORMAT, StoredBatch
from storage.kafka.log.reading import AbortedRanges, batches_from, decoded
from storage.kafka.partition import Partition
from storage.kafka.tools.live import steady, steady_items
from storage.kafka.tools.logs import log_replaced
from storage.kafka.tools.view import View as KafkaView
from storage.model import Finding, OffsetBounds, RawMessage, TopicPartition
from storage.rocketmq.format.message import Message
from storage.rocketmq.format.names import COMPACTION, is_system_topic
from storage.rocketmq.tools.compacted.queue import CompactedQueue, queues_of
from storage.rocketmq.tools.view import View as RocketMQView

ABORTED: Final = "aborted"
NOT_ENDED: Final = "the transaction has not ended"
MARKER: Final = "transaction marker"


class Source(Protocol):
    """A store that is read."""

    def topics(self) -> Mapping[str, Sequence[int]]:
        """Return all topics with their partition numbers."""

    def is_internal(self, topic: str) -> bool:
        """Return whether the topic contains the server's own records instead of users' records."""

    def bounds(self, address: TopicPartition) -> OffsetBounds:
        """Return the bounds as LogStore.bounds does."""

    def note_missing(self, topics: Collection[str]) -> None:
        """Add findings for records that no partition holds: missing partitions of these topics whose records are named
        by other files (with no topics given, of all topics that are not internal), and records without a partition.
        """

    def findings(self) -> Sequence[Finding]:
        """Return the findings so far: damage that was skipped."""

    def close(self) -> None:
        """Close open files."""


class KafkaSource:
    """A Kafka log directory as a source."""

    def __init__(self, path: Path, options: StoreOptions, *, fs: FileSystem, clock: Clock) -> None:
        self._view = KafkaView(path, options, fs=fs, clock=clock)
        self.roots: Sequence[Path] = self._view.directory.roots
        self._bounds: dict[TopicPartition, OffsetBounds] = {}  # as they were at the first look

    def topics(self) -> Mapping[str, Sequence[int]]:
        """See Source."""
        found: dict[str, list[int]] = {}
        for topic, partition in self._view.folders:
            found.setdefault(topic, []).append(partition)
        return found

    def is_internal(self, topic: str) -> bool:
        """See Source."""
        return topic.startswith("__")

    def bounds(self, address: TopicPartition) -> OffsetBounds:
        """See Source."""
        if address not in self._bounds:
            found = steady(self._view, address, lambda view: view.partition(address).bounds())
            if found is None:
                raise log_replaced(self._view.folders[address])
            self._bounds[address] = found
        return self._bounds[address]

    def records(self, address: TopicPartition, fates: Fates) -> Iterator[KafkaRecord]:
        """Yield the committed records of a partition by offset. Hidden records are counted in `fates`, and damage is
        added to the findings.

        Raises IoFailure (run it again) if a running server changes the partition faster than it can be read.
        """
        _, stable, end = self.bounds(address)
        read = partial(self._read, address, stable, fates)
        for records in steady_items(self._view, address, read):
            yield from records
        if any((gone.topic, gone.partition) == address for gone in self._view.gone):
            raise log_replaced(self._view.folders[address])
        if stable < end:
            fates.hidden.add(address, stable, "", NOT_ENDED, records=end - stable)

    def _read(
        self, address: TopicPartition, stable: int, fates: Fates, view: KafkaView, begin: int
    ) -> Iterator[tuple[int, Sequence[KafkaRecord]]]:
        """Yield the records of each batch from an offset on, as a view finds it, and the offset after them."""
        partition = view.partition(address)
        start = max(begin, partition.bounds().start)
        aborted = AbortedRanges(partition.segments().at, start, stable)
        for batch in self._batches(view, partition, start, stable):
            header = batch.header
            found: Sequence[DecodedRecord] = ()
            if header.is_control or aborted.hides(batch):
                why = MARKER if header.is_control else ABORTED
                fates.hidden.add(address, header.base_offset, "", why, records=header.count)
            else:
                try:
                    found = decoded(batch)
                except Corrupt as error:
                    self._note(address, header.base_offset, error)
            is_append_time = header.is_log_append_time
            records = [KafkaRecord(*record, is_append_time) for record in found]
            yield header.next_offset, [record for record in records if record.offset >= start]

    def _batches(
        self, view: KafkaView, partition: Partition, start: int, end: int
    ) -> Iterator[StoredBatch]:
        """Yield valid batches; damage between them is added to the findings."""
        segments = partition.segments()
        offset = start
        while offset < end:
            try:
                for batch in batches_from(segments.at, offset, end):
                    yield batch
                    offset = batch.header.next_offset
            except Corrupt as error:
                if view.is_changed(partition.partition):
                    raise
                self._note(partition.partition, offset, error)
                following = error.facts().get("next_good_offset")
                if not isinstance(following, int) or following <= offset:
                    return
                offset = following
            else:
                return

    def note(self, findings: Sequence[Finding]) -> None:
        """Add findings of other readers of the store."""
        self._view.notes.add(*findings)

    def note_missing(self, topics: Collection[str]) -> None:
        """See Source."""
        for missing in self._view.missing(None, None):
            topic = str(missing.topic)
            if topic in topics or not (topics or self.is_internal(topic)):
                self._view.notes.add(missing)

    def _note(self, address: TopicPartition, offset: int, error: Corrupt) -> None:
        facts = error.facts()
        position = facts.get("position")
        damage = finding(
            OLD_FORMAT if facts.get("kind") == OLD_FORMAT else "damaged-batch",
            str(facts.get("path", self._view.root)),
            position=position if isinstance(position, int) else None,
            topic=address.topic,
            partition=address.partition,
            offset=offset,
            message=error.message,
        )
        self._view.notes.add(damage)

    def findings(self) -> Sequence[Finding]:
        """See Source."""
        return self._view.findings()

    def close(self) -> None:
        """See Source."""
        self._view.close()


class RocketMQSource:
    """A RocketMQ store as a source.

    A queue of a topic that a broker compacts has the messages of the commit log, and those that only its compacted log
    still has: with queue offsets before or after them.
    """

    def __init__(self, path: Path, options: StoreOptions, *, fs: FileSystem, clock: Clock) -> None:
        self._view = RocketMQView(path, options, fs=fs, clock=clock)
        self._files = HandleCache(fs, options.open_files)
        compaction = path / COMPACTION
        self._compacted = {
            queue: CompactedQueue(self._files, compaction, queue) for queue in queues_of(fs, path)
        }
        for queue in self._compacted.values():
            self._view.notes.add(*queue.mismatches())
        self.roots: Sequence[Path] = (path,)
        self._bounds: dict[TopicPartition, OffsetBounds] = {}

    def topics(self) -> Mapping[str, Sequence[int]]:
        """See Source."""
        found = {name: info.partitions for name, info in self._view.store.topics().items()}
        for topic, queue_id in self._compacted:
            if queue_id not in found.get(topic, range(0)):
                found[topic] = range(queue_id + 1)
        return found

    def is_internal(self, topic: str) -> bool:
        """See Source. A system topic with messages counts as a user's topic, because they may be waiting for delivery
        to users.
        """
        if not is_system_topic(topic):
            return False
        bounds = (self.bounds(TopicPartition(topic, number)) for number in self.topics()[topic])
        return all(start == end for start, _, end in bounds)

    def log_bounds(self, address: TopicPartition) -> OffsetBounds:
        """Return the bounds of the messages in the commit log."""
        info = self._view.store.topics().get(address.topic)
        if info is None or address.partition not in info.partitions:
            return OffsetBounds(0, 0, 0)
        return self._view.store.bounds(address)

    def bounds(self, address: TopicPartition) -> OffsetBounds:
        """See Source."""
        if address not in self._bounds:
            self._bounds[address] = self._all_bounds(address)
        return self._bounds[address]

    def _all_bounds(self, address: TopicPartition) -> OffsetBounds:
        start, stable, end = self.log_bounds(address)
        if address in self._compacted:
            more = self._compacted[address].offsets(but=range(start, end))
            if more:
                start = more.start if start == end else min(start, more.start)
                stable = end = max(end, more.stop)
        return OffsetBounds(start, stable, end)

    def compacted_until(self, address: TopicPartition) -> int:
        """Return the offset after the last message that only the compacted log has, or where the commit log's messages
        follow it; 0 if it has none of its own.
        """
        bounds, log = self.bounds(address), self.log_bounds(address)
        if bounds.end > log.end:
            return bounds.end
        return log.start if bounds.start < log.start else 0

    def messages(self, address: TopicPartition) -> Iterator[QueuedMessage]:
        """Yield the messages of a queue that readers see, by offset."""
        start, _, end = self.log_bounds(address)
        yield from self.compacted_messages(address, but=range(start, INT64_MAX))
        if start < end:
            for offset, _, message in self._view.messages(self._view.store.queue(address)):
                yield queued(message, offset)
        yield from self.compacted_messages(address, but=range(end))

    def compacted_messages(self, address: TopicPartition, *, but: range) -> Iterator[QueuedMessage]:
        """Yield the messages of a queue's compacted log, if there is one, by offset; not those with these offsets."""
        if address in self._compacted:
            for entry, message in self._compacted[address].records(self._view.notes, but=but):
                yield queued(message, entry.queue_offset)

    def note_missing(self, topics: Collection[str]) -> None:
        """See Source. Opening the store has already reported queues that end before a used offset; add the records
        that are in no queue.
        """
        self._view.note_unqueued()

    def note(self, findings: Sequence[Finding]) -> None:
        """Add findings of other readers of the store."""
        self._view.notes.add(*findings)

    def findings(self) -> Sequence[Finding]:
        """See Source."""
        return self._view.findings()

    def close(self) -> None:
        """See Source."""
        self._files.close(sync=False)
        self._view.close()


def queued(message: Message, offset: int) -> QueuedMessage:
    """Return a stored message in its form in transit."""
    raw = RawMessage(
        message.body,
        message.properties,
        message.flag,
        message.sys_flag,
        message.born_timestamp_ms,
        message.born_host,
        message.reconsume_times,
        message.prepared_transaction_offset,
    )
    return QueuedMessage(raw, offset, message.store_timestamp_ms, message.store_host)
