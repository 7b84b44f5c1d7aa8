"""The counts of a conversion's report: by partition, field and reason, with the first offsets.

Owns the counting, whose memory does not grow with the number of records; must not know a rule.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from storage.model import ConversionNote, TopicPartition

PLACES: Final = 10
MOVED: Final = "at another offset than before"


class _Reason(NamedTuple):
    topic: str
    partition: int
    field: str
    reason: str


@dataclass(slots=True)
class _Count:
    records: int = 0
    offsets: list[int] = field(default_factory=list)


class Tally:
    """The count of records with one outcome. Picklable: tallies of several readers can be added."""

    def __init__(self) -> None:
        self._counts: dict[_Reason, _Count] = {}

    def add(
        self, address: TopicPartition, offset: int, field: str, reason: str, *, records: int = 1
    ) -> None:
        """Count `records` more records, the first of them at `offset`."""
        count = self._counts.setdefault(_Reason(*address, field, reason), _Count())
        count.records += records
        if len(count.offsets) < PLACES:
            count.offsets.append(offset)

    def take(self, other: Tally) -> None:
        """Add the counts of another tally, made of other records."""
        for reason, theirs in other._counts.items():
            count = self._counts.setdefault(reason, _Count())
            count.records += theirs.records
            count.offsets = sorted([*count.offsets, *theirs.offsets])[:PLACES]

    def notes(self) -> Sequence[ConversionNote]:
        """Return the counts by topic, partition, field and reason."""
        return [
            ConversionNote(
                topic=reason.topic,
                partition=reason.partition,
                field=reason.field,
                reason=reason.reason,
                records=count.records,
                offsets=tuple(count.offsets),
            )
            for reason, count in sorted(self._counts.items())
        ]


@dataclass(slots=True)
class Fates:
    """The four reported outcomes; see ConversionReport."""

    left_out: Tally = field(default_factory=Tally)
    encoded: Tally = field(default_factory=Tally)
    moved: Tally = field(default_factory=Tally)
    hidden: Tally = field(default_factory=Tally)

    def take(self, other: Fates) -> None:
        """Add the counts of another object, made of other records."""
        self.left_out.take(other.left_out)
        self.encoded.take(other.encoded)
        self.moved.take(other.moved)
        self.hidden.take(other.hidden)
