"""Reading a split of a Kafka store: from pieces of segments to chunks of columns.

Owns which batches are visible, how they are gathered until a chunk is full, and how damage is reported;
must not plan, and knows no partition: a piece has all facts that a read needs. Uncompressed batches are
decoded in the buffer that they were read into. Compressed batches are first decompressed, one after another. Files are
read `CHUNK_BYTES` at a time. In addition a chunk takes about 100 bytes a row while it is built.
"""

from __future__ import annotations

import errno
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple, cast

import numpy as np

from storage.coding.varint import decode_varint
from storage.columns import (
    CHUNK_BYTES,
    COMMON_COLUMNS,
    HEADERS,
    KEY,
    KEYS,
    OFFSET,
    TAG,
    TIMESTAMP,
    TIMESTAMP_TYPE,
    VALUE,
    Chunk,
    Damage,
    Named,
    Slices,
)
from storage.errors import Corrupt, DataError, IoFailure
from storage.files import File, FileSystem, FollowingFileSystem, SkippingFileSystem, is_missing
from storage.kafka.columns import record_fields
from storage.kafka.columns.record_fields import BatchFigures, Rows, find_starts
from storage.kafka.columns.split_plan import SegmentRange
from storage.kafka.format.batch import DEFAULT_MAX_BYTES, HEADER_SIZE, LOG_APPEND_TIME, BatchHeader
from storage.kafka.format.compression import CODECS, decompress
from storage.kafka.format.names import DELETED
from storage.kafka.log.log_file import StoredBatch, damaged, walk
from storage.kafka.log.reading import KEYS_HEADER, TAGS_HEADER, decoded
from storage.kafka.state.file_listing import unread_findings
from storage.kafka.tools.logs import Log, gap_finding, undecodable
from storage.model import TopicPartition

if TYPE_CHECKING:
    from storage.columns import Numbers
    from storage.kafka.columns.record_fields import Bytes

    Column = Numbers | Slices | Named

_OF_HEADERS: Final = frozenset({HEADERS, TAG, KEYS})
_OF_RECORDS: Final = frozenset({KEY, VALUE, *_OF_HEADERS})


def read_split(
    plan: object,
    columns: Collection[str],
    *,
    check_crcs: bool,
    on_damage: Damage | None,
    fs: FileSystem | None = None,
) -> Iterator[Chunk]:
    """See storage.read_split; `plan` is the value that KafkaSplitter.plan puts into a split."""
    wanted = frozenset(columns) & frozenset(COMMON_COLUMNS)
    gathered = _Gathered(wanted, on_damage)
    disk = fs or FollowingFileSystem()
    if on_damage is not None:
        disk = SkippingFileSystem(disk)
    for piece in cast("Sequence[SegmentRange]", plan):
        for batch in _visible(disk, piece, check_crcs, on_damage):
            if gathered.is_full(batch, piece):
                yield from gathered.take()
            gathered.add(batch, piece)
    yield from gathered.take()
    if on_damage is not None:
        for unread in unread_findings(disk):
            on_damage(unread)


def _visible(
    fs: FileSystem, piece: SegmentRange, check_crcs: bool, on_damage: Damage | None
) -> Iterator[StoredBatch]:
    """Yield the visible batches of a piece: in its range of offsets, no control batch and not aborted."""
    for batch in _good_batches(fs, piece, check_crcs, on_damage):
        header = batch.header
        if header.base_offset >= piece.end:
            return
        hidden = header.is_control or (piece.aborted is not None and piece.aborted.hides(batch))
        if header.last_offset >= piece.start and not hidden:
            yield batch
        if header.next_offset >= piece.end:
            return


