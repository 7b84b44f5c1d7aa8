"""Messages of the wire protocol: CreatePartitions, CreateTopics, DeleteTopics. Made by scripts/kafka_messages; not to be changed by hand.

Owns the fields of these messages and their bytes in every version; must not know their purpose. A field that a version
lacks is read as its default, and is not written.
"""

from __future__ import annotations

from typing import ClassVar

from msgspec import Struct, field

from api.kafka.protocol.primitives import NO_UUID, Reader, Tags, Writer


class CreatePartitionsRequestAssignment(Struct, kw_only=True):
    """Struct CreatePartitionsAssignment of CreatePartitionsRequest."""

    broker_ids: list[int] = field(default_factory=list)

    @classmethod
    def read(cls, r: Reader, v: int) -> CreatePartitionsRequestAssignment:
        """Read one of version `v`."""
        m = CreatePartitionsRequestAssignment()
        m.broker_ids = [r.int32() for _ in range(r.count())]
        r.skip_tags()
        return m

    def write(self, w: Writer, v: int) -> None:
        """Write it in version `v`."""
        for broker_ids_item in w.array(self.broker_ids):
            w.int32(broker_ids_item)
        w.end_struct()


class CreatePartitionsRequestTopic(Struct, kw_only=True):
    """Struct CreatePartitionsTopic of CreatePartitionsRequest."""

    name: str = ""
    count: int = 0
    assignments: list[CreatePartitionsRequestAssignment] | None = field(default_factory=list)

    @classmethod
    def read(cls, r: Reader, v: int) -> CreatePartitionsRequestTopic:
        """Read one of version `v`."""
        m = CreatePartitionsRequestTopic()
        m.name = r.string()
        m.count = r.int32()
        n = r.nullable_count()
        m.assignments = None if n is None else [CreatePartitionsRequestAssignment.read(r, v) for _ in range(n)]
        r.skip_tags()
        return m

    def write(self, w: Writer, v: int) -> None:
        """Write it in version `v`."""
        w.string(self.name)
        w.int32(self.count)
        for assignments_item in w.nullable_array(self.assignments):
            assignments_item.write(w, v)
        w.end_struct()


class CreatePartitionsRequest(Struct, kw_only=True):
    """Message of API 37: versions 0 to 3, flexible from 2."""

    API_KEY: ClassVar[int] = 37

    topics: list[CreatePartitionsRequestTopic] = field(default_factory=list)
    timeout_ms: int = 0
    validate_only: bool = False

    @classmethod
    def read(cls, r: Reader, v: int) -> CreatePartitionsRequest:
        """Read one of version `v`."""
        m = CreatePartitionsRequest()
        m.topics = [CreatePartitionsRequestTopic.read(r, v) for _ in range(r.count())]
        m.timeout_ms = r.int32()
        m.validate_only = r.boolean()
        r.skip_tags()
        return m

    def write(self, w: Writer, v: int) -> None:
        """Write it in version `v`."""
        for topics_item in w.array(self.topics):
            topics_item.write(w, v)
        w.int32(self.timeout_ms)
        w.boolean(self.validate_only)
        w.end_struct()


class CreatePartitionsResponseTopicResult(Struct, kw_only=True):
    """Struct CreatePartitionsTopicResult of CreatePartitionsResponse."""

    name: str = ""
    error_code: int = 0
    error_message: str | None = None

    @classmethod
    def read(cls, r: Reader, v: int) -> CreatePartitionsResponseTopicResult:
        """Read one of version `v`."""
        m = CreatePartitionsResponseTopicResult()
        m.name = r.string()
        m.error_code = r.int16()
        m.error_message = r.nullable_string()
        r.skip_tags()
        return m

    def write(self, w: Writer, v: int) -> None:
        """Write it in version `v`."""
        w.string(self.name)
        w.int16(self.error_code)
        w.nullable_string(self.error_message)
        w.end_struct()


