"""The distribution: its name, what pyproject.toml says of it, and the bounds of what it depends on."""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from logserver.origins import DISTRIBUTION, MARK
from tests.sources import PACKAGES, ROOT, pages, text_of

PYTHONS = ("3.11", "3.12", "3.13", "3.14")

# Distributions whose private names are used, and the module that uses them: each has an upper bound.
PRIVATE = {
    "aiohttp": "api/connection/aiohttp_private.py",
    "aiokafka": "scripts/bench/codecs.py",
    "pyspark": "logserver/pipeline/session.py",
}
# Modules that read a private attribute of something that is not `self`, and of what.
PRIVATE_READERS = {
    "logserver/pipeline/launch.py": "pyspark",
    "logserver/pipeline/session.py": "pyspark",
    "storage/files/handles.py": "a class of the same module",
}


def project() -> dict[str, Any]:
    """Return the table [project] of pyproject.toml."""
    found: dict[str, Any] = tomllib.loads(text_of(Path("pyproject.toml")))["project"]
    return found


def requirements() -> dict[str, Requirement]:
    """Return every requirement of the project and of its extras by name."""
    extras = project()["optional-dependencies"].values()
    lines = [*project()["dependencies"], *(line for extra in extras for line in extra)]
    return {found.name: found for found in map(Requirement, lines)}


def test_the_distribution_has_one_name() -> None:
    assert project()["name"] == DISTRIBUTION
    assert (f"DISTRIBUTION = {DISTRIBUTION!r}").replace("'", '"') in text_of(
        Path("scripts/check_wheel.py")
    )
    for name in ("storage", "api"):
        assert MARK in (ROOT / name / "__init__.py").read_bytes().splitlines()


def test_no_page_and_no_message_installs_a_strangers_package() -> None:
    """`logserver` is the name of another project's distribution."""
    foreign = re.compile(
        r"\b(?:pip|pipx|uv|uv tool) install[^\n`]*(?<![./\w-])logserver\b|logserver\[\w"
    )
    sources = [path.relative_to(ROOT) for name in PACKAGES for path in (ROOT / name).rglob("*.py")]
    scripts = [path.relative_to(ROOT) for path in (ROOT / "scripts").iterdir() if path.is_file()]
    found = [
        f"{path}: {match[0]}"
        for path in [*pages(), *sources, *scripts]
        for match in foreign.finditer(text_of(path))
    ]
    assert found == []


def test_the_classifiers_name_the_pythons_that_are_supported() -> None:
    prefix = "Programming Language :: Python :: 3."
    named = [line for line in project()["classifiers"] if line.startswith(prefix)]
    assert named == [f"Programming Language :: Python :: {version}" for version in PYTHONS]
    supported = SpecifierSet(project()["requires-python"])
    assert [version for version in ("3.10", *PYTHONS) if version in supported] == list(PYTHONS)
    assert "Typing :: Typed" in project()["classifiers"]


def test_every_package_ships_its_types() -> None:
    data = tomllib.loads(text_of(Path("pyproject.toml")))["tool"]["setuptools"]["package-data"]
    assert {name for name, files in data.items() if "py.typed" in files} == set(PACKAGES)
    assert [name for name in PACKAGES if not (ROOT / name / "py.typed").is_file()] == []


def test_a_library_whose_private_names_are_used_has_an_upper_bound() -> None:
    for name, path in PRIVATE.items():
        bounds = {bound.operator for bound in requirements()[name].specifier}
        assert "<" in bounds, f"{path} uses private names of {name}"
        assert name in text_of(Path(path))


def test_private_names_are_used_in_known_places() -> None:
    command = [sys.executable, "-P", "-m", "ruff", "check", "--isolated", "--select", "SLF001"]
    options = ["--ignore-noqa", "--output-format", "json", "--exit-zero", *PACKAGES]
    done = subprocess.run([*command, *options], cwd=ROOT, capture_output=True, check=True)
    readers = {
        Path(row["filename"]).relative_to(ROOT).as_posix() for row in json.loads(done.stdout)
    }
    assert readers == PRIVATE_READERS.keys()
    imported = re.compile(
        r"^\s*(?:from|import) [\w.]*\b(\w+)\.[\w.]*\b_[a-z]|^\s*from [\w.]+ import _[a-z]", re.M
    )
    importing = {
        str(path.relative_to(ROOT))
        for folder in (*PACKAGES, "scripts")
        for path in (ROOT / folder).rglob("*.py")
        if imported.search(text_of(path.relative_to(ROOT)))
    }
    assert importing == {PRIVATE["aiokafka"]}


