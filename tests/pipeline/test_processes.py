"""The Python processes that Spark starts for the data source: they take PySpark as it is installed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from logserver.pipeline import PROCESSES, TASKS, register

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ASKED = "import pyspark; print(pyspark.WHO)"


def who(*path: Path) -> list[str]:
    """What a process with this path behind PROCESSES says."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([PROCESSES, *map(str, path)])}
    told = subprocess.check_output([sys.executable, "-c", ASKED], env=environment, text=True)
    return told.split()


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A folder with a package `pyspark` that has Spark's zip of its sources within."""
    package = tmp_path / "site" / "pyspark"
    (package / "python" / "lib").mkdir(parents=True)
    (package / "__init__.py").write_text("WHO = 'installed'")
    with zipfile.ZipFile(package / "python" / "lib" / "pyspark.zip", "w") as archive:
        archive.writestr("pyspark/__init__.py", "WHO = 'zipped'")
    return package.parent


def test_the_zip_of_an_installed_package_is_left_out(site: Path) -> None:
    spare = site / "pyspark" / "python" / "lib" / "pyspark.zip"
    assert who(spare, site) == ["installed"]


def test_any_other_zip_is_taken(site: Path, tmp_path: Path) -> None:
    spare = site / "pyspark" / "python" / "lib" / "pyspark.zip"
    other = spare.rename(tmp_path / "pyspark.zip")
    assert who(other, site) == ["zipped"]
    other.rename(spare)
    assert who(spare) == ["zipped"]  # what is around it cannot be imported


def test_the_module_that_it_hides_is_run(site: Path) -> None:
    (site / "sitecustomize.py").write_text("print('hidden')")
    assert who(site) == ["hidden", "installed"]


def test_several_copies_run_once_each(site: Path, tmp_path: Path) -> None:
    """The sources and the packed code are both in the path of a cluster's workers."""
    (site / "sitecustomize.py").write_text("print('hidden')")
    copies = [shutil.copytree(PROCESSES, tmp_path / name) for name in ("a", "b")]
    assert who(*copies, site) == ["hidden", "installed"]


@pytest.mark.spark
@pytest.mark.slow
def test_a_session_is_left_as_it_was(spark: SparkSession) -> None:
    environment = spark.sparkContext.environment
    before = dict(environment)
    assert before["PYTHONPATH"].split(os.pathsep)[0] == PROCESSES
    assert before[TASKS] == "2"
    for name in ("PYTHONPATH", TASKS):
        del environment[name]
    try:
        register(spark)
        assert environment == {name: before[name] for name in before if name in environment}
        assert "PYTHONPATH" not in environment
    finally:
        environment.update(before)
        register(spark)
