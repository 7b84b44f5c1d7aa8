"""Spark's writers: what it calls on the driver and in its tasks, handed on to a sink.

Owns Spark's classes and what a task knows of itself; must not know how rows are stored.
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

from logserver.pipeline.sink.options import parse_write_options
from logserver.pipeline.sink.server import plan_sending
from logserver.pipeline.sink.store import Staged, Task, plan_write

if TYPE_CHECKING:
    import pyarrow as pa

_QUERY_ID = "sql.streaming.queryId"
_BATCH_ID = "streaming.sql.batchId"


class Sink(Protocol):
    """Where rows go; picklable."""

    def stage(self, batches: Iterator[pa.RecordBatch], task: Task) -> Staged:
        """A task's rows."""

    def commit(self, staged: Sequence[Staged], batch_id: int | None = None) -> bool:
        """All tasks have staged theirs."""

    def abort(self, staged: Sequence[Staged]) -> None:
        """Some task has not."""


class Message(WriterCommitMessage):
    """What a task tells the driver."""

    def __init__(self, staged: Staged) -> None:
        self.staged = staged


class BatchWriter(DataSourceArrowWriter):
    """`df.write`."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """In a task."""
        return Message(self._sink.stage(iterator, _this_task()))

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """On the driver."""
        self._sink.commit(_staged(messages))

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """On the driver, also after a commit that failed."""
        self._sink.abort(_staged(messages))


class StreamWriter(DataSourceStreamArrowWriter):
    """`df.writeStream`."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """In a task."""
        return Message(self._sink.stage(iterator, _this_task()))

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """On the driver; may come again for the same micro-batch."""
        self._sink.commit(_staged(messages), batchId)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """On the driver, also after a commit that failed."""
        self._sink.abort(_staged(messages))


def batch_writer(options: Mapping[str, str], schema: StructType, *, overwrite: bool) -> BatchWriter:
    """For DataSource.writer. Raises what planning raises."""
    return BatchWriter(_sink(options, schema, overwrite=overwrite, streaming=False))


def stream_writer(
    options: Mapping[str, str], schema: StructType, *, overwrite: bool
) -> StreamWriter:
    """For DataSource.streamWriter. Raises what planning raises."""
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
