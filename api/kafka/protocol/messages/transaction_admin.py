"""Messages of the wire protocol: DescribeProducers, DescribeTransactions, ListTransactions, WriteTxnMarkers. Made by scripts/kafka_messages; not to be changed by hand.

Owns the fields of these messages and their bytes in every version; must not know their purpose. A field that a version
lacks is read as its default, and is not written.
"""

from __future__ import annotations

from typing import ClassVar

from msgspec import Struct, field

from api.kafka.protocol.primitives import Reader, Writer


class DescribeProducersRequestTopicRequest(Struct, kw_only=True):
    """Struct TopicRequest of DescribeProducersRequest."""

    name: str = ""
    partition_indexes: list[int] = field(default_factory=list)

    @classmethod
    def read(cls, r: Reader, v: int) -> DescribeProducersRequestTopicRequest:
        """Read one of version `v`."""
        m = DescribeProducersRequestTopicRequest()
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


class DescribeProducersRequest(Struct, kw_only=True):
    """Message of API 61: versions 0 to 0, flexible from 0."""

    API_KEY: ClassVar[int] = 61

    topics: list[DescribeProducersRequestTopicRequest] = field(default_factory=list)

    @classmethod
    def read(cls, r: Reader, v: int) -> DescribeProducersRequest:
        """Read one of version `v`."""
        m = DescribeProducersRequest()
        m.topics = [DescribeProducersRequestTopicRequest.read(r, v) for _ in range(r.count())]
        r.skip_tags()
        return m

    def write(self, w: Writer, v: int) -> None:
        """Write it in version `v`."""
        for topics_item in w.array(self.topics):
            topics_item.write(w, v)
        w.end_struct()


class DescribeProducersResponseProducerState(Struct, kw_only=True):
    """Struct ProducerState of DescribeProducersResponse."""

    producer_id: int = 0
    producer_epoch: int = 0
    last_sequence: int = -1
    last_timestamp: int = -1
    coordinator_epoch: int = 0
    current_txn_start_offset: int = -1

    @classmethod
    def read(cls, r: Reader, v: int) -> DescribeProducersResponseProducerState:
        """Read one of version `v`."""
        m = DescribeProducersResponseProducerState()
        m.producer_id = r.int64()
        m.producer_epoch = r.int32()
        m.last_sequence = r.int32()
        m.last_timestamp = r.int64()
        m.coordinator_epoch = r.int32()
        m.current_txn_start_offset = r.int64()
        r.skip_tags()
        return m

    def write(self, w: Writer, v: int) -> None:
        """Write it in version `v`."""
        w.int64(self.producer_id)
        w.int32(self.producer_epoch)
        w.int32(self.last_sequence)
        w.int64(self.last_timestamp)
        w.int32(self.coordinator_epoch)
        w.int64(self.current_txn_start_offset)
        w.end_struct()


class DescribeProducersResponsePartitionResponse(Struct, kw_only=True):
    """Struct PartitionResponse of DescribeProducersResponse."""

    partition_index: int = 0
    error_code: int = 0
    error_message: str | None = None
    active_producers: list[DescribeProducersResponseProducerState] = field(default_factory=list)

    @classmethod
    def read(cls, r: Reader, v: int) -> DescribeProducersResponsePartitionResponse:
        """Read one of version `v`."""
        m = DescribeProducersResponsePartitionResponse()
        m.partition_index = r.int32()
        m.error_code = r.int16()
        m.error_message = r.nullable_string()
        m.active_producers = [DescribeProducersResponseProducerState.read(r, v) for _ in range(r.count())]
        r.skip_tags()
        return m

    def write(self, w: Writer, v: int) -> None:
        """Write it in version `v`."""
        w.int32(self.partition_index)
        w.int16(self.error_code)
        w.nullable_string(self.error_message)
        for active_producers_item in w.array(self.active_producers):
            active_producers_item.write(w, v)
        w.end_struct()


class DescribeProducersResponseTopicResponse(Struct, kw_only=True):
    """Struct TopicResponse of DescribeProducersResponse."""

    name: str = ""
    partitions: list[DescribeProducersResponsePartitionResponse] = field(default_factory=list)

    @classmethod
    def read(cls, r: Reader, v: int) -> DescribeProducersResponseTopicResponse:
        """Read one of version `v`."""
        m = DescribeProducersResponseTopicResponse()
        m.name = r.string()
        m.partitions = [DescribeProducersResponsePartitionResponse.read(r, v) for _ in range(r.count())]
        r.skip_tags()
        return m

    def write(self, w: Writer, v: int) -> None:
        """Write it in version `v`."""
        w.string(self.name)
        for partitions_item in w.array(self.partitions):
            partitions_item.write(w, v)
        w.end_struct()


