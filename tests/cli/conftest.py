"""A running server for the commands that ask one: started once for each backend, as a process."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from logserver import LogServer
from tests.api.harness import ONE_PARTITION

_NUMBERS = itertools.count()


@pytest.fixture(scope="session", params=["kafka", "rocketmq"])
def started(request: pytest.FixtureRequest) -> Iterator[LogServer]:
    """One server for each backend; its topics have one partition unless told."""
    backend = str(request.param)
    with LogServer(backend=backend, set=ONE_PARTITION.get(backend)) as server:
        yield server


@pytest.fixture
def server(started: LogServer, monkeypatch: pytest.MonkeyPatch) -> LogServer:
    """The server, which commands find by themselves."""
    monkeypatch.setenv("LOGSERVER_URL", started.url)
    return started


@pytest.fixture
def topic() -> str:
    """A topic's name of the test's own."""
    return f"topic-{next(_NUMBERS)}"
