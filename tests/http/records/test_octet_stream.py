"""A single record as an HTTP message: the body is the value; headers carry key, tag and record headers."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.http.harness import (
    Answer,
    Api,
    b64,
    fetched,
    for_any_bytes,
    opener,
    serving,
    settings,
    without_ids,
)

OCTETS = "application/octet-stream"


async def post(api: Api, path: str, body: bytes, **headers: str) -> Answer:
    """Post a body with headers; `X_Key` stands for X-Key."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return await api.call("POST", path, data=body, headers={"Content-Type": OCTETS, **named})


async def test_the_body_is_the_value(api: Api) -> None:
    answer = await post(api, "/topics/t", b"\x00\xff raw")
    assert answer.status == 200
    assert answer.headers["Content-Type"] == "application/json"
    assert without_ids(answer.json["offsets"]) == [
        {"partition": 0, "offset": 0, "error_code": None, "error": None}
    ]
    (row,) = await fetched(api)
    assert (row["key"], row["value"]) == (None, b64(b"\x00\xff raw"))


async def test_headers_tell_the_rest(api: Api) -> None:
    headers = {"X-Key": "schlüssel", "X-Tag": "blau", "X-Header-Trace-Id": "äbc"}
    assert (await post(api, "/topics/t", b"v", **headers)).status == 200
    (row,) = await fetched(api)
    assert row["key"] == b64("schlüssel".encode())
    assert row["tag"] == "blau"
    named: Any = row["headers"]
    assert {"key": "trace-id", "value": b64("äbc".encode())} in named


async def test_header_names_are_stored_in_lower_case_and_may_repeat(api: Api) -> None:
    for_any_bytes(api)
    answer = await raw_post(api, b"X-HEADER-A: 1\r\nx-header-a:\r\nX-Header-B: 2\r\n")
    assert answer.startswith(b"HTTP/1.1 200 ")
    (row,) = await fetched(api)
    assert row["headers"] == [
        {"key": "a", "value": b64(b"1")},
        {"key": "a", "value": ""},
        {"key": "b", "value": b64(b"2")},
    ]


async def test_a_key_of_any_bytes_comes_in_base64(api: Api) -> None:
    for_any_bytes(api)
    for key in (b"\x00\xff", b""):
        assert (await post(api, "/topics/t", b"v", X_Key_Base64=b64(key))).status == 200
    assert [row["key"] for row in await fetched(api)] == [b64(b"\x00\xff"), ""]


async def test_an_empty_body_is_the_empty_value(api: Api) -> None:
    answer = await post(api, "/topics/t", b"", X_Key="")
    if api.keeps_messages:
        assert answer.code == 42206
        return
    (row,) = await fetched(api)
    assert (row["key"], row["value"]) == ("", "")


@pytest.mark.parametrize("value", [b"null", b"0", b"false", b'""'])
async def test_what_looks_like_json_is_kept_as_it_is(api: Api, value: bytes) -> None:
    assert (await post(api, "/topics/t", value)).status == 200
    assert [row["value"] for row in await fetched(api)] == [b64(value)]


async def test_it_goes_where_the_path_says_or_the_key(api: Api) -> None:
    await api.create("t", partitions=8)
    (row,) = (await post(api, "/topics/t/partitions/5", b"v")).json["offsets"]
    assert row["partition"] == 5
    by_key = (await post(api, "/topics/t", b"v", X_Key="user-1")).json["offsets"]
    body = {"records": [{"key": "user-1", "value": "v"}]}
    in_json = await api.post("/topics/t?format=text", body, content_type="application/json")
    assert by_key[0]["partition"] == in_json.json["offsets"][0]["partition"]


async def test_a_sequence_makes_a_repeat_one_record(api: Api) -> None:
    await api.create("t")
    path = "/topics/t?producer_id=7&producer_epoch=0&sequence=0"
    answers = [(await post(api, path, b"v")).json for _ in range(2)]
    assert answers[0] == answers[1]
    assert len(await fetched(api)) == 1


async def test_acks_0_is_not_waited_for(api: Api) -> None:
    answer = await post(api, "/topics/t?acks=0", b"v")
    assert (answer.status, answer.json["offsets"]) == (202, None)


@pytest.mark.parametrize(
    ("headers", "code", "reported"),
    [
        ({"X_Key_Base64": "***"}, 42202, "X-Key-Base64"),
        ({"X_Key_Base64": "YQ"}, 42202, "X-Key-Base64"),
        ({"X_Key": "a", "X_Key_Base64": "YQ=="}, 42201, "send one of them"),
        ({"X_Key": "\udcff"}, 42201, "X-Key is not UTF-8"),
        ({"X_Header_A": "\udcff"}, 42201, "X-Header-A is not UTF-8"),
    ],
)
async def test_a_bad_header_is_named(
    api: Api, headers: dict[str, str], code: int, reported: str
) -> None:
    encoded = b"".join(
        b"%b: %b\r\n" % (name.replace("_", "-").encode(), value.encode(errors="surrogateescape"))
        for name, value in headers.items()
    )
    answer = await raw_post(api, encoded)
    assert b'"error_code":%d' % code in answer
    assert reported.encode() in answer
    assert sorted(api.service.topics) == []


async def raw_post(api: Api, headers: bytes) -> bytes:
    """Post header bytes that a client library would not send; return the answer."""
    async with api.connection() as (reader, writer):
        writer.write(
            b"POST /topics/t HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: 1\r\n"
            b"Content-Type: application/octet-stream\r\n%b\r\nv" % headers
        )
        return await asyncio.wait_for(reader.read(), 10)


async def test_format_says_nothing_here(api: Api) -> None:
    assert (await post(api, "/topics/t?format=json", b"v")).code == 40000


async def test_a_body_one_byte_over_the_limit(tmp_path: Path) -> None:
    chosen = settings(tmp_path, max_body_bytes=2000)
    async with serving(chosen, opener("memory", chosen)) as api:
        assert (await post(api, "/topics/t", bytes(2000))).status == 200
        assert (await post(api, "/topics/t", bytes(2001))).code == 41301
