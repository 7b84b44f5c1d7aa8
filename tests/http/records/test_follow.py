"""Follow: records as a stream of lines or events, where a stream begins, resumes and ends, and its cost for others."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest

from logserver.service import follow
from storage import StorageError
from storage.errors import Corrupt, OffsetOutOfRange
from tests.http.harness import (
    BINARY,
    JSON,
    PROBLEM,
    Api,
    b64,
    fetched,
    opener,
    records,
    serving,
    settings,
)

NDJSON = "application/x-ndjson"
EVENTS = "text/event-stream"
PATH = "/topics/t/partitions/0/records"
WAIT_S = 10.0


class Stream:
    """A stream that is read in pieces."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self.response = response

    async def line(self) -> bytes:
        """Return the next line, with its line end; empty at the end of the stream."""
        async with asyncio.timeout(WAIT_S):
            return await self.response.content.readline()

    async def row(self) -> Any:
        """Return the next line that is not a heartbeat, decoded from JSON."""
        while (line := await self.line()) == b"\n":
            pass
        return msgspec.json.decode(line)

    async def event(self) -> dict[str, str]:
        """Return the fields of the next event; a heartbeat has no `data`."""
        fields: dict[str, str] = {}
        while (line := (await self.line()).decode()) != "\n":
            assert line.endswith("\n"), line
            name, _, value = line[:-1].partition(": ")
            fields[name] = value
        return fields

    async def rest(self) -> bytes:
        """Return everything up to the end of the stream, which must end."""
        async with asyncio.timeout(WAIT_S):
            return await self.response.read()


@asynccontextmanager
async def following_it(
    api: Api, query: str = "", *, accept: str = NDJSON, path: str = PATH, **headers: str
) -> AsyncIterator[Stream]:
    """Open a stream and check that it has begun."""
    named = {"Accept": accept} | {name.replace("_", "-"): text for name, text in headers.items()}
    async with api.session.get(f"{api.url}{path}?{query}", headers=named) as response:
        assert response.status == 200, await response.read()
        assert response.headers["Content-Type"] == accept
        yield Stream(response)


@pytest.fixture
async def quick(backend: str, tmp_path: Path) -> AsyncIterator[Api]:
    """A server with a heartbeat interval of 10 ms."""
    chosen = settings(
        tmp_path / "store",
        heartbeat_ms=10,
        set={"num.partitions": "1"} if backend != "rocketmq" else {},
    )
    async with serving(chosen, opener(backend, chosen)) as running:
        yield running


# -- content of a stream


async def test_lines_are_the_rows_of_a_fetch(api: Api) -> None:
    await api.post("/topics/t", records(1, {"n": 2}, "three", key="k"))
    async with following_it(api, "follow=false") as stream:
        body = await stream.rest()
        assert stream.response.headers["X-Beginning-Offset"] == "0"
        assert stream.response.headers["X-End-Offset"] == "3"
    assert [msgspec.json.decode(line) for line in body.splitlines()] == await fetched(api)


async def test_events_carry_the_same_rows_and_their_place(api: Api) -> None:
    await api.post("/topics/t", records(1, 2))
    async with following_it(api, "follow=false&format=json", accept=EVENTS) as stream:
        events = [await stream.event() for _ in range(3)]
        assert await stream.rest() == b""
    assert [event["id"] for event in events] == ["0:0", "0:1", "0:1"]
    rows = [msgspec.json.decode(event["data"]) for event in events[:2]]
    assert [row["value"] for row in rows] == [1, 2]
    assert events[2] == {"id": "0:1", "event": "end", "data": '{"next_offset":2}'}


@pytest.mark.parametrize("accept", [NDJSON, EVENTS])
async def test_json_that_was_stored_with_line_breaks_stays_in_its_line(
    api: Api, accept: str
) -> None:
    value = b'{"a":\r\n [1,\n2]}'
    body = b'{"records":[{"value":%b}]}' % value
    await api.post("/topics/t", body)
    async with following_it(api, "format=json&max_records=1", accept=accept) as stream:
        data = await stream.line() if accept == NDJSON else (await stream.event())["data"]
    assert msgspec.json.decode(data)["value"] == {"a": [1, 2]}


async def test_a_stream_goes_on_with_what_comes(api: Api) -> None:
    await api.post("/topics/t", records("old"))
    async with following_it(api, "format=json") as stream:
        assert (await stream.row())["value"] == "old"
        for value in ("new", "newer"):
            await api.until_waiting()
            await api.post("/topics/t", records(value))
            assert (await stream.row())["value"] == value


async def test_latest_gives_only_what_comes(api: Api) -> None:
    await api.post("/topics/t", records("old"))
    async with following_it(api, "offset=latest&format=json") as stream:
        await api.post("/topics/t", records("new"))
        assert (await stream.row())["value"] == "new"


