"""One directory, our coordinator and the real broker's in turn: each ends what the other has begun or prepared."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.structs import TopicPartition as TheirPartition

from logserver.config import Settings
from logserver.service.service import LogService
from logserver.transactions import machine
from storage import (
    CommittedOffset,
    Isolation,
    LogStore,
    ProducerEpoch,
    StoreOptions,
    SupportsGroupOffsets,
    SupportsTransactions,
    TopicPartition,
    TransactionState,
    TransactionStatus,
    open_store,
)
from storage.kafka.format.batch import decode_control, decode_records, split_batches
from storage.kafka.format.transaction_records import decode_value
from tests.interop import peers, written
from tests.interop.brokers import Broker
from tests.interop.test_side_by_side import CLUSTER_ID
from tests.unit.transactions.running import Service

pytestmark = pytest.mark.java

S = TransactionStatus
T = [TopicPartition("t", number) for number in range(2)]
SETTINGS = {
    "cluster.id": CLUSTER_ID,
    "transaction.state.log.num.partitions": "3",
    "offsets.topic.num.partitions": "3",
}


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    """One broker with its own directory, not started yet."""
    found = Broker(tmp_path / "broker")
    yield found
    found.end(kill=True)


@asynccontextmanager
async def serving(path: Path) -> AsyncIterator[Service]:
    """Run our service on a directory, and stop it cleanly."""
    options = StoreOptions(settings=SETTINGS)
    service = LogService(Settings(data=path), lambda _: open_store("kafka", path, options))
    await service.start()
    if "t" not in service.topics:
        await service.topics.create("t", 2, None)
    yield Service(service)
    await service.stop()


async def state_of(running: Service, name: str) -> TransactionState:
    state = await running.transactions.state(name)
    assert state is not None
    return state


async def consumed(address: str, count: int, isolation: str = "read_committed") -> list[str]:
    """Return the values that a consumer reads of both partitions, sorted, up to their ends."""
    partitions = [TheirPartition(*at) for at in T]
    consumer = AIOKafkaConsumer(
        bootstrap_servers=address, isolation_level=isolation, auto_offset_reset="earliest"
    )
    await consumer.start()
    try:
        consumer.assign(partitions)
        found: list[str] = []
        while len(found) < count:
            page = await consumer.getmany(timeout_ms=20_000)
            assert page, f"{found}: no more of {count} records came"
            found += [record.value.decode() for rows in page.values() for record in rows]
        assert not await consumer.getmany(timeout_ms=300), "more than expected"
        return sorted(found)
    finally:
        await consumer.stop()


def committed(store: LogStore) -> list[str]:
    return sorted(
        (record.value or b"").decode()
        for at in T
        for record in store.scan(at, isolation=Isolation.READ_COMMITTED)
    )


def stable(store: LogStore) -> bool:
    return all(store.bounds(at).stable == store.bounds(at).end for at in T)


async def write_ours(path: Path) -> None:
    """Write transactions of every outcome, with offsets of groups, and one that stays open."""
    async with serving(path) as running:
        await running.put(None, T[0], "plain")
        for turn in range(4):
            begun = await running.begin("ours" if turn % 2 else None)
            for at in T:
                await running.put(begun.producer, at, f"{turn}")
            await running.transactions.commit_offsets(
                begun.producer, f"group-{turn}", {T[0]: CommittedOffset(1, metadata="m")}
            )
            await running.transactions.end(begun.producer, commit=turn < 2)
        begun = await running.begin("open")
        await running.put(begun.producer, T[1], "open")


OUR_COMMITTED = ["0", "0", "1", "1", "plain"]


@pytest.mark.parametrize("clean", ["yes", "no"])
def test_a_real_consumer_reads_what_we_committed(tmp_path: Path, clean: str) -> None:
    """And no record of a rolled back or open transaction; the broker's recovery gives the same aborted transactions."""
    root = tmp_path / "ours"
    asyncio.run(write_ours(root))
    for isolation in Isolation:
        options = ("--isolation", isolation.value, "--clean", clean, "--groups", "yes")
        answer = peers.run_kafka_opens(root, *options)
        with open_store("kafka", root, read_only=True) as store:
            mine = written.rows(store, isolation)
        theirs = {at: rows for at, rows in answer.records.items() if at[0] == "t"}
        assert theirs == {at: rows for at, rows in mine.items() if at[0] == "t"}
        assert {row["group"]: row["committed"] for row in answer.groups} == {
            "group-0": 1,
            "group-1": 1,
        }
    with open_store("kafka", root, read_only=True) as store:
        assert committed(store) == OUR_COMMITTED


