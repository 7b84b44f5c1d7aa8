"""Requests with an idempotency key, in a workload and after its crashes: each is stored once, however often it is sent.

Owns how they are sent through the server's own group commit, and how a repeat must be answered; must not choose the
requests.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import Any, ParamSpec, TypeVar

from logserver.config import Settings
from logserver.idempotency.keys import KeyedWriter, open_keyed_writer
from logserver.metrics import Metrics
from logserver.service.access import RunInThread, ServerState, StoreAccess
from logserver.service.commit import Writer
from logserver.service.fetch import Waiters
from logserver.service.requests import Acks, PartitionAppend, RequestKey
from storage import LogStore, TopicPartition
from tests.contract.harness import ManualClock
from tests.robustness.crash.history import Acked, Flushed, History, Note, Sent, origin_of
from tests.robustness.crash.invariants import require

P = ParamSpec("P")
T = TypeVar("T")

MAX_KEYS = 6  # fewer than a workload sends, so that generations change
LAST_KEYS = 4  # of these a repeat is always recognised
FORGOTTEN = ""  # in place of a key that a store may forget: keeps older keys out of the last ones


async def at_once(function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
    """Call a function directly, in place of `asyncio.to_thread`, where no other task is on the loop."""
    return function(*args, **kwargs)


async def keys_of(
    store: LogStore,
    writer: Writer,
    clock: ManualClock,
    *,
    sync: bool,
    run: RunInThread = asyncio.to_thread,
) -> KeyedWriter:
    """Open the idempotency keys of the store."""
    settings = Settings(flush="sync" if sync else "async", max_idempotency_keys=MAX_KEYS)
    access = StoreAccess(
        store=store,
        state=ServerState(),
        settings=settings,
        run=run,
        waiters=Waiters(limit=0),
        clock=clock,
    )
    return await open_keyed_writer(access, writer.submit)


async def send(keyed: KeyedWriter, sent: Sent, acks: Acks) -> int:
    """Send one request; return the offset of its first record."""
    assert sent.key is not None
    part = PartitionAppend(sent.partition, sent.records, range(len(sent.records)))
    (run,) = await keyed.append(RequestKey(sent.key, b"digest"), [part], acks)
    assert run.error is None
    return run.base_offset


def on_own_loop(work: Coroutine[Any, Any, None]) -> None:
    """Run a coroutine to its end, in a separate thread: the caller may be on a loop."""
    with ThreadPoolExecutor(1) as thread:
        thread.submit(asyncio.run, work).result()


async def repeat_all(
    store: LogStore,
    note: Callable[[Note], None],
    history: History,
    *,
    killed: bool,
    clock: ManualClock,
) -> None:
    """Check I1 and I3: repeat the last requests with a key; an answered request is stored, and stored once."""
    last = [sent for sent in history.sent.values() if sent.key is not None][-LAST_KEYS:]
    async with _serving(store, clock) as keyed:
        for sent in last:
            if sent.key == FORGOTTEN:
                continue
            known = _offsets(store, sent.partition)
            there = [known.get((sent.request, index)) for index in range(len(sent.records))]
            is_there = there[-1] is not None
            if is_there and not (killed or sent.durable):
                history.sent[sent.request] = sent._replace(key=FORGOTTEN)  # may be forgotten
                continue
            end = store.bounds(sent.partition).end
            base = await send(keyed, sent, Acks.ALL)
            if there[-1] is not None:
                first = there[-1] + 1 - len(sent.records)
                require(base == first, "I3", f"repeat of {sent.request} at {there} gave {base}")
            elif base < end:
                stop = history.starts.get(sent.partition, 0)
                require(base < stop, "I1", f"repeat of {sent.request} counts as stored at {base}")
                continue
            note(sent._replace(durable=True))
            note(Acked(sent.request, base))
            note(Flushed(frozenset({sent.request})))


@asynccontextmanager
async def _serving(store: LogStore, clock: ManualClock) -> AsyncIterator[KeyedWriter]:
    writer = Writer(store, sync=True, metrics=Metrics(), published=lambda partition: None)
    keyed = await keys_of(store, writer, clock, sync=True, run=at_once)
    try:
        yield keyed
    finally:
        await writer.close()
        await keyed.close()


def _offsets(store: LogStore, partition: TopicPartition) -> Mapping[tuple[int, int], int]:
    return {origin_of(record.value): record.offset for record in store.scan(partition)}
