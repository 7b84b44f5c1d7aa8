"""Stores that are left as a kill leaves them, within this process: for tests that open what was there at that moment.

Owns how both backends let go of what the kernel takes from a killed process; must not know a test.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from storage import LogStore
from storage.kafka.store import KafkaStore
from storage.rocketmq.store import RocketMQStore


@contextmanager
def killed(store: LogStore) -> Iterator[LogStore]:
    """The store, killed at the end of the block: its thread ends, its files are closed and its lock is free, and
    nothing is done that a stop does.
    """
    assert isinstance(store, KafkaStore | RocketMQStore)
    try:
        yield store
    finally:
        if isinstance(store, RocketMQStore):
            store._dispatcher.stop()
        store._files.close(sync=False)
        if store._file_lock is not None:
            store._file_lock.release()
