"""Consistency checks of one index file: the chains of its slots, the slots, and the header.

Owns these checks and the sequential reading of entries; must not know the log.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from typing import Final, Unpack

from storage.files import HandleCache
from storage.findings import Comparison, finding
from storage.model import Finding
from storage.rocketmq.format.index_file import (
    ENTRY,
    ENTRY_SIZE,
    FIRST_ENTRY,
    HEADER_SIZE,
    SLOT_SIZE,
    IndexEntry,
    decode_entries,
    entry_position,
    slot_position,
)
from storage.rocketmq.index.key_index_file import KeyIndexFile, wrong_header
from storage.rocketmq.index.key_index_table import file_order
from storage.shared.diagnostics import Tallies

ENTRIES_AT_ONCE: Final = 1 << 14


def entries_end(file: KeyIndexFile) -> int:
    """Return the number after the last entry that the header counts."""
    return min(file.header.index_count, file.entries)


def entries_of(
    file: KeyIndexFile, files: HandleCache, first: int
) -> Iterator[tuple[int, IndexEntry]]:
    """Yield (number, entry) of the entries of a file from number `first` on."""
    for start, data in _blocks(file, files, first):
        yield from enumerate(decode_entries(data), start=start)


def _blocks(file: KeyIndexFile, files: HandleCache, first: int) -> Iterator[tuple[int, bytes]]:
    """Yield (number of the first entry, bytes) of the entries from number `first` on, many entries at a time."""
    stop = entries_end(file)
    for start in range(first, stop, ENTRIES_AT_ONCE):
        count = min(stop - start, ENTRIES_AT_ONCE)
        # The file is released before each yield, because a caller may stop early.
        with files.borrow(file.path) as opened:
            data = opened.pread(count * ENTRY_SIZE, entry_position(file.slots, start))
        yield start, data[: len(data) - len(data) % ENTRY_SIZE]


def entry_at(file: KeyIndexFile, files: HandleCache, number: int) -> IndexEntry:
    """Return the entry with this number, which must be below `entries_end`."""
    with files.borrow(file.path) as opened:
        return decode_entries(opened.pread(ENTRY_SIZE, entry_position(file.slots, number)))[0]


def entry_finding(
    file: KeyIndexFile,
    number: int,
    code: str,
    severity: str,
    what: str,
    **facts: Unpack[Comparison],
) -> Finding:
    """Return a finding located at an entry."""
    return finding(
        code,
        file.path,
        severity=severity,
        position=entry_position(file.slots, number),
        message=f"entry {number}: {what}",
        **facts,
    )


def check_index_file(file: KeyIndexFile, files: HandleCache) -> tuple[Tallies, int]:
    """Return (findings in one file, its number of entries). Memory: twice its slots."""
    tallies = Tallies()
    slots = array("i", bytes(file.slots * SLOT_SIZE))
    slot_count, number = file.slots, FIRST_ENTRY
    for start, data in _blocks(file, files, FIRST_ENTRY):
        number = start
        for hashed, _, _, previous in ENTRY.iter_unpack(data):
            slot = hashed % slot_count
            if previous != slots[slot]:
                tallies.add(_wrong_chain(file, number, expected=slots[slot], found=previous))
            slots[slot] = number
            number += 1
    last = -1
    if number > FIRST_ENTRY:
        last = entry_at(file, files, number - 1).physical_offset
    for wrong in (*_check_slots(file, files, slots), *_check_header(file, last, slots)):
        tallies.add(wrong)
    return tallies, number - FIRST_ENTRY


def _wrong_chain(file: KeyIndexFile, number: int, *, expected: int, found: int) -> Finding:
    return entry_finding(
        file,
        number,
        "wrong-index-entry",
        "warning",
        "the chain of its slot goes on elsewhere",
        expected=f"entry {expected}",
        found=f"entry {found}",
    )


def _check_slots(file: KeyIndexFile, files: HandleCache, expected: array[int]) -> Iterator[Finding]:
    with files.borrow(file.path) as opened:
        stored = file_order(array("i", opened.pread(file.slots * SLOT_SIZE, HEADER_SIZE)))
    if stored == expected or not stored:
        return
    for slot, (wanted, found) in enumerate(zip(expected, stored, strict=True)):
        if wanted != found:
            yield finding(
                "wrong-index-slot",
                file.path,
                position=slot_position(slot),
                expected=f"entry {wanted}",
                found=f"entry {found}",
                message="the slot does not point to the newest entry of its chain",
            )


def _check_header(file: KeyIndexFile, last: int, slots: array[int]) -> Iterator[Finding]:
    header = file.header
    if file.is_blank:
        yield wrong_header(file, "indexCount", "the number of the next entry", 0)
    if header.end_physical_offset < last:
        yield wrong_header(file, "endPhyOffset", last, header.end_physical_offset)
    used = len(slots) - slots.count(0)
    # RocketMQ 4.3 counts every entry here.
    if header.hash_slot_count not in (used, header.index_count - 1):
        yield wrong_header(file, "hashSlotCount", used, header.hash_slot_count)