def test_kafka_s_own_tool_reads_our_states(tmp_path: Path) -> None:
    root = tmp_path / "ours"
    asyncio.run(write_ours(root))
    logs = sorted(root.glob("__transaction_state-*/*.log"))
    reported = peers.dump_log(logs, "--transaction-log-decoder")
    assert reported.count("transactionalId") > 12
    for line in reported.splitlines():
        assert "malformed" not in line
    with open_store("kafka", root, read_only=True) as store:
        assert isinstance(store, SupportsTransactions)
        states = {state.transactional_id: state.status for state in store.transactions()}
    assert states["ours"] is S.COMPLETE_ABORT
    assert states["open"] is S.ONGOING
    snapshots = sorted(root.glob("t-*/*.snapshot"))
    assert "currentTxnFirstOffset: " in peers.dump_log(snapshots)


async def _prepared_by_us(path: Path, *, commit: bool) -> None:
    async with serving(path) as running:
        begun = await running.begin("ours")
        for at in T:
            await running.put(begun.producer, at, "prepared")
        ending = machine.ending(
            await state_of(running, "ours"), commit=commit, now_ms=written.BEGIN_MS, bump=True
        )
        store = running.service.store
        assert isinstance(store, SupportsTransactions)
        store.write_transactions([ending.prepared])
        if commit:  # the second partition's marker is still missing
            store.end_transactions({T[0]: [ending.marker()]})


@pytest.mark.parametrize("commit", [True, False])
def test_the_broker_ends_what_we_have_prepared(broker: Broker, commit: bool) -> None:
    asyncio.run(_prepared_by_us(broker.log, commit=commit))
    broker.adopt()
    broker.start()
    asyncio.run(_go_on(broker, "theirs", prepared=commit))
    broker.end(kill=False)
    with open_store("kafka", broker.log) as store:
        assert store.recovery.findings == []
        assert isinstance(store, SupportsTransactions)
        states = {state.transactional_id: state for state in store.transactions()}
        assert states["ours"].status is (S.COMPLETE_COMMIT if commit else S.COMPLETE_ABORT)
        assert stable(store)
        assert committed(store) == (["prepared"] * 2 if commit else []) + ["theirs"]


async def _go_on(broker: Broker, value: str, *, prepared: bool) -> None:
    producer = AIOKafkaProducer(bootstrap_servers=broker.address, transactional_id="other")
    await producer.start()
    try:
        async with producer.transaction():
            await producer.send_and_wait("t", value.encode(), partition=0)
    finally:
        await producer.stop()
    count = 3 if prepared else 1
    assert await consumed(broker.address, count) == ["prepared"] * (count - 1) + [value]


def test_a_broker_goes_on_with_our_open_transaction_and_back(broker: Broker) -> None:
    """The broker rolls our transaction back for a new producer with its id; its own is ended by us, and ours by it."""
    asyncio.run(write_ours(broker.log))
    broker.adopt()
    broker.start()
    asyncio.run(_take_over(broker))
    broker.end(kill=True)
    asyncio.run(_end_theirs(broker.log))
    broker.start()
    expected = sorted([*OUR_COMMITTED, "after", "again", "theirs", "theirs"])
    asyncio.run(_after_us(broker, expected))
    broker.end(kill=False)
    with open_store("kafka", broker.log) as store:
        assert stable(store)
        assert committed(store) == sorted([*expected, "last"])
        assert isinstance(store, SupportsGroupOffsets)
        assert store.committed("sent") == {}
        assert [at.offset for at in store.committed("again").values()] == [1]


async def _take_over(broker: Broker) -> None:
    """With our id, commit a transaction; leave another one open when the broker is killed."""
    for name, value in (("open", "after"), ("theirs", "theirs")):
        producer = AIOKafkaProducer(bootstrap_servers=broker.address, transactional_id=name)
        await producer.start()
        await producer.begin_transaction()
        for at in T if value == "theirs" else T[:1]:
            await producer.send_and_wait("t", value.encode(), partition=at.partition)
        if value == "after":
            await producer.commit_transaction()
        else:
            assert await consumed(broker.address, 6) == sorted([*OUR_COMMITTED, "after"])
        await producer.stop()  # which rolls nothing back


