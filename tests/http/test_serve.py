"""The server process: start, output, signals, refused starts, and the files it leaves."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import socket
import subprocess
import threading
import time
from contextlib import AsyncExitStack, suppress
from hashlib import sha256
from pathlib import Path
from urllib.parse import quote, urlsplit

import msgspec
import pytest

from api.connection.protocol import ApiProtocol, ApiServer
from api.server import Server
from logserver.errors import NotReady
from logserver.service.service import LogService
from storage import LogStore, Progress
from tests.http.harness import JSON, ONE_PARTITION, opener, records, serving, settings
from tests.http.running import LISTEN, Running, Serve, not_started
from tests.watched_store import WatchedStore

WRITTEN_BYTES = (
    65_536  # more than the records take; the rest of RocketMQ's log file of 1 GiB is zeros
)
LOG_NAMES = {"kafka": f"{0:020}.log", "rocketmq": f"{0:020}"}


def refused(*options: str | Path) -> tuple[int | None, str]:
    """Return the exit code and the single line that explains why a server does not start."""
    code, errors = not_started(*options)
    assert "Traceback" not in errors
    assert len(errors.splitlines()) == 1, errors
    return code, errors


def digests(folder: Path) -> dict[str, tuple[str, int]]:
    return {
        str(path.relative_to(folder)): (
            sha256(path.read_bytes()).hexdigest(),
            path.stat().st_mtime_ns,
        )
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


@pytest.fixture(params=["kafka", "rocketmq"])
def backend(request: pytest.FixtureRequest) -> str:
    """Each backend that stores files."""
    return str(request.param)


def new(backend: str, data: Path) -> tuple[str | Path, ...]:
    """Return the options of a server on a new store of small files, with one partition per topic."""
    options = dict(ONE_PARTITION.get(backend, {}))
    if backend == "rocketmq":
        options["mappedFileSizeCommitLog"] = "65536"
    chosen = [part for name, value in options.items() for part in ("--set", f"{name}={value}")]
    return ("--data", data, "--backend", backend, *chosen)


def test_kafka_is_the_default(serve: Serve, tmp_path: Path) -> None:
    assert serve("--data", tmp_path / "new").facts["backend"] == "kafka"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_start_and_stop(serve: Serve, tmp_path: Path, number: int, backend: str) -> None:
    data = tmp_path / "new"
    server = serve(*new(backend, data), interpreter=True)
    assert server.facts == {
        "url": server.facts["url"],
        "backend": backend,
        "data": str(data),
        "read_only": False,
    }
    assert server.call("POST", "/topics/t", records(1, 2))[0] == 200
    code, errors = server.stop(number)
    assert code == 0
    assert errors.count("curl ") == 3
    assert server.facts["url"] in errors
    if backend == "kafka":
        assert (data / ".kafka_cleanshutdown").exists()
    else:
        assert not (data / "abort").exists()
    assert serve("--data", data).values("t") == [1, 2]


@pytest.mark.parametrize("name", [b"or\0ers", b"../../", b"or/ers"])
def test_a_start_names_the_place_of_each_record_without_a_queue(
    serve: Serve, tmp_path: Path, name: bytes
) -> None:
    data = tmp_path / "new"
    first = serve(*new("rocketmq", data))
    assert first.call("POST", "/topics/orders", records(*range(4)))[0] == 200
    first.stop(signal.SIGKILL)
    shutil.rmtree(data / "consumequeue", ignore_errors=True)
    (data / "consumequeue").mkdir(exist_ok=True)
    path = data / "commitlog" / LOG_NAMES["rocketmq"]
    with path.open("r+b") as log:
        written = log.read(WRITTEN_BYTES)
        first_at = written.index(b"\x06orders")
        for at in (first_at, written.index(b"\x06orders", first_at + 1)):
            log.seek(at + 1)
            log.write(name)
    errors = serve("--data", data, "--accept-loss").stop()[1]
    size = int.from_bytes(written[:4], "big")
    reported = [line for line in errors.splitlines() if "[suspect-header]" in line]
    assert [
        f"{path} at {position}: " in line
        for position, line in zip((0, size), reported, strict=True)
    ] == [True, True]
    assert errors.count("the record is in no queue") == 2


def test_the_lines_to_try_work_as_they_stand(serve: Serve, tmp_path: Path, backend: str) -> None:
    for line in lines_to_try(serve("--data", tmp_path / "new", "--backend", backend)):
        tried(line)


def test_the_lines_to_try_show_where_the_token_goes(serve: Serve, tmp_path: Path) -> None:
    tokens = tmp_path / "tokens"
    tokens.write_text("0123456789abcdef admin\n")
    tokens.chmod(0o600)
    for line in lines_to_try(serve("--data", tmp_path / "new", "--token-file", tokens)):
        tried(line.replace("Bearer TOKEN", "Bearer 0123456789abcdef"))
        with pytest.raises(subprocess.CalledProcessError):
            tried(line)


def lines_to_try(server: Running) -> list[str]:
    """Return the commands that the server proposes at its start."""
    assert server.process.stderr is not None
    reported = [server.process.stderr.readline() for _ in range(5)]
    return [line.strip() for line in reported[2:]]


def tried(line: str) -> None:
    """Run a proposed command; fail if the command fails or gets an empty answer."""
    words = ["bash", "-c", f"{line} -sS --fail"]
    answer = subprocess.run(words, capture_output=True, text=True, check=True)
    assert json.loads(answer.stdout), line


def test_what_was_acknowledged_survives_a_kill(serve: Serve, tmp_path: Path, backend: str) -> None:
    data = tmp_path / "new"
    first = serve(*new(backend, data))
    for number in range(5):
        assert first.call("POST", "/topics/t", records(number))[0] == 200
    first.stop(signal.SIGKILL)
    second = serve("--data", data)
    assert second.values("t") == [0, 1, 2, 3, 4]
    assert "unclean stop" in second.stop()[1]


def test_an_ephemeral_store_goes_away(serve: Serve) -> None:
    server = serve("--ephemeral")
    server.call("POST", "/topics/t", records(1))
    data = Path(server.facts["data"])
    assert data.is_dir()
    assert server.stop()[0] == 0
    assert not data.parent.exists()


def test_a_port_in_use_is_told(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        code, why = refused("--data", tmp_path / "new", "--listen", address)
    assert code == 3
    assert address in why
    assert "in use" in why
    assert "--port N" in why
    assert not (tmp_path / "new").exists()


def test_the_directory_may_stand_alone(serve: Serve, tmp_path: Path) -> None:
    server = serve(tmp_path / "new")
    assert server.facts["data"] == str(tmp_path / "new")
    server.stop()
    code, why = not_started(tmp_path / "new", "--data", tmp_path / "other", *LISTEN)
    assert (code, "or --data, not both" in why) == (2, True)


def test_a_torn_tail_is_left_out_or_cut_and_kept(
    serve: Serve, tmp_path: Path, repo_root: Path
) -> None:
    data = tmp_path / "data"
    shutil.copytree(repo_root / "tests/golden/kafka/torn/cut-mid-batch/data", data)
    place = f"{data}/epoch-idem-0/{1113:020}.log from position 6804, 104 bytes (torn)"
    errors = serve("--data", data).stop()[1]
    assert f"left out: {place}\n" in errors
    assert "cut: " not in errors
    errors = serve("--data", data, "--write").stop()[1]
    (kept,) = tmp_path.glob("data.cut-*/*/*.log.from-6804")
    assert f"cut: {place}, kept in {kept}\n" in errors


@pytest.mark.parametrize(
    ("options", "code", "word"),
    [
        (("--listen", "nowhere"), 2, "HOST:PORT"),
        (("--listen", "0.0.0.0:0"), 2, "insecure"),
        (("--listen", "no.such.host.invalid:0", "--insecure"), 3, "no.such.host.invalid"),
        (("--backend", "pulsar", *LISTEN), 2, "pulsar"),
        (("--backend", "memory", *LISTEN), 2, "ephemeral"),
        (("--flush", "never", *LISTEN), 2, "sync, async, os"),
        (("--set", "novalue", *LISTEN), 2, "NAME=VALUE"),
        (("--set", "no.such.option=1", *LISTEN), 2, "no.such.option"),
        (("--read-only", *LISTEN), 2, "holds none"),
        (("--read-only", "--write", *LISTEN), 2, "read_only"),
        (("--config", "no-such.toml", *LISTEN), 2, "no-such.toml"),
    ],
)
def test_wrong_options_are_told_in_one_line(
    tmp_path: Path, options: tuple[str, ...], code: int, word: str
) -> None:
    ended, why = refused("--data", tmp_path / "new", *options)
    assert ended == code
    assert word in why
    assert not (tmp_path / "new").exists()


def test_another_format_is_refused_and_left_alone(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("hello")
    code, why = refused("--data", tmp_path, *LISTEN)
    assert code == 2
    assert "notes.txt" in why
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]
    assert refused("--data", tmp_path / "notes.txt", *LISTEN)[0] == 2


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_an_unreadable_directory_is_told(tmp_path: Path) -> None:
    tmp_path.chmod(0)
    try:
        code, why = refused("--data", tmp_path, *LISTEN)
    finally:
        tmp_path.chmod(0o700)
    assert code == 3
    assert str(tmp_path) in why


def test_a_directory_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    code, why = refused("--data", tmp_path / "file" / "store", *LISTEN)
    assert code == 3
    assert str(tmp_path / "file" / "store") in why


def test_a_second_server_is_refused_with_the_firsts_pid(
    serve: Serve, tmp_path: Path, backend: str
) -> None:
    data = tmp_path / "new"
    first = serve(*new(backend, data))
    code, why = refused("--data", data, *LISTEN)
    assert code == 3
    assert str(first.process.pid) in why
    assert first.call("POST", "/topics/t", records(1))[0] == 200
    reader = serve("--data", data, "--read-only")
    assert reader.values("t") == [1]


@pytest.mark.slow
def test_damage_before_good_records_is_refused_unless_accepted(
    serve: Serve, tmp_path: Path, backend: str
) -> None:
    data = tmp_path / "new"
    server = serve(*new(backend, data))
    for number in range(4):
        server.call("POST", "/topics/t", records(f"value-{number}"))
    status, kept = server.call("GET", "/topics/t/partitions/0/records")  # so the queue is complete
    assert (status, len(kept)) == (200, 4)
    server.stop(signal.SIGKILL)
    log = data / ("t-0" if backend == "kafka" else "commitlog") / LOG_NAMES[backend]
    with log.open("r+b") as file:
        damaged = bytearray(file.read(WRITTEN_BYTES))
        damaged[damaged.index(b"value-1")] ^= 1
        file.seek(0)
        file.write(damaged)
    code, why = refused("--data", data, *LISTEN)
    assert code == 1
    assert log.name in why
    assert "position" in why
    assert "--accept-loss" in why
    assert "--read-only" in why
    assert "logserver salvage" in why
    with log.open("rb") as file:
        assert file.read(WRITTEN_BYTES) == damaged
    viewer = serve("--data", data, "--read-only")
    status, reported = viewer.call("GET", "/topics/t/partitions/0/records?offset=1")
    assert (status, reported["error_code"], reported["next_good_offset"]) == (500, 50010, 2)
    status, rows = viewer.call("GET", "/topics/t/partitions/0/records?offset=2")
    assert [row["value"] for row in rows] == ["value-2", "value-3"]
    viewer.stop()
    cut = serve("--data", data, "--accept-loss")
    assert cut.values("t") == ["value-0"]
    assert "cut: " in cut.stop()[1]


def test_a_real_brokers_directory_is_left_alone_until_taken_over(
    serve: Serve, tmp_path: Path, repo_root: Path, backend: str
) -> None:
    data = tmp_path / "foreign"
    made = {"kafka": "kafka/codecs/data", "rocketmq": "rocketmq/broker/store"}[backend]
    shutil.copytree(repo_root / "tests" / "golden" / made, data)
    before = digests(data)
    server = serve("--data", data)
    assert server.facts["read_only"] is True
    status, topics = server.call("GET", "/topics")
    assert status == 200
    assert topics
    status, reported = server.call("POST", f"/topics/{quote(topics[0])}", records(1))
    assert (status, reported["error_code"]) == (503, 50301)
    code, errors = server.stop()
    assert code == 0
    assert "--write" in errors
    assert digests(data) == before
    writer = serve("--data", data, "--write")
    assert writer.facts["read_only"] is False
    assert writer.call("POST", "/topics/mine", records(1))[0] == 200
    writer.stop()
    assert serve("--data", data).facts["read_only"] is False


# -- stopping, in this process


async def test_a_stop_answers_what_is_under_way(tmp_path: Path) -> None:
    store = WatchedStore()
    store.create_topic("t", 2)
    async with serving(settings(tmp_path), store.opener()) as api, AsyncExitStack() as held:
        polling = asyncio.create_task(api.get("/topics/t/partitions/1/records?timeout=60000"))
        await api.until_waiting()
        store.gate.clear()
        held.callback(store.gate.set)
        writing = asyncio.create_task(api.post("/topics/t/partitions/0", records(1)))
        assert await asyncio.to_thread(store.flushing.wait, 10)
        idle, _ = await held.enter_async_context(api.connection())
        stopping = asyncio.create_task(api.server.stop())
        polled = await polling
        assert (polled.status, polled.json) == (200, [])
        assert not writing.done()
        assert store.closed == 0
        store.gate.set()
        assert (await writing).status == 200
        await stopping
        assert store.closed == 1
        assert await idle.read() == b""
        with pytest.raises(ConnectionRefusedError):
            async with api.connection():
                pass


async def test_a_request_that_comes_while_stopping_is_503(tmp_path: Path) -> None:
    chosen = settings(tmp_path)
    async with serving(chosen, opener("memory", chosen)) as api:
        api.service.begin_stop()
        answer = await api.post("/topics/t", records(1))
        assert answer.code == 50301
        assert answer.json["state"] == "stopping"
        assert (await api.get("/readyz")).code == 50301


async def test_a_body_that_is_on_its_way_at_the_stop_is_read(tmp_path: Path) -> None:
    """A request with its body in transit at a stop gets 503 at once; it is not cut at the end of the grace period.

    Many clients send head and body apart.
    """
    chosen = settings(tmp_path, shutdown_grace_ms=20_000)
    body = msgspec.json.encode(records("a"))
    head = f"POST /topics/t HTTP/1.1\r\nHost: a\r\nContent-Type: {JSON}\r\nContent-Length: {len(body)}\r\n\r\n"
    async with (
        asyncio.timeout(10),
        serving(chosen, opener("memory", chosen)) as api,
        api.connection() as (reader, writer),
    ):
        writer.write(head.encode() + body[:5])
        while not api.service.budget.held_bytes:  # noqa: ASYNC110  # the service has no event for tests
            await asyncio.sleep(0.001)
        stopping = asyncio.create_task(api.server.stop())
        await asyncio.sleep(0.05)
        assert not stopping.done()
        writer.write(body[5:])
        assert (await reader.read()).startswith(b"HTTP/1.1 503 ")
        await stopping


async def test_a_body_behind_its_answer_does_not_hold_the_stop_up(tmp_path: Path) -> None:
    """A stop waits no longer than the rest of a body that was rejected by its size.

    The server reads such a body to its end, so that the client receives the reason.
    """
    chosen = settings(tmp_path, shutdown_grace_ms=20_000)
    size_bytes = chosen.max_body_bytes + 1
    head = f"POST /topics/t HTTP/1.1\r\nHost: a\r\nContent-Type: {JSON}\r\nContent-Length: {size_bytes}\r\n\r\n"
    async with (
        asyncio.timeout(10),
        serving(chosen, opener("memory", chosen)) as api,
        api.connection() as (reader, writer),
    ):
        writer.write(head.encode() + b" " * 1000)
        assert (await reader.readline()).startswith(b"HTTP/1.1 413 ")
        stopping = asyncio.create_task(api.server.stop())
        await asyncio.sleep(0.05)
        assert not stopping.done()
        writer.write(b" " * (size_bytes - 1000))
        await stopping


async def test_a_stop_leaves_one_who_never_reads_when_the_grace_is_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stop waits for a client that never reads for one grace period, not again for its connection."""
    grace_s = 2.0
    full = asyncio.Event()
    pause = ApiProtocol.pause_writing

    def pause_writing(connection: ApiProtocol) -> None:
        pause(connection)
        full.set()

    monkeypatch.setattr(ApiProtocol, "pause_writing", pause_writing)
    chosen = settings(tmp_path, shutdown_grace_ms=round(grace_s * 1000))
    async with (
        serving(chosen, opener("memory", chosen)) as api,
        api.connection(limit=1) as (reader, writer),
    ):
        for _ in range(30):  # more than socket buffers hold
            stored = await api.post("/topics/t/partitions/0", records("x" * 1_000_000))
            assert stored.json["offsets"][0]["error_code"] is None
        writer.write(
            b"GET /topics/t/partitions/0/records?offset=0&max_bytes=40000000 HTTP/1.1\r\nHost: a\r\n\r\n"
        )
        await reader.read(1)
        await full.wait()
        began_s = time.monotonic()
        await api.server.stop()
        assert grace_s <= time.monotonic() - began_s < grace_s * 1.8


