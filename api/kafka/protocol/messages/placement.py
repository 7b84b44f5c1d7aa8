"""Messages of the wire protocol: AlterPartitionReassignments, AlterReplicaLogDirs, DescribeLogDirs, ElectLeaders, ListPartitionReassignments. Made by scripts/kafka_messages; not to be changed by hand.

Owns the fields of these messages and their bytes in every version; must not know their purpose. A field that a version
lacks is read as its default, and is not written.
"""

from __future__ import annotations

from typing import ClassVar

from msgspec import Struct, field

from api.kafka.protocol.primitives import Reader, Writer


class AlterPartitionReassignmentsRequestReassignablePartition(Struct, kw_only=True):
    """Struct ReassignablePartition of AlterPartitionReassignmentsRequest."""

    partition_index: int = 0
    replicas: list[int] | None = None

    @classmethod
    def read(cls, r: Reader, v: int) -> AlterPartitionReassignmentsRequestReassignablePartition:
        """Read one of version `v`."""
        m = AlterPartitionReassignmentsRequestReassignablePartition()
        m.partition_index = r.int32()
        n = r.nullable_count()
        m.replicas = None if n is None else [r.int32() for _ in range(n)]
        r.skip_tags()
        return m

    def write(self, w: Writer, v: int) -> None:
        """Write it in version `v`."""
        w.int32(self.partition_index)
        for replicas_item in w.nullable_array(self.replicas):
            w.int32(replicas_item)
        w.end_struct()


class AlterPartitionReassignmentsRequestReassignableTopic(Struct, kw_only=True):
    """Struct ReassignableTopic of AlterPartitionReassignmentsRequest."""

    name: str = ""
    partitions: list[AlterPartitionReassignmentsRequestReassignablePartition] = field(default_factory=list)

    @classmethod
    def read(cls, r: Reader, v: int) -> AlterPartitionReassignmentsRequestReassignableTopic:
        """Read one of version `v`."""
        m = AlterPartitionReassignmentsRequestReassignableTopic()
        m.name = r.string()
        m.partitions = [AlterPartitionReassignmentsRequestReassignablePartition.read(r, v) for _ in range(r.count())]
        r.skip_tags()
        return m

    def write(self, w: Writer, v: int) -> None:
        """Write it in version `v`."""
        w.string(self.name)
        for partitions_item in w.array(self.partitions):
            partitions_item.write(w, v)
        w.end_struct()


class AlterPartitionReassignmentsRequest(Struct, kw_only=True):
    """Message of API 45: versions 0 to 1, flexible from 0."""

    API_KEY: ClassVar[int] = 45

    timeout_ms: int = 60000
    allow_replication_factor_change: bool = True
    topics: list[AlterPartitionReassignmentsRequestReassignableTopic] = field(default_factory=list)

    @classmethod
    def read(cls, r: Reader, v: int) -> AlterPartitionReassignmentsRequest:
        """Read one of version `v`."""
        m = AlterPartitionReassignmentsRequest()
        m.timeout_ms = r.int32()
        if v >= 1:
            m.allow_replication_factor_change = r.boolean()
        m.topics = [AlterPartitionReassignmentsRequestReassignableTopic.read(r, v) for _ in range(r.count())]
        r.skip_tags()
        return m

    def write(self, w: Writer, v: int) -> None:
        """Write it in version `v`."""
        w.int32(self.timeout_ms)
        if v >= 1:
            w.boolean(self.allow_replication_factor_change)
        for topics_item in w.array(self.topics):
            topics_item.write(w, v)
        w.end_struct()


class AlterPartitionReassignmentsResponseReassignablePartitionResponse(Struct, kw_only=True):
    """Struct ReassignablePartitionResponse of AlterPartitionReassignmentsResponse."""

    partition_index: int = 0
    error_code: int = 0
    error_message: str | None = ""

    @classmethod
    def read(cls, r: Reader, v: int) -> AlterPartitionReassignmentsResponseReassignablePartitionResponse:
        """Read one of version `v`."""
        m = AlterPartitionReassignmentsResponseReassignablePartitionResponse()
        m.partition_index = r.int32()
        m.error_code = r.int16()
        m.error_message = r.nullable_string()
        r.skip_tags()
        return m

    def write(self, w: Writer, v: int) -> None:
        """Write it in version `v`."""
        w.int32(self.partition_index)
        w.int16(self.error_code)
        w.nullable_string(self.error_message)
        w.end_struct()


