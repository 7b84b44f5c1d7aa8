"""Who waits for which partition to move on: long polls.

Owns the tickets and futures; all of it lives on the event loop and must not touch the store. A
reader takes a ticket, reads, and if that was not enough waits for a later publish than its ticket:
nothing published in between is missed. A publish wakes all waiters of its partition at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from logserver.errors import Busy
from storage import TopicPartition


class Waiters:
    """Publishes per partition, counted, and those who wait for the next one: at most `limit`."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._changes = 0  # of all partitions; each has the number of its last one
        self._published: dict[TopicPartition, int] = {}
        self._forgotten = 0  # the last change that took a partition away
        self._waiting: dict[TopicPartition, asyncio.Future[None]] = {}
        self._closed = False
        self.count = 0

    def ticket(self, partition: TopicPartition) -> int:
        """To be taken before reading; given to `changed`."""
        return self._published.get(partition, self._forgotten)

    def notify(self, partition: TopicPartition) -> None:
        """Something was published there: wake all who wait."""
        self._changes += 1
        self._published[partition] = self._changes
        self._wake(partition)

    def forget(self, partition: TopicPartition) -> None:
        """It went away: wake all who wait. Who has a ticket of one without a publish looks once more."""
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
        """Wait until something was published after `ticket` was taken; False: time is up, or the
        server stops. `or_done` ends the wait as a publish does. Raises Busy where too many wait already.
        """
        return await self.any_changed({partition: ticket}, timeout_s, or_done=or_done)

    async def any_changed(
        self,
        tickets: Mapping[TopicPartition, int],
        timeout_s: float,
        *,
        or_done: asyncio.Future[None] | None = None,
    ) -> bool:
        """The same for any of several partitions."""
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
        """One future for all who wait there."""
        waiting = self._waiting.get(partition)
        if waiting is None:
            waiting = self._waiting[partition] = asyncio.get_running_loop().create_future()
        return waiting

    def close(self) -> None:
        """Wake everybody for good: nobody waits any more."""
        self._closed = True
        for waiting in self._waiting.values():
            waiting.set_result(None)
        self._waiting.clear()
