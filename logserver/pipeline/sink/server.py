"""Into a running server, over HTTP: each task sends its rows, numbered so that a repeat is recognised.

Owns who sends under which producer id; requests and their repeats are `logserver.client`'s business. Nothing
is held back until a commit: what a task has sent is stored, also if the job fails later.

    producer id     made of the query (or the job), the task's number and the micro-batch's upper bits
    epoch           the micro-batch's lower 15 bits: an attempt that is late is fenced by the next one
    sequence        the rows of the task in that partition, from 0 on, in requests cut by their content

So a task that is run again, or a micro-batch that is repeated after a crash with the same rows in the same
tasks, sends the same requests under the same numbers, and what is stored of them is passed over.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from hashlib import blake2b
from typing import TYPE_CHECKING, Final

from logserver.pipeline.options import wrong
from logserver.pipeline.sink.columns import check_columns
from logserver.pipeline.sink.options import WriteOptions
from logserver.pipeline.sink.rows import Placing, Rows
from logserver.pipeline.sink.store import Staged, Task

if TYPE_CHECKING:
    import pyarrow as pa

    from logserver.client import BlockingClient, IdempotentProducer, LogClient, ProducerId

REQUEST_BYTES: Final = 512 << 10
EPOCHS: Final = 1 << 15
OWN_IDS: Final = 1 << 62
"""Ids from here on no server gives out, and none counts them among its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSink:
    """A planned write; picklable. `job_id` None: of a stream, whose tasks know their query."""

    url: str
    options: WriteOptions
    columns: Mapping[str, int]
    numbers: Mapping[str, Sequence[int]]
    job_id: str | None

    def stage(self, batches: Iterable[pa.RecordBatch], task: Task) -> Staged:
        """Send a task's rows; they are stored, by the server's flush mode, on return.

        Raises ClientError, and InvalidArgument or UnknownPartition for a row that goes nowhere.
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
        """All is stored already."""
        return True

    def abort(self, staged: Sequence[Staged]) -> None:
        """What was sent stays."""


async def _send_rows(producer: IdempotentProducer, rows: Rows) -> None:
    await producer.send_again(rows.records, partition=rows.partition.partition)


def plan_sending(
    options: WriteOptions, fields: Sequence[tuple[str, str]], *, streaming: bool
) -> ServerSink:
    """Ask the server what it has. Raises InvalidArgument for columns that do not fit, ClientError."""
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
