"""`logserver compare`: the outputs for the forms of a report, and the errors for bad input."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from logserver.bench.result import to_json
from tests.bench import results
from tests.cli.runner import command_line, run


@pytest.fixture
def result(tmp_path: Path) -> Path:
    made = results.full()
    made.runs[4].errors.clear()
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


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
@pytest.mark.parametrize("form", ["--report", "--json", "--markdown"])
def test_a_form_that_finds_the_disk_full_is_named(result: Path, form: str) -> None:
    ended = run("compare", "--from", result, form, "/dev/full")
    assert (ended.code, ended.err) == (3, "error: /dev/full: No space left on device\n")


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


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("messageSize", "100", 'messageSize is "100": it must be a whole number'),
        (
            "testDurationMinutes",
            -1,
            "testDurationMinutes is -1: it must be a number from 0 to 1440",
        ),
        ("logserver", None, "logserver is null: it must be an object"),
        ("logserver", {"flush": "now"}, 'it must be "async", "os" or "sync"'),
        ("size", 1, "size is unknown: the possible names are name, topics,"),
    ],
)
def test_a_workload_that_cannot_have_been(
    result: Path, name: str, value: object, said: str
) -> None:
    made = json.loads(result.read_bytes())
    made["runs"][0]["workload"]["fields"][name] = value
    result.write_text(json.dumps(made))
    ended = run("compare", "--from", result)
    assert (ended.code, ended.out) == (2, b"")
    assert ended.err.startswith(
        f"error: {result}: workload '{made['runs'][0]['workload']['name']}': "
    )
    assert said in ended.err


@pytest.mark.parametrize(("value", "said"), [(1e308, "1e308"), (-1, "-1"), ("1", '"1"')])
def test_a_figure_that_cannot_have_been(result: Path, value: object, said: str) -> None:
    made = json.loads(result.read_bytes())
    made["runs"][0]["repeats"][0]["published_records_per_s"] = value
    result.write_text(json.dumps(made))
    ended = run("compare", "--from", result)
    assert (ended.code, ended.out) == (2, b"")
    field = "runs[0].repeats[0].published_records_per_s"
    assert f"{field} is {said}: it must be a number from 0 to 1000000000000000 or null" in ended.err


NO_NUMBERS = b'{"minimum": "1", "median": null, "maximum": 2}'


@pytest.mark.parametrize(
    "data",
    [
        b"[]",
        b'{"bench": "b", "compiled": true, "rows": [{}]}',
        b'{"bench": "b", "compiled": true, "rows": [{"name": "r", "ratio": ' + NO_NUMBERS + b"}]}",
    ],
)
def test_what_is_no_benchmark(result: Path, tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "wrong.json"
    path.write_bytes(data)
    ended = run("compare", "--from", result, "--measured", path)
    assert ended.code == 2
    assert f"{path}: is not the JSON of a benchmark" in ended.err


def test_nothing_is_measured_beside_results(result: Path, tmp_path: Path) -> None:
    for more in (["hot-topic"], ["--result", tmp_path / "kept.json"]):
        ended = run("compare", *more, "--from", result)
        assert ended.code == 2
        assert "--from measures nothing" in ended.err


def test_what_would_lose_a_run_is_told_before_it(tmp_path: Path) -> None:
    """None of these calls measures anything: a run of hours must not end with such an error."""
    target = ("--target", "logserver-kafka")
    for more, said in (
        (("--baseline", "kafka"), "baseline: 'kafka' is none of the targets logserver-kafka"),
        (target, "target: 'logserver-kafka' is given twice"),
        (("--report", tmp_path / "no" / "r.html"), "does not exist"),
        (
            ("--result", "/proc/version/x"),
            "result: /proc/version/x: the folder /proc/version does not exist",
        ),
    ):
        ended = run("compare", "all", *target, *more)
        assert (ended.code, ended.out) == (2, b"")
        assert said in ended.err


def test_no_form_is_lost_to_another_nor_what_is_read_to_any(result: Path, tmp_path: Path) -> None:
    kept, one = result.read_bytes(), tmp_path / "one"
    same = tmp_path / ".." / tmp_path.name / "one"
    for more, said in (
        (("--from", result, "--report", result), f"report: {result}: is an input of the report"),
        (
            ("--from", result, "--json", one, "--markdown", same),
            f"markdown: {same}: is also the file of json",
        ),
        (("all", "--result", one, "--json", one), f"result: {one}: is also the file of json"),
    ):
        ended = run("compare", *more)
        assert (ended.code, ended.out) == (2, b"")
        assert said in ended.err
    assert result.read_bytes() == kept
    assert not one.exists()
    nowhere = ("--json", "/dev/null", "--markdown", "/dev/null")
    assert run("compare", "--from", result, *nowhere).code == 0


@pytest.mark.slow
def test_measured_and_told(tmp_path: Path) -> None:
    page, kept = tmp_path / "r.html", tmp_path / "kept.json"
    ended = run("compare", "hot-topic", "--quick", "--report", page, "--result", kept)
    assert ended.code == 0, ended.err
    assert "Quick run" in page.read_text()
    again = tmp_path / "again.html"
    assert run("compare", "--from", kept, "--report", again).code == 0
    assert again.read_bytes() == page.read_bytes()


@pytest.mark.slow
def test_an_interrupted_run_is_reported_as_far_as_it_came(tmp_path: Path) -> None:
    page, numbers = tmp_path / "r.html", tmp_path / "r.json"
    names = ["hot-topic", *(f"topics-{count}" for count in (1, 64, 256, 1000, 10000))]
    command = command_line("compare", *names, "--quick", "--report", page, "--json", numbers)
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if "hot-topic on logserver-rocketmq: done" in line:
                process.send_signal(signal.SIGINT)
                break
        said = process.stderr.read()
    assert process.returncode == 130, said
    assert "interrupted" in said
    assert "Partial result: interrupted." in page.read_text()
    found = json.loads(numbers.read_bytes())
    assert (found["complete"], found["incomplete_reason"]) == (False, "interrupted")
    assert {figure["workload"] for figure in found["figures"]} >= {"hot-topic"}


@pytest.mark.slow
def test_the_script_is_the_same_command(result: Path, repo_root: Path) -> None:
    script = [sys.executable, str(repo_root / "scripts" / "compare_backends")]
    done = subprocess.run([*script, "--from", result], capture_output=True, check=True)
    assert done.stdout == run("compare", "--from", result).out
