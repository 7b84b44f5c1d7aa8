"""A running server for online commands: started once for each backend, as a process."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from logserver import LogServer
from tests.http.harness import ONE_PARTITION

_NUMBERS = itertools.count()


@pytest.fixture(scope="session", params=["kafka", "rocketmq"])
def started(request: pytest.FixtureRequest) -> Iterator[LogServer]:
    """A server of each backend in turn; its topics have one partition by default."""
    backend = str(request.param)
    with LogServer(backend=backend, set=ONE_PARTITION.get(backend)) as server:
        yield server


@pytest.fixture
def server(started: LogServer, monkeypatch: pytest.MonkeyPatch) -> LogServer:
    """The server, found by commands without an option."""
    monkeypatch.setenv("LOGSERVER_URL", started.url)
    return started


@pytest.fixture
def topic() -> str:
    """A topic name that no other test uses."""
    return f"topic-{next(_NUMBERS)}"
