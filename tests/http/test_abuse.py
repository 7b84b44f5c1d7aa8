"""Clients that misbehave on purpose, many at once, against a server in a process of its own: each gets its status, the
server's memory stays bounded, and other clients are served meanwhile.

Owns tests that need many clients or a measurement; tests of a single connection are in test_http.py.
"""

from __future__ import annotations

import asyncio
import gzip
import io
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any, TypeAlias

import aiohttp
import msgspec
import pytest
from crc32c import crc32c

from tests.http.harness import BATCH, BINARY, JSON, records
from tests.http.running import Running, Serve
from tests.http.test_http import error_of

Connection: TypeAlias = tuple[asyncio.StreamReader, asyncio.StreamWriter]

MIB = 1 << 20
CROWD = 400
PATIENCE_S = 30
# A served client waits for milliseconds; this leaves room for a busy machine, far below any timeout here.
SERVED_S = 5.0
HEAD = b"POST /topics/t HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"


class Abused:
    """A server under attack, with a well-behaved client."""

    def __init__(self, server: Running, session: aiohttp.ClientSession) -> None:
        self.server = server
        self.session = session
        self.url: str = server.facts["url"]
        self._before_bytes = server.peak_bytes()
        self._served_s: list[float] = []

    async def ask(
        self, method: str, path: str, *, data: bytes = b"", headers: Mapping[str, str] | None = None
    ) -> tuple[int, bytes]:
        """Send a request; return status and body."""
        sent = io.BytesIO(data) if data else None  # the client warns about large bytes objects
        async with self.session.request(
            method, self.url + path, data=sent, headers=headers, skip_auto_headers=["Content-Type"]
        ) as answer:
            return answer.status, await answer.read()

    async def serve_others(self, times: int = 20) -> None:
        """Produce and fetch as another client, which must not have to wait."""
        for _ in range(times):
            begun = perf_counter()
            async with asyncio.timeout(SERVED_S):
                body = msgspec.json.encode(records("x"))
                status, _ = await self.ask(
                    "POST", "/topics/other", data=body, headers={"Content-Type": JSON}
                )
                assert status == 200
                status, _ = await self.ask(
                    "GET", "/topics/other/partitions/0/records?max_records=1"
                )
                assert status == 200
            self._served_s.append(perf_counter() - begun)

    async def serve_others_until(self, done: Awaitable[Any]) -> Any:
        """Serve another client until `done` completes, and return its result."""
        work = asyncio.ensure_future(done)
        while not work.done():
            await self.serve_others(1)
            await asyncio.sleep(0.001)
        return await work

    async def until_told(self, line: str) -> None:
        """Wait until the metrics contain the line."""
        while line.encode() not in (await self.ask("GET", "/metrics"))[1].splitlines():  # noqa: ASYNC110
            await asyncio.sleep(0.01)

    def measured(self, limit_bytes: int) -> str:
        """Return the cost as a figure; fail if the server's memory has grown by `limit_bytes` or more."""
        grown_bytes = self.server.peak_bytes() - self._before_bytes
        assert grown_bytes < limit_bytes
        served_ms = sorted(1000 * served_s for served_s in self._served_s)
        return (
            f"others' produce and fetch took {served_ms[len(served_ms) // 2]:.1f} ms (median), "
            f"{served_ms[-1]:.0f} ms (most); memory grew by {grown_bytes / MIB:.0f} MiB"
        )


@asynccontextmanager
async def abused(server: Running) -> AsyncIterator[Abused]:
    """Yield the server with its well-behaved client."""
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
        under_attack = Abused(server, session)
        await under_attack.serve_others(1)
        yield under_attack


@asynccontextmanager
async def crowd(server: Running, count: int, sent: bytes) -> AsyncIterator[Sequence[Connection]]:
    """Open `count` connections and send these bytes on each."""
    host, port = server.facts["url"].removeprefix("http://").split(":")
    opened: list[Connection] = []
    try:
        for _ in range(count):
            opened.append(await asyncio.open_connection(host, int(port), limit=4096))
            opened[-1][1].write(sent)
        yield opened
    finally:
        for _, writer in opened:
            writer.transport.abort()
        await asyncio.gather(
            *(writer.wait_closed() for _, writer in opened), return_exceptions=True
        )


