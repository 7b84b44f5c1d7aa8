"""Writing down how far everything is on disk, so that a start after a crash reads less.

Owns the order of a checkpoint: log, queues, index, producers, and the checkpoint file last, which
tells nothing that is not durable by then. Source: StoreCheckpoint of RocketMQ; unlike there the
index counts at every checkpoint, not only when a file of it is full.
"""

from __future__ import annotations

from storage.rocketmq.directory import StoreDirectory
from storage.rocketmq.dispatcher import Dispatcher
from storage.rocketmq.format.checkpoint import Checkpoint
from storage.rocketmq.opening import OpenedStore
from storage.rocketmq.queues import QueueTable


class Checkpointer:
    """Writes the checkpoints of one store. Called under the append lock, all records dispatched."""

    def __init__(
        self, directory: StoreDirectory, parts: OpenedStore, dispatcher: Dispatcher
    ) -> None:
        self._directory = directory
        self._log = parts.log
        self._index = parts.index
        self._dispatcher = dispatcher
        self._last = parts.checkpoint

    def write(self, queues: QueueTable) -> None:
        """On return log, queues and index are on disk, and the checkpoint says so."""
        end = self._log.flush()
        for queue in queues:
            queue.units.sync()
        if self._index is not None:
            self._index.sync()
        states = {queue.partition: queue.producers.states() for queue in queues}
        self._directory.write_producers(end, states)
        self._last = self._next()
        self._directory.write_checkpoint(self._last)

    def _next(self) -> Checkpoint:
        last = self._dispatcher.builder.last
        if last is None:
            return self._last
        time_ms = last.store_timestamp_ms
        index_ms = self._last.index_msg_timestamp_ms
        if self._index is not None:
            index_ms = max(index_ms, self._index.end_timestamp_ms)
        return Checkpoint(
            physic_msg_timestamp_ms=time_ms,
            logics_msg_timestamp_ms=time_ms,
            index_msg_timestamp_ms=index_ms,
            master_flushed_offset=self._last.master_flushed_offset,
            confirm_physical_offset=self._last.confirm_physical_offset,
            logics_physical_offset=last.physical_offset,
        )
