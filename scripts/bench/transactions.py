"""Rows of the benchmark of transactions: the service called in this process, with each format, and a server over HTTP.

Owns the measured work; must not time it: harness.py does. `scripts/bench_transactions` runs it. A transaction has ten
records of 100 bytes in one partition, begins without a transactional id, and is committed; the flush mode is sync. On
RocketMQ's format its records are half messages, which the commit appends to their topic.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Final

from logserver import LogServer
from logserver.bench.environment import versions
from logserver.bench.goals import TRANSACTIONS
from logserver.client import LogClient
from logserver.config import Settings
from logserver.service.requests import Acks, Produce
from logserver.service.service import LogService
from logserver.transactions.half import HalfTransactions
from scripts.bench.harness import Bench, Row, parser, run
from storage import Isolation, Record, TopicPartition, is_compiled, open_store

RECORDS: Final = 10
VALUE: Final = b"x" * 100
REFERENCE: Final = 2000.0
CLIENTS, HTTP_CLIENTS = 64, 16
IN_PROCESS, OVER_HTTP, QUICK = 1000, 300, 20  # transactions of a turn


class InProcess:
    """A service of a backend in this process, with one topic, and its event loop."""

    def __init__(self, path: Path, backend: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._service = LogService(Settings(data=path), lambda _: open_store(backend, path))
        self._loop.run_until_complete(self._start())

    async def _start(self) -> None:
        await self._service.start()
        await self._service.topics.create("t", 4, None)

    def close(self) -> None:
        """Stop the service."""
        self._loop.run_until_complete(self._service.stop())
        self._loop.close()

    def transact(self, count: int, clients: int) -> int:
        """Run transactions, by so many clients at once; return how many."""
        self._loop.run_until_complete(_shared(count, clients, self._one))
        return count

    async def _one(self, number: int) -> None:
        transactions = self._service.http_transactions
        begun = await transactions.begin(None, 60_000)
        prepared = None
        if isinstance(transactions, HalfTransactions):
            prepared = await transactions.resolve(begun.id)
        request = Produce(
            topic="t",
            partition=number % 4,
            records=[Record(None, VALUE)] * RECORDS,
            reservation=self._service.budget.reserve(0),
            size_bytes=RECORDS * len(VALUE),
            acks=Acks.WRITTEN,
            transaction=begun.producer,
            prepared=prepared,
        )
        await self._service.producer.produce(request)
        await transactions.end_by_id(begun.id, commit=True)

    def counted(self, count: int, clients: int) -> int:
        """Run transactions, and return how many of them readers of committed records see more than before."""
        before = self._seen()
        self.transact(count, clients)
        return (self._seen() - before) // RECORDS

    def _seen(self) -> int:
        store = self._service.store
        return sum(
            1
            for number in range(4)
            for _ in store.scan(TopicPartition("t", number), isolation=Isolation.READ_COMMITTED)
        )


async def _shared(count: int, clients: int, one: Callable[[int], Awaitable[None]]) -> None:
    numbers = iter(range(count))

    async def client() -> None:
        for number in numbers:
            await one(number)

    await asyncio.gather(*(client() for _ in range(clients)))


def over_http(url: str, count: int) -> int:
    """Run transactions over HTTP; return how many."""

    async def all_of_them() -> None:
        async with LogClient(url) as client:

            async def one(number: int) -> None:
                async with client.transaction() as transaction:
                    await transaction.produce_many(
                        "t", [Record(None, VALUE)] * RECORDS, partition=number % 4
                    )

            await _shared(count, HTTP_CLIENTS, one)

    asyncio.run(all_of_them())
    return count


def all_rows(stack: ExitStack, *, quick: bool) -> Iterator[Row]:
    """Yield every row. What it runs on is closed with `stack`."""
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
    count = QUICK if quick else IN_PROCESS
    for backend, name in (("kafka", ""), ("rocketmq", ", half messages")):
        service = InProcess(folder / backend, backend)
        stack.callback(service.close)
        for clients in (CLIENTS, 1):
            has_goal = backend == "kafka" and clients > 1
            yield Row(
                name=f"in process, {clients} client{'s' if clients > 1 else ''}{name}",
                unit="txn",
                ours=partial(service.transact, count, clients),
                count=partial(service.counted, count, clients),
                reference=REFERENCE if has_goal else None,
                peer_name=f"{REFERENCE:.0f}/s" if has_goal else "",
                expected=count,
            )
    count = QUICK if quick else OVER_HTTP
    server = stack.enter_context(LogServer(folder / "served", backend="kafka"))
    asyncio.run(_create(server.url))
    yield Row(
        name=f"over HTTP, {HTTP_CLIENTS} clients",
        unit="txn",
        ours=lambda: over_http(server.url, count),
        expected=count,
        once=True,
    )


async def _create(url: str) -> None:
    async with LogClient(url) as client:
        await client.create_topic("t", partitions=4)


def main() -> int:
    """Measure every selected row and report."""
    given = parser("transactions of ten records", "no effect: no row needs Java").parse_args()
    os.environ.setdefault("PYTHONPATH", str(Path(__file__).resolve().parents[2]))
    bench = Bench(
        name=TRANSACTIONS, compiled=is_compiled(), quick=given.quick, repeats=given.repeats
    )
    with ExitStack() as stack:
        return run(bench, all_rows(stack, quick=given.quick), given, versions("msgspec"))
