"""Messages of the wire protocol: DeleteRecords. Made by scripts/kafka_messages; not to be changed by hand.

Owns the fields of these messages and their bytes in every version; must not know their purpose. A field that a version
lacks is read as its default, and is not written.
"""

from __future__ import annotations

from typing import ClassVar

from msgspec import Struct, field

from api.kafka.protocol.primitives import Reader, Writer


class DeleteRecordsRequestTopicsPartitions(Struct, kw_only=True):
    """An entry of `partitions` in DeleteRecordsRequestTopics."""

    partition_index: int = 0
    offset: int = 0

    @classmethod
    def read(cls, r: Reader, v: int) -> DeleteRecordsRequestTopicsPartitions:
        """Read one of version `v`."""
        m = cls()
        m.partition_index = r.int32()
        m.offset = r.int64()
        r.skip_tags()
        return m

    def write(self, w: Writer, v: int) -> None:
        """Write it in version `v`."""
        w.int32(self.partition_index)
        w.int64(self.offset)
        w.end_struct()


class DeleteRecordsRequestTopics(Struct, kw_only=True):
    """An entry of `topics` in DeleteRecordsRequest."""

    name: str = ""
    partitions: list[DeleteRecordsRequestTopicsPartitions] = field(default_factory=list)

    @classmethod
    def read(cls, r: Reader, v: int) -> DeleteRecordsRequestTopics:
        """Read one of version `v`."""
        m = cls()
        m.name = r.string()
        m.partitions = [DeleteRecordsRequestTopicsPartitions.read(r, v) for _ in range(r.count())]
        r.skip_tags()
        return m

    def write(self, w: Writer, v: int) -> None:
        """Write it in version `v`."""
        w.string(self.name)
        for partitions_item in w.array(self.partitions):
            partitions_item.write(w, v)
        w.end_struct()


class DeleteRecordsRequest(Struct, kw_only=True):
    """Message of API 21: versions 0 to 2, flexible from 2."""

    API_KEY: ClassVar[int] = 21

    topics: list[DeleteRecordsRequestTopics] = field(default_factory=list)
    timeout_ms: int = 0

    @classmethod
    def read(cls, r: Reader, v: int) -> DeleteRecordsRequest:
        """Read one of version `v`."""
        m = cls()
        m.topics = [DeleteRecordsRequestTopics.read(r, v) for _ in range(r.count())]
        m.timeout_ms = r.int32()
        r.skip_tags()
        return m

    def write(self, w: Writer, v: int) -> None:
        """Write it in version `v`."""
        for topics_item in w.array(self.topics):
            topics_item.write(w, v)
        w.int32(self.timeout_ms)
        w.end_struct()


class DeleteRecordsResponseTopicsPartitions(Struct, kw_only=True):
    """An entry of `partitions` in DeleteRecordsResponseTopics."""

    partition_index: int = 0
    low_watermark: int = 0
    error_code: int = 0

    @classmethod
    def read(cls, r: Reader, v: int) -> DeleteRecordsResponseTopicsPartitions:
        """Read one of version `v`."""
        m = cls()
        m.partition_index = r.int32()
        m.low_watermark = r.int64()
        m.error_code = r.int16()
        r.skip_tags()
        return m

    def write(self, w: Writer, v: int) -> None:
        """Write it in version `v`."""
        w.int32(self.partition_index)
        w.int64(self.low_watermark)
        w.int16(self.error_code)
        w.end_struct()


class DeleteRecordsResponseTopics(Struct, kw_only=True):
    """An entry of `topics` in DeleteRecordsResponse."""

    name: str = ""
    partitions: list[DeleteRecordsResponseTopicsPartitions] = field(default_factory=list)

    @classmethod
    def read(cls, r: Reader, v: int) -> DeleteRecordsResponseTopics:
        """Read one of version `v`."""
        m = cls()
        m.name = r.string()
        m.partitions = [DeleteRecordsResponseTopicsPartitions.read(r, v) for _ in range(r.count())]
        r.skip_tags()
        return m

    def write(self, w: Writer, v: int) -> None:
        """Write it in version `v`."""
        w.string(self.name)
        for partitions_item in w.array(self.partitions):
            partitions_item.write(w, v)
        w.end_struct()


class DeleteRecordsResponse(Struct, kw_only=True):
    """Message of API 21: versions 0 to 2, flexible from 2."""

    API_KEY: ClassVar[int] = 21

    throttle_time_ms: int = 0
    topics: list[DeleteRecordsResponseTopics] = field(default_factory=list)

    @classmethod
    def read(cls, r: Reader, v: int) -> DeleteRecordsResponse:
        """Read one of version `v`."""
        m = cls()
        m.throttle_time_ms = r.int32()
        m.topics = [DeleteRecordsResponseTopics.read(r, v) for _ in range(r.count())]
        r.skip_tags()
        return m

    def write(self, w: Writer, v: int) -> None:
        """Write it in version `v`."""
        w.int32(self.throttle_time_ms)
        for topics_item in w.array(self.topics):
            topics_item.write(w, v)
        w.end_struct()
