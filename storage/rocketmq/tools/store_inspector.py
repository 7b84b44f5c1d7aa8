"""A store, or some of its queues, as SupportsInspect.

Owns the dispatch from the contract to the tools of this package, and the checks of arguments; must
not know byte formats.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from storage.contract import Counted, Progress, TaskRunner, no_progress, not_counted
from storage.errors import InvalidArgument
from storage.model import (
    Bound,
    Finding,
    FindQuery,
    Isolation,
    LossReport,
    OffsetBounds,
    RebuildReport,
    TimedOffset,
    TopicPartition,
)
from storage.rocketmq.recovery.evidence import lost_head_findings, missing_config_findings
from storage.rocketmq.state.root import BACKEND
from storage.rocketmq.tools import dump, search, summary
from storage.rocketmq.tools.compacted.rows import store_rows
from storage.rocketmq.tools.rebuild import rebuild
from storage.rocketmq.tools.salvage.salvage import Salvage
from storage.rocketmq.tools.unrecovered import UnrecoveredStore
from storage.rocketmq.tools.verify import verify
from storage.rocketmq.tools.view import View
from storage.shared.inspector import StoreInspectorBase


class StoreInspector(StoreInspectorBase):
    """Inspection of a store; see SupportsInspect."""

    backend = BACKEND

    def __init__(self, view: View, *, adopted: bool | None, part: str | None = None) -> None:
        """Create the inspector. `view` is opened on first use: verify and rebuild need files that recovery has not
        changed. `part` is the default kind of dump, if PATH named a folder of the store.
        """
        self._part = part
        self._view = view
        self._adopted = adopted

    def summary(self) -> Mapping[str, object]:
        self._view.with_dledger = True
        return summary.of_view(self._view, adopted=self._adopted)

    def dump(
        self,
        what: str,
        *,
        topic: str | None = None,
        partition: int | None = None,
        isolation: Isolation = Isolation.READ_UNCOMMITTED,
    ) -> Iterator[Sequence[Mapping[str, object]]]:
        """See SupportsInspect. Also raises UnknownTopic, UnknownPartition. `isolation` has no effect: uncommitted
        records are in no queue that consumers read.
        """
        dump.check_kind(what, dump.KINDS)
        if what == dump.COMPACTED:
            return dump.in_runs(store_rows(self._view, topic, partition))
        return dump.rows_of(self._view, what, self._view.select(topic, partition))

    def dump_kinds(self) -> Sequence[str]:
        if self._part is None:
            return dump.KINDS
        return (self._part, *(kind for kind in dump.KINDS if kind != self._part))

    def partitions(self) -> Sequence[TopicPartition]:
        return self._view.addresses

    def bounds(self, partition: TopicPartition) -> OffsetBounds:
        return self._view.store.bounds(partition)

    def offset_for_time(self, partition: TopicPartition, timestamp_ms: int) -> TimedOffset | None:
        """See SupportsInspect. Searches by store time, with the real store's results."""
        return self._view.store.offset_for_time(partition, timestamp_ms, bound=Bound.LOWER)

    def find(self, query: FindQuery) -> Iterator[Mapping[str, object]]:
        return search.in_view(self._view, query)

    def audit(
        self, run: TaskRunner, *, progress: Progress = no_progress, counted: Counted = not_counted
    ) -> Iterator[Finding]:
        """See SupportsParts. There is a part for every log range, then parts for the remaining entries."""
        view = self._view
        raw = UnrecoveredStore(view.root, view.options, fs=view.base, clock=view.clock)
        try:
            yield from verify.check_store(raw, progress, run=run, counted=counted)
        finally:
            raw.close()

    def rebuild_kinds(self) -> Sequence[str]:
        return rebuild.KINDS

    def rebuild_in_parts(
        self, what: str, run: TaskRunner, *, write: bool = False, progress: Progress = no_progress
    ) -> RebuildReport:
        """See SupportsParts. The parts are log ranges, then groups of queues, or index files."""
        return rebuild.rebuild(self._view, what, write=write, progress=progress, run=run)

    def salvage(self, target: Path, *, progress: Progress = no_progress) -> LossReport:
        """See SupportsInspect. Raises InvalidArgument for a topic or queue, because all queues share one log."""
        view = self._view
        if not view.is_whole:
            raise InvalidArgument(
                f"salvage needs the whole store, not a {view.kind}: its log is one for all queues",
                field="path",
            )
        options = replace(view.options, progress=progress)
        raw = UnrecoveredStore(view.root, options, fs=view.base, clock=view.clock)
        try:
            raw.forget_foreign()
            raw.evidence = raw.read_evidence()
            salvage = Salvage(
                raw,
                raw.sizes,
                options,
                path=view.root,
                directory=raw.directory,
                clock=view.clock,
            )
            salvage.findings += raw.findings
            salvage.findings += lost_head_findings(raw.run, raw.queues, clean=raw.clean)
            salvage.findings += missing_config_findings(raw.directory)
            return salvage.run(target)
        finally:
            raw.close()

    def findings(self) -> Sequence[Finding]:
        return self._view.findings()

    def close(self) -> None:
        self._view.close()
