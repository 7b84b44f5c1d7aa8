"""Fixtures of the API suite: the same tests over the model and over the real backends."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tests.http.harness import ONE_PARTITION, Api, opener, serving, settings
from tests.http.running import Running, Serve

BACKENDS = ("memory", "kafka", "rocketmq")


@pytest.fixture(params=BACKENDS)
def backend(request: pytest.FixtureRequest) -> str:
    """Each backend in turn."""
    return str(request.param)


@pytest.fixture
async def api(backend: str, tmp_path: Path) -> AsyncIterator[Api]:
    """A server with an empty store of the backend."""
    chosen = settings(tmp_path / "store", set=ONE_PARTITION.get(backend, {}))
    async with serving(chosen, opener(backend, chosen)) as running:
        yield running


@pytest.fixture
def serve() -> Iterator[Serve]:
    """A function that starts servers; all servers end with the test."""
    running: list[Running] = []

    def start(*options: str | Path, interpreter: bool = False) -> Running:
        running.append(Running(*options, interpreter=interpreter))
        return running[-1]

    yield start
    for one in running:
        if one.process.poll() is None:
            one.process.kill()
            one.process.communicate()
