"""Messages of the wire protocol: ConsumerGroupDescribe, DeleteGroups, DescribeGroups, ListGroups. Made by scripts/kafka_messages; not to be changed by hand.

Owns the fields of these messages and their bytes in every version; must not know their purpose. A field that a version
lacks is read as its default, and is not written.
"""

from __future__ import annotations

from typing import ClassVar

from msgspec import Struct, field

from api.kafka.protocol.primitives import NO_UUID, Reader, Writer


class ConsumerGroupDescribeRequest(Struct, kw_only=True):
    """Message of API 69: versions 0 to 1, flexible from 0."""

    API_KEY: ClassVar[int] = 69

    group_ids: list[str] = field(default_factory=list)
    include_authorized_operations: bool = False

    @classmethod
    def read(cls, r: Reader, v: int) -> ConsumerGroupDescribeRequest:
        """Read one of version `v`."""
        m = ConsumerGroupDescribeRequest()
        m.group_ids = [r.string() for _ in range(r.count())]
        m.include_authorized_operations = r.boolean()
        r.skip_tags()
        return m

    def write(self, w: Writer, v: int) -> None:
        """Write it in version `v`."""
        for group_ids_item in w.array(self.group_ids):
            w.string(group_ids_item)
        w.boolean(self.include_authorized_operations)
        w.end_struct()


class ConsumerGroupDescribeResponseTopicPartitions(Struct, kw_only=True):
    """Struct TopicPartitions of ConsumerGroupDescribeResponse."""

    topic_id: bytes = NO_UUID
    topic_name: str = ""
    partitions: list[int] = field(default_factory=list)

    @classmethod
    def read(cls, r: Reader, v: int) -> ConsumerGroupDescribeResponseTopicPartitions:
        """Read one of version `v`."""
        m = ConsumerGroupDescribeResponseTopicPartitions()
        m.topic_id = r.uuid()
        m.topic_name = r.string()
        m.partitions = [r.int32() for _ in range(r.count())]
        r.skip_tags()
        return m

    def write(self, w: Writer, v: int) -> None:
        """Write it in version `v`."""
        w.uuid(self.topic_id)
        w.string(self.topic_name)
        for partitions_item in w.array(self.partitions):
            w.int32(partitions_item)
        w.end_struct()


class ConsumerGroupDescribeResponseAssignment(Struct, kw_only=True):
    """Struct Assignment of ConsumerGroupDescribeResponse."""

    topic_partitions: list[ConsumerGroupDescribeResponseTopicPartitions] = field(default_factory=list)

    @classmethod
    def read(cls, r: Reader, v: int) -> ConsumerGroupDescribeResponseAssignment:
        """Read one of version `v`."""
        m = ConsumerGroupDescribeResponseAssignment()
        m.topic_partitions = [ConsumerGroupDescribeResponseTopicPartitions.read(r, v) for _ in range(r.count())]
        r.skip_tags()
        return m

    def write(self, w: Writer, v: int) -> None:
        """Write it in version `v`."""
        for topic_partitions_item in w.array(self.topic_partitions):
            topic_partitions_item.write(w, v)
        w.end_struct()


class ConsumerGroupDescribeResponseMember(Struct, kw_only=True):
    """Struct Member of ConsumerGroupDescribeResponse."""

    member_id: str = ""
    instance_id: str | None = None
    rack_id: str | None = None
    member_epoch: int = 0
    client_id: str = ""
    client_host: str = ""
    subscribed_topic_names: list[str] = field(default_factory=list)
    subscribed_topic_regex: str | None = None
    assignment: ConsumerGroupDescribeResponseAssignment = field(default_factory=lambda: ConsumerGroupDescribeResponseAssignment())
    target_assignment: ConsumerGroupDescribeResponseAssignment = field(default_factory=lambda: ConsumerGroupDescribeResponseAssignment())
    member_type: int = -1

    @classmethod
    def read(cls, r: Reader, v: int) -> ConsumerGroupDescribeResponseMember:
        """Read one of version `v`."""
        m = ConsumerGroupDescribeResponseMember()
        m.member_id = r.string()
        m.instance_id = r.nullable_string()
        m.rack_id = r.nullable_string()
        m.member_epoch = r.int32()
        m.client_id = r.string()
        m.client_host = r.string()
        m.subscribed_topic_names = [r.string() for _ in range(r.count())]
        m.subscribed_topic_regex = r.nullable_string()
        m.assignment = ConsumerGroupDescribeResponseAssignment.read(r, v)
        m.target_assignment = ConsumerGroupDescribeResponseAssignment.read(r, v)
        if v >= 1:
            m.member_type = r.int8()
        r.skip_tags()
        return m

    def write(self, w: Writer, v: int) -> None:
        """Write it in version `v`."""
        w.string(self.member_id)
        w.nullable_string(self.instance_id)
        w.nullable_string(self.rack_id)
        w.int32(self.member_epoch)
        w.string(self.client_id)
        w.string(self.client_host)
        for subscribed_topic_names_item in w.array(self.subscribed_topic_names):
            w.string(subscribed_topic_names_item)
        w.nullable_string(self.subscribed_topic_regex)
        self.assignment.write(w, v)
        self.target_assignment.write(w, v)
        if v >= 1:
            w.int8(self.member_type)
        w.end_struct()


