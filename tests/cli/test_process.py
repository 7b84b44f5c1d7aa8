"""The command line as processes: imports, output, and exit."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.cli.runner import CHECKED, command_line, run_process
from tests.golden import stores

PARTS = stores.KAFKA / "parts/data"
SERVER_ONLY = (
    "logserver.client",
    "logserver.cli.online",
    "aiohttp",
    "uvloop",
    "prometheus_client",
    "asyncio",
    "api",
)
OFFLINE: dict[str, list[object]] = {
    "inspect": ["inspect", PARTS],
    "dump": ["dump", PARTS],
    "find": ["find", PARTS, "--key", "a"],
    "offsets": ["offsets", PARTS],
    "verify": ["verify", PARTS],
    "rebuild": ["rebuild", PARTS],
    "version": ["--version"],
    "help": ["--help"],
}
LIST_MODULES = """
import atexit, sys
atexit.register(lambda: print(*sys.modules, sep="\\n", file=sys.stderr))
from logserver.__main__ import main
main()
"""


@pytest.mark.parametrize("command", OFFLINE)
def test_offline_commands_import_no_server(command: str) -> None:
    done = subprocess.run(
        [sys.executable, "-P", "-c", LIST_MODULES, *map(str, OFFLINE[command])],
        capture_output=True,
        check=True,
    )
    imported = set(done.stderr.decode().split())
    assert {"click", "logserver"} <= imported
    assert imported & {*SERVER_ONLY, "rich", "hypothesis"} == set()
    if command in ("version", "help"):
        assert imported & {"storage", "msgspec"} == set()


@pytest.mark.parametrize("command", OFFLINE)
def test_as_a_process(command: str, tmp_path: Path) -> None:
    """Commands run in any folder, even in a folder with other packages of the same names."""
    (tmp_path / "storage.py").write_text("raise ImportError('not this one')\n")
    ended = run_process(*OFFLINE[command], cwd=tmp_path)
    assert (ended.code, CHECKED.sub("", ended.err)) == (0, "")


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_reader_that_leaves_early_is_no_error(unbuffered: str) -> None:
    environment = {**os.environ, "PYTHONUNBUFFERED": unbuffered}
    with subprocess.Popen(
        command_line("dump", PARTS),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline().startswith(b'{"topic":"keyed"')
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(30) == 0


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_output_that_cannot_be_written() -> None:
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            command_line("dump", PARTS), stdout=full, stderr=subprocess.PIPE, check=False
        )
    assert done.returncode == 3
    (line,) = done.stderr.decode().splitlines()
    assert line.startswith("error: No space left on device")


def test_all_of_a_large_dump_arrives_in_a_slow_pipe() -> None:
    expected = run_process("dump", PARTS).out
    with subprocess.Popen(command_line("dump", PARTS), stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        pieces = []
        while piece := process.stdout.read(4096):
            pieces.append(piece)
            if len(pieces) % 16 == 0:
                time.sleep(0.001)
    assert b"".join(pieces) == expected
    assert process.returncode == 0


def test_control_c_ends_it_at_once(tmp_path: Path) -> None:
    """Ctrl-C ends a command without a stack trace; the exit code is the shell's code for this signal."""
    script = (
        "import logserver.cli.options as options, signal, os\n"
        "def wait(*_):\n"
        "    os.kill(os.getpid(), signal.SIGINT)\n"
        "    signal.sigwait([signal.SIGUSR1])\n"
        "options.open_inspector = wait\n"
        "from logserver.__main__ import main\n"
        "main()\n"
    )
    done = subprocess.run(
        [sys.executable, "-P", "-c", script, "inspect", str(tmp_path)],
        capture_output=True,
        check=False,
        timeout=30,
    )
    assert done.returncode == 128 + signal.SIGINT
    assert done.stderr == b"interrupted\n"


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_a_closed_standard_stream_is_no_error(tmp_path: Path, closed: str) -> None:
    command = shlex.join(command_line("config", "show"))
    done = subprocess.run(
        ["sh", "-c", f"{command} {closed}"], capture_output=True, cwd=tmp_path, check=False
    )
    assert (done.returncode, done.stderr) == (0, b"")
    assert bool(done.stdout) == (" >&-" not in f" {closed}")
