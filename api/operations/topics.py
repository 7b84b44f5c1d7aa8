"""Topics: list, create, describe, alter, delete; partitions and their offsets.

Owns the shapes of these operations; must not judge names, configs and deletions: the store does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Final, TypeAlias

from aiohttp import web
from msgspec import Meta, Struct

from api.connection.response_headers import WARNINGS, warn
from api.http.errors import JSON
from api.http.parameters import Integer, Parameter
from api.operation import Answer, Example, OneOf, Resource, optional, required
from api.request_context import RequestContext
from logserver.tokens import Scope
from storage import TopicInfo

TOPICS: Final = Resource("Topics")

# One process serves every partition: it is the leader and the only replica of each.
BROKER_ID: Final = 1

ConfigValue: TypeAlias = str | int | float | bool

_TIMESTAMP: Final = Parameter(
    "timestamp", Integer(), "Milliseconds since the epoch: the first record at or after this time."
)


class NewTopic(Struct, forbid_unknown_fields=True):
    """The body of PUT /topics/{topic}."""

    partitions: Annotated[int, Meta(ge=1, le=10_000)] | None = None
    configs: dict[str, ConfigValue] | None = None


class ChangedTopic(Struct, forbid_unknown_fields=True):
    """The body of PATCH /topics/{topic}; null resets a config."""

    configs: dict[str, ConfigValue | None]


class Replica(Struct):
    """A copy of a partition, and the broker that stores it."""

    broker: int
    leader: bool
    in_sync: bool


class Partition(Struct):
    """A partition."""

    partition: int
    leader: int
    replicas: Sequence[Replica]


class Topic(Struct):
    """A topic; `configs` are those that were set."""

    name: str
    configs: Mapping[str, str]
    partitions: Sequence[Partition]


class Brokers(Struct):
    """The ids of the brokers."""

    brokers: Sequence[int]


class BoundsAnswer(Struct):
    """The offsets of a partition; the end is the offset of the next record to be stored."""

    beginning_offset: int
    end_offset: int


class TimedAnswer(Struct):
    """The first record at or after a time; the end and null if there is none."""

    offset: int
    timestamp: int | None


_PARTITION: Final = {
    "partition": 0,
    "leader": 1,
    "replicas": [{"broker": 1, "leader": True, "in_sync": True}],
}
_TOPIC: Final = {"name": "orders", "configs": {}, "partitions": [_PARTITION]}
CONFIG_WARNINGS: Final = {WARNINGS: "The configs that are stored and have no effect here."}


@TOPICS.get(
    "/brokers",
    Answer(200, "The id of the one broker: this server.", Brokers),
    examples=(Example(answer={"brokers": [1]}),),
)
async def list_brokers(call: RequestContext) -> web.Response:
    """The brokers.

    Each partition has this broker as its leader and its only replica.
    """
    call.service.topics.access.state.check_ready()
    return call.json(Brokers([BROKER_ID]))


@TOPICS.get(
    "/topics",
    Answer(200, "The names, in order.", list[str]),
    examples=(Example(answer=["orders"]),),
)
async def list_topics(call: RequestContext) -> web.Response:
    """All topics."""
    return call.json(sorted(call.service.topics))


@TOPICS.get(
    "/topics/{topic}",
    Answer(200, "The topic with the configs that were set.", Topic),
    errors=(40401,),
    examples=(Example(answer=_TOPIC),),
)
async def get_topic(call: RequestContext) -> web.Response:
    """One topic."""
    return call.json(_described(call.service.topics.info(call.topic)))


@TOPICS.put(
    "/topics/{topic}",
    Answer(201, "Created.", Topic, CONFIG_WARNINGS),
    Answer(200, "The topic exists already, in this shape.", Topic, CONFIG_WARNINGS),
    body=optional(NewTopic),
    scope=Scope.ADMIN,
    errors=(40901, 42203, 42205, 50302, 50701),
    examples=(
        Example(
            path={"topic": "invoices"},
            media_type=JSON,
            body={"partitions": 1},
            status=201,
            answer={**_TOPIC, "name": "invoices"},
        ),
        Example(
            "with a config",
            path={"topic": "clicks"},
            media_type=JSON,
            body={"partitions": 1, "configs": {"retention.ms": 60000}},
            status=201,
            answer={**_TOPIC, "name": "clicks", "configs": {"retention.ms": "60000"}},
            backends=("kafka",),
        ),
        Example("there already", media_type=JSON, body={}, answer=_TOPIC),
    ),
)
async def create_topic(call: RequestContext, body: NewTopic | None) -> web.Response:
    """Create a topic.

    A request for an existing topic of the same shape changes nothing. The config keys are the store's own, Kafka's or
    RocketMQ's; values may be numbers or booleans.
    """
    body = body or NewTopic()
    configs = None
    if body.configs is not None:
        configs = {name: _config_text(value) for name, value in body.configs.items()}
    info, created = await call.service.topics.create(call.topic, body.partitions, configs)
    response = call.json(_described(info), status=201 if created else 200)
    warn_of_configs(call, response, configs or {})
    return response


@TOPICS.patch(
    "/topics/{topic}",
    Answer(200, "The topic after the change.", Topic, CONFIG_WARNINGS),
    body=required(ChangedTopic, '{"configs": {...}}'),
    scope=Scope.ADMIN,
    errors=(40401, 42205, 50701),
    examples=(
        Example(
            media_type=JSON,
            body={"configs": {"retention.ms": "60000"}},
            answer={**_TOPIC, "configs": {"retention.ms": "60000"}},
            backends=("kafka",),
        ),
        Example(
            "of RocketMQ",
            media_type=JSON,
            body={"configs": {"order": True}},
            answer={**_TOPIC, "configs": {"order": "true"}},
            backends=("rocketmq",),
        ),
    ),
)
async def alter_topic(call: RequestContext, body: ChangedTopic) -> web.Response:
    """Change a topic's configs.

    `null` resets a config; other configs stay unchanged.
    """
    configs = {
        name: None if value is None else _config_text(value) for name, value in body.configs.items()
    }
    response = call.json(_described(await call.service.topics.alter(call.topic, configs)))
    warn_of_configs(call, response, configs)
    return response


@TOPICS.delete(
    "/topics/{topic}",
    Answer(204, "The topic and its records are deleted."),
    scope=Scope.ADMIN,
    errors=(40401, 42203, 50701),
    examples=(Example(status=204),),
)
async def delete_topic(call: RequestContext) -> web.Response:
    """Delete a topic with its records."""
    await call.service.topics.delete(call.topic)
    return web.Response(status=204)


@TOPICS.get(
    "/topics/{topic}/partitions",
    Answer(200, "The partitions, by number.", Sequence[Partition]),
    errors=(40401,),
    examples=(Example(answer=[_PARTITION]),),
)
async def list_partitions(call: RequestContext) -> web.Response:
    """A topic's partitions."""
    info = call.service.topics.info(call.topic)
    return call.json([_partition(number) for number in info.partitions])


