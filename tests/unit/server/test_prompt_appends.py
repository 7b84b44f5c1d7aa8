"""Small appends on the event loop: which ones are made there, and how the rest goes to the thread."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Sequence

import pytest

from logserver.metrics import Metrics
from logserver.service.commit import (
    AVOID_TIMES,
    BLOCKED_S,
    PROMPT_BATCH_BYTES,
    PROMPT_RECORDS,
    SLOW_IN_A_ROW,
    SLOW_S,
    Writer,
)
from logserver.service.requests import Acks, AppendOutcome, PartitionAppend
from storage import AppendResult, ProducerSequence, Record, TopicPartition
from storage.errors import InvalidBatch, UnrepresentableRecord
from tests.unit.kafka.log.batches import data_batch
from tests.unit.kafka.workshop import Workshop
from tests.watched_store import WatchedStore

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


class PromptStore(WatchedStore):
    """A store that can append promptly, except to `busy` partitions, and that notes the thread of each append."""

    def __init__(self) -> None:
        super().__init__()
        self.create_topic("t", 2)
        self.busy: set[TopicPartition] = set()
        self.threads: list[
            tuple[int, bool]
        ] = []  # the partition, and whether the loop's thread appended

    def append_promptly(
        self, partition: TopicPartition, records: Sequence[Record], born_hosts: Sequence[bytes] = ()
    ) -> AppendResult | None:
        if partition in self.busy:
            return None
        return self.append(partition, records, born_hosts=born_hosts)

    def append(
        self, partition: TopicPartition, records: Sequence[Record], **options: object
    ) -> AppendResult:
        result = super().append(partition, records, **options)  # type: ignore[arg-type]
        here = threading.current_thread() is threading.main_thread()
        self.threads.append((partition.partition, here))
        return result


@pytest.fixture
def store() -> PromptStore:
    return PromptStore()


@pytest.fixture
async def writer(store: PromptStore) -> AsyncIterator[Writer]:
    """A writer in sync mode: acks=1 goes to the relaxed queue, acks=all to the durable queue."""
    started = Writer(store, sync=True, metrics=Metrics(), published=lambda partition: None)
    yield started
    await started.close()


def part(*values: str, partition: TopicPartition = T0, **options: object) -> PartitionAppend:
    records = [Record(None, value.encode()) for value in values]
    return PartitionAppend(partition, records, range(len(records)), **options)  # type: ignore[arg-type]


def offsets(outcomes: Sequence[AppendOutcome]) -> list[int]:
    return [outcome.base_offset for outcome in outcomes]


async def test_small_appends_are_made_on_the_loop_and_shared(
    store: PromptStore, writer: Writer
) -> None:
    answers = [writer.submit([part(value)], Acks.WRITTEN) for value in "abc"]
    assert [offsets(await answer) for answer in answers] == [[0], [1], [2]]
    assert store.threads == [(0, True)]
    assert store.bounds(T0).end == 3
    assert writer.take_unflushed() == {T0}


async def test_a_durable_append_is_never_made_on_the_loop(
    store: PromptStore, writer: Writer
) -> None:
    await writer.submit([part("a")], Acks.ALL)
    assert store.threads == [(0, False)]


@pytest.mark.parametrize(
    "large",
    [
        part(*map(str, range(PROMPT_RECORDS + 1))),
        part("x" * (65 << 10)),
        PartitionAppend(T0, [Record(None, b"a", [("h", b"x" * (65 << 10))])], range(1)),
        PartitionAppend(T0, [Record(None, b"a", lookup_keys=["x" * (65 << 10)])], range(1)),
        part("a", producer=ProducerSequence(7, 0, 0)),
        part("a", compression="none"),
    ],
    ids=["records", "bytes", "headers", "lookup keys", "sequence", "codec"],
)
async def test_other_appends_go_to_the_thread(
    store: PromptStore, writer: Writer, large: PartitionAppend
) -> None:
    await writer.submit([large], Acks.WRITTEN)
    assert store.threads == [(0, False)]


async def test_the_rest_of_a_group_goes_to_the_thread_in_order(
    store: PromptStore, writer: Writer
) -> None:
    store.busy = {T1}
    sent = [("a", T0), ("b", T1), ("c", T0), ("d", T1)]
    answers = [
        writer.submit([part(value, partition=partition)], Acks.WRITTEN) for value, partition in sent
    ]
    assert [offsets(await answer) for answer in answers] == [[0], [0], [1], [1]]
    assert store.threads == [(0, True), (1, False)]


async def test_a_request_of_two_partitions_has_both_outcomes(
    store: PromptStore, writer: Writer
) -> None:
    store.busy = {T1}
    outcomes = await writer.submit([part("a"), part("b", partition=T1)], Acks.WRITTEN)
    assert [outcome.partition for outcome in outcomes] == [0, 1]


async def test_the_thread_finds_the_invalid_record(store: PromptStore, writer: Writer) -> None:
    def refuse(
        partition: TopicPartition, records: Sequence[Record]
    ) -> UnrepresentableRecord | None:
        values = [record.value for record in records]
        at = values.index(b"bad") if b"bad" in values else None
        return None if at is None else UnrepresentableRecord("bad", field="value", index=at)

    store.fail_append = refuse
    outcomes = await writer.submit([part("a", "bad", "c")], Acks.WRITTEN)
    assert [outcome.error is None for outcome in outcomes] == [True, False, True]
    assert not any(here for _, here in store.threads)


@pytest.mark.parametrize("refused", [False, True])
@pytest.mark.parametrize("slow_s", [[2 * BLOCKED_S], [2 * SLOW_S] * SLOW_IN_A_ROW])
async def test_slow_appends_keep_the_loop_free_for_a_while(
    store: PromptStore,
    writer: Writer,
    monkeypatch: pytest.MonkeyPatch,
    slow_s: Sequence[float],
    refused: bool,
) -> None:
    now_s, append_s = 100.0, 0.0
    monkeypatch.setattr("logserver.service.commit.perf_counter", lambda: now_s)

    def wait(partition: TopicPartition, records: Sequence[Record]) -> UnrepresentableRecord | None:
        nonlocal now_s
        now_s += append_s
        return UnrepresentableRecord("bad", field="value", index=0) if refused else None

    store.fail_append = wait
    for append_s in slow_s:  # noqa: B007  # `wait` uses it
        await writer.submit([part("a")], Acks.WRITTEN)
    append_s, refused = 0.0, False
    await writer.submit([part("b")], Acks.WRITTEN)
    now_s += 0.99 * AVOID_TIMES * sum(slow_s)
    await writer.submit([part("c")], Acks.WRITTEN)
    now_s += 0.02 * AVOID_TIMES * sum(slow_s)
    await writer.submit([part("d")], Acks.WRITTEN)
    assert [here for _, here in store.threads[-3:]] == [False, False, True]


async def test_a_few_slow_appends_say_nothing(
    store: PromptStore, writer: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another thread or program may have had its turn."""
    now_s, append_s = 100.0, 0.0
    monkeypatch.setattr("logserver.service.commit.perf_counter", lambda: now_s)

    def wait(partition: TopicPartition, records: Sequence[Record]) -> None:
        nonlocal now_s
        now_s += append_s

    store.fail_append = wait
    for append_s in ([2 * SLOW_S] * (SLOW_IN_A_ROW - 1) + [0.0]) * 5:  # noqa: B007  # `wait` uses it
        await writer.submit([part("a")], Acks.WRITTEN)
    assert all(here for _, here in store.threads)


