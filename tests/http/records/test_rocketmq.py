"""RocketMQ over HTTP: records as messages, fields rejected by name, unique ids, the time of the store, and stores of
the real broker as the real store reads them.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from storage import (
    RawMessage,
    StoreOptions,
    SupportsRawMessages,
    TopicPartition,
    open_store,
)
from storage.rocketmq.format.body import decompress
from storage.rocketmq.format.message import COMPRESSED
from tests.golden.rocketmq_stores import CLEAN, UNCLEAN, GoldenStore, golden
from tests.http.harness import BINARY, JSON, Api, b64, opener, records, serving, settings

OFFSET_ID = re.compile(r"7F00000100002A9F[0-9A-F]{16}")
UNIQUE_ID = re.compile(r"[0-9A-F]{32}")
ROWS = "/topics/t/partitions/0/records"


@pytest.fixture
async def api(tmp_path: Path) -> AsyncIterator[Api]:
    """A server with an empty store whose topics have one queue."""
    chosen = settings(tmp_path / "store", set={"defaultTopicQueueNums": "1"})
    async with serving(chosen, opener("rocketmq", chosen)) as running:
        yield running


async def test_a_record_as_a_message(api: Api) -> None:
    record = {
        "key": "k",
        "value": "hello",
        "timestamp": 5,
        "headers": [{"key": "colour", "value": "blue"}, {"key": "size", "value": "ü"}],
        "tag": "T",
        "keys": ["order-7", "k"],
        "properties": {"UNIQ_KEY": "MINE", "WAIT": "false"},
    }
    answer = await api.post("/topics/t?format=text", {"records": [record]})
    (reported,) = answer.json["offsets"]
    (row,) = (await api.get(f"{ROWS}?format=text")).json
    assert OFFSET_ID.fullmatch(row["message_id"])
    assert row.pop("store_timestamp") > 1_700_000_000_000
    assert row == {
        "topic": "t",
        "partition": 0,
        "offset": 0,
        "timestamp": 5,
        "key": "k",
        "value": "hello",
        "headers": record["headers"],
        "tag": "T",
        "keys": ["order-7"],
        "properties": {
            "colour": "blue",
            "size": "ü",
            "UNIQ_KEY": "MINE",
            "WAIT": "false",
            "__SHARDINGKEY": "k",
            "KEYS": "order-7 k",
            "TAGS": "T",
        },
        "message_id": reported["message_id"],
    }


async def test_a_unique_id_is_made_where_it_is_missing(api: Api) -> None:
    await api.post("/topics/t", records(1, 2))
    made = [row["properties"]["UNIQ_KEY"] for row in (await api.get(ROWS)).json]
    assert len(set(made)) == 2
    assert all(UNIQUE_ID.fullmatch(unique_id) for unique_id in made)


async def test_a_unique_id_is_looked_up(api: Api) -> None:
    body = {"records": [{"value": n, "properties": {"UNIQ_KEY": f"ID-{n % 3}"}} for n in range(9)]}
    assert (await api.post("/topics/t", body)).status == 200
    for query in ("unique_id=ID-1", "unique_id=ID-1&scan=true"):
        page = (await api.get(f"/topics/t/messages?{query}", accept=JSON)).json
        assert [row["value"] for row in page["records"]] == [1, 4, 7]
        assert (page["indexed"], page["complete"]) == ("scan" not in query, True)
        assert page["time_axis"] == "store_timestamp"
    for absent in ("ID-9", "ID", "id-1", "ID-1%20"):
        page = (await api.get(f"/topics/t/messages?unique_id={absent}")).json
        assert (page["records"], page["complete"]) == ([], True)


REFUSED: dict[str, tuple[dict[str, object], str]] = {
    "null value": ({"value": None}, "value"),
    "no value": ({"key": b64(b"k")}, "value"),
    "empty key": ({"key": ""}, "key"),
    "binary key": ({"key": b64(b"\xff")}, "key"),
    "separator in the key": ({"key": b64(b"a\x01b")}, "key"),
    "NUL and space in the key": ({"key": b64(b"a\0 b")}, "key"),
    "NUL in the tag": ({"tag": "a\0"}, "tag"),
    "NUL in a lookup key": ({"keys": ["a\0"]}, "keys"),
    "NUL in a header": ({"headers": [{"key": "a", "value": b64(b"\0v")}]}, "headers"),
    "NUL in a property": ({"properties": {"UNIQ_KEY": "a\0"}}, "properties"),
    "null header": ({"headers": [{"key": "h"}]}, "headers"),
    "empty header": ({"headers": [{"key": "h", "value": ""}]}, "headers"),
    "binary header": ({"headers": [{"key": "h", "value": b64(b"\xff")}]}, "headers"),
    "nameless header": ({"headers": [{"key": "", "value": b64(b"v")}]}, "headers"),
    "separator in a name": ({"headers": [{"key": "a\x01", "value": b64(b"v")}]}, "headers"),
    "separator in a header": ({"headers": [{"key": "a", "value": b64(b"v\x02")}]}, "headers"),
    "repeated header": ({"headers": [{"key": "a", "value": b64(b"v")}] * 2}, "headers"),
    "reserved name": ({"headers": [{"key": "KEYS", "value": b64(b"v")}]}, "headers"),
    "empty tag": ({"tag": ""}, "tag"),
    "separator in the tag": ({"tag": "a\x02"}, "tag"),
    "empty lookup key": ({"keys": [""]}, "keys"),
    "lookup key with a space": ({"keys": ["a b"]}, "keys"),
    "lookup key with a separator": ({"keys": ["a\x01"]}, "keys"),
    "another property": ({"properties": {"DELAY": "3"}}, "properties"),
    "user's property": ({"properties": {"colour": "blue"}}, "properties"),
    "empty property": ({"properties": {"UNIQ_KEY": ""}}, "properties"),
    "separator in a property": ({"properties": {"UNIQ_KEY": "a\x01"}}, "properties"),
    "large header": ({"headers": [{"key": "a", "value": b64(b"v" * 32_768)}]}, "headers"),
    "too much": (
        {"headers": [{"key": name, "value": b64(b"v" * 20_000)} for name in "ab"]},
        "properties",
    ),
}


async def test_the_message_names_the_header(api: Api) -> None:
    for header in ({"key": "h"}, {"key": "h", "value": b64(b"\xff")}):
        records = [{"value": b64(b"v"), "headers": [{"key": "a", "value": b64(b"v")}, header]}]
        refused = await api.post("/topics/t", {"records": records}, content_type=BINARY)
        assert refused.json["message"].startswith("record 0: headers: the value of 'h' is ")


@pytest.mark.parametrize(("record", "field"), REFUSED.values(), ids=REFUSED.keys())
async def test_what_a_message_cannot_carry(api: Api, record: dict[str, object], field: str) -> None:
    """A value that a message cannot carry is rejected by its field name in the request; other records are stored."""
    whole = {"value": b64(b"v"), **record} if field != "value" else record
    answer = await api.post("/topics/t", {"records": [whole]}, content_type=BINARY)
    assert answer.code == 42206
    assert answer.json["field"] == field
    assert field in answer.json["message"]
    assert (await api.get("/topics")).json == []
    both = {"records": [{"value": b64(b"good")}, whole]}
    beside = await api.post("/topics/t", both, content_type=BINARY)
    assert [row["error_code"] for row in beside.json["offsets"]] == [None, 42206]
    assert [row["value"] for row in (await api.get(ROWS)).json] == [b64(b"good")]


async def test_batches_are_not_offered(api: Api) -> None:
    batch = "application/vnd.kafka.recordbatch.v2"
    assert (await api.post("/topics/t", bytes(100), content_type=batch)).code == 42207
    assert (await api.get("/topics")).json == []


@pytest.mark.parametrize("name", ["TBW102", "SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRANS_HALF_TOPIC"])
async def test_the_brokers_own_topics_are_not_made(api: Api, name: str) -> None:
    assert (await api.call("PUT", f"/topics/{name}")).code == 42203
    assert (await api.post(f"/topics/{name}", records(1))).code == 42203
    assert (await api.get("/topics")).json == []


@pytest.mark.parametrize(
    ("name", "closed"),
    [
        ("SCHEDULE_TOPIC_XXXX", True),
        ("RMQ_SYS_TRANS_HALF_TOPIC", True),
        ("OFFSET_MOVED_EVENT", True),
        ("rmq_sys_wheel_timer", True),
        ("RMQ_SYS_TRACE_TOPIC", False),
        ("%RETRY%group", False),
    ],
)
async def test_what_the_broker_keeps_in_topics_is_its_own(
    tmp_path: Path, name: str, closed: bool
) -> None:
    """The broker's own topics can be read; produce is rejected for topics to which the broker lets no client write."""
    chosen = settings(tmp_path / "store", set={"defaultTopicQueueNums": "1"})
    with open_store("rocketmq", tmp_path / "store", StoreOptions(settings=chosen.set)) as store:
        assert isinstance(store, SupportsRawMessages)
        message = RawMessage(body=b"the broker's", properties=b"", born_host=bytes(8))
        store.append_messages(TopicPartition(name, 0), [message])
    path = f"/topics/{quote(name, safe='')}"
    stream = "application/x-ndjson"
    async with serving(chosen, opener("rocketmq", chosen)) as api:
        answers = [
            await api.post(path, records(1)),
            await api.post(f"{path}/partitions/0", records(1)),
            await api.post(path, b'{"value":"YQ=="}\n', content_type=stream),
        ]
        assert [answer.status for answer in answers] == [422 if closed else 200] * 3
        assert not closed or {answer.code for answer in answers} == {42203}
        rows = (await api.get(f"{path}/partitions/0/records")).json
        assert len(rows) == (1 if closed else 4)


