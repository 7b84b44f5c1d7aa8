"""Administration of groups: list, describe with lag, reset, delete; expiry, restart, read-only."""

from __future__ import annotations

import json
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from tests.http.groups.consumers import consumer, produce
from tests.http.harness import ONE_PARTITION, Api, opener, serving, settings


async def group(api: Api, name: str = "g") -> dict[str, Any]:
    """Return the description of a group."""
    answer = await api.get(f"/groups/{name}")
    assert answer.status == 200, answer.body
    described: dict[str, Any] = answer.json
    return described


async def reset(api: Api, body: object, name: str = "g") -> dict[tuple[str, int], int]:
    """Reset the group's offsets; return the offsets after the reset."""
    answer = await api.call("PUT", f"/groups/{name}/offsets", json=body)
    assert answer.status == 200, answer.body
    return {(row["topic"], row["partition"]): row["offset"] for row in answer.json["offsets"]}


async def refused(api: Api, body: object, name: str = "g") -> int:
    """Return the error code of a reset that is rejected."""
    return (await api.call("PUT", f"/groups/{name}/offsets", json=body)).code


async def test_the_topic_of_the_offsets_is_there_from_the_first_commit_on(api: Api) -> None:
    """Where offsets are records, their topic is listed, described and read like any other, without a restart."""
    await api.create("t")
    await produce(api, "t", 1)
    me = await consumer(api, auto_commit_enable=False)
    await me.post("offsets", {"offsets": [{"topic": "t", "partition": 0, "offset": 0}]})
    name = getattr(api.service.store, "offsets_topic", None)
    assert (await api.get("/topics")).json == sorted({"t", name or "t"})
    if name is not None:
        numbers = [
            row["partition"] for row in (await api.get(f"/topics/{name}")).json["partitions"]
        ]
        path = f"/topics/{name}/partitions"
        pages = [(await api.get(f"{path}/{number}/records")).json for number in numbers]
        assert sum(map(len, pages)) == 1


async def test_a_group_tells_its_members_and_its_lag(api: Api) -> None:
    await api.create("t", partitions=2)
    await produce(api, "t", 1, 2, 3)
    assert (await api.get("/groups")).json == []
    assert (await api.get("/groups/g")).code == 40405
    me = await consumer(api, auto_commit_enable=False)
    other = await consumer(api, name="d")
    await me.subscribe("t")
    await other.done("subscription", {"topic_pattern": "t"})
    await me.post(
        "offsets", {"offsets": [{"topic": "t", "partition": 0, "offset": 0, "metadata": "m"}]}
    )
    assert (await api.get("/groups")).json == ["g"]
    described = await group(api)
    assert described["name"] == "g"
    assert described["generation"] == 2
    assert described["lag"] == 2
    shares = {row["instance_id"]: row["partitions"] for row in described["members"]}
    assert [row["topics"] for row in described["members"]] == [["t"], None]
    assert [row["topic_pattern"] for row in described["members"]] == [None, "t"]
    owner = {part["partition"]: name for name, share in shares.items() for part in share}
    first, second = described["partitions"]
    assert first == {
        "topic": "t",
        "partition": 0,
        "committed": 1,
        "metadata": "" if api.keeps_messages else "m",  # RocketMQ's file cannot store metadata
        "beginning_offset": 0,
        "end_offset": 3,
        "lag": 2,
        "instance_id": owner[0],
    }
    assert (second["committed"], second["lag"], second["end_offset"]) == (None, None, 0)
    assert second["instance_id"] == owner[1] != owner[0]


async def test_a_reset_is_to_the_ends_to_a_time_and_to_an_offset(api: Api) -> None:
    await api.create("t", partitions=2)
    await api.create("u")
    await produce(api, "t", 1, 2, 3)
    assert await reset(api, {"topic": "t", "to": "latest"}) == {("t", 0): 3, ("t", 1): 0}
    assert await reset(api, {"topic": "u", "to": "earliest"}) == {("u", 0): 0}
    assert await reset(api, {"topic": "t", "partitions": [0], "to": {"offset": 2}}) == {("t", 0): 2}
    assert await reset(api, {"to": {"timestamp": 0}}) == {("t", 0): 0, ("t", 1): 0, ("u", 0): 0}
    assert await reset(api, {"to": {"timestamp": 1 << 60}}) == {
        ("t", 0): 3,
        ("t", 1): 0,
        ("u", 0): 0,
    }
    assert await reset(api, {"to": "earliest"}) == {("t", 0): 0, ("t", 1): 0, ("u", 0): 0}
    me = await consumer(api, auto_offset_reset="latest")
    await me.subscribe("t")
    assert await me.values() == [1, 2, 3]


