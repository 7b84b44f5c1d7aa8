"""Bodies that the server receives into one buffer: in pieces, slowly, cut off, refused early, and with a request after
them.
"""

from __future__ import annotations

import asyncio
import gc
import json
import tracemalloc
from pathlib import Path

import pytest

from api.connection import long_body
from api.connection.long_body import LEAST_BYTES, Buffers
from tests.http.harness import BATCH, Api, opener, serving, settings

OCTETS = "application/octet-stream"
LAST = b"GET /topics/t/partitions/0/offsets HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
SIZES = [LEAST_BYTES - 1, LEAST_BYTES, 900_000]


def body_of(size_bytes: int) -> bytes:
    """Return bytes that name their position."""
    return b"".join(b"%07d " % at for at in range(0, size_bytes, 8))[:size_bytes]


def post(body: bytes, path: str = "/topics/t/partitions/0", *, more: bytes = b"") -> bytes:
    """Return a request with one record as it is."""
    head = f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Type: {OCTETS}\r\nContent-Length: {len(body)}\r\n"
    return head.encode() + more + b"\r\n" + body


async def exchange(api: Api, *pieces: bytes, pause_s: float = 0.0) -> bytes:
    """Send pieces with a pause after each; return the answers up to the end of the connection."""
    async with api.connection() as (reader, writer):
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(pause_s)
        async with asyncio.timeout(10):
            return await reader.read()


async def stored(api: Api) -> list[bytes]:
    """Return the values of all records."""
    values = []
    for offset in range((await api.get("/topics/t/partitions/0/offsets")).json["end_offset"]):
        path = f"/topics/t/partitions/0/records?offset={offset}&max_records=1"
        rows = (await api.get(path, accept="application/vnd.kafka.binary.v2+json")).json
        values += [row["value"] for row in rows]
    return values


@pytest.fixture
async def topic(api: Api) -> Api:
    """A server with the topic."""
    await api.create("t")
    return api


@pytest.mark.parametrize("size_bytes", SIZES)
@pytest.mark.parametrize("cuts", [(), (60,), (500, 70_000), (200, 201, 131_072), (-1,)])
async def test_a_body_is_whole_however_it_arrives(
    topic: Api, size_bytes: int, cuts: tuple[int, ...]
) -> None:
    body = body_of(size_bytes)
    data = post(body)
    ends = [*(len(data) - 1 if cut == -1 else cut for cut in cuts), len(data)]
    pieces = [data[begin:end] for begin, end in zip([0, *ends], ends, strict=False)]
    answers = await exchange(topic, *pieces, LAST, pause_s=0.01)
    assert answers.count(b"HTTP/1.1 200 OK") == 2
    raw = await topic.get("/topics/t/partitions/0/records?format=text")
    assert [row["value"] for row in raw.json] == [body.decode()]


async def test_requests_after_a_long_body_in_the_same_piece(topic: Api) -> None:
    first, second = body_of(200_000), body_of(400_000)
    answers = await exchange(topic, post(first) + post(second) + post(b"short") + LAST)
    assert answers.count(b"HTTP/1.1 200 OK") == 4
    assert json.loads(answers[answers.rindex(b"{") :])["end_offset"] == 3


async def test_a_slow_body_goes_back_to_the_library(
    topic: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(long_body, "SLOW_S", 0.02)
    data = post(body_of(400_000))
    pieces = [data[at : at + 40_000] for at in range(0, len(data), 40_000)]
    answers = await exchange(topic, *pieces, LAST, pause_s=0.03)
    assert answers.count(b"HTTP/1.1 200 OK") == 2
    assert len(await stored(topic)) == 1


async def test_a_body_that_pauses_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(long_body, "SLOW_S", 0.02)
    chosen = settings(tmp_path / "store", body_timeout_ms=200)
    async with serving(chosen, opener("kafka", chosen)) as api:
        await api.create("t")
        answers = await exchange(api, post(body_of(400_000))[:200_000])
        assert b" 408 " in answers.split(b"\r\n", 1)[0]
        assert await stored(api) == []


async def test_a_client_that_leaves_in_its_body(topic: Api) -> None:
    others = (
        topic.server.connections
    )  # the test's own, which the HTTP client keeps for its next request
    for cut in (100, 140_000, 399_000):
        async with topic.connection() as (_, writer):
            await topic.until_connected(others + 1)
            writer.write(post(body_of(400_000))[:cut])
            await writer.drain()
            await asyncio.sleep(0.01)
        await topic.until_connected(others)
    await topic.until_free()
    assert await stored(topic) == []


async def test_a_half_close_in_a_body(topic: Api) -> None:
    async with topic.connection() as (reader, writer):
        writer.write(post(body_of(400_000))[:200_000])
        writer.write_eof()
        async with asyncio.timeout(10):
            await reader.read()
    assert await stored(topic) == []


async def test_the_body_of_a_request_that_is_refused_early(topic: Api) -> None:
    answers = await exchange(topic, post(body_of(400_000), "/nothing/here"), LAST)
    assert answers.startswith(b"HTTP/1.1 404 ")
    assert answers.count(b"HTTP/1.1 200 OK") == 1


async def test_a_client_that_waits_before_its_body(topic: Api) -> None:
    body = body_of(400_000)
    data = post(body, more=b"Expect: 100-continue\r\n")
    async with topic.connection() as (reader, writer):
        writer.write(data[: -len(body)])
        async with asyncio.timeout(10):
            assert await reader.readline() == b"HTTP/1.1 100 Continue\r\n"
            writer.write(body + LAST)
            answers = await reader.read()
    assert answers.count(b"HTTP/1.1 200 OK") == 2


@pytest.mark.parametrize("head_bytes", [None, 200_000])
async def test_half_a_body_does_not_stay_in_memory(topic: Api, head_bytes: int | None) -> None:
    """A lost client leaves nothing that waits for a garbage collection; `head_bytes`: of the first piece."""
    data = post(body_of(900_000))[:600_000]
    cut = data.index(b"\r\n\r\n") + 4 if head_bytes is None else head_bytes

    async def vanish() -> None:
        async with topic.connection() as (_, writer):
            for piece in (data[:cut], data[cut:]):
                writer.write(piece)
                await writer.drain()
                await asyncio.sleep(0.05)

    await vanish()
    gc.collect()
    gc.disable()
    tracemalloc.start()
    try:
        before_bytes, _ = tracemalloc.get_traced_memory()
        for _ in range(5):
            await vanish()
        left_bytes = len(data)
        for _ in range(100):  # until the server has seen that the last client is lost
            left_bytes = tracemalloc.get_traced_memory()[0] - before_bytes
            if left_bytes < len(data):
                break
            await asyncio.sleep(0.05)
    finally:
        tracemalloc.stop()
        gc.enable()
    assert left_bytes < len(data)


async def test_bytes_that_are_no_batches(topic: Api) -> None:
    answer = await topic.post("/topics/t", body_of(400_000), content_type=BATCH)
    assert answer.code == (42208 if topic.service.store.capabilities.batch_bytes else 42207)


def test_buffers_are_used_again() -> None:
    buffers = Buffers()
    small, large = buffers.take(10), buffers.take(20)
    buffers.give_back(large)
    buffers.give_back(small)
    assert buffers.take(15) is large
    assert len(buffers.take(15)) == 15
    for _ in range(long_body.KEPT_BUFFERS + 1):
        buffers.give_back(bytearray(5))
    buffers.give_back(large)
    assert buffers.take(20) is large
    assert len(buffers._free) == long_body.KEPT_BUFFERS - 1
