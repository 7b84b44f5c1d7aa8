"""The report as one HTML page: it loads nothing from outside and runs no script.

Owns markup and style: for phones, light and dark mode, and screen readers. Must not compute. Escapes every text.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from importlib.resources import files

from logserver.bench.report.document import Document, Plot, Section, Table
from logserver.bench.report.plots import Shapes, shape, svg

STYLE = files(__package__).joinpath("style.css")
MARKED = {"reached": "reached", "NOT reached": "missed", "not measured": "unknown"}


def page(document: Document) -> str:
    """Return the whole page."""
    return "".join(
        f"{part}\n"
        for part in (
            "<!DOCTYPE html>",
            '<html lang="en">',
            "<head>",
            '<meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            '<meta name="color-scheme" content="light dark">',
            f"<title>{escape(document.title)}</title>",
            f"<style>\n{STYLE.read_text(encoding='utf-8')}</style>",
            "</head>",
            "<body>",
            *_head(document),
            "<main>",
            *(_section(section, document.targets) for section in document.sections),
            "</main>",
            "</body>",
            "</html>",
        )
    )


def _head(document: Document) -> Iterator[str]:
    yield "<header>"
    yield f"<h1>{escape(document.title)}</h1>"
    for warning in document.warnings:
        yield f'<p class="warning" role="note">{escape(warning)}</p>'
    yield '<ul class="facts">'
    yield from (f"<li>{escape(fact)}</li>" for fact in document.facts)
    yield "</ul>"
    links = (f'<a href="#{s.name}">{escape(s.title)}</a>' for s in document.sections)
    yield f'<nav aria-label="Chapters">{" ".join(links)}</nav>'
    yield "</header>"


def _section(section: Section, targets: Sequence[str]) -> str:
    name = section.name
    parts = [f'<section id="{name}" aria-labelledby="{name}-h">']
    parts.append(f'<h2 id="{name}-h">{escape(section.title)}</h2>')
    parts += [f"<p>{escape(text)}</p>" for text in section.paragraphs]
    if section.points:
        points = "".join(f"<li>{escape(point)}</li>" for point in section.points)
        parts.append(f'<ul class="points">{points}</ul>')
    if section.plots:
        parts.append(_legend(targets))
        figures = (
            _figure(plot, targets, f"{name}-p{number}") for number, plot in enumerate(section.plots)
        )
        parts.append(f'<div class="plots">{"".join(figures)}</div>')
    parts += [_table(table, f"{name}-{number}") for number, table in enumerate(section.tables)]
    parts.append("</section>")
    return "\n".join(parts)


def _legend(targets: Sequence[str]) -> str:
    shapes = Shapes(targets)
    marks = (
        f'<li><svg viewBox="0 0 14 14" aria-hidden="true">{shape(shapes.number(target), 7, 7)}</svg>'
        f"{escape(target)}</li>"
        for target in targets
    )
    return f'<ul class="legend" aria-label="Marks in the plots">{"".join(marks)}</ul>'


def _figure(plot: Plot, targets: Sequence[str], name: str) -> str:
    caption = f"<figcaption>{escape(plot.title)}</figcaption>"
    return f"<figure>{caption}{svg(plot, Shapes(targets), name)}</figure>"


def _table(table: Table, name: str) -> str:
    head = "".join(
        f'<th scope="col"{_kind(n, table)}>{escape(column)}</th>'
        for n, column in enumerate(table.columns)
    )
    rows = "".join(f"<tr>{_row(row, table)}</tr>" for row in table.rows)
    about = f" <span>{escape(table.about)}</span>" if table.about else ""
    return (
        f'<div class="scroll" role="region" tabindex="0" aria-labelledby="{name}-c"><table>'
        f'<caption id="{name}-c">{escape(table.title)}{about}</caption>'
        f"<thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>"
    )


def _row(row: Sequence[str], table: Table) -> str:
    first, *others = row
    cells = (
        f"<td{_kind(n, table, text)}>{escape(text)}</td>" for n, text in enumerate(others, start=1)
    )
    return f'<th scope="row">{escape(first)}</th>{"".join(cells)}'


def _kind(column: int, table: Table, text: str = "") -> str:
    """Return the class attribute of a cell."""
    is_number = table.labels <= column < len(table.columns) - table.remarks
    kinds = ["number"] if is_number else []
    kinds += [kind for begin, kind in MARKED.items() if text.startswith(begin)]
    return f' class="{" ".join(kinds)}"' if kinds else ""
