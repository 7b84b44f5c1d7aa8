"""Clusters, brokers and topics of the Kafka REST v3 API, as far as this server has them.

Owns these operations and their shapes: each resource has its kind, its own URL and the URLs of its parts. There is one
cluster, and one replica of each partition. URLs begin with the URL by which the client reached the server.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Final, Generic, Literal, TypeVar
from urllib.parse import quote, urlsplit

from aiohttp import web
from msgspec import Meta, Struct, field

from api.http.errors import JSON, NOT_OFFERED, PAYLOAD, ApiError
from api.operation import Answer, Example, Resource, required
from api.operations.topics import BROKER_ID, CONFIG_WARNINGS, warn_of_configs
from api.request_context import RequestContext
from logserver.access.tokens import Scope
from storage import TopicInfo
from storage.errors import InvalidConfig, TopicExists

V3_TOPICS: Final = Resource("Kafka REST v3")

CLUSTER: Final = "/v3/clusters/{cluster_id}"
TOPIC: Final = f"{CLUSTER}/topics/{{topic}}"

_PORTS: Final = {"http": 80, "https": 443}

T = TypeVar("T")


class Metadata(Struct, rename={"self_": "self"}):
    """The URL of a resource, and its name outside this server."""

    self_: str
    resource_name: str


class ListMetadata(Struct, rename={"self_": "self"}):
    """The URL of a list. There is no next page: a list is complete."""

    self_: str
    next: None = None


class Related(Struct):
    """The URL of a related resource."""

    related: str


class Listed(Struct, Generic[T]):
    """Resources of one kind."""

    kind: str
    metadata: ListMetadata
    data: Sequence[T]


class ClusterData(Struct):
    """The cluster."""

    kind: str
    metadata: Metadata
    cluster_id: str
    controller: Related
    acls: Related
    brokers: Related
    broker_configs: Related
    consumer_groups: Related
    topics: Related
    partition_reassignments: Related


class BrokerData(Struct):
    """The broker: this server, at the address by which the client reached it."""

    kind: str
    metadata: Metadata
    cluster_id: str
    broker_id: int
    host: str | None
    port: int | None
    rack: str | None
    configs: Related
    partition_replicas: Related


class TopicData(Struct):
    """A topic."""

    kind: str
    metadata: Metadata
    cluster_id: str
    topic_name: str
    is_internal: bool
    replication_factor: int
    partitions_count: int
    partitions: Related
    configs: Related
    partition_reassignments: Related


class PartitionData(Struct):
    """A partition of a topic."""

    kind: str
    metadata: Metadata
    cluster_id: str
    topic_name: str
    partition_id: int
    leader: Related
    replicas: Related
    reassignment: Related


class ConfigSynonym(Struct):
    """The source of a config's value."""

    name: str
    value: str | None
    source: str


class TopicConfigData(Struct):
    """A config that was set for a topic."""

    kind: str
    metadata: Metadata
    cluster_id: str
    topic_name: str
    name: str
    value: str | None
    is_default: bool
    is_read_only: bool
    is_sensitive: bool
    source: str
    synonyms: Sequence[ConfigSynonym]


class ConfigEntry(Struct):
    """A config of a new topic; null is the store's default."""

    name: str
    value: str | None = None


class CreateTopicRequest(Struct):
    """A new topic."""

    topic_name: str
    partitions_count: Annotated[int, Meta(ge=1, le=10_000)] | None = None
    replication_factor: int | None = None
    replicas_assignments: dict[str, list[int]] = field(default_factory=dict)
    configs: list[ConfigEntry] = field(default_factory=list)
    validate_only: bool = False


class AlteredConfig(Struct):
    """One change of a config: SET (also if `operation` is missing) or DELETE, which resets it."""

    name: str
    value: str | None = None
    operation: Literal["SET", "DELETE"] | None = None


