"""Carrying out the recovery plan of a partition in its folder. A start writes here, and when it renames folders and
segments (interrupted_topics.py, misnamed.py).

Owns clearing left-over files, cutting, rewriting indexes, snapshots and epochs, and keeping a copy of the bytes that
are cut; must not decide anything (storage.kafka.recovery.examine does). On an overlay the same steps make the read-only
view of a store.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from storage.files import FileSystem, HandleCache, atomic_write, copy_range, write_durably
from storage.kafka.format import checkpoints, names
from storage.kafka.format.names import parse_segment_name, segment_name
from storage.kafka.log import offset_overflow
from storage.kafka.log.log_file import StoredBatch, walk
from storage.kafka.log.log_segments import LogSegments
from storage.kafka.log.partition_plan import PartitionPlan, SegmentPlan
from storage.kafka.log.segment import Segment
from storage.model import Loss
from storage.shared.root_files import kept_name


def clear_leftovers(fs: FileSystem, directory: Path) -> None:
    """Finish the work that a stop interrupted, as LogLoader does: remove `.deleted` and `.cleaned` files, complete
    `.swap` sets.

    A `.swap` set at or above the lowest `.cleaned` offset was not complete and is removed too. So is a set with an
    empty or damaged log, as long as the segment that it should replace exists.
    """
    leftovers = _leftovers(fs, directory)
    if not leftovers:
        return
    cleaned = [base for base, suffix, _ in leftovers if suffix == names.CLEANED]
    ends = {
        base: _end_offset(fs, path, base)
        for base, _, path in leftovers
        if path.name == segment_name(base, names.LOG) + names.SWAP
    }
    complete: list[tuple[int, Path]] = []
    for base, suffix, path in leftovers:
        whole = ends.get(base, base) is not None or not _has_log(fs, directory, base)
        if suffix == names.SWAP and (not cleaned or base < min(cleaned)) and whole:
            complete.append((base, path))
        else:
            fs.remove(path)
    for base in {base for base, _ in complete}:
        end = ends.get(base)
        if end is not None:
            _remove_replaced(fs, directory, start=base, end=end)
    for _, path in complete:
        fs.rename(path, path.with_suffix(""))
    fs.sync_dir(directory)


def _leftovers(fs: FileSystem, directory: Path) -> Sequence[tuple[int, str, Path]]:
    """Return (base offset, last suffix, path) of each left-over file of a segment."""
    found = []
    for name in fs.list_dir(directory):
        if name.endswith(names.LEFTOVER_SUFFIXES):
            parsed = parse_segment_name(name)
            path = directory / name
            if parsed is not None and not fs.is_dir(path):
                found.append((parsed[0], path.suffix, path))
    return found


def _has_log(fs: FileSystem, directory: Path, base_offset: int) -> bool:
    return fs.exists(directory / segment_name(base_offset, names.LOG))


def _end_offset(fs: FileSystem, path: Path, base_offset: int) -> int | None:
    """Return the offset after the last batch of a log file; None if the file is empty or not whole."""
    file = fs.open(path)
    try:
        end = None
        for item in walk(file, position=0, end=file.size(), next_offset=base_offset):
            if not isinstance(item, StoredBatch):
                return None
            end = item.header.next_offset
        return end
    finally:
        file.close()


def _remove_replaced(fs: FileSystem, directory: Path, *, start: int, end: int) -> None:
    """Remove the segments that a completed `.swap` segment of [start, end) replaces.

    Also remove the segment before `start` if its first batch is at or after `start`. That segment is being split, and
    the first part is named after this batch (storage.kafka.log.offset_overflow).
    """
    split = _split_from(fs, directory, start)
    for name in fs.list_dir(directory):
        parsed = parse_segment_name(name)
        if parsed is None or parsed[1] not in names.SEGMENT_SUFFIXES[:-1]:
            continue
        if start <= parsed[0] < max(end, start + 1) or parsed[0] == split:
            fs.remove(directory / name)


def _split_from(fs: FileSystem, directory: Path, start: int) -> int | None:
    """Return the base offset of the segment before `start` if its first batch is at or after `start`, else None."""
    parsed = filter(None, map(parse_segment_name, fs.list_dir(directory)))
    base = max((b for b, suffix in parsed if suffix == names.LOG and b < start), default=None)
    if base is None:
        return None
    file = fs.open(directory / segment_name(base))
    try:
        items = walk(file, position=0, end=file.size(), next_offset=base)
        first = next((item for item in items if isinstance(item, StoredBatch)), None)
    finally:
        file.close()
    return base if first is not None and first.header.base_offset >= start else None


def keep_aside(fs: FileSystem, plan: PartitionPlan, kept_dir: Path) -> None:
    """Copy the bytes that the plan cuts to `kept_dir`/topic-partition/NAME.from-POSITION, durably. Note the copies in
    the plan's losses.
    """
    kept: list[Loss] = []
    for loss in plan.losses:
        if not loss.size_bytes:
            kept.append(loss)
            continue
        source = Path(loss.path)
        directory = kept_dir / plan.directory.name
        fs.make_dir(directory)
        target = directory / f"{source.name}.from-{loss.position}"
        copy_range(fs, source, target, start=loss.position)
        fs.sync_dir(directory)
        kept.append(replace(loss, kept_at=str(target)))
    plan.losses = kept


def apply(files: HandleCache, plan: PartitionPlan) -> LogSegments:
    """Carry out the plan and return the segments, at least one. The records that it accepted are durable on return."""
    fs = files.fs
    for path in plan.removed:
        fs.remove(path)
    for path in plan.set_aside:
        fs.rename(path, path.with_name(kept_name(path.name)))
    for lost in plan.removed_segments:
        _remove_segment(files, plan, lost)
    for split in plan.splits:
        offset_overflow.carry_out(files, split)
    segments = LogSegments(_apply_segment(files, plan, segment) for segment in plan.segments)
    if not segments or plan.continues_at is not None:
        base_offset = plan.start_offset if plan.continues_at is None else plan.continues_at
        segments.roll(Segment.create(files, plan.directory, base_offset, plan.settings))
    _write_snapshots(fs, plan)
    if tuple(plan.stored_epochs or ()) != tuple(plan.epochs.entries):
        data = checkpoints.encode_epochs(plan.epochs.entries)
        atomic_write(fs, plan.directory / names.LEADER_EPOCHS, data)
    if plan.changes_names:
        fs.sync_dir(plan.directory)
    return segments


def _remove_segment(files: HandleCache, plan: PartitionPlan, lost: SegmentPlan) -> None:
    for suffix in sorted(lost.suffixes - {names.SNAPSHOT}):
        path = plan.directory / segment_name(lost.base_offset, suffix)
        files.fs.remove(path)
        files.forget(path, sync=False)


def _apply_segment(files: HandleCache, plan: PartitionPlan, planned: SegmentPlan) -> Segment:
    if planned.size_bytes != planned.file_bytes or planned.aborted is not None:
        with files.borrow(planned.path, write=True) as file:
            if planned.size_bytes != planned.file_bytes:
                file.truncate(planned.size_bytes)
        files.datasync(planned.path)
    has_txn_index = names.TXN_INDEX in planned.suffixes
    segment = Segment(
        files,
        plan.directory,
        planned.base_offset,
        plan.settings,
        size_bytes=planned.size_bytes,
        has_txn_index=has_txn_index,
    )
    if planned.indexes is not None:
        segment.offset_index.replace(planned.indexes.offsets, sync_dir=False)  # `apply` syncs it
        segment.time_index.replace(planned.indexes.times, sync_dir=False)
    elif not {names.INDEX, names.TIME_INDEX} <= planned.suffixes:
        segment.offset_index.replace(())
        segment.time_index.replace(())
    if planned.aborted is not None and (planned.aborted or has_txn_index):
        segment.txn_index.replace(planned.aborted)
        if not planned.aborted:
            files.fs.remove(segment.txn_index.path)
            files.forget(segment.txn_index.path, sync=False)
    return segment


def _write_snapshots(fs: FileSystem, plan: PartitionPlan) -> None:
    """Write the planned snapshots, and remove the snapshots that belong to no offset of this log
    (ProducerStateManager).
    """
    for offset, data in plan.snapshots.items():
        path = plan.directory / segment_name(offset, names.SNAPSHOT)
        if offset in plan.snapshot_offsets and fs.read_bytes(path) == data:
            continue
        write_durably(fs, path, data)
    bases = {segment.base_offset for segment in plan.segments}
    highest = max(plan.snapshot_offsets | set(plan.snapshots), default=0)
    last_base = max(bases, default=0)
    for offset in plan.snapshot_offsets - set(plan.snapshots):
        stray = offset not in bases and not last_base < offset == highest
        if stray or offset > plan.next_offset or offset <= plan.start_offset:
            fs.remove(plan.directory / segment_name(offset, names.SNAPSHOT))
