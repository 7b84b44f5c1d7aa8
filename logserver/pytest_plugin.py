"""The pytest plugin: a server for tests, started when the first test uses it.

Owns the fixtures and their option. Every pytest run loads it if this package is installed, so it must not import
anything but pytest before a test uses it.

    def test_orders(log_server, log_topic):
        log_server.produce(log_topic, {"apples": 3}, key="ann")
        assert log_server.records(log_topic)[0].json() == {"apples": 3}
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING, Any, Final

import pytest

if TYPE_CHECKING:
    from logserver.testing import ServerForTests

_LOG_CHARACTERS: Final = 4000


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option `--logserver-backend`."""
    parser.getgroup("logserver").addoption(
        "--logserver-backend",
        default="kafka",
        choices=("kafka", "rocketmq", "memory"),
        help="format of the log_server fixture's store [default: kafka]",
    )


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, Any, None]:
    """Add the end of the server's log to the report of a failed test that used the server."""
    outcome = yield
    report = outcome.get_result()
    server = getattr(item, "funcargs", {}).get("log_server")
    if report.failed and server is not None and (log := server.log[-_LOG_CHARACTERS:]):
        report.sections.append(("log of log_server", log))


@pytest.fixture(scope="session")
def log_server(request: pytest.FixtureRequest) -> Iterator[ServerForTests]:
    """A running server with a temporary store, which is deleted at the end; one server for the whole run.

    Tests do not disturb each other if each test has its own topic: see log_topic.
    """
    from logserver.testing import ServerForTests

    with ServerForTests(backend=str(request.config.getoption("--logserver-backend"))) as server:
        yield server


@pytest.fixture
def log_topic(log_server: ServerForTests, request: pytest.FixtureRequest) -> Iterator[str]:
    """The name of a topic that only this test uses: empty, with one partition, deleted after the test."""
    topic = log_server.fresh_topic(request.node.name)
    yield topic
    log_server.drop_topic(topic)
