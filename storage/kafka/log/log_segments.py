"""The segments of one partition in the order of their offsets (Kafka's LogSegments), with lookup by offset.

Owns their order, and the limit that each segment has by the base of the next; must not read files. A partition, the
tail of a followed log and the tools use it. Not thread-safe: the partition's state lock guards it. A module of its own,
because every reader of a log needs it and no other part of a partition.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from itertools import pairwise
from operator import attrgetter
from typing import Final

from storage.kafka.log.segment import Segment

_BASE: Final = attrgetter("base_offset")


class LogSegments(list[Segment]):
    """The segments, ascending."""

    def __init__(self, segments: Iterable[Segment] = ()) -> None:
        super().__init__(segments)
        for segment, following in pairwise(self):
            segment.limit_offset = following.base_offset

    @property
    def active(self) -> Segment:
        """The last segment, which takes appends."""
        return self[-1]

    def at(self, offset: int) -> Segment:
        """Return the segment that contains an offset; the first segment for an offset before all segments."""
        return self[max(bisect_right(self, offset, key=_BASE) - 1, 0)]

    def roll(self, segment: Segment) -> None:
        """Add a segment after the active one, which ends at its base offset."""
        if self:
            self.active.limit_offset = segment.base_offset
        self.append(segment)
