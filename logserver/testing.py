"""A server for tests: LogServer with the calls that a plain test, without an event loop, needs.

Owns unique topic names; must not make requests itself: the blocking client does.
"""

from __future__ import annotations

import itertools
import re
from functools import cached_property
from typing import Any, Final, Unpack

from logserver.client import FetchedRecord, Placed, ServerRefused
from logserver.client.blocking import BlockingClient
from logserver.client.outgoing import RecordParts, Value
from logserver.embedding import LogServer

_NOT_IN_NAMES: Final = re.compile(r"[^A-Za-z0-9_-]+")  # allowed in a topic name in both formats
_NAME_LENGTH: Final = 80
_NOT_FOUND: Final = 404


class ServerForTests(LogServer):
    """A server with blocking calls; `client()` returns an asynchronous client.

    >>> with ServerForTests() as server:
    ...     topic = server.fresh_topic()
    ...     server.produce(topic, {"n": 1}).offset
    ...     [record.json() for record in server.records(topic)]
    0
    [{'n': 1}]
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._numbers = itertools.count(1)

    @cached_property
    def blocking(self) -> BlockingClient:
        """The blocking client, which has all calls."""
        return BlockingClient(self.url)

    def fresh_topic(self, name: str = "topic", *, partitions: int = 1, **configs: str) -> str:
        """Create a topic with a unique name that starts with `name`. In the names of configs `_` stands for `.`."""
        readable = _NOT_IN_NAMES.sub("-", name)[:_NAME_LENGTH].strip("-")
        topic = f"{readable}-{next(self._numbers)}"
        named = {config.replace("_", "."): value for config, value in configs.items()}
        self.blocking.create_topic(topic, partitions=partitions, configs=named or None)
        return topic

    def drop_topic(self, topic: str) -> None:
        """Delete a topic if it still exists."""
        try:
            self.blocking.delete_topic(topic)
        except ServerRefused as error:
            if error.status != _NOT_FOUND:
                raise

    def produce(
        self,
        topic: str,
        value: Value,
        *,
        partition: int | None = None,
        **parts: Unpack[RecordParts],
    ) -> Placed:
        """See LogClient.produce."""
        return self.blocking.produce(topic, value, partition=partition, **parts)

    def records(self, topic: str) -> list[FetchedRecord]:
        """Return all records of a topic."""
        return self.blocking.records(topic)

    def wait_for(
        self, topic: str, count: int = 1, *, timeout_s: float = 10.0
    ) -> list[FetchedRecord]:
        """Return the first `count` records of a topic, once it holds so many. Raises TimeoutError."""
        return self.blocking.wait_for(topic, count, timeout_s=timeout_s)

    def stop(self) -> None:
        """Stop the server, see LogServer.stop, and close the blocking client."""
        client = self.__dict__.pop("blocking", None)
        if client is not None:
            client.close()
        super().stop()
