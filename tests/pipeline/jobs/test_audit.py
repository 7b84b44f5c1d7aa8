"""The audit on Spark finds what `verify` finds: nothing in healthy stores, every damage by code and position."""

from __future__ import annotations

from dataclasses import astuple
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from logserver.cli.failures import FINDINGS
from storage import StoreOptions, open_inspector
from storage.errors import NotOffered
from storage.rocketmq.tools import log_tasks
from tests.cli.rocketmq.test_rocketmq_verify import DAMAGES as ROCKETMQ
from tests.cli.runner import run, settings_options
from tests.cli.test_verify import DAMAGES as KAFKA
from tests.golden import rocketmq_stores, stores

if TYPE_CHECKING:
    from pyspark.sql import Row, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow]


def audited(
    spark: SparkSession, root: Path, settings: dict[str, str]
) -> tuple[list[Row], list[Row]]:
    """Return (findings, counts); the findings must equal the findings of `verify`."""
    from logserver.pipeline.jobs import audit

    rows = audit.run(spark, root, settings).collect()
    found = [row for row in rows if row.code is not None]
    inspector = open_inspector(root, StoreOptions(settings=settings))
    assert [tuple(row)[:10] for row in found] == [
        astuple(reported) for reported in inspector.verify()
    ]
    inspector.close()
    return found, [row for row in rows if row.code is None]


@pytest.mark.parametrize(
    "case", ["a bit of a batch", "a missing segment", "another aborted transaction"]
)
def test_kafka_damage(spark: SparkSession, case: str, tmp_path: Path) -> None:
    damage = KAFKA[case]
    root = stores.copy_store(damage.where.root, tmp_path / "data")
    path = damage.inflict(root, root / damage.where.name)
    found, _ = audited(spark, root, dict(damage.where.settings))
    assert (damage.code, damage.severity, str(path), damage.position) in [
        tuple(row)[:4] for row in found
    ]


@pytest.mark.parametrize("case", ["a flipped bit", "a unit to another record", "another hash"])
def test_rocketmq_damage(
    spark: SparkSession, case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_tasks, "RANGE_BYTES", 4000)
    damage = ROCKETMQ[case]
    golden = rocketmq_stores.golden(damage.store)
    root = rocketmq_stores.copy_store(golden, tmp_path / "store")
    path, position = damage.inflict(root)
    found, _ = audited(spark, root, dict(golden.settings))
    assert (damage.code, damage.severity, str(path), position) in [tuple(row)[:4] for row in found]


def test_healthy_stores(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_tasks, "RANGE_BYTES", 10_000)
    golden = rocketmq_stores.golden("small")
    found, counts = audited(spark, golden.root, dict(golden.settings))
    assert found == []
    logs = [row for row in counts if Path(row.path).parent.name == "commitlog"]
    assert sum(row.records for row in logs) == len(golden.expected())
    found, counts = audited(spark, stores.KAFKA / "segments" / "data", {})
    assert found == []
    assert all(row.size_bytes == Path(row.path).stat().st_size for row in counts)
    assert all(bool(row.records) == row.path.endswith(".log") for row in counts)


def test_a_file_alone_has_no_parts(spark: SparkSession) -> None:
    from logserver.pipeline.jobs import audit

    path = next((stores.KAFKA / "segments" / "data").glob("*/*.log"))
    with pytest.raises(NotOffered, match="use logserver verify"):
        audit.run(spark, path)


def test_the_command_says_that_a_store_is_good(spark: SparkSession) -> None:
    root = stores.KAFKA / "segments" / "data"
    ended = run("pipeline", "audit", root, "--output", "table")
    verified = run("verify", root, "--output", "table")
    good, counts = ended.out.decode().splitlines()
    assert good == "nothing is wrong"
    assert (ended.code, counts.partition(" in ")[0]) == (
        0,
        verified.out.decode().splitlines()[1].partition(" in ")[0],
    )
    ended = run("pipeline", "audit", root, "--output", "json")
    assert (ended.code, ended.document) == (0, [])
    assert ended.err.splitlines()[-1].startswith("checked: ")


def test_the_command_shows_findings_as_verify_does(spark: SparkSession, tmp_path: Path) -> None:
    damage = KAFKA["a bit of a batch"]
    root = stores.copy_store(damage.where.root, tmp_path / "data")
    damage.inflict(root, root / damage.where.name)
    options = settings_options(damage.where.settings)
    ended = run("pipeline", "audit", root, "--output", "table", *options)
    verified = run("verify", root, "--output", "table", *options)
    assert ended.code == verified.code == FINDINGS
    assert ended.out.splitlines()[:-1] == verified.out.splitlines()[:-1]
