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
        m = cls()
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
        m = cls()
        m.throttle_time_ms = r.int32()
        m.error_code = r.int16()
        r.skip_tags()
        return m

    def write(self, w: Writer, v: int) -> None:
        """Write it in version `v`."""
        w.int32(self.throttle_time_ms)
        w.int16(self.error_code)
        w.end_struct()


class AddPartitionsToTxnRequestTransactionsTopics(Struct, kw_only=True):
    """An entry of `topics` in AddPartitionsToTxnRequestTransactions."""

    name: str = ""
    partitions: list[int] = field(default_factory=list)

    @classmethod
    def read(cls, r: Reader, v: int) -> AddPartitionsToTxnRequestTransactionsTopics:
        """Read one of version `v`."""
        m = cls()
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


class AddPartitionsToTxnRequestTransactions(Struct, kw_only=True):
    """An entry of `transactions` in AddPartitionsToTxnRequest."""

    transactional_id: str = ""
    producer_id: int = 0
    producer_epoch: int = 0
    verify_only: bool = False
    topics: list[AddPartitionsToTxnRequestTransactionsTopics] = field(default_factory=list)

    @classmethod
    def read(cls, r: Reader, v: int) -> AddPartitionsToTxnRequestTransactions:
        """Read one of version `v`."""
        m = cls()
        m.transactional_id = r.string()
        m.producer_id = r.int64()
        m.producer_epoch = r.int16()
        m.verify_only = r.boolean()
        m.topics = [AddPartitionsToTxnRequestTransactionsTopics.read(r, v) for _ in range(r.count())]
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


class AddPartitionsToTxnRequestV3AndBelowTopics(Struct, kw_only=True):
    """An entry of `v3_and_below_topics` in AddPartitionsToTxnRequest."""

    name: str = ""
    partitions: list[int] = field(default_factory=list)

    @classmethod
    def read(cls, r: Reader, v: int) -> AddPartitionsToTxnRequestV3AndBelowTopics:
        """Read one of version `v`."""
        m = cls()
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


class AddPartitionsToTxnRequest(Struct, kw_only=True):
    """Message of API 24: versions 0 to 5, flexible from 3."""

    API_KEY: ClassVar[int] = 24

    transactions: list[AddPartitionsToTxnRequestTransactions] = field(default_factory=list)
    v3_and_below_transactional_id: str = ""
    v3_and_below_producer_id: int = 0
    v3_and_below_producer_epoch: int = 0
    v3_and_below_topics: list[AddPartitionsToTxnRequestV3AndBelowTopics] = field(default_factory=list)

    @classmethod
    def read(cls, r: Reader, v: int) -> AddPartitionsToTxnRequest:
        """Read one of version `v`."""
        m = cls()
        if v >= 4:
            m.transactions = [AddPartitionsToTxnRequestTransactions.read(r, v) for _ in range(r.count())]
        if v <= 3:
            m.v3_and_below_transactional_id = r.string()
            m.v3_and_below_producer_id = r.int64()
            m.v3_and_below_producer_epoch = r.int16()
            m.v3_and_below_topics = [AddPartitionsToTxnRequestV3AndBelowTopics.read(r, v) for _ in range(r.count())]
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


class AddPartitionsToTxnResponseResultsByTransactionTopicResultsResultsByPartition(Struct, kw_only=True):
    """An entry of `results_by_partition` in AddPartitionsToTxnResponseResultsByTransactionTopicResults."""

    partition_index: int = 0
    partition_error_code: int = 0

    @classmethod
    def read(cls, r: Reader, v: int) -> AddPartitionsToTxnResponseResultsByTransactionTopicResultsResultsByPartition:
        """Read one of version `v`."""
        m = cls()
        m.partition_index = r.int32()
        m.partition_error_code = r.int16()
        r.skip_tags()
        return m

    def write(self, w: Writer, v: int) -> None:
        """Write it in version `v`."""
        w.int32(self.partition_index)
        w.int16(self.partition_error_code)
        w.end_struct()


