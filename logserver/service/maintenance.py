"""The services of every writable store: flush of appends that were answered before a sync, checkpoint, retention, and
compaction.

Owns what one step of each does; must not know when it is stepped. A step deletes only what the topics' own retention
settings allow.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from contextlib import suppress
from typing import Final

from logserver.config import Settings
from logserver.service.upkeep import Service
from storage import Journal, LogStore, SupportsCompaction, TopicPartition
from storage.errors import CallerError

log = logging.getLogger(__name__)

COMPACTION_INTERVAL_MS: Final = 250
COMPACTION_STEP_BYTES: Final = 16 << 20
"""The work of one step: it takes a fraction of a second, so that other services are not late. With the interval above
it limits compaction to 64 MiB a second."""


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

    compaction = []
    if isinstance(store, SupportsCompaction):
        step = _Compaction(store).step
        compaction.append(Service(name="compaction", interval_ms=COMPACTION_INTERVAL_MS, step=step))
    # Two services, because a failed journal does not affect the store.
    flushing = [
        Service(name="journal", interval_ms=settings.flush_interval_ms, step=flush_journal),
        Service(name="flush", interval_ms=settings.flush_interval_ms, step=flush),
    ]
    return [
        *([] if settings.flush == "os" else flushing),
        Service(name="checkpoint", interval_ms=settings.checkpoint_interval_ms, step=checkpoint),
        Service(name="retention", interval_ms=settings.retention_interval_ms, step=retain),
        *compaction,
    ]


class _Compaction:
    """The steps of compaction. If no partition is due, or after a failure, it looks again after the store's pause."""

    def __init__(self, store: SupportsCompaction) -> None:
        self._store = store
        self._next_look_ms = 0

    def step(self, now_ms: int) -> None:
        """Clean a part of the partition that needs it most."""
        if now_ms < self._next_look_ms:
            return
        self._next_look_ms = now_ms + self._store.compaction_pause_ms
        report = self._store.compact(now_ms, max_bytes=COMPACTION_STEP_BYTES)
        if report.partition is None:
            return
        self._next_look_ms = 0
        if report.uncleanable is not None:
            log.error("compaction: %s is left alone: %s", report.partition, report.uncleanable)
        elif report.cleaned_up_to is not None:
            log.info(
                "compaction: %s cleaned up to offset %d: %d bytes became %d, %d records dropped",
                report.partition,
                report.cleaned_up_to,
                report.bytes_read,
                report.bytes_written,
                report.records_dropped,
            )
