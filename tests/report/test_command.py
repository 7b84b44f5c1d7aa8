"""`logserver compare`: where the forms of a report go, and what is said of bad input."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from logserver.bench.result import to_json
from tests.cli.runner import run
from tests.report import results


@pytest.fixture
def result(tmp_path: Path) -> Path:
    made = results.full()
    made.runs[0].errors.clear()
    path = tmp_path / "result.json"
    path.write_bytes(to_json(made))
    return path


def test_all_forms_of_a_result(result: Path, tmp_path: Path) -> None:
    page, numbers, text = (tmp_path / name for name in ("r.html", "r.json", "r.md"))
    ended = run(
        "compare", "--from", result, "--report", page, "--json", numbers, "--markdown", text
    )
    assert (ended.code, ended.out, ended.err) == (0, b"", "")
    assert page.read_text().startswith("<!DOCTYPE html>")
    assert json.loads(numbers.read_bytes())["complete"] is True
    printed = run("compare", "--from", result)
    assert printed.out.decode() == text.read_text()


def test_a_partial_result_ends_with_1(tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    path.write_bytes(to_json(results.partial()))
    ended = run("compare", "--from", path)
    assert ended.code == 1
    assert "warning: Partial result: interrupted." in ended.err
    assert "**Partial result: interrupted." in ended.out.decode()


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "is no result of `logserver bench --json`"),
        (b"{}", "is no result"),
        (b'{"format_version": 99}', "format_version: 99"),
        (b"\xff", "is no result"),
    ],
)
def test_what_is_no_result(tmp_path: Path, data: bytes, said: str) -> None:
    path = tmp_path / "wrong.json"
    path.write_bytes(data)
    ended = run("compare", "--from", path)
    assert (ended.code, ended.out) == (2, b"")
    assert f"error: {path}: " in ended.err
    assert said in ended.err
    assert "Traceback" not in ended.err


@pytest.mark.parametrize("data", [b"[]", b'{"bench": "b", "compiled": true, "rows": [{}]}'])
def test_what_is_no_benchmark(result: Path, tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "wrong.json"
    path.write_bytes(data)
    ended = run("compare", "--from", result, "--measured", path)
    assert ended.code == 2
    assert f"{path}: is not the JSON of a benchmark" in ended.err
