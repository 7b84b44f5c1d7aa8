"""Messages of the wire protocol: DescribeTopicPartitions, Metadata. Made by scripts/kafka_messages; not to be changed by hand.

Owns the fields of these messages and their bytes in every version; must not know their purpose. A field that a version
lacks is read as its default, and is not written.
"""

from __future__ import annotations

from typing import ClassVar

from msgspec import Struct, field

from api.kafka.protocol.primitives import NO_UUID, Reader, Writer


class DescribeTopicPartitionsRequestTopicRequest(Struct, kw_only=True):
    """Struct TopicRequest of DescribeTopicPartitionsRequest."""

    name: str = ""

    @classmethod
    def read(cls, r: Reader, v: int) -> DescribeTopicPartitionsRequestTopicRequest:
        """Read one of version `v`."""
        m = DescribeTopicPartitionsRequestTopicRequest()
        m.name = r.string()
        r.skip_tags()
        return m

    def write(self, w: Writer, v: int) -> None:
        """Write it in version `v`."""
        w.string(self.name)
        w.end_struct()


class DescribeTopicPartitionsRequestCursor(Struct, kw_only=True):
    """Struct Cursor of DescribeTopicPartitionsRequest."""

    topic_name: str = ""
    partition_index: int = 0

    @classmethod
    def read(cls, r: Reader, v: int) -> DescribeTopicPartitionsRequestCursor:
        """Read one of version `v`."""
        m = DescribeTopicPartitionsRequestCursor()
        m.topic_name = r.string()
        m.partition_index = r.int32()
        r.skip_tags()
        return m

    def write(self, w: Writer, v: int) -> None:
        """Write it in version `v`."""
        w.string(self.topic_name)
        w.int32(self.partition_index)
        w.end_struct()


class DescribeTopicPartitionsRequest(Struct, kw_only=True):
    """Message of API 75: versions 0 to 0, flexible from 0."""

    API_KEY: ClassVar[int] = 75

    topics: list[DescribeTopicPartitionsRequestTopicRequest] = field(default_factory=list)
    response_partition_limit: int = 2000
    cursor: DescribeTopicPartitionsRequestCursor | None = None

    @classmethod
    def read(cls, r: Reader, v: int) -> DescribeTopicPartitionsRequest:
        """Read one of version `v`."""
        m = DescribeTopicPartitionsRequest()
        m.topics = [DescribeTopicPartitionsRequestTopicRequest.read(r, v) for _ in range(r.count())]
        m.response_partition_limit = r.int32()
        m.cursor = DescribeTopicPartitionsRequestCursor.read(r, v) if r.int8() >= 0 else None
        r.skip_tags()
        return m

    def write(self, w: Writer, v: int) -> None:
        """Write it in version `v`."""
        for topics_item in w.array(self.topics):
            topics_item.write(w, v)
        w.int32(self.response_partition_limit)
        if self.cursor is None:
            w.int8(-1)
        else:
            w.int8(1)
            self.cursor.write(w, v)
        w.end_struct()


class DescribeTopicPartitionsResponsePartition(Struct, kw_only=True):
    """Struct DescribeTopicPartitionsResponsePartition of DescribeTopicPartitionsResponse."""

    error_code: int = 0
    partition_index: int = 0
    leader_id: int = 0
    leader_epoch: int = -1
    replica_nodes: list[int] = field(default_factory=list)
    isr_nodes: list[int] = field(default_factory=list)
    eligible_leader_replicas: list[int] | None = None
    last_known_elr: list[int] | None = None
    offline_replicas: list[int] = field(default_factory=list)

    @classmethod
    def read(cls, r: Reader, v: int) -> DescribeTopicPartitionsResponsePartition:
        """Read one of version `v`."""
        m = DescribeTopicPartitionsResponsePartition()
        m.error_code = r.int16()
        m.partition_index = r.int32()
        m.leader_id = r.int32()
        m.leader_epoch = r.int32()
        m.replica_nodes = [r.int32() for _ in range(r.count())]
        m.isr_nodes = [r.int32() for _ in range(r.count())]
        n = r.nullable_count()
        m.eligible_leader_replicas = None if n is None else [r.int32() for _ in range(n)]
        n = r.nullable_count()
        m.last_known_elr = None if n is None else [r.int32() for _ in range(n)]
        m.offline_replicas = [r.int32() for _ in range(r.count())]
        r.skip_tags()
        return m

    def write(self, w: Writer, v: int) -> None:
        """Write it in version `v`."""
        w.int16(self.error_code)
        w.int32(self.partition_index)
        w.int32(self.leader_id)
        w.int32(self.leader_epoch)
        for replica_nodes_item in w.array(self.replica_nodes):
            w.int32(replica_nodes_item)
        for isr_nodes_item in w.array(self.isr_nodes):
            w.int32(isr_nodes_item)
        for eligible_leader_replicas_item in w.nullable_array(self.eligible_leader_replicas):
            w.int32(eligible_leader_replicas_item)
        for last_known_elr_item in w.nullable_array(self.last_known_elr):
            w.int32(last_known_elr_item)
        for offline_replicas_item in w.array(self.offline_replicas):
            w.int32(offline_replicas_item)
        w.end_struct()


