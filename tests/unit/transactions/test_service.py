"""The coordinator over a store: all or nothing, fencing, time-outs, restarts at any step, errors of the disk."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from logserver.errors import Busy, NotReady, TransactionEnded, UnknownTransaction
from logserver.transactions import machine
from logserver.transactions.ids import UNNAMED
from logserver.transactions.service import STEP_MS
from storage import (
    CommittedOffset,
    Isolation,
    ProducerEpoch,
    Record,
    SupportsGroupOffsets,
    TopicPartition,
    TransactionState,
    TransactionStatus,
)
from storage.errors import (
    DiskFull,
    FencedProducer,
    InvalidArgument,
    NotOffered,
    OffsetOutOfRange,
    StoreReadOnly,
)
from storage.transactions import EXHAUSTED_EPOCH
from tests.http.harness import opener, serving, settings
from tests.unit.transactions.running import T0, T1, TIMEOUT_MS, Disk, Service

S = TransactionStatus
ALL = Isolation.READ_UNCOMMITTED


async def only_state(running: Service) -> TransactionState:
    (listed,) = await running.transactions.states()
    return listed.state


@pytest.mark.parametrize("commit", [True, False])
async def test_all_or_nothing_in_several_partitions(commit: bool) -> None:
    async with Disk().serving() as running:
        begun = await running.begin()
        await running.put(begun.producer, T0, "a", "b")
        await running.put(begun.producer, T1, "c")
        await running.put(None, T0, "plain")
        await running.put(begun.producer, T0, "d")
        assert await running.read(T0) == []
        assert await running.read(T0, ALL) == ["a", "b", "plain", "d"]
        await running.transactions.end(begun.producer, commit=commit)
        assert await running.read(T0) == (["a", "b", "plain", "d"] if commit else ["plain"])
        assert await running.read(T1) == (["c"] if commit else [])


async def test_a_repeated_end_is_answered_as_before_and_the_other_is_refused() -> None:
    async with Disk().serving() as running:
        for commit in (True, False):
            begun = await running.begin()
            await running.put(begun.producer, T0, "a")
            for _ in range(2):
                await running.transactions.end_by_id(begun.id, commit=commit)
                await running.transactions.end(begun.producer, commit=commit)
            with pytest.raises(TransactionEnded, match="committed" if commit else "rolled back"):
                await running.transactions.end_by_id(begun.id, commit=not commit)
            with pytest.raises(TransactionEnded):
                await running.transactions.resolve(begun.id)
            with pytest.raises(FencedProducer):
                await running.put(begun.producer, T0, "late")
        assert await running.read(T0) == ["a"]


async def test_a_repeat_after_a_restart_is_recognised() -> None:
    disk = Disk()
    async with disk.serving() as running:
        begun = await running.begin()
        await running.put(begun.producer, T0, "a")
        await running.transactions.end(begun.producer, commit=True)
    async with disk.serving() as running:
        assert await running.transactions.end_by_id(begun.id, commit=True) is S.COMPLETE_COMMIT
        with pytest.raises(TransactionEnded):
            await running.transactions.end_by_id(begun.id, commit=False)


@pytest.mark.parametrize("transaction_id", ["", "x", "1", "-", "1-", "٣-0", "7-0", f"{1 << 50}-9"])
async def test_an_unknown_transaction(transaction_id: str) -> None:
    async with Disk().serving() as running:
        begun = await running.begin()
        assert begun.id == f"{1 << 50}-0"
        with pytest.raises(UnknownTransaction):
            await running.transactions.end_by_id(transaction_id, commit=True)


async def test_a_new_producer_of_an_id_fences_the_old_one() -> None:
    async with Disk().serving() as running:
        old = await running.begin("tx")
        await running.put(old.producer, T0, "old")
        new = await running.begin("tx")
        assert new.producer.producer_id == old.producer.producer_id
        assert new.producer.epoch > old.producer.epoch
        for call in (
            running.put(old.producer, T0, "late"),
            running.transactions.end(old.producer, commit=True),
            running.transactions.end_by_id(old.id, commit=False),
        ):
            with pytest.raises(FencedProducer):
                await call
        await running.put(new.producer, T0, "new")
        await running.transactions.end(new.producer, commit=True)
        assert await running.read(T0) == ["new"]


async def test_transactions_without_a_name_use_few_ids() -> None:
    async with Disk().serving() as running:
        for turn in range(20):
            begun = [await running.begin() for _ in range(3)]
            for one in begun:
                await running.put(one.producer, T0, f"{turn}")
                await running.transactions.end(one.producer, commit=True)
        listed = await running.transactions.states()
        assert [state.transactional_id for _, state in listed] == [
            f"{UNNAMED}{n}" for n in (1, 2, 3)
        ]
        assert len(await running.read(T0)) == 60


async def test_an_epoch_of_an_earlier_process_is_not_handed_out_again() -> None:
    disk = Disk()
    async with disk.serving() as running:
        first = await running.begin()
        await running.put(first.producer, T0, "a")
        await running.transactions.end(first.producer, commit=True)
        idle = await running.begin()  # it has nothing on disk
    async with disk.serving() as running:
        begun = await running.begin()
        assert begun.producer.producer_id == first.producer.producer_id
        assert begun.producer != idle.producer
        with pytest.raises(TransactionEnded):
            await running.transactions.resolve(idle.id)


async def test_an_open_transaction_goes_on_after_a_kill() -> None:
    disk = Disk()
    async with disk.serving() as running:
        begun = await running.begin()
        await running.put(begun.producer, T0, "a")
        after = disk.after_kill()
    async with after.serving() as running:
        assert await running.transactions.resolve(begun.id) == begun.producer
        await running.put(begun.producer, T0, "b")
        await running.transactions.end_by_id(begun.id, commit=True)
        assert await running.read(T0) == ["a", "b"]


@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("markers", [0, 1, 2])
async def test_a_fixed_outcome_is_completed_by_the_next_start(commit: bool, markers: int) -> None:
    """A kill between the outcome and the markers, or after some of them."""
    disk = Disk()
    async with disk.serving() as running:
        begun = await running.begin("tx")
        await running.put(begun.producer, T0, "a")
        await running.put(begun.producer, T1, "b")
        state = await only_state(running)
        ending = machine.ending(state, commit=commit, now_ms=1, bump=True)
        store = running.transactions._store()  # a kill in the middle of a round
        store.write_transactions([ending.prepared])
        for partition in (T0, T1)[:markers]:
            store.end_transactions({partition: [ending.marker()]})
        after = disk.after_kill()
    async with after.serving() as running:
        while (await only_state(running)).status not in machine.COMPLETE:  # noqa: ASYNC110  # no event for tests
            await asyncio.sleep(0)
        assert await running.read(T0) == (["a"] if commit else [])
        assert await running.read(T1) == (["b"] if commit else [])
        assert (await only_state(running)).partitions == frozenset()
        await running.transactions.end_by_id(begun.id, commit=commit)
        with pytest.raises(TransactionEnded):
            await running.transactions.end_by_id(begun.id, commit=not commit)


async def test_a_time_out_rolls_back() -> None:
    disk = Disk()
    async with disk.serving() as running:
        begun = await running.begin("tx", timeout_ms=1000)
        await running.put(begun.producer, T0, "a")
        idle = await running.begin(None, timeout_ms=1000)
        disk.clock.now_ms += 999
        await running.transactions.expire(disk.clock.now_ms)
        assert await running.transactions.resolve(begun.id) == begun.producer
        disk.clock.now_ms += 1
        assert running.transactions.lag_ms(disk.clock.now_ms + 5) == 5
        await running.transactions.expire(disk.clock.now_ms)
        for one in (begun, idle):
            with pytest.raises(TransactionEnded, match="rolled back"):
                await running.transactions.end_by_id(one.id, commit=True)
        assert running.transactions.lag_ms(disk.clock.now_ms) == 0
        assert await running.read(T0) == []
        again = await running.begin(None, timeout_ms=1000)
        assert again.producer != idle.producer, "its client may still use it"


@pytest.mark.parametrize("late", ["put", "commit"])
async def test_a_time_out_counts_before_the_next_step_of_upkeep(late: str) -> None:
    disk = Disk()
    async with disk.serving() as running:
        begun = await running.begin("tx", timeout_ms=1000)
        await running.put(begun.producer, T0, "a")
        disk.clock.now_ms += 1000
        calls: dict[str, Callable[[], Awaitable[object]]] = {
            "put": partial(running.put, begun.producer, T0, "b"),
            "commit": partial(running.transactions.end, begun.producer, commit=True),
        }
        with pytest.raises(TransactionEnded, match="rolled back"):
            await calls[late]()
        assert await running.read(T0) == []


async def test_upkeep_steps_it() -> None:
    disk = Disk()
    async with disk.serving() as running:
        begun = await running.begin(None, timeout_ms=1000)
        await running.put(begun.producer, T0, "a")
        (service,) = running.transactions.services()
        assert service.interval_ms == STEP_MS
        disk.clock.now_ms += 1000
        await asyncio.to_thread(service.step, disk.clock.now_ms)
        assert (await only_state(running)).status is S.COMPLETE_ABORT
        assert "transactions" in {status.name for status in running.service.services()}


async def test_an_unused_id_is_removed() -> None:
    disk = Disk()
    disk.settings = {**disk.settings, "transactional.id.expiration.ms": "5000"}
    async with disk.serving() as running:
        begun = await running.begin("tx")
        await running.put(begun.producer, T0, "a")
        await running.transactions.end(begun.producer, commit=True)
        open_one = await running.begin("open")
        await running.put(open_one.producer, T0, "b")
        disk.clock.now_ms += 5000
        await running.transactions.expire(disk.clock.now_ms)
        assert [
            listed.state.transactional_id for listed in await running.transactions.states()
        ] == ["open"]
        assert await running.transactions.state("tx") is None
        with pytest.raises(UnknownTransaction):
            await running.transactions.end_by_id(begun.id, commit=True)
        assert (await running.begin("tx")).producer.producer_id != begun.producer.producer_id
    async with disk.serving() as running:
        assert len(await running.transactions.states()) == 2


async def test_used_up_epochs() -> None:
    """The producer id changes, at the end of a transaction and for a new producer of the id."""
    disk = Disk()
    async with disk.serving() as running:
        first = await running.begin("tx")
        state = await only_state(running)
        running.transactions._store().write_transactions(
            [state._replace(epoch=EXHAUSTED_EPOCH - 1)]
        )
    async with disk.serving() as running:
        begun = await running.begin("tx")
        assert begun.producer == (first.producer.producer_id, EXHAUSTED_EPOCH)
        await running.put(begun.producer, T0, "a")
        following = await running.transactions.end(begun.producer, commit=True)
        assert following.epoch == 0
        assert following.producer_id > first.producer.producer_id
        assert await running.transactions.end_by_id(begun.id, commit=True) is S.COMPLETE_COMMIT
        await running.put(following, T0, "b")
        await running.transactions.end(following, commit=True)
    async with disk.serving() as running:
        assert await running.read(T0) == ["a", "b"]
        running.transactions._store().write_transactions(
            [(await only_state(running))._replace(epoch=EXHAUSTED_EPOCH)]
        )
    async with disk.serving() as running:
        newest = await running.begin("tx")
        assert newest.producer.epoch == 0
        assert newest.producer.producer_id > following.producer_id


async def test_the_older_protocol_keeps_the_epoch() -> None:
    async with Disk().serving() as running:
        producer = await running.transactions.initialise("tx", TIMEOUT_MS)
        for turn, commit in enumerate((True, False, True)):
            member = await running.transactions.join(producer, [T0], version=0)
            member.leave()
            await running.put(producer, T0, f"{turn}")
            for _ in range(2):
                assert (
                    await running.transactions.end(producer, commit=commit, bump=False) == producer
                )
            with pytest.raises(TransactionEnded):
                await running.transactions.end(producer, commit=not commit, bump=False)
        assert await running.read(T0) == ["0", "2"]
        newer = await running.transactions.initialise("tx", TIMEOUT_MS, producer)
        assert newer == (producer.producer_id, producer.epoch + 1)
        assert (
            await running.transactions.initialise("tx", TIMEOUT_MS, producer) == newer
        )  # repeated
        await running.transactions.initialise("tx", TIMEOUT_MS)
        for fenced in (producer, newer):
            with pytest.raises(FencedProducer):
                await running.transactions.initialise("tx", TIMEOUT_MS, fenced)


async def test_a_repeated_request_for_an_epoch_ends_with_its_transaction() -> None:
    """Once the new epoch is in use, the producer before it is fenced."""
    async with Disk().serving() as running:
        first = await running.transactions.initialise("tx", TIMEOUT_MS)
        second = await running.transactions.initialise("tx", TIMEOUT_MS, first)
        (await running.transactions.join(second, [T0])).leave()
        with pytest.raises(FencedProducer):
            await running.transactions.initialise("tx", TIMEOUT_MS, first)
        await running.transactions.end(second, commit=True)
        with pytest.raises(FencedProducer):
            await running.transactions.initialise("tx", TIMEOUT_MS, first)


async def test_only_partitions_that_were_added_are_entered() -> None:
    async with Disk().serving() as running:
        transactions = running.transactions
        producer = await transactions.initialise("tx", TIMEOUT_MS)
        with pytest.raises(TransactionEnded):
            await transactions.enter(producer, [T0])
        (await transactions.join(producer, [T0], version=0)).leave()
        with pytest.raises(TransactionEnded):
            await transactions.enter(producer, [T0, T1])
        with pytest.raises(TransactionEnded):
            await transactions.enter_offsets(producer, "g")
        member = await transactions.enter(producer, [T0])
        ending = asyncio.create_task(transactions.end(producer, commit=True, bump=False))
        await asyncio.sleep(0.01)
        assert not ending.done()  # it waits for the member
        member.leave()
        assert await ending == producer
        with pytest.raises(TransactionEnded):
            await transactions.enter(producer, [T0])


async def test_owners_of_producer_ids() -> None:
    async with Disk().serving() as running:
        transactions = running.transactions
        one = await transactions.initialise("one", TIMEOUT_MS)
        two = await transactions.initialise("two", TIMEOUT_MS)
        await transactions.check_owner("one", one)
        for name, producer in (("one", two), ("two", one), ("three", one)):
            with pytest.raises(UnknownTransaction):
                await transactions.check_owner(name, producer)
        for name in ("logserver.unnamed.1", ""):
            with pytest.raises(InvalidArgument):
                await transactions.initialise(name, TIMEOUT_MS)


@pytest.mark.parametrize("commit", [True, False])
async def test_a_transaction_without_records(commit: bool) -> None:
    async with Disk().serving() as running:
        begun = await running.begin()
        await running.transactions.end_by_id(begun.id, commit=commit)
        await running.transactions.end_by_id(begun.id, commit=commit)
        with pytest.raises(TransactionEnded):
            await running.transactions.end_by_id(begun.id, commit=not commit)
        with pytest.raises(FencedProducer):
            await running.put(begun.producer, T0, "late")


async def test_an_end_waits_for_appends_that_are_under_way() -> None:
    async with Disk().serving() as running:
        begun = await running.begin()
        member = await running.transactions.join(begun.producer, [T0])
        end = asyncio.create_task(running.transactions.end(begun.producer, commit=True))
        for _ in range(20):
            await asyncio.sleep(0)
        assert not end.done()
        running.service.store.append(T0, [Record(None, b"a")], producer=member.mark())
        member.leave()
        await end
        assert await running.read(T0) == ["a"]


@pytest.mark.parametrize("commit", [True, False])
async def test_offsets_of_a_group(commit: bool) -> None:
    disk = Disk()
    async with disk.serving() as running:
        store = running.service.store
        assert isinstance(store, SupportsGroupOffsets)
        await running.put(None, T0, "a", "b")
        begun = await running.begin()
        at = {T0: CommittedOffset(2, metadata="m")}
        await running.transactions.commit_offsets(begun.producer, "g", at)
        assert store.committed("g") == {}
        with pytest.raises(OffsetOutOfRange):
            await running.transactions.commit_offsets(begun.producer, "g", {T0: CommittedOffset(3)})
        await running.transactions.end(begun.producer, commit=commit)
        assert [o.offset for o in store.committed("g").values()] == ([2] if commit else [])
        with pytest.raises(FencedProducer):
            await running.transactions.commit_offsets(begun.producer, "g", at)
        assert "__consumer_offsets" in running.service.topics
        assert "__transaction_state" in running.service.topics


@pytest.mark.parametrize("timeout_ms", [0, 900_001])
async def test_a_time_out_above_the_limit(timeout_ms: int) -> None:
    async with Disk().serving() as running:
        with pytest.raises(InvalidArgument, match="timeout_ms"):
            await running.begin(None, timeout_ms)
        for name in (f"{UNNAMED}1", ""):
            with pytest.raises(InvalidArgument, match="transactional_id"):
                await running.begin(name)
        assert await running.transactions.states() == []


async def test_the_number_of_ids_is_limited() -> None:
    async with Disk().serving() as running:
        object.__setattr__(running.service.settings, "max_transactional_ids", 2)
        await running.begin("a")
        await running.begin()
        for name in ("b", None):
            with pytest.raises(Busy, match="max_transactional_ids"):
                await running.begin(name)
        await running.begin("a")


async def test_a_read_only_store_lists_and_changes_nothing() -> None:
    disk = Disk()
    async with disk.serving() as running:
        begun = await running.begin("tx")
        await running.put(begun.producer, T0, "a")
    async with disk.serving(read_only=True) as running:
        assert (await only_state(running)).status is S.ONGOING
        for call in (running.begin(), running.transactions.end(begun.producer, commit=True)):
            with pytest.raises(StoreReadOnly):
                await call


async def test_the_states_can_be_chosen() -> None:
    async with Disk().serving() as running:
        open_one, done = await running.begin("open"), await running.begin("done")
        for one in (open_one, done):
            await running.put(one.producer, T0, "a")
        await running.transactions.end(done.producer, commit=True)
        for status, expected in ((S.ONGOING, [open_one.id]), (S.COMPLETE_COMMIT, [done.id])):
            listed = await running.transactions.states((status,))
            assert [one.id for one in listed] == expected


@pytest.mark.parametrize("step", ["write_transactions", "end_transactions"])
async def test_a_full_disk(step: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A commit that fails is repeated: before the outcome is fixed, and between it and the markers."""
    async with Disk().serving() as running:
        begun, other = await running.begin(), await running.begin()
        for one in (begun, other):
            await running.put(one.producer, T0, "a")
        store = running.transactions._store()

        def full(*_: object, **__: object) -> None:
            raise DiskFull("no space", path="/w")

        with monkeypatch.context() as patched:
            patched.setattr(store, step, full)
            with pytest.raises(DiskFull):
                await running.transactions.end_by_id(begun.id, commit=True)
            assert await running.read(T0) == []
            if step == "end_transactions":
                with pytest.raises(TransactionEnded):
                    await running.transactions.end_by_id(begun.id, commit=False)
        await running.transactions.end_by_id(begun.id, commit=True)
        await running.transactions.end_by_id(other.id, commit=True)
        assert await running.read(T0) == ["a", "a"]


