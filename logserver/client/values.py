"""What a server's answers hold, as typed values; decoded straight from JSON.

Owns shapes only; must not know HTTP connections. Times are integer milliseconds since the epoch; keys,
values and headers are bytes, whatever format they came in.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import msgspec
from msgspec import Struct

from storage import Header


class _HeaderRow(Struct, frozen=True, gc=False):
    """A header as it stands in an answer."""

    key: str
    value: bytes | None = None


class FetchedRecord(Struct, frozen=True, kw_only=True, gc=False):
    """A record as it was fetched. `tag` and `lookup_keys` are those for lookups; `properties`,
    `message_id` and `store_timestamp_ms` are there where the store keeps (or the call tells) them.
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

    @property
    def headers(self) -> Sequence[Header]:
        """Name and value of each, in stored order; names may repeat."""
        return [(row.key, row.value) for row in self.header_rows]

    @property
    def text(self) -> str:
        """The value as UTF-8 text, "" where there is none. Raises UnicodeDecodeError."""
        return (self.value or b"").decode()

    def json(self) -> Any:
        """The value as JSON, None where there is none. Raises msgspec.DecodeError."""
        return None if self.value is None else msgspec.json.decode(self.value)


class FetchedPage(NamedTuple):
    """One read of a partition. Read on from `next_offset`, which gets past what is not shown, even
    where `records` is empty.
    """

    records: Sequence[FetchedRecord]
    next_offset: int
    beginning_offset: int
    end_offset: int


class FetchedBatches(NamedTuple):
    """Whole record batches as they are stored; the first may begin before the offset asked for."""

    data: bytes
    next_offset: int
    beginning_offset: int
    end_offset: int


class OffsetRange(Struct, frozen=True):
    """What a partition holds; `end_offset` is the next offset to be given."""

    beginning_offset: int
    end_offset: int


class Placed(Struct, frozen=True, gc=False):
    """Where a produced record went. `message_id` is there where a store gives one."""

    partition: int
    offset: int
    message_id: str | None = None


class ProducedRow(Struct, frozen=True, gc=False):
    """Where one record of a request went, or why it did not: then `error_code` is not None."""

    partition: int | None = None
    offset: int | None = None
    error_code: int | None = None
    error: str | None = None
    message_id: str | None = None


class PlacedBatches(Struct, frozen=True):
    """Where the record batches of a request went: the first and the last record's offset."""

    partition: int
    offset: int
    last_offset: int


class PartitionNumber(Struct, frozen=True):
    """A partition of a topic."""

    partition: int


class PartitionOffset(Struct, frozen=True):
    """An offset of a partition; the call says which."""

    topic: str
    partition: int
    offset: int


class PartitionOffsets(Struct, frozen=True):
    """Offsets of partitions, on the way there or back."""

    offsets: Sequence[PartitionOffset]


class TopicDescription(Struct, frozen=True):
    """A topic: its configs (those that were set) and its partitions."""

    name: str
    configs: Mapping[str, str]
    partition_rows: Sequence[PartitionNumber] = msgspec.field(name="partitions")

    @property
    def partitions(self) -> Sequence[int]:
        """The partitions' numbers, ascending."""
        return [row.partition for row in self.partition_rows]


class MessagesFound(Struct, frozen=True, kw_only=True):
    """One page of a query: `scanned` records were looked at; `next` is the path of the next page."""

    records: Sequence[FetchedRecord]
    scanned: int
    indexed: bool
    complete: bool
    time_axis: str
    next: str | None = None


class ProducerId(Struct, frozen=True):
    """The mark of an idempotent producer."""

    producer_id: int
    producer_epoch: int


class ErrorBody(Struct, frozen=True):
    """What every error's body has; its other members are facts."""

    error_code: int
    message: str
