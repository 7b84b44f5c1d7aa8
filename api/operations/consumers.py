"""Consumer instances, as in the Kafka REST Proxy's v2 API.

Owns the shapes of these operations; must not know how a group reads (`logserver.groups`). One trap: a commit names the
last consumed record, so `offset` 3 commits 4, while every other number here is the next offset. Whole numbers and
booleans may be given as text. Unknown settings of a new instance are ignored and reported in a header, because
clients of other servers send more settings.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Annotated, Any, Final, TypeAlias
from urllib.parse import quote

from aiohttp import web
from msgspec import Meta, Struct, field

from api.connection.response_headers import WARNINGS, warn
from api.http.errors import CONSUMER_FORMAT, JSON, MALFORMED, PAYLOAD, ApiError
from api.http.negotiation import BINARY_V2_JSON, JSON_V2_JSON, V2_JSON, Format, negotiate
from api.http.parameters import MAX_INT32, Choice, Integer, Parameter, Text
from api.operation import Answer, Example, Resource, optional, required
from api.operations.parameters import MAX_LEVEL, MAX_PAGE_BYTES
from api.records.decode import PartitionNumber, Timestamp
from api.records.encode import RecordRow, encode_rows, run_encoder
from api.request_context import RequestContext, as_kind
from logserver.groups import config
from logserver.groups.coordinator import Subscription
from logserver.groups.reading import GroupRead, Reset
from logserver.groups.topic_pattern import TopicPattern
from logserver.groups.unacknowledged import MAX_HELD
from storage import BY_LADDER, TO_DEAD_LETTERS, CommittedOffset, LogStore, TopicPartition

log = logging.getLogger(__name__)

CONSUMERS: Final = Resource("Consumers")

INSTANCE: Final = "/consumers/{group}/instances/{instance}"
MAX_TOPICS: Final = 1000
MAX_PARTITIONS: Final = 10_000
INVISIBLE_MS: Final = 60_000
"""As long as RocketMQ's pop consumer by default."""
MAX_INVISIBLE_MS: Final = 43_200_000
OFFERS: Final[Mapping[str, Sequence[str]]] = {
    "binary": (BINARY_V2_JSON, JSON, V2_JSON),
    "json": (JSON_V2_JSON, JSON, V2_JSON),
}

Name: TypeAlias = Annotated[str, Meta(min_length=1, max_length=255)]
Offset: TypeAlias = Annotated[int, Meta(ge=0, le=(1 << 63) - 2)]

_TIMEOUT: Final = Parameter(
    "timeout",
    Integer(0, "max_wait_ms"),
    "How long to wait for `fetch.min.bytes`, in milliseconds; else the instance's "
    "`consumer.request.timeout.ms`.",
)
_MAX_BYTES: Final = Parameter(
    "max_bytes",
    Integer(1, MAX_PAGE_BYTES),
    "About this many bytes; at least one record is returned, of any size. Else the instance's `fetch.max.bytes`.",
)
_ACK: Final = Parameter(
    "ack",
    Choice({"auto": False, "manual": True}),
    "`manual`: each record waits for its acknowledgement, and is delivered again after `invisible_ms`.",
    "auto",
)
_INVISIBLE: Final = Parameter(
    "invisible_ms",
    Integer(1, MAX_INVISIBLE_MS),
    "With `ack=manual`: after so many milliseconds a record that was not acknowledged is delivered again.",
)
_ASYNC: Final = Parameter(
    "async",
    Choice({"false": False, "true": True}),
    "Accepted for older clients: a commit is answered when it is stored, with both values.",
    "false",
)
_TOPIC: Final = Parameter("topic", Text(1), "Only offsets of this topic.")
_PARTITION: Final = Parameter(
    "partition", Integer(0, MAX_INT32), "Only the offset of this partition; needs `topic` too."
)


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


class PartitionOffset(Struct):
    """An offset of a partition."""

    topic: Name
    partition: PartitionNumber
    offset: Offset
    metadata: str | None = None


class CommitBody(Struct):
    """The last consumed offset of each partition; without `offsets`: every delivered record."""

    offsets: Annotated[list[PartitionOffset], Meta(max_length=MAX_PARTITIONS)] | None = None


class OffsetsAnswer(Struct):
    """Committed offsets: the next offset of each partition."""

    offsets: Sequence[PartitionOffset]


class RecordPlace(Struct):
    """A record by its place. Of a row with `retry`: the topic and partition in `retry`."""

    topic: Name
    partition: PartitionNumber
    offset: Offset


class AckBody(Struct):
    """Records that were processed."""

    records: Annotated[list[RecordPlace], Meta(min_length=1, max_length=MAX_HELD)]


