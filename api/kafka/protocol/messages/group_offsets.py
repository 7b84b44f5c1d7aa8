"""Messages of the wire protocol: OffsetCommit, OffsetDelete, OffsetFetch. Made by scripts/kafka_messages; not to be changed by hand.

Owns the fields of these messages and their bytes in every version; must not know their purpose. A field that a version
lacks is read as its default, and is not written.
"""

from __future__ import annotations

from typing import ClassVar

from msgspec import Struct, field

from api.kafka.protocol.primitives import Reader, Writer


class OffsetCommitRequestPartition(Struct, kw_only=True):
    """Struct OffsetCommitRequestPartition of OffsetCommitRequest."""

    partition_index: int = 0
    committed_offset: int = 0
    committed_leader_epoch: int = -1
    committed_metadata: str | None = ""

    @classmethod
    def read(cls, r: Reader, v: int) -> OffsetCommitRequestPartition:
        """Read one of version `v`."""
        m = cls()
        m.partition_index = r.int32()
        m.committed_offset = r.int64()
        if v >= 6:
            m.committed_leader_epoch = r.int32()
        m.committed_metadata = r.nullable_string()
        r.skip_tags()
        return m

    def write(self, w: Writer, v: int) -> None:
        """Write it in version `v`."""
        w.int32(self.partition_index)
        w.int64(self.committed_offset)
        if v >= 6:
            w.int32(self.committed_leader_epoch)
        w.nullable_string(self.committed_metadata)
        w.end_struct()


class OffsetCommitRequestTopic(Struct, kw_only=True):
    """Struct OffsetCommitRequestTopic of OffsetCommitRequest."""

    name: str = ""
    topic_id: bytes = bytes(16)
    partitions: list[OffsetCommitRequestPartition] = field(default_factory=list)

    @classmethod
    def read(cls, r: Reader, v: int) -> OffsetCommitRequestTopic:
        """Read one of version `v`."""
        m = cls()
        if v <= 9:
            m.name = r.string()
        if v >= 10:
            m.topic_id = r.uuid()
        m.partitions = [OffsetCommitRequestPartition.read(r, v) for _ in range(r.count())]
        r.skip_tags()
        return m

    def write(self, w: Writer, v: int) -> None:
        """Write it in version `v`."""
        if v <= 9:
            w.string(self.name)
        if v >= 10:
            w.uuid(self.topic_id)
        for partitions_item in w.array(self.partitions):
            partitions_item.write(w, v)
        w.end_struct()


class OffsetCommitRequest(Struct, kw_only=True):
    """Message of API 8: versions 2 to 10, flexible from 8."""

    API_KEY: ClassVar[int] = 8

    group_id: str = ""
    generation_id_or_member_epoch: int = -1
    member_id: str = ""
    group_instance_id: str | None = None
    retention_time_ms: int = -1
    topics: list[OffsetCommitRequestTopic] = field(default_factory=list)

    @classmethod
    def read(cls, r: Reader, v: int) -> OffsetCommitRequest:
        """Read one of version `v`."""
        m = cls()
        m.group_id = r.string()
        m.generation_id_or_member_epoch = r.int32()
        m.member_id = r.string()
        if v >= 7:
            m.group_instance_id = r.nullable_string()
        if v <= 4:
            m.retention_time_ms = r.int64()
        m.topics = [OffsetCommitRequestTopic.read(r, v) for _ in range(r.count())]
        r.skip_tags()
        return m

    def write(self, w: Writer, v: int) -> None:
        """Write it in version `v`."""
        w.string(self.group_id)
        w.int32(self.generation_id_or_member_epoch)
        w.string(self.member_id)
        if v >= 7:
            w.nullable_string(self.group_instance_id)
        if v <= 4:
            w.int64(self.retention_time_ms)
        for topics_item in w.array(self.topics):
            topics_item.write(w, v)
        w.end_struct()


