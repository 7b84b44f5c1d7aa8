"""`logserver dump` and `find` print what the real RocketMQ read from every golden store, also after a crash."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.runner import fine, run, settings_options
from tests.golden import rocketmq_checks as checks
from tests.golden import rocketmq_stores as stores
from tests.golden.rocketmq_stores import GoldenStore, by_id

each_store = pytest.mark.parametrize("golden", stores.all_stores(), ids=by_id)
RECORDS, QUERIES, TIMES = 2622, 1355, 1678
TELLING = ("basic", "many", "small", "times", "deleted-head", "unclean", "unclean-late")
"""The stores with a full index file: slot and entry counts can be derived from it and its length."""


@each_store
def test_records(golden: GoldenStore) -> None:
    checks.check_records(golden)


@pytest.mark.parametrize("name", ["bodies", "broker"])
def test_bodies_are_whole(name: str) -> None:
    checks.check_bodies(stores.golden(name))


@each_store
def test_the_commit_log(golden: GoldenStore) -> None:
    checks.check_commit_log(golden)


@each_store
def test_index_files(golden: GoldenStore) -> None:
    checks.check_index_files(golden)


@each_store
def test_the_index_gives_the_real_answers(golden: GoldenStore) -> None:
    checks.check_raw_answers(golden)


@each_store
def test_find_gives_the_real_answers_less_collisions(golden: GoldenStore) -> None:
    checks.check_answers(golden)


def test_find_prints_rows_of_dump() -> None:
    golden = stores.golden("basic")
    options = settings_options(golden.settings)
    expected = {row["physicalOffset"]: row for row in golden.expected()}
    query = next(q for q in golden.json("queries.json") if len(q["result"]) > 2)
    found = fine(
        "find", golden.root, "--topic", query["topic"], "--key", query["key"], *options
    ).rows
    assert [stores.by_golden_order(stores.shown(row)) for row in found] == [
        expected[offset] for offset in query["result"]
    ]


@pytest.mark.parametrize("name", TELLING)
def test_the_sizes_are_told_by_the_files(name: str) -> None:
    golden = stores.golden(name)
    assert fine("dump", golden.root).rows == checks.dump(golden)
    found = fine("dump", golden.root, "--what", "indexfile").rows
    assert found == checks.dump(golden, "--what", "indexfile")


def test_a_commit_log_file_of_the_wrong_length(tmp_path: Path) -> None:
    golden = stores.golden("small")
    root = stores.copy_store(golden, tmp_path / "store")
    file = f"commitlog/{16384:020}"
    (root / file).write_bytes((root / file).read_bytes()[:-1])
    for command in ("inspect", "dump", "verify"):
        ended = run(command, root, *settings_options(golden.settings))
        assert ended.code in (1, 3)
        assert file in ended.out.decode() + ended.err


@pytest.mark.parametrize("name", stores.CLEAN)
def test_verify_finds_nothing_wrong(name: str) -> None:
    golden = stores.golden(name)
    rows = fine("verify", golden.root, *settings_options(golden.settings)).rows
    assert {row["severity"] for row in rows} <= {"info"}


def test_the_expectations_are_all_there() -> None:
    everything = stores.all_stores()
    assert sum(len(golden.expected()) for golden in everything) == RECORDS
    assert sum(len(golden.json("queries.json")) for golden in everything) == QUERIES
    assert sum(len(golden.json("times.json")) for golden in everything) == TIMES


def test_every_store_is_named() -> None:
    folders = {path.name for path in stores.ROCKETMQ.iterdir() if path.is_dir()}
    assert folders == {stores.LIGHT, *(golden.name for golden in stores.all_stores())}
