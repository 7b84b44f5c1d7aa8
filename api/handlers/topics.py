"""Topics: list, create, describe, alter, delete; partitions and their offsets.

Owns the shapes of these calls; must not judge names, configs and deletions: the store does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Final, TypeAlias

from aiohttp import web
from msgspec import Meta, Struct

from api.connection.response_headers import warn
from api.description.parameters import TIMESTAMP
from api.http.errors import PAYLOAD, ApiError
from api.request_context import RequestContext
from storage import TopicInfo

# One process serves every partition: it is the leader and the only replica of each.
BROKER_ID: Final = 1

ConfigValue: TypeAlias = str | int | float | bool


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


class BoundsAnswer(Struct):
    """The offsets of a partition; the end is the offset of the next record to be stored."""

    beginning_offset: int
    end_offset: int


class TimedAnswer(Struct):
    """The first record at or after a time; the end and null if there is none."""

    offset: int
    timestamp: int | None


async def list_topics(call: RequestContext) -> web.Response:
    """Handle GET /topics."""
    call.params()
    return call.json(call.service.topics())


async def get_topic(call: RequestContext) -> web.Response:
    """Handle GET /topics/{topic}."""
    call.params()
    return call.json(_described(call.service.topic(call.topic)))


async def put_topic(call: RequestContext) -> web.Response:
    """Handle PUT /topics/{topic}: 201 if created, 200 if it exists in this shape, 409 if it exists in another shape."""
    call.params()
    asked = await call.json_body(NewTopic) or NewTopic()
    configs = None
    if asked.configs is not None:
        configs = {name: _config_text(value) for name, value in asked.configs.items()}
    info, created = await call.service.create_topic(call.topic, asked.partitions, configs)
    response = call.json(_described(info), status=201 if created else 200)
    warn_of_configs(call, response, configs or {})
    return response


async def patch_topic(call: RequestContext) -> web.Response:
    """Handle PATCH /topics/{topic}."""
    call.params()
    asked = await call.json_body(ChangedTopic)
    if asked is None:
        raise ApiError(PAYLOAD, 'the body is empty: send {"configs": {...}}')
    configs = {
        name: None if value is None else _config_text(value)
        for name, value in asked.configs.items()
    }
    response = call.json(_described(await call.service.alter_topic(call.topic, configs)))
    warn_of_configs(call, response, configs)
    return response


async def delete_topic(call: RequestContext) -> web.Response:
    """Handle DELETE /topics/{topic}."""
    call.params()
    await call.service.delete_topic(call.topic)
    return web.Response(status=204)


async def list_partitions(call: RequestContext) -> web.Response:
    """Handle GET /topics/{topic}/partitions."""
    call.params()
    info = call.service.topic(call.topic)
    return call.json([_partition(number) for number in info.partitions])


async def get_partition(call: RequestContext) -> web.Response:
    """Handle GET /topics/{topic}/partitions/{partition}."""
    call.params()
    return call.json(_partition(call.partition.partition))


async def get_offsets(call: RequestContext) -> web.Response:
    """Handle GET /topics/{topic}/partitions/{partition}/offsets: the bounds, or the first record at or after a time."""
    timestamp_ms = call.params().get(TIMESTAMP)
    partition = call.partition
    if timestamp_ms is not None:
        found = await call.service.offset_for_time(partition, timestamp_ms)
        if found is not None:
            return call.json(TimedAnswer(found.offset, found.timestamp_ms))
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
