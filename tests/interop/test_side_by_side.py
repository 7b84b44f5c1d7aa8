"""Our store and a running broker on one directory: each respects the other's lock, and recovers after its kill."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from api.kafka.protocol.messages.topics import (
    CreateTopicsRequest,
    CreateTopicsRequestCreatableTopic,
    CreateTopicsRequestCreatableTopicConfig,
)
from storage import Record, TopicPartition, open_store
from storage.errors import StoreLocked
from storage.kafka.format.compression import CODECS
from tests.golden.trees import picture
from tests.interop import peers, written
from tests.interop.brokers import Broker
from tests.wire.harness import Connection, batch
from tests.wire.harness import broker as our_broker
from tests.wire.harness import produce as request_of

pytestmark = pytest.mark.java

ORDERS = TopicPartition("orders", 0)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    """One broker with its own directory, not started yet."""
    found = Broker(tmp_path / "broker")
    yield found
    found.end(kill=True)


async def make_topic(address: str) -> None:
    admin = AIOKafkaAdminClient(bootstrap_servers=address)
    await admin.start()
    try:
        topic = NewTopic("orders", 2, 1, topic_configs={"segment.bytes": "1048576"})
        await admin.create_topics([topic])
    finally:
        await admin.close()


async def produce(address: str, codec: str | None, numbers: range) -> list[int]:
    """Produce as an idempotent producer with acks=all; return the offsets that the broker acknowledged."""
    producer = AIOKafkaProducer(
        bootstrap_servers=address, compression_type=codec, enable_idempotence=True
    )
    await producer.start()
    try:
        sent = [
            await producer.send(
                "orders", b"%d" % n, key=b"k", partition=0, headers=[("n", b"%d" % n)]
            )
            for n in numbers
        ]
        return [(await future).offset for future in sent]
    finally:
        await producer.stop()


def test_a_running_broker_keeps_us_out_and_leaves_us_a_store_when_killed(broker: Broker) -> None:
    broker.start()
    asyncio.run(make_topic(broker.address))
    codecs = [None, "gzip", "snappy", "lz4", "zstd"]
    offsets: list[int] = []
    for turn, codec in enumerate(codecs):
        numbers = range(40 * turn, 40 * turn + 40)
        offsets += asyncio.run(produce(broker.address, codec, numbers))
    assert offsets == list(range(200))

    with pytest.raises(StoreLocked) as refusal:
        open_store("kafka", broker.log)
    assert refusal.value.facts()["pid"] == broker.pid
    before = {name: entry for name, entry in picture(broker.log).items() if "orders" in name}
    with open_store("kafka", broker.log, read_only=True) as reader:
        assert [r.value for r in reader.scan(ORDERS)] == [b"%d" % n for n in range(200)]
    after = {name: entry for name, entry in picture(broker.log).items() if "orders" in name}
    assert after == before

    broker.end(kill=True)
    with open_store("kafka", broker.log) as store:
        assert not store.recovery.clean_shutdown
        assert [f for f in store.recovery.findings if f.severity != "info"] == []
        assert store.recovery.losses == []
        assert [r.value for r in store.scan(ORDERS)] == [b"%d" % n for n in range(200)]
        assert store.append(ORDERS, [Record(b"k", b"ours")]).base_offset == 200
        mine = written.rows(store)
    answer = peers.run_kafka_opens(broker.log, "--clean", "yes", "--direct")
    assert answer.records == mine
    peers.index_check([broker.log / "orders-0"])


OURS = """
import sys
from storage import ProducerSequence, Record, StoreOptions, TopicPartition, open_store
from tests.interop.written import SHAPES