class NackBody(Struct):
    """Records that could not be processed. `delay_level` and `max_times`: as for POST /groups/{group}/retry."""

    records: Annotated[list[RecordPlace], Meta(min_length=1, max_length=MAX_HELD)]
    delay_level: Annotated[int, Meta(ge=TO_DEAD_LETTERS, le=MAX_LEVEL)] = BY_LADDER
    max_times: Annotated[int, Meta(ge=0, le=MAX_INT32)] | None = None


class AckAnswer(Struct):
    """How many of the records were held. The others are no longer this instance's: they were acknowledged before, or
    are delivered again, to this instance or to another one.
    """

    acknowledged: int
    unknown: Sequence[RecordPlace]


class TimeRow(Struct):
    """A time in a partition."""

    topic: Name
    partition: PartitionNumber
    timestamp: Timestamp


class PositionsBody(Struct):
    """Where to continue: at offsets, or at the first record at or after a time."""

    offsets: Annotated[list[PartitionOffset], Meta(max_length=MAX_PARTITIONS)] = []
    timestamps: Annotated[list[TimeRow], Meta(max_length=MAX_PARTITIONS)] = []


_ORDERS: Final = {"partitions": [{"topic": "orders", "partition": 0}]}
_DONE: Final = Answer(204, "Done.")


def _example(name: str = "default", *, body: Any = None, **more: Any) -> Example:
    media_type = None if body is None else V2_JSON
    return Example(name, media_type=media_type, body=body, **more)


@CONSUMERS.post(
    "/consumers/{group}",
    Answer(200, "The instance.", ConsumerAnswer, {WARNINGS: "The settings that were ignored."}),
    body=optional(dict[str, object], lax=True, documented=NewConsumer),
    errors=(40902, 40903, 42203, 42204, 42901),
    examples=(
        _example(
            body={"name": "worker-2", "format": "json", "auto.offset.reset": "earliest"},
            answer={
                "instance_id": "worker-2",
                "base_uri": "http://localhost:8082/consumers/billing/instances/worker-2",
            },
        ),
    ),
)
async def create_consumer(call: RequestContext, settings: dict[str, object] | None) -> web.Response:
    """Create a consumer instance.

    A member of the group; it reads once it has a subscription or assigned partitions. Without a name it gets a
    generated one. Numbers and booleans may be text. Settings of Kafka's consumer that change the read records are
    applied or rejected with 42204. Unknown settings are ignored and named in `X-Warnings`. Idle instances are closed
    after the setting `consumer_idle_ms`.
    """
    settings = settings or {}
    named = as_kind(settings, NewConsumer)
    chosen = config.consumer_config(
        {key: value for key, value in settings.items() if key not in {"name", "id"}},
        group=call.group,
        max_wait_ms=call.settings.max_wait_ms,
    )
    name = named.name if named.id is None else named.id
    base_url = call.base_url
    await call.service.groups.loaded()  # the name may be that of Kafka clients of before a restart
    consumer = call.service.groups.consumers.create(call.group, name, chosen)
    name = consumer.member.name
    path = f"consumers/{quote(call.group, safe='')}/instances/{quote(name, safe='')}"
    response = call.json(ConsumerAnswer(name, f"{base_url}/{path}"))
    warn(response, "unknown settings are ignored", chosen.ignored)
    return response


@CONSUMERS.delete(
    INSTANCE,
    Answer(204, "The instance is deleted."),
    errors=(40403,),
    examples=(Example(status=204),),
)
async def delete_consumer(call: RequestContext) -> web.Response:
    """Delete a consumer instance.

    Its partitions go to other members at once. With auto-commit, delivered records are committed first.
    """
    await call.service.groups.consumers.delete(call.group, call.path["instance"])
    return web.Response(status=204)


@CONSUMERS.post(
    f"{INSTANCE}/subscription",
    _DONE,
    body=required(SubscriptionBody, '{"topics": [...]} or {"topic_pattern": "..."}', lax=True),
    errors=(40403, 40903),
    examples=(_example(body={"topics": ["orders"]}, status=204),),
)
async def subscribe(call: RequestContext, body: SubscriptionBody) -> web.Response:
    """Subscribe to topics.

    By name, or by a regular expression that must match a topic's whole name. The instances of a group share the
    partitions. Topics that are created later are added. On RocketMQ's format the messages that the group handed back
    are added too. An empty list of topics ends the subscription.
    """
    if (body.topics is None) == (body.topic_pattern is None):
        raise ApiError(PAYLOAD, "the body must have either topics or topic_pattern")
    with call.consumer() as consumer:
        if body.topic_pattern is not None:
            pattern = await asyncio.to_thread(TopicPattern, body.topic_pattern)
            await consumer.subscribe(Subscription(pattern=pattern))
        elif body.topics:
            await consumer.subscribe(Subscription(topics=frozenset(body.topics)))
        else:
            consumer.unsubscribe()
    return web.Response(status=204)


