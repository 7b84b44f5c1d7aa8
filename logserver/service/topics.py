"""The topics of the open store, as the server knows them: look-ups without a call of the store, and changes.

Owns the catalogue, the order of changes, the topics' ids as 16 bytes, and the checks of topic names: which topics
clients may write to, and which names a client's request may create. Must not append anything. Use it on the event
loop only.
"""

from __future__ import annotations

import asyncio
from base64 import urlsafe_b64decode
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, nullcontext
from hashlib import sha256
from typing import Any, Final

from logserver.idempotency.keys import KeyedWriter
from logserver.service.access import StoreAccess
from logserver.service.partitioning import address
from storage import (
    LogStore,
    OffsetBounds,
    SupportsClusterId,
    SupportsDeleteRecords,
    TopicInfo,
    TopicPartition,
    client_batches_of,
)
from storage.errors import InvalidTopic, NotOffered, UnknownTopic

# Kafka's Topic.INTERNAL_TOPICS, and the topic of the KRaft controllers' log.
INTERNAL_TOPICS: Final = frozenset(
    {"__consumer_offsets", "__transaction_state", "__share_group_state", "__cluster_metadata"}
)
CLUSTER_ID: Final = (
    "logserver"  # of a store without an id; must not change, so that clients may keep it
)
NO_ID: Final = bytes(16)


class TopicCatalog(Mapping[str, TopicInfo]):
    """All topics by name. Each of `listeners` is called with the name of a topic that was created, altered or deleted.

    `keyed_writer` forgets the keys of a deleted topic. `ids`: the topics' ids. `serves`: whether Kafka clients may use
    a topic of a name.
    """

    def __init__(
        self,
        access: StoreAccess,
        topics: Mapping[str, TopicInfo],
        keyed_writer: KeyedWriter | None = None,
    ) -> None:
        self.listeners: list[Callable[[str], None]] = []
        self.deleting: Callable[[str], AbstractAsyncContextManager[None]] = lambda _: nullcontext()
        """Entered with the name of a topic while it is deleted; it may raise to refuse that."""
        self.access = access
        self._topics = dict(topics)
        self._keyed_writer = keyed_writer
        self._changing = asyncio.Lock()
        self.ids = TopicIds(self)
        batches = client_batches_of(access.store)
        self.serves: Callable[[str], bool] = (lambda _: True) if batches is None else batches.serves

    def __getitem__(self, name: str) -> TopicInfo:
        return self._topics[name]

    def get(self, name: str, default: Any = None) -> Any:
        """Return a topic, or `default`: one look-up, for the path of every request."""
        return self._topics.get(name, default)

    def __iter__(self) -> Iterator[str]:
        return iter(self._topics)

    def __len__(self) -> int:
        return len(self._topics)

    def info(self, name: str) -> TopicInfo:
        """Return one topic. Raises UnknownTopic."""
        info = self._topics.get(name)
        if info is None:
            raise UnknownTopic(name)
        return info

    def partition(self, topic: str, number: int) -> TopicPartition:
        """Return the address of a partition that exists. Raises UnknownTopic, UnknownPartition."""
        info = self._topics.get(topic)
        if info is not None and number in info.partitions:
            return TopicPartition(topic, number)
        return address(self.info(topic), number)

    async def create(
        self, topic: str, partitions: int | None, configs: Mapping[str, str] | None
    ) -> tuple[TopicInfo, bool]:
        """Create a topic, or find an existing topic of the same shape: then the second value is False. Raises what
        the store raises.
        """
        self.access.check_writable()
        async with self._changing:
            known = self._topics.get(topic)
            if (
                known is not None
                and partitions in {None, len(known.partitions)}
                and configs is None
            ):
                return known, False
            if known is None:
                check_new_name(topic)
            create = self.access.store.create_topic
            info = await self.access.run(create, topic, partitions, configs)
            self.note(topic, info)
            return info, known is None

    async def alter(self, topic: str, configs: Mapping[str, str | None]) -> TopicInfo:
        """Set topic configs; the value None resets a config."""
        self.access.check_writable()
        self.info(topic)
        async with self._changing:
            info = await self.access.run(self.access.store.alter_topic, topic, configs)
            self.note(topic, info)
            return info

    async def add_partitions(self, topic: str, partitions: int) -> TopicInfo:
        """Raise the number of a topic's partitions. Raises InvalidTopic for a topic of a broker's own."""
        self.access.check_writable()
        check_open(self.info(topic))
        async with self._changing:
            info = await self.access.run(self.access.store.add_partitions, topic, partitions)
            self.note(topic, info)
            return info

    async def delete_records(self, partition: TopicPartition, before_offset: int) -> OffsetBounds:
        """Delete a partition's records below an offset, and return its bounds after it.

        Raises OffsetOutOfRange, InvalidTopic for a topic of a broker's own, NotOffered where one log holds all
        partitions.
        """
        self.access.check_writable()
        check_open(self.info(partition.topic))
        store = self.access.store
        if not isinstance(store, SupportsDeleteRecords):
            raise NotOffered(
                f"backend {store.capabilities.backend} keeps all partitions in one log: the records of one cannot be "
                "deleted alone",
                feature="delete-records",
            )
        return await self.access.run(store.delete_records, partition, before_offset)

    async def delete(self, topic: str) -> None:
        """Delete a topic with its records, and wake the fetches that wait on it: they then find that it is deleted.

        Raises TopicInUse for a topic of a broker's own that open transactions need.
        """
        self.access.check_writable()
        info = self.info(topic)
        async with self._changing, self.deleting(topic):
            await self.access.run(self.access.store.delete_topic, topic)
            self.note(topic, None)
            for number in info.partitions:
                self.access.waiters.forget(TopicPartition(topic, number))
            if self._keyed_writer is not None:
                await self._keyed_writer.forget_topic(topic)

    async def changed(self) -> None:
        """Wait until the change in progress has ended."""
        async with self._changing:
            pass

    async def refresh(self, partitions: Iterable[TopicPartition]) -> None:
        """Learn about partitions that the store itself has created."""
        if not all(self.knows(partition) for partition in partitions):
            self.learn(await self.access.run(self.access.store.topics))

    def knows(self, partition: TopicPartition) -> bool:
        """Return whether the catalogue has a partition. Any thread may call it."""
        info = self._topics.get(partition.topic)
        return info is not None and partition.partition in info.partitions

    def learn(self, topics: Mapping[str, TopicInfo]) -> None:
        """Note all topics of the store that the catalogue does not have in this shape."""
        for name, info in topics.items():
            if self._topics.get(name) != info:
                self.note(name, info)

    def note(self, name: str, info: TopicInfo | None) -> None:
        """Note that the store has created or changed a topic, or deleted it (None)."""
        self._topics.pop(name, None)
        if info is not None:
            self._topics[name] = info
        for listener in self.listeners:
            listener(name)


