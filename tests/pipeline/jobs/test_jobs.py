"""Relative paths mean the caller's folder in every job, not the folder of a task."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from storage import detect
from tests.golden import stores

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow]


def test_relative_paths(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The session's processes were started in another folder."""
    from logserver.pipeline.jobs import audit, convert, export, rebuild

    stores.copy_store(stores.KAFKA / "parts" / "data", tmp_path / "data")
    monkeypatch.chdir(tmp_path)
    data = Path("data")
    assert audit.run(spark, data).where("records > 0").count()
    assert not rebuild.run(spark, data, "indexes").count()
    convert.run(spark, data, Path("converted"), convert.ConvertOptions(to="rocketmq"))
    detected = detect(tmp_path / "converted")
    assert detected is not None
    assert detected.backend == "rocketmq"
    exported = export.run(spark, store=data, out=Path("exported"))
    assert exported.where("rows > 0").count()
    assert list((tmp_path / "exported").glob("topic=*"))
