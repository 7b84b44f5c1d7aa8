"""Fixtures: a machine that runs the commands of the files."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from logserver.bench.targets.tools import free_ports
from tests.deploy.files import Machine


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    """A machine of this test."""
    one = Machine(tmp_path, free_ports())
    yield one
    one.stop()