class CreatePartitionsResponse(Struct, kw_only=True):
    """Message of API 37: versions 0 to 3, flexible from 2."""

    API_KEY: ClassVar[int] = 37

    throttle_time_ms: int = 0
    results: list[CreatePartitionsResponseTopicResult] = field(default_factory=list)

    @classmethod
    def read(cls, r: Reader, v: int) -> CreatePartitionsResponse:
        """Read one of version `v`."""
        m = CreatePartitionsResponse()
        m.throttle_time_ms = r.int32()
        m.results = [CreatePartitionsResponseTopicResult.read(r, v) for _ in range(r.count())]
        r.skip_tags()
        return m

    def write(self, w: Writer, v: int) -> None:
        """Write it in version `v`."""
        w.int32(self.throttle_time_ms)
        for results_item in w.array(self.results):
            results_item.write(w, v)
        w.end_struct()


class CreateTopicsRequestCreatableReplicaAssignment(Struct, kw_only=True):
    """Struct CreatableReplicaAssignment of CreateTopicsRequest."""

    partition_index: int = 0
    broker_ids: list[int] = field(default_factory=list)

    @classmethod
    def read(cls, r: Reader, v: int) -> CreateTopicsRequestCreatableReplicaAssignment:
        """Read one of version `v`."""
        m = CreateTopicsRequestCreatableReplicaAssignment()
        m.partition_index = r.int32()
        m.broker_ids = [r.int32() for _ in range(r.count())]
        r.skip_tags()
        return m

    def write(self, w: Writer, v: int) -> None:
        """Write it in version `v`."""
        w.int32(self.partition_index)
        for broker_ids_item in w.array(self.broker_ids):
            w.int32(broker_ids_item)
        w.end_struct()


class CreateTopicsRequestCreatableTopicConfig(Struct, kw_only=True):
    """Struct CreatableTopicConfig of CreateTopicsRequest."""

    name: str = ""
    value: str | None = ""

    @classmethod
    def read(cls, r: Reader, v: int) -> CreateTopicsRequestCreatableTopicConfig:
        """Read one of version `v`."""
        m = CreateTopicsRequestCreatableTopicConfig()
        m.name = r.string()
        m.value = r.nullable_string()
        r.skip_tags()
        return m

    def write(self, w: Writer, v: int) -> None:
        """Write it in version `v`."""
        w.string(self.name)
        w.nullable_string(self.value)
        w.end_struct()


class CreateTopicsRequestCreatableTopic(Struct, kw_only=True):
    """Struct CreatableTopic of CreateTopicsRequest."""

    name: str = ""
    num_partitions: int = 0
    replication_factor: int = 0
    assignments: list[CreateTopicsRequestCreatableReplicaAssignment] = field(default_factory=list)
    configs: list[CreateTopicsRequestCreatableTopicConfig] = field(default_factory=list)

    @classmethod
    def read(cls, r: Reader, v: int) -> CreateTopicsRequestCreatableTopic:
        """Read one of version `v`."""
        m = CreateTopicsRequestCreatableTopic()
        m.name = r.string()
        m.num_partitions = r.int32()
        m.replication_factor = r.int16()
        m.assignments = [CreateTopicsRequestCreatableReplicaAssignment.read(r, v) for _ in range(r.count())]
        m.configs = [CreateTopicsRequestCreatableTopicConfig.read(r, v) for _ in range(r.count())]
        r.skip_tags()
        return m

    def write(self, w: Writer, v: int) -> None:
        """Write it in version `v`."""
        w.string(self.name)
        w.int32(self.num_partitions)
        w.int16(self.replication_factor)
        for assignments_item in w.array(self.assignments):
            assignments_item.write(w, v)
        for configs_item in w.array(self.configs):
            configs_item.write(w, v)
        w.end_struct()


class CreateTopicsRequest(Struct, kw_only=True):
    """Message of API 19: versions 2 to 7, flexible from 5."""

    API_KEY: ClassVar[int] = 19

    topics: list[CreateTopicsRequestCreatableTopic] = field(default_factory=list)
    timeout_ms: int = 60000
    validate_only: bool = False

    @classmethod
    def read(cls, r: Reader, v: int) -> CreateTopicsRequest:
        """Read one of version `v`."""
        m = CreateTopicsRequest()
        m.topics = [CreateTopicsRequestCreatableTopic.read(r, v) for _ in range(r.count())]
        m.timeout_ms = r.int32()
        m.validate_only = r.boolean()
        r.skip_tags()
        return m

    def write(self, w: Writer, v: int) -> None:
        """Write it in version `v`."""
        for topics_item in w.array(self.topics):
            topics_item.write(w, v)
        w.int32(self.timeout_ms)
        w.boolean(self.validate_only)
        w.end_struct()


