"""Splits of a workshop's store: planning and reading."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from storage import OffsetRange, StoreOptions
from storage.columns import COMMON_COLUMNS, Split
from storage.kafka.columns.read import read_split
from storage.kafka.columns.splits import KafkaSplitter, open_splitter
from tests.chunks import Row, rows_of
from tests.unit.kafka.workshop import ROOT, Workshop


def splitter_of(shop: Workshop, settings: Mapping[str, str] | None = None) -> KafkaSplitter:
    """Return a splitter of the workshop's store."""
    options = StoreOptions(settings=settings or {})
    return open_splitter(ROOT, options, fs=shop.fs, clock=shop.clock)


def read_rows(shop: Workshop, splits: Sequence[Split]) -> list[Row]:
    """Return all rows of the splits."""
    return [
        row
        for split in splits
        for row in rows_of(
            read_split(split.plan, COMMON_COLUMNS, check_crcs=True, on_damage=None, fs=shop.fs)
        )
    ]


def whole(splitter: KafkaSplitter) -> list[OffsetRange]:
    """Return the ranges of all offsets of all partitions."""
    bounds = {partition: splitter.bounds(partition) for partition in splitter.partitions()}
    return [OffsetRange(partition, b.start, b.end) for partition, b in bounds.items()]


def split_offsets(shop: Workshop, splitter: KafkaSplitter) -> list[int]:
    """Return the offsets of all rows of all partitions, in the order of reading."""
    return [row.offset for row in read_rows(shop, splitter.plan(whole(splitter)))]
