"""What the pipeline needs is checked before Spark is started, and all that is missing is in one line."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from logserver.pipeline import needs

ROOT = Path(__file__).resolve().parent.parent.parent


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """An empty folder that is PATH; no other variable names a Java or a Python."""
    for name in ("JAVA_HOME", "PYSPARK_PYTHON", "PYSPARK_GATEWAY_PORT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    return tmp_path


def put_java(folder: Path, *lines: str) -> Path:
    """Create a program `java` that prints these lines on standard error, as `java -version` does."""
    folder.mkdir(exist_ok=True)
    java = folder / "java"
    said = "".join(f"echo '{line}' >&2\n" for line in lines)
    java.write_text(f"#!/bin/sh\n{said}")
    java.chmod(0o755)
    return java


def test_the_versions_are_those_of_the_extra() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extra = dict(
        re.findall(r"([a-z]+)>=([\d.]+)", " ".join(project["optional-dependencies"]["spark"]))
    )
    assert {**needs.PACKAGES, **needs.OPTIONAL}.items() <= extra.items()
    assert extra.keys() - {*needs.PACKAGES, *needs.OPTIONAL} == {"matplotlib"}


def test_a_missing_package_and_a_missing_java_are_one_line(
    bare: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(needs, "PACKAGES", {"json": "1", "no_such_module": "1"})
    found = needs.problem()
    assert found is not None
    assert "\n" not in found
    assert re.match(r"the pipeline needs no_such_module: pip install '\w+\[spark\]'; and", found)
    assert "Java 17 or later: there is no java in PATH and JAVA_HOME is not set" in found


@pytest.mark.parametrize(("least", "is_old"), [("8.4", False), ("8.4.99999", True), ("999", True)])
def test_an_old_package_is_named_with_both_versions(
    monkeypatch: pytest.MonkeyPatch, least: str, is_old: bool
) -> None:
    monkeypatch.setattr(needs, "PACKAGES", {})
    monkeypatch.setattr(needs, "OPTIONAL", {"pytest": least})
    monkeypatch.setattr(needs, "version", lambda name: "8.4.2.dev1")
    found = needs.packages_problem()
    assert (found is not None) == is_old
    assert found is None or f"pytest {least} or later, not 8.4.2.dev1" in found


def test_an_optional_package_may_be_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(needs, "PACKAGES", {})
    monkeypatch.setattr(needs, "OPTIONAL", {"no-such-distribution": "1"})
    assert needs.packages_problem() is None


@pytest.mark.parametrize(
    ("said", "reported"),
    [
        ('openjdk version "17.0.15" 2025-04-15', None),
        ('openjdk version "25-ea" 2025-09-16', None),
        ('openjdk version "11.0.25" 2024-10-15', "is Java 11"),
        ('java version "1.8.0_431"', "is Java 8"),
        ("the image is damaged", r"does not start \(the image is damaged\)"),
    ],
)
def test_the_version_of_java(bare: Path, said: str, reported: str | None) -> None:
    java = put_java(bare, said, "more")
    found = needs.java_problem()
    assert (found is None) == (reported is None)
    assert found is None or re.search(f"Java 17 or later: {java} {reported}; install it", found)


def test_java_home_takes_precedence_as_in_spark(
    bare: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_java(bare, 'openjdk version "17.0.15"')
    home = bare / "home"
    monkeypatch.setenv("JAVA_HOME", str(home))
    assert f"JAVA_HOME is {home}, which has no bin/java" in str(needs.java_problem())
    home.mkdir()
    put_java(home / "bin", 'openjdk version "11.0.25"')
    assert "(from JAVA_HOME) is Java 11" in str(needs.java_problem())
    put_java(home / "bin", 'openjdk version "21.0.5"')
    assert needs.java_problem() is None


def test_a_java_that_is_no_program(bare: Path) -> None:
    put_java(bare).write_bytes(b"\x7fELF and no more")
    assert "does not start" in str(needs.java_problem())


def test_spark_submit_has_started_java(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1")
    assert needs.java_problem() is None


def test_a_python_for_tasks_that_does_not_exist(
    bare: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", "/nowhere/python")
    assert "PYSPARK_PYTHON is /nowhere/python" in str(needs.python_problem())
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    assert needs.python_problem() is None


def test_the_check_runs_before_anything_is_installed(bare: Path) -> None:
    """`scripts/pipeline` runs it with a bare Python: no package of site-packages can be imported (-S)."""
    command = [sys.executable, "-S", "-P", "-m", "logserver.pipeline.needs"]
    environment = {"PATH": str(bare), "PYTHONPATH": str(ROOT)}
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert ended.returncode == 1
    assert re.fullmatch(r"error: the pipeline needs Java 17 or later: .*\n", ended.stderr)
    put_java(bare, 'openjdk version "17.0.15"')
    subprocess.run(command, env=environment, check=True)


@pytest.mark.slow
def test_the_script_asks_for_java_first(tmp_path: Path) -> None:
    """In a copy without .venv: nothing is downloaded, no environment is made."""
    clone = tmp_path / "clone"
    (clone / "scripts").mkdir(parents=True)
    for name in ("pipeline", "common.sh"):
        (clone / "scripts" / name).write_bytes((ROOT / "scripts" / name).read_bytes())
    (clone / "logserver").symlink_to(ROOT / "logserver")
    command = ["bash", str(clone / "scripts" / "pipeline"), "audit", "x"]
    environment = {**os.environ, "JAVA_HOME": str(tmp_path / "no-java"), "PYTHON": sys.executable}
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert ended.returncode == 3
    assert re.fullmatch(r"error: the pipeline needs Java 17 or later: .*\n", ended.stderr)
    assert not (clone / ".venv").exists()
