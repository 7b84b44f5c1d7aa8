"""Messages of the wire protocol: AddOffsetsToTxn, AddPartitionsToTxn, EndTxn, TxnOffsetCommit. Made by scripts/kafka_messages; not to be changed by hand.

Owns the fields of these messages and their bytes in every version; must not know their purpose. A field that a version
lacks is read as its default, and is not written.
"""

from __future__ import annotations

from typing import ClassVar

from msgspec import Struct, field

from api.kafka.protocol.primitives import Reader, Writer


class AddOffsetsToTxnRequest(Struct, kw_only=True):
    """Message of API 25: versions 0 to 4, flexible from 3."""

    API_KEY: ClassVar[int] = 25

    transactional_id: str = ""
    producer_id: int = 0
    producer_epoch: int = 0
    group_id: str = ""

    @classmethod
    def read(cls, r: Reader, v: int) -> AddOffsetsToTxnRequest:
        """Read one of version `v`."""
        m = AddOffsetsToTxnRequest()
        m.transactional_id = r.string()
        m.producer_id = r.int64()
        m.producer_epoch = r.int16()
        m.group_id = r.string()
        r.skip_tags()
        return m

    def write(self, w: Writer, v: int) -> None:
        """Write it in version `v`."""
        w.string(self.transactional_id)
        w.int64(self.producer_id)
        w.int16(self.producer_epoch)
        w.string(self.group_id)
        w.end_struct()


class AddOffsetsToTxnResponse(Struct, kw_only=True):
    """Message of API 25: versions 0 to 4, flexible from 3."""

    API_KEY: ClassVar[int] = 25

    throttle_time_ms: int = 0
    error_code: int = 0

    @classmethod
    def read(cls, r: Reader, v: int) -> AddOffsetsToTxnResponse:
        """Read one of version `v`."""
        m = AddOffsetsToTxnResponse()
        m.throttle_time_ms = r.int32()
        m.error_code = r.int16()
        r.skip_tags()
        return m

    def write(self, w: Writer, v: int) -> None:
        """Write it in version `v`."""
        w.int32(self.throttle_time_ms)
        w.int16(self.error_code)
        w.end_struct()


class AddPartitionsToTxnRequestTopic(Struct, kw_only=True):
    """Struct AddPartitionsToTxnTopic of AddPartitionsToTxnRequest."""

    name: str = ""
    partitions: list[int] = field(default_factory=list)

    @classmethod
    def read(cls, r: Reader, v: int) -> AddPartitionsToTxnRequestTopic:
        """Read one of version `v`."""
        m = AddPartitionsToTxnRequestTopic()
        m.name = r.string()
        m.partitions = [r.int32() for _ in range(r.count())]
        r.skip_tags()
        return m

    def write(self, w: Writer, v: int) -> None:
        """Write it in version `v`."""
        w.string(self.name)
        for partitions_item in w.array(self.partitions):
            w.int32(partitions_item)
        w.end_struct()


class AddPartitionsToTxnRequestTransaction(Struct, kw_only=True):
    """Struct AddPartitionsToTxnTransaction of AddPartitionsToTxnRequest."""

    transactional_id: str = ""
    producer_id: int = 0
    producer_epoch: int = 0
    verify_only: bool = False
    topics: list[AddPartitionsToTxnRequestTopic] = field(default_factory=list)

    @classmethod
    def read(cls, r: Reader, v: int) -> AddPartitionsToTxnRequestTransaction:
        """Read one of version `v`."""
        m = AddPartitionsToTxnRequestTransaction()
        m.transactional_id = r.string()
        m.producer_id = r.int64()
        m.producer_epoch = r.int16()
        m.verify_only = r.boolean()
        m.topics = [AddPartitionsToTxnRequestTopic.read(r, v) for _ in range(r.count())]
        r.skip_tags()
        return m

    def write(self, w: Writer, v: int) -> None:
        """Write it in version `v`."""
        w.string(self.transactional_id)
        w.int64(self.producer_id)
        w.int16(self.producer_epoch)
        w.boolean(self.verify_only)
        for topics_item in w.array(self.topics):
            topics_item.write(w, v)
        w.end_struct()


