"""Consumer instances v2: the calls of the Kafka REST Proxy, on every backend."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from tests.http.groups.consumers import Consumer, consumer, produce
from tests.http.harness import JSON, V2, Api

# -- the sequence of calls of an existing client


async def test_the_calls_of_an_existing_client(api: Api) -> None:
    await api.post("/topics/jsontest", {"records": [{"value": {"foo": "bar"}}]})
    config = {"name": "my_consumer_instance", "format": "json", "auto.offset.reset": "earliest"}
    made = await api.post("/consumers/my_json_consumer", config, content_type=V2)
    base_uri = made.json["base_uri"]
    assert base_uri.startswith(api.url)
    me = Consumer(api, base_uri.removeprefix(api.url))
    await me.subscribe("jsontest")
    answer = await api.get(f"{me.path}/records", accept=JSON)
    assert answer.headers["Content-Type"] == JSON
    (row,) = answer.json
    assert (row["topic"], row["partition"], row["offset"]) == ("jsontest", row["partition"], 0)
    assert (row["key"], row["value"]) == (None, {"foo": "bar"})
    answer = await me.post(
        "offsets", {"offsets": [{"topic": "jsontest", "partition": row["partition"], "offset": 0}]}
    )
    assert (answer.status, answer.json) == (200, [])
    assert await me.committed() == {("jsontest", row["partition"]): 1}
    await me.delete()
    assert (await api.get(f"{me.path}/records")).code == 40403


async def test_a_trailing_slash_is_accepted(api: Api) -> None:
    await api.create("t")
    made = await api.post("/consumers/g/", {"name": "c"}, content_type=V2)
    assert made.status == 200
    path = "/consumers/g/instances/c"
    answer = await api.post(f"{path}/subscription/", {"topics": ["t"]}, content_type=V2)
    assert answer.status == 204
    assert (await api.get(f"{path}/records/?timeout=0")).json == []
    assert (await api.call("DELETE", f"{path}/")).status == 204


# -- instances and their config


async def test_numbers_and_booleans_may_be_text_and_unknown_settings_are_passed_over(
    api: Api,
) -> None:
    await api.create("t")
    me = await consumer(
        api,
        auto_commit_enable="false",
        fetch_min_bytes="1",
        consumer_request_timeout_ms="10",
        session_timeout_ms="10000",
    )
    await me.done("assignments", {"partitions": [{"topic": "t", "partition": "0"}]})
    assert await me.partitions() == [("t", 0)]
    await produce(api, "t", 1, 2)
    answer = await me.post(
        "offsets", {"offsets": [{"topic": "t", "partition": "0", "offset": "0"}]}
    )
    assert answer.status == 200
    assert await me.committed() == {("t", 0): 1}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("format", "avro"),
        ("auto.offset.reset", "somewhere"),
        ("auto.commit.enable", "maybe"),
        ("fetch.min.bytes", -2),
        ("fetch.min.bytes", "many"),
        ("fetch.max.bytes", 0),
        ("consumer.request.timeout.ms", 10**12),
    ],
)
async def test_a_bad_setting_is_named(api: Api, name: str, value: object) -> None:
    answer = await api.post("/consumers/g", {name: value}, content_type=V2)
    assert answer.code == 42204
    assert answer.json["name"] == name
    assert str(value) in answer.json["message"]


async def test_an_instance_without_a_name_gets_one_and_a_name_only_once(api: Api) -> None:
    first = await api.call("POST", "/consumers/g")
    second = await api.call("POST", "/consumers/g")
    assert first.status == second.status == 200
    assert first.json["instance_id"] != second.json["instance_id"]
    await consumer(api)
    assert (await api.post("/consumers/g", {"name": "c"}, content_type=V2)).code == 40902
    await consumer(api, group="other")


async def test_names(api: Api) -> None:
    answer = await api.post("/consumers/g", {"name": "a b/c"}, content_type=V2)
    assert answer.json["base_uri"] == f"{api.url}/consumers/g/instances/a%20b%2Fc"
    assert (await api.get("/consumers/g/instances/a%20b%2Fc/assignments")).status == 200
    for name in ("", "x" * 256, "a\nb", ".", ".."):
        assert (await api.post("/consumers/g", {"name": name}, content_type=V2)).code == 42203
    for group in ("x" * 256, "a%0Ab", "%2E", "%2E%2E"):
        assert (await api.call("POST", f"/consumers/{group}")).code == 42203
    allowed = 422 if api.keeps_messages else 200
    assert (await api.call("POST", "/consumers/a.b@c")).status == allowed


@pytest.mark.parametrize(
    ("host", "reported"),
    [
        (b"Host: broker.example:8082\r\n", "broker.example:8082"),
        (b"Host: [::1]:8082\r\n", "[::1]:8082"),
        (b"Host: \r\n", None),
        (b"", None),
        (b'Host: a"<b>\r\n', 400),
        (b"Host: a/b\r\n", 400),
        (b"Host: a:b\r\n", 400),
    ],
)
async def test_the_base_uri_can_be_called(
    api: Api, host: bytes, reported: str | int | None
) -> None:
    """The base URI uses the Host header; an invalid Host header is rejected because it would become part of the URI."""
    async with api.connection() as (reader, writer):
        writer.write(b"POST /consumers/g HTTP/1.0\r\n" + host + b"Content-Length: 0\r\n\r\n")
        head, _, body = (await reader.read()).partition(b"\r\n\r\n")
    answer = msgspec.json.decode(body)
    if reported == 400:
        assert (head.split()[1], answer["error_code"]) == (b"400", 400)
        assert (await api.get("/groups")).json == []
    else:
        base = api.url if reported is None else f"http://{reported}"
        assert answer["base_uri"] == f"{base}/consumers/g/instances/{answer['instance_id']}"


async def test_the_number_of_instances_is_bounded(api: Api) -> None:
    object.__setattr__(api.service.settings, "max_consumer_instances", 2)
    await consumer(api, name="a")
    kept = await consumer(api, name="b")
    refused = await api.call("POST", "/consumers/g")
    assert refused.code == 42901
    assert refused.headers["Retry-After"] == "1"
    assert "max_consumer_instances" in refused.json["message"]
    await kept.delete()
    await consumer(api, name="c")


@pytest.mark.parametrize(
    ("method", "call", "body"),
    [
        ("DELETE", "", None),
        ("GET", "/subscription", None),
        ("POST", "/subscription", {"topics": ["t"]}),
        ("DELETE", "/subscription", None),
        ("GET", "/assignments", None),
        ("POST", "/assignments", {"partitions": []}),
        ("GET", "/records", None),
        ("GET", "/offsets", None),
        ("POST", "/offsets", None),
        ("POST", "/positions", {"offsets": []}),
        ("POST", "/positions/beginning", {"partitions": []}),
        ("POST", "/positions/end", {"partitions": []}),
    ],
)
async def test_an_unknown_instance_is_40403(api: Api, method: str, call: str, body: object) -> None:
    options: dict[str, Any] = {} if body is None else {"json": body}
    answer = await api.call(method, f"/consumers/g/instances/nobody{call}", **options)
    assert answer.code == 40403
    assert answer.json["instance"] == "nobody"


async def test_bodies_of_the_wrong_shape_are_refused(api: Api) -> None:
    me = await consumer(api)
    for call, body, code in (
        ("subscription", b"{", 40000),
        ("subscription", {}, 42201),
        ("subscription", {"topics": ["t"], "topic_pattern": "t"}, 42201),
        ("subscription", {"topics": "t"}, 42201),
        ("subscription", {"topics": ["x"] * 1001}, 42201),
        ("subscription", {"topic_pattern": "(a"}, 42201),
        ("subscription", {"topic_pattern": "(?!a)b"}, 42201),
        ("assignments", {"partitions": [{"topic": "t"}]}, 42201),
        ("assignments", {"partitions": [{"topic": "no", "partition": 0}]}, 40401),
        ("positions", {"offsets": [{"topic": "t", "partition": 0, "offset": -1}]}, 42201),
        ("offsets", {"offsets": [{"topic": "t", "partition": 0, "offset": -1}]}, 42201),
        ("offsets", {"offsets": [{"topic": "no", "partition": 0, "offset": 1}]}, 40401),
    ):
        assert (await me.post(call, body)).code == code, (call, body)
    assert (await me.post("subscription")).code == 42201
    assert (await api.post(f"{me.path}/offsets", {}, content_type="text/plain")).code == 415


# -- subscriptions and assignments


async def test_subscription_and_assignment_exclude_each_other(api: Api) -> None:
    await api.create("t")
    me = await consumer(api)
    partitions = {"partitions": [{"topic": "t", "partition": 0}]}
    assert (await api.get(f"{me.path}/records?timeout=0")).code == 40903
    await me.subscribe("t", "later")
    assert (await api.get(f"{me.path}/subscription")).json == {"topics": ["later", "t"]}
    assert (await me.post("assignments", partitions)).code == 40903
    assert (await me.post("subscription", {"topic_pattern": "t.*"})).code == 40903
    assert (await api.call("DELETE", f"{me.path}/subscription")).status == 204
    assert (await api.get(f"{me.path}/subscription")).json == {"topics": []}
    assert await me.partitions() == []
    await me.done("assignments", partitions)
    assert (await me.post("subscription", {"topics": ["t"]})).code == 40903
    assert await me.partitions() == [("t", 0)]
    await api.call("DELETE", f"{me.path}/subscription")
    await me.done("subscription", {"topic_pattern": "t.*"})
    assert (await api.get(f"{me.path}/subscription")).json == {"topics": ["t"]}


async def test_a_pattern_takes_what_comes_and_loses_what_goes(api: Api) -> None:
    await api.create("orders-eu")
    await api.create("other")
    me = await consumer(api)
    await me.done("subscription", {"topic_pattern": "orders-(eu|us)"})
    assert await me.partitions() == [("orders-eu", 0)]
    waiting = asyncio.create_task(me.values("timeout=20000"))
    await api.until_waiting()
    await api.create("orders-us")
    await produce(api, "orders-us", "new")
    assert await waiting == ["new"]
    assert await me.partitions() == [("orders-eu", 0), ("orders-us", 0)]
    await api.call("DELETE", "/topics/orders-eu")
    assert await me.partitions() == [("orders-us", 0)]


async def test_added_partitions_are_assigned_at_once(api: Api) -> None:
    await api.create("t")
    me = await consumer(api)
    await me.subscribe("t")
    assert await me.partitions() == [("t", 0)]
    assert (await api.call("POST", "/topics/t/partitions", json={"partitions": 3})).status == 200
    assert await me.partitions() == [("t", 0), ("t", 1), ("t", 2)]
    await produce(api, "t", "late", partition=2)
    assert await me.values() == ["late"]


async def test_a_hard_pattern_holds_nobody_up(api: Api) -> None:
    await api.create("a" * 60)
    me = await consumer(api)
    async with asyncio.timeout(2):
        await me.done("subscription", {"topic_pattern": "(a+)+b|(a|aa)+c|.*.*.*.*d"})
    assert await me.partitions() == []


async def test_partitions_are_shared_among_three_instances(api: Api) -> None:
    await api.create("t", partitions=4)
    members = [await consumer(api, name=name) for name in ("a", "b", "c")]
    await members[0].subscribe("t")
    assert len(await members[0].partitions()) == 4
    await members[1].subscribe("t")
    assert [len(await member.partitions()) for member in members] == [2, 2, 0]
    await members[2].subscribe("t")
    shares = [await member.partitions() for member in members]
    assert sorted(len(share) for share in shares) == [1, 1, 2]
    given = sorted(partition for share in shares for partition in share)
    assert given == [("t", number) for number in range(4)]
    for number in range(4):
        await produce(api, "t", f"v{number}", partition=number)
    seen = [value for member in members for value in await member.values()]
    assert sorted(seen) == ["v0", "v1", "v2", "v3"]
    await members[1].delete()
    left = [await member.partitions() for member in (members[0], members[2])]
    assert [len(share) for share in left] == [2, 2]
    assert set(left[0]) >= set(shares[0]) or set(left[1]) >= set(shares[2])


async def test_a_new_owner_goes_on_where_the_old_one_stood(api: Api) -> None:
    await api.create("t", partitions=2)
    for number in range(2):
        await produce(api, "t", 1, 2, 3, partition=number)
    first = await consumer(api, name="a")
    await first.subscribe("t")
    assert len(await first.values()) == 6
    second = await consumer(api, name="b")
    await second.subscribe("t")
    assert len(await second.partitions()) == 1
    assert await second.values() == []
    for number in range(2):
        await produce(api, "t", "new", partition=number)
    assert await first.values() == ["new"]
    assert await second.values() == ["new"]


async def test_without_auto_commit_a_new_owner_begins_at_the_commit(api: Api) -> None:
    await api.create("t")
    await produce(api, "t", 1, 2, 3)
    first = await consumer(api, name="a", auto_commit_enable=False)
    await first.subscribe("t")
    assert await first.values() == [1, 2, 3]
    body = {"offsets": [{"topic": "t", "partition": 0, "offset": 0}]}
    assert (await first.post("offsets", body)).status == 200
    await first.delete()
    second = await consumer(api, name="b", auto_commit_enable=False)
    await second.subscribe("t")
    assert await second.values() == [2, 3]


async def test_a_poll_that_waits_gives_up_what_goes_to_another(api: Api) -> None:
    await api.create("t", partitions=2)
    first, second = await consumer(api, name="a"), await consumer(api, name="b")
    await first.subscribe("t")
    older = asyncio.create_task(first.poll("timeout=20000"))
    await api.until_waiting()
    await second.subscribe("t")
    newer = asyncio.create_task(second.poll("timeout=20000"))
    await api.until_waiting(2)
    shares = [await first.partitions(), await second.partitions()]
    for number in range(2):
        await produce(api, "t", number, partition=number)
    for polled, share in ((older, shares[0]), (newer, shares[1])):
        assert [(row["topic"], row["partition"]) for row in await polled] == share


# -- commits and positions


async def test_a_commit_of_3_stores_4_and_no_body_commits_what_was_delivered(api: Api) -> None:
    await api.create("t", partitions=2)
    await produce(api, "t", *range(6))
    me = await consumer(api, auto_commit_enable=False)
    await me.subscribe("t")
    body = {"offsets": [{"topic": "t", "partition": 0, "offset": 3, "metadata": "mine"}]}
    assert (await me.post("offsets", body)).json == []
    assert await me.committed() == {("t", 0): 4}
    await me.poll()
    assert await me.committed("?topic=t&partition=0") == {("t", 0): 4}
    assert (await me.post("offsets")).json == []
    assert await me.committed() == {("t", 0): 6, ("t", 1): 0}
    assert (await me.post("offsets?async=true")).json == []
    assert (await me.post("offsets?async=later")).code == 40000
    asked = {"partitions": [{"topic": "t", "partition": 1}]}
    answer = await api.call("GET", f"{me.path}/offsets", json=asked)
    assert [row["offset"] for row in answer.json["offsets"]] == [0]
    assert await me.committed("?topic=t") == {("t", 0): 6, ("t", 1): 0}
    assert (await api.get(f"{me.path}/offsets?partition=1")).code == 40000
    assert (await api.get(f"{me.path}/offsets?topic=no")).code == 40401


async def test_nothing_behind_the_end_is_committed_or_sought(api: Api) -> None:
    await api.create("t")
    await produce(api, "t", 1)
    me = await consumer(api)
    await me.subscribe("t")
    row = {"topic": "t", "partition": 0, "offset": 1}
    assert (await me.post("offsets", {"offsets": [row]})).code == 41601
    assert (await me.post("positions", {"offsets": [{**row, "offset": 2}]})).code == 41601
    await me.done("positions", {"offsets": [row]})


async def test_positions(api: Api) -> None:
    await api.create("t", partitions=2)
    path = "/topics/t/partitions/0"
    rows = [{"value": number, "timestamp": 1000 + number} for number in range(4)]
    for row in rows:
        await api.post(path, {"records": [row]})
    me = await consumer(api)
    await me.subscribe("t")
    at = {"topic": "t", "partition": 0}
    await me.done("positions", {"offsets": [{**at, "offset": 2}]})
    assert await me.values() == [2, 3]
    await me.done("positions/beginning", {"partitions": [at]})
    assert await me.values() == [0, 1, 2, 3]
    await me.done("positions/beginning", {"partitions": []})
    await me.done("positions/end", {"partitions": [at]})
    assert await me.values() == []
    if not api.keeps_messages:  # a message's timestamp is its store time
        await me.done("positions", {"timestamps": [{**at, "timestamp": 1003}]})
        assert await me.values() == [3]
    await me.done("positions", {"timestamps": [{**at, "timestamp": 1 << 60}]})
    assert await me.values() == []
    strange = {"topic": "t", "partition": 7}
    assert (await me.post("positions", {"offsets": [{**strange, "offset": 0}]})).code == 40903
    assert (await me.post("positions/end", {"partitions": [strange]})).code == 40903


async def test_a_position_that_is_gone_is_reset(api: Api) -> None:
    await api.create("t")
    await produce(api, "t", 1, 2, 3)
    me = await consumer(api)
    await me.subscribe("t")
    await me.values()
    await api.call("DELETE", "/topics/t")
    assert await me.partitions() == []
    await api.create("t")
    await produce(api, "t", "again")
    assert await me.values() == ["again"]


async def test_an_assigned_topic_that_is_deleted_and_made_again_is_read_from_its_beginning(
    api: Api,
) -> None:
    """The reader must not keep its old position: it would skip new records and commit offsets that were never read."""
    for topic in ("gone", "kept"):
        await api.create(topic)
        await produce(api, topic, 1, 2)
    reader = await consumer(api)
    partitions = [{"topic": topic, "partition": 0} for topic in ("gone", "kept")]
    await reader.done("assignments", {"partitions": partitions})
    assert sorted(await reader.values()) == [1, 1, 2, 2]
    await api.call("DELETE", "/topics/gone")
    assert await reader.values() == []
    assert await reader.partitions() == [("gone", 0), ("kept", 0)]
    await api.create("gone")
    await produce(api, "gone", 3, 4, 5)
    await produce(api, "kept", 6)
    assert sorted(await reader.values() + await reader.values()) == [3, 4, 5, 6]


async def test_a_deleted_topic_does_not_hold_up_a_reader_without_a_reset(api: Api) -> None:
    for topic in ("gone", "kept"):
        await api.create(topic)
    reader = await consumer(api, auto_offset_reset="none")
    partitions = [{"topic": topic, "partition": 0} for topic in ("gone", "kept")]
    await reader.done("assignments", {"partitions": partitions})
    await reader.done("positions/beginning", {"partitions": []})
    await api.call("DELETE", "/topics/gone")
    await produce(api, "kept", 1)
    assert await reader.values() == [1]


async def test_deleting_an_instance_commits_what_was_delivered(api: Api) -> None:
    await api.create("t")
    await produce(api, "t", 1, 2)
    me = await consumer(api)
    await me.subscribe("t")
    assert await me.values() == [1, 2]
    assert await me.committed() == {}
    await me.delete()
    again = await consumer(api)
    await again.subscribe("t")
    assert await again.committed() == {("t", 0): 2}
    assert await again.values() == []


# -- metrics


async def test_metrics_count_instances_and_groups(api: Api) -> None:
    await consumer(api, name="a")
    await consumer(api, name="b")
    text = (await api.get("/metrics")).body.decode()
    assert "logserver_consumer_instances 2.0" in text
    assert "logserver_groups 1.0" in text
