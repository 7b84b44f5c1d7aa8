"""Messages of the wire protocol: DeleteRecords, ListOffsets, OffsetForLeaderEpoch. Made by scripts/kafka_messages; not to be changed by hand.

Owns the fields of these messages and their bytes in every version; must not know their purpose. A field that a version
lacks is read as its default, and is not written.
"""

from __future__ import annotations

from typing import ClassVar

from msgspec import Struct, field

from api.kafka.protocol.primitives import Reader, Writer


class DeleteRecordsRequestPartition(Struct, kw_only=True):
    """Struct DeleteRecordsPartition of DeleteRecordsRequest."""

    partition_index: int = 0
    offset: int = 0

    @classmethod
    def read(cls, r: Reader, v: int) -> DeleteRecordsRequestPartition:
        """Read one of version `v`."""
        m = cls()
        m.partition_index = r.int32()
        m.offset = r.int64()
        r.skip_tags()
        return m

    def write(self, w: Writer, v: int) -> None:
        """Write it in version `v`."""
        w.int32(self.partition_index)
        w.int64(self.offset)
        w.end_struct()


class DeleteRecordsRequestTopic(Struct, kw_only=True):
    """Struct DeleteRecordsTopic of DeleteRecordsRequest."""

    name: str = ""
    partitions: list[DeleteRecordsRequestPartition] = field(default_factory=list)

    @classmethod
    def read(cls, r: Reader, v: int) -> DeleteRecordsRequestTopic:
        """Read one of version `v`."""
        m = cls()
        m.name = r.string()
        m.partitions = [DeleteRecordsRequestPartition.read(r, v) for _ in range(r.count())]
        r.skip_tags()
        return m

    def write(self, w: Writer, v: int) -> None:
        """Write it in version `v`."""
        w.string(self.name)
        for partitions_item in w.array(self.partitions):
            partitions_item.write(w, v)
        w.end_struct()


class DeleteRecordsRequest(Struct, kw_only=True):
    """Message of API 21: versions 0 to 2, flexible from 2."""

    API_KEY: ClassVar[int] = 21

    topics: list[DeleteRecordsRequestTopic] = field(default_factory=list)
    timeout_ms: int = 0

    @classmethod
    def read(cls, r: Reader, v: int) -> DeleteRecordsRequest:
        """Read one of version `v`."""
        m = cls()
        m.topics = [DeleteRecordsRequestTopic.read(r, v) for _ in range(r.count())]
        m.timeout_ms = r.int32()
        r.skip_tags()
        return m

    def write(self, w: Writer, v: int) -> None:
        """Write it in version `v`."""
        for topics_item in w.array(self.topics):
            topics_item.write(w, v)
        w.int32(self.timeout_ms)
        w.end_struct()


class DeleteRecordsResponsePartitionResult(Struct, kw_only=True):
    """Struct DeleteRecordsPartitionResult of DeleteRecordsResponse."""

    partition_index: int = 0
    low_watermark: int = 0
    error_code: int = 0

    @classmethod
    def read(cls, r: Reader, v: int) -> DeleteRecordsResponsePartitionResult:
        """Read one of version `v`."""
        m = cls()
        m.partition_index = r.int32()
        m.low_watermark = r.int64()
        m.error_code = r.int16()
        r.skip_tags()
        return m

    def write(self, w: Writer, v: int) -> None:
        """Write it in version `v`."""
        w.int32(self.partition_index)
        w.int64(self.low_watermark)
        w.int16(self.error_code)
        w.end_struct()


class DeleteRecordsResponseTopicResult(Struct, kw_only=True):
    """Struct DeleteRecordsTopicResult of DeleteRecordsResponse."""

    name: str = ""
    partitions: list[DeleteRecordsResponsePartitionResult] = field(default_factory=list)

    @classmethod
    def read(cls, r: Reader, v: int) -> DeleteRecordsResponseTopicResult:
        """Read one of version `v`."""
        m = cls()
        m.name = r.string()
        m.partitions = [DeleteRecordsResponsePartitionResult.read(r, v) for _ in range(r.count())]
        r.skip_tags()
        return m

    def write(self, w: Writer, v: int) -> None:
        """Write it in version `v`."""
        w.string(self.name)
        for partitions_item in w.array(self.partitions):
            partitions_item.write(w, v)
        w.end_struct()


