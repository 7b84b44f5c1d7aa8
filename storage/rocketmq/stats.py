"""Reports of a store about itself: its capabilities, sizes and positions, and the lag of the dispatcher.

Owns the figures and their names; must not change anything.
"""

from __future__ import annotations

from storage.files import HandleCache
from storage.model import Capabilities, StoreStats
from storage.rocketmq.format import message
from storage.rocketmq.index.dispatcher import Dispatcher
from storage.rocketmq.index.queues import QueueTable
from storage.rocketmq.log.commit_log import CommitLog
from storage.rocketmq.state.settings import INERT_CONFIGS

CAPABILITIES = Capabilities(
    backend="rocketmq",
    indexed_keys=True,
    batch_bytes=False,
    truncate=False,
    time_axis="store_timestamp",
    leader_epochs=False,
    messages=True,
    inert_configs=INERT_CONFIGS,
)


def stats_of(
    log: CommitLog,
    queues: QueueTable,
    dispatcher: Dispatcher,
    files: HandleCache,
    *,
    topics: int,
    fenced: str | None,
) -> StoreStats:
    """See LogStore.stats. `dispatch_lag_bytes`: bytes of the log that are in no queue or index yet."""
    index = dispatcher.builder.index
    failure = dispatcher.failure
    details: dict[str, object] = {
        "compiled": not (message.__file__ or "").endswith(".py"),
        "min_physical_offset": log.start,
        "max_physical_offset": log.end,
        "flushed_physical_offset": log.flushed,
        "dispatch_lag_bytes": max(log.end - dispatcher.position, 0),
        "dispatch_failure": None if failure is None else failure.message,
        "index_files": 0 if index is None else len(index.index_files),
    }
    return StoreStats(
        topics=topics,
        partitions=len(queues),
        segments=len(log.run.bases),
        size_bytes=max(log.end - log.start, 0),
        open_files=files.open_files,
        fenced=fenced,
        suspect_records=log.suspect_records,
        details=details,
    )
