"""Messages of the wire protocol: Fetch. Made by scripts/kafka_messages; not to be changed by hand.

Owns the fields of these messages and their bytes in every version; must not know their purpose. A field that a version
lacks is read as its default, and is not written.
"""

from __future__ import annotations

from typing import ClassVar

from msgspec import Struct, field

from api.kafka.protocol.primitives import Reader, Tags, Writer


class FetchRequestReplicaState(Struct, kw_only=True):
    """Struct ReplicaState of FetchRequest."""

    replica_id: int = -1
    replica_epoch: int = -1

    @classmethod
    def read(cls, r: Reader, v: int) -> FetchRequestReplicaState:
        """Read one of version `v`."""
        m = cls()
        m.replica_id = r.int32()
        m.replica_epoch = r.int64()
        r.skip_tags()
        return m

    def write(self, w: Writer, v: int) -> None:
        """Write it in version `v`."""
        w.int32(self.replica_id)
        w.int64(self.replica_epoch)
        w.end_struct()


class FetchRequestPartition(Struct, kw_only=True):
    """Struct FetchPartition of FetchRequest."""

    partition: int = 0
    current_leader_epoch: int = -1
    fetch_offset: int = 0
    last_fetched_epoch: int = -1
    log_start_offset: int = -1
    partition_max_bytes: int = 0
    replica_directory_id: bytes = bytes(16)
    high_watermark: int = 9223372036854775807

    @classmethod
    def read(cls, r: Reader, v: int) -> FetchRequestPartition:
        """Read one of version `v`."""
        m = cls()
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
        if v >= 17 and self.replica_directory_id != bytes(16):
            w.tag(tags, 0).uuid(self.replica_directory_id)
        if v >= 18 and self.high_watermark != 9223372036854775807:
            w.tag(tags, 1).int64(self.high_watermark)
        w.end_struct(tags)


class FetchRequestTopic(Struct, kw_only=True):
    """Struct FetchTopic of FetchRequest."""

    topic: str = ""
    topic_id: bytes = bytes(16)
    partitions: list[FetchRequestPartition] = field(default_factory=list)

    @classmethod
    def read(cls, r: Reader, v: int) -> FetchRequestTopic:
        """Read one of version `v`."""
        m = cls()
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


class FetchRequestForgottenTopic(Struct, kw_only=True):
    """Struct ForgottenTopic of FetchRequest."""

    topic: str = ""
    topic_id: bytes = bytes(16)
    partitions: list[int] = field(default_factory=list)

    @classmethod
    def read(cls, r: Reader, v: int) -> FetchRequestForgottenTopic:
        """Read one of version `v`."""
        m = cls()
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


class FetchRequest(Struct, kw_only=True):
    """Message of API 1: versions 4 to 18, flexible from 12."""

    API_KEY: ClassVar[int] = 1

    cluster_id: str | None = None
    replica_id: int = -1
    replica_state: FetchRequestReplicaState = field(default_factory=lambda: FetchRequestReplicaState())
    max_wait_ms: int = 0
    min_bytes: int = 0
    max_bytes: int = 2147483647
    isolation_level: int = 0
    session_id: int = 0
    session_epoch: int = -1
    topics: list[FetchRequestTopic] = field(default_factory=list)
    forgotten_topics_data: list[FetchRequestForgottenTopic] = field(default_factory=list)
    rack_id: str = ""

    @classmethod
    def read(cls, r: Reader, v: int) -> FetchRequest:
        """Read one of version `v`."""
        m = cls()
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
        if v >= 15 and self.replica_state != FetchRequestReplicaState():
            self.replica_state.write(w.tag(tags, 1), v)
        w.end_struct(tags)


class FetchResponseEpochEndOffset(Struct, kw_only=True):
    """Struct EpochEndOffset of FetchResponse."""

    epoch: int = -1
    end_offset: int = -1

    @classmethod
    def read(cls, r: Reader, v: int) -> FetchResponseEpochEndOffset:
        """Read one of version `v`."""
        m = cls()
        m.epoch = r.int32()
        m.end_offset = r.int64()
        r.skip_tags()
        return m

    def write(self, w: Writer, v: int) -> None:
        """Write it in version `v`."""
        w.int32(self.epoch)
        w.int64(self.end_offset)
        w.end_struct()


