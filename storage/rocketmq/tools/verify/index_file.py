"""Consistency checks of one index file: the chains of its slots, the slots, and the header.

Owns these checks; must not know the log.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from typing import Unpack

from storage.findings import Comparison, finding
from storage.model import Finding
from storage.rocketmq.format.index_file import FIRST_ENTRY, SLOT_SIZE, entry_position, slot_position
from storage.rocketmq.index.key_index_file import KeyIndexFile, wrong_header
from storage.shared.diagnostics import Tallies


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


def check_index_file(file: KeyIndexFile) -> tuple[Tallies, int]:
    """Return (findings in one file, its number of entries). Memory: twice its slots."""
    tallies = Tallies()
    slots = array("i", bytes(file.slots * SLOT_SIZE))
    slot_count, count, last = file.slots, 0, -1
    for number, (hashed, at, _, previous) in file.entries_in(FIRST_ENTRY, file.entries_end):
        slot = hashed % slot_count
        if previous != slots[slot]:
            tallies.add(_wrong_chain(file, number, expected=slots[slot], found=previous))
        slots[slot] = number
        count, last = count + 1, at
    for wrong in (*_check_slots(file, slots), *_check_header(file, last, slots)):
        tallies.add(wrong)
    return tallies, count


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


def _check_slots(file: KeyIndexFile, expected: array[int]) -> Iterator[Finding]:
    stored = file.stored_slots()
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