class AddPartitionsToTxnResponseResultsByTransactionTopicResults(Struct, kw_only=True):
    """An entry of `topic_results` in AddPartitionsToTxnResponseResultsByTransaction."""

    name: str = ""
    results_by_partition: list[AddPartitionsToTxnResponseResultsByTransactionTopicResultsResultsByPartition] = field(default_factory=list)

    @classmethod
    def read(cls, r: Reader, v: int) -> AddPartitionsToTxnResponseResultsByTransactionTopicResults:
        """Read one of version `v`."""
        m = cls()
        m.name = r.string()
        m.results_by_partition = [AddPartitionsToTxnResponseResultsByTransactionTopicResultsResultsByPartition.read(r, v) for _ in range(r.count())]
        r.skip_tags()
        return m

    def write(self, w: Writer, v: int) -> None:
        """Write it in version `v`."""
        w.string(self.name)
        for results_by_partition_item in w.array(self.results_by_partition):
            results_by_partition_item.write(w, v)
        w.end_struct()


class AddPartitionsToTxnResponseResultsByTransaction(Struct, kw_only=True):
    """An entry of `results_by_transaction` in AddPartitionsToTxnResponse."""

    transactional_id: str = ""
    topic_results: list[AddPartitionsToTxnResponseResultsByTransactionTopicResults] = field(default_factory=list)

    @classmethod
    def read(cls, r: Reader, v: int) -> AddPartitionsToTxnResponseResultsByTransaction:
        """Read one of version `v`."""
        m = cls()
        m.transactional_id = r.string()
        m.topic_results = [AddPartitionsToTxnResponseResultsByTransactionTopicResults.read(r, v) for _ in range(r.count())]
        r.skip_tags()
        return m

    def write(self, w: Writer, v: int) -> None:
        """Write it in version `v`."""
        w.string(self.transactional_id)
        for topic_results_item in w.array(self.topic_results):
            topic_results_item.write(w, v)
        w.end_struct()


class AddPartitionsToTxnResponseResultsByTopicV3AndBelowResultsByPartition(Struct, kw_only=True):
    """An entry of `results_by_partition` in AddPartitionsToTxnResponseResultsByTopicV3AndBelow."""

    partition_index: int = 0
    partition_error_code: int = 0

    @classmethod
    def read(cls, r: Reader, v: int) -> AddPartitionsToTxnResponseResultsByTopicV3AndBelowResultsByPartition:
        """Read one of version `v`."""
        m = cls()
        m.partition_index = r.int32()
        m.partition_error_code = r.int16()
        r.skip_tags()
        return m

    def write(self, w: Writer, v: int) -> None:
        """Write it in version `v`."""
        w.int32(self.partition_index)
        w.int16(self.partition_error_code)
        w.end_struct()


class AddPartitionsToTxnResponseResultsByTopicV3AndBelow(Struct, kw_only=True):
    """An entry of `results_by_topic_v3_and_below` in AddPartitionsToTxnResponse."""

    name: str = ""
    results_by_partition: list[AddPartitionsToTxnResponseResultsByTopicV3AndBelowResultsByPartition] = field(default_factory=list)

    @classmethod
    def read(cls, r: Reader, v: int) -> AddPartitionsToTxnResponseResultsByTopicV3AndBelow:
        """Read one of version `v`."""
        m = cls()
        m.name = r.string()
        m.results_by_partition = [AddPartitionsToTxnResponseResultsByTopicV3AndBelowResultsByPartition.read(r, v) for _ in range(r.count())]
        r.skip_tags()
        return m

    def write(self, w: Writer, v: int) -> None:
        """Write it in version `v`."""
        w.string(self.name)
        for results_by_partition_item in w.array(self.results_by_partition):
            results_by_partition_item.write(w, v)
        w.end_struct()


