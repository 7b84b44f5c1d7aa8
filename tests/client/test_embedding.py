"""A server as a child process: it serves inside `with`, stops in order at the end, and never outlives its parent."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import logserver
from logserver import LogServer
from logserver.client import BlockingClient, LogClient
from logserver.errors import ServerNotStarted
from tests.cli.runner import command_line

BACKENDS = ("kafka", "rocketmq")
# A child that only imports the modules of a server. A server is ready after up to twice the time of this child.
BARE_START = (sys.executable, "-P", "-c", "import aiohttp, uvloop, msgspec, click")
MOST_BARE_STARTS = 6


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()


def until_gone(pid: int) -> None:
    deadline = time.monotonic() + 20
    while is_alive(pid):
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.mark.parametrize("backend", BACKENDS)
async def test_async_with(backend: str, tmp_path: Path) -> None:
    path = tmp_path / "store"
    async with LogServer(path, backend=backend) as server:
        pid = server.pid
        assert (server.backend, server.data) == (backend, str(path))
        async with server.client() as client:
            await client.produce("t", "kept")
    assert pid is not None
    assert not is_alive(pid)
    async with LogServer(path, read_only=True) as server, server.client() as client:
        assert [record.text async for record in client.records("t")] == ["kept"]
        assert (await client.store())["recovery"]["clean_shutdown"]


def test_the_directory_as_a_setting(tmp_path: Path) -> None:
    """`data` is an option of `logserver serve`, and does what `path` does."""
    with LogServer(data=tmp_path / "store") as server:
        assert server.data == str(tmp_path / "store")
    assert (tmp_path / "store" / "meta.properties").is_file()


def test_with() -> None:
    with LogServer(backend="memory") as server:
        assert server.backend == "memory"
        assert server.url.startswith("http://127.0.0.1:")
        deadline_s = time.monotonic() + 30
        while "memory store" not in server.log:  # the line for programs comes first
            assert time.monotonic() < deadline_s
            time.sleep(0.01)
    assert server.pid is None
    with pytest.raises(ServerNotStarted):
        server.url  # noqa: B018  # it raises if there is no URL


def test_an_interrupt_of_the_terminal_is_not_for_the_child() -> None:
    with LogServer(backend="memory") as server:
        assert server.pid is not None
        assert os.getpgid(server.pid) != os.getpgid(0)


def test_settings_go_along(tmp_path: Path) -> None:
    """Booleans of both values and mappings (as `--set`) are passed to `serve`."""
    settings: dict[str, Any] = {
        "auto_create_topics": False,
        "set": {"num.partitions": "3"},
        "insecure": False,
    }
    with LogServer(tmp_path / "store", flush="os", **settings) as server:

        async def check(client: LogClient) -> None:
            async with client:
                assert (await client.store())["flush"] == "os"
                assert await client.create_topic("t")
                assert len((await client.topic("t")).partitions) == 3

        asyncio.run(check(server.client()))


def test_an_ephemeral_store_is_not_synced_unless_told() -> None:
    async def flush_of(server: LogServer) -> object:
        async with server.client() as client:
            return (await client.store())["flush"]

    with LogServer() as server:
        assert asyncio.run(flush_of(server)) == "os"
    with LogServer(flush="async") as server:
        assert asyncio.run(flush_of(server)) == "async"


@pytest.mark.parametrize(
    ("settings", "stated"),
    [
        ({"flush": "never"}, "flush"),
        ({"backend": "sqlite"}, "backend"),
        ({"nonsense": 1}, "--nonsense"),
    ],
)
def test_what_keeps_it_from_starting(tmp_path: Path, settings: dict[str, Any], stated: str) -> None:
    server = LogServer(tmp_path / "store", **settings)
    with pytest.raises(ServerNotStarted, match=stated) as raised:
        server.start()
    assert raised.value.facts() == {"exit_code": 2}
    assert server.pid is None


def test_a_start_that_takes_too_long() -> None:
    server = LogServer(start_timeout_s=0.001)
    with pytest.raises(ServerNotStarted, match=r"reported nothing for 0\.001 s"):
        server.start()
    assert server.pid is None


async def test_a_start_that_is_cancelled(monkeypatch: pytest.MonkeyPatch) -> None:
    server = LogServer()
    starting = asyncio.create_task(server.__aenter__())
    await asyncio.sleep(0)
    pid = server.pid
    assert pid is not None
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    assert not is_alive(pid)


def test_twice_is_refused() -> None:
    with LogServer(backend="memory") as server, pytest.raises(ServerNotStarted, match="already"):
        server.start()


def test_a_child_that_does_not_stop_is_killed(tmp_path: Path) -> None:
    with LogServer(tmp_path / "store", stop_timeout_s=0.1) as server:
        pid = server.pid
        assert pid is not None
        os.kill(pid, signal.SIGSTOP)
    assert not is_alive(pid)


@pytest.mark.parametrize("backend", [*BACKENDS, "memory"])
def test_a_child_that_has_died_leaves_no_folder(
    backend: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    with LogServer(backend=backend) as server:
        assert Path(server.data).is_relative_to(tmp_path)
        assert server.pid is not None
        os.kill(server.pid, signal.SIGKILL)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")  # a fork with threads
def test_a_forked_process_uses_the_server_and_leaves_it(tmp_path: Path) -> None:
    """It has connections of its own. What it closes and stops goes on for the process that started it."""
    with LogServer() as server, BlockingClient(server.url) as client:
        client.produce("t", "parent")
        child = os.fork()
        if child == 0:
            signal.alarm(20)
            try:
                client.produce("t", "child")
                client.close()
                server.stop()
            finally:
                os._exit(server.pid is not None)
        assert os.waitpid(child, 0)[1] == 0
        assert Path(server.data).is_dir()
        client.produce("t", "parent again")
        found = [record.text for record in client.records("t")]
        assert found == ["parent", "child", "parent again"]


def test_the_log_says_in_words_what_a_start_recovered(tmp_path: Path) -> None:
    with LogServer(tmp_path / "store") as server:
        with BlockingClient(server.url) as client:
            client.produce("t", "v")
        assert server.pid is not None
        os.kill(server.pid, signal.SIGKILL)
    with LogServer(tmp_path / "store") as server:
        deadline = time.monotonic() + 20
        while "try:" not in server.log and time.monotonic() < deadline:
            time.sleep(0.01)
        assert re.search(r"stop: 1 segment scanned, \d index files? rebuilt in", server.log)


def test_it_ends_with_its_parent(tmp_path: Path) -> None:
    """After a SIGKILL of its parent the child stops in order and removes its folder."""
    script = (
        "import os, signal\n"
        "from logserver import LogServer\n"
        "server = LogServer().start()\n"
        "print(server.pid, server.data, flush=True)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-P", "-c", script],
        stdout=subprocess.PIPE,
        env=environment,
        check=False,
        timeout=60,
    )
    assert done.returncode == -signal.SIGKILL
    pid, data = done.stdout.decode().split()
    assert Path(data).is_relative_to(tmp_path)
    until_gone(int(pid))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("number", "after_s"),
    [
        (signal.SIGTERM, 0.1),
        (signal.SIGINT, 0.15),
        (signal.SIGTERM, 0.25),
        (signal.SIGINT, 0.35),
        (signal.SIGTERM, 0.5),
    ],
)
def test_an_ephemeral_store_goes_away_whenever_it_is_stopped(
    tmp_path: Path, number: signal.Signals, after_s: float
) -> None:
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    with subprocess.Popen(
        command_line("serve", "--ephemeral", "--listen", "127.0.0.1:0"),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=environment,
    ) as process:
        try:
            time.sleep(after_s)
            process.send_signal(number)
            process.wait(30)
        finally:
            process.kill()
    assert list(tmp_path.iterdir()) == []


def test_importing_it_costs_nothing() -> None:
    """The package alone loads no other module; `LogServer` loads neither server nor client."""
    script = (
        "import sys\n"
        "before = set(sys.modules)\n"
        "import logserver\n"
        "print(*set(sys.modules) - before)\n"
        "logserver.LogServer\n"
        "print(*{'aiohttp', 'api', 'click', 'logserver.client'} & set(sys.modules))\n"
    )
    done = subprocess.run(
        [sys.executable, "-P", "-c", script], capture_output=True, check=True, text=True
    )
    assert done.stdout == "logserver\n\n"


def test_the_doors() -> None:
    assert logserver.LogClient is LogClient
    with pytest.raises(AttributeError, match="nonsense"):
        logserver.nonsense  # noqa: B018


@pytest.mark.slow
def test_ready_soon(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, figures: Callable[[str], None]
) -> None:
    """A server starts soon: in 0.3 s on an idle machine, with compiled bytecode, as in every start but the first.

    The bound is in bare starts, measured in alternation: a busy machine slows both.
    """
    monkeypatch.delenv("PYTHONDONTWRITEBYTECODE", raising=False)
    monkeypatch.setenv("PYTHONPYCACHEPREFIX", str(tmp_path))
    taken_s, bare_s = [], []
    for _ in range(11):
        began_s = time.monotonic()
        subprocess.run(BARE_START, check=True)
        bare_s.append(time.monotonic() - began_s)
        began_s = time.monotonic()
        with LogServer():
            taken_s.append(time.monotonic() - began_s)
    figures(f"embedding: ready in {statistics.median(taken_s[1:]):.2f} s (median of 10)")
    assert min(taken_s[1:]) < MOST_BARE_STARTS * min(bare_s[1:])


async def test_what_is_given_comes_before_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("read_only", "ephemeral"):
        monkeypatch.setenv(f"LOGSERVER_{name.upper()}", "true")
    async with LogServer(tmp_path / "store", read_only=False) as server, server.client() as client:
        assert server.data == str(tmp_path / "store")
        assert (await client.produce("t", "x")).offset == 0
