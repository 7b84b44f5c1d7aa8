"""Checks of topic names: which topics clients may write to, and which names a client's request may create.

Owns these two checks; must not create or append anything.
"""

from __future__ import annotations

from typing import Final

from storage import TopicInfo
from storage.errors import InvalidTopic

# Kafka's Topic.INTERNAL_TOPICS, and the topic of the KRaft controllers' log.
INTERNAL_TOPICS: Final = frozenset(
    {"__consumer_offsets", "__transaction_state", "__share_group_state", "__cluster_metadata"}
)


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
