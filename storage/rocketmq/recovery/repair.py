"""Repair of a store as its recovery plan says: the only part of a start that writes.

Owns cutting the log, its queues and its index, rebuilding missing entries, and keeping a copy of cut bytes; must not
decide anything (storage.rocketmq.recovery.examine does). On an overlay the same steps produce the read-only view of a
store.
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final

from storage.contract import Progress
from storage.files import copy_range
from storage.repairs import RepairRunner
from storage.rocketmq.format.message import PADDING_SIZE, decode_message, encode_padding
from storage.rocketmq.format.names import file_name
from storage.rocketmq.format.properties import CRC_PROPERTY_SIZE
from storage.rocketmq.index.dispatcher import Builder
from storage.rocketmq.index.index_coverage import keys_beside
from storage.rocketmq.index.key_index import KeyIndex
from storage.rocketmq.index.key_index_mending import mend
from storage.rocketmq.index.queues import Queue
from storage.rocketmq.log.commit_log import store_time_at
from storage.rocketmq.log.filler_records import SMALLEST, fill
from storage.rocketmq.log.scan import Stop, walk_log
from storage.rocketmq.recovery.plan import StorePlan

BAD_PLACE_BYTES: Final = 1 << 16  # limit on the bytes that readers read at a bad place
TOGETHER: Final = 1 << 14  # records whose entries are written together, about
_EVERYTHING: Final = 1 << 62


def keep_aside(plan: StorePlan, kept_dir: Path) -> None:
    """Copy what the plan cuts off the log to `kept_dir`/commitlog/NAME.from-POSITION, and note the copy in the losses.

    The copy is durable on return.
    """
    if plan.data_end <= plan.log_end:
        return
    run, fs = plan.run, plan.run.files.fs
    folder = kept_dir / run.directory.name
    fs.make_dir(folder)
    kept: Path | None = None
    for base in run.bases:
        start = max(plan.log_end - base, 0)
        end = min(plan.data_end - base, run.file_bytes)
        if start < end:
            target = folder / f"{file_name(base)}.from-{start}"
            copy_range(fs, run.path(base), target, start=start, end=end)
            kept = kept or target
    fs.sync_dir(folder)
    plan.losses = [replace(loss, kept_at=str(kept)) for loss in plan.losses]


def apply_log(plan: StorePlan) -> None:
    """Cut the log where the plan says. What the log keeps is on disk on return.

    Bytes after the end are overwritten with zeros. Otherwise records there would become valid again once the log has
    grown up to one of them.
    """
    run = plan.run
    behind = [base for base in run.bases if base >= plan.log_end and base > 0]
    run.remove_in_turn(behind[::-1])
    if plan.data_end > plan.log_end:
        run.zero(plan.log_end, min(plan.data_end, run.limit))
    for base in run.bases:
        if base + run.file_bytes > plan.accepted_from:
            run.distrust(base)
    if run.bases:  # a kill may have come before length and name of the last file were synced
        run.sync(plan.accepted_from, run.limit)
        run.files.fs.sync_dir(run.directory)


def go_on_above(plan: StorePlan, now_ms: int, *, with_crc: bool) -> None:
    """Continue the log in a new file above all used positions, beginning with a record that is in no queue.

    Every later start, of the real store too, then finds the end of the log after that record. Durable on return.
    """
    base, run = plan.go_on_at, plan.run
    if base is None:
        return
    end, fs = plan.log_end, run.files.fs
    if not fs.exists(run.directory):
        fs.make_dir(run.directory)
        fs.sync_dir(run.directory.parent)
    if run.base_of(end) is not None and end % run.file_bytes:
        run.write(end, encode_padding(run.file_end(end) - end))
        run.sync(end, run.file_end(end))
    following = run.file_end(end - 1) if end else 0
    if base > following:
        plan.passed_gaps = [*plan.passed_gaps, (following, base)]
    run.create(base)
    size = SMALLEST + (CRC_PROPERTY_SIZE if with_crc else 0)
    for position, data in fill(
        base, base + size, file_end=base + run.file_bytes, time_ms=now_ms, with_crc=with_crc
    ):
        run.write(position, data)
        plan.last_record = position, decode_message(data)
    run.sync(base, base + size)
    plan.log_end = plan.data_end = base + size


def raise_queues(plan: StorePlan) -> None:
    """Raise queues above the offsets that were used. Durable on return."""
    if plan.go_on_at is None:
        return
    for lost in plan.lost_offsets:
        if lost.certain:
            plan.queues.add(*lost.queue).units.fill_to(lost.used.next_offset)


def apply_queues(plan: StorePlan) -> None:
    """Cut entries that point beyond the end of the log or follow an invalid entry.

    Broken queues lose all their files.
    """
    for queue in plan.queues:
        key = queue.partition
        if key in plan.broken_queues:
            queue.units.discard()
            continue
        cut = plan.queue_ends.get(key)
        if cut is not None or queue.units.is_torn or queue.units.has_empty_files:
            queue.units.cut(queue.units.end if cut is None else cut)


def sync_queues(plan: StorePlan, repair: RepairRunner, progress: Progress) -> None:
    """Sync the entries that the queues keep, as far as they may not be on disk. The log is on disk already."""
    from_position = plan.distrusted_from
    if from_position is None:
        return

    def sync(queue: Queue) -> None:
        queue.units.distrust(queue.units.first_at(from_position))
        queue.units.sync()

    kept = [queue for queue in plan.queues if queue.partition not in plan.broken_queues]
    with closing(repair(sync, kept)) as synced:
        for done, _ in enumerate(synced, 1):
            progress("syncing queues", done, len(kept))


def apply_index(plan: StorePlan, index: KeyIndex, cut_at: int) -> int | None:
    """Remove the doomed index files, and repair the doubtful ones without entries from physical offset `cut_at` on.

    Return from where to index again; None if nothing is to be indexed.
    """
    index.remove_named(plan.doomed_index_files)
    if plan.index_is_lost:
        index.remove_misfits()
    if not plan.doubtful_index_files:
        return plan.build_index_from
    run, time_of = plan.run, partial(store_time_at, plan.run)
    last = mend(run.files, index, plan.doubtful_index_files, log_end=cut_at, time_of=time_of)
    return run.start if last is None else last


def build_missing(
    plan: StorePlan,
    builder: Builder,
    index_from: int | None,
    *,
    progress: Progress,
) -> int | None:
    """Dispatch again what queues or index lack. Return from where on the index then has every record; None for none.

    The returned place is one where a record was met, not one where a record was expected: its source may be wrong.
    """
    queues_from = _EVERYTHING if plan.build_queues_from is None else plan.build_queues_from
    index_from = _EVERYTHING if index_from is None else index_from
    first_indexed = index_from if plan.index_border_again else index_from + 1
    # The last indexed record may have been deleted with the head of the log.
    start = max(min(queues_from, index_from), plan.run.start)
    stops = [damage.next_good for damage in plan.damages] + [end for _, end in plan.passed_gaps]
    known_stops = {plan.log_end, *(damage.position for damage in plan.damages)}
    known_stops |= {gap_start for gap_start, _ in plan.passed_gaps}
    indexed_from: int | None = None
    record_pass = builder.new_pass(queues_from=queues_from, strings_from=first_indexed)
    while start < plan.log_end:
        following = plan.log_end
        for log_range in walk_log(plan.run, start, plan.log_end, check_crc=False):
            if isinstance(log_range, Stop):
                following = log_range.position
                break
            record_pass.take(log_range.data, 0, log_range.size_bytes, log_range.start)
            if record_pass.has_rare:
                builder.build_queues(builder.in_lmqs(log_range, queues_from))
            if record_pass.records >= TOGETHER:
                builder.build_passed(record_pass.taken())
            if index_from < _EVERYTHING:
                if indexed_from is None:
                    indexed_from = max(first_indexed, log_range.start)
                plan.keys_beside += keys_beside(log_range) if record_pass.has_rare else ()
            progress("building queues and index", log_range.last, plan.log_end)
        builder.build_passed(record_pass.taken())
        if following not in known_stops:
            indexed_from = None
        start = min((s for s in stops if s is not None and s > following), default=plan.log_end)
        if start < plan.log_end:
            size_bytes = min(start - following, plan.run.file_bytes - PADDING_SIZE, BAD_PLACE_BYTES)
            builder.pass_over(following, size_bytes, log_start=plan.run.start)
    return indexed_from


def forget_missing_files(plan: StorePlan) -> None:
    """Remove an empty last file, which a crash leaves, from the log and from each queue.

    The real store does the same.
    """
    fs = plan.run.files.fs
    for run in (plan.run, *(queue.units.run for queue in plan.queues)):
        bases = run.bases
        if bases and fs.size(run.path(bases[-1])) == 0:
            run.remove([bases[-1]])
            fs.sync_dir(run.directory)
