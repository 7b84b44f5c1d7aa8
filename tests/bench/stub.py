"""An HTTP server that stores nothing and delays each answer as configured: a load with known latencies."""

from __future__ import annotations

import asyncio
import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

LENGTH = re.compile(rb"Content-Length: (\d+)")
ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"

DESCRIPTION = """
name = "stub"
url = "{url}"

[produce]
path = "/{{topic}}"
body = '[{{records}}]'
record = '"{{value_text}}"'
"""


class Stub:
    """The stub and its log: when each POST arrived and was answered, by `time.perf_counter_ns`."""

    def __init__(self, think_s: Callable[[float], float]) -> None:
        self.url = ""
        self.came_ns: list[int] = []
        self.answered_ns: list[int] = []
        self._think_s = think_s

    @property
    def description(self) -> str:
        """The description for `http:FILE`."""
        return DESCRIPTION.format(url=self.url)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection."""
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = LENGTH.search(head)
                await reader.readexactly(int(length[1]) if length else 0)
                if head.startswith(b"POST"):
                    self.came_ns.append(time.perf_counter_ns())
                    await asyncio.sleep(self._think_s((self.came_ns[-1] - self.came_ns[0]) / 1e9))
                    self.answered_ns.append(time.perf_counter_ns())
                writer.write(ANSWER)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()


@contextmanager
def stub(think_s: Callable[[float], float]) -> Iterator[Stub]:
    """Serve in a thread. `think_s(t)`: the delay in seconds for a request that arrived t seconds after the first."""
    made, ready = Stub(think_s), threading.Event()
    loop = asyncio.new_event_loop()

    async def listen() -> asyncio.Server:
        server = await asyncio.start_server(made.serve, "127.0.0.1", 0)
        host, port = server.sockets[0].getsockname()
        made.url = f"http://{host}:{port}"
        ready.set()
        return server

    async def end(server: asyncio.Server) -> None:
        server.close()
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def run() -> None:
        server = loop.run_until_complete(listen())
        loop.run_forever()
        loop.run_until_complete(end(server))
        loop.close()

    thread = threading.Thread(target=run)
    thread.start()
    try:
        ready.wait()
        yield made
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
