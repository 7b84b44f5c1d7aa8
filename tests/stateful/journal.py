"""What changed a store, in order, so that a new model can be brought to where a crash cut that store.

Owns the list of changes that were made, and making them again; must not know files or what a crash may take. A deleted
topic leaves no change behind.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple, TypeAlias

from storage import LogStore, ProducerSequence, Record, TopicPartition
from tests.contract.harness import ManualClock


class TopicChange(NamedTuple):
    """A topic was made or altered."""

    now_ms: int
    topic: str
    call: Callable[[LogStore], object]


class Append(NamedTuple):
    """Records were appended; the first has the offset `base`."""

    now_ms: int
    partition: TopicPartition
    base: int
    records: list[Record]
    producer: ProducerSequence | None

    @property
    def topic(self) -> str:
        return self.partition.topic

    @property
    def end(self) -> int:
        return self.base + len(self.records)


Ends: TypeAlias = Mapping[TopicPartition, int]


class Journal:
    """The changes there were."""

    def __init__(self) -> None:
        self._changes: list[TopicChange | Append] = []

    def add(self, change: TopicChange | Append) -> None:
        """One more."""
        self._changes.append(change)

    def forget(self, topic: str) -> None:
        """The topic is deleted."""
        self._changes = [change for change in self._changes if change.topic != topic]

    def appends(self) -> Iterator[Append]:
        """All that was appended to the topics there are."""
        return (change for change in self._changes if isinstance(change, Append))

    def torn(self, ends: Ends) -> list[Append]:
        """The appends of which some records lie before these ends of the partitions and some behind."""
        return [a for a in self.appends() if a.base < ends[a.partition] < a.end]

    def cut(self, ends: Ends) -> None:
        """Of each partition only the records before its end were ever appended."""
        kept: list[TopicChange | Append] = []
        for change in self._changes:
            if isinstance(change, Append):
                count = max(ends[change.partition] - change.base, 0)
                change = change._replace(records=change.records[:count])
                if not change.records:
                    continue
            kept.append(change)
        self._changes = kept

    def repeat(self, model: LogStore, clock: ManualClock) -> None:
        """Make all changes in a new model, each at its time; the clock is what it was afterwards."""
        now_ms = clock.now_ms
        for change in self._changes:
            clock.now_ms = change.now_ms
            if isinstance(change, TopicChange):
                change.call(model)
            else:
                model.append(change.partition, change.records, producer=change.producer)
        clock.now_ms = now_ms
