"""Deliberate faults in our own code: what would break if a line were missing, or stood in the wrong place.

Owns the register of them, the means to plant one, and those that both backends share; must not look for them
(test_seeded_bugs.py). Each is a small function that patches flush, roll, recovery, retention, checkpoint, writer or
keys, and says in its first line what it breaks. What only a disk that fails can show is for the error sweep, all else
for the explorer of crashes.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from types import ModuleType
from typing import Any, TypeAlias

import pytest

from logserver import keybook, writer
from logserver.writer import Group, Lane, Request
from storage.files import FileSystem, HandleCache, atomic, atomic_write, write_durably
from storage.files import failures as failures_module
from storage.files.fence import Guard
from storage.journal import Journal
from storage.kafka.directory import LogDirectory
from storage.kafka.partition import Partition
from storage.kafka.store import KafkaStore
from storage.rocketmq.directory import StoreDirectory
from storage.rocketmq.file_run import FileRun
from storage.rocketmq.store import RocketMQStore
from tests.faults.recorder import RecordedFile, Recorder
from tests.faults.relay import RelayFile

Plant: TypeAlias = Callable[[pytest.MonkeyPatch], None]
Patched: TypeAlias = type | ModuleType
BOTH = ("kafka", "rocketmq")
LAYER: Mapping[str, type] = {"sync_dir": Recorder, "datasync": RecordedFile, "truncate": RelayFile}


@dataclass(frozen=True)
class Fault:
    """One fault. `by_sweep`: only a disk that fails shows it; `at_start`: a crash during or after a start does."""

    name: str
    breaks: str
    plant: Plant
    by_sweep: bool
    at_start: bool

    @contextmanager
    def planted(self) -> Iterator[None]:
        """The fault is in the code inside this block."""
        with pytest.MonkeyPatch.context() as patch:
            self.plant(patch)
            yield


FAULTS: dict[tuple[str, str], Fault] = {}  # by backend and name


def fault(
    *backends: str, by_sweep: bool = False, at_start: bool = False
) -> Callable[[Plant], Plant]:
    """Puts a function into the register, under its name."""

    def register(plant: Plant) -> Plant:
        name = plant.__name__.replace("_", " ")
        breaks = (plant.__doc__ or "").split("\n")[0]
        for backend in backends:
            FAULTS[backend, name] = Fault(name, breaks, plant, by_sweep, at_start)
        return plant

    return register


# ---- means ----


def everywhere(patch: pytest.MonkeyPatch, original: object, other: object) -> None:
    """Wherever our modules know `original` by a name of their own they get `other`."""
    for name, module in list(sys.modules.items()):
        if name.split(".")[0] in ("storage", "logserver"):
            for known, value in list(vars(module).items()):
                if value is original:
                    patch.setattr(module, known, other)


def wrapped(
    patch: pytest.MonkeyPatch, owner: Patched, function: str, other: Callable[..., Any]
) -> None:
    """`other` is called in place of a function or method, which it gets as its first argument."""
    original = getattr(owner, function)

    @wraps(original)
    def call(*args: Any, **kwargs: Any) -> Any:
        return other(original, *args, **kwargs)

    if isinstance(owner, ModuleType):
        everywhere(patch, original, call)
    else:
        patch.setattr(owner, function, call)


def left_out(patch: pytest.MonkeyPatch, owner: type, method: str) -> None:
    """The method does nothing."""
    patch.setattr(owner, method, lambda *args, **kwargs: None)


def without(
    patch: pytest.MonkeyPatch, owner: Patched, function: str, operation: str, *, of: str = ""
) -> None:
    """While this function runs, an operation of the file layer on paths that end with `of` does nothing."""
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
    """A small file that was written anew may be the old one again."""
    without(patch, atomic, "atomic_write", "sync_dir")


@fault(*BOTH)
def renamed_before_it_is_synced(patch: pytest.MonkeyPatch) -> None:
    """A small file may have its new name and none of its bytes."""
    without(patch, atomic, "atomic_write", "datasync")


@fault(*BOTH)
def small_files_are_written_in_place(patch: pytest.MonkeyPatch) -> None:
    """A small file may be half there: it is not written beside and renamed."""

    def in_place(original: object, fs: FileSystem, path: Path, data: bytes) -> None:
        write_durably(fs, path, data)
        fs.sync_dir(path.parent)

    wrapped(patch, atomic, atomic_write.__name__, in_place)


@fault(*BOTH)
def the_log_is_never_synced(patch: pytest.MonkeyPatch) -> None:
    """A flush returns at once: the cache of open files syncs none."""
    left_out(patch, HandleCache, "datasync")


@fault(*BOTH)
def closed_to_make_room_without_a_sync(patch: pytest.MonkeyPatch) -> None:
    """What was written to a file that gave way to another is never synced (three may be open)."""
    wrapped(patch, HandleCache, "__init__", lambda original, cache, fs, _: original(cache, fs, 3))
    without(patch, HandleCache, "_shrink", "datasync")


# ---- the writer ----


@fault(*BOTH)
def answered_before_the_flush(patch: pytest.MonkeyPatch) -> None:
    """A group is answered when it is written; the next one's hop flushes it."""
    late: dict[int, Group] = {}

    def flush(original: Callable[..., None], lane: Lane, group: Group) -> None:
        before = late.get(id(lane))
        late[id(lane)] = group
        if before is not None:
            original(lane, before)

    wrapped(patch, Lane, "_flush", flush)


