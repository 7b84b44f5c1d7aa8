"""The services of every writable store: flush of appends that were answered before a sync, checkpoint, retention.

Owns what one step of each does; must not know when it is stepped. A step deletes only what the topics' own retention
settings allow.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from contextlib import suppress

from logserver.config import Settings
from logserver.service.upkeep import Service
from storage import Journal, LogStore, TopicPartition
from storage.errors import CallerError

log = logging.getLogger(__name__)


def maintenance(
    store: LogStore,
    settings: Settings,
    take_unflushed: Callable[[], Collection[TopicPartition]],
    journal: Journal,
) -> list[Service]:
    """Return the services of a writable store.

    `take_unflushed` returns the partitions with unflushed appends since its last call; it is called in the thread of
    the step. In flush mode os nothing is flushed.
    """

    def flush_journal(_now_ms: int) -> None:
        """Make the notes of requests with an Idempotency-Key durable."""
        journal.flush()

    def flush(_now_ms: int) -> None:
        """Make the earlier appends to the partitions durable; a deleted partition is skipped."""
        for partition in sorted(take_unflushed()):
            with suppress(CallerError):
                store.flush([partition])

    def checkpoint(_now_ms: int) -> None:
        """Record up to which offset the logs are synced."""
        store.checkpoint()

    def retain(now_ms: int) -> None:
        """Delete the segments that the topics' own settings no longer retain."""
        report = store.enforce_retention(now_ms)
        if report.segments_deleted:
            log.info(
                "retention: %d segments, %d bytes deleted",
                report.segments_deleted,
                report.bytes_deleted,
            )

    # Two services, because a failed journal does not affect the store.
    flushing = [
        Service(name="journal", interval_ms=settings.flush_interval_ms, step=flush_journal),
        Service(name="flush", interval_ms=settings.flush_interval_ms, step=flush),
    ]
    return [
        *([] if settings.flush == "os" else flushing),
        Service(name="checkpoint", interval_ms=settings.checkpoint_interval_ms, step=checkpoint),
        Service(name="retention", interval_ms=settings.retention_interval_ms, step=retain),
    ]
