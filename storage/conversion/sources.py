"""What is converted: the records of a store, partition by partition, as recovery would leave it.

Owns which records those are (what readers of committed records see) and what is told of the others; must
not change the store or take its lock, so a server or a real broker may run on it. Memory: one batch of a
partition, or a window of the log.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, Protocol

from storage.conversion.shapes import KafkaRecord, QueuedMessage
from storage.conversion.tally import Fates
from storage.errors import Corrupt
from storage.files import FileSystem
from storage.findings import finding
from storage.interface import Clock, StoreOptions
from storage.kafka.log_file import OLD_FORMAT, Batch
from storage.kafka.partition import Partition
from storage.kafka.reading import AbortedRanges, batches_from, decoded
from storage.kafka.tools.view import View as KafkaView
from storage.kafka.tools.view import segment_finder
from storage.model import Finding, OffsetBounds, RawMessage, TopicPartition
from storage.rocketmq.format.message import Message
from storage.rocketmq.format.names import is_system_topic
from storage.rocketmq.tools.view import View as RocketMQView

ABORTED: Final = "aborted"
NOT_ENDED: Final = "the transaction has not ended"
MARKER: Final = "transaction marker"


class Source(Protocol):
    """A store that is read."""

    def topics(self) -> Mapping[str, Sequence[int]]:
        """All topics with the numbers of their partitions."""

    def is_internal(self, topic: str) -> bool:
        """Whether the topic holds the server's own records rather than users'."""

    def bounds(self, address: TopicPartition) -> OffsetBounds:
        """As LogStore.bounds."""

    def note_missing(self, topics: Collection[str]) -> None:
        """Note the missing partitions of these topics, of which other files name records; of none given, of all that
        are not internal.
        """

    def findings(self) -> Sequence[Finding]:
        """What was met: damage that was passed over."""

    def close(self) -> None:
        """Let go of open files."""


class KafkaSource:
    """A log directory."""

    def __init__(self, path: Path, options: StoreOptions, *, fs: FileSystem, clock: Clock) -> None:
        self._view = KafkaView(path, options, fs=fs, clock=clock)
        self.roots: Sequence[Path] = self._view.directory.roots

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
        return self._view.partition(address).bounds()

    def records(self, address: TopicPartition, fates: Fates) -> Iterator[KafkaRecord]:
        """The committed records of a partition by offset; what is hidden or damaged goes to `fates`."""
        partition = self._view.partition(address)
        start, stable, end = partition.bounds()
        aborted = AbortedRanges(segment_finder(partition.segments()), start, stable)
        for batch in self._batches(partition, start, stable):
            header = batch.header
            if header.is_control or aborted.hides(batch):
                why = MARKER if header.is_control else ABORTED
                fates.hidden.add(address, header.base_offset, "", why, records=header.count)
                continue
            try:
                found = decoded(batch)
            except Corrupt as error:
                self._note(address, header.base_offset, error)
                continue
            for offset, time_ms, key, value, headers in found:
                if offset >= start:
                    yield KafkaRecord(
                        offset, time_ms, key, value, headers, header.is_log_append_time
                    )
        if stable < end:
            fates.hidden.add(address, stable, "", NOT_ENDED, records=end - stable)

    def _batches(self, partition: Partition, start: int, end: int) -> Iterator[Batch]:
        """Good batches; damage between them is noted."""
        find = segment_finder(partition.segments())
        offset = start
        while offset < end:
            try:
                for batch in batches_from(find, offset, end):
                    yield batch
                    offset = batch.header.next_offset
            except Corrupt as error:
                self._note(partition.partition, offset, error)
                following = error.facts().get("next_good_offset")
                if not isinstance(following, int) or following <= offset:
                    return
                offset = following
            else:
                return

    def note(self, findings: Sequence[Finding]) -> None:
        """What others met who read the store."""
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
    """A store of RocketMQ's."""

    def __init__(self, path: Path, options: StoreOptions, *, fs: FileSystem, clock: Clock) -> None:
        self._view = RocketMQView(path, options, fs=fs, clock=clock)
        self.roots: Sequence[Path] = (path,)

    def topics(self) -> Mapping[str, Sequence[int]]:
        """See Source."""
        return {name: info.partitions for name, info in self._view.store.topics().items()}

    def is_internal(self, topic: str) -> bool:
        """See Source: a topic of its own may hold messages that wait to become users'; then it counts
        as theirs.
        """
        if not is_system_topic(topic):
            return False
        bounds = (self.bounds(TopicPartition(topic, number)) for number in self.topics()[topic])
        return all(start == end for start, _, end in bounds)

    def bounds(self, address: TopicPartition) -> OffsetBounds:
        """See Source."""
        return self._view.store.bounds(address)

    def messages(self, address: TopicPartition) -> Iterator[QueuedMessage]:
        """What readers of a queue see, by offset."""
        for offset, _, message in self._view.messages(self._view.store.queue(address)):
            yield queued(message, offset)

    def note_missing(self, topics: Collection[str]) -> None:
        """See Source: opening the store has reported queues that end before an offset that was used."""

    def note(self, findings: Sequence[Finding]) -> None:
        """What others met who read the store."""
        self._view.notes.add(*findings)

    def findings(self) -> Sequence[Finding]:
        """See Source."""
        return self._view.findings()

    def close(self) -> None:
        """See Source."""
        self._view.close()


def queued(message: Message, offset: int) -> QueuedMessage:
    """A stored message as it is on its way."""
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
