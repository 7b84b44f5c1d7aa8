"""One segment of a partition: a `.log` file, its indexes, and the running values that rolling and lookups need.

Owns appending batches with their index entries, finding a batch by offset, and the segment's times;
must not know published offsets, other segments, or producers. The files are named by the base offset: `%020d.log`,
`.index`, `.timeindex`, `.txnindex`. There is one writer at a time, under the partition's append lock. Readers run at
any time: they read the file only below `size_bytes`, which grows after the bytes are written.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from operator import itemgetter
from pathlib import Path
from typing import Final, NamedTuple

from storage.coding.varint import INT64_MAX
from storage.errors import DataError, DiskFull
from storage.files import (
    PROMPT_READ_BYTES,
    Buffer,
    CachedFile,
    HandleCache,
    PromptBudget,
    Readable,
    WouldWait,
)
from storage.files.atomic import remove_if_present
from storage.kafka.format import names
from storage.kafka.format.batch import HEADER_SIZE, BatchHeader, decode_header
from storage.kafka.format.names import segment_name
from storage.kafka.format.record import NO_TIMESTAMP
from storage.kafka.format.sparse_index import offset_index, time_index
from storage.kafka.index.indexes import (
    MAX_RELATIVE_OFFSET,
    IndexBuilder,
    RebuiltIndexes,
    SparseIndex,
    TransactionIndex,
    modification_time_ms,
    rebuild_indexes,
)
from storage.kafka.log.log_file import CHUNK_BYTES, Gap, Portion, StoredBatch, damaged, walk
from storage.kafka.state.settings import TopicSettings

PROMPT_ABORTED: Final = 4096
"""The most aborted transactions of a segment that are searched on the event loop, in 0.3 ms."""


class AppendedBatch(NamedTuple):
    """A batch within the bytes of one append: its start in these bytes, and its header."""

    at: int
    header: BatchHeader


class _Place(NamedTuple):
    """The start of a walk: no batch from there on has an offset below `next_offset`."""

    position: int
    next_offset: int


def _header_at(file: Readable, position: int) -> BatchHeader | None:
    try:
        header = decode_header(file.pread(HEADER_SIZE, position), 0)
    except DataError:
        return None
    return header if header.size_bytes >= HEADER_SIZE else None


class Segment:
    """A segment on disk. Opening a segment reads nothing: values are loaded at their first use."""

    def __init__(
        self,
        files: HandleCache,
        directory: Path,
        base_offset: int,
        settings: TopicSettings,
        *,
        size_bytes: int,
        has_txn_index: bool = False,
    ) -> None:
        self.base_offset = base_offset
        self.path = directory / segment_name(base_offset, names.LOG)
        self.size_bytes = size_bytes
        self.settings = settings
        self.limit_offset = INT64_MAX  # the next segment's base once that segment exists
        self.end_offset = INT64_MAX  # in the last segment: the log end. No batch reaches beyond it
        self._files = files
        index_bytes = settings.segment_index_bytes
        self.offset_index = SparseIndex(
            files,
            directory / segment_name(base_offset, names.INDEX),
            offset_index,
            max_bytes=index_bytes,
            remake=lambda: self._remake_indexes().offsets,
        )
        self.time_index = SparseIndex(
            files,
            directory / segment_name(base_offset, names.TIME_INDEX),
            time_index,
            max_bytes=index_bytes,
            remake=lambda: self._remake_indexes().times,
            holds=self._reaches_end,
        )
        self.txn_index = TransactionIndex(
            files, directory / segment_name(base_offset, names.TXN_INDEX), exists=has_txn_index
        )
        self._builder: IndexBuilder | None = None
        self._takes_appends = False  # whether the index files are ready for them
        self._first_timestamp_ms: int | None = None

    @classmethod
    def create(
        cls, files: HandleCache, directory: Path, base_offset: int, settings: TopicSettings
    ) -> Segment:
        """Create a new, empty segment: the log and both index files. The caller syncs the directory.

        On DiskFull none of these files stays, and the previous segment remains active.
        """
        segment = cls(files, directory, base_offset, settings, size_bytes=0)
        try:
            with files.borrow(segment.path, write=True, create=True) as file:
                file.truncate(0)
            segment.offset_index.create()
            segment.time_index.create()
        except DiskFull:
            for path in segment.paths():
                remove_if_present(files.fs, path)
                files.forget(path, sync=False)
            raise
        return segment

    def paths(self) -> Sequence[Path]:
        """Return the paths of the files that every segment has."""
        return (self.path, self.offset_index.path, self.time_index.path)

    def use_settings(self, settings: TopicSettings) -> None:
        """Use these settings for rolling and indexing from now on. The maximum sizes of the index files stay."""
        self.settings = settings
        self.builder.interval_bytes = settings.index_interval_bytes

    # ---- writing ----

    @property
    def builder(self) -> IndexBuilder:
        """The state of the index rule. After a start the byte counter begins at 0 again, as in the broker."""
        if self._builder is None:
            builder = IndexBuilder(self.settings.index_interval_bytes)
            last = self.time_index.last()
            if last is not None:
                builder.max_timestamp_ms = last[0]
                builder.max_timestamp_offset = self.base_offset + last[1]
            self._builder = builder
        return self._builder

    def append(
        self, data: bytes, batches: Sequence[AppendedBatch], parts: Sequence[Buffer] = ()
    ) -> None:
        """Write whole batches at the end of the log: `parts` if there are any, which have the length of `data`. Their
        index entries wait in memory.

        On return the OS has the bytes, but they are not synced. On DiskFull the log and the indexes are as before.
        Raises DiskFull, IoFailure.
        """
        start = self.size_bytes
        if not self._takes_appends:
            self._prepare()
        with self._files.borrow(self.path, write=True) as file:
            try:
                if start == 0 and self.settings.preallocate:
                    file.truncate(max(self.settings.segment_bytes, len(data)))
                if parts:
                    file.pwritev(parts, start)
                else:
                    file.pwrite(data, start)
            except DiskFull:
                file.truncate(start)
                raise
        builder = self.builder
        for at, header in batches:
            if builder.add(header):
                self._add_entries(header, start + at)
        if start == 0:
            self._first_timestamp_ms = batches[0].header.max_timestamp
        self.end_offset = batches[-1].header.next_offset  # before the size: readers check both
        self.size_bytes = start + len(data)

    def _prepare(self) -> None:
        """Load and preallocate the indexes before the first append."""
        self.offset_index.prepare()
        self.time_index.prepare()
        self._takes_appends = True

    def _add_entries(self, header: BatchHeader, position: int) -> None:
        """Add the entries of a batch that the builder has selected, where there is room."""
        relative_offset = header.last_offset - self.base_offset
        has_room = len(self.offset_index) < self.offset_index.max_entries
        if has_room and relative_offset <= MAX_RELATIVE_OFFSET:
            self.offset_index.append(relative_offset, position)
            if len(self.time_index) < self.time_index.max_entries - 1:
                self._add_time_entry()

    def _add_time_entry(self) -> None:
        builder = self.builder
        relative_offset = builder.max_timestamp_offset - self.base_offset
        if builder.wants_time_entry(self.time_index.last()) and (
            relative_offset <= MAX_RELATIVE_OFFSET
        ):
            self.time_index.append(builder.max_timestamp_ms, relative_offset)

    def observe(self, header: BatchHeader, position: int) -> None:
        """Add a batch that another process has written at `position` to the values and indexes in memory.

        Writes no file.
        """
        if self.offset_index.held is None or self.time_index.held is None:
            self._hold_entries_below(header.base_offset - self.base_offset)
        if self.builder.add(header):
            self._add_entries(header, position)
        self.size_bytes = position + header.size_bytes

    def _hold_entries_below(self, relative_offset: int) -> None:
        """Load the index entries below `relative_offset`. The process that writes the files may be ahead, so later
        entries are left out until their batches are observed.
        """
        offsets = self.offset_index.entries()
        self.offset_index.hold([entry for entry in offsets if entry[0] < relative_offset])
        times = self.time_index.entries()
        self.time_index.hold([entry for entry in times if entry[1] < relative_offset])

    def must_roll(self, appended: Sequence[AppendedBatch], size_bytes: int) -> bool:
        """Return whether this append needs a new segment (LogSegment.shouldRoll).

        A segment without a batch is never full: a new one would have the same base offset, so the same files.
        """
        settings = self.settings
        if self.size_bytes > settings.segment_bytes - size_bytes:
            return True
        if appended[-1].header.last_offset - self.base_offset > MAX_RELATIVE_OFFSET:
            return True
        if not self.size_bytes:
            return False
        newest = NO_TIMESTAMP
        for _, header in appended:
            newest = max(newest, header.max_timestamp)
        first_ms = self.first_timestamp_ms
        # From LogSegment.timeWaitedForRoll: without a time, the age of the segment counts. It is not stored.
        waited_ms = newest - first_ms if first_ms >= 0 else 0
        return (
            waited_ms > settings.segment_ms - settings.segment_jitter_ms
            or len(self.offset_index) >= self.offset_index.max_entries
            or len(self.time_index) >= self.time_index.max_entries - 1
        )

    def sync(self) -> None:
        """Make the log durable. Raises IoFailure; then the caller must not try again."""
        self._files.datasync(self.path)

    def finish(self) -> None:
        """Finish the segment at a roll or a clean close.

        Adds the closing time entry, cuts the files to their content, and makes everything durable: the log before the
        index entries, which point to its bytes.
        """
        self._takes_appends = False
        self._add_time_entry()
        with self._files.borrow(self.path, write=True) as file:
            if file.size() != self.size_bytes:
                file.truncate(self.size_bytes)
            file.datasync()
        self.offset_index.trim()
        self.time_index.trim()
        self.txn_index.sync()

    def write_indexes(self, end_offset: int) -> None:
        """Write the waiting index entries of the batches below `end_offset`, which are durable, without a sync."""
        offsets, times = self.offset_index.held, self.time_index.held
        if self._takes_appends and offsets is not None and times is not None:
            relative_offset = end_offset - self.base_offset
            self.offset_index.write(bisect_left(offsets[0], relative_offset))
            self.time_index.write(bisect_left(times[1], relative_offset))

    def mend_indexes(self) -> None:
        """Rewrite index files that were found damaged when they were read."""
        self.offset_index.mend()
        self.time_index.mend()

    # ---- reading ----

    @property
    def first_timestamp_ms(self) -> int:
        """The maximum timestamp of the first good batch. Rolling by time counts from it."""
        if self._first_timestamp_ms is None:
            with self._files.borrow(self.path) as file:
                items = self._walk(file, self._first_place())
                first = next((item for item in items if isinstance(item, StoredBatch)), None)
            self._first_timestamp_ms = NO_TIMESTAMP if first is None else first.header.max_timestamp
        return self._first_timestamp_ms

    def largest_timestamp_ms(self) -> int:
        """Return the segment's time for lookups: the largest timestamp, or the modification time of the file if no
        batch has a timestamp.
        """
        if self._builder is not None:
            largest = self._builder.max_timestamp_ms
        else:
            last = self.time_index.last()
            largest = NO_TIMESTAMP if last is None else last[0]
        if largest != NO_TIMESTAMP:
            return largest
        return modification_time_ms(self._files.fs, self.path)

    def _start(self, file: Readable, offset: int) -> _Place:
        """Return a place at or before the batch that holds `offset`: the batch of the nearest index entry, or the next
        batch. Without a usable entry it is the segment's start.

        The entry is trusted only if a batch with its last offset begins at its position. The entry then also confirms
        the batch's offsets, which no CRC covers. The next batch is chosen only if it continues these offsets.
        """
        entry = self.offset_index.floor(offset - self.base_offset)
        if entry is None:
            return self._first_place()
        last_offset, position = self.base_offset + entry[0], entry[1]
        header = _header_at(file, position)
        if header is None or header.last_offset != last_offset:
            return self._first_place()
        after = _Place(position + header.size_bytes, last_offset + 1)
        if last_offset < offset and after.position < self.size_bytes:
            following = _header_at(file, after.position)
            if following is not None and following.base_offset == after.next_offset:
                return after
        return _Place(position, header.base_offset)

    def _first_place(self) -> _Place:
        return _Place(0, self.base_offset)

    def _remake_indexes(self) -> RebuiltIndexes:
        """Rebuild both indexes from a scan of the log, after an index file was found damaged."""
        with self._files.borrow(self.path) as file:
            items = self._walk(file, self._first_place())
            good = [(item.position, item.header) for item in items if isinstance(item, StoredBatch)]
        return rebuild_indexes(
            good, base_offset=self.base_offset, interval_bytes=self.settings.index_interval_bytes
        )

    def _walk(
        self, file: Readable, place: _Place, portion: Portion | None = None
    ) -> Iterator[StoredBatch | Gap]:
        return walk(
            file,
            position=place.position,
            end=self.size_bytes,
            next_offset=place.next_offset,
            limit_offset=min(self.limit_offset, self.end_offset),
            chunk_bytes=CHUNK_BYTES if portion is None else min(CHUNK_BYTES, portion.size_bytes),
            portion=portion,
        )

    def batches(
        self, offset: int, *, stop_offset: int, max_bytes: int | None = None
    ) -> Iterator[StoredBatch]:
        """Yield good batches that hold or follow `offset`, with base offset < `stop_offset`.

        With `max_bytes`, yield only batches that fit, but at least one. Raises Corrupt at a gap (damage, or messages of
        an old format), unless the wanted batch is after it.
        """
        with self._files.borrow(self.path) as file:
            place = self._start(file, offset)
            yield from self._wanted(file, place, offset, stop_offset, max_bytes)

    def _wanted(
        self,
        file: Readable,
        place: _Place,
        offset: int,
        stop_offset: int,
        max_bytes: int | None,
        *,
        budget: PromptBudget | None = None,
    ) -> Iterator[StoredBatch]:
        portion = None if max_bytes is None else Portion(offset, max_bytes)
        for item in self._walk(file, place, portion):
            if budget is not None:
                budget.take(0 if isinstance(item, Gap) else item.header.size_bytes)
            if isinstance(item, Gap):
                if item.next_offset is None or item.next_offset > offset:
                    raise damaged(self.path, item, next_good=self.limit_offset)
            elif item.header.base_offset >= stop_offset:
                return
            elif item.header.last_offset >= offset:
                yield item

    def batches_promptly(
        self, offset: int, *, stop_offset: int, max_bytes: int, budget: PromptBudget
    ) -> Iterator[StoredBatch]:
        """Yield what `batches` yields. Raises WouldWait if the index, or bytes of the file, are not in memory, or
        beyond the budget.
        """
        budget.take()
        lease = self._files.borrow_open(self.path) if self.offset_index.held is not None else None
        if lease is None:
            raise WouldWait
        with lease as opened:
            file = CachedFile(opened)
            place = self._start(file, offset)
            if min(max_bytes, self.size_bytes - place.position) > PROMPT_READ_BYTES:
                raise WouldWait
            yield from self._wanted(file, place, offset, stop_offset, max_bytes, budget=budget)

    def check_prompt_transactions(self) -> None:
        """Raise WouldWait unless this is the last segment, and the aborted transactions in it are in memory and few."""
        index = self.txn_index
        if self.limit_offset != INT64_MAX or not index.is_loaded:
            raise WouldWait
        if len(index.entries()) > PROMPT_ABORTED:
            raise WouldWait

    def offset_before_time(self, timestamp_ms: int) -> int:
        """Return the offset of the greatest time index entry at or before a time, else the base offset.

        The entry is trusted only if the batch at its offset has its time.
        """
        entry = self.time_index.floor(timestamp_ms)
        if entry is None:
            return self.base_offset
        with self._files.borrow(self.path) as file:
            found = self._header_with(file, self.base_offset + entry[1])
        is_right = found is not None and found[1].max_timestamp == entry[0]
        return self.base_offset + entry[1] if is_right else self.base_offset

    def offset_before_largest_time(self, end: int) -> int:
        """Return an offset such that the first record with the largest time below offset `end` is at or after it: that
        of the newest usable time index entry below `end`, else the base offset.
        """
        entries = self.time_index.entries()
        below = bisect_left(entries, end - self.base_offset, key=itemgetter(1))
        return self.offset_before_time(entries[below - 1][0]) if below else self.base_offset

    def _reaches_end(self, times: Sequence[tuple[int, int]]) -> bool:
        """Return whether the newest of these time entries matches the log, and no batch after it has a later time.

        The broker does not check this: if entries are missing at the end, it takes the segment for an older segment.
        """
        with self._files.borrow(self.path) as file:
            position, newest_ms = 0, NO_TIMESTAMP
            if times:
                newest_ms, relative_offset = times[-1]
                found = self._header_with(file, self.base_offset + relative_offset)
                if found is None or found[1].max_timestamp != newest_ms:
                    return False
                position = found[0] + found[1].size_bytes
            while position < self.size_bytes:
                header = _header_at(file, position)
                if header is None or header.max_timestamp > newest_ms:
                    return False
                position += header.size_bytes
        return True

    def _header_with(self, file: Readable, offset: int) -> tuple[int, BatchHeader] | None:
        """Return position and header of the batch that holds an offset; None if there is none. Walks by batch sizes."""
        position = self._start(file, offset).position
        while position < self.size_bytes:
            header = _header_at(file, position)
            if header is None or header.base_offset > offset:
                return None
            if header.last_offset >= offset:
                return position, header
            position += header.size_bytes
        return None
