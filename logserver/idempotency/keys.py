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
from typing import TypeAlias

from logserver.errors import NotReady
from logserver.idempotency.journal import (
    ENTRIES_OF_A_KEY,
    IdempotencyStore,
    JournalEntries,
    KeyedPart,
    KeyedRequest,
    ProducerPool,
    load_keys,
)
from logserver.service.access import StoreAccess
from logserver.service.requests import Acks, AppendOutcome, PartitionAppend, RequestKey
from storage import LogStore, ProducerSequence, StorageError, TopicPartition, open_journal
from storage.errors import OutOfOrderSequence
from storage.request_journal import JOURNAL

Submit: TypeAlias = Callable[
    [Sequence[PartitionAppend], Acks, JournalEntries], Awaitable[list[AppendOutcome]]
]


class KeyedWriter:
    """Appends requests by their keys. `submit` queues parts with their journal entries."""

    def __init__(self, access: StoreAccess, keys: IdempotencyStore, submit: Submit) -> None:
        self.keys = keys
        self._store = access.store
        self._run = access.run
        self._sync = access.settings.flush == "sync"
        self._submit = submit
        self._tasks: set[asyncio.Task[list[AppendOutcome]]] = set()
        self._closed = False

    async def close(self) -> None:
        """Wait for the requests in progress (the queue accepts no more), then flush and close the journal."""
        self._closed = True
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._run(self._close)

    def _close(self) -> None:
        with suppress(StorageError):
            self.keys.journal.flush()
        self.keys.journal.close()

    async def forget_topic(self, topic: str) -> None:
        """Forget the keys of a deleted topic; durable on return."""
        line = None if self._closed else self.keys.forget_topic(topic)
        if line is not None:
            await self._run(self.keys.journal.append, [line], sync=True)

    def append(
        self, key: RequestKey, parts: Sequence[PartitionAppend], acks: Acks
    ) -> asyncio.Future[list[AppendOutcome]]:
        """Store the parts that are not stored yet. Return a future of the offsets of all parts.

        The append continues if the caller is cancelled. All parts belong to one topic, and the key covers the request
        as a whole (see `RequestKey`). A part is stored whole or not at all. A request waits while another request
        with its key is in progress. The future may raise KeyReused, and what an append raises. Raises NotReady once
        the writer is closing.
        """
        if self._closed:
            raise NotReady("the server is stopping", state="stopping")
        task = asyncio.ensure_future(self._in_turn(key, parts, acks))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return asyncio.shield(task)

    async def _in_turn(
        self, key: RequestKey, parts: Sequence[PartitionAppend], acks: Acks
    ) -> list[AppendOutcome]:
        topic = parts[0].partition.topic
        while (request := self.keys.request(key, topic)).under_way is not None:
            await asyncio.wait((request.under_way,))
        under_way = request.under_way = asyncio.get_running_loop().create_future()
        try:
            return await self._append_missing(request, parts, acks)
        finally:
            request.under_way = None
            under_way.set_result(None)

    async def _append_missing(
        self, request: KeyedRequest, parts: Sequence[PartitionAppend], acks: Acks
    ) -> list[AppendOutcome]:
        outcomes: list[AppendOutcome] = []
        missing: list[PartitionAppend] = []
        for part in parts:
            known = request.parts.get(part.partition.partition)
            if known is None or known.base_offset is None:
                missing.append(part)
                continue
            outcomes.append(await self._stored_before(part, known.base_offset, acks))
        if missing:
            outcomes += await self._append(request, missing, acks)
        return outcomes

    async def _stored_before(
        self, part: PartitionAppend, base_offset: int, acks: Acks
    ) -> AppendOutcome:
        """Return the outcome of a part that an earlier request stored, once it is as durable as `acks` requires."""
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
        self.keys.journal.flush()
        self._store.flush([partition])

    async def _append(
        self, request: KeyedRequest, parts: Sequence[PartitionAppend], acks: Acks
    ) -> list[AppendOutcome]:
        numbers = [part.partition.partition for part in parts]
        has_old_marks = not request.parts.keys().isdisjoint(numbers)
        try:
            return await self._attempt(request, parts, acks)
        except OutOfOrderSequence:
            if not has_old_marks:
                raise
            # A crash lost earlier records of these producers, so these parts are not stored either.
            for number in numbers:
                request.parts.pop(number, None)
            return await self._attempt(request, parts, acks)

    async def _attempt(
        self, request: KeyedRequest, parts: Sequence[PartitionAppend], acks: Acks
    ) -> list[AppendOutcome]:
        marked = []
        for part in parts:
            number = part.partition.partition
            pool = ProducerPool(part.partition, acks is Acks.ALL)
            known = request.parts.get(number)
            if known is None:
                mark = self.keys.idle_mark(pool) or await self._new_mark()
                request.parts[number] = KeyedPart(mark, len(part.positions), pool)
            elif known.pool != pool:
                known.pool = None  # the attempts differ in whether they wait for the disk
            marked.append(replace(part, producer=request.parts[number].mark))
        entries = self.keys.journal_entries(request, [part.partition.partition for part in parts])
        outcomes = await self._submit(marked, acks, entries)
        self.keys.stored(request, outcomes, entries)
        return outcomes

    async def _new_mark(self) -> ProducerSequence:
        return ProducerSequence(await self._run(self._store.new_producer_id), 0, 0)


async def open_keyed_writer(access: StoreAccess, submit: Submit) -> KeyedWriter:
    """Open the journal next to the store, and restore the keys of requests from before this start."""
    store, max_keys = access.store, access.settings.max_idempotency_keys
    journal = await access.run(
        open_journal, store, JOURNAL, generation_entries=max_keys * ENTRIES_OF_A_KEY
    )
    losses = store.recovery.losses
    keys = await access.run(
        load_keys, journal, store.bounds, clock=access.clock, max_keys=max_keys, losses=losses
    )
    return KeyedWriter(access, keys, submit)


def _locators(
    store: LogStore, partition: TopicPartition, base_offset: int, stop: int
) -> Sequence[int]:
    """Return the locators of stored records; empty if the records no longer exist."""
    try:
        return [record.locator for record in store.scan(partition, base_offset, stop)]
    except StorageError:
        return ()
