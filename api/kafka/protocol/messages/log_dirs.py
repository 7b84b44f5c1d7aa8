"""Messages of the wire protocol: DescribeLogDirs. Made by scripts/kafka_messages; not to be changed by hand.

Owns the fields of these messages and their bytes in every version; must not know their purpose. A field that a version
lacks is read as its default, and is not written.
"""

from __future__ import annotations

from typing import ClassVar

from msgspec import Struct, field

from api.kafka.protocol.primitives import Reader, Writer


class DescribeLogDirsRequestTopics(Struct, kw_only=True):
    """An entry of `topics` in DescribeLogDirsRequest."""

    topic: str = ""
    partitions: list[int] = field(default_factory=list)

    @classmethod
    def read(cls, r: Reader, v: int) -> DescribeLogDirsRequestTopics:
        """Read one of version `v`."""
        m = cls()
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


class DescribeLogDirsRequest(Struct, kw_only=True):
    """Message of API 35: versions 1 to 5, flexible from 2."""

    API_KEY: ClassVar[int] = 35

    topics: list[DescribeLogDirsRequestTopics] | None = field(default_factory=list)

    @classmethod
    def read(cls, r: Reader, v: int) -> DescribeLogDirsRequest:
        """Read one of version `v`."""
        m = cls()
        n = r.nullable_count()
        m.topics = None if n is None else [DescribeLogDirsRequestTopics.read(r, v) for _ in range(n)]
        r.skip_tags()
        return m

    def write(self, w: Writer, v: int) -> None:
        """Write it in version `v`."""
        for topics_item in w.nullable_array(self.topics):
            topics_item.write(w, v)
        w.end_struct()


class DescribeLogDirsResponseResultsTopicsPartitions(Struct, kw_only=True):
    """An entry of `partitions` in DescribeLogDirsResponseResultsTopics."""

    partition_index: int = 0
    partition_size: int = 0
    offset_lag: int = 0
    is_future_key: bool = False

    @classmethod
    def read(cls, r: Reader, v: int) -> DescribeLogDirsResponseResultsTopicsPartitions:
        """Read one of version `v`."""
        m = cls()
        m.partition_index = r.int32()
        m.partition_size = r.int64()
        m.offset_lag = r.int64()
        m.is_future_key = r.boolean()
        r.skip_tags()
        return m

    def write(self, w: Writer, v: int) -> None:
        """Write it in version `v`."""
        w.int32(self.partition_index)
        w.int64(self.partition_size)
        w.int64(self.offset_lag)
        w.boolean(self.is_future_key)
        w.end_struct()


class DescribeLogDirsResponseResultsTopics(Struct, kw_only=True):
    """An entry of `topics` in DescribeLogDirsResponseResults."""

    name: str = ""
    partitions: list[DescribeLogDirsResponseResultsTopicsPartitions] = field(default_factory=list)

    @classmethod
    def read(cls, r: Reader, v: int) -> DescribeLogDirsResponseResultsTopics:
        """Read one of version `v`."""
        m = cls()
        m.name = r.string()
        m.partitions = [DescribeLogDirsResponseResultsTopicsPartitions.read(r, v) for _ in range(r.count())]
        r.skip_tags()
        return m

    def write(self, w: Writer, v: int) -> None:
        """Write it in version `v`."""
        w.string(self.name)
        for partitions_item in w.array(self.partitions):
            partitions_item.write(w, v)
        w.end_struct()


class DescribeLogDirsResponseResults(Struct, kw_only=True):
    """An entry of `results` in DescribeLogDirsResponse."""

    error_code: int = 0
    log_dir: str = ""
    topics: list[DescribeLogDirsResponseResultsTopics] = field(default_factory=list)
    total_bytes: int = -1
    usable_bytes: int = -1
    is_cordoned: bool = False

    @classmethod
    def read(cls, r: Reader, v: int) -> DescribeLogDirsResponseResults:
        """Read one of version `v`."""
        m = cls()
        m.error_code = r.int16()
        m.log_dir = r.string()
        m.topics = [DescribeLogDirsResponseResultsTopics.read(r, v) for _ in range(r.count())]
        if v >= 4:
            m.total_bytes = r.int64()
        if v >= 4:
            m.usable_bytes = r.int64()
        if v >= 5:
            m.is_cordoned = r.boolean()
        r.skip_tags()
        return m

    def write(self, w: Writer, v: int) -> None:
        """Write it in version `v`."""
        w.int16(self.error_code)
        w.string(self.log_dir)
        for topics_item in w.array(self.topics):
            topics_item.write(w, v)
        if v >= 4:
            w.int64(self.total_bytes)
        if v >= 4:
            w.int64(self.usable_bytes)
        if v >= 5:
            w.boolean(self.is_cordoned)
        w.end_struct()


class DescribeLogDirsResponse(Struct, kw_only=True):
    """Message of API 35: versions 1 to 5, flexible from 2."""

    API_KEY: ClassVar[int] = 35

    throttle_time_ms: int = 0
    error_code: int = 0
    results: list[DescribeLogDirsResponseResults] = field(default_factory=list)

    @classmethod
    def read(cls, r: Reader, v: int) -> DescribeLogDirsResponse:
        """Read one of version `v`."""
        m = cls()
        m.throttle_time_ms = r.int32()
        if v >= 3:
            m.error_code = r.int16()
        m.results = [DescribeLogDirsResponseResults.read(r, v) for _ in range(r.count())]
        r.skip_tags()
        return m

    def write(self, w: Writer, v: int) -> None:
        """Write it in version `v`."""
        w.int32(self.throttle_time_ms)
        if v >= 3:
            w.int16(self.error_code)
        for results_item in w.array(self.results):
            results_item.write(w, v)
        w.end_struct()
