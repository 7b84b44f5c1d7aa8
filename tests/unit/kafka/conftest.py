"""A workshop for each test of the Kafka engine."""

from __future__ import annotations

import pytest

from tests.faults.power import Power
from tests.unit.kafka.workshop import Workshop


@pytest.fixture
def shop() -> Workshop:
    """A place for one store, in memory."""
    return Workshop()


@pytest.fixture
def power() -> Power:
    """A disk that can lose its power, empty."""
    return Power()
