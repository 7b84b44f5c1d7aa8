"""Kafka -> RocketMQ in parts, side by side: each part writes one file of the log, a range of the log's order.

Owns how the order is cut and the work of a part; must not know the rule for a record (`mapping`). The log is ordered by
(time, number of the partition, offset). A record's time is the maximum of its own time and of all earlier times in its
partition.

    survey   splits of one partition each: a mark every STEP bytes; the position of a mark in the order depends
             on the splits before it only by a maximum and two sums, which are combined on the driver
    cut      ranges from mark to mark that always fit in a file
    write    MADE/part-2-ID/commitlog/00000000002147483648: every partition is read from its last mark before
             the range on; records inside the range are written
    then     MADE/commitlog/00000000002147483648, by rename, for parts whose results arrived

The rest of each file except the last is padding. A part that is done twice has one folder per run.
"""

from __future__ import annotations

import heapq
import secrets
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Final, NamedTuple

from storage.columns import (
    HEADERS,
    KEY,
    OFFSET,
    TIMESTAMP,
    TIMESTAMP_TYPE,
    VALUE,
    Chunk,
    Named,
    OffsetRange,
    Slices,
    Split,
    Splitter,
)
from storage.contract import Clock, TaskRunner
from storage.conversion.counters import Fates
from storage.conversion.log_order import (
    OrderKey,
    QueuedRecord,
    TargetQueue,
    Written,
    write_merged,
)
from storage.conversion.records import KafkaRecord
from storage.conversion.request import Order
from storage.conversion.rocketmq_writer import LogWriter, size_of
from storage.errors import UnrepresentableRecord
from storage.files import FileSystem, FollowingFileSystem
from storage.kafka.columns.read import read_split
from storage.kafka.columns.splits import open_splitter
from storage.model import Finding, Header, Isolation, OffsetBounds, TopicPartition
from storage.rocketmq.format import names
from storage.rocketmq.format.message import PADDING_SIZE

PART: Final = "part-"
WHAT: Final = "converting"
LOOKING: Final = "looking at times and sizes"
FAR: Final = 1 << 62  # bytes; so large that a range of a partition is one split
_COLUMNS: Final = (KEY, VALUE, OFFSET, TIMESTAMP, TIMESTAMP_TYPE, HEADERS)
LEAST_STEP_BYTES: Final = 4 << 10
STEPS: Final = 8  # per file, for each partition


BEGIN: Final = OrderKey(-1, -1, -1)
END: Final = OrderKey(1 << 63, -1, -1)


class KeptRecord(NamedTuple):
    """A kept record and the state before it: within its split after the survey, within its partition after
    `in_order`.
    """

    place: OrderKey
    latest_ms: int  # the latest time before it; 0: none
    kept: int
    size_bytes: int  # bytes from this record to the next mark


# ---- survey --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class SurveyPart:
    """A part of the survey: one split of a partition."""

    queue: TargetQueue
    split: Split
    step_bytes: int


@dataclass(slots=True)
class Surveyed:
    """The marks of a split, its latest time, and the number of its kept records."""

    number: int
    marks: list[KeptRecord] = field(default_factory=list)
    latest_ms: int = 0
    kept: int = 0
    fates: Fates = field(default_factory=Fates)
    findings: list[Finding] = field(default_factory=list)


def survey(part: SurveyPart) -> Surveyed:
    """Survey one part. Memory: a chunk of the split, and one mark per step."""
    result = Surveyed(part.queue.number)
    records = records_of(part.split, result.findings)
    for place, queued in part.queue.messages(records, result.fates, next_offset=0):
        before_ms, result.latest_ms = result.latest_ms, place.time_ms
        size_bytes = size_of(part.queue.name, queued)
        if not result.marks or result.marks[-1].size_bytes + size_bytes > part.step_bytes:
            result.marks.append(KeptRecord(place, before_ms, result.kept, 0))
        last = result.marks[-1]
        result.marks[-1] = last._replace(size_bytes=last.size_bytes + size_bytes)
        result.kept += 1
    return result


def in_order(surveyed: Iterable[Surveyed]) -> Mapping[int, list[KeptRecord]]:
    """Return the marks of each partition, in order; the splits must come in the order of their offsets."""
    marks: dict[int, list[KeptRecord]] = {}
    latest: dict[int, int] = {}
    kept: dict[int, int] = {}
    for split in surveyed:
        number = split.number
        before_ms, before = latest.get(number, 0), kept.get(number, 0)
        for mark in split.marks:
            place = mark.place._replace(time_ms=max(mark.place.time_ms, before_ms))
            moved = mark._replace(place=place, latest_ms=max(mark.latest_ms, before_ms))
            marks.setdefault(number, []).append(moved._replace(kept=before + mark.kept))
        latest[number] = max(before_ms, split.latest_ms)
        kept[number] = before + split.kept
    return marks