async def answers(connections: Sequence[Connection]) -> set[bytes]:
    """Return the bytes received on the connections until they end."""
    async with asyncio.timeout(PATIENCE_S):
        return set(await asyncio.gather(*(reader.read() for reader, _ in connections)))


@pytest.fixture(params=["kafka", "rocketmq"])
def kind(request: pytest.FixtureRequest) -> str:
    """Each backend that stores files."""
    return str(request.param)


@pytest.fixture
def started(serve: Serve, tmp_path: Path, kind: str) -> Callable[..., Running]:
    """A function that starts a server of the backend."""
    return lambda *options: serve("--data", tmp_path / "store", "--backend", kind, *options)


@pytest.mark.slow
async def test_bodies_that_never_come(
    started: Callable[..., Running], kind: str, figures: Callable[[str], None]
) -> None:
    server = started("--body-timeout-ms", "1000")
    begun = HEAD + b"Content-Length: 16000000\r\n\r\n" + b"x" * 10_000
    async with abused(server) as attack, crowd(server, CROWD, begun) as slow:
        await attack.serve_others()
        reported = await attack.serve_others_until(answers(slow))
        assert {error_of(answer) for answer in reported} == {(408, 408)}
        figures(f"abuse, {kind}: {CROWD} bodies that pause: {attack.measured(64 * MIB)}")