class ConsumerGroupDescribeResponseDescribedGroup(Struct, kw_only=True):
    """Struct DescribedGroup of ConsumerGroupDescribeResponse."""

    error_code: int = 0
    error_message: str | None = None
    group_id: str = ""
    group_state: str = ""
    group_epoch: int = 0
    assignment_epoch: int = 0
    assignor_name: str = ""
    members: list[ConsumerGroupDescribeResponseMember] = field(default_factory=list)
    authorized_operations: int = -2147483648

    @classmethod
    def read(cls, r: Reader, v: int) -> ConsumerGroupDescribeResponseDescribedGroup:
        """Read one of version `v`."""
        m = ConsumerGroupDescribeResponseDescribedGroup()
        m.error_code = r.int16()
        m.error_message = r.nullable_string()
        m.group_id = r.string()
        m.group_state = r.string()
        m.group_epoch = r.int32()
        m.assignment_epoch = r.int32()
        m.assignor_name = r.string()
        m.members = [ConsumerGroupDescribeResponseMember.read(r, v) for _ in range(r.count())]
        m.authorized_operations = r.int32()
        r.skip_tags()
        return m

    def write(self, w: Writer, v: int) -> None:
        """Write it in version `v`."""
        w.int16(self.error_code)
        w.nullable_string(self.error_message)
        w.string(self.group_id)
        w.string(self.group_state)
        w.int32(self.group_epoch)
        w.int32(self.assignment_epoch)
        w.string(self.assignor_name)
        for members_item in w.array(self.members):
            members_item.write(w, v)
        w.int32(self.authorized_operations)
        w.end_struct()


class ConsumerGroupDescribeResponse(Struct, kw_only=True):
    """Message of API 69: versions 0 to 1, flexible from 0."""

    API_KEY: ClassVar[int] = 69

    throttle_time_ms: int = 0
    groups: list[ConsumerGroupDescribeResponseDescribedGroup] = field(default_factory=list)

    @classmethod
    def read(cls, r: Reader, v: int) -> ConsumerGroupDescribeResponse:
        """Read one of version `v`."""
        m = ConsumerGroupDescribeResponse()
        m.throttle_time_ms = r.int32()
        m.groups = [ConsumerGroupDescribeResponseDescribedGroup.read(r, v) for _ in range(r.count())]
        r.skip_tags()
        return m

    def write(self, w: Writer, v: int) -> None:
        """Write it in version `v`."""
        w.int32(self.throttle_time_ms)
        for groups_item in w.array(self.groups):
            groups_item.write(w, v)
        w.end_struct()


class DeleteGroupsRequest(Struct, kw_only=True):
    """Message of API 42: versions 0 to 2, flexible from 2."""

    API_KEY: ClassVar[int] = 42

    groups_names: list[str] = field(default_factory=list)

    @classmethod
    def read(cls, r: Reader, v: int) -> DeleteGroupsRequest:
        """Read one of version `v`."""
        m = DeleteGroupsRequest()
        m.groups_names = [r.string() for _ in range(r.count())]
        r.skip_tags()
        return m

    def write(self, w: Writer, v: int) -> None:
        """Write it in version `v`."""
        for groups_names_item in w.array(self.groups_names):
            w.string(groups_names_item)
        w.end_struct()


