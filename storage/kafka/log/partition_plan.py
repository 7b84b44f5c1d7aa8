"""The decisions about one partition at a start: values that recovery fills in and repair carries out.

Owns the data shapes, and the walk over the log of a planned segment; must not write a file.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, Unpack

from storage.coding.varint import INT64_MAX
from storage.files import File, HandleCache
from storage.findings import PartitionFacts, finding
from storage.kafka.format.txn_index import AbortedTransaction
from storage.kafka.index.indexes import RebuiltIndexes
from storage.kafka.log.log_file import Gap, StoredBatch, good_batches, walk
from storage.kafka.log.offset_overflow import SegmentSplit
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

    None: the files stay as they are. `listed_bytes`: the size of the log when it was found. `file_bytes` is less if the
    log ends with batches that the next segment repeats.
    """

    base_offset: int
    path: Path
    size_bytes: int
    file_bytes: int
    suffixes: set[str]
    indexes: RebuiltIndexes | None = None
    aborted: Sequence[AbortedTransaction] | None = None
    limit_offset: int = INT64_MAX
    listed_bytes: int = field(init=False)

    def __post_init__(self) -> None:
        self.listed_bytes = self.file_bytes

    def walk(self, file: File, position: int = 0) -> Iterator[StoredBatch | Gap]:
        """Yield the batches and gaps of the segment's open log from a position on."""
        return walk(
            file,
            position=position,
            end=self.file_bytes,
            next_offset=self.base_offset,
            limit_offset=self.limit_offset,
        )

    def items(self, files: HandleCache, position: int = 0) -> Iterator[StoredBatch | Gap]:
        """Yield the batches and gaps of the segment's log from a position on."""
        with files.borrow(self.path) as file:
            yield from self.walk(file, position)

    def items_from(
        self, files: HandleCache, low: int, position: int = 0
    ) -> Iterator[StoredBatch | Gap]:
        """Yield batches and gaps as `items` does; a batch may begin at `low`, and reach beyond the segment's limit."""
        with files.borrow(self.path) as file:
            yield from walk(file, position=position, end=self.file_bytes, next_offset=low)

    def batches(self, files: HandleCache, position: int = 0) -> Iterator[StoredBatch]:
        """Yield the good batches of `items`."""
        return good_batches(self.items(files, position))


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
    # already done on the overlay of the examination
    renames: list[Rename] = field(default_factory=list)
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

    def finding(
        self, code: str, path: Path | str | None = None, **facts: Unpack[PartitionFacts]
    ) -> Finding:
        """Return a finding of this partition; without a path it names the folder."""
        topic, partition = self.partition
        path = self.directory if path is None else path
        return finding(code, path, topic=topic, partition=partition, **facts)

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
