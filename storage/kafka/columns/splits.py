"""The splitter of a Kafka log directory.

Owns which partitions exist, when each partition is read (at its first use), and how pieces of segments are combined
into splits; must not write, and takes no lock. `storage.kafka.columns.split_plan` defines a piece and where a segment
is cut; `storage.kafka.columns.read` reads pieces.
"""

from __future__ import annotations

import errno
from collections.abc import Iterable, Iterator, Sequence
from math import ceil
from pathlib import Path
from typing import Final

from storage.columns import SPLIT_BYTES, OffsetRange, Split, check_plan
from storage.contract import Clock, StoreOptions
from storage.errors import IoFailure, OffsetOutOfRange
from storage.files import FileSystem, OverlayFileSystem, is_missing
from storage.kafka.columns.split_plan import LogChanged, SegmentRange, cutting
from storage.kafka.columns.tail import FollowedPartition, log_sizes
from storage.kafka.format import names
from storage.kafka.log.reading import AbortedRanges
from storage.kafka.log.segment import Segment
from storage.kafka.state import blocked_paths
from storage.kafka.state.log_dirs import log_directory, log_roots
from storage.kafka.state.root import BACKEND
from storage.kafka.state.settings import parse_store_settings
from storage.kafka.state.topics import interrupted_folders
from storage.kafka.tools.view import View
from storage.model import Finding, Isolation, OffsetBounds, TimedOffset, TopicPartition
from storage.shared.diagnostics import Notes

PIECE_COST_BYTES: Final = 64 << 10
"""The cost of opening one more file, so that no split consists of too many small segments."""

NEAR: Final = 16
"""A cut moves to a border of two pieces if the border is within 1/NEAR of a split's size."""

LOOKS: Final = 3
"""How often the splitter tries to open a partition while its files are being deleted."""


def _changed(path: str) -> IoFailure:
    """Return the error for a store whose files change faster than they can be planned."""
    return IoFailure(
        f"{path}: a running server replaces or removes files faster than they can be listed: run it again",
        path=path,
        operation="plan",
        errno=errno.ENOENT,
    )


def open_splitter(
    path: Path, options: StoreOptions, *, fs: FileSystem, clock: Clock
) -> KafkaSplitter:
    """Return the splitter of a log directory. Raises InvalidConfig, IoFailure."""
    return KafkaSplitter(path, options, fs=fs, clock=clock)


