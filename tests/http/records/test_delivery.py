"""Delivery of polls: after a received answer the client gets the next page, however it ends its connection; a client
that closed before the answer gets the same page again.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import socket
import ssl
import struct
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from aiohttp import web

from tests.http.groups.consumers import Consumer, consumer, produce
from tests.http.harness import JSON, Api
from tests.http.running import Serve
from tests.http.test_security import openssl

FIRST, SECOND = [1, 2], [3, 4, 5]


def connect(url: str) -> socket.socket:
    """Return a plain TCP connection to the server."""
    parts = urlsplit(url)
    assert parts.hostname is not None
    assert parts.port is not None
    return socket.create_connection((parts.hostname, parts.port), timeout=20)


def request(path: str, version: str = "1.1", **headers: str) -> bytes:
    """Return the bytes of a GET without a body."""
    lines = [f"GET {path} HTTP/{version}", "Host: x", *(f"{k}: {v}" for k, v in headers.items())]
    return "".join(f"{line}\r\n" for line in [*lines, ""]).encode()


def read_answer(connection: socket.socket) -> bytes:
    """Read an answer and not a byte more; return its body."""
    data = b""
    while b"\r\n\r\n" not in data:
        data += connection.recv(1)
    head, _, _ = data.partition(b"\r\n\r\n")
    (length,) = (
        int(line.partition(b":")[2])
        for line in head.lower().splitlines()
        if line.startswith(b"content-length:")
    )
    body = b""
    while len(body) < length:
        body += connection.recv(length - len(body))
    return body


def read_to_end(connection: socket.socket) -> bytes:
    """Read until the connection ends; return the body of its last answer."""
    data = b""
    while piece := connection.recv(1 << 16):
        data += piece
    return data.partition(b"\r\n\r\n")[2]


def closes(url: str, path: str) -> bytes:
    """Close the connection after the answer is read, as curl does."""
    with connect(url) as connection:
        connection.sendall(request(path))
        return read_answer(connection)


def half_closes_first(url: str, path: str) -> bytes:
    """Shut down the sending side after the request and read the answer to its end, as `nc -N` does."""
    with connect(url) as connection:
        connection.sendall(request(path))
        connection.shutdown(socket.SHUT_WR)
        return read_to_end(connection)


def half_closes_after(url: str, path: str) -> bytes:
    """Shut down the sending side after the answer is read."""
    with connect(url) as connection:
        connection.sendall(request(path))
        body = read_answer(connection)
        connection.shutdown(socket.SHUT_WR)
        assert connection.recv(1) == b""
        return body


def resets_after(url: str, path: str) -> bytes:
    """Reset the connection after the answer is read."""
    with connect(url) as connection:
        connection.sendall(request(path))
        body = read_answer(connection)
        reset(connection)
        return body


def http_1_0(url: str, path: str) -> bytes:
    """Send an HTTP/1.0 request; the server ends the connection."""
    with connect(url) as connection:
        connection.sendall(request(path, version="1.0"))
        return read_to_end(connection)


def connection_close(url: str, path: str) -> bytes:
    """Send `Connection: close`, as urllib does."""
    with urllib.request.urlopen(url + path, timeout=20) as answer:
        body: bytes = answer.read()
        return body


def reset(connection: socket.socket) -> None:
    """Close the connection with a reset instead of an orderly end."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()


WAYS = (
    closes,
    half_closes_first,
    half_closes_after,
    resets_after,
    http_1_0,
    connection_close,
)
Way = Callable[[str, str], bytes]


def values(body: bytes) -> list[Any]:
    """Return the values of the rows of an answer."""
    return [row["value"] for row in json.loads(body)]


async def subscribed(api: Api, **config: Any) -> Consumer:
    """Create an instance that reads topic t."""
    await api.create("t")
    await produce(api, "t", *FIRST)
    me = await consumer(api, **config)
    await me.subscribe("t")
    return me


