"""Which files at the head of the log may go, and taking them away (CleanCommitLogService).

Owns that decision and the order of a deletion; nothing goes unless a setting says so. Queues and
index follow the log by physical offset.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TypeVar

from storage.errors import DataError, DiskFull, IoFailure
from storage.rocketmq.commit_log import CommitLog
from storage.rocketmq.key_index import KeyIndex
from storage.rocketmq.queues import QueueTable
from storage.rocketmq.settings import StoreSettings

_T = TypeVar("_T")


class Deletions:
    """Counts deletions, for those who look at a store without a lock. `lock` is held over each of
    them.
    """

    def __init__(self, lock: threading.RLock) -> None:
        self._lock = lock
        self._count = 0

    def note(self) -> None:
        """Files are gone, and nothing leads to them any more (lock held)."""
        self._count += 1

    def beside(self, look: Callable[[], _T]) -> _T:
        """What `look` gives; it looks again where it has failed since files went meanwhile."""
        while True:
            before = self._count
            try:
                return look()
            except (DataError, IoFailure):
                with self._lock:
                    if self._count == before:
                        raise


def given_up(log: CommitLog, settings: StoreSettings, *, now_ms: int) -> Sequence[int]:
    """The bases of the files to delete, oldest first; the last file stays.

    By age: all that were last written `fileReservedTime` ago, up to the first that was not, within
    the hours of `deleteWhen`. By disk use above `diskMaxUsedSpaceRatio`: the oldest file, whatever
    its age; the next pass looks again.
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
    """See to it that what producers sent is known without the records that go. A full disk, which
    deletion may mend, is no reason not to delete.
    """
    with suppress(DiskFull):
        checkpoint()


def delete_head(
    log: CommitLog, doomed: Sequence[int], queues: QueueTable, index: KeyIndex | None
) -> None:
    """Take the first files of the log away, then what only they needed (append lock held, all
    their records dispatched). Readers see the new start first; durable on return.
    """
    run = log.run
    start = doomed[-1] + run.file_bytes
    for queue in queues:
        queue.units.sync()  # units of records that are gone cannot be made again
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
