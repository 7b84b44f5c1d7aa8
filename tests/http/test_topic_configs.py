"""Topic configs: a config that limits which records are accepted is obeyed, a config without effect here is named."""

from __future__ import annotations

import base64
import time

import pytest

from tests.contract.batches import batch
from tests.http.harness import BATCH, Api, records

HOUR_MS = 3_600_000
BEFORE, AFTER = "message.timestamp.before.max.ms", "message.timestamp.after.max.ms"


def now_ms() -> int:
    """Return the time of this machine, which is also the server's time."""
    return time.time_ns() // 1_000_000


def on_kafka(api: Api) -> None:
    """Skip the test if the backend does not have Kafka's configs."""
    if api.keeps_messages:
        pytest.skip("RocketMQ has no such config")


async def limited(api: Api, **configs: object) -> None:
    """Create topic t with these configs."""
    answer = await api.call("PUT", "/topics/t", json={"partitions": 1, "configs": configs})
    assert answer.status == 201, answer.body


@pytest.mark.parametrize(
    ("config", "limit_ms", "good", "bad"),
    [
        (BEFORE, HOUR_MS, -HOUR_MS // 2, -2 * HOUR_MS),
        (BEFORE, 60_000, HOUR_MS, -HOUR_MS),
        (AFTER, HOUR_MS, HOUR_MS // 2, 2 * HOUR_MS),
        (AFTER, 60_000, -HOUR_MS, HOUR_MS),
        (AFTER, 0, -1000, HOUR_MS),
    ],
)
async def test_a_time_beyond_the_limit_is_refused_alone(
    api: Api, config: str, limit_ms: int, good: int, bad: int
) -> None:
    on_kafka(api)
    await limited(api, **{config: limit_ms})
    now = now_ms()
    body = {
        "records": [
            {"value": 1, "timestamp": now + good},
            {"value": 2, "timestamp": now + bad},
            {"value": 3},
            {"value": 4, "timestamp": now + bad},
        ]
    }
    answer = await api.post("/topics/t", body)
    assert answer.status == 200
    rows = answer.json["offsets"]
    assert [row["error_code"] for row in rows] == [None, 42206, None, 42206]
    assert f"{config}={limit_ms}" in rows[1]["error"]
    assert "timestamp" in rows[1]["error"]
    assert await api.values("t") == [1, 3]
    alone = await api.post("/topics/t", {"records": body["records"][1:2]})
    assert alone.status == 422
    assert (await api.post("/topics/t?acks=0", {"records": body["records"][1:2]})).status == 422


async def test_without_a_limit_every_time_is_taken(api: Api) -> None:
    """Without a limit every timestamp is accepted. A broker's default for times in the future, an hour, is not used."""
    await api.create("t")
    for time_ms in (0, now_ms() + 1000 * HOUR_MS):
        answer = await api.post("/topics/t", records(1, timestamp=time_ms))
        assert answer.status == 200


async def test_the_time_of_the_append_needs_no_limit(api: Api) -> None:
    on_kafka(api)
    await limited(api, **{BEFORE: 0, AFTER: 0, "message.timestamp.type": "LogAppendTime"})
    assert (await api.post("/topics/t", records(1, timestamp=0))).status == 200


async def test_a_limit_can_be_set_and_reset_later(api: Api) -> None:
    on_kafka(api)
    await api.create("t")
    for value, status in (("1000", 422), (None, 200)):
        changed = await api.call("PATCH", "/topics/t", json={"configs": {BEFORE: value}})
        assert changed.status == 200
        assert (await api.post("/topics/t", records(1, timestamp=5))).status == status


@pytest.mark.parametrize("value", ["-1", "soon", ""])
async def test_what_is_no_limit_is_refused(api: Api, value: str) -> None:
    answer = await api.call("PUT", "/topics/t", json={"configs": {BEFORE: value}})
    assert answer.code == 42205


@pytest.mark.parametrize("codec", [0, 1, 4])
async def test_whole_batches_too(api: Api, codec: int) -> None:
    """A single record beyond the limit rejects its whole batch: the timestamps here are years old."""
    if not api.service.store.capabilities.batch_bytes:
        pytest.skip("the backend has no record batches")
    await limited(api, **{BEFORE: HOUR_MS})
    data = batch("a", "b", codec=codec)
    answer = await api.post("/topics/t", data, content_type=BATCH)
    assert answer.code == 42206
    assert BEFORE in answer.json["message"]
    assert (await api.post("/topics/t?acks=0", data, content_type=BATCH)).code == 42206
    assert await api.values("t") == []


async def test_a_repeat_of_a_sequence_is_known_before_its_time_is_looked_at(api: Api) -> None:
    on_kafka(api)
    await limited(api)
    query = "/topics/t/partitions/0?producer_id=7&producer_epoch=0&sequence=0"
    body = records(1, timestamp=now_ms() - HOUR_MS)
    first = await api.post(query, body)
    await api.call("PATCH", "/topics/t", json={"configs": {BEFORE: "1000"}})
    assert (await api.post(query, body)).json["offsets"] == first.json["offsets"]


async def test_max_message_bytes_and_the_timestamp_type(api: Api) -> None:
    on_kafka(api)
    await limited(api, **{"max.message.bytes": 1000, "message.timestamp.type": "LogAppendTime"})
    answer = await api.post("/topics/t", records("x" * 2000, "y", timestamp=5))
    assert [row["error_code"] for row in answer.json["offsets"]] == [41302, None]
    rows = (await api.get("/topics/t/partitions/0/records")).json
    assert [base64.b64decode(row["value"]) for row in rows] == [b'"y"']
    assert rows[0]["timestamp"] > 5


INERT = {
    "kafka": (
        {"min.insync.replicas": 2, "unclean.leader.election.enable": True},
        {"min.insync.replicas": 1},
    ),
    "rocketmq": ({"perm": 4, "order": True}, {"perm": 6}),
}


async def test_configs_without_effect_are_named(api: Api) -> None:
    if api.backend not in INERT:
        pytest.skip("the model has none")
    named, harmless = INERT[api.backend]
    expected = f"topic configs are kept and have no effect here: {', '.join(named)}"
    made = await api.call("PUT", "/topics/t", json={"configs": named})
    assert (made.status, made.headers["X-Warnings"]) == (201, expected)
    again = await api.call("PATCH", "/topics/t", json={"configs": named})
    assert (again.status, again.headers["X-Warnings"]) == (200, expected)
    quiet = await api.call("PATCH", "/topics/t", json={"configs": harmless})
    assert (quiet.status, "X-Warnings" in quiet.headers) == (200, False)
    body = {
        "topic_name": "u",
        "configs": [{"name": name, "value": str(value)} for name, value in harmless.items()]
        + [{"name": next(iter(named)), "value": str(next(iter(named.values())))}],
    }
    made = await api.post(
        f"/v3/clusters/{api.cluster_id}/topics", body, content_type="application/json"
    )
    assert made.status == 201
    assert next(iter(named)) in made.headers["X-Warnings"]
    reported = (await api.get("/store")).json["capabilities"]["inert_configs"]
    assert next(iter(named)) in reported


V3_CHANGES = {
    "kafka": ("retention.ms", "60000", "segment.bytes", "1048576"),
    "memory": ("retention.ms", "60000", "segment.bytes", "1048576"),
    "rocketmq": ("order", "true", "perm", "4"),
}


async def test_configs_are_altered_by_v3(api: Api) -> None:
    name, value, other, other_value = V3_CHANGES[api.backend]
    await api.create("t")
    path = f"/v3/clusters/{api.cluster_id}/topics/t/configs"

    async def changed(body: object) -> int:
        answer = await api.post(f"{path}:alter", body, content_type="application/json")
        return 204 if answer.status == 204 else answer.code

    async def configs() -> dict[str, str]:
        return {one["name"]: one["value"] for one in (await api.get(path)).json["data"]}

    before = await configs()
    both = [
        {"name": name, "value": value},
        {"name": other, "value": other_value, "operation": "SET"},
    ]
    assert await changed({"data": both}) == 204
    assert await configs() == before | {name: value, other: other_value}
    assert await changed({"data": [{"name": name, "operation": "DELETE"}]}) == 204
    assert name not in (await configs()).keys() - before.keys()
    one = await api.call("PUT", f"{path}/{name}", json={"value": value})
    assert (one.status, one.body) == (204, b"")
    assert (await configs())[name] == value
    assert (await api.call("DELETE", f"{path}/{name}")).status == 204
    assert (await configs()).get(name) == before.get(name)
    now = await configs()
    wrong = {"name": "no.such.config", "value": "1"}
    assert await changed({"data": [{"name": name, "value": value}, wrong]}) == 42205
    assert await changed({"data": both + both}) == 42201
    assert await changed({"data": both, "validate_only": True}) == 42207
    assert await changed({"data": [{"name": name, "operation": "APPEND"}]}) == 42201
    assert await configs() == now


async def test_the_one_broker(api: Api) -> None:
    assert (await api.get("/brokers")).json == {"brokers": [1]}
    path = f"/v3/clusters/{api.cluster_id}/brokers"
    listed = (await api.get(path)).json
    assert listed["kind"] == "KafkaBrokerList"
    assert listed["data"] == [(await api.get(f"{path}/1")).json]
    host, port = api.url.removeprefix("http://").split(":")
    broker = listed["data"][0]
    assert (broker["broker_id"], broker["host"], broker["port"]) == (1, host, int(port))
    assert (broker["kind"], broker["rack"]) == ("KafkaBroker", None)
    plain = await api.call("GET", path, headers={"Host": "log.example"})
    assert (plain.json["data"][0]["host"], plain.json["data"][0]["port"]) == ("log.example", 80)
    for other in ("2", "x", "01"):
        assert (await api.get(f"{path}/{other}")).code == 404


@pytest.mark.parametrize("config", [{"no.such.config": "1"}, {"minInsyncReplicas": "2"}])
async def test_unknown_configs_are_refused(api: Api, config: dict[str, str]) -> None:
    assert (await api.call("PUT", "/topics/t", json={"configs": config})).code == 42205


async def test_compaction_is_kafkas(api: Api) -> None:
    """RocketMQ's compacted topics are read by no server here, so none is created."""
    config = (
        {"attributes": "cleanup.policy=COMPACTION"}
        if api.keeps_messages
        else {"cleanup.policy": "compact"}
    )
    answer = await api.call("PUT", "/topics/t", json={"configs": config})
    if api.backend != "kafka":
        assert answer.code == (42205 if api.backend == "memory" else 42207)
        assert (await api.get("/topics")).json == []
        return
    assert answer.status == 201
    records = {"records": [{"key": "aw==", "value": "dg=="}, {"value": "dg=="}]}
    refused = await api.call("POST", "/topics/t", json=records)
    assert refused.json["offsets"][0]["error_code"] is None
    assert "it has no key" in refused.json["offsets"][1]["error"]
    compaction = (await api.get("/store")).json["stats"]["compaction"]
    assert (compaction["partitions"], compaction["uncleanable"]) == (1, [])
    assert b"logserver_compaction_dirty_bytes 0.0" in (await api.get("/metrics")).body
