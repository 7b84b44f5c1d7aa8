"""Settings of consumer instances: a setting that changes reads is obeyed or rejected, other settings are named."""

from __future__ import annotations

import asyncio
import logging
from typing import Any, cast

import pytest

from logserver.groups.config import FIXED, SETTINGS
from storage import Record, TopicPartition
from tests.contract.batches import BatchStore, marker, transaction
from tests.http.groups.consumers import Consumer, consumer, produce
from tests.http.harness import V2, Answer, Api


async def create(api: Api, **settings: object) -> Answer:
    """Send a POST for a new instance; setting names are sent unchanged."""
    return await api.post("/consumers/g", settings, content_type=V2)


async def with_transactions(api: Api) -> None:
    """Fill topic t with committed, aborted and open transactions, and records outside transactions."""
    if not api.service.store.capabilities.batch_bytes:
        pytest.skip("the backend has no transactions")
    await api.create("t")
    store = cast(BatchStore, api.service.store)
    at = TopicPartition("t", 0)
    await asyncio.to_thread(store.append, at, [Record(None, b"before")])
    for data in (
        transaction("a", sequence=0),
        marker(commit=True),
    ):
        await asyncio.to_thread(store.append_batches, at, data)
    await asyncio.to_thread(store.append, at, [Record(None, b"between")])
    for data in (
        transaction("b", sequence=1),
        marker(commit=False),
        transaction("open", sequence=2),
    ):
        await asyncio.to_thread(store.append_batches, at, data)
    await asyncio.to_thread(store.append, at, [Record(None, b"after")])


@pytest.mark.parametrize("name", ["isolation.level", "consumer.isolation.level"])
@pytest.mark.parametrize(
    ("level", "offsets"),
    [("read_committed", [0, 1, 3]), ("read_uncommitted", [0, 1, 3, 4, 6, 7])],
)
async def test_the_isolation_level_is_obeyed(
    api: Api, name: str, level: str, offsets: list[int]
) -> None:
    await with_transactions(api)
    assert (
        await create(api, name="c", **{"auto.offset.reset": "earliest", name: level})
    ).status == 200
    me = Consumer(api, "/consumers/g/instances/c")
    await me.subscribe("t")
    assert [row["offset"] for row in await me.poll()] == offsets
    assert await me.poll() == []


async def test_read_uncommitted_is_the_default(api: Api) -> None:
    await with_transactions(api)
    me = await consumer(api)
    await me.subscribe("t")
    assert [row["offset"] for row in await me.poll()] == [0, 1, 3, 4, 6, 7]


async def test_latest_is_the_end_of_what_is_committed(api: Api) -> None:
    """Records held back by the open transaction are read after it ends."""
    await with_transactions(api)
    me = await consumer(api, isolation_level="read_committed", auto_offset_reset="latest")
    await me.subscribe("t")
    assert await me.poll() == []
    store = cast(BatchStore, api.service.store)
    await asyncio.to_thread(store.append_batches, TopicPartition("t", 0), marker(commit=True))
    assert [row["offset"] for row in await me.poll()] == [6, 7]
    await me.done("positions/end")
    assert await me.poll() == []
    await me.done("positions/beginning")
    assert [row["offset"] for row in await me.poll()] == [0, 1, 3, 6, 7]


async def test_max_poll_records(api: Api) -> None:
    await api.create("t")
    await produce(api, "t", *range(7))
    me = await consumer(api, max_poll_records="3")
    await me.subscribe("t")
    assert [await me.values() for _ in range(4)] == [[0, 1, 2], [3, 4, 5], [6], []]


async def test_the_names_of_kafkas_own_consumer(api: Api) -> None:
    """With auto-commit off under either name nothing is committed at the end."""
    await api.create("t")
    await produce(api, "t", 1)
    for name in ("auto.commit.enable", "enable.auto.commit", "consumer.enable.auto.commit"):
        config = {"auto.offset.reset": "earliest", "group.id": "g", name: "false"}
        answer = await create(api, name="c", **config)
        assert (answer.status, "X-Warnings" in answer.headers) == (200, False)
        me = Consumer(api, "/consumers/g/instances/c")
        await me.subscribe("t")
        assert len(await me.poll()) == 1
        await me.delete()
    assert (await api.get("/groups")).json == []


@pytest.mark.parametrize(
    "settings",
    [
        {"isolation.level": "bogus"},
        {"isolation.level": 1},
        {"consumer.isolation.level": "bogus"},
        {"max.poll.records": 0},
        {"auto.commit.interval.ms": -1},
        {"auto.commit.enable": True, "enable.auto.commit": False},
        {"group.id": "another"},
        {"group.id": "G"},
        *({name: "org.example.Other"} for name in FIXED),
        {"exclude.internal.topics": False},
        {"allow.auto.create.topics": True},
        {"consumer.group.instance.id": "static-1"},
    ],
    ids=str,
)
async def test_what_is_not_offered_is_refused(api: Api, settings: dict[str, object]) -> None:
    answer = await create(api, name="c", **settings)
    name = next(iter(settings)).removeprefix("consumer.")
    if settings == {"isolation.level": 1}:
        assert answer.code == 42201
    else:
        assert answer.code == 42204
        assert name in answer.json["message"]
    assert (await api.get("/groups")).json == []


async def test_the_value_that_says_what_is_done_is_taken(api: Api) -> None:
    settings = {name: value for name, (value, _) in FIXED.items() if value}
    answer = await create(api, name="c", **settings)
    assert (answer.status, "X-Warnings" in answer.headers) == (200, False)
    as_booleans = {name: value == "true" for name, value in settings.items()}
    assert (await create(api, name="d", **as_booleans)).status == 200


async def test_unknown_settings_are_named(api: Api, caplog: pytest.LogCaptureFixture) -> None:
    hostile = "x\r\nSet-Cookie: a=b"
    with caplog.at_level(logging.WARNING):
        answer = await create(
            api, name="c", **{"client.id": "me", "session.timeout.ms": 1, hostile: 1, "ö" * 500: 1}
        )
    assert answer.status == 200
    reported = answer.headers["X-Warnings"]
    assert reported.startswith(
        "unknown settings are ignored: client.id, session.timeout.ms, x%0D%0A"
    )
    assert "Set-Cookie" not in answer.headers
    assert len(reported) < 1000
    assert reported in caplog.text
    many = {f"s{number}": 1 for number in range(500)}
    reported = (await create(api, name="d", **many)).headers["X-Warnings"]
    assert reported.endswith("and 480 more")


async def test_a_null_is_as_good_as_not_given(api: Api) -> None:
    answer = await create(api, name="c", **{"isolation.level": None, "whatever": None})
    assert (answer.status, "X-Warnings" in answer.headers) == (200, False)


async def test_every_setting_is_documented(api: Api, repo_root: Any) -> None:
    text = (repo_root / "docs/http-api.md").read_text()
    missing = [name for name in (*SETTINGS, *FIXED) if f"`{name}`" not in text]
    assert missing == []
    schema = (await api.get("/openapi.json")).json["components"]["schemas"]["NewConsumer"]
    assert [name for name in SETTINGS if name not in schema["properties"]] == []