@CONSUMERS.get(
    f"{INSTANCE}/subscription",
    Answer(200, "The names, in order.", SubscriptionAnswer),
    errors=(40403,),
    examples=(Example(answer={"topics": ["orders"]}),),
)
async def get_subscription(call: RequestContext) -> web.Response:
    """The topics of the subscription."""
    with call.consumer() as consumer:
        return call.json(SubscriptionAnswer(consumer.topics))


@CONSUMERS.delete(
    f"{INSTANCE}/subscription", _DONE, errors=(40403,), examples=(Example(status=204),)
)
async def unsubscribe(call: RequestContext) -> web.Response:
    """End the subscription and the assignment of partitions."""
    with call.consumer() as consumer:
        consumer.unsubscribe()
    return web.Response(status=204)


@CONSUMERS.post(
    f"{INSTANCE}/assignments",
    _DONE,
    body=required(PartitionsBody, '{"partitions": [...]}', lax=True),
    errors=(40401, 40402, 40403, 40903, 50302),
    examples=(_example(body=_ORDERS, path={"instance": "worker-0"}, status=204),),
)
async def assign(call: RequestContext, body: PartitionsBody) -> web.Response:
    """Read exactly these partitions.

    Other members of the group may read the same partitions. An instance with a subscription cannot do this.
    """
    with call.consumer() as consumer:
        await consumer.assign(_existing(call, body.partitions))
    return web.Response(status=204)


@CONSUMERS.get(
    f"{INSTANCE}/assignments",
    Answer(200, "The partitions, in order.", PartitionsBody),
    errors=(40403,),
    examples=(Example(answer=_ORDERS),),
)
async def get_assignments(call: RequestContext) -> web.Response:
    """The partitions that the instance reads."""
    with call.consumer() as consumer:
        rows = [PartitionName(*partition) for partition in consumer.member.partitions]
        return call.json(PartitionsBody(rows))


@CONSUMERS.get(
    f"{INSTANCE}/records",
    Answer(200, "The records; an empty list after the timeout.", Sequence[RecordRow]),
    query=(_TIMEOUT, _MAX_BYTES, _ACK, _INVISIBLE),
    errors=(40403, 40601, 40903, 41601, 42201, 50010, 50302),
    examples=(
        Example(
            query={"timeout": "1000", "max_bytes": "300000"},
            headers={"Accept": BINARY_V2_JSON},
            answer=[
                {
                    "topic": "orders",
                    "partition": 0,
                    "offset": offset,
                    "timestamp": 1760000000000 + offset,
                    "key": key,
                    "value": value,
                    "headers": [],
                }
                for offset, (key, value) in enumerate(
                    (("ImsxIg==", "eyJ0b3RhbCI6MTJ9"), ("ImsyIg==", "eyJ0b3RhbCI6N30="))
                )
            ],
        ),
    ),
)
async def poll(call: RequestContext) -> web.Response:
    """The next records.

    Records of all its partitions in turn. Positions move when the answer has been written to the connection: a client
    that disconnected before gets the same records again. Polls of one instance run one after the other; a new poll
    ends the wait of the poll before. A row with `retry` is a message that the group handed back: its partition is -1,
    and its offset is committed under the topic and partition in `retry`. With `ack=manual` the group's progress goes up
    to the first record that is not acknowledged, and an instance holds at most 10,000 records.
    """
    if call.request.method == "HEAD":
        raise ApiError(405, "records are read with GET", headers={"Allow": "GET"})
    invisible_ms = _invisible_ms(call)
    response = web.Response()
    with call.consumer() as consumer:
        call.answer_type = _agreed_type(call, consumer.config.format)
        # Read before the wait, so that a stop during the wait raises no error.
        store = call.service.store
        wait_ms = call.params.get(_TIMEOUT)
        try:
            with call.while_connected():
                async with consumer.poll(
                    timeout_ms=consumer.config.timeout_ms if wait_ms is None else wait_ms,
                    max_bytes=call.params.get(_MAX_BYTES) or consumer.config.max_bytes,
                    until=call.half_closed,
                    invisible_ms=invisible_ms,
                ) as batch:
                    kind = Format(consumer.config.format)
                    body = await _rendered(store, batch, kind, consumer.retry_topic)
                    response = call.encoded(body)
                    # Inside the poll, so that positions move only after the write.
                    await call.deliver(response, once=bool(batch.slices))
            call.service.metrics.fetched(records=len(batch.records), size_bytes=len(body))
        except ConnectionError as error:
            log.debug("group %r: a poll was not delivered: %s", call.group, error)
    return response


