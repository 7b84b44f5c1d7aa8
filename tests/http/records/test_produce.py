"""Produce in JSON: formats, shapes, records that fail alone, rejected requests."""

from __future__ import annotations

import asyncio

import pytest

from storage import partition_for_key
from tests.http.harness import (
    BINARY,
    JSON,
    V2,
    Api,
    b64,
    fetched,
    for_any_bytes,
    records,
    without_ids,
)

OK = {"error_code": None, "error": None}
TOO_LARGE_BYTES = 5_000_000  # for every backend
BODY_TAIL = {"key_schema_id": None, "value_schema_id": None}


async def test_the_answer_has_the_proxys_shape(api: Api) -> None:
    answer = await api.post("/topics/t", records(b64(b"a"), b64(b"b")), content_type=BINARY)
    assert answer.status == 200
    rows = [{"partition": 0, "offset": offset} | OK for offset in (0, 1)]
    assert list(answer.json) == ["offsets", *BODY_TAIL]
    assert answer.json | {"offsets": without_ids(answer.json["offsets"])} == (
        {"offsets": rows} | BODY_TAIL
    )


@pytest.mark.parametrize("content_type", [BINARY, V2, "application/json", BINARY.upper()])
async def test_plain_json_means_base64(api: Api, content_type: str) -> None:
    body = {"records": [{"key": b64(b"k\x00"), "value": b64(b"\x00\xff")}]}
    assert (await api.post("/topics/t", body, content_type=content_type)).status == 200
    (row,) = await fetched(api)
    assert (row["key"], row["value"]) == (b64(b"k\x00"), b64(b"\x00\xff"))


async def test_keys_are_bytes(api: Api) -> None:
    for_any_bytes(api)
    await api.post("/topics/t", records(b64(b"v"), key=b64(b"\x00\xff")), content_type=V2)
    (row,) = await fetched(api)
    assert row["key"] == b64(b"\x00\xff")


async def test_a_charset_of_utf8_is_taken(api: Api) -> None:
    answer = await api.post("/topics/t", records(1), content_type=f'{JSON}; charset="UTF-8"')
    assert answer.status == 200


@pytest.mark.parametrize(
    "content_type",
    [
        None,
        "text/plain",
        "application/x-www-form-urlencoded",
        "application/vnd.kafka.avro.v2+json",
        f"{JSON}; charset=latin-1",
    ],
)
async def test_another_type_is_415(api: Api, content_type: str | None) -> None:
    assert (await api.post("/topics/t", records(1), content_type=content_type)).code == 415
    assert (await api.get("/topics")).json == []


async def test_the_type_that_curl_sends_by_itself_is_explained(api: Api) -> None:
    form = "application/x-www-form-urlencoded"
    answer = await api.post("/topics/t", records(1), content_type=form)
    assert "curl sends it by itself: give -H 'Content-Type: " in answer.json["message"]
    answer = await api.post("/topics/t", records(1), content_type="text/plain")
    assert "curl" not in answer.json["message"]


async def test_an_accept_that_cannot_be_met_is_406_and_stores_nothing(api: Api) -> None:
    assert (await api.post("/topics/t", records(1), accept="text/html")).code == 406
    assert (await api.get("/topics")).json == []


JSON_VALUES = [
    b"null",
    b'""',
    b"0",
    b"false",
    b"[]",
    b"{}",
    b'{"b" : 1,\t"a":2, "a":3}',
    b"9007199254740993",
    b"123456789012345678901234567890",
    b"-0",
    b"1.0",
    b"1e400",
    b'"\\u00e4\xc3\xa4\\n"',
]


@pytest.mark.parametrize("value", JSON_VALUES)
async def test_json_is_kept_verbatim(api: Api, value: bytes) -> None:
    if value == b"null":
        for_any_bytes(api)
    body = b'{"records":[{"key":' + value + b',"value":' + value + b"}]}"
    assert (await api.post("/topics/t", body)).status == 200
    answer = await api.get("/topics/t/partitions/0/records", accept=JSON)
    assert b'"key":' + value + b',"value":' + value + b"," in answer.body
    (row,) = await fetched(api)
    assert row["value"] == (None if value == b"null" else b64(value))


