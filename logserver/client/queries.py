"""Look-ups of offsets, and searches for records by key, id, tag and time.

Owns these calls of the client; must not know how records are found: the store does.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import TypedDict, Unpack

from msgspec import Struct

from logserver.client.transport import (
    BINARY_JSON,
    Transport,
    partition_path,
    segment,
    topic_path,
)
from logserver.client.values import FetchedRecord, MessagesFound, OffsetRange
from storage import EpochEnd, TimedOffset


class _TimeFound(Struct):
    offset: int
    timestamp: int | None


class _EpochFound(Struct):
    leader_epoch: int | None
    end_offset: int | None


class Conditions(TypedDict, total=False):
    """The conditions of a query: all given conditions must hold.

    `limit` is the number of records of a page. `cursor` is a fact of the error at a damaged record (ServerRefused
    50010); it continues after that record.
    """

    key: str | None
    unique_id: str | None
    tag: str | None
    from_ms: int | None
    to_ms: int | None
    limit: int | None
    backward: bool
    scan: bool
    cursor: str | None


class QueryCalls:
    """The calls of LogClient for offsets and messages."""

    transport: Transport

    async def offsets(self, topic: str, partition: int = 0) -> OffsetRange:
        """Return the first offset of a partition, and the next offset to be assigned.

        >>> await client.offsets("orders")
        OffsetRange(beginning_offset=0, end_offset=1)
        """
        return await self.transport.json(
            OffsetRange, "GET", f"{partition_path(topic, partition)}/offsets"
        )

    async def offset_for_time(
        self, topic: str, partition: int, timestamp_ms: int
    ) -> TimedOffset | None:
        """Return the first record at or after a time; None if there is no such record."""
        return await self._at_time(topic, partition, timestamp_ms)

    async def newest_time(self, topic: str, partition: int = 0) -> TimedOffset | None:
        """Return the first record with the largest time of a partition; None if there is no record."""
        return await self._at_time(topic, partition, "newest")

    async def _at_time(self, topic: str, partition: int, time: int | str) -> TimedOffset | None:
        answer = await self.transport.json(
            _TimeFound,
            "GET",
            f"{partition_path(topic, partition)}/offsets",
            query={"timestamp": time},
        )
        return None if answer.timestamp is None else TimedOffset(answer.offset, answer.timestamp)

    async def end_of_epoch(self, topic: str, partition: int, leader_epoch: int) -> EpochEnd | None:
        """Return the newest leader epoch that is not above `leader_epoch`, and its end (Kafka stores only).

        None for an epoch above the newest one.
        """
        answer = await self.transport.json(
            _EpochFound,
            "GET",
            f"{partition_path(topic, partition)}/offsets",
            query={"leader_epoch": leader_epoch},
        )
        if answer.leader_epoch is None or answer.end_offset is None:
            return None
        return EpochEnd(answer.leader_epoch, answer.end_offset)

    async def find_page(self, topic: str, **wanted: Unpack[Conditions]) -> MessagesFound:
        """Return the first page of a query; `next_page` returns the page after it."""
        query = {
            "key": wanted.get("key"),
            "unique_id": wanted.get("unique_id"),
            "tag": wanted.get("tag"),
            "begin": wanted.get("from_ms"),
            "end": wanted.get("to_ms"),
            "limit": wanted.get("limit"),
            "direction": "backward" if wanted.get("backward") else None,
            "scan": True if wanted.get("scan") else None,
            "cursor": wanted.get("cursor"),
        }
        return await self.transport.json(
            MessagesFound, "GET", f"{topic_path(topic)}/messages", query=query, accept=BINARY_JSON
        )

    async def next_page(self, page: MessagesFound) -> MessagesFound | None:
        """Return the page after another page; None after the last page."""
        if page.next is None:
            return None
        return await self.transport.json(MessagesFound, "GET", page.next, accept=BINARY_JSON)

    async def find(
        self, topic: str, **wanted: Unpack[Conditions]
    ) -> AsyncGenerator[FetchedRecord, None]:
        """Yield the records of a topic by key, unique id, tag and time, page after page to the last; see `Conditions`.

        >>> [record.offset async for record in client.find("orders", key="ann")]
        [0]
        """
        async with aclosing(self.find_pages(topic, **wanted)) as pages:
            async for page in pages:
                for record in page.records:
                    yield record

    async def find_pages(
        self, topic: str, **wanted: Unpack[Conditions]
    ) -> AsyncGenerator[MessagesFound, None]:
        """Yield the same records in pages. A page may be empty although others follow: a query scans a limited number
        of records.
        """
        page: MessagesFound | None = await self.find_page(topic, **wanted)
        while page is not None:
            yield page
            page = await self.next_page(page)

    async def message(self, message_id: str) -> FetchedRecord:
        """Return the record with this message id (ServerRefused 40404 if it does not exist).

        >>> found = [record async for record in client.find("orders", key="ann")]
        >>> (await client.message(found[0].message_id)).text
        'first'
        """
        return await self.transport.json(
            FetchedRecord, "GET", f"/messages/{segment(message_id)}", accept=BINARY_JSON
        )