class AddPartitionsToTxnRequest(Struct, kw_only=True):
    """Message of API 24: versions 0 to 5, flexible from 3."""

    API_KEY: ClassVar[int] = 24

    transactions: list[AddPartitionsToTxnRequestTransaction] = field(default_factory=list)
    v3_and_below_transactional_id: str = ""
    v3_and_below_producer_id: int = 0
    v3_and_below_producer_epoch: int = 0
    v3_and_below_topics: list[AddPartitionsToTxnRequestTopic] = field(default_factory=list)

    @classmethod
    def read(cls, r: Reader, v: int) -> AddPartitionsToTxnRequest:
        """Read one of version `v`."""
        m = AddPartitionsToTxnRequest()
        if v >= 4:
            m.transactions = [AddPartitionsToTxnRequestTransaction.read(r, v) for _ in range(r.count())]
        if v <= 3:
            m.v3_and_below_transactional_id = r.string()
            m.v3_and_below_producer_id = r.int64()
            m.v3_and_below_producer_epoch = r.int16()
            m.v3_and_below_topics = [AddPartitionsToTxnRequestTopic.read(r, v) for _ in range(r.count())]
        r.skip_tags()
        return m

    def write(self, w: Writer, v: int) -> None:
        """Write it in version `v`."""
        if v >= 4:
            for transactions_item in w.array(self.transactions):
                transactions_item.write(w, v)
        if v <= 3:
            w.string(self.v3_and_below_transactional_id)
            w.int64(self.v3_and_below_producer_id)
            w.int16(self.v3_and_below_producer_epoch)
            for v3_and_below_topics_item in w.array(self.v3_and_below_topics):
                v3_and_below_topics_item.write(w, v)
        w.end_struct()


class AddPartitionsToTxnResponsePartitionResult(Struct, kw_only=True):
    """Struct AddPartitionsToTxnPartitionResult of AddPartitionsToTxnResponse."""

    partition_index: int = 0
    partition_error_code: int = 0

    @classmethod
    def read(cls, r: Reader, v: int) -> AddPartitionsToTxnResponsePartitionResult:
        """Read one of version `v`."""
        m = AddPartitionsToTxnResponsePartitionResult()
        m.partition_index = r.int32()
        m.partition_error_code = r.int16()
        r.skip_tags()
        return m

    def write(self, w: Writer, v: int) -> None:
        """Write it in version `v`."""
        w.int32(self.partition_index)
        w.int16(self.partition_error_code)
        w.end_struct()


class AddPartitionsToTxnResponseTopicResult(Struct, kw_only=True):
    """Struct AddPartitionsToTxnTopicResult of AddPartitionsToTxnResponse."""

    name: str = ""
    results_by_partition: list[AddPartitionsToTxnResponsePartitionResult] = field(default_factory=list)

    @classmethod
    def read(cls, r: Reader, v: int) -> AddPartitionsToTxnResponseTopicResult:
        """Read one of version `v`."""
        m = AddPartitionsToTxnResponseTopicResult()
        m.name = r.string()
        m.results_by_partition = [AddPartitionsToTxnResponsePartitionResult.read(r, v) for _ in range(r.count())]
        r.skip_tags()
        return m

    def write(self, w: Writer, v: int) -> None:
        """Write it in version `v`."""
        w.string(self.name)
        for results_by_partition_item in w.array(self.results_by_partition):
            results_by_partition_item.write(w, v)
        w.end_struct()


class AddPartitionsToTxnResponseResult(Struct, kw_only=True):
    """Struct AddPartitionsToTxnResult of AddPartitionsToTxnResponse."""

    transactional_id: str = ""
    topic_results: list[AddPartitionsToTxnResponseTopicResult] = field(default_factory=list)

    @classmethod
    def read(cls, r: Reader, v: int) -> AddPartitionsToTxnResponseResult:
        """Read one of version `v`."""
        m = AddPartitionsToTxnResponseResult()
        m.transactional_id = r.string()
        m.topic_results = [AddPartitionsToTxnResponseTopicResult.read(r, v) for _ in range(r.count())]
        r.skip_tags()
        return m

    def write(self, w: Writer, v: int) -> None:
        """Write it in version `v`."""
        w.string(self.transactional_id)
        for topic_results_item in w.array(self.topic_results):
            topic_results_item.write(w, v)
        w.end_struct()


