"""Batch reads of Spark: partitions planned on the driver, Arrow record batches made on the executors.

Owns the two reader classes: Spark refuses one that takes filters unless its setting
`spark.sql.python.filterPushdown.enabled` is on. Must not decide what options mean.
"""

from __future__ import annotations

import gc
import logging
from collections.abc import Iterable, Iterator
from functools import cache
from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition
from pyspark.sql.types import StructType

from logserver.pipeline.options import ReadOptions
from logserver.pipeline.pruning import Pruning, pruning_of
from logserver.pipeline.ranges import open_chosen
from storage import Finding, Split
from storage.errors import Corrupt, IoFailure

if TYPE_CHECKING:
    from pyarrow import RecordBatch

_log = logging.getLogger(__name__)

_SKIPPING: Final = (
    "to read the rest, set the option mode=PERMISSIVE, which skips and logs what cannot be read"
)


class SplitPartition(InputPartition):
    """A split, for one task."""

    def __init__(self, split: Split) -> None:
        super().__init__(split)
        self.split = split


def read_partition(
    partition: InputPartition, schema: StructType, options: ReadOptions
) -> Iterator[RecordBatch]:
    """The rows of one task, on whatever machine it runs. A damaged stretch raises Corrupt, which names the
    file and the position, and the mode that skips it: with mode=PERMISSIVE it is logged, and the rows after it follow.
    """
    from pyspark.sql.pandas.types import to_arrow_schema

    from logserver.pipeline.arrow import record_batches

    _spare_collector()
    if not isinstance(partition, SplitPartition):  # Spark makes another of no partitions at all
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
    """Once in a process. Spark's worker collects garbage behind each of its tasks, and looks at all that PySpark and
    pyarrow have imported each time: 13 ms, as much as reading 10 MB. What is there at the first task stays anyway.
    """
    gc.freeze()


def _warn(finding: Finding) -> None:
    _log.warning("passed over: %s at %s of %s: %s", *_told(finding))


def _told(finding: Finding) -> tuple[str, object, str, str]:
    return finding.code, finding.position, finding.path, finding.message


class BatchReader(DataSourceReader):
    """Reads what the options say."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self.options = options
        self.schema = schema
        self.pruning = Pruning()

    def partitions(self) -> list[InputPartition]:
        """One for each split; planned from the indexes, on the driver."""
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
    """Leaves out what filters on topic, partition, offset and timestamp exclude."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """Take what narrows the ranges. All filters are given back: Spark applies them to the rows, so that
        pruning need only be safe, not exact.
        """
        self.pruning = pruning_of(filters)
        return filters
