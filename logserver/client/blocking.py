"""The client for programs without an event loop: scripts, notebooks, plain tests.

Owns a thread with an event loop that runs one LogClient; must not make requests itself: that client does.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Coroutine, Iterable, Mapping
from contextlib import aclosing
from functools import partial
from typing import Any, Self, TypeVar, Unpack

from logserver.client.client import LogClient
from logserver.client.outgoing import RecordParts, Value
from logserver.client.values import Delay, FetchedRecord, Placed, Start
from logserver.errors import ClientError
from storage import Record

T = TypeVar("T")


class BlockingClient:
    """A client with blocking calls. Any thread may use it, also a thread with a running loop, and a forked process,
    which gets connections of its own.

    Use it as `with`; the options are the options of LogClient.

    >>> with BlockingClient(url) as client:
    ...     client.produce("letters", "a", key="k").offset
    ...     [record.text for record in client.records("letters")]
    ...     client.run(lambda asynchronous: asynchronous.offsets("letters")).end_offset
    0
    ['a']
    1
    """

    def __init__(self, url: str, token: str | None = None, **options: Any) -> None:
        self._make_client = partial(LogClient, url, token, **options)
        self._starting = threading.Lock()
        self._of_parents: list[object] = []
        self._start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections and end the thread."""
        if self._loop.is_closed():
            return
        self.run(LogClient.close)  # in a forked process, of the client of that process
        self.run(lambda _: self._loop.shutdown_asyncgens())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def run(self, ask: Callable[[LogClient], Coroutine[Any, Any, T]]) -> T:
        """Run a coroutine function with the asynchronous client and return its result: for calls without a method
        here.
        """
        if self._loop.is_closed():
            raise ClientError("the client is closed")
        with self._starting:
            if self._process_id != os.getpid():
                # A collected loop would change the parent's epoll object, which this process shares.
                self._of_parents += [self._client, self._loop]
                self._start()
        waiting = asyncio.run_coroutine_threadsafe(ask(self._client), self._loop)
        try:
            return waiting.result()
        except KeyboardInterrupt:
            waiting.cancel()
            raise

    def _start(self) -> None:
        self._process_id = os.getpid()
        self._client = self._make_client()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(
            target=self._loop.run_forever, name="logserver client", daemon=True
        )
        self._thread.start()

    def topics(self) -> list[str]:
        """See LogClient.topics."""
        return self.run(LogClient.topics)

    def create_topic(
        self,
        topic: str,
        *,
        partitions: int | None = None,
        configs: Mapping[str, str] | None = None,
    ) -> bool:
        """See LogClient.create_topic."""
        return self.run(
            lambda client: client.create_topic(topic, partitions=partitions, configs=configs)
        )

    def delete_topic(self, topic: str) -> None:
        """See LogClient.delete_topic."""
        self.run(lambda client: client.delete_topic(topic))

    def produce(
        self,
        topic: str,
        value: Value,
        *,
        partition: int | None = None,
        delay: Delay | None = None,
        **parts: Unpack[RecordParts],
    ) -> Placed:
        """See LogClient.produce."""
        return self.run(
            lambda client: client.produce(topic, value, partition=partition, delay=delay, **parts)
        )

    def produce_many(self, topic: str, records: Iterable[Record], **options: Any) -> list[Placed]:
        """See LogClient.produce_many."""
        return self.run(lambda client: client.produce_many(topic, records, **options))

    def records(
        self,
        topic: str,
        partition: int | None = None,
        offset: Start = "earliest",
        *,
        tag: str | None = None,
    ) -> list[FetchedRecord]:
        """Return all existing records."""

        async def read(client: LogClient) -> list[FetchedRecord]:
            return [record async for record in client.records(topic, partition, offset, tag=tag)]

        return self.run(read)

    def wait_for(
        self,
        topic: str,
        count: int,
        *,
        partition: int | None = None,
        offset: Start = "earliest",
        timeout_s: float = 10.0,
    ) -> list[FetchedRecord]:
        """Return the first `count` records from `offset`, once so many exist. Raises TimeoutError."""
        first: list[FetchedRecord] = []

        async def read(client: LogClient) -> None:
            async with (
                asyncio.timeout(timeout_s),
                aclosing(client.records(topic, partition, offset, follow=True)) as records,
            ):
                while len(first) < count:
                    first.append(await anext(records))

        try:
            self.run(read)
        except TimeoutError:
            where = topic if partition is None else f"{topic}-{partition}"
            message = f"{where} has {len(first)} of {count} records after {timeout_s:g} s"
            raise TimeoutError(message) from None
        return first
