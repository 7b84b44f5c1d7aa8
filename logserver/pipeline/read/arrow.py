"""A chunk of a store as an Arrow record batch: each column is built by one gather, without touching values in Python.

Owns the conversion from byte positions to Arrow arrays. Must not read files.

A gather defines an array of alternating gaps and values over the bytes, and takes every second element:

    bytes     ..k1.v1v1v1...k2.v2v2        key: starts [2, 15]  lengths [2, 2]
    offsets   2  4  15  17  19             value 0 = [2, 4), gap = [4, 15), value 1 = [15, 17), gap: the rest
    take      0, 2                         a null's index is masked
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from logserver.pipeline.read.schema import COLUMNS, TIME, stored_columns
from storage import Chunk, Named, Slices, Split, read_split
from storage.columns import OFFSET, Damage
from storage.errors import UnrepresentableRecord

if TYPE_CHECKING:
    from storage.columns import Numbers

MAX_MS: Final = ((1 << 63) - 1) // 1000  # the largest time of Spark, in units of 1 us


def record_batch(chunk: Chunk, schema: pa.Schema, *, permissive: bool = False) -> pa.RecordBatch:
    """Convert a chunk's rows to `schema`: names of COLUMNS, in any letter case, with their types.

    Bytes of a text that are not UTF-8 become U+FFFD. Raises UnrepresentableRecord for a time that Spark cannot
    represent; with `permissive` the time becomes null.
    """
    arrays = [_array(chunk, field, permissive=permissive) for field in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _array(chunk: Chunk, field: pa.Field, *, permissive: bool) -> pa.Array:
    name = _NAMES[field.name.lower()]
    column = COLUMNS[name]
    if column.stored is None:
        return _ADDRESS[name](chunk, field.type)
    values = chunk.columns[column.stored]
    if isinstance(values, Slices):
        return _slices(values, field.type)
    if isinstance(values, Named):
        return _named(values, field.type)
    if column.type == TIME:
        return _times(values, chunk, field.type, permissive=permissive)
    return pa.array(values.astype(field.type.to_pandas_dtype(), copy=False), type=field.type)


def _topics(chunk: Chunk, kind: pa.DataType) -> pa.Array:
    names = pa.array([address.topic for address in chunk.partitions], type=kind)
    return names.take(pa.array(_codes(chunk)))


def _partitions(chunk: Chunk, kind: pa.DataType) -> pa.Array:
    numbers = np.array([address.partition for address in chunk.partitions], dtype=np.int32)
    return pa.array(numbers[_codes(chunk)], type=kind)


def _codes(chunk: Chunk) -> Numbers:
    return np.zeros(chunk.rows, dtype=np.int64) if chunk.codes is None else chunk.codes


_NAMES: Final = {name.lower(): name for name in COLUMNS}
_ADDRESS: Final[Mapping[str, Callable[[Chunk, pa.DataType], pa.Array]]] = {
    "topic": _topics,
    "partition": _partitions,
}


def _times(values: Numbers, chunk: Chunk, kind: pa.DataType, *, permissive: bool) -> pa.Array:
    strange = np.abs(values) > MAX_MS
    if not strange.any():
        return pa.array(values * 1000).view(kind)
    if not permissive:
        raise _unrepresentable(chunk, values, int(np.argmax(strange)))
    return pa.array(np.where(strange, 0, values) * 1000, mask=strange).view(kind)


def _unrepresentable(chunk: Chunk, values: Numbers, row: int) -> UnrepresentableRecord:
    address = chunk.partitions[int(_codes(chunk)[row])]
    offsets = chunk.columns.get(OFFSET)
    at = f"offset {int(offsets[row])} of {address}" if isinstance(offsets, np.ndarray) else address
    return UnrepresentableRecord(
        f"the record at {at} has the time {int(values[row])} ms, more than a timestamp of Spark holds, "
        f"{MAX_MS} ms; mode=PERMISSIVE gives null",
        field="timestamp",
        index=row,
    )


def _slices(values: Slices, kind: pa.DataType) -> pa.Array:
    found = gather(values)
    if pa.types.is_binary(kind):
        return found
    text = as_text(found)
    return text if pa.types.is_string(kind) else _words(text, kind)


def gather(values: Slices) -> pa.Array:
    """Build a binary column with one take."""
    count = len(values.starts)
    edges = np.empty(2 * count + 1, dtype=np.int32)
    edges[0:-1:2] = values.starts
    edges[1::2] = values.starts + np.maximum(values.lengths, 0)
    edges[-1] = len(values.data)
    buffers = [None, pa.py_buffer(edges), pa.py_buffer(values.data)]
    laid = pa.Array.from_buffers(pa.binary(), 2 * count, buffers)
    nulls = values.lengths < 0
    chosen = pa.array(np.arange(0, 2 * count, 2), mask=nulls if nulls.any() else None)
    return laid.take(chosen)


def as_text(values: pa.Array) -> pa.Array:
    """Convert a binary column to text; bytes that are not UTF-8 become U+FFFD."""
    try:
        return values.cast(pa.string())
    except pa.ArrowInvalid:
        texts = [None if v is None else v.decode("utf-8", "replace") for v in values.to_pylist()]
        return pa.array(texts, type=pa.string())


def _words(text: pa.Array, kind: pa.DataType) -> pa.Array:
    """Split each text into its lookup keys; null if it has none."""
    single = pc.utf8_trim(pc.replace_substring_regex(text, " +", " "), " ")
    words = pc.split_pattern(single, " ")
    return pc.if_else(pc.equal(single, ""), pa.scalar(None, words.type), words).cast(kind)


def _named(values: Named, kind: pa.DataType) -> pa.Array:
    """Convert headers to lists (null if a record has none, as in Spark's Kafka source), or properties to maps."""
    edges = np.zeros(len(values.counts) + 1, dtype=np.int32)
    np.cumsum(values.counts, out=edges[1:])
    pair = kind.field(0).type
    names = as_text(gather(values.names))
    found = gather(values.values)
    both = [names, found if pa.types.is_binary(pair.field(1).type) else as_text(found)]
    pairs = pa.Array.from_buffers(pair, len(names), [None], children=both)
    empty = None if pa.types.is_map(kind) else _validity(values.counts > 0)
    return pa.Array.from_buffers(
        kind, len(values.counts), [empty, pa.py_buffer(edges)], children=[pairs]
    )


def _validity(there: NDArray[np.bool_]) -> pa.Buffer:
    return pa.py_buffer(np.packbits(there, bitorder="little").tobytes())


def record_batches(
    split: Split,
    schema: pa.Schema,
    *,
    check_crcs: bool,
    on_damage: Damage | None,
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a split as `schema` defines them, some megabytes at a time.

    With `on_damage`, damaged ranges are skipped and reported to it, and a time that Spark cannot represent is null. See
    `storage.read_split`.
    """
    columns = stored_columns(_NAMES[field.name.lower()] for field in schema)
    for chunk in read_split(split, columns, check_crcs=check_crcs, on_damage=on_damage):
        yield record_batch(chunk, schema, permissive=on_damage is not None)
