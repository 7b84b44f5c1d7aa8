"""Records passed to a store of messages, and their answers: properties, WAIT, born hosts, message ids.

Owns a model of such a store, so that the part of the server is tested apart from the part of the store.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import msgspec
import pytest

from logserver.service.requests import host_bytes
from storage import AppendResult, Page, Record, TopicPartition
from storage.memory.store import MemoryStore
from tests.http.harness import JSON, Api, records, serving, settings
from tests.watched_store import WatchedStore

LOCALHOST = bytes([127, 0, 0, 1])


class MessageStore(WatchedStore):
    """The memory store with messages: a read returns the properties of the append, and the property UNIQ_KEY."""

    capabilities = replace(MemoryStore.capabilities, messages=True)

    def __init__(self) -> None:
        super().__init__()
        self.hosts: list[bytes] = []
        self.properties: list[dict[str, str]] = []

    def append(
        self, partition: TopicPartition, records: Sequence[Record], **options: Any
    ) -> AppendResult:
        plain = [record._replace(properties=None) for record in records]
        result = super().append(partition, plain, **options)
        self.hosts += options["born_hosts"]
        self.properties += [{"UNIQ_KEY": "U", **(record.properties or {})} for record in records]
        return result

    def read(self, partition: TopicPartition, offset: int, **options: Any) -> Page:
        page = super().read(partition, offset, **options)
        given = [
            msgspec.structs.replace(
                record, properties=self.properties[record.offset], store_timestamp_ms=9
            )
            for record in page.records
        ]
        return page._replace(records=given)

    def record_id(self, partition: TopicPartition, locator: int) -> str:
        return f"{locator:032X}"


@pytest.fixture
def store() -> MessageStore:
    """A store with topic t of one partition."""
    store = MessageStore()
    store.create_topic("t", 1)
    return store


@pytest.fixture
async def api(store: MessageStore, tmp_path: Path) -> AsyncIterator[Api]:
    """A server in sync mode on that store; its own upkeep does not run."""
    chosen = settings(tmp_path, flush_interval_ms=3_600_000)
    async with serving(chosen, store.opener()) as running:
        yield running


async def test_an_answer_tells_each_records_id(api: Api) -> None:
    await api.post("/topics/t", records(0))
    answer = await api.post("/topics/t", records(1, 2))
    assert answer.json["offsets"] == [
        {
            "partition": 0,
            "offset": offset,
            "error_code": None,
            "error": None,
            "message_id": f"{offset:032X}",
        }
        for offset in (1, 2)
    ]


async def test_what_is_not_stored_has_no_id(api: Api) -> None:
    body = records(1, 2, 3)
    body["records"][1]["partition"] = 5  # type: ignore[index]
    rows = (await api.post("/topics/t", body)).json["offsets"]
    assert [row.get("message_id") for row in rows] == ["0" * 32, None, "0" * 31 + "1"]
    assert [row["error_code"] for row in rows] == [None, 40402, None]


async def test_without_acks_nothing_is_told(api: Api) -> None:
    assert (await api.post("/topics/t?acks=0", records(1))).json["offsets"] is None


async def test_a_fetched_row(api: Api) -> None:
    record = {"value": 1, "timestamp": 5, "tag": "red", "keys": ["k"], "properties": {"WAIT": "no"}}
    await api.post("/topics/t", {"records": [record]})
    answer = await api.get("/topics/t/partitions/0/records", accept=JSON)
    assert answer.body == (
        b'[{"topic":"t","partition":0,"offset":0,"timestamp":5,"key":null,"value":1,"headers":[],'
        b'"tag":"red","keys":["k"],"properties":{"UNIQ_KEY":"U","WAIT":"no"},'
        b'"message_id":"00000000000000000000000000000000","store_timestamp":9}]'
    )


@pytest.mark.parametrize("body_format", ["binary", "json", "text"])
async def test_properties_reach_the_store(api: Api, store: MessageStore, body_format: str) -> None:
    body = {"records": [{"value": None, "properties": {"UNIQ_KEY": "mine"}}, {"value": None}]}
    answer = await api.post(f"/topics/t?format={body_format}", body)
    assert answer.status == 200, answer.body
    assert store.properties == [{"UNIQ_KEY": "mine"}, {"UNIQ_KEY": "U"}]


@pytest.mark.parametrize(
    ("waits", "acks", "durable"),
    [
        (["false"], "all", False),
        (["false", "FALSE"], "all", False),
        (["no"], "all", False),  # as Boolean.parseBoolean: only "true" is true
        (["true"], "all", True),
        (["TRUE"], "all", True),
        ([None], "all", True),
        (["false", None], "all", True),
        (["false", "true"], "all", True),
        (["false"], "1", False),
        (["true"], "1", False),
    ],
)
async def test_what_does_not_wait_is_not_synced(
    api: Api, store: MessageStore, waits: list[str | None], acks: str, durable: bool
) -> None:
    """acks=all with WAIT=false in every record is answered as acks=1; WAIT is stored unchanged."""
    body = {
        "records": [
            {"value": 1, **({} if wait is None else {"properties": {"WAIT": wait}})}
            for wait in waits
        ]
    }
    assert (await api.post(f"/topics/t?acks={acks}", body)).status == 200
    assert [publish for _, _, publish in store.appends] == [not durable]
    assert bool(store.flushes) is durable
    assert [properties.get("WAIT") for properties in store.properties] == waits


async def test_the_born_host_is_the_client(api: Api, store: MessageStore) -> None:
    """The born host of each record is the client's address and port."""
    body = msgspec.json.encode(records(1, 2))
    async with api.connection() as (reader, writer):
        writer.write(
            b"POST /topics/t HTTP/1.1\r\nHost: here\r\nConnection: close\r\n"
            b"Content-Type: application/vnd.kafka.json.v2+json\r\n"
            b"Content-Length: %d\r\n\r\n%b" % (len(body), body)
        )
        client_port: int = writer.get_extra_info("sockname")[1]
        assert (await reader.read()).startswith(b"HTTP/1.1 200")
    assert store.hosts == [LOCALHOST + client_port.to_bytes(4, "big")] * 2


