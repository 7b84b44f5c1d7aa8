"""One index file of a store: finding entries in it, and writing back the entries that were put.

Owns the file's reads and writes (pread and pwrite, never a map), the walk along a slot's chain, the sums over its
blocks, and the comparison of its header with its entries; must not know other files of the run. Source: RocketMQ's
IndexFile. A file that takes entries has a table in memory; without a table all reads go to the file, a few bytes at a
time. A header has no checksum, and it decides from which record on a start indexes. A field counts only if another
source confirms it:

    field               is proved by
    beginPhyOffset      the first entry
    endPhyOffset        the last entry
    indexCount          that last entry, and zeros in the place of the next one
    beginTimestamp      the record of the first entry, while the log has it
    endTimestamp        the record of the last entry, while the log has it

hashSlotCount is kept unchanged and not compared: nothing reads it, and RocketMQ 4.3 counts it differently.

One writer (the index's lock); readers at any time.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple
from zlib import crc32

from storage.coding.native import BytesWriter
from storage.coding.varint import INT64_MAX, INT64_MIN
from storage.errors import Corrupt, DiskFull, IoFailure
from storage.files import HandleCache, is_missing, remove_if_present
from storage.findings import finding
from storage.model import Finding
from storage.rocketmq.format.index_file import (
    ENTRY,
    ENTRY_SIZE,
    FIRST_ENTRY,
    HEADER_SIZE,
    KIND,
    MAX_SECONDS,
    SLOT_SIZE,
    IndexHeader,
    decode_header,
    encode_header,
    entry_position,
    file_size,
    slot_position,
)
from storage.rocketmq.index.key_index_table import (
    KeyIndexTable,
    entry_in,
    follow_chains,
    slots_of,
)

CHECKED_BYTES: Final = 1 << 20
CHECKED_ENTRIES: Final = 1 << 14  # read at once by a check of all entries
BLOCK_ENTRIES: Final = 200  # read at once along a chain: entries of a hot key are close together

unpack_entry: Final = ENTRY.unpack_from


class TimeRange(NamedTuple):
    """A range of store times in milliseconds, both ends inclusive."""

    begin_ms: int
    end_ms: int


ALWAYS: Final = TimeRange(INT64_MIN, INT64_MAX)


class DoubtedIndex(Exception):
    """An index file has changed since it was checked, or cannot be read: its results do not count any more."""


class KeyIndexFile:
    """One file of the run; creating the object reads only the header. The file's length must fit
    `slots` and `entries`, or be 0 (a crash interrupted its creation).
    """

    def __init__(self, files: HandleCache, path: Path, *, slots: int, entries: int) -> None:
        self.path = path
        self.slots = slots
        self.entries = entries
        self.is_removed = False  # set before the removal: a reader still in the file then stops
        self.is_trusted = False  # every entry belongs to its record, and its chain leads to it
        self.is_ours = False  # created by this process, or entries were put in it
        self.is_new = False  # created by this process
        self.is_doubted = False
        self.sums: BlockSums | None = None  # content at the last clean stop; None once it changes
        self._files = files
        self._header = self._read_header()
        # Set by the writer before the first put and removed after the last. A reader may go on with a
        # removed table: its entries are in the file before the removal.
        self._table: KeyIndexTable | None = None

    @classmethod
    def create(
        cls, files: HandleCache, path: Path, inherited: IndexHeader, *, slots: int, entries: int
    ) -> KeyIndexFile:
        """Create a file, sparse at its full length; the caller syncs the directory.

        It begins where the previous file ended (`inherited`). On DiskFull no file is left.
        """
        try:
            with files.borrow(path, write=True, create=True) as file:
                file.truncate(file_size(slots, entries))
                file.datasync()  # once the name is on disk, the length is too
        except DiskFull:
            remove_if_present(files.fs, path)
            files.forget(path, sync=False)
            raise
        created = cls(files, path, slots=slots, entries=entries)
        created.is_trusted = created.is_ours = created.is_new = True
        created.begin_behind(inherited)
        return created

    def begin_behind(self, inherited: IndexHeader) -> None:
        """Set the header of a file without entries to begin where the previous file ended."""
        self._header = _following(inherited)

    @property
    def header(self) -> IndexHeader:
        """The header with all entries that were put, on disk or not."""
        table = self._table
        return self._header if table is None else table.header

    @property
    def is_full(self) -> bool:
        """Whether the next entry must go to another file."""
        return self.header.index_count >= self.entries

    @property
    def has_entries(self) -> bool:
        """Whether the header counts any entries."""
        return self.header.index_count > FIRST_ENTRY

    @property
    def is_blank(self) -> bool:
        """Whether the header counts no entries although the file has some: the header was lost."""
        first = self._read_unchecked(ENTRY_SIZE, entry_position(self.slots, FIRST_ENTRY))
        return self.header.index_count <= FIRST_ENTRY and any(first)

    def last_entry_position(self) -> int:
        """Return the physical offset of the record of the newest entry; -1 without entries."""
        count = self._header.index_count
        return -1 if count <= FIRST_ENTRY else self.position_of(count - 1)

    def position_of(self, number: int) -> int:
        """Return the physical offset of the record of an entry; -1 after the end of the file."""
        data = self._read_unchecked(ENTRY_SIZE, entry_position(self.slots, number))
        return int(unpack_entry(data, 0)[1]) if len(data) == ENTRY_SIZE else -1

    def is_unused(self, number: int) -> bool:
        """Return whether the bytes of an entry are all zeros: it was never written."""
        return not any(self._read_unchecked(ENTRY_SIZE, entry_position(self.slots, number)))

    @property
    def is_ahead(self) -> bool:
        """Whether entries or slots go beyond the header's count: a write-back was interrupted. Reads all
        slots.
        """
        count = self.header.index_count
        if not self.is_unused(count):
            return True
        return (
            max(slots_of(self._read_unchecked(self.slots * SLOT_SIZE, HEADER_SIZE)), default=0)
            >= count
        )

    # ---- writing ----

    def open_table(self) -> KeyIndexTable:
        """Return the table that takes entries; load it if necessary."""
        if self._table is None:
            self._check_sums()
            self._extend()
            stored = b""
            if self._header.index_count > FIRST_ENTRY:
                stored = self._read(self.slots * SLOT_SIZE, HEADER_SIZE)
            self._table = KeyIndexTable(self._header, stored, self.slots, entries=self.entries)
            self.is_ours = True
        return self._table

    def _check_sums(self) -> None:
        """Compare the whole file with its sums, before it changes."""
        sums = self.sums
        if sums is not None:
            with suppress(DoubtedIndex):
                for start in range(0, sums.size_bytes, CHECKED_BYTES):
                    self._read(min(CHECKED_BYTES, sums.size_bytes - start), start)
            self.sums = None

    def _extend(self) -> None:
        """Set the full length of a file if a crash interrupted its creation, and sync the length. Otherwise a crash
        could leave entries in a file of another length, which looks like a file of a store with other sizes.
        """
        if not self.has_entries:
            with self._files.borrow(self.path, write=True) as file:
                if self._files.fs.size(self.path) == 0:
                    file.truncate(file_size(self.slots, self.entries))
                file.datasync()

    def close_table(self) -> None:
        """Release the memory, after `write_back`: the file takes no more entries until it is opened again."""
        if self._table is not None:
            self._header, self._table = self._table.header, None

    def write_entries(self) -> None:
        """Write the entries that are only in memory to the file; no slot in the file points to them yet."""
        table = self._table
        if table is None:
            return
        first, tail = table.tail
        if tail:
            with self._files.borrow(self.path, write=True) as file:
                file.pwrite(tail.getvalue(), entry_position(self.slots, first))
            table.drop_tail()

    def write_back(self) -> None:
        """Write the state in memory to the file: entries, then slots, then the header. Not synced."""
        table = self._table
        if table is None:
            return
        self.write_entries()
        with self._files.borrow(self.path, write=True) as file:
            for slot, data in table.dirty_slots():
                file.pwrite(data, slot_position(slot))
            table.clean_slots()
            file.pwrite(encode_header(table.header), 0)

    def sync(self) -> None:
        """Sync all data that was written back."""
        self._files.datasync(self.path)

    # ---- whether it can be trusted ----

    @property
    def is_asked(self) -> bool:
        """Whether lookups use the file. In an untrusted file only entries that this process put count."""
        return self.is_trusted or self.is_ours

    def doubt(self) -> None:
        """Mark the file as doubted: its results do not count any more."""
        self.is_doubted = True

    def is_sound(self, header: IndexHeader, slots: array[int] | None) -> bool:
        """Return whether the chains lead to every entry below the header's count, and the header describes the first
        and last entry.

        `slots`: as they were with that header; None: as they are in the file.
        """
        led_to = array("i", bytes(self.slots * SLOT_SIZE))
        first = last = -1
        stop = header.index_count
        try:
            for number, data in self.blocks_in(FIRST_ENTRY, stop):
                if not follow_chains(data, led_to, number):
                    return False
                if first < 0:
                    first = unpack_entry(data, 0)[1]
                last = unpack_entry(data, len(data) - ENTRY_SIZE)[1]
            if slots is None:
                slots = array("i", self.stored_slots())
        except (Corrupt, IoFailure, DoubtedIndex):
            return False
        if (first, last) != (header.begin_physical_offset, header.end_physical_offset):
            return False
        return slots == led_to or all(
            stored == wanted or (not wanted and not 0 < stored < stop)
            for stored, wanted in zip(slots, led_to, strict=True)
        )

    @property
    def entries_end(self) -> int:
        """The number after the last entry that the header counts and the file has room for."""
        return min(self.header.index_count, self.entries)

    def entries_in(self, first: int, stop: int) -> Iterator[tuple[int, tuple[int, int, int, int]]]:
        """Yield (number, fields) of the entries with numbers in [first, stop). Raises Corrupt if the file is short."""
        for number, data in self.blocks_in(first, stop):
            yield from enumerate(ENTRY.iter_unpack(data), number)

    def blocks_in(self, first: int, stop: int) -> Iterator[tuple[int, bytes]]:
        """Yield the same entries as (number of the first, bytes of a block). Raises Corrupt if the file is short."""
        for number in range(first, stop, CHECKED_ENTRIES):
            yield number, self._entries_from(number, min(CHECKED_ENTRIES, stop - number))

    def stored_slots(self) -> memoryview[int]:
        """Return the slots as they are in the file."""
        return slots_of(self._read(self.slots * SLOT_SIZE, HEADER_SIZE))

    def _entries_from(self, number: int, count: int) -> bytes:
        data = self._read(count * ENTRY_SIZE, entry_position(self.slots, number))
        if len(data) < count * ENTRY_SIZE:
            raise self._wrong_size(len(data))
        return data

    def summed(self) -> BlockSums:
        """Return the sums over the whole content; known sums are not computed again."""
        if self.sums is None:
            size_bytes = entry_position(self.slots, self.header.index_count)
            starts = range(0, size_bytes, BLOCK_BYTES)
            self.sums = BlockSums.of(
                size_bytes,
                (self._read_unchecked(min(BLOCK_BYTES, size_bytes - at), at) for at in starts),
            )
        return self.sums

    # ---- reading ----

    def chain(self, key_hash: int) -> Iterator[tuple[int, int, int, int]]:
        """Yield (number, key hash, physical offset, time difference) of all entries in the hash's slot,
        newest first, including entries with other hashes.

        Ends where RocketMQ ends: at an entry without a previous entry, at an impossible number, at a
        negative time. Numbers must fall, so that the chain ends in a damaged file too.
        """
        slot = key_hash % self.slots
        table = self._table
        if table is not None:
            number = table.slots[slot]
            first, entries = table.tail  # read after the slot: see KeyIndexTable
            tail: BytesWriter | None = entries
            count = first + len(entries) // ENTRY_SIZE
        else:
            first, tail = self.entries, None
            count = self._header.index_count
            if count <= FIRST_ENTRY:
                return
            number = int.from_bytes(self._read(SLOT_SIZE, slot_position(slot)), "big", signed=True)
        block, block_first = b"", first  # entries read so far, and the number of the first
        while 0 < number <= count:
            if number >= first:
                position = (number - first) * ENTRY_SIZE
                if tail is None or position + ENTRY_SIZE > len(tail):
                    return
                data, position = entry_in(tail, position), 0
            else:
                if number < block_first:
                    block, block_first = self._entries_up_to(number)
                data, position = block, (number - block_first) * ENTRY_SIZE
                if position + ENTRY_SIZE > len(data):
                    return
            found_hash, offset, seconds, previous = unpack_entry(data, position)
            if seconds < 0:
                return
            yield number, found_hash, offset, seconds
            if previous >= number:
                return
            number = previous

    def select(self, key_hash: int, times: TimeRange, max_count: int) -> list[int]:
        """Return at most `max_count` physical offsets as RocketMQ selects them: newest first, by the
        time in whole seconds, up to the first entry that is too old.
        """
        found: list[int] = []
        begin_ms = self.header.begin_timestamp_ms
        if max_count <= 0:
            return found
        for _, found_hash, offset, seconds in self.chain(key_hash):
            time_ms = begin_ms + seconds * 1000
            if found_hash == key_hash and times.begin_ms <= time_ms <= times.end_ms:
                found.append(offset)
                if len(found) >= max_count:
                    break
            if time_ms < times.begin_ms:
                break
        return found

    def candidates(self, key_hash: int, times: TimeRange, low: int) -> Iterator[int]:
        """Yield physical offsets, not below `low`, of all entries with this hash whose records' store
        times MAY be in the range, newest first. Entries are put in the order of the log, so that offsets
        fall along a chain. One record may occur several times in a row.
        """
        begin_ms, any_time = self.header.begin_timestamp_ms, times == ALWAYS
        for number, found_hash, offset, seconds in self.chain(key_hash):
            if offset < low:
                return
            if found_hash == key_hash and (any_time or _may_lie(number, seconds, begin_ms, times)):
                yield offset

    def _read_header(self) -> IndexHeader:
        size_bytes = self._files.fs.size(self.path)
        if size_bytes == 0:
            return IndexHeader()
        if size_bytes != file_size(self.slots, self.entries):
            raise self._wrong_size(size_bytes)
        header = decode_header(self._read(HEADER_SIZE, 0))
        return header._replace(index_count=max(header.index_count, FIRST_ENTRY))

    def _entries_up_to(self, number: int) -> tuple[bytes, int]:
        """Return (a block of entries that ends with this entry, the number of its first entry)."""
        first = max(0, number + 1 - BLOCK_ENTRIES)
        size_bytes = (number + 1 - first) * ENTRY_SIZE
        return self._read(size_bytes, entry_position(self.slots, first)), first

    def _read(self, size_bytes: int, position: int) -> bytes:
        """Return bytes of the file. Raises DoubtedIndex if they changed since the last clean stop."""
        sums = self.sums
        if sums is not None and not self.is_doubted:
            blocks = sums.around(position, size_bytes)
            if blocks is not None:
                start, stop = blocks
                data = self._read_unchecked(stop - start, start)
                if not sums.fit(start, data):
                    self.doubt()
                    raise DoubtedIndex(f"{self.path}: it changed since our last stop")
                if position + size_bytes <= stop:
                    return data[position - start : position - start + size_bytes]
        return self._read_unchecked(size_bytes, position)

    def _read_unchecked(self, size_bytes: int, position: int) -> bytes:
        try:
            with self._files.borrow(self.path) as file:
                return file.pread(size_bytes, position)
        except IoFailure as error:
            if self.is_removed and is_missing(error):
                return b""
            raise

    def _wrong_size(self, size_bytes: int) -> Corrupt:
        expected = file_size(self.slots, self.entries)
        return Corrupt(
            f"{self.path}: {size_bytes} bytes, but {self.slots} slots and {self.entries} entries "
            f"take {expected}: do maxHashSlotNum and maxIndexNum fit this store?",
            kind=KIND,
            path=str(self.path),
            position=0,
            expected=f"{expected} bytes",
            found=f"{size_bytes} bytes",
        )


def _following(before: IndexHeader) -> IndexHeader:
    """Return the header of a file without entries: it begins where the previous file ended."""
    at_ms, position = max(before.end_timestamp_ms, 0), max(before.end_physical_offset, 0)
    return IndexHeader(at_ms, at_ms, position, position)


def _may_lie(number: int, seconds: int, begin_ms: int, times: TimeRange) -> bool:
    """Return whether the store time of an entry's record can be in the range.

    The first entry defines the begin. Other entries store whole seconds after it. But 0 also stands for all
    times before the begin, the largest value for all later times, and without a begin no time is known.
    """
    if number == FIRST_ENTRY:
        return times.begin_ms <= begin_ms <= times.end_ms
    if begin_ms <= 0:
        return True
    earliest_ms = begin_ms + seconds * 1000
    return (seconds == 0 or earliest_ms <= times.end_ms) and (
        seconds == MAX_SECONDS or times.begin_ms <= earliest_ms + 999
    )


BLOCK_BYTES: Final = 1 << 16


class BlockSums:
    """The sums of the first `size_bytes` of a file; the last block may be shorter."""

    def __init__(self, size_bytes: int, sums: bytes) -> None:
        """Take the sums from bytes as in `encoded`."""
        self.size_bytes = size_bytes
        self._sums = array("I", sums[: len(sums) // 4 * 4])
        self._checked = bytearray(len(self._sums))

    @classmethod
    def of(cls, size_bytes: int, blocks: Iterable[bytes]) -> BlockSums:
        """Return the sums of a file that consists of these blocks."""
        return cls(size_bytes, array("I", map(crc32, blocks)).tobytes())

    @property
    def encoded(self) -> bytes:
        """The sums of all blocks, four bytes each."""
        return self._sums.tobytes()

    @property
    def is_whole(self) -> bool:
        """Whether there is a sum for each block."""
        return len(self._sums) == -(-self.size_bytes // BLOCK_BYTES)

    def around(self, position: int, size_bytes: int) -> tuple[int, int] | None:
        """Return [start, stop) of the blocks that contain these bytes; None if all of them were checked."""
        first = position // BLOCK_BYTES
        stop = min(-(-(position + size_bytes) // BLOCK_BYTES), len(self._sums))
        if self._checked.find(0, first, stop) < 0:
            return None
        return first * BLOCK_BYTES, min(stop * BLOCK_BYTES, self.size_bytes)

    def fit(self, start: int, data: bytes) -> bool:
        """Return whether whole blocks from `start` on are unchanged; matching blocks are not checked again."""
        first = start // BLOCK_BYTES
        for number in range(first, first + -(-len(data) // BLOCK_BYTES)):
            at = (number - first) * BLOCK_BYTES
            if crc32(data[at : at + BLOCK_BYTES]) != self._sums[number]:
                return False
            self._checked[number] = 1
        return True


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
