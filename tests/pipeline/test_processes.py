"""The Python processes that Spark starts for the data source use PySpark as it is installed."""

from __future__ import annotations

import importlib
import os
import shutil
import subprocess
import sys
import time
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from logserver.pipeline import register
from logserver.pipeline.processes import PROCESSES, TASKS, of_processes

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ASKED = "import pyspark; print(pyspark.WHO)"


def who(*path: Path) -> list[str]:
    """Return the output of a process with this path after PROCESSES."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([PROCESSES, *map(str, path)])}
    reported = subprocess.check_output([sys.executable, "-c", ASKED], env=environment, text=True)
    return reported.split()


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A folder with a package `pyspark` that contains Spark's zip of its sources."""
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
    assert who(spare) == ["zipped"]  # the package around it cannot be imported


def test_a_package_that_is_found_first_wins_over_the_zips(site: Path, tmp_path: Path) -> None:
    spare = site / "pyspark" / "python" / "lib" / "pyspark.zip"
    other = tmp_path / "other" / "pyspark"
    other.mkdir(parents=True)
    (other / "__init__.py").write_text("WHO = 'other'")
    assert who(spare, other.parent, site) == ["zipped"]
    assert who(spare, site, other.parent) == ["installed"]


def test_the_module_that_it_hides_is_run(site: Path) -> None:
    (site / "sitecustomize.py").write_text("print('hidden')")
    assert who(site) == ["hidden", "installed"]


def test_the_module_that_it_hides_is_what_others_import(site: Path) -> None:
    hidden = site / "sitecustomize"
    hidden.mkdir()
    (hidden / "__init__.py").write_text("from . import inner")
    (hidden / "inner.py").write_text("print('inner')")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([PROCESSES, str(site)])}
    asked = "import sitecustomize; print(sitecustomize.inner.__name__)"
    reported = subprocess.check_output([sys.executable, "-c", asked], env=environment, text=True)
    assert reported.split() == ["inner", "sitecustomize.inner"]


def test_who_imports_it_by_its_full_name_gets_nothing_done() -> None:
    before = sys.path.copy()
    importlib.import_module("logserver.pipeline.processes.sitecustomize")
    assert sys.path == before


def test_several_copies_run_once_each(site: Path, tmp_path: Path) -> None:
    """The path of a cluster's workers contains both the sources and the packaged code."""
    (site / "sitecustomize.py").write_text("print('hidden')")
    copies = [shutil.copytree(PROCESSES, tmp_path / name) for name in ("a", "b")]
    assert who(*copies, site) == ["hidden", "installed"]


@pytest.mark.spark
@pytest.mark.slow
def test_a_session_is_left_as_it_was(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    from pyspark.sql.datasource import DataSourceRegistration

    before = dict(spark.sparkContext.environment)
    assert before["PYTHONPATH"].split(os.pathsep)[0] == PROCESSES
    assert before[TASKS] == "2"
    given: list[dict[str, str]] = []

    def note(kind: object) -> None:
        given.append(spark.sparkContext.environment)

    bare = {name: text for name, text in before.items() if name not in {"PYTHONPATH", TASKS}}
    monkeypatch.setattr(spark.sparkContext, "environment", bare)
    monkeypatch.setattr(DataSourceRegistration, "register", lambda self, kind: note(kind))
    register(spark)
    assert spark.sparkContext.environment is bare
    assert "PYTHONPATH" not in bare
    assert given == [{**bare, "PYTHONPATH": PROCESSES, TASKS: "2"}]


class Context:
    """The context of a session on a cluster."""

    def __init__(self, master: str, **settings: str) -> None:
        self.master = master
        self.defaultParallelism = 2  # Spark's name
        self.environment = {"PYTHONPATH": ""}
        self._settings = {f"spark.{name.replace('_', '.')}": v for name, v in settings.items()}

    def getConf(self) -> dict[str, str]:  # Spark's name
        """See SparkContext."""
        return self._settings


@pytest.mark.parametrize(
    ("context", "tasks"),
    [
        (Context("local[2]"), "2"),
        (Context("local-cluster[3,2,512]"), None),
        (Context("spark://h:7077"), None),
        (Context("spark://h:7077", cores_max="12"), "12"),
        (Context("spark://h:7077", cores_max="12", task_cpus="5"), "2"),
        (Context("yarn", executor_instances="3", executor_cores="4"), "12"),
        (Context("yarn", executor_instances="3", dynamicAllocation_enabled="True"), None),
        (Context("local[2]", task_cpus="2"), "1"),
        (Context("local[2]", default_parallelism="200"), None),
        (Context("yarn", executor_instances="3", executor_cores="4", task_cpus="3"), "3"),
        (Context("yarn", cores_max="12"), None),
        (Context("spark://h:7077", cores_max="10", executor_cores="4"), "8"),
        (Context("spark://h:7077", cores_max="12", executor_instances="3"), "12"),
        (Context("spark://h:7077", cores_max="many"), None),
    ],
)
def test_the_tasks_of_a_cluster_are_told_where_they_are_known(
    context: Context, tasks: str | None
) -> None:
    given = of_processes(SimpleNamespace(sparkContext=context))  # type: ignore[arg-type]
    assert given.get(TASKS) == tasks
    assert given["PYTHONPATH"] == PROCESSES


@pytest.mark.spark
def test_two_threads_that_register_leave_nothing_behind() -> None:
    context = Context("local[2]")
    session: Any = SimpleNamespace(
        sparkContext=context,
        conf=SimpleNamespace(set=lambda name, value: None),
        dataSource=SimpleNamespace(register=lambda kind: time.sleep(0.001)),
    )
    with ThreadPoolExecutor(4) as pool:
        done = [pool.submit(register, session) for _ in range(40)]
        while not all(future.done() for future in done):
            assert dict(context.environment)  # as every call of a UDF does
    assert all(future.exception() is None for future in done)
    assert context.environment == {"PYTHONPATH": ""}
