"""Deliberate faults in our own code: the effect of a missing line, or of a line in the wrong place.

Owns the register of the faults, the helpers that plant a fault, and the faults that both backends share; must not
search for them (test_seeded_bugs.py). Each fault is a small function that patches flush, roll, recovery, retention,
checkpoint, writer or keys, and its first docstring line says what breaks. Faults that only a failing disk can show
are for the error sweep, all others for the explorer of crashes.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import wraps
from inspect import signature
from pathlib import Path
from types import ModuleType
from typing import Any, TypeAlias

import pytest

from logserver.idempotency import journal
from logserver.service import commit
from logserver.service.commit import CommitGroup, CommitQueue
from storage import StorageError
from storage.files import FileSystem, HandleCache, atomic, atomic_write, write_durably
from storage.files import failures as failures_module
from storage.files.fence import Guard
from storage.kafka.partition import Partition
from storage.kafka.state.root import LogDirectory
from storage.kafka.store import KafkaStore
from storage.rocketmq.log.file_sequence import FileSequence
from storage.rocketmq.state.root import StoreDirectory
from storage.rocketmq.store import RocketMQStore
from storage.shared.journal import Journal
from tests.robustness.crash.recorder import RecordedFile, Recorder
from tests.robustness.crash.relay import RelayFile

Plant: TypeAlias = Callable[[pytest.MonkeyPatch], None]
Patched: TypeAlias = type | ModuleType
BOTH = ("kafka", "rocketmq")
LAYER: Mapping[str, type] = {"sync_dir": Recorder, "datasync": RecordedFile, "truncate": RelayFile}


@dataclass(frozen=True)
class Fault:
    """One fault.

    `by_sweep`: only a failing disk shows it. `at_start`: only a crash during or after a start shows it. `seed`: where
    the hunt begins; chosen for faults that seed 0 shows only after thousands of states.
    """

    name: str
    breaks: str
    plant: Plant
    by_sweep: bool
    at_start: bool
    seed: int

    @contextmanager
    def planted(self) -> Iterator[None]:
        """Plant the fault in the code for the duration of this block."""
        with pytest.MonkeyPatch.context() as patch:
            self.plant(patch)
            yield


FAULTS: dict[tuple[str, str], Fault] = {}  # by backend and name


def fault(
    *backends: str, by_sweep: bool = False, at_start: bool = False, seed: int = 0
) -> Callable[[Plant], Plant]:
    """Register a function as a fault, under its name."""

    def register(plant: Plant) -> Plant:
        name = plant.__name__.replace("_", " ")
        breaks = (plant.__doc__ or "").split("\n")[0]
        for backend in backends:
            FAULTS[backend, name] = Fault(name, breaks, plant, by_sweep, at_start, seed)
        return plant

    return register


# ---- helpers ----


def everywhere(patch: pytest.MonkeyPatch, original: object, other: object) -> None:
    """Replace `original` by `other` under every name that one of our modules has for it."""
    for name, module in list(sys.modules.items()):
        if name.split(".")[0] in ("storage", "logserver"):
            for known, value in list(vars(module).items()):
                if value is original:
                    patch.setattr(module, known, other)


def wrapped(
    patch: pytest.MonkeyPatch, owner: Patched, function: str, other: Callable[..., Any]
) -> None:
    """Call `other` in place of a function or method, with the original as its first argument."""
    original = getattr(owner, function)

    @wraps(original)
    def call(*args: Any, **kwargs: Any) -> Any:
        return other(original, *args, **kwargs)

    if isinstance(owner, ModuleType):
        everywhere(patch, original, call)
    else:
        patch.setattr(owner, function, call)


def left_out(
    patch: pytest.MonkeyPatch, owner: type, method: str, *, returns: object = None
) -> None:
    """Make the method do nothing, and return what its callers need."""
    is_of_none = signature(getattr(owner, method)).return_annotation in {None, "None"}
    assert is_of_none == (returns is None), f"{method} returns a value, or not any more"
    patch.setattr(owner, method, lambda *args, **kwargs: returns)


def without(
    patch: pytest.MonkeyPatch, owner: Patched, function: str, operation: str, *, of: str = ""
) -> None:
    """Skip an operation of the file layer on paths that end with `of`, while this function runs."""
    inside = threading.local()

    def running(original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        before, inside.now = getattr(inside, "now", False), True
        try:
            return original(*args, **kwargs)
        finally:
            inside.now = before

    def done(original: Callable[..., Any], target: Any, *args: Any) -> Any:
        path = args[0] if args and isinstance(args[0], Path) else target.path
        if not (getattr(inside, "now", False) and path.name.endswith(of)):
            original(target, *args)

    wrapped(patch, owner, function, running)
    wrapped(patch, LAYER[operation], operation, done)


# ---- the file layer ----


@fault(*BOTH)
def no_folder_sync_after_a_rename(patch: pytest.MonkeyPatch) -> None:
    """Skip the folder sync: a rewritten small file may revert to its old version."""
    without(patch, atomic, "atomic_write", "sync_dir")


@fault(*BOTH)
def renamed_before_it_is_synced(patch: pytest.MonkeyPatch) -> None:
    """Rename before the sync: a small file may have its new name and none of its bytes."""
    without(patch, atomic, "atomic_write", "datasync")


@fault(*BOTH)
def small_files_are_written_in_place(patch: pytest.MonkeyPatch) -> None:
    """Write small files in place, without a temporary file and a rename: a crash may leave half of one."""

    def in_place(
        original: object, fs: FileSystem, path: Path, data: bytes, *, sync_dir: bool = True
    ) -> None:
        write_durably(fs, path, data)
        if sync_dir:
            fs.sync_dir(path.parent)

    wrapped(patch, atomic, atomic_write.__name__, in_place)


@fault(*BOTH)
def the_log_is_never_synced(patch: pytest.MonkeyPatch) -> None:
    """Make a flush return at once: the cache of open files syncs none of them."""
    left_out(patch, HandleCache, "datasync")


@fault(*BOTH)
def closed_to_make_room_without_a_sync(patch: pytest.MonkeyPatch) -> None:
    """Skip the sync of a file that is closed to make room for another (three files may be open)."""
    wrapped(patch, HandleCache, "__init__", lambda original, cache, fs, _: original(cache, fs, 3))
    without(patch, HandleCache, "_shrink", "datasync")


# ---- the writer ----


@fault(*BOTH)
def answered_before_the_flush(patch: pytest.MonkeyPatch) -> None:
    """Answer a group when it is written; the next group's hop flushes it."""
    late: dict[int, CommitGroup] = {}

    def flush(original: Callable[..., None], queue: CommitQueue, group: CommitGroup) -> None:
        before = late.get(id(queue))
        late[id(queue)] = group
        if before is not None:
            original(queue, before)

    wrapped(patch, CommitQueue, "_flush", flush)


