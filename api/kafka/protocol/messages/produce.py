"""Messages of the wire protocol: InitProducerId, Produce. Made by scripts/kafka_messages; not to be changed by hand.

Owns the fields of these messages and their bytes in every version; must not know their purpose. A field that a version
lacks is read as its default, and is not written.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from api.kafka.protocol.primitives import EMPTY, Fields, NO_UUID, Reader, Tags, Writer


class InitProducerIdRequest(Fields):
    """Message of API 22: versions 0 to 6, flexible from 2."""

    API_KEY: ClassVar[int] = 22
    FIELDS: ClassVar[Sequence[str]] = ("transactional_id", "transaction_timeout_ms", "producer_id", "producer_epoch",
        "enable2_pc", "keep_prepared_txn")

    def __init__(
        self,
        *,
        transactional_id: str | None = "",
        transaction_timeout_ms: int = 0,
        producer_id: int = -1,
        producer_epoch: int = -1,
        enable2_pc: bool = False,
        keep_prepared_txn: bool = False,
    ) -> None:
        self.transactional_id = transactional_id
        self.transaction_timeout_ms = transaction_timeout_ms
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.enable2_pc = enable2_pc
        self.keep_prepared_txn = keep_prepared_txn

    @classmethod
    def read(cls, r: Reader, v: int) -> InitProducerIdRequest:
        """Read one of version `v`."""
        m = InitProducerIdRequest()
        m.transactional_id = r.nullable_string()
        m.transaction_timeout_ms = r.int32()
        if v >= 3:
            m.producer_id = r.int64()
            m.producer_epoch = r.int16()
        if v >= 6:
            m.enable2_pc = r.boolean()
            m.keep_prepared_txn = r.boolean()
        r.skip_tags()
        return m

    def write(self, w: Writer, v: int) -> None:
        """Write it in version `v`."""
        w.nullable_string(self.transactional_id)
        w.int32(self.transaction_timeout_ms)
        if v >= 3:
            w.int64(self.producer_id)
            w.int16(self.producer_epoch)
        if v >= 6:
            w.boolean(self.enable2_pc)
            w.boolean(self.keep_prepared_txn)
        w.end_struct()


class InitProducerIdResponse(Fields):
    """Message of API 22: versions 0 to 6, flexible from 2."""

    API_KEY: ClassVar[int] = 22
    FIELDS: ClassVar[Sequence[str]] = ("throttle_time_ms", "error_code", "producer_id", "producer_epoch",
        "ongoing_txn_producer_id", "ongoing_txn_producer_epoch")

    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        error_code: int = 0,
        producer_id: int = -1,
        producer_epoch: int = 0,
        ongoing_txn_producer_id: int = -1,
        ongoing_txn_producer_epoch: int = -1,
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.error_code = error_code
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.ongoing_txn_producer_id = ongoing_txn_producer_id
        self.ongoing_txn_producer_epoch = ongoing_txn_producer_epoch

    @classmethod
    def read(cls, r: Reader, v: int) -> InitProducerIdResponse:
        """Read one of version `v`."""
        m = InitProducerIdResponse()
        m.throttle_time_ms = r.int32()
        m.error_code = r.int16()
        m.producer_id = r.int64()
        m.producer_epoch = r.int16()
        if v >= 6:
            m.ongoing_txn_producer_id = r.int64()
            m.ongoing_txn_producer_epoch = r.int16()
        r.skip_tags()
        return m

    def write(self, w: Writer, v: int) -> None:
        """Write it in version `v`."""
        w.int32(self.throttle_time_ms)
        w.int16(self.error_code)
        w.int64(self.producer_id)
        w.int16(self.producer_epoch)
        if v >= 6:
            w.int64(self.ongoing_txn_producer_id)
            w.int16(self.ongoing_txn_producer_epoch)
        w.end_struct()


class ProduceRequestPartitionProduceData(Fields):
    """Struct PartitionProduceData of ProduceRequest."""

    FIELDS: ClassVar[Sequence[str]] = ("index", "records")

    def __init__(self, *, index: int = 0, records: bytes | None = b"") -> None:
        self.index = index
        self.records = records

    @classmethod
    def read(cls, r: Reader, v: int) -> ProduceRequestPartitionProduceData:
        """Read one of version `v`."""
        m = ProduceRequestPartitionProduceData()
        m.index = r.int32()
        m.records = r.nullable_data()
        r.skip_tags()
        return m

    def write(self, w: Writer, v: int) -> None:
        """Write it in version `v`."""
        w.int32(self.index)
        w.nullable_data(self.records)
        w.end_struct()


class ProduceRequestTopicProduceData(Fields):
    """Struct TopicProduceData of ProduceRequest."""

    FIELDS: ClassVar[Sequence[str]] = ("name", "topic_id", "partition_data")

    def __init__(
        self,
        *,
        name: str = "",
        topic_id: bytes = NO_UUID,
        partition_data: list[ProduceRequestPartitionProduceData] = EMPTY,
    ) -> None:
        self.name = name
        self.topic_id = topic_id
        self.partition_data = [] if partition_data is EMPTY else partition_data

    @classmethod
    def read(cls, r: Reader, v: int) -> ProduceRequestTopicProduceData:
        """Read one of version `v`."""
        m = ProduceRequestTopicProduceData()
        if v <= 12:
            m.name = r.string()
        if v >= 13:
            m.topic_id = r.uuid()
        m.partition_data = [ProduceRequestPartitionProduceData.read(r, v) for _ in range(r.count())]
        r.skip_tags()
        return m

    def write(self, w: Writer, v: int) -> None:
        """Write it in version `v`."""
        if v <= 12:
            w.string(self.name)
        if v >= 13:
            w.uuid(self.topic_id)
        for partition_data_item in w.array(self.partition_data):
            partition_data_item.write(w, v)
        w.end_struct()


class ProduceRequest(Fields):
    """Message of API 0: versions 3 to 13, flexible from 9."""

    API_KEY: ClassVar[int] = 0
    FIELDS: ClassVar[Sequence[str]] = ("transactional_id", "acks", "timeout_ms", "topic_data")

    def __init__(
        self,
        *,
        transactional_id: str | None = None,
        acks: int = 0,
        timeout_ms: int = 0,
        topic_data: list[ProduceRequestTopicProduceData] = EMPTY,
    ) -> None:
        self.transactional_id = transactional_id
        self.acks = acks
        self.timeout_ms = timeout_ms
        self.topic_data = [] if topic_data is EMPTY else topic_data

    @classmethod
    def read(cls, r: Reader, v: int) -> ProduceRequest:
        """Read one of version `v`."""
        m = ProduceRequest()
        m.transactional_id = r.nullable_string()
        m.acks = r.int16()
        m.timeout_ms = r.int32()
        m.topic_data = [ProduceRequestTopicProduceData.read(r, v) for _ in range(r.count())]
        r.skip_tags()
        return m

    def write(self, w: Writer, v: int) -> None:
        """Write it in version `v`."""
        w.nullable_string(self.transactional_id)
        w.int16(self.acks)
        w.int32(self.timeout_ms)
        for topic_data_item in w.array(self.topic_data):
            topic_data_item.write(w, v)
        w.end_struct()


class ProduceResponseBatchIndexAndErrorMessage(Fields):
    """Struct BatchIndexAndErrorMessage of ProduceResponse."""

    FIELDS: ClassVar[Sequence[str]] = ("batch_index", "batch_index_error_message")

    def __init__(self, *, batch_index: int = 0, batch_index_error_message: str | None = None) -> None:
        self.batch_index = batch_index
        self.batch_index_error_message = batch_index_error_message

    @classmethod
    def read(cls, r: Reader, v: int) -> ProduceResponseBatchIndexAndErrorMessage:
        """Read one of version `v`."""
        m = ProduceResponseBatchIndexAndErrorMessage()
        m.batch_index = r.int32()
        m.batch_index_error_message = r.nullable_string()
        r.skip_tags()
        return m

    def write(self, w: Writer, v: int) -> None:
        """Write it in version `v`."""
        w.int32(self.batch_index)
        w.nullable_string(self.batch_index_error_message)
        w.end_struct()


class ProduceResponseLeaderIdAndEpoch(Fields):
    """Struct LeaderIdAndEpoch of ProduceResponse."""

    FIELDS: ClassVar[Sequence[str]] = ("leader_id", "leader_epoch")

    def __init__(self, *, leader_id: int = -1, leader_epoch: int = -1) -> None:
        self.leader_id = leader_id
        self.leader_epoch = leader_epoch

    @classmethod
    def read(cls, r: Reader, v: int) -> ProduceResponseLeaderIdAndEpoch:
        """Read one of version `v`."""
        m = ProduceResponseLeaderIdAndEpoch()
        m.leader_id = r.int32()
        m.leader_epoch = r.int32()
        r.skip_tags()
        return m

    def write(self, w: Writer, v: int) -> None:
        """Write it in version `v`."""
        w.int32(self.leader_id)
        w.int32(self.leader_epoch)
        w.end_struct()


class ProduceResponsePartitionProduceResponse(Fields):
    """Struct PartitionProduceResponse of ProduceResponse."""

    FIELDS: ClassVar[Sequence[str]] = ("index", "error_code", "base_offset", "log_append_time_ms", "log_start_offset",
        "record_errors", "error_message", "current_leader")

    def __init__(
        self,
        *,
        index: int = 0,
        error_code: int = 0,
        base_offset: int = 0,
        log_append_time_ms: int = -1,
        log_start_offset: int = -1,
        record_errors: list[ProduceResponseBatchIndexAndErrorMessage] = EMPTY,
        error_message: str | None = None,
        current_leader: ProduceResponseLeaderIdAndEpoch | None = None,
    ) -> None:
        self.index = index
        self.error_code = error_code
        self.base_offset = base_offset
        self.log_append_time_ms = log_append_time_ms
        self.log_start_offset = log_start_offset
        self.record_errors = [] if record_errors is EMPTY else record_errors
        self.error_message = error_message
        self.current_leader = ProduceResponseLeaderIdAndEpoch() if current_leader is None else current_leader

    @classmethod
    def read(cls, r: Reader, v: int) -> ProduceResponsePartitionProduceResponse:
        """Read one of version `v`."""
        m = ProduceResponsePartitionProduceResponse()
        m.index = r.int32()
        m.error_code = r.int16()
        m.base_offset = r.int64()
        m.log_append_time_ms = r.int64()
        if v >= 5:
            m.log_start_offset = r.int64()
        if v >= 8:
            m.record_errors = [ProduceResponseBatchIndexAndErrorMessage.read(r, v) for _ in range(r.count())]
            m.error_message = r.nullable_string()
        for tag in r.tags():
            if tag == 0 and v >= 10:
                m.current_leader = ProduceResponseLeaderIdAndEpoch.read(r, v)
            else:
                r.skip_tag()
        return m

    def write(self, w: Writer, v: int) -> None:
        """Write it in version `v`."""
        w.int32(self.index)
        w.int16(self.error_code)
        w.int64(self.base_offset)
        w.int64(self.log_append_time_ms)
        if v >= 5:
            w.int64(self.log_start_offset)
        if v >= 8:
            for record_errors_item in w.array(self.record_errors):
                record_errors_item.write(w, v)
            w.nullable_string(self.error_message)
        tags: Tags = []
        if v >= 10 and (self.current_leader.leader_id != -1 or self.current_leader.leader_epoch != -1):
            self.current_leader.write(w.tag(tags, 0), v)
        w.end_struct(tags)


class ProduceResponseTopicProduceResponse(Fields):
    """Struct TopicProduceResponse of ProduceResponse."""

    FIELDS: ClassVar[Sequence[str]] = ("name", "topic_id", "partition_responses")

    def __init__(
        self,
        *,
        name: str = "",
        topic_id: bytes = NO_UUID,
        partition_responses: list[ProduceResponsePartitionProduceResponse] = EMPTY,
    ) -> None:
        self.name = name
        self.topic_id = topic_id
        self.partition_responses = [] if partition_responses is EMPTY else partition_responses

    @classmethod
    def read(cls, r: Reader, v: int) -> ProduceResponseTopicProduceResponse:
        """Read one of version `v`."""
        m = ProduceResponseTopicProduceResponse()
        if v <= 12:
            m.name = r.string()
        if v >= 13:
            m.topic_id = r.uuid()
        m.partition_responses = [ProduceResponsePartitionProduceResponse.read(r, v) for _ in range(r.count())]
        r.skip_tags()
        return m

    def write(self, w: Writer, v: int) -> None:
        """Write it in version `v`."""
        if v <= 12:
            w.string(self.name)
        if v >= 13:
            w.uuid(self.topic_id)
        for partition_responses_item in w.array(self.partition_responses):
            partition_responses_item.write(w, v)
        w.end_struct()


class ProduceResponseNodeEndpoint(Fields):
    """Struct NodeEndpoint of ProduceResponse."""

    FIELDS: ClassVar[Sequence[str]] = ("node_id", "host", "port", "rack")

    def __init__(self, *, node_id: int = 0, host: str = "", port: int = 0, rack: str | None = None) -> None:
        self.node_id = node_id
        self.host = host
        self.port = port
        self.rack = rack

    @classmethod
    def read(cls, r: Reader, v: int) -> ProduceResponseNodeEndpoint:
        """Read one of version `v`."""
        m = ProduceResponseNodeEndpoint()
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


class ProduceResponse(Fields):
    """Message of API 0: versions 3 to 13, flexible from 9."""

    API_KEY: ClassVar[int] = 0
    FIELDS: ClassVar[Sequence[str]] = ("responses", "throttle_time_ms", "node_endpoints")

    def __init__(
        self,
        *,
        responses: list[ProduceResponseTopicProduceResponse] = EMPTY,
        throttle_time_ms: int = 0,
        node_endpoints: list[ProduceResponseNodeEndpoint] = EMPTY,
    ) -> None:
        self.responses = [] if responses is EMPTY else responses
        self.throttle_time_ms = throttle_time_ms
        self.node_endpoints = [] if node_endpoints is EMPTY else node_endpoints

    @classmethod
    def read(cls, r: Reader, v: int) -> ProduceResponse:
        """Read one of version `v`."""
        m = ProduceResponse()
        m.responses = [ProduceResponseTopicProduceResponse.read(r, v) for _ in range(r.count())]
        m.throttle_time_ms = r.int32()
        for tag in r.tags():
            if tag == 0 and v >= 10:
                m.node_endpoints = [ProduceResponseNodeEndpoint.read(r, v) for _ in range(r.count())]
            else:
                r.skip_tag()
        return m

    def write(self, w: Writer, v: int) -> None:
        """Write it in version `v`."""
        for responses_item in w.array(self.responses):
            responses_item.write(w, v)
        w.int32(self.throttle_time_ms)
        tags: Tags = []
        if v >= 10 and self.node_endpoints:
            t = w.tag(tags, 0)
            for node_endpoints_item in t.array(self.node_endpoints):
                node_endpoints_item.write(t, v)
        w.end_struct(tags)
