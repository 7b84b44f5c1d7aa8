"""The pytest plugin: a server for tests, started when the first of them asks for it.

Owns the fixtures and their option. It is loaded by every pytest where this package is installed, so it
must import nothing but pytest until a test uses it.

    def test_orders(log_server, log_topic):
        log_server.produce(log_topic, {"apples": 3}, key="ann")
        assert log_server.records(log_topic)[0].json() == {"apples": 3}
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from logserver.testing import ServerForTests


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--logserver-backend`."""
    parser.getgroup("logserver").addoption(
        "--logserver-backend",
        default="kafka",
        choices=("kafka", "rocketmq", "memory"),
        help="format of the store behind the log_server fixture [default: kafka]",
    )


@pytest.fixture(scope="session")
def log_server(request: pytest.FixtureRequest) -> Iterator[ServerForTests]:
    """A running server with a store of its own, which goes away with it; one for the whole run.

    Tests do not get in each other's way if each has a topic of its own: see log_topic.
    """
    from logserver.testing import ServerForTests

    with ServerForTests(backend=str(request.config.getoption("--logserver-backend"))) as server:
        yield server


@pytest.fixture
def log_topic(log_server: ServerForTests, request: pytest.FixtureRequest) -> Iterator[str]:
    """The name of a topic of this test's own, empty, with one partition; deleted behind it."""
    topic = log_server.fresh_topic(request.node.name)
    yield topic
    log_server.drop_topic(topic)
