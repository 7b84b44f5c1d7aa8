"""Long polls: the tasks that wait until a partition changes.

Owns the tickets and futures; must not touch the store. Use it on the event loop only. A reader takes a ticket and
reads. If the page is not enough, it waits for a publish after its ticket, so it misses no publish in between. A
publish wakes all waiters of its partition at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from logserver.errors import Busy
from storage import TopicPartition


class Waiters:
    """Counted publishes per partition, and the tasks that wait for the next publish: at most `limit`."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._changes = 0  # of all partitions; a partition stores the number of its last change
        self._published: dict[TopicPartition, int] = {}
        self._forgotten = 0  # the last change that removed a partition
        self._waiting: dict[TopicPartition, asyncio.Future[None]] = {}
        self._closed = False
        self.count = 0

    def ticket(self, partition: TopicPartition) -> int:
        """Return a ticket for `changed`; take it before reading."""
        return self._published.get(partition, self._forgotten)

    def notify(self, partition: TopicPartition) -> None:
        """Count a publish of this partition, and wake all waiters."""
        self._changes += 1
        self._published[partition] = self._changes
        self._wake(partition)

    def forget(self, partition: TopicPartition) -> None:
        """Forget a deleted partition, and wake all waiters.

        The tickets of all partitions without a publish change, so their readers read once more.
        """
        self._changes += 1
        self._forgotten = self._changes
        self._published.pop(partition, None)
        self._wake(partition)

    def _wake(self, partition: TopicPartition) -> None:
        waiting = self._waiting.pop(partition, None)
        if waiting is not None:
            waiting.set_result(None)

    async def changed(
        self,
        partition: TopicPartition,
        ticket: int,
        timeout_s: float,
        *,
        or_done: asyncio.Future[None] | None = None,
    ) -> bool:
        """Wait for a publish after `ticket` was taken. Return False if the time expires or the server stops.

        `or_done` ends the wait like a publish. Raises Busy if too many tasks wait already.
        """
        return await self.any_changed({partition: ticket}, timeout_s, or_done=or_done)

    async def any_changed(
        self,
        tickets: Mapping[TopicPartition, int],
        timeout_s: float,
        *,
        or_done: asyncio.Future[None] | None = None,
    ) -> bool:
        """Wait like `changed`, for any of several partitions."""
        if self._closed:
            return False
        if any(self.ticket(partition) != ticket for partition, ticket in tickets.items()):
            return True
        if self.count >= self._limit:
            raise Busy(
                f"{self.count} fetches wait for records, the limit is {self._limit} "
                "(max_waiting_fetches): try again later"
            )
        waiting = [self._next_publish(partition) for partition in tickets]
        if or_done is not None:
            waiting.append(or_done)
        self.count += 1
        try:
            done, _ = await asyncio.wait(
                waiting, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED
            )
        finally:
            self.count -= 1
        return bool(done) and not self._closed

    def _next_publish(self, partition: TopicPartition) -> asyncio.Future[None]:
        """Return the future that all waiters of a partition share."""
        waiting = self._waiting.get(partition)
        if waiting is None:
            waiting = self._waiting[partition] = asyncio.get_running_loop().create_future()
        return waiting

    def close(self) -> None:
        """Wake all waiters; no task can wait any more."""
        self._closed = True
        for waiting in self._waiting.values():
            waiting.set_result(None)
        self._waiting.clear()