class OffsetCommitResponsePartition(Struct, kw_only=True):
    """Struct OffsetCommitResponsePartition of OffsetCommitResponse."""

    partition_index: int = 0
    error_code: int = 0

    @classmethod
    def read(cls, r: Reader, v: int) -> OffsetCommitResponsePartition:
        """Read one of version `v`."""
        m = cls()
        m.partition_index = r.int32()
        m.error_code = r.int16()
        r.skip_tags()
        return m

    def write(self, w: Writer, v: int) -> None:
        """Write it in version `v`."""
        w.int32(self.partition_index)
        w.int16(self.error_code)
        w.end_struct()


class OffsetCommitResponseTopic(Struct, kw_only=True):
    """Struct OffsetCommitResponseTopic of OffsetCommitResponse."""

    name: str = ""
    topic_id: bytes = bytes(16)
    partitions: list[OffsetCommitResponsePartition] = field(default_factory=list)

    @classmethod
    def read(cls, r: Reader, v: int) -> OffsetCommitResponseTopic:
        """Read one of version `v`."""
        m = cls()
        if v <= 9:
            m.name = r.string()
        if v >= 10:
            m.topic_id = r.uuid()
        m.partitions = [OffsetCommitResponsePartition.read(r, v) for _ in range(r.count())]
        r.skip_tags()
        return m

    def write(self, w: Writer, v: int) -> None:
        """Write it in version `v`."""
        if v <= 9:
            w.string(self.name)
        if v >= 10:
            w.uuid(self.topic_id)
        for partitions_item in w.array(self.partitions):
            partitions_item.write(w, v)
        w.end_struct()


class OffsetCommitResponse(Struct, kw_only=True):
    """Message of API 8: versions 2 to 10, flexible from 8."""

    API_KEY: ClassVar[int] = 8

    throttle_time_ms: int = 0
    topics: list[OffsetCommitResponseTopic] = field(default_factory=list)

    @classmethod
    def read(cls, r: Reader, v: int) -> OffsetCommitResponse:
        """Read one of version `v`."""
        m = cls()
        if v >= 3:
            m.throttle_time_ms = r.int32()
        m.topics = [OffsetCommitResponseTopic.read(r, v) for _ in range(r.count())]
        r.skip_tags()
        return m

    def write(self, w: Writer, v: int) -> None:
        """Write it in version `v`."""
        if v >= 3:
            w.int32(self.throttle_time_ms)
        for topics_item in w.array(self.topics):
            topics_item.write(w, v)
        w.end_struct()


class OffsetDeleteRequestPartition(Struct, kw_only=True):
    """Struct OffsetDeleteRequestPartition of OffsetDeleteRequest."""

    partition_index: int = 0

    @classmethod
    def read(cls, r: Reader, v: int) -> OffsetDeleteRequestPartition:
        """Read one of version `v`."""
        m = cls()
        m.partition_index = r.int32()
        r.skip_tags()
        return m

    def write(self, w: Writer, v: int) -> None:
        """Write it in version `v`."""
        w.int32(self.partition_index)
        w.end_struct()


class OffsetDeleteRequestTopic(Struct, kw_only=True):
    """Struct OffsetDeleteRequestTopic of OffsetDeleteRequest."""

    name: str = ""
    partitions: list[OffsetDeleteRequestPartition] = field(default_factory=list)

    @classmethod
    def read(cls, r: Reader, v: int) -> OffsetDeleteRequestTopic:
        """Read one of version `v`."""
        m = cls()
        m.name = r.string()
        m.partitions = [OffsetDeleteRequestPartition.read(r, v) for _ in range(r.count())]
        r.skip_tags()
        return m

    def write(self, w: Writer, v: int) -> None:
        """Write it in version `v`."""
        w.string(self.name)
        for partitions_item in w.array(self.partitions):
            partitions_item.write(w, v)
        w.end_struct()


class OffsetDeleteRequest(Struct, kw_only=True):
    """Message of API 47: versions 0 to 0, never flexible."""

    API_KEY: ClassVar[int] = 47

    group_id: str = ""
    topics: list[OffsetDeleteRequestTopic] = field(default_factory=list)

    @classmethod
    def read(cls, r: Reader, v: int) -> OffsetDeleteRequest:
        """Read one of version `v`."""
        m = cls()
        m.group_id = r.string()
        m.topics = [OffsetDeleteRequestTopic.read(r, v) for _ in range(r.count())]
        r.skip_tags()
        return m

    def write(self, w: Writer, v: int) -> None:
        """Write it in version `v`."""
        w.string(self.group_id)
        for topics_item in w.array(self.topics):
            topics_item.write(w, v)
        w.end_struct()


