"""Fixtures of the suite of Kafka's wire protocol."""

from __future__ import annotations

import os
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.interop.peers import KAFKA
from tests.wire.harness import Broker, Connection, broker


@pytest.fixture
def tmp_path(on_disk: Path) -> Path:
    """A folder on the disk: a file system in memory has no reads from the page cache."""
    return on_disk


@pytest.fixture
async def kafka(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[Broker]:
    """A server on an empty store, with a port for Kafka clients. The format is Kafka's, unless a test has BOTH."""
    async with broker(tmp_path / "store", getattr(request, "param", "kafka")) as running:
        yield running


@pytest.fixture
async def connection(kafka: Broker) -> AsyncIterator[Connection]:
    """A connection to `kafka`."""
    async with kafka.connect() as open_one:
        yield open_one


@pytest.fixture(scope="session")
def classpath() -> str:
    """The class path of the tools; the first call of a machine fetches them."""
    subprocess.run([KAFKA / "setup"], check=True, capture_output=True, timeout=600)
    cache = Path(os.environ.get("PEERS_CACHE", Path.home() / ".cache" / "peers" / "kafka"))
    return f"{cache}/libs/*"
