"""The part of an index file that is in memory while it takes entries: slots, unwritten entries, header.

Owns how a string gets into the table (IndexFile.putKey of RocketMQ) and a fast form of Java's string hash for
strings with common parts; must not do IO: key_index_file.py reads and writes. Compiled if a compiler is
available; otherwise the same source is interpreted.

One writer at a time. Readers at any time: an entry is in `tail` before its number is in a slot. A reader
must read the slot first and `tail` after it. It then finds the entry in `tail` or, if the writer has
written the tail meanwhile, in the file.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Sequence
from typing import Final

from storage.coding.hashes import MASK, SIGN, java_hash
from storage.rocketmq.format.index_file import (
    ENTRY,
    ENTRY_SIZE,
    FIRST_ENTRY,
    SLOT_SIZE,
    IndexHeader,
    time_diff_s,
)
from storage.rocketmq.index.dispatch_request import Dispatch

PAGE_SHIFT: Final = 10
PAGE_SLOTS: Final = 1 << PAGE_SHIFT  # slots that are written together, 4 KiB
CACHED: Final = 1 << 16  # number of string parts with a cached hash

SUFFIX: Final = 3
SUFFIX_POWER: Final = 31**3
pack_entry: Final = ENTRY.pack

MIDDLE: Final = 8
MIDDLE_POWER: Final = 31**8


class KeyHasher:
    """A hasher of strings that often begin alike: h(a + b) = h(a) * 31^len(b) + h(b), in 32 bits.

    A string is split before its last 3 characters, and the part before them again before its last 8. In a
    unique key these parts are the counter and the time; the part before them is the same for all keys of a
    client. A non-ASCII string is hashed as a whole: a character may be two units of UTF-16.
    """

    def __init__(self) -> None:
        self.prefixes: dict[str, int] = {}
        self.suffixes: dict[str, int] = {}
        self._beginnings: dict[str, int] = {}

    def java_hash(self, text: str) -> int:
        """Return Java's hash as 32 bits without a sign."""
        if not text.isascii():
            return java_hash(text) & MASK
        start, end = text[:-SUFFIX], text[-SUFFIX:]
        prefix = self.prefixes.get(start)
        if prefix is None:
            prefix = self._hash_prefix(start)
            _keep(self.prefixes, start, prefix)
        if len(end) < SUFFIX:
            return java_hash(text) & MASK
        suffix = self.suffixes.get(end)
        if suffix is None:
            suffix = java_hash(end) & MASK
            _keep(self.suffixes, end, suffix)
        return prefix * SUFFIX_POWER + suffix & MASK

    def _hash_prefix(self, text: str) -> int:
        start, end = text[:-MIDDLE], text[-MIDDLE:]
        if not start:
            return java_hash(text) & MASK
        beginning = self._beginnings.get(start)
        if beginning is None:
            beginning = java_hash(start) & MASK
            _keep(self._beginnings, start, beginning)
        return beginning * MIDDLE_POWER + java_hash(end) & MASK


def _keep(cache: dict[str, int], text: str, hashed: int) -> None:
    """Cache a hash. A full cache is emptied, since the strings in use change with time."""
    if len(cache) >= CACHED:
        cache.clear()
    cache[text] = hashed


