"""Check the indexes of the active segment after a clean stop.

Owns that check, and the position from which the end of the log is scanned; must not write, and must not judge a log
(storage.kafka.log.log_file does). The real broker checks only the sizes of index files (AbstractIndex.sanityCheck).
A wrong entry leads it to the wrong batch, or hides the batches that are appended after the entry.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from storage.errors import DataError
from storage.files import File
from storage.kafka.format import names
from storage.kafka.format.batch import HEADER_SIZE, decode_header
from storage.kafka.format.sparse_index import offset_index, time_index
from storage.kafka.index.indexes import ReadsFiles
from storage.kafka.log.log_file import StoredBatch, walk
from storage.kafka.log.partition_plan import SegmentPlan

_CHUNK_BYTES: Final = 1 << 16


class WrongIndex(NamedTuple):
    """The fields of a finding about a wrong index file; `suffix` names the file."""

    suffix: str
    code: str
    message: str
    position: int | None = None
    expected: str | None = None
    found: str | None = None


def last_indexed(indexes: ReadsFiles, file: File, segment: SegmentPlan) -> int:
    """Return the position of the last offset index entry that points to a good batch ending at its offset, else 0."""
    if names.INDEX not in segment.suffixes:
        return 0
    data = indexes.read_bytes(segment.path.with_suffix(names.INDEX))
    for relative_offset, position in reversed(offset_index.leading_entries(data)):
        first = _batch_at(file, segment, position)
        if first is not None and first.header.last_offset == segment.base_offset + relative_offset:
            return position
    return 0


def wrong_index(indexes: ReadsFiles, file: File, segment: SegmentPlan) -> WrongIndex | None:
    """Return the first error in the indexes of a segment with a good log; None if there is no error.

    The check covers, in this order for the offset index and then the time index:
    - The entries of the file ascend.
    - The last entry is right, because a lookup of a batch that is appended later starts from it. In the offset index
      it names the last offset of a batch, in the time index the largest timestamp of the batch with its offset.

    Checking the batch of every entry would read most pages of the log.
    """
    data = indexes.read_bytes(segment.path.with_suffix(names.INDEX))
    try:
        offsets = offset_index.decode_entries(data)
    except DataError as error:
        return _unreadable(names.INDEX, error)
    if offsets:
        relative_offset, position = offsets[-1]
        if _last_offset_at(file, segment, position) != segment.base_offset + relative_offset:
            found = f"offset {segment.base_offset + relative_offset} at {position}"
            place = (len(offsets) - 1) * offset_index.entry_size
            return _wrong(names.INDEX, place, "a batch that ends with its offset", found)
    data = indexes.read_bytes(segment.path.with_suffix(names.TIME_INDEX))
    try:
        times = time_index.decode_entries(data)
    except DataError as error:
        return _unreadable(names.TIME_INDEX, error)
    if times and not _tells_time(file, segment, offsets, times[-1]):
        time_ms, relative_offset = times[-1]
        place = (len(times) - 1) * time_index.entry_size
        found = f"time {time_ms} at offset {segment.base_offset + relative_offset}"
        return _wrong(names.TIME_INDEX, place, "the time of the batch with its offset", found)
    return None


def _unreadable(suffix: str, error: DataError) -> WrongIndex:
    message = f"{error.message}: the indexes of this segment are rebuilt"
    return WrongIndex(suffix, "bad-index", message)


def _wrong(suffix: str, position: int, expected: str, found: str) -> WrongIndex:
    message = "an entry is wrong: the indexes of this segment are rebuilt"
    return WrongIndex(suffix, "wrong-index-entry", message, position, expected, found)


def _batch_at(file: File, segment: SegmentPlan, position: int) -> StoredBatch | None:
    first = next(
        walk(
            file,
            position=position,
            end=segment.size_bytes,
            next_offset=segment.base_offset,
            chunk_bytes=_CHUNK_BYTES,
        ),
        None,
    )
    return first if isinstance(first, StoredBatch) else None


def _last_offset_at(file: File, segment: SegmentPlan, position: int) -> int | None:
    """Return the last offset of the batch at `position`, by its header alone; None without a whole batch there."""
    try:
        header = decode_header(file.pread(HEADER_SIZE, position))
    except DataError:
        return None
    return header.last_offset if position + header.size_bytes <= segment.size_bytes else None


def _tells_time(
    file: File, segment: SegmentPlan, offsets: Sequence[tuple[int, int]], entry: tuple[int, int]
) -> bool:
    """Return whether the batch with the offset of a time index entry has the entry's time as its largest timestamp."""
    time_ms, relative_offset = entry
    below = [position for offset, position in offsets if offset <= relative_offset]
    position = below[-1] if below else 0
    while (batch := _batch_at(file, segment, position)) is not None:
        if batch.header.last_offset >= segment.base_offset + relative_offset:
            return batch.header.max_timestamp == time_ms
        position += batch.header.size_bytes
    return False