def test_pyproject_follows_its_schemas() -> None:
    """The parts for installers, for setuptools and for each tool of which a schema is known, such as cibuildwheel."""
    done = _validated(ROOT / "pyproject.toml")
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("right", "wrong", "where"),
    [
        ('build-frontend = "build"', 'build-frontend = "make"', "tool.cibuildwheel.build-frontend"),
        ("build-verbosity = 1", 'build-verbose = "1"', "tool.cibuildwheel"),
        ('requires-python = ">=3.11"', 'requires-python = "3.11 or so"', "project.requires-python"),
    ],
)
def test_the_schemas_are_used(tmp_path: Path, right: str, wrong: str, where: str) -> None:
    text = text_of(Path("pyproject.toml"))
    assert right in text
    broken = tmp_path / "pyproject.toml"
    broken.write_text(text.replace(right, wrong))
    done = _validated(broken)
    assert done.returncode == 1
    assert where in done.stdout + done.stderr


def _validated(path: Path) -> subprocess.CompletedProcess[str]:
    """Run validate-pyproject without the network: with the network it also fetches the list of classifiers."""
    return subprocess.run(
        [sys.executable, "-P", "-m", "validate_pyproject", str(path)],
        capture_output=True,
        text=True,
        env={**os.environ, "VALIDATE_PYPROJECT_NO_NETWORK": "1"},
        check=False,
    )


def test_the_scripts_show_the_downloads_that_take_time() -> None:
    printed = "Collecting pyspark\n  Downloading pyspark-4.3.0.tar.gz (434.2 MB)\n  Downloading six.whl (11 kB)\n"
    printed += (
        "Installing collected packages: six, pyspark\nSuccessfully installed pyspark-4.3.0 six-1\n"
    )
    shown = subprocess.run(
        ["bash", "-c", ". scripts/common.sh; downloads"],
        input=printed,
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=True,
    )
    assert shown.stdout.splitlines() == [
        "  downloading pyspark-4.3.0.tar.gz (434.2 MB)",
        "  installing the packages",
    ]


@pytest.mark.skipif(shutil.which("flock") is None, reason="flock is not installed")
def test_a_script_that_waits_for_another_says_so(tmp_path: Path) -> None:
    (tmp_path / "scripts").mkdir()
    shutil.copy(ROOT / "scripts/common.sh", tmp_path / "scripts")
    command = ["bash", "-c", ". scripts/common.sh; lock_venv; echo locked"]
    alone = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=True)
    assert (alone.stdout, alone.stderr) == ("locked\n", "")
    held = os.open(tmp_path, os.O_RDONLY)
    try:
        fcntl.flock(held, fcntl.LOCK_EX)
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path
        ) as waiting:
            assert waiting.stderr is not None
            assert "another script is making .venv" in waiting.stderr.readline()
            fcntl.flock(held, fcntl.LOCK_UN)
            assert waiting.communicate(timeout=60)[0] == "locked\n"
    finally:
        os.close(held)


def test_a_wheel_is_built_for_each_python() -> None:
    settings = tomllib.loads(text_of(Path("pyproject.toml")))["tool"]["cibuildwheel"]
    assert settings["build"] == [f"cp{version.replace('.', '')}-*" for version in PYTHONS]


def test_the_scripts_leave_out_re2_on_musl() -> None:
    lock = text_of(Path("requirements.lock"))
    assert _locked("") == lock
    without = _locked("on_musl() { return 0; };")
    assert "google-re2" in lock
    assert "google-re2" not in without
    blocks = re.split(r"^(?=[\w.-]+==)", lock, flags=re.MULTILINE)
    assert without == "".join(block for block in blocks if not block.startswith("google-re2=="))


def _locked(change: str) -> str:
    """Return what scripts/common.sh installs from requirements.lock."""
    code = f'. "{ROOT}/scripts/common.sh"; venv={sys.prefix}; {change} locked requirements.lock'
    return subprocess.run(["bash", "-c", code], capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize(
    ("command", "is_compiled"),
    [
        ("dist_info", False),
        ("egg_info sdist", False),
        ("bdist_wheel", True),
        ("sdist bdist_wheel", True),
    ],
)
def test_only_a_build_compiles(tmp_path: Path, command: str, is_compiled: bool) -> None:
    """With a stand-in for mypyc, which takes ten seconds each time."""
    for name in ("setup.py", "pyproject.toml", "README.md", "LICENSE", "logserver/__init__.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    (tmp_path / "mypyc").mkdir()
    (tmp_path / "mypyc" / "__init__.py").touch()
    (tmp_path / "mypyc" / "build.py").write_text("def mypycify(*_, **__): raise SystemExit(77)")
    done = subprocess.run(
        [sys.executable, "setup.py", "-q", *command.split()],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == (77 if is_compiled else 0), done.stderr