class DeleteRecordsResponse(Struct, kw_only=True):
    """Message of API 21: versions 0 to 2, flexible from 2."""

    API_KEY: ClassVar[int] = 21

    throttle_time_ms: int = 0
    topics: list[DeleteRecordsResponseTopicResult] = field(default_factory=list)

    @classmethod
    def read(cls, r: Reader, v: int) -> DeleteRecordsResponse:
        """Read one of version `v`."""
        m = cls()
        m.throttle_time_ms = r.int32()
        m.topics = [DeleteRecordsResponseTopicResult.read(r, v) for _ in range(r.count())]
        r.skip_tags()
        return m

    def write(self, w: Writer, v: int) -> None:
        """Write it in version `v`."""
        w.int32(self.throttle_time_ms)
        for topics_item in w.array(self.topics):
            topics_item.write(w, v)
        w.end_struct()


class ListOffsetsRequestPartition(Struct, kw_only=True):
    """Struct ListOffsetsPartition of ListOffsetsRequest."""

    partition_index: int = 0
    current_leader_epoch: int = -1
    timestamp: int = 0

    @classmethod
    def read(cls, r: Reader, v: int) -> ListOffsetsRequestPartition:
        """Read one of version `v`."""
        m = cls()
        m.partition_index = r.int32()
        if v >= 4:
            m.current_leader_epoch = r.int32()
        m.timestamp = r.int64()
        r.skip_tags()
        return m

    def write(self, w: Writer, v: int) -> None:
        """Write it in version `v`."""
        w.int32(self.partition_index)
        if v >= 4:
            w.int32(self.current_leader_epoch)
        w.int64(self.timestamp)
        w.end_struct()


class ListOffsetsRequestTopic(Struct, kw_only=True):
    """Struct ListOffsetsTopic of ListOffsetsRequest."""

    name: str = ""
    partitions: list[ListOffsetsRequestPartition] = field(default_factory=list)

    @classmethod
    def read(cls, r: Reader, v: int) -> ListOffsetsRequestTopic:
        """Read one of version `v`."""
        m = cls()
        m.name = r.string()
        m.partitions = [ListOffsetsRequestPartition.read(r, v) for _ in range(r.count())]
        r.skip_tags()
        return m

    def write(self, w: Writer, v: int) -> None:
        """Write it in version `v`."""
        w.string(self.name)
        for partitions_item in w.array(self.partitions):
            partitions_item.write(w, v)
        w.end_struct()


class ListOffsetsRequest(Struct, kw_only=True):
    """Message of API 2: versions 1 to 11, flexible from 6."""

    API_KEY: ClassVar[int] = 2

    replica_id: int = 0
    isolation_level: int = 0
    topics: list[ListOffsetsRequestTopic] = field(default_factory=list)
    timeout_ms: int = 0

    @classmethod
    def read(cls, r: Reader, v: int) -> ListOffsetsRequest:
        """Read one of version `v`."""
        m = cls()
        m.replica_id = r.int32()
        if v >= 2:
            m.isolation_level = r.int8()
        m.topics = [ListOffsetsRequestTopic.read(r, v) for _ in range(r.count())]
        if v >= 10:
            m.timeout_ms = r.int32()
        r.skip_tags()
        return m

    def write(self, w: Writer, v: int) -> None:
        """Write it in version `v`."""
        w.int32(self.replica_id)
        if v >= 2:
            w.int8(self.isolation_level)
        for topics_item in w.array(self.topics):
            topics_item.write(w, v)
        if v >= 10:
            w.int32(self.timeout_ms)
        w.end_struct()