async def test_names_that_kafka_has_not(api: Api) -> None:
    for name in ("%25RETRY%25group", "a%7Cb"):
        assert (await api.post(f"/topics/{name}", records(1))).status == 200
    assert (await api.get("/topics")).json == ["%RETRY%group", "a|b"]
    assert (await api.call("PUT", "/topics/a.b")).code == 42203


async def test_new_topics_have_eight_queues(tmp_path: Path) -> None:
    chosen = settings(tmp_path / "store")
    async with serving(chosen, opener("rocketmq", chosen)) as api:
        await api.post("/topics/t", records(1))
        assert len((await api.get("/topics/t")).json["partitions"]) == 8


async def test_time_is_that_of_the_store(api: Api) -> None:
    await api.post("/topics/t", records(1, 2, timestamp=5))
    first = (await api.get(ROWS)).json[0]["store_timestamp"]
    assert (await api.get(f"{ROWS}?offset=@{first}")).json[0]["offset"] == 0
    assert (await api.get(f"{ROWS}?offset=@{first + 3_600_000}")).json == []
    found = await api.get(f"/topics/t/partitions/0/offsets?timestamp={first}")
    assert found.json == {"offset": 0, "timestamp": first}
    born = (await api.get("/topics/t/messages?begin=0&end=10")).json
    assert (born["records"], born["complete"]) == ([], True)


