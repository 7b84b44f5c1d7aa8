"""Operation: liveness, readiness, metrics, and a description of the store.

Owns the shapes of these answers; must not change anything. /livez and /readyz answer in every state of the store.
"""

from __future__ import annotations

from aiohttp import web
from msgspec import UNSET, Struct, UnsetType, to_builtins

from api.http.errors import ApiError
from api.request_context import RequestContext
from logserver.metrics import CONTENT_TYPE
from logserver.service.health import Health
from storage import Capabilities, RecoveryReport, StoreStats

NOT_READY = 50301


class Alive(Struct):
    """The process answers."""

    state: str


class RecoveryProgress(Struct):
    """The progress of a recovery."""

    what: str
    done: int
    total: int


class Ready(Struct):
    """The state of the server. `state`: starting, recovering, ready, stopping or failed."""

    state: str
    read_only: bool
    disk_full: bool
    fenced: str | None
    progress: RecoveryProgress | UnsetType = UNSET


class StoreAnswer(Struct):
    """Description of the store, findings of its recovery, and its sizes."""

    backend: str
    data: str
    read_only: bool
    flush: str
    capabilities: Capabilities
    recovery: RecoveryReport
    stats: StoreStats


async def livez(call: RequestContext) -> web.Response:
    """Handle GET /livez: the process answers."""
    call.params()
    return call.json(Alive("alive"))


async def readyz(call: RequestContext) -> web.Response:
    """Handle GET /readyz: 200 if the server accepts requests, else 503 with the reason and the progress of a
    recovery.
    """
    call.params()
    health = await call.service.health()
    if not health.ready:
        raise ApiError(
            NOT_READY,
            _reason(health),
            headers={"Retry-After": "1"},
            facts=to_builtins(_described(health)),
        )
    return call.json(_described(health))


async def metrics(call: RequestContext) -> web.Response:
    """Handle GET /metrics."""
    call.params()
    text = await call.service.render_metrics()
    return web.Response(body=text, headers={"Content-Type": CONTENT_TYPE})


async def store(call: RequestContext) -> web.Response:
    """Handle GET /store: backend, capabilities, findings of recovery, sizes."""
    call.params()
    opened = call.service.store
    return call.json(
        StoreAnswer(
            backend=opened.capabilities.backend,
            data=str(call.settings.data),
            read_only=opened.read_only,
            flush=call.settings.flush,
            capabilities=opened.capabilities,
            recovery=opened.recovery,
            stats=await call.service.stats(),
        )
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


def _described(health: Health) -> Ready:
    progress = UNSET if health.progress is None else RecoveryProgress(*health.progress)
    return Ready(health.state, health.read_only, health.disk_full, health.fenced, progress)
