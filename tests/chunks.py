"""Conversion of column chunks to rows, for tests that compare chunks with other reads of a store."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from storage.columns import (
    HEADERS,
    KEY,
    KEYS,
    OFFSET,
    TAG,
    TIMESTAMP,
    TIMESTAMP_TYPE,
    VALUE,
    Chunk,
    Named,
    Slices,
)
from storage.model import StoredRecord, TopicPartition


class Row(NamedTuple):
    """One row of a chunk with all columns of a Kafka store."""

    partition: TopicPartition
    offset: int
    timestamp_ms: int
    timestamp_type: int
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]]
    tag: bytes | None
    keys: bytes | None


def values_of(slices: Slices) -> list[bytes | None]:
    """Return the values of a column of byte strings."""
    data, starts, lengths = slices
    assert isinstance(data, bytes)
    assert len(starts) == len(lengths)
    assert all(0 <= start <= len(data) for start in starts)
    pairs = zip(starts.tolist(), lengths.tolist(), strict=True)
    return [None if n < 0 else data[start : start + n] for start, n in pairs]


def lists_of(named: Named) -> list[list[tuple[str, bytes | None]]]:
    """Return the lists of a column of names and values."""
    pairs = zip(values_of(named.names), values_of(named.values), strict=True)
    found = [[next(pairs) for _ in range(count)] for count in named.counts.tolist()]
    assert next(pairs, None) is None
    return [
        [((name or b"").decode("utf-8", "replace"), value) for name, value in row] for row in found
    ]


def columns_of(chunk: Chunk) -> dict[str, list[Any]]:
    """Return the chunk's columns as lists, each as long as the chunk."""
    found: dict[str, list[Any]] = {}
    for name, column in chunk.columns.items():
        if isinstance(column, Slices):
            found[name] = values_of(column)
        else:
            found[name] = lists_of(column) if isinstance(column, Named) else column.tolist()
        assert len(found[name]) == chunk.rows
    return found


def partitions_of(chunk: Chunk) -> list[TopicPartition]:
    """Return the partition of each row."""
    codes = [0] * chunk.rows if chunk.codes is None else chunk.codes.tolist()
    assert len(codes) == chunk.rows
    return [chunk.partitions[code] for code in codes]


def rows_of(chunks: Iterable[Chunk]) -> Iterator[Row]:
    """Yield the rows of chunks that have all columns of a Kafka store."""
    for chunk in chunks:
        assert chunk.rows > 0
        columns = columns_of(chunk)
        for partition, *fields in zip(
            partitions_of(chunk),
            columns[OFFSET],
            columns[TIMESTAMP],
            columns[TIMESTAMP_TYPE],
            columns[KEY],
            columns[VALUE],
            columns[HEADERS],
            columns[TAG],
            columns[KEYS],
            strict=True,
        ):
            yield Row(partition, *fields)


def stored_row(partition: TopicPartition, record: StoredRecord) -> Row:
    """Return the row expected for a record of a Kafka store."""
    named = {name: value for name, value in record.headers if value is not None}
    return Row(
        partition,
        record.offset,
        record.timestamp_ms,
        ("CreateTime", "LogAppendTime").index(record.timestamp_type),
        record.key,
        record.value,
        list(record.headers),
        named.get("TAGS"),
        named.get("KEYS"),
    )
