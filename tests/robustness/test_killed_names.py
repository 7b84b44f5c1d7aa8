"""Names and lengths that a killed process left pending: a start must sync them before it builds on them.

A process is killed after one of its changes. The next process starts there, works and stops. At each of its moments
the power may fail and revert a single change from before the kill. The explorer's second crashes meet such states by
chance; this test covers all of them, for one life. The result of a start depends only on the files, so files that
were checked before are not checked again.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from storage import LogStore, Record, TopicPartition
from storage.files import make_root
from tests.contract.harness import ManualClock
from tests.robustness.crash.crash import Starts
from tests.robustness.crash.disk import Change, Disk, Write
from tests.robustness.crash.explorer import moments
from tests.robustness.crash.history import History
from tests.robustness.crash.invariants import check_recovery
from tests.robustness.crash.ram import Ram
from tests.robustness.crash.recorder import Recorder
from tests.robustness.crash.workload import BACKENDS, PATH, Backend, open_at
from tests.unit.rocketmq.workshop import by_hand

KEPT, GONE = TopicPartition("kept", 0), TopicPartition("gone", 0)


def append(store: LogStore, partition: TopicPartition, value: bytes) -> None:
    store.append(partition, [Record(value=value, key=b"k")], publish=False)
    store.flush([partition])


def first_life(recorder: Recorder, backend: Backend, clock: ManualClock) -> int:
    """Create two topics and delete one of them, with a stop and a start in between.

    Return where the kills may begin: in the first start, once the store's directory exists.
    """
    make_root(recorder, PATH)
    begin = len(recorder.events)
    with open_at(recorder, backend, clock) as store:
        for partition in (KEPT, GONE):
            store.create_topic(partition.topic, 1)
            append(store, partition, b"first")
    with open_at(recorder, backend, clock) as store:
        append(store, KEPT, b"second")
        store.checkpoint()
        store.delete_topic(GONE.topic)
    return begin


def unsure(disk: Disk) -> list[Change]:
    """Return the pending changes of names and lengths, which a power loss may revert."""
    return [change for change in disk.pending if not isinstance(change, Write)]


def second_life(recorder: Recorder, backend: Backend, clock: ManualClock) -> None:
    with open_at(recorder, backend, clock) as store:
        if KEPT.topic not in store.topics():
            store.create_topic(KEPT.topic, 1)
        append(store, KEPT, b"third")


def left_without(lost: Change, disk: Disk) -> Ram:
    """Return the files after a power loss that reverts this change and no other."""
    return disk.left(lambda pending: [change for change in pending if change != lost])


def look(state: Ram, backend: Backend, clock: ManualClock, *, stopped: bool) -> None:
    with open_at(state, backend, clock) as store:
        check_recovery(store)
        assert not stopped or [r.value for r in store.scan(KEPT)][-1] == b"third"


@pytest.mark.slow
@pytest.mark.parametrize("backend", BACKENDS.values(), ids=BACKENDS)
def test_a_start_makes_them_sure_before_it_builds_on_them(backend: Backend) -> None:
    clock = ManualClock()
    first = Recorder()
    first.make_dir(PATH.parent)
    first.sync_dir(Path("/"))
    with by_hand():
        begin = first_life(first, backend, clock)
        kills, starts = 0, Starts()
        for moment in range(begin, len(first.events) + 1):
            killed = first.now(moment)
            if not unsure(killed):
                continue
            kills += 1
            second = Recorder.after_kill_on(killed)
            second_life(second, backend, clock)
            end = len(second.events)
            for at, disk in enumerate(moments(second, History())):
                for lost in [each for each in unsure(killed) if each in disk.pending]:
                    state, stopped = left_without(lost, disk), at == end
                    if not starts.is_new(state, stopped):
                        continue
                    try:
                        look(state, backend, clock, stopped=stopped)
                    except Exception as error:
                        error.add_note(f"killed after change {moment}, {lost} lost at {at}")
                        raise
    assert kills > 5
    assert starts.count > starts.alike + kills
