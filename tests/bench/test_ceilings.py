"""The servers without a store acknowledge what our server would store."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator

import pytest

from api.http.negotiation import BINARY_V2_JSON, RECORD_BATCH
from api.server import Server
from logserver.bench.wire import Address, WireResponse, call
from logserver.config import Settings
from scripts.bench.ceilings import LISTEN, NoStore
from scripts.bench.http_work import json_body, raw_batch
from storage import TopicPartition


@pytest.fixture
async def no_store() -> AsyncIterator[tuple[NoStore, Address]]:
    """Yield the running service with the topic `a`, and its address."""
    service = NoStore(Settings(listen=LISTEN))
    server = Server(service)
    await server.listen()
    await service.start()
    address = Address.of(server.url)
    try:
        await ask(address, "PUT", "/topics/a", "application/json", b'{"partitions":1}')
        yield service, address
    finally:
        await server.stop()


async def ask(
    address: Address, method: str, path: str, content_type: str, body: bytes
) -> WireResponse:
    """Send one request from a thread; it must be accepted."""
    headers = {"Content-Type": content_type}
    answer = await asyncio.to_thread(call, address, method, path, headers=headers, body=body)
    assert answer.status < 300, answer.body
    return answer


@pytest.mark.parametrize("acks", ["1", "all"])
@pytest.mark.parametrize(
    ("content_type", "body", "offsets"),
    [(BINARY_V2_JSON, json_body(100), 100), (RECORD_BATCH, raw_batch(), 1)],
    ids=["records", "batches"],
)
async def test_records_are_acknowledged_and_dropped(
    no_store: tuple[NoStore, Address], content_type: str, body: bytes, offsets: int, acks: str
) -> None:
    service, address = no_store
    path = f"/topics/a/partitions/0?acks={acks}"
    answer = await ask(address, "POST", path, content_type, body)
    assert len(json.loads(answer.body)["offsets"]) == offsets
    assert (await service.bounds(TopicPartition("a", 0))).end == 0
