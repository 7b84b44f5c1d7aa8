"""Large answers: how many may wait for their clients, and which client is disconnected."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from logserver.service.memory_budget import SMALL_BYTES
from tests.http.harness import JSON, Api, opener, records, serving, settings

LARGE = "/topics/large/partitions/0/records?offset=0&max_bytes=8000000"


async def fill(api: Api) -> None:
    """Store records in topic `large` for an answer of about 7.5 MB."""
    await api.create("large")
    for _ in range(8):
        answer = await api.post("/topics/large", records("x" * 700_000), content_type=JSON)
        assert answer.status == 200


@pytest.mark.parametrize("kind", ["kafka", "rocketmq"])
async def test_what_was_stored_is_told_whoever_takes_no_answers(tmp_path: Path, kind: str) -> None:
    """While too many bytes wait for clients, large reads are refused; small answers and results of writes are not."""
    chosen = settings(tmp_path / "store")
    async with serving(chosen, opener(kind, chosen)) as api:
        await fill(api)
        with api.service.answers.reserve(chosen.max_answer_bytes):
            refused = await api.get(LARGE)
            assert (refused.status, refused.json["error_code"]) == (429, 42901)
            assert "bytes of answers" in refused.json["message"]
            stored = await api.post("/topics/many", records(*["x"] * 5000), content_type=JSON)
            assert stored.status == 200
            assert len(stored.body) > SMALL_BYTES
            assert (await api.get("/topics/many/partitions/0/records?max_records=1")).status == 200
        assert (await api.get(LARGE)).status == 200


async def test_a_slow_reader_is_not_one_that_takes_nothing(tmp_path: Path) -> None:
    """A slow reader is not disconnected, though kernel buffers of megabytes hide its reads from the server."""
    chosen = settings(tmp_path / "store", body_timeout_ms=300)
    async with serving(chosen, opener("kafka", chosen)) as api:
        await fill(api)
        connection = socket.socket()
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 << 10)
        connection.setblocking(False)
        host, port = urlsplit(api.url).hostname, urlsplit(api.url).port
        loop = asyncio.get_running_loop()
        await loop.sock_connect(connection, (host, port))
        await loop.sock_sendall(connection, f"GET {LARGE} HTTP/1.0\r\n\r\n".encode())
        taken, began_s = 0, loop.time()
        with connection:
            while part := await loop.sock_recv(connection, 20_000):
                taken += len(part)
                if loop.time() - began_s < 2:
                    await asyncio.sleep(0.05)
        assert taken > 7_000_000
