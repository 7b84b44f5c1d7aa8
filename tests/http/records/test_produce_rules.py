"""Produce: what `application/json` means, answers without a body, times far ahead of the clock, errors in words."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from api.http.parameters import MAX_INT32, MAX_INT64
from logserver.service.produce import MAX_AHEAD_MS, WARN_AGAIN_MS
from tests.http.harness import (
    BINARY,
    JSON,
    ONE_PARTITION,
    V2,
    Api,
    b64,
    fetched,
    opener,
    records,
    serving,
    settings,
)

PLAIN = "application/json"
WHOLE = "it must be a whole number"
NOW_MS = 1_760_000_000_000


# -- application/json


@pytest.mark.parametrize("value", ["hello", "***", {"n": 1}, [1], 5, True])
async def test_plain_json_never_guesses(api: Api, value: object) -> None:
    """A text can be base64 by chance: next to a value that is not, it is not stored as other bytes."""
    body = records(b64(b"a"), "test", value)
    answer = await api.post("/topics/t", body, content_type=PLAIN)
    assert answer.code == (42202 if isinstance(value, str) else 42201)
    message = answer.json["message"]
    assert message.startswith("records[2].value is ")
    assert "it must be base64 text or null (application/json means base64" in message
    assert "format=text" in message
    assert JSON in message
    assert message.endswith("nothing of the request is stored")
    assert [row["offset"] for row in answer.json["offsets"]] == [None] * 3
    assert (await api.get("/topics")).json == []


async def test_a_key_and_a_header_are_not_guessed_either(api: Api) -> None:
    for record in ({"key": "k1"}, {"headers": [{"key": "h", "value": "text!"}]}):
        body = {"records": [{"value": b64(b"a")}, {"value": b64(b"b"), **record}]}
        assert (await api.post("/topics/t", body, content_type=PLAIN)).code == 42202
    assert (await api.get("/topics")).json == []


@pytest.mark.parametrize("content_type", [BINARY, V2])
async def test_a_named_format_keeps_the_other_records(api: Api, content_type: str) -> None:
    answer = await api.post("/topics/t", records(b64(b"a"), "***"), content_type=content_type)
    assert answer.status == 200
    assert [row["error_code"] for row in answer.json["offsets"]] == [None, 42202]


async def test_so_does_the_parameter_format(api: Api) -> None:
    answer = await api.post(
        "/topics/t?format=binary", records(b64(b"a"), "***"), content_type=PLAIN
    )
    assert answer.status == 200
    by_json = await api.post(
        "/topics/u?format=json", records("hello", {"n": 1}), content_type=PLAIN
    )
    assert by_json.status == 200
    assert await api.values("u") == ["hello", {"n": 1}]


async def test_another_error_of_one_record_fails_alone(api: Api) -> None:
    body = {"records": [{"value": b64(b"a")}, {"value": b64(b"b"), "partition": -1}]}
    answer = await api.post("/topics/t", body, content_type=PLAIN)
    assert answer.status == 200
    assert [row["error_code"] for row in answer.json["offsets"]] == [None, 42201]


# -- async


async def test_async_is_answered_without_a_body(api: Api) -> None:
    await api.create("t")
    for query in ("async=true", "async=true&acks=0"):
        answer = await api.post(f"/topics/t?{query}", records(1))
        assert (answer.status, answer.body) == (204, b"")
    waited = await api.post("/topics/t?async=false", records(1))
    assert (waited.status, len(waited.json["offsets"])) == (200, 1)
    while len(await api.values("t")) < 3:  # noqa: ASYNC110  # no answer waits for the first two
        await asyncio.sleep(0.001)
    assert await api.values("t") == [1, 1, 1]


async def test_async_still_checks_the_body(api: Api) -> None:
    assert (await api.post("/topics/t?async=true", b"{")).code == 40000
    body = {"records": [{"value": 1}, {"value": 1, "partition": -1}]}
    assert (await api.post("/topics/t?async=true", body)).code == 42201
    assert (await api.get("/topics")).json == []


@pytest.mark.parametrize(
    "query", ["async=AAA", "async=", "async=true&acks=1", "async=true&acks=all"]
)
async def test_a_wrong_async_is_refused(api: Api, query: str) -> None:
    answer = await api.post(f"/topics/t?{query}", records(1))
    assert answer.code == 40000
    assert "async" in answer.json["message"]


async def test_a_stream_is_never_async(api: Api) -> None:
    answer = await api.post(
        "/topics/t?async=true&format=json", b'{"value":1}', content_type="application/x-ndjson"
    )
    assert answer.code == 40000


async def test_one_record_as_it_is_can_be_async(api: Api) -> None:
    answer = await api.post("/topics/t?async=true", b"x", content_type="application/octet-stream")
    assert (answer.status, answer.body) == (204, b"")


# -- times


class Clock:
    """A clock that stands still until the test moves it."""

    def __init__(self) -> None:
        self.now_ms = NOW_MS

    def __call__(self) -> int:
        return self.now_ms


@pytest.fixture
def clock() -> Clock:
    """The clock of the server."""
    return Clock()


@pytest.fixture
async def timed(backend: str, tmp_path: Path, clock: Clock) -> AsyncIterator[Api]:
    """A server with the test's clock."""
    chosen = settings(tmp_path / "store", set=ONE_PARTITION.get(backend, {}))
    async with serving(chosen, opener(backend, chosen), clock=clock) as running:
        yield running


