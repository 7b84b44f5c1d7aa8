"""Topics over HTTP: shapes, names, configs, and requests for topics that already exist."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

from storage import AppendResult, open_store
from tests.http.harness import BATCH, V2, Api, opener, records, serving, settings

# A numeric topic config of each backend, and another with a value that is not the default.
CONFIG = {
    "memory": ("retention.ms", "1000"),
    "kafka": ("retention.ms", "1000"),
    "rocketmq": ("perm", "4"),
}
OTHER_CONFIG: dict[str, tuple[str, int | bool]] = {
    "memory": ("segment.bytes", 2097152),
    "kafka": ("segment.bytes", 2097152),
    "rocketmq": ("order", True),
}
ONE = {"partition": 0, "leader": 1, "replicas": [{"broker": 1, "leader": True, "in_sync": True}]}


async def test_an_empty_store_lists_no_topics(api: Api) -> None:
    assert (await api.get("/topics")).json == []


async def test_topics_are_listed_in_order(api: Api) -> None:
    for name in ("b", "a", "c"):
        await api.create(name)
    assert (await api.get("/topics", accept=V2)).json == ["a", "b", "c"]


async def test_a_topic_is_created_once(api: Api) -> None:
    name, value = CONFIG[api.backend]
    body = {"partitions": 2, "configs": {name: value}}
    created = await api.call("PUT", "/topics/t", json=body)
    again = await api.call("PUT", "/topics/t", json=body)
    assert (created.status, again.status) == (201, 200)
    assert created.json == again.json
    assert created.json["name"] == "t"
    assert created.json["configs"] == {name: value}
    assert created.json["partitions"] == [ONE, ONE | {"partition": 1}]


async def test_a_topic_needs_no_body(api: Api) -> None:
    assert (await api.call("PUT", "/topics/t")).status == 201
    assert (await api.get("/topics/t")).json == {"name": "t", "configs": {}, "partitions": [ONE]}


async def test_another_shape_is_a_conflict(api: Api) -> None:
    await api.create("t", 2)
    answer = await api.call("PUT", "/topics/t", json={"partitions": 3})
    assert answer.code == 40901
    assert answer.json["topic"] == "t"


async def test_no_configs_are_another_shape_than_some(api: Api) -> None:
    """`{}` requires that a topic has no configs; without the field any configs match."""
    name, value = CONFIG[api.backend]
    await api.create("bare")
    await api.call("PUT", "/topics/t", json={"configs": {name: value}})
    none = {"partitions": 1, "configs": {}}
    assert (await api.call("PUT", "/topics/bare", json=none)).status == 200
    assert (await api.call("PUT", "/topics/t", json=none)).code == 40901
    assert (await api.call("PUT", "/topics/t", json={"partitions": 1})).status == 200


@pytest.mark.parametrize("configs", [{"no.such": "1"}, {"perm": "much"}])
async def test_configs_that_no_topic_has_are_refused_of_one_that_is_there_too(
    api: Api, configs: dict[str, str]
) -> None:
    await api.create("t")
    answer = await api.call("PUT", "/topics/t", json={"configs": configs})
    assert answer.code == 42205


async def test_partitions_are_as_inside_the_topic(api: Api) -> None:
    await api.create("t", 2)
    inside = (await api.get("/topics/t")).json["partitions"]
    assert (await api.get("/topics/t/partitions")).json == inside
    assert (await api.get("/topics/t/partitions/1")).json == inside[1]
    assert (await api.get("/topics/t/partitions/1/")).json == inside[1]


async def test_configs_take_numbers_and_booleans_as_text(api: Api) -> None:
    name, value = CONFIG[api.backend]
    answer = await api.call("PUT", "/topics/t", json={"configs": {name: int(value)}})
    assert answer.json["configs"] == {name: value}


async def test_configs_are_altered_and_reset(api: Api) -> None:
    (first, value), (second, number) = CONFIG[api.backend], OTHER_CONFIG[api.backend]
    await api.call("PUT", "/topics/t", json={"configs": {first: value}})
    answer = await api.call("PATCH", "/topics/t", json={"configs": {second: number, first: None}})
    assert answer.status == 200
    assert answer.json["configs"] == {second: str(number).lower()}
    assert (await api.get("/topics/t")).json == answer.json


async def test_an_unknown_config_is_refused(api: Api) -> None:
    answer = await api.call("PUT", "/topics/t", json={"configs": {"no.such": "1"}})
    assert answer.code == 42205
    assert answer.json["name"] == "no.such"
    assert (await api.get("/topics")).json == []


async def test_a_misspelt_config_names_the_similar_one(api: Api) -> None:
    name = next(iter(CONFIG[api.backend]))
    answer = await api.call("PUT", "/topics/t", json={"configs": {f"{name}s": "1"}})
    assert answer.code == 42205
    assert f"{name}s" in answer.json["message"]
    if api.backend != "memory":  # it has no settings of its own
        assert answer.json["message"].endswith(f"is unknown; similar: {name}")


@pytest.mark.parametrize("partitions", [None, 1])
@pytest.mark.parametrize("kind", ["records", "with a key", "batches"])
async def test_a_topic_deleted_under_a_request_is_made_anew(
    api: Api, monkeypatch: pytest.MonkeyPatch, kind: str, partitions: int | None
) -> None:
    """If a topic is deleted during a request, its record is stored once in the new topic.

    The request creates the topic itself, or another client does, with other partitions.
    """
    if kind == "batches" and not api.service.store.capabilities.batch_bytes:
        pytest.skip("the backend has no record batches")
    await api.create("t", 4)
    await api.post("/topics/source", records(1))
    batch = (await api.get("/topics/source/partitions/0/records", accept=BATCH)).body
    name = "append_batches" if kind == "batches" else "append"
    append, reached, go_on = getattr(api.service.store, name), threading.Event(), threading.Event()

    def held_up(*args: Any, **options: Any) -> AppendResult:
        reached.set()
        assert go_on.wait(30)
        result: AppendResult = append(*args, **options)
        return result

    monkeypatch.setattr(api.service.store, name, held_up)
    if kind == "batches":
        sent = api.post("/topics/t/partitions/0", batch, content_type=BATCH)
    else:
        body = {"records": [{"key": "f", "value": 1}]}  # this key selects the last partition of 4
        headers = {"Idempotency-Key": "k"} if kind == "with a key" else {}
        sent = api.call("POST", "/topics/t?format=json", json=body, headers=headers)
    answer = asyncio.create_task(sent)
    await asyncio.to_thread(reached.wait, 30)
    assert (await api.call("DELETE", "/topics/t")).status == 204
    if partitions is not None:
        await api.create("t", partitions)
    go_on.set()
    assert (await answer).status == 200
    assert await api.values("t") == [1]


async def test_a_deleted_topic_is_gone(api: Api) -> None:
    await api.post("/topics/t", records(1))
    gone = await api.call("DELETE", "/topics/t")
    assert (gone.status, gone.body) == (204, b"")
    assert (await api.get("/topics/t")).code == 40401
    assert (await api.get("/topics/t/partitions/0/records")).code == 40401
    await api.create("t")
    assert await api.values("t") == []


async def test_partitions_are_added(api: Api) -> None:
    await api.create("t", 2)
    await api.post("/topics/t/partitions/1", records(1))
    grown = await api.call("POST", "/topics/t/partitions", json={"partitions": 4})
    assert grown.status == 200
    assert [row["partition"] for row in grown.json["partitions"]] == [0, 1, 2, 3]
    assert (await api.get("/topics/t")).json == grown.json
    await api.post("/topics/t/partitions/3", records(2))
    assert await api.values("t", 3) == [2]
    again = await api.call("POST", "/topics/t/partitions", json={"partitions": 4})
    assert (again.status, again.json) == (200, grown.json)


@pytest.mark.parametrize(
    "body",
    [
        {"partitions": 1},
        {"partitions": 0},
        {"partitions": 10_001},
        {"partitions": "3"},
        {"p": 3},
        {},
    ],
)
async def test_other_numbers_of_partitions_are_refused(api: Api, body: dict[str, object]) -> None:
    await api.create("t", 2)
    answer = await api.call("POST", "/topics/t/partitions", json=body)
    assert answer.code == 42201
    assert "partitions" in answer.json["message"] or "`p`" in answer.json["message"]
    assert len((await api.get("/topics/t/partitions")).json) == 2


async def test_records_below_an_offset_are_deleted(api: Api) -> None:
    await api.create("t")
    await api.post("/topics/t", records(1, 2, 3))
    path = "/topics/t/partitions/0/records"
    answer = await api.call("DELETE", f"{path}?before=2")
    if api.keeps_messages:
        assert answer.code == 42207
        assert await api.values("t") == [1, 2, 3]
        return
    assert (answer.status, answer.json) == (200, {"beginning_offset": 2, "end_offset": 3})
    assert await api.values("t") == [3]
    gone = await api.get(f"{path}?offset=1")
    assert gone.code == 41601
    assert (gone.json["earliest"], gone.json["latest"]) == (2, 3)
    again = await api.call("DELETE", f"{path}?before=1")
    assert again.json == answer.json


@pytest.mark.parametrize(
    ("query", "code"),
    [("?before=-1", 40000), ("?before=x", 40000), ("", 40000), ("?before=4", 41601)],
)
async def test_other_offsets_delete_nothing(api: Api, query: str, code: int) -> None:
    await api.create("t")
    await api.post("/topics/t", records(1, 2, 3))
    answer = await api.call("DELETE", f"/topics/t/partitions/0/records{query}")
    assert answer.code == (42207 if api.keeps_messages and code == 41601 else code)
    assert await api.values("t") == [1, 2, 3]


async def test_an_unknown_topic_is_404_everywhere(api: Api) -> None:
    for method, path in (
        ("GET", "/topics/no"),
        ("DELETE", "/topics/no"),
        ("GET", "/topics/no/partitions"),
        ("GET", "/topics/no/partitions/0"),
        ("GET", "/topics/no/partitions/0/offsets"),
        ("GET", "/topics/no/partitions/0/records"),
        ("DELETE", "/topics/no/partitions/0/records?before=0"),
    ):
        answer = await api.call(method, path)
        assert answer.code == 40401
        assert answer.json["topic"] == "no"
    patched = await api.call("PATCH", "/topics/no", json={"configs": {}})
    assert patched.code == 40401
    grown = await api.call("POST", "/topics/no/partitions", json={"partitions": 2})
    assert grown.code == 40401


async def test_an_unknown_partition_is_404(api: Api) -> None:
    await api.create("t", 2)
    for number in ("2", "99999999999999999999", "x", "-1"):
        for tail in ("", "/offsets", "/records"):
            answer = await api.get(f"/topics/t/partitions/{number}{tail}")
            assert answer.code == 40402
    assert (await api.get("/topics/t/partitions/2")).json["partitions"] == 2


BAD_NAMES = {
    "slash": "a%2Fb",
    "dot": "%2e",
    "dots": "%2e%2e",
    "escape": "%2e%2e%2fescape",
    "nul": "a%00b",
    "long": "x" * 250,
    "space": "a%20b",
    "umlaut": "%c3%a4",
}


@pytest.mark.parametrize("name", BAD_NAMES.values(), ids=BAD_NAMES.keys())
async def test_a_bad_new_name_is_refused(api: Api, name: str) -> None:
    assert (await api.call("PUT", f"/topics/{name}", json={})).code == 42203
    assert (await api.post(f"/topics/{name}", records(1))).code == 42203
    assert (await api.get(f"/topics/{name}")).code == 40401
    assert (await api.get("/topics")).json == []


@pytest.mark.parametrize("name", ["__consumer_offsets", "__transaction_state"])
async def test_a_name_of_the_brokers_own_is_refused(api: Api, name: str) -> None:
    assert (await api.call("PUT", f"/topics/{name}")).code == 42203
    produced = await api.post(f"/topics/{name}", {"records": [{"value": 1}]})
    assert produced.code == 42203
    assert produced.json["topic"] == name
    batches = await api.post(f"/topics/{name}", bytes(100), content_type=BATCH)
    assert batches.code == 42203
    assert (await api.get("/topics")).json == []


async def test_nothing_is_produced_to_a_topic_of_the_brokers_own(tmp_path: Path) -> None:
    """A client cannot write to the topic of the groups' offsets; the real broker rejects such records too."""
    chosen = settings(tmp_path / "store")
    with open_store("kafka", tmp_path / "store") as store:
        store.create_topic("__consumer_offsets", 1)
    async with serving(chosen, opener("kafka", chosen)) as api:
        assert (await api.get("/topics/__consumer_offsets")).status == 200
        assert (await api.post("/topics/__consumer_offsets", records(1))).code == 42203
        batch = await api.post("/topics/__consumer_offsets", bytes(100), content_type=BATCH)
        assert batch.code == 42203


