"""Whether a produce request to an unknown topic may make it: only if something of it can be stored.

Owns that one question; must not create or append anything. Without it a request that is refused
whole would leave an empty topic behind.
"""

from __future__ import annotations

from collections.abc import Sequence

from logserver.writer import Part, Run
from storage import LogStore, StorageError
from storage.errors import CallerError


def refusals(store: LogStore, topic: str, parts: Sequence[Part]) -> list[Run] | None:
    """None when the topic may be made; else every record's own error, as runs. Blocking.

    A sequenced request is all or nothing: its error is raised.
    """
    runs: list[Run] = []
    for part in parts:
        error = _refusal(store, topic, part, 0, len(part.records))
        if error is None:
            return None
        if part.producer is not None:
            raise error
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
