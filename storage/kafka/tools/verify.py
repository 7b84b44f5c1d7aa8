"""Verifying a log directory: everything that lies in it is read, and what is wrong is told.

Owns the order of the checks; names and small files are checked by verify_files, logs and indexes by
verify_log. Must not repair: it looks at the files as they lie there, with nothing cleared but
left-over files, and tells beside that what the next start would cut.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from storage.kafka.format import names
from storage.kafka.format.names import segment_name
from storage.kafka.listing import INDEX_SUFFIXES
from storage.kafka.plan import PartitionPlan, SegmentPlan
from storage.kafka.tools import verify_files
from storage.kafka.tools.logs import Log
from storage.kafka.tools.verify_log import LogCheck, Progression
from storage.kafka.tools.view import INDEX_INTERVAL, View
from storage.model import Finding


def check_view(view: View, *, whole: bool) -> Iterator[Finding]:
    """Every finding of a fresh view: of the root, then partition by partition.

    `whole`: the names at the root are looked at too.
    """
    notes = view.notes
    notes.add(*verify_files.check_root(view, whole=whole))
    yield from notes.take()
    compacted = view.checkpoints[names.CLEANER_OFFSETS]
    view.start_meter("verifying", list(view.folders))
    topic_ids: dict[str, str] = {}
    for address in view.folders:
        notes.add(*verify_files.check_names(view, address))
        plan = view.plan(address)
        notes.add(*_check_logs(view, plan, compacted=address in compacted))
        notes.add(*verify_files.check_snapshots(view, plan))
        notes.add(*verify_files.check_small_files(view, plan, topic_ids))
        notes.add(*verify_files.check_against_root(view, plan))
        yield from sorted(notes.take(), key=lambda found: (found.path, found.position or 0))


def _check_logs(view: View, plan: PartitionPlan, *, compacted: bool) -> Sequence[Finding]:
    """Every segment, also those that the next start would cut."""
    segments = [*plan.segments, *plan.removed_segments]
    if not segments:
        return ()
    state = Progression(
        start_offset=plan.start_offset,
        next_offset=segments[0].base_offset,
        epochs=plan.stored_epochs,
        compacted=compacted,
        interval_bytes=_known_interval(view, plan.partition.topic),
    )
    found: list[Finding] = []
    for segment in segments:
        log = Log(
            path=segment.path,
            base_offset=segment.base_offset,
            size_bytes=segment.file_bytes,
            topic=plan.partition.topic,
            partition=plan.partition.partition,
            limit_offset=segment.limit_offset,
        )
        found += _missing(log, segment)
        open_end = segment is segments[-1] and not view.clean
        check = LogCheck(view.reader, log, state, _raw(view, segment), open_end=open_end)
        found += check.run()
    return found if state.compacted else [*found, *state.holes]


def _known_interval(view: View, topic: str) -> int | None:
    """index.interval.bytes, if somebody said it: the default says nothing of a foreign store."""
    if INDEX_INTERVAL not in view.configs_of(topic):
        return None
    return view.settings_of(topic).index_interval_bytes


def _raw(view: View, segment: SegmentPlan) -> dict[str, bytes]:
    """The index files of a segment."""
    found: dict[str, bytes] = {}
    for suffix in INDEX_SUFFIXES:
        if suffix in segment.suffixes:
            path = segment.path.with_name(segment_name(segment.base_offset, suffix))
            found[suffix] = view.fs.read_bytes(path)
    return found


def _missing(log: Log, segment: SegmentPlan) -> Iterator[Finding]:
    for suffix in (names.INDEX, names.TIME_INDEX):
        if suffix not in segment.suffixes:
            yield Finding(
                code="missing-index",
                severity="warning",
                path=str(log.path.with_name(segment_name(segment.base_offset, suffix))),
                topic=log.topic,
                partition=log.partition,
                message="the next start makes it anew",
            )
