"""The files for contributors below .github/: templates have the shape that the site of the repository reads."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.sources import ROOT

FOLDER = ROOT / ".github"
TEMPLATES = sorted((FOLDER / "ISSUE_TEMPLATE").glob("*.yml"))


def schema_of(path: Path) -> str:
    return "github-issue-config" if path.name == "config.yml" else "github-issue-forms"


def check(path: Path, schema: str) -> subprocess.CompletedProcess[str]:
    """Compare a file with a schema that the tool brings along."""
    command = [sys.executable, "-P", "-m", "check_jsonschema"]
    command += ["--builtin-schema", f"vendor.{schema}", str(path)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: path.name)
def test_a_template_has_the_shape_of_a_form(path: Path) -> None:
    done = check(path, schema_of(path))
    assert done.returncode == 0, done.stdout


def test_the_check_can_fail(tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.yml"
    wrong.write_text(TEMPLATES[0].read_text().replace("type: textarea", "type: essay"))
    assert check(wrong, "github-issue-forms").returncode == 1


def test_the_policies_are_where_they_are_looked_for() -> None:
    names = ("SECURITY.md", "CODE_OF_CONDUCT.md", "pull_request_template.md")
    assert [name for name in names if not (FOLDER / name).is_file()] == []
    assert len(TEMPLATES) > 3