@pytest.mark.parametrize("way", WAYS)
async def test_what_was_received_does_not_come_again(api: Api, way: Way) -> None:
    me = await subscribed(api)
    for expected in (FIRST, SECOND, []):
        got = await asyncio.to_thread(way, api.url, f"{me.path}/records?timeout=0")
        assert values(got) == expected
        if expected == FIRST:
            await produce(api, "t", *SECOND)


@pytest.mark.parametrize("way", WAYS)
async def test_it_is_what_a_commit_commits(api: Api, way: Way) -> None:
    me = await subscribed(api, auto_commit_enable=False)
    await asyncio.to_thread(way, api.url, f"{me.path}/records?timeout=0")
    assert (await me.post("offsets")).status == 200
    assert await me.committed() == {("t", 0): len(FIRST)}


@pytest.mark.parametrize("way", WAYS)
async def test_a_large_page_too(api: Api, way: Way) -> None:
    """A page larger than the kernel's send buffer, once received, is delivered."""
    await api.create("t")
    large = "x" * 500_000
    for _ in range(12):
        await produce(api, "t", large)
    me = await consumer(api)
    await me.subscribe("t")
    path = f"{me.path}/records?timeout=0&max_bytes=60000000"
    assert len(values(await asyncio.to_thread(way, api.url, path))) == 12
    assert await me.values() == []


def lose(protocol: web.RequestHandler) -> None:
    """End the connection at once."""
    assert protocol.transport is not None
    protocol.transport.abort()


ENDS: dict[str, Callable[[web.RequestHandler], object]] = {
    "half-close": lambda protocol: protocol.eof_received(),
    "loss": lose,
}


