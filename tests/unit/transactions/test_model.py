"""Transactions against a plain dictionary: any order of requests, kills, restarts and time-outs.

The model knows of each transaction its values and whether it is open, committed or rolled back. Readers of committed
records must see exactly the committed values, each once, and groups exactly the committed offsets.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, suppress
from functools import partial
from typing import TypeVar

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from logserver.errors import TransactionEnded, UnknownTransaction
from logserver.transactions.service import Begun
from storage import CommittedOffset, SupportsGroupOffsets, TopicPartition
from storage.errors import FencedProducer
from tests.unit.transactions.running import T0, T1, TIMEOUT_MS, Disk, Service

T = TypeVar("T")
PARTITIONS = (T0, T1)
REFUSED = (FencedProducer, TransactionEnded, UnknownTransaction)


class Model:
    """One transaction as a client knows it. `open`, `committed`, `rolled back` or, once another producer has taken its
    name over, `fenced`.
    """

    def __init__(self, begun: Begun, name: str | None, begun_ms: int) -> None:
        self.begun = begun
        self.name = name
        self.begun_ms = begun_ms
        self.first_ms: int | None = None  # of its first record: from then on the time counts
        self.state = "open"
        self.values: list[tuple[TopicPartition, str]] = []
        self.offsets: dict[str, int] = {}


class Transactions(RuleBasedStateMachine):
    """The service on files in memory, and the dictionary."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.disk = Disk()
        self.stack = AsyncExitStack()
        self.running: Service
        self.model: dict[str, Model] = {}
        self.plain: list[tuple[TopicPartition, str]] = []
        self.groups: dict[str, int] = {}
        self.count = 0
        self.start()

    # ---- the service ----

    def run(self, call: Awaitable[T]) -> T:
        async def inner() -> T:
            return await call

        return self.loop.run_until_complete(inner())

    def start(self) -> None:
        self.running = self.run(self.stack.enter_async_context(self.disk.serving()))

    def teardown(self) -> None:
        self.run(self.stack.aclose())
        self.loop.close()

    @rule(kill=st.booleans())
    def restart(self, kill: bool) -> None:
        """Stop, or be killed, and start again. A transaction without a record may be unknown then."""
        after = self.disk.after_kill() if kill else self.disk
        self.run(self.stack.aclose())
        self.stack = AsyncExitStack()
        self.disk = after
        self.start()
        for one in self.model.values():
            if one.state == "open" and one.first_ms is None and one.name is None:
                one.state = "forgotten"

    # ---- requests ----

    @rule(name=st.sampled_from([None, None, "a", "b"]))
    def begin(self, name: str | None) -> None:
        begun = self.run(self.running.begin(name))
        assert begun.id not in self.model, "an epoch is used once"
        for one in self.model.values():
            if name is not None and one.name == name and one.state == "open":
                one.state = "fenced"
        self.model[begun.id] = Model(begun, name, self.disk.clock.now_ms)

    @precondition(lambda self: self.model)
    @rule(data=st.data(), at=st.sampled_from(PARTITIONS))
    def put(self, data: st.DataObject, at: TopicPartition) -> None:
        one = self.chosen(data)
        value = f"{self.count}"
        self.count += 1
        if self.may(one, partial(self.running.put, one.begun.producer, at, value)):
            one.values.append((at, value))

    @precondition(lambda self: self.model)
    @rule(data=st.data(), group=st.sampled_from(["g", "h"]))
    def offsets(self, data: st.DataObject, group: str) -> None:
        one = self.chosen(data)
        offset = self.running.service.store.bounds(T0).end
        offsets = {T0: CommittedOffset(offset)}
        commit = self.running.transactions.commit_offsets
        if self.may(one, partial(commit, one.begun.producer, group, offsets)):
            one.offsets[group] = offset

    @rule(at=st.sampled_from(PARTITIONS))
    def put_plain(self, at: TopicPartition) -> None:
        self.run(self.running.put(None, at, f"{self.count}"))
        self.plain.append((at, f"{self.count}"))
        self.count += 1

    @precondition(lambda self: self.model)
    @rule(data=st.data(), commit=st.booleans())
    def end(self, data: st.DataObject, commit: bool) -> None:
        one = self.chosen(data)
        wanted = "committed" if commit else "rolled back"
        if self.is_overdue(one) and commit:
            self.refused(self.running.transactions.end_by_id(one.begun.id, commit=True))
            one.state = "rolled back"
        elif one.state == "open":
            self.run(self.running.transactions.end_by_id(one.begun.id, commit=commit))
            one.state = wanted
            if commit:
                self.groups |= one.offsets
        elif one.state == wanted:  # a repeat: recognised, or refused once it is long ago
            with suppress(*REFUSED):
                self.run(self.running.transactions.end_by_id(one.begun.id, commit=commit))
        else:
            self.refused(self.running.transactions.end_by_id(one.begun.id, commit=commit))

    @rule(hours=st.sampled_from([0, 0, 1]))
    def time_passes(self, hours: int) -> None:
        """Upkeep rolls back the transactions over their time-out, and no others."""
        self.disk.clock.now_ms += 1000 + hours * 3_600_000
        self.run(self.running.transactions.expire(self.disk.clock.now_ms))
        for one in self.model.values():
            began_ms = one.begun_ms if one.first_ms is None else one.first_ms
            is_named_only = one.first_ms is None and one.name is not None
            if one.state == "open" and began_ms + TIMEOUT_MS <= self.disk.clock.now_ms:
                if is_named_only and not self.knows(one):
                    continue
                one.state = "rolled back"

    def knows(self, one: Model) -> bool:
        """Whether the server knows since when a transaction without a record is open: not after a restart."""
        try:
            self.run(self.running.transactions.resolve(one.begun.id))
        except REFUSED:
            return True
        return False

    # ---- what must hold ----

    @invariant()
    def readers_see_the_committed_transactions(self) -> None:
        expected = list(self.plain)
        for one in self.model.values():
            if one.state == "committed":
                expected += one.values
        found = [(at, value) for at in PARTITIONS for value in self.run(self.running.read(at))]
        stable = all(one.state != "open" or one.first_ms is None for one in self.model.values())
        if stable:
            assert sorted(found) == sorted(expected)
        else:  # nothing beyond the first record of an open transaction is seen yet
            assert len(found) == len(set(found))
            assert set(found) <= set(expected)

    @invariant()
    def groups_have_the_committed_offsets(self) -> None:
        store = self.running.service.store
        assert isinstance(store, SupportsGroupOffsets)
        found = {g: store.committed(g)[T0].offset for g in store.groups()}
        assert found == self.groups

    # ---- helpers ----

    def chosen(self, data: st.DataObject) -> Model:
        return self.model[data.draw(st.sampled_from(sorted(self.model)))]

    def is_overdue(self, one: Model) -> bool:
        if one.state != "open" or one.first_ms is None:
            return False
        return one.first_ms + TIMEOUT_MS <= self.disk.clock.now_ms

    def may(self, one: Model, call: Callable[[], Awaitable[None]]) -> bool:
        """Do a request of a transaction: it is refused exactly if the transaction is not open."""
        if self.is_overdue(one):
            one.state = "rolled back"
            self.refused(self.resolved(one, call))
            return False
        if one.state != "open":
            self.refused(self.resolved(one, call))
            return False
        self.run(self.resolved(one, call))
        if one.first_ms is None:
            one.first_ms = self.disk.clock.now_ms
        return True

    async def resolved(self, one: Model, call: Callable[[], Awaitable[None]]) -> None:
        """Do a call as HTTP does: the id first gives the producer."""
        assert await self.running.transactions.resolve(one.begun.id) == one.begun.producer
        await call()

    def refused(self, call: Awaitable[object]) -> None:
        try:
            self.run(call)
        except REFUSED:
            return
        raise AssertionError("the request was done")


Transactions.TestCase.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)
TestTransactions = Transactions.TestCase
