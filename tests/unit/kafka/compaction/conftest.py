"""A workshop with a compacted topic of small segments."""

from __future__ import annotations

import pytest

from tests.unit.kafka.compaction.cleaning import Cleaning
from tests.unit.kafka.workshop import Workshop


@pytest.fixture
def cleaning() -> Cleaning:
    """A store with the compacted topic t, in memory."""
    return Cleaning(Workshop())
