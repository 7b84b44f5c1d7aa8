"""Messages of the wire protocol: ApiVersions, DescribeCluster, DescribeQuorum, FindCoordinator. Made by scripts/kafka_messages; not to be changed by hand.

Owns the fields of these messages and their bytes in every version; must not know their purpose. A field that a version
lacks is read as its default, and is not written.
"""

from __future__ import annotations

from typing import ClassVar

from msgspec import Struct, field

from api.kafka.protocol.primitives import NO_UUID, Reader, Tags, Writer


class ApiVersionsRequest(Struct, kw_only=True):
    """Message of API 18: versions 0 to 4, flexible from 3."""

    API_KEY: ClassVar[int] = 18

    client_software_name: str = ""
    client_software_version: str = ""

    @classmethod
    def read(cls, r: Reader, v: int) -> ApiVersionsRequest:
        """Read one of version `v`."""
        m = ApiVersionsRequest()
        if v >= 3:
            m.client_software_name = r.string()
            m.client_software_version = r.string()
        r.skip_tags()
        return m

    def write(self, w: Writer, v: int) -> None:
        """Write it in version `v`."""
        if v >= 3:
            w.string(self.client_software_name)
            w.string(self.client_software_version)
        w.end_struct()


class ApiVersionsResponseApiVersion(Struct, kw_only=True):
    """Struct ApiVersion of ApiVersionsResponse."""

    api_key: int = 0
    min_version: int = 0
    max_version: int = 0

    @classmethod
    def read(cls, r: Reader, v: int) -> ApiVersionsResponseApiVersion:
        """Read one of version `v`."""
        m = ApiVersionsResponseApiVersion()
        m.api_key = r.int16()
        m.min_version = r.int16()
        m.max_version = r.int16()
        r.skip_tags()
        return m

    def write(self, w: Writer, v: int) -> None:
        """Write it in version `v`."""
        w.int16(self.api_key)
        w.int16(self.min_version)
        w.int16(self.max_version)
        w.end_struct()


class ApiVersionsResponseSupportedFeatureKey(Struct, kw_only=True):
    """Struct SupportedFeatureKey of ApiVersionsResponse."""

    name: str = ""
    min_version: int = 0
    max_version: int = 0

    @classmethod
    def read(cls, r: Reader, v: int) -> ApiVersionsResponseSupportedFeatureKey:
        """Read one of version `v`."""
        m = ApiVersionsResponseSupportedFeatureKey()
        m.name = r.string()
        m.min_version = r.int16()
        m.max_version = r.int16()
        r.skip_tags()
        return m

    def write(self, w: Writer, v: int) -> None:
        """Write it in version `v`."""
        w.string(self.name)
        w.int16(self.min_version)
        w.int16(self.max_version)
        w.end_struct()


class ApiVersionsResponseFinalizedFeatureKey(Struct, kw_only=True):
    """Struct FinalizedFeatureKey of ApiVersionsResponse."""

    name: str = ""
    max_version_level: int = 0
    min_version_level: int = 0

    @classmethod
    def read(cls, r: Reader, v: int) -> ApiVersionsResponseFinalizedFeatureKey:
        """Read one of version `v`."""
        m = ApiVersionsResponseFinalizedFeatureKey()
        m.name = r.string()
        m.max_version_level = r.int16()
        m.min_version_level = r.int16()
        r.skip_tags()
        return m

    def write(self, w: Writer, v: int) -> None:
        """Write it in version `v`."""
        w.string(self.name)
        w.int16(self.max_version_level)
        w.int16(self.min_version_level)
        w.end_struct()


