"""Fixtures of the Kafka engine's tests: a workshop and a disk for each test."""

from __future__ import annotations

import pytest

from tests.robustness.crash.power import Power
from tests.unit.kafka.workshop import Workshop


@pytest.fixture
def shop() -> Workshop:
    """A workshop for one store, in memory."""
    return Workshop()


@pytest.fixture
def power() -> Power:
    """An empty disk that can lose its power."""
    return Power()
