"""Whether clients may write to a topic, and under which names a request from outside may make one.

Owns these questions; must not create or append anything.
"""

from __future__ import annotations

from typing import Final

from storage import TopicInfo
from storage.errors import InvalidTopic

# Kafka's Topic.INTERNAL_TOPICS, and the log of its controllers.
INTERNAL_TOPICS: Final = frozenset(
    {"__consumer_offsets", "__transaction_state", "__share_group_state", "__cluster_metadata"}
)


def check_new_name(topic: str) -> None:
    """Raise InvalidTopic for a name that a broker which takes the directory over would read as its own
    state.
    """
    if topic in INTERNAL_TOPICS:
        raise InvalidTopic(f"topic name {topic!r} is for a broker's own use", topic=topic)


def check_open(info: TopicInfo) -> None:
    """Raise InvalidTopic for a topic of a broker's own state: it refuses clients there, and reads what it finds as its
    own.
    """
    if info.closed or info.name in INTERNAL_TOPICS:
        raise InvalidTopic(f"only a broker itself writes to topic {info.name!r}", topic=info.name)
