"""Changes of a store, in order, so that a new model can reach the state of the store after a crash.

Owns the list of successful changes, and repeating them; must not know files or which data a crash may lose. A deleted
topic leaves no change in the list.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple, TypeAlias

from storage import LogStore, ProducerSequence, Record, TopicPartition
from tests.contract.harness import ManualClock


class TopicChange(NamedTuple):
    """A creation or alteration of a topic."""

    now_ms: int
    topic: str
    call: Callable[[LogStore], object]


class Append(NamedTuple):
    """An append of records; the first record has the offset `base`."""

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
    """The list of changes."""

    def __init__(self) -> None:
        self._changes: list[TopicChange | Append] = []

    def add(self, change: TopicChange | Append) -> None:
        """Add a change."""
        self._changes.append(change)

    def forget(self, topic: str) -> None:
        """Remove the changes of a deleted topic."""
        self._changes = [change for change in self._changes if change.topic != topic]

    def appends(self) -> Iterator[Append]:
        """Yield all appends to existing topics."""
        return (change for change in self._changes if isinstance(change, Append))

    def torn(self, ends: Ends) -> list[Append]:
        """Return the appends with some records before the ends of the partitions and some at or after them."""
        return [a for a in self.appends() if a.base < ends[a.partition] < a.end]

    def cut(self, ends: Ends) -> None:
        """Remove the records at or after the end of each partition."""
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
        """Repeat all changes in a new model, each at its time; reset the clock afterwards."""
        now_ms = clock.now_ms
        for change in self._changes:
            clock.now_ms = change.now_ms
            if isinstance(change, TopicChange):
                change.call(model)
            else:
                model.append(change.partition, change.records, producer=change.producer)
        clock.now_ms = now_ms