class CreateTopicsResponseCreatableTopicConfigs(Struct, kw_only=True):
    """Struct CreatableTopicConfigs of CreateTopicsResponse."""

    name: str = ""
    value: str | None = ""
    read_only: bool = False
    config_source: int = -1
    is_sensitive: bool = False

    @classmethod
    def read(cls, r: Reader, v: int) -> CreateTopicsResponseCreatableTopicConfigs:
        """Read one of version `v`."""
        m = CreateTopicsResponseCreatableTopicConfigs()
        m.name = r.string()
        m.value = r.nullable_string()
        m.read_only = r.boolean()
        m.config_source = r.int8()
        m.is_sensitive = r.boolean()
        r.skip_tags()
        return m

    def write(self, w: Writer, v: int) -> None:
        """Write it in version `v`."""
        w.string(self.name)
        w.nullable_string(self.value)
        w.boolean(self.read_only)
        w.int8(self.config_source)
        w.boolean(self.is_sensitive)
        w.end_struct()


class CreateTopicsResponseCreatableTopicResult(Struct, kw_only=True):
    """Struct CreatableTopicResult of CreateTopicsResponse."""

    name: str = ""
    topic_id: bytes = NO_UUID
    error_code: int = 0
    error_message: str | None = ""
    topic_config_error_code: int = 0
    num_partitions: int = -1
    replication_factor: int = -1
    configs: list[CreateTopicsResponseCreatableTopicConfigs] | None = field(default_factory=list)

    @classmethod
    def read(cls, r: Reader, v: int) -> CreateTopicsResponseCreatableTopicResult:
        """Read one of version `v`."""
        m = CreateTopicsResponseCreatableTopicResult()
        m.name = r.string()
        if v >= 7:
            m.topic_id = r.uuid()
        m.error_code = r.int16()
        m.error_message = r.nullable_string()
        if v >= 5:
            m.num_partitions = r.int32()
            m.replication_factor = r.int16()
            n = r.nullable_count()
            m.configs = None if n is None else [CreateTopicsResponseCreatableTopicConfigs.read(r, v) for _ in range(n)]
        for tag in r.tags():
            if tag == 0 and v >= 5:
                m.topic_config_error_code = r.int16()
            else:
                r.skip_tag()
        return m

    def write(self, w: Writer, v: int) -> None:
        """Write it in version `v`."""
        w.string(self.name)
        if v >= 7:
            w.uuid(self.topic_id)
        w.int16(self.error_code)
        w.nullable_string(self.error_message)
        if v >= 5:
            w.int32(self.num_partitions)
            w.int16(self.replication_factor)
            for configs_item in w.nullable_array(self.configs):
                configs_item.write(w, v)
        tags: Tags = []
        if v >= 5 and self.topic_config_error_code != 0:
            w.tag(tags, 0).int16(self.topic_config_error_code)
        w.end_struct(tags)


class CreateTopicsResponse(Struct, kw_only=True):
    """Message of API 19: versions 2 to 7, flexible from 5."""

    API_KEY: ClassVar[int] = 19

    throttle_time_ms: int = 0
    topics: list[CreateTopicsResponseCreatableTopicResult] = field(default_factory=list)

    @classmethod
    def read(cls, r: Reader, v: int) -> CreateTopicsResponse:
        """Read one of version `v`."""
        m = CreateTopicsResponse()
        m.throttle_time_ms = r.int32()
        m.topics = [CreateTopicsResponseCreatableTopicResult.read(r, v) for _ in range(r.count())]
        r.skip_tags()
        return m

    def write(self, w: Writer, v: int) -> None:
        """Write it in version `v`."""
        w.int32(self.throttle_time_ms)
        for topics_item in w.array(self.topics):
            topics_item.write(w, v)
        w.end_struct()