async def test_a_stop_waits_until_the_answers_are_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stop waits until answers are written: else data that the HTTP library holds for a slow reader would be lost.

    Such a request already counts as answered.
    """
    size_bytes = 16 << 20
    begin = ApiServer.pre_shutdown

    def begin_with_much_unwritten(server: ApiServer) -> None:
        (connection,) = server.connections
        assert connection.transport is not None
        connection.transport.set_write_buffer_limits(2 * size_bytes)
        connection.transport.write(bytes(size_bytes))
        begin(server)

    monkeypatch.setattr(ApiServer, "pre_shutdown", begin_with_much_unwritten)
    chosen = settings(tmp_path, shutdown_grace_ms=20_000)
    async with (
        asyncio.timeout(15),
        serving(chosen, opener("memory", chosen)) as api,
        api.connection() as (reader, writer),
    ):
        writer.write(b"GET /readyz HTTP/1.1\r\nHost: a\r\n\r\n")
        assert (await reader.readline()).startswith(b"HTTP/1.1 200 ")
        stopping = asyncio.create_task(api.server.stop())
        await asyncio.sleep(0.05)
        assert not stopping.done()
        assert len(await reader.read()) > size_bytes
        await stopping


@pytest.mark.parametrize("ticks", range(7))
@pytest.mark.parametrize("asks", [False, True], ids=["silent", "asks"])
async def test_a_connection_that_comes_with_the_stop_does_not_hold_it_up(
    tmp_path: Path, ticks: int, asks: bool
) -> None:
    """A connection accepted while the listener closes does not delay a stop, though it missed the call to close."""
    chosen = settings(tmp_path, shutdown_grace_ms=20_000)
    server = Server(LogService(chosen, opener("memory", chosen)))
    await server.listen()
    await server.service.start()
    parts = urlsplit(server.url)
    with socket.create_connection((parts.hostname, parts.port), timeout=10) as late:
        if asks:
            late.sendall(b"GET /topics HTTP/1.1\r\nHost: here\r\n\r\n")
        for _ in range(ticks):
            await asyncio.sleep(0)
        async with asyncio.timeout(10):
            await server.stop()
        with suppress(ConnectionResetError):
            reported = late.recv(65536)
            assert asks or not reported
            assert reported[:12] in (b"", b"HTTP/1.1 200", b"HTTP/1.1 503")


async def test_a_stop_ends_a_recovery_at_its_next_sign(tmp_path: Path) -> None:
    reported, go_on = threading.Event(), threading.Event()

    def slow(progress: Progress) -> LogStore:
        progress("segments", 1, 1000)
        reported.set()
        assert go_on.wait(30)
        progress("segments", 2, 1000)
        raise AssertionError("the recovery went on")

    server = Server(LogService(settings(tmp_path), slow))
    await server.listen()
    opening = asyncio.create_task(server.service.start())
    assert await asyncio.to_thread(reported.wait, 10)
    server.service.begin_stop()
    go_on.set()
    with pytest.raises(NotReady):
        await opening
    await server.stop()
