"""Requests with an idempotency key: each is stored once, however often it is sent.

Owns the order of requests with the same key, and which parts of a request are appended; must not know HTTP.
`logserver.idempotency.journal` defines which data is kept of a request, and why this holds after a crash. Use it on the
event loop only.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, TypeAlias

from logserver.config import Settings
from logserver.idempotency.journal import (
    ENTRIES_OF_A_KEY,
    Entry,
    Keybook,
    KeyedPart,
    Note,
    Stock,
    open_book,
)
from logserver.service.commit import Acks, AppendOutcome, PartitionAppend
from logserver.service.requests import RequestKey
from storage import (
    Clock,
    LogStore,
    ProducerSequence,
    StorageError,
    TopicPartition,
    open_journal,
)
from storage.errors import OutOfOrderSequence
from storage.request_journal import JOURNAL

Submit: TypeAlias = Callable[
    [Sequence[PartitionAppend], Acks, Note], Awaitable[list[AppendOutcome]]
]
InThread: TypeAlias = Callable[..., Awaitable[Any]]


class Idempotency:
    """Appends requests by their keys.

    `submit` queues parts with a note. `run` runs a blocking call in a thread. `sync`: acks=all waits until the
    records are on disk.
    """

    def __init__(
        self, store: LogStore, book: Keybook, *, submit: Submit, run: InThread, sync: bool
    ) -> None:
        self.book = book
        self._store = store
        self._submit = submit
        self._run = run
        self._sync = sync
        self._tasks: set[asyncio.Task[list[AppendOutcome]]] = set()

    async def close(self) -> None:
        """Wait for the requests in progress (the queue accepts no more), then flush and close the journal."""
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._run(self._close)

    def _close(self) -> None:
        with suppress(StorageError):
            self.book.journal.flush()
        self.book.journal.close()

    async def forget_topic(self, topic: str) -> None:
        """Forget the keys of a deleted topic; durable on return."""
        line = self.book.forget_topic(topic)
        if line is not None:
            await self._run(self.book.journal.append, [line], sync=True)

    def append(
        self, key: RequestKey, parts: Sequence[PartitionAppend], acks: Acks
    ) -> asyncio.Future[list[AppendOutcome]]:
        """Store the parts that are not stored yet. Return a future of the offsets of all parts.

        The append continues if the caller is cancelled. All parts belong to one topic, and the key covers the request
        as a whole (see `RequestKey`). A part is stored whole or not at all. A request waits while another request
        with its key is in progress. The future may raise KeyReused, and what an append raises.
        """
        task = asyncio.ensure_future(self._in_turn(key, parts, acks))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return asyncio.shield(task)

    async def _in_turn(
        self, key: RequestKey, parts: Sequence[PartitionAppend], acks: Acks
    ) -> list[AppendOutcome]:
        topic = parts[0].partition.topic
        while (entry := self.book.entry(key, topic)).under_way is not None:
            await asyncio.wait((entry.under_way,))
        under_way = entry.under_way = asyncio.get_running_loop().create_future()
        try:
            return await self._append_missing(entry, parts, acks)
        finally:
            entry.under_way = None
            under_way.set_result(None)

    async def _append_missing(
        self, entry: Entry, parts: Sequence[PartitionAppend], acks: Acks
    ) -> list[AppendOutcome]:
        runs: list[AppendOutcome] = []
        missing: list[PartitionAppend] = []
        for part in parts:
            known = entry.parts.get(part.partition.partition)
            if known is None or known.base_offset is None:
                missing.append(part)
                continue
            runs.append(await self._stored_before(part, known.base_offset, acks))
        if missing:
            runs += await self._append(entry, missing, acks)
        return runs

    async def _stored_before(
        self, part: PartitionAppend, base_offset: int, acks: Acks
    ) -> AppendOutcome:
        """Return the run of a part that an earlier request stored, once it is as durable as `acks` requires."""
        if self._sync and acks is Acks.ALL:
            await self._run(self._make_durable, part.partition)
        locators: Sequence[int] = ()
        if self._store.capabilities.messages:
            stop = base_offset + len(part.positions)
            locators = await self._run(_locators, self._store, part.partition, base_offset, stop)
        return AppendOutcome(
            part.partition.partition, part.positions, base_offset, locators=locators
        )

    def _make_durable(self, partition: TopicPartition) -> None:
        """Flush the journal and the records: the earlier request may not have waited for the disk."""
        self.book.journal.flush()
        self._store.flush([partition])

    async def _append(
        self, entry: Entry, parts: Sequence[PartitionAppend], acks: Acks
    ) -> list[AppendOutcome]:
        numbers = [part.partition.partition for part in parts]
        has_old_marks = not entry.parts.keys().isdisjoint(numbers)
        try:
            return await self._attempt(entry, parts, acks)
        except OutOfOrderSequence:
            if not has_old_marks:
                raise
            # A crash lost earlier records of these producers, so these parts are not stored either.
            for number in numbers:
                entry.parts.pop(number, None)
            return await self._attempt(entry, parts, acks)

    async def _attempt(
        self, entry: Entry, parts: Sequence[PartitionAppend], acks: Acks
    ) -> list[AppendOutcome]:
        marked = []
        for part in parts:
            number = part.partition.partition
            stock = Stock(part.partition, acks is Acks.ALL)
            known = entry.parts.get(number)
            if known is None:
                mark = self.book.idle_mark(stock) or await self._new_mark()
                entry.parts[number] = KeyedPart(mark, len(part.positions), stock)
            elif known.stock != stock:
                known.stock = None  # the attempts differ in whether they wait for the disk
            marked.append(replace(part, producer=entry.parts[number].mark))
        note = self.book.note(entry, [part.partition.partition for part in parts])
        runs = await self._submit(marked, acks, note)
        self.book.stored(entry, runs, note)
        return runs

    async def _new_mark(self) -> ProducerSequence:
        return ProducerSequence(await self._run(self._store.new_producer_id), 0, 0)


async def open_idempotency(
    store: LogStore, settings: Settings, *, submit: Submit, run: InThread, clock: Clock
) -> Idempotency:
    """Open the journal next to the store, and restore the keys of requests from before this start."""
    max_keys = settings.max_idempotency_keys
    journal = await run(
        open_journal, store, JOURNAL, generation_entries=max_keys * ENTRIES_OF_A_KEY
    )
    losses = store.recovery.losses
    book = await run(
        open_book, journal, store.bounds, clock=clock, max_keys=max_keys, losses=losses
    )
    return Idempotency(store, book, submit=submit, run=run, sync=settings.flush == "sync")


def _locators(
    store: LogStore, partition: TopicPartition, base_offset: int, stop: int
) -> Sequence[int]:
    """Return the locators of stored records; empty if the records no longer exist."""
    try:
        return [record.locator for record in store.scan(partition, base_offset, stop)]
    except StorageError:
        return ()
