"""A workshop for each test of the RocketMQ engine."""

from __future__ import annotations

import pytest

from storage.files import OverlayFileSystem
from tests.faults.faulty import FaultyFileSystem
from tests.faults.power import Power
from tests.unit.rocketmq.workshop import Workshop


@pytest.fixture
def shop() -> Workshop:
    """A place for one store, in memory."""
    return Workshop()


@pytest.fixture
def power() -> Power:
    """A disk that can lose its power, empty."""
    return Power()


@pytest.fixture
def faulty() -> FaultyFileSystem:
    """A disk with bad moments, empty."""
    return FaultyFileSystem(OverlayFileSystem())
