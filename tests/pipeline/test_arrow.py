"""Chunks as Arrow record batches, value by value."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import pytest

from storage import Chunk, TopicPartition, columns
from storage.errors import UnrepresentableRecord

pytestmark = pytest.mark.spark  # needs Arrow

A0, B3 = TopicPartition("a", 0), TopicPartition("b", 3)


def slices(values: Sequence[bytes | None], *, gap: bytes = b"?") -> columns.Slices:
    """Return the values with gaps between them, the later values first: the order within the data is free."""
    import numpy as np

    data, starts = gap, dict[int, int]()
    for row in reversed(range(len(values))):
        starts[row] = len(data)
        data += (values[row] or b"") + gap
    lengths = [-1 if value is None else len(value) for value in values]
    ordered = [starts[row] for row in range(len(values))]
    return columns.Slices(data, np.array(ordered, np.int64), np.array(lengths, np.int64))


def named(rows: Sequence[Sequence[tuple[bytes, bytes | None]]]) -> columns.Named:
    import numpy as np

    flat = [pair for row in rows for pair in row]
    return columns.Named(
        np.array([len(row) for row in rows], np.int64),
        slices([name for name, _ in flat]),
        slices([value for _, value in flat]),
    )


def rows_of(chunk: Chunk, ddl: str, **how: Any) -> list[dict[str, Any]]:
    """Return the rows that Spark would receive."""
    from pyspark.sql.pandas.types import to_arrow_schema
    from pyspark.sql.types import StructType

    from logserver.pipeline.read.arrow import record_batch

    names: list[tuple[str, Any]] = [_typed(column) for column in ddl.split(", ")]
    schema = StructType()
    for name, kind in names:
        schema.add(name, kind)
    batch = record_batch(chunk, to_arrow_schema(schema, timezone="UTC"), **how)
    batch.validate(full=True)
    rows: list[dict[str, Any]] = batch.to_pylist()
    return rows


def _typed(name: str) -> tuple[str, Any]:
    from pyspark.sql import types

    from logserver.pipeline.read.schema import COLUMNS

    text = types.StringType()
    pair = types.StructType().add("key", text).add("value", types.BinaryType())
    known = {
        "array<struct<key:string,value:binary>>": types.ArrayType(pair),
        "map<string,string>": types.MapType(text, text),
        "array<string>": types.ArrayType(text),
    }
    kind = {small.lower(): column.type for small, column in COLUMNS.items()}[name.lower()]
    simple = {
        "binary": types.BinaryType(),
        "string": text,
        "int": types.IntegerType(),
        "bigint": types.LongType(),
        "timestamp": types.TimestampType(),
    }
    return name, {**simple, **known}[kind]


def chunk_of(rows: int, codes: Sequence[int] | None = None, **found: Any) -> Chunk:
    import numpy as np

    arrays = {
        name: np.array(value, np.int64) if isinstance(value, list) else value
        for name, value in found.items()
    }
    return Chunk(
        rows=rows,
        partitions=[A0, B3],
        codes=None if codes is None else np.array(codes, np.int64),
        columns=arrays,
    )


def test_the_columns_of_the_kafka_source() -> None:
    chunk = chunk_of(
        3,
        [0, 1, 0],
        key=slices([b"k", None, b""]),
        value=slices([b"one", b"\xff\x00", None]),
        offset=[5, 0, 7],
        timestamp_ms=[0, -1, 1_700_000_000_123],
        timestamp_type=[0, 1, 0],
        headers=named([[(b"h", b"v"), (b"h", None)], [], [(b"\xff", b"")]]),
    )
    names = "key, value, topic, partition, offset, timestamp, timestampType, headers"
    rows = rows_of(chunk, names)
    assert [tuple(row.values()) for row in rows] == [
        (b"k", b"one", "a", 0, 5, at(0), 0, [hd("h", b"v"), hd("h", None)]),
        (None, b"\xff\x00", "b", 3, 0, at(-1), 1, None),
        (b"", None, "a", 0, 7, at(1_700_000_000_123), 0, [hd("\ufffd", b"")]),
    ]
    assert list(rows[0]) == names.split(", ")


def at(ms: int) -> datetime:
    return datetime.fromtimestamp(ms // 1000, UTC).replace(microsecond=ms % 1000 * 1000)


def hd(key: str, value: bytes | None) -> dict[str, Any]:
    return {"key": key, "value": value}


def test_the_columns_of_a_message() -> None:
    chunk = chunk_of(
        2,
        tag=slices([b"t", None]),
        keys=slices([b" k1  k2 ", b""]),
        properties=named([[(b"A", b"1"), (b"B", b"")], []]),
        message_id=slices([b"id0", b"id1"]),
        store_timestamp_ms=[1, 2],
        timestamp_ms=[3, 4],
        physical_offset=[0, 1 << 40],
        sys_flag=[8, 0],
        born_host=slices([b"1.2.3.4:5", None]),
    )
    names = (
        "tag, keys, properties, message_id, store_timestamp, born_timestamp, physical_offset, "
        "sys_flag, born_host, topic"
    )
    assert [tuple(row.values()) for row in rows_of(chunk, names)] == [
        ("t", ["k1", "k2"], [("A", "1"), ("B", "")], "id0", at(1), at(3), 0, 8, "1.2.3.4:5", "a"),
        (None, None, [], "id1", at(2), at(4), 1 << 40, 0, None, "a"),
    ]


def test_a_users_names_are_kept() -> None:
    (row,) = rows_of(chunk_of(1, offset=[3]), "OFFSET, Partition")
    assert row == {"OFFSET": 3, "Partition": 0}


def test_no_rows() -> None:
    chunk = chunk_of(0, key=slices([]), headers=named([]), timestamp_ms=[])
    assert rows_of(chunk, "key, headers, timestamp, topic") == []


def test_text_that_is_none_spoils_only_itself() -> None:
    chunk = chunk_of(3, tag=slices([b"gut", b"\xc3", None]))
    assert [row["tag"] for row in rows_of(chunk, "tag")] == ["gut", "\ufffd", None]


def test_a_time_that_spark_cannot_hold() -> None:
    chunk = chunk_of(2, offset=[8, 9], timestamp_ms=[5, 1 << 62])
    with pytest.raises(UnrepresentableRecord, match="the record at offset 9 of a-0 has the time"):
        rows_of(chunk, "timestamp, offset")
    (first, second) = rows_of(chunk, "timestamp", permissive=True)
    assert (first["timestamp"], second["timestamp"]) == (at(5), None)