class AlterPartitionReassignmentsResponseReassignableTopicResponse(Struct, kw_only=True):
    """Struct ReassignableTopicResponse of AlterPartitionReassignmentsResponse."""

    name: str = ""
    partitions: list[AlterPartitionReassignmentsResponseReassignablePartitionResponse] = field(default_factory=list)

    @classmethod
    def read(cls, r: Reader, v: int) -> AlterPartitionReassignmentsResponseReassignableTopicResponse:
        """Read one of version `v`."""
        m = AlterPartitionReassignmentsResponseReassignableTopicResponse()
        m.name = r.string()
        m.partitions = [AlterPartitionReassignmentsResponseReassignablePartitionResponse.read(r, v) for _ in range(r.count())]
        r.skip_tags()
        return m

    def write(self, w: Writer, v: int) -> None:
        """Write it in version `v`."""
        w.string(self.name)
        for partitions_item in w.array(self.partitions):
            partitions_item.write(w, v)
        w.end_struct()


class AlterPartitionReassignmentsResponse(Struct, kw_only=True):
    """Message of API 45: versions 0 to 1, flexible from 0."""

    API_KEY: ClassVar[int] = 45

    throttle_time_ms: int = 0
    allow_replication_factor_change: bool = True
    error_code: int = 0
    error_message: str | None = ""
    responses: list[AlterPartitionReassignmentsResponseReassignableTopicResponse] = field(default_factory=list)

    @classmethod
    def read(cls, r: Reader, v: int) -> AlterPartitionReassignmentsResponse:
        """Read one of version `v`."""
        m = AlterPartitionReassignmentsResponse()
        m.throttle_time_ms = r.int32()
        if v >= 1:
            m.allow_replication_factor_change = r.boolean()
        m.error_code = r.int16()
        m.error_message = r.nullable_string()
        m.responses = [AlterPartitionReassignmentsResponseReassignableTopicResponse.read(r, v) for _ in range(r.count())]
        r.skip_tags()
        return m

    def write(self, w: Writer, v: int) -> None:
        """Write it in version `v`."""
        w.int32(self.throttle_time_ms)
        if v >= 1:
            w.boolean(self.allow_replication_factor_change)
        w.int16(self.error_code)
        w.nullable_string(self.error_message)
        for responses_item in w.array(self.responses):
            responses_item.write(w, v)
        w.end_struct()


class AlterReplicaLogDirsRequestAlterReplicaLogDirTopic(Struct, kw_only=True):
    """Struct AlterReplicaLogDirTopic of AlterReplicaLogDirsRequest."""

    name: str = ""
    partitions: list[int] = field(default_factory=list)

    @classmethod
    def read(cls, r: Reader, v: int) -> AlterReplicaLogDirsRequestAlterReplicaLogDirTopic:
        """Read one of version `v`."""
        m = AlterReplicaLogDirsRequestAlterReplicaLogDirTopic()
        m.name = r.string()
        m.partitions = [r.int32() for _ in range(r.count())]
        r.skip_tags()
        return m

    def write(self, w: Writer, v: int) -> None:
        """Write it in version `v`."""
        w.string(self.name)
        for partitions_item in w.array(self.partitions):
            w.int32(partitions_item)
        w.end_struct()