class DescribeProducersResponse(Struct, kw_only=True):
    """Message of API 61: versions 0 to 0, flexible from 0."""

    API_KEY: ClassVar[int] = 61

    throttle_time_ms: int = 0
    topics: list[DescribeProducersResponseTopicResponse] = field(default_factory=list)

    @classmethod
    def read(cls, r: Reader, v: int) -> DescribeProducersResponse:
        """Read one of version `v`."""
        m = DescribeProducersResponse()
        m.throttle_time_ms = r.int32()
        m.topics = [DescribeProducersResponseTopicResponse.read(r, v) for _ in range(r.count())]
        r.skip_tags()
        return m

    def write(self, w: Writer, v: int) -> None:
        """Write it in version `v`."""
        w.int32(self.throttle_time_ms)
        for topics_item in w.array(self.topics):
            topics_item.write(w, v)
        w.end_struct()


class DescribeTransactionsRequest(Struct, kw_only=True):
    """Message of API 65: versions 0 to 0, flexible from 0."""

    API_KEY: ClassVar[int] = 65

    transactional_ids: list[str] = field(default_factory=list)

    @classmethod
    def read(cls, r: Reader, v: int) -> DescribeTransactionsRequest:
        """Read one of version `v`."""
        m = DescribeTransactionsRequest()
        m.transactional_ids = [r.string() for _ in range(r.count())]
        r.skip_tags()
        return m

    def write(self, w: Writer, v: int) -> None:
        """Write it in version `v`."""
        for transactional_ids_item in w.array(self.transactional_ids):
            w.string(transactional_ids_item)
        w.end_struct()


class DescribeTransactionsResponseTopicData(Struct, kw_only=True):
    """Struct TopicData of DescribeTransactionsResponse."""

    topic: str = ""
    partitions: list[int] = field(default_factory=list)

    @classmethod
    def read(cls, r: Reader, v: int) -> DescribeTransactionsResponseTopicData:
        """Read one of version `v`."""
        m = DescribeTransactionsResponseTopicData()
        m.topic = r.string()
        m.partitions = [r.int32() for _ in range(r.count())]
        r.skip_tags()
        return m

    def write(self, w: Writer, v: int) -> None:
        """Write it in version `v`."""
        w.string(self.topic)
        for partitions_item in w.array(self.partitions):
            w.int32(partitions_item)
        w.end_struct()


class DescribeTransactionsResponseTransactionState(Struct, kw_only=True):
    """Struct TransactionState of DescribeTransactionsResponse."""

    error_code: int = 0
    transactional_id: str = ""
    transaction_state: str = ""
    transaction_timeout_ms: int = 0
    transaction_start_time_ms: int = 0
    producer_id: int = 0
    producer_epoch: int = 0
    topics: list[DescribeTransactionsResponseTopicData] = field(default_factory=list)

    @classmethod
    def read(cls, r: Reader, v: int) -> DescribeTransactionsResponseTransactionState:
        """Read one of version `v`."""
        m = DescribeTransactionsResponseTransactionState()
        m.error_code = r.int16()
        m.transactional_id = r.string()
        m.transaction_state = r.string()
        m.transaction_timeout_ms = r.int32()
        m.transaction_start_time_ms = r.int64()
        m.producer_id = r.int64()
        m.producer_epoch = r.int16()
        m.topics = [DescribeTransactionsResponseTopicData.read(r, v) for _ in range(r.count())]
        r.skip_tags()
        return m

    def write(self, w: Writer, v: int) -> None:
        """Write it in version `v`."""
        w.int16(self.error_code)
        w.string(self.transactional_id)
        w.string(self.transaction_state)
        w.int32(self.transaction_timeout_ms)
        w.int64(self.transaction_start_time_ms)
        w.int64(self.producer_id)
        w.int16(self.producer_epoch)
        for topics_item in w.array(self.topics):
            topics_item.write(w, v)
        w.end_struct()


class DescribeTransactionsResponse(Struct, kw_only=True):
    """Message of API 65: versions 0 to 0, flexible from 0."""

    API_KEY: ClassVar[int] = 65

    throttle_time_ms: int = 0
    transaction_states: list[DescribeTransactionsResponseTransactionState] = field(default_factory=list)

    @classmethod
    def read(cls, r: Reader, v: int) -> DescribeTransactionsResponse:
        """Read one of version `v`."""
        m = DescribeTransactionsResponse()
        m.throttle_time_ms = r.int32()
        m.transaction_states = [DescribeTransactionsResponseTransactionState.read(r, v) for _ in range(r.count())]
        r.skip_tags()
        return m

    def write(self, w: Writer, v: int) -> None:
        """Write it in version `v`."""
        w.int32(self.throttle_time_ms)
        for transaction_states_item in w.array(self.transaction_states):
            transaction_states_item.write(w, v)
        w.end_struct()


