"""The files of the store, in pages.

Owns the answer's shape and the link to the next page; must not know the files: the storage engine lists them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from itertools import islice

from aiohttp import web
from msgspec import Struct

from api.description.parameters import CURSOR, FILES_LIMIT
from api.http.parameters import Params
from api.request_context import RequestContext
from storage import StoredFile, TopicPartition, list_files


class FilesAnswer(Struct):
    """One page of files. `next` is the path of the next page, null on the last page."""

    files: Sequence[StoredFile]
    next: str | None


async def store_files(call: RequestContext) -> web.Response:
    """Handle GET /store/files: every file of the store."""
    return await _page(call, call.params(), None)


async def partition_files(call: RequestContext) -> web.Response:
    """Handle GET /store/topics/{topic}/partitions/{partition}/files: the files of one partition."""
    return await _page(call, call.params(), call.partition)


async def _page(
    call: RequestContext, params: Params, partition: TopicPartition | None
) -> web.Response:
    limit = params[FILES_LIMIT]
    backend = call.service.store.capabilities.backend
    found = list_files(backend, call.settings.data, partition, after=params.get(CURSOR) or "")
    files = await asyncio.to_thread(list, islice(found, limit + 1))
    more = len(files) > limit
    page = files[:limit]
    return call.json(FilesAnswer(page, call.link(params, page[-1].path) if more else None))
