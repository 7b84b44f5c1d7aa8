"""Inferring how many slots and entries the index files of a store have, from the files alone.

Owns the search; must not open the index. No file stores the numbers: a length fits many pairs, since
five slots take the space of one entry. The positions of the entries decide between the pairs.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

from storage.errors import IoFailure
from storage.files import File, FileSystem
from storage.rocketmq.format.index_file import (
    DEFAULT_ENTRIES,
    DEFAULT_SLOTS,
    ENTRY_SIZE,
    FIRST_ENTRY,
    HEADER_SIZE,
    SLOT_SIZE,
    IndexEntry,
    IndexHeader,
    decode_entry,
    decode_header,
    entry_position,
    file_size,
    slot_position,
)
from storage.rocketmq.format.names import parse_index_name

BLOCK_BYTES: Final = 1 << 20


class _Sample(NamedTuple):
    """One index file: its length and its header as stored."""

    path: Path
    size_bytes: int
    header: IndexHeader


def infer_sizes(fs: FileSystem, directory: Path) -> tuple[int, int] | None:
    """Return (slots, entries) of the index files in a folder; None if there are no entries to infer them
    from, or if the files do not agree on one pair.

    A file with a successor is full, so its count is the number of entries. Next, the default is tried, then
    the pair with which the last non-zero byte is in the last entry. A pair counts only if the first and last
    entry of every file are where it puts them. Reads few bytes, except for the last attempt, which searches
    for the end of the data. Raises IoFailure.
    """
    samples = _samples(fs, directory)
    lengths = {sample.size_bytes for sample in samples}
    written = [sample for sample in samples if sample.header.index_count > FIRST_ENTRY]
    if len(lengths) != 1 or not written:
        return None
    (length,) = lengths
    pairs = [_pair(length, sample.header.index_count) for sample in written[:-1]]
    if length == file_size(DEFAULT_SLOTS, DEFAULT_ENTRIES):
        pairs.append((DEFAULT_SLOTS, DEFAULT_ENTRIES))
    for pair in dict.fromkeys(pairs):
        if _all_fit(fs, written, pair):
            return pair
    with_end = _pair_by_end(fs, written[-1])
    return with_end if _all_fit(fs, written, with_end) else None


def _samples(fs: FileSystem, directory: Path) -> Sequence[_Sample]:
    """Return the index files, oldest first; files shorter than a header are skipped."""
    samples: list[_Sample] = []
    for name in fs.list_dir(directory) if fs.is_dir(directory) else ():
        if parse_index_name(name) is not None:
            with suppress(IoFailure):  # an unreadable file, or not a file
                samples += _sample(fs, directory / name)
    return samples


def _sample(fs: FileSystem, path: Path) -> Sequence[_Sample]:
    """Read a file that is long enough for a header; return no sample for a shorter file."""
    size_bytes = 0 if fs.is_dir(path) else fs.size(path)
    if size_bytes < HEADER_SIZE:
        return ()
    file = fs.open(path)
    try:
        return [_Sample(path, size_bytes, decode_header(file.pread(HEADER_SIZE, 0)))]
    finally:
        file.close()


def _pair(length: int, entries: int) -> tuple[int, int] | None:
    """Return the pair for a file of this length with this number of entries; None if there is none."""
    slots, odd = divmod(length - HEADER_SIZE - entries * ENTRY_SIZE, SLOT_SIZE)
    return (slots, entries) if slots > 0 and not odd else None


def _pair_by_end(fs: FileSystem, sample: _Sample) -> tuple[int, int] | None:
    """Return the pair with which the last non-zero byte is in the last entry.

    With n the number of entries, s of slots and p the position of the last entry (count - 1):
    length = 40 + 4 s + 20 n and p = 40 + 4 s + 20 (count - 1), so p and length agree modulo 20.
    """
    file = fs.open(sample.path)
    try:
        end = _content_end(file, sample.size_bytes)
    finally:
        file.close()
    position = end - 1 - (end - 1 - sample.size_bytes) % ENTRY_SIZE
    entries = (sample.size_bytes - position) // ENTRY_SIZE + sample.header.index_count - 1
    return _pair(sample.size_bytes, entries)


def _content_end(file: File, end: int) -> int:
    """Return the position after the last non-zero byte; 0 if there is none."""
    while end > 0:
        start = max(0, end - BLOCK_BYTES)
        content = file.pread(end - start, start).rstrip(b"\0")
        if content:
            return start + len(content)
        end = start
    return 0


def _all_fit(fs: FileSystem, samples: Sequence[_Sample], pair: tuple[int, int] | None) -> bool:
    return pair is not None and all(_fits(fs, sample, *pair) for sample in samples)


def _fits(fs: FileSystem, sample: _Sample, slots: int, entries: int) -> bool:
    """Return whether the first and last entry match the header, each in a chain of its slot, where the last
    entry is the newest.
    """
    header = sample.header
    last = header.index_count - 1
    if header.index_count > entries:
        return False
    file = fs.open(sample.path)
    try:
        oldest = _entry(file, slots, FIRST_ENTRY)
        newest = _entry(file, slots, last)
        return (
            oldest.physical_offset == header.begin_physical_offset
            and oldest.previous == 0
            and newest.physical_offset == header.end_physical_offset
            and newest.key_hash >= 0
            and 0 <= newest.previous < last
            and _newest_in(file, newest.key_hash % slots) == last
        )
    finally:
        file.close()


def _entry(file: File, slots: int, number: int) -> IndexEntry:
    return decode_entry(file.pread(ENTRY_SIZE, entry_position(slots, number)))


def _newest_in(file: File, slot: int) -> int:
    return int.from_bytes(file.pread(SLOT_SIZE, slot_position(slot)), "big", signed=True)