class ApiVersionsResponse(Struct, kw_only=True):
    """Message of API 18: versions 0 to 4, flexible from 3."""

    API_KEY: ClassVar[int] = 18

    error_code: int = 0
    api_keys: list[ApiVersionsResponseApiVersion] = field(default_factory=list)
    throttle_time_ms: int = 0
    supported_features: list[ApiVersionsResponseSupportedFeatureKey] = field(default_factory=list)
    finalized_features_epoch: int = -1
    finalized_features: list[ApiVersionsResponseFinalizedFeatureKey] = field(default_factory=list)
    zk_migration_ready: bool = False

    @classmethod
    def read(cls, r: Reader, v: int) -> ApiVersionsResponse:
        """Read one of version `v`."""
        m = ApiVersionsResponse()
        m.error_code = r.int16()
        m.api_keys = [ApiVersionsResponseApiVersion.read(r, v) for _ in range(r.count())]
        if v >= 1:
            m.throttle_time_ms = r.int32()
        for tag in r.tags():
            if tag == 0 and v >= 3:
                m.supported_features = [ApiVersionsResponseSupportedFeatureKey.read(r, v) for _ in range(r.count())]
            elif tag == 1 and v >= 3:
                m.finalized_features_epoch = r.int64()
            elif tag == 2 and v >= 3:
                m.finalized_features = [ApiVersionsResponseFinalizedFeatureKey.read(r, v) for _ in range(r.count())]
            elif tag == 3 and v >= 3:
                m.zk_migration_ready = r.boolean()
            else:
                r.skip_tag()
        return m

    def write(self, w: Writer, v: int) -> None:
        """Write it in version `v`."""
        w.int16(self.error_code)
        for api_keys_item in w.array(self.api_keys):
            api_keys_item.write(w, v)
        if v >= 1:
            w.int32(self.throttle_time_ms)
        tags: Tags = []
        if v >= 3 and self.supported_features:
            t = w.tag(tags, 0)
            for supported_features_item in t.array(self.supported_features):
                supported_features_item.write(t, v)
        if v >= 3 and self.finalized_features_epoch != -1:
            w.tag(tags, 1).int64(self.finalized_features_epoch)
        if v >= 3 and self.finalized_features:
            t = w.tag(tags, 2)
            for finalized_features_item in t.array(self.finalized_features):
                finalized_features_item.write(t, v)
        if v >= 3 and self.zk_migration_ready != False:
            w.tag(tags, 3).boolean(self.zk_migration_ready)
        w.end_struct(tags)


class DescribeClusterRequest(Struct, kw_only=True):
    """Message of API 60: versions 0 to 2, flexible from 0."""

    API_KEY: ClassVar[int] = 60

    include_cluster_authorized_operations: bool = False
    endpoint_type: int = 1
    include_fenced_brokers: bool = False

    @classmethod
    def read(cls, r: Reader, v: int) -> DescribeClusterRequest:
        """Read one of version `v`."""
        m = DescribeClusterRequest()
        m.include_cluster_authorized_operations = r.boolean()
        if v >= 1:
            m.endpoint_type = r.int8()
        if v >= 2:
            m.include_fenced_brokers = r.boolean()
        r.skip_tags()
        return m

    def write(self, w: Writer, v: int) -> None:
        """Write it in version `v`."""
        w.boolean(self.include_cluster_authorized_operations)
        if v >= 1:
            w.int8(self.endpoint_type)
        if v >= 2:
            w.boolean(self.include_fenced_brokers)
        w.end_struct()


class DescribeClusterResponseBroker(Struct, kw_only=True):
    """Struct DescribeClusterBroker of DescribeClusterResponse."""

    broker_id: int = 0
    host: str = ""
    port: int = 0
    rack: str | None = None
    is_fenced: bool = False

    @classmethod
    def read(cls, r: Reader, v: int) -> DescribeClusterResponseBroker:
        """Read one of version `v`."""
        m = DescribeClusterResponseBroker()
        m.broker_id = r.int32()
        m.host = r.string()
        m.port = r.int32()
        m.rack = r.nullable_string()
        if v >= 2:
            m.is_fenced = r.boolean()
        r.skip_tags()
        return m

    def write(self, w: Writer, v: int) -> None:
        """Write it in version `v`."""
        w.int32(self.broker_id)
        w.string(self.host)
        w.int32(self.port)
        w.nullable_string(self.rack)
        if v >= 2:
            w.boolean(self.is_fenced)
        w.end_struct()


