"""A foreign package named `storage` or `api`: the command and the library say whose it is, and what to do."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from logserver.origins import misplaced_package
from tests.sources import ROOT

ADVICE = "Install logserver in an environment of its own: pipx install duolog, or "
HOSTILE = "raise ImportError('not this one')\n"


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """Return a folder that resembles site-packages: what `logserver --version` imports, and what it looks at."""
    folder = tmp_path / "site"
    for inner in ("logserver", "logserver/cli", "storage", "api"):
        (folder / inner).mkdir(parents=True)
        for source in (ROOT / inner).glob("*.py"):
            shutil.copy(source, folder / inner)
    return folder


def start(
    *path: Path, code: str = "import runpy; runpy.run_module('logserver', run_name='__main__')"
) -> subprocess.CompletedProcess[str]:
    """Run `logserver --version`, or other code, with these folders first in the path."""
    prefix = f"import sys; sys.path[:0] = {[str(folder) for folder in path]!r}; "
    command = [sys.executable, "-P", "-c", prefix + code, "--version"]
    return subprocess.run(
        command, capture_output=True, text=True, cwd=path[0], env=_without_sources(), check=False
    )


def _without_sources() -> dict[str, str]:
    """Return the environment without the path to the sources that are tested."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}


def refusal(done: subprocess.CompletedProcess[str]) -> str:
    """Return the only line of a command that was refused."""
    assert (done.returncode, done.stdout) == (3, "")
    (line,) = done.stderr.splitlines()
    assert line.startswith("error: the package '")
    assert ADVICE in line
    return line


def test_our_own_packages_are_in_place(installed: Path) -> None:
    assert misplaced_package() is None
    done = start(installed)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("name", ["storage", "api"])
@pytest.mark.parametrize("place", ["{}.py", "{}/__init__.py"])
def test_a_package_earlier_in_the_path(
    installed: Path, tmp_path: Path, name: str, place: str
) -> None:
    foreign = tmp_path / "foreign" / place.format(name)
    foreign.parent.mkdir(parents=True)
    foreign.write_text(HOSTILE)
    line = refusal(start(tmp_path / "foreign", installed))
    assert f"the package {name!r} would be imported from {foreign}, " in line
    assert f"logserver in {installed} needs its own" in line


@pytest.mark.parametrize("name", ["storage", "api"])
def test_a_package_installed_over_ours_is_named_with_its_owner(installed: Path, name: str) -> None:
    (installed / name / "__init__.py").write_text(HOSTILE)
    for owner in ("duolog", "azure-thing"):
        info = installed / f"{owner.replace('-', '_')}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {owner}\nVersion: 1.0\n")
        (info / "RECORD").write_text(f"{name}/__init__.py,,\n")
    line = refusal(start(installed))
    assert f"from {installed / name / '__init__.py'}, which is not a part of logserver" in line
    assert "(installed by azure-thing): " in line


@pytest.mark.parametrize("name", ["storage", "api"])
def test_a_package_that_another_uninstall_removed(installed: Path, name: str) -> None:
    (installed / name / "__init__.py").unlink()
    assert f"{name!r}, a part of logserver, is not in {installed}" in refusal(start(installed))


def test_a_package_without_python_source(installed: Path, tmp_path: Path) -> None:
    """A folder of the same name without `__init__` hides nothing: ours comes later in the path and is a package."""
    (tmp_path / "data" / "storage").mkdir(parents=True)
    assert start(tmp_path / "data", installed).returncode == 0


@pytest.mark.parametrize("name", ["LogServer", "LogClient"])
def test_a_program_gets_an_import_error_with_the_same_text(installed: Path, name: str) -> None:
    (installed / "storage" / "__init__.py").write_text(HOSTILE)
    done = start(installed, code=f"from logserver import {name}")
    error = done.stderr.splitlines()[-1]
    assert error.startswith("ImportError: the package 'storage' would be imported from ")
    assert ADVICE in error


def test_the_working_folder_does_not_come_first(tmp_path: Path) -> None:
    """Without -P the working folder comes first in the path; the line then says how to start."""
    (tmp_path / "storage.py").write_text(HOSTILE)
    command = [sys.executable, "-m", "logserver", "--version"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False)
    line = refusal(done)
    assert str(tmp_path) in line
    assert "`python -P -m logserver`" in line
