"""The records of a split of a Kafka store, built from its columns.

Owns that one step; must not know how the records are used. Memory: one chunk.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from storage.contract import (
    HEADERS,
    KEY,
    OFFSET,
    TIMESTAMP,
    TIMESTAMP_TYPE,
    VALUE,
    Chunk,
    Named,
    Slices,
    Split,
)
from storage.conversion.records import KafkaRecord
from storage.kafka.columns.read import read_split
from storage.model import Finding, Header

_COLUMNS: Final = (KEY, VALUE, OFFSET, TIMESTAMP, TIMESTAMP_TYPE, HEADERS)


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
