"""The same requests for the real broker and for this server, and the answers in a form that can be compared.

Owns the requests and what may differ between two servers (ids, addresses, leader epochs); must not know the answers.
`python -m tests.wire.exchanges HOST:PORT` prints the answers of a running broker with an empty store as JSON:
recorded.json holds the real one's (Kafka 4.3.1).
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable, Sequence, Set
from typing import Any, Final

import msgspec

from api.kafka.protocol.messages import APIS
from api.kafka.protocol.messages.cluster import (
    ApiVersionsRequest,
    DescribeClusterRequest,
    FindCoordinatorRequest,
)
from api.kafka.protocol.messages.configs import (
    AlterConfigsRequest,
    AlterConfigsRequestAlterableConfig,
    AlterConfigsRequestResource,
    DescribeConfigsRequest,
    DescribeConfigsRequestResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsRequestAlterableConfig,
    IncrementalAlterConfigsRequestAlterConfigsResource,
    ListConfigResourcesRequest,
)
from api.kafka.protocol.messages.group_offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetFetchRequest,
    OffsetFetchRequestTopic,
)
from api.kafka.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
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
from api.kafka.protocol.messages.topics import (
    CreatePartitionsRequest,
    CreatePartitionsRequestTopic,
    CreateTopicsRequest,
    CreateTopicsRequestCreatableTopic,
    CreateTopicsRequestCreatableTopicConfig,
    DeleteTopicsRequest,
    DeleteTopicsRequestDeleteTopicState,
)
from api.kafka.protocol.primitives import Fields
from tests.wire.harness import Connection, batch, fetch, frame, produce

SERVERS_OWN: Final = frozenset(
    {
        *("broker_id", "cluster_id", "controller_id", "host", "isr_nodes", "leader_epoch"),
        *("leader_id", "node_id", "port", "producer_id", "replica_nodes", "topic_id"),
    }
)
TEXTS: Final = frozenset({"batch_index_error_message", "error_message"})
"""Messages for people are not compared."""
LOADS: Final = frozenset({14, 15, 16})
"""Numbers of a coordinator that asks a client to come again."""
BATCH_HEAD_BYTES: Final = 16  # base offset, length, leader epoch

Exchange = tuple[str, Any, int]


def _topic(name: str, partitions: int = 1, replicas: int = 1) -> CreateTopicsRequestCreatableTopic:
    return CreateTopicsRequestCreatableTopic(
        name=name, num_partitions=partitions, replication_factor=replicas
    )


def _create(*topics: CreateTopicsRequestCreatableTopic, check: bool = False) -> CreateTopicsRequest:
    return CreateTopicsRequest(topics=list(topics), timeout_ms=10_000, validate_only=check)


def _offsets(*times: int, topic: str = "t", number: int = 0) -> ListOffsetsRequest:
    asked = [ListOffsetsRequestPartition(partition_index=number, timestamp=time) for time in times]
    return ListOffsetsRequest(topics=[ListOffsetsRequestTopic(name=topic, partitions=asked)])


def _delete(offset: int, number: int = 0) -> DeleteRecordsRequest:
    asked = DeleteRecordsRequestPartition(partition_index=number, offset=offset)
    topic = DeleteRecordsRequestTopic(name="t", partitions=[asked])
    return DeleteRecordsRequest(topics=[topic], timeout_ms=10_000)


def _end(epoch: int) -> OffsetForLeaderEpochRequest:
    asked = OffsetForLeaderEpochRequestOffsetForLeaderPartition(partition=0, leader_epoch=epoch)
    topic = OffsetForLeaderEpochRequestOffsetForLeaderTopic(topic="t", partitions=[asked])
    return OffsetForLeaderEpochRequest(topics=[topic])


def _more(count: int, name: str = "t") -> CreatePartitionsRequest:
    topic = CreatePartitionsRequestTopic(name=name, count=count, assignments=None)
    return CreatePartitionsRequest(topics=[topic], timeout_ms=10_000)


def exchanges() -> Sequence[Exchange]:
    """Return the requests in order, each with a name and its version."""
    return (
        *_topics(),
        *_records(),
        *_offsets_and_ends(),
        *_odd_topics(),
        *_odd_configs(),
        *_odd_rest(),
    )


def _topics() -> Sequence[Exchange]:
    unknown = MetadataRequest(
        topics=[MetadataRequestTopic(name="other")], allow_auto_topic_creation=False
    )
    return (
        ("check only", _create(_topic("t"), check=True), 6),
        ("create", _create(_topic("t", 2)), 4),
        ("exists", _create(_topic("t", 2)), 4),
        ("three replicas", _create(_topic("u", 1, 3)), 4),
        ("no partition", _create(_topic("u", 0)), 4),
        ("bad name", _create(_topic("a b")), 4),
        ("twice", _create(_topic("u"), _topic("u")), 4),
        ("partitions beyond the limit, check only", _create(_topic("u", 10_001), check=True), 6),
        ("partitions of two topics", _create(_topic("u", 6000), _topic("w", 6000)), 6),
        ("unknown topic", unknown, 12),
    )


def _records() -> Sequence[Exchange]:
    good = batch(b"a", b"b")
    wrong_crc = good[:-1] + b"x"
    return (
        ("produce", produce("t", (0, good), (1, good)), 9),
        ("produce again, version 7", produce("t", (0, good)), 7),
        ("produce with a wrong CRC", produce("t", (0, wrong_crc)), 9),
        ("produce with acks=2", produce("t", (0, good), acks=2), 9),
        ("produce to no topic", produce("other", (0, good)), 9),
        ("produce to no partition", produce("t", (9, good)), 9),
        ("produce too much", produce("t", (0, batch(bytes(2_000_000)))), 9),
        ("unknown producer epoch order", produce("t", (0, batch(b"a", producer=(77, 0, 5)))), 9),
        ("fetch", fetch("t", (0, 0), (1, 1)), 12),
        ("fetch, version 6", fetch("t", (0, 0)), 6),
        ("fetch committed", fetch("t", (0, 0), isolation_level=1), 12),
        ("fetch at the end", fetch("t", (1, 2)), 12),
        ("fetch beyond the end", fetch("t", (1, 99)), 12),
        ("fetch from no topic", fetch("other", (0, 0)), 12),
        ("fetch in no session", fetch("t", session_id=5, session_epoch=7), 12),
        ("produce two batches", produce("t", (0, good + good), (1, good)), 9),
        ("produce two batches with acks=1", produce("t", (0, good + good), acks=1), 7),
        ("produce without a wait", produce("t", (1, good), timeout_ms=0), 9),
    )


def _offsets_and_ends() -> Sequence[Exchange]:
    resources = [
        DescribeConfigsRequestResource(
            resource_type=2, resource_name="other", configuration_keys=None
        )
    ]
    return (
        ("last and first", _offsets(-1, number=1), 8),
        ("first", _offsets(-2), 8),
        ("largest time", _offsets(-3), 8),
        ("by time", _offsets(1), 8),
        ("later than all", _offsets(1 << 60), 8),
        ("offsets of no topic", _offsets(-1, topic="other"), 8),
        ("end of epoch", _end(0), 4),
        ("end of a later epoch", _end(50), 4),
        ("more partitions", _more(3), 3),
        ("as many partitions", _more(3), 3),
        ("partitions of no topic", _more(3, "other"), 3),
        ("delete records", _delete(2), 2),
        ("delete records beyond the end", _delete(99), 2),
        ("delete records of no partition", _delete(0, 9), 2),
        ("fetch deleted records", fetch("t", (0, 0)), 12),
        ("configs of no topic", DescribeConfigsRequest(resources=resources), 4),
        ("delete topics", DeleteTopicsRequest(topic_names=["t", "other"], timeout_ms=10_000), 5),
        (
            "delete by unknown id",
            DeleteTopicsRequest(
                topics=[DeleteTopicsRequestDeleteTopicState(name=None, topic_id=bytes(15) + b"\7")],
                timeout_ms=10_000,
            ),
            6,
        ),
    )


VALUES: Final = (
    ("preallocate", "TRUE"),
    ("retention.ms", " 1000 "),
    ("cleanup.policy", " compact , delete "),
    ("cleanup.policy", ""),
    ("cleanup.policy", "compact,"),
    ("flush.messages", "1.0"),
    ("min.insync.replicas", "0"),
    ("compression.gzip.level", "10"),
    ("compression.type", "ZSTD"),
    ("leader.replication.throttled.replicas", "0:1 , 1:1"),
    ("leader.replication.throttled.replicas", "0-1"),
    ("follower.replication.throttled.replicas", "*"),
    ("remote.storage.enable", "true"),
    ("remote.storage.enable", "False"),
    ("unclean.leader.election.enable", "yes"),
    ("local.retention.ms", "-2"),
    ("local.retention.ms", "-3"),
)


def _odd_topics() -> Sequence[Exchange]:
    """Topics that are named twice, by name and id, or with values that are not as plain as they could be."""
    found: list[Exchange] = [("create o", _create(_topic("o", 2)), 4)]
    for name, value in VALUES:
        topic = _topic("v")
        topic.configs = [CreateTopicsRequestCreatableTopicConfig(name=name, value=value)]
        found.append((f"create with {name}={value!r}", _create(topic, check=True), 5))
    named = DeleteTopicsRequestDeleteTopicState(name="o")
    by_id = DeleteTopicsRequestDeleteTopicState(name=None, topic_id=bytes(15) + b"\7")
    both = DeleteTopicsRequestDeleteTopicState(name="o", topic_id=bytes(15) + b"\7")
    neither = DeleteTopicsRequestDeleteTopicState(name=None)
    for name, topics in {
        "twice": [named, named],
        "twice by id": [by_id, by_id],
        "by name and id": [both],
        "by neither": [neither],
    }.items():
        found.append((f"delete {name}", DeleteTopicsRequest(topics=topics, timeout_ms=10_000), 6))
    names = DeleteTopicsRequest(topic_names=["o", "o"], timeout_ms=10_000)
    more = CreatePartitionsRequestTopic(name="o", count=3, assignments=None)
    metadata = MetadataRequestTopic(name="o", topic_id=bytes(15) + b"\7")
    return (
        *found,
        ("delete twice, version 5", names, 5),
        ("partitions twice", CreatePartitionsRequest(topics=[more, more], timeout_ms=10_000), 3),
        (
            "metadata by id before name",
            MetadataRequest(topics=[metadata], allow_auto_topic_creation=False),
            12,
        ),
        *((f"special time {time}, version {version}", _offsets(time, topic="o"), version)
          for time, versions in {-3: (6, 7), -4: (7, 8), -5: (8, 9), -6: (10, 11), -7: (11,)}.items()
          for version in versions),
        ("a partition twice", _offsets(-1, -2, topic="o"), 8),
    )  # fmt: skip


def alteration(name: str, *changes: tuple[str, int, str | None], kind: int = 2) -> Any:
    """Return changes of a resource, each of a config's name, the operation, and the value."""
    configs = [
        IncrementalAlterConfigsRequestAlterableConfig(name=c, config_operation=op, value=value)
        for c, op, value in changes
    ]
    return IncrementalAlterConfigsRequestAlterConfigsResource(
        resource_type=kind, resource_name=name, configs=configs
    )


