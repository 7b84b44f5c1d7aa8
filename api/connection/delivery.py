"""Delivery of an answer, and the decision whether it was delivered.

Owns the one rule: an answer that was passed to the kernel as a whole is delivered, whatever the client does next. A
client that shut down its sending side before may have closed both sides, and the kernel accepts bytes for it
nevertheless. In this case the acknowledgement of the client's kernel decides. Must not know the content of an answer.
"""

from __future__ import annotations

import asyncio
from typing import Final, cast

from aiohttp import web

from api.connection.kernel import CLOSED, ESTABLISHED, state, untaken_bytes
from api.connection.protocol import ApiProtocol

_FIRST_LOOK_S: Final = 0.001
_LAST_LOOK_S: Final = 0.05


async def deliver(request: web.BaseRequest, response: web.Response, *, pause_s: float) -> None:
    """Send the answer; on return all of it has been passed to the kernel.

    Raises ConnectionError if the client disconnected before, or reads nothing for `pause_s`. From here on a
    disconnect does not cancel the request.
    """
    connection = cast("ApiProtocol", request.protocol)
    connection.hold_on()
    sending = asyncio.ensure_future(_send(connection, request, response))
    try:
        await _watch(sending, connection, pause_s)
    finally:
        sending.cancel()
        response.body = None  # aiohttp keeps the answer until the next one of the connection


async def deliver_once(request: web.BaseRequest, response: web.Response, *, pause_s: float) -> None:
    """Send an answer that the client must not miss. Like `deliver`, but also raises ConnectionError if the client had
    closed both sides before.

    A half-close looks the same, but then the client acknowledges the answer.
    """
    transport = request.transport
    may_be_gone = transport is None or state(transport) != ESTABLISHED
    await deliver(request, response, pause_s=pause_s)
    if may_be_gone:
        await _until_acknowledged(request, pause_s)


async def _send(connection: ApiProtocol, request: web.BaseRequest, response: web.Response) -> None:
    transport = connection.transport
    connection.pause_until_written()
    drained = connection.drained
    writer = await response.prepare(request)
    if writer is not None:
        writer.send_headers()  # separately: aiohttp would copy head and body together
    await response.write_eof()
    # If the kernel did not accept all bytes at once, the write waited. A lost connection ends that wait too, but then
    # writing is still paused. Bytes that were accepted at once needed no wait, unless the write itself failed.
    waited = connection.drained > drained
    transport_failed = transport is None or transport.is_closing()
    if connection.writing_paused or (transport_failed and not waited):
        raise ConnectionError("the client has gone")
    if transport is not None and not transport_failed:
        transport.set_write_buffer_limits()


async def _watch(sending: asyncio.Future[None], connection: ApiProtocol, pause_s: float) -> None:
    """Wait until the answer is sent. A slow client gets the time that it needs; a client that reads nothing is
    disconnected.
    """
    waiting_bytes = -1
    while not (await asyncio.wait((sending,), timeout=pause_s))[0]:
        transport = connection.transport
        if transport is None:
            break
        waited, waiting_bytes = waiting_bytes, untaken_bytes(transport)
        if waiting_bytes == waited:
            transport.abort()
            raise ConnectionError("the client does not take its answer")
    await sending


async def _until_acknowledged(request: web.BaseRequest, pause_s: float) -> None:
    """Wait until the client's kernel has acknowledged all bytes. A closed socket answers with a reset instead."""
    loop = asyncio.get_running_loop()
    deadline_s = loop.time() + pause_s
    look_s = _FIRST_LOOK_S
    while True:
        transport = request.transport
        if transport is None or transport.is_closing() or state(transport) == CLOSED:
            raise ConnectionError("the client had closed the connection")
        if untaken_bytes(transport) == 0:
            return
        if loop.time() > deadline_s:
            raise ConnectionError("the client does not take its answer")
        await asyncio.sleep(look_s)
        look_s = min(2 * look_s, _LAST_LOOK_S)