class DescribeTopicPartitionsResponseTopic(Struct, kw_only=True):
    """Struct DescribeTopicPartitionsResponseTopic of DescribeTopicPartitionsResponse."""

    error_code: int = 0
    name: str | None = ""
    topic_id: bytes = NO_UUID
    is_internal: bool = False
    partitions: list[DescribeTopicPartitionsResponsePartition] = field(default_factory=list)
    topic_authorized_operations: int = -2147483648

    @classmethod
    def read(cls, r: Reader, v: int) -> DescribeTopicPartitionsResponseTopic:
        """Read one of version `v`."""
        m = DescribeTopicPartitionsResponseTopic()
        m.error_code = r.int16()
        m.name = r.nullable_string()
        m.topic_id = r.uuid()
        m.is_internal = r.boolean()
        m.partitions = [DescribeTopicPartitionsResponsePartition.read(r, v) for _ in range(r.count())]
        m.topic_authorized_operations = r.int32()
        r.skip_tags()
        return m

    def write(self, w: Writer, v: int) -> None:
        """Write it in version `v`."""
        w.int16(self.error_code)
        w.nullable_string(self.name)
        w.uuid(self.topic_id)
        w.boolean(self.is_internal)
        for partitions_item in w.array(self.partitions):
            partitions_item.write(w, v)
        w.int32(self.topic_authorized_operations)
        w.end_struct()


class DescribeTopicPartitionsResponseCursor(Struct, kw_only=True):
    """Struct Cursor of DescribeTopicPartitionsResponse."""

    topic_name: str = ""
    partition_index: int = 0

    @classmethod
    def read(cls, r: Reader, v: int) -> DescribeTopicPartitionsResponseCursor:
        """Read one of version `v`."""
        m = DescribeTopicPartitionsResponseCursor()
        m.topic_name = r.string()
        m.partition_index = r.int32()
        r.skip_tags()
        return m

    def write(self, w: Writer, v: int) -> None:
        """Write it in version `v`."""
        w.string(self.topic_name)
        w.int32(self.partition_index)
        w.end_struct()


class DescribeTopicPartitionsResponse(Struct, kw_only=True):
    """Message of API 75: versions 0 to 0, flexible from 0."""

    API_KEY: ClassVar[int] = 75

    throttle_time_ms: int = 0
    topics: list[DescribeTopicPartitionsResponseTopic] = field(default_factory=list)
    next_cursor: DescribeTopicPartitionsResponseCursor | None = None

    @classmethod
    def read(cls, r: Reader, v: int) -> DescribeTopicPartitionsResponse:
        """Read one of version `v`."""
        m = DescribeTopicPartitionsResponse()
        m.throttle_time_ms = r.int32()
        m.topics = [DescribeTopicPartitionsResponseTopic.read(r, v) for _ in range(r.count())]
        m.next_cursor = DescribeTopicPartitionsResponseCursor.read(r, v) if r.int8() >= 0 else None
        r.skip_tags()
        return m

    def write(self, w: Writer, v: int) -> None:
        """Write it in version `v`."""
        w.int32(self.throttle_time_ms)
        for topics_item in w.array(self.topics):
            topics_item.write(w, v)
        if self.next_cursor is None:
            w.int8(-1)
        else:
            w.int8(1)
            self.next_cursor.write(w, v)
        w.end_struct()


