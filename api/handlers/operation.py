"""Operation: alive, ready, metrics, and what the store is.

Owns the shapes of these answers. /livez and /readyz answer whatever the store's state.
"""

from __future__ import annotations

import dataclasses

from aiohttp import web

from api.call import Call
from api.errors import ApiError
from logserver.metrics import CONTENT_TYPE
from logserver.service import Health

NOT_READY = 50301


async def livez(call: Call) -> web.Response:
    """GET /livez: the process answers."""
    call.params()
    return call.json({"state": "alive"})


async def readyz(call: Call) -> web.Response:
    """GET /readyz: 200 when requests should come here, else 503 with the reason and the progress of
    a recovery.
    """
    call.params()
    health = await call.service.health()
    if not health.ready:
        raise ApiError(
            NOT_READY,
            _reason(health),
            headers={"Retry-After": "1"},
            facts=_described(health),
        )
    return call.json(_described(health))


async def metrics(call: Call) -> web.Response:
    """GET /metrics"""
    call.params()
    text = await call.service.render_metrics()
    return web.Response(body=text, headers={"Content-Type": CONTENT_TYPE})


async def store(call: Call) -> web.Response:
    """GET /store: backend, capabilities, what recovery found, sizes."""
    call.params()
    opened = call.service.store
    return call.json(
        {
            "backend": opened.capabilities.backend,
            "data": str(call.settings.data),
            "read_only": opened.read_only,
            "flush": call.settings.flush,
            "capabilities": dataclasses.asdict(opened.capabilities),
            "recovery": dataclasses.asdict(opened.recovery),
            "stats": await call.service.stats(),
        }
    )


def _reason(health: Health) -> str:
    if health.fenced is not None:
        return f"the store takes no writes until a restart: {health.fenced}"
    if health.disk_full:
        return "the disk is full"
    if health.progress is not None:
        what, done, total = health.progress
        return f"the server is recovering: {what}, {done} of {total}"
    return f"the server is {health.state}"


def _described(health: Health) -> dict[str, object]:
    described: dict[str, object] = {
        "state": health.state,
        "read_only": health.read_only,
        "disk_full": health.disk_full,
        "fenced": health.fenced,
    }
    if health.progress is not None:
        what, done, total = health.progress
        described["progress"] = {"what": what, "done": done, "total": total}
    return described