class AlterReplicaLogDirsRequestAlterReplicaLogDir(Struct, kw_only=True):
    """Struct AlterReplicaLogDir of AlterReplicaLogDirsRequest."""

    path: str = ""
    topics: list[AlterReplicaLogDirsRequestAlterReplicaLogDirTopic] = field(default_factory=list)

    @classmethod
    def read(cls, r: Reader, v: int) -> AlterReplicaLogDirsRequestAlterReplicaLogDir:
        """Read one of version `v`."""
        m = AlterReplicaLogDirsRequestAlterReplicaLogDir()
        m.path = r.string()
        m.topics = [AlterReplicaLogDirsRequestAlterReplicaLogDirTopic.read(r, v) for _ in range(r.count())]
        r.skip_tags()
        return m

    def write(self, w: Writer, v: int) -> None:
        """Write it in version `v`."""
        w.string(self.path)
        for topics_item in w.array(self.topics):
            topics_item.write(w, v)
        w.end_struct()


class AlterReplicaLogDirsRequest(Struct, kw_only=True):
    """Message of API 34: versions 1 to 2, flexible from 2."""

    API_KEY: ClassVar[int] = 34

    dirs: list[AlterReplicaLogDirsRequestAlterReplicaLogDir] = field(default_factory=list)

    @classmethod
    def read(cls, r: Reader, v: int) -> AlterReplicaLogDirsRequest:
        """Read one of version `v`."""
        m = AlterReplicaLogDirsRequest()
        m.dirs = [AlterReplicaLogDirsRequestAlterReplicaLogDir.read(r, v) for _ in range(r.count())]
        r.skip_tags()
        return m

    def write(self, w: Writer, v: int) -> None:
        """Write it in version `v`."""
        for dirs_item in w.array(self.dirs):
            dirs_item.write(w, v)
        w.end_struct()


class AlterReplicaLogDirsResponseAlterReplicaLogDirPartitionResult(Struct, kw_only=True):
    """Struct AlterReplicaLogDirPartitionResult of AlterReplicaLogDirsResponse."""

    partition_index: int = 0
    error_code: int = 0

    @classmethod
    def read(cls, r: Reader, v: int) -> AlterReplicaLogDirsResponseAlterReplicaLogDirPartitionResult:
        """Read one of version `v`."""
        m = AlterReplicaLogDirsResponseAlterReplicaLogDirPartitionResult()
        m.partition_index = r.int32()
        m.error_code = r.int16()
        r.skip_tags()
        return m

    def write(self, w: Writer, v: int) -> None:
        """Write it in version `v`."""
        w.int32(self.partition_index)
        w.int16(self.error_code)
        w.end_struct()


class AlterReplicaLogDirsResponseAlterReplicaLogDirTopicResult(Struct, kw_only=True):
    """Struct AlterReplicaLogDirTopicResult of AlterReplicaLogDirsResponse."""

    topic_name: str = ""
    partitions: list[AlterReplicaLogDirsResponseAlterReplicaLogDirPartitionResult] = field(default_factory=list)

    @classmethod
    def read(cls, r: Reader, v: int) -> AlterReplicaLogDirsResponseAlterReplicaLogDirTopicResult:
        """Read one of version `v`."""
        m = AlterReplicaLogDirsResponseAlterReplicaLogDirTopicResult()
        m.topic_name = r.string()
        m.partitions = [AlterReplicaLogDirsResponseAlterReplicaLogDirPartitionResult.read(r, v) for _ in range(r.count())]
        r.skip_tags()
        return m

    def write(self, w: Writer, v: int) -> None:
        """Write it in version `v`."""
        w.string(self.topic_name)
        for partitions_item in w.array(self.partitions):
            partitions_item.write(w, v)
        w.end_struct()


class AlterReplicaLogDirsResponse(Struct, kw_only=True):
    """Message of API 34: versions 1 to 2, flexible from 2."""

    API_KEY: ClassVar[int] = 34

    throttle_time_ms: int = 0
    results: list[AlterReplicaLogDirsResponseAlterReplicaLogDirTopicResult] = field(default_factory=list)

    @classmethod
    def read(cls, r: Reader, v: int) -> AlterReplicaLogDirsResponse:
        """Read one of version `v`."""
        m = AlterReplicaLogDirsResponse()
        m.throttle_time_ms = r.int32()
        m.results = [AlterReplicaLogDirsResponseAlterReplicaLogDirTopicResult.read(r, v) for _ in range(r.count())]
        r.skip_tags()
        return m

    def write(self, w: Writer, v: int) -> None:
        """Write it in version `v`."""
        w.int32(self.throttle_time_ms)
        for results_item in w.array(self.results):
            results_item.write(w, v)
        w.end_struct()


