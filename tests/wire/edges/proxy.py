"""A proxy between public clients and a real broker that records the bytes of requests and responses.

Owns the record: of each client, API and version the first requests of different sizes with their responses, one
line of JSON each. Must not change a byte. The broker has to advertise the address of the proxy. recording.py runs it
with the clients.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

MAX_BYTES: Final = 4096
"""Longer frames are not recorded."""
MAX_SIZES: Final = 4
"""Frames of a client, API and version: sizes differ where the content does, such as in a transaction."""
WRITE_TXN_MARKERS: Final = 27
"""The broker's request to itself, over the address that it advertises."""


class Proxy:
    """Passes the frames of connections on, and records them for the client that is named at the time."""

    def __init__(self, broker: str) -> None:
        self.client = ""
        self.found: dict[tuple[str, int, int], dict[tuple[int, int], tuple[bytes, bytes]]] = {}
        self._broker = broker

    def _add(self, client: str, request: bytes, response: bytes) -> None:
        api, version = int.from_bytes(request[:2], "big"), int.from_bytes(request[2:4], "big")
        if max(len(request), len(response)) <= MAX_BYTES:
            client = "broker" if api == WRITE_TXN_MARKERS else client
            frames = self.found.setdefault((client, api, version), {})
            if len(frames) < MAX_SIZES:
                frames.setdefault((len(request), len(response)), (request, response))

    def write(self, path: Path) -> None:
        """Write what was recorded, sorted."""
        with path.open("w") as file:
            for (client, api, version), frames in sorted(self.found.items()):
                for request, response in frames.values():
                    row: dict[str, Any] = {"client": client, "api": api, "version": version}
                    row |= {"request": request.hex(), "response": response.hex()}
                    file.write(json.dumps(row) + "\n")

    async def connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection of a client."""
        host, port = self._broker.split(":")
        from_broker, to_broker = await asyncio.open_connection(host, int(port))
        client, waiting = self.client, dict[bytes, bytes]()

        async def requests() -> None:
            while True:
                frame = await _frame(reader)
                waiting[frame[4:8]] = frame
                to_broker.write(len(frame).to_bytes(4, "big") + frame)

        async def responses() -> None:
            while True:
                frame = await _frame(from_broker)
                self._add(client, waiting.pop(frame[:4]), frame)
                writer.write(len(frame).to_bytes(4, "big") + frame)

        passing = [asyncio.ensure_future(requests()), asyncio.ensure_future(responses())]
        with suppress(asyncio.CancelledError):
            await asyncio.wait(passing, return_when=asyncio.FIRST_COMPLETED)
        for task, end in zip(passing, (to_broker, writer), strict=True):
            task.cancel()
            end.close()
            with suppress(asyncio.CancelledError, asyncio.IncompleteReadError, ConnectionError):
                await task


async def _frame(reader: asyncio.StreamReader) -> bytes:
    size = await reader.readexactly(4)
    return await reader.readexactly(int.from_bytes(size, "big"))


@contextmanager
def running(port: int, broker: str) -> Iterator[Proxy]:
    """Run a proxy in a thread, on this port of 127.0.0.1."""
    proxy, loop = Proxy(broker), asyncio.new_event_loop()
    serving = loop.run_until_complete(asyncio.start_server(proxy.connected, "127.0.0.1", port))
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    try:
        yield proxy
    finally:
        serving.close()
        asyncio.run_coroutine_threadsafe(_cancel(), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()


async def _cancel() -> None:
    """End the connections that clients left open."""
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