async def test_null_empty_zero_and_false_stay_apart(api: Api) -> None:
    for_any_bytes(api)
    await api.post("/topics/t", records(None, "", 0, False))
    stored = [row["value"] for row in await fetched(api)]
    assert stored == [None, b64(b'""'), b64(b"0"), b64(b"false")]


async def test_base64_keeps_null_and_empty_apart(api: Api) -> None:
    for_any_bytes(api)
    body = {"records": [{"key": "", "value": None}, {"key": None, "value": ""}, {}]}
    assert (await api.post("/topics/t", body, content_type=BINARY)).status == 200
    stored = [(row["key"], row["value"]) for row in await fetched(api)]
    assert stored == [("", None), (None, ""), (None, None)]


async def test_text_is_taken_and_given(api: Api) -> None:
    body = {"records": [{"key": "käse", "value": "", "headers": [{"key": "h", "value": "grün"}]}]}
    answer = await api.post("/topics/t?format=text", body, content_type="application/json")
    assert answer.status == 200
    (row,) = (await api.get("/topics/t/partitions/0/records?format=text")).json
    assert (row["key"], row["value"]) == ("käse", "")
    assert row["headers"] == [{"key": "h", "value": "grün"}]


async def test_headers_keep_order_repeats_and_null(api: Api) -> None:
    for_any_bytes(api)
    headers = [
        {"key": "a", "value": b64(b"\x00")},
        {"key": "a", "value": None},
        {"key": "", "value": ""},
    ]
    await api.post("/topics/t", records(1, headers=headers))
    (row,) = await fetched(api)
    assert row["headers"] == headers


async def test_a_timestamp_is_kept(api: Api) -> None:
    await api.post("/topics/t", records(1, timestamp=(1 << 62)))
    assert [row["timestamp"] for row in await fetched(api)] == [1 << 62]


async def test_tag_and_keys_come_back(api: Api) -> None:
    await api.post("/topics/t", records(1, tag="blue", keys=["k1", "k2"]))
    (row,) = await fetched(api)
    assert (row["tag"], row["keys"]) == ("blue", ["k1", "k2"])


async def test_of_a_repeated_name_the_last_counts(api: Api) -> None:
    await api.post("/topics/t", b'{"records":[{"value":1,"value":2}]}')
    assert await api.values("t") == [2]


async def test_what_the_proxys_clients_send_beside_is_passed_over(api: Api) -> None:
    body = records(1) | {"key_schema_id": None, "value_schema": None}
    assert (await api.post("/topics/t", body)).status == 200


# -- partitions


async def test_a_key_goes_where_kafka_puts_it(api: Api) -> None:
    await api.create("t", 7)
    keys = [f"key-{number}" for number in range(30)]
    body = {"records": [{"key": key, "value": "x"} for key in keys]}
    answer = await api.post("/topics/t?format=text", body)
    chosen = [row["partition"] for row in answer.json["offsets"]]
    assert chosen == [partition_for_key(key.encode(), 7) for key in keys]
    assert len(set(chosen)) > 3


async def test_keyless_records_of_a_request_stay_together_and_requests_take_turns(
    api: Api,
) -> None:
    await api.create("t", 3)
    chosen: list[int] = []
    for _ in range(6):
        answer = await api.post("/topics/t", records(1, 2))
        together = {row["partition"] for row in answer.json["offsets"]}
        assert len(together) == 1
        chosen += together
    assert chosen == [0, 1, 2, 0, 1, 2]


async def test_a_record_may_name_its_partition(api: Api) -> None:
    await api.create("t", 2)
    body = {"records": [{"value": number, "partition": number % 2} for number in range(4)]}
    answer = await api.post("/topics/t", body)
    placed = [(row["partition"], row["offset"]) for row in answer.json["offsets"]]
    assert placed == [(0, 0), (1, 0), (0, 1), (1, 1)]
    assert await api.values("t", 1) == [1, 3]


