"""A program with franz-go, the client of Go: admin, produce, consume in a group, transactions."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from typing import TypeAlias

import pytest

from tests.interop.peers import KAFKA
from tests.wire.harness import BACKENDS

pytestmark = pytest.mark.slow

SETUP = KAFKA.parent / "franz_go" / "setup"
COUNT = 200
Run: TypeAlias = Callable[[str], "subprocess.CompletedProcess[str]"]


@pytest.fixture(scope="module")
def program() -> str:
    """The program; the first call of a machine fetches its modules and compiles it."""
    if shutil.which("go") is None and os.environ.get("CI") != "true":
        pytest.skip("needs go (Debian: apt-get install golang-go); .ci/run installs it")
    done = subprocess.run([SETUP], check=True, capture_output=True, text=True, timeout=600)
    return done.stdout.strip()


@pytest.fixture
def run(program: str, address: str) -> Run:
    """A function that runs a part of the program."""
    return lambda part: subprocess.run(
        [program, address, part], capture_output=True, text=True, timeout=90, check=False
    )


@pytest.mark.parametrize("address", BACKENDS, indirect=True)
def test_admin_produce_and_groups(run: Run) -> None:
    """Every record is consumed once by the two members that follow each other in a group."""
    done = run("work")
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    found = dict(line.split(": ", 1) for line in done.stdout.splitlines())
    assert "TOPIC_ALREADY_EXISTS" in found["again"]
    assert found["values"].split() == [f"v{number:04}" for number in range(COUNT)]
    assert (found["partitions"], found["group"], found["end"]) == ("4", "Empty 0", str(COUNT))


def test_transactions(run: Run) -> None:
    """Committed records alone are consumed, and written again with their offsets; the end has one more, a marker."""
    done = run("transactions")
    assert done.returncode == 0, done.stderr
    found = dict(line.split(": ", 1) for line in done.stdout.splitlines())
    assert found["committed"].split() == [f"{turn}{n}!" for turn in "ac" for n in range(10)]
    assert found["lag"] == "1"


@pytest.mark.parametrize("address", ["rocketmq"], indirect=True)
def test_transactions_are_refused_over_messages(run: Run) -> None:
    """The first transaction fails at once."""
    done = run("transactions")
    assert done.returncode == 1
    assert "unable to initialize a producer ID" in done.stderr
