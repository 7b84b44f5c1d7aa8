"""Stores in the state that a kill leaves, within this process: for tests that open the files as they are at that
moment.

Owns the release of the resources that the kernel takes from a killed process, for both backends; must not know a test.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from storage import LogStore
from storage.kafka.store import KafkaStore
from storage.rocketmq.store import RocketMQStore


@contextmanager
def killed(store: LogStore) -> Iterator[LogStore]:
    """Kill the store at the end of the block: its thread ends, its files are closed and its lock is released.

    No step of an orderly stop is done.
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