def _odd_configs() -> Sequence[Exchange]:
    """Changes of configs that are refused as a whole, and those without an effect."""
    size, policy = "retention.bytes", "cleanup.policy"
    changes = {
        "a config twice": [alteration("o", (size, 0, "7"), (size, 0, "8"))],
        "a topic twice": [alteration("o", (size, 0, "7")), alteration("o", ("segment.ms", 0, "7"))],
        "null": [alteration("o", (size, 0, None))],
        "append null": [alteration("o", (policy, 2, None))],
        "reset an unknown config": [alteration("o", ("nosuch", 1, None))],
        "without a name": [alteration("", (size, 0, "7"))],
        "with a bad name": [alteration("a b", (size, 0, "7"))],
        "take the only policy": [alteration("o", (policy, 3, "delete"))],
        "give a policy": [alteration("o", (policy, 2, "delete"))],
        "reset limits of the node": [alteration("1", ("leader.replication.throttled.rate", 1, ""), kind=4)],
        "nothing of the default node": [alteration("", kind=4)],
        "of another node": [alteration("7", ("leader.replication.throttled.rate", 1, ""), kind=4)],
    }  # fmt: skip
    replaced: dict[str, list[tuple[str, str | None]]] = {
        "replace by null": [(size, None)],
        "replace a config twice": [(size, "1"), (size, "2")],
    }
    described: dict[str, tuple[str, list[str] | None]] = {
        "all": ("o", []),
        "bad name": ("a b", None),
        "no name": ("", None),
    }
    return (
        *(
            (f"change {name}", IncrementalAlterConfigsRequest(resources=rows), 1)
            for name, rows in changes.items()
        ),
        *(
            (name, AlterConfigsRequest(resources=[
                AlterConfigsRequestResource(resource_type=2, resource_name="o", configs=[
                    AlterConfigsRequestAlterableConfig(name=config, value=value)
                    for config, value in rows
                ])
            ]), 2)
            for name, rows in replaced.items()
        ),
        *(
            (f"describe {name}", DescribeConfigsRequest(resources=[
                DescribeConfigsRequestResource(
                    resource_type=2, resource_name=topic, configuration_keys=keys
                )
            ]), 4)
            for name, (topic, keys) in described.items()
        ),
        ("client metrics", ListConfigResourcesRequest(), 0),
        ("unknown resources", ListConfigResourcesRequest(resource_types=[2, 99]), 1),
    )  # fmt: skip