def _good_batches(
    fs: FileSystem, piece: SegmentRange, check_crcs: bool, on_damage: Damage | None
) -> Iterator[StoredBatch]:
    try:
        file = _opened(fs, piece)
    except IoFailure as error:
        if on_damage is None:
            raise
        on_damage(_log(piece).finding("missing-file", "error", message=error.message))
        return
    reached = piece.next_offset
    try:
        for item in walk(
            file,
            position=piece.position,
            end=piece.end_position,
            next_offset=piece.next_offset,
            limit_offset=piece.limit_offset,
            chunk_bytes=CHUNK_BYTES,
            check_crcs=check_crcs,
        ):
            if isinstance(item, StoredBatch):
                reached = item.header.next_offset
                yield item
            elif item.next_offset is not None and item.next_offset <= piece.start:
                continue  # the damage is before the requested offsets
            elif on_damage is None:
                raise damaged(piece.path, item, next_good=piece.end)
            else:
                on_damage(gap_finding(_log(piece), item, file, offset=reached))
    finally:
        file.close()


def _opened(fs: FileSystem, piece: SegmentRange) -> File:
    """Open the file that was planned for. If a running server has replaced or deleted it since, it is there under
    another name for `file.delete.delay.ms`, also with the real broker. Raises IoFailure.
    """
    missing: IoFailure | None = None
    for path in (piece.path, piece.path.with_name(piece.path.name + DELETED)):
        try:
            file = fs.open(path)
        except IoFailure as error:
            if not is_missing(error):
                raise
            missing = missing or error
            continue
        if piece.file_bytes in (None, file.size()):
            return file
        file.close()
    message = "the log was compacted or deleted since the job planned its reads: run the job again"
    raise IoFailure(
        f"{piece.path}: {message}", path=str(piece.path), operation="open", errno=errno.ENOENT
    ) from missing


def _log(piece: SegmentRange) -> Log:
    return Log(
        path=piece.path,
        base_offset=piece.next_offset,
        size_bytes=piece.end_position,
        topic=piece.partition.topic,
        partition=piece.partition.partition,
        limit_offset=piece.end,  # the plan saw the log up to here: offsets missing below it are damage
    )


@dataclass(slots=True)
class _Part:
    """Bytes of the chunk: data[start:end]; `end` grows as adjacent batches are added."""

    data: bytes
    start: int
    end: int


class _Entry(NamedTuple):
    """A batch of the chunk: its records are the bytes [position, end) of the part with index `part`."""

    batch: StoredBatch
    piece: SegmentRange
    part: int
    position: int
    end: int