# ---- cut -----------------------------------------------------------------------------------------


def cuts(marks: Mapping[int, Sequence[KeptRecord]], file_bytes: int) -> Sequence[OrderKey]:
    """Return the start of each range; a file can always hold a range. The first range starts at BEGIN.

    Raises UnrepresentableRecord if the steps are too long: then no file could hold one step of each partition.
    """
    room = file_bytes - PADDING_SIZE
    found: list[OrderKey] = []
    reaching: dict[int, int] = {}  # bytes from the last mark of each partition to the next
    most = room + 1
    for mark in heapq.merge(*marks.values()):
        number = mark.place.number
        if most + mark.size_bytes > room:
            found.append(mark.place if found else BEGIN)
            most = sum(size for other, size in reaching.items() if other != number)
            if most + mark.size_bytes > room:
                raise UnrepresentableRecord(
                    f"files of {file_bytes} bytes are too small for so many partitions: "
                    "use logserver convert, or larger ones (mappedFileSizeCommitLog)",
                    field="mappedFileSizeCommitLog",
                )
        most += mark.size_bytes
        reaching[number] = mark.size_bytes
    return found


# ---- write ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Stream:
    """A partition from a mark on: `next_offset` is the queue offset of the mark's record."""

    queue: TargetQueue
    splits: Sequence[Split]
    latest_ms: int
    next_offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FilePart:
    """A range of the log's order, and the file for it."""

    number: int
    begin: OrderKey
    end: OrderKey
    streams: Sequence[Stream]
    made: Path
    position: int
    file_bytes: int
    last: bool


@dataclass(slots=True)
class FileDone:
    """The result of a part: numbers, no records."""

    folder: str
    written: Written = field(default_factory=Written)


def write_file(part: FilePart) -> FileDone:
    """Write the file of one part. Memory: one chunk per partition."""
    fs = FollowingFileSystem()
    folder = part.made / f"{PART}{part.number}-{secrets.token_hex(8)}"
    fs.make_dir(folder)
    result = FileDone(folder.name)
    writer = LogWriter(fs, folder, part.file_bytes, position=part.position)
    try:
        write_merged(writer, [_inside(part, stream) for stream in part.streams], result.written)
        writer.finish(last=part.last)
    finally:
        writer.abandon()
    fs.sync_dir(folder / names.COMMIT_LOG)
    fs.sync_dir(folder)
    return result


def _inside(part: FilePart, stream: Stream) -> Iterator[QueuedRecord]:
    """Yield the messages of a partition inside the range, in order; no two positions are equal."""
    records = (record for split in stream.splits for record in records_of(split, []))
    messages = stream.queue.messages(
        records,
        Fates(),  # the survey has counted these records
        latest_ms=stream.latest_ms,
        next_offset=stream.next_offset,
    )
    for place, queued in messages:
        if place >= part.end:
            return
        if place >= part.begin:
            yield place, stream.queue, queued


def put_together(fs: FileSystem, made: Path, results: Iterable[FileDone]) -> None:
    """Move the files of these parts to their final paths in `made`."""
    target = made / names.COMMIT_LOG
    fs.make_dir(target)
    for done in results:
        source = made / done.folder / names.COMMIT_LOG
        for file in fs.list_dir(source):
            fs.rename(source / file, target / file)
    fs.sync_dir(target)
    for folder in [name for name in fs.list_dir(made) if name.startswith(PART)]:
        fs.remove_tree(made / folder)


# ---- the steps, where the whole store is visible -------------------------------------------------


