"""Messages of the wire protocol: DeleteRecords, ListOffsets, OffsetForLeaderEpoch. Made by scripts/kafka_messages; not to be changed by hand.

Owns the fields of these messages and their bytes in every version; must not know their purpose. A field that a version
lacks is read as its default, and is not written.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from api.kafka.protocol.primitives import EMPTY, Fields, Reader, Writer


class DeleteRecordsRequestPartition(Fields):
    """Struct DeleteRecordsPartition of DeleteRecordsRequest."""

    FIELDS: ClassVar[Sequence[str]] = ("partition_index", "offset")

    def __init__(self, *, partition_index: int = 0, offset: int = 0) -> None:
        self.partition_index = partition_index
        self.offset = offset

    @classmethod
    def read(cls, r: Reader, v: int) -> DeleteRecordsRequestPartition:
        """Read one of version `v`."""
        m = DeleteRecordsRequestPartition()
        m.partition_index = r.int32()
        m.offset = r.int64()
        r.skip_tags()
        return m

    def write(self, w: Writer, v: int) -> None:
        """Write it in version `v`."""
        w.int32(self.partition_index)
        w.int64(self.offset)
        w.end_struct()


class DeleteRecordsRequestTopic(Fields):
    """Struct DeleteRecordsTopic of DeleteRecordsRequest."""

    FIELDS: ClassVar[Sequence[str]] = ("name", "partitions")

    def __init__(self, *, name: str = "", partitions: list[DeleteRecordsRequestPartition] = EMPTY) -> None:
        self.name = name
        self.partitions = [] if partitions is EMPTY else partitions

    @classmethod
    def read(cls, r: Reader, v: int) -> DeleteRecordsRequestTopic:
        """Read one of version `v`."""
        m = DeleteRecordsRequestTopic()
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


class DeleteRecordsRequest(Fields):
    """Message of API 21: versions 0 to 2, flexible from 2."""

    API_KEY: ClassVar[int] = 21
    FIELDS: ClassVar[Sequence[str]] = ("topics", "timeout_ms")

    def __init__(self, *, topics: list[DeleteRecordsRequestTopic] = EMPTY, timeout_ms: int = 0) -> None:
        self.topics = [] if topics is EMPTY else topics
        self.timeout_ms = timeout_ms

    @classmethod
    def read(cls, r: Reader, v: int) -> DeleteRecordsRequest:
        """Read one of version `v`."""
        m = DeleteRecordsRequest()
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


class DeleteRecordsResponsePartitionResult(Fields):
    """Struct DeleteRecordsPartitionResult of DeleteRecordsResponse."""

    FIELDS: ClassVar[Sequence[str]] = ("partition_index", "low_watermark", "error_code")

    def __init__(self, *, partition_index: int = 0, low_watermark: int = 0, error_code: int = 0) -> None:
        self.partition_index = partition_index
        self.low_watermark = low_watermark
        self.error_code = error_code

    @classmethod
    def read(cls, r: Reader, v: int) -> DeleteRecordsResponsePartitionResult:
        """Read one of version `v`."""
        m = DeleteRecordsResponsePartitionResult()
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


class DeleteRecordsResponseTopicResult(Fields):
    """Struct DeleteRecordsTopicResult of DeleteRecordsResponse."""

    FIELDS: ClassVar[Sequence[str]] = ("name", "partitions")

    def __init__(self, *, name: str = "", partitions: list[DeleteRecordsResponsePartitionResult] = EMPTY) -> None:
        self.name = name
        self.partitions = [] if partitions is EMPTY else partitions

    @classmethod
    def read(cls, r: Reader, v: int) -> DeleteRecordsResponseTopicResult:
        """Read one of version `v`."""
        m = DeleteRecordsResponseTopicResult()
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


class DeleteRecordsResponse(Fields):
    """Message of API 21: versions 0 to 2, flexible from 2."""

    API_KEY: ClassVar[int] = 21
    FIELDS: ClassVar[Sequence[str]] = ("throttle_time_ms", "topics")

    def __init__(self, *, throttle_time_ms: int = 0, topics: list[DeleteRecordsResponseTopicResult] = EMPTY) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.topics = [] if topics is EMPTY else topics

    @classmethod
    def read(cls, r: Reader, v: int) -> DeleteRecordsResponse:
        """Read one of version `v`."""
        m = DeleteRecordsResponse()
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


class ListOffsetsRequestPartition(Fields):
    """Struct ListOffsetsPartition of ListOffsetsRequest."""

    FIELDS: ClassVar[Sequence[str]] = ("partition_index", "current_leader_epoch", "timestamp")

    def __init__(self, *, partition_index: int = 0, current_leader_epoch: int = -1, timestamp: int = 0) -> None:
        self.partition_index = partition_index
        self.current_leader_epoch = current_leader_epoch
        self.timestamp = timestamp

    @classmethod
    def read(cls, r: Reader, v: int) -> ListOffsetsRequestPartition:
        """Read one of version `v`."""
        m = ListOffsetsRequestPartition()
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


class ListOffsetsRequestTopic(Fields):
    """Struct ListOffsetsTopic of ListOffsetsRequest."""

    FIELDS: ClassVar[Sequence[str]] = ("name", "partitions")

    def __init__(self, *, name: str = "", partitions: list[ListOffsetsRequestPartition] = EMPTY) -> None:
        self.name = name
        self.partitions = [] if partitions is EMPTY else partitions

    @classmethod
    def read(cls, r: Reader, v: int) -> ListOffsetsRequestTopic:
        """Read one of version `v`."""
        m = ListOffsetsRequestTopic()
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


class ListOffsetsRequest(Fields):
    """Message of API 2: versions 1 to 11, flexible from 6."""

    API_KEY: ClassVar[int] = 2
    FIELDS: ClassVar[Sequence[str]] = ("replica_id", "isolation_level", "topics", "timeout_ms")

    def __init__(
        self,
        *,
        replica_id: int = 0,
        isolation_level: int = 0,
        topics: list[ListOffsetsRequestTopic] = EMPTY,
        timeout_ms: int = 0,
    ) -> None:
        self.replica_id = replica_id
        self.isolation_level = isolation_level
        self.topics = [] if topics is EMPTY else topics
        self.timeout_ms = timeout_ms

    @classmethod
    def read(cls, r: Reader, v: int) -> ListOffsetsRequest:
        """Read one of version `v`."""
        m = ListOffsetsRequest()
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


class ListOffsetsResponsePartitionResponse(Fields):
    """Struct ListOffsetsPartitionResponse of ListOffsetsResponse."""

    FIELDS: ClassVar[Sequence[str]] = ("partition_index", "error_code", "timestamp", "offset", "leader_epoch")

    def __init__(
        self,
        *,
        partition_index: int = 0,
        error_code: int = 0,
        timestamp: int = -1,
        offset: int = -1,
        leader_epoch: int = -1,
    ) -> None:
        self.partition_index = partition_index
        self.error_code = error_code
        self.timestamp = timestamp
        self.offset = offset
        self.leader_epoch = leader_epoch

    @classmethod
    def read(cls, r: Reader, v: int) -> ListOffsetsResponsePartitionResponse:
        """Read one of version `v`."""
        m = ListOffsetsResponsePartitionResponse()
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


class ListOffsetsResponseTopicResponse(Fields):
    """Struct ListOffsetsTopicResponse of ListOffsetsResponse."""

    FIELDS: ClassVar[Sequence[str]] = ("name", "partitions")

    def __init__(self, *, name: str = "", partitions: list[ListOffsetsResponsePartitionResponse] = EMPTY) -> None:
        self.name = name
        self.partitions = [] if partitions is EMPTY else partitions

    @classmethod
    def read(cls, r: Reader, v: int) -> ListOffsetsResponseTopicResponse:
        """Read one of version `v`."""
        m = ListOffsetsResponseTopicResponse()
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


class ListOffsetsResponse(Fields):
    """Message of API 2: versions 1 to 11, flexible from 6."""

    API_KEY: ClassVar[int] = 2
    FIELDS: ClassVar[Sequence[str]] = ("throttle_time_ms", "topics")

    def __init__(self, *, throttle_time_ms: int = 0, topics: list[ListOffsetsResponseTopicResponse] = EMPTY) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.topics = [] if topics is EMPTY else topics

    @classmethod
    def read(cls, r: Reader, v: int) -> ListOffsetsResponse:
        """Read one of version `v`."""
        m = ListOffsetsResponse()
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


class OffsetForLeaderEpochRequestOffsetForLeaderPartition(Fields):
    """Struct OffsetForLeaderPartition of OffsetForLeaderEpochRequest."""

    FIELDS: ClassVar[Sequence[str]] = ("partition", "current_leader_epoch", "leader_epoch")

    def __init__(self, *, partition: int = 0, current_leader_epoch: int = -1, leader_epoch: int = 0) -> None:
        self.partition = partition
        self.current_leader_epoch = current_leader_epoch
        self.leader_epoch = leader_epoch

    @classmethod
    def read(cls, r: Reader, v: int) -> OffsetForLeaderEpochRequestOffsetForLeaderPartition:
        """Read one of version `v`."""
        m = OffsetForLeaderEpochRequestOffsetForLeaderPartition()
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


class OffsetForLeaderEpochRequestOffsetForLeaderTopic(Fields):
    """Struct OffsetForLeaderTopic of OffsetForLeaderEpochRequest."""

    FIELDS: ClassVar[Sequence[str]] = ("topic", "partitions")

    def __init__(
        self,
        *,
        topic: str = "",
        partitions: list[OffsetForLeaderEpochRequestOffsetForLeaderPartition] = EMPTY,
    ) -> None:
        self.topic = topic
        self.partitions = [] if partitions is EMPTY else partitions

    @classmethod
    def read(cls, r: Reader, v: int) -> OffsetForLeaderEpochRequestOffsetForLeaderTopic:
        """Read one of version `v`."""
        m = OffsetForLeaderEpochRequestOffsetForLeaderTopic()
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


class OffsetForLeaderEpochRequest(Fields):
    """Message of API 23: versions 2 to 4, flexible from 4."""

    API_KEY: ClassVar[int] = 23
    FIELDS: ClassVar[Sequence[str]] = ("replica_id", "topics")

    def __init__(
        self,
        *,
        replica_id: int = -2,
        topics: list[OffsetForLeaderEpochRequestOffsetForLeaderTopic] = EMPTY,
    ) -> None:
        self.replica_id = replica_id
        self.topics = [] if topics is EMPTY else topics

    @classmethod
    def read(cls, r: Reader, v: int) -> OffsetForLeaderEpochRequest:
        """Read one of version `v`."""
        m = OffsetForLeaderEpochRequest()
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


class OffsetForLeaderEpochResponseEpochEndOffset(Fields):
    """Struct EpochEndOffset of OffsetForLeaderEpochResponse."""

    FIELDS: ClassVar[Sequence[str]] = ("error_code", "partition", "leader_epoch", "end_offset")

    def __init__(
        self,
        *,
        error_code: int = 0,
        partition: int = 0,
        leader_epoch: int = -1,
        end_offset: int = -1,
    ) -> None:
        self.error_code = error_code
        self.partition = partition
        self.leader_epoch = leader_epoch
        self.end_offset = end_offset

    @classmethod
    def read(cls, r: Reader, v: int) -> OffsetForLeaderEpochResponseEpochEndOffset:
        """Read one of version `v`."""
        m = OffsetForLeaderEpochResponseEpochEndOffset()
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


class OffsetForLeaderEpochResponseOffsetForLeaderTopicResult(Fields):
    """Struct OffsetForLeaderTopicResult of OffsetForLeaderEpochResponse."""

    FIELDS: ClassVar[Sequence[str]] = ("topic", "partitions")

    def __init__(
        self,
        *,
        topic: str = "",
        partitions: list[OffsetForLeaderEpochResponseEpochEndOffset] = EMPTY,
    ) -> None:
        self.topic = topic
        self.partitions = [] if partitions is EMPTY else partitions

    @classmethod
    def read(cls, r: Reader, v: int) -> OffsetForLeaderEpochResponseOffsetForLeaderTopicResult:
        """Read one of version `v`."""
        m = OffsetForLeaderEpochResponseOffsetForLeaderTopicResult()
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


class OffsetForLeaderEpochResponse(Fields):
    """Message of API 23: versions 2 to 4, flexible from 4."""

    API_KEY: ClassVar[int] = 23
    FIELDS: ClassVar[Sequence[str]] = ("throttle_time_ms", "topics")

    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        topics: list[OffsetForLeaderEpochResponseOffsetForLeaderTopicResult] = EMPTY,
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.topics = [] if topics is EMPTY else topics

    @classmethod
    def read(cls, r: Reader, v: int) -> OffsetForLeaderEpochResponse:
        """Read one of version `v`."""
        m = OffsetForLeaderEpochResponse()
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