class AddPartitionsToTxnResponse(Struct, kw_only=True):
    """Message of API 24: versions 0 to 5, flexible from 3."""

    API_KEY: ClassVar[int] = 24

    throttle_time_ms: int = 0
    error_code: int = 0
    results_by_transaction: list[AddPartitionsToTxnResponseResult] = field(default_factory=list)
    results_by_topic_v3_and_below: list[AddPartitionsToTxnResponseTopicResult] = field(default_factory=list)

    @classmethod
    def read(cls, r: Reader, v: int) -> AddPartitionsToTxnResponse:
        """Read one of version `v`."""
        m = AddPartitionsToTxnResponse()
        m.throttle_time_ms = r.int32()
        if v >= 4:
            m.error_code = r.int16()
            m.results_by_transaction = [AddPartitionsToTxnResponseResult.read(r, v) for _ in range(r.count())]
        if v <= 3:
            m.results_by_topic_v3_and_below = [AddPartitionsToTxnResponseTopicResult.read(r, v) for _ in range(r.count())]
        r.skip_tags()
        return m

    def write(self, w: Writer, v: int) -> None:
        """Write it in version `v`."""
        w.int32(self.throttle_time_ms)
        if v >= 4:
            w.int16(self.error_code)
            for results_by_transaction_item in w.array(self.results_by_transaction):
                results_by_transaction_item.write(w, v)
        if v <= 3:
            for results_by_topic_v3_and_below_item in w.array(self.results_by_topic_v3_and_below):
                results_by_topic_v3_and_below_item.write(w, v)
        w.end_struct()


class EndTxnRequest(Struct, kw_only=True):
    """Message of API 26: versions 0 to 5, flexible from 3."""

    API_KEY: ClassVar[int] = 26

    transactional_id: str = ""
    producer_id: int = 0
    producer_epoch: int = 0
    committed: bool = False

    @classmethod
    def read(cls, r: Reader, v: int) -> EndTxnRequest:
        """Read one of version `v`."""
        m = EndTxnRequest()
        m.transactional_id = r.string()
        m.producer_id = r.int64()
        m.producer_epoch = r.int16()
        m.committed = r.boolean()
        r.skip_tags()
        return m

    def write(self, w: Writer, v: int) -> None:
        """Write it in version `v`."""
        w.string(self.transactional_id)
        w.int64(self.producer_id)
        w.int16(self.producer_epoch)
        w.boolean(self.committed)
        w.end_struct()


class EndTxnResponse(Struct, kw_only=True):
    """Message of API 26: versions 0 to 5, flexible from 3."""

    API_KEY: ClassVar[int] = 26

    throttle_time_ms: int = 0
    error_code: int = 0
    producer_id: int = -1
    producer_epoch: int = -1

    @classmethod
    def read(cls, r: Reader, v: int) -> EndTxnResponse:
        """Read one of version `v`."""
        m = EndTxnResponse()
        m.throttle_time_ms = r.int32()
        m.error_code = r.int16()
        if v >= 5:
            m.producer_id = r.int64()
            m.producer_epoch = r.int16()
        r.skip_tags()
        return m

    def write(self, w: Writer, v: int) -> None:
        """Write it in version `v`."""
        w.int32(self.throttle_time_ms)
        w.int16(self.error_code)
        if v >= 5:
            w.int64(self.producer_id)
            w.int16(self.producer_epoch)
        w.end_struct()


class TxnOffsetCommitRequestPartition(Struct, kw_only=True):
    """Struct TxnOffsetCommitRequestPartition of TxnOffsetCommitRequest."""

    partition_index: int = 0
    committed_offset: int = 0
    committed_leader_epoch: int = -1
    committed_metadata: str | None = ""

    @classmethod
    def read(cls, r: Reader, v: int) -> TxnOffsetCommitRequestPartition:
        """Read one of version `v`."""
        m = TxnOffsetCommitRequestPartition()
        m.partition_index = r.int32()
        m.committed_offset = r.int64()
        if v >= 2:
            m.committed_leader_epoch = r.int32()
        m.committed_metadata = r.nullable_string()
        r.skip_tags()
        return m

    def write(self, w: Writer, v: int) -> None:
        """Write it in version `v`."""
        w.int32(self.partition_index)
        w.int64(self.committed_offset)
        if v >= 2:
            w.int32(self.committed_leader_epoch)
        w.nullable_string(self.committed_metadata)
        w.end_struct()


