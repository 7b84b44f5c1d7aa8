"""Transactions on a disk that fails: the answers to clients, and the guarantees that a crash must keep.

Owns a workload of transactions through the server's own coordinator, the notes of its clients, and the check of the
store that a crash leaves; must not know what a crash keeps (disk.py). The guarantees:

    T1  a commit that was answered: every record is seen by readers of committed records, once, and its offset counts
    T2  a rollback that was answered, and a transaction without an end: no record is seen, its offset does not count
    T3  an end without an answer: all or nothing, and a record that was seen stays
    T4  a transaction that was open goes on: its confirmed records are there, and it can be committed
    T5  once every transaction has ended, no record is held back from readers
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from logserver.config import Settings
from logserver.errors import TransactionEnded, UnknownTransaction
from logserver.service.requests import Acks, Produce
from logserver.service.service import LogService
from storage import (
    CommittedOffset,
    Isolation,
    LogStore,
    Record,
    StorageError,
    StoreOptions,
    SupportsGroupOffsets,
    TopicPartition,
    TransactionStatus,
    open_store,
)
from storage.files import FileSystem
from tests.contract.harness import ManualClock
from tests.robustness.crash.invariants import require

PATH = Path("/s/store")
PARTITIONS = [TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)]
SETTINGS = {
    "internal.segment.bytes": "900",
    "segment.index.bytes": "240",
    "index.interval.bytes": "90",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "2",
}
TIMEOUT_MS = 60_000
CLIENTS = 3


class Fact(NamedTuple):
    """A fact that a client knows from here on: a record that was sent or confirmed, or an end that was asked for or
    answered. `number` is the transaction's.
    """

    number: int
    what: str
    value: str | None = None
    offset: int | None = None


@dataclass
class Client:
    """What a client knows of one transaction: its id, its records, and whether and how it ended."""

    id: str
    sent: list[str] = field(default_factory=list)
    confirmed: list[str] = field(default_factory=list)
    offset: int | None = None  # of the group `g` and its number, in a-0
    asked: str | None = None  # commit or rollback
    answered: bool = False


class Book:
    """The notes of all clients up to one moment."""

    def __init__(self) -> None:
        self.clients: dict[int, Client] = {}
        self.known: set[int] = (
            set()
        )  # transactions with a confirmed record: their state is on the disk

    def note(self, fact: object) -> None:
        """Add a fact."""
        assert isinstance(fact, Fact)
        number, what, value, offset = fact
        if what == "begun":
            assert value is not None
            self.clients[number] = Client(value)
            return
        client = self.clients[number]
        if what == "sending":
            assert value is not None
            client.sent.append(value)
        elif what == "sent":
            assert value is not None
            client.confirmed.append(value)
            self.known.add(number)
        elif what == "offset":
            client.offset = offset
        elif what in {"commit", "rollback"}:
            client.asked = what
        else:
            client.answered = True


def service_on(fs: FileSystem, clock: ManualClock, *, flush: str = "sync") -> LogService:
    """Return a service, not started yet, on files."""
    options = StoreOptions(settings=SETTINGS, open_files=32)
    return LogService(
        Settings(data=PATH, flush=flush),
        lambda _: open_store("kafka", PATH, options, fs=fs, clock=clock),
        clock=clock,
    )


class Workload:
    """Clients that run transactions on one service, concurrently; `note` gets each fact as a client learns it."""

    def __init__(self, service: LogService, seed: int, note: object, first: int = 0) -> None:
        self._service = service
        self._dice = random.Random(seed)
        self._note = note
        self._next = first

    async def run(self, each: int) -> None:
        """Run `each` transactions for each client. Errors of the store end a client's transaction, with an unknown
        outcome.
        """
        if "a" not in self._service.topics:
            await self._service.topics.create("a", 2, None)
            await self._service.topics.create("b", 1, None)
        await asyncio.gather(*(self._client(each) for _ in range(CLIENTS)))

    async def _client(self, each: int) -> None:
        for _ in range(each):
            with suppress(StorageError):
                await self._one()

    async def _one(self) -> None:
        transactions = self._service.transactions
        number, self._next = self._next, self._next + 1
        name = self._dice.choice([None, f"named-{number}"])
        begun = await transactions.begin(name, TIMEOUT_MS)
        self._tell(number, "begun", begun.id)
        for index in range(self._dice.choice([1, 2, 3])):
            value = f"{number}.{index}"
            self._tell(number, "sending", value)
            at = self._dice.choice(PARTITIONS)
            await self._put(at, value, begun.id)
            self._tell(number, "sent", value)
        if self._dice.random() < 0.3:
            self._tell(number, "offset", offset=number)
            # The records below the offset must exist.
            end = self._service.store.bounds(PARTITIONS[0]).end
            at_offset = {PARTITIONS[0]: CommittedOffset(min(end, number), metadata=f"{number}")}
            await transactions.commit_offsets(begun.producer, f"g{number}", at_offset)
        how = self._dice.choice(["commit", "commit", "rollback", "open"])
        if how == "open":
            return
        self._tell(number, how)
        await transactions.end_by_id(begun.id, commit=how == "commit")
        self._tell(number, "answered")

    async def _put(self, at: TopicPartition, value: str, transaction_id: str) -> None:
        producer = await self._service.transactions.resolve(transaction_id)
        await self._service.producer.produce(
            Produce(
                topic=at.topic,
                partition=at.partition,
                records=[Record(None, value.encode() + b" " * self._dice.choice([0, 60]))],
                reservation=self._service.budget.reserve(0),
                size_bytes=0,
                acks=self._dice.choice([Acks.ALL, Acks.WRITTEN]),
                transaction=producer,
            )
        )

    def _tell(
        self, number: int, what: str, value: str | None = None, offset: int | None = None
    ) -> None:
        self._note(Fact(number, what, value, offset))  # type: ignore[operator]


async def check(book: Book, fs: FileSystem, clock: ManualClock, *, killed: bool) -> None:
    """Start a service on the files that a crash left, and check T1 to T5. `killed`: the power stayed on, so every
    written byte is there. Raises Broken.
    """
    service = service_on(fs, clock)
    await service.start()
    try:
        await _completed(service)
        seen = committed(service.store)
        going_on = [n for n in sorted(book.known) if book.clients[n].asked is None]
        for number in going_on:
            await _commit(service, number, book.clients[number])
        # Readers wait at the first record of an open transaction: end all others too.
        await service.transactions.expire(clock.now_ms + TIMEOUT_MS)
        for at in PARTITIONS:
            if at.topic in service.topics:
                bounds = service.store.bounds(at)
                require(bounds.stable == bounds.end, "T5", f"{at}: {bounds}")
        later, offsets = committed(service.store), _offsets(service.store)
        require(set(seen) <= set(later), "T3", f"seen and gone: {set(seen) - set(later)}")
        for number, client in book.clients.items():
            if number not in going_on:
                _check_client(number, client, later, offsets)
                continue
            missing = [value for value in client.confirmed if not later.get(value)]
            if killed:  # records with acks=1 may be lost with the power before the commit
                require(not missing, "T4", f"transaction {number}: {missing} is missing")
    finally:
        await service.stop()


async def _completed(service: LogService) -> None:
    """Wait until the ends whose outcome is stored are complete."""
    prepared = (TransactionStatus.PREPARE_COMMIT, TransactionStatus.PREPARE_ABORT)
    while await service.transactions.states(prepared):  # noqa: ASYNC110  # no event for tests
        await asyncio.sleep(0)


def _check_client(
    number: int, client: Client, seen: Mapping[str, int], offsets: Mapping[str, str]
) -> None:
    counts = {value: seen.get(value, 0) for value in client.sent}
    require(max(counts.values(), default=0) <= 1, "T1", f"transaction {number}: twice: {counts}")
    group = f"g{number}"
    if client.asked == "commit" and client.answered:
        missing = [value for value in client.confirmed if not seen.get(value)]
        require(not missing, "T1", f"transaction {number} was committed, {missing} is missing")
        if client.offset is not None:
            require(offsets.get(group) == f"{number}", "T1", f"the offset of {group} is missing")
    elif client.asked != "commit":
        require(not any(counts.values()), "T2", f"transaction {number} has no commit: {counts}")
        require(group not in offsets, "T2", f"the offset of {group} counts")
    else:
        found = [value for value in client.confirmed if seen.get(value)]
        whole = len(found) in {0, len(client.confirmed)}
        require(whole, "T3", f"transaction {number}: {found} of {client.confirmed}")
        if client.offset is not None:
            require((group in offsets) == bool(found), "T3", f"the offset of {group} alone")


async def _commit(service: LogService, number: int, client: Client) -> None:
    """Commit a transaction that was open, with a confirmed record, at the crash."""
    try:
        await service.transactions.end_by_id(client.id, commit=True)
    except (TransactionEnded, UnknownTransaction) as error:
        require(False, "T4", f"transaction {number}, {client.id}: {error}")


def committed(store: LogStore) -> dict[str, int]:
    """Return how often readers of committed records see each value."""
    counts: dict[str, int] = {}
    for at in PARTITIONS:
        if at.topic in store.topics():
            for value in _values(store, at):
                counts[value] = counts.get(value, 0) + 1
    return counts


def _values(store: LogStore, at: TopicPartition) -> Iterable[str]:
    for record in store.scan(at, isolation=Isolation.READ_COMMITTED):
        yield (record.value or b"").decode().strip()


def _offsets(store: LogStore) -> dict[str, str]:
    assert isinstance(store, SupportsGroupOffsets)
    return {
        group: committed_at.metadata
        for group in store.groups()
        for committed_at in store.committed(group).values()
    }
