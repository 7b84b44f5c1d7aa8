"""Messages handed back over HTTP: the ladder and the dead letters, consumers that get them, settings, and refusals; on
Kafka's format and in memory the topics of the convention.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.http.groups.consumers import Consumer, consumer, produce
from tests.http.harness import V2, Answer, Api, opener, serving, settings

START_MS = 1_760_000_000_000
RETRY_TOPIC = "%RETRY%g"


class Clock:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.now_ms = START_MS

    def __call__(self) -> int:
        return self.now_ms


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def api(tmp_path: Path, clock: Clock) -> AsyncIterator[Api]:
    """A RocketMQ store with topic t of one queue; the test's clock is that of the server and of the store."""
    chosen = settings(
        tmp_path / "store", delivery_interval_ms=1, set={"defaultTopicQueueNums": "1"}
    )
    async with serving(chosen, opener("rocketmq", chosen, clock=clock), clock=clock) as running:
        await running.create("t")
        yield running


@pytest.fixture(params=["kafka", "memory"])
async def other(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[Api]:
    """A store without retries of its own, with topic t of one partition."""
    chosen = settings(tmp_path / "store")
    async with serving(chosen, opener(request.param, chosen)) as running:
        await running.create("t")
        yield running


async def hand_back(api: Api, message_id: str, group: str = "g", **more: Any) -> dict[str, Any]:
    answer = await api.post(f"/groups/{group}/retry", {"message_id": message_id, **more})
    assert answer.status == 200, answer.body
    found: dict[str, Any] = answer.json
    return found


async def put(api: Api, group: str, max_times: int) -> Answer:
    body = msgspec.json.encode({"max_times": max_times})
    headers = {"Content-Type": "application/json"}
    return await api.call("PUT", f"/groups/{group}/retry", data=body, headers=headers)


async def refused(api: Api, path: str, body: object) -> tuple[int, str]:
    answer = await api.post(path, body)
    return answer.json["error_code"], answer.json["message"]


async def polled(member: Consumer, count: int = 1) -> list[dict[str, Any]]:
    """Poll until `count` rows have arrived."""
    rows: list[dict[str, Any]] = []
    async with asyncio.timeout(10):
        while len(rows) < count:
            rows += await member.poll("timeout=200")
    return rows


async def test_a_consumer_gets_the_retry_of_its_message(api: Api, clock: Clock) -> None:
    await produce(api, "t", "first", "second")
    member = await consumer(api)
    await member.subscribe("t")
    first, second = await polled(member, 2)
    sent = await hand_back(api, first["message_id"])
    assert sent == {
        "message_id": sent["message_id"],
        "topic": RETRY_TOPIC,
        "partition": 0,
        "times": 1,
        "dead": False,
        "delay_level": 3,
        "deliver_at": START_MS + 10_000,
    }
    assert sent["message_id"] != first["message_id"]
    assert await member.partitions() == [(RETRY_TOPIC, 0), ("t", 0)]
    clock.now_ms += 9_999
    assert await member.poll("timeout=50") == []
    clock.now_ms += 1
    (again,) = await polled(member)
    assert (again["topic"], again["partition"], again["value"]) == ("t", -1, "first")
    assert again["retry"] == {"topic": RETRY_TOPIC, "partition": 0, "times": 1}
    assert again["properties"]["ORIGIN_MESSAGE_ID"] == first["message_id"]
    assert "retry" not in second
    assert (await member.post("offsets")).status == 200
    assert await member.committed() == {(RETRY_TOPIC, 0): 1, ("t", 0): 2}
    assert (await api.get(f"{member.path}/subscription")).json == {"topics": ["t"]}


async def test_a_commit_of_a_retry_under_its_topic_is_rejected(api: Api, clock: Clock) -> None:
    """A client that commits a retry's offset in a partition of the original topic would skip records of it."""
    await produce(api, "t", "first")
    member = await consumer(api)
    await member.subscribe("t")
    (row,) = await polled(member)
    await hand_back(api, row["message_id"])
    clock.now_ms += 10_000
    (again,) = await polled(member)
    offset = {name: again[name] for name in ("topic", "partition", "offset")}
    assert (await member.post("offsets", {"offsets": [offset]})).status == 422
    offset |= {name: again["retry"][name] for name in ("topic", "partition")}
    assert (await member.post("offsets", {"offsets": [offset]})).status == 200
    assert (await member.committed())[RETRY_TOPIC, 0] == 1


async def test_a_group_that_begins_at_the_end_gets_earlier_retries(api: Api, clock: Clock) -> None:
    await produce(api, "t", "first")
    member = await consumer(api)
    await member.subscribe("t")
    (row,) = await polled(member)
    assert (await member.post("offsets")).status == 200
    await member.delete()
    await hand_back(api, row["message_id"], delay_level=1)
    clock.now_ms += 1000
    await asyncio.sleep(0.05)
    for name in ("latest", "none"):
        late = await consumer(api, name=name, auto_offset_reset=name, auto_commit_enable=False)
        await late.done("subscription", {"topic_pattern": "t"})
        (again,) = await polled(late)
        assert (again["value"], again["retry"]["times"]) == ("first", 1)
        await late.delete()


async def test_the_ladder_to_the_dead_letters(api: Api, clock: Clock) -> None:
    await produce(api, "t", "poison")
    member = await consumer(api)
    await member.subscribe("t")
    answer = await put(api, "g", 3)
    assert answer.json == {
        "max_times": 3,
        "retry_topic": RETRY_TOPIC,
        "dead_letter_topic": "%DLQ%g",
    }
    assert (await api.get("/groups/g/retry")).json == answer.json
    for times, delay_ms in enumerate((10_000, 30_000, 60_000), 1):
        (row,) = await polled(member)
        sent = await hand_back(api, row["message_id"])
        assert (sent["times"], sent["dead"], sent["delay_level"]) == (times, False, times + 2)
        clock.now_ms += delay_ms
    (row,) = await polled(member)
    dead = await hand_back(api, row["message_id"])
    assert (dead["topic"], dead["times"], dead["dead"]) == ("%DLQ%g", 4, True)
    assert (dead["delay_level"], dead["deliver_at"]) == (None, None)
    path = "/topics/%25DLQ%25g/partitions/0/records?format=text"
    (stored,) = (await api.get(path)).json
    assert (stored["value"], stored["message_id"]) == ('"poison"', dead["message_id"])
    assert await member.poll("timeout=50") == []


async def test_members_share_the_retries(api: Api, clock: Clock) -> None:
    await produce(api, "t", *range(4))
    first, second = await consumer(api, "a"), await consumer(api, "b")
    await first.subscribe("t")
    await second.subscribe("t")
    rows = await polled(first, 4)
    for row in rows:
        await hand_back(api, row["message_id"], delay_level=1)
    owned = await first.partitions() + await second.partitions()
    assert sorted(owned) == [(RETRY_TOPIC, 0), ("t", 0)]
    clock.now_ms += 1000
    again = await polled(second, 4)
    assert sorted(row["value"] for row in again) == [0, 1, 2, 3]


async def test_refusals(api: Api) -> None:
    await produce(api, "t", "first")
    member = await consumer(api)
    await member.subscribe("t")
    (row,) = await polled(member)
    good = {"message_id": row["message_id"]}
    path = "/groups/g/retry"
    assert await refused(api, "/groups/none/retry", good) == (
        40405,
        "group 'none' does not exist: it has neither members nor committed offsets",
    )
    assert (await api.get("/groups/none/retry")).json["error_code"] == 40405
    assert (await refused(api, path, {"message_id": "0" * 32}))[0] == 40404
    assert (await refused(api, path, {"message_id": "x"}))[0] == 40404
    assert (await refused(api, "/groups/a%20b/retry", good))[0] == 42203
    long = await put(api, "g" * 249, 1)
    assert (long.json["error_code"], "1 to 248" in long.json["message"]) == (42203, True)
    for bad in ({}, {**good, "delay_level": -2}, {**good, "max_times": -1}, {**good, "x": 1}):
        assert (await refused(api, path, bad))[0] == 42201
    code, message = await refused(api, path, {**good, "delay_level": 19})
    assert (code, "delay_level is 19: need 1 to 18" in message) == (42201, True)
    waiting = await hand_back(api, row["message_id"])
    code, message = await refused(api, path, {"message_id": waiting["message_id"]})
    assert (code, "a broker's own" in message) == (42203, True)


async def test_topics_of_a_convention(other: Api) -> None:
    await produce(other, "t", "first")
    member = await consumer(other)
    await member.subscribe("t", "g.retry")
    (row,) = await polled(member)
    sent = await hand_back(other, "t:0:0")
    assert sent == {
        "message_id": "g.retry:0:0",
        "topic": "g.retry",
        "partition": 0,
        "times": 1,
        "dead": False,
        "delay_level": None,
        "deliver_at": None,
    }
    (again,) = await polled(member)
    assert (again["topic"], again["partition"], again["value"]) == ("g.retry", 0, row["value"])
    assert "retry" not in again
    shown = "/topics/{}/partitions/0/records?format=text"
    (stored,) = (await other.get(shown.format("g.retry"))).json
    headers = {header["key"]: header["value"] for header in stored["headers"]}
    assert headers == {
        "__retry_topic": "t",
        "__retry_message_id": "t:0:0",
        "__retry_times": "1",
    }
    second = await hand_back(other, "g.retry:0:0", max_times=2)
    assert (second["message_id"], second["times"]) == ("g.retry:0:1", 2)
    dead = await hand_back(other, "g.retry:0:1", max_times=2)
    assert (dead["topic"], dead["times"], dead["dead"]) == ("g.dlq", 3, True)
    assert (await hand_back(other, "t:0:0", delay_level=-1))["message_id"] == "g.dlq:0:1"
    (stored, _) = (await other.get(shown.format("g.dlq"))).json
    headers = {header["key"]: header["value"] for header in stored["headers"]}
    assert headers == {
        "__retry_topic": "t",
        "__retry_message_id": "t:0:0",
        "__retry_times": "3",
    }
    assert (await other.get("/topics/g.retry")).json["partitions"] == [
        {"partition": 0, "leader": 1, "replicas": [{"broker": 1, "leader": True, "in_sync": True}]}
    ]


async def test_refusals_without_retries_of_the_store(other: Api) -> None:
    await produce(other, "t", "first")
    await consumer(other)
    assert (await refused(other, "/groups/g/retry", {"message_id": "t:0:1"}))[0] == 40404
    assert (await refused(other, "/groups/none/retry", {"message_id": "t:0:0"}))[0] == 40405
    level = {"message_id": "t:0:0", "delay_level": 3}
    code, message = await refused(other, "/groups/g/retry", level)
    assert (code, "a retry is at once" in message) == (42207, True)
    assert (await other.get("/groups/g/retry")).json == {
        "max_times": 16,
        "retry_topic": "g.retry",
        "dead_letter_topic": "g.dlq",
    }
    answer = await put(other, "g", 1)
    assert answer.json["error_code"] == 42207


async def test_a_group_whose_name_no_topic_can_have(other: Api) -> None:
    await produce(other, "t", "first")
    assert (await other.post("/consumers/a%20b", {"name": "c"}, content_type=V2)).status == 200
    code, _ = await refused(other, "/groups/a%20b/retry", {"message_id": "t:0:0"})
    assert code == 42203
