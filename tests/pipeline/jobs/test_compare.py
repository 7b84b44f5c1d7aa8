"""One workload in both formats: every measurement of both, from stores that hold the whole workload."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from logserver.cli.failures import USAGE
from storage import open_store
from storage.errors import InvalidArgument
from tests.cli.runner import run

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.spark
@pytest.mark.slow
def test_both_hold_the_workload(spark: SparkSession, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    from logserver.pipeline.jobs import compare

    workload = compare.Workload(records=500, lookups=20, repeats=1)
    report = compare.run(spark, tmp_path / "compared", workload)
    rows = {(row["backend"], row["measure"]): row for row in report.collect()}
    wanted = {(backend, name) for backend in compare.BACKENDS for name in compare.MEASURES}
    assert rows.keys() == wanted
    assert all(0 < row["minimum"] <= row["median"] <= row["maximum"] for row in rows.values())
    for backend in compare.BACKENDS:
        assert rows[backend, "size"]["median"] > workload.value_bytes
        with open_store(backend, tmp_path / "compared" / f"{backend}-0", read_only=True) as store:
            page = store.find(compare.TOPIC, key="k-321")
            assert [record.key for _, record in page.records] == [b"k-321"]
    compare.plot(report, tmp_path / "compared.svg")
    assert "lookup by key" in (tmp_path / "compared.svg").read_text()
    with pytest.raises(InvalidArgument, match="is there already"):
        compare.run(spark, tmp_path / "compared", workload)


@pytest.mark.spark
def test_a_workload_of_nothing_is_refused() -> None:
    from logserver.pipeline.jobs import compare

    with pytest.raises(InvalidArgument, match="records must be at least 1"):
        compare.Workload(records=0).check()


@pytest.mark.parametrize(
    ("picture", "reported"),
    [("x.foo", "must end in .png or .svg"), ("no/x.svg", "is not a directory")],
)
def test_a_picture_that_cannot_be_drawn_is_refused_before_the_run(
    tmp_path: Path, picture: str, reported: str
) -> None:
    ended = run("pipeline", "compare", tmp_path / "out", "--plot", tmp_path / picture)
    assert (ended.code, reported in ended.err) == (USAGE, True)
    assert not (tmp_path / "out").exists()
