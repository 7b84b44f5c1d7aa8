"""Topics and configs: what the admin clients of Kafka do."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest

from api.kafka.apis import SERVED
from api.kafka.protocol.errors import ErrorCode
from api.kafka.protocol.messages.cluster import (
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
from api.kafka.protocol.messages.group_admin import DescribeGroupsRequest
from api.kafka.protocol.messages.group_offsets import OffsetFetchRequest, OffsetFetchRequestGroup
from api.kafka.protocol.messages.metadata import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsRequestCursor,
    DescribeTopicPartitionsRequestTopicRequest,
    MetadataRequest,
    MetadataRequestTopic,
)
from api.kafka.protocol.messages.placement import DescribeLogDirsRequest
from api.kafka.protocol.messages.produce import InitProducerIdRequest
from api.kafka.protocol.messages.topics import (
    CreatePartitionsRequest,
    CreatePartitionsRequestTopic,
    CreateTopicsRequest,
    CreateTopicsRequestCreatableReplicaAssignment,
    CreateTopicsRequestCreatableTopic,
    CreateTopicsRequestCreatableTopicConfig,
    DeleteTopicsRequest,
    DeleteTopicsRequestDeleteTopicState,
)
from tests.http.harness import opener, serving, settings
from tests.wire.harness import (
    BACKENDS,
    BOTH,
    FREE,
    Broker,
    Connection,
    batch,
    broker,
    fetch,
    produce,
)

TOPIC, NODE, LOGGERS, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32
SET, DELETE, APPEND, SUBTRACT = range(4)


def topic(name: str, partitions: int = 1, replicas: int = 1, **configs: str) -> Any:
    """Return a topic to create."""
    rows = [
        CreateTopicsRequestCreatableTopicConfig(name=key.replace("_", "."), value=value)
        for key, value in configs.items()
    ]
    return CreateTopicsRequestCreatableTopic(
        name=name, num_partitions=partitions, replication_factor=replicas, configs=rows
    )


async def created(connection: Connection, *topics: Any, check: bool = False) -> list[Any]:
    request = CreateTopicsRequest(topics=list(topics), timeout_ms=1000, validate_only=check)
    return list((await connection.call(request)).topics)


@pytest.mark.parametrize("version", range(SERVED[19].first, SERVED[19].last + 1))
async def test_create_every_version(kafka: Broker, connection: Connection, version: int) -> None:
    request = CreateTopicsRequest(topics=[topic("t", 2, retention_ms="5000")], timeout_ms=1000)
    (row,) = (await connection.call(request, version)).topics
    assert (row.name, row.error_code) == ("t", 0)
    info = kafka.service.topics["t"]
    assert (len(info.partitions), info.configs) == (2, {"retention.ms": "5000"})
    if version >= 5:
        configs = {config.name: config.value for config in row.configs}
        assert configs["retention.ms"] == "5000"
        assert (row.num_partitions, row.replication_factor) == (2, 1)


@BOTH
@pytest.mark.parametrize(
    ("wanted", "code"),
    [
        (topic("a b"), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (topic("__consumer_offsets"), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (topic("there"), ErrorCode.TOPIC_ALREADY_EXISTS),
        (topic("t", replicas=3), ErrorCode.INVALID_REPLICATION_FACTOR),
        (topic("t", 0), ErrorCode.INVALID_PARTITIONS),
        (topic("t", no_such="1"), ErrorCode.INVALID_CONFIG),
        (topic("t", retention_ms="soon"), ErrorCode.INVALID_CONFIG),
        (topic("t", -1, -1), ErrorCode.NONE),
    ],
)
async def test_bad_topics(
    kafka: Broker, connection: Connection, wanted: Any, code: ErrorCode
) -> None:
    await kafka.api.create("there")
    (checked,) = await created(connection, wanted, check=True)
    assert checked.error_code == code
    assert set(kafka.service.topics) == {"there"}
    (row,) = await created(connection, wanted)
    assert row.error_code == code
    assert code is ErrorCode.NONE or row.error_message


@BOTH
async def test_twice_in_one_request(connection: Connection) -> None:
    twice, once = await created(connection, topic("t"), topic("u"), topic("t"))
    assert (twice.name, twice.error_code) == ("t", ErrorCode.INVALID_REQUEST)
    assert once.error_code == 0


@BOTH
async def test_assignments(kafka: Broker, connection: Connection) -> None:
    def assigned(*nodes: int) -> Any:
        wanted = topic("t", -1, -1)
        wanted.assignments = [
            CreateTopicsRequestCreatableReplicaAssignment(partition_index=number, broker_ids=[node])
            for number, node in enumerate(nodes)
        ]
        return wanted

    (row,) = await created(connection, assigned(1, 2))
    assert row.error_code == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    (row,) = await created(connection, assigned(1, 1))
    assert (row.error_code, row.num_partitions) == (0, 2)


@BOTH
@pytest.mark.parametrize("version", range(SERVED[20].first, SERVED[20].last + 1))
async def test_delete_every_version(kafka: Broker, connection: Connection, version: int) -> None:
    await kafka.api.create("t")
    names = ["t", "other"]
    request = DeleteTopicsRequest(topic_names=names, timeout_ms=1000)
    if version >= 6:
        rows = [DeleteTopicsRequestDeleteTopicState(name=name) for name in names]
        request = DeleteTopicsRequest(topics=rows, timeout_ms=1000)
    there, missing = (await connection.call(request, version)).responses
    assert (there.name, there.error_code) == ("t", 0)
    assert missing.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert "t" not in kafka.service.topics


@BOTH
async def test_delete_by_id(kafka: Broker, connection: Connection) -> None:
    await kafka.api.create("t")
    (row,) = (await connection.call(MetadataRequest(topics=None), 12)).topics
    unknown = b"\7" * 16
    rows = [
        DeleteTopicsRequestDeleteTopicState(name=None, topic_id=i) for i in (row.topic_id, unknown)
    ]
    there, missing = (
        await connection.call(DeleteTopicsRequest(topics=rows, timeout_ms=5000))
    ).responses
    assert (there.name, there.error_code) == ("t", 0)
    assert missing.error_code == ErrorCode.UNKNOWN_TOPIC_ID


async def described(connection: Connection, name: str = "t", kind: int = TOPIC) -> dict[str, Any]:
    """Return the configs of a resource by name."""
    resource = DescribeConfigsRequestResource(
        resource_type=kind, resource_name=name, configuration_keys=None
    )
    request = DescribeConfigsRequest(resources=[resource], include_synonyms=True)
    (row,) = (await connection.call(request)).results
    assert row.error_code == 0, row.error_message
    return {config.name: config for config in row.configs}


async def test_configs_of_a_group(tmp_path: Path) -> None:
    """Every group has the configs of the node; a value that was set has another source than a default."""
    changed: dict[str, Any] = {"group_consumer_session_timeout_ms": 50_000}
    sources = dict.fromkeys(changed, "flag")
    async with (
        broker(tmp_path / "store", **changed, sources=sources) as kafka,
        kafka.connect() as connection,
    ):
        found = await described(connection, "no-such-group", GROUP)
        assert {name: (row.value, row.config_source) for name, row in found.items()} == {
            "consumer.assignment.interval.ms": ("1000", 5),
            "consumer.heartbeat.interval.ms": ("5000", 5),
            "consumer.session.timeout.ms": ("50000", 4),
        }
        assert {(row.config_type, row.read_only) for row in found.values()} == {(3, True)}
        node = await described(connection, "1", NODE)
        assert node["group.consumer.session.timeout.ms"].value == "50000"


@pytest.mark.parametrize(
    ("kind", "name", "problem"),
    [
        (GROUP, "", "a group has a name"),
        (LOGGERS, "1", "only topics"),
        (CLIENT_METRICS, "m", "only topics"),
        (99, "x", "unknown resource type 99"),
        (0, "x", "unknown resource type 0"),
    ],
)
async def test_resources_without_configs(
    connection: Connection, kind: int, name: str, problem: str
) -> None:
    resource = DescribeConfigsRequestResource(
        resource_type=kind, resource_name=name, configuration_keys=None
    )
    (row,) = (await connection.call(DescribeConfigsRequest(resources=[resource]), 4)).results
    assert row.error_code == ErrorCode.INVALID_REQUEST
    assert problem in row.error_message
    change = IncrementalAlterConfigsRequestAlterConfigsResource(
        resource_type=kind, resource_name=name, configs=[]
    )
    (row,) = (
        await connection.call(IncrementalAlterConfigsRequest(resources=[change]), 1)
    ).responses
    assert row.error_code == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("version", range(SERVED[32].first, SERVED[32].last + 1))
async def test_describe_every_version(kafka: Broker, connection: Connection, version: int) -> None:
    await kafka.api.create("t", retention_ms="5000")
    names = ["retention.ms", "segment.bytes"]
    resources = [
        DescribeConfigsRequestResource(
            resource_type=TOPIC, resource_name=name, configuration_keys=names
        )
        for name in ("t", "other")
    ]
    there, missing = (
        await connection.call(DescribeConfigsRequest(resources=resources), version)
    ).results
    assert {config.name: config.value for config in there.configs} == {
        "retention.ms": "5000",
        "segment.bytes": str(1 << 30),
    }
    assert missing.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_sources_types_and_synonyms(tmp_path: Path) -> None:
    options = {"log.segment.bytes": "2097152"}
    async with broker(tmp_path / "store", set=options) as kafka, kafka.connect() as connection:
        await kafka.api.create("t", retention_ms="5000")
        configs = await described(connection)
        own, of_store, default = (
            configs[name] for name in ("retention.ms", "segment.bytes", "cleanup.policy")
        )
        assert (own.config_source, own.config_type) == (1, 5)
        assert [(s.name, s.source) for s in own.synonyms] == [
            ("retention.ms", 1),
            ("log.retention.ms", 5),
        ]
        assert (of_store.value, of_store.config_source, of_store.config_type) == ("2097152", 4, 3)
        assert (default.value, default.config_source, default.config_type) == ("delete", 5, 7)
        types = {name: config.config_type for name, config in configs.items()}
        assert types["min.cleanable.dirty.ratio"] == 6  # ConfigDef.Type.DOUBLE
        node = await described(connection, "1", NODE)
        assert node["log.segment.bytes"].value == "2097152"
        assert node["node.id"].value == "1"
        assert all(config.read_only for config in node.values())


async def changed(connection: Connection, name: str, *changes: tuple[str, int, str | None]) -> int:
    """Change configs of a topic; return the number of the error."""
    rows = [
        IncrementalAlterConfigsRequestAlterableConfig(
            name=config, config_operation=operation, value=value
        )
        for config, operation, value in changes
    ]
    resource = IncrementalAlterConfigsRequestAlterConfigsResource(
        resource_type=TOPIC, resource_name=name, configs=rows
    )
    (row,) = (await connection.call(IncrementalAlterConfigsRequest(resources=[resource]))).responses
    return int(row.error_code)


async def test_incremental_changes(kafka: Broker, connection: Connection) -> None:
    await kafka.api.create("t", retention_ms="5000")
    assert (
        await changed(connection, "t", ("segment.ms", SET, "77"), ("retention.ms", DELETE, None))
        == 0
    )
    assert kafka.service.topics["t"].configs == {"segment.ms": "77"}
    assert await changed(connection, "t", ("cleanup.policy", APPEND, "delete")) == 0
    assert await changed(connection, "t", ("segment.ms", APPEND, "1")) == ErrorCode.INVALID_CONFIG
    assert await changed(connection, "t", ("segment.ms", SET, None)) == ErrorCode.INVALID_REQUEST
    assert await changed(connection, "t", ("no.such", SET, "1")) == ErrorCode.INVALID_CONFIG
    assert await changed(connection, "u", ("segment.ms", SET, "1")) == 3
    replicas = "leader.replication.throttled.replicas"
    assert await changed(connection, "t", (replicas, APPEND, "0:1,1:1")) == 0
    assert await changed(connection, "t", (replicas, SUBTRACT, "0:1")) == 0
    assert kafka.service.topics["t"].configs[replicas] == "1:1"


@pytest.mark.parametrize("version", range(3))
async def test_replaced_configs(kafka: Broker, connection: Connection, version: int) -> None:
    await kafka.api.create("t", retention_ms="5000")

    async def replaced(value: str, *, check: bool, kind: int = TOPIC) -> int:
        configs = [AlterConfigsRequestAlterableConfig(name="segment.ms", value=value)]
        resource = AlterConfigsRequestResource(
            resource_type=kind, resource_name="t", configs=configs
        )
        request = AlterConfigsRequest(resources=[resource], validate_only=check)
        (row,) = (await connection.call(request, version)).responses
        return int(row.error_code)

    assert await replaced("x", check=True) == ErrorCode.INVALID_CONFIG
    assert await replaced("7", check=True) == 0
    assert await replaced("7", check=False, kind=NODE) == ErrorCode.INVALID_REQUEST
    assert kafka.service.topics["t"].configs == {"retention.ms": "5000"}
    assert await replaced("7", check=False) == 0
    assert kafka.service.topics["t"].configs == {"segment.ms": "7"}


@BOTH
async def test_the_cluster(kafka: Broker, connection: Connection) -> None:
    for version in range(3):
        found = await connection.call(DescribeClusterRequest(), version)
        (node,) = found.brokers
        assert (found.cluster_id, found.controller_id) == (kafka.service.cluster_id, node.broker_id)
    for version in range(7):
        asked = FindCoordinatorRequest(key="g", coordinator_keys=["g"])
        found = await connection.call(asked, version)
        row = found.coordinators[0] if version >= 4 else found
        assert (row.error_code, f"{row.host}:{row.port}") == (0, kafka.address)
    asked = FindCoordinatorRequest(key_type=2, coordinator_keys=["x"])  # a share group
    found = await connection.call(asked)
    assert found.coordinators[0].error_code == ErrorCode.UNSUPPORTED_VERSION
    await kafka.api.create("t")
    await connection.call(produce("t", (0, batch(b"a"))), 9)
    for version in range(1, 6):
        (found,) = (await connection.call(DescribeLogDirsRequest(topics=None), version)).results
        assert found.log_dir == str(kafka.service.settings.data)
        size_bytes = len(batch(b"a")) if kafka.keeps_batches else 0  # RocketMQ: one log for all
        assert found.topics[0].partitions[0].partition_size == size_bytes
    for version, names in ((0, set()), (1, {"t", "1"})):  # version 0 asks for client metrics
        found = await connection.call(ListConfigResourcesRequest(resource_types=[2, 4]), version)
        assert {row.resource_name for row in found.config_resources} == names


async def test_ids_are_those_of_the_directory(tmp_path: Path) -> None:
    """node.id and cluster.id come from meta.properties, also after a restart with other options."""
    path = tmp_path / "store"
    async with broker(path, set={"node.id": "5", "cluster.id": "AAAAAAAAQACAAAAAAAAAAQ"}):
        pass
    async with broker(path) as kafka, kafka.connect() as connection:
        response = await connection.call(MetadataRequest(topics=None), 12)
        assert (response.controller_id, response.cluster_id) == (5, "AAAAAAAAQACAAAAAAAAAAQ")


async def test_a_read_only_store(tmp_path: Path) -> None:
    path = tmp_path / "store"
    async with broker(path) as kafka, kafka.connect() as connection:
        await kafka.api.create("t")
        await connection.call(produce("t", (0, batch(b"a"))), 9)
    chosen = settings(path, listen_kafka=FREE)
    async with serving(chosen, opener("kafka", chosen, read_only=True)) as api:
        await api.server.listen_kafka()
        async with Broker(api).connect() as connection:
            (row,) = (
                (await connection.call(produce("t", (0, batch(b"a"))), 9))
                .responses[0]
                .partition_responses
            )
            assert row.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
            (row,) = await created(connection, topic("u"))
            assert row.error_code == ErrorCode.POLICY_VIOLATION
            (row,) = (await connection.call(fetch("t", (0, 0)), 12)).responses[0].partitions
            assert row.high_watermark == 1
            found = await connection.call(InitProducerIdRequest(transactional_id=None), 4)
            assert found.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED


LONG = "x" * 32_767  # the longest string of the protocol
WRONG = [
    topic("long-value", retention_ms=LONG),
    topic("long-config", 1, 1, **{LONG: "1"}),
    topic(LONG),
]


@BOTH
@pytest.mark.parametrize("wrong", WRONG, ids=["value", "config", "topic"])
@pytest.mark.parametrize("version", [4, 7])
async def test_an_error_may_quote_a_long_string(
    connection: Connection, wrong: Any, version: int
) -> None:
    """A message that quotes the longest string is longer, so it is cut: the client can read the answer."""
    request = CreateTopicsRequest(topics=[wrong], timeout_ms=1000)
    (row,) = (await connection.call(request, version)).topics
    assert row.error_code in {ErrorCode.INVALID_CONFIG, ErrorCode.INVALID_TOPIC_EXCEPTION}
    assert 0 < len(row.error_message) < 5000


@BOTH
async def test_far_too_many_partitions(kafka: Broker, connection: Connection) -> None:
    """The number costs no memory, and the error is the real server's."""
    (row,) = await created(connection, topic("many", 2**31 - 1))
    assert row.error_code == ErrorCode.POLICY_VIOLATION
    await kafka.api.create("t")
    wanted_assignments: tuple[list[Any] | None, ...] = ([], None)
    for assignments in wanted_assignments:
        wanted = CreatePartitionsRequestTopic(name="t", count=2**31 - 1, assignments=assignments)
        request = CreatePartitionsRequest(topics=[wanted], timeout_ms=1000)
        (result,) = (await connection.call(request)).results
        none = assignments is None
        expected = ErrorCode.INVALID_PARTITIONS if none else ErrorCode.INVALID_REPLICA_ASSIGNMENT
        assert result.error_code == expected