async def test_what_no_reset_can_mean_is_refused(api: Api) -> None:
    await api.create("t")
    await produce(api, "t", 1)
    for body, code in (
        ({"topic": "no", "to": "latest"}, 40401),
        ({"topic": "t", "partitions": [7], "to": "latest"}, 40402),
        ({"topic": "t", "to": {"offset": 2}}, 41601),
        ({"topic": "t", "to": "soon"}, 42201),
        ({"topic": "t", "to": {}}, 42201),
        ({"topic": "t", "to": {"offset": 0, "timestamp": 0}}, 42201),
        ({"partitions": [0], "to": "latest"}, 42201),
        ({"topic": "t", "to": "latest", "dry": True}, 42201),
        ({"to": "latest"}, 40405),
    ):
        assert await refused(api, body) == code, body
    assert (await api.call("PUT", "/groups/g/offsets")).code == 42201
    assert await refused(api, {"topic": "t", "to": "latest"}, "x" * 256) == 42203
    assert (await api.get("/groups")).json == []


async def test_a_group_with_members_is_neither_reset_nor_deleted(api: Api) -> None:
    await api.create("t")
    me = await consumer(api)
    await me.subscribe("t")
    assert await refused(api, {"topic": "t", "to": "latest"}) == 40903
    assert (await api.call("DELETE", "/groups/g")).code == 40903
    await me.post("offsets")
    await me.delete()
    assert (await api.get("/groups")).json == ["g"]
    assert (await api.call("DELETE", "/groups/g")).status == 204
    assert (await api.get("/groups")).json == []
    assert (await api.call("DELETE", "/groups/g")).code == 40405


async def test_members_are_named_whole_in_a_refusal(api: Api) -> None:
    """The error names members in full, because a name is needed to delete a member, and counts the other members."""
    await api.create("t")
    names = [letter * 60 for letter in "abcde"]
    for name in names:
        await (await consumer(api, name=name)).subscribe("t")
    message = (await api.call("DELETE", "/groups/g")).json["message"]
    assert f"5 members ({', '.join(names[:3])} and 2 more)" in message


async def test_deleting_a_topic_forgets_its_offsets(api: Api) -> None:
    await api.create("t")
    await produce(api, "t", 1)
    await reset(api, {"topic": "t", "to": "latest"})
    assert (await api.call("DELETE", "/topics/t")).status == 204
    assert (await api.get("/groups/g")).code == 40405


# -- time and restarts


class Clock:
    """A clock that stands still until the test moves it."""

    def __init__(self) -> None:
        self.now_ms = 1_700_000_000_000

    def __call__(self) -> int:
        return self.now_ms


@asynccontextmanager
async def clocked(backend: str, data: Path, clock: Clock) -> AsyncIterator[Api]:
    """Run a server with the test's clock; the test closes idle instances itself."""
    chosen = settings(data, set=ONE_PARTITION.get(backend, {}), consumer_idle_ms=60_000)
    async with serving(chosen, opener(backend, chosen), clock=clock) as api:
        yield api


async def test_idle_instances_go_and_their_partitions_to_others(
    backend: str, tmp_path: Path
) -> None:
    clock = Clock()
    async with clocked(backend, tmp_path / "store", clock) as api:
        await api.create("t", partitions=2)
        await produce(api, "t", 1, 2)
        idle, busy = await consumer(api, name="a"), await consumer(api, name="b")
        await idle.subscribe("t")
        assert await idle.values() == [1, 2]
        await busy.subscribe("t")
        clock.now_ms += 40_000
        assert len(await busy.partitions()) == 1
        clock.now_ms += 40_000
        assert await api.service.groups.consumers.close_idle() == 1
        assert (await api.get(f"{idle.path}/assignments")).code == 40403
        assert await busy.partitions() == [("t", 0), ("t", 1)]
        assert await busy.values() == []  # records delivered to the idle instance are committed
        assert await api.service.groups.consumers.close_idle() == 0


async def test_polls_commit_what_was_delivered_before(backend: str, tmp_path: Path) -> None:
    clock = Clock()
    async with clocked(backend, tmp_path / "store", clock) as api:
        await api.create("t")
        await produce(api, "t", 1, 2)
        me = await consumer(api)
        await me.subscribe("t")
        assert await me.values("timeout=0&max_bytes=1") == [1]
        assert await me.values("timeout=0&max_bytes=1") == [2]
        assert await me.committed() == {}  # the commit interval has not passed
        clock.now_ms += 5000
        assert await me.values() == []
        assert await me.committed() == {("t", 0): 2}


