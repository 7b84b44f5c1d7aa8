"""What is asked of the service: values only, no HTTP and no logic."""

from __future__ import annotations

import asyncio
import enum
from collections.abc import Sequence
from typing import NamedTuple

from msgspec import Struct

from logserver.budget import Hold
from logserver.writer import Acks
from storage import Isolation, ProducerSequence, Record, TopicPartition


class RequestKey(NamedTuple):
    """A client's own name for a produce request, by which a repeat is known; `digest` is of what the
    request stores.
    """

    key: str
    digest: bytes


class ProduceOptions(Struct, frozen=True, kw_only=True):
    """How records are to be written.

    `timeout_ms` None: wait for the answer as long as it takes. `born_host`: who sent them, as in
    `LogStore.append`. `key` and `producer` exclude each other.
    """

    acks: Acks = Acks.ALL
    timeout_ms: int | None = None
    compression: str | None = None
    producer: ProducerSequence | None = None
    key: RequestKey | None = None
    born_host: bytes | None = None


class Produce(ProduceOptions, frozen=True, kw_only=True):
    """Records for one topic. `partition` holds for all of them, `partitions` for each (None: by
    key, or in turn). `hold` is given back when the records are written.
    """

    topic: str
    records: Sequence[Record]
    hold: Hold
    size_bytes: int
    partition: int | None = None
    partitions: Sequence[int | None] | None = None


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
    values, at least one, or `until` is done.
    """

    partition: TopicPartition
    start: Start
    max_records: int = 500
    max_bytes: int = 1 << 20
    min_bytes: int = 1
    timeout_ms: int = 0
    isolation: Isolation = Isolation.READ_UNCOMMITTED
    tag: str | None = None
    hold: Hold | None = None  # of the answer's bytes: reaches those of the page
    until: asyncio.Future[None] | None = None


class Follow(Struct, frozen=True, kw_only=True):
    """Records of one partition as they come: on and on, or with `live` False up to the end as it is
    at the beginning. It also ends behind `max_records`, when for `idle_ms` none has come, and at the end
    as it is once `until` is done.
    """

    partition: TopicPartition
    start: Start
    max_records: int | None = None
    idle_ms: int | None = None
    live: bool = True
    isolation: Isolation = Isolation.READ_UNCOMMITTED
    tag: str | None = None
    until: asyncio.Future[None] | None = None


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
