"""Repairing the newest files of the key index after a crash, from their own entries.

Owns the check of such a file and its repair; must not index records. RocketMQ removes such a file and
indexes only the part of the log that recovery walks, which loses the entries before that part. Entries are
written in order, and each contains the former value of its slot, so the slots follow from the entries:

    every entry is led to once, by its slot or by a later entry, so
    sum of the slots + sum of the entries' `previous` = 1 + 2 + ... + number of entries
"""

from __future__ import annotations

from array import array
from collections.abc import Collection, Iterator
from typing import Final, NamedTuple

from storage.files import HandleCache
from storage.rocketmq.format.index_file import (
    ENTRY,
    ENTRY_SIZE,
    FIRST_ENTRY,
    HEADER_SIZE,
    SLOT_SIZE,
    IndexHeader,
    encode_header,
    entry_position,
    file_size,
)
from storage.rocketmq.index.key_index import KeyIndex
from storage.rocketmq.index.key_index_file import KeyIndexFile, TimeOf, is_proved
from storage.rocketmq.index.key_index_table import file_order, summed

ENTRIES_AT_ONCE: Final = 50_000


class _Replayed(NamedTuple):
    """The consistent entries of a file: their number, their slots, the first and last physical offset."""

    entries: int
    slots: array[int]
    first: int
    last: int


def mend(
    files: HandleCache,
    index: KeyIndex,
    doubtful: Collection[str],
    *,
    log_end: int,
    time_of: TimeOf,
) -> int | None:
    """Repair the doubtful files, without entries at or after `log_end`; files after the first file that is not
    full are removed. Return the physical offset of the last record that is then indexed, None without one.
    Synced on return.
    """
    mended = False
    for number, file in enumerate(index.index_files):
        if file.path.name not in doubtful:
            continue
        if file.header.end_physical_offset < log_end and _is_whole(files, file, time_of):
            with files.borrow(file.path, write=True) as opened:
                opened.datasync()  # the process that wrote it may have been killed before its sync
            continue
        mended = True
        replayed = _replay(files, file, log_end)
        begin_ms, end_ms = _begin_ms(file, replayed, time_of), time_of(replayed.last)
        is_full = replayed.entries + FIRST_ENTRY == file.entries and begin_ms and end_ms
        if not is_full:
            index.remove_named([later.path.name for later in index.index_files[number + 1 :]])
        if begin_ms and end_ms:
            _write(files, file, replayed, begin_ms=begin_ms, end_ms=end_ms)
        else:
            index.remove_named([file.path.name])
        if not is_full:
            break
    if mended:
        index.load()
    ends = [file.header.end_physical_offset for file in index.index_files if file.has_entries]
    return max(ends, default=None)


def _is_whole(files: HandleCache, file: KeyIndexFile, time_of: TimeOf) -> bool:
    if file.is_blank or not is_proved(file, time_of):
        return False
    count = file.header.index_count - FIRST_ENTRY
    with files.borrow(file.path) as opened:
        slots = opened.pread(file.slots * SLOT_SIZE, HEADER_SIZE)
        entries = opened.pread(count * ENTRY_SIZE, entry_position(file.slots, FIRST_ENTRY))
    if len(entries) != count * ENTRY_SIZE:
        return False
    in_slots, highest, _ = summed(slots, 0, SLOT_SIZE)
    _, _, lowest = summed(entries, 0, ENTRY_SIZE)
    previous, _, _ = summed(entries, ENTRY_SIZE - SLOT_SIZE, ENTRY_SIZE)
    return highest <= count and in_slots + previous == count * (count + 1) // 2 and lowest > 0


def _replay(files: HandleCache, file: KeyIndexFile, log_end: int) -> _Replayed:
    """Put the entries into empty slots again, up to the first entry that does not contain the former value
    of its slot, or does not point into the log in ascending order.
    """
    slots = array("i", bytes(file.slots * SLOT_SIZE))
    number, first, last = 0, 0, 0
    for hashed, physical, time_diff_s, previous in _entries(files, file):
        slot = hashed % file.slots
        nothing = hashed == physical == time_diff_s == previous == 0
        in_order = last <= physical < log_end
        if nothing or hashed < 0 or not in_order or slots[slot] != previous:
            break
        number += 1
        slots[slot] = number
        first, last = first if number > 1 else physical, physical
    return _Replayed(number, slots, first, last)


def _entries(files: HandleCache, file: KeyIndexFile) -> Iterator[tuple[int, int, int, int]]:
    """Yield the fields of all entries that the file has room for, read in pieces."""
    for first in range(FIRST_ENTRY, file.entries, ENTRIES_AT_ONCE):
        count = min(ENTRIES_AT_ONCE, file.entries - first)
        with files.borrow(file.path) as opened:
            data = opened.pread(count * ENTRY_SIZE, entry_position(file.slots, first))
        yield from ENTRY.iter_unpack(data[: len(data) - len(data) % ENTRY_SIZE])


def _begin_ms(file: KeyIndexFile, replayed: _Replayed, time_of: TimeOf) -> int:
    """Return the store time to which the entries' seconds are relative; 0 if it is unknown: the first
    record may be deleted with the head of the log, and the header may be lost.
    """
    begin_ms = time_of(replayed.first) if replayed.entries else 0
    header = file.header
    if not begin_ms and file.has_entries and header.begin_physical_offset == replayed.first:
        return header.begin_timestamp_ms
    return begin_ms


def _write(
    files: HandleCache, file: KeyIndexFile, replayed: _Replayed, *, begin_ms: int, end_ms: int
) -> None:
    header = IndexHeader(
        begin_ms,
        end_ms,
        replayed.first,
        replayed.last,
        len(replayed.slots) - replayed.slots.count(0),
        replayed.entries + FIRST_ENTRY,
    )
    with files.borrow(file.path, write=True) as opened:
        if header.index_count < file.entries and not file.is_unused(header.index_count):
            # Old data after the last entry would look like entries that the header does not count.
            opened.truncate(entry_position(file.slots, header.index_count))
            opened.truncate(file_size(file.slots, file.entries))
        opened.pwrite(file_order(replayed.slots).tobytes(), HEADER_SIZE)
        opened.pwrite(encode_header(header), 0)
    files.datasync(file.path)
