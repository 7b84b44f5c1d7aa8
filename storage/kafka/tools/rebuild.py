"""Making indexes anew from the logs: offset, time and transaction index of every segment.

Owns what is compared, kept aside and replaced; the rules are the engine's. With `write` it holds the
store's lock all the time, copies every file that it changes to `DIR.cut-TIME` beside the store first,
and replaces files in one step each: a crash leaves old or new ones. Logs are never written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from storage.errors import InvalidArgument
from storage.files import atomic_write
from storage.kafka import indexes
from storage.kafka.directory import detect
from storage.kafka.format import names, offset_index, time_index, txn_index
from storage.kafka.format.batch import BatchHeader
from storage.kafka.format.names import segment_name
from storage.kafka.format.txn_index import AbortedTransaction
from storage.kafka.plan import PartitionPlan, SegmentPlan
from storage.kafka.producers import ProducerStates
from storage.kafka.tools.logs import Log
from storage.kafka.tools.view import View
from storage.model import Finding, RebuildReport

WHAT = "indexes"


def rebuild_indexes(make_view: Callable[[], View], *, write: bool) -> RebuildReport:
    """See SupportsInspect.rebuild. Raises StoreLocked, and InvalidArgument without a store to lock."""
    view = make_view()
    if not write:
        return _Rebuild(view, write=False).run()
    if detect(view.base, view.root) is None:
        raise InvalidArgument(
            f"{view.root} is no log directory: there is nothing to lock, so nothing is written",
            field="write",
        )
    lock = view.base.lock(view.root / names.LOCK)
    try:
        view.close()
        return _Rebuild(make_view(), write=True).run()
    finally:
        lock.release()


class _Rebuild:
    """One pass over the partitions of a view."""

    def __init__(self, view: View, *, write: bool) -> None:
        self._view = view
        view.start_meter("rebuilding indexes", list(view.folders))
        self._write = write
        self._files = 0
        self._changed: list[str] = []
        self._kept_dir = view.root.parent / f"{view.root.name}.cut-{view.clock()}"

    def run(self) -> RebuildReport:
        """Compare, and with `write` replace, every index file."""
        view = self._view
        compacted = view.checkpoints[names.CLEANER_OFFSETS]
        try:
            for address in view.folders:
                self._partition(view.plan(address), compacted=address in compacted)
            if self._write and self._changed:
                view.notes.add(self._kept_aside())
            return RebuildReport(
                what=WHAT,
                written=self._write,
                files=self._files,
                changed=self._changed,
                findings=view.findings(),
            )
        finally:
            view.close()

    def _partition(self, plan: PartitionPlan, *, compacted: bool) -> None:
        producers = ProducerStates()
        for segment in plan.segments:
            if not self._view.base.exists(segment.path):
                continue  # a `.swap` set that the next start completes
            wanted = self._contents(plan, segment, producers)
            if compacted:  # what was aborted cannot be seen any more where compaction went
                del wanted[names.TXN_INDEX]
            self._replace(segment, wanted)

    def _contents(
        self, plan: PartitionPlan, segment: SegmentPlan, producers: ProducerStates
    ) -> dict[str, bytes]:
        """What the index files of a segment should hold; an empty `.txnindex` should not be there."""
        aborted: list[AbortedTransaction] = []
        rebuilt = indexes.rebuild_indexes(
            self._batches(plan, segment, producers, aborted),
            base_offset=segment.base_offset,
            interval_bytes=plan.settings.index_interval_bytes,
        )
        return {
            names.INDEX: b"".join(offset_index.encode_entry(*e) for e in rebuilt.offsets),
            names.TIME_INDEX: b"".join(time_index.encode_entry(*e) for e in rebuilt.times),
            names.TXN_INDEX: b"".join(map(txn_index.encode_entry, aborted)),
        }

    def _batches(
        self,
        plan: PartitionPlan,
        segment: SegmentPlan,
        producers: ProducerStates,
        aborted: list[AbortedTransaction],
    ) -> Iterator[tuple[int, BatchHeader]]:
        """The good batches below the end that recovery leaves; `aborted` is filled on the way."""
        log = Log(
            path=segment.path,
            base_offset=segment.base_offset,
            size_bytes=segment.size_bytes,
            topic=plan.partition.topic,
            partition=plan.partition.partition,
            limit_offset=segment.limit_offset,
        )
        for batch in self._view.reader.batches(log):
            ended = producers.update(batch.header, batch.data, batch.at)
            if ended is not None:
                aborted.append(ended)
            yield batch.position, batch.header

    def _replace(self, segment: SegmentPlan, wanted: Mapping[str, bytes]) -> None:
        for suffix, data in wanted.items():
            path = segment.path.with_name(segment_name(segment.base_offset, suffix))
            stored = self._view.fs.read_bytes(path) if suffix in segment.suffixes else None
            absent = suffix == names.TXN_INDEX and not data
            self._files += not (absent and stored is None)
            if stored == (None if absent else data):
                continue
            self._changed.append(str(path))
            if self._write:
                self._write_file(path, stored, None if absent else data)

    def _write_file(self, path: Path, stored: bytes | None, data: bytes | None) -> None:
        """Keep the old bytes aside, durably, then put the new ones in their place."""
        fs = self._view.base
        if stored is not None:
            kept = self._kept_dir / path.parent.name / path.name
            fs.make_dir(kept.parent)
            atomic_write(fs, kept, stored)
        if data is not None:
            atomic_write(fs, path, data)
        else:
            fs.remove(path)
            fs.sync_dir(path.parent)

    def _kept_aside(self) -> Finding:
        return Finding(
            code="kept-aside",
            severity="info",
            path=str(self._kept_dir),
            message="the files that were there before",
        )
