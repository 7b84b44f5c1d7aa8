"""Produce requests that stream records in and reports out: the common part of lines and concatenated objects.

Owns the path of one stream: pieces of the body to records, records in groups to the service, reports in order to the
client. Must not know the encoding of a record or a report: a `Dialect` does.

    body -> pieces -> splitter -> records -> group -> append -> reports -> connection

A group is the set of records that arrived while the group before was stored. So a single record is stored and
answered at once, and many records share an append. Memory is bounded. A stream holds one piece, one group, the
beginning of one record, and reports that the client has not read (UNREAD_BYTES in addition to the sockets' own
buffers). While these are full, no more of the body is read. If the client reads nothing for as long as a body may
pause, it is disconnected. So a client that sends first and reads later may send that much, and does not wait without
an end.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import aclosing, suppress
from typing import Final, Generic, Protocol, TypeVar, cast

from aiohttp import web
from aiohttp.http import StreamWriter

from api.connection.body import BodyStream, meet_expectation
from api.http.errors import BODY_TOO_LARGE, ApiError, as_api_error
from api.records.decode import Produced
from api.records.produce_options import request_of
from api.records.splitter import Item, Splitter
from api.request_context import RequestContext
from logserver.service.memory_budget import Reservation
from logserver.service.requests import Acks, AppendOutcome, ProduceOptions
from storage import StorageError

D = TypeVar("D", bound=Produced)

GROUP_RECORDS: Final = 1000
GROUP_BYTES: Final = 1 << 20
UNREAD_BYTES: Final = 4 << 20
LINES_AT_ONCE: Final = 2 * GROUP_RECORDS
# With fewer bytes the connection counts as flushed: aiohttp waits for the rest by itself.
_FLUSHED_BYTES: Final = 64 << 10


class Dialect(Protocol[D]):
    """The encoding of records and reports in a stream."""

    def splitter(self) -> Splitter:
        """Return a splitter that finds the records of one stream."""
        ...

    def decode(self, items: Sequence[Item]) -> D:
        """Decode the records of a group; an invalid record becomes a failure."""
        ...

    def reports(self, decoded: D, runs: Sequence[AppendOutcome]) -> bytes:
        """Return a report per record, in order. A valid record without a run was not waited for."""
        ...

    def last_word(self, error: ApiError) -> bytes:
        """Return the report of the error that ends the stream early: no record after the last report was stored."""
        ...


class ProduceStream(Generic[D]):
    """One request that streams both ways."""

    def __init__(self, call: RequestContext, dialect: Dialect[D], options: ProduceOptions) -> None:
        self._call = call
        self._dialect = dialect
        self._options = options
        self._pause_s = call.settings.body_timeout_ms / 1000
        # A group must not be larger than the limit of bytes in flight.
        self._group_bytes = min(GROUP_BYTES, call.settings.max_body_bytes)
        self._pending: Reservation = call.service.budget.reserve(0)
        self._errors = 0

    async def run(self) -> web.StreamResponse:
        """Answer the request. The answer begins before the first record arrives. It ends with the body, with the
        connection, or with a last error.

        Raises errors of the whole request before the answer begins.
        """
        call = self._call
        request = call.request
        await call.service.producer.check_target(call.topic, call.partition_number)
        body = BodyStream(request, call.settings, call.service.stopping)
        await meet_expectation(request)
        response = await call.stream({}, status=202 if self._options.acks is Acks.NONE else 200)
        with suppress(ConnectionError):
            try:
                await self._take_all(body)
            except ApiError as error:
                await self._send(self._dialect.last_word(error))
            except StorageError as error:
                await self._send(self._dialect.last_word(as_api_error(error)))
            finally:
                self._pending.release()
            await self._until_read(_FLUSHED_BYTES)
            await response.write_eof()
        return response

    async def _take_all(self, body: BodyStream) -> None:
        splitter = self._dialect.splitter()
        async with aclosing(body.pieces()) as pieces:
            async for piece in pieces:
                for part in _parts(piece):
                    await self._take(splitter.feed(part))
                    if splitter.ended:
                        return
                await self._hold_pending(splitter.pending_bytes)
        await self._take(splitter.close())

    async def _hold_pending(self, size_bytes: int) -> None:
        """Count the beginning of a record that stays in memory until its end arrives."""
        if size_bytes or self._pending.size_bytes:
            self._pending.release()
            self._pending = await self._reserve(size_bytes)

    async def _take(self, items: Sequence[Item]) -> None:
        for group in _groups(items, self._group_bytes):
            decoded = self._dialect.decode(group).for_partition(self._call.partition_number)
            runs: Sequence[AppendOutcome] = ()
            try:
                runs = await self._store(decoded, _size_bytes(group))
                # With acks=0 a run is a rejected record, and nothing of the group is stored yet.
                if runs and self._options.acks is Acks.NONE:
                    decoded = decoded.refusing(_errors(decoded, runs))
                    runs = await self._store(decoded, _size_bytes(group))
            except StorageError as error:
                refused = dict.fromkeys(decoded.positions, as_api_error(error))
                decoded = decoded.refusing(refused)
            await self._send(self._dialect.reports(decoded, runs))
            self._count_errors(len(decoded.failed) + len(_errors(decoded, runs)))
        await asyncio.sleep(0)  # blank or failing lines wait for nothing, so yield to other tasks

    def _count_errors(self, count: int) -> None:
        """Raise 413 if too many records of a stream failed: each is answered, with many times its own size."""
        self._errors += count
        limit = self._call.settings.max_stream_errors
        if self._errors > limit:
            raise ApiError(
                BODY_TOO_LARGE,
                f"more than {limit} records of the stream failed (max_stream_errors): it ends here",
            )

    async def _store(self, decoded: D, size_bytes: int) -> Sequence[AppendOutcome]:
        call = self._call
        if not decoded.records:
            return ()
        with await self._reserve(size_bytes) as reservation:
            request = request_of(
                call, decoded, self._options, reservation=reservation, size_bytes=size_bytes
            )
            producer = call.service.producer
            runs = await producer.produce(request)
            producer.far_ahead(call.topic, decoded.records, runs)
            return runs

    async def _reserve(self, size_bytes: int) -> Reservation:
        """Wait for room among the bytes in flight; meanwhile nothing is read from the client."""
        return await self._call.service.budget.reserve_when_free(
            size_bytes, timeout_s=self._pause_s
        )

    async def _send(self, reports: bytes) -> None:
        # The connection's own buffer keeps the reports that the client has not read yet.
        writer = cast("StreamWriter", self._call.request.writer)
        await writer.write(reports, drain=False)
        await self._until_read(UNREAD_BYTES)

    async def _until_read(self, limit_bytes: int) -> None:
        """Wait until at most `limit_bytes` are unread; disconnect a client that reads nothing."""
        request = self._call.request
        while (transport := request.transport) is not None:
            unread_bytes = transport.get_write_buffer_size()
            if unread_bytes <= limit_bytes:
                return
            try:
                async with asyncio.timeout(self._pause_s):
                    await request.writer.drain()
            except TimeoutError:
                if transport.get_write_buffer_size() >= unread_bytes:
                    transport.abort()
                    raise ConnectionAbortedError("the client does not read its answers") from None


def _parts(piece: bytes) -> Iterator[bytes]:
    """Yield the piece in parts with a limited number of lines, so that other tasks run in between."""
    lines = piece.count(b"\n")
    if lines <= LINES_AT_ONCE:
        yield piece
        return
    part_bytes = max(len(piece) * LINES_AT_ONCE // lines, 1)
    for begin in range(0, len(piece), part_bytes):
        yield piece[begin : begin + part_bytes]


def _groups(items: Sequence[Item], limit_bytes: int) -> Iterator[Sequence[Item]]:
    """Yield the records in order, in groups that are stored together; at least one record per group."""
    begin = size_bytes = 0
    for end, item in enumerate(items):
        item_bytes = len(item) if isinstance(item, bytes) else 0
        if end - begin == GROUP_RECORDS or (begin < end and size_bytes + item_bytes > limit_bytes):
            yield items[begin:end]
            begin, size_bytes = end, 0
        size_bytes += item_bytes
    if begin < len(items):
        yield items[begin:]


def _size_bytes(group: Sequence[Item]) -> int:
    return sum(len(item) for item in group if isinstance(item, bytes))


def _errors(decoded: Produced, runs: Sequence[AppendOutcome]) -> dict[int, ApiError]:
    """Return the errors of records, by their position in the group."""
    return {
        decoded.positions[index]: as_api_error(run.error)
        for run in runs
        if run.error is not None
        for index in run.positions
    }