class DescribeLogDirsRequestDescribableLogDirTopic(Struct, kw_only=True):
    """Struct DescribableLogDirTopic of DescribeLogDirsRequest."""

    topic: str = ""
    partitions: list[int] = field(default_factory=list)

    @classmethod
    def read(cls, r: Reader, v: int) -> DescribeLogDirsRequestDescribableLogDirTopic:
        """Read one of version `v`."""
        m = DescribeLogDirsRequestDescribableLogDirTopic()
        m.topic = r.string()
        m.partitions = [r.int32() for _ in range(r.count())]
        r.skip_tags()
        return m

    def write(self, w: Writer, v: int) -> None:
        """Write it in version `v`."""
        w.string(self.topic)
        for partitions_item in w.array(self.partitions):
            w.int32(partitions_item)
        w.end_struct()


class DescribeLogDirsRequest(Struct, kw_only=True):
    """Message of API 35: versions 1 to 5, flexible from 2."""

    API_KEY: ClassVar[int] = 35

    topics: list[DescribeLogDirsRequestDescribableLogDirTopic] | None = field(default_factory=list)

    @classmethod
    def read(cls, r: Reader, v: int) -> DescribeLogDirsRequest:
        """Read one of version `v`."""
        m = DescribeLogDirsRequest()
        n = r.nullable_count()
        m.topics = None if n is None else [DescribeLogDirsRequestDescribableLogDirTopic.read(r, v) for _ in range(n)]
        r.skip_tags()
        return m

    def write(self, w: Writer, v: int) -> None:
        """Write it in version `v`."""
        for topics_item in w.nullable_array(self.topics):
            topics_item.write(w, v)
        w.end_struct()


class DescribeLogDirsResponsePartition(Struct, kw_only=True):
    """Struct DescribeLogDirsPartition of DescribeLogDirsResponse."""

    partition_index: int = 0
    partition_size: int = 0
    offset_lag: int = 0
    is_future_key: bool = False

    @classmethod
    def read(cls, r: Reader, v: int) -> DescribeLogDirsResponsePartition:
        """Read one of version `v`."""
        m = DescribeLogDirsResponsePartition()
        m.partition_index = r.int32()
        m.partition_size = r.int64()
        m.offset_lag = r.int64()
        m.is_future_key = r.boolean()
        r.skip_tags()
        return m

    def write(self, w: Writer, v: int) -> None:
        """Write it in version `v`."""
        w.int32(self.partition_index)
        w.int64(self.partition_size)
        w.int64(self.offset_lag)
        w.boolean(self.is_future_key)
        w.end_struct()


class DescribeLogDirsResponseTopic(Struct, kw_only=True):
    """Struct DescribeLogDirsTopic of DescribeLogDirsResponse."""

    name: str = ""
    partitions: list[DescribeLogDirsResponsePartition] = field(default_factory=list)

    @classmethod
    def read(cls, r: Reader, v: int) -> DescribeLogDirsResponseTopic:
        """Read one of version `v`."""
        m = DescribeLogDirsResponseTopic()
        m.name = r.string()
        m.partitions = [DescribeLogDirsResponsePartition.read(r, v) for _ in range(r.count())]
        r.skip_tags()
        return m

    def write(self, w: Writer, v: int) -> None:
        """Write it in version `v`."""
        w.string(self.name)
        for partitions_item in w.array(self.partitions):
            partitions_item.write(w, v)
        w.end_struct()


