"""A key over a kill and then a power loss, step by step: what the explorer finds by chance."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from logserver.metrics import Metrics
from logserver.writer import Acks, Writer
from storage import LogStore, Record
from storage.files import FileSystem
from tests.contract.harness import ManualClock
from tests.faults.history import Sent, value_of
from tests.faults.keyed import at_once, keys_of, send
from tests.faults.recorder import Recorder
from tests.faults.workload import BACKENDS, PARTITIONS, PATH, open_at
from tests.unit.rocketmq.workshop import by_hand

SENT = Sent(
    0, PARTITIONS[0], [Record(value=value_of(0, 0), key=b"k")], None, durable=False, key="key"
)


def opened(fs: FileSystem, backend: str) -> LogStore:
    return open_at(fs, BACKENDS[backend], ManualClock())


async def sent(store: LogStore, acks: Acks) -> int:
    """The request, from a server that stays as it is afterwards; gives the record's offset."""
    writer = Writer(store, sync=True, metrics=Metrics(), published=lambda partition: None)
    keyed = await keys_of(store, writer, ManualClock(), sync=True, run=at_once)
    try:
        return await send(keyed, SENT, acks)
    finally:
        await writer.close()


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_repeat_that_waited_for_the_disk_is_known_after_a_power_loss(backend: str) -> None:
    """The first request did not wait, and its process was killed before anything was synced."""
    with by_hand():
        first = Recorder()
        first.make_dir(PATH.parent)
        first.sync_dir(Path("/"))
        store = opened(first, backend)
        store.create_topic(SENT.partition.topic, 2)
        offset = asyncio.run(sent(store, Acks.WRITTEN))
        second = first.after_kill()
        again = opened(second, backend)
        assert asyncio.run(sent(again, Acks.ALL)) == offset
        left = second.now().left(lambda pending: ())
        with opened(left, backend) as last:
            assert asyncio.run(sent(last, Acks.ALL)) == offset
            assert last.bounds(SENT.partition).end == offset + 1
        again.close()
        store.close()
