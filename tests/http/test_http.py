"""HTTP itself: one shape for all errors, bodies counted and drained, encodings, connections, metrics, readiness."""

from __future__ import annotations

import asyncio
import gzip
import socket
import threading
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, suppress
from http import HTTPStatus
from pathlib import Path

import msgspec
import pytest

import storage
from logserver.errors import Busy
from storage import LogStore, StorageError
from tests.http.harness import JSON, PROBLEM, Api, opener, records, serving, settings
from tests.http.running import Serve
from tests.watched_store import WatchedStore

SMALL = {"max_body_bytes": 2000, "max_in_flight_bytes": 4000, "max_header_bytes": 2000}


@pytest.fixture
async def api(tmp_path: Path) -> AsyncIterator[Api]:
    """A server with small limits on the memory store."""
    chosen = settings(tmp_path, max_connections=8, keep_alive_ms=5000, **SMALL)
    async with serving(chosen, opener("memory", chosen)) as running:
        yield running


async def raw(api: Api, *pieces: bytes, pause_s: float = 0.0, half_close: bool = False) -> bytes:
    """Send these bytes; return the answer until the server closes."""
    async with api.connection() as (reader, writer):
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(pause_s)
        if half_close:
            writer.write_eof()
        return await asyncio.wait_for(reader.read(), 10)


def error_of(answer: bytes) -> tuple[int, int]:
    """Return status and error code of a raw answer with a body of the documented shape."""
    head, _, body = answer.partition(b"\r\n\r\n")
    assert b"content-type: application/json" in head.lower(), answer
    decoded = msgspec.json.decode(body)
    assert isinstance(decoded["message"], str)
    return int(head.split()[1]), decoded["error_code"]


@pytest.mark.parametrize(
    "path", ["//", "/nothing", "/topics/t/x", "/topics/t/partitions/0/x", "/index.html"]
)
async def test_an_unknown_path_is_404(api: Api, path: str) -> None:
    assert (await api.get(path)).code == 404


@pytest.mark.parametrize(
    ("method", "path", "allow"),
    [
        ("DELETE", "/topics", "GET"),
        ("POST", "/topics/t/partitions/0/records", "DELETE, GET"),
        ("GET", "/producers", "POST"),
        ("OPTIONS", "/topics/t", "GET, PUT, PATCH, DELETE, POST"),
    ],
)
async def test_another_method_is_405(api: Api, method: str, path: str, allow: str) -> None:
    answer = await api.call(method, path)
    assert answer.code == 405
    assert answer.headers["Allow"] == allow


async def test_a_topic_posted_to_the_list_is_shown_its_path(api: Api) -> None:
    answer = await api.post("/topics", {"name": "t"})
    assert answer.code == 405
    assert "use GET; /topics/{topic} has GET, PUT, PATCH, DELETE, POST" in answer.json["message"]


async def test_problem_json_has_the_same_facts(api: Api) -> None:
    answer = await api.get("/topics/no", accept=PROBLEM)
    assert answer.headers["Content-Type"] == PROBLEM
    assert answer.json == {
        "type": "urn:logserver:error:40401",
        "title": "Not Found",
        "status": 404,
        "detail": "topic 'no' does not exist",
        "error_code": 40401,
        "topic": "no",
    }


async def test_head_is_get_without_a_body(api: Api) -> None:
    got, head = await api.get("/topics"), await api.call("HEAD", "/topics")
    assert (head.status, head.body) == (200, b"")
    assert head.headers["Content-Length"] == got.headers["Content-Length"]


async def test_a_request_id_comes_back(api: Api) -> None:
    first = await api.call("GET", "/topics", headers={"X-Request-Id": "mine-1"})
    assert first.headers["X-Request-Id"] == "mine-1"
    own = (await api.get("/topics/no")).headers["X-Request-Id"]
    assert own != (await api.get("/topics/no")).headers["X-Request-Id"]