class ListOffsetsResponsePartitionResponse(Struct, kw_only=True):
    """Struct ListOffsetsPartitionResponse of ListOffsetsResponse."""

    partition_index: int = 0
    error_code: int = 0
    timestamp: int = -1
    offset: int = -1
    leader_epoch: int = -1

    @classmethod
    def read(cls, r: Reader, v: int) -> ListOffsetsResponsePartitionResponse:
        """Read one of version `v`."""
        m = cls()
        m.partition_index = r.int32()
        m.error_code = r.int16()
        m.timestamp = r.int64()
        m.offset = r.int64()
        if v >= 4:
            m.leader_epoch = r.int32()
        r.skip_tags()
        return m

    def write(self, w: Writer, v: int) -> None:
        """Write it in version `v`."""
        w.int32(self.partition_index)
        w.int16(self.error_code)
        w.int64(self.timestamp)
        w.int64(self.offset)
        if v >= 4:
            w.int32(self.leader_epoch)
        w.end_struct()


class ListOffsetsResponseTopicResponse(Struct, kw_only=True):
    """Struct ListOffsetsTopicResponse of ListOffsetsResponse."""

    name: str = ""
    partitions: list[ListOffsetsResponsePartitionResponse] = field(default_factory=list)

    @classmethod
    def read(cls, r: Reader, v: int) -> ListOffsetsResponseTopicResponse:
        """Read one of version `v`."""
        m = cls()
        m.name = r.string()
        m.partitions = [ListOffsetsResponsePartitionResponse.read(r, v) for _ in range(r.count())]
        r.skip_tags()
        return m

    def write(self, w: Writer, v: int) -> None:
        """Write it in version `v`."""
        w.string(self.name)
        for partitions_item in w.array(self.partitions):
            partitions_item.write(w, v)
        w.end_struct()


class ListOffsetsResponse(Struct, kw_only=True):
    """Message of API 2: versions 1 to 11, flexible from 6."""

    API_KEY: ClassVar[int] = 2

    throttle_time_ms: int = 0
    topics: list[ListOffsetsResponseTopicResponse] = field(default_factory=list)

    @classmethod
    def read(cls, r: Reader, v: int) -> ListOffsetsResponse:
        """Read one of version `v`."""
        m = cls()
        if v >= 2:
            m.throttle_time_ms = r.int32()
        m.topics = [ListOffsetsResponseTopicResponse.read(r, v) for _ in range(r.count())]
        r.skip_tags()
        return m

    def write(self, w: Writer, v: int) -> None:
        """Write it in version `v`."""
        if v >= 2:
            w.int32(self.throttle_time_ms)
        for topics_item in w.array(self.topics):
            topics_item.write(w, v)
        w.end_struct()


class OffsetForLeaderEpochRequestOffsetForLeaderPartition(Struct, kw_only=True):
    """Struct OffsetForLeaderPartition of OffsetForLeaderEpochRequest."""

    partition: int = 0
    current_leader_epoch: int = -1
    leader_epoch: int = 0

    @classmethod
    def read(cls, r: Reader, v: int) -> OffsetForLeaderEpochRequestOffsetForLeaderPartition:
        """Read one of version `v`."""
        m = cls()
        m.partition = r.int32()
        m.current_leader_epoch = r.int32()
        m.leader_epoch = r.int32()
        r.skip_tags()
        return m

    def write(self, w: Writer, v: int) -> None:
        """Write it in version `v`."""
        w.int32(self.partition)
        w.int32(self.current_leader_epoch)
        w.int32(self.leader_epoch)
        w.end_struct()


class OffsetForLeaderEpochRequestOffsetForLeaderTopic(Struct, kw_only=True):
    """Struct OffsetForLeaderTopic of OffsetForLeaderEpochRequest."""

    topic: str = ""
    partitions: list[OffsetForLeaderEpochRequestOffsetForLeaderPartition] = field(default_factory=list)

    @classmethod
    def read(cls, r: Reader, v: int) -> OffsetForLeaderEpochRequestOffsetForLeaderTopic:
        """Read one of version `v`."""
        m = cls()
        m.topic = r.string()
        m.partitions = [OffsetForLeaderEpochRequestOffsetForLeaderPartition.read(r, v) for _ in range(r.count())]
        r.skip_tags()
        return m

    def write(self, w: Writer, v: int) -> None:
        """Write it in version `v`."""
        w.string(self.topic)
        for partitions_item in w.array(self.partitions):
            partitions_item.write(w, v)
        w.end_struct()


