"""Health: liveness, readiness and metrics.

Owns the shapes of these answers; must not change anything. All of them answer in every state of the store.
"""

from __future__ import annotations

from typing import Final

from aiohttp import web
from msgspec import UNSET, Struct, UnsetType, to_builtins

from api.http.errors import NOT_READY, ApiError
from api.operation import TEXT, Answer, Example, Resource
from api.request_context import RequestContext
from logserver.metrics import CONTENT_TYPE
from logserver.service.service import Health

HEALTH: Final = Resource("Operation")


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


@HEALTH.get(
    "/livez",
    Answer(200, "It runs.", Alive),
    scope=None,
    examples=(Example(answer={"state": "alive"}),),
    needs_store=False,
)
async def live(call: RequestContext) -> web.Response:
    """Report that the process runs."""
    return call.json(Alive("alive"))


_READY: Final = Answer(200, "It accepts requests.", Ready)
_HEALTHY: Final = Answer(200, "It accepts requests, or will as soon as its store is open.", Ready)
_EXAMPLE: Final = Example(
    answer={"state": "ready", "read_only": False, "disk_full": False, "fenced": None}
)


@HEALTH.get("/readyz", _READY, scope=None, examples=(_EXAMPLE,))
async def ready(call: RequestContext) -> web.Response:
    """Report whether the server accepts requests.

    503 while the store is being opened, with the progress of a recovery; on a full disk; after a failed write.
    """
    health = await call.service.health()
    return _answer(call, health, is_good=health.ready)


@HEALTH.get("/ready", _READY, scope=None, examples=(_EXAMPLE,))
async def ready_by_another_name(call: RequestContext) -> web.Response:
    """The same as /readyz."""
    return await ready(call)


@HEALTH.get("/health", _HEALTHY, scope=None, examples=(_EXAMPLE,))
async def health(call: RequestContext) -> web.Response:
    """Report whether the server needs help.

    503 on a full disk, after a failed write, or if the store could not be opened: an operator has to act. 200 with the
    state, and with the progress of a recovery, while the server starts or stops: waiting is enough.
    """
    found = await call.service.health()
    return _answer(call, found, is_good=not found.needs_help)


@HEALTH.get("/healthz", _HEALTHY, scope=None, examples=(_EXAMPLE,))
async def health_by_another_name(call: RequestContext) -> web.Response:
    """The same as /health."""
    return await health(call)


@HEALTH.get(
    "/metrics",
    Answer(200, "The text format.", {CONTENT_TYPE.partition(";")[0]: TEXT}),
    examples=(Example(),),
    needs_store=False,
)
async def metrics(call: RequestContext) -> web.Response:
    """Metrics for Prometheus."""
    text = await call.service.render_metrics()
    return web.Response(body=text, headers={"Content-Type": CONTENT_TYPE})


def _answer(call: RequestContext, health: Health, *, is_good: bool) -> web.Response:
    progress = UNSET if health.progress is None else RecoveryProgress(*health.progress)
    state = Ready(health.state, health.read_only, health.disk_full, health.fenced, progress)
    if not is_good:
        headers = {"Retry-After": "1"}
        raise ApiError(NOT_READY, _reason(health), headers=headers, facts=to_builtins(state))
    return call.json(state)


def _reason(health: Health) -> str:
    if health.fenced is not None:
        return f"the store takes no writes until a restart: {health.fenced}"
    if health.disk_full:
        return "the disk is full"
    if health.progress is not None:
        what, done, total = health.progress
        return f"the server is recovering: {what}, {done} of {total}"
    return f"the server is {health.state}"