async def test_each_client_of_a_shared_append_has_its_own_host(
    api: Api, store: MessageStore
) -> None:
    store.gate.clear()
    first = asyncio.create_task(api.post("/topics/t", records(0)))
    assert await asyncio.to_thread(store.flushing.wait, 10)
    others = [asyncio.create_task(api.post("/topics/t", records(1, 2))) for _ in range(3)]
    await api.until_queued(3)
    store.gate.set()
    await asyncio.gather(first, *others)
    assert [count for _, count, _ in store.appends] == [1, 6]
    assert len(store.hosts) == 7
    assert len(set(store.hosts)) == 4
    assert all(host.startswith(LOCALHOST) for host in store.hosts)


@pytest.mark.parametrize(
    ("host", "address"),
    [
        ("127.0.0.1", LOCALHOST),
        ("10.1.2.7", bytes([10, 1, 2, 7])),
        ("::1", bytes(15) + b"\x01"),
        ("::ffff:10.1.2.7", bytes([10, 1, 2, 7])),
        ("fe80::1%eth0", ip_address("fe80::1").packed),
    ],
)
def test_a_host_as_rocketmq_keeps_it(host: str, address: bytes) -> None:
    assert host_bytes(host, 40002) == address + bytes([0, 0, 0x9C, 0x42])


async def test_the_dispatchers_lag_is_in_the_metrics(
    api: Api, store: MessageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = b"logserver_store_dispatch_lag_bytes"
    assert name not in (await api.get("/metrics")).body
    stats = replace(store.stats(), details={"dispatch_lag_bytes": 4096, "index_files": 2})
    monkeypatch.setattr(store, "stats", lambda: stats)
    assert b"%b 4096.0" % name in (await api.get("/metrics")).body
    assert (await api.get("/store")).json["stats"]["details"] == stats.details
