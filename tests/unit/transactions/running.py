"""A service over a Kafka store in memory, with a driven clock: for the tests of transactions.

Owns how it is started, stopped and killed; must not know the expected answers.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

from logserver.config import Settings
from logserver.service.requests import Acks, Fetch, Produce, Start, StartAt
from logserver.service.service import LogService
from logserver.transactions.service import Begun, Transactions
from storage import Isolation, ProducerEpoch, Record, StoreOptions, TopicPartition, open_store
from storage.files import FileSystem, OverlayFileSystem
from tests.contract.harness import ManualClock

ROOT = Path("/w/store")
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
TIMEOUT_MS = 60_000
FEW_PARTITIONS = {
    "transaction.state.log.num.partitions": "2",
    "offsets.topic.num.partitions": "2",
}


class Disk:
    """The files of a store and its clock, over several processes."""

    def __init__(self, fs: FileSystem | None = None, clock: ManualClock | None = None) -> None:
        self.fs = fs or OverlayFileSystem()
        self.clock = clock or ManualClock()
        self.settings: Mapping[str, str] = FEW_PARTITIONS
        if fs is None:
            self.fs.make_dir(ROOT.parent)

    def after_kill(self) -> Disk:
        """Return the files that the next process finds after a kill at this moment."""
        return Disk(OverlayFileSystem(self.fs), self.clock)

    @asynccontextmanager
    async def serving(
        self, *, read_only: bool = False, flush: str = "sync"
    ) -> AsyncIterator[Service]:
        """Run a service on the files; it is stopped at the end."""
        options = StoreOptions(settings=self.settings)
        service = LogService(
            Settings(data=ROOT, flush=flush),
            lambda _: open_store(
                "kafka", ROOT, options, fs=self.fs, clock=self.clock, read_only=read_only
            ),
            clock=self.clock,
        )
        await service.start()
        if not read_only and "t" not in service.topics:
            await service.topics.create("t", 2, None)
        yield Service(service)
        await service.stop()


class Service:
    """A running service, and calls in the form that the tests use."""

    def __init__(self, service: LogService) -> None:
        self.service = service

    @property
    def transactions(self) -> Transactions:
        return self.service.transactions

    async def begin(self, name: str | None = None, timeout_ms: int = TIMEOUT_MS) -> Begun:
        return await self.transactions.begin(name, timeout_ms)

    async def put(self, producer: ProducerEpoch | None, at: TopicPartition, *values: str) -> None:
        """Append records, in the transaction of a producer if it is given."""
        records = [Record(None, value.encode()) for value in values]
        await self.service.producer.produce(
            Produce(
                topic=at.topic,
                partition=at.partition,
                records=records,
                reservation=self.service.budget.reserve(0),
                size_bytes=0,
                acks=Acks.ALL,
                transaction=producer,
            )
        )

    async def read(
        self, at: TopicPartition, isolation: Isolation = Isolation.READ_COMMITTED
    ) -> list[str]:
        """Return the values of a partition."""
        values: list[str] = []
        offset, start = -1, Start(StartAt.EARLIEST)
        while True:
            page = await self.service.fetch(Fetch(partition=at, start=start, isolation=isolation))
            values += [(record.value or b"").decode() for record in page.records]
            if page.next_offset == offset:
                return values
            offset = page.next_offset
            start = Start(StartAt.OFFSET, offset)