class KafkaSplitter:
    """The splitter of a log directory; see storage.contract.Splitter.

    A partition is shown as it was at its first use, or at the last refresh after it.
    """

    backend = BACKEND

    def __init__(self, root: Path, options: StoreOptions, *, fs: FileSystem, clock: Clock) -> None:
        self._root = root
        self._options = options
        self._clock = clock
        settings = parse_store_settings(options.settings)
        roots = log_roots(fs, root, settings.log_dirs)
        if blocked_paths.findings(log_directory(fs, roots)):
            fs = OverlayFileSystem(fs, clock=clock)
            blocked_paths.take_out(log_directory(fs, roots))
        self._fs = fs
        self._directory = log_directory(fs, roots)
        self._folders = self._found_folders()
        self._followed: dict[TopicPartition, FollowedPartition] = {}
        self._notes = Notes()
        self._view: View | None = None  # for partitions that are not yet opened

    def _found_folders(self) -> dict[TopicPartition, Path]:
        """Return the partitions of the directory and their folders, with folders that the next start renames back."""
        found = dict(self._directory.partition_dirs())
        return dict(sorted({**found, **interrupted_folders(self._directory)}.items()))

    def partitions(self) -> Sequence[TopicPartition]:
        return list(self._folders)

    def is_internal(self, topic: str) -> bool:
        return names.is_internal_topic(topic)

    def bounds(self, partition: TopicPartition) -> OffsetBounds:
        return self._partition(partition).bounds()

    def offset_for_time(self, partition: TopicPartition, timestamp_ms: int) -> TimedOffset | None:
        return self._partition(partition).offset_for_time(timestamp_ms)

    def offset_before_time(self, partition: TopicPartition, timestamp_ms: int) -> int:
        return self._partition(partition).offset_before_time(timestamp_ms)

    def plan(
        self,
        ranges: Sequence[OffsetRange],
        *,
        split_bytes: int = SPLIT_BYTES,
        min_splits: int = 1,
        isolation: Isolation = Isolation.READ_UNCOMMITTED,
    ) -> Sequence[Split]:
        check_plan(split_bytes=split_bytes, min_splits=min_splits)
        committed = isolation is Isolation.READ_COMMITTED
        looks_left = LOOKS
        while True:
            looks_left -= 1
            try:
                return self._planned(ranges, split_bytes, min_splits, committed=committed)
            except (IoFailure, LogChanged) as error:
                if not isinstance(error, LogChanged) and not is_missing(error):
                    raise
                if not looks_left:
                    raise _changed(str(self._root)) from error
            self.refresh()  # a running server replaced or removed files meanwhile

    def _planned(
        self, ranges: Sequence[OffsetRange], split_bytes: int, min_splits: int, *, committed: bool
    ) -> Sequence[Split]:
        whole = [found for wanted in ranges for found in self._pieces(wanted, committed=committed)]
        total_bytes = sum(piece.size_bytes + PIECE_COST_BYTES for _, piece in whole)
        count = max(-(-total_bytes // split_bytes), min_splits)
        while True:
            splits = self._shared_out(whole, total_bytes, count)
            if len(splits) >= min_splits or count >= total_bytes:
                return splits
            count *= 2  # in some ranges the index has too few batches

    def refresh(self) -> None:
        self._close_view()
        self._folders = self._found_folders()
        starts = self._directory.offsets(names.LOG_STARTS)
        for partition, followed in list(self._followed.items()):
            folder = self._folders.get(partition)
            try:
                is_known = folder is not None and followed.refresh(starts.get(partition, 0))
            except IoFailure as error:
                if not is_missing(error):
                    raise
                is_known = False  # files were deleted during the refresh
                if folder is not None and not self._fs.exists(folder):
                    del self._folders[partition]
            if not is_known:
                followed.close()
                del self._followed[partition]

    def missing(self) -> Sequence[Finding]:
        ends = [found for followed in self._followed.values() for found in followed.lost_ends]
        return [*self._opened_view().missing(None, None), *ends]

    def findings(self) -> Sequence[Finding]:
        if self._view is not None:
            self._notes.add(*self._view.findings())
        return self._notes.all()

    def close(self) -> None:
        self._close_view()
        for partition in self._followed.values():
            partition.close()
        self._followed.clear()

    def _close_view(self) -> None:
        self._notes.add(*self.findings())
        if self._view is not None:
            self._view.close()
            self._view = None

    def _partition(self, partition: TopicPartition) -> FollowedPartition:
        """Return the partition. At its first use it is recovered in memory.

        Raises UnknownTopic, UnknownPartition, IoFailure.
        """
        looks_left = LOOKS
        while partition not in self._followed:
            looks_left -= 1
            try:
                self._followed[partition] = self._opened(partition)
            except IoFailure as error:
                if not is_missing(error) or not looks_left:
                    raise
            except LogChanged as error:
                if not looks_left:
                    raise _changed(str(self._root)) from error
            if partition not in self._followed:
                self._close_view()  # a server replaced or deleted files meanwhile: try again
        return self._followed[partition]

    def _opened(self, partition: TopicPartition) -> FollowedPartition:
        view = self._opened_view()
        view.select(*partition)
        sizes = log_sizes(self._fs, view.folders[partition])
        plan = view.plan(partition)
        if view.is_changed(partition):
            raise LogChanged(str(plan.directory))
        return FollowedPartition(self._fs, plan, sizes, origin=view.fs.base_path)

    def _opened_view(self) -> View:
        if self._view is None:
            self._view = View(self._root, self._options, fs=self._fs, clock=self._clock)
        return self._view

    # ---- pieces --------------------------------------------------------------------------------

    def _pieces(
        self, wanted: OffsetRange, *, committed: bool
    ) -> Iterator[tuple[Segment, SegmentRange]]:
        """Yield each segment that holds a part of the range, with its piece. Raises OffsetOutOfRange."""
        partition = self._partition(wanted.partition)
        bounds = partition.bounds()
        for offset in wanted.start, wanted.end:
            if not bounds.start <= offset <= bounds.end:
                raise OffsetOutOfRange(
                    *wanted.partition, offset=offset, earliest=bounds.start, latest=bounds.end
                )
        end = min(wanted.end, bounds.stable) if committed else wanted.end
        for segment in partition.segments:
            first, last = max(wanted.start, segment.base_offset), min(end, segment.limit_offset)
            if first >= last or not segment.size_bytes:
                continue
            piece = SegmentRange(
                path=segment.path,
                partition=wanted.partition,
                position=0,
                end_position=segment.size_bytes,
                next_offset=segment.base_offset,
                limit_offset=min(segment.limit_offset, bounds.end),
                start=first,
                end=last,
                aborted=AbortedRanges(partition.segments.at, first, last) if committed else None,
                file_bytes=partition.file_bytes(segment),
            )
            if first > segment.base_offset or last < min(segment.limit_offset, bounds.end):
                with cutting(self._fs, segment, piece.file_bytes) as cutter:
                    piece = cutter.narrow(piece)
            yield segment, piece
        # Last: the indexes of aborted transactions that were read above belong to these logs.
        for segment in partition.segments:
            if partition.file_bytes(segment) not in (None, self._fs.size(segment.path)):
                raise LogChanged(str(segment.path))

    def _shared_out(
        self, whole: Sequence[tuple[Segment, SegmentRange]], total_bytes: int, count: int
    ) -> Sequence[Split]:
        """Return `count` splits, or fewer if the index has too few batches to cut at.

        The pieces are laid end to end. They are cut at multiples of an equal share, or at a border of two pieces if
        it is near.

            pieces   | first piece       | second        | third              |
            shares   |           |           |           |           |        |
            splits   |           |       |           |           |            |
        """
        share_bytes = total_bytes / count
        slack_bytes = share_bytes / NEAR
        chosen: list[list[SegmentRange]] = []
        at_bytes, share = 0, 0  # start of the next piece; number of the next share
        for segment, piece in whole:
            cost_bytes = piece.size_bytes + PIECE_COST_BYTES
            end_bytes, part = at_bytes + cost_bytes, piece.size_bytes / cost_bytes
            if share < count and share * share_bytes <= at_bytes + slack_bytes:
                chosen.append([])
                share += 1
            stop = min(max(share, ceil((end_bytes - slack_bytes) / share_bytes)), count)
            places = (
                piece.position + (number * share_bytes - at_bytes) * part
                for number in range(share, stop)
            )
            first, *others = self._cut(segment, piece, places) if share < stop else [piece]
            chosen[-1].append(first)
            chosen += [[other] for other in others]
            missed = len(others) < stop - share  # a missed share begins with the next piece
            at_bytes, share = end_bytes, stop - missed
        return [
            Split(backend=BACKEND, size_bytes=sum(p.size_bytes for p in pieces), plan=tuple(pieces))
            for pieces in chosen
        ]

    def _cut(
        self, segment: Segment, piece: SegmentRange, places: Iterable[float]
    ) -> Sequence[SegmentRange]:
        """Cut a piece near these positions and return its parts."""
        with cutting(self._fs, segment, piece.file_bytes) as cutter:
            return list(cutter.cut(piece, places))
