"""Conversion of Arrow record batches to records, grouped by topic and partition, whole columns at a time.

Owns the partition of each row and the conversion of columns to values; must not encode or write. Batches are collected
to some megabytes and sorted by partition; the rows of a partition keep their order. Memory is bounded by a few times
CHUNK_BYTES. The partition of a row is, in this order:
- the partition that the row names;
- a partition by the row's key, as Kafka's producers choose it;
- one partition for all keyless rows of the chunk, which advances with each chunk, beginning at the task's number.

So a task that runs again sends every row to the same partition as before.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import repeat
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from logserver.pipeline.write.properties import Parts, with_properties
from storage import Header, Record, TopicPartition, partitions_for_keys
from storage.errors import InvalidArgument, UnknownPartition

Numbers: TypeAlias = np.ndarray[Any, Any]

CHUNK_BYTES: Final = 8 << 20
CHUNK_ROWS: Final = 100_000
ROW_BYTES: Final = 70  # approximate size of a record without its key and value
_MICROSECONDS: Final = 1000  # in a millisecond


class Rows(NamedTuple):
    """The records of one piece for one partition, in order."""

    partition: TopicPartition
    records: list[Record]


@dataclass
class Placing:
    """The choice of partitions: `numbers` of the existing topics, `new_numbers` of other topics."""

    columns: Mapping[str, int]
    topic: str | None
    numbers: Mapping[str, Sequence[int]]
    new_numbers: Sequence[int]
    task: int
    met: dict[str, int] = field(default_factory=dict)
    """The topics that rows went to, with the number of partitions assumed for each."""
    _turn: int = 0

    def rows(self, batches: Iterable[pa.RecordBatch], run_bytes: int) -> Iterator[Rows]:
        """Yield all rows of a task, by partition, in pieces of about `run_bytes` bytes.

        Raises InvalidArgument for a row without a topic, UnknownPartition.
        """
        for chunk in _chunks(batches):
            columns = {name: chunk.column(at) for name, at in self.columns.items()}
            for partition, taken in self._placed(chunk.num_rows, columns):
                for start, stop in _pieces(taken, run_bytes):
                    piece = {n: c.slice(start, stop - start) for n, c in taken.items()}
                    yield Rows(partition, to_records(piece, stop - start))
            self._turn += 1

    def _placed(
        self, rows: int, columns: Mapping[str, pa.Array]
    ) -> Iterator[tuple[TopicPartition, Mapping[str, pa.Array]]]:
        """Yield each partition with the columns of its rows."""
        topics, codes = self._topics(rows, columns)
        numbers = self._numbers(rows, columns, topics, codes)
        order = np.lexsort((numbers, codes))  # stable: a partition's rows keep their order
        where = np.stack((codes[order], numbers[order]))
        borders = np.flatnonzero(np.any(where[:, 1:] != where[:, :-1], axis=0)) + 1
        kept = {n: c for n, c in columns.items() if n not in ("topic", "partition")}
        if len(borders):
            kept = {name: column.take(pa.array(order)) for name, column in kept.items()}
        starts = [0, *borders.tolist()]
        for start, stop in zip(starts, [*starts[1:], rows], strict=True):
            address = TopicPartition(topics[where[0, start]], int(where[1, start]))
            yield address, {n: c.slice(start, stop - start) for n, c in kept.items()}

    def _topics(self, rows: int, columns: Mapping[str, pa.Array]) -> tuple[Sequence[str], Numbers]:
        """Return the topics, and for each row the index of its topic."""
        if self.topic is not None:
            return [self.topic], np.zeros(rows, dtype=np.int64)
        if columns["topic"].null_count:
            raise InvalidArgument(
                "column 'topic' is null in a row: every row needs one, or option topic",
                field="topic",
            )
        coded = columns["topic"].dictionary_encode()
        return coded.dictionary.to_pylist(), coded.indices.to_numpy().astype(np.int64)

    def _numbers(
        self,
        rows: int,
        columns: Mapping[str, pa.Array],
        topics: Sequence[str],
        codes: Numbers,
    ) -> Numbers:
        """Return the partition number of each row."""
        found = np.full(rows, -1, dtype=np.int64)
        given = columns.get("partition")
        named = np.zeros(rows, dtype=bool)
        if given is not None:
            named = given.is_valid().to_numpy(zero_copy_only=False)
            found[named] = given.drop_null().to_numpy()
        for code, topic in enumerate(topics):
            numbers = self.numbers.get(topic, self.new_numbers)
            self.met[topic] = len(numbers)
            ours = codes == code
            self._check(topic, found[ours & named], numbers)
            open_rows = np.flatnonzero(ours & ~named)
            found[open_rows] = self._chosen(columns.get("key"), open_rows, numbers)
        return found

    @staticmethod
    def _check(topic: str, named: Numbers, numbers: Sequence[int]) -> None:
        unknown = np.setdiff1d(named, np.asarray(numbers))
        if len(unknown):
            raise UnknownPartition(topic, int(unknown[0]), len(numbers))

    def _chosen(self, keys: pa.Array | None, rows: Numbers, numbers: Sequence[int]) -> Numbers:
        """Return the partitions of rows that do not name one."""
        places = np.asarray(numbers, dtype=np.int64)
        keyless = places[(self.task + self._turn) % len(places)]
        if keys is None or not len(rows) or len(places) == 1:
            return np.full(len(rows), keyless)
        hashed = np.asarray(partitions_for_keys(_bytes(keys.take(pa.array(rows))), len(places)))
        chosen: Numbers = np.where(hashed < 0, keyless, places[hashed])
        return chosen


def _chunks(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield batches combined to about CHUNK_BYTES bytes or CHUNK_ROWS rows."""
    gathered: list[pa.RecordBatch] = []
    size_bytes = rows = 0
    for batch in batches:
        gathered.append(batch)
        size_bytes += batch.nbytes
        rows += batch.num_rows
        if size_bytes >= CHUNK_BYTES or rows >= CHUNK_ROWS:
            yield pa.concat_batches(gathered)
            gathered, size_bytes, rows = [], 0, 0
    if rows:
        yield pa.concat_batches(gathered)