@pytest.mark.parametrize("end", ENDS)
async def test_an_end_that_is_seen_before_the_delivery_is(
    api: Api, end: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An answer is delivered if the client has read all of it and closed before the server's task continues."""
    me = await subscribed(api)
    write_eof = web.Response.write_eof
    ended = []

    async def write_and_end(response: web.Response, data: bytes = b"") -> None:
        body, asked = response.body, response._req
        await write_eof(response, data)
        if isinstance(body, bytes) and asked is not None:
            protocol = asked.protocol
            asyncio.get_running_loop().call_soon(ENDS[end], protocol)
            ended.append(body)

    monkeypatch.setattr(web.Response, "write_eof", write_and_end)
    path = f"{me.path}/records?timeout=0"
    with connect(api.url) as connection:
        connection.sendall(request(path))
        while not ended:  # noqa: ASYNC110  # the server has no event for tests
            await asyncio.sleep(0.001)
    assert [values(body) for body in ended] == [FIRST]
    monkeypatch.undo()
    assert await me.values() == []


# -- a client that closed before the answer


@pytest.mark.parametrize("how", [socket.socket.close, reset])
async def test_a_client_that_closed_before_the_answer_is_given_it_again(
    api: Api, how: Callable[[socket.socket], None]
) -> None:
    """The kernel accepts data for a closed socket; only the reset shows that the answer was not received."""
    me = await subscribed(api)
    with closing(connect(api.url)) as connection:
        await api.until_connected(2)
        connection.sendall(request(f"{me.path}/records?timeout=0"))
        how(connection)  # before the server's loop continues
    await api.until_connected(1)
    assert await me.values() == FIRST


@pytest.mark.parametrize("how", [socket.socket.close, reset])
async def test_a_client_that_closed_while_it_waited_is_given_it_again(
    api: Api, how: Callable[[socket.socket], None]
) -> None:
    await api.create("t")
    me = await consumer(api)
    await me.subscribe("t")
    with closing(connect(api.url)) as connection:
        connection.sendall(request(f"{me.path}/records?timeout=20000"))
        await api.until_waiting()
        how(connection)
    await produce(api, "t", *FIRST)
    assert await me.values() == FIRST


async def test_a_half_close_ends_the_wait(api: Api) -> None:
    """After a half-close a waiting poll returns the available records, even if they are less than fetch.min.bytes."""
    me = await subscribed(api, fetch_min_bytes=1000)
    with connect(api.url) as connection:
        connection.sendall(request(f"{me.path}/records?timeout=20000"))
        await api.until_waiting()
        connection.shutdown(socket.SHUT_WR)
        assert values(await asyncio.to_thread(read_to_end, connection)) == FIRST
    assert await me.values() == []


async def test_a_reset_in_the_middle_of_a_large_page(api: Api) -> None:
    await api.create("t")
    for _ in range(12):
        await produce(api, "t", "x" * 700_000)
    me = await consumer(api)
    await me.subscribe("t")
    with closing(connect(api.url)) as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.sendall(request(f"{me.path}/records?timeout=0&max_bytes=60000000"))
        assert await asyncio.to_thread(connection.recv, 100)
        reset(connection)
    rows = await me.poll("timeout=0&max_bytes=60000000")
    assert [row["offset"] for row in rows] == list(range(12))


# -- TLS, and many polls


def test_over_tls(serve: Serve, tmp_path: Path) -> None:
    """TLS has no half-close: a client closes both sides at once, and its polls are delivered all the same."""
    new_key = ("-newkey", "rsa:2048", "-nodes", "-subj", "/CN=x")
    name = ("-addext", "subjectAltName=IP:127.0.0.1")
    openssl(tmp_path, "req", "-x509", *new_key, *name, "-keyout", "key.pem", "-out", "cert.pem")
    options = ("--tls-cert", tmp_path / "cert.pem", "--tls-key", tmp_path / "key.pem")
    server = serve("--data", tmp_path / "s", *options)
    trusting = ssl.create_default_context(cafile=str(tmp_path / "cert.pem"))

    def call(method: str, path: str, body: object = None) -> Any:
        asked = urllib.request.Request(
            server.facts["url"] + path,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Content-Type": JSON},
            method=method,
        )
        with urllib.request.urlopen(asked, timeout=20, context=trusting) as answer:
            return json.loads(answer.read() or b"null")

    call("POST", "/topics/t", {"records": [{"value": n} for n in range(5)]})
    for number in range(20):
        group = f"/consumers/g{number}"
        call("POST", group, {"name": "c", "format": "json", "auto.offset.reset": "earliest"})
        at = f"{group}/instances/c"
        call("POST", f"{at}/assignments", {"partitions": [{"topic": "t", "partition": 0}]})
        assert [row["value"] for row in call("GET", f"{at}/records?timeout=0")] == [*range(5)]
        assert call("GET", f"{at}/records?timeout=0") == []


def curl(url: str, path: str) -> bytes:
    """Call the curl program."""
    return subprocess.run(["curl", "-s", url + path], stdout=subprocess.PIPE, check=True).stdout


def clients() -> Iterator[Way]:
    """Yield clients in turn: curl where it is installed, and the other ways."""
    while True:
        yield curl if shutil.which("curl") else closes
        yield from WAYS


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["kafka", "rocketmq"])
def test_a_thousand_polls(serve: Serve, tmp_path: Path, kind: str) -> None:
    """Over a thousand polls no record is delivered twice and none is missed."""
    server = serve("--data", tmp_path / "s", "--backend", kind, "--flush", "os")
    url = server.facts["url"]
    server.call("PUT", "/topics/t", {"partitions": 1})
    server.call("POST", "/consumers/g", {"name": "c", "auto.offset.reset": "earliest"})
    assignment = {"partitions": [{"topic": "t", "partition": 0}]}
    assert server.call("POST", "/consumers/g/instances/c/assignments", assignment)[0] == 204
    offsets: list[int] = []
    deadline_s = time.monotonic() + 600
    for number, way in zip(range(1000), clients(), strict=False):
        assert time.monotonic() < deadline_s
        produced = {"records": [{"value": number}, {"value": -number}]}
        assert server.call("POST", "/topics/t/partitions/0", produced)[0] == 200
        body = way(url, "/consumers/g/instances/c/records?timeout=5000")
        offsets += [row["offset"] for row in json.loads(body)]
    assert offsets == list(range(2000))
