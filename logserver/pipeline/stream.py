"""Streaming reads of Spark: offsets as its Kafka source keeps them, and a planner that stays open between batches.

Owns the reader classes. One instance lives on the driver, in a process of its own, for as long as the query
runs, and holds the store open; others are made where rows are read, and hold nothing. Must not decide what
options mean.
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

from logserver.pipeline.admission import from_json, share_out, to_json, waiting
from logserver.pipeline.batch import SplitPartition, read_partition
from logserver.pipeline.options import ReadOptions
from logserver.pipeline.ranges import Chosen, Offsets, open_chosen
from storage import OffsetRange, StorageError, TopicPartition

if TYPE_CHECKING:
    from pyarrow import RecordBatch


class RefusedStream(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """In the place of a reader whose options or schema are wrong: raises that whatever is asked first."""

    def __init__(self, error: StorageError) -> None:
        self._error = error

    def getDefaultReadLimit(self) -> ReadLimit:
        """Raises."""
        raise self._error

    def prepareForTriggerAvailableNow(self) -> None:
        """Raises."""
        raise self._error

    def initialOffset(self) -> dict[str, Any]:
        """Raises."""
        raise self._error

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Raises."""
        raise self._error

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """Raises."""
        raise self._error

    def read(self, partition: InputPartition) -> Iterator[RecordBatch]:
        """Raises."""
        raise self._error


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads on from where the checkpoint says; `startingOffsets` and its like count at the first start
    alone.
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
        """Where a new query begins; by default at the end, as Spark's Kafka source."""
        chosen = self._looked()
        chosen.require_named()
        return to_json(chosen.offsets(self.options.start))

    def getDefaultReadLimit(self) -> ReadLimit:
        """What `latestOffset` is given back, unless a trigger wants all there is."""
        if self.options.max_offsets_per_trigger is not None:
            return ReadMaxRows(self.options.max_offsets_per_trigger)
        if self.options.min_offsets_per_trigger is not None:
            return ReadMinRows(self.options.min_offsets_per_trigger)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        """Records that come later are not for this run."""
        self._final = self._looked().latest()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Where the next micro-batch ends: all there is, or a share of it; new topics and partitions are
        met here.
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
        """What was there at the last look, for the query's progress."""
        return to_json(self._latest) if self._latest else None

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """The splits of a micro-batch, which may be one that was planned before a restart.

        Raises OffsetOutOfRange, UnknownTopic or UnknownPartition where offsets, topics or partitions are
        gone, unless failOnDataLoss is off.
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
        """Let go of open files."""
        if self._chosen is not None:
            self._chosen.splitter.close()
            self._chosen = None

    def _looked(self) -> Chosen:
        """The store as it is at this moment."""
        if self._chosen is None:
            self._chosen = open_chosen(self.options)
        else:
            self._chosen.splitter.refresh()
        return self._chosen

    def _with_new(self, starts: Offsets, ends: Offsets) -> dict[TopicPartition, int]:
        """The starts, with those of partitions that are new: at their first record."""
        new = {at: self._bounds_start(at) for at in ends.keys() - starts.keys()}
        return {**starts, **new}

    def _bounds_start(self, partition: TopicPartition) -> int:
        chosen = self._looked() if self._chosen is None else self._chosen
        return chosen.bounds(partition).start

    def _must_wait(self, starts: Offsets) -> bool:
        """Whether there is less than minOffsetsPerTrigger, for less than maxTriggerDelay."""
        least, now_s = self.options.min_offsets_per_trigger, self._clock_s()
        if least is None or self._final is not None:
            return False
        waited_ms = (now_s - self._last_trigger_s) * 1000
        if waited_ms < self.options.max_trigger_delay_ms and waiting(starts, self._latest) < least:
            return True
        self._last_trigger_s = now_s
        return False