class DeleteGroupsResponseDeletableGroupResult(Struct, kw_only=True):
    """Struct DeletableGroupResult of DeleteGroupsResponse."""

    group_id: str = ""
    error_code: int = 0

    @classmethod
    def read(cls, r: Reader, v: int) -> DeleteGroupsResponseDeletableGroupResult:
        """Read one of version `v`."""
        m = DeleteGroupsResponseDeletableGroupResult()
        m.group_id = r.string()
        m.error_code = r.int16()
        r.skip_tags()
        return m

    def write(self, w: Writer, v: int) -> None:
        """Write it in version `v`."""
        w.string(self.group_id)
        w.int16(self.error_code)
        w.end_struct()


class DeleteGroupsResponse(Struct, kw_only=True):
    """Message of API 42: versions 0 to 2, flexible from 2."""

    API_KEY: ClassVar[int] = 42

    throttle_time_ms: int = 0
    results: list[DeleteGroupsResponseDeletableGroupResult] = field(default_factory=list)

    @classmethod
    def read(cls, r: Reader, v: int) -> DeleteGroupsResponse:
        """Read one of version `v`."""
        m = DeleteGroupsResponse()
        m.throttle_time_ms = r.int32()
        m.results = [DeleteGroupsResponseDeletableGroupResult.read(r, v) for _ in range(r.count())]
        r.skip_tags()
        return m

    def write(self, w: Writer, v: int) -> None:
        """Write it in version `v`."""
        w.int32(self.throttle_time_ms)
        for results_item in w.array(self.results):
            results_item.write(w, v)
        w.end_struct()


class DescribeGroupsRequest(Struct, kw_only=True):
    """Message of API 15: versions 0 to 6, flexible from 5."""

    API_KEY: ClassVar[int] = 15

    groups: list[str] = field(default_factory=list)
    include_authorized_operations: bool = False

    @classmethod
    def read(cls, r: Reader, v: int) -> DescribeGroupsRequest:
        """Read one of version `v`."""
        m = DescribeGroupsRequest()
        m.groups = [r.string() for _ in range(r.count())]
        if v >= 3:
            m.include_authorized_operations = r.boolean()
        r.skip_tags()
        return m

    def write(self, w: Writer, v: int) -> None:
        """Write it in version `v`."""
        for groups_item in w.array(self.groups):
            w.string(groups_item)
        if v >= 3:
            w.boolean(self.include_authorized_operations)
        w.end_struct()


class DescribeGroupsResponseDescribedGroupMember(Struct, kw_only=True):
    """Struct DescribedGroupMember of DescribeGroupsResponse."""

    member_id: str = ""
    group_instance_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    member_metadata: bytes = b""
    member_assignment: bytes = b""

    @classmethod
    def read(cls, r: Reader, v: int) -> DescribeGroupsResponseDescribedGroupMember:
        """Read one of version `v`."""
        m = DescribeGroupsResponseDescribedGroupMember()
        m.member_id = r.string()
        if v >= 4:
            m.group_instance_id = r.nullable_string()
        m.client_id = r.string()
        m.client_host = r.string()
        m.member_metadata = r.data()
        m.member_assignment = r.data()
        r.skip_tags()
        return m

    def write(self, w: Writer, v: int) -> None:
        """Write it in version `v`."""
        w.string(self.member_id)
        if v >= 4:
            w.nullable_string(self.group_instance_id)
        w.string(self.client_id)
        w.string(self.client_host)
        w.data(self.member_metadata)
        w.data(self.member_assignment)
        w.end_struct()


class DescribeGroupsResponseDescribedGroup(Struct, kw_only=True):
    """Struct DescribedGroup of DescribeGroupsResponse."""

    error_code: int = 0
    error_message: str | None = None
    group_id: str = ""
    group_state: str = ""
    protocol_type: str = ""
    protocol_data: str = ""
    members: list[DescribeGroupsResponseDescribedGroupMember] = field(default_factory=list)
    authorized_operations: int = -2147483648

    @classmethod
    def read(cls, r: Reader, v: int) -> DescribeGroupsResponseDescribedGroup:
        """Read one of version `v`."""
        m = DescribeGroupsResponseDescribedGroup()
        m.error_code = r.int16()
        if v >= 6:
            m.error_message = r.nullable_string()
        m.group_id = r.string()
        m.group_state = r.string()
        m.protocol_type = r.string()
        m.protocol_data = r.string()
        m.members = [DescribeGroupsResponseDescribedGroupMember.read(r, v) for _ in range(r.count())]
        if v >= 3:
            m.authorized_operations = r.int32()
        r.skip_tags()
        return m

    def write(self, w: Writer, v: int) -> None:
        """Write it in version `v`."""
        w.int16(self.error_code)
        if v >= 6:
            w.nullable_string(self.error_message)
        w.string(self.group_id)
        w.string(self.group_state)
        w.string(self.protocol_type)
        w.string(self.protocol_data)
        for members_item in w.array(self.members):
            members_item.write(w, v)
        if v >= 3:
            w.int32(self.authorized_operations)
        w.end_struct()


