"""A map of a small store: for each byte its file, its field, and the records that contain it.

Owns that map for both backends, drawn from the layouts of the formats; must not open a store.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, repeat
from typing import NamedTuple, TypeAlias

from storage import TopicPartition
from storage.kafka.format.batch import decode_header, decode_records
from storage.kafka.format.names import parse_partition_dir
from storage.rocketmq.format.message import (
    MAGIC_PADDING,
    PADDING_SIZE,
    decode_message,
    peek,
)
from storage.rocketmq.format.queue_entry import UNIT_SIZE
from tests.robustness.fuzz.tiny import TinyStore
from tests.unit.rocketmq.workshop import SMALL

Spans: TypeAlias = Sequence[tuple[str, int]]
"""Consecutive fields: name and size in bytes."""

BATCH: Spans = (("base offset", 8), ("length", 4), ("leader epoch", 4), ("magic", 1), ("crc", 4))
RECORD: Spans = (
    *(("size", 4), ("magic", 4), ("body crc", 4), ("queue id", 4), ("flag", 4)),
    *(("queue offset", 8), ("physical offset", 8), ("sys flag", 4), ("born timestamp", 8)),
    *(("born host", 8), ("store timestamp", 8), ("store host", 8), ("reconsume times", 4)),
    *(("prepared offset", 8), ("body length", 4)),
)
ENTRIES: dict[str, Spans] = {
    ".index": (("relative offset", 4), ("position", 4)),
    ".timeindex": (("timestamp", 8), ("relative offset", 4)),
    ".txnindex": (
        *(("version", 2), ("producer id", 8), ("first offset", 8), ("last offset", 8)),
        ("stable offset", 8),
    ),
}
UNIT: Spans = (("physical offset", 8), ("size", 4), ("tags code", 8))
INDEX_HEADER: Spans = (
    *(("begin timestamp", 8), ("end timestamp", 8), ("begin offset", 8), ("end offset", 8)),
    *(("slot count", 4), ("entry count", 4)),
)
INDEX_ENTRY: Spans = (("hash", 4), ("physical offset", 8), ("time difference", 4), ("previous", 4))
CHECKPOINT: Spans = (
    *(("physic timestamp", 8), ("logics timestamp", 8), ("index timestamp", 8)),
    *(("master offset", 8), ("confirm offset", 8), ("logics offset", 8)),
)


Address: TypeAlias = tuple[TopicPartition, int]
"""The address of a record: its partition and offset."""


class Place(NamedTuple):
    """One byte: its file below the root, its position, `KIND: FIELD`, and the records that contain it."""

    file: str
    position: int
    field: str
    rows: frozenset[Address] = frozenset()


def log_places(store: TinyStore) -> Mapping[Address, tuple[str, int]]:
    """Return where each record begins: the log file (file names sort in log order) and the position in it."""
    found: dict[Address, tuple[str, int]] = {}
    for place in places(store):
        if place.field.startswith((".log", "commitlog")):
            for row in place.rows:
                found.setdefault(row, (place.file, place.position))
    return found


def named(spans: Spans) -> Iterator[str]:
    """Yield the field name of every byte."""
    return chain.from_iterable(repeat(name, size) for name, size in spans)


def places(store: TinyStore) -> Iterator[Place]:
    """Yield every byte of the store that has a meaning.

    Of unwritten zeros, yield the first and the last of each file.
    """
    for file, data in store.files().items():
        found = list((_kafka if store.backend == "kafka" else _rocketmq)(file, data))
        free = [place for place in found if place.field.endswith(": free")]
        yield from (place for place in found if place not in free[1:-1])


def _plain(
    file: str, data: bytes, kind: str, fields: Iterable[str], *, start: int = 0
) -> Iterator[Place]:
    """Yield every byte from `start` on; bytes after the last field are named "free"."""
    names = chain(fields, repeat("free"))
    for position, name in zip(range(start, len(data)), names, strict=False):
        yield Place(file, position, f"{kind}: {name}")


# ---- Kafka -----------------------------------------------------------------------------------------------------------


def _kafka(file: str, data: bytes) -> Iterator[Place]:
    suffix = file[file.rfind(".") :] if file.rpartition("/")[2][:20].isdigit() else ""
    if suffix == ".log":
        return _batches(file, data)
    if suffix in ENTRIES:
        content = len(data.rstrip(b"\0"))
        spans = ENTRIES[suffix]
        size = sum(size for _, size in spans)
        count = -(-content // size)
        return _plain(file, data, suffix, chain.from_iterable(named(spans) for _ in range(count)))
    kind = suffix or file.rpartition("/")[2]
    return _plain(file, data, kind, repeat("text"))


def _batches(file: str, data: bytes) -> Iterator[Place]:
    address = parse_partition_dir(file.partition("/")[0])
    assert address is not None
    at = 0
    while at < len(data):
        header = decode_header(data, at)
        rows = frozenset((address, record[0]) for record in decode_records(data, at))
        names = chain(named(BATCH), repeat("covered"))
        for position, name in zip(range(at, at + header.size_bytes), names, strict=False):
            yield Place(file, position, f".log: {name}", rows)
        at += header.size_bytes


# ---- RocketMQ --------------------------------------------------------------------------------------------------------


def _rocketmq(file: str, data: bytes) -> Iterator[Place]:
    folder = file.partition("/")[0]
    if folder == "commitlog":
        return _records(file, data)
    if folder == "consumequeue":
        return _units(file, data)
    if folder == "index":
        count = _entry_count(data)
        slots = (("slot", 4 * int(SMALL["maxHashSlotNum"])), ("entry 0", 20))
        entries = chain.from_iterable(named(INDEX_ENTRY) for _ in range(count - 1))
        return _plain(file, data, "index", chain(named(INDEX_HEADER), named(slots), entries))
    if folder == "checkpoint":
        return _plain(file, data, folder, named(CHECKPOINT))
    return _plain(file, data, file, repeat("text"))


def _entry_count(data: bytes) -> int:
    """Return the number of the next entry of an index file."""
    return max(int.from_bytes(data[36:40]), 1)


def _records(file: str, data: bytes) -> Iterator[Place]:
    at = 0
    while at < len(data):
        size, magic = peek(data, at) if at + PADDING_SIZE <= len(data) else (0, 0)
        if size == 0 or magic == MAGIC_PADDING:
            spans: Spans = (("padding size", 4), ("padding magic", 4)) if size else ()
            yield from _plain(file, data, "commitlog", named(spans), start=at)
            return
        one = decode_message(data, at)
        row = frozenset({(TopicPartition(one.topic, one.queue_id), one.queue_offset)})
        spans = (
            *RECORD,
            *(("body", len(one.body)), ("topic length", 1), ("topic", len(one.topic))),
            *(("properties length", 2), ("properties", len(one.properties))),
        )
        for position, name in zip(range(at, at + size), named(spans), strict=True):
            yield Place(file, position, f"commitlog: {name}", row)
        at += size


def _units(file: str, data: bytes) -> Iterator[Place]:
    _, topic, queue, base = file.split("/")
    address = TopicPartition(topic, int(queue))
    count = -(-len(data.rstrip(b"\0")) // UNIT_SIZE)
    units = chain.from_iterable(named(UNIT) for _ in range(count))
    for place in _plain(file, data, "consumequeue", units):
        row = address, (int(base) + place.position) // UNIT_SIZE
        yield place._replace(rows=frozenset({row})) if place.position < count * UNIT_SIZE else place
