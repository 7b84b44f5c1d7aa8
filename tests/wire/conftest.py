"""Fixtures of the suite of Kafka's wire protocol."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.wire.harness import Broker, Connection, broker


@pytest.fixture
async def kafka(tmp_path: Path) -> AsyncIterator[Broker]:
    """A server on an empty store, with a port for Kafka clients."""
    async with broker(tmp_path / "store") as running:
        yield running


@pytest.fixture
async def connection(kafka: Broker) -> AsyncIterator[Connection]:
    """A connection to `kafka`."""
    async with kafka.connect() as open_one:
        yield open_one
