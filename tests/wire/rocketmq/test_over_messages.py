"""A RocketMQ store for Kafka clients: what it refuses, what it hides, and how its records look over HTTP.

What a store in either format answers alike is in the other modules, under BOTH.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.errors import TransactionalIdAuthorizationFailed
from confluent_kafka import KafkaException, Producer

from api.kafka.apis import SERVED, TRANSACTIONS, WITHOUT_TRANSACTIONS
from api.kafka.protocol.errors import ErrorCode
from api.kafka.protocol.messages.cluster import ApiVersionsRequest, FindCoordinatorRequest
from api.kafka.protocol.messages.configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsRequestAlterableConfig,
    IncrementalAlterConfigsRequestAlterConfigsResource,
    ListConfigResourcesRequest,
)
from api.kafka.protocol.messages.groups import ConsumerGroupHeartbeatRequest
from api.kafka.protocol.messages.metadata import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsRequestTopicRequest,
    MetadataRequest,
    MetadataRequestTopic,
)
from api.kafka.protocol.messages.offsets import (
    DeleteRecordsRequest,
    DeleteRecordsRequestPartition,
    DeleteRecordsRequestTopic,
    ListOffsetsRequest,
    ListOffsetsRequestPartition,
    ListOffsetsRequestTopic,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochRequestOffsetForLeaderPartition,
    OffsetForLeaderEpochRequestOffsetForLeaderTopic,
)
from api.kafka.protocol.messages.placement import DescribeLogDirsRequest
from api.kafka.protocol.messages.produce import InitProducerIdRequest
from api.kafka.protocol.messages.topics import (
    CreatePartitionsRequest,
    CreatePartitionsRequestTopic,
    DeleteTopicsRequest,
)
from storage.kafka.format.batch import encode_batch
from storage.model import CommittedOffset, GroupCommit, Record, TopicPartition
from tests.contract.batches import marker, transaction
from tests.http.harness import opener, serving, settings
from tests.wire.group_requests import commit, fetched
from tests.wire.harness import (
    FREE,
    Broker,
    Connection,
    batch,
    broker,
    fetch,
    frame,
    produce,
    values,
)
from tests.wire.test_produce_fetch import rows
from tests.wire.test_topics_configs import SET, TOPIC, created, described, topic

TIME_MS = 1_700_000_000_000
HIDDEN = ("%RETRY%group", "a|b", "TBW102", "SCHEDULE_TOPIC_XXXX", "rmq_sys_x")
WHOLE = "application/vnd.kafka.binary.v2+json"


@pytest.fixture
async def kafka(tmp_path: Path) -> AsyncIterator[Broker]:
    """A server on an empty RocketMQ store, with a port for Kafka clients."""
    async with broker(tmp_path / "store", "rocketmq") as running:
        yield running


async def test_apis(connection: Connection) -> None:
    """No API of transactions is advertised, nor a version that belongs to them."""
    response = await connection.call(ApiVersionsRequest(), 2)
    offered = {row.api_key: (row.min_version, row.max_version) for row in response.api_keys}
    served = {key: (row.first, row.last) for key, row in WITHOUT_TRANSACTIONS.items()}
    assert offered == {**served, 0: (0, 11)}
    assert set(SERVED) - set(offered) == TRANSACTIONS
    assert offered[22] == (0, 4)
    assert response.supported_features == response.finalized_features == []


async def test_a_transactional_id_has_no_coordinator(connection: Connection) -> None:
    """Every client takes the number of its version as final. Groups have their coordinator."""
    for version in range(7):
        keys: dict[str, Any] = {"key": "id"} if version < 4 else {"coordinator_keys": ["id"]}
        for key_type in (0, 1) if version else (0,):
            request = FindCoordinatorRequest(key_type=key_type, **keys)
            found = await connection.call(request, version)
            (row,) = (found,) if version < 4 else found.coordinators
            if key_type == 0:
                assert (row.error_code, row.node_id) == (ErrorCode.NONE, 1)
                continue
            assert row.error_code == (
                ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
                if version < 4
                else ErrorCode.UNSUPPORTED_VERSION
            )
            assert (row.node_id, row.port) == (-1, -1)
            assert "no transactions" in row.error_message


async def test_a_name_that_no_group_can_have_has_no_coordinator(
    kafka: Broker, connection: Connection
) -> None:
    """The offset manager of sarama waits for ever if only its commits are refused. A group that exists is found."""
    await kafka.service.groups.offsets.stop()  # the groups are counted now
    kafka.service.groups.offsets.admit("known.group")
    for version in range(7):
        for name, code in (("my.group", ErrorCode.INVALID_GROUP_ID), ("known.group", 0)):
            keys: dict[str, Any] = {"key": name} if version < 4 else {"coordinator_keys": [name]}
            found = await connection.call(FindCoordinatorRequest(key_type=0, **keys), version)
            (row,) = (found,) if version < 4 else found.coordinators
            assert (row.error_code, row.node_id) == (code, -1 if code else 1)
            if code and version:
                assert "'my.group'" in row.error_message


async def test_clients_end_their_wait_for_transactions(kafka: Broker) -> None:
    """The library asks for a producer id again and again after most numbers."""

    def begin() -> None:
        address = {"bootstrap.servers": kafka.address, "transactional.id": "x"}
        Producer(address).init_transactions(20)

    with pytest.raises(KafkaException, match="has no transactions") as refused:
        await asyncio.to_thread(begin)
    assert refused.value.args[0].fatal()
    producer = AIOKafkaProducer(bootstrap_servers=kafka.address, transactional_id="x")
    async with asyncio.timeout(20):
        with pytest.raises(TransactionalIdAuthorizationFailed):
            await producer.start()
        await producer.stop()


async def test_transactions_are_refused(kafka: Broker, connection: Connection) -> None:
    await kafka.api.create("t")
    for version in range(5):
        request = InitProducerIdRequest(transactional_id="id", transaction_timeout_ms=1000)
        found = await connection.call(request, version)
        assert found.error_code == ErrorCode.UNSUPPORTED_VERSION
    for data in (transaction("a", sequence=0), marker(commit=True)):
        for number in range(3, 12):
            (row,) = rows(await connection.call(produce("t", (0, data)), number))
            assert row.error_code == ErrorCode.INVALID_RECORD  # type: ignore[attr-defined]
            if number >= 8:
                assert [one.batch_index for one in row.record_errors] == [0]  # type: ignore[attr-defined]
    assert (await kafka.service.bounds(kafka.service.topics.partition("t", 0))).end == 0


@pytest.mark.parametrize(
    ("record", "words"),
    [
        (Record(b"k", None), "value: is null"),
        (Record(b"\xff", b"v"), "key: is no UTF-8 text"),
        (Record(b"", b"v"), "key: is empty"),
        (Record(b"k", b"v", [("a", None)]), "headers: the value of 'a' is empty or null"),
        (Record(b"k", b"v", [("a", b"\xff")]), "headers: the value of 'a' is no UTF-8 text"),
        (Record(b"k", b"v", [("a", b"1"), ("a", b"2")]), "'a' comes twice"),
        (Record(b"k", b"v", [("WAIT", b"1")]), "'WAIT' is a reserved name"),
        (Record(b"k", b"v", [("KEYS", b"\xff")]), "header KEYS is null, empty or no UTF-8 text"),
    ],
)
@pytest.mark.parametrize("codec", [0, 1])
async def test_records_that_no_message_can_hold(
    kafka: Broker, connection: Connection, record: Record, words: str, codec: int
) -> None:
    """The batch is refused with the numbers of the records; the other partitions of the request are stored."""
    await kafka.api.create("t", 2)
    good = Record(b"k", b"v", (), TIME_MS)
    data = encode_batch(
        [good, good, *[record._replace(timestamp_ms=TIME_MS)] * 2, good],
        base_offset=0,
        leader_epoch=-1,
        now_ms=0,
        codec=codec,
    )
    bad, stored = rows(await connection.call(produce("t", (0, data), (1, batch(b"a"))), 11))
    assert bad.error_code == ErrorCode.INVALID_RECORD  # type: ignore[attr-defined]
    error, *others = bad.record_errors  # type: ignore[attr-defined]
    assert [one.batch_index for one in (error, *others)] == ([2] if "KEYS" in words else [2, 3])
    assert words in error.batch_index_error_message
    assert bad.error_message == error.batch_index_error_message  # type: ignore[attr-defined]
    assert (stored.error_code, stored.base_offset) == (0, 0)  # type: ignore[attr-defined]
    assert (await kafka.service.bounds(kafka.service.topics.partition("t", 0))).end == 0


async def test_an_error_at_acks_0_ends_the_connection(kafka: Broker) -> None:
    await kafka.api.create("t")
    async with kafka.connect() as connection:
        data = encode_batch([Record(b"k", None)], base_offset=0, leader_epoch=-1, now_ms=0)
        connection.writer.write(frame(produce("t", (0, data), acks=0), 9))
        assert await connection.is_ended()


async def test_records_over_http_and_back(kafka: Broker, connection: Connection) -> None:
    """The record is a message with key, tag, lookup keys and properties; the client's address is its born host."""
    await kafka.api.create("t")
    headers = [("trace", b"7"), ("TAGS", b"paid"), ("KEYS", b"order-1 order-2")]
    record = Record(b"ann", b"apples", headers, TIME_MS)
    data = encode_batch([record], base_offset=0, leader_epoch=-1, now_ms=0, codec=1)
    (row,) = rows(await connection.call(produce("t", (0, data)), 9))
    assert row.error_code == 0  # type: ignore[attr-defined]
    (shown,) = (await kafka.api.get("/topics/t/partitions/0/records?format=text")).json
    assert (shown["key"], shown["value"], shown["timestamp"]) == ("ann", "apples", TIME_MS)
    assert (shown["tag"], shown["keys"]) == ("paid", ["order-1", "order-2"])
    properties = shown["properties"]
    assert properties.pop("UNIQ_KEY")
    assert properties == {
        "trace": "7",
        "__SHARDINGKEY": "ann",
        "KEYS": "ann order-1 order-2",
        "TAGS": "paid",
    }
    (hit,) = kafka.service.store.find("t", key="order-2").records
    assert hit[1].offset == 0
    assert kafka.service.store.find_by_id(shown["message_id"])[1].key == b"ann"
    body = {"records": [{"key": "YmVu", "value": "cGVhcnM="}]}
    await kafka.api.post("/topics/t/partitions/0", body, content_type=WHOLE)
    (found,) = (await connection.call(fetch("t", (0, 0)), 12)).responses[0].partitions
    assert values(found.records) == [b"apples", b"pears"]


