"""A report as one HTML page or as Markdown, from the template `report.jinja`.

Owns the forms: `html.jinja` and `markdown.jinja` have the same macros, so both forms have the same words and tables.
The page loads nothing from outside and runs no script. Must not compute.
"""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files
from typing import Final, Literal

import jinja2
from markupsafe import Markup

from logserver.bench.report import caveats, plots, verdicts
from logserver.bench.report.contents import Document
from logserver.bench.report.format import range_text, ratio_text, short, value_text

Form = Literal["html", "markdown"]
MARKED: Final = {"reached": "reached", "NOT reached": "missed", "not measured": "unknown"}
_SPECIAL: Final = str.maketrans({"|": "\\|", "<": "&lt;"})


def html(document: Document) -> str:
    """Return the page."""
    return _rendered(document, "html")


def markdown(document: Document) -> str:
    """Return the Markdown text: the same words and tables, without the plots."""
    return _rendered(document, "markdown")


def _rendered(document: Document, form: Form) -> str:
    style = files(__package__).joinpath("style.css").read_text(encoding="utf-8")
    text = (
        _templates(form).get_template("report.jinja").render(doc=document, form=form, style=style)
    )
    return re.sub(r"\n{3,}", "\n\n", text).strip() + "\n"


@cache
def _templates(form: Form) -> jinja2.Environment:
    made = jinja2.Environment(
        loader=jinja2.PackageLoader("logserver.bench", "report"),
        autoescape=form == "html",
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {
        "md": lambda text: " ".join(str(text).translate(_SPECIAL).split()),
        "value": value_text,
        "short": short,
        "range": range_text,
        "ratio": ratio_text,
        "listed": caveats.listed,
    }
    made.globals |= {
        "counted": verdicts.counted,
        "mark": lambda text: next((k for start, k in MARKED.items() if text.startswith(start)), ""),
        "svg": lambda *args: Markup(plots.svg(*args)),
        "fields_of": _fields_of,
        "left_out_of": _left_out_of,
    }
    return made


def _fields_of(document: Document) -> list[list[str]]:
    """Return the fields of each workload; for all but the first only the fields that differ from the first one's."""
    found = {run.workload.name: _flat(run.workload.fields) for run in document.merged.runs}
    first = next(iter(found.values()))
    return [
        [
            name,
            ", ".join(
                f"{k} {v}" for k, v in fields.items() if fields is first or first.get(k) != v
            ),
        ]
        for name, fields in found.items()
    ]


def _flat(fields: dict[str, object]) -> dict[str, object]:
    """Flatten nested tables of fields into one level."""
    flat: dict[str, object] = {}
    for name, value in fields.items():
        flat |= _flat(value) if isinstance(value, dict) else {name: value}
    return flat


def _left_out_of(document: Document) -> list[list[str]]:
    """Return the parts that were left out, each once with all of its workloads."""
    workloads: dict[tuple[str, str], list[str]] = {}
    for part in document.numbers.left_out:
        workloads.setdefault((part.target, part.what), []).append(part.workload)
    return [[target, what, ", ".join(names)] for (target, what), names in workloads.items()]
