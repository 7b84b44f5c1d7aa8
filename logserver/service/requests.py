"""Requests to the service, as values. Owns their fields; must not know HTTP or hold any logic."""

from __future__ import annotations

import asyncio
import enum
from collections.abc import Sequence
from typing import NamedTuple

from msgspec import Struct

from logserver.service.commit import Acks
from logserver.service.memory_budget import Hold
from storage import Isolation, ProducerSequence, Record, TopicPartition


class RequestKey(NamedTuple):
    """A client's idempotency key of a produce request, which identifies a repeat. `digest` covers the data that the
    request stores.
    """

    key: str
    digest: bytes


class ProduceOptions(Struct, frozen=True, kw_only=True):
    """The options of a write.

    `timeout_ms` None: wait for the answer without a limit. `born_host`: the address of the sender, as in
    `LogStore.append`. `key` and `producer` exclude each other.
    """

    acks: Acks = Acks.ALL
    timeout_ms: int | None = None
    compression: str | None = None
    producer: ProducerSequence | None = None
    key: RequestKey | None = None
    born_host: bytes | None = None


class Produce(ProduceOptions, frozen=True, kw_only=True):
    """Records for one topic. `partition` applies to all records, `partitions` to each (None: by key, or in turn).
    `hold` is released when the records are written.
    """

    topic: str
    records: Sequence[Record]
    hold: Hold
    size_bytes: int
    partition: int | None = None
    partitions: Sequence[int | None] | None = None


class ProduceBatches(Struct, frozen=True, kw_only=True):
    """Whole record batches for one partition; `partition` None: the only partition of the topic."""

    topic: str
    data: bytes
    hold: Hold
    partition: int | None = None
    acks: Acks = Acks.ALL
    timeout_ms: int | None = None


class StartAt(enum.Enum):
    """The kind of start position of a fetch."""

    OFFSET = "offset"
    EARLIEST = "earliest"
    LATEST = "latest"
    LAST = "last"
    TIME = "time"


class Start(NamedTuple):
    """The start position: `value` is the offset, the count for LAST, the milliseconds for TIME."""

    at: StartAt
    value: int = 0


class Fetch(Struct, frozen=True, kw_only=True):
    """Records of one partition.

    With `timeout_ms` wait until `min_bytes` of keys and values, or at least one record, are available, or until
    `until` is done.
    """

    partition: TopicPartition
    start: Start
    max_records: int = 500
    max_bytes: int = 1 << 20
    min_bytes: int = 1
    timeout_ms: int = 0
    isolation: Isolation = Isolation.READ_UNCOMMITTED
    tag: str | None = None
    hold: Hold | None = None  # of the answer's bytes: raised to the size of the page
    until: asyncio.Future[None] | None = None


class Follow(Struct, frozen=True, kw_only=True):
    """Records of one partition as they arrive: without an end, or with `live` False up to the end at the time of the
    request.

    It also ends after `max_records`, and after `idle_ms` without a record. Once `until` is done, it ends at the end
    at that time.
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
    """A search for records of one topic by key, id, tag or time: see `LogStore.find`."""

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