async def test_topics_that_are_not_for_clients(kafka: Broker, connection: Connection) -> None:
    """They are listed nowhere, INVALID_TOPIC by name, and neither created nor changed."""
    store = kafka.service.store
    for name in ("%RETRY%group", "a|b"):
        await kafka.service.topics.create(name, 1, None)
    await kafka.api.create("t")
    everything = await connection.call(MetadataRequest(topics=None), 12)
    assert [row.name for row in everything.topics] == ["t"]
    asked: list[Any] = [MetadataRequestTopic(name=name) for name in HIDDEN]
    for allow in (False, True):
        request = MetadataRequest(topics=asked, allow_auto_topic_creation=allow)
        by_name = (await connection.call(request, 12)).topics
        assert {row.error_code for row in by_name} == {ErrorCode.INVALID_TOPIC_EXCEPTION}
    invalid = ErrorCode.INVALID_TOPIC_EXCEPTION
    listed = await connection.call(DescribeTopicPartitionsRequest(topics=[]), 0)
    assert [(row.name, row.error_code) for row in listed.topics] == [("t", 0)]
    wanted = [DescribeTopicPartitionsRequestTopicRequest(name=name) for name in HIDDEN]
    listed = await connection.call(DescribeTopicPartitionsRequest(topics=wanted), 0)
    assert {row.error_code for row in listed.topics} == {invalid}
    for name in HIDDEN:
        for check in (True, False):
            (row,) = await created(connection, topic(name), check=check)
            assert row.error_code == invalid
        (produced,) = rows(await connection.call(produce(name, (0, batch(b"a"))), 9))
        assert produced.error_code == invalid  # type: ignore[attr-defined]
        (fetch_row,) = (await connection.call(fetch(name, (0, 0)), 12)).responses[0].partitions
        assert fetch_row.error_code == invalid
        at = ListOffsetsRequestPartition(partition_index=0, timestamp=-1)
        of = ListOffsetsRequestTopic(name=name, partitions=[at])
        offsets = await connection.call(ListOffsetsRequest(topics=[of]), 7)
        assert offsets.topics[0].partitions[0].error_code == invalid
        more = CreatePartitionsRequestTopic(name=name, count=5, assignments=None)
        (made,) = (
            await connection.call(CreatePartitionsRequest(topics=[more], timeout_ms=5000))
        ).results
        assert made.error_code == invalid
        gone = await connection.call(DeleteTopicsRequest(topic_names=[name], timeout_ms=5000), 5)
        assert gone.responses[0].error_code == invalid
        answer = await connection.call(commit({(name, 0): 1}), 9)
        assert answer.topics[0].partitions[0].error_code == invalid
    assert set(store.topics()) == {"%RETRY%group", "a|b", "t"}
    found = await connection.call(ListConfigResourcesRequest(resource_types=[TOPIC]), 1)
    assert [row.resource_name for row in found.config_resources] == ["t"]
    (logs,) = (await connection.call(DescribeLogDirsRequest(topics=None), 4)).results
    assert [row.name for row in logs.topics] == ["t"]