class ListTransactionsRequest(Struct, kw_only=True):
    """Message of API 66: versions 0 to 2, flexible from 0."""

    API_KEY: ClassVar[int] = 66

    state_filters: list[str] = field(default_factory=list)
    producer_id_filters: list[int] = field(default_factory=list)
    duration_filter: int = -1
    transactional_id_pattern: str | None = None

    @classmethod
    def read(cls, r: Reader, v: int) -> ListTransactionsRequest:
        """Read one of version `v`."""
        m = ListTransactionsRequest()
        m.state_filters = [r.string() for _ in range(r.count())]
        m.producer_id_filters = [r.int64() for _ in range(r.count())]
        if v >= 1:
            m.duration_filter = r.int64()
        if v >= 2:
            m.transactional_id_pattern = r.nullable_string()
        r.skip_tags()
        return m

    def write(self, w: Writer, v: int) -> None:
        """Write it in version `v`."""
        for state_filters_item in w.array(self.state_filters):
            w.string(state_filters_item)
        for producer_id_filters_item in w.array(self.producer_id_filters):
            w.int64(producer_id_filters_item)
        if v >= 1:
            w.int64(self.duration_filter)
        if v >= 2:
            w.nullable_string(self.transactional_id_pattern)
        w.end_struct()


class ListTransactionsResponseTransactionState(Struct, kw_only=True):
    """Struct TransactionState of ListTransactionsResponse."""

    transactional_id: str = ""
    producer_id: int = 0
    transaction_state: str = ""

    @classmethod
    def read(cls, r: Reader, v: int) -> ListTransactionsResponseTransactionState:
        """Read one of version `v`."""
        m = ListTransactionsResponseTransactionState()
        m.transactional_id = r.string()
        m.producer_id = r.int64()
        m.transaction_state = r.string()
        r.skip_tags()
        return m

    def write(self, w: Writer, v: int) -> None:
        """Write it in version `v`."""
        w.string(self.transactional_id)
        w.int64(self.producer_id)
        w.string(self.transaction_state)
        w.end_struct()


class ListTransactionsResponse(Struct, kw_only=True):
    """Message of API 66: versions 0 to 2, flexible from 0."""

    API_KEY: ClassVar[int] = 66

    throttle_time_ms: int = 0
    error_code: int = 0
    unknown_state_filters: list[str] = field(default_factory=list)
    transaction_states: list[ListTransactionsResponseTransactionState] = field(default_factory=list)

    @classmethod
    def read(cls, r: Reader, v: int) -> ListTransactionsResponse:
        """Read one of version `v`."""
        m = ListTransactionsResponse()
        m.throttle_time_ms = r.int32()
        m.error_code = r.int16()
        m.unknown_state_filters = [r.string() for _ in range(r.count())]
        m.transaction_states = [ListTransactionsResponseTransactionState.read(r, v) for _ in range(r.count())]
        r.skip_tags()
        return m

    def write(self, w: Writer, v: int) -> None:
        """Write it in version `v`."""
        w.int32(self.throttle_time_ms)
        w.int16(self.error_code)
        for unknown_state_filters_item in w.array(self.unknown_state_filters):
            w.string(unknown_state_filters_item)
        for transaction_states_item in w.array(self.transaction_states):
            transaction_states_item.write(w, v)
        w.end_struct()


class WriteTxnMarkersRequestWritableTxnMarkerTopic(Struct, kw_only=True):
    """Struct WritableTxnMarkerTopic of WriteTxnMarkersRequest."""

    name: str = ""
    partition_indexes: list[int] = field(default_factory=list)

    @classmethod
    def read(cls, r: Reader, v: int) -> WriteTxnMarkersRequestWritableTxnMarkerTopic:
        """Read one of version `v`."""
        m = WriteTxnMarkersRequestWritableTxnMarkerTopic()
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


class WriteTxnMarkersRequestWritableTxnMarker(Struct, kw_only=True):
    """Struct WritableTxnMarker of WriteTxnMarkersRequest."""

    producer_id: int = 0
    producer_epoch: int = 0
    transaction_result: bool = False
    topics: list[WriteTxnMarkersRequestWritableTxnMarkerTopic] = field(default_factory=list)
    coordinator_epoch: int = 0
    transaction_version: int = 0

    @classmethod
    def read(cls, r: Reader, v: int) -> WriteTxnMarkersRequestWritableTxnMarker:
        """Read one of version `v`."""
        m = WriteTxnMarkersRequestWritableTxnMarker()
        m.producer_id = r.int64()
        m.producer_epoch = r.int16()
        m.transaction_result = r.boolean()
        m.topics = [WriteTxnMarkersRequestWritableTxnMarkerTopic.read(r, v) for _ in range(r.count())]
        m.coordinator_epoch = r.int32()
        if v >= 2:
            m.transaction_version = r.int8()
        r.skip_tags()
        return m

    def write(self, w: Writer, v: int) -> None:
        """Write it in version `v`."""
        w.int64(self.producer_id)
        w.int16(self.producer_epoch)
        w.boolean(self.transaction_result)
        for topics_item in w.array(self.topics):
            topics_item.write(w, v)
        w.int32(self.coordinator_epoch)
        if v >= 2:
            w.int8(self.transaction_version)
        w.end_struct()