class AlterConfigsRequest(Struct):
    """Changes of configs, made all together or not at all."""

    data: list[AlteredConfig]
    validate_only: bool = False


class UpdateConfigRequest(Struct):
    """The new value of a config; null resets it."""

    value: str | None = None


class Resources:
    """Creates the resources of one cluster, with URLs that begin with `base_url`."""

    def __init__(self, base_url: str, cluster_id: str) -> None:
        self._clusters_url = f"{base_url}/v3/clusters"
        self.url = f"{self._clusters_url}/{quote(cluster_id, safe='')}"
        self.cluster_id = cluster_id

    def clusters(self) -> Listed[ClusterData]:
        """Return the list of the one cluster."""
        return Listed("KafkaClusterList", ListMetadata(self._clusters_url), [self.cluster()])

    def cluster(self) -> ClusterData:
        """Return the cluster."""
        return ClusterData(
            "KafkaCluster",
            Metadata(self.url, self.resource_name()),
            self.cluster_id,
            controller=Related(f"{self.url}/brokers/{BROKER_ID}"),
            acls=Related(f"{self.url}/acls"),
            brokers=Related(f"{self.url}/brokers"),
            broker_configs=Related(f"{self.url}/broker-configs"),
            consumer_groups=Related(f"{self.url}/consumer-groups"),
            topics=Related(f"{self.url}/topics"),
            partition_reassignments=Related(f"{self.url}/topics/-/partitions/-/reassignment"),
        )

    def brokers(self) -> Listed[BrokerData]:
        """Return the list of the one broker."""
        return Listed("KafkaBrokerList", ListMetadata(f"{self.url}/brokers"), [self.broker()])

    def broker(self) -> BrokerData:
        """Return the broker."""
        url = f"{self.url}/brokers/{BROKER_ID}"
        address = urlsplit(self._clusters_url)
        return BrokerData(
            "KafkaBroker",
            Metadata(url, self.resource_name(f"/broker={BROKER_ID}")),
            self.cluster_id,
            BROKER_ID,
            host=address.hostname,
            port=address.port or _PORTS[address.scheme],
            rack=None,
            configs=Related(f"{url}/configs"),
            partition_replicas=Related(f"{url}/partition-replicas"),
        )

    def topics(self, infos: Sequence[TopicInfo]) -> Listed[TopicData]:
        """Return the list of these topics."""
        metadata = ListMetadata(f"{self.url}/topics")
        return Listed("KafkaTopicList", metadata, [self.topic(info) for info in infos])

    def topic(self, info: TopicInfo) -> TopicData:
        """Return one topic."""
        url = self.topic_url(info.name)
        return TopicData(
            "KafkaTopic",
            Metadata(url, self.resource_name(f"/topic={info.name}")),
            self.cluster_id,
            info.name,
            is_internal=info.internal,
            replication_factor=1,
            partitions_count=len(info.partitions),
            partitions=Related(f"{url}/partitions"),
            configs=Related(f"{url}/configs"),
            partition_reassignments=Related(f"{url}/partitions/-/reassignment"),
        )

    def partitions(self, info: TopicInfo) -> Listed[PartitionData]:
        """Return the list of a topic's partitions."""
        metadata = ListMetadata(f"{self.topic_url(info.name)}/partitions")
        data = [self.partition(info.name, number) for number in info.partitions]
        return Listed("KafkaPartitionList", metadata, data)

    def partition(self, topic: str, number: int) -> PartitionData:
        """Return one partition."""
        url = f"{self.topic_url(topic)}/partitions/{number}"
        return PartitionData(
            "KafkaPartition",
            Metadata(url, self.resource_name(f"/topic={topic}/partition={number}")),
            self.cluster_id,
            topic,
            number,
            leader=Related(f"{url}/replicas/{BROKER_ID}"),
            replicas=Related(f"{url}/replicas"),
            reassignment=Related(f"{url}/reassignment"),
        )

    def configs(self, info: TopicInfo) -> Listed[TopicConfigData]:
        """Return the list of the configs that were set for a topic."""
        metadata = ListMetadata(f"{self.topic_url(info.name)}/configs")
        data = [self.config(info.name, *config) for config in sorted(info.configs.items())]
        return Listed("KafkaTopicConfigList", metadata, data)

    def config(self, topic: str, name: str, value: str) -> TopicConfigData:
        """Return one config that was set."""
        source = "DYNAMIC_TOPIC_CONFIG"
        return TopicConfigData(
            "KafkaTopicConfig",
            Metadata(
                f"{self.topic_url(topic)}/configs/{quote(name, safe='')}",
                self.resource_name(f"/topic={topic}/config={name}"),
            ),
            self.cluster_id,
            topic,
            name,
            value,
            is_default=False,
            is_read_only=False,
            is_sensitive=False,
            source=source,
            synonyms=[ConfigSynonym(name, value, source)],
        )

    def topic_url(self, topic: str) -> str:
        """Return the URL of a topic."""
        return f"{self.url}/topics/{quote(topic, safe='')}"

    def resource_name(self, rest: str = "") -> str:
        """Return Confluent's name of a resource: crn://authority/kafka=cluster..., here without an authority."""
        return f"crn:///kafka={self.cluster_id}{rest}"


