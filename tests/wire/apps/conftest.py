"""Fixtures of the tests with applications."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.http.running import Running
from tests.wire.apps.programs import APPS
from tests.wire.harness import OPTIONS


@pytest.fixture(scope="session")
def classpath() -> str:
    """The class path of the applications; the first call of a machine fetches them."""
    done = subprocess.run([APPS / "setup"], check=True, capture_output=True, text=True, timeout=600)
    return done.stdout.strip()


@pytest.fixture
def address(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[str]:
    """The address for Kafka clients of a server. The format is Kafka's, unless a test has another."""
    place = ("--data", tmp_path / "store", "--listen-kafka", "127.0.0.1:0")
    running = Running(*place, *OPTIONS[getattr(request, "param", "kafka")])
    yield str(running.facts["kafka"])
    running.process.kill()
    running.process.communicate()