class TxnOffsetCommitRequestTopic(Struct, kw_only=True):
    """Struct TxnOffsetCommitRequestTopic of TxnOffsetCommitRequest."""

    name: str = ""
    partitions: list[TxnOffsetCommitRequestPartition] = field(default_factory=list)

    @classmethod
    def read(cls, r: Reader, v: int) -> TxnOffsetCommitRequestTopic:
        """Read one of version `v`."""
        m = TxnOffsetCommitRequestTopic()
        m.name = r.string()
        m.partitions = [TxnOffsetCommitRequestPartition.read(r, v) for _ in range(r.count())]
        r.skip_tags()
        return m

    def write(self, w: Writer, v: int) -> None:
        """Write it in version `v`."""
        w.string(self.name)
        for partitions_item in w.array(self.partitions):
            partitions_item.write(w, v)
        w.end_struct()


class TxnOffsetCommitRequest(Struct, kw_only=True):
    """Message of API 28: versions 0 to 5, flexible from 3."""

    API_KEY: ClassVar[int] = 28

    transactional_id: str = ""
    group_id: str = ""
    producer_id: int = 0
    producer_epoch: int = 0
    generation_id: int = -1
    member_id: str = ""
    group_instance_id: str | None = None
    topics: list[TxnOffsetCommitRequestTopic] = field(default_factory=list)

    @classmethod
    def read(cls, r: Reader, v: int) -> TxnOffsetCommitRequest:
        """Read one of version `v`."""
        m = TxnOffsetCommitRequest()
        m.transactional_id = r.string()
        m.group_id = r.string()
        m.producer_id = r.int64()
        m.producer_epoch = r.int16()
        if v >= 3:
            m.generation_id = r.int32()
            m.member_id = r.string()
            m.group_instance_id = r.nullable_string()
        m.topics = [TxnOffsetCommitRequestTopic.read(r, v) for _ in range(r.count())]
        r.skip_tags()
        return m

    def write(self, w: Writer, v: int) -> None:
        """Write it in version `v`."""
        w.string(self.transactional_id)
        w.string(self.group_id)
        w.int64(self.producer_id)
        w.int16(self.producer_epoch)
        if v >= 3:
            w.int32(self.generation_id)
            w.string(self.member_id)
            w.nullable_string(self.group_instance_id)
        for topics_item in w.array(self.topics):
            topics_item.write(w, v)
        w.end_struct()


class TxnOffsetCommitResponsePartition(Struct, kw_only=True):
    """Struct TxnOffsetCommitResponsePartition of TxnOffsetCommitResponse."""

    partition_index: int = 0
    error_code: int = 0

    @classmethod
    def read(cls, r: Reader, v: int) -> TxnOffsetCommitResponsePartition:
        """Read one of version `v`."""
        m = TxnOffsetCommitResponsePartition()
        m.partition_index = r.int32()
        m.error_code = r.int16()
        r.skip_tags()
        return m

    def write(self, w: Writer, v: int) -> None:
        """Write it in version `v`."""
        w.int32(self.partition_index)
        w.int16(self.error_code)
        w.end_struct()


class TxnOffsetCommitResponseTopic(Struct, kw_only=True):
    """Struct TxnOffsetCommitResponseTopic of TxnOffsetCommitResponse."""

    name: str = ""
    partitions: list[TxnOffsetCommitResponsePartition] = field(default_factory=list)

    @classmethod
    def read(cls, r: Reader, v: int) -> TxnOffsetCommitResponseTopic:
        """Read one of version `v`."""
        m = TxnOffsetCommitResponseTopic()
        m.name = r.string()
        m.partitions = [TxnOffsetCommitResponsePartition.read(r, v) for _ in range(r.count())]
        r.skip_tags()
        return m

    def write(self, w: Writer, v: int) -> None:
        """Write it in version `v`."""
        w.string(self.name)
        for partitions_item in w.array(self.partitions):
            partitions_item.write(w, v)
        w.end_struct()


class TxnOffsetCommitResponse(Struct, kw_only=True):
    """Message of API 28: versions 0 to 5, flexible from 3."""

    API_KEY: ClassVar[int] = 28

    throttle_time_ms: int = 0
    topics: list[TxnOffsetCommitResponseTopic] = field(default_factory=list)

    @classmethod
    def read(cls, r: Reader, v: int) -> TxnOffsetCommitResponse:
        """Read one of version `v`."""
        m = TxnOffsetCommitResponse()
        m.throttle_time_ms = r.int32()
        m.topics = [TxnOffsetCommitResponseTopic.read(r, v) for _ in range(r.count())]
        r.skip_tags()
        return m

    def write(self, w: Writer, v: int) -> None:
        """Write it in version `v`."""
        w.int32(self.throttle_time_ms)
        for topics_item in w.array(self.topics):
            topics_item.write(w, v)
        w.end_struct()