def _invisible_ms(call: RequestContext) -> int | None:
    """Return the invisibility time of a poll; None for a poll without acknowledgements."""
    given = call.params.get(_INVISIBLE)
    if call.params[_ACK]:
        return given or INVISIBLE_MS
    if given is not None:
        raise ApiError(PAYLOAD, "query parameter invisible_ms needs ack=manual")
    return None


@CONSUMERS.post(
    f"{INSTANCE}/ack",
    Answer(200, "The acknowledged records are done.", AckAnswer),
    body=required(AckBody, '{"records": [...]}', lax=True),
    errors=(40403, 50302, 50701),
    examples=(
        _example(
            body={"records": [{"topic": "orders", "partition": 0, "offset": 7}]},
            answer={
                "acknowledged": 0,
                "unknown": [{"topic": "orders", "partition": 0, "offset": 7}],
            },
        ),
    ),
)
async def acknowledge(call: RequestContext, body: AckBody) -> web.Response:
    """Acknowledge records.

    Of polls with `ack=manual`. The group's progress is committed: up to the first record that is not acknowledged.
    Answered when the store's flush mode is met.
    """
    places = _places(body.records)
    with call.consumer() as consumer:
        done = await consumer.acknowledge(places)
    return _acknowledged(call, places, done)


@CONSUMERS.post(
    f"{INSTANCE}/nack",
    Answer(200, "The records are handed back, and done.", AckAnswer),
    body=required(NackBody, '{"records": [...]}', lax=True),
    errors=(40403, 40404, 42203, 42206, 42207, 42901, 50302, 50701),
    examples=(
        _example(
            body={"records": [{"topic": "orders", "partition": 0, "offset": 7}]},
            answer={
                "acknowledged": 0,
                "unknown": [{"topic": "orders", "partition": 0, "offset": 7}],
            },
        ),
    ),
)
async def hand_back_held(call: RequestContext, body: NackBody) -> web.Response:
    """Hand records back, for another delivery.

    Of polls with `ack=manual`: as POST /groups/{group}/retry for each record, and then as `ack`. After an error the
    records before the one that failed are handed back, and the others are still held.
    """
    places = _places(body.records)
    done: list[tuple[TopicPartition, int]] = []
    with call.consumer() as consumer:
        for place in consumer.held(dict.fromkeys(places)):
            message_id = await call.service.retries.id_at(*place)
            await call.service.retries.send_back(
                call.group, message_id, level=body.delay_level, max_times=body.max_times
            )
            done += await consumer.acknowledge([place])
    return _acknowledged(call, places, done)


def _places(records: Iterable[RecordPlace]) -> list[tuple[TopicPartition, int]]:
    return [(TopicPartition(row.topic, row.partition), row.offset) for row in records]


def _acknowledged(
    call: RequestContext,
    places: Iterable[tuple[TopicPartition, int]],
    done: Sequence[tuple[TopicPartition, int]],
) -> web.Response:
    held = set(done)
    unknown = [RecordPlace(*at, offset) for at, offset in places if (at, offset) not in held]
    return call.json(AckAnswer(len(held), unknown))


@CONSUMERS.post(
    f"{INSTANCE}/offsets",
    Answer(200, "Committed; the list is always empty.", Sequence[PartitionOffset]),
    query=(_ASYNC,),
    body=optional(CommitBody, lax=True),
    errors=(40401, 40402, 40403, 41601, 50302, 50701),
    examples=(
        _example(
            body={
                "offsets": [{"topic": "orders", "partition": 0, "offset": 1, "metadata": "mine"}]
            },
            answer=[],
        ),
        _example("every delivered record", answer=[]),
    ),
)
async def commit(call: RequestContext, body: CommitBody | None) -> web.Response:
    """Commit offsets.

    `offset` is the offset of the last consumed record: 3 commits 4, the next offset. Without a body: every record that
    was delivered to this instance. Answered when the store's flush mode is met.
    """
    _ = call.params[_ASYNC]  # a wrong value is rejected, a right one changes nothing
    with call.consumer() as consumer:
        if body is None or body.offsets is None:
            await consumer.commit_consumed()
        else:
            await consumer.commit(
                {
                    call.service.topics.partition(row.topic, row.partition): CommittedOffset(
                        row.offset + 1, metadata=row.metadata or ""
                    )
                    for row in body.offsets
                }
            )
    return call.json([])


