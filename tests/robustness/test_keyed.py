"""A key across kills and power losses, step by step: cases that the explorer finds only by chance."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from logserver.metrics import Metrics
from logserver.service.commit import Writer
from logserver.service.requests import Acks
from storage import LogStore, Record
from storage.errors import DiskFull
from storage.files import FileSystem
from storage.shared.sequencing import KEPT_BATCHES
from tests.contract.harness import ManualClock
from tests.robustness.crash import keyed
from tests.robustness.crash.history import Sent, value_of
from tests.robustness.crash.recorder import Recorder
from tests.robustness.crash.workload import BACKENDS, PARTITIONS, PATH, open_at
from tests.unit.rocketmq.workshop import by_hand

pytestmark = pytest.mark.parametrize("backend", BACKENDS)


def request(number: int) -> Sent:
    """Return a request with its own key."""
    record = Record(value=value_of(number, 0), key=b"k")
    return Sent(number, PARTITIONS[0], [record], None, durable=False, key=f"key-{number}")


SENT = request(0)


def opened(fs: FileSystem, backend: str) -> LogStore:
    return open_at(fs, BACKENDS[backend], ManualClock())


@contextmanager
def new_store(backend: str) -> Iterator[tuple[Recorder, LogStore]]:
    """Yield a store with a topic, on a disk that loses unsynced changes; no background work runs."""
    with by_hand():
        fs = Recorder()
        fs.make_dir(PATH.parent)
        fs.sync_dir(Path("/"))
        store = opened(fs, backend)
        store.create_topic(SENT.partition.topic, 2)
        yield fs, store
        store.close()


async def send_all(store: LogStore, *attempts: tuple[Sent, Acks]) -> list[int | type[DiskFull]]:
    """Send requests one after another, to a server whose store stays open afterwards; return their offsets."""
    writer = Writer(store, sync=True, metrics=Metrics(), published=lambda partition: None)
    keys = await keyed.keys_of(store, writer, ManualClock(), sync=True, run=keyed.at_once)
    reported: list[int | type[DiskFull]] = []
    for sent, acks in attempts:
        try:
            reported.append(await keyed.send(keys, sent, acks))
        except DiskFull:
            reported.append(DiskFull)
    await writer.close()
    return reported


def answers(store: LogStore, *attempts: tuple[Sent, Acks]) -> list[int | type[DiskFull]]:
    return asyncio.run(send_all(store, *attempts))


def check_after_power_loss(fs: Recorder, backend: str, offset: int) -> None:
    """Check that the request is stored and its key known after a power loss."""
    left = fs.now().left(lambda pending: ())
    with opened(left, backend) as last:
        end = last.bounds(SENT.partition).end
        assert end > offset
        assert answers(last, (SENT, Acks.ALL)) == [offset]
        assert last.bounds(SENT.partition).end == end


def test_a_repeat_that_waited_for_the_disk_is_known_after_a_power_loss(backend: str) -> None:
    """The first request did not wait for the disk, and its process was killed before anything was synced."""
    with new_store(backend) as (first, store):
        (offset,) = answers(store, (SENT, Acks.WRITTEN))
        assert isinstance(offset, int)
        second = first.after_kill()
        again = opened(second, backend)
        assert answers(again, (SENT, Acks.ALL)) == [offset]
        check_after_power_loss(second, backend, offset)
        again.close()


def test_a_repeat_that_waited_for_the_disk_was_synced(backend: str) -> None:
    """The first request did not wait for the disk, and the same process serves the repeat."""
    with new_store(backend) as (fs, store):
        assert answers(store, (SENT, Acks.WRITTEN), (SENT, Acks.ALL)) == [0, 0]
        check_after_power_loss(fs, backend, 0)


def test_a_producer_is_not_used_again_behind_attempts_of_two_kinds(
    backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An attempt that did not wait for the disk failed, and the next attempt waited.

    If other requests that do not wait used its producer, their keys would be lost. Its own record would then be too far
    back for the store to know.
    """
    many = 10 * KEPT_BATCHES  # so that no generation ends, which would sync
    monkeypatch.setattr(keyed, "MAX_KEYS", many)
    others = [(request(number), Acks.WRITTEN) for number in range(1, KEPT_BATCHES + 1)]
    with new_store(backend) as (fs, store):
        append = store.append

        def full(*args: object, **options: object) -> None:
            monkeypatch.setattr(store, "append", append)
            raise DiskFull("no space", path="", operation="write", errno=28)

        monkeypatch.setattr(store, "append", full)
        reported = answers(store, (SENT, Acks.WRITTEN), (SENT, Acks.ALL), *others)
        assert reported == [DiskFull, *range(KEPT_BATCHES + 1)]
        store.flush()
        check_after_power_loss(fs, backend, 0)
