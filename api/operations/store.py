"""The store: its description, and its files in pages.

Owns the shapes of these answers and the link to the next page; must not know the files: the storage engine lists them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Final

from aiohttp import web
from msgspec import Struct

from api.http.errors import JSON
from api.http.parameters import Integer, Parameter
from api.operation import Answer, Example, Resource, required
from api.operations.parameters import CURSOR, ConfigValue, config_text
from api.request_context import RequestContext
from logserver.access.tokens import Scope
from logserver.service.upkeep import ServiceStatus
from storage import Capabilities, RecoveryReport, StoredFile, StoreStats, TopicPartition, list_files

STORE: Final = Resource("Operation")

MAX_PAGE_FILES: Final = 1000
_LIMIT: Final = Parameter("limit", Integer(1, MAX_PAGE_FILES), "At most this many files.", "100")


class StoreAnswer(Struct):
    """Description of the store, findings of its recovery, its sizes, and its periodic work."""

    backend: str
    data: str
    read_only: bool
    flush: str
    capabilities: Capabilities
    recovery: RecoveryReport
    stats: StoreStats
    services: Sequence[ServiceStatus]
    retention: Mapping[str, str | None]


class ChangedStore(Struct, forbid_unknown_fields=True):
    """The body of PATCH /store; null: not set."""

    retention: dict[str, ConfigValue | None]


class FilesAnswer(Struct):
    """One page of files. `next` is the path of the next page, null on the last page."""

    files: Sequence[StoredFile]
    next: str | None


_LOG: Final = {
    "path": "orders-0/00000000000000000000.log",
    "kind": "log",
    "topic": "orders",
    "partition": 0,
    "base_offset": 0,
    "physical_offset": None,
    "size_bytes": 161,
    "last_modified_ms": 1760000000123,
}
_COMMIT_LOG: Final = {
    "path": "commitlog/00000000000000000000",
    "kind": "commitlog",
    "topic": None,
    "partition": None,
    "base_offset": None,
    "physical_offset": 0,
    "size_bytes": 1073741824,
    "last_modified_ms": 1760000000123,
}
_ABOUT: Final = (
    "The files on the disk now, in order of their paths; only regular files are listed. `kind` follows from the name; "
    "`base_offset` is the first offset of a segment, or of a file of a queue, `physical_offset` the first of a file of "
    "RocketMQ's commit log. `size_bytes` is the length, of which less may be used. While `next` is not null, follow it."
)


@STORE.get("/store", Answer(200, "The store.", StoreAnswer), examples=(Example(),))
async def store(call: RequestContext) -> web.Response:
    """Description of the store.

    Backend, capabilities, findings of the last recovery, sizes, and periodic work: `services`, none on a read-only
    store. A service that fails has an `error`; `lag_ms` is for how long its work has been due. `retention` has the
    settings that PATCH changes.
    """
    return call.json(await _described(call))


@STORE.patch(
    "/store",
    Answer(200, "The store after the change.", StoreAnswer),
    body=required(ChangedStore, '{"retention": {...}}'),
    scope=Scope.ADMIN,
    errors=(42205, 42207),
    examples=(
        Example(
            media_type=JSON,
            body={"retention": {"log.retention.ms": 604800000}},
            backends=("kafka",),
        ),
        Example(
            "of RocketMQ",
            media_type=JSON,
            body={"retention": {"fileReservedTime": 72, "deleteWhen": "04"}},
            backends=("rocketmq",),
        ),
    ),
)
async def change_store(call: RequestContext, body: ChangedStore) -> web.Response:
    """Change what the store deletes.

    `retention` names settings of the real server; `null` turns one off, others stay unchanged. They hold from the next
    pass of retention until the server stops.
    """
    changes = {
        name: None if value is None else config_text(value)
        for name, value in body.retention.items()
    }
    await call.service.change_retention(changes)
    return call.json(await _described(call))


async def _described(call: RequestContext) -> StoreAnswer:
    opened = call.service.store
    return StoreAnswer(
        backend=opened.capabilities.backend,
        data=str(call.settings.data),
        read_only=opened.read_only,
        flush=call.settings.flush,
        capabilities=opened.capabilities,
        recovery=opened.recovery,
        stats=await call.service.stats(),
        services=call.service.services(),
        retention=call.service.retention_settings(),
    )


@STORE.get(
    "/store/files",
    Answer(200, "One page of files.", FilesAnswer),
    about=_ABOUT,
    query=(_LIMIT, CURSOR),
    errors=(42207,),
    examples=(
        Example(
            query={"limit": "1", "cursor": "commitlog"},
            answer={"files": [_COMMIT_LOG], "next": "/store/files?limit=1&cursor=commitlog/0"},
            backends=("rocketmq",),
        ),
        Example(
            "no more files",
            query={"cursor": "~"},
            answer={"files": [], "next": None},
            backends=("kafka",),
        ),
    ),
)
async def store_files(call: RequestContext) -> web.Response:
    """The files of the store."""
    return await _page(call, None)


@STORE.get(
    "/store/topics/{topic}/partitions/{partition}/files",
    Answer(200, "One page of files.", FilesAnswer),
    about=f"{_ABOUT} In a RocketMQ store these are the files of the queue: its records are stored in the common "
    "commit log.",
    query=(_LIMIT, CURSOR),
    errors=(40401, 40402, 42207, 50302),
    examples=(
        Example(
            query={"limit": "1", "cursor": "orders-0/00000000000000000000.index"},
            answer={"files": [_LOG]},
            backends=("kafka",),
        ),
        Example("queue", backends=("rocketmq",)),
    ),
)
async def partition_files(call: RequestContext) -> web.Response:
    """The files of a partition."""
    return await _page(call, call.partition)


async def _page(call: RequestContext, partition: TopicPartition | None) -> web.Response:
    limit = call.params[_LIMIT]
    backend = call.service.store.capabilities.backend
    after = call.params.get(CURSOR) or ""
    stored = list_files(backend, call.settings.data, partition, after=after)
    files = await asyncio.to_thread(list, islice(stored, limit + 1))
    page = files[:limit]
    next_page = call.link(page[-1].path) if len(files) > limit else None
    return call.json(FilesAnswer(page, next_page))
