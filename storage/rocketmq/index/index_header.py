"""Comparing the header of an index file with the file's entries and with the records they point to.

Owns that comparison and its finding; must not compare all entries (storage.rocketmq.recovery.index_check does). A
header has no checksum, and it decides from which record on a start indexes. A field counts only if another source
confirms it:

    field               is proved by
    beginPhyOffset      the first entry
    endPhyOffset        the last entry
    indexCount          that last entry, and zeros in the place of the next one
    beginTimestamp      the record of the first entry, while the log has it
    endTimestamp        the record of the last entry, while the log has it

hashSlotCount is kept unchanged and not compared: nothing reads it, and RocketMQ 4.3 counts it differently.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from storage.findings import finding
from storage.model import Finding
from storage.rocketmq.format.index_file import FIRST_ENTRY
from storage.rocketmq.index.key_index_file import KeyIndexFile

TimeOf = Callable[[int], int]
"""A function that returns the store time of the record at a physical offset; 0 without a record."""


def wrong_fields(file: KeyIndexFile, time_of: TimeOf) -> Iterator[tuple[str, object, int]]:
    """Yield (field, expected, found) for each wrong field of the header; at most five small reads. Raises IoFailure."""
    header, count = file.header, file.header.index_count
    if count <= FIRST_ENTRY:
        return  # KeyIndexFile.is_blank checks whether entries exist despite the count
    if count > file.entries:
        yield "indexCount", f"{file.entries} at most", count
        return
    first, last = file.position_of(FIRST_ENTRY), file.position_of(count - 1)
    if header.begin_physical_offset != first:
        yield "beginPhyOffset", first, header.begin_physical_offset
    if header.end_physical_offset != last:
        yield "endPhyOffset", last, header.end_physical_offset
    if count < file.entries and not file.is_unused(count):
        yield "indexCount", f"more than {count}", count
    begin_ms, end_ms = time_of(first), time_of(last)
    if begin_ms and header.begin_timestamp_ms != begin_ms:
        yield "beginTimestamp", begin_ms, header.begin_timestamp_ms
    if end_ms and header.end_timestamp_ms != end_ms:
        yield "endTimestamp", end_ms, header.end_timestamp_ms


def is_proved(file: KeyIndexFile, time_of: TimeOf) -> bool:
    """Return whether no field of the header is wrong. Raises IoFailure."""
    return next(wrong_fields(file, time_of), None) is None


def wrong_header(file: KeyIndexFile, field: str, expected: object, found: int) -> Finding:
    """Return the finding for a wrong field of a header."""
    return finding(
        "wrong-index-header",
        file.path,
        position=0,
        expected=f"{field} {expected}",
        found=f"{field} {found}",
        message="the header contradicts the entries: lookups may miss records",
    )
