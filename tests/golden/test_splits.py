"""The splits of a golden store hold what the real consumer read from it, however the store is split."""

from __future__ import annotations

import base64
import pickle
from typing import Any

import pytest

from storage import Isolation, OffsetRange, Splitter, StoreOptions, open_splitter, read_split
from storage.columns import COMMON_COLUMNS, OFFSET, Split
from storage.errors import InvalidArgument
from storage.model import Finding, TopicPartition
from tests.chunks import Row, columns_of, rows_of
from tests.golden import rocketmq_stores, stores
from tests.golden.stores import GoldenPartition
from tests.unit.kafka.workshop import read_around

LEVELS = (
    (Isolation.READ_UNCOMMITTED, "expected.jsonl"),
    (Isolation.READ_COMMITTED, stores.COMMITTED),
)


def whole_range(splitter: Splitter, golden: GoldenPartition) -> OffsetRange:
    bounds = splitter.bounds(golden.address)
    return OffsetRange(golden.address, bounds.start, bounds.end)


def as_line(row: Row) -> dict[str, Any]:
    """Convert a row to the form of expected.jsonl."""
    return {
        "topic": row.partition.topic,
        "partition": row.partition.partition,
        "offset": row.offset,
        "timestamp": row.timestamp_ms,
        "timestampType": ("CreateTime", "LogAppendTime")[row.timestamp_type],
        "key": _text(row.key),
        "value": _text(row.value),
        "headers": [[name, _text(value)] for name, value in row.headers],
    }


def _text(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode()


def lines_of(splits: list[Split]) -> list[dict[str, Any]]:
    """Return all rows of splits that were pickled, as a split is sent to the process that reads it."""
    sent = pickle.loads(pickle.dumps(splits))
    return [as_line(row) for split in sent for row in rows_of(read_split(split, COMMON_COLUMNS))]


@pytest.mark.slow
@pytest.mark.one_in(3)
@pytest.mark.parametrize(("isolation", "expected"), LEVELS, ids=lambda level: str(level))
@pytest.mark.parametrize("golden", stores.partitions(), ids=stores.by_id)
def test_rows_are_those_that_the_real_consumer_read(
    golden: GoldenPartition, isolation: Isolation, expected: str
) -> None:
    if not (golden.expect / expected).exists():
        expected = "expected.jsonl"
    splitter = open_splitter(golden.root)
    wanted = [whole_range(splitter, golden)]
    for split_bytes, min_splits in (
        (64 << 20, 1),
        (64 << 20, 7),
        (64 << 20, 50),
        (1000, 1),
        (1, 1),
    ):
        splits = splitter.plan(
            wanted, split_bytes=split_bytes, min_splits=min_splits, isolation=isolation
        )
        assert lines_of(list(splits)) == golden.lines(expected)
    splitter.close()


@pytest.mark.slow
@pytest.mark.one_in(3)
@pytest.mark.parametrize("golden", stores.partitions(), ids=stores.by_id)
def test_every_range_of_offsets_gives_its_rows(golden: GoldenPartition) -> None:
    expected = [line["offset"] for line in golden.lines("expected.jsonl")]
    splitter = open_splitter(golden.root)
    partition, start, end = whole_range(splitter, golden)
    step = max((end - start) // 12, 1)
    for low in range(start, end, step):
        for high in {low, low + 1, min(low + 5 * step, end), end}:
            splits = splitter.plan([OffsetRange(partition, low, high)], split_bytes=2000)
            chunks = [chunk for split in splits for chunk in read_split(split, {OFFSET})]
            found = [offset for chunk in chunks for offset in columns_of(chunk)[OFFSET]]
            assert found == [offset for offset in expected if low <= offset < high]
    splitter.close()


@pytest.mark.slow
@pytest.mark.one_in(3)
@pytest.mark.parametrize("variant", stores.damaged_variants())
@pytest.mark.parametrize("split_bytes", [1, 3000, 64 << 20])
def test_a_damaged_log_shows_what_can_be_read_of_it(variant: str, split_bytes: int) -> None:
    root = stores.KAFKA / stores.DAMAGED / variant / "data"
    with stores.open_golden(root, {}, read_only=True) as store:
        (topic,) = store.topics()
        partition = TopicPartition(topic, 0)
        expected = [record.offset for record in read_around(store, partition)[0]]
    splitter = open_splitter(root)
    bounds = splitter.bounds(partition)
    wanted = [OffsetRange(partition, bounds.start, bounds.end)]
    found: list[Finding] = []
    for _ in range(2):
        offsets = [
            offset
            for split in splitter.plan(wanted, split_bytes=split_bytes)
            for chunk in read_split(split, {OFFSET}, on_damage=found.append)
            for offset in columns_of(chunk)[OFFSET]
        ]
        assert offsets == expected
        splitter.refresh()
    assert {finding.code for finding in found} <= {"damaged-batch", "misplaced-batch"}
    splitter.close()


@pytest.mark.parametrize("number", ["split_bytes", "min_splits"])
def test_numbers_that_no_plan_has(number: str) -> None:
    small = rocketmq_stores.golden("small")
    for splitter in (
        open_splitter(stores.KAFKA / "parts" / "data"),
        open_splitter(small.root, StoreOptions(settings=small.settings)),
    ):
        for given in (0, -1):
            wrong: dict[str, Any] = {number: given}
            with pytest.raises(InvalidArgument, match=f"{number} must be at least 1, not {given}"):
                splitter.plan([], **wrong)
        splitter.close()