@pytest.mark.parametrize(
    ("query", "offsets"),
    [("offset=1", [1, 2]), ("offset=-1", [2]), ("max_records=2", [0, 1]), ("offset=3", [])],
)
async def test_where_it_begins_and_ends(api: Api, query: str, offsets: list[int]) -> None:
    await api.post("/topics/t", records(1, 2, 3))
    async with following_it(api, f"{query}&follow=false") as stream:
        rows = [msgspec.json.decode(line) for line in (await stream.rest()).splitlines()]
    assert [row["offset"] for row in rows] == offsets


async def test_many_pages_are_one_stream(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follow, "PAGE_BYTES", 300)
    await api.post("/topics/t", records(*range(40)))
    async with following_it(api, "follow=false&format=json&max_records=33") as stream:
        rows = [msgspec.json.decode(line) for line in (await stream.rest()).splitlines()]
    assert [row["value"] for row in rows] == list(range(33))


async def test_a_tag_chooses_records(api: Api) -> None:
    for tag in ("red", "blue", "red"):
        await api.post("/topics/t", records(tag, tag=tag))
    async with following_it(api, "tag=red&follow=false") as stream:
        rows = [msgspec.json.decode(line) for line in (await stream.rest()).splitlines()]
    assert [row["offset"] for row in rows] == [0, 2]