MALFORMED = {
    "no http": b"hello\r\n\r\n",
    "tls": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(100) + b"\r\n\r\n",
    "bad header": b"GET /topics HTTP/1.1\r\nno colon\r\n\r\n",
    "bad version": b"GET /topics HTTP/9.9.9\r\n\r\n",
    "bad length": b"POST /topics/t HTTP/1.1\r\nHost: a\r\nContent-Length: -5\r\n\r\n",
    "long line": b"GET /" + b"x" * 3000 + b" HTTP/1.1\r\nHost: a\r\n\r\n",
    "long header": b"GET / HTTP/1.1\r\nHost: a\r\nX: " + b"x" * 3000 + b"\r\n\r\n",
    "bad chunk": (
        b"POST /topics/t HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"
        b"Transfer-Encoding: chunked\r\n\r\nzz\r\n"
    ),
}


@pytest.mark.parametrize("request_bytes", MALFORMED.values(), ids=MALFORMED.keys())
async def test_malformed_http_is_told_in_the_same_shape(api: Api, request_bytes: bytes) -> None:
    answer = await raw(api, request_bytes)
    assert error_of(answer) == (400, 400)
    head = answer.partition(b"\r\n\r\n")[0].lower()
    assert head.startswith(b"http/1.1 400 ")
    assert b"\r\nserver: logserver" in head
    assert b"\r\nx-request-id: " in head
    assert b"aiohttp" not in head
    assert (await api.get("/topics")).json == []


@pytest.mark.parametrize("name", ["long line", "long header"])
async def test_what_is_too_long_is_told_with_its_limit(api: Api, name: str) -> None:
    answer = await raw(api, MALFORMED[name])
    reported = b"the request line or a header is over 2000 bytes (max_header_bytes)"
    assert b'"message":"%b"' % reported in answer


POST = (
    b"POST /topics/t HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Type: application/json\r\n"
)


async def test_a_body_too_large_is_drained_so_that_the_answer_arrives(api: Api) -> None:
    size = 3_000_000
    head = POST + b"Content-Length: %d\r\n\r\n" % size
    assert error_of(await raw(api, head, bytes(size))) == (413, 41301)


async def test_a_chunked_body_is_counted(api: Api) -> None:
    chunk = b"%x\r\n" % 65536 + bytes(65536) + b"\r\n"
    head = POST + b"Transfer-Encoding: chunked\r\n\r\n"
    assert error_of(await raw(api, head, *[chunk] * 20, b"0\r\n\r\n")) == (413, 41301)


async def test_the_connection_lives_on_after_a_413(api: Api) -> None:
    for _ in range(3):
        answer = await api.post("/topics/t", b"x" * 2001)
        assert answer.code == 41301
        assert answer.json["limit_bytes"] == 2000
    assert (await api.post("/topics/t", records("x" * 1900))).status == 200


async def test_a_body_that_pauses_is_given_up(tmp_path: Path) -> None:
    chosen = settings(tmp_path, body_timeout_ms=200)
    async with serving(chosen, opener("memory", chosen)) as api:
        head = POST + b"Content-Length: 100\r\n\r\n{"
        assert error_of(await raw(api, head)) == (408, 408)
        assert api.service.budget.held_bytes == 0


@pytest.mark.parametrize(
    "request_bytes",
    [
        b"GET /topics HTTP/1.1\r\nHost: a\r\n\r\n",
        b"GET /topics/t/partitions/0/records HTTP/1.1\r\nHost: a\r\n\r\n",
        b"GET /topics/t/partitions/0/records?timeout=20000 HTTP/1.1\r\nHost: a\r\n\r\n",
        POST.replace(b"Connection: close\r\n", b"")
        + b'Content-Length: 26\r\n\r\n{"records":[{"value":""}]}',
    ],
    ids=["topics", "records", "long poll", "produce"],
)
async def test_a_client_that_shut_its_side_down_is_answered(api: Api, request_bytes: bytes) -> None:
    """A client that shuts down its sending side, as `nc -N` does, is answered: else it would send its record again."""
    await api.create("t")
    for _ in range(20):
        answer = await raw(api, request_bytes, half_close=True)
        assert answer.startswith(b"HTTP/1.1 200 OK\r\n")
    await api.until_connected(1)