async def test_offsets_of_hidden_topics_are_not_shown(
    kafka: Broker, connection: Connection
) -> None:
    """A group of RocketMQ has offsets of its retry topic too; Kafka's tools could not look that topic up."""
    await kafka.service.topics.create("%RETRY%g", 1, None)
    await kafka.api.create("t")
    store: Any = kafka.service.store
    offsets = {TopicPartition(name, 0): CommittedOffset(0) for name in ("%RETRY%g", "t")}
    store.commit_offsets([GroupCommit("g", offsets)])
    assert await fetched(connection, 9, None) == {("t", 0): (0, -1, "", 0)}


async def test_a_pattern_of_a_group_matches_no_hidden_topic(
    kafka: Broker, connection: Connection
) -> None:
    """With Kafka's new protocol the server finds the topics."""
    for name in ("%RETRY%g", "a|b", "t"):
        await kafka.service.topics.create(name, 1, None)
    request = ConsumerGroupHeartbeatRequest(
        group_id="g",
        member_id="me",
        rebalance_timeout_ms=1000,
        subscribed_topic_regex=".*",
        topic_partitions=[],
    )
    answer = await connection.call(request, 1)
    assert answer.error_code == 0
    assigned = [row.topic_id for row in answer.assignment.topic_partitions]
    assert assigned == [kafka.service.topics.ids.id_of("t")]
    named = ConsumerGroupHeartbeatRequest(
        group_id="h",
        member_id="me",
        rebalance_timeout_ms=1000,
        subscribed_topic_names=["%RETRY%g"],
        topic_partitions=[],
    )
    assert (await connection.call(named, 1)).assignment.topic_partitions == []