async def test_the_store_tells_its_lag(api: Api) -> None:
    await api.post("/topics/t", records(1))
    details = (await api.get("/store")).json["stats"]["details"]
    assert details["dispatch_lag_bytes"] >= 0
    assert details["max_physical_offset"] > 0
    assert b"logserver_store_dispatch_lag_bytes " in (await api.get("/metrics")).body


@pytest.mark.parametrize("flush", ["sync", "async", "os"])
async def test_what_was_answered_is_there_after_a_restart(tmp_path: Path, flush: str) -> None:
    chosen = settings(tmp_path / "store", flush=flush, flush_interval_ms=5)
    for begin in (0, 2):
        async with serving(chosen, opener("rocketmq", chosen)) as api:
            for n in (begin, begin + 1):
                answer = await api.post("/topics/t/partitions/3", records(n, keys=[f"key-{n}"]))
                assert answer.json["offsets"][0]["offset"] == n
                assert await api.values("t", 3) == list(range(n + 1))
            for n in range(begin + 2):
                page = (await api.get(f"/topics/t/messages?key=key-{n}", accept=JSON)).json
                assert [row["value"] for row in page["records"]] == [n]
                assert page["indexed"]


async def test_the_id_of_a_deleted_topics_record_leads_nowhere(api: Api) -> None:
    (row,) = (await api.post("/topics/t", records(1))).json["offsets"]
    path = f"/messages/{row['message_id']}"
    assert (await api.get(path)).status == 200
    await api.call("DELETE", "/topics/t")
    assert (await api.get(path)).code == 40404
    await api.post("/topics/t", records(2))
    assert (await api.get(path)).code == 40404
    assert await api.values("t") == [2]


