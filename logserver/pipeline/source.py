"""The data source "logserver": the entry points that Spark calls with a path and options.

Owns the choice of the reader and the writer. Must not read or write records. Spark starts separate processes that only
read the schema, or only plan. Imports take most of their time, so each entry point imports only what it needs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader
from pyspark.sql.types import StructType

from logserver.pipeline.read.options import ReadOptions, parse_read_options
from logserver.pipeline.read.schema import check_schema, default_schema
from storage import detect
from storage.errors import StorageError, UnsupportedFormat

if TYPE_CHECKING:
    from logserver.pipeline.write.writers import BatchWriter, StreamWriter


class LogServerSource(DataSource):
    """`format("logserver")`: a Kafka log directory or a RocketMQ store; the format of the store is detected."""

    @classmethod
    def name(cls) -> str:
        """Return the name for `format`."""
        return "logserver"

    def schema(self) -> str:
        """Return the default columns of a read, as DDL."""
        options = parse_read_options(self.options)
        return default_schema(_backend(options.path), headers=options.include_headers)

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the reader of a batch.

        Spark rejects a reader with `pushFilters` unless filter pushdown is enabled, and see `batch` for its fault.
        """
        from logserver.pipeline.read.batch import BatchReader, FilteredBatchReader

        options = parse_read_options(self.options, streaming=False)
        _check(schema, options)
        kind = FilteredBatchReader if options.push_filters else BatchReader
        return kind(options, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Return the reader of a stream of micro-batches.

        If an option or the schema is wrong, return a `RefusedStream`, which raises the error later: Spark would hide an
        error raised here in one of its own.
        """
        from logserver.pipeline.read.stream import RefusedStream, StreamReader

        try:
            options = parse_read_options(self.options, streaming=True)
            _check(schema, options)
        except StorageError as error:
            return RefusedStream(error)
        return StreamReader(options, schema)

    def writer(self, schema: StructType, overwrite: bool) -> BatchWriter:
        """Return the writer of a batch into a store or a running server."""
        from logserver.pipeline.write.writers import batch_writer

        return batch_writer(self.options, schema, overwrite=overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamWriter:
        """Return the writer of micro-batches into a store or a running server."""
        from logserver.pipeline.write.writers import stream_writer

        return stream_writer(self.options, schema, overwrite=overwrite)


def _check(schema: StructType, options: ReadOptions) -> None:
    fields = [(field.name, field.dataType.simpleString()) for field in schema.fields]
    check_schema(fields, _backend(options.path))


def _backend(path: str) -> str:
    detected = detect(path)
    if detected is None:
        raise UnsupportedFormat(f"{path} holds no store: it is missing or empty", path=path)
    return detected.backend