class _Gathered:
    """Batches gathered for one chunk."""

    def __init__(self, wanted: frozenset[str], on_damage: Damage | None) -> None:
        self._wanted = wanted
        self._on_damage = on_damage
        self._parts: list[_Part] = []
        self._entries: list[_Entry] = []
        self._size_bytes = 0

    def is_full(self, batch: StoredBatch, piece: SegmentRange) -> bool:
        """Return whether the chunk has to be yielded before `batch` is added, for one of these reasons:

        - It is full.
        - It is half full, and `batch` is in another buffer: the bytes of one buffer alone need no copy.
        - Its rows are only counted and the records of `batch` have to be decoded, or the other way round.
        """
        if not self._entries:
            return False
        last = self._entries[-1]
        if self._are_needed(batch, piece) != self._are_needed(last.batch, last.piece):
            return True
        elsewhere = self._parts[-1].data is not batch.data
        limit_bytes = CHUNK_BYTES // 2 if elsewhere and not batch.header.codec else CHUNK_BYTES
        return self._size_bytes >= limit_bytes

    def add(self, batch: StoredBatch, piece: SegmentRange) -> None:
        """Add a batch, unless compaction has removed all its records or it cannot be decoded (see `_judge`)."""
        if batch.header.count < 0 or batch.header.codec >= len(CODECS):
            self._judge(batch, piece)
            return
        data = batch.data
        start, end = batch.at + HEADER_SIZE, batch.at + batch.header.size_bytes
        if batch.header.codec and self._are_needed(batch, piece):
            try:
                data = decompress(batch.header.codec, data[start:end], DEFAULT_MAX_BYTES)
            except DataError:
                self._judge(batch, piece)
                return
            start, end = 0, len(data)
        if start == end and not batch.header.count:
            return
        if self._parts and self._parts[-1].data is data:
            self._parts[-1].end = end
        else:
            self._parts.append(_Part(data, start, end))
        self._entries.append(_Entry(batch, piece, len(self._parts) - 1, start, end))
        self._size_bytes += end - start

    def _are_needed(self, batch: StoredBatch, piece: SegmentRange) -> bool:
        """Return whether the records have to be decoded, for one of these reasons:

        - A column was requested.
        - The piece holds only a part of the batch, so the records in its range have to be counted.
        - Consumers see fewer records than the header counts, because offsets repeat.
        """
        header = batch.header
        whole = piece.start <= header.base_offset and header.next_offset <= piece.end
        return bool(self._wanted) or not whole or _repeats_offsets(batch)

    def _judge(self, batch: StoredBatch, piece: SegmentRange) -> None:
        """Raise Corrupt for the records of a batch with a right CRC, or report the damage if there is a callback."""
        error = _fault(batch)
        if self._on_damage is None:
            raise error
        self._on_damage(undecodable(batch, _log(piece), error))

    def take(self) -> Iterator[Chunk]:
        """Yield the chunk, unless it has no row, and start a new chunk. Bad batches are left out (see `_judge`)."""
        parts, entries = self._parts, self._entries
        self._parts, self._entries, self._size_bytes = [], [], 0
        while entries:
            if not self._are_needed(entries[0].batch, entries[0].piece):
                yield _counted(entries)
                return
            chunk = _make_chunk(parts, entries, self._wanted)
            if isinstance(chunk, Chunk):
                if chunk.rows:
                    yield chunk
                return
            for index in chunk:
                self._judge(entries[index].batch, entries[index].piece)
            entries = [entry for index, entry in enumerate(entries) if index not in chunk]


def _repeats_offsets(batch: StoredBatch) -> bool:
    """Return whether the second record's offset is not above the first record's. Also True for undecodable bytes.

    Old producers wrote all uncompressed batches in this way.
    """
    header = batch.header
    if header.codec or header.count < 2:
        return False
    position = batch.at + HEADER_SIZE
    try:
        length, start = decode_varint(batch.data, position)
        first, _ = decode_varint(batch.data, decode_varint(batch.data, start + 1)[1])
        _, start = decode_varint(batch.data, start + length)
        second, _ = decode_varint(batch.data, decode_varint(batch.data, start + 1)[1])
    except (IndexError, DataError):
        return True
    return second <= first


def _fault(batch: StoredBatch) -> Corrupt:
    """Return the decoder's error for a batch with invalid fields, or an error for a wrong length."""
    try:
        decoded(batch)
    except Corrupt as error:
        return error
    return Corrupt(
        f"{batch.path}: batch at position {batch.position} cannot be decoded: a length is wrong",
        kind="records",
        path=str(batch.path),
        position=batch.position,
        next_good_offset=batch.header.next_offset,
    )


def _make_chunk(
    parts: Sequence[_Part], entries: Sequence[_Entry], wanted: frozenset[str]
) -> Chunk | frozenset[int]:
    """Return the chunk of these batches; if the contents of some batches are wrong, their indexes instead."""
    data, shifts = _joined(parts)
    partitions, codes = _partitions(entries)
    figures = _figures(entries, shifts, codes)
    view = np.frombuffer(data, np.uint8)
    begins = np.array([entry.position + shifts[entry.part] for entry in entries], np.int64)
    starts, unfilled = find_starts(
        data, view, begins=begins, ends=figures.ends, counts=figures.counts
    )
    if unfilled:
        return frozenset(unfilled)
    rows, lying, odd = record_fields.read_rows(view, starts, figures)
    faulty = [index for index in odd.tolist() if not _is_decodable(entries[index].batch)]
    lying = np.union1d(lying, np.array(faulty, np.int64))
    columns: dict[str, Column] = {OFFSET: rows.offsets, TIMESTAMP: rows.times}
    if TIMESTAMP_TYPE in wanted:
        columns[TIMESTAMP_TYPE] = figures.is_append_time[rows.batch].astype(np.int64)
    if wanted & _OF_RECORDS:
        found, lying_there = _of_records(data, view, rows, wanted)
        columns |= found
        lying = np.union1d(lying, lying_there)
    if lying.size:
        return frozenset(lying.tolist())
    return Chunk(
        rows=len(rows.offsets),
        partitions=partitions,
        codes=None if codes is None else codes[rows.batch],
        columns={name: column for name, column in columns.items() if name in wanted},
    )


