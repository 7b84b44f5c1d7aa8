"""The data source "logserver": what Spark asks for a path and options.

Owns which reader and writer answers. Must not read or write itself. Spark starts processes of their own that
only ask for columns, or only plan: each is to import what it needs alone, for that is most of what it costs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader
from pyspark.sql.types import StructType

from logserver.pipeline.options import ReadOptions, parse_read_options
from logserver.pipeline.schema import check_schema, default_schema
from storage import detect
from storage.errors import StorageError, UnsupportedFormat

if TYPE_CHECKING:
    from logserver.pipeline.sink.writers import BatchWriter, StreamWriter


class LogServerSource(DataSource):
    """`format("logserver")`: a Kafka log directory or a RocketMQ store, found out by looking."""

    @classmethod
    def name(cls) -> str:
        """The name for `format`."""
        return "logserver"

    def schema(self) -> str:
        """The columns of a read that names none."""
        options = parse_read_options(self.options)
        return default_schema(_backend(options.path), headers=options.include_headers)

    def reader(self, schema: StructType) -> DataSourceReader:
        """A batch. Spark refuses a reader that takes filters unless it is told to push them down."""
        from logserver.pipeline.batch import BatchReader, FilteredBatchReader

        options = parse_read_options(self.options, streaming=False)
        _check(schema, options)
        kind = FilteredBatchReader if options.push_filters else BatchReader
        return kind(options, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """A stream of micro-batches. An error that came from here Spark would hide behind one of its own."""
        from logserver.pipeline.stream import RefusedStream, StreamReader

        try:
            options = parse_read_options(self.options, streaming=True)
            _check(schema, options)
        except StorageError as error:
            return RefusedStream(error)
        return StreamReader(options, schema)

    def writer(self, schema: StructType, overwrite: bool) -> BatchWriter:
        """A batch into a store or a running server."""
        from logserver.pipeline.sink.writers import batch_writer

        return batch_writer(self.options, schema, overwrite=overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamWriter:
        """Micro-batches into a store or a running server."""
        from logserver.pipeline.sink.writers import stream_writer

        return stream_writer(self.options, schema, overwrite=overwrite)


def _check(schema: StructType, options: ReadOptions) -> None:
    fields = [(field.name, field.dataType.simpleString()) for field in schema.fields]
    check_schema(fields, _backend(options.path))


def _backend(path: str) -> str:
    detected = detect(path)
    if detected is None:
        raise UnsupportedFormat(f"{path} holds no store: it is missing or empty", path=path)
    return detected.backend
