"""Kafka -> RocketMQ in parts, side by side: each part writes one file of the log, a range of the log's order.

Owns how the order is cut and the work of a part; must not know the rule for a record (`rule`). The log is ordered by
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
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

from storage.contract import Split
from storage.conversion import mapping
from storage.conversion.column_records import records_of
from storage.conversion.counters import Fates
from storage.conversion.records import KafkaRecord, Problem, QueuedMessage
from storage.conversion.rocketmq_log import LogWriter, check_size, size_of
from storage.errors import UnrepresentableRecord
from storage.files import FileSystem, FollowingFileSystem
from storage.model import Finding, TopicPartition
from storage.rocketmq.format import names
from storage.rocketmq.format.message import PADDING_SIZE

PART: Final = "part-"
MOVED: Final = "at another offset than before"
LEAST_STEP_BYTES: Final = 4 << 10
STEPS: Final = 8  # per file, for each partition


class OrderKey(NamedTuple):
    """A position in the order of the log."""

    time_ms: int
    number: int  # number of the partition
    offset: int


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Converted:
    """The arguments of converting a record of a partition. `name`: the topic's name in the target."""

    number: int
    address: TopicPartition
    name: str
    encode: bool
    file_bytes: int

    def message(
        self, record: KafkaRecord, latest_ms: int, fates: Fates
    ) -> tuple[QueuedMessage, Sequence[Problem]] | None:
        """Convert a record; return None (counted as left out) if it cannot be represented."""
        try:
            found = mapping.to_rocketmq(record, least_store_ms=latest_ms, encode=self.encode)
            check_size(self.name, found[0], self.file_bytes)
        except UnrepresentableRecord as error:
            told = str(error.facts().get("field", ""))
            fates.left_out.add(self.address, record.offset, told, error.message)
            return None
        return found


# ---- survey --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class SurveyPart:
    """A part of the survey: one split of a partition."""

    way: Converted
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
    found = Surveyed(part.way.number)
    way = part.way
    for record in records_of(part.split, found.findings):
        converted = way.message(record, found.latest_ms, found.fates)
        if converted is None:
            continue
        queued, problems = converted
        for problem in problems:
            found.fates.encoded.add(way.address, record.offset, problem.field, problem.problem)
        before_ms, found.latest_ms = (
            found.latest_ms,
            max(found.latest_ms, queued.store_timestamp_ms),
        )
        size_bytes = size_of(way.name, queued)
        if not found.marks or found.marks[-1].size_bytes + size_bytes > part.step_bytes:
            place = OrderKey(found.latest_ms, way.number, record.offset)
            found.marks.append(KeptRecord(place, before_ms, found.kept, 0))
        last = found.marks[-1]
        found.marks[-1] = last._replace(size_bytes=last.size_bytes + size_bytes)
        found.kept += 1
    return found


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

    way: Converted
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
    """The result of a part: numbers, no records. `ends`: next offsets of the queues."""

    folder: str
    counts: dict[TopicPartition, int] = field(default_factory=dict)
    ends: dict[TopicPartition, int] = field(default_factory=dict)
    fates: Fates = field(default_factory=Fates)


def write_file(part: FilePart) -> FileDone:
    """Write the file of one part. Memory: one chunk per partition."""
    fs = FollowingFileSystem()
    folder = part.made / f"{PART}{part.number}-{secrets.token_hex(8)}"
    fs.make_dir(folder)
    done = FileDone(folder.name)
    writer = LogWriter(fs, folder, part.file_bytes, position=part.position)
    try:
        for place, way, queued in heapq.merge(*(_stream(part, s) for s in part.streams)):
            writer.add(way.address._replace(topic=way.name), queued)
            done.counts[way.address] = done.counts.get(way.address, 0) + 1
            done.ends[way.address] = queued.offset + 1
            if place.offset != queued.offset:
                done.fates.moved.add(way.address, place.offset, "offset", MOVED)
        writer.finish(last=part.last)
    finally:
        writer.abandon()
    fs.sync_dir(folder / names.COMMIT_LOG)
    fs.sync_dir(folder)
    return done


def _stream(part: FilePart, stream: Stream) -> Iterator[tuple[OrderKey, Converted, QueuedMessage]]:
    """Yield the messages of a partition inside the range, in order; no two positions are equal."""
    way = stream.way
    latest_ms, next_offset = stream.latest_ms, stream.next_offset
    told = Fates()  # discarded: the survey has counted these records
    for split in stream.splits:
        for record in records_of(split, []):
            converted = way.message(record, latest_ms, told)
            if converted is None:
                continue
            queued, _ = converted
            latest_ms = max(latest_ms, queued.store_timestamp_ms)
            place = OrderKey(latest_ms, way.number, record.offset)
            if place >= part.end:
                return
            if place >= part.begin:
                yield place, way, queued._replace(offset=next_offset)
            next_offset += 1


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