class DescribeGroupsResponse(Struct, kw_only=True):
    """Message of API 15: versions 0 to 6, flexible from 5."""

    API_KEY: ClassVar[int] = 15

    throttle_time_ms: int = 0
    groups: list[DescribeGroupsResponseDescribedGroup] = field(default_factory=list)

    @classmethod
    def read(cls, r: Reader, v: int) -> DescribeGroupsResponse:
        """Read one of version `v`."""
        m = DescribeGroupsResponse()
        if v >= 1:
            m.throttle_time_ms = r.int32()
        m.groups = [DescribeGroupsResponseDescribedGroup.read(r, v) for _ in range(r.count())]
        r.skip_tags()
        return m

    def write(self, w: Writer, v: int) -> None:
        """Write it in version `v`."""
        if v >= 1:
            w.int32(self.throttle_time_ms)
        for groups_item in w.array(self.groups):
            groups_item.write(w, v)
        w.end_struct()


class ListGroupsRequest(Struct, kw_only=True):
    """Message of API 16: versions 0 to 5, flexible from 3."""

    API_KEY: ClassVar[int] = 16

    states_filter: list[str] = field(default_factory=list)
    types_filter: list[str] = field(default_factory=list)

    @classmethod
    def read(cls, r: Reader, v: int) -> ListGroupsRequest:
        """Read one of version `v`."""
        m = ListGroupsRequest()
        if v >= 4:
            m.states_filter = [r.string() for _ in range(r.count())]
        if v >= 5:
            m.types_filter = [r.string() for _ in range(r.count())]
        r.skip_tags()
        return m

    def write(self, w: Writer, v: int) -> None:
        """Write it in version `v`."""
        if v >= 4:
            for states_filter_item in w.array(self.states_filter):
                w.string(states_filter_item)
        if v >= 5:
            for types_filter_item in w.array(self.types_filter):
                w.string(types_filter_item)
        w.end_struct()


class ListGroupsResponseListedGroup(Struct, kw_only=True):
    """Struct ListedGroup of ListGroupsResponse."""

    group_id: str = ""
    protocol_type: str = ""
    group_state: str = ""
    group_type: str = ""

    @classmethod
    def read(cls, r: Reader, v: int) -> ListGroupsResponseListedGroup:
        """Read one of version `v`."""
        m = ListGroupsResponseListedGroup()
        m.group_id = r.string()
        m.protocol_type = r.string()
        if v >= 4:
            m.group_state = r.string()
        if v >= 5:
            m.group_type = r.string()
        r.skip_tags()
        return m

    def write(self, w: Writer, v: int) -> None:
        """Write it in version `v`."""
        w.string(self.group_id)
        w.string(self.protocol_type)
        if v >= 4:
            w.string(self.group_state)
        if v >= 5:
            w.string(self.group_type)
        w.end_struct()


class ListGroupsResponse(Struct, kw_only=True):
    """Message of API 16: versions 0 to 5, flexible from 3."""

    API_KEY: ClassVar[int] = 16

    throttle_time_ms: int = 0
    error_code: int = 0
    groups: list[ListGroupsResponseListedGroup] = field(default_factory=list)

    @classmethod
    def read(cls, r: Reader, v: int) -> ListGroupsResponse:
        """Read one of version `v`."""
        m = ListGroupsResponse()
        if v >= 1:
            m.throttle_time_ms = r.int32()
        m.error_code = r.int16()
        m.groups = [ListGroupsResponseListedGroup.read(r, v) for _ in range(r.count())]
        r.skip_tags()
        return m

    def write(self, w: Writer, v: int) -> None:
        """Write it in version `v`."""
        if v >= 1:
            w.int32(self.throttle_time_ms)
        w.int16(self.error_code)
        for groups_item in w.array(self.groups):
            groups_item.write(w, v)
        w.end_struct()