class TopicIds:
    """The ids of the topics of one store, and back to their names.

    A topic whose files have no id (made before Kafka 2.8) gets one that depends only on the cluster and its name, so it
    is the same after every start.
    """

    def __init__(self, topics: TopicCatalog) -> None:
        self._topics = topics
        self._names: dict[bytes, str] | None = None
        topics.listeners.append(self._changed)

    def _changed(self, _: str) -> None:
        self._names = None

    def id_of(self, name: str) -> bytes:
        """Return the id of a topic that exists."""
        text = self._topics.info(name).topic_id
        if text is not None:
            return urlsafe_b64decode(text + "==")
        cluster_id = cluster_id_of(self._topics.access.store)
        return sha256(f"{cluster_id}/{name}".encode()).digest()[: len(NO_ID)]

    def name_of(self, topic_id: bytes) -> str | None:
        """Return the name of the topic with an id; None for an unknown id."""
        if self._names is None:
            self._names = {self.id_of(name): name for name in self._topics}
        return self._names.get(topic_id)


def cluster_id_of(store: LogStore) -> str:
    """Return the cluster id from the store's directory, or `CLUSTER_ID` if the store has none."""
    stored = store.cluster_id if isinstance(store, SupportsClusterId) else None
    return stored or CLUSTER_ID


def check_new_name(topic: str) -> None:
    """Raise InvalidTopic for the name of a broker's internal topic.

    A broker that takes over the directory would read such a topic as its own state.
    """
    if topic in INTERNAL_TOPICS:
        raise InvalidTopic(f"topic name {topic!r} is for a broker's own use", topic=topic)


def check_open(info: TopicInfo) -> None:
    """Raise InvalidTopic for a topic that holds a broker's own state.

    The broker rejects writes of clients to it, and would read any record in it as its own state.
    """
    if info.closed or info.name in INTERNAL_TOPICS:
        raise InvalidTopic(f"only a broker itself writes to topic {info.name!r}", topic=info.name)
