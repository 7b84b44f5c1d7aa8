"""Messages of the wire protocol: Fetch. Made by scripts/kafka_messages; not to be changed by hand.

Owns the fields of these messages and their bytes in every version; must not know their purpose. A field that a version
lacks is read as its default, and is not written.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from api.kafka.protocol.primitives import EMPTY, Fields, NO_UUID, Reader, Tags, Writer


class FetchRequestReplicaState(Fields):
    """Struct ReplicaState of FetchRequest."""

    FIELDS: ClassVar[Sequence[str]] = ("replica_id", "replica_epoch")

    def __init__(self, *, replica_id: int = -1, replica_epoch: int = -1) -> None:
        self.replica_id = replica_id
        self.replica_epoch = replica_epoch

    @classmethod
    def read(cls, r: Reader, v: int) -> FetchRequestReplicaState:
        """Read one of version `v`."""
        m = FetchRequestReplicaState()
        m.replica_id = r.int32()
        m.replica_epoch = r.int64()
        r.skip_tags()
        return m

    def write(self, w: Writer, v: int) -> None:
        """Write it in version `v`."""
        w.int32(self.replica_id)
        w.int64(self.replica_epoch)
        w.end_struct()


class FetchRequestPartition(Fields):
    """Struct FetchPartition of FetchRequest."""

    FIELDS: ClassVar[Sequence[str]] = ("partition", "current_leader_epoch", "fetch_offset", "last_fetched_epoch",
        "log_start_offset", "partition_max_bytes", "replica_directory_id", "high_watermark")

    def __init__(
        self,
        *,
        partition: int = 0,
        current_leader_epoch: int = -1,
        fetch_offset: int = 0,
        last_fetched_epoch: int = -1,
        log_start_offset: int = -1,
        partition_max_bytes: int = 0,
        replica_directory_id: bytes = NO_UUID,
        high_watermark: int = 9223372036854775807,
    ) -> None:
        self.partition = partition
        self.current_leader_epoch = current_leader_epoch
        self.fetch_offset = fetch_offset
        self.last_fetched_epoch = last_fetched_epoch
        self.log_start_offset = log_start_offset
        self.partition_max_bytes = partition_max_bytes
        self.replica_directory_id = replica_directory_id
        self.high_watermark = high_watermark

    @classmethod
    def read(cls, r: Reader, v: int) -> FetchRequestPartition:
        """Read one of version `v`."""
        m = FetchRequestPartition()
        m.partition = r.int32()
        if v >= 9:
            m.current_leader_epoch = r.int32()
        m.fetch_offset = r.int64()
        if v >= 12:
            m.last_fetched_epoch = r.int32()
        if v >= 5:
            m.log_start_offset = r.int64()
        m.partition_max_bytes = r.int32()
        for tag in r.tags():
            if tag == 0 and v >= 17:
                m.replica_directory_id = r.uuid()
            elif tag == 1 and v >= 18:
                m.high_watermark = r.int64()
            else:
                r.skip_tag()
        return m

    def write(self, w: Writer, v: int) -> None:
        """Write it in version `v`."""
        w.int32(self.partition)
        if v >= 9:
            w.int32(self.current_leader_epoch)
        w.int64(self.fetch_offset)
        if v >= 12:
            w.int32(self.last_fetched_epoch)
        if v >= 5:
            w.int64(self.log_start_offset)
        w.int32(self.partition_max_bytes)
        tags: Tags = []
        if v >= 17 and self.replica_directory_id != NO_UUID:
            w.tag(tags, 0).uuid(self.replica_directory_id)
        if v >= 18 and self.high_watermark != 9223372036854775807:
            w.tag(tags, 1).int64(self.high_watermark)
        w.end_struct(tags)


class FetchRequestTopic(Fields):
    """Struct FetchTopic of FetchRequest."""

    FIELDS: ClassVar[Sequence[str]] = ("topic", "topic_id", "partitions")

    def __init__(
        self,
        *,
        topic: str = "",
        topic_id: bytes = NO_UUID,
        partitions: list[FetchRequestPartition] = EMPTY,
    ) -> None:
        self.topic = topic
        self.topic_id = topic_id
        self.partitions = [] if partitions is EMPTY else partitions

    @classmethod
    def read(cls, r: Reader, v: int) -> FetchRequestTopic:
        """Read one of version `v`."""
        m = FetchRequestTopic()
        if v <= 12:
            m.topic = r.string()
        if v >= 13:
            m.topic_id = r.uuid()
        m.partitions = [FetchRequestPartition.read(r, v) for _ in range(r.count())]
        r.skip_tags()
        return m

    def write(self, w: Writer, v: int) -> None:
        """Write it in version `v`."""
        if v <= 12:
            w.string(self.topic)
        if v >= 13:
            w.uuid(self.topic_id)
        for partitions_item in w.array(self.partitions):
            partitions_item.write(w, v)
        w.end_struct()


class FetchRequestForgottenTopic(Fields):
    """Struct ForgottenTopic of FetchRequest."""

    FIELDS: ClassVar[Sequence[str]] = ("topic", "topic_id", "partitions")

    def __init__(self, *, topic: str = "", topic_id: bytes = NO_UUID, partitions: list[int] = EMPTY) -> None:
        self.topic = topic
        self.topic_id = topic_id
        self.partitions = [] if partitions is EMPTY else partitions

    @classmethod
    def read(cls, r: Reader, v: int) -> FetchRequestForgottenTopic:
        """Read one of version `v`."""
        m = FetchRequestForgottenTopic()
        if v <= 12:
            m.topic = r.string()
        if v >= 13:
            m.topic_id = r.uuid()
        m.partitions = [r.int32() for _ in range(r.count())]
        r.skip_tags()
        return m

    def write(self, w: Writer, v: int) -> None:
        """Write it in version `v`."""
        if v <= 12:
            w.string(self.topic)
        if v >= 13:
            w.uuid(self.topic_id)
        for partitions_item in w.array(self.partitions):
            w.int32(partitions_item)
        w.end_struct()


class FetchRequest(Fields):
    """Message of API 1: versions 4 to 18, flexible from 12."""

    API_KEY: ClassVar[int] = 1
    FIELDS: ClassVar[Sequence[str]] = ("cluster_id", "replica_id", "replica_state", "max_wait_ms", "min_bytes",
        "max_bytes", "isolation_level", "session_id", "session_epoch", "topics", "forgotten_topics_data", "rack_id")

    def __init__(
        self,
        *,
        cluster_id: str | None = None,
        replica_id: int = -1,
        replica_state: FetchRequestReplicaState | None = None,
        max_wait_ms: int = 0,
        min_bytes: int = 0,
        max_bytes: int = 2147483647,
        isolation_level: int = 0,
        session_id: int = 0,
        session_epoch: int = -1,
        topics: list[FetchRequestTopic] = EMPTY,
        forgotten_topics_data: list[FetchRequestForgottenTopic] = EMPTY,
        rack_id: str = "",
    ) -> None:
        self.cluster_id = cluster_id
        self.replica_id = replica_id
        self.replica_state = FetchRequestReplicaState() if replica_state is None else replica_state
        self.max_wait_ms = max_wait_ms
        self.min_bytes = min_bytes
        self.max_bytes = max_bytes
        self.isolation_level = isolation_level
        self.session_id = session_id
        self.session_epoch = session_epoch
        self.topics = [] if topics is EMPTY else topics
        self.forgotten_topics_data = [] if forgotten_topics_data is EMPTY else forgotten_topics_data
        self.rack_id = rack_id

    @classmethod
    def read(cls, r: Reader, v: int) -> FetchRequest:
        """Read one of version `v`."""
        m = FetchRequest()
        if v <= 14:
            m.replica_id = r.int32()
        m.max_wait_ms = r.int32()
        m.min_bytes = r.int32()
        m.max_bytes = r.int32()
        m.isolation_level = r.int8()
        if v >= 7:
            m.session_id = r.int32()
            m.session_epoch = r.int32()
        m.topics = [FetchRequestTopic.read(r, v) for _ in range(r.count())]
        if v >= 7:
            m.forgotten_topics_data = [FetchRequestForgottenTopic.read(r, v) for _ in range(r.count())]
        if v >= 11:
            m.rack_id = r.string()
        for tag in r.tags():
            if tag == 0 and v >= 12:
                m.cluster_id = r.nullable_string()
            elif tag == 1 and v >= 15:
                m.replica_state = FetchRequestReplicaState.read(r, v)
            else:
                r.skip_tag()
        return m

    def write(self, w: Writer, v: int) -> None:
        """Write it in version `v`."""
        if v <= 14:
            w.int32(self.replica_id)
        w.int32(self.max_wait_ms)
        w.int32(self.min_bytes)
        w.int32(self.max_bytes)
        w.int8(self.isolation_level)
        if v >= 7:
            w.int32(self.session_id)
            w.int32(self.session_epoch)
        for topics_item in w.array(self.topics):
            topics_item.write(w, v)
        if v >= 7:
            for forgotten_topics_data_item in w.array(self.forgotten_topics_data):
                forgotten_topics_data_item.write(w, v)
        if v >= 11:
            w.string(self.rack_id)
        tags: Tags = []
        if v >= 12 and self.cluster_id is not None:
            w.tag(tags, 0).nullable_string(self.cluster_id)
        if v >= 15 and (self.replica_state.replica_id != -1 or self.replica_state.replica_epoch != -1):
            self.replica_state.write(w.tag(tags, 1), v)
        w.end_struct(tags)


class FetchResponseEpochEndOffset(Fields):
    """Struct EpochEndOffset of FetchResponse."""

    FIELDS: ClassVar[Sequence[str]] = ("epoch", "end_offset")

    def __init__(self, *, epoch: int = -1, end_offset: int = -1) -> None:
        self.epoch = epoch
        self.end_offset = end_offset

    @classmethod
    def read(cls, r: Reader, v: int) -> FetchResponseEpochEndOffset:
        """Read one of version `v`."""
        m = FetchResponseEpochEndOffset()
        m.epoch = r.int32()
        m.end_offset = r.int64()
        r.skip_tags()
        return m

    def write(self, w: Writer, v: int) -> None:
        """Write it in version `v`."""
        w.int32(self.epoch)
        w.int64(self.end_offset)
        w.end_struct()


class FetchResponseLeaderIdAndEpoch(Fields):
    """Struct LeaderIdAndEpoch of FetchResponse."""

    FIELDS: ClassVar[Sequence[str]] = ("leader_id", "leader_epoch")

    def __init__(self, *, leader_id: int = -1, leader_epoch: int = -1) -> None:
        self.leader_id = leader_id
        self.leader_epoch = leader_epoch

    @classmethod
    def read(cls, r: Reader, v: int) -> FetchResponseLeaderIdAndEpoch:
        """Read one of version `v`."""
        m = FetchResponseLeaderIdAndEpoch()
        m.leader_id = r.int32()
        m.leader_epoch = r.int32()
        r.skip_tags()
        return m

    def write(self, w: Writer, v: int) -> None:
        """Write it in version `v`."""
        w.int32(self.leader_id)
        w.int32(self.leader_epoch)
        w.end_struct()


class FetchResponseSnapshotId(Fields):
    """Struct SnapshotId of FetchResponse."""

    FIELDS: ClassVar[Sequence[str]] = ("end_offset", "epoch")

    def __init__(self, *, end_offset: int = -1, epoch: int = -1) -> None:
        self.end_offset = end_offset
        self.epoch = epoch

    @classmethod
    def read(cls, r: Reader, v: int) -> FetchResponseSnapshotId:
        """Read one of version `v`."""
        m = FetchResponseSnapshotId()
        m.end_offset = r.int64()
        m.epoch = r.int32()
        r.skip_tags()
        return m

    def write(self, w: Writer, v: int) -> None:
        """Write it in version `v`."""
        w.int64(self.end_offset)
        w.int32(self.epoch)
        w.end_struct()


class FetchResponseAbortedTransaction(Fields):
    """Struct AbortedTransaction of FetchResponse."""

    FIELDS: ClassVar[Sequence[str]] = ("producer_id", "first_offset")

    def __init__(self, *, producer_id: int = 0, first_offset: int = 0) -> None:
        self.producer_id = producer_id
        self.first_offset = first_offset

    @classmethod
    def read(cls, r: Reader, v: int) -> FetchResponseAbortedTransaction:
        """Read one of version `v`."""
        m = FetchResponseAbortedTransaction()
        m.producer_id = r.int64()
        m.first_offset = r.int64()
        r.skip_tags()
        return m

    def write(self, w: Writer, v: int) -> None:
        """Write it in version `v`."""
        w.int64(self.producer_id)
        w.int64(self.first_offset)
        w.end_struct()


class FetchResponsePartitionData(Fields):
    """Struct PartitionData of FetchResponse."""

    FIELDS: ClassVar[Sequence[str]] = ("partition_index", "error_code", "high_watermark", "last_stable_offset",
        "log_start_offset", "diverging_epoch", "current_leader", "snapshot_id", "aborted_transactions",
        "preferred_read_replica", "records")

    def __init__(
        self,
        *,
        partition_index: int = 0,
        error_code: int = 0,
        high_watermark: int = 0,
        last_stable_offset: int = -1,
        log_start_offset: int = -1,
        diverging_epoch: FetchResponseEpochEndOffset | None = None,
        current_leader: FetchResponseLeaderIdAndEpoch | None = None,
        snapshot_id: FetchResponseSnapshotId | None = None,
        aborted_transactions: list[FetchResponseAbortedTransaction] | None = EMPTY,
        preferred_read_replica: int = -1,
        records: bytes | bytearray | None = b"",
    ) -> None:
        self.partition_index = partition_index
        self.error_code = error_code
        self.high_watermark = high_watermark
        self.last_stable_offset = last_stable_offset
        self.log_start_offset = log_start_offset
        self.diverging_epoch = FetchResponseEpochEndOffset() if diverging_epoch is None else diverging_epoch
        self.current_leader = FetchResponseLeaderIdAndEpoch() if current_leader is None else current_leader
        self.snapshot_id = FetchResponseSnapshotId() if snapshot_id is None else snapshot_id
        self.aborted_transactions = [] if aborted_transactions is EMPTY else aborted_transactions
        self.preferred_read_replica = preferred_read_replica
        self.records = records

    @classmethod
    def read(cls, r: Reader, v: int) -> FetchResponsePartitionData:
        """Read one of version `v`."""
        m = FetchResponsePartitionData()
        m.partition_index = r.int32()
        m.error_code = r.int16()
        m.high_watermark = r.int64()
        m.last_stable_offset = r.int64()
        if v >= 5:
            m.log_start_offset = r.int64()
        n = r.nullable_count()
        m.aborted_transactions = None if n is None else [FetchResponseAbortedTransaction.read(r, v) for _ in range(n)]
        if v >= 11:
            m.preferred_read_replica = r.int32()
        m.records = r.nullable_data()
        for tag in r.tags():
            if tag == 0 and v >= 12:
                m.diverging_epoch = FetchResponseEpochEndOffset.read(r, v)
            elif tag == 1 and v >= 12:
                m.current_leader = FetchResponseLeaderIdAndEpoch.read(r, v)
            elif tag == 2 and v >= 12:
                m.snapshot_id = FetchResponseSnapshotId.read(r, v)
            else:
                r.skip_tag()
        return m

    def write(self, w: Writer, v: int) -> None:
        """Write it in version `v`."""
        w.int32(self.partition_index)
        w.int16(self.error_code)
        w.int64(self.high_watermark)
        w.int64(self.last_stable_offset)
        if v >= 5:
            w.int64(self.log_start_offset)
        for aborted_transactions_item in w.nullable_array(self.aborted_transactions):
            aborted_transactions_item.write(w, v)
        if v >= 11:
            w.int32(self.preferred_read_replica)
        w.nullable_data(self.records)
        tags: Tags = []
        if v >= 12 and (self.diverging_epoch.epoch != -1 or self.diverging_epoch.end_offset != -1):
            self.diverging_epoch.write(w.tag(tags, 0), v)
        if v >= 12 and (self.current_leader.leader_id != -1 or self.current_leader.leader_epoch != -1):
            self.current_leader.write(w.tag(tags, 1), v)
        if v >= 12 and (self.snapshot_id.end_offset != -1 or self.snapshot_id.epoch != -1):
            self.snapshot_id.write(w.tag(tags, 2), v)
        w.end_struct(tags)


class FetchResponseFetchableTopicResponse(Fields):
    """Struct FetchableTopicResponse of FetchResponse."""

    FIELDS: ClassVar[Sequence[str]] = ("topic", "topic_id", "partitions")

    def __init__(
        self,
        *,
        topic: str = "",
        topic_id: bytes = NO_UUID,
        partitions: list[FetchResponsePartitionData] = EMPTY,
    ) -> None:
        self.topic = topic
        self.topic_id = topic_id
        self.partitions = [] if partitions is EMPTY else partitions

    @classmethod
    def read(cls, r: Reader, v: int) -> FetchResponseFetchableTopicResponse:
        """Read one of version `v`."""
        m = FetchResponseFetchableTopicResponse()
        if v <= 12:
            m.topic = r.string()
        if v >= 13:
            m.topic_id = r.uuid()
        m.partitions = [FetchResponsePartitionData.read(r, v) for _ in range(r.count())]
        r.skip_tags()
        return m

    def write(self, w: Writer, v: int) -> None:
        """Write it in version `v`."""
        if v <= 12:
            w.string(self.topic)
        if v >= 13:
            w.uuid(self.topic_id)
        for partitions_item in w.array(self.partitions):
            partitions_item.write(w, v)
        w.end_struct()


class FetchResponseNodeEndpoint(Fields):
    """Struct NodeEndpoint of FetchResponse."""

    FIELDS: ClassVar[Sequence[str]] = ("node_id", "host", "port", "rack")

    def __init__(self, *, node_id: int = 0, host: str = "", port: int = 0, rack: str | None = None) -> None:
        self.node_id = node_id
        self.host = host
        self.port = port
        self.rack = rack

    @classmethod
    def read(cls, r: Reader, v: int) -> FetchResponseNodeEndpoint:
        """Read one of version `v`."""
        m = FetchResponseNodeEndpoint()
        m.node_id = r.int32()
        m.host = r.string()
        m.port = r.int32()
        m.rack = r.nullable_string()
        r.skip_tags()
        return m

    def write(self, w: Writer, v: int) -> None:
        """Write it in version `v`."""
        w.int32(self.node_id)
        w.string(self.host)
        w.int32(self.port)
        w.nullable_string(self.rack)
        w.end_struct()


class FetchResponse(Fields):
    """Message of API 1: versions 4 to 18, flexible from 12."""

    API_KEY: ClassVar[int] = 1
    FIELDS: ClassVar[Sequence[str]] = ("throttle_time_ms", "error_code", "session_id", "responses", "node_endpoints")

    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        error_code: int = 0,
        session_id: int = 0,
        responses: list[FetchResponseFetchableTopicResponse] = EMPTY,
        node_endpoints: list[FetchResponseNodeEndpoint] = EMPTY,
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.error_code = error_code
        self.session_id = session_id
        self.responses = [] if responses is EMPTY else responses
        self.node_endpoints = [] if node_endpoints is EMPTY else node_endpoints

    @classmethod
    def read(cls, r: Reader, v: int) -> FetchResponse:
        """Read one of version `v`."""
        m = FetchResponse()
        m.throttle_time_ms = r.int32()
        if v >= 7:
            m.error_code = r.int16()
            m.session_id = r.int32()
        m.responses = [FetchResponseFetchableTopicResponse.read(r, v) for _ in range(r.count())]
        for tag in r.tags():
            if tag == 0 and v >= 16:
                m.node_endpoints = [FetchResponseNodeEndpoint.read(r, v) for _ in range(r.count())]
            else:
                r.skip_tag()
        return m

    def write(self, w: Writer, v: int) -> None:
        """Write it in version `v`."""
        w.int32(self.throttle_time_ms)
        if v >= 7:
            w.int16(self.error_code)
            w.int32(self.session_id)
        for responses_item in w.array(self.responses):
            responses_item.write(w, v)
        tags: Tags = []
        if v >= 16 and self.node_endpoints:
            t = w.tag(tags, 0)
            for node_endpoints_item in t.array(self.node_endpoints):
                node_endpoints_item.write(t, v)
        w.end_struct(tags)
