"""Messages of the wire protocol: OffsetCommit, OffsetDelete, OffsetFetch. Made by scripts/kafka_messages; not to be changed by hand.

Owns the fields of these messages and their bytes in every version; must not know their purpose. A field that a version
lacks is read as its default, and is not written.
"""

from __future__ import annotations

from typing import ClassVar

from msgspec import Struct, field

from api.kafka.protocol.primitives import Reader, Writer


class OffsetCommitRequestTopicsPartitions(Struct, kw_only=True):
    """An entry of `partitions` in OffsetCommitRequestTopics."""

    partition_index: int = 0
    committed_offset: int = 0
    committed_leader_epoch: int = -1
    committed_metadata: str | None = ""

    @classmethod
    def read(cls, r: Reader, v: int) -> OffsetCommitRequestTopicsPartitions:
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


class OffsetCommitRequestTopics(Struct, kw_only=True):
    """An entry of `topics` in OffsetCommitRequest."""

    name: str = ""
    topic_id: bytes = bytes(16)
    partitions: list[OffsetCommitRequestTopicsPartitions] = field(default_factory=list)

    @classmethod
    def read(cls, r: Reader, v: int) -> OffsetCommitRequestTopics:
        """Read one of version `v`."""
        m = cls()
        if v <= 9:
            m.name = r.string()
        if v >= 10:
            m.topic_id = r.uuid()
        m.partitions = [OffsetCommitRequestTopicsPartitions.read(r, v) for _ in range(r.count())]
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
    topics: list[OffsetCommitRequestTopics] = field(default_factory=list)

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
        m.topics = [OffsetCommitRequestTopics.read(r, v) for _ in range(r.count())]
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


class OffsetCommitResponseTopicsPartitions(Struct, kw_only=True):
    """An entry of `partitions` in OffsetCommitResponseTopics."""

    partition_index: int = 0
    error_code: int = 0

    @classmethod
    def read(cls, r: Reader, v: int) -> OffsetCommitResponseTopicsPartitions:
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


class OffsetCommitResponseTopics(Struct, kw_only=True):
    """An entry of `topics` in OffsetCommitResponse."""

    name: str = ""
    topic_id: bytes = bytes(16)
    partitions: list[OffsetCommitResponseTopicsPartitions] = field(default_factory=list)

    @classmethod
    def read(cls, r: Reader, v: int) -> OffsetCommitResponseTopics:
        """Read one of version `v`."""
        m = cls()
        if v <= 9:
            m.name = r.string()
        if v >= 10:
            m.topic_id = r.uuid()
        m.partitions = [OffsetCommitResponseTopicsPartitions.read(r, v) for _ in range(r.count())]
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
    topics: list[OffsetCommitResponseTopics] = field(default_factory=list)

    @classmethod
    def read(cls, r: Reader, v: int) -> OffsetCommitResponse:
        """Read one of version `v`."""
        m = cls()
        if v >= 3:
            m.throttle_time_ms = r.int32()
        m.topics = [OffsetCommitResponseTopics.read(r, v) for _ in range(r.count())]
        r.skip_tags()
        return m

    def write(self, w: Writer, v: int) -> None:
        """Write it in version `v`."""
        if v >= 3:
            w.int32(self.throttle_time_ms)
        for topics_item in w.array(self.topics):
            topics_item.write(w, v)
        w.end_struct()


class OffsetDeleteRequestTopicsPartitions(Struct, kw_only=True):
    """An entry of `partitions` in OffsetDeleteRequestTopics."""

    partition_index: int = 0

    @classmethod
    def read(cls, r: Reader, v: int) -> OffsetDeleteRequestTopicsPartitions:
        """Read one of version `v`."""
        m = cls()
        m.partition_index = r.int32()
        r.skip_tags()
        return m

    def write(self, w: Writer, v: int) -> None:
        """Write it in version `v`."""
        w.int32(self.partition_index)
        w.end_struct()


