"""Retention: which files at the head of the log to delete, when a disk refuses records, and reads during a deletion.

Owns these decisions (DefaultMessageStore.CleanCommitLogService); must not choose anything unless a setting says so.
`StoreFiles.delete_head` deletes.

    disk use above   diskMaxUsedSpaceRatio        expired files go at any hour
                     diskSpaceCleanForciblyRatio  the oldest files go, whatever their age
                     diskSpaceWarningLevelRatio   so too, and no record is taken
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from errno import ENOSPC
from itertools import takewhile
from pathlib import Path
from typing import Final, TypeVar

from storage.contract import Clock
from storage.errors import DataError, DiskFull, IoFailure
from storage.files import FileSystem
from storage.rocketmq.log.commit_log import CommitLog
from storage.rocketmq.state.settings import StoreSettings

_T = TypeVar("_T")

FORCED_AT_ONCE: Final = 10  # deleteFileBatchMax
ASK_MS: Final = 10_000  # cleanResourceInterval
ASK_AGAIN_MS: Final = 1_000


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
      `deleteWhen`, or at any hour if the disk is used above `diskMaxUsedSpaceRatio`.
    - Without `fileReservedTime`, by disk use above `diskMaxUsedSpaceRatio`: the oldest file.
    - By disk use above `diskSpaceCleanForciblyRatio` or `diskSpaceWarningLevelRatio`: the oldest files, whatever their
      age, at most `FORCED_AT_ONCE`. The next pass checks again.
    """
    fs, run = log.run.files.fs, log.run
    older = [base for base in run.bases[:-1] if base + run.file_bytes <= log.flushed]
    if not older:
        return ()
    limits = (
        settings.disk_max_used_percent,
        settings.disk_clean_forcibly_percent,
        settings.disk_warning_percent,
    )
    if limits == (None, None, None):
        above, forced = False, False
    else:
        used = fs.used_percent(run.directory)
        above, *more = (limit is not None and used > limit for limit in limits)
        forced = any(more)
    if forced:
        return older[:FORCED_AT_ONCE]
    reserved_ms = settings.file_reserved_ms
    if reserved_ms is None:
        return older[:1] if above else ()
    if not (above or _is_hour(settings, now_ms)):
        return ()
    return list(takewhile(lambda base: fs.mtime_ms(run.path(base)) + reserved_ms <= now_ms, older))


class DiskWatch:
    """Whether the disk is too full for records (`diskSpaceWarningLevelRatio`). Any thread may ask it."""

    def __init__(self, fs: FileSystem, directory: Path) -> None:
        self._fs = fs
        self._directory = directory
        self._asked_ms = 0
        self.used_percent: int | None = None

    def is_due(self, settings: StoreSettings, clock: Clock) -> bool:
        """Return whether `check` would ask the disk, which takes a while on some."""
        limit, known = settings.disk_warning_percent, self.used_percent
        if limit is None:
            return False
        wait_ms = ASK_MS if known is not None and known <= limit else ASK_AGAIN_MS
        return known is None or not 0 <= clock() - self._asked_ms < wait_ms

    def check(self, settings: StoreSettings, clock: Clock) -> None:
        """Raise DiskFull if the disk is used above the limit.

        The disk is asked every ten seconds, as by the real store, and every second while it is too full. Without a
        limit it is not asked.
        """
        limit = settings.disk_warning_percent
        if limit is None:
            self.used_percent = None
            return
        if self.is_due(settings, clock):
            self._asked_ms = clock()
            self.used_percent = self._fs.used_percent(self._directory)
        known = self.used_percent
        if known is not None and known > limit:
            raise DiskFull(
                f"{self._directory}: the disk is used to {known} %, and above diskSpaceWarningLevelRatio={limit} no "
                "record is taken",
                path=str(self._directory),
                operation="append",
                errno=ENOSPC,
            )


def _is_hour(settings: StoreSettings, now_ms: int) -> bool:
    hours = settings.delete_hours
    return not hours or time.localtime(now_ms // 1000).tm_hour in hours