async def _end_theirs(path: Path) -> None:
    async with serving(path) as running:
        store = running.service.store
        assert not store.recovery.clean_shutdown
        assert [f for f in store.recovery.findings if f.severity != "info"] == []
        ended = await state_of(running, "open")
        assert ended.status is S.COMPLETE_COMMIT
        theirs = await state_of(running, "theirs")
        assert (theirs.status, theirs.partitions) == (S.ONGOING, frozenset(T))
        assert not stable(store)
        producer = ProducerEpoch(theirs.producer_id, theirs.epoch)
        await running.transactions.end(producer, commit=True, bump=False)
        assert stable(store)
        assert committed(store) == sorted([*OUR_COMMITTED, "after", "theirs", "theirs"])
        begun = await running.begin("open")
        await running.put(begun.producer, T[0], "again")
        at = {T[0]: CommittedOffset(1)}
        await running.transactions.commit_offsets(begun.producer, "again", at)
        await running.transactions.end(begun.producer, commit=True)
        for name in ("sent", "theirs"):
            begun = await running.begin(name)
            await running.put(begun.producer, T[1], "dropped")
            await running.transactions.commit_offsets(begun.producer, "sent", at)


async def _after_us(broker: Broker, expected: list[str]) -> None:
    for name, value in (("theirs", "last"), ("sent", None)):
        producer = AIOKafkaProducer(bootstrap_servers=broker.address, transactional_id=name)
        await producer.start()  # rolls back what we left open
        if value is not None:
            async with producer.transaction():
                await producer.send_and_wait("t", value.encode(), partition=1)
        await producer.stop()
    found = await consumed(broker.address, len(expected) + 1)
    assert found == sorted([*expected, "last"])


@pytest.mark.parametrize("commit", [True, False])
def test_we_end_what_the_broker_has_prepared(broker: Broker, commit: bool) -> None:
    broker.start()
    asyncio.run(_theirs(broker, commit=commit))
    broker.end(kill=False)
    _cut_to_prepared(broker.log)
    asyncio.run(_complete(broker.log, commit=commit))


async def _theirs(broker: Broker, *, commit: bool) -> None:
    admin = AIOKafkaAdminClient(bootstrap_servers=broker.address)
    await admin.start()
    await admin.create_topics([NewTopic("t", 2, 1)])
    await admin.close()
    producer = AIOKafkaProducer(bootstrap_servers=broker.address, transactional_id="theirs")
    await producer.start()
    await producer.begin_transaction()
    for at in T:
        await producer.send_and_wait("t", b"theirs", partition=at.partition)
    await (producer.commit_transaction() if commit else producer.abort_transaction())
    await producer.stop()
    expected = ["theirs"] * 2 if commit else []
    assert await consumed(broker.address, len(expected)) == expected


def _cut_to_prepared(root: Path) -> None:
    """Leave the files of a broker that was killed after it had stored the outcome, and before any marker."""
    for log in root.glob("*/*.log"):
        data = log.read_bytes()
        for at, header in split_batches(data):
            if header.is_control and log.parent.name.startswith("t-"):
                assert decode_control(data, at) is not None
                log.write_bytes(data[:at])
            elif log.parent.name.startswith("__transaction_state"):
                ((_, _, _, value, _),) = decode_records(data, at, header=header)
                if value is not None and decode_value("", value).status in machine.COMPLETE:
                    log.write_bytes(data[:at])
    for name in root.glob("*-checkpoint"):
        name.unlink()
    (root / ".kafka_cleanshutdown").unlink()
    for folder in (*root.glob("t-*"), *root.glob("__transaction_state-*")):
        for suffix in ("snapshot", "txnindex"):
            for file in folder.glob(f"*.{suffix}"):
                file.unlink()
    shutil.rmtree(root / "__consumer_offsets-0", ignore_errors=True)


async def _complete(root: Path, *, commit: bool) -> None:
    async with serving(root) as running:
        while (await state_of(running, "theirs")).status.is_prepared:  # noqa: ASYNC110  # no event for tests
            await asyncio.sleep(0.01)
        state = await state_of(running, "theirs")
        assert state.status is (S.COMPLETE_COMMIT if commit else S.COMPLETE_ABORT)
        store = running.service.store
        assert stable(store)
        assert committed(store) == (["theirs"] * 2 if commit else [])
