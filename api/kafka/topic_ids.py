"""Topic ids as 16 bytes: of every topic, and back to its name.

Owns the index by id; must not create ids of topics that have one. A topic whose files have no id (made before Kafka
2.8) gets one here that depends only on the cluster and its name, so it is the same after every start. Use it on the
event loop only.
"""

from __future__ import annotations

from base64 import urlsafe_b64decode
from hashlib import sha256
from typing import Final

from logserver.service.topics import TopicCatalog

NO_ID: Final = bytes(16)


class TopicIds:
    """The ids of the topics of one store."""

    def __init__(self, topics: TopicCatalog, cluster_id: str) -> None:
        self._topics = topics
        self._cluster_id = cluster_id
        self._names: dict[bytes, str] | None = None
        topics.listeners.append(self._changed)

    def _changed(self, _: str) -> None:
        self._names = None

    def id_of(self, name: str) -> bytes:
        """Return the id of a topic that exists."""
        text = self._topics.info(name).topic_id
        if text is not None:
            return urlsafe_b64decode(text + "==")
        return sha256(f"{self._cluster_id}/{name}".encode()).digest()[: len(NO_ID)]

    def name_of(self, topic_id: bytes) -> str | None:
        """Return the name of the topic with an id; None if there is none."""
        if self._names is None:
            self._names = {self.id_of(name): name for name in self._topics}
        return self._names.get(topic_id)