def _odd_rest() -> Sequence[Exchange]:
    """Offsets below 0, kinds that there are none of, and names of clients."""
    rows = [OffsetCommitRequestPartition(partition_index=0, committed_offset=-2)]
    topic = OffsetCommitRequestTopic(name="o", partitions=rows)
    return (
        ("load the group", FindCoordinatorRequest(key="g"), 2),
        ("commit -2", OffsetCommitRequest(group_id="g", topics=[topic]), 8),
        (
            "fetch -2",
            OffsetFetchRequest(
                group_id="g", topics=[OffsetFetchRequestTopic(name="o", partition_indexes=[0])]
            ),
            7,
        ),
        *(
            (f"cluster of type {kind}", DescribeClusterRequest(endpoint_type=kind), 1)
            for kind in (2, 0, 3)
        ),
        *(
            (f"coordinator of type {kind}", FindCoordinatorRequest(key="g", key_type=kind), 2)
            for kind in (3, -1)
        ),
        *(
            (
                f"client {name!r}",
                ApiVersionsRequest(client_software_name=name, client_software_version="1"),
                3,
            )
            for name in ("", "-a", "a b", "é")
        ),
    )


def comparable(value: Any, name: str = "", *, own: Set[str] = SERVERS_OWN) -> Any:
    """Return an answer as plain values, without the fields that are a server's own."""
    if name in own | TEXTS:
        return None
    if name == "configs":  # their defaults differ: nothing is deleted here unless it is set
        return sorted(config.name for config in value)
    if name == "records" and isinstance(value, bytes):
        return value[BATCH_HEAD_BYTES:].hex()
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, list):
        rows = [comparable(item, own=own) for item in value]
        return sorted(rows, key=lambda row: json.dumps(row, sort_keys=True))
    if isinstance(value, msgspec.Struct | Fields):
        fields = value.values() if isinstance(value, Fields) else msgspec.structs.asdict(value)
        return {key: comparable(inner, key, own=own) for key, inner in fields.items()}
    return value