@fault(*BOTH)
def seen_before_the_flush(patch: pytest.MonkeyPatch) -> None:
    """Readers see a durable group as soon as it is written."""

    def commit(original: Callable[..., None], lane: Lane, group: Group) -> None:
        durable, lane._durable = lane._durable, False
        try:
            original(lane, group)
        finally:
            lane._durable = durable
        if durable and group.touched:
            lane._flush(group)

    wrapped(patch, Lane, "commit", commit)


# ---- requests with a key ----


@fault(*BOTH)
def keys_are_not_synced(patch: pytest.MonkeyPatch) -> None:
    """The journal of keys is written and never synced."""
    left_out(patch, Journal, "_sync")


@fault(*BOTH)
def keys_behind_their_records(patch: pytest.MonkeyPatch) -> None:
    """A key is noted when its records are written: a crash in between leaves them without it."""

    def late(original: Callable[..., None], requests: Sequence[Request]) -> None:
        keybook.begin_notes(requests, durable=True)
        original(requests)

    wrapped(patch, keybook, "end_notes", late)
    patch.setattr(writer, "begin_notes", lambda requests, *, durable: None)


@fault(*BOTH)
def keys_outlive_their_records(patch: pytest.MonkeyPatch) -> None:
    """A start believes offsets of records that a crash took."""
    everywhere(patch, keybook._drop_lost, lambda entry, bounds, losses: 0)


# ---- stop and start ----


@fault(*BOTH)
def clean_mark_before_the_last_sync(patch: pytest.MonkeyPatch) -> None:
    """The mark of a clean stop comes first, and then what it stands for."""

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
    """A running store looks like one that was stopped."""
    left_out(patch, LogDirectory, "remove_marker")
    left_out(patch, StoreDirectory, "write_abort")


@fault(*BOTH)
def every_stop_counts_as_clean(patch: pytest.MonkeyPatch) -> None:
    """A start after a crash looks at no more than one after a stop."""
    patch.setattr(LogDirectory, "is_clean", lambda directory: True)
    patch.setattr(StoreDirectory, "is_unclean", lambda directory: False)


@fault("rocketmq")
def lost_writes_count_as_damage(patch: pytest.MonkeyPatch) -> None:
    """A write that the disk did not get, with later ones behind it, keeps a store from starting."""
    rocketmq = sys.modules["storage.rocketmq.recovery"]
    patch.setattr(rocketmq, "has_zeroed_sector", lambda *args: False)


@fault(*BOTH)
def new_log_files_without_a_folder_sync(patch: pytest.MonkeyPatch) -> None:
    """A log file that was begun may have no name after a crash."""
    without(patch, Partition, "_roll", "sync_dir")
    without(patch, FileRun, "create", "sync_dir")


# ---- a disk that fails ----


@fault(*BOTH, by_sweep=True)
def the_fence_never_closes(patch: pytest.MonkeyPatch) -> None:
    """After a write or sync that failed the store goes on."""
    left_out(patch, Guard, "__exit__")


@fault(*BOTH, by_sweep=True)
def a_sync_that_finds_no_space_is_a_full_disk(patch: pytest.MonkeyPatch) -> None:
    """A sync that lost what was written is taken for a request that did not fit."""
    patch.setattr(failures_module, "_SYNCS", frozenset())
