"""Transactions of a running server: a block that commits or rolls back, and the calls it is made of.

Owns these calls and the shapes of their answers; must not know connections (`transport`) or how a record is sent
(`calls`).
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Unpack

import msgspec
from msgspec import Struct

from logserver.client.outgoing import RecordParts, Value, as_record
from logserver.client.transport import Transport, segment
from storage import Record, TopicPartition

if TYPE_CHECKING:
    from logserver.client.calls import RecordCalls
    from logserver.client.values import Placed

PATH = "/transactions"


class BegunTransaction(Struct, frozen=True):
    """A transaction: its id, and the producer whose id and epoch whole record batches must have; None on RocketMQ's
    format.
    """

    id: str
    producer_id: int | None
    epoch: int | None


class TransactionPartition(Struct, frozen=True):
    """A partition with records of a transaction."""

    topic: str
    partition: int


class ListedTransaction(Struct, frozen=True):
    """The newest transaction of a transactional id; `state` is Kafka's name. `started_ms` is None before the first.

    RocketMQ's format: an open transaction, Ongoing or, once its producers must end it, Unknown. `messages`: how many
    wait; `checks`: how often its producers were asked; `message_id`: of its first half message. None on Kafka's.
    """

    id: str
    transactional_id: str
    producer_id: int | None
    epoch: int | None
    state: str
    timeout_ms: int
    started_ms: int | None
    updated_ms: int
    partitions: Sequence[TransactionPartition]
    messages: int | None = None
    checks: int | None = None
    message_id: str | None = None


class Transaction:
    """An open transaction: records and offsets of groups that readers see together or not at all."""

    def __init__(self, calls: RecordCalls, begun: BegunTransaction) -> None:
        self._calls = calls
        self.begun = begun

    @property
    def id(self) -> str:
        """The id, for other clients that take part in it."""
        return self.begun.id

    async def produce(
        self,
        topic: str,
        value: Value,
        *,
        partition: int | None = None,
        **parts: Unpack[RecordParts],
    ) -> Placed:
        """Store one record in the transaction; otherwise as `LogClient.produce`."""
        (placed,) = await self.produce_many(topic, [as_record(value, **parts)], partition=partition)
        return placed

    async def produce_many(
        self, topic: str, records: Iterable[Record], *, partition: int | None = None
    ) -> list[Placed]:
        """Store records in the transaction. It waits for no disk: the commit makes them durable. On RocketMQ's format
        it waits, and the places are `PlacedLater`.
        """
        return await self._calls.produce_many(
            topic, records, partition=partition, acks=1, transaction=self.id
        )

    async def commit_offsets(self, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Commit next offsets of a group in the transaction."""
        rows = [
            {"topic": at.topic, "partition": at.partition, "offset": offset}
            for at, offset in offsets.items()
        ]
        body = msgspec.json.encode({"group": group, "offsets": rows})
        path = f"{PATH}/{segment(self.id)}/offsets"
        await self._calls.transport.call("POST", path, body=body)


class TransactionCalls:
    """The calls of LogClient for transactions."""

    transport: Transport

    @asynccontextmanager
    async def transaction(
        self, transactional_id: str | None = None, *, timeout_ms: int | None = None
    ) -> AsyncGenerator[Transaction, None]:
        """Begin a transaction. It is committed at the end of the block, and rolled back if the block raises.

        A `transactional_id` names a producer over its restarts: a transaction that an earlier one left open is rolled
        back. After `timeout_ms` the server rolls it back; then the commit raises ServerRefused 40903. On RocketMQ's
        format it is the group of producers, which must end the transaction after `timeout_ms`: poll
        `transactions("unknown")`.

            async with client.transaction() as transaction:
                await transaction.produce("orders", "3 apples", key="ann")
                await transaction.commit_offsets("billing", {TopicPartition("carts", 0): 17})
        """
        begun = await self.begin_transaction(transactional_id, timeout_ms=timeout_ms)
        try:
            yield Transaction(self, begun)  # type: ignore[arg-type]  # LogClient has all calls
        except BaseException:
            await self.rollback_transaction(begun.id)
            raise
        await self.commit_transaction(begun.id)

    async def begin_transaction(
        self, transactional_id: str | None = None, *, timeout_ms: int | None = None
    ) -> BegunTransaction:
        """Begin a transaction that this call does not end; `transaction` ends its own."""
        asked = {"transactional_id": transactional_id, "timeout_ms": timeout_ms}
        body = msgspec.json.encode({name: one for name, one in asked.items() if one is not None})
        return await self.transport.json(BegunTransaction, "POST", PATH, body=body)

    async def commit_transaction(self, transaction_id: str) -> None:
        """Commit a transaction: on return its records are durable and visible. A repeat is harmless."""
        await self.transport.call("POST", f"{PATH}/{segment(transaction_id)}/commit")

    async def rollback_transaction(self, transaction_id: str) -> None:
        """Roll a transaction back. A repeat is harmless."""
        await self.transport.call("POST", f"{PATH}/{segment(transaction_id)}/rollback")

    async def transactions(self, state: str | None = None) -> list[ListedTransaction]:
        """Return all transactional ids with their newest transaction, or those in one state (Ongoing, unknown, ...)."""
        return await self.transport.json(
            list[ListedTransaction], "GET", PATH, query={"state": state}
        )
