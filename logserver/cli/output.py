"""Printing of rows: a table on a terminal, a JSON line per row in a pipe, one JSON document on demand.

Owns standard output (written in large pieces, since a dump may be gigabytes) and the files that options name; must not
know the source of the rows. Bytes are base64 in JSON, text in a table.
"""

from __future__ import annotations

import math
import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, TypeAlias

import click
import msgspec

from storage import StorageError
from storage.display import encode_json, encode_json_lines, encode_text, one_line

TABLE: Final = "table"
JSON: Final = "json"
NDJSON: Final = "ndjson"

Row: TypeAlias = Mapping[str, object]

_KEY: Final = "logserver.output"
_MAX_CELL: Final = 40
_WHOLE: Final = frozenset({"topic", "partition", "offset", "queueId", "queueOffset"})  # never cut
_CHOICE: Final = click.Choice([TABLE, JSON, NDJSON])
_ABOUT: Final = "Default: table on a terminal, else ndjson (a JSON line per row)."


def output_parameter() -> click.Option:
    """Return `output_option` for commands that are built without decorators."""
    return click.Option(["--output"], type=_CHOICE, callback=_choose, help=_ABOUT)


def _choose(ctx: click.Context, _: click.Parameter, value: str | None) -> str:
    ctx.meta[_KEY] = value
    return value or (TABLE if sys.stdout.isatty() else NDJSON)


def chosen_output(ctx: click.Context) -> str | None:
    """Return the value given to `--output`, or None."""
    value: str | None = ctx.meta.get(_KEY)
    return value


output_option: Final = click.option("--output", type=_CHOICE, callback=_choose, help=_ABOUT)
"""`--output`: the command gets the format in force as `output`."""


# ---- rows ----------------------------------------------------------------------------------------


def write_rows(runs: Iterable[Sequence[Row]], output: str) -> None:
    """Print runs of rows as they arrive."""
    if output == NDJSON:
        _write(map(encode_json_lines, runs))
    elif output == JSON:
        failures: list[StorageError] = []
        _write(_array(_until_failure(runs, failures)))  # the document is closed even after an error
        for error in failures:
            raise error
    else:
        _write(map(encode_text, _table(runs)))


def write_document(document: object, output: str) -> None:
    """Print one value: on one line (ndjson), or indented."""
    data = encode_json(document)
    _write([data if output == NDJSON else msgspec.json.format(data, indent=1), b"\n"])


def write_text(lines: Iterable[str]) -> None:
    """Print lines of text, each on one line."""
    _write(encode_text(f"{one_line(line)}\n") for line in lines)


def write_file(path: Path, data: bytes) -> None:
    """Write a file that an option names. Raises OSError, which names the file even if the disk is full."""
    try:
        path.write_bytes(data)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error


def number_text(value: float) -> str:
    """Return a readable number with at least three digits that matter: 48213.7 is "48214", 0.01234567 is "0.0123"."""
    if value == 0 or not math.isfinite(value):
        return f"{value:g}"
    decimals = max(0, 2 - math.floor(math.log10(abs(value))))
    return f"{value:.{decimals}f}"


def _write(pieces: Iterable[bytes]) -> None:
    """Write all pieces. A stream without a buffer (`python -u`) may accept less than a whole piece."""
    stdout = sys.stdout.buffer
    for piece in pieces:
        done = stdout.write(piece)
        while done < len(piece):
            done += stdout.write(piece[done:])
    stdout.flush()


def _array(runs: Iterable[Sequence[Row]]) -> Iterable[bytes]:
    before = b"[\n"
    for run in runs:
        if run:
            yield before + b",\n".join(map(encode_json, run))
            before = b",\n"
    yield b"\n]\n" if before != b"[\n" else b"[]\n"


def _until_failure(
    runs: Iterable[Sequence[Row]], failures: list[StorageError]
) -> Iterator[Sequence[Row]]:
    """Yield the runs up to an error, which is added to `failures`."""
    try:
        yield from runs
    except StorageError as error:
        failures.append(error)


def within_limit(runs: Iterable[Sequence[Row]], limit: int, output: str) -> Iterator[Sequence[Row]]:
    """Yield the same runs. Report on standard error that they have `limit` rows or more, or no row for a table."""
    rows = 0
    for run in runs:
        rows += len(run)
        yield run
    if rows >= limit:
        click.echo(
            f"stopped at --limit {limit}: more records may match; give a larger --limit", err=True
        )
    elif not rows and output == TABLE:
        click.echo("no record matches", err=True)


def noted_if_empty(runs: Iterable[Sequence[Row]], note: str) -> Iterator[Sequence[Row]]:
    """Yield the same runs. Print the note on standard error if they have no row."""
    is_empty = True
    for run in runs:
        is_empty = is_empty and not run
        yield run
    if is_empty:
        click.echo(note, err=True)


# ---- tables --------------------------------------------------------------------------------------


def _table(runs: Iterable[Sequence[Row]]) -> Iterable[str]:
    """Yield the lines of a table. Columns are as wide as the first run needs.

    A longer cell is cut, so that a row stays on one line. Cells of the columns in `_WHOLE`, which say where a record is
    stored, stay whole and move the rest of their row to the right.
    """
    widths: dict[str, int] = {}
    for run in runs:
        cells = [{name: _cell(value) for name, value in row.items()} for row in run]
        if not widths and cells:
            widths = _widths(cells)
            yield _line({name: name for name in widths}, widths)
        for row in cells:
            yield _line(row, widths)


def _widths(rows: Sequence[Mapping[str, str]]) -> dict[str, int]:
    """Return the width of each column: as needed, at most `_MAX_CELL`; the last column gets the remaining width."""
    columns = list(dict.fromkeys(name for row in rows for name in row))
    needed = {name: max(len(name), *(len(row.get(name, "")) for row in rows)) for name in columns}
    widths = {
        name: needed[name] if name in _WHOLE else min(needed[name], _MAX_CELL) for name in columns
    }
    left = shutil.get_terminal_size().columns - sum(widths.values()) - 2 * len(widths)
    widths[columns[-1]] = min(needed[columns[-1]], widths[columns[-1]] + max(left, 0))
    return widths


def _line(cells: Mapping[str, str], widths: Mapping[str, int]) -> str:
    parts = [
        cells.get(name, "").ljust(width) if name in _WHOLE else _fit(cells.get(name, ""), width)
        for name, width in widths.items()
    ]
    return "  ".join(parts).rstrip() + "\n"


def _fit(text: str, width: int) -> str:
    return text.ljust(width) if len(text) <= width else text[: width - 1] + "…"


def _cell(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, bytes):
        text = value[:200].decode("utf-8", "backslashreplace")
    elif isinstance(value, str):
        text = value
    elif isinstance(value, float):
        text = number_text(value)
    else:
        text = encode_json(value)[:200].decode("utf-8", "replace")
    return one_line(text)