@CONSUMERS.get(
    f"{INSTANCE}/offsets",
    Answer(200, "The committed offsets.", OffsetsAnswer),
    query=(_TOPIC, _PARTITION),
    body=optional(PartitionsBody, lax=True),
    errors=(40401, 40402, 40403, 50302),
    examples=(
        _example(body=_ORDERS, answer={"offsets": []}),
        _example("by query", query={"topic": "orders"}, answer={"offsets": []}),
    ),
)
async def get_committed(call: RequestContext, body: PartitionsBody | None) -> web.Response:
    """The committed offsets of the group.

    For the partitions in the body, or in the query, or that the instance reads. The offsets are the next to read;
    partitions without a commit are left out.
    """
    topic, number = call.params.get(_TOPIC), call.params.get(_PARTITION)
    if number is not None and topic is None:
        raise ApiError(
            MALFORMED, "query parameter partition is given without topic: give both, or neither"
        )
    with call.consumer() as consumer:
        partitions: Iterable[TopicPartition] = consumer.member.partitions
        if body is not None:
            partitions = _existing(call, body.partitions)
        elif topic is not None:
            numbers = call.service.topics.info(topic).partitions if number is None else [number]
            partitions = [call.service.topics.partition(topic, number) for number in numbers]
        offsets = await consumer.committed(partitions)
    rows = [
        PartitionOffset(*partition, committed.offset, committed.metadata)
        for partition, committed in offsets.items()
    ]
    return call.json(OffsetsAnswer(rows))


@CONSUMERS.post(
    f"{INSTANCE}/positions",
    _DONE,
    body=required(PositionsBody, '{"offsets": [...]}', lax=True),
    errors=(40403, 40903, 41601),
    examples=(
        _example(body={"offsets": [{"topic": "orders", "partition": 0, "offset": 1}]}, status=204),
    ),
)
async def seek(call: RequestContext, body: PositionsBody) -> web.Response:
    """Continue at other offsets.

    `offsets` name the next record, `timestamps` the first record at or after a time.
    """
    with call.consumer() as consumer:
        await consumer.seek(
            {TopicPartition(row.topic, row.partition): row.offset for row in body.offsets},
            {TopicPartition(row.topic, row.partition): row.timestamp for row in body.timestamps},
        )
    return web.Response(status=204)


@CONSUMERS.post(
    f"{INSTANCE}/positions/beginning",
    _DONE,
    body=optional(PartitionsBody, lax=True),
    errors=(40403, 40903),
    examples=(_example(body=_ORDERS, status=204),),
)
async def seek_to_beginning(call: RequestContext, body: PartitionsBody | None) -> web.Response:
    """Continue at the beginning of partitions.

    An empty list means every partition that the instance reads.
    """
    return await _seek_to(call, body, Reset.EARLIEST)


@CONSUMERS.post(
    f"{INSTANCE}/positions/end",
    _DONE,
    body=optional(PartitionsBody, lax=True),
    errors=(40403, 40903),
    examples=(_example(body=_ORDERS, status=204),),
)
async def seek_to_end(call: RequestContext, body: PartitionsBody | None) -> web.Response:
    """Continue at the end of partitions.

    An empty list means every partition that the instance reads.
    """
    return await _seek_to(call, body, Reset.LATEST)


async def _seek_to(call: RequestContext, body: PartitionsBody | None, end: Reset) -> web.Response:
    names = () if body is None else body.partitions
    with call.consumer() as consumer:
        await consumer.seek_to(end, [TopicPartition(name.topic, name.partition) for name in names])
    return web.Response(status=204)


def _agreed_type(call: RequestContext, kind: str) -> str:
    """Return the best media type of the instance's format. Raises 40601."""
    try:
        return negotiate(call.request.headers.get("Accept"), OFFERS[kind])
    except ApiError as refused:
        raise ApiError(
            CONSUMER_FORMAT, f"the instance's format is {kind}: {refused.message}"
        ) from None


def _existing(call: RequestContext, names: Iterable[PartitionName]) -> list[TopicPartition]:
    return [call.service.topics.partition(name.topic, name.partition) for name in names]


async def _rendered(
    store: LogStore, batch: GroupRead, kind: Format, retry_topic: str | None
) -> bytes:
    records = batch.records
    record_id = store.record_id if store.capabilities.messages else None
    render = partial(encode_rows, records, kind, record_id, retry_topic)
    return await run_encoder([record for _, record in records], render)
