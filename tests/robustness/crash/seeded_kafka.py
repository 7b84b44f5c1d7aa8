"""Deliberate faults in the Kafka backend; see seeded.py."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from storage.kafka.index.indexes import SparseIndex
from storage.kafka.log import retention
from storage.kafka.log.partition_plan import PartitionPlan, SegmentPlan
from storage.kafka.log.segment import Segment
from storage.kafka.partition import Partition
from storage.kafka.recovery import repair
from storage.kafka.recovery.examine import _Scan
from storage.kafka.state import topics
from storage.kafka.state.group_offsets import GroupOffsets
from storage.kafka.state.producers import ProducerStates
from tests.robustness.crash.seeded import fault, left_out, without, wrapped


@fault("kafka")
def old_segment_not_synced_at_a_roll(patch: pytest.MonkeyPatch) -> None:
    """Skip the sync of a segment at a roll: data written since its last flush may be lost."""
    without(patch, Partition, "_roll", "datasync", of=".log")


@fault("kafka")
def topic_made_without_a_sync_of_the_root(patch: pytest.MonkeyPatch) -> None:
    """Skip the sync of the root: a new topic's folders may be lost."""
    without(patch, topics, "create_folders", "sync_dir", of="store")


@fault("kafka")
def topic_made_without_a_sync_of_its_folders(patch: pytest.MonkeyPatch) -> None:
    """Skip the sync of a new topic's folders: its log files may be lost."""
    without(patch, topics, "create_folders", "sync_dir", of="-delete")


@fault("kafka")
def topic_deleted_without_a_sync(patch: pytest.MonkeyPatch) -> None:
    """Skip the sync after a deletion: a deleted topic may reappear."""
    without(patch, topics, "set_aside", "sync_dir")


@fault("kafka")
def recovery_point_before_the_sync(patch: pytest.MonkeyPatch) -> None:
    """Let recovery points count written offsets, not synced offsets."""
    patch.setattr(Partition, "flushed_offset", property(lambda self: self._next))


@fault("kafka")
def torn_tail_is_not_cut(patch: pytest.MonkeyPatch) -> None:
    """Leave half a batch after the end of the log."""

    def applied(original: Callable[..., Segment], files: Any, plan: Any, s: Any) -> Any:
        s.file_bytes = s.size_bytes
        return original(files, plan, s)

    wrapped(patch, repair, "_apply_segment", applied)


@fault("kafka")
def appends_go_behind_a_torn_tail(patch: pytest.MonkeyPatch) -> None:
    """Write the next append after half a batch."""

    def applied(original: Callable[..., Segment], files: Any, plan: Any, s: Any) -> Any:
        s.size_bytes = s.file_bytes
        return original(files, plan, s)

    wrapped(patch, repair, "_apply_segment", applied)


@fault("kafka", at_start=True)
def accepted_records_are_not_synced(patch: pytest.MonkeyPatch) -> None:
    """Serve, at a start, records that a second crash may lose."""
    without(patch, repair, "_apply_segment", "datasync", of=".log")


@fault("kafka")
def indexes_are_believed_after_a_crash(patch: pytest.MonkeyPatch) -> None:
    """Use the indexes at a start as they are on disk."""

    def scanned(
        original: Callable[..., None], scan: _Scan, segment: SegmentPlan, index: int
    ) -> None:
        original(scan, segment, index)
        segment.indexes = None

    wrapped(patch, _Scan, "_scan_segment", scanned)


@fault("kafka")
def indexes_are_not_synced_at_a_stop(patch: pytest.MonkeyPatch) -> None:
    """Skip the sync of the indexes that the mark of a clean stop stands for."""
    without(patch, SparseIndex, "trim", "datasync")


@fault("kafka")
def sequences_start_anew(patch: pytest.MonkeyPatch) -> None:
    """Forget all producers when a partition is opened."""

    def made(
        original: Callable[..., None],
        self: Partition,
        shared: Any,
        plan: PartitionPlan,
        *rest: Any,
        **more: Any,
    ) -> None:
        plan.producers = ProducerStates()
        original(self, shared, plan, *rest, **more)

    wrapped(patch, Partition, "__init__", made)


@fault("kafka")
def sequences_come_from_snapshots_alone(patch: pytest.MonkeyPatch) -> None:
    """Ignore, at a start, the sequence numbers of the batches that it reads."""

    def scanned(
        original: Callable[..., None], scan: _Scan, segment: SegmentPlan, index: int
    ) -> None:
        before = scan.plan.producers.entries()
        original(scan, segment, index)
        scan.plan.producers = ProducerStates(before)

    wrapped(patch, _Scan, "_scan_segment", scanned)


@fault("kafka")
def snapshot_ahead_of_the_log(patch: pytest.MonkeyPatch) -> None:
    """Write the snapshot of a roll together with the first batch after it."""
    late: dict[int, int] = {}

    def at_roll(original: object, self: Partition, offset: int) -> None:
        late[id(self)] = offset

    def written(original: Callable[..., Any], self: Partition, *args: Any, **more: Any) -> Any:
        result = original(self, *args, **more)
        if id(self) in late:
            write_snapshot(self, late.pop(id(self)))
        return result

    write_snapshot = Partition._write_snapshot
    wrapped(patch, Partition, "_write_snapshot", at_roll)
    wrapped(patch, Partition, "_write", written)


@fault("kafka")
def head_is_deleted_from_its_end(patch: pytest.MonkeyPatch) -> None:
    """Delete the newest of the expired segments first: a crash leaves a hole."""

    def backwards(original: Callable[..., Sequence[Segment]], *args: Any, **more: Any) -> Any:
        return [*original(*args, **more)][::-1]

    wrapped(patch, retention, "given_up", backwards)


@fault("kafka")
def offsets_are_answered_before_the_flush(patch: pytest.MonkeyPatch) -> None:
    """Return from a commit when its records are written."""

    def append(original: Callable[..., None], *args: Any, durable: bool, **more: Any) -> None:
        original(*args, durable=False, **more)

    wrapped(patch, GroupOffsets, "_append", append)


@fault("kafka")
def offsets_are_synced_before_their_records(patch: pytest.MonkeyPatch) -> None:
    """Let an offset count records that may be lost."""
    left_out(patch, GroupOffsets, "_sync_records", returns=())