@fault(*BOTH)
def seen_before_the_flush(patch: pytest.MonkeyPatch) -> None:
    """Publish a durable group to readers as soon as it is written."""

    def commit(original: Callable[..., None], queue: CommitQueue, group: CommitGroup) -> None:
        durable, queue._durable = queue._durable, False
        try:
            original(queue, group)
        finally:
            queue._durable = durable
        if durable and group.touched:
            queue._flush(group)

    wrapped(patch, CommitQueue, "commit", commit)


# ---- requests with a key ----


@fault(*BOTH)
def keys_are_not_synced(patch: pytest.MonkeyPatch) -> None:
    """Write the journal of keys without ever syncing it."""
    left_out(patch, Journal, "_sync")


@fault(*BOTH)
def keys_behind_their_records(patch: pytest.MonkeyPatch) -> None:
    """Note a key after its records are written: a crash in between leaves the records without their key."""

    def late(original: Callable[..., None], attempts: Iterable[tuple[Any, Any]]) -> None:
        attempts = list(attempts)
        with suppress(StorageError):
            journal.write_started([entries for entries, _ in attempts], durable=True)
        original(attempts)

    wrapped(patch, journal, "write_completed", late)
    patch.setattr(commit, "write_started", lambda attempts, *, durable: None)


@fault(*BOTH)
def keys_outlive_their_records(patch: pytest.MonkeyPatch) -> None:
    """Trust, at a start, the offsets of records that a crash lost."""
    everywhere(patch, journal._drop_lost, lambda request, bounds, losses: 0)


# ---- stop and start ----


@fault(*BOTH)
def clean_mark_before_the_last_sync(patch: pytest.MonkeyPatch) -> None:
    """Write the mark of a clean stop before the syncs that it stands for."""

    def stop_kafka(original: Callable[..., None], store: KafkaStore) -> None:
        store._directory.write_marker()
        original(store)

    def stop_rocketmq(original: Callable[..., None], store: RocketMQStore) -> None:
        store._directory.remove_abort()
        original(store)

    wrapped(patch, KafkaStore, "_stop_cleanly", stop_kafka)
    wrapped(patch, RocketMQStore, "_stop_cleanly", stop_rocketmq)


@fault(*BOTH)
def clean_mark_stays_at_a_start(patch: pytest.MonkeyPatch) -> None:
    """Leave the mark of a clean stop at a start: a running store looks like a stopped one."""
    left_out(patch, LogDirectory, "remove_marker")
    left_out(patch, StoreDirectory, "write_abort")


@fault(*BOTH)
def every_stop_counts_as_clean(patch: pytest.MonkeyPatch) -> None:
    """Make a start after a crash inspect no more than a start after a clean stop."""
    patch.setattr(LogDirectory, "is_clean", lambda directory: True)
    patch.setattr(StoreDirectory, "is_unclean", lambda directory: False)


@fault("rocketmq")
def lost_writes_count_as_damage(patch: pytest.MonkeyPatch) -> None:
    """Refuse to start if the disk lost a write that is followed by later ones."""
    rocketmq = sys.modules["storage.rocketmq.recovery.examine"]
    patch.setattr(rocketmq, "has_zeroed_sector", lambda *args: False)


@fault(*BOTH)
def new_log_files_without_a_folder_sync(patch: pytest.MonkeyPatch) -> None:
    """Skip the folder sync for a new log file: after a crash it may have no name."""
    without(patch, Partition, "_roll", "sync_dir")
    without(patch, FileSequence, "create", "sync_dir")


# ---- a disk that fails ----


@fault(*BOTH, by_sweep=True)
def the_fence_never_closes(patch: pytest.MonkeyPatch) -> None:
    """Continue after a failed write or sync."""
    left_out(patch, Guard, "__exit__")


@fault(*BOTH, by_sweep=True)
def a_sync_that_finds_no_space_is_a_full_disk(patch: pytest.MonkeyPatch) -> None:
    """Treat a sync that lost written data as a request that did not fit."""
    patch.setattr(failures_module, "_SYNCS", frozenset())