class OffsetForLeaderEpochRequest(Struct, kw_only=True):
    """Message of API 23: versions 2 to 4, flexible from 4."""

    API_KEY: ClassVar[int] = 23

    replica_id: int = -2
    topics: list[OffsetForLeaderEpochRequestOffsetForLeaderTopic] = field(default_factory=list)

    @classmethod
    def read(cls, r: Reader, v: int) -> OffsetForLeaderEpochRequest:
        """Read one of version `v`."""
        m = cls()
        if v >= 3:
            m.replica_id = r.int32()
        m.topics = [OffsetForLeaderEpochRequestOffsetForLeaderTopic.read(r, v) for _ in range(r.count())]
        r.skip_tags()
        return m

    def write(self, w: Writer, v: int) -> None:
        """Write it in version `v`."""
        if v >= 3:
            w.int32(self.replica_id)
        for topics_item in w.array(self.topics):
            topics_item.write(w, v)
        w.end_struct()


class OffsetForLeaderEpochResponseEpochEndOffset(Struct, kw_only=True):
    """Struct EpochEndOffset of OffsetForLeaderEpochResponse."""

    error_code: int = 0
    partition: int = 0
    leader_epoch: int = -1
    end_offset: int = -1

    @classmethod
    def read(cls, r: Reader, v: int) -> OffsetForLeaderEpochResponseEpochEndOffset:
        """Read one of version `v`."""
        m = cls()
        m.error_code = r.int16()
        m.partition = r.int32()
        m.leader_epoch = r.int32()
        m.end_offset = r.int64()
        r.skip_tags()
        return m

    def write(self, w: Writer, v: int) -> None:
        """Write it in version `v`."""
        w.int16(self.error_code)
        w.int32(self.partition)
        w.int32(self.leader_epoch)
        w.int64(self.end_offset)
        w.end_struct()


class OffsetForLeaderEpochResponseOffsetForLeaderTopicResult(Struct, kw_only=True):
    """Struct OffsetForLeaderTopicResult of OffsetForLeaderEpochResponse."""

    topic: str = ""
    partitions: list[OffsetForLeaderEpochResponseEpochEndOffset] = field(default_factory=list)

    @classmethod
    def read(cls, r: Reader, v: int) -> OffsetForLeaderEpochResponseOffsetForLeaderTopicResult:
        """Read one of version `v`."""
        m = cls()
        m.topic = r.string()
        m.partitions = [OffsetForLeaderEpochResponseEpochEndOffset.read(r, v) for _ in range(r.count())]
        r.skip_tags()
        return m

    def write(self, w: Writer, v: int) -> None:
        """Write it in version `v`."""
        w.string(self.topic)
        for partitions_item in w.array(self.partitions):
            partitions_item.write(w, v)
        w.end_struct()


class OffsetForLeaderEpochResponse(Struct, kw_only=True):
    """Message of API 23: versions 2 to 4, flexible from 4."""

    API_KEY: ClassVar[int] = 23

    throttle_time_ms: int = 0
    topics: list[OffsetForLeaderEpochResponseOffsetForLeaderTopicResult] = field(default_factory=list)

    @classmethod
    def read(cls, r: Reader, v: int) -> OffsetForLeaderEpochResponse:
        """Read one of version `v`."""
        m = cls()
        m.throttle_time_ms = r.int32()
        m.topics = [OffsetForLeaderEpochResponseOffsetForLeaderTopicResult.read(r, v) for _ in range(r.count())]
        r.skip_tags()
        return m

    def write(self, w: Writer, v: int) -> None:
        """Write it in version `v`."""
        w.int32(self.throttle_time_ms)
        for topics_item in w.array(self.topics):
            topics_item.write(w, v)
        w.end_struct()
