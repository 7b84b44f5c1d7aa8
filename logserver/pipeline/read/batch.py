"""Batch reads of Spark: partitions are planned on the driver, Arrow record batches are built on the executors.

Owns two reader classes, because Spark calls `pushFilters` of a reader that has it. Spark 4.3 keeps the plan that
filters have narrowed, and uses it again for another query on the same DataFrame without them: rows are missing there.
So the reader with filters is used on request only. Must not interpret options.
"""

from __future__ import annotations

import gc
import logging
from collections.abc import Iterable, Iterator
from functools import cache
from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition
from pyspark.sql.types import StructType

from logserver.pipeline.read.options import ReadOptions
from logserver.pipeline.read.pruning import Pruning, pruning_of
from logserver.pipeline.read.ranges import open_chosen
from storage import Finding, Split
from storage.errors import Corrupt, IoFailure

if TYPE_CHECKING:
    from pyarrow import RecordBatch

_log = logging.getLogger(__name__)

_SKIPPING: Final = (
    "to read the rest, set the option mode=PERMISSIVE, which skips and logs what cannot be read"
)


class SplitPartition(InputPartition):
    """An input partition of Spark: one split, read by one task."""

    def __init__(self, split: Split) -> None:
        super().__init__(split)
        self.split = split


def read_partition(
    partition: InputPartition, schema: StructType, options: ReadOptions
) -> Iterator[RecordBatch]:
    """Yield the rows of one task, on any machine.

    A damaged range raises Corrupt, which names the file, the position and the mode that skips the range. With
    mode=PERMISSIVE the range is logged and the rows after it follow.
    """
    from pyspark.sql.pandas.types import to_arrow_schema

    from logserver.pipeline.read.arrow import record_batches

    _spare_collector()
    # Spark passes a partition of its own if none was planned.
    if not isinstance(partition, SplitPartition):
        return
    try:
        yield from record_batches(
            partition.split,
            to_arrow_schema(schema, timezone="UTC"),
            check_crcs=options.check_crcs,
            on_damage=_warn if options.permissive else None,
        )
    except (Corrupt, IoFailure) as error:
        if options.permissive:
            raise
        message = f"{error.message}; {_SKIPPING}"
        raise type(error)(message, **error.facts()) from error


@cache
def _spare_collector() -> None:
    """Exclude all objects of the process from garbage collection, once per process.

    Spark's worker collects garbage after each task and would inspect all objects that PySpark and pyarrow have created
    on import: 13 ms, as much as reading 10 MB. Objects that exist at the first task stay alive anyway.
    """
    gc.freeze()


def _warn(finding: Finding) -> None:
    where = finding.position, finding.path
    _log.warning("passed over: %s at %s of %s: %s", finding.code, *where, finding.message)


class BatchReader(DataSourceReader):
    """A batch reader that applies the options but no filters."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self.options = options
        self.schema = schema
        self.pruning = Pruning()

    def partitions(self) -> list[InputPartition]:
        """Return one partition for each split. Planned on the driver, from the indexes."""
        chosen = open_chosen(self.options)
        try:
            ranges = self.pruning.applied(chosen.batch_ranges(), chosen.splitter)
            return [SplitPartition(split) for split in chosen.plan(list(ranges))]
        finally:
            chosen.splitter.close()

    def read(self, partition: InputPartition) -> Iterator[RecordBatch]:
        """See read_partition."""
        return read_partition(partition, self.schema, self.options)


class FilteredBatchReader(BatchReader):
    """A batch reader that leaves out rows by filters on topic, partition, offset and timestamp."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """Use filters to narrow the ranges; return all filters.

        Spark applies the returned filters to the rows again, so pruning has to be safe but need not be exact.
        """
        self.pruning = pruning_of(filters)
        return filters
