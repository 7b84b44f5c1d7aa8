"""Fixtures: the backends that a server runs on, and the shim that makes its system calls fail."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.robustness.process.backends import BACKENDS, Backend
from tests.robustness.process.faults import Faults, build


@pytest.fixture(params=list(BACKENDS))
def backend(request: pytest.FixtureRequest) -> Backend:
    """Each backend in turn."""
    return BACKENDS[request.param]


@pytest.fixture
def tmp_path(on_disk: Path) -> Path:
    """A folder on the disk: real servers are killed, and real system calls fail."""
    return on_disk


@pytest.fixture
def thorough(request: pytest.FixtureRequest) -> bool:
    """Whether there is time for the counts that CI must reach."""
    return bool(request.config.getoption("--all-suites"))


@pytest.fixture(scope="session")
def faults_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The shim library, built once."""
    return build(tmp_path_factory.mktemp("faults"))


@pytest.fixture
def faults(faults_library: Path, tmp_path: Path) -> Faults:
    """The control of faults in servers that are started in its environment."""
    return Faults(faults_library, tmp_path / "faults")
