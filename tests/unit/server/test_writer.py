"""Group commit, called directly: the appends, flushes and answers of one hop; the budget."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from logserver.errors import Busy, NotReady
from logserver.metrics import Metrics
from logserver.service.commit import SHARED_PART_RECORDS, CommitGroup, CommitQueue, Request, Writer
from logserver.service.memory_budget import MemoryBudget
from logserver.service.requests import Acks, AppendOutcome, PartitionAppend
from storage import AppendResult, ProducerSequence, Record, StorageError, TopicPartition
from storage.errors import (
    DiskFull,
    NotOffered,
    RecordTooLarge,
    StoreFenced,
    UnknownTopic,
    UnrepresentableRecord,
)
from tests.watched_store import WatchedStore

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
FULL = DiskFull("no space", path="/data")


@pytest.fixture
def store() -> WatchedStore:
    """A store with two partitions."""
    watched = WatchedStore()
    watched.create_topic("t", 2)
    return watched


def outcome_at(partition: int, offset: int, count: int = 1) -> AppendOutcome:
    """Return the outcome of records of one request that were stored from `offset` on."""
    return AppendOutcome(partition, range(count), offset, None, range(offset, offset + count))


def request(*parts: PartitionAppend) -> Request:
    return Request(parts, asyncio.get_running_loop().create_future())


def part(*values: str, partition: TopicPartition = T0, **options: object) -> PartitionAppend:
    records = [Record(None, value.encode()) for value in values]
    return PartitionAppend(partition, records, range(len(records)), **options)  # type: ignore[arg-type]


def committed(store: WatchedStore, *requests: Request, durable: bool = True) -> CommitGroup:
    queue = CommitQueue(store, durable=durable, name="test", finished=lambda group: None)
    group = CommitGroup(requests)
    queue.commit(group)
    return group


def stored(store: WatchedStore, partition: TopicPartition = T0) -> list[str]:
    store.flush([partition])
    records = store.read(partition, 0, max_records=10_000).records
    return [(record.value or b"").decode() for record in records]


def refusing(*bad: str, limit: int | None = None) -> object:
    """Return a function that fails an append for these values by index, or for more than `limit` records as a whole."""

    def fail(partition: TopicPartition, records: Sequence[Record]) -> StorageError | None:
        for index, record in enumerate(records):
            if (record.value or b"").decode() in bad:
                return UnrepresentableRecord("bad", field="value", index=index)
        if limit is not None and len(records) > limit:
            return RecordTooLarge("too large", size_bytes=2, limit_bytes=1)
        return None

    return fail


async def test_each_partition_that_was_touched_is_flushed_once(store: WatchedStore) -> None:
    first, second = request(part("a"), part("b", partition=T1)), request(part("c"))
    committed(store, first, second)
    assert store.flushes == [{T0, T1}]
    assert first.outcomes == [outcome_at(0, 0), outcome_at(1, 0)]
    assert second.outcomes == [outcome_at(0, 1)]
    assert {publish for _, _, publish in store.appends} == {False}


async def test_a_relaxed_group_publishes_and_does_not_flush(store: WatchedStore) -> None:
    committed(store, request(part("a")), durable=False)
    assert store.flushes == []
    assert store.bounds(T0).end == 1


async def test_small_parts_of_one_partition_share_an_append(store: WatchedStore) -> None:
    requests = [request(part(f"{number}", "x")) for number in range(5)]
    committed(store, *requests)
    assert [count for _, count, _ in store.appends] == [10]
    assert [one.outcomes for one in requests] == [[outcome_at(0, 2 * n, 2)] for n in range(5)]


async def test_hosts_go_with_their_records_or_not_at_all(
    store: WatchedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    hosts: list[Sequence[bytes]] = []
    append = store.append

    def watched(*args: Any, **options: Any) -> AppendResult:
        hosts.append(options["born_hosts"])
        return append(*args, **options)

    monkeypatch.setattr(store, "append", watched)
    known = [request(part("a", "b", born_host=b"A")), request(part("c", born_host=b"C"))]
    committed(store, *known)
    committed(store, *known, request(part("d")))
    committed(store, request(part("e", "f", born_host=b"E", producer=ProducerSequence(1, 0, 0))))
    assert [list(given) for given in hosts] == [[b"A", b"A", b"C"], [], [b"E", b"E"]]


async def test_what_does_not_share(store: WatchedStore) -> None:
    large = part(*["x"] * (SHARED_PART_RECORDS + 1))
    heavy = part("x" * 100_000)
    zipped = part("z", compression="zstd")
    sequenced = part("s", producer=ProducerSequence(1, 0, 0))
    committed(
        store,
        *(request(one) for one in (part("a"), large, heavy, part("b"), zipped, sequenced)),
    )
    assert [count for _, count, _ in store.appends] == [1, SHARED_PART_RECORDS + 1, 1, 1, 1, 1]
    assert stored(store)[0] == "a"
    assert stored(store)[-1] == "s"


@pytest.mark.parametrize("error", [FULL, NotOffered("no", feature="x")])
async def test_a_shared_append_that_fails_is_tried_one_by_one(
    store: WatchedStore, error: StorageError
) -> None:
    def fail(partition: TopicPartition, records: Sequence[Record]) -> StorageError | None:
        return error if any(record.value == b"bad" for record in records) else None

    store.fail_append = fail
    requests = [request(part(value)) for value in ("a", "bad", "c")]
    committed(store, *requests)
    assert [one.error for one in requests] == [None, error, None]
    assert stored(store) == ["a", "c"]


async def test_a_fenced_store_fails_all_that_shared(store: WatchedStore) -> None:
    fenced = StoreFenced("fenced", path="/data", cause="EIO")
    store.fail_append = lambda partition, records: fenced
    requests = [request(part("a")), request(part("b"))]
    committed(store, *requests)
    assert [one.error for one in requests] == [fenced, fenced]
    assert store.flushes == []


async def test_a_failed_flush_fails_those_that_had_not_failed(store: WatchedStore) -> None:
    store.fail_flush = StoreFenced("fenced", path="/data", cause="EIO")
    store.fail_append = lambda partition, records: FULL if partition == T1 else None
    requests = [request(part("a")), request(part("b", partition=T1))]
    committed(store, *requests)
    assert [one.error for one in requests] == [store.fail_flush, FULL]


async def test_a_topic_that_went_away_fails_only_those_who_wrote_to_it(
    store: WatchedStore,
) -> None:
    gone = TopicPartition("gone", 0)
    store.create_topic("gone")

    def delete_between(partition: TopicPartition, records: Sequence[Record]) -> None:
        if partition == T0:
            store.delete_topic("gone")

    store.fail_append = delete_between
    requests = [request(part("a", partition=gone)), request(part("b"))]
    committed(store, *requests)
    assert [type(one.error) for one in requests] == [UnknownTopic, type(None)]
    assert store.bounds(T0).end == 1


async def test_what_was_not_appended_to_is_not_flushed(store: WatchedStore) -> None:
    store.fail_append = lambda partition, records: FULL if partition == T1 else None
    committed(store, request(part("a")), request(part("b", partition=T1)))
    assert store.flushes == [{T0}]


async def test_a_record_at_fault_is_left_out(store: WatchedStore) -> None:
    store.fail_append = refusing("bad", "worse")  # type: ignore[assignment]
    values = ["bad", "a", "b", "worse", "c", "bad"]
    one = request(part(*values))
    committed(store, one)
    assert one.error is None
    good = [outcome for outcome in one.outcomes if outcome.error is None]
    assert [list(outcome.positions) for outcome in good] == [[1, 2], [4]]
    assert [list(outcome.positions) for outcome in one.outcomes if outcome.error] == [[0], [3], [5]]
    assert stored(store) == ["a", "b", "c"]


async def test_what_is_too_large_together_is_halved(store: WatchedStore) -> None:
    store.fail_append = refusing(limit=3)  # type: ignore[assignment]
    one = request(part(*(str(number) for number in range(10))))
    committed(store, one)
    assert [position for outcome in one.outcomes for position in outcome.positions] == list(
        range(10)
    )
    assert [outcome.base_offset for outcome in one.outcomes] == [
        outcome.positions[0] for outcome in one.outcomes
    ]
    assert stored(store) == [str(number) for number in range(10)]


@pytest.mark.parametrize("bad", [range(0, 3000), range(0, 3000, 2), range(1, 3000, 7)])
async def test_many_records_at_fault_cost_little(store: WatchedStore, bad: range) -> None:
    tried = 0

    def fail(partition: TopicPartition, records: Sequence[Record]) -> StorageError | None:
        nonlocal tried
        tried += len(records)
        for index, record in enumerate(records):
            if int(record.value or b"") in bad:
                return RecordTooLarge("too large", size_bytes=2, limit_bytes=1, index=index)
        return None

    store.fail_append = fail
    one = request(part(*map(str, range(3000))))
    committed(store, one)
    assert [position for outcome in one.outcomes for position in outcome.positions] == list(
        range(3000)
    )
    failed = [outcome.positions[0] for outcome in one.outcomes if outcome.error is not None]
    assert failed == list(bad)
    assert tried < 3000 * 24
    assert stored(store) == [str(number) for number in range(3000) if number not in bad]


async def test_a_sequenced_request_is_not_split(store: WatchedStore) -> None:
    store.fail_append = refusing("bad", limit=2)  # type: ignore[assignment]
    for values in (("a", "bad"), ("a", "b", "c")):
        one = request(part(*values, producer=ProducerSequence(1, 0, 0)))
        committed(store, one)
        assert isinstance(one.error, RecordTooLarge | UnrepresentableRecord)
    assert stored(store) == []


async def test_one_bad_part_stops_the_rest_of_its_request(store: WatchedStore) -> None:
    store.fail_append = lambda partition, records: FULL if partition == T0 else None
    one = request(part("a", partition=T0), part("b", partition=T1))
    committed(store, one)
    assert one.error is FULL
    assert store.appends == []


def writer(store: WatchedStore, *, sync: bool = True) -> Writer:
    return Writer(store, sync=sync, metrics=Metrics(), published=lambda partition: None)


async def test_a_request_that_has_failed_shares_no_append(store: WatchedStore) -> None:
    """After an unknown topic a client may try again: it relies on no further record of the request being stored."""
    first, other = request(part("a"), part("b", partition=T1)), request(part("c", partition=T1))
    gone = UnknownTopic("t")
    store.fail_append = lambda partition, records: gone if partition == T0 else None
    committed(store, first, other)
    assert first.error is gone
    assert (other.error, stored(store, T1)) == (None, ["c"])


async def test_a_mistake_in_one_group_does_not_stop_the_lane(
    store: WatchedStore, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(partition: TopicPartition, records: Sequence[Record]) -> StorageError | None:
        raise ZeroDivisionError

    started = writer(store)
    store.fail_append = broken
    with pytest.raises(ZeroDivisionError):
        await started.submit([part("a")], Acks.ALL)
    store.fail_append = lambda partition, records: None
    assert await started.submit([part("b")], Acks.ALL) == [outcome_at(0, 0)]
    await started.close()
    assert "a group commit broke" in caplog.text


async def test_a_cancelled_request_disturbs_nobody(store: WatchedStore) -> None:
    started = writer(store)
    store.gate.clear()
    answers = [started.submit([part(value)], Acks.ALL) for value in ("a", "b")]
    answers[0].cancel()
    store.gate.set()
    await answers[1]
    await started.close()
    assert stored(store) == ["a", "b"]


async def test_closing_answers_what_is_queued_and_takes_no_more(store: WatchedStore) -> None:
    started = writer(store)
    store.gate.clear()
    answers = [started.submit([part(str(number))], acks) for number in range(3) for acks in Acks]
    closing = asyncio.create_task(started.close())
    await asyncio.sleep(0)
    with pytest.raises(NotReady):
        started.submit([part("late")], Acks.ALL)
    store.gate.set()
    await closing
    assert all(answer.done() and answer.exception() is None for answer in answers)
    assert len(stored(store)) == 9


async def test_what_was_not_flushed_is_remembered_once(store: WatchedStore) -> None:
    started = writer(store)
    await started.submit([part("a", partition=T1)], Acks.WRITTEN)
    await started.submit([part("b", partition=T0)], Acks.ALL)
    assert started.take_unflushed() == {T1}
    assert started.take_unflushed() == set()
    await started.close()


def test_the_budget_counts_what_is_held() -> None:
    budget = MemoryBudget(100)
    with budget.reserve(60) as first:
        with pytest.raises(Busy) as caught:
            budget.reserve(41)
        assert caught.value.facts() == {"in_flight_bytes": 60, "limit_bytes": 100}
        with budget.reserve(10) as second:
            second.grow(30)
            assert budget.held_bytes == 100
            with pytest.raises(Busy):
                first.grow(1)
        assert budget.held_bytes == 60
    assert budget.held_bytes == 0


async def test_a_hold_can_outlive_its_request() -> None:
    budget = MemoryBudget(100)
    future: asyncio.Future[list[AppendOutcome]] = asyncio.get_running_loop().create_future()
    with budget.reserve(60) as reserved:
        reserved.release_when(future)
    assert budget.held_bytes == 60
    future.set_result([])
    await asyncio.sleep(0)
    assert budget.held_bytes == 0
