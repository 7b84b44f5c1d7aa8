"""The part of an index file that is in memory while it takes entries: slots, unwritten entries, header.

Owns how a string gets into the table (IndexFile.putKey of RocketMQ); must not do IO: key_index_file.py reads and
writes. Compiled if a compiler is available: then an entry is made without any Python object.

One writer at a time. Readers at any time: an entry is in `tail` before its number is in a slot. A reader
must read the slot first and `tail` after it. It then finds the entry in `tail` or, if the writer has
written the tail meanwhile, in the file.
"""

from __future__ import annotations

import sys
from array import array
from typing import Final

from storage.coding.native import (
    BytesWriter,
    i32,
    i64,
    is_native,
    plain_row,
    read_i32_be,
    read_i64_be,
    vec,
    write_i32_be,
    write_i64_be,
)
from storage.rocketmq.format.index_file import (
    ENTRY,
    ENTRY_SIZE,
    FIRST_ENTRY,
    SLOT_SIZE,
    IndexHeader,
    time_diff_s,
)
from storage.rocketmq.index.record_pass import STRING, STRING_SIZE

PAGE_SHIFT: Final = 10
PAGE_SLOTS: Final = 1 << PAGE_SHIFT  # slots that are written together, 4 KiB
pack_entry: Final = ENTRY.pack
unpack_string: Final = STRING.unpack_from
_OFFSET_POSITION: Final = 4
_TIME_POSITION: Final = 12


