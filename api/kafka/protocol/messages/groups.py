"""Messages of the wire protocol: ConsumerGroupHeartbeat, Heartbeat, JoinGroup, LeaveGroup, SyncGroup. Made by scripts/kafka_messages; not to be changed by hand.

Owns the fields of these messages and their bytes in every version; must not know their purpose. A field that a version
lacks is read as its default, and is not written.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from api.kafka.protocol.primitives import EMPTY, Fields, NO_UUID, Reader, Writer


class ConsumerGroupHeartbeatRequestTopicPartitions(Fields):
    """Struct TopicPartitions of ConsumerGroupHeartbeatRequest."""

    FIELDS: ClassVar[Sequence[str]] = ("topic_id", "partitions")

    def __init__(self, *, topic_id: bytes = NO_UUID, partitions: list[int] = EMPTY) -> None:
        self.topic_id = topic_id
        self.partitions = [] if partitions is EMPTY else partitions

    @classmethod
    def read(cls, r: Reader, v: int) -> ConsumerGroupHeartbeatRequestTopicPartitions:
        """Read one of version `v`."""
        m = ConsumerGroupHeartbeatRequestTopicPartitions()
        m.topic_id = r.uuid()
        m.partitions = [r.int32() for _ in range(r.count())]
        r.skip_tags()
        return m

    def write(self, w: Writer, v: int) -> None:
        """Write it in version `v`."""
        w.uuid(self.topic_id)
        for partitions_item in w.array(self.partitions):
            w.int32(partitions_item)
        w.end_struct()


class ConsumerGroupHeartbeatRequest(Fields):
    """Message of API 68: versions 0 to 1, flexible from 0."""

    API_KEY: ClassVar[int] = 68
    FIELDS: ClassVar[Sequence[str]] = ("group_id", "member_id", "member_epoch", "instance_id", "rack_id",
        "rebalance_timeout_ms", "subscribed_topic_names", "subscribed_topic_regex", "server_assignor",
        "topic_partitions")

    def __init__(
        self,
        *,
        group_id: str = "",
        member_id: str = "",
        member_epoch: int = 0,
        instance_id: str | None = None,
        rack_id: str | None = None,
        rebalance_timeout_ms: int = -1,
        subscribed_topic_names: list[str] | None = None,
        subscribed_topic_regex: str | None = None,
        server_assignor: str | None = None,
        topic_partitions: list[ConsumerGroupHeartbeatRequestTopicPartitions] | None = None,
    ) -> None:
        self.group_id = group_id
        self.member_id = member_id
        self.member_epoch = member_epoch
        self.instance_id = instance_id
        self.rack_id = rack_id
        self.rebalance_timeout_ms = rebalance_timeout_ms
        self.subscribed_topic_names = subscribed_topic_names
        self.subscribed_topic_regex = subscribed_topic_regex
        self.server_assignor = server_assignor
        self.topic_partitions = topic_partitions

    @classmethod
    def read(cls, r: Reader, v: int) -> ConsumerGroupHeartbeatRequest:
        """Read one of version `v`."""
        m = ConsumerGroupHeartbeatRequest()
        m.group_id = r.string()
        m.member_id = r.string()
        m.member_epoch = r.int32()
        m.instance_id = r.nullable_string()
        m.rack_id = r.nullable_string()
        m.rebalance_timeout_ms = r.int32()
        n = r.nullable_count()
        m.subscribed_topic_names = None if n is None else [r.string() for _ in range(n)]
        if v >= 1:
            m.subscribed_topic_regex = r.nullable_string()
        m.server_assignor = r.nullable_string()
        n = r.nullable_count()
        m.topic_partitions = None if n is None else [ConsumerGroupHeartbeatRequestTopicPartitions.read(r, v) for _ in range(n)]
        r.skip_tags()
        return m

    def write(self, w: Writer, v: int) -> None:
        """Write it in version `v`."""
        w.string(self.group_id)
        w.string(self.member_id)
        w.int32(self.member_epoch)
        w.nullable_string(self.instance_id)
        w.nullable_string(self.rack_id)
        w.int32(self.rebalance_timeout_ms)
        for subscribed_topic_names_item in w.nullable_array(self.subscribed_topic_names):
            w.string(subscribed_topic_names_item)
        if v >= 1:
            w.nullable_string(self.subscribed_topic_regex)
        w.nullable_string(self.server_assignor)
        for topic_partitions_item in w.nullable_array(self.topic_partitions):
            topic_partitions_item.write(w, v)
        w.end_struct()


class ConsumerGroupHeartbeatResponseTopicPartitions(Fields):
    """Struct TopicPartitions of ConsumerGroupHeartbeatResponse."""

    FIELDS: ClassVar[Sequence[str]] = ("topic_id", "partitions")

    def __init__(self, *, topic_id: bytes = NO_UUID, partitions: list[int] = EMPTY) -> None:
        self.topic_id = topic_id
        self.partitions = [] if partitions is EMPTY else partitions

    @classmethod
    def read(cls, r: Reader, v: int) -> ConsumerGroupHeartbeatResponseTopicPartitions:
        """Read one of version `v`."""
        m = ConsumerGroupHeartbeatResponseTopicPartitions()
        m.topic_id = r.uuid()
        m.partitions = [r.int32() for _ in range(r.count())]
        r.skip_tags()
        return m

    def write(self, w: Writer, v: int) -> None:
        """Write it in version `v`."""
        w.uuid(self.topic_id)
        for partitions_item in w.array(self.partitions):
            w.int32(partitions_item)
        w.end_struct()


class ConsumerGroupHeartbeatResponseAssignment(Fields):
    """Struct Assignment of ConsumerGroupHeartbeatResponse."""

    FIELDS: ClassVar[Sequence[str]] = ("topic_partitions",)

    def __init__(self, *, topic_partitions: list[ConsumerGroupHeartbeatResponseTopicPartitions] = EMPTY) -> None:
        self.topic_partitions = [] if topic_partitions is EMPTY else topic_partitions

    @classmethod
    def read(cls, r: Reader, v: int) -> ConsumerGroupHeartbeatResponseAssignment:
        """Read one of version `v`."""
        m = ConsumerGroupHeartbeatResponseAssignment()
        m.topic_partitions = [ConsumerGroupHeartbeatResponseTopicPartitions.read(r, v) for _ in range(r.count())]
        r.skip_tags()
        return m

    def write(self, w: Writer, v: int) -> None:
        """Write it in version `v`."""
        for topic_partitions_item in w.array(self.topic_partitions):
            topic_partitions_item.write(w, v)
        w.end_struct()


class ConsumerGroupHeartbeatResponse(Fields):
    """Message of API 68: versions 0 to 1, flexible from 0."""

    API_KEY: ClassVar[int] = 68
    FIELDS: ClassVar[Sequence[str]] = ("throttle_time_ms", "error_code", "error_message", "member_id", "member_epoch",
        "heartbeat_interval_ms", "assignment")

    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        error_code: int = 0,
        error_message: str | None = None,
        member_id: str | None = None,
        member_epoch: int = 0,
        heartbeat_interval_ms: int = 0,
        assignment: ConsumerGroupHeartbeatResponseAssignment | None = None,
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.error_code = error_code
        self.error_message = error_message
        self.member_id = member_id
        self.member_epoch = member_epoch
        self.heartbeat_interval_ms = heartbeat_interval_ms
        self.assignment = assignment

    @classmethod
    def read(cls, r: Reader, v: int) -> ConsumerGroupHeartbeatResponse:
        """Read one of version `v`."""
        m = ConsumerGroupHeartbeatResponse()
        m.throttle_time_ms = r.int32()
        m.error_code = r.int16()
        m.error_message = r.nullable_string()
        m.member_id = r.nullable_string()
        m.member_epoch = r.int32()
        m.heartbeat_interval_ms = r.int32()
        m.assignment = ConsumerGroupHeartbeatResponseAssignment.read(r, v) if r.int8() >= 0 else None
        r.skip_tags()
        return m

    def write(self, w: Writer, v: int) -> None:
        """Write it in version `v`."""
        w.int32(self.throttle_time_ms)
        w.int16(self.error_code)
        w.nullable_string(self.error_message)
        w.nullable_string(self.member_id)
        w.int32(self.member_epoch)
        w.int32(self.heartbeat_interval_ms)
        if self.assignment is None:
            w.int8(-1)
        else:
            w.int8(1)
            self.assignment.write(w, v)
        w.end_struct()


class HeartbeatRequest(Fields):
    """Message of API 12: versions 0 to 4, flexible from 4."""

    API_KEY: ClassVar[int] = 12
    FIELDS: ClassVar[Sequence[str]] = ("group_id", "generation_id", "member_id", "group_instance_id")

    def __init__(
        self,
        *,
        group_id: str = "",
        generation_id: int = 0,
        member_id: str = "",
        group_instance_id: str | None = None,
    ) -> None:
        self.group_id = group_id
        self.generation_id = generation_id
        self.member_id = member_id
        self.group_instance_id = group_instance_id

    @classmethod
    def read(cls, r: Reader, v: int) -> HeartbeatRequest:
        """Read one of version `v`."""
        m = HeartbeatRequest()
        m.group_id = r.string()
        m.generation_id = r.int32()
        m.member_id = r.string()
        if v >= 3:
            m.group_instance_id = r.nullable_string()
        r.skip_tags()
        return m

    def write(self, w: Writer, v: int) -> None:
        """Write it in version `v`."""
        w.string(self.group_id)
        w.int32(self.generation_id)
        w.string(self.member_id)
        if v >= 3:
            w.nullable_string(self.group_instance_id)
        w.end_struct()


class HeartbeatResponse(Fields):
    """Message of API 12: versions 0 to 4, flexible from 4."""

    API_KEY: ClassVar[int] = 12
    FIELDS: ClassVar[Sequence[str]] = ("throttle_time_ms", "error_code")

    def __init__(self, *, throttle_time_ms: int = 0, error_code: int = 0) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.error_code = error_code

    @classmethod
    def read(cls, r: Reader, v: int) -> HeartbeatResponse:
        """Read one of version `v`."""
        m = HeartbeatResponse()
        if v >= 1:
            m.throttle_time_ms = r.int32()
        m.error_code = r.int16()
        r.skip_tags()
        return m

    def write(self, w: Writer, v: int) -> None:
        """Write it in version `v`."""
        if v >= 1:
            w.int32(self.throttle_time_ms)
        w.int16(self.error_code)
        w.end_struct()


class JoinGroupRequestProtocol(Fields):
    """Struct JoinGroupRequestProtocol of JoinGroupRequest."""

    FIELDS: ClassVar[Sequence[str]] = ("name", "metadata")

    def __init__(self, *, name: str = "", metadata: bytes = b"") -> None:
        self.name = name
        self.metadata = metadata

    @classmethod
    def read(cls, r: Reader, v: int) -> JoinGroupRequestProtocol:
        """Read one of version `v`."""
        m = JoinGroupRequestProtocol()
        m.name = r.string()
        m.metadata = r.data()
        r.skip_tags()
        return m

    def write(self, w: Writer, v: int) -> None:
        """Write it in version `v`."""
        w.string(self.name)
        w.data(self.metadata)
        w.end_struct()


class JoinGroupRequest(Fields):
    """Message of API 11: versions 0 to 9, flexible from 6."""

    API_KEY: ClassVar[int] = 11
    FIELDS: ClassVar[Sequence[str]] = ("group_id", "session_timeout_ms", "rebalance_timeout_ms", "member_id",
        "group_instance_id", "protocol_type", "protocols", "reason")

    def __init__(
        self,
        *,
        group_id: str = "",
        session_timeout_ms: int = 0,
        rebalance_timeout_ms: int = -1,
        member_id: str = "",
        group_instance_id: str | None = None,
        protocol_type: str = "",
        protocols: list[JoinGroupRequestProtocol] = EMPTY,
        reason: str | None = None,
    ) -> None:
        self.group_id = group_id
        self.session_timeout_ms = session_timeout_ms
        self.rebalance_timeout_ms = rebalance_timeout_ms
        self.member_id = member_id
        self.group_instance_id = group_instance_id
        self.protocol_type = protocol_type
        self.protocols = [] if protocols is EMPTY else protocols
        self.reason = reason

    @classmethod
    def read(cls, r: Reader, v: int) -> JoinGroupRequest:
        """Read one of version `v`."""
        m = JoinGroupRequest()
        m.group_id = r.string()
        m.session_timeout_ms = r.int32()
        if v >= 1:
            m.rebalance_timeout_ms = r.int32()
        m.member_id = r.string()
        if v >= 5:
            m.group_instance_id = r.nullable_string()
        m.protocol_type = r.string()
        m.protocols = [JoinGroupRequestProtocol.read(r, v) for _ in range(r.count())]
        if v >= 8:
            m.reason = r.nullable_string()
        r.skip_tags()
        return m

    def write(self, w: Writer, v: int) -> None:
        """Write it in version `v`."""
        w.string(self.group_id)
        w.int32(self.session_timeout_ms)
        if v >= 1:
            w.int32(self.rebalance_timeout_ms)
        w.string(self.member_id)
        if v >= 5:
            w.nullable_string(self.group_instance_id)
        w.string(self.protocol_type)
        for protocols_item in w.array(self.protocols):
            protocols_item.write(w, v)
        if v >= 8:
            w.nullable_string(self.reason)
        w.end_struct()


class JoinGroupResponseMember(Fields):
    """Struct JoinGroupResponseMember of JoinGroupResponse."""

    FIELDS: ClassVar[Sequence[str]] = ("member_id", "group_instance_id", "metadata")

    def __init__(self, *, member_id: str = "", group_instance_id: str | None = None, metadata: bytes = b"") -> None:
        self.member_id = member_id
        self.group_instance_id = group_instance_id
        self.metadata = metadata

    @classmethod
    def read(cls, r: Reader, v: int) -> JoinGroupResponseMember:
        """Read one of version `v`."""
        m = JoinGroupResponseMember()
        m.member_id = r.string()
        if v >= 5:
            m.group_instance_id = r.nullable_string()
        m.metadata = r.data()
        r.skip_tags()
        return m

    def write(self, w: Writer, v: int) -> None:
        """Write it in version `v`."""
        w.string(self.member_id)
        if v >= 5:
            w.nullable_string(self.group_instance_id)
        w.data(self.metadata)
        w.end_struct()


class JoinGroupResponse(Fields):
    """Message of API 11: versions 0 to 9, flexible from 6."""

    API_KEY: ClassVar[int] = 11
    FIELDS: ClassVar[Sequence[str]] = ("throttle_time_ms", "error_code", "generation_id", "protocol_type",
        "protocol_name", "leader", "skip_assignment", "member_id", "members")

    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        error_code: int = 0,
        generation_id: int = -1,
        protocol_type: str | None = None,
        protocol_name: str | None = "",
        leader: str = "",
        skip_assignment: bool = False,
        member_id: str = "",
        members: list[JoinGroupResponseMember] = EMPTY,
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.error_code = error_code
        self.generation_id = generation_id
        self.protocol_type = protocol_type
        self.protocol_name = protocol_name
        self.leader = leader
        self.skip_assignment = skip_assignment
        self.member_id = member_id
        self.members = [] if members is EMPTY else members

    @classmethod
    def read(cls, r: Reader, v: int) -> JoinGroupResponse:
        """Read one of version `v`."""
        m = JoinGroupResponse()
        if v >= 2:
            m.throttle_time_ms = r.int32()
        m.error_code = r.int16()
        m.generation_id = r.int32()
        if v >= 7:
            m.protocol_type = r.nullable_string()
        m.protocol_name = r.nullable_string() if v >= 7 else r.string()
        m.leader = r.string()
        if v >= 9:
            m.skip_assignment = r.boolean()
        m.member_id = r.string()
        m.members = [JoinGroupResponseMember.read(r, v) for _ in range(r.count())]
        r.skip_tags()
        return m

    def write(self, w: Writer, v: int) -> None:
        """Write it in version `v`."""
        if v >= 2:
            w.int32(self.throttle_time_ms)
        w.int16(self.error_code)
        w.int32(self.generation_id)
        if v >= 7:
            w.nullable_string(self.protocol_type)
        if v >= 7:
            w.nullable_string(self.protocol_name)
        else:
            w.string(self.protocol_name)
        w.string(self.leader)
        if v >= 9:
            w.boolean(self.skip_assignment)
        w.string(self.member_id)
        for members_item in w.array(self.members):
            members_item.write(w, v)
        w.end_struct()


class LeaveGroupRequestMemberIdentity(Fields):
    """Struct MemberIdentity of LeaveGroupRequest."""

    FIELDS: ClassVar[Sequence[str]] = ("member_id", "group_instance_id", "reason")

    def __init__(self, *, member_id: str = "", group_instance_id: str | None = None, reason: str | None = None) -> None:
        self.member_id = member_id
        self.group_instance_id = group_instance_id
        self.reason = reason

    @classmethod
    def read(cls, r: Reader, v: int) -> LeaveGroupRequestMemberIdentity:
        """Read one of version `v`."""
        m = LeaveGroupRequestMemberIdentity()
        m.member_id = r.string()
        m.group_instance_id = r.nullable_string()
        if v >= 5:
            m.reason = r.nullable_string()
        r.skip_tags()
        return m

    def write(self, w: Writer, v: int) -> None:
        """Write it in version `v`."""
        w.string(self.member_id)
        w.nullable_string(self.group_instance_id)
        if v >= 5:
            w.nullable_string(self.reason)
        w.end_struct()


class LeaveGroupRequest(Fields):
    """Message of API 13: versions 0 to 5, flexible from 4."""

    API_KEY: ClassVar[int] = 13
    FIELDS: ClassVar[Sequence[str]] = ("group_id", "member_id", "members")

    def __init__(
        self,
        *,
        group_id: str = "",
        member_id: str = "",
        members: list[LeaveGroupRequestMemberIdentity] = EMPTY,
    ) -> None:
        self.group_id = group_id
        self.member_id = member_id
        self.members = [] if members is EMPTY else members

    @classmethod
    def read(cls, r: Reader, v: int) -> LeaveGroupRequest:
        """Read one of version `v`."""
        m = LeaveGroupRequest()
        m.group_id = r.string()
        if v <= 2:
            m.member_id = r.string()
        if v >= 3:
            m.members = [LeaveGroupRequestMemberIdentity.read(r, v) for _ in range(r.count())]
        r.skip_tags()
        return m

    def write(self, w: Writer, v: int) -> None:
        """Write it in version `v`."""
        w.string(self.group_id)
        if v <= 2:
            w.string(self.member_id)
        if v >= 3:
            for members_item in w.array(self.members):
                members_item.write(w, v)
        w.end_struct()


class LeaveGroupResponseMemberResponse(Fields):
    """Struct MemberResponse of LeaveGroupResponse."""

    FIELDS: ClassVar[Sequence[str]] = ("member_id", "group_instance_id", "error_code")

    def __init__(self, *, member_id: str = "", group_instance_id: str | None = "", error_code: int = 0) -> None:
        self.member_id = member_id
        self.group_instance_id = group_instance_id
        self.error_code = error_code

    @classmethod
    def read(cls, r: Reader, v: int) -> LeaveGroupResponseMemberResponse:
        """Read one of version `v`."""
        m = LeaveGroupResponseMemberResponse()
        m.member_id = r.string()
        m.group_instance_id = r.nullable_string()
        m.error_code = r.int16()
        r.skip_tags()
        return m

    def write(self, w: Writer, v: int) -> None:
        """Write it in version `v`."""
        w.string(self.member_id)
        w.nullable_string(self.group_instance_id)
        w.int16(self.error_code)
        w.end_struct()


class LeaveGroupResponse(Fields):
    """Message of API 13: versions 0 to 5, flexible from 4."""

    API_KEY: ClassVar[int] = 13
    FIELDS: ClassVar[Sequence[str]] = ("throttle_time_ms", "error_code", "members")

    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        error_code: int = 0,
        members: list[LeaveGroupResponseMemberResponse] = EMPTY,
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.error_code = error_code
        self.members = [] if members is EMPTY else members

    @classmethod
    def read(cls, r: Reader, v: int) -> LeaveGroupResponse:
        """Read one of version `v`."""
        m = LeaveGroupResponse()
        if v >= 1:
            m.throttle_time_ms = r.int32()
        m.error_code = r.int16()
        if v >= 3:
            m.members = [LeaveGroupResponseMemberResponse.read(r, v) for _ in range(r.count())]
        r.skip_tags()
        return m

    def write(self, w: Writer, v: int) -> None:
        """Write it in version `v`."""
        if v >= 1:
            w.int32(self.throttle_time_ms)
        w.int16(self.error_code)
        if v >= 3:
            for members_item in w.array(self.members):
                members_item.write(w, v)
        w.end_struct()


class SyncGroupRequestAssignment(Fields):
    """Struct SyncGroupRequestAssignment of SyncGroupRequest."""

    FIELDS: ClassVar[Sequence[str]] = ("member_id", "assignment")

    def __init__(self, *, member_id: str = "", assignment: bytes = b"") -> None:
        self.member_id = member_id
        self.assignment = assignment

    @classmethod
    def read(cls, r: Reader, v: int) -> SyncGroupRequestAssignment:
        """Read one of version `v`."""
        m = SyncGroupRequestAssignment()
        m.member_id = r.string()
        m.assignment = r.data()
        r.skip_tags()
        return m

    def write(self, w: Writer, v: int) -> None:
        """Write it in version `v`."""
        w.string(self.member_id)
        w.data(self.assignment)
        w.end_struct()


class SyncGroupRequest(Fields):
    """Message of API 14: versions 0 to 5, flexible from 4."""

    API_KEY: ClassVar[int] = 14
    FIELDS: ClassVar[Sequence[str]] = ("group_id", "generation_id", "member_id", "group_instance_id", "protocol_type",
        "protocol_name", "assignments")

    def __init__(
        self,
        *,
        group_id: str = "",
        generation_id: int = 0,
        member_id: str = "",
        group_instance_id: str | None = None,
        protocol_type: str | None = None,
        protocol_name: str | None = None,
        assignments: list[SyncGroupRequestAssignment] = EMPTY,
    ) -> None:
        self.group_id = group_id
        self.generation_id = generation_id
        self.member_id = member_id
        self.group_instance_id = group_instance_id
        self.protocol_type = protocol_type
        self.protocol_name = protocol_name
        self.assignments = [] if assignments is EMPTY else assignments

    @classmethod
    def read(cls, r: Reader, v: int) -> SyncGroupRequest:
        """Read one of version `v`."""
        m = SyncGroupRequest()
        m.group_id = r.string()
        m.generation_id = r.int32()
        m.member_id = r.string()
        if v >= 3:
            m.group_instance_id = r.nullable_string()
        if v >= 5:
            m.protocol_type = r.nullable_string()
            m.protocol_name = r.nullable_string()
        m.assignments = [SyncGroupRequestAssignment.read(r, v) for _ in range(r.count())]
        r.skip_tags()
        return m

    def write(self, w: Writer, v: int) -> None:
        """Write it in version `v`."""
        w.string(self.group_id)
        w.int32(self.generation_id)
        w.string(self.member_id)
        if v >= 3:
            w.nullable_string(self.group_instance_id)
        if v >= 5:
            w.nullable_string(self.protocol_type)
            w.nullable_string(self.protocol_name)
        for assignments_item in w.array(self.assignments):
            assignments_item.write(w, v)
        w.end_struct()


class SyncGroupResponse(Fields):
    """Message of API 14: versions 0 to 5, flexible from 4."""

    API_KEY: ClassVar[int] = 14
    FIELDS: ClassVar[Sequence[str]] = ("throttle_time_ms", "error_code", "protocol_type", "protocol_name", "assignment")

    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        error_code: int = 0,
        protocol_type: str | None = None,
        protocol_name: str | None = None,
        assignment: bytes = b"",
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.error_code = error_code
        self.protocol_type = protocol_type
        self.protocol_name = protocol_name
        self.assignment = assignment

    @classmethod
    def read(cls, r: Reader, v: int) -> SyncGroupResponse:
        """Read one of version `v`."""
        m = SyncGroupResponse()
        if v >= 1:
            m.throttle_time_ms = r.int32()
        m.error_code = r.int16()
        if v >= 5:
            m.protocol_type = r.nullable_string()
            m.protocol_name = r.nullable_string()
        m.assignment = r.data()
        r.skip_tags()
        return m

    def write(self, w: Writer, v: int) -> None:
        """Write it in version `v`."""
        if v >= 1:
            w.int32(self.throttle_time_ms)
        w.int16(self.error_code)
        if v >= 5:
            w.nullable_string(self.protocol_type)
            w.nullable_string(self.protocol_name)
        w.data(self.assignment)
        w.end_struct()
