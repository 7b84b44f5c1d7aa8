"""The files of a store as one value; their checkpoints, and the deletion of the log's head.

Owns that value, and the order of a checkpoint and of a deletion; must not report a position that is not durable by
then. A checkpoint says how far all files are on disk, so that a start after a crash reads less: log, queues, index,
producers, and the checkpoint file last. Source: StoreCheckpoint of RocketMQ. Other than in RocketMQ, the index counts
at every checkpoint, not only when one of its files is full. Queues and index follow a deletion in the log by physical
offset.

    StoreFiles          log, queues, index
      OpenedStore       of a recovered store, which is read and written
      UnrecoveredFiles  as they are stored, for verify, rebuild and salvage (tools/unrecovered.py)
    StoreSnapshot       the list of them, for parts in other processes, which open it as StoreFiles (tools/snapshot.py)
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field

from storage.files import HandleCache
from storage.model import RecoveryReport
from storage.rocketmq.format.checkpoint import Checkpoint
from storage.rocketmq.index.dispatcher import Builder, Dispatcher
from storage.rocketmq.index.index_coverage import IndexCoverage
from storage.rocketmq.index.key_index import KeyIndex
from storage.rocketmq.index.key_index_file import KeyIndexFile
from storage.rocketmq.index.queues import Queue, QueueTable
from storage.rocketmq.log.commit_log import CommitLog
from storage.rocketmq.log.file_sequence import FileSequence
from storage.rocketmq.recovery.index_check import IndexCheck
from storage.rocketmq.state.root import StoreDirectory, StoreFile
from storage.rocketmq.state.topics import TopicFiles


@dataclass(slots=True, kw_only=True)
class StoreFiles:
    """The log, the queues and the index of one store, open for reading. `index` None: the index is off, or not read."""

    files: HandleCache
    run: FileSequence
    queues: QueueTable
    index: KeyIndex | None = None

    @property
    def index_files(self) -> Sequence[KeyIndexFile]:
        """The index files, oldest first."""
        return () if self.index is None else self.index.index_files


@dataclass(slots=True, kw_only=True)
class OpenedStore(StoreFiles):
    """The files of a recovered store.

    - `coverage`: where the index covers the log; None without an index.
    - `with_crc`: new records end in a CRC over the whole record.
    - `passed_gaps`: ranges [start, end) of the log without files, accepted as lost.
    """

    log: CommitLog
    coverage: IndexCoverage | None
    builder: Builder
    checkpoint: Checkpoint  # as found on disk, with the position that recovery confirmed
    report: RecoveryReport
    with_crc: bool
    passed_gaps: Sequence[tuple[int, int]]
    topics: TopicFiles
    dispatcher: Dispatcher = field(init=False)  # set before the first read
    _index_check: IndexCheck | None = field(init=False)

    def __post_init__(self) -> None:
        coverage = self.coverage
        self._index_check = None if coverage is None else IndexCheck(coverage, self.topics.deleted)

    def catch_up(self, queue: Queue, end: int) -> None:
        """Make an entry of the queue readable for every offset below `end`, in a file or in memory."""
        if queue.units.readable_end < end:
            self.dispatcher.catch_up(queue, end)

    def catch_up_index(self) -> int:
        """Dispatch pending records; return the physical offset below which the index has all records of this run."""
        return self.dispatcher.try_step()

    def check_index(self, low: int, high: int) -> None:
        """Compare part of the index with the log, to find out which records in [low, high) it covers."""
        if self._index_check is not None:
            self._index_check.advance(low, high)

    def deleted_below(self, topic: str) -> int:
        """Return the physical offset below which the records of this topic are deleted."""
        return self.topics.deleted.get(topic, 0)

    def delete_head(self, doomed: Sequence[int]) -> None:
        """Remove the first files of the log, then what only they needed. Durable on return.

        The caller holds the append lock, and all records of these files are dispatched. Readers see the new start
        first.
        """
        start = doomed[-1] + self.run.file_bytes
        for queue in self.queues:
            queue.units.sync()  # entries of deleted records cannot be rebuilt
            queue.units.start = queue.units.first_at(start)
        self.run.remove_in_turn(doomed)
        for queue in self.queues:
            queue.units.drop_outlived()
            queue.forget_outlived_edges()
        if self.index is not None:
            self.index.delete_before(start)


class Checkpointer:
    """The writer of one store's checkpoints. `gate` is held during a checkpoint and taken before the append
    lock. The append lock is held only while positions are noted: appends go on during the syncs.
    """

    def __init__(
        self,
        directory: StoreDirectory,
        parts: OpenedStore,
        append_lock: threading.RLock,
        facts: StoreFile,
    ) -> None:
        self.gate = threading.Lock()
        self._directory = directory
        self._parts = parts
        self._append_lock = append_lock
        self._facts = facts
        self._last = parts.checkpoint

    def write(self) -> None:
        """Sync the log, queues and index up to all earlier appends, and write the checkpoint, durably."""
        parts = self._parts
        with self.gate:
            with self._append_lock:
                parts.dispatcher.build()
                noted = self._noted()
                end = parts.log.end
                queued = sum(queue.units.taken_end for queue in parts.queues)
                states = {queue.partition: queue.producers.states() for queue in parts.queues}
            parts.log.flush()
            parts.dispatcher.write_waiting()
            for queue in parts.queues:
                queue.units.sync()
            if parts.index is not None:
                parts.index.sync()
            self._directory.write_producers(end, states)
            self._facts.queued = queued
            self._directory.write_store_file(self._facts)
            self._directory.write_checkpoint(noted)
            self._last = noted

    def _noted(self) -> Checkpoint:
        last, before = self._parts.builder.last, self._last
        if last is None:
            return before
        index = self._parts.index
        return Checkpoint(
            physic_msg_timestamp_ms=last.store_timestamp_ms,
            logics_msg_timestamp_ms=last.store_timestamp_ms,
            index_msg_timestamp_ms=0 if index is None else index.end_timestamp_ms,
            master_flushed_offset=before.master_flushed_offset,
            confirm_physical_offset=before.confirm_physical_offset,
            logics_physical_offset=last.physical_offset,
        )
