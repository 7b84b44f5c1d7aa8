"""An idempotent producer: numbers its requests, so that a repeated request is stored once.

Owns ids, sequence numbers and repeats; must not know how a key is hashed (Kafka's own rule, in storage). The server
remembers the last batches of a producer, after a restart perhaps only the last one. So only one request is in
progress at a time.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, Self, Unpack

from logserver.client.calls import RecordCalls
from logserver.client.outgoing import RecordParts, Value, as_record, produce_body
from logserver.client.transport import Query
from logserver.client.values import Placed, ProducerId
from logserver.errors import ClientError, ServerRefused, ServerUnreachable
from storage import Record, next_sequence, partition_for_key

REQUEST_RECORDS: Final = 1000
# A request of this size goes into one batch, or is not stored at all.
REQUEST_BYTES: Final = 512 << 10
_UNKNOWN_TOPIC: Final = 40401
_OUT_OF_ORDER: Final = 40904
_OUTCOME_UNKNOWN: Final = frozenset({500, 503, 504})
_PAUSE_S: Final = (0.1, 0.2, 0.5, 1.0, 2.0)


class IdempotentProducer:
    """Sends records to one topic, each stored once. Use it as `async with`; calls take turns.

    A request without an answer is sent again under the same sequence number until it is confirmed, for up to
    `give_up_s`. Then the error is raised. The state of these records is unknown, so the producer accepts no more
    records.
    """

    def __init__(
        self,
        calls: RecordCalls,
        topic: str,
        *,
        give_up_s: float,
        producer_id: ProducerId | None = None,
    ) -> None:
        self._own_id = producer_id
        self._calls = calls
        self._topic = topic
        self._give_up_s = give_up_s
        self._turn = asyncio.Lock()
        self._partitions: Sequence[int] = ()
        self._id = ProducerId(-1, -1)
        self._sequences: dict[int, int] = {}
        self._keyless = itertools.count()
        self._in_doubt = False

    async def __aenter__(self) -> Self:
        self._partitions = await self._find_partitions()
        self._id = self._own_id or await self._calls.new_producer_id()
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        """Leave the block; no request is pending, since every call has waited for its answer."""

    async def send(
        self, value: Value, *, partition: int | None = None, **parts: Unpack[RecordParts]
    ) -> Placed:
        """Store one record, once."""
        (placed,) = await self.send_many([as_record(value, **parts)], partition=partition)
        return placed

    async def send_many(
        self, records: Iterable[Record], *, partition: int | None = None
    ) -> list[Placed]:
        """Store records, each once, in their order within a partition. Return the place of each record.

        Raises ServerRefused if a request is rejected as a whole: the records of earlier requests are stored.
        """
        batch = list(records)
        placed: dict[int, Placed] = {}
        async with self._turn:
            for number, positions in self._by_partition(batch, partition).items():
                for run in _requests(batch, positions):
                    body = produce_body(batch[position] for position in run)
                    rows = await self._send(number, body, len(run))
                    placed.update(zip(run, rows, strict=True))
        return [placed[position] for position in range(len(batch))]

    async def send_again(self, records: Sequence[Record], *, partition: int) -> int:
        """Send records that a producer with this id may have sent before, in the same calls. Return the number of
        records sent.

        Otherwise like `send_many`; requests that are already stored are skipped. Raises ServerRefused (out of order)
        if other records were sent in their place.
        """
        sent = 0
        async with self._turn:
            for run in _requests(records, range(len(records))):
                body = produce_body(records[position] for position in run)
                try:
                    await self._send(partition, body, len(run))
                except ServerRefused as error:
                    if not self._is_behind(error, partition, len(run)):
                        raise
                else:
                    sent += len(run)
        return sent

    def _is_behind(self, error: ServerRefused, partition: int, count: int) -> bool:
        """Return whether a request was rejected because it and later requests are stored; then the next one may be
        sent.
        """
        expected = error.facts().get("expected")
        behind = self._sequences.get(partition, 0) + count
        if error.error_code != _OUT_OF_ORDER or not isinstance(expected, int) or expected < behind:
            return False
        self._sequences[partition] = behind
        return True

    def _by_partition(
        self, records: Sequence[Record], partition: int | None
    ) -> dict[int, list[int]]:
        """Return the positions of the records by partition; keyless records of a call stay together."""
        count = len(self._partitions)
        if not count:
            raise ClientError("the producer has no id: use it as `async with`")
        keyless = next(self._keyless) % count
        by_partition: dict[int, list[int]] = {}
        for position, record in enumerate(records):
            if partition is not None:
                number = partition
            elif record.key is None:
                number = self._partitions[keyless]
            else:
                number = self._partitions[partition_for_key(record.key, count)]
            by_partition.setdefault(number, []).append(position)
        return by_partition

    async def _send(self, partition: int, body: bytes, count: int) -> list[Placed]:
        """Send one numbered request. While its outcome is unknown, no other request may use its number."""
        if self._in_doubt:
            raise ClientError(
                "it is unknown whether the last records of this producer are stored: create a new producer"
            )
        self._in_doubt = True
        sequence = self._sequences.get(partition, 0)
        query = {
            "producer_id": self._id.producer_id,
            "producer_epoch": self._id.producer_epoch,
            "sequence": sequence,
        }
        try:
            placed = await self._until_known(partition, body, query)
        except ServerRefused as error:
            self._in_doubt = error.status in _OUTCOME_UNKNOWN
            raise
        self._in_doubt = False
        self._sequences[partition] = next_sequence(sequence, count)
        return placed

    async def _until_known(self, partition: int, body: bytes, query: Query) -> list[Placed]:
        deadline_s = time.monotonic() + self._give_up_s
        for pause_s in itertools.chain(_PAUSE_S, itertools.repeat(_PAUSE_S[-1])):
            try:
                return await self._calls.produce_encoded(
                    self._topic, body, partition=partition, query=query
                )
            except (ServerUnreachable, ServerRefused) as error:
                if _is_refused(error) or time.monotonic() + pause_s > deadline_s:
                    raise
                await asyncio.sleep(pause_s)
        raise AssertionError  # not reached: the pauses have no end

    async def _find_partitions(self) -> Sequence[int]:
        try:
            return (await self._calls.topic(self._topic)).partitions
        except ServerRefused as error:
            if error.error_code != _UNKNOWN_TOPIC:
                raise
        await self._calls.create_topic(self._topic)
        return (await self._calls.topic(self._topic)).partitions


def _is_refused(error: ClientError) -> bool:
    """Return whether nothing of the request is stored, now or later."""
    return isinstance(error, ServerRefused) and error.status not in _OUTCOME_UNKNOWN


def _requests(records: Sequence[Record], positions: Sequence[int]) -> Iterator[list[int]]:
    """Yield runs of positions, each small enough for one batch (unless one record alone is too large)."""
    run: list[int] = []
    size_bytes = 0
    for position in positions:
        record = records[position]
        weight_bytes = len(record.key or b"") + len(record.value or b"") + 64
        weight_bytes += sum(len(name) + len(value or b"") for name, value in record.headers)
        if run and (len(run) == REQUEST_RECORDS or size_bytes + weight_bytes > REQUEST_BYTES):
            yield run
            run, size_bytes = [], 0
        run.append(position)
        size_bytes += weight_bytes
    if run:
        yield run