class MetadataRequestTopic(Struct, kw_only=True):
    """Struct MetadataRequestTopic of MetadataRequest."""

    topic_id: bytes = NO_UUID
    name: str | None = ""

    @classmethod
    def read(cls, r: Reader, v: int) -> MetadataRequestTopic:
        """Read one of version `v`."""
        m = MetadataRequestTopic()
        if v >= 10:
            m.topic_id = r.uuid()
        m.name = r.nullable_string() if v >= 10 else r.string()
        r.skip_tags()
        return m

    def write(self, w: Writer, v: int) -> None:
        """Write it in version `v`."""
        if v >= 10:
            w.uuid(self.topic_id)
        if v >= 10:
            w.nullable_string(self.name)
        else:
            w.string(self.name)
        w.end_struct()


class MetadataRequest(Struct, kw_only=True):
    """Message of API 3: versions 0 to 13, flexible from 9."""

    API_KEY: ClassVar[int] = 3

    topics: list[MetadataRequestTopic] | None = field(default_factory=list)
    allow_auto_topic_creation: bool = True
    include_cluster_authorized_operations: bool = False
    include_topic_authorized_operations: bool = False

    @classmethod
    def read(cls, r: Reader, v: int) -> MetadataRequest:
        """Read one of version `v`."""
        m = MetadataRequest()
        n = r.nullable_count() if v >= 1 else r.count()
        m.topics = None if n is None else [MetadataRequestTopic.read(r, v) for _ in range(n)]
        if v >= 4:
            m.allow_auto_topic_creation = r.boolean()
        if v >= 8 and v <= 10:
            m.include_cluster_authorized_operations = r.boolean()
        if v >= 8:
            m.include_topic_authorized_operations = r.boolean()
        r.skip_tags()
        return m

    def write(self, w: Writer, v: int) -> None:
        """Write it in version `v`."""
        for topics_item in (w.nullable_array(self.topics) if v >= 1 else w.array(self.topics)):
            topics_item.write(w, v)
        if v >= 4:
            w.boolean(self.allow_auto_topic_creation)
        if v >= 8 and v <= 10:
            w.boolean(self.include_cluster_authorized_operations)
        if v >= 8:
            w.boolean(self.include_topic_authorized_operations)
        w.end_struct()


class MetadataResponseBroker(Struct, kw_only=True):
    """Struct MetadataResponseBroker of MetadataResponse."""

    node_id: int = 0
    host: str = ""
    port: int = 0
    rack: str | None = None

    @classmethod
    def read(cls, r: Reader, v: int) -> MetadataResponseBroker:
        """Read one of version `v`."""
        m = MetadataResponseBroker()
        m.node_id = r.int32()
        m.host = r.string()
        m.port = r.int32()
        if v >= 1:
            m.rack = r.nullable_string()
        r.skip_tags()
        return m

    def write(self, w: Writer, v: int) -> None:
        """Write it in version `v`."""
        w.int32(self.node_id)
        w.string(self.host)
        w.int32(self.port)
        if v >= 1:
            w.nullable_string(self.rack)
        w.end_struct()


