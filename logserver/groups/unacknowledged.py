"""Records that a consumer instance was given and has not acknowledged yet, each with a time.

Owns which records are held, until when each is invisible, and how far the group's progress may go: up to the lowest
record that is held. In memory only: it must not read, commit or wait. After a crash, or when another member takes a
partition, delivery begins again at the committed offset, so at the lowest record that was held. Times are by the
server's clock, in milliseconds since 1970. Use it on the event loop only.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from storage import TopicPartition

MAX_HELD: Final = 10_000
"""How many records an instance may hold: a poll returns no new record above it, only records whose time is over."""


class Unacknowledged:
    """The records that an instance holds, by partition and offset."""

    def __init__(self) -> None:
        self._due_ms: dict[TopicPartition, dict[int, int]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._due_ms.values()))

    def holds(self, partition: TopicPartition, offset: int) -> bool:
        """Return whether a record was delivered and not acknowledged."""
        return offset in self._due_ms.get(partition, {})

    def add(self, partition: TopicPartition, offsets: Iterable[int], due_ms: int) -> None:
        """Add records that were delivered; they are invisible until `due_ms`."""
        added = dict.fromkeys(offsets, due_ms)
        if added:
            self._due_ms.setdefault(partition, {}).update(added)

    def take(self, partition: TopicPartition, offset: int) -> int | None:
        """Remove a record that was acknowledged. Return until when it was invisible; None if it is not held."""
        held = self._due_ms.get(partition, {})
        due_ms = held.pop(offset, None)
        if due_ms is not None and not held:
            del self._due_ms[partition]
        return due_ms

    def take_below(self, partition: TopicPartition, offset: int) -> None:
        """Remove the records below an offset, which was committed."""
        for held in [held for held in self._due_ms.get(partition, {}) if held < offset]:
            self.take(partition, held)

    def drop(self, partition: TopicPartition) -> None:
        """Remove the records of a partition that the instance reads no more, or from elsewhere."""
        self._due_ms.pop(partition, None)

    def due(self, now_ms: int) -> Mapping[TopicPartition, Sequence[int]]:
        """Return the records whose time is over, in the order of their offsets."""
        found = {
            partition: sorted(offset for offset, due_ms in held.items() if due_ms <= now_ms)
            for partition, held in sorted(self._due_ms.items())
        }
        return {partition: offsets for partition, offsets in found.items() if offsets}

    def next_due_ms(self) -> int | None:
        """Return when the time of the next record is over; None if no record is held."""
        return min((min(held.values()) for held in self._due_ms.values()), default=None)

    def progress(self, positions: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Return the offsets up to which everything is acknowledged, for these positions of the reader."""
        return {
            partition: min(self._due_ms.get(partition, {}), default=position)
            for partition, position in positions.items()
        }
