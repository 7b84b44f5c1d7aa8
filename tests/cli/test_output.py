"""Tables, documents and progress for people."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import click
import pytest

from logserver.cli import progress, serve
from logserver.cli.offline.findings import finding_line, finding_lines, finding_row
from logserver.cli.offline.inspect import time_text
from logserver.cli.options import parse_time
from logserver.cli.output import JSON, NDJSON, TABLE, Row, write_rows
from logserver.cli.progress import LateProgress
from logserver.config import Settings
from logserver.remedies import Inspected
from storage import Finding, Progress, RecoveryReport
from storage.display import counted, size_text
from storage.errors import IoFailure
from storage.findings import finding

RUNS: list[list[Row]] = [
    [{"a": 1, "b": b"\x00text\xff"}, {"a": 22, "b": None}],
    [],
    [{"a": 333, "b": b"x" * 300}],
]


class Terminal(io.TextIOWrapper):
    """A standard stream in memory that reports to be a terminal."""

    def __init__(self) -> None:
        super().__init__(io.BytesIO(), encoding="utf-8", write_through=True)

    def isatty(self) -> bool:
        return True

    @property
    def shown(self) -> str:
        """All written text."""
        assert isinstance(self.buffer, io.BytesIO)
        return self.buffer.getvalue().decode()


def terminal(monkeypatch: pytest.MonkeyPatch, stream: str) -> Terminal:
    """Replace a standard stream by a terminal. (pytest would undo the replacement in a fixture.)"""
    made = Terminal()
    monkeypatch.setattr(sys, stream, made)
    return made


def test_lines_of_json(monkeypatch: pytest.MonkeyPatch) -> None:
    stdout = terminal(monkeypatch, "stdout")
    write_rows(RUNS, NDJSON)
    assert [json.loads(line)["a"] for line in stdout.shown.splitlines()] == [1, 22, 333]
    assert json.loads(stdout.shown.splitlines()[0])["b"] == "AHRleHT/"


@pytest.mark.parametrize("runs", [RUNS, [], [[]], RUNS[1:]])
def test_one_document(monkeypatch: pytest.MonkeyPatch, runs: list[list[Row]]) -> None:
    stdout = terminal(monkeypatch, "stdout")
    write_rows(runs, JSON)
    assert [row["a"] for row in json.loads(stdout.shown)] == [r["a"] for run in runs for r in run]


@pytest.mark.parametrize("runs", [RUNS, []])
def test_a_document_is_closed_when_its_rows_end_with_an_error(
    monkeypatch: pytest.MonkeyPatch, runs: list[list[Row]]
) -> None:
    def failing() -> Iterator[list[Row]]:
        yield from runs
        raise IoFailure("the disk is gone", path="p", operation="read", errno=5)

    stdout = terminal(monkeypatch, "stdout")
    with pytest.raises(IoFailure, match="the disk is gone"):
        write_rows(failing(), JSON)
    assert [row["a"] for row in json.loads(stdout.shown)] == [r["a"] for run in runs for r in run]


def test_a_table(monkeypatch: pytest.MonkeyPatch) -> None:
    """A table is as wide as its first run of rows needs; later rows are cut to that width. No value breaks a line."""
    stdout = terminal(monkeypatch, "stdout")
    monkeypatch.setenv("COLUMNS", "60")
    write_rows(RUNS, TABLE)
    assert stdout.shown.split("\n") == [
        "a   b",
        "1   \\x00text\\xff",
        "22  -",
        "3…  xxxxxxxxxxx…",
        "",
    ]


def test_no_rows_are_no_table(monkeypatch: pytest.MonkeyPatch) -> None:
    stdout = terminal(monkeypatch, "stdout")
    write_rows([[]], TABLE)
    assert stdout.shown == ""


def test_topic_partition_and_offset_are_never_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    """Topic, partition and offset are not cut, neither in long first rows nor in a later row that is longer."""
    stdout = terminal(monkeypatch, "stdout")
    first, later = "a" * 41, "b" * 249
    rows: list[Row] = [{"topic": "a", "partition": 0, "offset": 1, "value": "v" * 50}]
    rows.append({"topic": first, "partition": 7, "offset": 2, "value": "v"})
    write_rows(
        [rows, [{"topic": later, "partition": 12345, "offset": 1 << 62, "value": "v"}]], TABLE
    )
    lines = stdout.shown.splitlines()
    assert lines[2].split() == [first, "7", "2", "v"]
    assert lines[3].split() == [later, "12345", str(1 << 62), "v"]
    assert lines[1].endswith("…")  # a value is cut


IN = Inspected(Path("my store"), {"index.interval.bytes": "1024"})


def test_a_finding() -> None:
    found = finding("torn-tail", "x.log", position=7, found="zeros", message="cut")
    assert finding_line(found, IN) == (
        "warning: x.log at 7: cut (found zeros) [torn-tail]; see: logserver explain torn-tail"
    )


def test_a_finding_names_its_place_and_the_command(tmp_path: Path) -> None:
    """The command has the PATH and the options of the call, and its words are quoted for a shell."""
    inspected = IN._replace(path=tmp_path / "my store")
    inspected.path.mkdir()
    found = finding("missing-index", "x.index", topic="orders", partition=0, message="no index")
    command = f"logserver rebuild '{inspected.path}' --what indexes --write --set index.interval.bytes=1024"
    assert finding_line(found, inspected) == (
        f"warning: x.index: orders-0: no index [missing-index]; run: {command}"
    )
    assert finding_row(found, inspected)["help"] == command
    of_file = inspected._replace(path=inspected.path / "0.log", settings={})
    assert finding_row(found, of_file)["help"] == command.partition(" --set")[0]


def test_what_is_no_fault_needs_no_command() -> None:
    found = finding("missing-unit", "x", severity="info", topic="t", partition=3, offset=12)
    assert "help" not in finding_row(found, IN)
    assert finding_line(found, IN).startswith("info: x: t-3 offset 12: ")


def alike(code: str, number: int, partitions: int) -> list[Finding]:
    return [
        finding(code, f"{at}", topic="t", partition=at % partitions, offset=at * 10)
        for at in range(number)
    ]


@pytest.mark.parametrize(
    ("found", "shown"),
    [
        (alike("missing-index", 3, 1), 3),
        (alike("missing-index", 76, 1), 1),
        (alike("missing-index", 76, 5), 1),
        (alike("damaged-batch", 76, 5), 5),  # one line for each partition with an error
        ([*alike("torn-tail", 4, 1), *alike("zero-tail", 4, 1)], 2),
    ],
)
def test_repeats_are_one_line(found: list[Finding], shown: int) -> None:
    assert len(list(finding_lines(found, IN))) == shown
    assert len(list(finding_lines(found, IN, shows_all=True))) == len(found)


def test_errors_come_before_warnings() -> None:
    found = [
        *alike("torn-tail", 2, 1),
        finding("unclean-stop", "x"),
        *alike("damaged-batch", 1, 1),
        *alike("missing-index", 4, 1),
    ]
    lines = list(finding_lines(found, IN))
    assert [line.partition(":")[0] for line in lines] == ["info", "error", *["warning"] * 3]


def test_a_line_for_many_names_the_first_and_their_number() -> None:
    (line,) = finding_lines(alike("missing-index", 76, 5), IN)
    assert line.startswith("warning: 0: t-0 offset 0: ")
    assert "(76 like it, this is the first, in 5 partitions; --all shows each)" in line
    (line,) = finding_lines(alike("damaged-batch", 4, 1), IN)
    assert "(4 like it, this is the first, offsets 0 to 30; --all shows each)" in line


@pytest.mark.parametrize(
    ("size_bytes", "text"),
    [(0, "0 B"), (1023, "1023 B"), (1024, "1.0 KiB"), (3 << 30, "3.0 GiB"), (5 << 40, "5.0 TiB")],
)
def test_sizes(size_bytes: int, text: str) -> None:
    assert size_text(size_bytes) == text


@pytest.mark.parametrize(
    ("number", "text"), [(0, "0 records"), (1, "1 record"), (1001, "1001 records")]
)
def test_numbers_with_their_things(number: int, text: str) -> None:
    assert counted(number, "records") == text


@pytest.mark.parametrize(
    ("time_ms", "text"),
    [
        (None, "-"),
        (-1, "-"),
        (0, "1970-01-01 00:00"),
        (1_700_000_000_000, "2023-11-14 22:13"),
        (1 << 62, str(1 << 62)),
    ],
)
def test_times_on_the_screen(time_ms: int | None, text: str) -> None:
    assert time_text(time_ms) == text


@pytest.mark.parametrize(
    ("text", "time_ms"),
    [
        ("0", 0),
        ("-1", -1),
        ("9223372036854775807", (1 << 63) - 1),
        ("1970-01-01", 0),
        ("1969-12-31T23:59:59.999Z", -1),
        ("2023-11-14T22:13:20+00:00", 1_700_000_000_000),
    ],
)
def test_times_on_the_command_line(text: str, time_ms: int) -> None:
    assert parse_time(text) == time_ms


@pytest.mark.parametrize("text", ["", "-", "now", "1.5", "9223372036854775808", "١٢", "1_000"])
def test_times_that_are_none(text: str) -> None:
    with pytest.raises(ValueError, match=r".*"):
        parse_time(text)


def test_progress_appears_late(monkeypatch: pytest.MonkeyPatch) -> None:
    stderr = terminal(monkeypatch, "stderr")
    with LateProgress() as report:
        report("verifying", 1, 2)
        assert stderr.shown == ""
        monkeypatch.setattr(progress, "PATIENCE_S", 0.0)
        report("verifying", 2, 2)
    assert "verifying" in stderr.shown


@pytest.mark.parametrize(
    ("call", "line"),
    [
        (("verifying", 123 << 20, 2 << 30), "progress: verifying: 123.0 MiB of 2.0 GiB (6 %)"),
        (("examining partitions", 7, 8), "progress: examining partitions: 7 of 8 (87 %)"),
        (("copying", 0, 0), "progress: copying: 0 B of 0 B"),
    ],
)
def test_progress_without_a_terminal_is_a_line_now_and_then(
    call: tuple[str, int, int],
    line: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(progress, "PATIENCE_S", 0.0)
    with LateProgress() as report:
        report(*call)
        assert capsys.readouterr() == ("", "")
        monkeypatch.setattr(progress, "LINE_EVERY_S", 0.0)
        report(*call)
        monkeypatch.setattr(progress, "LINE_EVERY_S", 5.0)
        report(*call)
    assert capsys.readouterr() == ("", f"{line}\n")


def test_progress_without_a_reader_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> None:
        raise BrokenPipeError

    monkeypatch.setattr(progress, "LINE_EVERY_S", 0.0)
    monkeypatch.setattr(click, "echo", broken)
    LateProgress()("reading the commit log", 1, 2)


def test_serve_reports_a_long_recovery_before_it_serves(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(progress, "LINE_EVERY_S", 0.0)
    monkeypatch.setattr(serve, "log_to_stderr", lambda *_: None)

    def run(settings: Settings, started: serve.Tell, note: Progress) -> None:
        note("examining partitions", 7, 8)
        plan = SimpleNamespace(backend="kafka", path=settings.data, read_only=False, notice=None)
        started(
            SimpleNamespace(
                url="http://here",
                kafka=None,
                plan=plan,
                recovery=RecoveryReport(clean_shutdown=True),
            )
        )

    with click.Context(serve.command, obj={"run_server": run}):
        serve._run(Settings())
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "progress: examining partitions: 7 of 8 (87 %)"
    assert lines[1] == "kafka store data at http://here"
