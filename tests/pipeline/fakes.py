"""A splitter of invented partitions, for the rules that need no files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from storage import (
    Finding,
    Isolation,
    OffsetBounds,
    OffsetRange,
    Split,
    TimedOffset,
    TopicPartition,
)

MS = 1000  # the record at offset n has the time n * MS


class FakeSplitter:
    """Partitions with their bounds; topics that begin with "__" are internal."""

    backend = "kafka"

    def __init__(self, bounds: Mapping[TopicPartition, OffsetBounds]) -> None:
        self.all_bounds = dict(bounds)
        self.planned: list[tuple[Sequence[OffsetRange], int, int, Isolation]] = []
        self.looks = 0
        self.gone: list[Finding] = []

    def partitions(self) -> Sequence[TopicPartition]:
        return sorted(self.all_bounds)

    def is_internal(self, topic: str) -> bool:
        return topic.startswith("__")

    def bounds(self, partition: TopicPartition) -> OffsetBounds:
        return self.all_bounds[partition]

    def offset_for_time(self, partition: TopicPartition, timestamp_ms: int) -> TimedOffset | None:
        bounds = self.bounds(partition)
        offset = max(bounds.start, -(-timestamp_ms // MS))
        return TimedOffset(offset, offset * MS) if offset < bounds.end else None

    def offset_before_time(self, partition: TopicPartition, timestamp_ms: int) -> int:
        bounds = self.bounds(partition)
        return min(max(bounds.start, -(-timestamp_ms // MS)), bounds.end)

    def plan(
        self,
        ranges: Sequence[OffsetRange],
        *,
        split_bytes: int = 0,
        min_splits: int = 1,
        isolation: Isolation = Isolation.READ_UNCOMMITTED,
    ) -> Sequence[Split]:
        self.planned.append((ranges, split_bytes, min_splits, isolation))
        return [Split(backend="kafka", size_bytes=1, plan=wanted) for wanted in ranges]

    def refresh(self) -> None:
        self.looks += 1

    def missing(self) -> Sequence[Finding]:
        return self.gone

    def findings(self) -> Sequence[Finding]:
        return ()

    def close(self) -> None:
        self.all_bounds.clear()
