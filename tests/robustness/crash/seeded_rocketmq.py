"""Deliberate faults in the RocketMQ backend; see seeded.py."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from storage.rocketmq.index.consume_queue import ConsumeQueue, WaitingQueues
from storage.rocketmq.index.dispatcher import Dispatcher
from storage.rocketmq.index.key_index import KeyIndex
from storage.rocketmq.log.file_sequence import FileSequence
from storage.rocketmq.recovery import examine, opening, repair
from storage.rocketmq.recovery.plan import StorePlan
from storage.rocketmq.recovery.store_files import Checkpointer, OpenedStore
from storage.rocketmq.state.config_file import ConfigFile
from storage.rocketmq.state.group_offsets import GroupOffsets
from storage.rocketmq.state.root import StoreDirectory
from tests.robustness.crash.seeded import fault, left_out, without, wrapped

NOWHERE = 1 << 62


def planned(patch: pytest.MonkeyPatch, **changes: Callable[[StorePlan], object]) -> None:
    """Override these fields of the plan of a start."""

    def examined(original: Callable[..., StorePlan], *args: Any) -> StorePlan:
        plan = original(*args)
        return replace(plan, **{name: change(plan) for name, change in changes.items()})  # type: ignore[arg-type]

    wrapped(patch, examine, "examine", examined)


# ---- log ----


@fault("rocketmq")
def a_sync_over_two_files_syncs_the_newer(patch: pytest.MonkeyPatch) -> None:
    """Sync a group that crosses the end of a log file in the new file only."""

    def synced(original: Callable[..., None], run: FileSequence, start: int, end: int) -> None:
        original(run, max(start, run.base_of(end) or 0), end)

    wrapped(patch, FileSequence, "sync", synced)


@fault("rocketmq")
def torn_tail_is_not_zeroed(patch: pytest.MonkeyPatch) -> None:
    """Leave records after the end of the log in place: they may reappear."""
    left_out(patch, FileSequence, "zero")


@fault("rocketmq")
def appends_go_behind_a_torn_tail(patch: pytest.MonkeyPatch) -> None:
    """Write the next append after half a record."""
    planned(patch, log_end=lambda plan: plan.data_end)


@fault("rocketmq", at_start=True)
def accepted_records_are_not_synced(patch: pytest.MonkeyPatch) -> None:
    """Serve, at a start, records that a second crash may lose."""
    without(patch, repair, "apply_log", "datasync")


@fault("rocketmq", at_start=True)
def accepted_files_do_not_count_as_written(patch: pytest.MonkeyPatch) -> None:
    """Let a start sync only the files that it wrote itself."""
    left_out(patch, FileSequence, "distrust")


@fault("rocketmq", seed=3)
def properties_are_not_looked_at(patch: pytest.MonkeyPatch) -> None:
    """Accept a record with a lost end: the checksum covers only its body."""
    patch.setattr(examine, "sound_part", lambda log_range: log_range)


@fault("rocketmq")
def walk_begins_where_the_queues_end(patch: pytest.MonkeyPatch) -> None:
    """Trust, at a start, that the log exists up to the end of the queues."""
    patch.setattr(examine, "_checkpointed", lambda context: NOWHERE)


@fault("rocketmq")
def head_is_deleted_from_its_end(patch: pytest.MonkeyPatch) -> None:
    """Delete the newest of the expired files first: a crash leaves a hole."""

    def deleted(original: Callable[..., None], store: OpenedStore, doomed: Sequence[int]) -> None:
        for base in reversed(doomed):
            original(store, [base])

    wrapped(patch, OpenedStore, "delete_head", deleted)


@fault("rocketmq")
def head_is_deleted_without_syncs(patch: pytest.MonkeyPatch) -> None:
    """Skip the syncs of deletions: of two deleted files a crash may restore the older one alone."""
    without(patch, OpenedStore, "delete_head", "sync_dir", of="commitlog")


# ---- queues and index ----


@fault("rocketmq")
def queues_are_not_synced_at_a_checkpoint(patch: pytest.MonkeyPatch) -> None:
    """Skip the sync of the queues at a checkpoint: entries that it stands for may be lost."""
    left_out(patch, ConsumeQueue, "sync")


@fault("rocketmq")
def entries_are_written_before_their_files_are_synced(patch: pytest.MonkeyPatch) -> None:
    """Write entries to new files whose names and lengths a crash may lose."""
    without(patch, WaitingQueues, "write", "datasync")


@fault("rocketmq")
def files_of_waiting_entries_are_not_created(patch: pytest.MonkeyPatch) -> None:
    """Let a checkpoint and a clean stop stand for entries that still wait for their files."""
    left_out(patch, Dispatcher, "write_waiting")


@fault("rocketmq")
def checkpoint_before_the_syncs(patch: pytest.MonkeyPatch) -> None:
    """Write the checkpoint before the syncs that it stands for."""

    def written(original: Callable[..., None], self: Checkpointer) -> None:
        with self._append_lock:
            self._parts.dispatcher.step()
            noted = self._noted()
        self._directory.write_checkpoint(noted)
        original(self)

    wrapped(patch, Checkpointer, "write", written)


@fault("rocketmq")
def units_are_believed_after_a_crash(patch: pytest.MonkeyPatch) -> None:
    """Use the queue entries at a start as they are on disk."""
    patch.setattr(examine, "_checked_end", lambda queue, trusted: queue.units.end)


@fault("rocketmq")
def queues_are_not_cut_with_the_log(patch: pytest.MonkeyPatch) -> None:
    """Keep queue entries that point after the end of the log."""
    planned(patch, queue_ends=lambda plan: {})


@fault("rocketmq")
def queues_are_not_built_on(patch: pytest.MonkeyPatch) -> None:
    """Create no queue entries, at a start, for records that have none."""
    planned(patch, build_queues_from=lambda plan: None)


@fault("rocketmq")
def index_is_not_built_on(patch: pytest.MonkeyPatch) -> None:
    """Add no index entries, at a start, for records that are not in the index."""

    def applied(original: Callable[..., object], *args: Any) -> None:
        original(*args)

    wrapped(patch, repair, "apply_index", applied)


@fault("rocketmq", seed=3)
def index_is_not_synced_at_a_checkpoint(patch: pytest.MonkeyPatch) -> None:
    """Skip the sync of the index at a checkpoint: entries that it stands for may be lost."""
    without(patch, KeyIndex, "sync", "datasync")


@fault("rocketmq")
def full_index_file_is_not_synced(patch: pytest.MonkeyPatch) -> None:
    """Begin the next index file before the previous one is on disk."""
    without(patch, KeyIndex, "_finish", "datasync")


@fault("rocketmq")
def index_is_believed_after_a_crash(patch: pytest.MonkeyPatch) -> None:
    """Treat no index file as doubtful after a crash."""
    planned(patch, doomed_index_files=lambda plan: (), doubtful_index_files=lambda plan: ())


# ---- topics and producers ----


@fault("rocketmq")
def topic_made_without_a_sync_of_the_root(patch: pytest.MonkeyPatch) -> None:
    """Skip the sync of the root: the folder of a new store's first topics may be lost."""
    without(patch, StoreDirectory, "write_topics", "sync_dir", of="store")


