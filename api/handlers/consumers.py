"""Consumer instances, as in the Kafka REST Proxy's v2 API.

Owns the shapes of these calls; must not know how a group reads (`logserver.groups`). One trap: a commit names the
last consumed record, so `offset` 3 commits 4, while every other number here is the next offset. Whole numbers and
booleans may be given as text. Unknown settings of a new instance are ignored and reported in a header, because
clients of other servers send more settings.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Annotated, Final, TypeAlias, TypeVar
from urllib.parse import quote

from aiohttp import web
from msgspec import Meta, Struct, field

from api.connection.response_headers import warn
from api.description.parameters import (
    ASYNC,
    CONSUMER_MAX_BYTES,
    CONSUMER_TIMEOUT,
    OF_PARTITION,
    OF_TOPIC,
)
from api.http.errors import CONSUMER_FORMAT, JSON, MALFORMED, PAYLOAD, ApiError
from api.http.negotiation import BINARY_V2_JSON, JSON_V2_JSON, V2_JSON, Format, negotiate
from api.records.rendering import encode_rows, is_large
from api.records.schema import PartitionNumber, Timestamp
from api.request_context import RequestContext, as_kind
from logserver.groups import config
from logserver.groups.coordinator import Subscription
from logserver.groups.pattern import TopicPattern
from logserver.groups.reading import GroupRead, Reset
from storage import CommittedOffset, LogStore, TopicPartition

T = TypeVar("T")

log = logging.getLogger(__name__)

MAX_TOPICS: Final = 1000
MAX_PARTITIONS: Final = 10_000
OFFERS: Final[Mapping[str, Sequence[str]]] = {
    "binary": (BINARY_V2_JSON, JSON, V2_JSON),
    "json": (JSON_V2_JSON, JSON, V2_JSON),
}

Name: TypeAlias = Annotated[str, Meta(min_length=1, max_length=255)]
Offset: TypeAlias = Annotated[int, Meta(ge=0, le=(1 << 63) - 2)]


class NewConsumer(Struct):
    """The body of POST /consumers/{group}. `id` is an older name of `name`. The names of Kafka's own consumer are taken
    too (`enable.auto.commit`), and all of them with the prefix `consumer.`.
    """

    name: str | None = None
    id: str | None = None
    format: str | None = None
    auto_offset_reset: str | None = field(default=None, name=config.OFFSET_RESET)
    auto_commit_enable: bool | str | None = field(default=None, name=config.AUTO_COMMIT)
    auto_commit_interval_ms: int | str | None = field(default=None, name=config.COMMIT_INTERVAL_MS)
    isolation_level: str | None = field(default=None, name=config.ISOLATION)
    fetch_min_bytes: int | str | None = field(default=None, name=config.MIN_BYTES)
    fetch_max_bytes: int | str | None = field(default=None, name=config.MAX_BYTES)
    max_poll_records: int | str | None = field(default=None, name=config.MAX_RECORDS)
    request_timeout_ms: int | str | None = field(default=None, name=config.TIMEOUT_MS)


class ConsumerAnswer(Struct):
    """A new consumer instance; the paths of its operations begin with `base_uri`."""

    instance_id: str
    base_uri: str


class SubscriptionBody(Struct):
    """The topics of an instance: by name, or by a pattern for the whole name."""

    topics: Annotated[list[Name], Meta(max_length=MAX_TOPICS)] | None = None
    topic_pattern: str | None = None


class SubscriptionAnswer(Struct):
    """The topics of a subscription; for a pattern the topics that match now."""

    topics: Sequence[str]


class PartitionName(Struct):
    """A partition of a topic."""

    topic: Name
    partition: PartitionNumber


class PartitionsBody(Struct):
    """Partitions, by name."""

    partitions: Annotated[list[PartitionName], Meta(max_length=MAX_PARTITIONS)]


class OffsetRow(Struct):
    """An offset of a partition."""

    topic: Name
    partition: PartitionNumber
    offset: Offset
    metadata: str | None = None


class CommitBody(Struct):
    """The last consumed offset of each partition; without `offsets`: every delivered record."""

    offsets: Annotated[list[OffsetRow], Meta(max_length=MAX_PARTITIONS)] | None = None


class OffsetsAnswer(Struct):
    """Committed offsets: the next offset of each partition."""

    offsets: Sequence[OffsetRow]


class TimeRow(Struct):
    """A time in a partition."""

    topic: Name
    partition: PartitionNumber
    timestamp: Timestamp


class PositionsBody(Struct):
    """Where to continue: at offsets, or at the first record at or after a time."""

    offsets: Annotated[list[OffsetRow], Meta(max_length=MAX_PARTITIONS)] = []
    timestamps: Annotated[list[TimeRow], Meta(max_length=MAX_PARTITIONS)] = []


async def create(call: RequestContext) -> web.Response:
    """Handle POST /consumers/{group}."""
    call.params()
    settings = await call.json_body(dict[str, object], lax=True) or {}
    asked = as_kind(settings, NewConsumer)
    chosen = config.consumer_config(
        {key: value for key, value in settings.items() if key not in {"name", "id"}},
        group=call.group,
        max_wait_ms=call.settings.max_wait_ms,
    )
    name = asked.name if asked.id is None else asked.id
    base_url = call.base_url
    consumer = call.service.groups.consumers.create(call.group, name, chosen)
    name = consumer.member.name
    path = f"consumers/{quote(call.group, safe='')}/instances/{quote(name, safe='')}"
    response = call.json(ConsumerAnswer(name, f"{base_url}/{path}"))
    warn(response, "unknown settings are ignored", chosen.ignored)
    return response


async def delete(call: RequestContext) -> web.Response:
    """Handle DELETE /consumers/{group}/instances/{instance}."""
    call.params()
    await call.service.groups.consumers.delete(call.group, call.instance)
    return web.Response(status=204)


async def subscribe(call: RequestContext) -> web.Response:
    """Handle POST .../subscription."""
    call.params()
    asked = await _body(call, SubscriptionBody, '{"topics": [...]} or {"topic_pattern": "..."}')
    if (asked.topics is None) == (asked.topic_pattern is None):
        raise ApiError(PAYLOAD, "the body must have either topics or topic_pattern")
    with call.consumer() as consumer:
        if asked.topic_pattern is not None:
            pattern = await asyncio.to_thread(TopicPattern, asked.topic_pattern)
            await consumer.subscribe(Subscription(pattern=pattern))
        elif asked.topics:
            await consumer.subscribe(Subscription(topics=frozenset(asked.topics)))
        else:
            consumer.unsubscribe()
    return web.Response(status=204)


async def get_subscription(call: RequestContext) -> web.Response:
    """Handle GET .../subscription."""
    call.params()
    with call.consumer() as consumer:
        return call.json(SubscriptionAnswer(consumer.topics))


async def unsubscribe(call: RequestContext) -> web.Response:
    """Handle DELETE .../subscription; assigned partitions are dropped too."""
    call.params()
    with call.consumer() as consumer:
        consumer.unsubscribe()
    return web.Response(status=204)


async def assign(call: RequestContext) -> web.Response:
    """Handle POST .../assignments."""
    call.params()
    asked = await _body(call, PartitionsBody, '{"partitions": [...]}')
    with call.consumer() as consumer:
        await consumer.assign(_existing(call, asked.partitions))
    return web.Response(status=204)


async def get_assignments(call: RequestContext) -> web.Response:
    """Handle GET .../assignments."""
    call.params()
    with call.consumer() as consumer:
        rows = [PartitionName(*partition) for partition in consumer.member.partitions]
        return call.json(PartitionsBody(rows))


async def poll(call: RequestContext) -> web.Response:
    """Handle GET .../records.

    The answer is written inside the poll, so positions move only after the write. A client that disconnected before
    gets the same records again.
    """
    params = call.params()
    if call.request.method == "HEAD":
        raise ApiError(405, "records are read with GET", headers={"Allow": "GET"})
    response = web.Response()
    with call.consumer() as consumer:
        call.answer_type = _agreed_type(call, consumer.config.format)
        # Read before the wait, so that a stop during the wait raises no error.
        store = call.service.store
        wait_ms = params.get(CONSUMER_TIMEOUT)
        try:
            with call.while_connected():
                async with consumer.poll(
                    timeout_ms=consumer.config.timeout_ms if wait_ms is None else wait_ms,
                    max_bytes=params.get(CONSUMER_MAX_BYTES) or consumer.config.max_bytes,
                    until=call.half_closed,
                ) as batch:
                    body = await _rendered(store, batch, Format(consumer.config.format))
                    response = call.encoded(body)
                    await call.deliver(response, once=bool(batch.slices))
            call.service.metrics.fetched(records=len(batch.records), size_bytes=len(body))
        except ConnectionError as error:
            log.debug("group %r: a poll was not delivered: %s", call.group, error)
    return response


def _agreed_type(call: RequestContext, kind: str) -> str:
    """Return the best media type of the instance's format. Raises 40601."""
    try:
        return negotiate(call.request.headers.get("Accept"), OFFERS[kind])
    except ApiError as refused:
        raise ApiError(
            CONSUMER_FORMAT, f"the instance's format is {kind}: {refused.message}"
        ) from None


