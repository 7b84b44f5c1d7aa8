"""Clusters and topics of the v3 API: each with its kind, its own URL and the URLs of its parts.

Owns these shapes; must not know HTTP. Pure. URLs begin with the URL by which the client reached the server.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Generic, TypeVar
from urllib.parse import quote

from msgspec import Struct, field

from storage import TopicInfo

T = TypeVar("T")

# One process serves every partition: it is the leader and the only replica of each.
BROKER_ID: Final = 1


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
    partitions_count: int | None = None
    replication_factor: int | None = None
    replicas_assignments: dict[str, list[int]] = field(default_factory=dict)
    configs: list[ConfigEntry] = field(default_factory=list)
    validate_only: bool = False


class Resources:
    """Creates the resources of one cluster, with URLs that begin with `base_url`."""

    def __init__(self, base_url: str, cluster_id: str) -> None:
        self._clusters_url = f"{base_url}/v3/clusters"
        self._url = f"{self._clusters_url}/{quote(cluster_id, safe='')}"
        self._cluster_id = cluster_id

    def clusters(self) -> Listed[ClusterData]:
        """Return the list of the one cluster."""
        return Listed("KafkaClusterList", ListMetadata(self._clusters_url), [self.cluster()])

    def cluster(self) -> ClusterData:
        """Return the cluster."""
        return ClusterData(
            "KafkaCluster",
            Metadata(self._url, self._named()),
            self._cluster_id,
            controller=Related(f"{self._url}/brokers/{BROKER_ID}"),
            acls=Related(f"{self._url}/acls"),
            brokers=Related(f"{self._url}/brokers"),
            broker_configs=Related(f"{self._url}/broker-configs"),
            consumer_groups=Related(f"{self._url}/consumer-groups"),
            topics=Related(f"{self._url}/topics"),
            partition_reassignments=Related(f"{self._url}/topics/-/partitions/-/reassignment"),
        )

    def topics(self, infos: Sequence[TopicInfo]) -> Listed[TopicData]:
        """Return the list of these topics."""
        metadata = ListMetadata(f"{self._url}/topics")
        return Listed("KafkaTopicList", metadata, [self.topic(info) for info in infos])

    def topic(self, info: TopicInfo) -> TopicData:
        """Return one topic."""
        url = self._topic_url(info.name)
        return TopicData(
            "KafkaTopic",
            Metadata(url, self._named(f"/topic={info.name}")),
            self._cluster_id,
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
        metadata = ListMetadata(f"{self._topic_url(info.name)}/partitions")
        data = [self.partition(info.name, number) for number in info.partitions]
        return Listed("KafkaPartitionList", metadata, data)

    def partition(self, topic: str, number: int) -> PartitionData:
        """Return one partition."""
        url = f"{self._topic_url(topic)}/partitions/{number}"
        return PartitionData(
            "KafkaPartition",
            Metadata(url, self._named(f"/topic={topic}/partition={number}")),
            self._cluster_id,
            topic,
            number,
            leader=Related(f"{url}/replicas/{BROKER_ID}"),
            replicas=Related(f"{url}/replicas"),
            reassignment=Related(f"{url}/reassignment"),
        )

    def configs(self, info: TopicInfo) -> Listed[TopicConfigData]:
        """Return the list of the configs that were set for a topic."""
        metadata = ListMetadata(f"{self._topic_url(info.name)}/configs")
        data = [self.config(info.name, *config) for config in sorted(info.configs.items())]
        return Listed("KafkaTopicConfigList", metadata, data)

    def config(self, topic: str, name: str, value: str) -> TopicConfigData:
        """Return one config that was set."""
        source = "DYNAMIC_TOPIC_CONFIG"
        return TopicConfigData(
            "KafkaTopicConfig",
            Metadata(
                f"{self._topic_url(topic)}/configs/{quote(name, safe='')}",
                self._named(f"/topic={topic}/config={name}"),
            ),
            self._cluster_id,
            topic,
            name,
            value,
            is_default=False,
            is_read_only=False,
            is_sensitive=False,
            source=source,
            synonyms=[ConfigSynonym(name, value, source)],
        )

    def _topic_url(self, topic: str) -> str:
        return f"{self._url}/topics/{quote(topic, safe='')}"

    def _named(self, rest: str = "") -> str:
        """Return Confluent's name of a resource: crn://authority/kafka=cluster..., here without an authority."""
        return f"crn:///kafka={self._cluster_id}{rest}"