@TOPICS.get(
    "/topics/{topic}/partitions/{partition}",
    Answer(200, "The partition.", Partition),
    errors=(40401, 40402, 50302),
    examples=(Example(answer=_PARTITION),),
)
async def get_partition(call: RequestContext) -> web.Response:
    """One partition."""
    return call.json(_partition(call.partition.partition))


@TOPICS.get(
    "/topics/{topic}/partitions/{partition}/offsets",
    Answer(200, "The offsets.", OneOf((BoundsAnswer, TimedAnswer))),
    query=(_TIMESTAMP,),
    errors=(40401, 40402, 50302, 50010),
    examples=(
        Example(answer={"beginning_offset": 0, "end_offset": 2}),
        Example(
            "of a time",
            query={"timestamp": "1760000000000"},
            answer={"offset": 0, "timestamp": 1760000000000},
        ),
    ),
)
async def get_offsets(call: RequestContext) -> web.Response:
    """First and next offset, or the offset of a time.

    The end is the offset of the next record to be stored. With `timestamp` the answer is the first record at or after
    that time; the end and `null` if there is none.
    """
    timestamp_ms = call.params.get(_TIMESTAMP)
    partition = call.partition
    if timestamp_ms is not None:
        record = await call.service.offset_for_time(partition, timestamp_ms)
        if record is not None:
            return call.json(TimedAnswer(record.offset, record.timestamp_ms))
    bounds = await call.service.bounds(partition)
    if timestamp_ms is not None:
        return call.json(TimedAnswer(bounds.end, None))
    return call.json(BoundsAnswer(bounds.start, bounds.end))


def warn_of_configs(
    call: RequestContext, response: web.Response, configs: Mapping[str, str | None]
) -> None:
    """Report the configs that are stored for the real server and have no effect here."""
    inert = call.service.store.capabilities.inert_configs
    names = [
        name
        for name, value in configs.items()
        if value is not None and name in inert and value != inert[name]
    ]
    warn(response, "topic configs are kept and have no effect here", names)


def _described(info: TopicInfo) -> Topic:
    partitions = [_partition(number) for number in info.partitions]
    return Topic(info.name, dict(info.configs), partitions)


def _partition(number: int) -> Partition:
    return Partition(number, BROKER_ID, [Replica(BROKER_ID, leader=True, in_sync=True)])


def _config_text(value: ConfigValue) -> str:
    """Convert a config value to text, as in the reference implementation."""
    return str(value).lower() if isinstance(value, bool) else str(value)