class OffsetDeleteResponsePartition(Struct, kw_only=True):
    """Struct OffsetDeleteResponsePartition of OffsetDeleteResponse."""

    partition_index: int = 0
    error_code: int = 0

    @classmethod
    def read(cls, r: Reader, v: int) -> OffsetDeleteResponsePartition:
        """Read one of version `v`."""
        m = cls()
        m.partition_index = r.int32()
        m.error_code = r.int16()
        r.skip_tags()
        return m

    def write(self, w: Writer, v: int) -> None:
        """Write it in version `v`."""
        w.int32(self.partition_index)
        w.int16(self.error_code)
        w.end_struct()


class OffsetDeleteResponseTopic(Struct, kw_only=True):
    """Struct OffsetDeleteResponseTopic of OffsetDeleteResponse."""

    name: str = ""
    partitions: list[OffsetDeleteResponsePartition] = field(default_factory=list)

    @classmethod
    def read(cls, r: Reader, v: int) -> OffsetDeleteResponseTopic:
        """Read one of version `v`."""
        m = cls()
        m.name = r.string()
        m.partitions = [OffsetDeleteResponsePartition.read(r, v) for _ in range(r.count())]
        r.skip_tags()
        return m

    def write(self, w: Writer, v: int) -> None:
        """Write it in version `v`."""
        w.string(self.name)
        for partitions_item in w.array(self.partitions):
            partitions_item.write(w, v)
        w.end_struct()


class OffsetDeleteResponse(Struct, kw_only=True):
    """Message of API 47: versions 0 to 0, never flexible."""

    API_KEY: ClassVar[int] = 47

    error_code: int = 0
    throttle_time_ms: int = 0
    topics: list[OffsetDeleteResponseTopic] = field(default_factory=list)

    @classmethod
    def read(cls, r: Reader, v: int) -> OffsetDeleteResponse:
        """Read one of version `v`."""
        m = cls()
        m.error_code = r.int16()
        m.throttle_time_ms = r.int32()
        m.topics = [OffsetDeleteResponseTopic.read(r, v) for _ in range(r.count())]
        r.skip_tags()
        return m

    def write(self, w: Writer, v: int) -> None:
        """Write it in version `v`."""
        w.int16(self.error_code)
        w.int32(self.throttle_time_ms)
        for topics_item in w.array(self.topics):
            topics_item.write(w, v)
        w.end_struct()


class OffsetFetchRequestTopic(Struct, kw_only=True):
    """Struct OffsetFetchRequestTopic of OffsetFetchRequest."""

    name: str = ""
    partition_indexes: list[int] = field(default_factory=list)

    @classmethod
    def read(cls, r: Reader, v: int) -> OffsetFetchRequestTopic:
        """Read one of version `v`."""
        m = cls()
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


class OffsetFetchRequestTopics(Struct, kw_only=True):
    """Struct OffsetFetchRequestTopics of OffsetFetchRequest."""

    name: str = ""
    topic_id: bytes = bytes(16)
    partition_indexes: list[int] = field(default_factory=list)

    @classmethod
    def read(cls, r: Reader, v: int) -> OffsetFetchRequestTopics:
        """Read one of version `v`."""
        m = cls()
        if v <= 9:
            m.name = r.string()
        if v >= 10:
            m.topic_id = r.uuid()
        m.partition_indexes = [r.int32() for _ in range(r.count())]
        r.skip_tags()
        return m

    def write(self, w: Writer, v: int) -> None:
        """Write it in version `v`."""
        if v <= 9:
            w.string(self.name)
        if v >= 10:
            w.uuid(self.topic_id)
        for partition_indexes_item in w.array(self.partition_indexes):
            w.int32(partition_indexes_item)
        w.end_struct()