def _pieces(columns: Mapping[str, pa.Array], run_bytes: int) -> Iterator[tuple[int, int]]:
    """Yield ranges of rows [start, stop) of about `run_bytes` bytes, at least one row each."""
    weights = np.full(len(columns["value"]), ROW_BYTES, dtype=np.int64)
    for name in ("value", "key"):
        if name in columns:
            weights += pc.binary_length(columns[name]).fill_null(0).to_numpy()
    runs = np.cumsum(weights) // run_bytes
    borders = (np.flatnonzero(runs[1:] != runs[:-1]) + 1).tolist()
    yield from zip([0, *borders], [*borders, len(weights)], strict=True)


def to_records(columns: Mapping[str, pa.Array], rows: int) -> list[Record]:
    """Convert columns to records. The columns do not include `topic` and `partition`."""
    parts = Parts(
        keys=_bytes(columns["key"]) if "key" in columns else [None] * rows,
        values=_bytes(columns["value"]),
        headers=_headers(columns["headers"]) if "headers" in columns else [()] * rows,
        times=_times(columns["timestamp"]) if "timestamp" in columns else [None] * rows,
        tags=columns["tag"].to_pylist() if "tag" in columns else [None] * rows,
        lookups=_lookups(columns["keys"]) if "keys" in columns else [()] * rows,
        unique_ids=columns["unique_id"].to_pylist() if "unique_id" in columns else None,
        properties=columns["properties"].to_pylist() if "properties" in columns else None,
    )
    if parts.unique_ids is None and parts.properties is None:
        made = zip(*parts[:6], repeat(None), strict=False)
        return [*map(tuple.__new__, repeat(Record), made)]
    return with_properties(parts)


def _bytes(column: pa.Array) -> list[bytes | None]:
    found: list[bytes | None] = column.cast(pa.binary()).to_numpy(zero_copy_only=False).tolist()
    return found


def _times(column: pa.Array) -> list[int | None]:
    """Convert times to milliseconds, rounded down also before 1970, as Spark does."""
    if not column.null_count:
        numbers = column.cast(pa.timestamp("us", tz=column.type.tz)).cast(pa.int64()).to_numpy()
        listed: list[int | None] = (numbers // _MICROSECONDS).tolist()
        return listed
    micros = column.cast(pa.int64()).to_pylist()
    return [None if number is None else number // _MICROSECONDS for number in micros]


def _headers(column: pa.Array) -> list[Sequence[Header]]:
    """Return the lists of headers; a null list becomes an empty list."""
    flat = column.flatten()
    names, values = flat.field("key"), flat.field("value")
    pairs = list(zip(names.to_pylist(), _bytes(values), strict=True))
    if names.null_count:
        raise InvalidArgument("column 'headers' has a header without a name", field="headers")
    ends = np.cumsum(column.value_lengths().fill_null(0).to_numpy())
    starts = [0, *ends[:-1].tolist()]
    return [tuple(pairs[start:end]) for start, end in zip(starts, ends.tolist(), strict=True)]


def _lookups(column: pa.Array) -> list[Sequence[str]]:
    return [keys or () for keys in column.to_pylist()]