async def test_a_time_far_ahead_is_warned_of(
    timed: Api, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    limit_ms = NOW_MS + MAX_AHEAD_MS
    rows = [{"value": 1, "timestamp": at} for at in (limit_ms, limit_ms + 1, NOW_MS * 1000)]
    with caplog.at_level(logging.WARNING):
        answer = await timed.post("/topics/t", {"records": [{"value": 0}, *rows]})
        assert answer.status == 200
        assert answer.headers["X-Warnings"] == (
            "timestamps are more than 1 hour ahead of the server's clock: records[2], records[3]"
        )
        assert len(await fetched(timed)) == 4
        (logged,) = [one.message for one in caplog.records if "ahead of" in one.message]
        assert f"topic t: the timestamp {NOW_MS * 1000} is more than 1 hour ahead" in logged
        caplog.clear()
        again = await timed.post("/topics/t", {"records": rows[-1:]})
        assert "X-Warnings" in again.headers
        assert not caplog.records
        clock.now_ms += WARN_AGAIN_MS
        await timed.post("/topics/t", {"records": rows[-1:]})
        assert len(caplog.records) == 1


async def test_usual_times_are_not(timed: Api) -> None:
    rows = [{"value": 1, "timestamp": at} for at in (0, NOW_MS, NOW_MS + MAX_AHEAD_MS)]
    for body in ({"records": rows}, records(1)):
        assert "X-Warnings" not in (await timed.post("/topics/t", body)).headers


async def test_streams_and_v3_are_warned_of_too(
    timed: Api, caplog: pytest.LogCaptureFixture
) -> None:
    line = b'{"value":1,"timestamp":%d}' % (NOW_MS * 2)
    with caplog.at_level(logging.WARNING):
        await timed.post("/topics/s?format=json", line, content_type="application/x-ndjson")
        assert [one.message[:8] for one in caplog.records] == ["topic s:"]
    entry = {"id": "a", "value": {"type": "JSON", "data": 1}, "timestamp": "9999-01-01T00:00:00Z"}
    path = f"/v3/clusters/{timed.cluster_id}/topics/t/records:batch"
    answer = await timed.post(path, {"entries": [entry]}, content_type=PLAIN)
    assert answer.status == 207
    assert answer.headers["X-Warnings"].endswith(": a")


async def test_a_record_with_the_time_of_its_append_is_not_warned_of(timed: Api) -> None:
    if timed.backend != "kafka":
        pytest.skip("only Kafka's topics have LogAppendTime")
    await timed.create("t", message_timestamp_type="LogAppendTime")
    answer = await timed.post("/topics/t", records(1, timestamp=NOW_MS * 2))
    assert (answer.status, "X-Warnings" in answer.headers) == (200, False)


# -- errors in words


async def test_errors_name_field_value_and_limit(api: Api) -> None:
    rows = [
        ({"value": 1, "partition": -1}, f"records[0].partition is -1: {WHOLE} from 0 to {MAX_INT32} or null"),
        ({"value": 1, "timestamp": "x"}, f'records[0].timestamp is "x": {WHOLE} from 0 to {MAX_INT64} or null'),
        ({"vaule": 1}, "records[0].vaule is unknown: the possible names are partition, timestamp, tag, keys,"),
        ({"value": 1, "headers": [{}]}, "records[0].headers[0].key is missing: it must be text"),
    ]  # fmt: skip
    for record, words in rows:
        answer = await api.post("/topics/t", {"records": [record]})
        assert answer.json["message"].startswith(words), answer.json
    answer = await api.call("PUT", "/topics/t", json={"partitions": 10_001})
    assert (
        answer.json["message"]
        == "partitions is 10001: it must be a whole number from 1 to 10000 or null"
    )
    answer = await api.call("PUT", "/topics/t", json={"configs": {"a": "b", "retention.ms": []}})
    wanted = "it must be text, a number, true or false"
    assert answer.json["message"] == f'configs["retention.ms"] is []: {wanted}'
    answer = await api.call("PUT", "/groups/g/offsets", json={"to": "soon"})
    assert answer.json["message"] == 'to is "soon": it must be "earliest" or "latest" or an object'
    answer = await api.call("PUT", "/topics/t", data=b"{", headers={"Content-Type": PLAIN})
    assert (answer.code, answer.json["message"]) == (
        40000,
        "the body is no JSON: it ends too early",
    )
