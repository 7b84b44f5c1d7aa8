"""Fixtures for the tests of the RocketMQ engine: a workshop for one store, and disks with faults."""

from __future__ import annotations

import pytest

from storage.files import OverlayFileSystem
from tests.robustness.crash.faulty import FaultyFileSystem
from tests.robustness.crash.power import Power
from tests.unit.rocketmq.workshop import Workshop


@pytest.fixture
def shop() -> Workshop:
    """A workshop in memory for one store."""
    return Workshop()


@pytest.fixture
def power() -> Power:
    """An empty disk that can lose its power."""
    return Power()


@pytest.fixture
def faulty() -> FaultyFileSystem:
    """An empty disk that can be made to fail."""
    return FaultyFileSystem(OverlayFileSystem())
