"""A piece of a segment: the unit of a split of a Kafka store, and the positions where a segment is cut.

Owns the shape that the driver makes and a task reads, and finding positions by a segment's offset
index; must not know partitions, and must not read records. An index entry is trusted only if its batch begins at its
position.
"""

from __future__ import annotations

import sys
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from storage.errors import DataError
from storage.files import File, FileSystem
from storage.kafka.format.batch import HEADER_SIZE, decode_header
from storage.kafka.format.sparse_index import content_end, offset_index
from storage.kafka.log.reading import AbortedRanges
from storage.kafka.log.segment import Segment
from storage.model import TopicPartition

_FIELD: Final = "i"  # type of both fields of an entry: relative last offset, position
assert array(_FIELD).itemsize * 2 == offset_index.entry_size


class SegmentRange(NamedTuple):
    """Whole batches of one segment: bytes [position, end_position) of a file. Only offsets [start, end) are wanted.

    No batch begins below `next_offset` or reaches `limit_offset`. `aborted`: the batches to hide; None: hide nothing.
    `file_bytes`: the size of the whole file, if no more is appended to it. A file of another size is not the one that
    was planned for.
    """

    path: Path
    partition: TopicPartition
    position: int
    end_position: int
    next_offset: int
    limit_offset: int
    start: int
    end: int
    aborted: AbortedRanges | None = None
    file_bytes: int | None = None

    @property
    def size_bytes(self) -> int:
        """The size of the piece in the file."""
        return self.end_position - self.position


class IndexColumns(NamedTuple):
    """An offset index as two columns: the last offset of a batch, relative to the segment's base, and its position."""

    offsets: Sequence[int]
    positions: Sequence[int]


def read_entries(fs: FileSystem, path: Path) -> IndexColumns:
    """Return the entries of an `.index` file, unchecked. Takes 0.1 ms per megabyte."""
    data = fs.read_bytes(path)
    entry_size = offset_index.entry_size
    count = min(-(-content_end(data) // entry_size), len(data) // entry_size)
    fields = array(_FIELD, data[: count * entry_size])
    if sys.byteorder == "little":
        fields.byteswap()
    return IndexColumns(fields[0::2], fields[1::2])


class LogChanged(Exception):
    """Raised if a running server has replaced a log since the partition was looked at: refresh, and plan again."""


@contextmanager
def cutting(fs: FileSystem, segment: Segment, file_bytes: int | None) -> Iterator[Cutter]:
    """Yield a cutter of this segment, and close the segment's file afterwards. `file_bytes`: see SegmentRange. Raises
    IoFailure, LogChanged.
    """
    held = segment.offset_index.held
    entries = read_entries(fs, segment.offset_index.path) if held is None else IndexColumns(*held)
    file = fs.open(segment.path)  # after the index, which a cleaner replaces later than the log
    try:
        if file_bytes not in (None, file.size()):
            raise LogChanged(str(segment.path))
        yield Cutter(file, segment.base_offset, entries)
    finally:
        file.close()


class Cutter:
    """A cutter of one segment's pieces, at batches that its index names."""

    def __init__(self, file: File, base_offset: int, entries: IndexColumns) -> None:
        self._file = file
        self._base_offset = base_offset
        self._entries = entries

    def narrow(self, piece: SegmentRange) -> SegmentRange:
        """Return the piece without the batches that the index shows to be before `start`, or at or after `end`."""
        offsets, positions = self._entries
        first = bisect_right(offsets, piece.start - self._base_offset) - 1
        if first >= 0:
            found = self._base_offset_of(first)
            if found is not None and piece.position < positions[first] < piece.end_position:
                piece = piece._replace(position=positions[first], next_offset=found)
        # The first batch that reaches `end` may begin before it; the next batch does not.
        last = bisect_left(offsets, piece.end - self._base_offset) + 1
        if last < len(offsets):
            found = self._base_offset_of(last)
            if found is not None and found >= piece.end and positions[last] > piece.position:
                piece = piece._replace(end_position=min(piece.end_position, positions[last]))
        return piece

    def cut(self, piece: SegmentRange, places: Iterable[float]) -> Iterator[SegmentRange]:
        """Yield parts of the piece that begin near these ascending positions.

        If the index has no separate batch for a position, the next batch that it has is used. If it has no more
        batches, there are fewer parts.
        """
        positions = self._entries.positions
        following = bisect_right(positions, piece.position)  # the first entry to cut at
        for place in places:
            at = max(self._nearest(place), following)
            found = None
            while found is None and at < len(positions) and positions[at] < piece.end_position:
                found = self._base_offset_of(at)
                at += 1
            if found is None or found >= piece.end:
                break
            following, position = at, positions[at - 1]
            if position > piece.position and found > piece.start:
                yield piece._replace(end_position=position, end=found)
                piece = piece._replace(position=position, next_offset=found, start=found)
        yield piece

    def _nearest(self, place: float) -> int:
        """Return the index of the entry with the position nearest to `place`; 0 if there are no entries."""
        positions = self._entries.positions
        at = bisect_right(positions, place)
        if at == len(positions) or (at and place - positions[at - 1] <= positions[at] - place):
            at -= 1
        return max(at, 0)

    def _base_offset_of(self, index: int) -> int | None:
        """Return the base offset of the batch that an entry names; None if the batch does not begin there."""
        offset, position = self._entries.offsets[index], self._entries.positions[index]
        if position < 0:
            return None
        try:
            header = decode_header(self._file.pread(HEADER_SIZE, position), 0)
        except DataError:
            return None
        return header.base_offset if header.last_offset == self._base_offset + offset else None
