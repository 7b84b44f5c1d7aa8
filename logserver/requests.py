"""What is asked of the service: values only, no HTTP and no logic."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import NamedTuple

from msgspec import Struct

from logserver.budget import Hold
from logserver.writer import Acks
from storage import Isolation, ProducerSequence, Record, TopicPartition


class Produce(Struct, frozen=True, kw_only=True):
    """Records for one topic. `partition` holds for all of them, `partitions` for each (None: by
    key, or in turn).

    `timeout_ms` None: wait for the answer as long as it takes. `hold` is given back when the
    records are written. `born_host`: who sent them, as in `LogStore.append`.
    """

    topic: str
    records: Sequence[Record]
    hold: Hold
    size_bytes: int
    partition: int | None = None
    partitions: Sequence[int | None] | None = None
    acks: Acks = Acks.ALL
    timeout_ms: int | None = None
    compression: str | None = None
    producer: ProducerSequence | None = None
    born_host: bytes | None = None


class ProduceBatches(Struct, frozen=True, kw_only=True):
    """Whole record batches for one partition; `partition` None: the only one of the topic."""

    topic: str
    data: bytes
    hold: Hold
    partition: int | None = None
    acks: Acks = Acks.ALL
    timeout_ms: int | None = None


class StartAt(enum.Enum):
    """How a fetch says where to begin."""

    OFFSET = "offset"
    EARLIEST = "earliest"
    LATEST = "latest"
    LAST = "last"
    TIME = "time"


class Start(NamedTuple):
    """Where to begin: `value` is the offset, the count for LAST, the milliseconds for TIME."""

    at: StartAt
    value: int = 0


class Fetch(Struct, frozen=True, kw_only=True):
    """Records of one partition. With `timeout_ms` wait until there are `min_bytes` of keys and
    values, at least one.
    """

    partition: TopicPartition
    start: Start
    max_records: int = 500
    max_bytes: int = 1 << 20
    min_bytes: int = 1
    timeout_ms: int = 0
    isolation: Isolation = Isolation.READ_UNCOMMITTED
    tag: str | None = None


class Find(Struct, frozen=True, kw_only=True):
    """Records of one topic by what they carry: see `LogStore.find`."""

    topic: str
    key: str | None = None
    unique_id: str | None = None
    tag: str | None = None
    from_ms: int | None = None
    to_ms: int | None = None
    limit: int = 32
    cursor: str | None = None
    backward: bool = False
    scan: bool = False
