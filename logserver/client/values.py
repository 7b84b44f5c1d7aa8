"""The contents of a server's answers as typed values, decoded directly from JSON.

Owns shapes only; must not know HTTP connections. Times are integer milliseconds since the epoch. Keys, values and
headers are bytes, in whatever format they were sent.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

import msgspec
from msgspec import Struct

from storage import Header, TopicPartition

Start: TypeAlias = int | str
"""An offset, "earliest", "latest", "-N" (the last N) or "@ms" (the first at or after a time)."""


BROKER_ID: Final = 1  # of a server without topics; topics name their own


def names_of(topics: Sequence[str]) -> list[str]:
    """Return the names of topics as a list. Raises TypeError for one name: its letters would be read as topics."""
    if isinstance(topics, str):
        raise TypeError(
            f"topics is {topics!r}: a list of names is expected, for example [{topics!r}]"
        )
    return list(topics)


class _HeaderRow(Struct, frozen=True, gc=False):
    """A header in the form of an answer."""

    key: str
    value: bytes | None = None


class RetryPlace(Struct, frozen=True, gc=False):
    """Where a retry of a group is stored, and how often its message was handed back."""

    topic: str
    partition: int
    times: int


class FetchedRecord(Struct, frozen=True, kw_only=True, gc=False):
    """A fetched record.

    `tag` and `lookup_keys` are RocketMQ's tag and keys for look-ups. `properties`, `message_id` and
    `store_timestamp_ms` are set if the store keeps them and the call returns them.

    `retry`: the record is a message that the group handed back. `topic` is then the topic that it was sent to,
    `partition` is -1, and `offset` is its offset in the partition of `retry`.
    """

    topic: str
    partition: int
    offset: int
    timestamp_ms: int = msgspec.field(name="timestamp")
    key: bytes | None
    value: bytes | None
    header_rows: Sequence[_HeaderRow] = msgspec.field(name="headers", default=())
    tag: str | None = None
    lookup_keys: Sequence[str] = msgspec.field(name="keys", default=())
    properties: Mapping[str, str] | None = None
    message_id: str | None = None
    store_timestamp_ms: int | None = msgspec.field(name="store_timestamp", default=None)
    retry: RetryPlace | None = None

    @property
    def stored_in(self) -> TopicPartition:
        """The partition that the record's offset is of."""
        place = self.retry or self
        return TopicPartition(place.topic, place.partition)

    @property
    def headers(self) -> Sequence[Header]:
        """Name and value of each header, in stored order; names may repeat."""
        return [(row.key, row.value) for row in self.header_rows]

    @property
    def text(self) -> str:
        """The value as UTF-8 text, "" if there is no value. Raises UnicodeDecodeError."""
        return (self.value or b"").decode()

    def json(self) -> Any:
        """Decode the value as JSON; None if there is no value. Raises msgspec.DecodeError."""
        return None if self.value is None else msgspec.json.decode(self.value)


class FetchedPage(NamedTuple):
    """One read of a partition. Continue at `next_offset`, which also skips hidden offsets, even if `records` is
    empty.
    """

    records: Sequence[FetchedRecord]
    next_offset: int
    beginning_offset: int
    end_offset: int
    partition: int


class FetchedBatches(NamedTuple):
    """Whole record batches as they are stored; the first may begin before the requested offset."""

    data: bytes
    next_offset: int
    beginning_offset: int
    end_offset: int


class OffsetRange(Struct, frozen=True):
    """The range of offsets of a partition; `end_offset` is the next offset to be assigned."""

    beginning_offset: int
    end_offset: int


class Delay(NamedTuple):
    """When records are delivered; give one. The last two are rounded up to a level of the store."""

    level: int | None = None
    deliver_at_ms: int | None = None
    delay_ms: int | None = None


class Placed(Struct, frozen=True, gc=False):
    """The place of a produced record. `message_id` is set if the store has message ids."""

    partition: int
    offset: int
    message_id: str | None = None


class PlacedLater(Placed, frozen=True, gc=False):
    """A record that waits, for its time or (`delay_level` 0) for the commit of its transaction in RocketMQ's format:
    `offset` is -1, because its delivery is another message.

    `message_id` is that of the message that waits. `deliver_at_ms`: None if it was delivered and deleted.
    """

    delay_level: int = 0
    deliver_at_ms: int | None = None


class ProducedRow(Struct, frozen=True, gc=False):
    """The place of one record of a request, or the reason why it was not stored: then `error_code` is not None."""

    partition: int | None = None
    offset: int | None = None
    error_code: int | None = None
    error: str | None = None
    message_id: str | None = None
    delay_level: int | None = None
    deliver_at: int | None = None


class PlacedBatches(Struct, frozen=True):
    """The place of the record batches of a request: the offsets of the first and the last record."""

    partition: int
    offset: int
    last_offset: int


class PartitionNumber(Struct, frozen=True):
    """A partition of a topic, and the id of the server that has it."""

    partition: int
    leader: int = 1


class PartitionOffset(Struct, frozen=True):
    """An offset of a partition; the call defines its meaning."""

    topic: str
    partition: int
    offset: int


class PartitionOffsets(Struct, frozen=True):
    """Offsets of partitions, in a request or an answer."""

    offsets: Sequence[PartitionOffset]


class TopicDescription(Struct, frozen=True):
    """A topic: its configs (only configs that were set) and its partitions."""

    name: str
    configs: Mapping[str, str]
    partition_rows: Sequence[PartitionNumber] = msgspec.field(name="partitions")

    @property
    def partitions(self) -> Sequence[int]:
        """The partitions' numbers, ascending."""
        return [row.partition for row in self.partition_rows]


class Broker(NamedTuple):
    """A broker of a cluster; `address`: HOST:PORT for its clients."""

    id: int
    address: str


class PartitionReplicas(NamedTuple):
    """The brokers of a partition: their ids. `problem`: why it cannot be used, if so; `leader` may be -1 then."""

    partition: int
    leader: int
    replicas: Sequence[int]
    in_sync: Sequence[int]
    problem: str | None = None


class Cluster(NamedTuple):
    """The brokers, and the topics by name. `answered_by`: the id and the name of the broker that gave this answer."""

    answered_by: tuple[int, str]
    controller: int
    brokers: Sequence[Broker]
    topics: Mapping[str, Sequence[PartitionReplicas]]


class MessagesFound(Struct, frozen=True, kw_only=True):
    """One page of a query: `scanned` is the number of records that were read; `next` is the path of the next page."""

    records: Sequence[FetchedRecord]
    scanned: int
    indexed: bool
    complete: bool
    time_axis: str
    next: str | None = None


class ProducerId(Struct, frozen=True):
    """The id and epoch of an idempotent producer."""

    producer_id: int
    producer_epoch: int


class ErrorBody(Struct, frozen=True):
    """The members of every error body; its other members are facts."""

    error_code: int
    message: str
