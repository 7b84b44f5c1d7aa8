"""`logserver compare`: what a comparison of both designs came to, as a page, as Markdown and as JSON.

Owns the options and where the forms of a report go; the report itself is logserver.bench.report's.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

import click
import msgspec

from logserver.commands import FINDINGS
from logserver.commands.output import write_text
from storage.errors import InvalidArgument

if TYPE_CHECKING:
    from logserver.bench.result import Result

FILE: Final = click.Path(path_type=Path, dir_okay=False)
KEPT: Final = click.Path(path_type=Path, dir_okay=False, exists=True)


@click.command("compare")
@click.option(
    "--report", "report_path", metavar="FILE", type=FILE, help="Write it as a page of HTML."
)
@click.option("--json", "json_path", metavar="FILE", type=FILE, help="Write its numbers as JSON.")
@click.option(
    "--markdown", "markdown_path", metavar="FILE", type=FILE, help="Write it as Markdown."
)
@click.option("--from", "results", metavar="RESULT", type=KEPT, multiple=True, required=True,
              help="A result of `logserver bench --json`; may be repeated.")  # fmt: skip
@click.option("--measured", metavar="FILE", type=KEPT, multiple=True,
              help="JSON of scripts/bench_* or load_test: ratios for the goals. May be repeated.")  # fmt: skip
@click.option("--baseline", metavar="TARGET", help="Ratios are to this target; the first of ours.")
def command(
    *,
    report_path: Path | None,
    json_path: Path | None,
    markdown_path: Path | None,
    results: tuple[Path, ...],
    measured: tuple[Path, ...],
    baseline: str | None,
) -> None:
    """Tell what the designs of Kafka and RocketMQ came to under the same load.

    Without --report, --json and --markdown the report is printed as Markdown. A partial result is marked as one in all
    of them. The exit code is 1 if a result is partial or has errors.
    """
    from logserver.bench.report import contents, html, markdown, verdicts

    given = [_result(path) for path in results]
    ratios = [ratio for path in measured for ratio in verdicts.read_measured(path)]
    document = contents.report(given, baseline=baseline, measured=ratios)
    if report_path is not None:
        report_path.write_text(html.page(document), encoding="utf-8")
    if json_path is not None:
        data = msgspec.json.format(msgspec.json.encode(document.numbers), indent=2)
        json_path.write_bytes(data + b"\n")
    if markdown_path is not None:
        markdown_path.write_text(markdown.text(document), encoding="utf-8")
    if report_path is json_path is markdown_path is None:
        write_text(markdown.text(document).splitlines())
    for warning in document.warnings:
        click.echo(f"warning: {warning}", err=True)
    if not document.numbers.complete or any(run.errors for result in given for run in result.runs):
        click.get_current_context().exit(FINDINGS)


def _result(path: Path) -> Result:
    """Raises InvalidArgument for a file that holds none, and OSError."""
    from logserver.bench.result import load

    try:
        return load(path)
    except ValueError as error:
        message = f"{path}: is no result of `logserver bench --json`: {error}"
        raise InvalidArgument(message, field="from") from None