async def test_a_partition_that_is_not_there_fails_alone(api: Api) -> None:
    await api.create("t", 2)
    body = {"records": [{"value": 1, "partition": 5}, {"value": 2, "partition": 1}]}
    answer = await api.post("/topics/t", body)
    assert answer.status == 200
    failed, stored = answer.json["offsets"]
    assert (failed["partition"], failed["offset"], failed["error_code"]) == (5, None, 40402)
    assert without_ids([stored]) == [{"partition": 1, "offset": 0} | OK]


async def test_the_paths_partition_holds_for_all(api: Api) -> None:
    await api.create("t", 3)
    body = {"records": [{"key": "a", "value": 1}, {"value": 2, "partition": 2}]}
    answer = await api.post("/topics/t/partitions/2", body)
    assert [row["partition"] for row in answer.json["offsets"]] == [2, 2]


async def test_a_record_that_names_another_partition_than_the_path_fails_alone(api: Api) -> None:
    await api.create("t", 3)
    body = {"records": [{"value": 1, "partition": 2}, {"value": 2}]}
    answer = await api.post("/topics/t/partitions/1", body)
    assert answer.status == 200
    failed, stored = answer.json["offsets"]
    assert (failed["offset"], failed["error_code"]) == (None, 42201)
    assert failed["error"] == "records[0].partition is 2, and the path says 1"
    assert without_ids([stored]) == [{"partition": 1, "offset": 0} | OK]
    assert await api.values("t", 1) == [2]
    for query in ("", "?acks=0"):
        alone = {"records": body["records"][: 2 if query else 1]}
        refused = await api.post(f"/topics/t/partitions/1{query}", alone)
        assert refused.code == 42201
        assert "partition is 2" in refused.json["message"]
    assert await api.values("t", 1) == [2]


async def test_an_unknown_topic_is_created_by_its_first_record(api: Api) -> None:
    assert (await api.post("/topics/new/partitions/0", records(1))).status == 200
    assert (await api.post("/topics/other/partitions/3", records(1))).code == 40401
    assert (await api.get("/topics")).json == ["new"]


async def test_many_first_records_at_once_make_one_topic(api: Api) -> None:
    answers = await asyncio.gather(*(api.post("/topics/t", records(n)) for n in range(8)))
    assert {answer.status for answer in answers} == {200}
    offsets = [row["offset"] for answer in answers for row in answer.json["offsets"]]
    assert sorted(offsets) == list(range(8))


# -- records that fail alone


async def test_a_bad_record_fails_alone(api: Api) -> None:
    values = [b64(b"a"), "***", 5, b64(b"d")]
    answer = await api.post("/topics/t", records(*values), content_type=BINARY)
    assert answer.status == 200
    rows = answer.json["offsets"]
    assert [row["offset"] for row in rows] == [0, None, None, 1]
    assert [row["error_code"] for row in rows] == [None, 42202, 42201, None]
    assert "records[1].value" in rows[1]["error"]
    assert "application/json means base64" in rows[1]["error"]
    assert "records[2].value" in rows[2]["error"]
    assert [row["value"] for row in await fetched(api)] == [b64(b"a"), b64(b"d")]


BAD_BASE64 = ["***", "QUJ", "QU JD", "QUJD\n", "=", "QQ", "_-==", "é"]


@pytest.mark.parametrize("value", BAD_BASE64)
@pytest.mark.parametrize("field", ["key", "value"])
async def test_bad_base64_alone_gives_its_own_status(api: Api, field: str, value: str) -> None:
    answer = await api.post("/topics/t", {"records": [{field: value}]}, content_type=BINARY)
    assert answer.code == 42202
    assert answer.json["offsets"][0]["error_code"] == 42202
    assert f"records[0].{field}" in answer.json["message"]
    assert (await api.get("/topics")).json == []


BAD_RECORDS: list[object] = [
    5,
    None,
    [],
    "text",
    {"vaule": 1},
    {"value": 1, "partition": "0"},
    {"value": 1, "partition": -1},
    {"value": 1, "partition": 1.0},
    {"value": 1, "partition": True},
    {"value": 1, "partition": 1 << 31},
    {"value": 1, "timestamp": -1},
    {"value": 1, "timestamp": "2020-01-01"},
    {"value": 1, "timestamp": (1 << 63)},
    {"value": 1, "headers": {}},
    {"value": 1, "headers": [{"value": ""}]},
    {"value": 1, "headers": [{"key": None}]},
    {"value": 1, "headers": [{"key": "h", "value": "***"}]},
    {"value": 1, "headers": [{"key": "h", "extra": 1}]},
    {"value": 1, "tag": 5},
    {"value": 1, "keys": "a b"},
    {"value": 1, "properties": {"a": 1}},
]