class DescribeLogDirsResponseResult(Struct, kw_only=True):
    """Struct DescribeLogDirsResult of DescribeLogDirsResponse."""

    error_code: int = 0
    log_dir: str = ""
    topics: list[DescribeLogDirsResponseTopic] = field(default_factory=list)
    total_bytes: int = -1
    usable_bytes: int = -1
    is_cordoned: bool = False

    @classmethod
    def read(cls, r: Reader, v: int) -> DescribeLogDirsResponseResult:
        """Read one of version `v`."""
        m = DescribeLogDirsResponseResult()
        m.error_code = r.int16()
        m.log_dir = r.string()
        m.topics = [DescribeLogDirsResponseTopic.read(r, v) for _ in range(r.count())]
        if v >= 4:
            m.total_bytes = r.int64()
            m.usable_bytes = r.int64()
        if v >= 5:
            m.is_cordoned = r.boolean()
        r.skip_tags()
        return m

    def write(self, w: Writer, v: int) -> None:
        """Write it in version `v`."""
        w.int16(self.error_code)
        w.string(self.log_dir)
        for topics_item in w.array(self.topics):
            topics_item.write(w, v)
        if v >= 4:
            w.int64(self.total_bytes)
            w.int64(self.usable_bytes)
        if v >= 5:
            w.boolean(self.is_cordoned)
        w.end_struct()


class DescribeLogDirsResponse(Struct, kw_only=True):
    """Message of API 35: versions 1 to 5, flexible from 2."""

    API_KEY: ClassVar[int] = 35

    throttle_time_ms: int = 0
    error_code: int = 0
    results: list[DescribeLogDirsResponseResult] = field(default_factory=list)

    @classmethod
    def read(cls, r: Reader, v: int) -> DescribeLogDirsResponse:
        """Read one of version `v`."""
        m = DescribeLogDirsResponse()
        m.throttle_time_ms = r.int32()
        if v >= 3:
            m.error_code = r.int16()
        m.results = [DescribeLogDirsResponseResult.read(r, v) for _ in range(r.count())]
        r.skip_tags()
        return m

    def write(self, w: Writer, v: int) -> None:
        """Write it in version `v`."""
        w.int32(self.throttle_time_ms)
        if v >= 3:
            w.int16(self.error_code)
        for results_item in w.array(self.results):
            results_item.write(w, v)
        w.end_struct()


class ElectLeadersRequestTopicPartitions(Struct, kw_only=True):
    """Struct TopicPartitions of ElectLeadersRequest."""

    topic: str = ""
    partitions: list[int] = field(default_factory=list)

    @classmethod
    def read(cls, r: Reader, v: int) -> ElectLeadersRequestTopicPartitions:
        """Read one of version `v`."""
        m = ElectLeadersRequestTopicPartitions()
        m.topic = r.string()
        m.partitions = [r.int32() for _ in range(r.count())]
        r.skip_tags()
        return m

    def write(self, w: Writer, v: int) -> None:
        """Write it in version `v`."""
        w.string(self.topic)
        for partitions_item in w.array(self.partitions):
            w.int32(partitions_item)
        w.end_struct()


class ElectLeadersRequest(Struct, kw_only=True):
    """Message of API 43: versions 0 to 2, flexible from 2."""

    API_KEY: ClassVar[int] = 43

    election_type: int = 0
    topic_partitions: list[ElectLeadersRequestTopicPartitions] | None = field(default_factory=list)
    timeout_ms: int = 60000

    @classmethod
    def read(cls, r: Reader, v: int) -> ElectLeadersRequest:
        """Read one of version `v`."""
        m = ElectLeadersRequest()
        if v >= 1:
            m.election_type = r.int8()
        n = r.nullable_count()
        m.topic_partitions = None if n is None else [ElectLeadersRequestTopicPartitions.read(r, v) for _ in range(n)]
        m.timeout_ms = r.int32()
        r.skip_tags()
        return m

    def write(self, w: Writer, v: int) -> None:
        """Write it in version `v`."""
        if v >= 1:
            w.int8(self.election_type)
        for topic_partitions_item in w.nullable_array(self.topic_partitions):
            topic_partitions_item.write(w, v)
        w.int32(self.timeout_ms)
        w.end_struct()


