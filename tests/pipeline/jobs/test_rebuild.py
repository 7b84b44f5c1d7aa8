"""The rebuild on Spark equals the real servers' files byte for byte. It reports, installs, or is refused by a lock."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from storage.errors import StoreLocked
from storage.files import RealFileSystem
from storage.rocketmq.state.root import take_lock
from storage.rocketmq.tools import log_tasks
from tests.cli.rocketmq.test_rocketmq_rebuild import KINDS, derived
from tests.cli.runner import run as run_command
from tests.cli.runner import settings_options
from tests.golden import rocketmq_stores, stores
from tests.golden.stores import GoldenPartition

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow]

TXN = GoldenPartition("txn", "txn-mixed-0")


def test_rocketmq(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from logserver.pipeline.jobs import rebuild

    monkeypatch.setattr(log_tasks, "RANGE_BYTES", 10_000)
    golden = rocketmq_stores.golden("small")
    root = rocketmq_stores.copy_store(golden, tmp_path / "store")
    for folder in ("consumequeue", "index"):
        shutil.rmtree(root / folder)
    settings = dict(golden.settings)
    reported = rebuild.run(spark, root, KINDS[0], settings=settings).collect()
    assert reported
    assert not (root / "consumequeue").exists()
    for what in KINDS:
        report = rebuild.run(spark, root, what, write=True, settings=settings).collect()
        assert {row.changed for row in report} == {True}
    assert derived(root) == derived(golden.root)
    assert [path.name for path in tmp_path.iterdir()] == ["store"]


def test_kafka_by_the_command(spark: SparkSession, tmp_path: Path) -> None:
    root = stores.copy_store(TXN.root, tmp_path / "data")
    folder = root / TXN.name
    expected = {path.name: path.read_bytes() for path in folder.glob("*index")}
    gone = sorted(folder.glob("*index"))[::2]
    for path in gone:
        path.unlink()
    ended = run_command("pipeline", "rebuild", folder, "--write", *settings_options(TXN.settings))
    assert ended.code == 0, ended.err
    rows = [json.loads(line) for line in ended.out.splitlines()]
    assert {row["path"] for row in rows if row["changed"]} == {str(path) for path in gone}
    assert {path.name: path.read_bytes() for path in folder.glob("*index")} == expected
    ended = run_command("pipeline", "audit", root, *settings_options(TXN.settings))
    assert (ended.code, ended.out) == (0, b"")


def test_a_dry_run_says_what_would_change(spark: SparkSession, tmp_path: Path) -> None:
    root = stores.copy_store(TXN.root, tmp_path / "data")
    folder = root / TXN.name
    settings = settings_options(TXN.settings)
    gone = sorted(folder.glob("*index"))[::2]
    files = len(sorted(folder.glob("*index")))
    for path in gone:
        path.unlink()
    ended = run_command("pipeline", "rebuild", folder, "--output", "table", *settings)
    *changed, counts, advice = ended.out.decode().splitlines()
    assert sorted(changed) == [f"would change: {path}" for path in gone]
    assert re.fullmatch(rf"{len(gone)} of \d+ files would change", counts)
    assert advice == "to write them, give --write"
    assert not any(path.exists() for path in gone)
    ended = run_command("pipeline", "rebuild", folder, *settings)
    assert {(row["path"], row["changed"]) for row in ended.rows} == {
        (str(path), False) for path in gone
    }
    assert ended.err.splitlines()[-2:] == [counts, advice]
    run_command("pipeline", "rebuild", folder, "--write", *settings)
    ended = run_command("pipeline", "rebuild", folder, "--output", "table", *settings)
    assert re.fullmatch(rb"0 of \d+ files would change\n", ended.out)
    assert len(sorted(folder.glob("*index"))) == files


@pytest.mark.parametrize("what", KINDS)
def test_not_beside_a_server(spark: SparkSession, what: str, tmp_path: Path) -> None:
    from logserver.pipeline.jobs import rebuild

    golden = rocketmq_stores.golden("small")
    root = rocketmq_stores.copy_store(golden, tmp_path / "store")
    lock = take_lock(RealFileSystem(), root)
    with pytest.raises(StoreLocked):
        rebuild.run(spark, root, what, write=True, settings=dict(golden.settings))
    lock.release()
