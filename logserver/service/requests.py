"""Requests to the service and their results, as values. Owns their fields; must not know HTTP or hold any logic."""

from __future__ import annotations

import asyncio
import enum
from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import ip_address
from typing import NamedTuple

from msgspec import Struct

from logserver.service.memory_budget import Reservation
from storage import (
    Isolation,
    Prepared,
    ProducerEpoch,
    ProducerSequence,
    Record,
    StorageError,
    TopicPartition,
)


class Acks(enum.Enum):
    """The time of a request's answer: after validation, after the write, or after the store's flush mode is met."""

    NONE = "0"
    WRITTEN = "1"
    ALL = "all"


class Delay(NamedTuple):
    """When a record is to be delivered: one of a delay level, a time, or a delay from now on."""

    level: int | None = None
    deliver_at_ms: int | None = None
    delay_ms: int | None = None


class Delayed(NamedTuple):
    """The delay of a stored record: its level, and the time of its delivery, None if it was delivered and deleted."""

    level: int
    deliver_at_ms: int | None


class AppendOutcome(NamedTuple):
    """Records of one request with the same result. `positions` are their positions in the request, ascending.

    Stored records have the offsets base_offset, base_offset + 1, ... and their locators; failed records have `error`.
    `timestamp_ms`: the time of the append, if the store sets it on its records (LogAppendTime), else -1.
    `delayed`: the records wait for their time. `is_prepared`: for the end of their transaction. Then they have no
    offset yet, and the locators of the waiting messages.
    """

    partition: int
    positions: Sequence[int]
    base_offset: int
    error: StorageError | None = None
    locators: Sequence[int] = ()
    timestamp_ms: int = -1
    delayed: Delayed | None = None
    is_prepared: bool = False

    @property
    def has_offsets(self) -> bool:
        """Whether the records are where consumers read them."""
        return self.delayed is None and not self.is_prepared


@dataclass(slots=True)
class PartitionAppend:
    """The data that one request appends to one partition: records, or whole batches as bytes.

    `born_host`: the address of the sender, for a store that keeps it. `checked`: the records of whole batches have
    been checked. `transaction`: the producer of the transaction that whole batches belong to.
    """

    partition: TopicPartition
    records: Sequence[Record] | bytes
    positions: Sequence[int]
    compression: str | None = None
    producer: ProducerSequence | None = None
    born_host: bytes | None = None
    checked: bool = False
    transaction: ProducerEpoch | None = None


class RequestKey(NamedTuple):
    """A client's idempotency key of a produce request, which identifies a repeat. `digest` covers the data that the
    request stores.
    """

    key: str
    digest: bytes


class ProduceOptions(Struct, frozen=True, kw_only=True):
    """The options of a write.

    `timeout_ms` None: wait for the answer without a limit. `born_host`: the address of the sender, as in
    `LogStore.append`. `key` and `producer` exclude each other. `delay`: of the records without a delay of their own.
    `transaction`: the producer of the transaction that the records belong to; `producer` is then None, or its mark with
    a sequence number. `prepared`: the transaction, in a store with half messages.
    """

    acks: Acks = Acks.ALL
    timeout_ms: int | None = None
    compression: str | None = None
    producer: ProducerSequence | None = None
    key: RequestKey | None = None
    born_host: bytes | None = None
    delay: Delay | None = None
    transaction: ProducerEpoch | None = None
    prepared: Prepared | None = None


class Produce(ProduceOptions, frozen=True, kw_only=True):
    """Records for one topic. `partition` applies to all records, `partitions` to each (None: by key, or in turn).

    `delays`: of each record, None for a record that is delivered at once. `reservation` is released when the records
    are written.
    """

    topic: str
    records: Sequence[Record]
    reservation: Reservation
    size_bytes: int
    partition: int | None = None
    partitions: Sequence[int | None] | None = None
    delays: Sequence[Delay | None] | None = None


class ProduceBatches(Struct, frozen=True, kw_only=True):
    """Whole record batches for one partition; `partition` None: the only partition of the topic."""

    topic: str
    data: bytes
    reservation: Reservation
    partition: int | None = None
    acks: Acks = Acks.ALL
    timeout_ms: int | None = None
    transaction: ProducerEpoch | None = None


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
    reservation: Reservation | None = None  # of the answer's bytes: raised to the size of the page
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


def host_bytes(host: str, port: int) -> bytes:
    """Convert an IP address and a port to the form of `born_host`; an IPv4 address mapped to IPv6 becomes IPv4."""
    address = ip_address(host.partition("%")[0])
    mapped = getattr(address, "ipv4_mapped", None)
    return (mapped or address).packed + port.to_bytes(4, "big")