_TOPIC: Final = {"kind": "KafkaTopic", "topic_name": "orders", "partitions_count": 1}


@V3_TOPICS.get(
    "/v3/clusters",
    Answer(200, "The one cluster that is served.", {JSON: Listed[ClusterData]}),
    examples=(Example(answer={"kind": "KafkaClusterList"}),),
)
async def v3_list_clusters(call: RequestContext) -> web.Response:
    """The cluster, as a list."""
    return call.json(Resources(call.base_url, call.service.cluster_id).clusters())


@V3_TOPICS.get(
    CLUSTER,
    Answer(200, "The cluster.", {JSON: ClusterData}),
    errors=(404,),
    examples=(Example(answer={"kind": "KafkaCluster"}),),
)
async def v3_get_cluster(call: RequestContext) -> web.Response:
    """The cluster.

    Of the related resources `brokers`, `consumer_groups` and `topics` are offered.
    """
    return call.json(resources_of(call).cluster())


_BROKER: Final = {"kind": "KafkaBroker", "broker_id": 1}


@V3_TOPICS.get(
    f"{CLUSTER}/brokers",
    Answer(200, "The one broker: this server.", {JSON: Listed[BrokerData]}),
    errors=(404,),
    examples=(Example(answer={"kind": "KafkaBrokerList", "data": [_BROKER]}),),
)
async def v3_list_brokers(call: RequestContext) -> web.Response:
    """The broker, as a list."""
    return call.json(resources_of(call).brokers())


@V3_TOPICS.get(
    f"{CLUSTER}/brokers/{{broker_id}}",
    Answer(200, "The broker.", {JSON: BrokerData}),
    errors=(404,),
    examples=(Example(answer=_BROKER),),
)
async def v3_get_broker(call: RequestContext) -> web.Response:
    """The broker.

    Host and port are the ones in the request's URL. None of the related resources is offered.
    """
    resources, broker_id = resources_of(call), call.path["broker_id"]
    if broker_id != str(BROKER_ID):
        raise ApiError(
            404, f"broker {broker_id[:80]!r} does not exist: the only one is {BROKER_ID}"
        )
    return call.json(resources.broker())


@V3_TOPICS.get(
    f"{CLUSTER}/topics",
    Answer(200, "The topics, in order of their names.", {JSON: Listed[TopicData]}),
    errors=(404,),
    examples=(Example(answer={"kind": "KafkaTopicList", "data": [_TOPIC]}),),
)
async def v3_list_topics(call: RequestContext) -> web.Response:
    """All topics."""
    resources = resources_of(call)
    infos = [call.service.topics.info(name) for name in sorted(call.service.topics)]
    return call.json(resources.topics(infos))