class OffsetFetchRequestGroup(Struct, kw_only=True):
    """Struct OffsetFetchRequestGroup of OffsetFetchRequest."""

    group_id: str = ""
    member_id: str | None = None
    member_epoch: int = -1
    topics: list[OffsetFetchRequestTopics] | None = field(default_factory=list)

    @classmethod
    def read(cls, r: Reader, v: int) -> OffsetFetchRequestGroup:
        """Read one of version `v`."""
        m = cls()
        m.group_id = r.string()
        if v >= 9:
            m.member_id = r.nullable_string()
            m.member_epoch = r.int32()
        n = r.nullable_count()
        m.topics = None if n is None else [OffsetFetchRequestTopics.read(r, v) for _ in range(n)]
        r.skip_tags()
        return m

    def write(self, w: Writer, v: int) -> None:
        """Write it in version `v`."""
        w.string(self.group_id)
        if v >= 9:
            w.nullable_string(self.member_id)
            w.int32(self.member_epoch)
        for topics_item in w.nullable_array(self.topics):
            topics_item.write(w, v)
        w.end_struct()


class OffsetFetchRequest(Struct, kw_only=True):
    """Message of API 9: versions 1 to 10, flexible from 6."""

    API_KEY: ClassVar[int] = 9

    group_id: str = ""
    topics: list[OffsetFetchRequestTopic] | None = field(default_factory=list)
    groups: list[OffsetFetchRequestGroup] = field(default_factory=list)
    require_stable: bool = False

    @classmethod
    def read(cls, r: Reader, v: int) -> OffsetFetchRequest:
        """Read one of version `v`."""
        m = cls()
        if v <= 7:
            m.group_id = r.string()
            n = r.nullable_count() if v >= 2 else r.count()
            m.topics = None if n is None else [OffsetFetchRequestTopic.read(r, v) for _ in range(n)]
        if v >= 8:
            m.groups = [OffsetFetchRequestGroup.read(r, v) for _ in range(r.count())]
        if v >= 7:
            m.require_stable = r.boolean()
        r.skip_tags()
        return m

    def write(self, w: Writer, v: int) -> None:
        """Write it in version `v`."""
        if v <= 7:
            w.string(self.group_id)
            for topics_item in (w.nullable_array(self.topics) if v >= 2 else w.array(self.topics)):
                topics_item.write(w, v)
        if v >= 8:
            for groups_item in w.array(self.groups):
                groups_item.write(w, v)
        if v >= 7:
            w.boolean(self.require_stable)
        w.end_struct()


class OffsetFetchResponsePartition(Struct, kw_only=True):
    """Struct OffsetFetchResponsePartition of OffsetFetchResponse."""

    partition_index: int = 0
    committed_offset: int = 0
    committed_leader_epoch: int = -1
    metadata: str | None = ""
    error_code: int = 0

    @classmethod
    def read(cls, r: Reader, v: int) -> OffsetFetchResponsePartition:
        """Read one of version `v`."""
        m = cls()
        m.partition_index = r.int32()
        m.committed_offset = r.int64()
        if v >= 5:
            m.committed_leader_epoch = r.int32()
        m.metadata = r.nullable_string()
        m.error_code = r.int16()
        r.skip_tags()
        return m

    def write(self, w: Writer, v: int) -> None:
        """Write it in version `v`."""
        w.int32(self.partition_index)
        w.int64(self.committed_offset)
        if v >= 5:
            w.int32(self.committed_leader_epoch)
        w.nullable_string(self.metadata)
        w.int16(self.error_code)
        w.end_struct()


class OffsetFetchResponseTopic(Struct, kw_only=True):
    """Struct OffsetFetchResponseTopic of OffsetFetchResponse."""

    name: str = ""
    partitions: list[OffsetFetchResponsePartition] = field(default_factory=list)

    @classmethod
    def read(cls, r: Reader, v: int) -> OffsetFetchResponseTopic:
        """Read one of version `v`."""
        m = cls()
        m.name = r.string()
        m.partitions = [OffsetFetchResponsePartition.read(r, v) for _ in range(r.count())]
        r.skip_tags()
        return m

    def write(self, w: Writer, v: int) -> None:
        """Write it in version `v`."""
        w.string(self.name)
        for partitions_item in w.array(self.partitions):
            partitions_item.write(w, v)
        w.end_struct()