def _counted(entries: Sequence[_Entry]) -> Chunk:
    """Return a chunk without columns; its rows are counted from the headers of these batches."""
    partitions, codes = _partitions(entries)
    counts = [entry.batch.header.count for entry in entries]
    codes = None if codes is None else np.repeat(codes, counts)
    return Chunk(rows=sum(counts), partitions=partitions, codes=codes, columns={})


def _joined(parts: Sequence[_Part]) -> tuple[bytes, Sequence[int]]:
    """Return (the bytes of all parts, the shift of each part's positions). A single part is not copied."""
    if len(parts) == 1:
        return parts[0].data, [0]
    shifts = []
    size_bytes = 0
    for part in parts:
        shifts.append(size_bytes - part.start)
        size_bytes += part.end - part.start
    return b"".join(memoryview(part.data)[part.start : part.end] for part in parts), shifts


def _partitions(entries: Sequence[_Entry]) -> tuple[Sequence[TopicPartition], Numbers | None]:
    """Return (the partitions, the index of each batch's partition among them; None with one partition)."""
    places: dict[TopicPartition, int] = {}
    codes = [places.setdefault(entry.piece.partition, len(places)) for entry in entries]
    return list(places), None if len(places) == 1 else np.array(codes, np.int64)


def _is_decodable(batch: StoredBatch) -> bool:
    try:
        decoded(batch)
    except Corrupt:
        return False
    return True


def _figures(
    entries: Sequence[_Entry], shifts: Sequence[int], codes: Numbers | None
) -> BatchFigures:
    headers = np.array([entry.batch.header for entry in entries], np.int64)
    fields = dict(zip(BatchHeader._fields, headers.T, strict=True))
    return BatchFigures(
        counts=fields["count"],
        ends=np.array([entry.end + shifts[entry.part] for entry in entries], np.int64),
        base_offsets=fields["base_offset"],
        last_offset_deltas=fields["last_offset_delta"],
        base_times=fields["base_timestamp"],
        append_times=fields["max_timestamp"],
        is_append_time=fields["attributes"] & LOG_APPEND_TIME != 0,
        low=np.array([entry.piece.start for entry in entries], np.int64),
        high=np.array([entry.piece.end for entry in entries], np.int64),
        partitions=np.zeros(len(entries), np.int64) if codes is None else codes,
    )


def _of_records(
    data: bytes, view: Bytes, rows: Rows, wanted: frozenset[str]
) -> tuple[Mapping[str, Column], Numbers]:
    """Return (the columns that are stored in the records, the indexes of batches with wrong contents)."""
    (keys, at), bad_keys = record_fields.read_blobs(data, view, rows.at, rows.ends)
    (values, at), bad = record_fields.read_blobs(data, view, at, rows.ends)
    columns: dict[str, Column] = {KEY: keys, VALUE: values}
    bad |= bad_keys | record_fields.no_headers_fit(view, at, rows.ends)
    if wanted & _OF_HEADERS:
        headers, bad_headers = record_fields.read_headers(data, view, at, rows.ends)
        bad |= bad_headers
        columns[HEADERS] = headers
        columns[TAG] = record_fields.last_named(headers, TAGS_HEADER.encode())
        columns[KEYS] = record_fields.last_named(headers, KEYS_HEADER.encode())
    return columns, rows.batch[bad]
