"""Segments with offsets too far from their base for an index entry: the parts that they are split into.

Owns the rule and the split itself; must not judge batches. Compaction of old brokers merged segments beyond 2^31
offsets. The real broker splits such a segment when it recovers it (UnifiedLog.splitOverflowedSegment). Every part
begins with a batch, is named by that batch's base offset, and takes all batches with a last offset that an entry can
hold. Read-only views leave the segment whole and read it in full.

    source   | 0-1 | 2147483647 | 2147483653-54 | 4294967303 |
    parts    | 0.log            | 2147483653.log| 4294967303.log
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from storage.files import HandleCache, copy_range
from storage.findings import finding
from storage.kafka.format import names
from storage.kafka.format.batch import BatchHeader
from storage.kafka.format.names import segment_name
from storage.kafka.index.indexes import MAX_RELATIVE_OFFSET
from storage.model import Finding

OFFSET_OVERFLOW = "offset-overflow"
Placed = tuple[int, BatchHeader]


class SplitPart(NamedTuple):
    """The bytes [start, end) of a segment's log that become the segment with this base offset, and their batches."""

    base_offset: int
    start: int
    end: int
    batches: Sequence[Placed]


class SegmentSplit(NamedTuple):
    """A log that is replaced by its parts. `suffixes`: the files of its segment; all but a snapshot are removed."""

    path: Path
    suffixes: frozenset[str]
    parts: Sequence[SplitPart]


def split_parts(batches: Sequence[Placed], *, base_offset: int, end: int) -> Sequence[SplitPart]:
    """Return the parts of a log of `end` bytes with these (position, header) pairs; empty if it needs no split.

    As in LogSegment.appendFromFile, a part takes batches as long as their last offset is in reach of the part's base.
    """
    if all(h.last_offset - base_offset <= MAX_RELATIVE_OFFSET for _, h in batches):
        return ()
    firsts = [0]
    base = batches[0][1].base_offset
    for index, (_, header) in enumerate(batches):
        if header.last_offset - base > MAX_RELATIVE_OFFSET:
            firsts.append(index)
            base = header.base_offset
    parts = []
    for first, after in zip(firsts, [*firsts[1:], len(batches)], strict=True):
        position, header = batches[first]
        stop = batches[after][0] if after < len(batches) else end
        start = position if first else 0
        parts.append(SplitPart(header.base_offset, start, stop, batches[first:after]))
    return parts


def overflow_finding(
    path: Path, address: tuple[str | None, int | None], position: int, header: BatchHeader
) -> Finding:
    """Return the finding for the first batch that no index entry can name."""
    topic, partition = address
    return finding(
        OFFSET_OVERFLOW,
        path,
        topic=topic,
        partition=partition,
        position=position,
        offset=header.base_offset,
        expected=f"offsets up to the segment's base + {MAX_RELATIVE_OFFSET}",
        found=f"offset {header.last_offset}",
    )


def first_overflow(batches: Sequence[Placed], base_offset: int) -> Placed | None:
    """Return the first batch that no index entry can name; None if every batch is in reach."""
    far = (b for b in batches if b[1].last_offset - base_offset > MAX_RELATIVE_OFFSET)
    return next(far, None)


def carry_out(files: HandleCache, split: SegmentSplit) -> None:
    """Replace the segment by its parts, durably.

    As UnifiedLog.replaceSegments: parts are written as `.cleaned`, become `.swap` from the last to the first, and get
    their names after the segment is removed. A crash at any moment leaves the whole segment or all of its parts, for
    the real broker's start and for `storage.kafka.recovery.repair.clear_leftovers`.
    """
    fs, folder = files.fs, split.path.parent
    paths = [folder / segment_name(part.base_offset) for part in split.parts]
    for part, path in zip(split.parts, paths, strict=True):
        target = path.with_name(path.name + names.CLEANED)
        copy_range(fs, split.path, target, start=part.start, end=part.end)
    fs.sync_dir(folder)
    for path in reversed(paths):
        fs.rename(path.with_name(path.name + names.CLEANED), path.with_name(path.name + names.SWAP))
    fs.sync_dir(folder)
    for suffix in sorted(split.suffixes - {names.SNAPSHOT}):
        path = split.path.with_suffix(suffix)
        fs.remove(path)
        files.forget(path, sync=False)
    fs.sync_dir(folder)
    for path in paths:
        fs.rename(path.with_name(path.name + names.SWAP), path)
    fs.sync_dir(folder)