@pytest.mark.slow
async def test_headers_that_never_end(
    started: Callable[..., Running], kind: str, figures: Callable[[str], None]
) -> None:
    """A client that sends no header, or one byte at a time, is disconnected when the time for headers is over."""
    server = started("--keep-alive-ms", "1000")

    async def drip(connections: Sequence[Connection]) -> None:
        while not all(reader.at_eof() for reader, _ in connections):
            for _, writer in connections:
                writer.write(b"x")
            await asyncio.sleep(0.1)

    async with (
        abused(server) as attack,
        crowd(server, CROWD // 2, b"") as silent,
        crowd(server, CROWD // 2, b"GET /topics HTTP/1.1\r\nHost: ") as dripping,
    ):
        drops = asyncio.create_task(drip(dripping))
        ended = asyncio.gather(
            *(asyncio.wait_for(reader.read(), PATIENCE_S) for reader, _ in (*silent, *dripping)),
            return_exceptions=True,
        )
        outcome = await attack.serve_others_until(ended)
        drops.cancel()
        assert all(end == b"" or isinstance(end, ConnectionError) for end in outcome)
        figures(f"abuse, {kind}: {CROWD} requests without an end: {attack.measured(64 * MIB)}")


async def test_header_floods(
    started: Callable[..., Running], kind: str, figures: Callable[[str], None]
) -> None:
    server = started()
    many = b"".join(b"X-%d: y\r\n" % number for number in range(100_000))
    flood = b"GET /topics HTTP/1.1\r\nHost: a\r\n" + many + b"\r\n"
    async with abused(server) as attack, crowd(server, 20, b"") as flooding:

        async def first_line(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
            line = asyncio.ensure_future(reader.readline())
            await asyncio.sleep(0)  # start to read before sending: after the answer comes a reset
            writer.write(flood)
            return await line

        async def first_lines() -> set[bytes]:
            lines = (first_line(*connection) for connection in flooding)
            return set(await asyncio.wait_for(asyncio.gather(*lines), PATIENCE_S))

        assert await attack.serve_others_until(first_lines()) == {b"HTTP/1.1 400 Bad Request\r\n"}
        figures(f"abuse, {kind}: 20 x 100,000 headers: {attack.measured(64 * MIB)}")


@pytest.mark.slow
async def test_readers_that_never_read(
    started: Callable[..., Running], kind: str, figures: Callable[[str], None]
) -> None:
    """Clients that request pages of 1 MiB and read nothing are disconnected; data that waits for them is bounded."""
    answers = 32 * MIB
    server = started("--max-answer-bytes", str(answers), "--body-timeout-ms", "1000")
    page = b"GET /topics/t/partitions/0/records?max_bytes=1000000 HTTP/1.1\r\nHost: a\r\n\r\n"
    readers = 200
    async with abused(server) as attack:
        body = msgspec.json.encode(records(*["x" * 100_000] * 20))
        assert (
            await attack.ask(
                "POST", "/topics/t/partitions/0", data=body, headers={"Content-Type": JSON}
            )
        )[0] == 200
        async with crowd(server, readers, page * 20):
            await attack.serve_others(100)
            await attack.until_told("logserver_answer_bytes 0.0")
            figures(
                f"abuse, {kind}: {readers} readers of 20 pages each that read nothing: "
                f"{attack.measured(answers + 96 * MIB)}"
            )


@pytest.mark.slow
async def test_a_thousand_fetches_wait(
    started: Callable[..., Running], kind: str, figures: Callable[[str], None]
) -> None:
    server = started("--max-connections", "1100")
    waiting = 1000
    async with abused(server) as attack:
        body = msgspec.json.encode(records("old"))
        produce = partial(
            attack.ask, "POST", "/topics/t/partitions/0", data=body, headers={"Content-Type": JSON}
        )
        assert (await produce())[0] == 200
        path = "/topics/t/partitions/0/records?offset=latest&timeout=60000"
        fetches = [asyncio.create_task(attack.ask("GET", path)) for _ in range(waiting)]
        await attack.until_told(f"logserver_waiting_fetches {waiting}.0")
        await attack.serve_others()
        begun = perf_counter()
        assert (await produce())[0] == 200
        answered = await attack.serve_others_until(asyncio.gather(*fetches))
        woken_ms = 1000 * (perf_counter() - begun)
        assert {(status, body.count(b'"offset":1')) for status, body in answered} == {(200, 1)}
        figures(
            f"abuse, {kind}: {waiting} waiting fetches, answered within {woken_ms:.0f} ms: {attack.measured(64 * MIB)}"
        )


@pytest.mark.slow
async def test_gzip_bombs(
    started: Callable[..., Running], kind: str, figures: Callable[[str], None]
) -> None:
    """A gzip body is decompressed up to the limit of a body, and no further."""
    server = started()
    bomb = gzip.compress(bytes(256 * MIB), 1)
    headers = {"Content-Type": BINARY, "Content-Encoding": "gzip"}
    async with abused(server) as attack:
        sent = [attack.ask("POST", "/topics/t", data=bomb, headers=headers) for _ in range(10)]
        outcome = await attack.serve_others_until(asyncio.gather(*sent))
        assert {(status, msgspec.json.decode(body)["error_code"]) for status, body in outcome} == {
            (413, 41301)
        }
        # The number of decompressing threads bounds the memory for decompressed data. On two cores there are 6 threads,
        # each with 16 MiB in blocks and the same joined: 192 MiB. Tracebacks refer to the data of the 4 earlier
        # requests until the loop answers: 64 MiB. Bodies as received, in pieces and joined: 22 MiB. With a thread for
        # each of the 10 requests it is 320 instead of 256 MiB. The server's own memory is extra. Without a bound it
        # would be 2,560 MiB.
        figures(f"abuse, {kind}: 10 gzip bombs of 256 MiB each: {attack.measured(512 * MIB)}")


@pytest.mark.slow
async def test_a_bomb_inside_a_record_batch(
    serve: Serve, tmp_path: Path, figures: Callable[[str], None]
) -> None:
    """A compressed batch is decompressed before it is accepted, one request at a time. At most 256 MiB, here the limit
    of the format, are held, twice for a moment. Data that is no records is rejected, and others are served meanwhile.
    """
    server = serve("--data", tmp_path / "store", "--backend", "kafka")
    good = msgspec.json.encode(records("good"))
    path = "/topics/t/partitions/0"
    async with abused(server) as attack:
        for _ in range(2):
            await attack.ask("POST", path, data=good, headers={"Content-Type": JSON})
        query = f"{path}/records?max_records=1"
        _, batch = await attack.ask("GET", query, headers={"Accept": BATCH})
        bomb = gzip_batch(
            batch[: 12 + int.from_bytes(batch[8:12])], gzip.compress(bytes(256 * MIB))
        )
        sent = [
            attack.ask("POST", path, data=bomb, headers={"Content-Type": BATCH}) for _ in range(2)
        ]
        for status, body in await attack.serve_others_until(asyncio.gather(*sent)):
            assert (status, msgspec.json.decode(body)["error_code"]) == (422, 42208)
        assert (await attack.ask("GET", f"{path}/records?offset=0"))[0] == 200
        figures(
            "abuse, kafka: a batch that unpacks to 256 MiB, sent twice at once: "
            f"{attack.measured((2 * 256 + 64) * MIB)}"
        )


def gzip_batch(batch: bytes, payload: bytes) -> bytes:
    """Return a record batch with `payload` in place of its records, marked as gzip.

    | offset 8 | length 4 | leader epoch 4 | magic 1 | crc 4 | attributes 2 | 38 more | records |
    The length counts from the leader epoch, the CRC from the attributes.
    """
    covered = (1).to_bytes(2) + batch[23:61] + payload
    length = (len(batch[12:21]) + len(covered)).to_bytes(4)
    return batch[:8] + length + batch[12:17] + crc32c(covered).to_bytes(4) + covered


BAD = {
    "no type": (None, b"{}", 415),
    "another type": ("text/html", b"{}", 415),
    "another charset": (f"{JSON}; charset=utf-16", b"{}", 415),
    "no body": (JSON, b"", 40000),
    "no json": (JSON, b"records", 40000),
    "json that ends early": (JSON, b'{"records":[{"value":1', 40000),
    "two documents": (JSON, b'{"records":[{"value":1}]}{}', 40000),
    "not a number": (JSON, b'{"records":[{"value":NaN}]}', 40000),
    "half a surrogate pair": (JSON, b'{"records":[{"value":"\\ud800"}]}', 40000),
    "bytes that are no utf-8": (JSON, b'{"records":[{"value":"\xff"}]}', 40000),
    "a byte order mark": (JSON, b'\xef\xbb\xbf{"records":[{"value":1}]}', 40000),
    "utf-16": (JSON, '{"records":[{"value":1}]}'.encode("utf-16"), 40000),
    "a list": (JSON, b"[]", 42201),
    "no records": (JSON, b"{}", 42201),
    "null for records": (JSON, b'{"records":null}', 42201),
    "an empty list": (JSON, b'{"records":[]}', 42201),
    "a number for a record": (JSON, b'{"records":[1]}', 42201),
    "nested too deeply": (
        JSON,
        b'{"records":[{"value":' + b"[" * 10**6 + b"]" * 10**6 + b"}]}",
        42201,
    ),
    "brackets without an end": (JSON, b'{"records":' + b"[" * 10**6, 42201),
    "a time that is no whole number": (JSON, b'{"records":[{"value":1,"timestamp":1e3}]}', 42201),
    "a time beyond 64 bits": (
        JSON,
        b'{"records":[{"value":1,"timestamp":9223372036854775808}]}',
        42201,
    ),
    "a partition below zero": (JSON, b'{"records":[{"value":1,"partition":-1}]}', 42201),
    "a number for a tag": (JSON, b'{"records":[{"value":1,"tag":1}]}', 42201),
    "no base64": (BINARY, b'{"records":[{"value":"***"}]}', 42202),
    "base64 of no whole bytes": (BINARY, b'{"records":[{"value":"YWJjZ"}]}', 42202),
    "too many records": (JSON, b'{"records":[' + b"{}," * 10_000 + b"{}]}", 41301),
    "millions of records": (JSON, b'{"records":[' + b"1," * 10**6 + b"1]}", 41301),
    "one byte over the limit": (JSON, b" " * (16 * MIB + 1), 41301),
}


async def test_bad_bodies(
    started: Callable[..., Running], kind: str, figures: Callable[[str], None]
) -> None:
    """Each bad body gets an error of the documented shape; nothing is stored, and no topic is created for it."""
    async with abused(started()) as attack:
        for what, (content_type, body, code) in BAD.items():
            headers = {} if content_type is None else {"Content-Type": content_type}
            status, answer = await attack.serve_others_until(
                attack.ask("POST", "/topics/bad", data=body, headers=headers)
            )
            error = msgspec.json.decode(answer)
            assert error.get("error_code") == code, (what, error)
            assert status == (code if code < 1000 else code // 100), what
            assert error["message"], what
        assert msgspec.json.decode((await attack.ask("GET", "/topics"))[1]) == ["other"]
        figures(f"abuse, {kind}: {len(BAD)} kinds of bad bodies: {attack.measured(256 * MIB)}")
