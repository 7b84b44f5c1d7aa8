"""Stores that lost their power, as our own start and a clean stop left them: for the real servers to open.

Owns the sample of crashes and its way onto a real disk; must not know the peers. The crashes are those of the
explorer: any moment of a workload, any part of what was not synced.
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
from tests.faults.crash import partitions_of
from tests.faults.explorer import choices, moments
from tests.faults.history import History
from tests.faults.invariants import check_store
from tests.faults.ram import Ram
from tests.faults.workload import PATH, Backend, Workload, open_at
from tests.unit.rocketmq.workshop import by_hand

OF_ONE_WORKLOAD = 10
SEED = 5


@dataclass(frozen=True)
class Recovered:
    """A store on the real disk at `path`, stopped; and what our start found in it, by partition. `deleted`: topics
    whose deletion had begun.
    """

    path: Path
    deleted: frozenset[str]
    records: Mapping[TopicPartition, Sequence[StoredRecord]]
    bounds: Mapping[TopicPartition, OffsetBounds]


def recovered(backend: Backend, wanted: int, folder: Path) -> Iterator[Recovered]:
    """So many different stores with records in them, each made below `folder` under its number."""
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
    """Power losses without end: what was noted up to each, what the disk kept, and the time of the next start."""
    dice = random.Random(SEED)
    for seed in count(SEED * 1000):
        workload = Workload(backend, seed, sync=seed % 4 != 3)
        recorder = workload.run()
        chosen = set(dice.sample(range(len(recorder.events)), OF_ONE_WORKLOAD))
        history = History()
        for number, disk in enumerate(moments(recorder, history)):
            if number in chosen:
                _, *ways = choices(dice)  # but for the first: the kill
                _, choice = dice.choice(ways)
                yield history, disk.left(choice), workload.clock.now_ms