class ElectLeadersResponsePartitionResult(Struct, kw_only=True):
    """Struct PartitionResult of ElectLeadersResponse."""

    partition_id: int = 0
    error_code: int = 0
    error_message: str | None = ""

    @classmethod
    def read(cls, r: Reader, v: int) -> ElectLeadersResponsePartitionResult:
        """Read one of version `v`."""
        m = ElectLeadersResponsePartitionResult()
        m.partition_id = r.int32()
        m.error_code = r.int16()
        m.error_message = r.nullable_string()
        r.skip_tags()
        return m

    def write(self, w: Writer, v: int) -> None:
        """Write it in version `v`."""
        w.int32(self.partition_id)
        w.int16(self.error_code)
        w.nullable_string(self.error_message)
        w.end_struct()


class ElectLeadersResponseReplicaElectionResult(Struct, kw_only=True):
    """Struct ReplicaElectionResult of ElectLeadersResponse."""

    topic: str = ""
    partition_result: list[ElectLeadersResponsePartitionResult] = field(default_factory=list)

    @classmethod
    def read(cls, r: Reader, v: int) -> ElectLeadersResponseReplicaElectionResult:
        """Read one of version `v`."""
        m = ElectLeadersResponseReplicaElectionResult()
        m.topic = r.string()
        m.partition_result = [ElectLeadersResponsePartitionResult.read(r, v) for _ in range(r.count())]
        r.skip_tags()
        return m

    def write(self, w: Writer, v: int) -> None:
        """Write it in version `v`."""
        w.string(self.topic)
        for partition_result_item in w.array(self.partition_result):
            partition_result_item.write(w, v)
        w.end_struct()


class ElectLeadersResponse(Struct, kw_only=True):
    """Message of API 43: versions 0 to 2, flexible from 2."""

    API_KEY: ClassVar[int] = 43

    throttle_time_ms: int = 0
    error_code: int = 0
    replica_election_results: list[ElectLeadersResponseReplicaElectionResult] = field(default_factory=list)

    @classmethod
    def read(cls, r: Reader, v: int) -> ElectLeadersResponse:
        """Read one of version `v`."""
        m = ElectLeadersResponse()
        m.throttle_time_ms = r.int32()
        if v >= 1:
            m.error_code = r.int16()
        m.replica_election_results = [ElectLeadersResponseReplicaElectionResult.read(r, v) for _ in range(r.count())]
        r.skip_tags()
        return m

    def write(self, w: Writer, v: int) -> None:
        """Write it in version `v`."""
        w.int32(self.throttle_time_ms)
        if v >= 1:
            w.int16(self.error_code)
        for replica_election_results_item in w.array(self.replica_election_results):
            replica_election_results_item.write(w, v)
        w.end_struct()


class ListPartitionReassignmentsRequestTopics(Struct, kw_only=True):
    """Struct ListPartitionReassignmentsTopics of ListPartitionReassignmentsRequest."""

    name: str = ""
    partition_indexes: list[int] = field(default_factory=list)

    @classmethod
    def read(cls, r: Reader, v: int) -> ListPartitionReassignmentsRequestTopics:
        """Read one of version `v`."""
        m = ListPartitionReassignmentsRequestTopics()
        m.name = r.string()
        m.partition_indexes = [r.int32() for _ in range(r.count())]
        r.skip_tags()
        return m

    def write(self, w: Writer, v: int) -> None:
        """Write it in version `v`."""
        w.string(self.name)
        for partition_indexes_item in w.array(self.partition_indexes):
            w.int32(partition_indexes_item)
        w.end_struct()