class KeyIndexTable:
    """The table of one index file that takes entries. The public fields are read by any thread, and written
    by `put_strings` and by the file's owner.
    """

    def __init__(self, header: IndexHeader, stored: bytes, slots: int, *, entries: int) -> None:
        """Create the table of a file with this many slots. `stored`: the slots as they are in the file, empty for a
        new file; the entries before `header.index_count` are in the file.
        """
        self.slots: vec[i32] = _slots(stored, slots)
        self.entries = entries
        self.dirty_pages = BytesWriter()
        self.clean_slots()
        # Number of the first entry that is not in the file, and the entries from it on. Replaced as
        # one tuple, so that a reader's pair is consistent.
        self.tail: tuple[int, BytesWriter] = (max(header.index_count, FIRST_ENTRY), BytesWriter())
        self.begin_timestamp_ms = header.begin_timestamp_ms
        self.end_timestamp_ms = header.end_timestamp_ms
        self.begin_physical_offset = header.begin_physical_offset
        self.end_physical_offset = header.end_physical_offset
        self.hash_slot_count = header.hash_slot_count

    @property
    def index_count(self) -> int:
        """The number of the next entry."""
        first, tail = self.tail
        return first + len(tail) // ENTRY_SIZE

    @property
    def is_full(self) -> bool:
        """Whether the next entry must go to another file."""
        return self.index_count >= self.entries

    @property
    def header(self) -> IndexHeader:
        """The header as it would be written now."""
        return IndexHeader(
            self.begin_timestamp_ms,
            self.end_timestamp_ms,
            self.begin_physical_offset,
            self.end_physical_offset,
            self.hash_slot_count,
            self.index_count,
        )

    def put_strings(self, strings: bytes, position: i64) -> i64:
        """Put strings, as record_pass.py draws them, from `position` on, until the file is full. Return the position
        of the first that was not put.

        A string of a record before the last record that was put is skipped: it is in the index already.
        """
        first, tail = self.tail
        number: i64 = first + len(tail) // ENTRY_SIZE
        room: i64 = self.entries
        stop: i64 = len(strings)
        begin_ms: i64 = self.begin_timestamp_ms
        last_offset: i64 = self.end_physical_offset
        last_ms: i64 = begin_ms
        seconds: i64 = 0  # for `last_ms`, kept: many records have the same store time
        hashed: i64
        offset: i64
        time_ms: i64
        while position < stop and number < room:
            if _NATIVE:
                hashed = i64(read_i32_be(strings, position))
                offset = read_i64_be(strings, position + _OFFSET_POSITION)
                time_ms = read_i64_be(strings, position + _TIME_POSITION)
            else:
                hashed, offset, time_ms = unpack_string(strings, position)
            position += STRING_SIZE
            if hashed < 0 or offset < last_offset:
                continue
            if time_ms != last_ms:
                last_ms, seconds = time_ms, time_diff_s(time_ms, begin_ms)
            self._put(tail, number, hashed, offset, seconds)
            if number == FIRST_ENTRY:  # only this string's time is relative to an inherited begin
                begin_ms, seconds = time_ms, 0
                self.begin_timestamp_ms, self.begin_physical_offset = time_ms, offset
            number += 1
            last_offset = offset
            self.end_timestamp_ms, self.end_physical_offset = time_ms, offset
        return position

    def _put(self, tail: BytesWriter, number: i64, hashed: i64, offset: i64, seconds: i64) -> None:
        """Put one entry: a reader finds it in `tail` before its number is in the slot."""
        slots = self.slots
        slot: i64 = hashed % i64(len(slots))
        previous: i64 = i64(slots[slot])
        if not 0 < previous <= number:
            previous = 0
            self.hash_slot_count += 1
        if _NATIVE:
            write_i32_be(tail, i32(hashed))
            write_i64_be(tail, offset)
            write_i32_be(tail, i32(seconds))
            write_i32_be(tail, i32(previous))
        else:
            tail.write(pack_entry(hashed, offset, seconds, previous))
        slots[slot] = i32(number)
        self.dirty_pages[slot >> PAGE_SHIFT] = 1

    def drop_tail(self) -> None:
        """Begin an empty tail, after the entries in it were written to the file."""
        self.tail = (self.index_count, BytesWriter())

    def dirty_slots(self) -> list[tuple[int, bytes]]:
        """Return (number of the first slot, bytes for the file) of every run of changed pages. The pages
        stay marked until `clean_slots`.
        """
        runs = []
        dirty = self.dirty_pages.getvalue()
        slots = memoryview(self.slots)
        start = dirty.find(1)
        while start >= 0:
            end = dirty.find(0, start)
            end = len(dirty) if end < 0 else end
            changed = array("i", slots[start * PAGE_SLOTS : end * PAGE_SLOTS].tobytes())
            runs.append((start * PAGE_SLOTS, file_order(changed).tobytes()))
            start = dirty.find(1, end)
        return runs

    def clean_slots(self) -> None:
        """Unmark all pages, after the result of `dirty_slots` was written."""
        self.dirty_pages = BytesWriter()
        self.dirty_pages.write(bytes(-(-len(self.slots) // PAGE_SLOTS)))


def _slots(stored: bytes, count: i64) -> vec[i32]:
    """Return the slots of a table, from their bytes in a file, if any."""
    if not _NATIVE:  # without `stored`, memory is used only for pages that are written
        empty = memoryview(bytearray(0 if stored else count * SLOT_SIZE)).cast("i")
        return plain_row(slots_of(stored) if stored else empty)
    slots: vec[i32] = vec[i32]([0] * count)
    slot: i64 = 0
    while stored and slot < count:
        slots[slot] = read_i32_be(stored, slot * SLOT_SIZE)
        slot += 1
    return slots


def entry_in(tail: BytesWriter, position: int) -> bytes:
    """Return the entry at `position` of entries in memory."""
    return bytes([tail[at] for at in range(position, position + ENTRY_SIZE)])


def follow_chains(data: bytes, slots: array[int], number: int) -> bool:
    """Put the entries of `data` into the slots, numbered from `number`; return whether the chains lead to each entry.

    An entry contains the former value of its slot. Entries that are put in order must match the value in the slot.
    """
    slot_count = len(slots)
    for hashed, _, seconds, previous in ENTRY.iter_unpack(data):
        if hashed < 0 or seconds < 0:
            return False
        slot = hashed % slot_count
        if previous != slots[slot]:
            return False
        slots[slot] = number
        number += 1
    return True


def summed(data: bytes, position: i64, step: i64) -> tuple[int, int, int]:
    """Return sum, maximum and minimum of the numbers of 4 bytes at `position` and every `step` bytes after it; without
    any number 0, 0 and 1.
    """
    if not _NATIVE:
        numbers = file_order(array("i", data))[position // SLOT_SIZE :: step // SLOT_SIZE]
        return sum(numbers), max(numbers, default=0), min(numbers, default=1)
    total: i64 = 0
    highest: i64 = 0
    lowest: i64 = 1
    end: i64 = len(data)
    begin: i64 = position
    while position < end:
        number: i64 = i64(read_i32_be(data, position))
        total += number
        if number > highest or position == begin:
            highest = number
        if number < lowest or position == begin:
            lowest = number
        position += step
    return total, highest, lowest


def file_order(slots: array[int]) -> array[int]:
    """Swap the bytes of the slots, in place, if this machine is little-endian; return the slots."""
    if sys.byteorder == "little":
        slots.byteswap()
    return slots


def slots_of(data: bytes) -> memoryview[int]:
    """Convert slots from the bytes in a file to the form in a table."""
    return memoryview(file_order(array("i", data)))


_NATIVE: Final = is_native(file_order)
assert array("i").itemsize == SLOT_SIZE