@V3_TOPICS.post(
    f"{CLUSTER}/topics",
    Answer(201, "Created.", {JSON: TopicData}),
    body=required(CreateTopicRequest, '{"topic_name": ...}', media_types=(JSON,)),
    scope=Scope.ADMIN,
    errors=(404, 40901, 42203, 42205, 42207, 50302, 50701),
    examples=(
        Example(
            media_type=JSON,
            body={"topic_name": "invoices", "partitions_count": 1},
            status=201,
            answer={**_TOPIC, "topic_name": "invoices"},
        ),
    ),
)
async def v3_create_topic(call: RequestContext, body: CreateTopicRequest) -> web.Response:
    """Create a topic.

    Partitions have one replica. `replicas_assignments` and `validate_only` are not offered.
    """
    resources = resources_of(call)
    _check(body)
    configs = {entry.name: entry.value for entry in body.configs if entry.value is not None}
    info, created = await call.service.topics.create(
        body.topic_name, body.partitions_count, configs
    )
    if not created:  # in any shape
        raise TopicExists(f"topic {info.name!r} exists already", topic=info.name)
    response = call.json(resources.topic(info), status=201)
    warn_of_configs(call, response, configs)
    return response


@V3_TOPICS.get(
    TOPIC,
    Answer(200, "The topic.", {JSON: TopicData}),
    errors=(404, 40401),
    examples=(Example(answer=_TOPIC),),
)
async def v3_get_topic(call: RequestContext) -> web.Response:
    """One topic."""
    return call.json(resources_of(call).topic(call.service.topics.info(call.topic)))


@V3_TOPICS.delete(
    TOPIC,
    Answer(204, "The topic is deleted."),
    scope=Scope.ADMIN,
    errors=(404, 40401, 40903, 50701),
    examples=(Example(status=204),),
)
async def v3_delete_topic(call: RequestContext) -> web.Response:
    """Delete a topic with its records."""
    resources_of(call)
    await call.service.topics.delete(call.topic)
    return web.Response(status=204)


@V3_TOPICS.get(
    f"{TOPIC}/partitions",
    Answer(200, "The partitions.", {JSON: Listed[PartitionData]}),
    errors=(404, 40401),
    examples=(Example(answer={"kind": "KafkaPartitionList"}),),
)
async def v3_list_partitions(call: RequestContext) -> web.Response:
    """A topic's partitions."""
    return call.json(resources_of(call).partitions(call.service.topics.info(call.topic)))


@V3_TOPICS.get(
    f"{TOPIC}/partitions/{{partition}}",
    Answer(200, "The partition.", {JSON: PartitionData}),
    errors=(404, 40401, 40402, 50302),
    examples=(Example(answer={"kind": "KafkaPartition", "partition_id": 0}),),
)
async def v3_get_partition(call: RequestContext) -> web.Response:
    """One partition."""
    return call.json(resources_of(call).partition(*call.partition))


@V3_TOPICS.get(
    f"{TOPIC}/configs",
    Answer(200, "The configs.", {JSON: Listed[TopicConfigData]}),
    errors=(404, 40401),
    examples=(Example(answer={"kind": "KafkaTopicConfigList"}),),
)
async def v3_list_topic_configs(call: RequestContext) -> web.Response:
    """A topic's configs.

    The configs that were set; the store's defaults are not listed.
    """
    return call.json(resources_of(call).configs(call.service.topics.info(call.topic)))


@V3_TOPICS.get(
    f"{TOPIC}/configs/{{name}}",
    Answer(200, "The config that was set.", {JSON: TopicConfigData}),
    errors=(404, 40401),
    examples=(
        Example(
            answer={"kind": "KafkaTopicConfig", "name": "retention.ms", "value": "-1"},
            backends=("kafka",),
        ),
    ),
)
async def v3_get_topic_config(call: RequestContext) -> web.Response:
    """One config of a topic."""
    resources = resources_of(call)
    info, name = call.service.topics.info(call.topic), call.path["name"]
    if name not in info.configs:
        raise ApiError(404, f"config {name[:80]!r} is not set for topic {info.name!r}")
    return call.json(resources.config(info.name, name, info.configs[name]))


