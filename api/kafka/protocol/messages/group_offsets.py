"""Messages of the wire protocol: OffsetCommit, OffsetDelete, OffsetFetch. Made by scripts/kafka_messages; not to be changed by hand.

Owns the fields of these messages and their bytes in every version; must not know their purpose. A field that a version
lacks is read as its default, and is not written.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from api.kafka.protocol.primitives import EMPTY, Fields, NO_UUID, Reader, Writer


class OffsetCommitRequestPartition(Fields):
    """Struct OffsetCommitRequestPartition of OffsetCommitRequest."""

    FIELDS: ClassVar[Sequence[str]] = ("partition_index", "committed_offset", "committed_leader_epoch",
        "committed_metadata")

    def __init__(
        self,
        *,
        partition_index: int = 0,
        committed_offset: int = 0,
        committed_leader_epoch: int = -1,
        committed_metadata: str | None = "",
    ) -> None:
        self.partition_index = partition_index
        self.committed_offset = committed_offset
        self.committed_leader_epoch = committed_leader_epoch
        self.committed_metadata = committed_metadata

    @classmethod
    def read(cls, r: Reader, v: int) -> OffsetCommitRequestPartition:
        """Read one of version `v`."""
        m = OffsetCommitRequestPartition()
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


class OffsetCommitRequestTopic(Fields):
    """Struct OffsetCommitRequestTopic of OffsetCommitRequest."""

    FIELDS: ClassVar[Sequence[str]] = ("name", "topic_id", "partitions")

    def __init__(
        self,
        *,
        name: str = "",
        topic_id: bytes = NO_UUID,
        partitions: list[OffsetCommitRequestPartition] = EMPTY,
    ) -> None:
        self.name = name
        self.topic_id = topic_id
        self.partitions = [] if partitions is EMPTY else partitions

    @classmethod
    def read(cls, r: Reader, v: int) -> OffsetCommitRequestTopic:
        """Read one of version `v`."""
        m = OffsetCommitRequestTopic()
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


class OffsetCommitRequest(Fields):
    """Message of API 8: versions 2 to 10, flexible from 8."""

    API_KEY: ClassVar[int] = 8
    FIELDS: ClassVar[Sequence[str]] = ("group_id", "generation_id_or_member_epoch", "member_id", "group_instance_id",
        "retention_time_ms", "topics")

    def __init__(
        self,
        *,
        group_id: str = "",
        generation_id_or_member_epoch: int = -1,
        member_id: str = "",
        group_instance_id: str | None = None,
        retention_time_ms: int = -1,
        topics: list[OffsetCommitRequestTopic] = EMPTY,
    ) -> None:
        self.group_id = group_id
        self.generation_id_or_member_epoch = generation_id_or_member_epoch
        self.member_id = member_id
        self.group_instance_id = group_instance_id
        self.retention_time_ms = retention_time_ms
        self.topics = [] if topics is EMPTY else topics

    @classmethod
    def read(cls, r: Reader, v: int) -> OffsetCommitRequest:
        """Read one of version `v`."""
        m = OffsetCommitRequest()
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


class OffsetCommitResponsePartition(Fields):
    """Struct OffsetCommitResponsePartition of OffsetCommitResponse."""

    FIELDS: ClassVar[Sequence[str]] = ("partition_index", "error_code")

    def __init__(self, *, partition_index: int = 0, error_code: int = 0) -> None:
        self.partition_index = partition_index
        self.error_code = error_code

    @classmethod
    def read(cls, r: Reader, v: int) -> OffsetCommitResponsePartition:
        """Read one of version `v`."""
        m = OffsetCommitResponsePartition()
        m.partition_index = r.int32()
        m.error_code = r.int16()
        r.skip_tags()
        return m

    def write(self, w: Writer, v: int) -> None:
        """Write it in version `v`."""
        w.int32(self.partition_index)
        w.int16(self.error_code)
        w.end_struct()


class OffsetCommitResponseTopic(Fields):
    """Struct OffsetCommitResponseTopic of OffsetCommitResponse."""

    FIELDS: ClassVar[Sequence[str]] = ("name", "topic_id", "partitions")

    def __init__(
        self,
        *,
        name: str = "",
        topic_id: bytes = NO_UUID,
        partitions: list[OffsetCommitResponsePartition] = EMPTY,
    ) -> None:
        self.name = name
        self.topic_id = topic_id
        self.partitions = [] if partitions is EMPTY else partitions

    @classmethod
    def read(cls, r: Reader, v: int) -> OffsetCommitResponseTopic:
        """Read one of version `v`."""
        m = OffsetCommitResponseTopic()
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


class OffsetCommitResponse(Fields):
    """Message of API 8: versions 2 to 10, flexible from 8."""

    API_KEY: ClassVar[int] = 8
    FIELDS: ClassVar[Sequence[str]] = ("throttle_time_ms", "topics")

    def __init__(self, *, throttle_time_ms: int = 0, topics: list[OffsetCommitResponseTopic] = EMPTY) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.topics = [] if topics is EMPTY else topics

    @classmethod
    def read(cls, r: Reader, v: int) -> OffsetCommitResponse:
        """Read one of version `v`."""
        m = OffsetCommitResponse()
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


class OffsetDeleteRequestPartition(Fields):
    """Struct OffsetDeleteRequestPartition of OffsetDeleteRequest."""

    FIELDS: ClassVar[Sequence[str]] = ("partition_index",)

    def __init__(self, *, partition_index: int = 0) -> None:
        self.partition_index = partition_index

    @classmethod
    def read(cls, r: Reader, v: int) -> OffsetDeleteRequestPartition:
        """Read one of version `v`."""
        m = OffsetDeleteRequestPartition()
        m.partition_index = r.int32()
        r.skip_tags()
        return m

    def write(self, w: Writer, v: int) -> None:
        """Write it in version `v`."""
        w.int32(self.partition_index)
        w.end_struct()


class OffsetDeleteRequestTopic(Fields):
    """Struct OffsetDeleteRequestTopic of OffsetDeleteRequest."""

    FIELDS: ClassVar[Sequence[str]] = ("name", "partitions")

    def __init__(self, *, name: str = "", partitions: list[OffsetDeleteRequestPartition] = EMPTY) -> None:
        self.name = name
        self.partitions = [] if partitions is EMPTY else partitions

    @classmethod
    def read(cls, r: Reader, v: int) -> OffsetDeleteRequestTopic:
        """Read one of version `v`."""
        m = OffsetDeleteRequestTopic()
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


class OffsetDeleteRequest(Fields):
    """Message of API 47: versions 0 to 0, never flexible."""

    API_KEY: ClassVar[int] = 47
    FIELDS: ClassVar[Sequence[str]] = ("group_id", "topics")

    def __init__(self, *, group_id: str = "", topics: list[OffsetDeleteRequestTopic] = EMPTY) -> None:
        self.group_id = group_id
        self.topics = [] if topics is EMPTY else topics

    @classmethod
    def read(cls, r: Reader, v: int) -> OffsetDeleteRequest:
        """Read one of version `v`."""
        m = OffsetDeleteRequest()
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


class OffsetDeleteResponsePartition(Fields):
    """Struct OffsetDeleteResponsePartition of OffsetDeleteResponse."""

    FIELDS: ClassVar[Sequence[str]] = ("partition_index", "error_code")

    def __init__(self, *, partition_index: int = 0, error_code: int = 0) -> None:
        self.partition_index = partition_index
        self.error_code = error_code

    @classmethod
    def read(cls, r: Reader, v: int) -> OffsetDeleteResponsePartition:
        """Read one of version `v`."""
        m = OffsetDeleteResponsePartition()
        m.partition_index = r.int32()
        m.error_code = r.int16()
        r.skip_tags()
        return m

    def write(self, w: Writer, v: int) -> None:
        """Write it in version `v`."""
        w.int32(self.partition_index)
        w.int16(self.error_code)
        w.end_struct()


class OffsetDeleteResponseTopic(Fields):
    """Struct OffsetDeleteResponseTopic of OffsetDeleteResponse."""

    FIELDS: ClassVar[Sequence[str]] = ("name", "partitions")

    def __init__(self, *, name: str = "", partitions: list[OffsetDeleteResponsePartition] = EMPTY) -> None:
        self.name = name
        self.partitions = [] if partitions is EMPTY else partitions

    @classmethod
    def read(cls, r: Reader, v: int) -> OffsetDeleteResponseTopic:
        """Read one of version `v`."""
        m = OffsetDeleteResponseTopic()
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


class OffsetDeleteResponse(Fields):
    """Message of API 47: versions 0 to 0, never flexible."""

    API_KEY: ClassVar[int] = 47
    FIELDS: ClassVar[Sequence[str]] = ("error_code", "throttle_time_ms", "topics")

    def __init__(
        self,
        *,
        error_code: int = 0,
        throttle_time_ms: int = 0,
        topics: list[OffsetDeleteResponseTopic] = EMPTY,
    ) -> None:
        self.error_code = error_code
        self.throttle_time_ms = throttle_time_ms
        self.topics = [] if topics is EMPTY else topics

    @classmethod
    def read(cls, r: Reader, v: int) -> OffsetDeleteResponse:
        """Read one of version `v`."""
        m = OffsetDeleteResponse()
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


class OffsetFetchRequestTopic(Fields):
    """Struct OffsetFetchRequestTopic of OffsetFetchRequest."""

    FIELDS: ClassVar[Sequence[str]] = ("name", "partition_indexes")

    def __init__(self, *, name: str = "", partition_indexes: list[int] = EMPTY) -> None:
        self.name = name
        self.partition_indexes = [] if partition_indexes is EMPTY else partition_indexes

    @classmethod
    def read(cls, r: Reader, v: int) -> OffsetFetchRequestTopic:
        """Read one of version `v`."""
        m = OffsetFetchRequestTopic()
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


class OffsetFetchRequestTopics(Fields):
    """Struct OffsetFetchRequestTopics of OffsetFetchRequest."""

    FIELDS: ClassVar[Sequence[str]] = ("name", "topic_id", "partition_indexes")

    def __init__(self, *, name: str = "", topic_id: bytes = NO_UUID, partition_indexes: list[int] = EMPTY) -> None:
        self.name = name
        self.topic_id = topic_id
        self.partition_indexes = [] if partition_indexes is EMPTY else partition_indexes

    @classmethod
    def read(cls, r: Reader, v: int) -> OffsetFetchRequestTopics:
        """Read one of version `v`."""
        m = OffsetFetchRequestTopics()
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


class OffsetFetchRequestGroup(Fields):
    """Struct OffsetFetchRequestGroup of OffsetFetchRequest."""

    FIELDS: ClassVar[Sequence[str]] = ("group_id", "member_id", "member_epoch", "topics")

    def __init__(
        self,
        *,
        group_id: str = "",
        member_id: str | None = None,
        member_epoch: int = -1,
        topics: list[OffsetFetchRequestTopics] | None = EMPTY,
    ) -> None:
        self.group_id = group_id
        self.member_id = member_id
        self.member_epoch = member_epoch
        self.topics = [] if topics is EMPTY else topics

    @classmethod
    def read(cls, r: Reader, v: int) -> OffsetFetchRequestGroup:
        """Read one of version `v`."""
        m = OffsetFetchRequestGroup()
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


class OffsetFetchRequest(Fields):
    """Message of API 9: versions 1 to 10, flexible from 6."""

    API_KEY: ClassVar[int] = 9
    FIELDS: ClassVar[Sequence[str]] = ("group_id", "topics", "groups", "require_stable")

    def __init__(
        self,
        *,
        group_id: str = "",
        topics: list[OffsetFetchRequestTopic] | None = EMPTY,
        groups: list[OffsetFetchRequestGroup] = EMPTY,
        require_stable: bool = False,
    ) -> None:
        self.group_id = group_id
        self.topics = [] if topics is EMPTY else topics
        self.groups = [] if groups is EMPTY else groups
        self.require_stable = require_stable

    @classmethod
    def read(cls, r: Reader, v: int) -> OffsetFetchRequest:
        """Read one of version `v`."""
        m = OffsetFetchRequest()
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


class OffsetFetchResponsePartition(Fields):
    """Struct OffsetFetchResponsePartition of OffsetFetchResponse."""

    FIELDS: ClassVar[Sequence[str]] = ("partition_index", "committed_offset", "committed_leader_epoch", "metadata",
        "error_code")

    def __init__(
        self,
        *,
        partition_index: int = 0,
        committed_offset: int = 0,
        committed_leader_epoch: int = -1,
        metadata: str | None = "",
        error_code: int = 0,
    ) -> None:
        self.partition_index = partition_index
        self.committed_offset = committed_offset
        self.committed_leader_epoch = committed_leader_epoch
        self.metadata = metadata
        self.error_code = error_code

    @classmethod
    def read(cls, r: Reader, v: int) -> OffsetFetchResponsePartition:
        """Read one of version `v`."""
        m = OffsetFetchResponsePartition()
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


class OffsetFetchResponseTopic(Fields):
    """Struct OffsetFetchResponseTopic of OffsetFetchResponse."""

    FIELDS: ClassVar[Sequence[str]] = ("name", "partitions")

    def __init__(self, *, name: str = "", partitions: list[OffsetFetchResponsePartition] = EMPTY) -> None:
        self.name = name
        self.partitions = [] if partitions is EMPTY else partitions

    @classmethod
    def read(cls, r: Reader, v: int) -> OffsetFetchResponseTopic:
        """Read one of version `v`."""
        m = OffsetFetchResponseTopic()
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


class OffsetFetchResponsePartitions(Fields):
    """Struct OffsetFetchResponsePartitions of OffsetFetchResponse."""

    FIELDS: ClassVar[Sequence[str]] = ("partition_index", "committed_offset", "committed_leader_epoch", "metadata",
        "error_code")

    def __init__(
        self,
        *,
        partition_index: int = 0,
        committed_offset: int = 0,
        committed_leader_epoch: int = -1,
        metadata: str | None = "",
        error_code: int = 0,
    ) -> None:
        self.partition_index = partition_index
        self.committed_offset = committed_offset
        self.committed_leader_epoch = committed_leader_epoch
        self.metadata = metadata
        self.error_code = error_code

    @classmethod
    def read(cls, r: Reader, v: int) -> OffsetFetchResponsePartitions:
        """Read one of version `v`."""
        m = OffsetFetchResponsePartitions()
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


class OffsetFetchResponseTopics(Fields):
    """Struct OffsetFetchResponseTopics of OffsetFetchResponse."""

    FIELDS: ClassVar[Sequence[str]] = ("name", "topic_id", "partitions")

    def __init__(
        self,
        *,
        name: str = "",
        topic_id: bytes = NO_UUID,
        partitions: list[OffsetFetchResponsePartitions] = EMPTY,
    ) -> None:
        self.name = name
        self.topic_id = topic_id
        self.partitions = [] if partitions is EMPTY else partitions

    @classmethod
    def read(cls, r: Reader, v: int) -> OffsetFetchResponseTopics:
        """Read one of version `v`."""
        m = OffsetFetchResponseTopics()
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


class OffsetFetchResponseGroup(Fields):
    """Struct OffsetFetchResponseGroup of OffsetFetchResponse."""

    FIELDS: ClassVar[Sequence[str]] = ("group_id", "topics", "error_code")

    def __init__(
        self,
        *,
        group_id: str = "",
        topics: list[OffsetFetchResponseTopics] = EMPTY,
        error_code: int = 0,
    ) -> None:
        self.group_id = group_id
        self.topics = [] if topics is EMPTY else topics
        self.error_code = error_code

    @classmethod
    def read(cls, r: Reader, v: int) -> OffsetFetchResponseGroup:
        """Read one of version `v`."""
        m = OffsetFetchResponseGroup()
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


class OffsetFetchResponse(Fields):
    """Message of API 9: versions 1 to 10, flexible from 6."""

    API_KEY: ClassVar[int] = 9
    FIELDS: ClassVar[Sequence[str]] = ("throttle_time_ms", "topics", "error_code", "groups")

    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        topics: list[OffsetFetchResponseTopic] = EMPTY,
        error_code: int = 0,
        groups: list[OffsetFetchResponseGroup] = EMPTY,
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.topics = [] if topics is EMPTY else topics
        self.error_code = error_code
        self.groups = [] if groups is EMPTY else groups

    @classmethod
    def read(cls, r: Reader, v: int) -> OffsetFetchResponse:
        """Read one of version `v`."""
        m = OffsetFetchResponse()
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
