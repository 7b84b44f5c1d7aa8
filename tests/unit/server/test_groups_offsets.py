"""The path of commits: many in one call, in order, each with its own answer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

import storage
from logserver.config import Settings
from logserver.groups.offsets import Offsets
from logserver.service.access import StoreAccess
from logserver.service.topics import TopicCatalog
from storage import CommittedOffset, LogStore, Record, StoreOptions, TopicPartition
from storage.errors import UnknownTopic
from tests.robustness.crash.power import Power
from tests.unit.rocketmq.workshop import SMALL, by_hand

T0 = TopicPartition("t", 0)


class Slow:
    """A runner of blocking calls that waits until its gate is open, and counts the calls that commit."""

    def __init__(self) -> None:
        self.gate = asyncio.Event()
        self.commits = 0

    async def __call__(self, call: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Wait for the gate, then make the call."""
        await self.gate.wait()
        self.commits += call.__name__ == "commit_offsets"
        return call(*args, **kwargs)


@pytest.fixture
def store(tmp_path: Any) -> LogStore:
    """A memory store with the topic t."""
    opened = storage.open_store("memory", tmp_path)
    opened.create_topic("t", 1)
    return opened


def offsets_of(store: LogStore, run: Slow, flush: str = "sync") -> Offsets:
    """Return an `Offsets` over a store, without the other parts of a server."""
    access = SimpleNamespace(store=store, run=run, settings=Settings(flush=flush))
    return Offsets(TopicCatalog(cast("StoreAccess", access), store.topics()), ())


async def test_commits_that_come_meanwhile_share_a_call(store: LogStore) -> None:
    run = Slow()
    offsets = offsets_of(store, run)
    answers = [offsets.submit("g", {T0: CommittedOffset(0)})]
    await asyncio.sleep(0)  # the first commit runs alone
    answers += [offsets.submit(f"g{number}", {T0: CommittedOffset(0)}) for number in range(50)]
    run.gate.set()
    await asyncio.gather(*answers)
    assert run.commits == 2
    assert len(await offsets.groups()) == 51


@pytest.mark.parametrize(
    ("backend", "flush", "survives"),
    [
        ("kafka", "sync", True),
        ("kafka", "async", True),
        ("kafka", "os", False),
        ("rocketmq", "async", True),
    ],
)
async def test_what_a_commit_means_after_a_power_loss(
    backend: str, flush: str, survives: bool
) -> None:
    """In mode async records may be lost, but a commit is on disk: no upkeep syncs it later."""
    power, path, run = Power(), Path("/store"), Slow()
    run.gate.set()
    options = StoreOptions(settings=SMALL if backend == "rocketmq" else {})  # all is in memory
    with by_hand():
        store = storage.open_store(backend, path, options, fs=power)
        store.create_topic("t", 1)
        store.append(T0, [Record(None, b"v")] * 2)
        await offsets_of(store, run).commit("g", {T0: CommittedOffset(1)})
        await offsets_of(store, run, flush).commit("g", {T0: CommittedOffset(2)})
        found = storage.open_store(backend, path, options, fs=power.cut())
        assert isinstance(found, storage.SupportsGroupOffsets)
        assert found.committed("g")[T0].offset == (2 if survives else 1)


async def test_the_later_commit_counts_and_is_seen_by_who_asks_after_it(store: LogStore) -> None:
    run = Slow()
    offsets = offsets_of(store, run)
    for offset in (5, 3):
        offsets.submit("g", {T0: CommittedOffset(offset)})
    asked = asyncio.create_task(offsets.committed("g"))
    await asyncio.sleep(0)
    assert not asked.done()
    run.gate.set()
    assert (await asked)[T0].offset == 3


async def test_a_mistake_of_ours_keeps_nobody_waiting(
    store: LogStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Slow()
    run.gate.set()
    offsets = offsets_of(store, run)

    def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError

    broken.__name__ = "commit_offsets"
    with monkeypatch.context() as patched:
        patched.setattr(store, "commit_offsets", broken)
        answers = [offsets.submit(group, {T0: CommittedOffset(1)}) for group in "ab"]
        reported = await asyncio.wait_for(asyncio.gather(*answers, return_exceptions=True), 10)
    assert [type(error) for error in reported] == [ZeroDivisionError] * 2
    await asyncio.wait_for(offsets.commit("a", {T0: CommittedOffset(2)}), 10)
    assert (await offsets.committed("a"))[T0].offset == 2


async def test_one_that_is_refused_spoils_no_other(store: LogStore) -> None:
    run = Slow()
    run.gate.set()
    offsets = offsets_of(store, run)
    gone = {TopicPartition("gone", 0): CommittedOffset(0)}
    answers = [
        offsets.submit("a", {T0: CommittedOffset(1)}),
        offsets.submit("b", gone),
        offsets.submit("c", {T0: CommittedOffset(2)}),
    ]
    results = await asyncio.gather(*answers, return_exceptions=True)
    assert isinstance(results[1], UnknownTopic)
    assert results[0] is results[2] is None
    assert await offsets.groups() == ["a", "c"]


async def test_who_stops_waiting_does_not_stop_the_commit(store: LogStore) -> None:
    run = Slow()
    offsets = offsets_of(store, run)
    waiting = asyncio.create_task(offsets.commit("g", {T0: CommittedOffset(1)}))
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.wait((waiting,))
    run.gate.set()
    assert (await offsets.committed("g"))[T0].offset == 1