async def test_a_mistake_is_answered_and_does_not_stop_the_queue(
    store: PromptStore, writer: Writer, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(partition: TopicPartition, records: Sequence[Record]) -> None:
        raise ZeroDivisionError

    store.fail_append = broken
    with pytest.raises(ZeroDivisionError):
        await writer.submit([part("a")], Acks.WRITTEN)
    store.fail_append = lambda partition, records: None
    assert offsets(await writer.submit([part("b")], Acks.WRITTEN)) == [0]
    assert "a group commit broke" in caplog.text


async def test_batches_are_answered_on_return_where_no_thread_is_needed() -> None:
    """With acks=all of sync mode, and while another thread appends, they wait for their hop."""
    shop = Workshop()
    store = shop.open_with_topic()
    writer = Writer(store, sync=True, metrics=Metrics(), published=lambda partition: None)
    batch = PartitionAppend(T0, data_batch(), ())

    def sent(acks: Acks) -> asyncio.Future[list[AppendOutcome]]:
        return writer.submit([batch], acks)

    first, durable = sent(Acks.WRITTEN), sent(Acks.ALL)
    assert (first.done(), durable.done()) == (True, False)
    assert [offsets(await answer) for answer in (first, durable)] == [[0], [1]]
    half = data_batch(value=bytes(PROMPT_BATCH_BYTES // 2))
    large = PartitionAppend(T0, half * 2, ())
    with store.partition(T0)._append_lock:
        busy = sent(Acks.WRITTEN)
        second, last = sent(Acks.WRITTEN), writer.submit([large], Acks.WRITTEN)
        assert not any(answer.done() for answer in (busy, second, last))
    assert [offsets(await answer) for answer in (busy, second, last)] == [[2], [3], [4]]
    hop = writer.submit([large], Acks.WRITTEN)
    assert not hop.done()
    await hop
    refused = writer.submit([PartitionAppend(T0, b"no batch", ())], Acks.WRITTEN)
    with pytest.raises(InvalidBatch):
        await refused
    await writer.close()
    store.close()
