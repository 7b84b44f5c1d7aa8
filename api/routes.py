"""The route table and nothing else: which handler answers which method and path.

A path is matched by its segments, each percent-decoded by itself, so that an encoded slash stays
within its segment; one trailing slash is accepted. `{name}` stands for one segment.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, TypeAlias
from urllib.parse import unquote

from aiohttp import web

from api.call import Call
from api.errors import ApiError
from api.handlers import fetch, messages, operation, produce, topics
from api.negotiation import FETCH_TYPES, PLAIN_TYPES

Handler: TypeAlias = Callable[[Call], Awaitable[web.StreamResponse]]


@dataclass(frozen=True, slots=True)
class Route:
    """One row. `offers`: the media types its answer can have; empty: the handler's own business."""

    method: str
    pattern: str
    handler: Handler
    offers: Sequence[str] = PLAIN_TYPES


PARTITION: Final = "/topics/{topic}/partitions/{partition}"

ROUTES: Final[Sequence[Route]] = (
    Route("GET", "/topics", topics.list_topics),
    Route("GET", "/topics/{topic}", topics.get_topic),
    Route("PUT", "/topics/{topic}", topics.put_topic),
    Route("PATCH", "/topics/{topic}", topics.patch_topic),
    Route("DELETE", "/topics/{topic}", topics.delete_topic),
    Route("POST", "/topics/{topic}", produce.produce),
    Route("GET", "/topics/{topic}/partitions", topics.list_partitions),
    Route("GET", PARTITION, topics.get_partition),
    Route("POST", PARTITION, produce.produce),
    Route("GET", f"{PARTITION}/offsets", topics.get_offsets),
    Route("GET", f"{PARTITION}/records", fetch.fetch, FETCH_TYPES),
    Route("GET", "/topics/{topic}/messages", messages.find),
    Route("GET", "/messages/{message_id}", messages.get_message),
    Route("POST", "/producers", produce.new_producer),
    Route("GET", "/livez", operation.livez),
    Route("GET", "/readyz", operation.readyz),
    Route("GET", "/metrics", operation.metrics, ()),
    Route("GET", "/store", operation.store),
)

CACHED_PATHS: Final = 1024


class Router:
    """The table, ready to be searched."""

    def __init__(self, routes: Sequence[Route] = ROUTES) -> None:
        self.find = lru_cache(maxsize=CACHED_PATHS)(self._find)
        self._by_length: dict[int, list[tuple[Sequence[str], Route]]] = {}
        for route in routes:
            pattern = route.pattern[1:].split("/")
            self._by_length.setdefault(len(pattern), []).append((pattern, route))

    def _find(self, method: str, raw_path: str) -> tuple[Route, Mapping[str, str]]:
        """The route and its path parameters. Raises 404, or 405 with Allow. `find` remembers the
        last paths.
        """
        segments = raw_path[1:].removesuffix("/").split("/")
        wanted = "GET" if method == "HEAD" else method
        allowed = []
        for pattern, route in self._by_length.get(len(segments), ()):
            if _matches(pattern, segments):
                if route.method == wanted:
                    return route, _parameters(pattern, segments)
                allowed.append(route.method)
        if not allowed:
            raise ApiError(404, f"there is nothing at {raw_path[:200]!r}")
        raise ApiError(
            405,
            f"{method[:20]} is not possible here: use {', '.join(allowed)}",
            headers={"Allow": ", ".join(allowed)},
        )


def _matches(pattern: Sequence[str], segments: Sequence[str]) -> bool:
    return all(
        want == got or (got != "" and want.startswith("{"))
        for want, got in zip(pattern, segments, strict=True)
    )


def _parameters(pattern: Sequence[str], segments: Sequence[str]) -> Mapping[str, str]:
    try:
        return {
            want[1:-1]: unquote(got, errors="strict")
            for want, got in zip(pattern, segments, strict=True)
            if want.startswith("{")
        }
    except UnicodeDecodeError:
        raise ApiError(400, "the path is not percent-encoded UTF-8") from None
