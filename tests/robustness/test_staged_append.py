"""A staged append, killed or without power at every change of the disk: it is stored once as a whole, or not at all."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import count
from pathlib import Path

import pytest

from storage import Record, Unit, open_store, staged_form
from storage.contract import StoreOptions
from storage.errors import (
    DamagedStore,
    DiskFull,
    InvalidArgument,
    RecordTooLarge,
    StorageError,
    StoreLocked,
)
from storage.files import FileSystem, OverlayFileSystem
from storage.registry import make_staged
from storage.shared.staged_append import NOTE, StagedWrite, append_staged, last_unit
from storage.shared.staged_files import StagedFile, StagedPart
from tests.contract.harness import ManualClock
from tests.robustness.crash.disk import Disk
from tests.robustness.crash.explorer import choices, moments
from tests.robustness.crash.faulty import (
    Fault,
    FaultyFileSystem,
    at_change,
    broken,
    disk_full,
    no_fault,
)
from tests.robustness.crash.history import History
from tests.robustness.crash.ram import Ram
from tests.robustness.crash.recorder import Recorder
from tests.robustness.crash.staged import OLD, PLACES, RECORDS, RUNS, TASKS, UNIT, Staging, problem
from tests.robustness.crash.workload import BACKENDS, PATH

ALL = ["first", "second"]
WAYS = 7  # of losing changes at a moment
QUICK_STATES = 21
FAILURES = 20
# CI crashes at one moment in IN, and twice at one in AGAIN_IN of those that the soak takes, one in TWICE_IN of all.
IN, AGAIN_IN, TWICE_IN = 16, 8, 5


@pytest.fixture(params=list(BACKENDS))
def staging(request: pytest.FixtureRequest) -> Staging:
    """Each backend in turn."""
    return Staging(BACKENDS[request.param], ManualClock())


def survivors(staging: Staging, recorder: Recorder, every: int, *, seed: int, again: bool) -> int:
    """Crash at every `every`-th moment of a recording, in several ways each; return the number of states checked.

    The seed chooses the first moment. With `again` the store crashes once more while it continues.
    """
    dice = random.Random(seed)
    looked = 0
    for number, disk in enumerate(moments(recorder, History())):
        if (number + seed) % every:
            continue
        for kind, choice in choices(dice):
            name = f"{kind}, seed {seed}"
            if again:
                crash_again(staging, disk.left(choice), name, dice)
            go_on(staging, disk.left(choice), name)
            looked += 1
    return looked


def crash_again(staging: Staging, state: FileSystem, name: str, dice: random.Random) -> None:
    """Crash at two moments of the next start."""
    recorder = Recorder(OverlayFileSystem(state))
    staging.open(recorder).close()
    chosen = dice.sample(range(len(recorder.events)), 2)
    for number, disk in enumerate(moments(recorder, History())):
        if number in chosen:
            _, choice = dice.choice(list(choices(dice)))
            go_on(staging, disk.left(choice), f"{name}, again")


def go_on(staging: Staging, state: FileSystem, name: str) -> None:
    """Start, then commit the unit again with other files, then a third time."""
    wrong = problem(staging.rows(state), attempts=ALL[:1], whole=False)
    assert wrong is None, f"{name}: after a start: {wrong}"
    staging.commit(state, staging.stage(state, "second"))
    wrong = problem(staging.rows(state), attempts=ALL, whole=True)
    assert wrong is None, f"{name}: after a repeat: {wrong}"
    assert not staging.commit(state, staging.stage(state, "third"))


def recorded(staging: Staging) -> Recorder:
    """Record the changes of a start with a staged append, from a store that was stopped."""
    base = OverlayFileSystem()
    staging.prepare(base)
    recorder = Recorder(base)
    assert staging.commit(recorder, staging.stage(recorder, "first"))
    return recorder


def test_some_crashes(staging: Staging) -> None:
    recorder = recorded(staging)
    seed = random.randrange(1000)
    every = len(recorder.events) * WAYS // QUICK_STATES
    assert survivors(staging, recorder, every, seed=seed, again=False) >= QUICK_STATES


@pytest.mark.slow
def test_a_crash_at_every_change(
    staging: Staging, seed: int, amount: Callable[[int, int], int]
) -> None:
    every, recorder = amount(IN, 1), recorded(staging)
    states = survivors(staging, recorder, every, seed=seed, again=False)
    assert states >= len(recorder.events) // every * WAYS > 800 // every


@pytest.mark.slow
def test_a_second_crash_in_the_next_start(
    staging: Staging, seed: int, amount: Callable[[int, int], int]
) -> None:
    every, recorder = TWICE_IN * amount(AGAIN_IN, 1), recorded(staging)
    states = survivors(staging, recorder, every, seed=seed, again=True)
    assert states >= len(recorder.events) // every * WAYS > 800 // every


def test_rows_stand_behind_those_that_were_there(staging: Staging) -> None:
    fs = OverlayFileSystem()
    staging.prepare(fs)
    staging.commit(fs, staging.stage(fs, "first"))
    rows = staging.rows(fs)
    assert problem(rows, attempts=ALL, whole=True) is None
    assert len(rows) == 1 + TASKS * RUNS * RECORDS * len(PLACES)
    with staging.open(fs) as store:
        assert next(iter(store.scan(OLD))).value == b"before"
        assert last_unit(store, UNIT.writer) == 0
        assert last_unit(store, "another") is None


@pytest.mark.parametrize("fault", [disk_full, broken])
def test_a_disk_that_fails_once_loses_nothing(staging: Staging, fault: Fault) -> None:
    """Wherever the disk fails: after a start the write is stored as a whole, or nothing of it is."""
    base = OverlayFileSystem()
    staging.prepare(base)
    counting = FaultyFileSystem(OverlayFileSystem(base))
    staging.commit(counting, staging.stage(counting, "first"))
    step = max(counting.changes // FAILURES, 1)
    for at in range(random.randrange(step) + 1, counting.changes + 1, step):
        faulty = FaultyFileSystem(OverlayFileSystem(base))
        faulty.fault = at_change(faulty, at, fault)
        with suppress(StorageError):
            staging.commit(faulty, staging.stage(faulty, "first"))
        faulty.fault = no_fault
        go_on(staging, OverlayFileSystem(faulty), f"failure at change {at}")


def test_a_full_disk_leaves_the_store_as_it_was(staging: Staging) -> None:
    disk = Ram()
    fs = FaultyFileSystem(disk)
    staging.prepare(fs)
    write = staging.stage(fs, "first")
    before = dict(disk.files())
    with staging.open(fs) as store:
        fs.fault = disk_full
        with pytest.raises(DiskFull):
            append_staged(store, staged_form(staging.backend.name), write)
        fs.fault = no_fault
        assert store.bounds(OLD).end == 1
    after = dict(disk.files())
    assert after.keys() == before.keys()
    assert str(PATH / NOTE) not in after


def test_the_next_write_finishes_one_that_a_full_disk_interrupted(staging: Staging) -> None:
    """The store stays open, and the second write, by another writer, is decided only after the first."""
    fs = FaultyFileSystem(OverlayFileSystem())
    staging.prepare(fs)
    form = staged_form(staging.backend.name, staging.clock)
    another = Unit("another", 0)
    first, second = staging.stage(fs, "first"), staging.stage(fs, "second", another)
    writes = count(1)

    def full_at_the_third(operation: str, path: Path) -> None:
        is_log = path.suffix == ".log" or path.parent.name == "commitlog"
        if operation == "write" and is_log and next(writes) == 3:
            disk_full(operation, path)

    with staging.open(fs) as store:
        fs.fault = full_at_the_third
        with pytest.raises(DiskFull):
            append_staged(store, form, first)
        assert last_unit(store, UNIT.writer) is None
        assert append_staged(store, form, second)
        assert (last_unit(store, UNIT.writer), last_unit(store, another.writer)) == (0, 0)
    for attempt, other in (ALL, ALL[::-1]):
        rows = [value for value in staging.rows(fs) if not value.startswith(other.encode())]
        assert problem(rows, attempts=[attempt], whole=True) is None


def test_files_that_are_gone(staging: Staging) -> None:
    fs, write = interrupted(staging)
    fs.remove(write.folder / write.files[1].name)
    with pytest.raises(DamagedStore, match=f"cannot be finished from {write.folder}"):
        staging.open(fs)
    options = StoreOptions(settings=staging.backend.settings, accept_loss=True)
    open_store(staging.backend.name, PATH, options, fs=fs, clock=staging.clock).close()
    staging.open(fs).close()
    assert not fs.exists(write.folder)


def interrupted(staging: Staging) -> tuple[Ram, StagedWrite]:
    """Return a store that was killed after the decision, and the write."""
    base = OverlayFileSystem()
    staging.prepare(base)
    recorder = Recorder(base)
    write = staging.stage(recorder, "first")
    staging.commit(recorder, write)
    for disk in moments(recorder, History()):
        state = disk.left(lambda pending: pending)
        if state.exists(PATH / NOTE):
            return state, write
    raise AssertionError


def test_another_writer_in_between(staging: Staging) -> None:
    """A real server ignores the note: its appends before the next start stay, and hide no record."""
    fs, _ = interrupted(staging)
    note = fs.read_bytes(PATH / NOTE)
    fs.remove(PATH / NOTE)
    with staging.open(fs) as store:
        store.append(OLD, [Record(None, b"foreign")])
    file = fs.open(PATH / NOTE, create=True)
    file.pwrite(note, 0)
    file.close()
    rows = [row for row in staging.rows(fs) if row != b"foreign"]
    assert len(rows) + 1 == len(staging.rows(fs))
    assert problem(rows, attempts=ALL, whole=True) is None


def test_what_the_store_would_refuse_is_told_before(staging: Staging) -> None:
    fs = OverlayFileSystem()
    staging.prepare(fs)
    write = staging.stage(fs, "first")
    others = StagedWrite(folder=write.folder, files=write.files, topics={"old": 3, "new": 2})
    with pytest.raises(InvalidArgument, match="topic 'old' has 2 partitions"):
        staging.commit(fs, others)
    big = StagedFile("x", 9, [StagedPart("old", 0, 1, 1 << 33)])
    large = StagedWrite(folder=write.folder, files=[big], topics={"old": 2})
    with pytest.raises(RecordTooLarge, match="a run for old-0 has"):
        staging.commit(fs, large)
    assert staging.rows(fs) == [b"before"]


def test_a_store_in_use_is_refused(staging: Staging) -> None:
    fs = OverlayFileSystem()
    staging.prepare(fs)
    with staging.open(fs), pytest.raises(StoreLocked):
        staging.commit(fs, staging.stage(fs, "first"))


def test_units_count_up(staging: Staging) -> None:
    fs = OverlayFileSystem()
    staging.prepare(fs)
    for number in (0, 1, 1, 0, 2):
        staging.commit(fs, staging.stage(fs, f"u{number}", Unit("query", number)))
    values = [row for row in staging.rows(fs) if row != b"before"]
    assert len(values) == 3 * TASKS * RUNS * RECORDS * len(PLACES)
    assert len(set(values)) == len(values)


def test_a_new_store_is_there_at_once_or_not_at_all(staging: Staging) -> None:
    base = OverlayFileSystem()
    base.make_dir(PATH.parent)
    recorder = Recorder(base)
    write = staging.stage(recorder, "first")
    options = StoreOptions(settings=staging.backend.settings)
    name = staging.backend.name
    make_staged(name, PATH, write, options=options, fs=recorder, clock=staging.clock)
    dice = random.Random(0)
    seen = set()
    for disk in list_some(recorder, dice):
        for _, choice in choices(dice):
            state = disk.left(choice)
            there = state.exists(PATH)
            seen.add(there)
            if there:
                rows = [b"before", *staging.rows(state)]
                assert problem(rows, attempts=ALL, whole=True) is None
    assert staging.rows(recorder)
    with pytest.raises(InvalidArgument, match="is not empty"):
        make_staged(name, PATH, write, options=options, fs=recorder, clock=staging.clock)


def list_some(recorder: Recorder, dice: random.Random) -> Iterator[Disk]:
    """Yield some moments of a recording, and its end."""
    last = len(recorder.events)
    for number, disk in enumerate(moments(recorder, History())):
        if number == last or dice.random() < 0.1:
            yield disk
