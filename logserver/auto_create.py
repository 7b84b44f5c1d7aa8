"""Whether clients may write to a topic, and whether a produce request to an unknown one may make it: only
under a name for clients, and if something of it can be stored.

Owns these questions; must not create or append anything. Without the last a request that is
refused whole would leave an empty topic behind.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from logserver.writer import Part, Run
from storage import LogStore, StorageError, TopicInfo
from storage.errors import CallerError, InvalidTopic

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


def refusals(
    store: LogStore, topic: str, parts: Sequence[Part], *, whole: bool
) -> list[Run] | None:
    """None when the topic may be made; else every record's own error, as runs. Blocking.

    `whole`: a part is all or nothing (the request has a sequence or a key): its error is raised.
    """
    runs: list[Run] = []
    for part in parts:
        error = _refusal(store, topic, part, 0, len(part.records))
        if error is not None and whole:
            raise error
        if error is None:
            return None
        for index, position in enumerate(part.positions):
            alone = _refusal(store, topic, part, index, index + 1)
            if alone is None:
                return None
            runs.append(Run(part.partition.partition, (position,), -1, alone))
    return runs


def _refusal(store: LogStore, topic: str, part: Part, begin: int, end: int) -> StorageError | None:
    try:
        store.preview_topic(topic, part.records[begin:end])
    except CallerError as error:
        return error
    return None