root, cluster_id = sys.argv[1:]
settings = {"internal.segment.bytes": "3000", "index.interval.bytes": "300", "cluster.id": cluster_id}
store = open_store("kafka", root, StoreOptions(settings=settings))
store.create_topic("orders", 2)
for n in range(120):
    address = TopicPartition("orders", n % 2)
    producer = ProducerSequence(40 + n % 2, 0, n // 2)
    store.append(address, [Record(b"k", b"%d" % n, [("h", None)], n)], producer=producer)
for shape in SHAPES[:8]:
    store.append(TopicPartition("orders", 0), [shape], compression="lz4")
store.flush()
print("acknowledged", flush=True)
sys.stdin.read()
"""
CLUSTER_ID = "AAAAAAAAQACAAAAAAAAAAQ"  # the cluster id of the peers


def test_we_keep_a_broker_out_and_leave_it_a_store_when_killed(broker: Broker) -> None:
    command = [sys.executable, "-P", "-c", OURS, str(broker.log), CLUSTER_ID]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as ours:
        assert ours.stdout is not None
        assert ours.stdout.readline() == "acknowledged\n"
        with pytest.raises(peers.PeerError, match="Failed to acquire lock"):
            broker.start()
        ours.send_signal(signal.SIGKILL)
        ours.wait()
    assert not (broker.log / ".kafka_cleanshutdown").exists()
    with open_store("kafka", broker.log, read_only=True) as reader:
        mine = written.rows(reader)
    assert (len(mine["orders", 0]), len(mine["orders", 1])) == (68, 60)
    for options in ((), ("--direct",)):
        answer = peers.run_kafka_opens(broker.log, *options)
        assert answer.records == mine


PARTS = 3
SEGMENT_BYTES = 1 << 20


async def send_the_same(connection: Connection) -> None:
    """Create the topics t and small, and send the same batches: each codec, in several versions of Produce."""
    topics = []
    for name in ("t", "small"):
        topic = CreateTopicsRequestCreatableTopic(
            name=name, num_partitions=PARTS, replication_factor=1
        )
        size = CreateTopicsRequestCreatableTopicConfig(
            name="segment.bytes", value=f"{SEGMENT_BYTES}"
        )
        topic.configs = [size] if name == "small" else []
        topics.append(topic)
    created = await connection.call(CreateTopicsRequest(topics=topics, timeout_ms=10_000), 7)
    assert [topic.error_code for topic in created.topics] == [0, 0]
    await asyncio.sleep(1)  # the real broker hears of a topic later than the creator
    for turn, version in enumerate((3, 7, 8, 9, 11, 12)):
        for codec in range(len(CODECS)):
            if codec < 4 or version >= 7:  # zstd
                values = [b"%d of codec %d" % (number, codec) * 9 for number in range(turn + 1)]
                sent = batch(*values, codec=codec)
                many = [(number, sent) for number in range(codec % PARTS, PARTS)]
                await appended(connection, request_of("t", *many, acks=1 - 2 * (turn % 2)), version)
    for number in range(3 * SEGMENT_BYTES // 400_000):
        for part in range(2):
            request = request_of("small", (part, batch(b"%d" % number * (400_000 + 77 * part))))
            await appended(connection, request, 9)


async def appended(connection: Connection, request: Any, version: int) -> None:
    answer = await connection.call(request, version)
    rows = [row for topic in answer.responses for row in topic.partition_responses]
    assert [row.error_code for row in rows] == [0] * len(rows)


def files(root: Path) -> dict[str, bytes]:
    """Return the files of the partitions of `send_the_same` by name, but for those with a server's own topic id."""
    found = sorted(path for topic in ("t", "small") for path in root.glob(f"{topic}-*/*"))
    return {
        f"{path.parent.name}/{path.name}": path.read_bytes()
        for path in found
        if path.name != "partition.metadata"
    }


def test_the_same_requests_write_the_same_files(broker: Broker, tmp_path: Path) -> None:
    """Logs, indexes, producers' states and epochs byte for byte, with segments at the same offsets."""

    async def ours() -> None:
        async with our_broker(tmp_path / "store") as running, running.connect() as connection:
            await send_the_same(connection)

    async def theirs() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", broker.port)
        await send_the_same(Connection(reader, writer))
        writer.close()

    broker.start()
    asyncio.run(theirs())
    asyncio.run(ours())
    broker.end(kill=False)
    expected, found = files(broker.log), files(tmp_path / "store")
    assert found.keys() == expected.keys()
    written_logs = [name for name, data in found.items() if name.endswith(".log") and data]
    assert len(written_logs) > PARTS + 2  # several segments
    assert {name.partition("/")[0] for name in written_logs} >= {f"t-{n}" for n in range(PARTS)}
    assert [name for name in found if found[name] != expected[name]] == []