async def answers(connection: Connection) -> dict[str, Any]:
    """Send the requests, and return the comparable answers by name."""
    found = {}
    for name, message, version in exchanges():
        assert APIS[message.API_KEY].first <= version, frame(message, version)
        found[name] = await answered(connection, message, version)
    return found


async def answered(
    connection: Connection, message: Any, version: int, *, own: Set[str] = SERVERS_OWN
) -> Any:
    """Send a request until its coordinator is loaded, and return the comparable answer."""
    answer = None
    while answer is None or _codes(answer) & LOADS:  # a new real coordinator
        answer = comparable(await connection.call(message, version), own=own)
    return answer


def _codes(answer: Any) -> set[int]:
    """Return the numbers of errors in a comparable answer."""
    if isinstance(answer, list):
        return set().union(*map(_codes, answer))
    if not isinstance(answer, dict):
        return set()
    return {answer.get("error_code", 0)}.union(*map(_codes, answer.values()))


def print_answers(answers: Callable[[Connection], Awaitable[dict[str, Any]]]) -> None:
    """Print the answers of the broker that the command line names as JSON: for the modules of exchanges."""

    async def ask(address: str) -> dict[str, Any]:
        host, port = address.rsplit(":", 1)
        reader, writer = await asyncio.open_connection(host, int(port))
        found = await answers(Connection(reader, writer))
        writer.close()
        return found

    sys.stdout.write(json.dumps(asyncio.run(ask(sys.argv[1])), indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    print_answers(answers)
