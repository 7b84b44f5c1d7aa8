"""`logserver bench WORKLOAD...`: put the same load on our server, the real brokers and others, and measure it.

Owns the options, the progress on standard error, where the document goes, and the exit code; must not measure.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from logserver.commands import FINDINGS
from logserver.commands.output import Row, output_option, write_rows
from storage.errors import NotOffered

if TYPE_CHECKING:
    from rich.progress import Progress

    from logserver.bench.result import Result, Run

ALL: Final = "all"
STANDARD_OUTPUT: Final = "-"
LEAST_REPEATS: Final = 3
OURS: Final = ("logserver-kafka", "logserver-rocketmq")
COLUMNS: Final = {
    "published/s": "published_records_per_s",
    "consumed/s": "consumed_records_per_s",
    "backlog/s": "catch_up_records_per_s",
    "p50 us": "publish_latency.p50_us",
    "p99 us": "publish_latency.p99_us",
    "cpu s/M": "server_cpu_s_per_million_records",
    "disk B/rec": "disk_bytes_per_record",
    "recovery s": "recovery_s",
    "key us": "key_lookup_latency.p50_us",
    "time us": "time_lookup_latency.p50_us",
}
"""Medians that the table shows, where any run has them."""


@click.command("bench")
@click.argument("names", metavar="WORKLOAD...", nargs=-1, required=True)
@click.option("--target", "targets", multiple=True, default=OURS, metavar="NAME", show_default=True,
              help="Or kafka, rocketmq (the real brokers), http:FILE.toml; repeat it for more.")  # fmt: skip
@click.option("--repeat", "repeats", type=click.IntRange(min=LEAST_REPEATS), default=LEAST_REPEATS,
              show_default=True, help="Turns of each target, at least 3.")  # fmt: skip
@click.option(
    "--quick", is_flag=True, help="Seconds in all: counts are checked, figures say little."
)
@click.option(
    "--json", "json_path", metavar="FILE", help="The result as JSON; - is standard output."
)
@click.option("--dir", "folder", type=click.Path(path_type=Path, exists=True, file_okay=False),
              help="Where stores are made; the temporary folder.")  # fmt: skip
@click.option("--peers", type=click.Path(path_type=Path), envvar="BENCH_PEERS",
              help="For kafka and rocketmq: the folder tests/interop/peers of a checkout.")  # fmt: skip
@click.option("--no-pin", is_flag=True, help="Any core for anybody.")
@output_option
def command(
    *,
    names: tuple[str, ...],
    targets: tuple[str, ...],
    repeats: int,
    quick: bool,
    json_path: str | None,
    folder: Path | None,
    peers: Path | None,
    no_pin: bool,
    output: str,
) -> None:
    """Put WORKLOADs on one target after another and measure what they take.

    A WORKLOAD is a TOML file, or the name of one that is shipped: `all` are these, an unknown name lists them. Needs
    the extra `report` (pip install 'logserver[report]'). The exit code is 1 when counts do not agree.
    """
    _require()
    from logserver.bench import run, workload

    chosen = [name for given in names for name in (workload.shipped() if given == ALL else [given])]
    asked = run.Asked(
        workloads=[workload.load_workload(name) for name in chosen],
        targets=targets,
        repeats=repeats,
        quick=quick,
        pinned=not no_pin,
        folder=folder,
        peers=peers or run.PEERS,
        command=["logserver", *sys.argv[1:]],
    )
    result = run.new_result(asked)
    try:
        with _ended_as_interrupted(), Shown() as shown:
            run.take(asked, shown, result)
    finally:
        _write(result, json_path, output)
    for problem in run.problems(result):
        click.echo(f"error: {problem}", err=True)
    if run.problems(result):
        click.get_current_context().exit(FINDINGS)


def _require() -> None:
    """Raises NotOffered without the libraries of the extra."""
    try:
        import hdrh.histogram  # noqa: F401
    except ImportError as error:
        message = f"bench needs {error.name}: pip install 'logserver[report]'"
        raise NotOffered(message, feature="bench") from None


@contextmanager
def _ended_as_interrupted() -> Iterator[None]:
    """SIGTERM is taken as Ctrl-C: children are stopped, and what was measured is told."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


class Shown:
    """How far it is, on standard error: a bar on a terminal, and a line for each run that is done."""

    def __init__(self) -> None:
        self._display: Progress | None = None

    def __enter__(self) -> Shown:
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            MofNCompleteColumn,
            Progress,
            TextColumn,
            TimeElapsedColumn,
        )

        columns = (
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.description}"),
        )
        console = Console(stderr=True, highlight=False, markup=False)
        self._display = Progress(
            *columns, console=console, transient=True, disable=not console.is_terminal
        )
        self._display.start()
        self._display.add_task("", total=None)
        return self

    def __exit__(self, *exc_info: object) -> None:
        if self._display is not None:
            self._display.stop()

    def at(self, step: int, steps: int, what: str) -> None:
        """See run.Watching."""
        if self._display is not None:
            task = self._display.task_ids[0]
            self._display.update(task, completed=max(step - 1, 0), total=steps, description=what)

    def done(self, run: Run) -> None:
        """See run.Watching."""
        if self._display is not None:
            name = f"{run.workload.name} on {run.target.name}"
            lines = [f"  {name}: {'done' if run.repeats else 'nothing measured'}"]
            lines += [f"    {note}" for note in run.notes]
            lines += [f"    not done: {lack.field}: {lack.reason}" for lack in run.not_done]
            self._display.console.print("\n".join(lines), soft_wrap=True)


def _write(result: Result, json_path: str | None, output: str) -> None:
    """The document where it was asked for, else a row a run."""
    from logserver.bench.result import to_json

    if not result.complete:
        click.echo(f"not complete: {result.incomplete_reason}", err=True)
    if json_path == STANDARD_OUTPUT:
        click.echo(to_json(result), nl=False)
        return
    if json_path is not None:
        Path(json_path).write_bytes(to_json(result))
    write_rows([[_row(run) for run in result.runs]], output)


def _row(run: Run) -> Row:
    from logserver.bench.result import held, spreads

    found = spreads(run.repeats)
    row: dict[str, object] = {"workload": run.workload.name, "target": run.target.name}
    row |= {name: _rounded(found[path].median) for name, path in COLUMNS.items() if path in found}
    return row | {"held": "no"} if held(run) is False else row


def _rounded(value: float) -> float:
    return round(value) if value >= 100 else round(value, 2)
