"""Tables, documents and progress: what a person sees."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Iterator

import pytest

from logserver.commands import progress
from logserver.commands.inspect import size_text, time_text
from logserver.commands.options import parse_time
from logserver.commands.output import JSON, NDJSON, TABLE, Row, finding_line, write_rows
from logserver.commands.progress import LateProgress
from storage import Finding
from storage.errors import IoFailure

RUNS: list[list[Row]] = [
    [{"a": 1, "b": b"\x00text\xff"}, {"a": 22, "b": None}],
    [],
    [{"a": 333, "b": b"x" * 300}],
]


class Terminal(io.TextIOWrapper):
    """A standard stream in memory that says it is a terminal."""

    def __init__(self) -> None:
        super().__init__(io.BytesIO(), encoding="utf-8", write_through=True)

    def isatty(self) -> bool:
        return True

    @property
    def shown(self) -> str:
        """All that was written."""
        assert isinstance(self.buffer, io.BytesIO)
        return self.buffer.getvalue().decode()


def terminal(monkeypatch: pytest.MonkeyPatch, stream: str) -> Terminal:
    """Put a terminal in the place of a standard stream (in a fixture pytest would undo that)."""
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
    """As wide as the first run needs; later rows are cut to that, and nothing breaks a line."""
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


def test_a_finding() -> None:
    finding = Finding(
        code="torn-tail", severity="warning", path="x.log", position=7, found="zeros", message="cut"
    )
    assert finding_line(finding) == "warning: x.log at 7: cut (found zeros) [torn-tail]"


@pytest.mark.parametrize(
    ("size_bytes", "text"),
    [(0, "0 B"), (1023, "1023 B"), (1024, "1.0 KiB"), (3 << 30, "3.0 GiB"), (5 << 40, "5.0 TiB")],
)
def test_sizes(size_bytes: int, text: str) -> None:
    assert size_text(size_bytes) == text


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
    with LateProgress() as told:
        told("verifying", 1, 2)
        assert stderr.shown == ""
        monkeypatch.setattr(progress, "PATIENCE_S", 0.0)
        told("verifying", 2, 2)
    assert "verifying" in stderr.shown


def test_progress_is_for_terminals(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(progress, "PATIENCE_S", 0.0)
    with LateProgress() as told:
        told("verifying", 1, 2)
    assert capsys.readouterr() == ("", "")
