"""Clusters and topics in the v3 API, as far as this server has them.

Owns the set of these calls and their conversion to service calls; must not define shapes (`api.v3.resources`). There
is one cluster, and one replica of each partition.
"""

from __future__ import annotations

from aiohttp import web

from api.handlers.topics import warn_of_configs
from api.http.errors import NOT_OFFERED, PAYLOAD, ApiError
from api.request_context import RequestContext
from api.v3.resources import CreateTopicRequest, Resources
from logserver.cluster import cluster_id
from storage.errors import InvalidConfig, TopicExists


async def list_clusters(call: RequestContext) -> web.Response:
    """Handle GET /v3/clusters."""
    call.params()
    return call.json(_resources(call, cluster_id(call.service.store)).clusters())


async def get_cluster(call: RequestContext) -> web.Response:
    """Handle GET /v3/clusters/{cluster_id}."""
    call.params()
    return call.json(_resources(call, call.cluster_id).cluster())


async def list_topics(call: RequestContext) -> web.Response:
    """Handle GET /v3/clusters/{cluster_id}/topics."""
    call.params()
    resources = _resources(call, call.cluster_id)
    infos = [call.service.topic(name) for name in call.service.topics()]
    return call.json(resources.topics(infos))


async def create_topic(call: RequestContext) -> web.Response:
    """Handle POST /v3/clusters/{cluster_id}/topics: 201; an existing topic is 409, in any shape."""
    call.params()
    resources = _resources(call, call.cluster_id)
    asked = await call.json_body(CreateTopicRequest)
    if asked is None:
        raise ApiError(PAYLOAD, 'the body is empty: send {"topic_name": ...}')
    _check(asked)
    configs = {entry.name: entry.value for entry in asked.configs if entry.value is not None}
    info, created = await call.service.create_topic(
        asked.topic_name, asked.partitions_count, configs
    )
    if not created:
        raise TopicExists(f"topic {info.name!r} is there already", topic=info.name)
    response = call.json(resources.topic(info), status=201)
    warn_of_configs(call, response, configs)
    return response


async def get_topic(call: RequestContext) -> web.Response:
    """Handle GET /v3/clusters/{cluster_id}/topics/{topic}."""
    call.params()
    resources = _resources(call, call.cluster_id)
    return call.json(resources.topic(call.service.topic(call.topic)))


async def delete_topic(call: RequestContext) -> web.Response:
    """Handle DELETE /v3/clusters/{cluster_id}/topics/{topic}."""
    call.params()
    _resources(call, call.cluster_id)
    await call.service.delete_topic(call.topic)
    return web.Response(status=204)


async def list_partitions(call: RequestContext) -> web.Response:
    """Handle GET /v3/clusters/{cluster_id}/topics/{topic}/partitions."""
    call.params()
    resources = _resources(call, call.cluster_id)
    return call.json(resources.partitions(call.service.topic(call.topic)))


async def get_partition(call: RequestContext) -> web.Response:
    """Handle GET /v3/clusters/{cluster_id}/topics/{topic}/partitions/{partition}."""
    call.params()
    resources = _resources(call, call.cluster_id)
    return call.json(resources.partition(*call.partition))


async def list_configs(call: RequestContext) -> web.Response:
    """Handle GET /v3/clusters/{cluster_id}/topics/{topic}/configs."""
    call.params()
    resources = _resources(call, call.cluster_id)
    return call.json(resources.configs(call.service.topic(call.topic)))


async def get_config(call: RequestContext) -> web.Response:
    """Handle GET /v3/clusters/{cluster_id}/topics/{topic}/configs/{name}."""
    call.params()
    resources = _resources(call, call.cluster_id)
    info, name = call.service.topic(call.topic), call.config_name
    if name not in info.configs:
        raise ApiError(404, f"config {name[:80]!r} is not set for topic {info.name!r}")
    return call.json(resources.config(info.name, name, info.configs[name]))


def _resources(call: RequestContext, cluster_id: str) -> Resources:
    return Resources(call.base_url, cluster_id)


def _check(asked: CreateTopicRequest) -> None:
    """Reject a request for a feature that this server does not have."""
    if asked.replication_factor not in {None, 1}:
        raise InvalidConfig(
            f"replication_factor is {asked.replication_factor}: this server keeps 1 replica",
            name="replication_factor",
            value=asked.replication_factor,
        )
    for name in ("replicas_assignments", "validate_only"):
        if getattr(asked, name):
            raise ApiError(NOT_OFFERED, f"{name} is not offered")