# ---- stores of the real broker ----


async def everything(api: Api, path: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    offset = "earliest"
    while True:
        answer = await api.get(f"{path}/records?offset={offset}&max_records=200", accept=BINARY)
        assert answer.status == 200, answer.body
        if not answer.json:
            return rows
        rows += answer.json
        offset = answer.headers["X-Next-Offset"]


def reported(row: dict[str, Any]) -> dict[str, Any]:
    """Return the facts that a row of this server and a row of the real store share."""
    return {
        "offset": row["offset"],
        "storeTimestamp": row["store_timestamp"],
        "bornTimestamp": row["timestamp"],
        "tags": row.get("tag"),
        "properties": row["properties"],
        "msgId": row["message_id"],
    }


def expected(row: dict[str, Any]) -> dict[str, Any]:
    """Return the same facts of a golden row."""
    return {
        "offset": row["queueOffset"],
        **{
            name: row[name]
            for name in ("storeTimestamp", "bornTimestamp", "tags", "properties", "msgId")
        },
    }


def same_body(row: dict[str, Any], golden_row: dict[str, Any]) -> bool:
    """Return whether bodies are equal. The served body is decompressed; the golden row has the stored body or hash."""
    body = base64.b64decode(row["value"])
    sys_flag: int = golden_row["sysFlag"]
    if "body" not in golden_row:
        if sys_flag & COMPRESSED:
            return len(body) > int(golden_row["bodyLength"])
        return hashlib.sha256(body).hexdigest() == str(golden_row["bodySha256"])
    return body == decompress(base64.b64decode(golden_row["body"]), sys_flag, limit_bytes=1 << 22)


@pytest.fixture(params=[*CLEAN, *UNCLEAN])
def store(request: pytest.FixtureRequest) -> GoldenStore:
    """Each store that the real RocketMQ made."""
    return golden(request.param)


async def test_a_real_store_over_http(store: GoldenStore) -> None:
    """Every queue's bounds and records equal the golden rows, and each seventh record is found by its id."""
    chosen = settings(store.root, set=store.settings)
    async with serving(chosen, opener("rocketmq", chosen, read_only=True)) as api:
        for (topic, number), (first, following) in store.queues.items():
            path = f"/topics/{quote(topic, safe='')}/partitions/{number}"
            bounds = (await api.get(f"{path}/offsets")).json
            assert bounds == {"beginning_offset": first, "end_offset": following}
            rows = await everything(api, path)
            golden_rows = [
                row for row in store.expected() if (row["topic"], row["queueId"]) == (topic, number)
            ]
            assert [reported(row) for row in rows] == [expected(row) for row in golden_rows]
            assert all(map(same_body, rows, golden_rows))
            for row in rows[::7]:
                answer = await api.get(f"/messages/{row['message_id']}", accept=BINARY)
                assert answer.json == row


async def test_a_real_store_is_queried_over_http(store: GoldenStore) -> None:
    """A query by key finds all records with the key, newest first: each seventh key of the real store's queries."""
    asked = {(query["topic"], query["key"]) for query in store.json("queries.json")}
    chosen = settings(store.root, set=store.settings)
    async with serving(chosen, opener("rocketmq", chosen, read_only=True)) as api:
        for topic, key in sorted(asked)[::7]:
            path = f"/topics/{quote(topic, safe='')}/messages"
            query = f"key={quote(key, safe='')}&limit=10000&direction=backward"
            answer = await api.get(f"{path}?{query}")
            if answer.status == 404:
                assert all(row["topic"] != topic for row in store.expected())
                continue
            assert answer.json["complete"]
            ids = [row["message_id"] for row in answer.json["records"]]
            holding = [
                row
                for row in store.expected()
                if row["topic"] == topic and key in (row["keys"] or "").split(" ")
            ]
            holding.sort(key=lambda row: -row["physicalOffset"])
            assert ids == [row["msgId"] for row in holding]