@fault("rocketmq")
def no_note_of_a_deleted_topic(patch: pytest.MonkeyPatch) -> None:
    """Write no note of a deletion: a deleted topic reappears from its records in the log."""
    left_out(patch, StoreDirectory, "write_deleted_topics")


@fault("rocketmq")
def producers_file_is_not_read(patch: pytest.MonkeyPatch) -> None:
    """Forget the sequence numbers of records before the last checkpoint."""
    patch.setattr(opening, "_restore_producers", lambda plan, snapshot, found_end: None)


@fault("rocketmq")
def sequences_in_the_log_are_not_read(patch: pytest.MonkeyPatch) -> None:
    """Forget the sequence numbers of records after the last checkpoint."""
    patch.setattr(opening, "_take_in_sequences", lambda plan: None)


@fault("rocketmq")
def half_a_sequenced_append_stays(patch: pytest.MonkeyPatch) -> None:
    """Serve the first records of a request that was cut short."""

    def noted(original: Callable[..., None], walk: Any, log_range: Any) -> None:
        original(walk, log_range)
        walk._open = None

    wrapped(patch, examine._Walk, "_note_sequenced", noted)


@fault("rocketmq")
def offsets_are_written_without_a_sync(patch: pytest.MonkeyPatch) -> None:
    """Return from a commit when its file is written, but not synced."""
    without(patch, ConfigFile, "write", "datasync")


@fault("rocketmq")
def offsets_are_renamed_without_a_sync(patch: pytest.MonkeyPatch) -> None:
    """Return from a commit when its file is renamed, but the folder is not synced."""
    without(patch, ConfigFile, "write", "sync_dir")


@fault("rocketmq")
def offsets_are_synced_before_their_records(patch: pytest.MonkeyPatch) -> None:
    """Let an offset count records that may be lost."""
    left_out(patch, GroupOffsets, "_sync_records")
