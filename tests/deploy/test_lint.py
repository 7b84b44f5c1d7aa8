"""The files for containers and services pass the linters and schemas of their formats, without a network."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.deploy.files import (
    ACTION,
    COMPOSE,
    DEPLOY,
    GITLAB,
    KUBERNETES,
    UNIT,
    WORKFLOW,
    Machine,
)
from tests.sources import ROOT

SCHEMAS = (
    ("vendor.compose-spec", COMPOSE),
    ("vendor.github-actions", ACTION),
    ("vendor.github-workflows", WORKFLOW),
    ("custom.github-workflows-require-timeout", WORKFLOW),
    ("vendor.gitlab-ci", GITLAB),
)
MOST_EXPOSURE = "15"  # of 100, where a unit without any hardening has 96

needs_systemd = pytest.mark.skipif(
    shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed (systemd)"
)


def passes(*command: str | Path) -> None:
    ended = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    assert ended.returncode == 0, ended.stdout + ended.stderr


def tool(name: str) -> Path:
    """Return the path of a tool of the test environment."""
    return Path(sys.executable).parent / name


def test_the_dockerfile_passes_its_linter() -> None:
    passes(tool("hadolint"), "--failure-threshold", "style", "Dockerfile")


@pytest.mark.parametrize(("schema", "path"), SCHEMAS, ids=[schema for schema, _ in SCHEMAS])
def test_files_have_the_schema_of_their_format(schema: str, path: Path) -> None:
    transform = ("--data-transform", "gitlab-ci") if "gitlab" in schema else ()
    passes(tool("check-jsonschema"), "--builtin-schema", schema, *transform, path)


def test_the_manifest_has_the_schemas_of_kubernetes() -> None:
    passes(tool("kubernetes-validate"), "--strict", KUBERNETES)


def test_every_file_is_checked() -> None:
    """A new file needs a check here."""
    checked = {UNIT, KUBERNETES, *(path for _, path in SCHEMAS)}
    assert {path for path in DEPLOY.rglob("*") if path.is_file()} == checked - {COMPOSE}


@pytest.fixture
def unit(machine: Machine) -> Path:
    """The unit with a program that exists on this machine."""
    path = machine.folder / UNIT.name
    text = UNIT.read_text()
    path.write_text(re.sub(r"^ExecStart=\S+", "ExecStart=/bin/true", text, flags=re.MULTILINE))
    return path


@needs_systemd
def test_systemd_accepts_the_unit(unit: Path) -> None:
    """`verify` prints unknown settings and values, and does not fail for all of them."""
    command = ("systemd-analyze", "verify", "--man=no", unit)
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout + ended.stderr) == (0, "")
    unit.write_text(unit.read_text() + "\n[Service]\nNoSuchSetting=1\n")
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert "NoSuchSetting" in ended.stderr


@needs_systemd
def test_the_unit_is_hardened(unit: Path) -> None:
    passes("systemd-analyze", "security", "--offline=yes", f"--threshold={MOST_EXPOSURE}", unit)
