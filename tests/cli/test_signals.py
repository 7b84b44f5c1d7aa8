"""A signal to stop is not lost, at whatever moment it comes."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from logserver import process_signals
from tests.cli.runner import command_line

SERVE = ("serve", "--ephemeral", "--listen", "127.0.0.1:0")
# The signal comes in a callback of a weak reference, during an import: Python drops exceptions raised in it.
AT_IMPORT = """
import signal, sys, weakref

number, where = int(sys.argv.pop(1)), sys.argv.pop(1)

class Finder:
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        if name == where:
            thing = cls()
            noted = weakref.ref(thing, lambda _: signal.raise_signal(number))
            del thing

sys.meta_path.insert(0, Finder)
from logserver.__main__ import main
main()
"""


@pytest.mark.parametrize(
    ("where", "number", "code"),
    [
        ("click", signal.SIGINT, 130),
        ("click", signal.SIGTERM, -signal.SIGTERM),
        ("logserver.cli.serve", signal.SIGINT, 130),
        ("logserver.cli.serve", signal.SIGTERM, -signal.SIGTERM),
        ("api.server", signal.SIGINT, 0),
        ("api.server", signal.SIGTERM, 0),
        ("storage.kafka.store", signal.SIGINT, 0),
        ("storage.kafka.store", signal.SIGTERM, 0),
    ],
)
def test_one_that_comes_during_the_start_is_heard(
    tmp_path: Path, where: str, number: signal.Signals, code: int
) -> None:
    done = subprocess.run(
        [sys.executable, "-P", "-c", AT_IMPORT, str(number), where, *SERVE],
        capture_output=True,
        check=False,
        env={**os.environ, "TMPDIR": str(tmp_path)},
        text=True,
        timeout=60,
    )
    assert done.returncode == code
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, -signal.SIGTERM)]
)
def test_one_that_comes_while_the_settings_are_waited_for(
    tmp_path: Path, number: signal.Signals, code: int
) -> None:
    pipe = tmp_path / "settings"
    os.mkfifo(pipe)
    with subprocess.Popen(command_line(*SERVE, "--config", str(pipe))) as process:
        try:
            writing = opened_when_read(pipe)
            assert ended_by(process, number) == code
            os.close(writing)
        finally:
            process.kill()


def ended_by(process: subprocess.Popen[bytes], number: signal.Signals) -> int:
    """Send a signal until the process has ended; return its exit status.

    Python does not notice a signal that comes in the microseconds before a read blocks: the next one ends the read.
    """
    for _ in range(30):
        process.send_signal(number)
        with suppress(subprocess.TimeoutExpired):
            return process.wait(1)
    return process.wait(0)


def opened_when_read(pipe: Path) -> int:
    """Wait until the pipe has a reader; return its write end."""
    deadline = time.monotonic() + 30
    while True:
        try:
            return os.open(pipe, os.O_WRONLY | os.O_NONBLOCK)
        except OSError:
            assert time.monotonic() < deadline
            time.sleep(0.01)


def test_the_one_to_end_is_heard_by_who_hears_ctrl_c() -> None:
    """SIGTERM ends a running loop as Ctrl-C does, by cancelling its task: an exception in a callback may be lost."""
    raised: list[bool] = []

    def end() -> None:
        try:
            signal.raise_signal(signal.SIGTERM)
        except KeyboardInterrupt:
            raised.append(True)

    async def load() -> None:
        asyncio.get_running_loop().call_soon(end)
        await asyncio.sleep(30)

    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a library may have its own
    try:
        with process_signals.ended_as_interrupted(), pytest.raises(KeyboardInterrupt):
            asyncio.run(load())
    finally:
        signal.signal(signal.SIGINT, before)
    assert raised == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_impatient_user_leaves_nothing_behind(tmp_path: Path, number: signal.Signals) -> None:
    """A signal sent again and again, at every moment of the end, leaves no files."""
    with subprocess.Popen(
        command_line(*SERVE),
        env={**os.environ, "TMPDIR": str(tmp_path)},
        stderr=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
    ) as process:
        try:
            assert process.stdout is not None
            process.stdout.readline()
            deadline = time.monotonic() + 30
            while process.poll() is None and time.monotonic() < deadline:
                process.send_signal(number)
                time.sleep(0.0005)
            assert process.returncode is not None
        finally:
            process.kill()
    assert list(tmp_path.iterdir()) == []


def test_held_ones_wait_and_come_at_the_end() -> None:
    came: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, _: came.append(number))
    try:
        with process_signals.held():
            signal.raise_signal(signal.SIGINT)
            assert came == []
            with process_signals.let_through():
                assert came == [signal.SIGINT]
            signal.raise_signal(signal.SIGINT)
            assert came == [signal.SIGINT]
        assert came == [signal.SIGINT] * 2
        with process_signals.held():
            signal.raise_signal(signal.SIGINT)
            process_signals.forget()
        assert came == [signal.SIGINT] * 2
    finally:
        signal.signal(signal.SIGINT, before)
