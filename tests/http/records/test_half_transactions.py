"""Transactions on RocketMQ's format over HTTP: half messages, checks, restarts, and every wrong request."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from api.http.errors import NOT_OFFERED
from storage import RawMessage, SupportsHalfMessages, SupportsRawMessages, TopicPartition
from storage.errors import DiskFull
from tests.contract.harness import START_MS, ManualClock
from tests.http.harness import BATCH, JSON, V2, Answer, Api, opener, records, serving, settings

CHECK_MS = 30_000
HALF = TopicPartition("RMQ_SYS_TRANS_HALF_TOPIC", 0)
CLIENT_ID = "0A0000010000000000000000000000001"


class Place:
    """A directory and a clock, over several servers."""

    def __init__(self, path: Path) -> None:
        self.clock = ManualClock()
        self.chosen = settings(path, max_transactional_ids=5)

    def serving(self, *, read_only: bool = False) -> Any:
        open_it = opener("rocketmq", self.chosen, clock=self.clock, read_only=read_only)
        return serving(self.chosen, open_it, clock=self.clock)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path / "store")


@pytest.fixture
async def api(place: Place) -> AsyncIterator[Api]:
    async with place.serving() as api:
        await api.create("t", 2)
        yield api


async def begin(api: Api, body: object = b"") -> str:
    answer = await api.post("/transactions", body)
    assert answer.status == 201, answer.body
    assert answer.json == {"id": answer.json["id"], "producer_id": None, "epoch": None}
    found: str = answer.json["id"]
    return found


async def put(api: Api, transaction: str, *values: object, at: int = 0) -> Answer:
    path = f"/topics/t/partitions/{at}?transaction={transaction}"
    return await api.post(path, records(*values))


async def end(api: Api, transaction: str, how: str) -> Answer:
    return await api.call("POST", f"/transactions/{transaction}/{how}")


async def values(api: Api, at: int = 0) -> list[Any]:
    answer = await api.get(f"/topics/t/partitions/{at}/records", accept=JSON)
    return [row["value"] for row in answer.json]


async def rows(api: Api, state: str = "") -> Sequence[dict[str, Any]]:
    answer = await api.get("/transactions" + (f"?state={state}" if state else ""))
    assert answer.status == 200, answer.body
    found: list[dict[str, Any]] = answer.json
    return found


def client_half(api: Api) -> None:
    """Append what a broker makes of the message of a RocketMQ client."""
    store = api.service.store
    assert isinstance(store, SupportsRawMessages)
    properties = (
        f"UNIQ_KEY\1{CLIENT_ID}\2TRAN_MSG\1true\2PGROUP\1shop\2REAL_TOPIC\1t\2REAL_QID\0011\2"
    )
    half = RawMessage(b'"theirs"', properties.encode(), 0, 0, START_MS)
    store.append_messages(HALF, [half])


async def step(api: Api, now_ms: int) -> None:
    """Make a step of the service, as the upkeep does in its thread."""
    (service,) = api.service.http_transactions.services()
    await asyncio.to_thread(service.step, now_ms)
    await asyncio.sleep(0)


def check(api: Api, now_ms: int) -> None:
    store = api.service.store
    assert isinstance(store, SupportsHalfMessages)
    store.half_messages.check(now_ms)


@pytest.mark.parametrize("how", ["commit", "rollback"])
@pytest.mark.parametrize("acks", ["1", "all"])
async def test_all_or_nothing(api: Api, how: str, acks: str) -> None:
    transaction = await begin(api)
    many = await api.post(
        f"/topics/t?transaction={transaction}&acks={acks}",
        {
            "records": [
                {"value": 1, "partition": 0},
                {"value": 2, "partition": 1},
                {"value": 3, "partition": 0},
            ]
        },
    )
    assert many.status == 200, many.body
    assert [(row["partition"], row["offset"]) for row in many.json["offsets"]] == [
        (0, None),
        (1, None),
        (0, None),
    ]
    (row,) = await rows(api, "Ongoing")
    assert row["message_id"] == many.json["offsets"][0]["message_id"]
    assert (row["id"], row["messages"], row["checks"]) == (transaction, 3, 0)
    assert row["partitions"] == [{"topic": "t", "partition": 0}, {"topic": "t", "partition": 1}]
    one = await put(api, transaction, 4)
    assert one.json["offsets"][0]["offset"] is None
    await api.post("/topics/t/partitions/0", records("plain"))
    assert await values(api) == ["plain"]
    state = "CompleteCommit" if how == "commit" else "CompleteAbort"
    for _ in range(2):
        answer = await end(api, transaction, how)
        assert answer.status == 200, answer.body
        assert answer.json == {"id": transaction, "state": state}
    assert await values(api) == (["plain", 1, 3, 4] if how == "commit" else ["plain"])
    assert await values(api, 1) == ([2] if how == "commit" else [])
    other = await end(api, transaction, "rollback" if how == "commit" else "commit")
    assert (other.code, other.json["state"]) == (40903, state)
    late = await put(api, transaction, "late")
    assert (late.code, late.json["state"]) == (40903, state)
    assert await rows(api) == []


@pytest.mark.parametrize("how", ["commit", "rollback"])
async def test_a_transaction_without_a_message(api: Api, how: str) -> None:
    transaction = await begin(api, {"transactional_id": "shop", "timeout_ms": 5})
    (row,) = await rows(api)
    assert (row["state"], row["transactional_id"], row["started_ms"]) == ("Ongoing", "shop", None)
    assert "message_id" not in row
    for _ in range(2):
        assert (await end(api, transaction, how)).status == 200
    assert (await end(api, transaction, {"commit": "rollback"}.get(how, "commit"))).code == 40903
    assert (await put(api, transaction, 1)).code == 40903


async def test_an_unused_transaction_is_forgotten_after_its_time(api: Api, place: Place) -> None:
    transaction = await begin(api, {"timeout_ms": 5})
    used = await begin(api, {"timeout_ms": 5})
    await put(api, used, 1)
    await asyncio.to_thread(api.service.http_transactions.step, place.clock.now_ms + 6)
    await asyncio.sleep(0)
    assert (await put(api, transaction, 1)).code == 40406
    assert [row["id"] for row in await rows(api)] == [used]


@pytest.mark.parametrize("transaction", ["1-2", "x", "%20", "9" * 400])
async def test_an_unknown_transaction(api: Api, transaction: str) -> None:
    for answer in (
        await put(api, transaction, 1),
        await end(api, transaction, "commit"),
        await end(api, transaction, "rollback"),
    ):
        assert answer.code == 40406


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"transactional_id": "a b"}, "transactional_id"),
        ({"transactional_id": "ä"}, "transactional_id"),
        ({"timeout_ms": 72 * 3_600_000 + 1}, "timeout_ms"),
    ],
)
async def test_a_bad_beginning(api: Api, body: object, field: str) -> None:
    answer = await api.post("/transactions", body)
    assert answer.code == 42201
    assert answer.json["field"] == field


async def test_more_transactions_than_the_limit(api: Api) -> None:
    begun = [await begin(api) for _ in range(5)]
    assert (await api.post("/transactions", b"")).code == 42901
    await end(api, begun[0], "rollback")
    await begin(api)


async def test_what_does_not_go_with_a_transaction(api: Api) -> None:
    transaction = await begin(api)
    body = {"group": "g", "offsets": [{"topic": "t", "partition": 0, "offset": 0}]}
    assert (await api.post(f"/transactions/{transaction}/offsets", body)).code == NOT_OFFERED
    path = f"/topics/t/partitions/0?transaction={transaction}"
    for query, code in (
        ("&sequence=0", 40000),
        ("&producer_id=1&producer_epoch=0", 40000),
        ("&acks=0", 40000),
        ("&delay_ms=5", 42201),
    ):
        assert (await api.post(path + query, records(1))).code == code, query
    delayed = {"records": [{"value": 1}, {"value": 2, "delay_level": 1}]}
    assert (await api.post(path, delayed)).code == 42201
    assert (await api.post(path, b"x", content_type=BATCH)).code == NOT_OFFERED
    assert (await api.post(path, {"records": [{"value": 1}, {"value": None}]})).code == 42206
    assert (await rows(api))[0]["messages"] == 0
    assert (await put(api, transaction, 1)).status == 200
    missing = await api.post(f"/topics/t/partitions/9?transaction={transaction}", records(1))
    assert missing.code == 40402


async def test_a_topic_is_created_for_a_transaction(api: Api) -> None:
    transaction = await begin(api)
    answer = await api.post(f"/topics/new?transaction={transaction}", records(1))
    assert answer.status == 200, answer.body
    await end(api, transaction, "commit")
    number = answer.json["offsets"][0]["partition"]
    assert await api.values("new", number) == [1]


async def test_a_restart_keeps_transactions_and_outcomes(place: Place) -> None:
    async with place.serving() as api:
        await api.create("t", 2)
        transaction, ended, empty = [await begin(api, {"transactional_id": "g"}) for _ in range(3)]
        await put(api, transaction, 1)
        await put(api, ended, 2)
        await end(api, ended, "commit")
        before = await rows(api)
    async with place.serving(read_only=True) as api:
        assert await rows(api) == [row for row in before if row["id"] == transaction]
        assert (await end(api, transaction, "commit")).code == 50301
    async with place.serving() as api:
        assert (await put(api, transaction, 3)).status == 200
        assert (await end(api, empty, "commit")).code == 40406
        for how, status in (("commit", 200), ("rollback", 409)):
            assert (await end(api, ended, how)).status == status
        assert (await put(api, ended, 9)).code == 40903
        assert (await end(api, transaction, "commit")).status == 200
        assert await values(api) == [2, 1, 3]


async def test_unknown_transactions_are_polled_and_ended_by_their_producers(
    api: Api, place: Place
) -> None:
    begun = [await begin(api, {"transactional_id": f"g{n}", "timeout_ms": 1000}) for n in range(2)]
    for transaction in begun:
        await put(api, transaction, 1)
    client_half(api)
    assert await rows(api, "unknown") == []
    place.clock.now_ms += 1001
    assert [row["id"] for row in await rows(api, "unknown")] == begun
    place.clock.now_ms += CHECK_MS
    check(api, place.clock.now_ms)
    found = await rows(api, "Unknown")
    assert [(row["id"], row["transactional_id"], row["checks"]) for row in found] == [
        (begun[0], "g0", 1),
        (begun[1], "g1", 1),
        (CLIENT_ID, "shop", 1),
    ]
    assert await rows(api, "Ongoing") == []
    assert (await put(api, CLIENT_ID, "no")).code == 42201
    for transaction, how in zip((*begun, CLIENT_ID), ("commit", "rollback", "commit"), strict=True):
        assert (await end(api, transaction, how)).status == 200
    assert (await values(api), await values(api, 1)) == ([1], ["theirs"])
    assert await rows(api) == []


async def test_a_discarded_transaction_has_ended(api: Api, place: Place) -> None:
    transaction = await begin(api, {"timeout_ms": 1})
    await put(api, transaction, 1)
    for _ in range(16):
        place.clock.now_ms += CHECK_MS
        await asyncio.to_thread(api.service.http_transactions.step, place.clock.now_ms)
    await asyncio.sleep(0)
    for answer in (await put(api, transaction, 2), await end(api, transaction, "commit")):
        assert (answer.code, answer.json["state"]) == (40903, "Discarded")
    topic = await api.get("/topics/TRANS_CHECK_MAX_TIME_TOPIC/partitions/0/records", accept=JSON)
    assert [row["value"] for row in topic.json] == [1]
    assert await values(api) == []


async def test_requests_at_the_same_time(api: Api) -> None:
    """Appends that are under way are in the transaction; a repeat that overtakes its request gets the same answer."""
    transaction = await begin(api)
    puts = [put(api, transaction, number) for number in range(20)]
    answers = await asyncio.gather(*puts, *(end(api, transaction, "commit") for _ in range(3)))
    stored = sum(answer.status == 200 for answer in answers[:20])
    assert [answer.status for answer in answers[20:]] == [200] * 3
    assert len(await values(api)) == stored
    assert await rows(api) == []


async def test_a_full_disk_in_a_commit(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    transaction = await begin(api)
    await put(api, transaction, 1)
    store: Any = api.service.store
    append = store.append_messages

    def full(*_args: object, **_options: object) -> None:
        raise DiskFull("no space", path="x")

    monkeypatch.setattr(store, "append_messages", full)
    assert (await end(api, transaction, "commit")).code == 50701
    monkeypatch.setattr(store, "append_messages", append)
    assert (await put(api, transaction, 2)).status == 200
    assert (await end(api, transaction, "commit")).status == 200
    assert await values(api) == [1, 2]


async def test_a_late_transaction_whose_appends_failed_is_forgotten(
    place: Place, api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would count among the `max_transactional_ids` until a restart."""

    def full(*_args: object, **_options: object) -> None:
        raise DiskFull("no space", path="x")

    kept = await begin(api)
    await put(api, kept, 1)
    failed = await begin(api)
    with monkeypatch.context() as patch:
        patch.setattr(api.service.store, "append", full)
        patch.setattr(api.service.store, "append_group", full, raising=False)
        assert (await put(api, failed, 1)).code == 50701
    place.clock.now_ms += 61_000
    await step(api, place.clock.now_ms)
    assert [row["id"] for row in await rows(api)] == [kept]
    assert (await put(api, failed, 1)).code == 40406