async def test_the_longest_name_is_taken(api: Api) -> None:
    longest = 127 if api.keeps_messages else 249
    await api.create("x" * longest)
    assert (await api.call("PUT", f"/topics/{'x' * (longest + 1)}")).code == 42203


async def test_a_name_that_is_not_utf8_is_malformed(api: Api) -> None:
    assert (await api.get("/topics/%ff")).code == 400


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"{", 40000),
        (b"nope", 40000),
        (b'{"\xe9":1}', 40000),
        (b"[]", 42201),
        (b'{"partitions":"2"}', 42201),
        (b'{"partitions":2.0}', 42201),
        (b'{"partitions":0}', 42201),
        (b'{"partitions":-1}', 42201),
        (b'{"partitions":99999999999999999999}', 42201),
        (b'{"configs":[]}', 42201),
        (b'{"configs":{"retention.ms":{}}}', 42201),
        (b'{"partition":2}', 42201),
        (b'{"a":' * 3000, 42201),
    ],
)
async def test_a_bad_topic_body_is_refused(api: Api, body: bytes, code: int) -> None:
    headers = {"Content-Type": V2}
    assert (await api.call("PUT", "/topics/t", data=body, headers=headers)).code == code
    assert (await api.get("/topics")).json == []


async def test_altering_needs_a_body(api: Api) -> None:
    await api.create("t")
    assert (await api.call("PATCH", "/topics/t")).code == 42201