class DescribeClusterResponse(Struct, kw_only=True):
    """Message of API 60: versions 0 to 2, flexible from 0."""

    API_KEY: ClassVar[int] = 60

    throttle_time_ms: int = 0
    error_code: int = 0
    error_message: str | None = None
    endpoint_type: int = 1
    cluster_id: str = ""
    controller_id: int = -1
    brokers: list[DescribeClusterResponseBroker] = field(default_factory=list)
    cluster_authorized_operations: int = -2147483648

    @classmethod
    def read(cls, r: Reader, v: int) -> DescribeClusterResponse:
        """Read one of version `v`."""
        m = DescribeClusterResponse()
        m.throttle_time_ms = r.int32()
        m.error_code = r.int16()
        m.error_message = r.nullable_string()
        if v >= 1:
            m.endpoint_type = r.int8()
        m.cluster_id = r.string()
        m.controller_id = r.int32()
        m.brokers = [DescribeClusterResponseBroker.read(r, v) for _ in range(r.count())]
        m.cluster_authorized_operations = r.int32()
        r.skip_tags()
        return m

    def write(self, w: Writer, v: int) -> None:
        """Write it in version `v`."""
        w.int32(self.throttle_time_ms)
        w.int16(self.error_code)
        w.nullable_string(self.error_message)
        if v >= 1:
            w.int8(self.endpoint_type)
        w.string(self.cluster_id)
        w.int32(self.controller_id)
        for brokers_item in w.array(self.brokers):
            brokers_item.write(w, v)
        w.int32(self.cluster_authorized_operations)
        w.end_struct()


class DescribeQuorumRequestPartitionData(Struct, kw_only=True):
    """Struct PartitionData of DescribeQuorumRequest."""

    partition_index: int = 0

    @classmethod
    def read(cls, r: Reader, v: int) -> DescribeQuorumRequestPartitionData:
        """Read one of version `v`."""
        m = DescribeQuorumRequestPartitionData()
        m.partition_index = r.int32()
        r.skip_tags()
        return m

    def write(self, w: Writer, v: int) -> None:
        """Write it in version `v`."""
        w.int32(self.partition_index)
        w.end_struct()


class DescribeQuorumRequestTopicData(Struct, kw_only=True):
    """Struct TopicData of DescribeQuorumRequest."""

    topic_name: str = ""
    partitions: list[DescribeQuorumRequestPartitionData] = field(default_factory=list)

    @classmethod
    def read(cls, r: Reader, v: int) -> DescribeQuorumRequestTopicData:
        """Read one of version `v`."""
        m = DescribeQuorumRequestTopicData()
        m.topic_name = r.string()
        m.partitions = [DescribeQuorumRequestPartitionData.read(r, v) for _ in range(r.count())]
        r.skip_tags()
        return m

    def write(self, w: Writer, v: int) -> None:
        """Write it in version `v`."""
        w.string(self.topic_name)
        for partitions_item in w.array(self.partitions):
            partitions_item.write(w, v)
        w.end_struct()


class DescribeQuorumRequest(Struct, kw_only=True):
    """Message of API 55: versions 0 to 2, flexible from 0."""

    API_KEY: ClassVar[int] = 55

    topics: list[DescribeQuorumRequestTopicData] = field(default_factory=list)

    @classmethod
    def read(cls, r: Reader, v: int) -> DescribeQuorumRequest:
        """Read one of version `v`."""
        m = DescribeQuorumRequest()
        m.topics = [DescribeQuorumRequestTopicData.read(r, v) for _ in range(r.count())]
        r.skip_tags()
        return m

    def write(self, w: Writer, v: int) -> None:
        """Write it in version `v`."""
        for topics_item in w.array(self.topics):
            topics_item.write(w, v)
        w.end_struct()


class DescribeQuorumResponseReplicaState(Struct, kw_only=True):
    """Struct ReplicaState of DescribeQuorumResponse."""

    replica_id: int = 0
    replica_directory_id: bytes = NO_UUID
    log_end_offset: int = 0
    last_fetch_timestamp: int = -1
    last_caught_up_timestamp: int = -1

    @classmethod
    def read(cls, r: Reader, v: int) -> DescribeQuorumResponseReplicaState:
        """Read one of version `v`."""
        m = DescribeQuorumResponseReplicaState()
        m.replica_id = r.int32()
        if v >= 2:
            m.replica_directory_id = r.uuid()
        m.log_end_offset = r.int64()
        if v >= 1:
            m.last_fetch_timestamp = r.int64()
            m.last_caught_up_timestamp = r.int64()
        r.skip_tags()
        return m

    def write(self, w: Writer, v: int) -> None:
        """Write it in version `v`."""
        w.int32(self.replica_id)
        if v >= 2:
            w.uuid(self.replica_directory_id)
        w.int64(self.log_end_offset)
        if v >= 1:
            w.int64(self.last_fetch_timestamp)
            w.int64(self.last_caught_up_timestamp)
        w.end_struct()


