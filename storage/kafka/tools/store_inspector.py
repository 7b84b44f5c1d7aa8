"""SupportsInspect for a log directory, or for one partition of it.

Owns the dispatch from the interface to the tools of this package, and the checks of arguments; must not
know bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from storage.contract import Counted, Progress, TaskRunner, no_progress, not_counted
from storage.errors import InvalidArgument, IoFailure
from storage.files import is_missing
from storage.kafka.state.root import BACKEND
from storage.kafka.tools import search, summary
from storage.kafka.tools.dump import CHECKPOINTS, KINDS, check_kind, partition_rows, root_rows
from storage.kafka.tools.internal_topics import (
    DECODED,
    OFFSETS,
    decoded_partitions,
    offset_runs,
    partition_runs,
)
from storage.kafka.tools.live import LOOKS
from storage.kafka.tools.rebuild import INDEXES, rebuild_indexes
from storage.kafka.tools.salvage.salvage import salvage
from storage.kafka.tools.verify import verify
from storage.kafka.tools.view import View
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
from storage.shared.inspector import StoreInspectorBase


class StoreInspector(StoreInspectorBase):
    """An inspector of a log directory or of one partition; see SupportsInspect."""

    backend = BACKEND

    def __init__(self, make_view: Callable[[], View], *, kind: str, adopted: bool | None) -> None:
        """`make_view` returns a fresh view: verify, rebuild and salvage need files without repairs."""
        self._make_view = make_view
        self._view = make_view()
        self._kind = kind
        self._adopted = adopted

    @property
    def _is_store(self) -> bool:
        return self._kind == "store"

    def summary(self) -> Mapping[str, object]:
        looks_left = LOOKS
        while True:
            looks_left -= 1
            try:
                return summary.of_view(self._view, kind=self._kind, adopted=self._adopted)
            except IoFailure as error:
                if not is_missing(error) or not looks_left:
                    raise
            self._view.close()  # a running server replaced or removed files: look again
            self._view = self._make_view()

    def dump(
        self,
        what: str,
        *,
        topic: str | None = None,
        partition: int | None = None,
        isolation: Isolation = Isolation.READ_UNCOMMITTED,
    ) -> Iterator[Sequence[Mapping[str, object]]]:
        """See SupportsInspect. Raises UnknownTopic and UnknownPartition too."""
        check_kind(what, self.dump_kinds())
        if what == DECODED:
            chosen = decoded_partitions(self._view, topic, partition)
            return (run for view, address in chosen for run in partition_runs(view, address))
        addresses = self._view.select(topic, partition)
        if what == OFFSETS:
            everything = topic is None and partition is None
            return offset_runs(self._view, None if everything else set(addresses))
        if what != CHECKPOINTS:
            self._view.note_missing(topic, partition)
        return self._runs(what, addresses, isolation)

    def _runs(
        self, what: str, addresses: Sequence[TopicPartition], isolation: Isolation
    ) -> Iterator[Sequence[Mapping[str, object]]]:
        self._view.start_meter("reading", addresses)
        if what == CHECKPOINTS:
            everything = self._is_store and len(addresses) == len(self._view.folders)
            yield from root_rows(self._view, addresses, everything=everything)
        for address in addresses:
            yield from partition_rows(self._view, address, what, isolation)

    def dump_kinds(self) -> Sequence[str]:
        return (*KINDS, OFFSETS, DECODED)

    def partitions(self) -> Sequence[TopicPartition]:
        return tuple(self._view.folders)

    def bounds(self, partition: TopicPartition) -> OffsetBounds:
        return self._view.partition(partition).bounds()

    def offset_for_time(self, partition: TopicPartition, timestamp_ms: int) -> TimedOffset | None:
        """See SupportsInspect. Raises Corrupt if a damaged batch may hold the answer."""
        return self._view.partition(partition).offset_for_time(timestamp_ms, Bound.LOWER)

    def find(self, query: FindQuery) -> Iterator[Mapping[str, object]]:
        return search.in_view(self._view, query)

    def audit(
        self, run: TaskRunner, *, progress: Progress = no_progress, counted: Counted = not_counted
    ) -> Iterator[Finding]:
        view = self._fresh_view(progress)
        try:
            yield from verify.check_view(view, whole=self._is_store, run=run, counted=counted)
        finally:
            view.close()

    def rebuild_in_parts(
        self, what: str, run: TaskRunner, *, write: bool = False, progress: Progress = no_progress
    ) -> RebuildReport:
        if what != INDEXES:
            raise InvalidArgument(
                f"rebuild: {what!r} is unknown here, only {INDEXES!r} is", field="what"
            )
        return rebuild_indexes(lambda: self._fresh_view(progress), write=write, run=run)

    def rebuild_kinds(self) -> Sequence[str]:
        return (INDEXES,)

    def salvage(self, target: Path, *, progress: Progress = no_progress) -> LossReport:
        view = self._fresh_view(progress)
        try:
            return salvage(view, target, whole=self._is_store)
        finally:
            view.close()

    def _fresh_view(self, progress: Progress) -> View:
        view = self._make_view()
        if progress is not no_progress:
            view.progress = progress
        return view

    def findings(self) -> Sequence[Finding]:
        return self._view.findings()

    def close(self) -> None:
        self._view.close()