class AddPartitionsToTxnResponse(Struct, kw_only=True):
    """Message of API 24: versions 0 to 5, flexible from 3."""

    API_KEY: ClassVar[int] = 24

    throttle_time_ms: int = 0
    error_code: int = 0
    results_by_transaction: list[AddPartitionsToTxnResponseResultsByTransaction] = field(default_factory=list)
    results_by_topic_v3_and_below: list[AddPartitionsToTxnResponseResultsByTopicV3AndBelow] = field(default_factory=list)

    @classmethod
    def read(cls, r: Reader, v: int) -> AddPartitionsToTxnResponse:
        """Read one of version `v`."""
        m = cls()
        m.throttle_time_ms = r.int32()
        if v >= 4:
            m.error_code = r.int16()
            m.results_by_transaction = [AddPartitionsToTxnResponseResultsByTransaction.read(r, v) for _ in range(r.count())]
        if v <= 3:
            m.results_by_topic_v3_and_below = [AddPartitionsToTxnResponseResultsByTopicV3AndBelow.read(r, v) for _ in range(r.count())]
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
        m = cls()
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
        m = cls()
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


class TxnOffsetCommitRequestTopicsPartitions(Struct, kw_only=True):
    """An entry of `partitions` in TxnOffsetCommitRequestTopics."""

    partition_index: int = 0
    committed_offset: int = 0
    committed_leader_epoch: int = -1
    committed_metadata: str | None = ""

    @classmethod
    def read(cls, r: Reader, v: int) -> TxnOffsetCommitRequestTopicsPartitions:
        """Read one of version `v`."""
        m = cls()
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


class TxnOffsetCommitRequestTopics(Struct, kw_only=True):
    """An entry of `topics` in TxnOffsetCommitRequest."""

    name: str = ""
    partitions: list[TxnOffsetCommitRequestTopicsPartitions] = field(default_factory=list)

    @classmethod
    def read(cls, r: Reader, v: int) -> TxnOffsetCommitRequestTopics:
        """Read one of version `v`."""
        m = cls()
        m.name = r.string()
        m.partitions = [TxnOffsetCommitRequestTopicsPartitions.read(r, v) for _ in range(r.count())]
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
    topics: list[TxnOffsetCommitRequestTopics] = field(default_factory=list)

    @classmethod
    def read(cls, r: Reader, v: int) -> TxnOffsetCommitRequest:
        """Read one of version `v`."""
        m = cls()
        m.transactional_id = r.string()
        m.group_id = r.string()
        m.producer_id = r.int64()
        m.producer_epoch = r.int16()
        if v >= 3:
            m.generation_id = r.int32()
            m.member_id = r.string()
            m.group_instance_id = r.nullable_string()
        m.topics = [TxnOffsetCommitRequestTopics.read(r, v) for _ in range(r.count())]
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


class TxnOffsetCommitResponseTopicsPartitions(Struct, kw_only=True):
    """An entry of `partitions` in TxnOffsetCommitResponseTopics."""

    partition_index: int = 0
    error_code: int = 0

    @classmethod
    def read(cls, r: Reader, v: int) -> TxnOffsetCommitResponseTopicsPartitions:
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


class TxnOffsetCommitResponseTopics(Struct, kw_only=True):
    """An entry of `topics` in TxnOffsetCommitResponse."""

    name: str = ""
    partitions: list[TxnOffsetCommitResponseTopicsPartitions] = field(default_factory=list)

    @classmethod
    def read(cls, r: Reader, v: int) -> TxnOffsetCommitResponseTopics:
        """Read one of version `v`."""
        m = cls()
        m.name = r.string()
        m.partitions = [TxnOffsetCommitResponseTopicsPartitions.read(r, v) for _ in range(r.count())]
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
    topics: list[TxnOffsetCommitResponseTopics] = field(default_factory=list)

    @classmethod
    def read(cls, r: Reader, v: int) -> TxnOffsetCommitResponse:
        """Read one of version `v`."""
        m = cls()
        m.throttle_time_ms = r.int32()
        m.topics = [TxnOffsetCommitResponseTopics.read(r, v) for _ in range(r.count())]
        r.skip_tags()
        return m

    def write(self, w: Writer, v: int) -> None:
        """Write it in version `v`."""
        w.int32(self.throttle_time_ms)
        for topics_item in w.array(self.topics):
            topics_item.write(w, v)
        w.end_struct()