class OffsetDeleteRequestTopics(Struct, kw_only=True):
    """An entry of `topics` in OffsetDeleteRequest."""

    name: str = ""
    partitions: list[OffsetDeleteRequestTopicsPartitions] = field(default_factory=list)

    @classmethod
    def read(cls, r: Reader, v: int) -> OffsetDeleteRequestTopics:
        """Read one of version `v`."""
        m = cls()
        m.name = r.string()
        m.partitions = [OffsetDeleteRequestTopicsPartitions.read(r, v) for _ in range(r.count())]
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
    topics: list[OffsetDeleteRequestTopics] = field(default_factory=list)

    @classmethod
    def read(cls, r: Reader, v: int) -> OffsetDeleteRequest:
        """Read one of version `v`."""
        m = cls()
        m.group_id = r.string()
        m.topics = [OffsetDeleteRequestTopics.read(r, v) for _ in range(r.count())]
        r.skip_tags()
        return m

    def write(self, w: Writer, v: int) -> None:
        """Write it in version `v`."""
        w.string(self.group_id)
        for topics_item in w.array(self.topics):
            topics_item.write(w, v)
        w.end_struct()


class OffsetDeleteResponseTopicsPartitions(Struct, kw_only=True):
    """An entry of `partitions` in OffsetDeleteResponseTopics."""

    partition_index: int = 0
    error_code: int = 0

    @classmethod
    def read(cls, r: Reader, v: int) -> OffsetDeleteResponseTopicsPartitions:
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


class OffsetDeleteResponseTopics(Struct, kw_only=True):
    """An entry of `topics` in OffsetDeleteResponse."""

    name: str = ""
    partitions: list[OffsetDeleteResponseTopicsPartitions] = field(default_factory=list)

    @classmethod
    def read(cls, r: Reader, v: int) -> OffsetDeleteResponseTopics:
        """Read one of version `v`."""
        m = cls()
        m.name = r.string()
        m.partitions = [OffsetDeleteResponseTopicsPartitions.read(r, v) for _ in range(r.count())]
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
    topics: list[OffsetDeleteResponseTopics] = field(default_factory=list)

    @classmethod
    def read(cls, r: Reader, v: int) -> OffsetDeleteResponse:
        """Read one of version `v`."""
        m = cls()
        m.error_code = r.int16()
        m.throttle_time_ms = r.int32()
        m.topics = [OffsetDeleteResponseTopics.read(r, v) for _ in range(r.count())]
        r.skip_tags()
        return m

    def write(self, w: Writer, v: int) -> None:
        """Write it in version `v`."""
        w.int16(self.error_code)
        w.int32(self.throttle_time_ms)
        for topics_item in w.array(self.topics):
            topics_item.write(w, v)
        w.end_struct()


class OffsetFetchRequestTopics(Struct, kw_only=True):
    """An entry of `topics` in OffsetFetchRequest."""

    name: str = ""
    partition_indexes: list[int] = field(default_factory=list)

    @classmethod
    def read(cls, r: Reader, v: int) -> OffsetFetchRequestTopics:
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


class OffsetFetchRequestGroupsTopics(Struct, kw_only=True):
    """An entry of `topics` in OffsetFetchRequestGroups."""

    name: str = ""
    topic_id: bytes = bytes(16)
    partition_indexes: list[int] = field(default_factory=list)

    @classmethod
    def read(cls, r: Reader, v: int) -> OffsetFetchRequestGroupsTopics:
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


class OffsetFetchRequestGroups(Struct, kw_only=True):
    """An entry of `groups` in OffsetFetchRequest."""

    group_id: str = ""
    member_id: str | None = None
    member_epoch: int = -1
    topics: list[OffsetFetchRequestGroupsTopics] | None = field(default_factory=list)

    @classmethod
    def read(cls, r: Reader, v: int) -> OffsetFetchRequestGroups:
        """Read one of version `v`."""
        m = cls()
        m.group_id = r.string()
        if v >= 9:
            m.member_id = r.nullable_string()
            m.member_epoch = r.int32()
        n = r.nullable_count()
        m.topics = None if n is None else [OffsetFetchRequestGroupsTopics.read(r, v) for _ in range(n)]
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
    topics: list[OffsetFetchRequestTopics] | None = field(default_factory=list)
    groups: list[OffsetFetchRequestGroups] = field(default_factory=list)
    require_stable: bool = False

    @classmethod
    def read(cls, r: Reader, v: int) -> OffsetFetchRequest:
        """Read one of version `v`."""
        m = cls()
        if v <= 7:
            m.group_id = r.string()
            n = r.nullable_count() if v >= 2 else r.count()
            m.topics = None if n is None else [OffsetFetchRequestTopics.read(r, v) for _ in range(n)]
        if v >= 8:
            m.groups = [OffsetFetchRequestGroups.read(r, v) for _ in range(r.count())]
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