@pytest.mark.parametrize("record", BAD_RECORDS, ids=str)
async def test_a_wrong_record_stores_nothing(api: Api, record: object) -> None:
    answer = await api.post("/topics/t", {"records": [record]})
    assert answer.status == 422, answer.body
    assert answer.code in {42201, 42202}
    assert "records[0]" in answer.json["message"]
    beside = await api.post("/topics/t", {"records": [record, {"value": "good"}]})
    assert beside.status == 200
    assert beside.json["offsets"][0]["error_code"] == answer.code
    assert await api.values("t") == ["good"]


async def test_what_is_not_offered_is_refused_by_name(api: Api) -> None:
    if api.backend != "rocketmq":
        delayed = await api.post("/topics/t", records(1, delay_level=3))
        assert delayed.code == 42207
        assert "delay_level" in delayed.json["message"]
    with_properties = await api.post("/topics/t", records(1, properties={"a": "b"}))
    assert with_properties.code == 42206
    assert "properties" in with_properties.json["message"]
    assert (await api.get("/topics")).json == []
    assert (await api.post("/topics/t", records(1, delay_level=0, properties={}))).status == 200


async def test_half_of_a_surrogate_pair_is_told_as_that(api: Api) -> None:
    reported = "\\ud800 is half of a surrogate pair"
    body, line = b'{"records":[{"value":"\\ud800"}]}', b'{"value":"\\ud800"}'
    assert (await api.post("/topics/t", body)).json["message"] == f"the body is no JSON: {reported}"
    streamed = await api.post("/topics/t?format=json", line, content_type="application/x-ndjson")
    assert streamed.json["error"] == f"the record is no JSON: {reported}"
    cut = await api.post("/topics/t", b'{"records":[{"value":"x\\ud8')
    assert cut.json["message"] == "the body is no JSON: it ends too early"


BAD_BODIES: list[tuple[bytes, int]] = [
    (b"", 40000),
    (b"{", 40000),
    (b'{"records":[{"value":1}', 40000),
    (b'{"records":[{"value":1}]} x', 40000),
    (b'{"records":[{"value":NaN}]}', 40000),
    (b'{"records":[{"value":Infinity}]}', 40000),
    (b'{"records":[{"value":01}]}', 40000),
    (b"{'records':[]}", 40000),
    (b'{"records":[{"value":"\xff"}]}', 40000),
    (b'{"records":[{"value":"\\ud800"}]}', 40000),
    (b'\xff\xfe{"records":[]}', 40000),
    (b"[]", 42201),
    (b"5", 42201),
    (b"{}", 42201),
    (b'{"records":{}}', 42201),
    (b'{"records":null}', 42201),
    (b'{"records":[]}', 42201),
    (b'{"records":[{"value":' + b"[" * 62 + b"]" * 62 + b"}]}", 42201),
    (b'{"records":[{"value":' + b'{"a":' * 5000 + b"1" + b"}" * 5000 + b"}]}", 42201),
    (b"[" * 100_000, 42201),
]


@pytest.mark.parametrize(("body", "code"), BAD_BODIES, ids=lambda part: str(part)[:40])
async def test_a_broken_body_stores_nothing(api: Api, body: bytes, code: int) -> None:
    assert (await api.post("/topics/t", body)).code == code
    assert (await api.get("/topics")).json == []


@pytest.mark.parametrize("kind", ["binary", "json", "text"])
@pytest.mark.parametrize("begin", [b'{"records":', b'{"records":[{"x":', b'{"records":[{"tag":'])
async def test_the_limit_of_depth_is_named(api: Api, kind: str, begin: bytes) -> None:
    answer = await api.post(f"/topics/t?format={kind}", begin + b"[" * 100_000)
    assert answer.code == 42201
    assert "64 levels" in answer.json["message"]


