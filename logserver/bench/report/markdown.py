"""The report as Markdown: the same words and tables, without the plots.

Owns the escaping of Markdown; must not compute.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from logserver.bench.report.document import Document, Section

SPECIAL = str.maketrans({"|": "\\|", "<": "&lt;", "\n": " "})


def text(document: Document) -> str:
    """Return the whole report."""
    parts = [f"# {document.title}"]
    parts += [f"**{_told(warning)}**" for warning in document.warnings]
    parts.append("\n".join(f"- {_told(fact)}" for fact in document.facts))
    parts += [part for section in document.sections for part in section_parts(section)]
    return "\n\n".join(parts) + "\n"


def section_parts(section: Section) -> Iterator[str]:
    """Yield the parts of a chapter: heading, paragraphs, points, and each table under its own heading."""
    yield f"## {section.title}"
    yield from map(_told, section.paragraphs)
    if section.points:
        yield "\n".join(f"- {_told(point)}" for point in section.points)
    for table in section.tables:
        yield f"### {table.title}"
        if table.about:
            yield _told(table.about)
        yield table_text(table.columns, table.rows)


def table_text(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Format a Markdown table."""
    lines = [_line(columns), "| --- " * len(columns) + "|", *map(_line, rows)]
    return "\n".join(lines)


def _line(cells: Sequence[str]) -> str:
    return "|" + "|".join(f" {_told(cell)} " if cell else " " for cell in cells) + "|"


def _told(value: str) -> str:
    return value.translate(SPECIAL)
