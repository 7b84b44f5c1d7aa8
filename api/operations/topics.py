"""Topics: list, create, describe, alter, delete; partitions, their offsets, and deletion of their first records.

Owns the shapes of these operations; must not judge names, configs and deletions: the store does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Final

from aiohttp import web
from msgspec import Meta, Struct

from api.connection.response_headers import WARNINGS, warn
from api.http.errors import JSON
from api.http.parameters import MAX_INT32, Integer, IntegerOrWord, Parameter
from api.operation import Answer, Example, OneOf, Resource, optional, required
from api.operations.parameters import ConfigValue, config_text
from api.request_context import RequestContext
from logserver.access.tokens import Scope
from storage import TimedOffset, TopicInfo

TOPICS: Final = Resource("Topics")

# One process serves every partition: it is the leader and the only replica of each.
BROKER_ID: Final = 1

_TIMESTAMP: Final = Parameter(
    "timestamp",
    IntegerOrWord("newest"),
    "Milliseconds since the epoch: the first record at or after this time. `newest`: the record with the largest time.",
)
_LEADER_EPOCH: Final = Parameter(
    "leader_epoch",
    Integer(0, MAX_INT32),
    "A leader epoch, for its end. Only Kafka's format has them.",
)
_BEFORE: Final = Parameter(
    "before",
    Integer(),
    "The records below this offset are deleted; at most the end offset.",
    required=True,
)


class NewTopic(Struct, forbid_unknown_fields=True):
    """The body of PUT /topics/{topic}."""

    partitions: Annotated[int, Meta(ge=1, le=10_000)] | None = None
    configs: dict[str, ConfigValue] | None = None


class ChangedTopic(Struct, forbid_unknown_fields=True):
    """The body of PATCH /topics/{topic}; null resets a config."""

    configs: dict[str, ConfigValue | None]


class MorePartitions(Struct, forbid_unknown_fields=True):
    """The body of POST /topics/{topic}/partitions: the number of partitions that the topic is to have."""

    partitions: Annotated[int, Meta(ge=1, le=10_000)]


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
    """The first record at or after a time, or of the largest time; the end and null if there is none."""

    offset: int
    timestamp: int | None


class EpochAnswer(Struct):
    """The newest leader epoch that is not above the requested one, and its end; null for an epoch above the newest."""

    leader_epoch: int | None
    end_offset: int | None


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
        configs = {name: config_text(value) for name, value in body.configs.items()}
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
        name: None if value is None else config_text(value) for name, value in body.configs.items()
    }
    response = call.json(_described(await call.service.topics.alter(call.topic, configs)))
    warn_of_configs(call, response, configs)
    return response


@TOPICS.delete(
    "/topics/{topic}",
    Answer(204, "The topic and its records are deleted."),
    scope=Scope.ADMIN,
    errors=(40401, 40903, 42203, 50701),
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


@TOPICS.post(
    "/topics/{topic}/partitions",
    Answer(200, "The topic with its partitions.", Topic),
    body=required(MorePartitions, '{"partitions": N}'),
    scope=Scope.ADMIN,
    errors=(40401, 42203, 50302, 50701),
    examples=(Example(media_type=JSON, body={"partitions": 1}, answer=_TOPIC),),
)
async def add_partitions(call: RequestContext, body: MorePartitions) -> web.Response:
    """Add partitions to a topic.

    `partitions` is the number that the topic is to have; its present number changes nothing, a smaller one is an error.
    The records stay where they are. Records with a key may go to other partitions from now on.
    """
    return call.json(
        _described(await call.service.topics.add_partitions(call.topic, body.partitions))
    )


@TOPICS.delete(
    "/topics/{topic}/partitions/{partition}/records",
    Answer(200, "The offsets that are left.", BoundsAnswer),
    query=(_BEFORE,),
    scope=Scope.ADMIN,
    errors=(40401, 40402, 41601, 42203, 42207, 50302, 50701),
    examples=(
        Example(
            query={"before": "0"},
            answer={"beginning_offset": 0, "end_offset": 2},
            backends=("kafka", "memory"),
        ),
    ),
)
async def delete_records(call: RequestContext) -> web.Response:
    """Delete the first records of a partition.

    The records below `before` are deleted; at or below the first offset nothing changes. It is durable at the answer.
    Files are removed as far as they have no other record. On RocketMQ's format one log has the records of all queues:
    42207.
    """
    bounds = await call.service.topics.delete_records(call.partition, call.params[_BEFORE])
    return call.json(BoundsAnswer(bounds.start, bounds.end))


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
    Answer(200, "The offsets.", OneOf((BoundsAnswer, TimedAnswer, EpochAnswer))),
    query=(_TIMESTAMP, _LEADER_EPOCH),
    errors=(40401, 40402, 42207, 50302, 50010),
    examples=(
        Example(answer={"beginning_offset": 0, "end_offset": 2}),
        Example(
            "of a time",
            query={"timestamp": "1760000000000"},
            answer={"offset": 0, "timestamp": 1760000000000},
        ),
        Example(
            "of the largest time",
            query={"timestamp": "newest"},
            answer={"offset": 1, "timestamp": 1760000000001},
        ),
        Example(
            "of a leader epoch",
            query={"leader_epoch": "0"},
            answer={"leader_epoch": 0, "end_offset": 2},
            backends=("kafka",),
        ),
    ),
)
async def get_offsets(call: RequestContext) -> web.Response:
    """First and next offset, the offset of a time, or the end of a leader epoch.

    The end is the offset of the next record to be stored. With `timestamp` the answer is the first record at or after
    that time, or with `newest` the first record of the largest time; the end and `null` if there is none. With
    `leader_epoch` it is the newest epoch that is not above that one, and the offset at which the next epoch begins.
    """
    timestamp_ms, epoch = call.params.values((_TIMESTAMP, _LEADER_EPOCH))
    partition = call.partition
    if epoch is not None:
        call.params.refuse((_TIMESTAMP,), "leader_epoch is given")
        end = await call.service.end_of_epoch(partition, epoch)
        return call.json(EpochAnswer(*end) if end is not None else EpochAnswer(None, None))
    if timestamp_ms is not None:
        record = await _at_time(call, timestamp_ms)
        if record is not None:
            return call.json(TimedAnswer(record.offset, record.timestamp_ms))
    bounds = await call.service.bounds(partition)
    if timestamp_ms is not None:
        return call.json(TimedAnswer(bounds.end, None))
    return call.json(BoundsAnswer(bounds.start, bounds.end))


async def _at_time(call: RequestContext, time: int | str) -> TimedOffset | None:
    if isinstance(time, str):
        return await call.service.newest_time(call.partition)
    return await call.service.offset_for_time(call.partition, time)


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
