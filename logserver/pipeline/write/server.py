"""Writes into a running server, over HTTP: each task sends its rows, numbered so that the server detects repeats.

Owns the producer ids of the tasks; requests and their repeats are the job of `logserver.client`. Rows are not held back
until a commit: the rows that a task has sent are stored, even if the job fails later.

    producer id     made of the query (or the job), the task's number and the micro-batch's upper bits
    epoch           the micro-batch's lower 15 bits: an attempt that is late is fenced by the next one
    sequence        the rows of the task in that partition, from 0 on, in requests cut by their content

So a task that runs again sends the same requests with the same numbers, and the server skips those already stored. The
same holds for a micro-batch repeated after a crash, if its tasks have the same rows.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from hashlib import blake2b
from typing import TYPE_CHECKING, Final

from logserver.pipeline.read.options import wrong
from logserver.pipeline.write.columns import check_columns
from logserver.pipeline.write.options import WriteOptions
from logserver.pipeline.write.rows import Placing, Rows
from logserver.pipeline.write.store import Staged, Task

if TYPE_CHECKING:
    import pyarrow as pa

    from logserver.client import BlockingClient, IdempotentProducer, LogClient, ProducerId

REQUEST_BYTES: Final = 512 << 10
EPOCHS: Final = 1 << 15
OWN_IDS: Final = 1 << 62
"""Producer ids from here on: no server assigns them or counts them among its own ids."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSink:
    """A planned write; picklable. `job_id` is None for a stream without option queryId; its tasks know the query."""

    url: str
    options: WriteOptions
    columns: Mapping[str, int]
    numbers: Mapping[str, Sequence[int]]
    job_id: str | None

    def stage(self, batches: Iterable[pa.RecordBatch], task: Task) -> Staged:
        """Send a task's rows; they are stored on return, as durable as the server's flush mode makes them.

        Raises ClientError, and InvalidArgument or UnknownPartition for a row without a valid topic or partition.
        """
        new_numbers = range(self.options.new_partitions or 1)
        placing = Placing(self.columns, self.options.topic, self.numbers, new_numbers, task.number)
        with _client(self.options) as client:
            client.run(lambda inner: self._send(inner, placing, batches, task))
        return Staged(task, None, placing.met)

    async def _send(
        self,
        client: LogClient,
        placing: Placing,
        batches: Iterable[pa.RecordBatch],
        task: Task,
    ) -> None:
        producer_id = self._producer_id(task)
        producers: dict[str, IdempotentProducer] = {}
        async with AsyncExitStack() as stack:
            for rows in placing.rows(batches, REQUEST_BYTES):
                topic = rows.partition.topic
                if topic not in producers:
                    if topic not in self.numbers:
                        await client.create_topic(topic, partitions=placing.met[topic])
                    producer = client.producer(topic, producer_id=producer_id)
                    producers[topic] = await stack.enter_async_context(producer)
                await _send_rows(producers[topic], rows)

    def _producer_id(self, task: Task) -> ProducerId:
        from logserver.client import ProducerId

        batch = task.batch_id or 0
        writer = self.job_id or task.query_id
        if not writer:
            raise wrong("queryId", "is missing: this stream's query has no id of its own")
        name = f"{writer}/{task.number}/{batch // EPOCHS}".encode()
        low = int.from_bytes(blake2b(name, digest_size=8).digest()) % OWN_IDS
        return ProducerId(OWN_IDS + low, batch % EPOCHS)

    def commit(self, staged: Sequence[Staged], batch_id: int | None = None) -> bool:
        """Return True: all rows are stored already."""
        return True

    def abort(self, staged: Sequence[Staged]) -> None:
        """Do nothing: rows that were sent stay stored."""


async def _send_rows(producer: IdempotentProducer, rows: Rows) -> None:
    await producer.send_again(rows.records, partition=rows.partition.partition)


def plan_sending(
    options: WriteOptions, fields: Sequence[tuple[str, str]], *, streaming: bool
) -> ServerSink:
    """Ask the server for its topics and partitions. Raises InvalidArgument for columns that do not fit, ClientError."""
    assert options.url is not None
    with _client(options) as client:
        store = client.run(lambda inner: inner.store())
        names = [name for name in client.topics() if options.topic in (None, name)]
        numbers = {name: _partitions(client, name) for name in names}
    columns = check_columns(
        fields, topic=options.topic, messages=store.get("backend") == "rocketmq"
    )
    job_id = options.query_id if streaming else uuid.uuid4().hex
    return ServerSink(
        url=options.url, options=options, columns=columns, numbers=numbers, job_id=job_id
    )


def _partitions(client: BlockingClient, topic: str) -> tuple[int, ...]:
    return tuple(client.run(lambda inner: inner.topic(topic)).partitions)


def _client(options: WriteOptions) -> BlockingClient:
    from logserver.client import BlockingClient

    return BlockingClient(options.url or "", options.token)
