"""Spark's writers: the calls that Spark makes on the driver and in its tasks, passed on to a sink.

Owns Spark's classes and the task's knowledge of itself; must not know how rows are stored.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from logserver.pipeline.write.options import parse_write_options
from logserver.pipeline.write.server import plan_sending
from logserver.pipeline.write.store import Staged, Task, plan_write

if TYPE_CHECKING:
    import pyarrow as pa

_QUERY_ID = "sql.streaming.queryId"
_BATCH_ID = "streaming.sql.batchId"


class Sink(Protocol):
    """A destination of rows; picklable."""

    def stage(self, batches: Iterator[pa.RecordBatch], task: Task) -> Staged:
        """Stage the rows of one task."""

    def commit(self, staged: Sequence[Staged], batch_id: int | None = None) -> bool:
        """Commit: all tasks have staged their rows."""

    def abort(self, staged: Sequence[Staged]) -> None:
        """Abort: a task has not staged its rows."""


class Message(WriterCommitMessage):
    """The message of a task to the driver."""

    def __init__(self, staged: Staged) -> None:
        self.staged = staged


class BatchWriter(DataSourceArrowWriter):
    """The batch writer, for `df.write`."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Stage the rows of a task; called in the task."""
        return Message(self._sink.stage(iterator, _this_task()))

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Commit the write; called on the driver."""
        self._sink.commit(_staged(messages))

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Abort the write; called on the driver, also after a commit that failed."""
        self._sink.abort(_staged(messages))


class StreamWriter(DataSourceStreamArrowWriter):
    """The stream writer, for `df.writeStream`."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Stage the rows of a task; called in the task."""
        return Message(self._sink.stage(iterator, _this_task()))

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Commit a micro-batch; called on the driver, perhaps again for the same micro-batch."""
        self._sink.commit(_staged(messages), batchId)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Abort a micro-batch; called on the driver, also after a commit that failed."""
        self._sink.abort(_staged(messages))


def batch_writer(options: Mapping[str, str], schema: StructType, *, overwrite: bool) -> BatchWriter:
    """Return the writer for DataSource.writer. Raises what planning raises."""
    return BatchWriter(_sink(options, schema, overwrite=overwrite, streaming=False))


def stream_writer(
    options: Mapping[str, str], schema: StructType, *, overwrite: bool
) -> StreamWriter:
    """Return the writer for DataSource.streamWriter. Raises what planning raises."""
    return StreamWriter(_sink(options, schema, overwrite=overwrite, streaming=True))


def _sink(
    options: Mapping[str, str], schema: StructType, *, overwrite: bool, streaming: bool
) -> Sink:
    wanted = parse_write_options(options, overwrite=overwrite)
    fields = [(field.name, field.dataType.simpleString()) for field in schema.fields]
    plan = plan_write if wanted.url is None else plan_sending
    return plan(wanted, fields, streaming=streaming)


def _this_task() -> Task:
    context = TaskContext.get()
    if context is None:
        return Task(0)
    batch_id = context.getLocalProperty(_BATCH_ID)
    return Task(
        context.partitionId(),
        context.getLocalProperty(_QUERY_ID),
        None if batch_id is None else int(batch_id),
    )


def _staged(messages: Sequence[WriterCommitMessage | None]) -> list[Staged]:
    return [message.staged for message in messages if isinstance(message, Message)]
