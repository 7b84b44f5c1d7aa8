"""The decisions about one partition at a start: values that recovery fills in and repair carries out.

Owns the data shapes only; must not read or write a file.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from storage.kafka.format.txn_index import AbortedTransaction
from storage.kafka.index.indexes import RebuiltIndexes
from storage.kafka.log.log_file import INT64_MAX
from storage.kafka.log.overflow import SegmentSplit
from storage.kafka.state.epochs import LeaderEpochs
from storage.kafka.state.producers import ProducerStates
from storage.kafka.state.settings import TopicSettings
from storage.model import Finding, Loss, TopicPartition


class Rename(NamedTuple):
    """A renaming: a file of a segment, and the path that it should have."""

    source: Path
    target: Path


@dataclass(slots=True, kw_only=True)
class SegmentPlan:
    """The plan of one segment: its size after the cut, and the indexes and aborted transactions that a scan rebuilt.

    None: the files stay as they are.
    """

    base_offset: int
    path: Path
    size_bytes: int
    file_bytes: int
    suffixes: set[str]
    indexes: RebuiltIndexes | None = None
    aborted: Sequence[AbortedTransaction] | None = None
    limit_offset: int = INT64_MAX


@dataclass(slots=True, kw_only=True)
class PartitionPlan:
    """All facts and decisions about one partition.

    - `refusal`: refuses every writable start.
    - `refused`: a writable start does not serve this partition, because its log would assign used offsets again.
    - `continues_at`: the log continues with an empty segment at this offset, above its end.
    - `next_offset`: the offset of the next record.
    - `batches_end`: the offset after the last batch, by its header.
    - `segments`: the segments after the `splits`.
    """

    partition: TopicPartition
    directory: Path
    settings: TopicSettings
    segments: list[SegmentPlan] = field(default_factory=list)
    start_offset: int = 0
    next_offset: int = 0
    batches_end: int = 0
    producers: ProducerStates = field(default_factory=ProducerStates)
    epochs: LeaderEpochs = field(default_factory=LeaderEpochs)
    stored_epochs: Sequence[tuple[int, int]] | None = None
    snapshots: dict[int, bytes] = field(default_factory=dict)
    snapshot_offsets: set[int] = field(default_factory=set)
    splits: list[SegmentSplit] = field(default_factory=list)
    renames: list[Rename] = field(
        default_factory=list
    )  # already done on the overlay of the examination
    removed: list[Path] = field(default_factory=list)
    set_aside: list[Path] = field(default_factory=list)  # damaged files, kept under another name
    removed_segments: list[SegmentPlan] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    losses: list[Loss] = field(default_factory=list)
    refusal: Finding | None = None
    refused: Finding | None = None
    continues_at: int | None = None
    segments_scanned: int = 0
    bytes_scanned: int = 0

    @property
    def changes_names(self) -> bool:
        """Whether the plan creates or removes files that matter after a crash."""
        return bool(
            not self.segments
            or self.continues_at is not None
            or self.removed
            or self.set_aside
            or self.removed_segments
            or self.snapshots
            or any(segment.indexes is not None for segment in self.segments)
        )
