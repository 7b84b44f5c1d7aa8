"""RocketMQ -> Kafka in parts, side by side: each part is a split of the source, and writes its own segments.

Owns the work of a part, and how the results of parts become one directory; must not know the rule for a record
(`mapping`). A part needs no data of the other parts: queue offsets become the offsets, so a piece of a partition is
named by its first offset.

    part 3 -> MADE/part-3-ID/orders-0/00000000000000012000.log     durable when the part is done
    then     MADE/orders-0/00000000000000012000.log                by rename, for parts whose results arrived

A part that is done twice (a retried task) has one folder per run; one of them counts.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Final

from storage.columns import OFFSET, RECORD, Named, OffsetRange, ReadSplit, Slices, Split
from storage.contract import Clock
from storage.conversion.counters import Fates
from storage.conversion.kafka_writer import (
    PartitionWriter,
    PieceOfPartition,
    SegmentWriter,
    offsets_meet,
    settings_for,
)
from storage.conversion.records import QueuedMessage
from storage.conversion.request import Order
from storage.conversion.sources import queued
from storage.files import FileSystem, FollowingFileSystem
from storage.kafka.format.names import partition_dir_name
from storage.model import Finding, TopicPartition
from storage.rocketmq.columns.read import read_split
from storage.rocketmq.columns.split_plan import open_splitter
from storage.rocketmq.format.message import decode_message

PART: Final = "part-"
_READ: Final[ReadSplit] = read_split  # type: ignore[assignment]  # a split of RocketMQ's has its plan


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentsPart:
    """A part: one split, and the folder for its segments. `names`: the topics' names in the target."""

    number: int
    split: Split
    made: Path
    names: Mapping[str, str]
    settings: Mapping[str, str]


@dataclass(slots=True)
class SegmentsDone:
    """The result of a part: numbers and findings, no records."""

    folder: str
    pieces: Sequence[PieceOfPartition] = ()
    fates: Fates = field(default_factory=Fates)
    findings: list[Finding] = field(default_factory=list)

    @classmethod
    def begun(cls, what: str = "compacted") -> SegmentsDone:
        """Return the result of a part that has written nothing yet, with a folder name of its own."""
        return cls(f"{PART}{what}-{secrets.token_hex(8)}")


def plan(
    order: Order,
    ranges: Sequence[OffsetRange],
    *,
    made: Path,
    names: Mapping[str, str],
    clock: Clock,
) -> Sequence[SegmentsPart]:
    """Return the parts that together contain every message of the ranges once, in the order of the log."""
    splitter = open_splitter(order.source, order.options, fs=FollowingFileSystem(), clock=clock)
    try:
        splits = splitter.plan(ranges, split_bytes=order.split_bytes)
    finally:
        splitter.close()
    settings = order.target_options.settings
    return [
        SegmentsPart(number=n, split=split, made=made.absolute(), names=names, settings=settings)
        for n, split in enumerate(splits)
    ]


def write_segments(part: SegmentsPart) -> SegmentsDone:
    """Write the segments of one part. Memory: a chunk of the split, and for each of its partitions a batch and a write
    buffer.
    """
    fs = FollowingFileSystem()
    done = SegmentsDone.begun(str(part.number))
    messages = _messages(part.split, done.findings)
    return write_messages(
        fs, part.made, messages, names=part.names, settings=part.settings, done=done
    )


def write_messages(
    fs: FileSystem,
    made: Path,
    messages: Iterable[tuple[TopicPartition, QueuedMessage]],
    *,
    names: Mapping[str, str],
    settings: Mapping[str, str],
    done: SegmentsDone | None = None,
) -> SegmentsDone:
    """Write segments with messages. `done`: the result that has the findings of these messages."""
    done = done or SegmentsDone.begun()
    folder = made / done.folder
    fs.make_dir(folder)
    writers: dict[TopicPartition, PartitionWriter] = {}
    try:
        for address, message in messages:
            if address not in writers:
                target = address._replace(topic=names[address.topic])
                segments = SegmentWriter(fs, folder, target, settings_for(target.topic, settings))
                writers[address] = PartitionWriter(segments, address, may_move=False)
            writers[address].add(message, done.fates)
        for writer in writers.values():
            writer.segments.finish()
    finally:
        for writer in writers.values():
            writer.segments.abandon()
    done.pieces = [writer.piece() for writer in writers.values() if writer.records]
    for address, *_ in done.pieces:
        fs.sync_dir(folder / partition_dir_name(names[address.topic], address.partition))
    fs.sync_dir(folder)
    return done


def _messages(
    split: Split, findings: list[Finding]
) -> Iterator[tuple[TopicPartition, QueuedMessage]]:
    """Yield the messages of a split; damage is added to `findings`."""
    for chunk in _READ(split.plan, [RECORD, OFFSET], check_crcs=True, on_damage=findings.append):
        records, offsets = chunk.columns[RECORD], chunk.columns[OFFSET]
        assert isinstance(records, Slices)
        assert not isinstance(offsets, Slices | Named)
        codes = [0] * chunk.rows if chunk.codes is None else chunk.codes.tolist()
        rows = zip(codes, offsets.tolist(), records.starts.tolist(), strict=True)
        for code, offset, start in rows:
            message = decode_message(records.data, start, check_crc=False)
            yield chunk.partitions[code], queued(message, offset)


def put_together(
    fs: FileSystem, made: Path, names: Mapping[str, str], results: Iterable[SegmentsDone]
) -> Mapping[TopicPartition, Sequence[PieceOfPartition]]:
    """Move the segments of these parts to their final paths in `made`; return the pieces of each partition, by offset.

    Raises NotOffered if pieces of a partition overlap.
    """
    found: dict[TopicPartition, list[PieceOfPartition]] = {}
    for done in results:
        for piece in done.pieces:
            found.setdefault(piece.address, []).append(piece)
            name = partition_dir_name(names[piece.address.topic], piece.address.partition)
            fs.make_dir(made / name)
            for file in fs.list_dir(made / done.folder / name):
                fs.rename(made / done.folder / name / file, made / name / file)
    for address, pieces in found.items():  # in the order of the parts and of the log
        if any(after.first < before.end for before, after in pairwise(pieces)):
            raise offsets_meet(address)
    for folder in [name for name in fs.list_dir(made) if name.startswith(PART)]:
        fs.remove_tree(made / folder)
    return found
