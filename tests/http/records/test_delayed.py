"""Delayed records over HTTP: levels, times and delays; where they wait, their delivery, the list, and refusals."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from api.records.raw_record import X_KEY
from storage.errors import DiskFull, NotOffered
from tests.http.harness import JSON, Answer, Api, opener, serving, settings

NDJSON = "application/x-ndjson"
OCTETS = "application/octet-stream"
PLAIN = "application/json"
START_MS = 1_760_000_000_000
DAY_MS = 86_400_000


class Clock:
    """A clock that a test sets. Upkeep sleeps by the real clock, and asks this clock which messages are due."""

    def __init__(self) -> None:
        self.now_ms = START_MS

    def __call__(self) -> int:
        return self.now_ms


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def api(tmp_path: Path, clock: Clock) -> AsyncIterator[Api]:
    """A server with a store whose topics have two queues; the test's clock is that of the server and of the store."""
    chosen = settings(
        tmp_path / "store", delivery_interval_ms=1, set={"defaultTopicQueueNums": "2"}
    )
    async with serving(chosen, opener("rocketmq", chosen, clock=clock), clock=clock) as running:
        yield running


@pytest.fixture(params=["kafka", "memory"])
async def other(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[Api]:
    """A server with a store that keeps no delayed records."""
    chosen = settings(tmp_path / "store")
    async with serving(chosen, opener(request.param, chosen)) as running:
        yield running


async def send(api: Api, *records: dict[str, Any], query: str = "") -> Any:
    answer = await api.post(f"/topics/t?format=text{query}", {"records": list(records)})
    return answer


async def post(api: Api, path: str, body: object, headers: dict[str, str]) -> Answer:
    data = body if isinstance(body, bytes) else msgspec.json.encode(body)
    return await api.call("POST", path, data=data, headers={"Content-Type": JSON, **headers})


async def until(holds: Callable[[], Awaitable[object]]) -> None:
    async with asyncio.timeout(10):
        while not await holds():  # noqa: ASYNC110  # the service has no event for tests
            await asyncio.sleep(0.001)


async def fetched(api: Api, partition: int = 0, count: int = 1) -> list[str]:
    rows: list[str] = []
    async with asyncio.timeout(10):
        while len(rows) < count:
            path = f"/topics/t/partitions/{partition}/records?format=text&timeout=1000"
            rows = [row["value"] for row in (await api.get(path)).json]
    return rows


async def until_waiting(api: Api, count: int) -> None:
    """Wait until so many messages wait."""

    async def is_so() -> bool:
        return len((await api.get("/delayed")).json["delayed"]) == count

    await until(is_so)


async def until_error(api: Api, code: str) -> None:
    """Wait until the last step of delivery ended so. A step wakes readers before it ends."""

    async def is_so() -> bool:
        return bool((await service(api))["error"] == code)

    await until(is_so)


async def service(api: Api) -> dict[str, Any]:
    found: list[dict[str, Any]] = (await api.get("/store")).json["services"]
    (delivery,) = (each for each in found if each["name"] == "delivery")
    return delivery


async def test_a_record_waits_for_its_level(api: Api, clock: Clock) -> None:
    record = {"value": "later", "partition": 1, "tag": "T", "keys": ["k"], "delay_level": 3}
    answer = await send(api, record, {"value": "now", "partition": 1})
    assert answer.status == 200
    later, now = answer.json["offsets"]
    assert now.pop("message_id")
    assert now == {"partition": 1, "offset": 0, "error_code": None, "error": None}
    waiting_id = later.pop("message_id")
    assert later == {
        "partition": 1,
        "offset": None,
        "error_code": None,
        "error": None,
        "delay_level": 3,
        "deliver_at": START_MS + 10_000,
    }
    assert await fetched(api, 1) == ["now"]
    (row,) = (await api.get("/delayed")).json["delayed"]
    assert row.pop("unique_id")
    assert row == {
        "message_id": waiting_id,
        "topic": "t",
        "partition": 1,
        "delay_level": 3,
        "deliver_at": START_MS + 10_000,
        "timestamp": START_MS,
        "store_timestamp": START_MS,
        "offset": 0,
        "tag": "T",
        "keys": ["k"],
    }
    assert (await api.get(f"/messages/{waiting_id}")).json["topic"] == "SCHEDULE_TOPIC_XXXX"
    clock.now_ms += 9_999
    await delivered_once_at(api, clock)
    assert (await api.get("/delayed")).json["delayed"] != []
    clock.now_ms += 1
    assert await fetched(api, 1, 2) == ["now", "later"]
    assert (await api.get("/delayed")).json == {"delayed": [], "next": None}
    found = (await api.get("/topics/t/messages?tag=T&format=text")).json["records"]
    assert [one["value"] for one in found] == ["later"]
    waiting = await api.get("/topics/SCHEDULE_TOPIC_XXXX/partitions/2/records")
    assert len(waiting.json) == 1


async def delivered_once_at(api: Api, clock: Clock) -> None:
    """Wait until a delivery has seen the present time of the clock."""

    async def is_done() -> bool:
        return bool((await service(api))["last_run_ms"] == clock.now_ms)

    await until(is_done)


@pytest.mark.parametrize(
    ("asked", "level", "delay_ms"),
    [
        ({"delay_level": 1}, 1, 1000),
        ({"delay_level": 18}, 18, 7_200_000),
        ({"delay_ms": 1}, 1, 1000),
        ({"delay_ms": 1000}, 1, 1000),
        ({"delay_ms": 1001}, 2, 5000),
        ({"delay_ms": 7_200_000}, 18, 7_200_000),
        ({"deliver_at": START_MS + 6_000}, 3, 10_000),
        ({"deliver_at": START_MS + 10_000}, 3, 10_000),
    ],
)
async def test_delays_are_rounded_up_to_a_level(
    api: Api, asked: dict[str, int], level: int, delay_ms: int
) -> None:
    query = "".join(f"&{name}={value}" for name, value in asked.items())
    for answer in (
        await send(api, {"value": "v", **asked}),
        await send(api, {"value": "v"}, query=query),
    ):
        (row,) = answer.json["offsets"]
        assert (row["offset"], row["delay_level"]) == (None, level)
        assert row["deliver_at"] == START_MS + delay_ms


@pytest.mark.parametrize(
    "asked",
    [
        {"delay_level": 0},
        {"delay_ms": 0},
        {"deliver_at": START_MS},
        {"deliver_at": START_MS - 1},
        {"deliver_at": 0},
    ],
)
async def test_what_is_due_is_stored_at_once(api: Api, asked: dict[str, int]) -> None:
    (row,) = (await send(api, {"value": "v", "partition": 0, **asked})).json["offsets"]
    assert row["offset"] == 0
    assert "delay_level" not in row


@pytest.mark.parametrize(
    ("asked", "text"),
    [
        ({"delay_level": 19}, "delay_level is 19: this store has the levels 1 to 18"),
        ({"delay_level": -1}, "delay_level"),
        ({"delay_ms": -1}, "delay_ms"),
        ({"deliver_at": -1}, "deliver_at"),
        ({"deliver_at": START_MS + 7_200_001}, "deliver_at asks for a delay of 7200001 ms"),
        ({"delay_ms": 7_200_001}, "the limit is 7200000 ms"),
        ({"delay_ms": 40 * DAY_MS + 1}, "the limit is 40 days"),
        ({"delay_ms": 1, "delay_level": 1}, "delay_level: excludes delay_ms"),
    ],
)
async def test_impossible_delays_fail_alone(api: Api, asked: dict[str, int], text: str) -> None:
    answer = await send(api, {"value": "v", "partition": 0}, {"value": "bad", **asked})
    good, bad = answer.json["offsets"]
    assert (answer.status, good["offset"], bad["error_code"]) == (200, 0, 42201)
    assert text in bad["error"]
    assert (await send(api, {"value": "bad", **asked})).code == 42201
    assert (await api.get("/delayed")).json["delayed"] == []


@pytest.mark.parametrize("query", ["delay_level=x", "deliver_at=-1", "delay_ms=1&delay_level=1"])
async def test_malformed_parameters(api: Api, query: str) -> None:
    assert (await send(api, {"value": "v"}, query=f"&{query}")).code == 40000


async def test_a_records_own_delay_comes_before_that_of_the_request(api: Api) -> None:
    answer = await send(
        api,
        {"value": "own", "delay_level": 5},
        {"value": "common"},
        {"value": "at once", "delay_level": 0},
        query="&delay_ms=1000",
    )
    assert [row.get("delay_level") for row in answer.json["offsets"]] == [5, 1, None]


async def test_a_request_with_a_sequence_has_no_delays(api: Api) -> None:
    producer = (await api.post("/producers", {})).json["producer_id"]
    sequence = f"&producer_id={producer}&producer_epoch=0&sequence=0"
    answer = await send(api, {"value": "v", "partition": 0, "delay_level": 1}, query=sequence)
    assert answer.code == 42201
    assert "Idempotency-Key" in answer.json["message"]


async def test_a_repeated_request_is_scheduled_once(api: Api, clock: Clock) -> None:
    key = {"Idempotency-Key": "k"}
    body = {"records": [{"value": "a", "partition": 1, "delay_level": 1}]}
    first = await post(api, "/topics/t?format=text", body, key)
    clock.now_ms += 5
    again = await post(api, "/topics/t?format=text", body, key)
    assert first.json == again.json
    assert first.json["offsets"][0]["deliver_at"] == START_MS + 1000
    clock.now_ms += 1000
    assert await fetched(api, 1) == ["a"]
    other_delay = "/topics/t?format=text&delay_level=2"
    assert (await post(api, other_delay, body, key)).code == 42209


@pytest.mark.parametrize(
    "records",
    [
        [{"value": "a", "delay_level": 1}, {"value": "b"}],
        [{"value": "a", "deliver_at": START_MS + 500}],
    ],
)
async def test_keys_refuse_delays_that_a_repeat_would_change(
    api: Api, records: list[dict[str, Any]]
) -> None:
    body = {"records": records}
    answer = await post(api, "/topics/t?format=text", body, {"Idempotency-Key": "k"})
    assert answer.code == 42201
    assert (await api.get("/delayed")).json["delayed"] == []


@pytest.mark.parametrize(("acks", "status"), [("0", 202), ("1", 200), ("all", 200)])
async def test_all_acks(api: Api, clock: Clock, acks: str, status: int) -> None:
    for name in "ab":
        record = {"value": name, "partition": 0, "delay_level": 1}
        assert (await send(api, record, query=f"&acks={acks}")).status == status
    bad = {"value": "v", "headers": [{"key": "h", "value": ""}], "delay_level": 1}
    assert (await send(api, bad, query=f"&acks={acks}")).code == 42206
    await until_waiting(api, 2)
    clock.now_ms += 1000
    assert await fetched(api, 0, 2) == ["a", "b"]


async def test_other_forms_of_a_request(api: Api) -> None:
    lines = b'{"value":"bGluZQ==","delay_level":1}\n{"value":"bm93"}\n'
    answer = await post(api, "/topics/t", lines, {"Content-Type": NDJSON})
    rows = [msgspec.json.decode(line) for line in answer.body.splitlines()]
    levels = [row.get("delay_level") for row in rows]
    assert levels == [1, None]
    headers = {"Content-Type": OCTETS, X_KEY.name: "k"}
    answer = await post(api, "/topics/t?delay_ms=1", b"raw", headers)
    assert answer.json["offsets"][0]["delay_level"] == 1
    cluster = (await api.get("/v3/clusters")).json["data"][0]["cluster_id"]
    records = f"/v3/clusters/{cluster}/topics/t/records"
    value = {"type": "STRING", "data": "v3"}
    report = (await api.post(records, {"value": value, "delay_ms": 2000}, content_type=PLAIN)).json
    assert (report["offset"], report["delay_level"]) == (None, 2), report
    assert report["deliver_at"] == "2025-10-09T08:53:25Z"
    report = (
        await api.post(
            records, {"value": value, "deliver_at": report["deliver_at"]}, content_type=PLAIN
        )
    ).json
    assert report["delay_level"] == 2
    entries = [
        {"id": "a", "value": value, "delay_level": 1},
        {"id": "b", "value": value, "delay_level": 1, "delay_ms": 1},
    ]
    batch = (await api.post(f"{records}:batch", {"entries": entries}, content_type=PLAIN)).json
    assert [one["delay_level"] for one in batch["successes"]] == [1]
    assert [one["error_code"] for one in batch["failures"]] == [42201]


async def test_the_list_in_pages(api: Api) -> None:
    for level in (5, 1, 18, 2, 1):
        await send(api, {"value": f"{level}", "delay_level": level})
    page = (await api.get("/delayed?limit=2")).json
    found = [row["delay_level"] for row in page["delayed"]]
    while page["next"] is not None:
        page = (await api.get(page["next"])).json
        found += [row["delay_level"] for row in page["delayed"]]
    assert found == [1, 1, 2, 5, 18]
    for query in ("limit=0", "limit=1001", "kind=x", "other=1"):
        assert (await api.get(f"/delayed?{query}")).code == 40000
    for cursor in ("x", "1", "1:2,", "1:-1", "9" * 30):
        assert (await api.get(f"/delayed?cursor={cursor}")).code == 42201
    assert (await api.get("/delayed?kind=timer")).json == {"delayed": [], "next": None}
    assert (await api.get("/delayed?kind=timer&cursor=x")).code == 42201


async def test_no_way_to_cancel(api: Api) -> None:
    (row,) = (await send(api, {"value": "v", "delay_level": 1})).json["offsets"]
    assert (await api.call("DELETE", f"/delayed/{row['message_id']}")).code == 42207


async def test_levels_by_setting(tmp_path: Path, clock: Clock) -> None:
    chosen = settings(tmp_path / "store", set={"messageDelayLevel": "50d 1s 3s"})
    async with serving(chosen, opener("rocketmq", chosen, clock=clock), clock=clock) as api:
        rows = [(await send(api, {"value": "v", "delay_ms": ms})) for ms in (500, 3001)]
        assert [row.json["offsets"][0]["delay_level"] for row in rows] == [2, 1]
        assert (await send(api, {"value": "v", "delay_ms": 40 * DAY_MS + 1})).code == 42201
        assert (await send(api, {"value": "v", "delay_level": 4})).code == 42201


async def test_stores_without_delays(other: Api) -> None:
    for asked in ({"delay_level": 1}, {"delay_ms": 5}, {"deliver_at": START_MS}):
        answer = await send(other, {"value": "v"}, {"value": "later", **asked})
        good, bad = answer.json["offsets"]
        assert (good["error_code"], bad["error_code"]) == (None, 42207)
        assert bad["error"].startswith(next(iter(asked)))
    for at_once in ({"delay_level": 0}, {"delay_ms": 0}):
        assert (await send(other, {"value": "v", **at_once})).status == 200
    assert (await send(other, {"value": "v"}, query="&delay_level=1")).code == 42207
    assert (await other.get("/delayed")).code == 42207
    assert (await other.call("DELETE", "/delayed/x")).code == 42207
    names = [each["name"] for each in (await other.get("/store")).json["services"]]
    assert "delivery" not in names


async def test_a_read_only_server_lists_what_waits(tmp_path: Path, clock: Clock) -> None:
    chosen = settings(tmp_path / "store")
    async with serving(chosen, opener("rocketmq", chosen, clock=clock), clock=clock) as api:
        await send(api, {"value": "v", "delay_level": 1})
    clock.now_ms += 5000
    only = opener("rocketmq", chosen, read_only=True, clock=clock)
    async with serving(chosen, only, clock=clock) as api:
        assert len((await api.get("/delayed")).json["delayed"]) == 1
        assert (await api.get("/store")).json["services"] == []
    async with serving(chosen, opener("rocketmq", chosen, clock=clock), clock=clock) as api:
        await until_waiting(api, 0)


async def test_readers_are_woken_though_another_level_waits_for_a_broker(
    api: Api, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    def check_offered(topic: str) -> None:
        if topic == "u":
            raise NotOffered("topic 'u' is compacted by a broker", feature="delay")

    await send(api, {"value": "v", "partition": 0, "delay_level": 2})
    held_up = {"records": [{"value": "held up", "partition": 0, "delay_level": 1}]}
    assert (await api.post("/topics/u?format=text", held_up)).status == 200
    monkeypatch.setattr(api.service.store, "check_offered", check_offered)
    path = "/topics/t/partitions/0/records?format=text&timeout=30000"
    reader = asyncio.create_task(api.get(path))
    await asyncio.sleep(0.05)
    clock.now_ms += 5000
    async with asyncio.timeout(10):
        assert [row["value"] for row in (await reader).json] == ["v"]
    await until_error(api, NotOffered.code)
    await until_waiting(api, 1)


async def test_what_is_due_waits_while_delivery_fails(
    api: Api, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise DiskFull("the disk is full", path="/data")

    store: Any = api.service.store
    with monkeypatch.context() as patched:
        patched.setattr(store, "append_run", full)
        await send(api, {"value": "v", "partition": 0, "delay_level": 1})
        clock.now_ms += 1500

        await until_error(api, DiskFull.code)
        assert (await service(api))["lag_ms"] == 500
        metrics = (await api.get("/metrics")).body.decode()
        assert 'logserver_service_lag_seconds{service="delivery"} 0.5' in metrics
    assert await fetched(api) == ["v"]
    await delivered_once_at(api, clock)
    assert (await service(api))["lag_ms"] == 0
