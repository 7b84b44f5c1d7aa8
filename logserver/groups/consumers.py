"""All consumer instances of one server: created, found, closed, and removed when they are idle.

Owns their table and its limit, and the schedule of the search for idle instances. Must not know HTTP. Use it on the
event loop only.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from logserver.errors import Busy, UnknownConsumer
from logserver.groups.config import ConsumerConfig, check_group_name, check_instance_name
from logserver.groups.consumer import Consumer
from logserver.groups.coordinator import Coordinator
from logserver.groups.offsets import Offsets
from logserver.service.topics import TopicCatalog

log = logging.getLogger(__name__)

SWEEP_S: Final = 1.0


class Consumers:
    """Consumer instances by group and name."""

    def __init__(self, topics: TopicCatalog) -> None:
        self.coordinator = Coordinator(topics, topics.access.clock)
        self.offsets = Offsets(topics, self.coordinator.groups)
        self._topics = topics
        self._access = topics.access
        self._instances: dict[tuple[str, str], Consumer] = {}
        self._sweeping: asyncio.Task[None] | None = None

    @property
    def count(self) -> int:
        """The number of instances."""
        return len(self._instances)

    def start(self) -> None:
        """Begin to close idle instances, and to count groups."""
        self.offsets.start()
        self._sweeping = asyncio.create_task(self._sweep())

    async def stop(self) -> None:
        """Close all instances; their auto-commits are stored on return."""
        if self._sweeping is not None:
            self._sweeping.cancel()
            await asyncio.wait((self._sweeping,))
        for consumer in list(self._instances.values()):
            await self._close(consumer)
        await self.offsets.stop()

    def create(self, group: str, name: str | None, config: ConsumerConfig) -> Consumer:
        """Create an instance; without a name it gets a generated one. Raises InvalidGroup, ConsumerExists, Busy (too
        many instances or groups).
        """
        check_group_name(group, rocketmq=self._access.store.capabilities.messages)
        if name is None:
            name = f"consumer-{uuid.uuid4()}"
        check_instance_name(name)
        self.offsets.admit(group)
        limit = self._access.settings.max_consumer_instances
        if self.count >= limit and (group, name) not in self._instances:
            raise Busy(
                f"there are {self.count} consumer instances, the limit is {limit} "
                "(max_consumer_instances): delete some or try again later"
            )
        consumer = Consumer(
            self._topics, self.coordinator, self.offsets, config, group=group, name=name
        )
        self._instances[group, name] = consumer
        return consumer

    @contextmanager
    def using(self, group: str, name: str) -> Iterator[Consumer]:
        """Yield an instance for one call, during which it is not idle. Raises UnknownConsumer."""
        consumer = self._instances.get((group, name))
        if consumer is None:
            raise UnknownConsumer(group=group, instance=name)
        with consumer.in_use():
            yield consumer

    async def delete(self, group: str, name: str) -> None:
        """Close an instance; other members get its partitions. Raises UnknownConsumer."""
        with self.using(group, name) as consumer:
            await self._close(consumer)

    async def close_idle(self) -> int:
        """Close the instances that were idle for too long. Return their number."""
        silent = self.coordinator.silent()
        for member in silent:
            consumer = self._instances.get((member.group.name, member.name))
            if consumer is not None:
                log.info("group %r: consumer %r was idle", member.group.name, member.name)
                await self._close(consumer)
        return len(silent)

    async def _close(self, consumer: Consumer) -> None:
        self._instances.pop((consumer.group, consumer.member.name), None)
        await consumer.close()

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(SWEEP_S)
            try:
                await self.close_idle()
            except Exception:  # a bug: the sweep must go on for other instances
                log.exception("closing idle consumers broke")
