"""Unusual HTTP of a client: versions, upgrades, and names as long as a request line."""

from __future__ import annotations

import asyncio

import pytest

from storage import TopicPartition
from tests.http.harness import JSON, Api

LONG = "t" * 15_000


async def exchange(api: Api, data: bytes, *, cut_at: int | None = None) -> bytes:
    """Send bytes, in two pieces if `cut_at` is set; return the answer up to the end of the connection."""
    async with api.connection() as (reader, writer):
        pieces = [data] if cut_at is None else [data[:cut_at], data[cut_at:]]
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(0)
        async with asyncio.timeout(10):
            return await reader.read()


@pytest.mark.parametrize(
    ("version", "answered"),
    [
        ("1.1", "1.1"),
        ("1.0", "1.0"),
        ("0.9", "1.0"),
        ("2.0", "1.1"),
        ("1.9", "1.1"),
        ("7.3", "1.1"),
    ],
)
async def test_the_status_line_has_a_version_that_is_spoken_here(
    api: Api, version: str, answered: str
) -> None:
    data = f"GET /livez HTTP/{version}\r\nHost: x\r\nConnection: close\r\n\r\n".encode()
    assert (await exchange(api, data)).startswith(f"HTTP/{answered} ".encode())


H2C = b"Connection: Upgrade, HTTP2-Settings\r\nHTTP2-Settings: AAMAAABk"
LAST = b"GET /topics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"


@pytest.mark.parametrize(
    "header", [b"Upgrade: h2c", b"upgrade: h2c", b"UPGRADE: tcp", b"Upgrade: websocket"]
)
@pytest.mark.parametrize("cut_at", [None, 5, 60])
async def test_what_follows_an_upgrade_is_answered(
    api: Api, header: bytes, cut_at: int | None
) -> None:
    first = b"GET /livez HTTP/1.1\r\nHost: x\r\n%b\r\n%b\r\n\r\n" % (header, H2C)
    answers = await exchange(
        api, first + LAST, cut_at=None if cut_at is None else len(first) + cut_at
    )
    assert answers.count(b"HTTP/1.1 200 OK") == 2
    assert answers.endswith(b"[]")


async def test_several_upgrades_and_one_with_a_body(api: Api) -> None:
    upgrade = b"GET /livez HTTP/1.1\r\nHost: x\r\nUpgrade: h2c\r\nConnection: Upgrade\r\n\r\n"
    body = b'{"records":[{"value":"pgrade:\\r\\n\\r\\n"}]}'
    post = (
        b"POST /topics/t HTTP/1.1\r\nHost: x\r\nUpgrade: h2c\r\nConnection: Upgrade\r\n"
        b"Content-Type: %b\r\nContent-Length: %d\r\n\r\n%b" % (JSON.encode(), len(body), body)
    )
    answers = await exchange(api, upgrade + upgrade + post + upgrade + LAST)
    assert answers.count(b"HTTP/1.1 200 OK") == 5
    assert answers.endswith(b'["t"]')


@pytest.mark.parametrize("upgrade", [b"h2c", b"websocket"])
@pytest.mark.parametrize("is_chunked", [False, True])
@pytest.mark.parametrize("size_bytes", [0, 20, 400_000])
@pytest.mark.parametrize("cut_after_head", [None, 10])
async def test_what_follows_a_body_of_an_upgrade_is_answered(
    api: Api, upgrade: bytes, is_chunked: bool, size_bytes: int, cut_after_head: int | None
) -> None:
    body = (b"\r\nUpgrade: h2c\r\n\r\n" * (size_bytes // 18 + 1))[:size_bytes]
    head = (
        b"POST /topics/t HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: %b\r\n"
        b"Content-Type: application/octet-stream\r\n" % upgrade
    )
    if is_chunked:
        head += b"Transfer-Encoding: chunked\r\n\r\n"
        chunk = b"%x\r\n%b\r\n" % (len(body), body) if body else b""
        sent = chunk + b"0\r\n\r\n"
    else:
        head += b"Content-Length: %d\r\n\r\n" % len(body)
        sent = body
    post = head + sent
    cut_at = None if cut_after_head is None else len(head) + cut_after_head
    answers = await exchange(api, post + post + LAST, cut_at=cut_at)
    assert answers.count(b"HTTP/1.1 200 OK") == 3
    assert answers.endswith(b'["t"]')
    stored = api.service.store.read(TopicPartition("t", 0), 0)
    assert [record.value for record in stored.records] == [body, body]


async def test_many_requests_in_one_piece_are_answered(api: Api) -> None:
    request = b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n"
    answers = await exchange(api, request * 4000 + LAST)
    assert answers.count(b"HTTP/1.1 200 OK") == 4001


async def test_a_rejected_body_of_empty_lines_is_read_to_its_end(api: Api) -> None:
    head = b"POST /topics/t HTTP/1.1\r\nHost: x\r\nContent-Type: text/plain\r\n"
    chunk = b"%x\r\n%b\r\n" % (40_000, b"\r\n\r\n" * 10_000)
    async with api.connection() as (reader, writer):
        writer.write(head + b"Transfer-Encoding: chunked\r\n\r\n")
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 415 ")
        writer.write(chunk * 20 + b"0\r\n\r\n" + LAST)
        async with asyncio.timeout(10):
            assert b"HTTP/1.1 200 OK" in await reader.read()


@pytest.mark.parametrize("in_its_first_piece", [0, 20, 5000])
async def test_an_upgrade_in_a_piece_that_ends_a_body(api: Api, in_its_first_piece: int) -> None:
    """The rest of a body needs no search, but the request after it does."""
    upgrade = b"GET /livez HTTP/1.1\r\nHost: x\r\nUpgrade: h2c\r\nConnection: Upgrade\r\n\r\n"
    body = b'{"records":[{"value":"%b"}]}' % (b"Upgrade:" * 1000)
    head = b"POST /topics/t HTTP/1.1\r\nHost: x\r\nContent-Type: %b\r\nContent-Length: %d\r\n\r\n"
    post = head % (JSON.encode(), len(body)) + body
    cut_at = len(post) - len(body) + in_its_first_piece
    answers = await exchange(api, post + upgrade + LAST, cut_at=cut_at)
    assert answers.count(b"HTTP/1.1 200 OK") == 3
    assert answers.endswith(b'["t"]')


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("GET", f"/topics/{LONG}", None),
        ("PUT", f"/topics/{LONG}", b"{}"),
        ("POST", f"/topics/{LONG}", b'{"records":[{"value":1}]}'),
        ("DELETE", f"/topics/{LONG}", None),
        ("GET", f"/topics/{LONG}/partitions/0/records", None),
        ("GET", f"/groups/{LONG}", None),
        ("GET", f"/consumers/{LONG[:7000]}/instances/{LONG[:7000]}/records", None),
        ("GET", f"/{LONG}", None),
    ],
    ids=lambda value: str(value)[:20],
)
async def test_a_long_name_is_cut(api: Api, method: str, path: str, body: bytes | None) -> None:
    headers = {"Content-Type": JSON} if body else {}
    answer = await api.call(method, path, data=body, headers=headers)
    assert 400 <= answer.status < 500
    assert answer.code
    assert len(answer.json["message"]) < 300
    assert len(answer.body) < 1000
