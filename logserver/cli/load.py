"""Load on servers for commands: the options that choose the load, the progress on standard error, and the exit code.

Owns the code that `logserver bench` and `logserver compare` share; must not measure, nor know the use of a result.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypedDict

import click

from logserver.cli.failures import FINDINGS
from logserver.process_signals import ended_as_interrupted
from storage.errors import InvalidArgument, NotOffered

if TYPE_CHECKING:
    from rich.progress import Progress

    from logserver.bench.result import Result, Run

ALL: Final = "all"
LEAST_REPEATS: Final = 3
OURS: Final = ("logserver-kafka", "logserver-rocketmq")


class Load(TypedDict):
    """The values of the options."""

    targets: tuple[str, ...]
    repeats: int
    quick: bool
    folder: Path | None
    peers: Path | None
    no_pin: bool


_OPTIONS: Final = (
    click.option(
        "--target",
        "targets",
        multiple=True,
        default=OURS,
        metavar="NAME",
        show_default=True,
        help="A server to measure: also kafka or rocketmq (the real brokers), http:FILE.toml. May be repeated.",
    ),
    click.option(
        "--repeat",
        "repeats",
        type=click.IntRange(min=LEAST_REPEATS),
        default=LEAST_REPEATS,
        show_default=True,
        help="Runs on each target, at least 3.",
    ),
    click.option(
        "--quick",
        is_flag=True,
        help="Run for seconds only: counts are checked, figures mean little.",
    ),
    click.option(
        "--dir",
        "folder",
        type=click.Path(path_type=Path, exists=True, file_okay=False),
        help="The folder for stores; default: the temporary folder.",
    ),
    click.option(
        "--peers",
        type=click.Path(path_type=Path),
        envvar="BENCH_PEERS",
        help="For kafka, rocketmq and ceilings: the folder tests/interop/peers of a checkout.",
    ),
    click.option(
        "--no-pin", is_flag=True, help="Do not pin server and load generator to cores of their own."
    ),
)


def load_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of a `Load` to a command."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def take(names: Sequence[str], load: Load, tell: Callable[[Result], None]) -> None:
    """Run these workloads on the targets.

    `tell` always gets the result, even a partial result; after that, the error that ended the run is raised. The
    command ends with exit code 1 if counts do not agree.
    """
    require("hdrh.histogram", "bench")
    from logserver.bench import run, workload

    chosen = [name for given in names for name in (workload.shipped() if given == ALL else [given])]
    workloads = [workload.load_workload(name) for name in chosen]
    _once("workload", [each.name for each in workloads])
    _once("target", target_names(load))
    options = run.Options(
        workloads=workloads,
        targets=load["targets"],
        repeats=load["repeats"],
        quick=load["quick"],
        pinned=not load["no_pin"],
        folder=load["folder"],
        peers=load["peers"] or run.PEERS,
        command=[click.get_current_context().find_root().info_name or "logserver", *sys.argv[1:]],
    )
    result = run.new_result(options)
    try:
        with ended_as_interrupted(), Shown() as shown:
            run.take(options, shown, result)
    finally:
        tell(result)
    for problem in run.problems(result):
        click.echo(f"error: {problem}", err=True)
    if run.problems(result):
        click.get_current_context().exit(FINDINGS)


def target_names(load: Load) -> list[str]:
    """Return the targets' names in the result. Raises InvalidArgument, and OSError for a server's description."""
    require("hdrh.histogram", "bench")
    from logserver.bench.targets import name_of

    return [name_of(target) for target in load["targets"]]


def check_places(read: Iterable[Path] = (), **places: Path | None) -> None:
    """Check that the files named by options can be written: hours of measuring end in them.

    Each file must be a different file, and no file that is `read`. Raises InvalidArgument.
    """
    taken = {path.resolve(): "is an input of the report" for path in read}
    for option, path in places.items():
        if path is None:
            continue
        place = path.resolve()
        if place in taken and (path.is_file() or not path.exists()):  # not /dev/null
            problem = taken[place]
        elif path.is_dir():
            problem = "is a folder"
        elif not path.parent.is_dir():
            problem = f"the folder {path.parent} does not exist"
        elif not os.access(path if path.exists() else path.parent, os.W_OK):
            problem = "may not be written"
        else:
            taken[place] = f"is also the file of {option}"
            continue
        raise InvalidArgument(f"{option}: {path}: {problem}", field=option)


def _once(field: str, names: Sequence[str]) -> None:
    """Check that no name is given twice: a result has one run of a name, and two would overwrite each other."""
    for name in names:
        if names.count(name) > 1:
            raise InvalidArgument(f"{field}: {name!r} is given twice", field=field)


def require(library: str, feature: str) -> None:
    """Raise NotOffered if a library of the extra is not installed."""
    try:
        importlib.import_module(library)
    except ImportError as error:
        message = f"{feature} needs {error.name}: pip install 'duolog[report]'"
        raise NotOffered(message, feature=feature) from None


class Shown:
    """The progress on standard error: a bar on a terminal, and a line for each finished run."""

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
            lines += [f"    {note}" for note in (*run.errors, *run.notes)]
            lines += [f"    not done: {lack.field}: {lack.reason}" for lack in run.not_done]
            self._display.console.print("\n".join(lines), soft_wrap=True)