class DescribeQuorumResponsePartitionData(Struct, kw_only=True):
    """Struct PartitionData of DescribeQuorumResponse."""

    partition_index: int = 0
    error_code: int = 0
    error_message: str | None = ""
    leader_id: int = 0
    leader_epoch: int = 0
    high_watermark: int = 0
    current_voters: list[DescribeQuorumResponseReplicaState] = field(default_factory=list)
    observers: list[DescribeQuorumResponseReplicaState] = field(default_factory=list)

    @classmethod
    def read(cls, r: Reader, v: int) -> DescribeQuorumResponsePartitionData:
        """Read one of version `v`."""
        m = DescribeQuorumResponsePartitionData()
        m.partition_index = r.int32()
        m.error_code = r.int16()
        if v >= 2:
            m.error_message = r.nullable_string()
        m.leader_id = r.int32()
        m.leader_epoch = r.int32()
        m.high_watermark = r.int64()
        m.current_voters = [DescribeQuorumResponseReplicaState.read(r, v) for _ in range(r.count())]
        m.observers = [DescribeQuorumResponseReplicaState.read(r, v) for _ in range(r.count())]
        r.skip_tags()
        return m

    def write(self, w: Writer, v: int) -> None:
        """Write it in version `v`."""
        w.int32(self.partition_index)
        w.int16(self.error_code)
        if v >= 2:
            w.nullable_string(self.error_message)
        w.int32(self.leader_id)
        w.int32(self.leader_epoch)
        w.int64(self.high_watermark)
        for current_voters_item in w.array(self.current_voters):
            current_voters_item.write(w, v)
        for observers_item in w.array(self.observers):
            observers_item.write(w, v)
        w.end_struct()


class DescribeQuorumResponseTopicData(Struct, kw_only=True):
    """Struct TopicData of DescribeQuorumResponse."""

    topic_name: str = ""
    partitions: list[DescribeQuorumResponsePartitionData] = field(default_factory=list)

    @classmethod
    def read(cls, r: Reader, v: int) -> DescribeQuorumResponseTopicData:
        """Read one of version `v`."""
        m = DescribeQuorumResponseTopicData()
        m.topic_name = r.string()
        m.partitions = [DescribeQuorumResponsePartitionData.read(r, v) for _ in range(r.count())]
        r.skip_tags()
        return m

    def write(self, w: Writer, v: int) -> None:
        """Write it in version `v`."""
        w.string(self.topic_name)
        for partitions_item in w.array(self.partitions):
            partitions_item.write(w, v)
        w.end_struct()


class DescribeQuorumResponseListener(Struct, kw_only=True):
    """Struct Listener of DescribeQuorumResponse."""

    name: str = ""
    host: str = ""
    port: int = 0

    @classmethod
    def read(cls, r: Reader, v: int) -> DescribeQuorumResponseListener:
        """Read one of version `v`."""
        m = DescribeQuorumResponseListener()
        m.name = r.string()
        m.host = r.string()
        m.port = r.uint16()
        r.skip_tags()
        return m

    def write(self, w: Writer, v: int) -> None:
        """Write it in version `v`."""
        w.string(self.name)
        w.string(self.host)
        w.uint16(self.port)
        w.end_struct()


class DescribeQuorumResponseNode(Struct, kw_only=True):
    """Struct Node of DescribeQuorumResponse."""

    node_id: int = 0
    listeners: list[DescribeQuorumResponseListener] = field(default_factory=list)

    @classmethod
    def read(cls, r: Reader, v: int) -> DescribeQuorumResponseNode:
        """Read one of version `v`."""
        m = DescribeQuorumResponseNode()
        m.node_id = r.int32()
        m.listeners = [DescribeQuorumResponseListener.read(r, v) for _ in range(r.count())]
        r.skip_tags()
        return m

    def write(self, w: Writer, v: int) -> None:
        """Write it in version `v`."""
        w.int32(self.node_id)
        for listeners_item in w.array(self.listeners):
            listeners_item.write(w, v)
        w.end_struct()


