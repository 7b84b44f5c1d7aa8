"""The cleaner of a store: chooses the dirtiest partition, cleans it in steps, and records up to which offset it did.

Owns the choice (LogCleanerManager.grabFilthiestCompactedLog), the offsets of `cleaner-offset-checkpoint`, and the list
of partitions that cannot be cleaned; must not know batches. One thread calls `step`; any thread may call `status`
and `close`.

A partition with damage in a segment of its dirty range, or before it, is left alone until the next start: `uncleanable`
has the reason. After a full disk the partition is cleaned from the beginning at a later step.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from storage.coding.varint import INT64_MAX
from storage.errors import CallerError, DataError, DiskFull, IoFailure, StorageError
from storage.files import Fence, HandleCache
from storage.kafka.compaction.dirty_range import DirtyRange, dirty_range
from storage.kafka.compaction.job import CleaningAbandoned, CleaningJob
from storage.kafka.partition import Partition
from storage.kafka.state.settings import StoreSettings
from storage.model import CompactionReport, CompactionStatus, TopicPartition

Checkpoint = Callable[[Partition, int], None]


@dataclass(slots=True)
class _Running:
    """The job that was begun and is not finished."""

    job: CleaningJob
    work: Iterator[int]


class Compactor:
    """The cleaner of one open store. `compacted` returns the partitions whose topics are compacted."""

    def __init__(
        self,
        files: HandleCache,
        fence: Fence,
        settings: StoreSettings,
        *,
        compacted: Callable[[], Sequence[Partition]],
        offsets: Mapping[TopicPartition, int],
        checkpoint: Checkpoint,
    ) -> None:
        """Begin with the `offsets` of the checkpoint file. `checkpoint` writes one durably, unless the partition was
        deleted.
        """
        self._files = files
        self._fence = fence
        self._settings = settings
        self._compacted = compacted
        self._checkpoint = checkpoint
        self._step_lock = threading.Lock()  # held during a step: guards `_running`
        self._is_closed = False
        self._lock = threading.Lock()  # guards the fields below
        # An offset above the end of its log was lost with the records below it: the log may grow beyond it again.
        ends = {partition.partition: partition.next_offset for partition in compacted()}
        self._offsets = {a: o for a, o in offsets.items() if o <= ends.get(a, o)}
        self._uncleanable: dict[TopicPartition, str] = {}
        self._running: _Running | None = None
        self._cleaned = self._bytes_read = self._bytes_written = 0

    def forget(self, topic: str) -> None:
        """Forget a topic that was deleted."""
        with self._lock:
            for known in (self._offsets, self._uncleanable):
                for address in [a for a in known if a.topic == topic]:
                    del known[address]

    def step(self, now_ms: int, max_bytes: int | None) -> CompactionReport:
        """Continue the cleaning that is running, or begin that of the dirtiest partition. See SupportsCompaction."""
        with self._step_lock:
            return self._step(now_ms, max_bytes)

    def _step(self, now_ms: int, max_bytes: int | None) -> CompactionReport:
        if self._is_closed:
            return CompactionReport()
        with self._fence.guarding():
            for partition in self._compacted():
                partition.remove_deleted(now_ms)
        running = self._running or self._begin(now_ms)
        if running is None:
            return CompactionReport()
        job, counters = running.job, running.job.counters
        read, written = counters.bytes_read, counters.bytes_written
        try:
            is_finished = self._continue(running, max_bytes)
        except BaseException:
            self._end(running)
            raise
        with self._lock:
            self._bytes_read += counters.bytes_read - read
            self._bytes_written += counters.bytes_written - written
            why = self._uncleanable.get(job.partition.partition)
        if is_finished:
            self._end(running)
        address = job.partition.partition
        return CompactionReport(
            partition=address,
            finished=is_finished,
            bytes_read=counters.bytes_read,
            bytes_written=counters.bytes_written,
            records_dropped=counters.records_dropped,
            keyless_dropped=counters.keyless_dropped,
            cleaned_up_to=job.end_offset if job.is_done else None,
            uncleanable=why,
        )

    def _continue(self, running: _Running, max_bytes: int | None) -> bool:
        """Do up to about `max_bytes` of the work. Return whether the job has ended: it also ends without its work if
        the topic was deleted meanwhile, or is no longer compacted.
        """
        done_bytes = 0
        partition = running.job.partition
        # By identity: another topic may have the name now.
        if not any(each is partition for each in self._compacted()):
            return True
        try:
            for read_bytes in running.work:
                done_bytes += read_bytes
                if self._is_closed or (max_bytes is not None and done_bytes >= max_bytes):
                    return False
        except CleaningAbandoned:
            return True
        except DiskFull:
            partition.remove_deleted(INT64_MAX)  # the replaced files make room
            raise
        except (DataError, IoFailure, CallerError) as error:
            self._mark_uncleanable(partition, error)
            return True
        self._finish(running.job)
        return True

    # A partition is retired before its topic is forgotten here. So an entry that is made under `_lock` for a partition
    # that is not retired is forgotten with its topic.

    def _mark_uncleanable(self, partition: Partition, error: StorageError) -> None:
        with self._lock:
            if not partition.retired:
                self._uncleanable[partition.partition] = error.message

    def _finish(self, job: CleaningJob) -> None:
        with self._fence.guarding():
            self._checkpoint(job.partition, job.end_offset)
        with self._lock:
            if not job.partition.retired:
                self._offsets[job.partition.partition] = job.end_offset
            self._cleaned += 1

    def _end(self, running: _Running) -> None:
        self._running = None
        close = getattr(running.work, "close", None)
        if close is not None:
            close()

    def _begin(self, now_ms: int) -> _Running | None:
        """Return a job for the dirtiest partition that is due; None if no partition is."""
        due: list[tuple[float, Partition, DirtyRange]] = []
        for partition, dirty in self._ranges(now_ms):
            is_dirty = dirty.ratio > partition.settings.min_cleanable_dirty_ratio
            if is_dirty or (dirty.is_overdue and dirty.dirty_bytes):
                due.append((dirty.ratio, partition, dirty))
        if not due:
            return None
        _, partition, dirty = max(due, key=lambda entry: entry[0])
        job = CleaningJob(
            self._files,
            self._fence,
            partition,
            dirty,
            now_ms=now_ms,
            buffer_bytes=self._settings.cleaner_buffer_bytes,
            load_factor=self._settings.cleaner_load_factor,
        )
        self._running = _Running(job, job.run())
        return self._running

    def _ranges(self, now_ms: int) -> Iterator[tuple[Partition, DirtyRange]]:
        """Yield the dirty range of each partition that can be cleaned. A partition whose files cannot be read is marked
        uncleanable, unless they were deleted meanwhile.
        """
        for partition in self._compacted():
            address = partition.partition
            with self._lock:
                if address in self._uncleanable:
                    continue
                checkpoint = self._offsets.get(address)
            start = partition.bounds().start
            try:
                dirty = partition.reread(partial(dirty_range, partition, checkpoint, now_ms))
            except (DataError, IoFailure) as error:
                if partition.bounds().start == start:
                    self._mark_uncleanable(partition, error)
                continue
            yield partition, dirty

    def status(self, now_ms: int) -> CompactionStatus:
        """Return the dirty bytes, the partitions that cannot be cleaned, and the work since the start."""
        ranges = [dirty for _, dirty in self._ranges(now_ms)]
        with self._lock:
            return CompactionStatus(
                partitions=len(ranges) + len(self._uncleanable),
                dirty_bytes=sum(dirty.dirty_bytes for dirty in ranges),
                max_dirty_ratio=max((dirty.ratio for dirty in ranges), default=0.0),
                uncleanable=[
                    {"topic": a.topic, "partition": a.partition, "reason": reason}
                    for a, reason in sorted(self._uncleanable.items())
                ],
                cleanings=self._cleaned,
                bytes_read=self._bytes_read,
                bytes_written=self._bytes_written,
            )

    def close(self) -> None:
        """End the job that is running; its unfinished segment is removed. A step of another thread ends at its next
        pause, which is waited for.
        """
        self._is_closed = True
        with self._step_lock:
            if self._running is not None:
                self._end(self._running)
