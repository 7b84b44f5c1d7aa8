"""Logs: a line per request on demand, readable by a program, found by the request id, without data of the request."""

from __future__ import annotations

import logging
import sys
from pathlib import Path

import msgspec
import pytest

from logserver.logs import TEXT, JsonFormatter, TextFormatter, fields_of
from storage import StorageError
from tests.http.harness import JSON, opener, records, serving, settings
from tests.watched_store import WatchedStore

SECRET = "secret-0123456789"


def record_of(message: str, **fields: object) -> logging.LogRecord:
    return logging.makeLogRecord(
        {"name": "a.b", "levelname": "INFO", "created": 1.5, "msg": message, **fields}
    )


async def test_each_request_has_a_line_if_asked(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    chosen = settings(tmp_path / "store", access_log=True)
    with caplog.at_level(logging.INFO, logger="api.access"):
        async with serving(chosen, opener("memory", chosen)) as api:
            headers = {"X-Request-Id": "mine-1", "Authorization": f"Bearer {SECRET}"}
            body = {"headers": headers | {"Content-Type": JSON}, "json": records(SECRET)}
            await api.call("POST", f"/topics/t?format={SECRET}", **body)
            await api.call("POST", "/topics/t?format=json", **body)
            own = await api.get("/topics/no")
    refused, stored, missing = (fields_of(record) for record in caplog.records)
    assert {name: stored[name] for name in ("method", "path", "route", "status", "request_id")} == {
        "method": "POST",
        "path": "/topics/t",
        "route": "/topics/{topic}",
        "status": 200,
        "request_id": "mine-1",
    }
    assert isinstance(stored["elapsed_ms"], float)
    assert stored["peer"] == "127.0.0.1"
    assert refused["status"] == 400
    assert missing["status"] == 404
    assert missing["request_id"] == own.headers["X-Request-Id"]
    for form in (JsonFormatter(), TextFormatter(TEXT)):
        assert not any(SECRET in form.format(record) for record in caplog.records)


async def test_there_are_no_lines_unless_asked(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    chosen = settings(tmp_path / "store")
    with caplog.at_level(logging.INFO):
        async with serving(chosen, opener("memory", chosen)) as api:
            await api.get("/topics")
    assert [record for record in caplog.records if record.name == "api.access"] == []


async def test_a_mistake_of_ours_is_found_by_the_requests_id(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = WatchedStore()
    store.create_topic("t", 1)

    def broken(partition: object, records: object) -> StorageError | None:
        raise ZeroDivisionError("a detail")

    store.fail_append = broken
    async with serving(settings(tmp_path), store.opener()) as api:
        answer = await api.post("/topics/t", records(1))
    broke = next(record for record in caplog.records if record.name == "api.connection.protocol")
    assert fields_of(broke)["request_id"] == answer.headers["X-Request-Id"]
    reported = msgspec.json.decode(JsonFormatter().format(broke))
    assert "ZeroDivisionError" in reported["exception"]


def test_json_has_the_fields_beside_the_message() -> None:
    reported = msgspec.json.decode(
        JsonFormatter().format(record_of("done", topic="t", path=Path("a")))
    )
    assert reported == {
        "time": "1970-01-01T00:00:01.500+00:00",
        "level": "info",
        "logger": "a.b",
        "message": "done",
        "topic": "t",
        "path": "a",
    }


def test_a_line_is_one_line() -> None:
    try:
        int("no\nnumber")
    except ValueError:
        record = record_of("x\ny", exc_info=sys.exc_info())
        assert "\n" not in JsonFormatter().format(record)


def test_text_has_the_fields_behind_the_message() -> None:
    line = TextFormatter(TEXT).format(record_of("done", status=200, path="/a"))
    assert line.endswith(" INFO a.b: done status=200 path=/a")
