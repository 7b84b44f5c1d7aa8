"""Splits and chunks as the tests compare them: rows of plain values.

Owns the conversion of columns to rows, one value at a time and without numpy; must not know a backend.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any

from storage import OffsetRange, Split, Splitter, read_split
from storage.columns import COMMON_COLUMNS, MESSAGE_COLUMNS, Chunk, Damage, Named, Slices
from storage.model import TopicPartition

ALL_COLUMNS = (*COMMON_COLUMNS, *MESSAGE_COLUMNS)
Row = dict[str, Any]


def everything(splitter: Splitter) -> list[OffsetRange]:
    """Return all offsets of all partitions."""
    found = ((p, splitter.bounds(p)) for p in splitter.partitions())
    return [OffsetRange(partition, bounds.start, bounds.end) for partition, bounds in found]


def rows_of(chunk: Chunk) -> Iterator[tuple[TopicPartition, Row]]:
    """Yield the rows of a chunk, each with its partition."""
    codes = [0] * chunk.rows if chunk.codes is None else chunk.codes.tolist()
    columns = {name: _values(column) for name, column in chunk.columns.items()}
    assert len(codes) == chunk.rows
    assert [name for name, values in columns.items() if len(values) != chunk.rows] == []
    for row, code in enumerate(codes):
        yield chunk.partitions[code], {name: values[row] for name, values in columns.items()}


def _values(column: Any) -> Sequence[Any]:
    if isinstance(column, Slices):
        return _texts(column)
    if isinstance(column, Named):
        pairs = zip(_texts(column.names), _texts(column.values), strict=True)
        return [[next(pairs) for _ in range(count)] for count in column.counts.tolist()]
    numbers: list[int] = column.tolist()
    return numbers


def _texts(column: Slices) -> list[bytes | None]:
    places = zip(column.starts.tolist(), column.lengths.tolist(), strict=True)
    found = []
    for start, length in places:
        assert 0 <= start <= start + max(length, 0) <= len(column.data)
        found.append(None if length < 0 else column.data[start : start + length])
    return found


def read_rows(
    splits: Iterable[Split],
    columns: Collection[str] = ALL_COLUMNS,
    *,
    check_crcs: bool = True,
    on_damage: Damage | None = None,
) -> dict[TopicPartition, list[Row]]:
    """Return the rows of splits, read one after another, by partition. The rows of a split must be in offset order."""
    found: dict[TopicPartition, list[Row]] = {}
    for split in splits:
        of_split: dict[TopicPartition, list[Row]] = {}
        for chunk in read_split(split, columns, check_crcs=check_crcs, on_damage=on_damage):
            for partition, row in rows_of(chunk):
                of_split.setdefault(partition, []).append(row)
        for partition, rows in of_split.items():
            offsets = [row["offset"] for row in rows]
            assert offsets == sorted(offsets), partition
            found.setdefault(partition, []).extend(rows)
    return found
