"""Segments that are missing between others, found without reading the logs: each end against the next base.

Owns the quick look of `inspect`; `verify` reads every batch and knows more. Must not look at logs that compaction has
been at: offsets are missing there by design.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from storage.kafka.active_indexes import last_indexed
from storage.kafka.format import names
from storage.kafka.log_file import Batch, walk
from storage.kafka.plan import SegmentPlan
from storage.kafka.tools.holes import hole, left_behind
from storage.kafka.tools.logs import Log
from storage.kafka.tools.view import View
from storage.kept import is_reported
from storage.model import Finding, TopicPartition


def segment_gaps(view: View, address: TopicPartition) -> Iterator[Finding]:
    """Report the offsets between two segments of a partition that no segment holds."""
    configured = view.configs_of(address.topic).get("cleanup.policy", "")
    if address in view.checkpoints[names.CLEANER_OFFSETS] or "compact" in configured:
        return
    segments = view.plan(address).segments
    ends = [_last_batch(view, segment) for segment in segments[:-1]]
    if any(batch is not None and is_compacted(batch) for batch in ends):
        return
    reported = left_behind(view, address)
    for batch, (before, following) in zip(ends, pairwise(segments), strict=True):
        end = before.base_offset if batch is None else batch.header.next_offset
        if batch is None and before.size_bytes:
            continue  # damaged, and reported as such
        if end < following.base_offset and not is_reported(reported, end, following.base_offset):
            log = Log(
                path=following.path,
                base_offset=following.base_offset,
                size_bytes=following.file_bytes,
                topic=address.topic,
                partition=address.partition,
            )
            yield hole(log, 0, expected=end, found=following.base_offset)


def is_compacted(batch: Batch) -> bool:
    """Whether compaction has been at a batch."""
    header = batch.header
    return header.has_delete_horizon or header.count <= header.last_offset_delta


def _last_batch(view: View, segment: SegmentPlan) -> Batch | None:
    """The last good batch of a segment, read from its last index entry on."""
    last = None
    with view.files.borrow(segment.path) as file:
        for item in walk(
            file,
            position=last_indexed(view.fs, file, segment),
            end=segment.file_bytes,
            next_offset=segment.base_offset,
        ):
            last = item if isinstance(item, Batch) else None
    return last
