"""A server for tests: LogServer with what a plain test, without an event loop, wants of it.

Owns names of topics that no other test has; the blocking calls are the blocking client's.
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

_NOT_IN_NAMES: Final = re.compile(r"[^A-Za-z0-9_-]+")  # what either format takes in a topic's name
_NAME_LENGTH: Final = 80
_NOT_FOUND: Final = 404


class ServerForTests(LogServer):
    """A server with blocking calls; `client()` gives asynchronous ones.

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
        """All the blocking calls."""
        return BlockingClient(self.url)

    def fresh_topic(self, name: str = "topic", *, partitions: int = 1, **configs: str) -> str:
        """Make a topic that nobody else has, named after `name`. In the names of configs `_` stands
        for `.`.
        """
        readable = _NOT_IN_NAMES.sub("-", name)[:_NAME_LENGTH].strip("-")
        topic = f"{readable}-{next(self._numbers)}"
        named = {config.replace("_", "."): value for config, value in configs.items()}
        self.blocking.create_topic(topic, partitions=partitions, configs=named or None)
        return topic

    def drop_topic(self, topic: str) -> None:
        """Delete a topic, unless somebody has done so already."""
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
        """All records that a topic holds."""
        return self.blocking.records(topic)

    def wait_for(
        self, topic: str, count: int = 1, *, timeout_s: float = 10.0
    ) -> list[FetchedRecord]:
        """The first `count` records of a topic, once there are so many. Raises TimeoutError."""
        return self.blocking.wait_for(topic, count, timeout_s=timeout_s)

    def stop(self) -> None:
        """See LogServer.stop; the blocking client is closed too."""
        client = self.__dict__.pop("blocking", None)
        if client is not None:
            client.close()
        super().stop()
