"""Pages for browsers: their templates, and the headers that let a page load and run nothing but its own style.

Owns the template environment with the units of numbers, the policy, and the page that shows an error; must not know
the content of other pages.
Text from a store or a client is escaped by the templates. This module loads Jinja2, so it is imported when a page is
requested.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import cache
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final, NamedTuple

from aiohttp import web
from jinja2 import Environment, FileSystemLoader
from markupsafe import Markup, escape

from api.http.errors import NOT_READY, ApiError, status_of
from logserver import __version__
from storage.display import encode_text, one_line, progress_text, size_text

_TEMPLATES: Final = Path(__file__).parent / "templates"
_TITLES: Final[Mapping[str, str]] = {
    "401": "A token is needed",
    "403": "Not allowed",
    "starting": "The server is starting",
    "recovering": "The server is starting",
    "stopping": "The server is stopping",
    "failed": "The server could not start",
}
_CODE: Final = re.compile(r"`([^`]+)`")
_RELOADED: Final = frozenset({"starting", "recovering"})


class Style(NamedTuple):
    """A style sheet, and the policy that allows it and nothing else."""

    text: Markup
    policy: str


@cache
def style(name: str) -> Style:
    """Return a style sheet of the templates."""
    text = (_TEMPLATES / name).read_text(encoding="utf-8")
    digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
    policy = (
        f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'; "
        "frame-ancestors 'none'"
    )
    return Style(Markup(text), policy)


@cache
def environment() -> Environment:
    """Return the templates. Every value is escaped."""
    templates = Environment(loader=FileSystemLoader(_TEMPLATES), autoescape=True)
    templates.filters.update(
        size=size_text,
        count=count_text,
        duration=duration_text,
        time=time_text,
        marked=marked,
        readable=one_line,
    )
    return templates


def render(template: str, style_name: str, **values: Any) -> bytes:
    """Return a page. Text that is not UTF-8 is shown with escapes."""
    page = environment().get_template(template)
    return encode_text(page.render(style=style(style_name).text, version=__version__, **values))


def page_headers(style_name: str) -> dict[str, str]:
    """Return the headers of a page with this style sheet."""
    return {
        "Content-Type": "text/html; charset=utf-8",
        "Content-Security-Policy": style(style_name).policy,
        "X-Content-Type-Options": "nosniff",
        "Referrer-Policy": "no-referrer",
    }


def error_page(error: ApiError) -> web.Response:
    """Return the answer for an error as a small page: the message, and the progress of a start."""
    status = status_of(error.error_code)
    state = str(error.facts.get("state", status)) if error.error_code == NOT_READY else str(status)
    progress = error.facts.get("progress")
    body = render(
        "error.html.j2",
        "page.css",
        status=status,
        title=_TITLES.get(state, HTTPStatus(status).phrase),
        message=one_line(error.message),
        reloads=state in _RELOADED,
        progress=progress if isinstance(progress, Mapping) else None,
        progress_text=progress_text,
    )
    headers = {**page_headers("page.css"), "Cache-Control": "no-store", **error.headers}
    return web.Response(status=status, body=body, headers=headers)


# -- units


def count_text(number: int) -> str:
    """Return a number with separators: 12345678 is "12,345,678"."""
    return f"{number:,}"


def duration_text(duration_ms: int) -> str:
    """Return a duration in its two largest units: 93784000 is "1 d 2 h"."""
    if duration_ms < 1000:
        return f"{duration_ms} ms"
    seconds = duration_ms // 1000
    amounts: list[str] = []
    for unit, length in (("d", 86400), ("h", 3600), ("min", 60), ("s", 1)):
        amount, seconds = divmod(seconds, length)
        if amount or amounts:
            amounts.append(f"{amount} {unit}" if amount else "")
    return " ".join(filter(None, amounts[:2]))


def time_text(time_ms: int) -> str:
    """Return a time: "2026-01-31 10:00 UTC"."""
    return datetime.fromtimestamp(time_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M UTC")


def marked(text: str) -> Markup:
    """Convert text with `code` in it to HTML."""
    return Markup(_CODE.sub(r"<code>\1</code>", str(escape(text))))