@BOTH
async def test_what_is_asked_for_twice_is_answered_once(
    kafka: Broker, connection: Connection
) -> None:
    """A request of a few kilobytes cannot ask for gigabytes."""
    await kafka.api.create("t")
    twice: list[Any] = [MetadataRequestTopic(name="t")] * 2
    assert len((await connection.call(MetadataRequest(topics=twice), 12)).topics) == 1
    twice = [
        DescribeConfigsRequestResource(
            resource_type=TOPIC, resource_name="t", configuration_keys=None
        )
    ] * 2
    assert len((await connection.call(DescribeConfigsRequest(resources=twice))).results) == 1
    described = await connection.call(DescribeGroupsRequest(groups=["g", "g"]))
    assert len(described.groups) == 1
    twice = [OffsetFetchRequestGroup(group_id="g", topics=None)] * 2
    assert len((await connection.call(OffsetFetchRequest(groups=twice), 9)).groups) == 1


@pytest.mark.parametrize("version", [1, 4, 12])
@pytest.mark.parametrize("creates", [False, True])
async def test_names_that_no_topic_can_have(tmp_path: Path, version: int, creates: bool) -> None:
    async with (
        broker(tmp_path / "store", auto_create_topics=creates) as kafka,
        kafka.connect() as connection,
    ):
        names = ["", ".", "..", "a b", "a/b", "x" * 250]
        asked = [MetadataRequestTopic(name=name) for name in [*names, "t"]]
        request = MetadataRequest(topics=asked, allow_auto_topic_creation=creates)
        rows = (await connection.call(request, version)).topics
        codes = {row.name: row.error_code for row in rows}
        assert codes == {
            **dict.fromkeys(names, ErrorCode.INVALID_TOPIC_EXCEPTION),
            "t": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        }
        assert list(kafka.service.topics) == (["t"] if creates else [])


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("read_only", [False, True])
async def test_missing_topics_by_name(tmp_path: Path, backend: str, read_only: bool) -> None:
    """A name that no topic can have is INVALID_TOPIC in both APIs; a topic of the server's own may come."""
    path = tmp_path / "store"
    async with broker(path, backend):
        pass
    own = "__consumer_offsets"
    expected = dict.fromkeys(["a b", "x" * 250], ErrorCode.INVALID_TOPIC_EXCEPTION)
    expected |= dict.fromkeys(["t", own], ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    chosen = settings(path, listen_kafka=FREE)
    async with serving(chosen, opener(backend, chosen, read_only=read_only)) as api:
        await api.server.listen_kafka()
        async with Broker(api).connect() as connection:
            asked: list[Any] = [
                DescribeTopicPartitionsRequestTopicRequest(name=it) for it in expected
            ]
            described = await connection.call(DescribeTopicPartitionsRequest(topics=asked), 0)
            assert {row.name: row.error_code for row in described.topics} == expected
            asked = [MetadataRequestTopic(name=name) for name in expected if name != "t"]
            for request in (
                MetadataRequest(topics=asked, allow_auto_topic_creation=True),
                MetadataRequest(topics=asked, allow_auto_topic_creation=False),
            ):
                rows = (await connection.call(request, 12)).topics
                assert {row.name: row.error_code for row in rows}.items() <= expected.items()


async def test_a_page_of_descriptions_looks_at_its_own_topics(
    kafka: Broker, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Topics beyond the page are not described, also with a cursor far beyond the end of its topic."""
    names = [f"t{number:02}" for number in range(20)]
    await created(connection, *(topic(name, 2) for name in names))
    looked = 0
    epochs = kafka.service.leader_epochs

    async def counting(infos: Any) -> Any:
        nonlocal looked
        looked += len(infos)
        return await epochs(infos)

    monkeypatch.setattr(kafka.service, "leader_epochs", counting)
    found: list[tuple[str, int]] = []
    at: DescribeTopicPartitionsRequestCursor | None = None
    while True:
        request = DescribeTopicPartitionsRequest(
            topics=[], response_partition_limit=3, cursor=cast("Any", at)
        )
        page = await connection.call(request, 0)
        found += [(row.name, one.partition_index) for row in page.topics for one in row.partitions]
        if page.next_cursor is None:
            break
        end = page.next_cursor
        at = DescribeTopicPartitionsRequestCursor(
            topic_name=end.topic_name, partition_index=end.partition_index
        )
    assert found == [(name, number) for name in names for number in (0, 1)]
    assert looked <= 2 * len(names)
    looked = 0
    far = DescribeTopicPartitionsRequestCursor(topic_name="t00", partition_index=2**31 - 1)
    request = DescribeTopicPartitionsRequest(topics=[], response_partition_limit=2, cursor=far)
    page = await connection.call(request, 0)
    assert [(row.name, len(row.partitions)) for row in page.topics] == [("t00", 0), ("t01", 2)]
    assert (page.next_cursor.topic_name, page.next_cursor.partition_index) == ("t02", 0)
    assert looked == 2


@BOTH
@pytest.mark.parametrize(
    ("version", "name", "code"),
    [(10, "", ErrorCode.INVALID_REQUEST), (12, None, ErrorCode.UNKNOWN_TOPIC_ID)],
)
async def test_a_topic_that_is_named_by_an_unknown_id(
    connection: Connection, version: int, name: str | None, code: int
) -> None:
    """Version 10 may ask by an id, but its answer has no null names (MetadataRequest.getErrorResponse)."""
    asked = [MetadataRequestTopic(name=None, topic_id=bytes(15) + b"x")]
    (row,) = (await connection.call(MetadataRequest(topics=asked), version)).topics
    assert (row.name, row.error_code) == (name, code)


OPERATIONS = {"topic": 3576, "group": 3400, "cluster": 8096}
"""As bits, what a client of the real broker may do without access control lists."""


async def test_what_a_client_may_do(kafka: Broker, connection: Connection) -> None:
    await kafka.api.create("t")
    asked = MetadataRequest(
        topics=[MetadataRequestTopic(name="t")],
        include_cluster_authorized_operations=True,
        include_topic_authorized_operations=True,
    )
    answer = await connection.call(asked, 10)
    assert answer.cluster_authorized_operations == OPERATIONS["cluster"]
    assert [row.topic_authorized_operations for row in answer.topics] == [OPERATIONS["topic"]]
    cluster = await connection.call(
        DescribeClusterRequest(include_cluster_authorized_operations=True)
    )
    assert cluster.cluster_authorized_operations == OPERATIONS["cluster"]
    groups = DescribeGroupsRequest(groups=["g"], include_authorized_operations=True)
    assert (await connection.call(groups, 5)).groups[0].authorized_operations == OPERATIONS["group"]