class KeyIndexTable:
    """The table of one index file that takes entries. The public fields are read by any thread, and written
    by `put_run` and by the file's owner.
    """

    def __init__(
        self, hasher: KeyHasher, header: IndexHeader, slots: memoryview[int], *, entries: int
    ) -> None:
        """`slots` are native ints; the entries before `header.index_count` are in the file."""
        self.slots = slots
        self.entries = entries
        self.dirty_pages = bytearray(-(-len(slots) // PAGE_SLOTS))
        # Number of the first entry that is not in the file, and the entries from it on. Replaced as
        # one tuple, so that a reader's pair is consistent.
        self.tail: tuple[int, bytearray] = (max(header.index_count, FIRST_ENTRY), bytearray())
        self.begin_timestamp_ms = header.begin_timestamp_ms
        self.end_timestamp_ms = header.end_timestamp_ms
        self.begin_physical_offset = header.begin_physical_offset
        self.end_physical_offset = header.end_physical_offset
        self.hash_slot_count = header.hash_slot_count
        self._hasher = hasher

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

    def put_run(self, dispatches: Sequence[Dispatch], done: int, strings: int) -> tuple[int, int]:
        """Put records from number `done` on; of the first record, only the strings from number `strings` on.
        Return the next `done` and `strings`: (len(dispatches), 0) if all strings had room.

        A record before the last record that was put is skipped: it is in the index already.
        """
        prefixes, suffixes = self._hasher.prefixes, self._hasher.suffixes
        slots, dirty_pages, slot_count = self.slots, self.dirty_pages, len(self.slots)
        entries = self.entries
        first, tail = self.tail
        number = first + len(tail) // ENTRY_SIZE
        begin_ms = seconds_at_ms = self.begin_timestamp_ms
        seconds = 0  # for `seconds_at_ms`, kept: many records have the same store time
        while done < len(dispatches) and number < entries:
            _, _, _, offset, _, _, time_ms, _, keys = dispatches[done]
            stop = min(len(keys), strings + entries - number)
            if stop <= strings or (not strings and offset < self.end_physical_offset):
                done, strings = done + 1, 0
                continue
            if time_ms != seconds_at_ms:
                seconds_at_ms, seconds = time_ms, time_diff_s(time_ms, begin_ms)
            if number <= FIRST_ENTRY:  # only this string's time is relative to an inherited begin
                begin_ms = self.begin_timestamp_ms = time_ms
                self.begin_physical_offset = offset
                stop = strings + 1
            for key in keys[strings:stop]:
                try:
                    hashed = prefixes[key[:-SUFFIX]] * SUFFIX_POWER + suffixes[key[-SUFFIX:]] & MASK
                except KeyError:
                    hashed = self._hasher.java_hash(key)
                if hashed >= SIGN:
                    hashed = 0 if hashed == SIGN else MASK + 1 - hashed
                slot = hashed % slot_count
                previous = slots[slot]
                if not 0 < previous <= number:
                    previous = 0
                    self.hash_slot_count += 1
                tail += pack_entry(hashed, offset, seconds, previous)
                slots[slot] = number
                dirty_pages[slot >> PAGE_SHIFT] = 1
                number += 1
            self.end_timestamp_ms, self.end_physical_offset = time_ms, offset
            if number == FIRST_ENTRY + 1:
                seconds = 0  # relative to the begin, which is now the file's own
            done, strings = (done, stop) if stop < len(keys) else (done + 1, 0)
        return done, strings

    def dirty_slots(self) -> list[tuple[int, bytes]]:
        """Return (number of the first slot, bytes for the file) of every run of changed pages. The pages
        stay marked until `clean_slots`.
        """
        runs = []
        dirty = self.dirty_pages
        start = dirty.find(1)
        while start >= 0:
            end = dirty.find(0, start)
            end = len(dirty) if end < 0 else end
            slots = array("i", self.slots[start * PAGE_SLOTS : end * PAGE_SLOTS])
            runs.append((start * PAGE_SLOTS, file_order(slots).tobytes()))
            start = dirty.find(1, end)
        return runs

    def clean_slots(self) -> None:
        """Unmark all pages, after the result of `dirty_slots` was written."""
        self.dirty_pages = bytearray(len(self.dirty_pages))


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


def file_order(slots: array[int]) -> array[int]:
    """Swap the bytes of the slots, in place, if this machine is little-endian; return the slots."""
    if sys.byteorder == "little":
        slots.byteswap()
    return slots


def slots_of(data: bytes) -> memoryview[int]:
    """Convert slots from the bytes in a file to the form in a table."""
    return memoryview(file_order(array("i", data)))


def empty_slots(count: int) -> memoryview[int]:
    """Return the slots of a new file. Memory is used only for pages that are written."""
    return memoryview(bytearray(count * SLOT_SIZE)).cast("i")


assert array("i").itemsize == SLOT_SIZE
