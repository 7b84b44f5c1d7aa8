"""Streaming reads of Spark: offsets in the form of its Kafka source, and a planner that stays open between batches.

Owns the reader classes. One instance lives in a process of the driver as long as the query runs, and keeps the store
open. Other instances are created where rows are read, and keep nothing open. Must not interpret options.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from logserver.pipeline.read.batch import SplitPartition, read_partition
from logserver.pipeline.read.options import ReadOptions
from logserver.pipeline.read.ranges import (
    Chosen,
    Offsets,
    from_json,
    open_chosen,
    share_out,
    to_json,
    waiting,
)
from storage import OffsetRange, StorageError, TopicPartition

if TYPE_CHECKING:
    from pyarrow import RecordBatch


class RefusedStream(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A stand-in for a reader with wrong options or a wrong schema: the first call of any method raises the error."""

    def __init__(self, error: StorageError) -> None:
        self._error = error

    def getDefaultReadLimit(self) -> ReadLimit:
        """Raise the error."""
        raise self._error

    def prepareForTriggerAvailableNow(self) -> None:
        """Raise the error."""
        raise self._error

    def initialOffset(self) -> dict[str, Any]:
        """Raise the error."""
        raise self._error

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Raise the error."""
        raise self._error

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """Raise the error."""
        raise self._error

    def read(self, partition: InputPartition) -> Iterator[RecordBatch]:
        """Raise the error."""
        raise self._error


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A stream reader that continues from the checkpoint; `startingOffsets` and similar options only apply at the first
    start.
    """

    def __init__(
        self,
        options: ReadOptions,
        schema: StructType,
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self.options = options
        self.schema = schema
        self._chosen: Chosen | None = None
        self._latest: Offsets = {}
        self._final: Offsets | None = None
        self._clock_s = clock_s
        self._last_trigger_s = float("-inf")

    def initialOffset(self) -> dict[str, Any]:
        """Return where a new query begins; by default at the end, as in Spark's Kafka source."""
        chosen = self._looked()
        chosen.require_named()
        return to_json(chosen.offsets(self.options.start))

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return the limit that Spark passes to `latestOffset`, unless a trigger reads all available records."""
        if self.options.max_offsets_per_trigger is not None:
            return ReadMaxRows(self.options.max_offsets_per_trigger)
        if self.options.min_offsets_per_trigger is not None:
            return ReadMinRows(self.options.min_offsets_per_trigger)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        """Fix the end offsets of this run: records appended later are not read."""
        self._final = self._looked().latest()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Return where the next micro-batch ends: at the end of all partitions, or after a share of each. New topics
        and partitions are found here.
        """
        self._latest = self._final if self._final is not None else self._looked().latest()
        starts = self._with_new(from_json(start), self._latest)
        if isinstance(limit, ReadAllAvailable):
            return to_json(self._latest)
        if self._must_wait(starts):
            return start
        most = self.options.max_offsets_per_trigger
        return to_json(self._latest if most is None else share_out(most, starts, self._latest))

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """Return the end offsets of the last refresh, for the query's progress report."""
        return to_json(self._latest) if self._latest else None

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """Return the splits of a micro-batch, which may have been planned before a restart.

        Unless failOnDataLoss is off, raises OffsetOutOfRange, UnknownTopic or UnknownPartition if offsets, topics or
        partitions no longer exist. Then it also raises InvalidArgument for a partition that the options no longer
        choose.
        """
        chosen = self._looked() if self._chosen is None else self._chosen
        known, planned = from_json(start), from_json(end)
        there = set(chosen.splitter.partitions())
        for address in sorted((known.keys() - planned.keys()) | (planned.keys() - there)):
            chosen.lose(chosen.missing(address))
        ends = {address: end for address, end in planned.items() if address in there}
        starts = self._with_new(known, ends)
        ranges = list(chosen.checked(OffsetRange(at, starts[at], ends[at]) for at in sorted(ends)))
        return [SplitPartition(split) for split in chosen.plan(ranges)]

    def read(self, partition: InputPartition) -> Iterator[RecordBatch]:
        """See read_partition."""
        return read_partition(partition, self.schema, self.options)

    def stop(self) -> None:
        """Close open files."""
        if self._chosen is not None:
            self._chosen.splitter.close()
            self._chosen = None

    def _looked(self) -> Chosen:
        """Open or refresh the store, and return its present state. The first call checks that no partition is missing:
        see Chosen.check_missing.
        """
        if self._chosen is None:
            chosen = open_chosen(self.options)
            try:
                chosen.check_missing(chosen.latest())
            except BaseException:
                chosen.splitter.close()
                raise
            self._chosen = chosen
        else:
            self._chosen.splitter.refresh()
        return self._chosen

    def _with_new(self, starts: Offsets, ends: Offsets) -> dict[TopicPartition, int]:
        """Return the starts, with new partitions added at their first record."""
        new = {at: self._bounds_start(at) for at in ends.keys() - starts.keys()}
        return {**starts, **new}

    def _bounds_start(self, partition: TopicPartition) -> int:
        chosen = self._looked() if self._chosen is None else self._chosen
        return chosen.bounds(partition).start

    def _must_wait(self, starts: Offsets) -> bool:
        """Return whether fewer than minOffsetsPerTrigger offsets wait, for less than maxTriggerDelay."""
        least, now_s = self.options.min_offsets_per_trigger, self._clock_s()
        if least is None or self._final is not None:
            return False
        waited_ms = (now_s - self._last_trigger_s) * 1000
        if waited_ms < self.options.max_trigger_delay_ms and waiting(starts, self._latest) < least:
            return True
        self._last_trigger_s = now_s
        return False
