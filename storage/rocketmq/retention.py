"""Retention: which files at the head of the log to delete, and their deletion (CleanCommitLogService).

Owns that decision and the order of a deletion; must not delete anything unless a setting says so. Queues and index
follow the log by physical offset.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TypeVar

from storage.errors import DataError, DiskFull, IoFailure
from storage.rocketmq.index.key_index import KeyIndex
from storage.rocketmq.index.queues import QueueTable
from storage.rocketmq.log.commit_log import CommitLog
from storage.rocketmq.state.settings import StoreSettings

_T = TypeVar("_T")


class Deletions:
    """A counter of deletions, for readers that take no lock. `lock` is held during each deletion."""

    def __init__(self, lock: threading.RLock) -> None:
        self._lock = lock
        self._count = 0

    def note(self) -> None:
        """Count a deletion: its files are removed, and nothing points to them any more (lock held)."""
        self._count += 1

    def beside(self, look: Callable[[], _T]) -> _T:
        """Return the result of `look`. If it fails because files were deleted meanwhile, call it again."""
        while True:
            before = self._count
            try:
                return look()
            except (DataError, IoFailure):
                with self._lock:
                    if self._count == before:
                        raise


def given_up(log: CommitLog, settings: StoreSettings, *, now_ms: int) -> Sequence[int]:
    """Return the bases of the flushed files to delete, oldest first. The last file stays.

    - By age: all files last written `fileReservedTime` ago, up to the first newer one, within the hours of
      `deleteWhen`.
    - By disk use above `diskMaxUsedSpaceRatio`: the oldest file, whatever its age. The next pass checks again.
    """
    fs, run = log.run.files.fs, log.run
    older = [base for base in run.bases[:-1] if base + run.file_bytes <= log.flushed]
    doomed: list[int] = []
    if settings.file_reserved_ms is not None and _is_hour(settings, now_ms):
        for base in older:
            if fs.mtime_ms(run.path(base)) + settings.file_reserved_ms > now_ms:
                break
            doomed.append(base)
    limit = settings.disk_max_used_percent
    if not doomed and limit is not None and older and fs.used_percent(run.directory) > limit:
        doomed.append(older[0])
    return doomed


def before_deletion(checkpoint: Callable[[], None]) -> None:
    """Write a checkpoint, so that producer states are known without the deleted records.

    A full disk is ignored: the deletion may free space.
    """
    with suppress(DiskFull):
        checkpoint()


def delete_head(
    log: CommitLog, doomed: Sequence[int], queues: QueueTable, index: KeyIndex | None
) -> None:
    """Remove the first files of the log, then what only they needed. Durable on return.

    The caller holds the append lock, and all records of these files are dispatched. Readers see the new start first.
    """
    run = log.run
    start = doomed[-1] + run.file_bytes
    for queue in queues:
        queue.units.sync()  # entries of deleted records cannot be rebuilt
        queue.units.start = queue.units.first_at(start)
    run.remove_in_turn(doomed)
    for queue in queues:
        queue.units.drop_outlived()
        queue.forget_outlived_edges()
    if index is not None:
        index.delete_before(start)


def _is_hour(settings: StoreSettings, now_ms: int) -> bool:
    hours = settings.delete_hours
    return not hours or time.localtime(now_ms // 1000).tm_hour in hours
