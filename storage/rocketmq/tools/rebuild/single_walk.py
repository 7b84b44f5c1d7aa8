"""A rebuild in this process: one walk over the log, whose entries and strings go to the engine's own builders at once.

Owns the comparison of files as soon as they are complete; must not put files in place. Without `write` a compared file
is removed, so that memory holds a piece of the new files at a time.
"""

from __future__ import annotations

from storage.contract import Clock
from storage.files import HandleCache
from storage.rocketmq.index.dispatcher import Builder, BuildOptions, Last
from storage.rocketmq.index.key_index import KeyIndex
from storage.rocketmq.index.record_pass import STRING_SIZE
from storage.rocketmq.tools.log_tasks import RangeTask
from storage.rocketmq.tools.rebuild.files import (
    BuiltFiles,
    Site,
    compare_queue,
    finish_queues,
    is_same,
)
from storage.rocketmq.tools.rebuild.log_range import DispatchWalk, only_strings
from storage.rocketmq.tools.snapshot import snapshot_of
from storage.rocketmq.tools.unrecovered import UnrecoveredStore
from storage.shared.diagnostics import Meter, Notes


def build_here(
    site: Site,
    raw: UnrecoveredStore,
    files: HandleCache,
    meter: Meter,
    *,
    for_queues: bool,
    clock: Clock,
) -> BuiltFiles:
    """Build and compare all queues, or all index files; durable on return."""
    notes, log = Notes(), raw.run
    everything = RangeTask(start=log.start, until=log.limit)
    walk = DispatchWalk(
        snapshot_of(raw), raw, everything, notes, for_queues=for_queues, meter=meter
    )
    built = BuiltFiles()
    if for_queues:
        _build_queues(site, files, walk, built)
    else:
        _build_index(site, files, walk, built, clock)
    last = walk.last
    built.last = None if last is None else Last(last.physical_offset, last.store_timestamp_ms)
    built.left_out, built.begun = walk.left_out, set(walk.begun)
    built.gaps, built.notes = walk.gaps, notes.all()
    return built


def _build_queues(site: Site, files: HandleCache, walk: DispatchWalk, built: BuiltFiles) -> None:
    queues = site.queues(files)
    builder = Builder(queues, None, {}, BuildOptions(with_fillers=site.with_fillers))
    built.refused = builder.refused
    for passed in walk.passes():
        builder.build_passed(passed)
        for queue in () if site.write else queues:
            units = queue.units
            built.files += compare_queue(
                site, units, queue.partition, built.compared, finished=False
            )
    finish_queues(site, builder, built)


def _build_index(
    site: Site,
    files: HandleCache,
    walk: DispatchWalk,
    built: BuiltFiles,
    clock: Clock,
) -> None:
    slots, entries = site.sizes.index_slots, site.sizes.index_entries
    index = KeyIndex(files, site.made, slots=slots, entries=entries, clock=clock)

    def compare(*, finished: bool) -> None:
        done = index.index_files if finished else index.index_files[:-1]
        for file in done:
            old = site.old_index_file(built.files, file.path.name)
            built.compared[old] = is_same(site.fs, file.path, site.old_fs, old)
            built.files += 1
        if done and not finished:
            index.delete_before(done[-1].header.end_physical_offset + 1)

    for passed in walk.passes():
        index.put_strings(passed.strings)
        built.strings += len(only_strings(passed.strings)) // STRING_SIZE
        if not site.write:
            compare(finished=False)
    index.sync()
    built.index_end_ms = index.end_timestamp_ms
    compare(finished=True)
