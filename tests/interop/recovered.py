"""Stores that lost their power, then were started and cleanly stopped by us: input for the real servers.

Owns the sample of crashes and its copies on a real disk; must not know the peers. The crashes are the same as the
explorer's: any moment of a workload, any part of the unsynced changes.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from storage import OffsetBounds, StoredRecord, TopicPartition
from storage.files import RealFileSystem
from tests.contract.harness import ManualClock, copy_tree
from tests.robustness.crash.crash import partitions_of
from tests.robustness.crash.explorer import choices, moments
from tests.robustness.crash.history import History
from tests.robustness.crash.invariants import check_store
from tests.robustness.crash.ram import Ram
from tests.robustness.crash.workload import PATH, Backend, Workload, open_at
from tests.unit.rocketmq.workshop import by_hand

OF_ONE_WORKLOAD = 10
SEED = 5


@dataclass(frozen=True)
class Recovered:
    """A stopped store on the real disk at `path`, and the records that our start found, by partition.

    `deleted`: topics with a deletion in progress.
    """

    path: Path
    deleted: frozenset[str]
    records: Mapping[TopicPartition, Sequence[StoredRecord]]
    bounds: Mapping[TopicPartition, OffsetBounds]


def recovered(backend: Backend, wanted: int, folder: Path) -> Iterator[Recovered]:
    """Yield `wanted` different stores that contain records, each in a numbered folder below `folder`."""
    seen: set[bytes] = set()
    for history, state, now_ms in crashes(backend):
        digest = state.digest()
        if digest in seen:
            continue
        seen.add(digest)
        with by_hand(), open_at(state, backend, ManualClock(now_ms)) as store:
            check_store(history, store, killed=False, whole_batches=backend.whole_batches)
            records = {partition: list(store.scan(partition)) for partition in partitions_of(store)}
            bounds = {partition: store.bounds(partition) for partition in records}
        if not any(records.values()):
            continue
        path = folder / f"{wanted}"
        copy_tree(state, PATH, RealFileSystem(), path)
        yield Recovered(path, frozenset(history.going), records, bounds)
        wanted -= 1
        if not wanted:
            return


def crashes(backend: Backend) -> Iterator[tuple[History, Ram, int]]:
    """Yield power losses without end: the history up to each, the files on the disk, and the time of the next start."""
    dice = random.Random(SEED)
    for seed in count(SEED * 1000):
        workload = Workload(backend, seed, sync=seed % 4 != 3)
        recorder = workload.run()
        chosen = set(dice.sample(range(len(recorder.events)), OF_ONE_WORKLOAD))
        history = History()
        for number, disk in enumerate(moments(recorder, history)):
            if number in chosen:
                _, *ways = choices(dice)  # all but the first way, a kill
                _, choice = dice.choice(ways)
                yield history, disk.left(choice), workload.clock.now_ms