class ListPartitionReassignmentsRequest(Struct, kw_only=True):
    """Message of API 46: versions 0 to 0, flexible from 0."""

    API_KEY: ClassVar[int] = 46

    timeout_ms: int = 60000
    topics: list[ListPartitionReassignmentsRequestTopics] | None = None

    @classmethod
    def read(cls, r: Reader, v: int) -> ListPartitionReassignmentsRequest:
        """Read one of version `v`."""
        m = ListPartitionReassignmentsRequest()
        m.timeout_ms = r.int32()
        n = r.nullable_count()
        m.topics = None if n is None else [ListPartitionReassignmentsRequestTopics.read(r, v) for _ in range(n)]
        r.skip_tags()
        return m

    def write(self, w: Writer, v: int) -> None:
        """Write it in version `v`."""
        w.int32(self.timeout_ms)
        for topics_item in w.nullable_array(self.topics):
            topics_item.write(w, v)
        w.end_struct()


class ListPartitionReassignmentsResponseOngoingPartitionReassignment(Struct, kw_only=True):
    """Struct OngoingPartitionReassignment of ListPartitionReassignmentsResponse."""

    partition_index: int = 0
    replicas: list[int] = field(default_factory=list)
    adding_replicas: list[int] = field(default_factory=list)
    removing_replicas: list[int] = field(default_factory=list)

    @classmethod
    def read(cls, r: Reader, v: int) -> ListPartitionReassignmentsResponseOngoingPartitionReassignment:
        """Read one of version `v`."""
        m = ListPartitionReassignmentsResponseOngoingPartitionReassignment()
        m.partition_index = r.int32()
        m.replicas = [r.int32() for _ in range(r.count())]
        m.adding_replicas = [r.int32() for _ in range(r.count())]
        m.removing_replicas = [r.int32() for _ in range(r.count())]
        r.skip_tags()
        return m

    def write(self, w: Writer, v: int) -> None:
        """Write it in version `v`."""
        w.int32(self.partition_index)
        for replicas_item in w.array(self.replicas):
            w.int32(replicas_item)
        for adding_replicas_item in w.array(self.adding_replicas):
            w.int32(adding_replicas_item)
        for removing_replicas_item in w.array(self.removing_replicas):
            w.int32(removing_replicas_item)
        w.end_struct()


class ListPartitionReassignmentsResponseOngoingTopicReassignment(Struct, kw_only=True):
    """Struct OngoingTopicReassignment of ListPartitionReassignmentsResponse."""

    name: str = ""
    partitions: list[ListPartitionReassignmentsResponseOngoingPartitionReassignment] = field(default_factory=list)

    @classmethod
    def read(cls, r: Reader, v: int) -> ListPartitionReassignmentsResponseOngoingTopicReassignment:
        """Read one of version `v`."""
        m = ListPartitionReassignmentsResponseOngoingTopicReassignment()
        m.name = r.string()
        m.partitions = [ListPartitionReassignmentsResponseOngoingPartitionReassignment.read(r, v) for _ in range(r.count())]
        r.skip_tags()
        return m

    def write(self, w: Writer, v: int) -> None:
        """Write it in version `v`."""
        w.string(self.name)
        for partitions_item in w.array(self.partitions):
            partitions_item.write(w, v)
        w.end_struct()


class ListPartitionReassignmentsResponse(Struct, kw_only=True):
    """Message of API 46: versions 0 to 0, flexible from 0."""

    API_KEY: ClassVar[int] = 46

    throttle_time_ms: int = 0
    error_code: int = 0
    error_message: str | None = ""
    topics: list[ListPartitionReassignmentsResponseOngoingTopicReassignment] = field(default_factory=list)

    @classmethod
    def read(cls, r: Reader, v: int) -> ListPartitionReassignmentsResponse:
        """Read one of version `v`."""
        m = ListPartitionReassignmentsResponse()
        m.throttle_time_ms = r.int32()
        m.error_code = r.int16()
        m.error_message = r.nullable_string()
        m.topics = [ListPartitionReassignmentsResponseOngoingTopicReassignment.read(r, v) for _ in range(r.count())]
        r.skip_tags()
        return m

    def write(self, w: Writer, v: int) -> None:
        """Write it in version `v`."""
        w.int32(self.throttle_time_ms)
        w.int16(self.error_code)
        w.nullable_string(self.error_message)
        for topics_item in w.array(self.topics):
            topics_item.write(w, v)
        w.end_struct()