async def test_a_group_goes_on_after_a_restart(backend: str, tmp_path: Path) -> None:
    if backend == "memory":
        pytest.skip("nothing outlives it")
    clock = Clock()
    async with clocked(backend, tmp_path / "store", clock) as api:
        await api.create("t", partitions=2)
        await produce(api, "t", 1, 2, 3)
        committing, leaving = await consumer(api), await consumer(api, group="auto")
        await committing.subscribe("t")
        await committing.post("offsets", {"offsets": [{"topic": "t", "partition": 0, "offset": 0}]})
        await committing.delete()
        await leaving.subscribe("t")
        assert await leaving.values() == [1, 2, 3]
    async with clocked(backend, tmp_path / "store", clock) as api:
        assert (await api.get("/groups")).json == ["auto", "g"]
        assert (await group(api, "auto"))["lag"] == 0
        assert (await group(api))["partitions"][0]["committed"] == 1
        again = await consumer(api)
        await again.subscribe("t")
        assert await again.values() == [2, 3]


async def test_a_read_only_server_reads_but_commits_nothing(backend: str, tmp_path: Path) -> None:
    if backend == "memory":
        pytest.skip("an empty one is of no use")
    chosen = settings(tmp_path / "store", set=ONE_PARTITION.get(backend, {}))
    async with serving(chosen, opener(backend, chosen)) as api:
        await api.create("t")
        await produce(api, "t", 1, 2)
        await reset(api, {"topic": "t", "to": {"offset": 1}})
    async with serving(chosen, opener(backend, chosen, read_only=True)) as api:
        me = await consumer(api)
        await me.subscribe("t")
        assert await me.values() == [2]
        assert (await me.post("offsets")).code == 50301
        row = {"topic": "t", "partition": 0, "offset": 0}
        assert (await me.post("offsets", {"offsets": [row]})).code == 50301
        await me.delete()
        assert (await group(api))["lag"] == 1
        assert await refused(api, {"topic": "t", "to": "latest"}) == 50301
        assert (await api.call("DELETE", "/groups/g")).code == 50301


async def test_nothing_is_there_before_the_store_is(backend: str, tmp_path: Path) -> None:
    chosen = settings(tmp_path / "store")
    async with serving(chosen, opener(backend, chosen), wait=False) as api:
        assert (await api.get("/groups")).code == 50301
        assert (await api.call("POST", "/consumers/g")).code == 50301


# -- offsets written by real servers


async def test_what_real_consumers_committed_at_a_real_broker(
    golden_dir: Path, tmp_path: Path
) -> None:
    shutil.copytree(golden_dir / "offsets" / "data", tmp_path / "store")
    committed = json.loads(
        (golden_dir / "offsets" / "expect" / "committed.json").read_text("utf-8")
    )
    expected = {
        name: [(row["topic"], row["partition"], row["offset"], row["metadata"]) for row in rows]
        for name, rows in committed.items()
        if rows
    }
    chosen = settings(tmp_path / "store")
    async with serving(chosen, opener("kafka", chosen, read_only=True)) as api:
        names = (await api.get("/groups")).json
        assert names == sorted(expected)
        reported = {name: (await group(api, quote(name)))["partitions"] for name in names}
    assert {
        name: [(row["topic"], row["partition"], row["committed"], row["metadata"]) for row in rows]
        for name, rows in reported.items()
    } == expected
    for rows in reported.values():
        assert all(row["lag"] == row["end_offset"] - row["committed"] for row in rows)


async def test_a_consumer_goes_on_where_a_real_one_stood(golden_dir: Path, tmp_path: Path) -> None:
    shutil.copytree(golden_dir.parent / "rocketmq" / "broker" / "store", tmp_path / "store")
    chosen = settings(tmp_path / "store")
    async with serving(chosen, opener("rocketmq", chosen, read_only=True)) as api:
        described = await group(api, "order-group")
        assert [row["committed"] for row in described["partitions"]][:3] == [29, 30, 28]
        me = await consumer(api, group="order-group", format="binary", auto_offset_reset="none")
        await me.subscribe("order-live")
        rows = await me.poll()
        behind = {row["partition"]: row["lag"] for row in described["partitions"]}
        own = [row for row in rows if "retry" not in row]
        assert len(own) == sum(lag or 0 for lag in behind.values())
        retries = [row["retry"]["topic"] for row in rows if "retry" in row]
        assert retries == ["%RETRY%order-group"] * 16, "the group has committed none of them"
