"""What public clients do while their frames are recorded.

Owns the calls of each client; must not know the bytes. frames.jsonl was made with a real broker (Kafka 4.3.1) that is
new, advertises 127.0.0.1:PROXY and creates topics, and with Kafka's jars in the class path JARS:

    python -m tests.wire.edges.recording HOST:PORT PROXY JARS frames.jsonl
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import confluent_kafka
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions
from aiokafka.admin import NewTopic as AioTopic
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from confluent_kafka import ConsumerGroupTopicPartitions as Committed
from confluent_kafka import TopicCollection, TopicPartition
from confluent_kafka import admin as ck
from kafka import KafkaConsumer, KafkaProducer
from kafka.admin import KafkaAdminClient
from kafka.admin import NewTopic as PythonTopic

from tests.wire.edges.proxy import running

RECORDS: Final = 4
WAIT_S: Final = 20


def _done(futures: Any) -> None:
    for future in futures.values() if isinstance(futures, dict) else [futures]:
        future.result(WAIT_S)


def librdkafka(address: str) -> None:
    """Use confluent-kafka: topics, records, a transaction, groups of both protocols, administration."""
    base = {"bootstrap.servers": address, "client.id": "confluent"}
    admin, topic = ck.AdminClient(base), "librdkafka"
    _done(admin.create_topics([ck.NewTopic(topic, 1, 1, config={"retention.ms": "1000000"})]))
    _done(admin.create_partitions([ck.NewPartitions(topic, 2)]))
    at = [TopicPartition(topic, number) for number in range(2)]
    for options in ({}, {"enable.idempotence": True, "compression.type": "zstd"}):
        producer = confluent_kafka.Producer({**base, **options})
        for number in range(RECORDS):
            producer.produce(topic, b"v%d" % number, key=b"k", partition=number % 2)
        assert producer.flush(WAIT_S) == 0
    for protocol in ("classic", "consumer"):
        group = f"{topic}-{protocol}"
        consumer = confluent_kafka.Consumer(
            {**base, "group.id": group, "group.protocol": protocol, "auto.offset.reset": "earliest"}
        )
        consumer.subscribe([topic])
        assert len(consumer.consume(2 * RECORDS, WAIT_S)) == 2 * RECORDS
        consumer.commit(asynchronous=False)
        _done(admin.describe_consumer_groups([group]))
        if protocol == "classic":
            producer = confluent_kafka.Producer({**base, "transactional.id": topic})
            producer.init_transactions(WAIT_S)
            producer.begin_transaction()
            producer.produce(topic, b"in a transaction", partition=0)
            position = consumer.position(consumer.assignment())
            metadata = consumer.consumer_group_metadata()
            producer.send_offsets_to_transaction(position, metadata, WAIT_S)
            producer.commit_transaction(WAIT_S)
        consumer.close()
        _done(admin.list_consumer_group_offsets([Committed(group)]))
    moved = [TopicPartition(topic, 0, 1)]
    _done(admin.alter_consumer_group_offsets([Committed(f"{topic}-classic", moved)]))
    resource = ck.ConfigResource(ck.ResourceType.TOPIC, topic)
    _done(admin.describe_configs([resource]))
    entry = ck.ConfigEntry("segment.ms", "70000", incremental_operation=ck.AlterConfigOpType.SET)
    changed = ck.ConfigResource(ck.ResourceType.TOPIC, topic, incremental_configs=[entry])
    _done(admin.incremental_alter_configs([changed]))
    _done(admin.list_consumer_groups())
    _done(admin.describe_topics(TopicCollection([topic])))
    _done(admin.describe_cluster())
    _done(admin.list_offsets({one: ck.OffsetSpec.latest() for one in at}))
    _done(admin.delete_records([TopicPartition(topic, 0, 1)]))
    _done(admin.elect_leaders(confluent_kafka.ElectionType.PREFERRED, at[:1]))
    _done(admin.delete_consumer_groups([f"{topic}-classic"]))
    _done(admin.delete_topics([topic]))


def kafka_python(address: str) -> None:
    """Use kafka-python."""
    admin, topic = KafkaAdminClient(bootstrap_servers=address), "python"
    admin.create_topics([PythonTopic(name=topic, num_partitions=1, replication_factor=1)])
    for options in ({"enable_idempotence": False}, {"compression_type": "gzip"}):
        producer = KafkaProducer(bootstrap_servers=address, **options)
        producer.send(topic, b"v").get(WAIT_S)
        producer.close()
    consumer = KafkaConsumer(
        topic, bootstrap_servers=address, group_id="python", auto_offset_reset="earliest"
    )
    for _ in range(2):
        next(consumer)
    consumer.commit()
    producer = KafkaProducer(bootstrap_servers=address, transactional_id=topic)
    producer.init_transactions()
    producer.begin_transaction()
    producer.send(topic, b"v").get(WAIT_S)
    producer.send_offsets_to_transaction(
        {one: consumer.committed(one, metadata=True) for one in consumer.assignment()}, "python"
    )
    producer.commit_transaction()
    producer.close()
    for call in (
        *(
            "list_groups",
            "list_transactions",
            "list_config_resources",
            "list_partition_reassignments",
        ),
        *("describe_cluster", "describe_topics", "describe_log_dirs", "describe_metadata_quorum"),
    ):
        getattr(admin, call)()
    admin.describe_transactions([topic])
    admin.describe_groups(["python"])
    admin.list_group_offsets(["python"])
    consumer.close()
    admin.delete_topics([topic])
    admin.close()


def aiokafka(address: str) -> None:
    """Use aiokafka."""
    asyncio.run(_aiokafka(address))


async def _aiokafka(address: str) -> None:
    admin, topic = AIOKafkaAdminClient(bootstrap_servers=address), "aio"
    await admin.start()
    await admin.create_topics([AioTopic(topic, 1, 1)])
    producer = AIOKafkaProducer(bootstrap_servers=address, compression_type="lz4")
    await producer.start()
    await producer.send_and_wait(topic, b"v", key=b"k")
    await producer.stop()
    consumer = AIOKafkaConsumer(
        topic, bootstrap_servers=address, group_id=topic, auto_offset_reset="earliest"
    )
    await consumer.start()
    record = await consumer.getone()
    await consumer.commit()
    async with (
        AIOKafkaProducer(bootstrap_servers=address, transactional_id=topic) as producer,
        producer.transaction(),
    ):
        await producer.send_and_wait(topic, b"v")
        offsets = dict.fromkeys(consumer.assignment(), record.offset)
        await producer.send_offsets_to_transaction(offsets, topic)
    resource = ConfigResource(ConfigResourceType.TOPIC, topic, {"segment.ms": "70000"})
    await admin.alter_configs([resource])
    await admin.create_partitions({topic: NewPartitions(2)})
    await admin.describe_cluster()
    await admin.list_consumer_groups()
    await admin.describe_consumer_groups([topic])
    await admin.list_consumer_group_offsets(topic)
    await consumer.stop()
    await admin.delete_topics([topic])
    await admin.close()


def kcat(address: str) -> None:
    """Use kcat, with an older librdkafka."""

    def call(*words: str) -> None:
        command = ["kcat", "-b", address, *words]
        subprocess.run(command, input=b"k:v\n", check=True, timeout=WAIT_S, capture_output=True)

    call("-P", "-t", "kcat", "-K:", "-z", "snappy")
    call("-C", "-t", "kcat", "-c", "1")
    call("-Q", "-t", "kcat:0:0")
    call("-L")
    call("-G", "kcat", "-c", "1", "-X", "auto.offset.reset=earliest", "kcat")


def java(address: str, jars: str) -> None:
    """Use the tools of Kafka."""
    options = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-cp", jars)

    def tool(name: str, *words: str, given: str = "") -> None:
        name = name if name.startswith("kafka.") else f"org.apache.kafka.tools.{name}"
        command = ["java", *options, name, "--bootstrap-server", address, *words]
        done = subprocess.run(
            command, input=given, text=True, timeout=120, capture_output=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr

    t = ("--topic", "t")
    group = ("--group", "java")
    tool("TopicCommand", "--create", *t, "--partitions", "1")
    tool("TopicCommand", "--alter", *t, "--partitions", "2")
    tool("TopicCommand", "--describe", *t)
    tool("ConsoleProducer", *t, given="a\nb\n")
    console = ("consumer.ConsoleConsumer", *t, "--max-messages", "2", "--from-beginning")
    tool(*console, *group)
    tool(*console, "--group", "new", "--consumer-property", "group.protocol=consumer")
    groups = "consumer.group.ConsumerGroupCommand"
    tool(groups, "--list", "--state", "--type")
    tool(groups, "--describe", *group)
    tool(groups, "--describe", "--group", "new", "--members")
    tool(groups, *group, "--reset-offsets", "--to-earliest", "--execute", *t)
    tool(groups, *group, "--delete-offsets", *t)
    tool(groups, "--delete", *group)
    entity = ("--entity-type", "topics", "--entity-name", "t")
    tool("kafka.admin.ConfigCommand", "--alter", *entity, "--add-config", "segment.ms=70000")
    tool("kafka.admin.ConfigCommand", "--describe", *entity)
    tool("LogDirsCommand", "--describe", "--topic-list", "t")
    tool("GetOffsetShell", *t)
    tool("LeaderElectionCommand", "--election-type", "preferred", *t, "--partition", "0")
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        rows = [{"topic": "t", "partition": 0, "offset": 0}]
        file.write(json.dumps({"version": 1, "partitions": rows}))
        file.flush()
        tool("DeleteRecordsCommand", "--offset-json-file", file.name)
    tool("ProducerPerformance", *t, "--num-records", "2", "--record-size", "9", "--throughput", "-1",
         "--transactional-id", "perf")  # fmt: skip
    tool("TransactionsCommand", "list")
    tool("TransactionsCommand", "describe", "--transactional-id", "perf")
    tool("TransactionsCommand", "describe-producers", *t, "--partition", "0")
    tool("TopicCommand", "--delete", *t)


def main() -> None:
    """Run every client with the proxy, and write the file."""
    broker, port, jars, path = sys.argv[1:]
    address = f"127.0.0.1:{port}"
    clients: dict[str, Callable[[], None]] = {
        "confluent-kafka": lambda: librdkafka(address),
        "kafka-python": lambda: kafka_python(address),
        "aiokafka": lambda: aiokafka(address),
        "kcat": lambda: kcat(address),
        "java": lambda: java(address, jars),
    }
    with running(int(port), broker) as proxy:
        for name, use in clients.items():
            proxy.client = name
            use()
        proxy.write(Path(path))


if __name__ == "__main__":
    main()