class LogInParts:
    """A conversion of the committed records of a Kafka store. `run` does the parts."""

    def __init__(
        self,
        order: Order,
        queues: Sequence[TargetQueue],
        made: Path,
        bounds: Mapping[TopicPartition, OffsetBounds],
        run: TaskRunner,
        *,
        file_bytes: int,
    ) -> None:
        self._order = order
        self._made = made.absolute()
        self._bounds = bounds
        self._run = run
        self._file_bytes = file_bytes
        self._queues = queues
        self._done = Written()
        self._tell = order.options.progress

    def write(self, position: int, *, clock: Clock) -> Written:
        """Write the log from `position` on. Raises UnrepresentableRecord for files that are too small."""
        order = self._order
        splitter = open_splitter(order.source, order.options, fs=FollowingFileSystem(), clock=clock)
        try:
            marks = in_order(self._surveyed(list(self._surveys(splitter))))
            starts = [*cuts(marks, self._file_bytes), END]
            self._write_files(self._parts(splitter, marks, starts, position), len(starts) - 1)
        finally:
            splitter.close()
        return self._done

    def _plan(
        self, splitter: Splitter, address: TopicPartition, span: tuple[int, int], size_bytes: int
    ) -> Sequence[Split]:
        wanted = OffsetRange(address, *span)
        return splitter.plan([wanted], split_bytes=size_bytes, isolation=Isolation.READ_COMMITTED)

    # ---- survey --------------------------------------------------------------------------------

    def _surveys(self, splitter: Splitter) -> Iterator[SurveyPart]:
        least = LEAST_STEP_BYTES
        step_bytes = max(self._file_bytes // (STEPS * max(len(self._queues), 1)), least)
        for queue in self._queues:
            start, stable, _ = self._bounds[queue.source]
            for split in self._plan(
                splitter, queue.source, (start, stable), self._order.split_bytes
            ):
                yield SurveyPart(queue=queue, split=split, step_bytes=step_bytes)

    def _surveyed(self, parts: Sequence[SurveyPart]) -> Iterator[Surveyed]:
        for number, found in enumerate(self._run(survey, parts), 1):
            self._done.fates.take(found.fates)
            self._done.findings += found.findings
            self._tell(LOOKING, number, len(parts))
            yield found

    # ---- write ---------------------------------------------------------------------------------

    def _parts(
        self,
        splitter: Splitter,
        marks: Mapping[int, Sequence[KeptRecord]],
        starts: Sequence[OrderKey],
        position: int,
    ) -> Iterator[FilePart]:
        """Yield a part for each range; the splits of a range are planned when its part is requested."""
        for number, (begin, end) in enumerate(pairwise(starts)):
            yield FilePart(
                number=number,
                begin=begin,
                end=end,
                streams=[
                    stream
                    for queue in self._queues
                    for stream in self._stream(
                        splitter, queue, marks.get(queue.number, ()), (begin, end)
                    )
                ],
                made=self._made,
                position=position + number * self._file_bytes,
                file_bytes=self._file_bytes,
                last=number == len(starts) - 2,
            )

    def _stream(
        self,
        splitter: Splitter,
        queue: TargetQueue,
        marks: Sequence[KeptRecord],
        key_range: tuple[OrderKey, OrderKey],
    ) -> Iterator[Stream]:
        """Yield a partition from its last mark before a range to its first mark after the range; nothing if no record
        of it can be inside.
        """
        begin, end = key_range
        first = max(bisect_right(marks, begin, key=_place) - 1, 0)
        last = bisect_left(marks, end, key=_place)
        if first >= last:
            return
        start, stable, _ = self._bounds[queue.source]
        mark = marks[first]
        stop = marks[last].place.offset if last < len(marks) else stable
        yield Stream(
            queue=queue,
            splits=self._plan(splitter, queue.source, (mark.place.offset, stop), FAR),
            latest_ms=mark.latest_ms,
            next_offset=start + mark.kept,
        )

    def _write_files(self, parts: Iterator[FilePart], total: int) -> None:
        results = []
        for done in self._run(write_file, parts):
            results.append(done)
            self._done.take(done.written)
            self._tell(WHAT, len(results), total)
        put_together(FollowingFileSystem(), self._made, results)


def _place(mark: KeptRecord) -> OrderKey:
    return mark.place


# ---- the records of a split: rows made from its columns ------------------------------------------


def records_of(split: Split, findings: list[Finding]) -> Iterator[KafkaRecord]:
    """Yield the records of a split of one partition, by offset; damage is added to `findings`."""
    chunks = read_split(split.plan, _COLUMNS, check_crcs=True, on_damage=findings.append)
    for chunk in chunks:
        yield from _records(chunk)


def _records(chunk: Chunk) -> Iterator[KafkaRecord]:
    rows = zip(
        _numbers(chunk, OFFSET),
        _numbers(chunk, TIMESTAMP),
        _values(_slices(chunk, KEY)),
        _values(_slices(chunk, VALUE)),
        _headers(chunk),
        map(bool, _numbers(chunk, TIMESTAMP_TYPE)),
        strict=True,
    )
    return map(KafkaRecord._make, rows)


def _numbers(chunk: Chunk, name: str) -> list[int]:
    column = chunk.columns[name]
    assert not isinstance(column, Slices | Named)
    numbers: list[int] = column.tolist()
    return numbers


def _slices(chunk: Chunk, name: str) -> Slices:
    column = chunk.columns[name]
    assert isinstance(column, Slices)
    return column


def _values(column: Slices) -> Iterator[bytes | None]:
    data = column.data
    for start, length in zip(column.starts.tolist(), column.lengths.tolist(), strict=True):
        yield None if length < 0 else data[start : start + length]


def _headers(chunk: Chunk) -> Iterator[list[Header]]:
    column = chunk.columns[HEADERS]
    assert isinstance(column, Named)
    names, values = _values(column.names), _values(column.values)
    for count in column.counts.tolist():
        yield [((next(names) or b"").decode(), next(values)) for _ in range(count)]