class DescribeQuorumResponse(Struct, kw_only=True):
    """Message of API 55: versions 0 to 2, flexible from 0."""

    API_KEY: ClassVar[int] = 55

    error_code: int = 0
    error_message: str | None = ""
    topics: list[DescribeQuorumResponseTopicData] = field(default_factory=list)
    nodes: list[DescribeQuorumResponseNode] = field(default_factory=list)

    @classmethod
    def read(cls, r: Reader, v: int) -> DescribeQuorumResponse:
        """Read one of version `v`."""
        m = DescribeQuorumResponse()
        m.error_code = r.int16()
        if v >= 2:
            m.error_message = r.nullable_string()
        m.topics = [DescribeQuorumResponseTopicData.read(r, v) for _ in range(r.count())]
        if v >= 2:
            m.nodes = [DescribeQuorumResponseNode.read(r, v) for _ in range(r.count())]
        r.skip_tags()
        return m

    def write(self, w: Writer, v: int) -> None:
        """Write it in version `v`."""
        w.int16(self.error_code)
        if v >= 2:
            w.nullable_string(self.error_message)
        for topics_item in w.array(self.topics):
            topics_item.write(w, v)
        if v >= 2:
            for nodes_item in w.array(self.nodes):
                nodes_item.write(w, v)
        w.end_struct()


class FindCoordinatorRequest(Struct, kw_only=True):
    """Message of API 10: versions 0 to 6, flexible from 3."""

    API_KEY: ClassVar[int] = 10

    key: str = ""
    key_type: int = 0
    coordinator_keys: list[str] = field(default_factory=list)

    @classmethod
    def read(cls, r: Reader, v: int) -> FindCoordinatorRequest:
        """Read one of version `v`."""
        m = FindCoordinatorRequest()
        if v <= 3:
            m.key = r.string()
        if v >= 1:
            m.key_type = r.int8()
        if v >= 4:
            m.coordinator_keys = [r.string() for _ in range(r.count())]
        r.skip_tags()
        return m

    def write(self, w: Writer, v: int) -> None:
        """Write it in version `v`."""
        if v <= 3:
            w.string(self.key)
        if v >= 1:
            w.int8(self.key_type)
        if v >= 4:
            for coordinator_keys_item in w.array(self.coordinator_keys):
                w.string(coordinator_keys_item)
        w.end_struct()


class FindCoordinatorResponseCoordinator(Struct, kw_only=True):
    """Struct Coordinator of FindCoordinatorResponse."""

    key: str = ""
    node_id: int = 0
    host: str = ""
    port: int = 0
    error_code: int = 0
    error_message: str | None = ""

    @classmethod
    def read(cls, r: Reader, v: int) -> FindCoordinatorResponseCoordinator:
        """Read one of version `v`."""
        m = FindCoordinatorResponseCoordinator()
        m.key = r.string()
        m.node_id = r.int32()
        m.host = r.string()
        m.port = r.int32()
        m.error_code = r.int16()
        m.error_message = r.nullable_string()
        r.skip_tags()
        return m

    def write(self, w: Writer, v: int) -> None:
        """Write it in version `v`."""
        w.string(self.key)
        w.int32(self.node_id)
        w.string(self.host)
        w.int32(self.port)
        w.int16(self.error_code)
        w.nullable_string(self.error_message)
        w.end_struct()


class FindCoordinatorResponse(Struct, kw_only=True):
    """Message of API 10: versions 0 to 6, flexible from 3."""

    API_KEY: ClassVar[int] = 10

    throttle_time_ms: int = 0
    error_code: int = 0
    error_message: str | None = ""
    node_id: int = 0
    host: str = ""
    port: int = 0
    coordinators: list[FindCoordinatorResponseCoordinator] = field(default_factory=list)

    @classmethod
    def read(cls, r: Reader, v: int) -> FindCoordinatorResponse:
        """Read one of version `v`."""
        m = FindCoordinatorResponse()
        if v >= 1:
            m.throttle_time_ms = r.int32()
        if v <= 3:
            m.error_code = r.int16()
        if v >= 1 and v <= 3:
            m.error_message = r.nullable_string()
        if v <= 3:
            m.node_id = r.int32()
            m.host = r.string()
            m.port = r.int32()
        if v >= 4:
            m.coordinators = [FindCoordinatorResponseCoordinator.read(r, v) for _ in range(r.count())]
        r.skip_tags()
        return m

    def write(self, w: Writer, v: int) -> None:
        """Write it in version `v`."""
        if v >= 1:
            w.int32(self.throttle_time_ms)
        if v <= 3:
            w.int16(self.error_code)
        if v >= 1 and v <= 3:
            w.nullable_string(self.error_message)
        if v <= 3:
            w.int32(self.node_id)
            w.string(self.host)
            w.int32(self.port)
        if v >= 4:
            for coordinators_item in w.array(self.coordinators):
                coordinators_item.write(w, v)
        w.end_struct()