async def test_a_full_disk_at_the_first_begin_of_an_id(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two clients begin with a new id at once, and the first one fails: the id has one producer, which times out."""
    disk = Disk()
    async with disk.serving() as running:
        store = running.transactions._store()
        original, faults = store.write_transactions, [True]

        def full_once(*args: Any, **facts: Any) -> None:
            if faults:
                faults.pop()
                raise DiskFull("no space", path="/w")
            original(*args, **facts)

        monkeypatch.setattr(store, "write_transactions", full_once)
        first, second = await asyncio.gather(
            running.begin("tx"), running.begin("tx"), return_exceptions=True
        )
        assert isinstance(first, DiskFull)
        assert not isinstance(second, BaseException)
        await running.put(second.producer, T0, "a")
        assert (await only_state(running)).status is S.ONGOING
        disk.clock.now_ms += TIMEOUT_MS
        await running.transactions.expire(disk.clock.now_ms)
        assert (await only_state(running)).status is S.COMPLETE_ABORT
        third = await running.begin("tx")
        assert third.producer.producer_id == second.producer.producer_id


async def test_an_id_that_is_removed_while_a_client_begins_with_it() -> None:
    disk = Disk()
    disk.settings = {**disk.settings, "transactional.id.expiration.ms": "5000"}
    async with disk.serving() as running:
        begun = await running.begin("tx")
        await running.transactions.end(begun.producer, commit=False)
        disk.clock.now_ms += 5000
        removal = asyncio.create_task(running.transactions.expire(disk.clock.now_ms))
        while not running.transactions._entries["tx"].lock.locked():  # noqa: ASYNC110
            await asyncio.sleep(0)
        again = await running.begin("tx")
        await removal
        await running.put(again.producer, T0, "a")
        disk.clock.now_ms += TIMEOUT_MS
        await running.transactions.expire(disk.clock.now_ms)
        assert (await only_state(running)).status is S.COMPLETE_ABORT
        assert await running.read(T0) == []
        assert (await running.begin("tx")).producer.producer_id == again.producer.producer_id


async def test_a_failed_end_is_completed_by_a_step(monkeypatch: pytest.MonkeyPatch) -> None:
    disk = Disk()
    async with disk.serving() as running:
        begun = await running.begin()
        await running.put(begun.producer, T0, "a")

        def full(*_: object, **__: object) -> None:
            raise DiskFull("no space", path="/w")

        with monkeypatch.context() as patched:
            patched.setattr(running.transactions._store(), "end_transactions", full)
            with pytest.raises(DiskFull):
                await running.transactions.end(begun.producer, commit=True)
            with pytest.raises(DiskFull):
                await running.transactions.expire(disk.clock.now_ms)
        await running.transactions.expire(disk.clock.now_ms)
        assert await running.read(T0) == ["a"]


async def test_a_topic_that_is_deleted_does_not_keep_a_transaction_from_ending() -> None:
    async with Disk().serving() as running:
        await running.service.topics.create("gone", 1, None)
        begun = await running.begin()
        await running.put(begun.producer, TopicPartition("gone", 0), "x")
        await running.put(begun.producer, T0, "a")
        await running.service.topics.delete("gone")
        await running.transactions.end_by_id(begun.id, commit=True)
        assert await running.read(T0) == ["a"]


async def test_many_at_once() -> None:
    """A hundred transactions in turn and together: each is whole or absent."""
    disk = Disk()
    async with disk.serving() as running:

        async def one(number: int) -> None:
            begun = await running.begin(f"tx-{number % 7}" if number % 3 else None)
            try:
                for at in (T0, T1):
                    await running.put(begun.producer, at, f"{number}")
                await running.transactions.end(begun.producer, commit=number % 2 == 0)
            except (FencedProducer, TransactionEnded):
                return

        await asyncio.gather(*(one(number) for number in range(100)))
        await running.transactions.expire(disk.clock.now_ms + TIMEOUT_MS)
        first, second = await running.read(T0), await running.read(T1)
    assert sorted(first) == sorted(second)
    assert all(int(value) % 2 == 0 for value in first)
    assert {f"{n}" for n in range(0, 100, 6)} <= set(first), "nothing fences those without a name"


async def test_a_stopped_service_takes_nothing() -> None:
    async with Disk().serving() as running:
        transactions = running.transactions
    with pytest.raises(NotReady):
        await transactions.begin(None, TIMEOUT_MS)


async def test_a_store_without_transactions(tmp_path: Path) -> None:
    chosen = settings(tmp_path / "store")
    async with serving(chosen, opener("memory", chosen)) as api:
        with pytest.raises(NotOffered):
            await api.service.transactions.begin(None, TIMEOUT_MS)
        with pytest.raises(NotOffered):
            await api.service.transactions.end(ProducerEpoch(1, 0), commit=True)
