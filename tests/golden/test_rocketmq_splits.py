"""A golden store read in splits has the records that the real RocketMQ read from it, in all columns."""

from __future__ import annotations

import hashlib
import pickle
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from storage import Finding, Splitter, StoreOptions, TopicPartition, open_inspector, open_splitter
from storage.files import RealFileSystem
from storage.rocketmq.log.reading import HIDDEN_PROPERTIES
from tests.column_rows import Row, everything, read_rows
from tests.golden import rocketmq_stores as stores
from tests.golden.rocketmq_stores import GoldenStore, Recipe, by_id


@pytest.fixture(params=stores.all_stores(), ids=by_id)
def golden(request: pytest.FixtureRequest) -> GoldenStore:
    found: GoldenStore = request.param
    return found


@pytest.fixture
def splitter(golden: GoldenStore) -> Iterator[Splitter]:
    found = open_splitter(golden.root, StoreOptions(settings=golden.settings))
    yield found
    found.close()


def expected_rows(golden: GoldenStore) -> dict[TopicPartition, list[Row]]:
    found: dict[TopicPartition, list[Row]] = {}
    for row in golden.expected():
        partition = TopicPartition(row["topic"], row["queueId"])
        found.setdefault(partition, []).append(expected_row(row))
    return found


def expected_row(row: Row) -> Row:
    """Convert a row of expected.jsonl to the names of the columns."""
    properties: dict[str, str] = row["properties"]
    return {
        "offset": row["queueOffset"],
        "timestamp_ms": row["bornTimestamp"],
        "timestamp_type": 0,
        "tag": row["tags"],
        "keys": row["keys"],
        "key": properties.get("__SHARDINGKEY"),
        "unique_id": properties.get("UNIQ_KEY"),
        "headers": {n: v for n, v in properties.items() if n not in HIDDEN_PROPERTIES},
        "properties": properties,
        "message_id": row["msgId"],
        "store_timestamp_ms": row["storeTimestamp"],
        "physical_offset": row["physicalOffset"],
        "sys_flag": row["sysFlag"],
        "flag": row["flag"],
        "reconsume_times": row["reconsumeTimes"],
        "born_host": row["bornHost"],
        "store_host": row["storeHost"],
        "suspect": "",
        "value": stores.plain(row),
    }


def found_row(row: Row) -> Row:
    """Convert a row that was read to the form of an expected row."""
    found: Row = {name: _text(value) for name, value in row.items() if name != "value"}
    for name in ("headers", "properties"):
        found[name] = {_text(key): _text(value) for key, value in row[name]}
        assert len(found[name]) == len(row[name])
    found["value"] = len(row["value"]), hashlib.sha256(row["value"]).hexdigest()
    return found


def _text(value: Any) -> Any:
    return value.decode() if isinstance(value, bytes) else value


@pytest.mark.slow
@pytest.mark.one_in(3)
@pytest.mark.parametrize(
    ("split_bytes", "min_splits"), [(64 << 20, 1), (64 << 20, 5), (10_000, 1), (1, 1)]
)
def test_splits_have_the_records_that_the_real_store_read(
    golden: GoldenStore, splitter: Splitter, split_bytes: int, min_splits: int
) -> None:
    ranges = everything(splitter)
    splits = splitter.plan(ranges, split_bytes=split_bytes, min_splits=min_splits)
    there = {queue: list(map(found_row, rows)) for queue, rows in read_rows(splits).items()}
    assert there == expected_rows(golden)
    records = len(golden.expected())
    assert min(min_splits, records) <= len(splits) <= records
    if split_bytes == 1:
        assert len(splits) == records


def test_bounds_are_those_of_the_real_store(golden: GoldenStore, splitter: Splitter) -> None:
    found = {p: splitter.bounds(p) for p in splitter.partitions()}
    wanted = {queue: bounds for queue, bounds in golden.queues.items() if bounds[1]}
    assert {p: (b.start, b.end) for p, b in found.items() if b.end} == wanted
    assert all(bounds.stable == bounds.end for bounds in found.values())


def test_a_part_of_a_queue_is_read_alone(golden: GoldenStore, splitter: Splitter) -> None:
    for wanted in everything(splitter):
        middle = (wanted.start + wanted.end) // 2
        part = wanted._replace(start=middle)
        found = read_rows(splitter.plan([part], min_splits=3), ["offset"])
        rows = expected_rows(golden).get(wanted.partition, [])
        offsets = [row["offset"] for row in rows if row["offset"] >= middle]
        assert [row["offset"] for row in found.get(wanted.partition, [])] == offsets


def test_a_plan_can_be_read_elsewhere(golden: GoldenStore, splitter: Splitter) -> None:
    splits: Sequence[Any] = splitter.plan(everything(splitter), min_splits=3)
    there = pickle.loads(pickle.dumps(splits))
    assert there == splits
    assert read_rows(there) == read_rows(splits)


def test_nothing_new_is_found_where_nothing_was_written(
    golden: GoldenStore, splitter: Splitter
) -> None:
    before = everything(splitter)
    for _ in range(3):
        splitter.refresh()
        assert everything(splitter) == before


@pytest.mark.slow
@pytest.mark.one_in(3)
@pytest.mark.parametrize("recipe", stores.recipes(), ids=by_id)
def test_of_a_damaged_store_the_rest_is_read(recipe: Recipe, tmp_path: Path) -> None:
    """The rows equal the rows of `dump`, which reads record by record; each missing record has a finding."""
    root = stores.copy_store(recipe.store, tmp_path / "store")
    recipe.apply(RealFileSystem(), root)
    options = StoreOptions(settings=recipe.store.settings)
    inspector = open_inspector(root, options)
    wanted = [
        (
            *(row["topic"], row["queueId"], row.get("cqOffset", row["queueOffset"])),
            row.get("cqPhysicalOffset", row["physicalOffset"]),
        )
        for rows in inspector.dump("records")
        for row in rows
    ]
    inspector.close()
    splitter = open_splitter(root, options)
    for _ in range(2):
        reported: list[Finding] = []
        ranges = everything(splitter)
        splits = splitter.plan(ranges, min_splits=4)
        found = read_rows(splits, ["offset", "physical_offset"], on_damage=reported.append)
        rows = [
            (*queue, row["offset"], row["physical_offset"])
            for queue in sorted(found)
            for row in found[queue]
        ]
        assert rows == wanted
        if not reported:
            assert read_rows(splits, ["offset", "physical_offset"]) == found
        splitter.refresh()
    splitter.close()