class WriteTxnMarkersRequest(Struct, kw_only=True):
    """Message of API 27: versions 1 to 2, flexible from 1."""

    API_KEY: ClassVar[int] = 27

    markers: list[WriteTxnMarkersRequestWritableTxnMarker] = field(default_factory=list)

    @classmethod
    def read(cls, r: Reader, v: int) -> WriteTxnMarkersRequest:
        """Read one of version `v`."""
        m = WriteTxnMarkersRequest()
        m.markers = [WriteTxnMarkersRequestWritableTxnMarker.read(r, v) for _ in range(r.count())]
        r.skip_tags()
        return m

    def write(self, w: Writer, v: int) -> None:
        """Write it in version `v`."""
        for markers_item in w.array(self.markers):
            markers_item.write(w, v)
        w.end_struct()


class WriteTxnMarkersResponseWritableTxnMarkerPartitionResult(Struct, kw_only=True):
    """Struct WritableTxnMarkerPartitionResult of WriteTxnMarkersResponse."""

    partition_index: int = 0
    error_code: int = 0

    @classmethod
    def read(cls, r: Reader, v: int) -> WriteTxnMarkersResponseWritableTxnMarkerPartitionResult:
        """Read one of version `v`."""
        m = WriteTxnMarkersResponseWritableTxnMarkerPartitionResult()
        m.partition_index = r.int32()
        m.error_code = r.int16()
        r.skip_tags()
        return m

    def write(self, w: Writer, v: int) -> None:
        """Write it in version `v`."""
        w.int32(self.partition_index)
        w.int16(self.error_code)
        w.end_struct()


class WriteTxnMarkersResponseWritableTxnMarkerTopicResult(Struct, kw_only=True):
    """Struct WritableTxnMarkerTopicResult of WriteTxnMarkersResponse."""

    name: str = ""
    partitions: list[WriteTxnMarkersResponseWritableTxnMarkerPartitionResult] = field(default_factory=list)

    @classmethod
    def read(cls, r: Reader, v: int) -> WriteTxnMarkersResponseWritableTxnMarkerTopicResult:
        """Read one of version `v`."""
        m = WriteTxnMarkersResponseWritableTxnMarkerTopicResult()
        m.name = r.string()
        m.partitions = [WriteTxnMarkersResponseWritableTxnMarkerPartitionResult.read(r, v) for _ in range(r.count())]
        r.skip_tags()
        return m

    def write(self, w: Writer, v: int) -> None:
        """Write it in version `v`."""
        w.string(self.name)
        for partitions_item in w.array(self.partitions):
            partitions_item.write(w, v)
        w.end_struct()


class WriteTxnMarkersResponseWritableTxnMarkerResult(Struct, kw_only=True):
    """Struct WritableTxnMarkerResult of WriteTxnMarkersResponse."""

    producer_id: int = 0
    topics: list[WriteTxnMarkersResponseWritableTxnMarkerTopicResult] = field(default_factory=list)

    @classmethod
    def read(cls, r: Reader, v: int) -> WriteTxnMarkersResponseWritableTxnMarkerResult:
        """Read one of version `v`."""
        m = WriteTxnMarkersResponseWritableTxnMarkerResult()
        m.producer_id = r.int64()
        m.topics = [WriteTxnMarkersResponseWritableTxnMarkerTopicResult.read(r, v) for _ in range(r.count())]
        r.skip_tags()
        return m

    def write(self, w: Writer, v: int) -> None:
        """Write it in version `v`."""
        w.int64(self.producer_id)
        for topics_item in w.array(self.topics):
            topics_item.write(w, v)
        w.end_struct()


class WriteTxnMarkersResponse(Struct, kw_only=True):
    """Message of API 27: versions 1 to 2, flexible from 1."""

    API_KEY: ClassVar[int] = 27

    markers: list[WriteTxnMarkersResponseWritableTxnMarkerResult] = field(default_factory=list)

    @classmethod
    def read(cls, r: Reader, v: int) -> WriteTxnMarkersResponse:
        """Read one of version `v`."""
        m = WriteTxnMarkersResponse()
        m.markers = [WriteTxnMarkersResponseWritableTxnMarkerResult.read(r, v) for _ in range(r.count())]
        r.skip_tags()
        return m

    def write(self, w: Writer, v: int) -> None:
        """Write it in version `v`."""
        for markers_item in w.array(self.markers):
            markers_item.write(w, v)
        w.end_struct()
