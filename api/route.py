"""One row of the route table. Owns its shape only."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from aiohttp import web

from api.description.doc import Doc

if TYPE_CHECKING:
    from api.request_context import RequestContext

Handler: TypeAlias = "Callable[[RequestContext], Awaitable[web.StreamResponse]]"


@dataclass(frozen=True, slots=True)
class Route:
    """One row of the route table. `doc` describes parameters, bodies and answers of the call: see `api.description`."""

    method: str
    pattern: str
    handler: Handler
    doc: Doc