async def test_a_commit_to_a_deleted_topic_can_be_rolled_back(api: Api) -> None:
    transaction = await begin(api)
    await put(api, transaction, 1)
    assert (await api.call("DELETE", "/topics/t")).status == 204
    assert (await end(api, transaction, "commit")).code == 40401
    assert (await end(api, transaction, "rollback")).status == 200
    assert "t" not in (await api.get("/topics")).json


async def test_the_progress_of_the_check_is_no_client_s(place: Place, api: Api) -> None:
    """At the end of the queue, a start would find no transaction."""
    group, topic = "CID_RMQ_SYS_TRANS", "RMQ_SYS_TRANS_HALF_TOPIC"
    await put(api, await begin(api), 1)
    path = f"/groups/{group}/offsets"
    everything = {"topic": topic, "to": "latest"}
    assert (await api.call("PUT", path, json=everything)).code == 42203
    check(api, place.clock.now_ms)
    assert (await api.call("PUT", path, json={"to": "latest"})).code == 42203
    assert (await api.call("DELETE", f"/groups/{group}")).code == 42203
    assert (await api.post(f"/consumers/{group}", {"name": "c"}, content_type=V2)).code == 42203
    assert len(await rows(api)) == 1


async def test_the_check_is_a_service(api: Api) -> None:
    answer = await api.get("/store")
    (service,) = [row for row in answer.json["services"] if row["name"] == "transactions"]
    assert service["interval_ms"] == CHECK_MS
    await put(api, await begin(api), 1)
    await rows(api)
    assert "logserver_open_transactions 1.0" in (await api.get("/metrics")).body.decode()


@pytest.mark.parametrize("topic", ["RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC"])
async def test_the_state_of_transactions_cannot_be_deleted(api: Api, topic: str) -> None:
    transaction = await begin(api)
    await put(api, transaction, 1)
    await end(api, transaction, "rollback")
    assert (await api.call("DELETE", f"/topics/{topic}")).code == 42203
    assert (await api.call("DELETE", "/topics/t")).status == 204
    assert await rows(api) == []