async def commit(call: RequestContext) -> web.Response:
    """Handle POST .../offsets: the last consumed offset of each partition."""
    _ = call.params()[ASYNC]  # a wrong value is refused, a right one changes nothing
    asked = await call.json_body(CommitBody, lax=True) or CommitBody()
    with call.consumer() as consumer:
        if asked.offsets is None:
            await consumer.commit_consumed()
        else:
            await consumer.commit(
                {
                    call.service.partition(row.topic, row.partition): CommittedOffset(
                        row.offset + 1, metadata=row.metadata or ""
                    )
                    for row in asked.offsets
                }
            )
    return call.json([])


async def get_committed(call: RequestContext) -> web.Response:
    """Handle GET .../offsets: of the partitions in the body, else in the query, else of the instance."""
    params = call.params()
    topic, number = params.get(OF_TOPIC), params.get(OF_PARTITION)
    asked = await call.json_body(PartitionsBody, lax=True)
    if number is not None and topic is None:
        raise ApiError(
            MALFORMED, "query parameter partition is given without topic: give both, or neither"
        )
    with call.consumer() as consumer:
        partitions: Iterable[TopicPartition] = consumer.member.partitions
        if asked is not None:
            partitions = _existing(call, asked.partitions)
        elif topic is not None:
            numbers = call.service.topic(topic).partitions if number is None else [number]
            partitions = [call.service.partition(topic, number) for number in numbers]
        found = await consumer.committed(partitions)
    rows = [
        OffsetRow(*partition, committed.offset, committed.metadata)
        for partition, committed in found.items()
    ]
    return call.json(OffsetsAnswer(rows))