async def test_configs(kafka: Broker, connection: Connection) -> None:
    """Configs of RocketMQ can be set; what Kafka's would be is shown, and refused."""
    (row,) = await created(connection, topic("t", perm="4"))
    assert (row.error_code, row.num_partitions) == (0, 1)
    for name, value in (("cleanup.policy", "compact"), ("retention.ms", "5000")):
        (row,) = await created(connection, topic("u", 1, 1, **{name: value}))
        assert row.error_code == ErrorCode.INVALID_CONFIG
    configs = await described(connection)
    assert configs["perm"].value == "4"
    assert configs["cleanup.policy"].value == "delete"
    assert configs["message.timestamp.type"].value == "CreateTime"
    assert configs["max.message.bytes"].value == str(4 << 20)

    async def changed(name: str, value: str) -> int:
        config = IncrementalAlterConfigsRequestAlterableConfig(
            name=name, config_operation=SET, value=value
        )
        resource = IncrementalAlterConfigsRequestAlterConfigsResource(
            resource_type=TOPIC, resource_name="t", configs=[config]
        )
        request = IncrementalAlterConfigsRequest(resources=[resource])
        return int((await connection.call(request)).responses[0].error_code)

    assert await changed("order", "true") == 0
    assert await changed("cleanup.policy", "compact") == ErrorCode.INVALID_CONFIG
    assert kafka.service.topics["t"].configs == {"perm": "4", "order": "true"}


