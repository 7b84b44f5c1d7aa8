"""Messages of the wire protocol: DeleteRecords, ListOffsets, OffsetForLeaderEpoch. Made by scripts/kafka_messages; not to be changed by hand.

Owns the fields of these messages and their bytes in every version; must not know their purpose. A field that a version
lacks is read as its default, and is not written.
"""

from __future__ import annotations

from typing import ClassVar

from msgspec import Struct, field

from api.kafka.protocol.primitives import Reader, Writer


class DeleteRecordsRequestTopicsPartitions(Struct, kw_only=True):
    """An entry of `partitions` in DeleteRecordsRequestTopics."""

    partition_index: int = 0
    offset: int = 0

    @classmethod
    def read(cls, r: Reader, v: int) -> DeleteRecordsRequestTopicsPartitions:
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


class DeleteRecordsRequestTopics(Struct, kw_only=True):
    """An entry of `topics` in DeleteRecordsRequest."""

    name: str = ""
    partitions: list[DeleteRecordsRequestTopicsPartitions] = field(default_factory=list)

    @classmethod
    def read(cls, r: Reader, v: int) -> DeleteRecordsRequestTopics:
        """Read one of version `v`."""
        m = cls()
        m.name = r.string()
        m.partitions = [DeleteRecordsRequestTopicsPartitions.read(r, v) for _ in range(r.count())]
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

    topics: list[DeleteRecordsRequestTopics] = field(default_factory=list)
    timeout_ms: int = 0

    @classmethod
    def read(cls, r: Reader, v: int) -> DeleteRecordsRequest:
        """Read one of version `v`."""
        m = cls()
        m.topics = [DeleteRecordsRequestTopics.read(r, v) for _ in range(r.count())]
        m.timeout_ms = r.int32()
        r.skip_tags()
        return m

    def write(self, w: Writer, v: int) -> None:
        """Write it in version `v`."""
        for topics_item in w.array(self.topics):
            topics_item.write(w, v)
        w.int32(self.timeout_ms)
        w.end_struct()


class DeleteRecordsResponseTopicsPartitions(Struct, kw_only=True):
    """An entry of `partitions` in DeleteRecordsResponseTopics."""

    partition_index: int = 0
    low_watermark: int = 0
    error_code: int = 0

    @classmethod
    def read(cls, r: Reader, v: int) -> DeleteRecordsResponseTopicsPartitions:
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


class DeleteRecordsResponseTopics(Struct, kw_only=True):
    """An entry of `topics` in DeleteRecordsResponse."""

    name: str = ""
    partitions: list[DeleteRecordsResponseTopicsPartitions] = field(default_factory=list)

    @classmethod
    def read(cls, r: Reader, v: int) -> DeleteRecordsResponseTopics:
        """Read one of version `v`."""
        m = cls()
        m.name = r.string()
        m.partitions = [DeleteRecordsResponseTopicsPartitions.read(r, v) for _ in range(r.count())]
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
    topics: list[DeleteRecordsResponseTopics] = field(default_factory=list)

    @classmethod
    def read(cls, r: Reader, v: int) -> DeleteRecordsResponse:
        """Read one of version `v`."""
        m = cls()
        m.throttle_time_ms = r.int32()
        m.topics = [DeleteRecordsResponseTopics.read(r, v) for _ in range(r.count())]
        r.skip_tags()
        return m

    def write(self, w: Writer, v: int) -> None:
        """Write it in version `v`."""
        w.int32(self.throttle_time_ms)
        for topics_item in w.array(self.topics):
            topics_item.write(w, v)
        w.end_struct()


class ListOffsetsRequestTopicsPartitions(Struct, kw_only=True):
    """An entry of `partitions` in ListOffsetsRequestTopics."""

    partition_index: int = 0
    current_leader_epoch: int = -1
    timestamp: int = 0

    @classmethod
    def read(cls, r: Reader, v: int) -> ListOffsetsRequestTopicsPartitions:
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


class ListOffsetsRequestTopics(Struct, kw_only=True):
    """An entry of `topics` in ListOffsetsRequest."""

    name: str = ""
    partitions: list[ListOffsetsRequestTopicsPartitions] = field(default_factory=list)

    @classmethod
    def read(cls, r: Reader, v: int) -> ListOffsetsRequestTopics:
        """Read one of version `v`."""
        m = cls()
        m.name = r.string()
        m.partitions = [ListOffsetsRequestTopicsPartitions.read(r, v) for _ in range(r.count())]
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
    topics: list[ListOffsetsRequestTopics] = field(default_factory=list)
    timeout_ms: int = 0

    @classmethod
    def read(cls, r: Reader, v: int) -> ListOffsetsRequest:
        """Read one of version `v`."""
        m = cls()
        m.replica_id = r.int32()
        if v >= 2:
            m.isolation_level = r.int8()
        m.topics = [ListOffsetsRequestTopics.read(r, v) for _ in range(r.count())]
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