class MetadataResponsePartition(Struct, kw_only=True):
    """Struct MetadataResponsePartition of MetadataResponse."""

    error_code: int = 0
    partition_index: int = 0
    leader_id: int = 0
    leader_epoch: int = -1
    replica_nodes: list[int] = field(default_factory=list)
    isr_nodes: list[int] = field(default_factory=list)
    offline_replicas: list[int] = field(default_factory=list)

    @classmethod
    def read(cls, r: Reader, v: int) -> MetadataResponsePartition:
        """Read one of version `v`."""
        m = MetadataResponsePartition()
        m.error_code = r.int16()
        m.partition_index = r.int32()
        m.leader_id = r.int32()
        if v >= 7:
            m.leader_epoch = r.int32()
        m.replica_nodes = [r.int32() for _ in range(r.count())]
        m.isr_nodes = [r.int32() for _ in range(r.count())]
        if v >= 5:
            m.offline_replicas = [r.int32() for _ in range(r.count())]
        r.skip_tags()
        return m

    def write(self, w: Writer, v: int) -> None:
        """Write it in version `v`."""
        w.int16(self.error_code)
        w.int32(self.partition_index)
        w.int32(self.leader_id)
        if v >= 7:
            w.int32(self.leader_epoch)
        for replica_nodes_item in w.array(self.replica_nodes):
            w.int32(replica_nodes_item)
        for isr_nodes_item in w.array(self.isr_nodes):
            w.int32(isr_nodes_item)
        if v >= 5:
            for offline_replicas_item in w.array(self.offline_replicas):
                w.int32(offline_replicas_item)
        w.end_struct()


class MetadataResponseTopic(Struct, kw_only=True):
    """Struct MetadataResponseTopic of MetadataResponse."""

    error_code: int = 0
    name: str | None = ""
    topic_id: bytes = NO_UUID
    is_internal: bool = False
    partitions: list[MetadataResponsePartition] = field(default_factory=list)
    topic_authorized_operations: int = -2147483648

    @classmethod
    def read(cls, r: Reader, v: int) -> MetadataResponseTopic:
        """Read one of version `v`."""
        m = MetadataResponseTopic()
        m.error_code = r.int16()
        m.name = r.nullable_string() if v >= 12 else r.string()
        if v >= 10:
            m.topic_id = r.uuid()
        if v >= 1:
            m.is_internal = r.boolean()
        m.partitions = [MetadataResponsePartition.read(r, v) for _ in range(r.count())]
        if v >= 8:
            m.topic_authorized_operations = r.int32()
        r.skip_tags()
        return m

    def write(self, w: Writer, v: int) -> None:
        """Write it in version `v`."""
        w.int16(self.error_code)
        if v >= 12:
            w.nullable_string(self.name)
        else:
            w.string(self.name)
        if v >= 10:
            w.uuid(self.topic_id)
        if v >= 1:
            w.boolean(self.is_internal)
        for partitions_item in w.array(self.partitions):
            partitions_item.write(w, v)
        if v >= 8:
            w.int32(self.topic_authorized_operations)
        w.end_struct()


class MetadataResponse(Struct, kw_only=True):
    """Message of API 3: versions 0 to 13, flexible from 9."""

    API_KEY: ClassVar[int] = 3

    throttle_time_ms: int = 0
    brokers: list[MetadataResponseBroker] = field(default_factory=list)
    cluster_id: str | None = None
    controller_id: int = -1
    topics: list[MetadataResponseTopic] = field(default_factory=list)
    cluster_authorized_operations: int = -2147483648
    error_code: int = 0

    @classmethod
    def read(cls, r: Reader, v: int) -> MetadataResponse:
        """Read one of version `v`."""
        m = MetadataResponse()
        if v >= 3:
            m.throttle_time_ms = r.int32()
        m.brokers = [MetadataResponseBroker.read(r, v) for _ in range(r.count())]
        if v >= 2:
            m.cluster_id = r.nullable_string()
        if v >= 1:
            m.controller_id = r.int32()
        m.topics = [MetadataResponseTopic.read(r, v) for _ in range(r.count())]
        if v >= 8 and v <= 10:
            m.cluster_authorized_operations = r.int32()
        if v >= 13:
            m.error_code = r.int16()
        r.skip_tags()
        return m

    def write(self, w: Writer, v: int) -> None:
        """Write it in version `v`."""
        if v >= 3:
            w.int32(self.throttle_time_ms)
        for brokers_item in w.array(self.brokers):
            brokers_item.write(w, v)
        if v >= 2:
            w.nullable_string(self.cluster_id)
        if v >= 1:
            w.int32(self.controller_id)
        for topics_item in w.array(self.topics):
            topics_item.write(w, v)
        if v >= 8 and v <= 10:
            w.int32(self.cluster_authorized_operations)
        if v >= 13:
            w.int16(self.error_code)
        w.end_struct()
