"""`logserver compare`: report a comparison of both designs, as HTML, as Markdown and as JSON.

Owns the options and the output files; must not compute the report, which is the job of logserver.bench.report.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, Unpack

import click
import msgspec

from logserver.cli.failures import FINDINGS
from logserver.cli.load import ALL, Load, check_places, load_options, require, take, target_names
from logserver.cli.output import write_file, write_text
from storage.errors import InvalidArgument

if TYPE_CHECKING:
    from logserver.bench.report.contents import Document
    from logserver.bench.result import Result

FILE: Final = click.Path(path_type=Path, dir_okay=False)
KEPT: Final = click.Path(path_type=Path, dir_okay=False, exists=True)


@click.command("compare")
@click.argument("names", metavar="[WORKLOAD]...", nargs=-1)
@click.option("--report", metavar="FILE", type=FILE, help="Write the report as an HTML page.")
@click.option("--json", metavar="FILE", type=FILE, help="Write the numbers of the report as JSON.")
@click.option("--markdown", metavar="FILE", type=FILE, help="Write the report as Markdown.")
@click.option(
    "--result",
    "kept",
    metavar="FILE",
    type=FILE,
    help="Write the measured result to this file, for --from.",
)
@click.option("--from", "results", metavar="RESULT", type=KEPT, multiple=True,
              help="Report a result of `bench --json` or --result; measure nothing. May be repeated.")  # fmt: skip
@click.option("--measured", metavar="FILE", type=KEPT, multiple=True,
              help="JSON of scripts/bench_* or load_test: ratios for the goals. May be repeated.")  # fmt: skip
@click.option(
    "--baseline",
    metavar="TARGET",
    help="The target that ratios refer to; default: the first of logserver.",
)
@load_options
def command(
    *,
    names: tuple[str, ...],
    kept: Path | None,
    results: tuple[Path, ...],
    measured: tuple[Path, ...],
    baseline: str | None,
    report: Path | None,
    json: Path | None,
    markdown: Path | None,
    **load: Unpack[Load],
) -> None:
    """Run WORKLOADs (by default all shipped ones) on both designs, and report the results.

    Without --report, --json and --markdown the report is printed as Markdown. All forms mark a partial
    result. The exit code is 1 if a result is partial or has errors.
    """
    from logserver.bench.report import contents, figures, verdicts
    from logserver.bench.result import errors_of

    if results and (names or kept):
        raise click.UsageError("--from measures nothing: give no WORKLOAD and no --result with it")
    if report is not None:
        require("matplotlib", "compare --report")
    ratios = [ratio for path in measured for ratio in verdicts.read_measured(path)]
    read = (*results, *measured)
    check_places(read, report=report, json=json, markdown=markdown, result=kept)
    forms = Forms(report, json, markdown)

    def tell(*found: Result) -> None:
        forms.write(contents.report(found, baseline=baseline, measured=ratios))

    if results:
        given = [_result(path) for path in results]
        tell(*given)
        if any(not result.complete or any(map(errors_of, result.runs)) for result in given):
            click.get_current_context().exit(FINDINGS)
    else:
        if baseline is not None:
            figures.check_baseline(target_names(load), baseline)
        take(names or (ALL,), load, lambda result: _measured(result, kept, tell))


class Forms(NamedTuple):
    """The output file of each form of a report. Without any, the report is printed as Markdown."""

    report: Path | None
    json: Path | None
    markdown: Path | None

    def write(self, document: Document) -> None:
        """Write all requested forms, and the report's warnings to standard error."""
        from logserver.bench.report import render

        if self.report is not None:
            write_file(self.report, render.html(document).encode())
        if self.json is not None:
            data = msgspec.json.format(msgspec.json.encode(document.numbers), indent=2)
            write_file(self.json, data + b"\n")
        if self.markdown is not None:
            write_file(self.markdown, render.markdown(document).encode())
        if not any(self):
            write_text(render.markdown(document).splitlines())
        for warning in document.warnings:
            click.echo(f"warning: {warning}", err=True)


def _measured(result: Result, kept: Path | None, tell: Callable[[Result], None]) -> None:
    """Write the result to `kept` and report it, even if it is partial."""
    from logserver.bench.result import to_json

    if kept is not None:
        write_file(kept, to_json(result))
    if result.runs:
        tell(result)
    else:
        click.echo(f"nothing was measured: {result.incomplete_reason}", err=True)


def _result(path: Path) -> Result:
    """Read a result. Raises InvalidArgument for a file that holds no result, and OSError."""
    from logserver.bench.result import load
    from logserver.bench.workload import check_facts

    try:
        result = load(path)
    except ValueError as error:
        message = f"{path}: is no result of `logserver bench --json`: {error}"
        raise InvalidArgument(message, field="from") from None
    for run in result.runs:
        check_facts(run.workload, f"{path}: workload {run.workload.name!r}")
    return result
