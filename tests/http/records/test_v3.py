"""The v3 API: clusters and topics as Confluent's clients expect them, records streamed in both directions, batches."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from storage import StorageError
from storage.errors import DiskFull
from tests.http.duplex import duplex
from tests.http.harness import (
    ONE_PARTITION,
    Answer,
    Api,
    b64,
    fetched,
    for_any_bytes,
    opener,
    serving,
    settings,
)
from tests.watched_store import WatchedStore

JSON = "application/json"
CRLF = b"\r\n"
STORED = 200


def cluster(api: Api) -> str:
    return f"/v3/clusters/{api.cluster_id}"


def records(api: Api, topic: str = "t") -> str:
    return f"{cluster(api)}/topics/{topic}/records"


async def post(api: Api, path: str, body: object, content_type: str = JSON) -> Answer:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return await api.call("POST", path, data=data, headers={"Content-Type": content_type})


async def produced(api: Api, *items: object) -> list[Any]:
    """Send objects as one body without separators; return the reports."""
    body = b"".join(one if isinstance(one, bytes) else json.dumps(one).encode() for one in items)
    answer = await post(api, records(api), body)
    assert answer.status == 200
    assert answer.headers["Content-Type"] == JSON
    assert not answer.body or answer.body.endswith(CRLF)
    return [json.loads(report) for report in answer.body.split(CRLF) if report]


def codes(reports: Sequence[Mapping[str, Any]]) -> list[int]:
    return [report["error_code"] for report in reports]


def value(data: object, kind: str | None = "STRING", **more: object) -> dict[str, object]:
    typed = {"data": data} if kind is None else {"type": kind, "data": data}
    return {"value": typed, **more}


# -- clusters and topics


async def test_the_cluster(api: Api) -> None:
    listed = (await api.get("/v3/clusters")).json
    assert listed["kind"] == "KafkaClusterList"
    assert listed["metadata"] == {"self": f"{api.url}/v3/clusters", "next": None}
    (found,) = listed["data"]
    url = f"{api.url}{cluster(api)}"
    assert found["metadata"] == {
        "self": url,
        "resource_name": f"crn:///kafka={found['cluster_id']}",
    }
    assert found["topics"] == {"related": f"{url}/topics"}
    assert (await api.get(cluster(api))).json == found


async def test_the_cluster_is_that_of_the_directory(tmp_path: Path) -> None:
    chosen = settings(tmp_path / "store", set={"cluster.id": "MkU3OEVBNTcwNTJENDM2Qg"})
    for read_only in (False, True):
        async with serving(chosen, opener("kafka", chosen, read_only=read_only)) as api:
            assert (await api.get("/v3/clusters")).json["data"][0]["cluster_id"] == (
                "MkU3OEVBNTcwNTJENDM2Qg"
            )
        chosen = settings(tmp_path / "store")


async def test_a_store_without_a_name_has_a_stable_one(api: Api) -> None:
    assert (api.cluster_id == "logserver") == (api.backend != "kafka")


@pytest.mark.parametrize("rest", ["", "/topics", "/topics/t", "/topics/t/partitions"])
async def test_another_cluster_is_not_here(api: Api, rest: str) -> None:
    await api.create("t")
    assert (await api.get(f"/v3/clusters/other{rest}")).code == 404
    assert (await post(api, "/v3/clusters/other/topics/t/records", b"")).code == 404


async def test_topics(api: Api) -> None:
    body = {"topic_name": "t", "partitions_count": 3, "replication_factor": 1}
    created = await post(api, f"{cluster(api)}/topics", body)
    assert created.status == 201
    url = f"{api.url}{cluster(api)}/topics/t"
    assert created.json == {
        "kind": "KafkaTopic",
        "metadata": {
            "self": url,
            "resource_name": f"crn:///kafka={api.cluster_id}/topic=t",
        },
        "cluster_id": api.cluster_id,
        "topic_name": "t",
        "is_internal": False,
        "replication_factor": 1,
        "partitions_count": 3,
        "partitions": {"related": f"{url}/partitions"},
        "configs": {"related": f"{url}/configs"},
        "partition_reassignments": {"related": f"{url}/partitions/-/reassignment"},
    }
    assert (await api.get(f"{cluster(api)}/topics/t")).json == created.json
    assert (await api.get(f"{cluster(api)}/topics")).json["data"] == [created.json]
    again = await post(api, f"{cluster(api)}/topics", body)
    assert (again.code, again.json["message"]) == (40901, "topic 't' exists already")
    assert (await api.call("DELETE", f"{cluster(api)}/topics/t")).status == 204
    assert (await api.get(f"{cluster(api)}/topics/t")).code == 40401


@pytest.mark.parametrize(
    ("more", "code"),
    [
        ({"topic_name": "not a name"}, 42203),
        ({"partitions_count": 0}, 42201),
        ({"replication_factor": 3}, 42205),
        ({"configs": [{"name": "no.such.config", "value": "1"}]}, 42205),
        ({"validate_only": True}, 42207),
        ({"replicas_assignments": {"0": [1, 2]}}, 42207),
    ],
)
async def test_a_wrong_topic_is_not_made(api: Api, more: dict[str, object], code: int) -> None:
    answer = await post(api, f"{cluster(api)}/topics", {"topic_name": "t", **more})
    assert answer.code == code, answer.body
    assert next(iter(more)).removesuffix("s") in answer.json["message"].replace(" ", "_")
    assert (await api.get("/topics")).json == []


async def test_partitions(api: Api) -> None:
    await api.create("t", partitions=2)
    listed = (await api.get(f"{cluster(api)}/topics/t/partitions")).json
    assert [one["partition_id"] for one in listed["data"]] == [0, 1]
    one = (await api.get(f"{cluster(api)}/topics/t/partitions/1")).json
    assert one == listed["data"][1]
    assert one["leader"]["related"].endswith("/topics/t/partitions/1/replicas/1")
    assert (await api.get(f"{cluster(api)}/topics/t/partitions/2")).code == 40402


async def test_configs_are_those_that_were_set(api: Api) -> None:
    name, given = ("order", "true") if api.keeps_messages else ("retention.ms", "60000")
    configs = [{"name": name, "value": given}]
    body = {"topic_name": "t", "configs": [*configs, {"name": "left.out", "value": None}]}
    assert (await post(api, f"{cluster(api)}/topics", body)).status == 201
    listed = (await api.get(f"{cluster(api)}/topics/t/configs")).json
    (config,) = listed["data"]
    assert (config["name"], config["value"], config["is_default"]) == (name, given, False)
    assert config["synonyms"] == [{"name": name, "value": given, "source": "DYNAMIC_TOPIC_CONFIG"}]
    assert (await api.get(f"{cluster(api)}/topics/t/configs/{name}")).json == config
    assert (await api.get(f"{cluster(api)}/topics/t/configs/other")).code == 404


# -- records


async def test_a_report_tells_all_of_a_record(api: Api) -> None:
    record = {
        "partition_id": 0,
        "headers": [{"name": "h", "value": b64(b"x")}],
        "key": {"type": "BINARY", "data": b64(b"key")},
        "value": {"type": "JSON", "data": {"foo": "bar"}},
        "timestamp": "2021-02-05T19:14:42.123Z",
    }
    (report,) = await produced(api, record)
    assert report == {
        "error_code": STORED,
        "cluster_id": api.cluster_id,
        "topic_name": "t",
        "partition_id": 0,
        "offset": 0,
        "timestamp": report["timestamp"],
        "key": {"type": "BINARY", "size": 3},
        "value": {"type": "JSON", "size": len('{"foo": "bar"}')},
    }
    reported = datetime.fromisoformat(report["timestamp"])
    assert reported == datetime(2021, 2, 5, 19, 14, 42, 123000, tzinfo=UTC)
    (row,) = await fetched(api)
    assert row["timestamp"] == int(reported.timestamp() * 1000)
    assert row["key"] == b64(b"key")
    assert row["value"] == b64(b'{"foo": "bar"}')
    assert {"key": "h", "value": b64(b"x")} in row["headers"]  # type: ignore[operator]


async def test_a_record_without_a_time_has_the_servers(api: Api) -> None:
    (report,) = await produced(api, value("v"))
    (row,) = await fetched(api)
    reported = datetime.fromisoformat(report["timestamp"])
    assert reported.timestamp() == pytest.approx(float(str(row["timestamp"])) / 1000, abs=0.001)


async def test_the_time_of_the_append_is_told_where_the_topic_keeps_it(api: Api) -> None:
    if api.backend != "kafka":
        pytest.skip("Kafka's topics choose between two times")
    await api.create("t", message_timestamp_type="LogAppendTime")
    (report,) = await produced(api, value("v", timestamp="2021-02-05T19:14:42Z"))
    (row,) = await fetched(api)
    assert datetime.fromisoformat(report["timestamp"]).timestamp() * 1000 == row["timestamp"]
    assert not report["timestamp"].startswith("2021")


TYPES = {
    "binary": ("BINARY", b64(b"\x00\xff"), b"\x00\xff"),
    "string": ("STRING", "äöü", "äöü".encode()),
    "string that is empty": ("STRING", "", b""),
    "binary that is empty": ("BINARY", "", b""),
    "json": ("JSON", {"a": [1]}, b'{"a": [1]}'),
    "json zero": ("JSON", 0, b"0"),
    "json false": ("JSON", False, b"false"),
    "json empty text": ("JSON", "", b'""'),
    "no type": (None, 1000, b"1000"),
    "null": ("STRING", None, None),
    "json null": ("JSON", None, None),
}


@pytest.mark.parametrize(("kind", "data", "stored"), TYPES.values(), ids=TYPES.keys())
async def test_types(api: Api, kind: str | None, data: object, stored: bytes | None) -> None:
    if not stored:
        for_any_bytes(api)
    (report,) = await produced(api, value(data, kind))
    assert report["error_code"] == STORED
    if stored is not None:
        assert report["value"] == {"type": kind or "JSON", "size": len(stored)}
    assert "key" not in report
    (row,) = await fetched(api)
    assert row["value"] == (None if stored is None else b64(stored))


BROKEN = {
    "base64": (value("***", "BINARY"), 42202),
    "text that is none": (value(1, "STRING"), 42201),
    "an unknown type": (value("a", "XML"), 42201),
    "a schema type": (value("a", "AVRO"), 42207),
    "a schema": ({"value": {"schema_id": 1, "data": "a"}}, 42207),
    "an unknown name": ({"vaule": {"data": 1}}, 42201),
    "an unknown partition": (value("a", partition_id=9), 40402),
    "a negative partition": (value("a", partition_id=-1), 42201),
    "a time without a zone": (value("a", timestamp="2021-02-05T19:14:42"), 42201),
    "a time before 1970": (value("a", timestamp="1969-02-05T19:14:42Z"), 42201),
    "JSON that is wrong inside": (b'{"value":{"data":tru}}', 40000),
    "no UTF-8": (b'{"value":{"type":"JSON","data":"\xff"}}', 40000),
    "nested": (b'{"value":{"data":' + b"[" * 64 + b"]" * 64 + b"}}", 42201),
    "a header's value": (value("a", headers=[{"name": "h", "value": "***"}]), 42202),
}


@pytest.mark.parametrize(("broken", "code"), BROKEN.values(), ids=BROKEN.keys())
async def test_a_broken_record_fails_alone(api: Api, broken: object, code: int) -> None:
    reports = await produced(api, value("a"), broken, value("b"))
    assert codes(reports) == [STORED, code, STORED]
    assert reports[1].keys() == {"error_code", "message"}
    assert [report["offset"] for report in reports[::2]] == [0, 1]


async def test_what_is_no_object_ends_the_stream(api: Api) -> None:
    reports = await produced(api, value("a"), b"[]", value("b"))
    assert codes(reports) == [STORED, 40000]
    assert "begins none" in reports[1]["message"]
    assert codes(await produced(api, value("a"), b'{"value":')) == [STORED, 40000]


async def test_a_record_one_byte_over_the_limit(tmp_path: Path) -> None:
    chosen = settings(tmp_path, max_body_bytes=2000)
    async with serving(chosen, opener("memory", chosen)) as api:
        shell = len(json.dumps(value("")))
        fits, over = value("x" * (2000 - shell)), value("x" * (2001 - shell))
        assert codes(await produced(api, fits, over, fits)) == [STORED, 41302, STORED]


async def test_an_unknown_topic_is_told_before_the_stream(tmp_path: Path) -> None:
    chosen = settings(tmp_path, auto_create_topics=False)
    async with serving(chosen, opener("memory", chosen)) as api:
        assert (await post(api, records(api), value("a"))).code == 40401


async def test_the_type_of_the_body_is_json(api: Api) -> None:
    assert (await post(api, records(api), b"{}", "text/plain")).code == 415
    assert (await post(api, records(api) + "?acks=1", b"{}")).code == 40000


# -- requests and answers at the same time


async def test_a_record_is_reported_before_the_next_is_sent(api: Api) -> None:
    async with duplex(api, records(api), JSON) as stream:
        status, headers = await stream.head()
        assert (status, headers["transfer-encoding"]) == (200, "chunked")
        for offset in range(5):
            await stream.send(json.dumps(value(f"{offset}")).encode())
            report = await stream.line(CRLF)
            assert (report["error_code"], report["offset"]) == (STORED, offset)
            assert len(await fetched(api)) == offset + 1
        await stream.finish()
        assert await stream.line(CRLF) is None


async def test_a_record_may_come_in_any_pieces(api: Api) -> None:
    body = json.dumps(value('}{"\\', headers=[{"name": "h"}])).encode() * 2
    async with duplex(api, records(api), JSON) as stream:
        await stream.head()
        for byte in body:
            await stream.send(bytes([byte]))
        await stream.finish()
        reports = await stream.lines(CRLF)
    wanted = STORED if not api.keeps_messages else 42206
    assert codes(reports) == [wanted] * 2


async def test_records_that_come_together_share_an_append(tmp_path: Path) -> None:
    store = WatchedStore()
    store.create_topic("t", 1)
    async with serving(settings(tmp_path), store.opener()) as api:
        reports = await produced(api, *[value("v")] * 300)
        assert [report["offset"] for report in reports] == list(range(300))
    assert store.appends == [(store.appends[0][0], 300, False)]


async def test_a_stop_ends_a_stream_in_order(backend: str, tmp_path: Path) -> None:
    chosen = settings(tmp_path / "store", set=ONE_PARTITION.get(backend, {}))
    async with (
        serving(chosen, opener(backend, chosen)) as api,
        duplex(api, records(api), JSON) as stream,
    ):
        await stream.head()
        await stream.send(json.dumps(value("a")).encode())
        assert (await stream.line(CRLF))["error_code"] == STORED
        stopping = asyncio.create_task(api.server.stop())
        assert codes(await stream.lines(CRLF)) == [50301]
        await asyncio.wait_for(stopping, 10)


async def test_a_client_that_goes_away_ends_the_work(api: Api) -> None:
    async with duplex(api, records(api), JSON) as stream:
        await stream.head()
        await stream.send(json.dumps(value("a")).encode() + b'{"value":')
        await stream.line(CRLF)
        assert api.service.budget.held_bytes > 0
    await asyncio.wait_for(api.until_free(), 10)


# -- batches


async def test_a_batch_reports_by_id(api: Api) -> None:
    entries = [
        {"id": "a", **value("1")},
        {"id": "b", **value("***", "BINARY")},
        {"id": "c", **value("2", key={"type": "STRING", "data": "k"})},
        {"id": "d", **value("3", partition_id=7)},
    ]
    answer = await post(api, records(api) + ":batch", {"entries": entries})
    assert answer.status == 207
    reported = answer.json
    assert [(one["id"], one["offset"]) for one in reported["successes"]] == [("a", 0), ("c", 1)]
    assert [(one["id"], one["error_code"]) for one in reported["failures"]] == [
        ("b", 42202),
        ("d", 40402),
    ]
    assert reported["successes"][1]["key"] == {"type": "STRING", "size": 1}
    assert len(await fetched(api)) == 2


async def test_a_batch_of_failures_only_stores_nothing(api: Api) -> None:
    entries = [{"id": "a", **value(1, "STRING")}]
    answer = await post(api, records(api) + ":batch", {"entries": entries})
    assert (answer.status, answer.json["successes"]) == (207, [])
    assert (await api.get("/topics")).json == []


WRONG_BATCHES = {
    "no JSON": (b"{", 40000),
    "no UTF-8": (b'{"entries":[{"id":"a","value":{"data":"\xff"}}]}', 40000),
    "no entries": ({}, 42201),
    "empty": ({"entries": []}, 42201),
    "without an id": ({"entries": [value("a")]}, 42201),
    "an empty id": ({"entries": [{"id": "", **value("a")}]}, 42201),
    "a long id": ({"entries": [{"id": "x" * 81, **value("a")}]}, 42201),
    "an id twice": ({"entries": [{"id": "a"}, {"id": "a"}]}, 42201),
}


@pytest.mark.parametrize(("body", "code"), WRONG_BATCHES.values(), ids=WRONG_BATCHES.keys())
async def test_a_wrong_batch_is_refused_whole(api: Api, body: object, code: int) -> None:
    assert (await post(api, records(api) + ":batch", body)).code == code
    assert (await api.get("/topics")).json == []


async def test_a_batch_is_limited(tmp_path: Path) -> None:
    chosen = settings(tmp_path, max_records_per_request=2)
    async with serving(chosen, opener("memory", chosen)) as api:
        entries = [{"id": str(number), **value("a")} for number in range(3)]
        path = records(api) + ":batch"
        assert (await post(api, path, {"entries": entries})).code == 41301
        assert (await post(api, path, {"entries": entries[:2]})).status == 207


async def test_a_full_disk_speaks_for_the_whole_batch(tmp_path: Path) -> None:
    store = WatchedStore()
    store.create_topic("t", 1)
    full = DiskFull("no space left on /data", path="/data", operation="pwrite", errno=28)

    def fail(partition: object, records: object) -> StorageError | None:
        return full

    store.fail_append = fail
    async with serving(settings(tmp_path), store.opener()) as api:
        body = {"entries": [{"id": "a", **value("a")}]}
        assert (await post(api, records(api) + ":batch", body)).code == 50701
        assert codes(await produced(api, value("a"))) == [50701]