@V3_TOPICS.put(
    f"{TOPIC}/configs/{{name}}",
    Answer(204, "The config is changed.", headers=CONFIG_WARNINGS),
    body=required(UpdateConfigRequest, '{"value": ...}', media_types=(JSON,)),
    scope=Scope.ADMIN,
    errors=(404, 40401, 42205, 42207, 50701),
    examples=(Example(media_type=JSON, body={"value": "60000"}, status=204, backends=("kafka",)),),
)
async def v3_update_topic_config(call: RequestContext, body: UpdateConfigRequest) -> web.Response:
    """Change one config of a topic."""
    return await _altered(call, {call.path["name"]: body.value})


@V3_TOPICS.delete(
    f"{TOPIC}/configs/{{name}}",
    Answer(204, "The config has the store's default."),
    scope=Scope.ADMIN,
    errors=(404, 40401, 42205, 50701),
    examples=(Example(status=204, backends=("kafka",)),),
)
async def v3_reset_topic_config(call: RequestContext) -> web.Response:
    """Reset one config of a topic."""
    return await _altered(call, {call.path["name"]: None})


@V3_TOPICS.post(
    f"{TOPIC}/configs:alter",
    Answer(204, "The configs are changed.", headers=CONFIG_WARNINGS),
    body=required(AlterConfigsRequest, '{"data": [...]}', media_types=(JSON,)),
    scope=Scope.ADMIN,
    errors=(404, 40401, 42205, 42207, 50701),
    examples=(
        Example(
            media_type=JSON,
            body={
                "data": [
                    {"name": "retention.ms", "value": "60000"},
                    {"name": "segment.bytes", "operation": "DELETE"},
                ]
            },
            status=204,
            backends=("kafka",),
        ),
        Example(
            "of RocketMQ",
            media_type=JSON,
            body={"data": [{"name": "order", "value": "true"}]},
            status=204,
            backends=("rocketmq",),
        ),
    ),
)
async def v3_alter_topic_configs(call: RequestContext, body: AlterConfigsRequest) -> web.Response:
    """Change several configs of a topic.

    All of them are changed, or none. `validate_only` is not offered.
    """
    if body.validate_only:
        raise ApiError(NOT_OFFERED, "validate_only is true, and it is not offered: leave it out")
    configs: dict[str, str | None] = {}
    for number, entry in enumerate(body.data):
        if entry.name in configs:
            raise ApiError(
                PAYLOAD, f"data[{number}].name is {entry.name[:80]!r} again: give it once"
            )
        configs[entry.name] = None if entry.operation == "DELETE" else entry.value
    return await _altered(call, configs)


async def _altered(call: RequestContext, configs: Mapping[str, str | None]) -> web.Response:
    resources_of(call)
    await call.service.topics.alter(call.topic, configs)
    response = web.Response(status=204)
    warn_of_configs(call, response, configs)
    return response


def resources_of(call: RequestContext) -> Resources:
    """Return the resources of the cluster in the path, which must be the served cluster. Raises 404."""
    return Resources(cluster_id=call.cluster_id, base_url=call.base_url)


def _check(body: CreateTopicRequest) -> None:
    """Reject a request for a feature that this server does not have."""
    if body.replication_factor not in {None, 1}:
        raise InvalidConfig(
            f"replication_factor is {body.replication_factor}: this server keeps 1 replica",
            name="replication_factor",
            value=body.replication_factor,
        )
    for name in ("replicas_assignments", "validate_only"):
        if getattr(body, name):
            raise ApiError(NOT_OFFERED, f"{name} is not offered")
