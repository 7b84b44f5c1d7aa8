"""The topics that Kafka clients may see: a view of the catalogue of topics.

Owns the look-ups of the handlers, so that no answer names a topic that clients cannot use; must not change topics. In
Kafka's format every topic is for clients. Topics of a RocketMQ broker's own, and topics whose name Kafka does not
allow, such as `%RETRY%orders`, are not: no list contains them, and by name they are INVALID_TOPIC. Use it on the event
loop only.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from logserver.service.topics import TopicCatalog
from storage import TopicInfo, TopicPartition
from storage.errors import InvalidTopic


class ClientTopics(Mapping[str, TopicInfo]):
    """The topics for clients by name."""

    def __init__(self, catalog: TopicCatalog) -> None:
        self._catalog = catalog
        self._serves = catalog.serves

    def __getitem__(self, name: str) -> TopicInfo:
        if not self._serves(name):
            raise KeyError(name)
        return self._catalog[name]

    def __iter__(self) -> Iterator[str]:
        return filter(self._serves, self._catalog)

    def __len__(self) -> int:
        return sum(map(self._serves, self._catalog))

    def check(self, name: str) -> None:
        """Raise InvalidTopic for a name that clients cannot use, whether or not the topic exists."""
        if not self._serves(name):
            shown = name if len(name) <= 80 else name[:80] + "..."
            raise InvalidTopic(
                f"topic name {shown!r} is not for Kafka clients: it has a character other than a-z, A-Z, 0-9, '.', "
                "'_' and '-', has no or too many characters, or is the broker's own",
                topic=name,
            )

    def info(self, name: str) -> TopicInfo:
        """Return one topic. Raises UnknownTopic, InvalidTopic."""
        self.check(name)
        return self._catalog.info(name)

    def partition(self, topic: str, number: int) -> TopicPartition:
        """Return the address of a partition that exists. Raises UnknownTopic, UnknownPartition, InvalidTopic."""
        self.check(topic)
        return self._catalog.partition(topic, number)