def test_a_client_that_shuts_its_side_down_at_once_is_answered(
    serve: Serve, tmp_path: Path
) -> None:
    """A client whose end of data comes with the request is answered. This timing needs two processes."""
    server = serve("--data", tmp_path / "store")
    host, port = server.facts["url"].removeprefix("http://").split(":")
    body = b'{"records":[{"value":1}]}'
    head = f"POST /topics/t HTTP/1.1\r\nHost: a\r\nContent-Type: {JSON}\r\n"
    request = head.encode() + b"Content-Length: %d\r\n\r\n%b" % (len(body), body)
    for _ in range(20):
        with socket.create_connection((host, int(port)), timeout=20) as client:
            client.sendall(request)
            client.shutdown(socket.SHUT_WR)
            assert client.recv(100).startswith(b"HTTP/1.1 200 OK\r\n")


async def test_half_a_request_of_a_client_that_shut_its_side_down_ends_the_connection(
    api: Api,
) -> None:
    for part in (b"", b"GET /to", POST + b"Content-Length: 100\r\n\r\n{"):
        assert await raw(api, part, half_close=True) == b""
    await api.until_connected(0)
    assert api.service.budget.held_bytes == 0


async def test_a_client_that_asks_is_told_to_go_on(api: Api) -> None:
    body = b'{"records":[{"value":""}]}'
    head = POST + b"Expect: 100-continue\r\nContent-Length: %d\r\n\r\n" % len(body)
    answer = await raw(api, head, body, pause_s=0.05)
    assert answer.startswith(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\n")


async def test_a_client_that_asks_is_refused_before_it_sends(api: Api) -> None:
    head = POST + b"Expect: 100-continue\r\nContent-Length: 5000\r\n\r\n"
    async with api.connection() as (reader, writer):
        writer.write(head)
        line = await asyncio.wait_for(reader.readline(), 10)
    assert (
        line == f"HTTP/1.1 413 {HTTPStatus(413).phrase}\r\n".encode()
    )  # Python 3.13 has a new one


async def test_another_expectation_fails(api: Api) -> None:
    headers = {"Content-Type": JSON, "Expect": "miracles"}
    answer = await api.call("POST", "/topics/t", data=b"{}", headers=headers)
    assert answer.code == 417


def packed(body: bytes) -> dict[str, object]:
    return {
        "data": body,
        "headers": {"Content-Type": JSON, "Content-Encoding": "gzip"},
    }


async def test_gzip_is_unpacked(api: Api) -> None:
    body = gzip.compress(msgspec.json.encode(records("x" * 1000)))
    assert (await api.call("POST", "/topics/t", **packed(body))).status == 200
    assert await api.values("t") == ["x" * 1000]


async def test_unpacking_is_bounded(api: Api) -> None:
    bomb = gzip.compress(bytes(1_500_000))
    assert len(bomb) < 2000
    assert (await api.call("POST", "/topics/t", **packed(bomb))).code == 41301
    assert api.service.budget.held_bytes == 0


async def test_broken_gzip_is_refused(api: Api) -> None:
    good = gzip.compress(b'{"records":[{}]}')
    for bad in (b"", b"nope", good[:-1], good + b"x", good[:12] + b"\xff" + good[13:]):
        assert (await api.call("POST", "/topics/t", **packed(bad))).code == 400


@pytest.mark.parametrize("encoding", ["br", "zstd", "deflate", "gzip, gzip"])
async def test_another_encoding_is_415(api: Api, encoding: str) -> None:
    headers = {"Content-Type": JSON, "Content-Encoding": encoding}
    answer = await api.call("POST", "/topics/t", data=b"x", headers=headers, compress=False)
    assert answer.code == 415
    assert answer.headers["Accept-Encoding"] == "gzip"


async def test_too_much_in_flight_is_429(api: Api) -> None:
    with api.service.budget.reserve(3900):
        answer = await api.post("/topics/t", records("x" * 200))
        assert answer.code == 42901
        assert answer.headers["Retry-After"] == "1"
        assert answer.json["limit_bytes"] == 4000
    assert (await api.post("/topics/t", records("x" * 200))).status == 200
    with pytest.raises(Busy):
        api.service.budget.reserve(4001)


async def reported(reader: asyncio.StreamReader) -> bytes:
    """Return the bytes received on a connection before it ended or was reset."""
    with suppress(ConnectionError):
        return await reader.read()
    return b""


async def test_too_many_connections_are_turned_away(api: Api) -> None:
    async with AsyncExitStack() as opened:
        for _ in range(8):
            await opened.enter_async_context(api.connection())
        await api.until_connected(8)
        assert error_of(await raw(api, b"GET /topics HTTP/1.1\r\n\r\n")) == (429, 42901)
        crowd = [await opened.enter_async_context(api.connection()) for _ in range(30)]
        answered = [await reported(reader) for reader, _ in crowd]
        assert 0 < sum(map(bool, answered)) <= 8, (
            "the others are hung up on: they would take the store's files"
        )
    await api.until_connected(0)
    assert (await api.get("/topics")).status == 200


async def test_too_many_records_are_413(tmp_path: Path) -> None:
    chosen = settings(tmp_path, max_records_per_request=10)
    async with serving(chosen, opener("memory", chosen)) as api:
        answer = await api.post("/topics/t", records(*range(11)))
        assert answer.code == 41301
        assert answer.json["limit"] == 10
        nested = records(*[{"a": [{}, {}, {}]}] * 10)
        assert (await api.post("/topics/t", nested)).status == 200


async def test_a_mistake_of_ours_is_a_plain_500(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = WatchedStore()
    store.create_topic("t", 1)

    def broken(partition: object, records: object) -> StorageError | None:
        raise ZeroDivisionError("secret detail")

    store.fail_append = broken
    async with serving(settings(tmp_path), store.opener()) as api:
        answer = await api.post("/topics/t", records(1))
        assert answer.code == 500
        assert b"secret" not in answer.body
        assert (await api.get("/topics")).status == 200
        metrics = (await api.get("/metrics")).body.decode()
    counted = (
        'logserver_http_requests_total{method="POST",route="/topics/{topic}",status="500"} 1.0'
    )
    assert counted in metrics.splitlines()
    assert "secret detail" in caplog.text


# -- operation


async def test_livez_readyz_and_store(api: Api) -> None:
    assert (await api.get("/livez")).json == {"state": "alive"}
    ready = await api.get("/readyz")
    assert (ready.status, ready.json["state"]) == (200, "ready")
    reported = (await api.get("/store")).json
    assert reported["backend"] == "memory"
    assert reported["read_only"] is False
    assert reported["capabilities"]["batch_bytes"] is False
    assert reported["recovery"]["clean_shutdown"] is True
    assert reported["stats"]["topics"] == 0
    services = {each["name"]: each for each in reported["services"]}
    assert list(services) == ["journal", "flush", "checkpoint", "retention"]
    assert services["flush"]["interval_ms"] == 500
    assert [each["error"] for each in reported["services"]] == [None] * 4
    metrics = (await api.get("/metrics")).body.decode()
    for name in services:
        assert f'logserver_service_failing{{service="{name}"}} 0.0' in metrics
        assert f'logserver_service_lag_seconds{{service="{name}"}} ' in metrics


async def test_health_by_its_usual_names(api: Api) -> None:
    ready = (await api.get("/readyz")).json
    for path in ("/ready", "/health", "/healthz", "/health/"):
        answer = await api.get(path)
        assert (answer.status, answer.json) == (200, ready)


async def test_health_is_bad_only_when_waiting_does_not_help(tmp_path: Path) -> None:
    chosen = settings(tmp_path / "store")

    def fails(progress: storage.Progress) -> LogStore:
        raise StorageError("no such store")

    async with serving(chosen, fails, wait=False) as api:
        for path, status in (("/ready", 503), ("/health", 200), ("/healthz", 200)):
            answer = await api.get(path)
            assert (answer.status, answer.json["state"]) == (status, "starting")
        with pytest.raises(StorageError):
            await api.service.start()
        for path in ("/ready", "/health", "/healthz"):
            answer = await api.get(path)
            assert (answer.code, answer.json["state"]) == (50301, "failed")
        assert (await api.get("/livez")).status == 200


async def test_metrics_count_what_was_done(api: Api) -> None:
    await api.post("/topics/t", records(1, 2))
    await api.get("/topics/t/partitions/0/records")
    await api.get("/topics/no")
    await api.get("/nothing")
    answer = await api.get("/metrics")
    assert answer.headers["Content-Type"].startswith("text/plain")
    lines = set(answer.body.decode().splitlines())
    for line in (
        "logserver_produced_records_total 2.0",
        "logserver_fetched_records_total 2.0",
        "logserver_store_appends_total 1.0",
        "logserver_group_commit_flush_seconds_count 1.0",
        "logserver_group_requests_sum 1.0",
        "logserver_waiting_fetches 0.0",
        "logserver_in_flight_bytes 0.0",
        "logserver_store_topics 1.0",
        "logserver_store_partitions 1.0",
        "logserver_store_fenced 0.0",
        'logserver_http_requests_total{method="POST",route="/topics/{topic}",status="200"} 1.0',
        'logserver_http_requests_total{method="GET",route="/topics/{topic}",status="404"} 1.0',
        'logserver_http_requests_total{method="GET",route="none",status="404"} 1.0',
    ):
        assert line in lines, line


async def test_the_server_answers_while_it_recovers(tmp_path: Path) -> None:
    chosen = settings(tmp_path / "store")
    reported, go_on = threading.Event(), threading.Event()

    def slow(progress: storage.Progress) -> LogStore:
        progress("segments", 3, 10)
        reported.set()
        assert go_on.wait(30)
        return opener("memory", chosen)(progress)

    async with serving(chosen, slow, wait=False) as api:
        assert (await api.get("/readyz")).json["state"] == "starting"
        opening = asyncio.create_task(api.service.start())
        assert await asyncio.to_thread(reported.wait, 10)
        unready = await api.get("/readyz")
        assert unready.code == 50301
        assert unready.headers["Retry-After"] == "1"
        assert unready.json["state"] == "recovering"
        assert unready.json["progress"] == {"what": "segments", "done": 3, "total": 10}
        for answer in (
            await api.get("/topics"),
            await api.post("/topics/t", records(1)),
            await api.get("/topics/t/partitions/0/records"),
            await api.get("/store"),
            await api.get("/brokers"),
        ):
            assert answer.code == 50301
            assert answer.headers["Retry-After"] == "1"
            assert answer.json["progress"]["done"] == 3
        assert (await api.get("/livez")).status == 200
        assert (await api.get("/metrics")).status == 200
        go_on.set()
        await opening
        assert (await api.get("/readyz")).status == 200


async def test_what_writes_is_503_on_a_read_only_server(tmp_path: Path) -> None:
    chosen = settings(tmp_path / "store")
    async with serving(chosen, opener("kafka", chosen)) as writable:
        await writable.post("/topics/t", records(1))
    before = {path: path.stat().st_mtime_ns for path in chosen.data.rglob("*")}
    async with serving(chosen, opener("kafka", chosen, read_only=True)) as api:
        assert (await api.get("/store")).json["services"] == []
        assert await api.values("t") == [1]
        assert (await api.get("/readyz")).json["read_only"] is True
        for answer in (
            await api.post("/topics/t", records(1)),
            await api.post("/topics/new", records(1)),
            await api.post("/producers", b"", content_type=None),
            await api.call("PUT", "/topics/new", json={}),
            await api.call("PATCH", "/topics/t", json={"configs": {}}),
            await api.call("DELETE", "/topics/t"),
        ):
            assert answer.code == 50301
            assert "read-only" in answer.json["message"]
    assert {path: path.stat().st_mtime_ns for path in chosen.data.rglob("*")} == before
