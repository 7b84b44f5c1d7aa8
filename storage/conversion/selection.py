"""The topics that a conversion selects, and their names in the target.

Owns that shape; must not know how the topics are chosen.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from storage.model import TopicPartition


@dataclass(slots=True)
class Selection:
    """The selected topics, by their names in the source; `names`: their names in the target."""

    topics: dict[str, Sequence[int]] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)

    def addresses(self) -> Sequence[TopicPartition]:
        """Return every selected partition, in order."""
        return [TopicPartition(t, n) for t, numbers in self.topics.items() for n in numbers]

    def renamed(self, address: TopicPartition) -> TopicPartition:
        """Return the partition in the target."""
        return TopicPartition(self.names[address.topic], address.partition)