@pytest.mark.parametrize("version", range(3))
async def test_records_cannot_be_deleted(
    kafka: Broker, connection: Connection, version: int
) -> None:
    await kafka.api.create("t")
    asked = DeleteRecordsRequestPartition(partition_index=0, offset=0)
    of = DeleteRecordsRequestTopic(name="t", partitions=[asked])
    response = await connection.call(DeleteRecordsRequest(topics=[of]), version)
    (row,) = response.topics[0].partitions
    assert (row.error_code, row.low_watermark) == (ErrorCode.UNSUPPORTED_VERSION, -1)


@pytest.mark.parametrize("version", [2, 3, 4])
async def test_there_is_one_leader_epoch(
    kafka: Broker, connection: Connection, version: int
) -> None:
    await kafka.api.create("t")
    await connection.call(produce("t", (0, batch(b"a", b"b"))), 9)

    async def end(epoch: int, current: int = -1) -> tuple[int, int, int]:
        asked = OffsetForLeaderEpochRequestOffsetForLeaderPartition(
            partition=0, leader_epoch=epoch, current_leader_epoch=current
        )
        of = OffsetForLeaderEpochRequestOffsetForLeaderTopic(topic="t", partitions=[asked])
        response = await connection.call(OffsetForLeaderEpochRequest(topics=[of]), version)
        (row,) = response.topics[0].partitions
        return row.error_code, row.leader_epoch, row.end_offset

    assert await end(0) == await end(0, 0) == (0, 0, 2)
    assert await end(1) == (0, -1, -1)
    assert (await end(0, 1))[0] == ErrorCode.UNKNOWN_LEADER_EPOCH


async def test_ids_stay_over_a_restart(tmp_path: Path) -> None:
    found = set()
    for _ in range(2):
        async with broker(tmp_path / "s", "rocketmq") as kafka, kafka.connect() as connection:
            if "t" not in kafka.service.topics:
                await kafka.api.create("t")
            (row,) = (await connection.call(MetadataRequest(topics=None), 12)).topics
            found.add(row.topic_id)
    assert len(found) == 1
    assert found != {bytes(16)}


async def test_a_store_of_a_real_broker(golden_dir: Path, tmp_path: Path) -> None:
    """It is served read-only: its topics for clients, with the offsets of its queues."""
    path = tmp_path / "store"
    shutil.copytree(golden_dir.parent / "rocketmq" / "broker" / "store", path)
    chosen = settings(path, listen_kafka=FREE)
    async with serving(chosen, opener("rocketmq", chosen, read_only=True)) as api:
        await api.server.listen_kafka()
        async with Broker(api).connect() as connection:
            listed = (await connection.call(MetadataRequest(topics=None), 12)).topics
            store = api.service.store
            shown = {row.name: len(row.partitions) for row in listed}
            assert shown == {
                name: len(info.partitions)
                for name, info in store.topics().items()
                if "%" not in name and not info.internal
            }
            assert 0 < len(shown) < len(store.topics())
            (row,) = rows(await connection.call(produce(min(shown), (0, batch(b"a"))), 9))
            assert row.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED  # type: ignore[attr-defined]