async def test_the_deepest_json_is_taken(api: Api) -> None:
    deepest = b"[" * 61 + b'"]]]]{{{"' + b"]" * 61
    body = b'{"records":[{"value":' + deepest + b"}]}"
    assert (await api.post("/topics/t", body)).status == 200
    many = b"[" + b",".join([b'{"a":[1]}'] * 200) + b"]"
    assert (await api.post("/topics/t", b'{"records":[{"value":' + many + b"}]}")).status == 200


async def test_a_record_that_is_too_large_fails_alone(api: Api) -> None:
    large = b64(bytes(TOO_LARGE_BYTES))
    body = records(b64(b"a"), large, b64(b"b"))
    answer = await api.post("/topics/t", body, content_type=BINARY)
    assert answer.status == 200
    assert [row["error_code"] for row in answer.json["offsets"]] == [None, 41302, None]
    alone = await api.post("/topics/t", records(large), content_type=BINARY)
    assert alone.code == 41302
    assert alone.json["limit_bytes"] > 1_000_000
    assert alone.json["size_bytes"] >= TOO_LARGE_BYTES
    assert [row["value"] for row in await fetched(api)] == [b64(b"a"), b64(b"b")]


async def test_a_request_larger_than_a_batch_is_split(api: Api) -> None:
    values = [b64(bytes([number]) * 300_000) for number in range(8)]
    answer = await api.post("/topics/t", records(*values), content_type=BINARY)
    assert [row["offset"] for row in answer.json["offsets"]] == list(range(8))
    rows = await fetched(api, query="?max_bytes=10000000")
    assert [row["value"] for row in rows] == values


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "zlib", "lz4", "zstd"])
async def test_a_codec_may_be_asked_for(api: Api, codec: str) -> None:
    """A backend's own codecs are accepted; other codecs are rejected by name, and no topic is created."""
    others = {"gzip", "snappy"} if api.keeps_messages else {"zlib"}
    if codec in others:
        refused = await api.post(f"/topics/t?compression={codec}", records("x"))
        assert refused.code == 42207
        assert "compression" in refused.json["message"]
        assert (await api.get("/topics")).json == []
        return
    answer = await api.post(f"/topics/t?compression={codec}", records("x" * 1000))
    assert answer.status == 200
    assert await api.values("t") == ["x" * 1000]


@pytest.mark.parametrize(
    "query",
    [
        "compression=brotli",
        "acks=2",
        "acks=",
        "timeout=0",
        "timeout=x",
        "timeout=999999999",
        "format=avro",
        "producer_id=1",
        "producer_id=1&producer_epoch=0",
        "producer_id=x&producer_epoch=0&sequence=0",
        "producer_id=1&producer_epoch=40000&sequence=0",
        "producer_id=1&producer_epoch=0&sequence=-1",
        "producer_id=1&producer_epoch=0&sequence=2147483648",
        "ack=all",
    ],
)
async def test_a_bad_parameter_is_named(api: Api, query: str) -> None:
    answer = await api.post(f"/topics/t?{query}", records(1))
    assert answer.code == 40000
    assert "parameter" in answer.json["message"]
    assert (await api.get("/topics")).json == []


NOTHING_TO_STORE: dict[str, tuple[dict[str, object] | bytes, int]] = {
    "bad base64": (records("***"), 42202),
    "no such partition": (records(b64(b"x"), partition=7), 40402),
    "too large": (records("A" * 8_000_000), 41302),
    "one bad of each kind": ({"records": [{"value": "*"}, {"value": "A" * 8_000_000}]}, 42202),
}


@pytest.mark.parametrize(("body", "code"), NOTHING_TO_STORE.values(), ids=NOTHING_TO_STORE.keys())
async def test_nothing_stored_makes_no_topic(
    api: Api, body: dict[str, object] | bytes, code: int
) -> None:
    """A request without any record that can be stored creates no empty topic."""
    answer = await api.post("/topics/new", body, content_type=BINARY)
    assert answer.code == code
    assert (await api.get("/topics")).json == []