class ListOffsetsResponseTopicsPartitions(Struct, kw_only=True):
    """An entry of `partitions` in ListOffsetsResponseTopics."""

    partition_index: int = 0
    error_code: int = 0
    timestamp: int = -1
    offset: int = -1
    leader_epoch: int = -1

    @classmethod
    def read(cls, r: Reader, v: int) -> ListOffsetsResponseTopicsPartitions:
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


class ListOffsetsResponseTopics(Struct, kw_only=True):
    """An entry of `topics` in ListOffsetsResponse."""

    name: str = ""
    partitions: list[ListOffsetsResponseTopicsPartitions] = field(default_factory=list)

    @classmethod
    def read(cls, r: Reader, v: int) -> ListOffsetsResponseTopics:
        """Read one of version `v`."""
        m = cls()
        m.name = r.string()
        m.partitions = [ListOffsetsResponseTopicsPartitions.read(r, v) for _ in range(r.count())]
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
    topics: list[ListOffsetsResponseTopics] = field(default_factory=list)

    @classmethod
    def read(cls, r: Reader, v: int) -> ListOffsetsResponse:
        """Read one of version `v`."""
        m = cls()
        if v >= 2:
            m.throttle_time_ms = r.int32()
        m.topics = [ListOffsetsResponseTopics.read(r, v) for _ in range(r.count())]
        r.skip_tags()
        return m

    def write(self, w: Writer, v: int) -> None:
        """Write it in version `v`."""
        if v >= 2:
            w.int32(self.throttle_time_ms)
        for topics_item in w.array(self.topics):
            topics_item.write(w, v)
        w.end_struct()


class OffsetForLeaderEpochRequestTopicsPartitions(Struct, kw_only=True):
    """An entry of `partitions` in OffsetForLeaderEpochRequestTopics."""

    partition: int = 0
    current_leader_epoch: int = -1
    leader_epoch: int = 0

    @classmethod
    def read(cls, r: Reader, v: int) -> OffsetForLeaderEpochRequestTopicsPartitions:
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


class OffsetForLeaderEpochRequestTopics(Struct, kw_only=True):
    """An entry of `topics` in OffsetForLeaderEpochRequest."""

    topic: str = ""
    partitions: list[OffsetForLeaderEpochRequestTopicsPartitions] = field(default_factory=list)

    @classmethod
    def read(cls, r: Reader, v: int) -> OffsetForLeaderEpochRequestTopics:
        """Read one of version `v`."""
        m = cls()
        m.topic = r.string()
        m.partitions = [OffsetForLeaderEpochRequestTopicsPartitions.read(r, v) for _ in range(r.count())]
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
    topics: list[OffsetForLeaderEpochRequestTopics] = field(default_factory=list)

    @classmethod
    def read(cls, r: Reader, v: int) -> OffsetForLeaderEpochRequest:
        """Read one of version `v`."""
        m = cls()
        if v >= 3:
            m.replica_id = r.int32()
        m.topics = [OffsetForLeaderEpochRequestTopics.read(r, v) for _ in range(r.count())]
        r.skip_tags()
        return m

    def write(self, w: Writer, v: int) -> None:
        """Write it in version `v`."""
        if v >= 3:
            w.int32(self.replica_id)
        for topics_item in w.array(self.topics):
            topics_item.write(w, v)
        w.end_struct()


class OffsetForLeaderEpochResponseTopicsPartitions(Struct, kw_only=True):
    """An entry of `partitions` in OffsetForLeaderEpochResponseTopics."""

    error_code: int = 0
    partition: int = 0
    leader_epoch: int = -1
    end_offset: int = -1

    @classmethod
    def read(cls, r: Reader, v: int) -> OffsetForLeaderEpochResponseTopicsPartitions:
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


class OffsetForLeaderEpochResponseTopics(Struct, kw_only=True):
    """An entry of `topics` in OffsetForLeaderEpochResponse."""

    topic: str = ""
    partitions: list[OffsetForLeaderEpochResponseTopicsPartitions] = field(default_factory=list)

    @classmethod
    def read(cls, r: Reader, v: int) -> OffsetForLeaderEpochResponseTopics:
        """Read one of version `v`."""
        m = cls()
        m.topic = r.string()
        m.partitions = [OffsetForLeaderEpochResponseTopicsPartitions.read(r, v) for _ in range(r.count())]
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
    topics: list[OffsetForLeaderEpochResponseTopics] = field(default_factory=list)

    @classmethod
    def read(cls, r: Reader, v: int) -> OffsetForLeaderEpochResponse:
        """Read one of version `v`."""
        m = cls()
        m.throttle_time_ms = r.int32()
        m.topics = [OffsetForLeaderEpochResponseTopics.read(r, v) for _ in range(r.count())]
        r.skip_tags()
        return m

    def write(self, w: Writer, v: int) -> None:
        """Write it in version `v`."""
        w.int32(self.throttle_time_ms)
        for topics_item in w.array(self.topics):
            topics_item.write(w, v)
        w.end_struct()