class OffsetFetchResponseTopicsPartitions(Struct, kw_only=True):
    """An entry of `partitions` in OffsetFetchResponseTopics."""

    partition_index: int = 0
    committed_offset: int = 0
    committed_leader_epoch: int = -1
    metadata: str | None = ""
    error_code: int = 0

    @classmethod
    def read(cls, r: Reader, v: int) -> OffsetFetchResponseTopicsPartitions:
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


class OffsetFetchResponseTopics(Struct, kw_only=True):
    """An entry of `topics` in OffsetFetchResponse."""

    name: str = ""
    partitions: list[OffsetFetchResponseTopicsPartitions] = field(default_factory=list)

    @classmethod
    def read(cls, r: Reader, v: int) -> OffsetFetchResponseTopics:
        """Read one of version `v`."""
        m = cls()
        m.name = r.string()
        m.partitions = [OffsetFetchResponseTopicsPartitions.read(r, v) for _ in range(r.count())]
        r.skip_tags()
        return m

    def write(self, w: Writer, v: int) -> None:
        """Write it in version `v`."""
        w.string(self.name)
        for partitions_item in w.array(self.partitions):
            partitions_item.write(w, v)
        w.end_struct()


class OffsetFetchResponseGroupsTopicsPartitions(Struct, kw_only=True):
    """An entry of `partitions` in OffsetFetchResponseGroupsTopics."""

    partition_index: int = 0
    committed_offset: int = 0
    committed_leader_epoch: int = -1
    metadata: str | None = ""
    error_code: int = 0

    @classmethod
    def read(cls, r: Reader, v: int) -> OffsetFetchResponseGroupsTopicsPartitions:
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


class OffsetFetchResponseGroupsTopics(Struct, kw_only=True):
    """An entry of `topics` in OffsetFetchResponseGroups."""

    name: str = ""
    topic_id: bytes = bytes(16)
    partitions: list[OffsetFetchResponseGroupsTopicsPartitions] = field(default_factory=list)

    @classmethod
    def read(cls, r: Reader, v: int) -> OffsetFetchResponseGroupsTopics:
        """Read one of version `v`."""
        m = cls()
        if v <= 9:
            m.name = r.string()
        if v >= 10:
            m.topic_id = r.uuid()
        m.partitions = [OffsetFetchResponseGroupsTopicsPartitions.read(r, v) for _ in range(r.count())]
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


class OffsetFetchResponseGroups(Struct, kw_only=True):
    """An entry of `groups` in OffsetFetchResponse."""

    group_id: str = ""
    topics: list[OffsetFetchResponseGroupsTopics] = field(default_factory=list)
    error_code: int = 0

    @classmethod
    def read(cls, r: Reader, v: int) -> OffsetFetchResponseGroups:
        """Read one of version `v`."""
        m = cls()
        m.group_id = r.string()
        m.topics = [OffsetFetchResponseGroupsTopics.read(r, v) for _ in range(r.count())]
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
    topics: list[OffsetFetchResponseTopics] = field(default_factory=list)
    error_code: int = 0
    groups: list[OffsetFetchResponseGroups] = field(default_factory=list)

    @classmethod
    def read(cls, r: Reader, v: int) -> OffsetFetchResponse:
        """Read one of version `v`."""
        m = cls()
        if v >= 3:
            m.throttle_time_ms = r.int32()
        if v <= 7:
            m.topics = [OffsetFetchResponseTopics.read(r, v) for _ in range(r.count())]
        if v >= 2 and v <= 7:
            m.error_code = r.int16()
        if v >= 8:
            m.groups = [OffsetFetchResponseGroups.read(r, v) for _ in range(r.count())]
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
