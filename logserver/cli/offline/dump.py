"""`logserver dump`: print the contents of a store, a partition or a file, kind by kind.

Owns the shapes of the output: a row per record or batch, a row per index file, and with `--output json` one document by
file. Must not know a format.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import click

from logserver.cli.offline.findings import all_option, end_with, incomplete_line
from logserver.cli.options import (
    opened,
    partition_option,
    path_argument,
    selected,
    set_option,
    topic_option,
)
from logserver.cli.output import (
    JSON,
    TABLE,
    Row,
    noted_if_empty,
    output_option,
    write_document,
    write_rows,
)
from logserver.remedies import Inspected
from storage import Isolation
from storage.display import one_line

_BY_FILE: Final = frozenset(
    {"batches", "index", "timeindex", "txnindex", "snapshot", "checkpoints"}
)
_PLACE: Final = ("topic", "partition", "file")
_PAIRS: Final[Mapping[str, Sequence[str]]] = {
    "index": ("offset", "position"),
    "timeindex": ("timestamp", "offset"),
    "indexfile": ("keyHash", "physicalOffset", "timeDiff", "previous"),
}
_MESSAGE: Final = (
    "topic",
    "queueId",
    "queueOffset",
    "physicalOffset",
    "storeTimestamp",
    "tags",
    "keys",
    "body",
)
"""The fields of a RocketMQ message that fit on one line."""


@click.command("dump")
@path_argument
@click.option(
    "--what",
    metavar="KIND",
    help="records (default), checkpoints or offsets (of consumer groups); of Kafka "
    "batches, index, timeindex, txnindex, snapshot or decoded (records of internal topics, by their "
    "message schemas); of RocketMQ commitlog, consumequeue, indexfile or compacted (records of topics that a "
    "broker compacts). The default of a file is its own "
    "kind.",
)
@topic_option
@partition_option
@click.option(
    "--isolation",
    type=click.Choice([isolation.value for isolation in Isolation]),
    default=Isolation.READ_UNCOMMITTED.value,
    show_default=True,
    help="Whether records of open and aborted transactions are shown.",
)
@all_option
@set_option
@output_option
def command(
    path: Path,
    *,
    what: str | None,
    topic: str | None,
    partition: int | None,
    isolation: str,
    shows_all: bool,
    settings: Mapping[str, str],
    output: str,
) -> None:
    """Print the records or entries in PATH: a store, a directory in it or one file.

    A store left by a crash is shown as recovery would leave it; nothing is changed. Damaged data
    is left out and reported on standard error, and the exit code is then 1.
    """
    with opened(path, settings) as (inspector, _):
        kind = what or inspector.dump_kinds()[0]
        runs = inspector.dump(
            kind, topic=topic, partition=partition, isolation=Isolation(isolation)
        )
        if output == JSON and kind in _BY_FILE:
            single = len(selected(inspector, topic, partition)) < 2
            write_document(_by_file(runs, single=single), output)
        elif output == TABLE:
            note = "no records" if kind == "records" else f"no entries ({kind})"
            write_rows(noted_if_empty(_flat(short_messages(runs), kind), note), output)
        else:
            write_rows(runs, output)
        findings = inspector.findings()
        line = incomplete_line(findings)
        if line is not None:
            click.echo(one_line(line), err=True)
        end_with(findings, Inspected(path, settings), shows_all=shows_all)


def _by_file(runs: Iterable[Sequence[Row]], *, single: bool) -> Mapping[str, Any]:
    """Return {file: entries}, or {partition: {file: entries}} for several partitions ("": the root)."""
    found: dict[str, dict[str, Any]] = {}
    for row in (row for run in runs for row in run):
        place = "" if row["topic"] is None else f"{row['topic']}-{row['partition']}"
        files = found.setdefault(place, {})
        if "entries" in row:
            files[str(row["file"])] = row["entries"]
        else:
            batch = {name: value for name, value in row.items() if name not in _PLACE}
            files.setdefault(str(row["file"]), []).append(batch)
    if not single:
        return found
    return {name: entries for files in found.values() for name, entries in files.items()}


def short_messages(runs: Iterable[Sequence[Row]]) -> Iterator[Sequence[Row]]:
    """Yield the rows for a table: RocketMQ messages with only the fields that fit on one line."""
    for run in runs:
        yield [{name: row.get(name) for name in _MESSAGE} if "msgId" in row else row for row in run]


def _flat(runs: Iterable[Sequence[Row]], kind: str) -> Iterator[Sequence[Row]]:
    """Yield a table row for every entry of a file."""
    for run in runs:
        yield [flat for row in run for flat in _entries(row, kind)]


def _entries(row: Row, kind: str) -> Iterator[Row]:
    entries = row.get("entries")
    if not isinstance(entries, list | tuple):
        yield row
        return
    place = {name: row[name] for name in _PLACE if name in row}
    for number, entry in enumerate(entries):
        if kind not in _PAIRS:
            yield {**place, "content": entry}
            continue
        numbered = {"number": number} if kind == "indexfile" else {}
        yield {**place, **numbered, **dict(zip(_PAIRS[kind], entry, strict=True))}