async def seek(call: RequestContext) -> web.Response:
    """Handle POST .../positions: the next offset of each partition."""
    call.params()
    asked = await _body(call, PositionsBody, '{"offsets": [...]}')
    with call.consumer() as consumer:
        await consumer.seek(
            {TopicPartition(row.topic, row.partition): row.offset for row in asked.offsets},
            {TopicPartition(row.topic, row.partition): row.timestamp for row in asked.timestamps},
        )
    return web.Response(status=204)


async def seek_to_beginning(call: RequestContext) -> web.Response:
    """Handle POST .../positions/beginning."""
    return await _seek_to(call, Reset.EARLIEST)


async def seek_to_end(call: RequestContext) -> web.Response:
    """Handle POST .../positions/end."""
    return await _seek_to(call, Reset.LATEST)


async def _seek_to(call: RequestContext, end: Reset) -> web.Response:
    call.params()
    asked = await call.json_body(PartitionsBody, lax=True) or PartitionsBody([])
    with call.consumer() as consumer:
        chosen = [TopicPartition(name.topic, name.partition) for name in asked.partitions]
        await consumer.seek_to(end, chosen)
    return web.Response(status=204)


async def _body(call: RequestContext, kind: type[T], example: str) -> T:
    asked = await call.json_body(kind, lax=True)
    if asked is None:
        raise ApiError(PAYLOAD, f"the body is empty: send {example}")
    return asked


def _existing(call: RequestContext, names: Iterable[PartitionName]) -> list[TopicPartition]:
    return [call.service.partition(name.topic, name.partition) for name in names]


async def _rendered(store: LogStore, batch: GroupRead, kind: Format) -> bytes:
    found = batch.records
    record_id = store.record_id if store.capabilities.messages else None
    render = partial(encode_rows, found, kind, record_id)
    return await asyncio.to_thread(render) if is_large([row for _, row in found]) else render()