async def test_a_stream_up_to_the_end_gives_nothing_that_came_later(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    await api.post("/topics/t", records(1, 2))
    fetch = api.service.fetch

    async def and_more(request: Any) -> Any:
        page = await fetch(request)
        await api.post("/topics/t", records(3, 4))
        return page._replace(records=page.records[:1], next_offset=page.records[0].offset + 1)

    monkeypatch.setattr(api.service, "fetch", and_more)
    async with following_it(api, "follow=false") as stream:
        rows = [msgspec.json.decode(line) for line in (await stream.rest()).splitlines()]
    assert [row["offset"] for row in rows] == [0, 1]


async def test_a_time_out_ends_a_quiet_stream(api: Api) -> None:
    await api.post("/topics/t", records(1))
    async with following_it(api, "timeout=20") as stream:
        rows = (await stream.rest()).split()
    assert len(rows) == 1


# -- resuming


async def test_a_reader_of_events_goes_on_behind_the_last_one(api: Api) -> None:
    await api.post("/topics/t", records(1, 2, 3))
    async with following_it(
        api, "offset=earliest&follow=false", accept=EVENTS, Last_Event_ID="0:1"
    ) as stream:
        assert (await stream.event())["id"] == "0:2"


@pytest.mark.parametrize("given", ["1:0", "0", "0:x", "0:-1", "a:b"])
async def test_a_last_event_id_of_another_stream_is_refused(api: Api, given: str) -> None:
    await api.create("t")
    answer = await api.call("GET", PATH, headers={"Accept": EVENTS, "Last-Event-ID": given})
    assert answer.code == 40000
    assert "Last-Event-ID" in answer.json["message"]


async def test_heart_beats_move_a_reader_past_what_it_is_not_shown(quick: Api) -> None:
    await quick.create("t")
    await quick.post("/topics/t", records(1, 2, tag="red"))
    async with following_it(quick, "tag=blue", accept=EVENTS) as stream:
        assert await stream.event() == {"": "nothing new", "id": "0:1"}


async def test_an_empty_line_says_that_nothing_came(quick: Api) -> None:
    await quick.create("t")
    async with following_it(quick) as stream:
        assert [await stream.line() for _ in range(3)] == [b"\n"] * 3


async def test_a_stream_up_to_the_end_has_no_heart_beats(quick: Api) -> None:
    await quick.create("t")
    async with following_it(quick, "follow=false") as stream:
        assert await stream.rest() == b""


# -- rejected before the stream begins


@pytest.mark.parametrize(
    ("path", "code"),
    [
        ("/topics/absent/partitions/0/records", 40401),
        ("/topics/t/partitions/9/records", 40402),
        (f"{PATH}?offset=9", 41601),
        (f"{PATH}?max_records=0", 40000),
        (f"{PATH}?follow=perhaps", 40000),
        (f"{PATH}?min_bytes=1", 40000),
    ],
)
@pytest.mark.parametrize("accept", [NDJSON, EVENTS])
async def test_what_is_wrong_from_the_start_has_its_status(
    api: Api, path: str, code: int, accept: str
) -> None:
    await api.create("t")
    answer = await api.get(path, accept=accept)
    assert answer.code == code
    problem = await api.get(path, accept=f"{accept}, {PROBLEM}")
    assert problem.headers["Content-Type"] == PROBLEM


async def test_a_head_request_has_no_stream(api: Api) -> None:
    await api.create("t")
    answer = await api.call("HEAD", PATH, headers={"Accept": EVENTS})
    assert (answer.status, answer.body) == (200, b"")
    assert answer.headers["X-End-Offset"] == "0"


async def test_json_is_what_a_client_gets_that_takes_anything(api: Api) -> None:
    await api.create("t")
    answer = await api.get(PATH, accept="*/*")
    assert answer.headers["Content-Type"] == "application/json"


# -- early ends


@pytest.mark.parametrize("accept", [NDJSON, EVENTS])
async def test_a_deleted_topic_ends_the_stream_with_the_reason(api: Api, accept: str) -> None:
    await api.create("t")
    async with following_it(api, accept=accept) as stream:
        await api.until_waiting()
        await api.call("DELETE", "/topics/t")
        if accept == NDJSON:
            error = await stream.row()
        else:
            while "event" not in (event := await stream.event()):
                pass
            assert event["event"] == "error"
            error = msgspec.json.decode(event["data"])
        assert (error["error_code"], error["topic"]) == (40401, "t")
        assert await stream.rest() == b""


@pytest.mark.parametrize(
    ("error", "reported"),
    [
        (
            Corrupt("bad CRC", kind="batch", path="f", position=7, next_good_offset=2),
            {"error_code": 50010, "file": "f", "position": 7, "next_good_offset": 2},
        ),
        (
            OffsetOutOfRange("t", 0, offset=1, earliest=2, latest=2),
            {"error_code": 41601, "earliest": 2, "latest": 2},
        ),
    ],
)
async def test_damage_and_retention_end_the_stream_behind_the_good_records(
    api: Api, monkeypatch: pytest.MonkeyPatch, error: StorageError, reported: dict[str, object]
) -> None:
    await api.post("/topics/t", records(1, 2))
    read = api.service.store.read

    def failing(partition: Any, offset: int, **options: Any) -> Any:
        if offset == 1:
            raise error
        return read(partition, offset, **(options | {"max_records": 1}))

    monkeypatch.setattr(api.service.store, "read", failing)
    async with following_it(api) as stream:
        assert (await stream.row())["offset"] == 0
        last = await stream.row()
        assert await stream.rest() == b""
    assert last.items() >= reported.items()
    assert last["message"] == error.message


@pytest.mark.parametrize("accept", [NDJSON, EVENTS])
async def test_a_server_that_stops_ends_its_streams_in_order(api: Api, accept: str) -> None:
    await api.create("t")
    async with following_it(api, accept=accept) as stream:
        await api.until_waiting()
        api.service.begin_stop()
        body = await stream.rest()
    assert b'"error_code":50301' in body
    assert b"stopping" in body


# -- cost for other clients


async def test_a_client_that_shuts_its_side_down_is_given_what_is_there(api: Api) -> None:
    await api.post("/topics/t", records(1))
    async with api.connection() as (reader, writer):
        writer.write(f"GET {PATH} HTTP/1.1\r\nHost: a\r\nAccept: {EVENTS}\r\n\r\n".encode())
        await api.until_waiting()
        writer.write_eof()
        answer = await asyncio.wait_for(reader.read(), WAIT_S)
    assert answer.count(b'data: {"topic"') == 1
    assert b'event: end\ndata: {"next_offset":1}' in answer
    assert answer.endswith(b"\r\n0\r\n\r\n")


async def test_a_client_that_goes_away_frees_what_it_held(api: Api) -> None:
    await api.create("t")
    async with following_it(api) as stream:
        await api.until_waiting()
        stream.response.close()
    async with asyncio.timeout(WAIT_S):
        while api.service.waiters.count:  # noqa: ASYNC110  # the service has no event for tests
            await asyncio.sleep(0.001)
        await api.until_connected(0)


async def test_a_slow_reader_holds_a_page_and_holds_up_nobody(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server stops reading records for a client that reads nothing, and serves other clients."""
    value = b64(b"x" * 200_000)
    for _ in range(60):
        await api.post("/topics/t", records(value), content_type=BINARY)
    asked: list[int] = []
    fetch = api.service.fetch

    async def counted(request: Any) -> Any:
        asked.append(request.start.value)
        return await fetch(request)

    monkeypatch.setattr(api.service, "fetch", counted)
    async with following_it(api, "max_records=60") as stream:
        answers = [await api.get(f"{PATH}?offset=59&max_records=1") for _ in range(20)]
        assert [len(answer.json) for answer in answers] == [1] * 20
        taken = [offset for offset in asked if offset != 59]
        assert len(taken) < 60, "it was read to its end for a client that took nothing"
        assert len((await stream.rest()).splitlines()) == 60


async def test_streams_count_as_waiting_fetches(backend: str, tmp_path: Path) -> None:
    chosen = settings(tmp_path / "store", max_waiting_fetches=1)
    async with serving(chosen, opener(backend, chosen)) as api:
        await api.create("t")
        async with following_it(api):
            await api.until_waiting()
            async with following_it(api) as second:
                assert (await second.row())["error_code"] == 42901
                assert await second.rest() == b""
            answer = await api.get(f"{PATH}?timeout=1000", accept=JSON)
            assert answer.code == 42901