class DeleteTopicsRequestDeleteTopicState(Struct, kw_only=True):
    """Struct DeleteTopicState of DeleteTopicsRequest."""

    name: str | None = None
    topic_id: bytes = NO_UUID

    @classmethod
    def read(cls, r: Reader, v: int) -> DeleteTopicsRequestDeleteTopicState:
        """Read one of version `v`."""
        m = DeleteTopicsRequestDeleteTopicState()
        m.name = r.nullable_string()
        m.topic_id = r.uuid()
        r.skip_tags()
        return m

    def write(self, w: Writer, v: int) -> None:
        """Write it in version `v`."""
        w.nullable_string(self.name)
        w.uuid(self.topic_id)
        w.end_struct()


class DeleteTopicsRequest(Struct, kw_only=True):
    """Message of API 20: versions 1 to 6, flexible from 4."""

    API_KEY: ClassVar[int] = 20

    topics: list[DeleteTopicsRequestDeleteTopicState] = field(default_factory=list)
    topic_names: list[str] = field(default_factory=list)
    timeout_ms: int = 0

    @classmethod
    def read(cls, r: Reader, v: int) -> DeleteTopicsRequest:
        """Read one of version `v`."""
        m = DeleteTopicsRequest()
        if v >= 6:
            m.topics = [DeleteTopicsRequestDeleteTopicState.read(r, v) for _ in range(r.count())]
        if v <= 5:
            m.topic_names = [r.string() for _ in range(r.count())]
        m.timeout_ms = r.int32()
        r.skip_tags()
        return m

    def write(self, w: Writer, v: int) -> None:
        """Write it in version `v`."""
        if v >= 6:
            for topics_item in w.array(self.topics):
                topics_item.write(w, v)
        if v <= 5:
            for topic_names_item in w.array(self.topic_names):
                w.string(topic_names_item)
        w.int32(self.timeout_ms)
        w.end_struct()


class DeleteTopicsResponseDeletableTopicResult(Struct, kw_only=True):
    """Struct DeletableTopicResult of DeleteTopicsResponse."""

    name: str | None = ""
    topic_id: bytes = NO_UUID
    error_code: int = 0
    error_message: str | None = None

    @classmethod
    def read(cls, r: Reader, v: int) -> DeleteTopicsResponseDeletableTopicResult:
        """Read one of version `v`."""
        m = DeleteTopicsResponseDeletableTopicResult()
        m.name = r.nullable_string() if v >= 6 else r.string()
        if v >= 6:
            m.topic_id = r.uuid()
        m.error_code = r.int16()
        if v >= 5:
            m.error_message = r.nullable_string()
        r.skip_tags()
        return m

    def write(self, w: Writer, v: int) -> None:
        """Write it in version `v`."""
        if v >= 6:
            w.nullable_string(self.name)
        else:
            w.string(self.name)
        if v >= 6:
            w.uuid(self.topic_id)
        w.int16(self.error_code)
        if v >= 5:
            w.nullable_string(self.error_message)
        w.end_struct()


class DeleteTopicsResponse(Struct, kw_only=True):
    """Message of API 20: versions 1 to 6, flexible from 4."""

    API_KEY: ClassVar[int] = 20

    throttle_time_ms: int = 0
    responses: list[DeleteTopicsResponseDeletableTopicResult] = field(default_factory=list)

    @classmethod
    def read(cls, r: Reader, v: int) -> DeleteTopicsResponse:
        """Read one of version `v`."""
        m = DeleteTopicsResponse()
        m.throttle_time_ms = r.int32()
        m.responses = [DeleteTopicsResponseDeletableTopicResult.read(r, v) for _ in range(r.count())]
        r.skip_tags()
        return m

    def write(self, w: Writer, v: int) -> None:
        """Write it in version `v`."""
        w.int32(self.throttle_time_ms)
        for responses_item in w.array(self.responses):
            responses_item.write(w, v)
        w.end_struct()