class FetchResponseLeaderIdAndEpoch(Struct, kw_only=True):
    """Struct LeaderIdAndEpoch of FetchResponse."""

    leader_id: int = -1
    leader_epoch: int = -1

    @classmethod
    def read(cls, r: Reader, v: int) -> FetchResponseLeaderIdAndEpoch:
        """Read one of version `v`."""
        m = cls()
        m.leader_id = r.int32()
        m.leader_epoch = r.int32()
        r.skip_tags()
        return m

    def write(self, w: Writer, v: int) -> None:
        """Write it in version `v`."""
        w.int32(self.leader_id)
        w.int32(self.leader_epoch)
        w.end_struct()


class FetchResponseSnapshotId(Struct, kw_only=True):
    """Struct SnapshotId of FetchResponse."""

    end_offset: int = -1
    epoch: int = -1

    @classmethod
    def read(cls, r: Reader, v: int) -> FetchResponseSnapshotId:
        """Read one of version `v`."""
        m = cls()
        m.end_offset = r.int64()
        m.epoch = r.int32()
        r.skip_tags()
        return m

    def write(self, w: Writer, v: int) -> None:
        """Write it in version `v`."""
        w.int64(self.end_offset)
        w.int32(self.epoch)
        w.end_struct()


class FetchResponseAbortedTransaction(Struct, kw_only=True):
    """Struct AbortedTransaction of FetchResponse."""

    producer_id: int = 0
    first_offset: int = 0

    @classmethod
    def read(cls, r: Reader, v: int) -> FetchResponseAbortedTransaction:
        """Read one of version `v`."""
        m = cls()
        m.producer_id = r.int64()
        m.first_offset = r.int64()
        r.skip_tags()
        return m

    def write(self, w: Writer, v: int) -> None:
        """Write it in version `v`."""
        w.int64(self.producer_id)
        w.int64(self.first_offset)
        w.end_struct()


class FetchResponsePartitionData(Struct, kw_only=True):
    """Struct PartitionData of FetchResponse."""

    partition_index: int = 0
    error_code: int = 0
    high_watermark: int = 0
    last_stable_offset: int = -1
    log_start_offset: int = -1
    diverging_epoch: FetchResponseEpochEndOffset = field(default_factory=lambda: FetchResponseEpochEndOffset())
    current_leader: FetchResponseLeaderIdAndEpoch = field(default_factory=lambda: FetchResponseLeaderIdAndEpoch())
    snapshot_id: FetchResponseSnapshotId = field(default_factory=lambda: FetchResponseSnapshotId())
    aborted_transactions: list[FetchResponseAbortedTransaction] | None = field(default_factory=list)
    preferred_read_replica: int = -1
    records: bytes | bytearray | None = b""

    @classmethod
    def read(cls, r: Reader, v: int) -> FetchResponsePartitionData:
        """Read one of version `v`."""
        m = cls()
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
        if v >= 12 and self.diverging_epoch != FetchResponseEpochEndOffset():
            self.diverging_epoch.write(w.tag(tags, 0), v)
        if v >= 12 and self.current_leader != FetchResponseLeaderIdAndEpoch():
            self.current_leader.write(w.tag(tags, 1), v)
        if v >= 12 and self.snapshot_id != FetchResponseSnapshotId():
            self.snapshot_id.write(w.tag(tags, 2), v)
        w.end_struct(tags)


class FetchResponseFetchableTopicResponse(Struct, kw_only=True):
    """Struct FetchableTopicResponse of FetchResponse."""

    topic: str = ""
    topic_id: bytes = bytes(16)
    partitions: list[FetchResponsePartitionData] = field(default_factory=list)

    @classmethod
    def read(cls, r: Reader, v: int) -> FetchResponseFetchableTopicResponse:
        """Read one of version `v`."""
        m = cls()
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


class FetchResponseNodeEndpoint(Struct, kw_only=True):
    """Struct NodeEndpoint of FetchResponse."""

    node_id: int = 0
    host: str = ""
    port: int = 0
    rack: str | None = None

    @classmethod
    def read(cls, r: Reader, v: int) -> FetchResponseNodeEndpoint:
        """Read one of version `v`."""
        m = cls()
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


class FetchResponse(Struct, kw_only=True):
    """Message of API 1: versions 4 to 18, flexible from 12."""

    API_KEY: ClassVar[int] = 1

    throttle_time_ms: int = 0
    error_code: int = 0
    session_id: int = 0
    responses: list[FetchResponseFetchableTopicResponse] = field(default_factory=list)
    node_endpoints: list[FetchResponseNodeEndpoint] = field(default_factory=list)

    @classmethod
    def read(cls, r: Reader, v: int) -> FetchResponse:
        """Read one of version `v`."""
        m = cls()
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
