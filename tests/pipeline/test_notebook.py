"""The notebook runs, its outputs are those that it shows, and it is small; pandas has the values of a store."""

from __future__ import annotations

import json
import subprocess
import sys
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.golden import rocketmq_stores, stores

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).resolve().parent.parent.parent
NOTEBOOK = ROOT / "docs" / "pipeline.ipynb"
MAX_BYTES = 200_000
MAX_PICTURE_BYTES = 60_000


@pytest.mark.spark
@pytest.mark.slow
def test_the_outputs_are_those_of_a_run() -> None:
    pytest.importorskip("nbclient")
    command = [sys.executable, "-P", "scripts/run_notebook", "--check"]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr


def cells() -> list[dict[str, Any]]:
    """Return the cells of the committed notebook that have code."""
    notebook = json.loads(NOTEBOOK.read_text())
    return [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]


def test_it_is_small_and_shows_pictures() -> None:
    assert NOTEBOOK.stat().st_size < MAX_BYTES
    outputs = [output for cell in cells() for output in cell["outputs"]]
    pictures = [o["data"]["image/png"] for o in outputs if "image/png" in o.get("data", {})]
    assert len(pictures) == 3
    assert max(map(len, pictures)) < MAX_PICTURE_BYTES
    assert [o for o in outputs if o["output_type"] == "error" or o.get("name") == "stderr"] == []


def test_it_was_run_from_first_to_last() -> None:
    assert [cell["execution_count"] for cell in cells()] == list(range(1, len(cells()) + 1))
    assert "/tmp" not in NOTEBOOK.read_text()


def test_the_page_links_to_it() -> None:
    assert "(pipeline.ipynb)" in (ROOT / "docs" / "pipeline.md").read_text()


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.parametrize(
    "root",
    [
        stores.KAFKA / "codecs" / "data",
        stores.KAFKA / "times" / "data",
        rocketmq_stores.golden("basic").root,
    ],
    ids=["kafka", "times", "rocketmq"],
)
def test_pandas_has_the_values_of_spark(spark: SparkSession, root: Path) -> None:
    """Also with pandas 3, which PySpark warns of: every column of both formats."""
    pytest.importorskip("pandas")
    frame = spark.read.format("logserver").option("includeHeaders", "true").load(str(root))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # with pandas 3: PySpark uses an old keyword of it
        table: Any = frame.toPandas()
    expected = [row.asDict(recursive=True) for row in frame.collect()]
    assert expected
    assert list(table.columns) == frame.columns
    for row, values in zip(expected, table.to_dict("records"), strict=True):
        assert {name: plain(value) for name, value in values.items()} == {
            name: plain(value) for name, value in row.items()
        }


def plain(value: Any) -> Any:
    """Return a value in one form: None for a missing value of pandas, lists for arrays, datetimes for its times."""
    if hasattr(value, "to_pydatetime"):
        value = value.to_pydatetime()
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, list | tuple):
        return [plain(inner) for inner in value]
    if hasattr(value, "asDict"):
        value = value.asDict()
    if isinstance(value, dict):
        return {name: plain(inner) for name, inner in value.items()}
    if isinstance(value, bytearray):
        return bytes(value)
    return None if value != value else value
