"""Retention: which files at the head of the log to delete (CleanCommitLogService), and reads during a deletion.

Owns that decision; must not choose anything unless a setting says so. `StoreFiles.delete_head` deletes.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import TypeVar

from storage.errors import DataError, IoFailure
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


def _is_hour(settings: StoreSettings, now_ms: int) -> bool:
    hours = settings.delete_hours
    return not hours or time.localtime(now_ms // 1000).tm_hour in hours