async def test_offsets_are_the_bounds(api: Api) -> None:
    await api.create("t")
    empty = await api.get("/topics/t/partitions/0/offsets")
    assert empty.json == {"beginning_offset": 0, "end_offset": 0}
    await api.post("/topics/t", records(1, 2, 3))
    three = await api.get("/topics/t/partitions/0/offsets")
    assert three.json == {"beginning_offset": 0, "end_offset": 3}


async def test_an_offset_is_found_by_time(api: Api) -> None:
    await api.create("t")
    times = [1000, 3000, 2000]
    await api.post(
        "/topics/t", {"records": [{"value": 0, "timestamp": time_ms} for time_ms in times]}
    )
    path = "/topics/t/partitions/0/offsets?timestamp="
    if api.keeps_messages:  # the axis is the store timestamp
        (first, *_) = (await api.get("/topics/t/partitions/0/records")).json
        stored = {"offset": 0, "timestamp": first["store_timestamp"]}
        assert (await api.get(f"{path}0")).json == stored
    else:
        assert (await api.get(f"{path}0")).json == {"offset": 0, "timestamp": 1000}
        assert (await api.get(f"{path}1001")).json == {"offset": 1, "timestamp": 3000}
        assert (await api.get(f"{path}3001")).json == {"offset": 3, "timestamp": None}
    far = {"offset": 3, "timestamp": None}
    assert (await api.get(f"{path}9000000000000")).json == far
    for bad in ("x", "-1", "1.5", "99999999999999999999", ""):
        answer = await api.get(path + bad)
        assert answer.code == 40000
        wanted = "it must be a whole number from 0 to 9223372036854775807 or newest"
        assert answer.json["message"] == f"parameter timestamp is {bad!r}: {wanted}"


async def test_the_newest_time_and_the_end_of_an_epoch(api: Api) -> None:
    await api.create("t")
    path = "/topics/t/partitions/0/offsets"
    assert (await api.get(f"{path}?timestamp=newest")).json == {"offset": 0, "timestamp": None}
    times = [1000, 3000, 2000]
    await api.post("/topics/t", {"records": [{"value": 0, "timestamp": ms} for ms in times]})
    newest = (await api.get(f"{path}?timestamp=newest")).json
    if api.keeps_messages:
        *_, last = (await api.get("/topics/t/partitions/0/records")).json
        assert newest == {"offset": 2, "timestamp": last["store_timestamp"]}
    else:
        assert newest == {"offset": 1, "timestamp": 3000}
    end = await api.get(f"{path}?leader_epoch=0")
    if api.backend == "kafka":
        assert end.json == {"leader_epoch": 0, "end_offset": 3}
        above = await api.get(f"{path}?leader_epoch=9")
        assert above.json == {"leader_epoch": None, "end_offset": None}
    else:
        assert end.code == 42207
    assert (await api.get(f"{path}?leader_epoch=-1")).code == 40000
    assert (await api.get(f"{path}?leader_epoch=0&timestamp=5")).code == 40000