class OffsetFetchResponsePartitions(Struct, kw_only=True):
    """Struct OffsetFetchResponsePartitions of OffsetFetchResponse."""

    partition_index: int = 0
    committed_offset: int = 0
    committed_leader_epoch: int = -1
    metadata: str | None = ""
    error_code: int = 0

    @classmethod
    def read(cls, r: Reader, v: int) -> OffsetFetchResponsePartitions:
        """Read one of version `v`."""
        m = cls()
        m.partition_index = r.int32()
        m.committed_offset = r.int64()
        m.committed_leader_epoch = r.int32()
        m.metadata = r.nullable_string()
        m.error_code = r.int16()
        r.skip_tags()
        return m

    def write(self, w: Writer, v: int) -> None:
        """Write it in version `v`."""
        w.int32(self.partition_index)
        w.int64(self.committed_offset)
        w.int32(self.committed_leader_epoch)
        w.nullable_string(self.metadata)
        w.int16(self.error_code)
        w.end_struct()


class OffsetFetchResponseTopics(Struct, kw_only=True):
    """Struct OffsetFetchResponseTopics of OffsetFetchResponse."""

    name: str = ""
    topic_id: bytes = bytes(16)
    partitions: list[OffsetFetchResponsePartitions] = field(default_factory=list)

    @classmethod
    def read(cls, r: Reader, v: int) -> OffsetFetchResponseTopics:
        """Read one of version `v`."""
        m = cls()
        if v <= 9:
            m.name = r.string()
        if v >= 10:
            m.topic_id = r.uuid()
        m.partitions = [OffsetFetchResponsePartitions.read(r, v) for _ in range(r.count())]
        r.skip_tags()
        return m

    def write(self, w: Writer, v: int) -> None:
        """Write it in version `v`."""
        if v <= 9:
            w.string(self.name)
        if v >= 10:
            w.uuid(self.topic_id)
        for partitions_item in w.array(self.partitions):
            partitions_item.write(w, v)
        w.end_struct()


class OffsetFetchResponseGroup(Struct, kw_only=True):
    """Struct OffsetFetchResponseGroup of OffsetFetchResponse."""

    group_id: str = ""
    topics: list[OffsetFetchResponseTopics] = field(default_factory=list)
    error_code: int = 0

    @classmethod
    def read(cls, r: Reader, v: int) -> OffsetFetchResponseGroup:
        """Read one of version `v`."""
        m = cls()
        m.group_id = r.string()
        m.topics = [OffsetFetchResponseTopics.read(r, v) for _ in range(r.count())]
        m.error_code = r.int16()
        r.skip_tags()
        return m

    def write(self, w: Writer, v: int) -> None:
        """Write it in version `v`."""
        w.string(self.group_id)
        for topics_item in w.array(self.topics):
            topics_item.write(w, v)
        w.int16(self.error_code)
        w.end_struct()


class OffsetFetchResponse(Struct, kw_only=True):
    """Message of API 9: versions 1 to 10, flexible from 6."""

    API_KEY: ClassVar[int] = 9

    throttle_time_ms: int = 0
    topics: list[OffsetFetchResponseTopic] = field(default_factory=list)
    error_code: int = 0
    groups: list[OffsetFetchResponseGroup] = field(default_factory=list)

    @classmethod
    def read(cls, r: Reader, v: int) -> OffsetFetchResponse:
        """Read one of version `v`."""
        m = cls()
        if v >= 3:
            m.throttle_time_ms = r.int32()
        if v <= 7:
            m.topics = [OffsetFetchResponseTopic.read(r, v) for _ in range(r.count())]
        if v >= 2 and v <= 7:
            m.error_code = r.int16()
        if v >= 8:
            m.groups = [OffsetFetchResponseGroup.read(r, v) for _ in range(r.count())]
        r.skip_tags()
        return m

    def write(self, w: Writer, v: int) -> None:
        """Write it in version `v`."""
        if v >= 3:
            w.int32(self.throttle_time_ms)
        if v <= 7:
            for topics_item in w.array(self.topics):
                topics_item.write(w, v)
        if v >= 2 and v <= 7:
            w.int16(self.error_code)
        if v >= 8:
            for groups_item in w.array(self.groups):
                groups_item.write(w, v)
        w.end_struct()
