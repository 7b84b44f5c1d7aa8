"""The documentation as one readable HTML page, which loads no other resource.

Owns its form; must not define content: it shows the content of the OpenAPI document, from the same descriptions.
Pure.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import escape
from typing import Any, Final
from urllib.parse import quote, urlencode

import msgspec

from api.description.doc import Answer, Example, Octets
from api.description.parameters import SAMPLES
from api.http.errors import MEANINGS
from api.http.parameters import Parameter
from api.openapi import Json, Schemas, codes_of, path_parameters, schemas_of
from api.route import Route
from logserver import __version__
from logserver.config import Settings

_STYLE: Final = """
:root { color-scheme: light dark; --line: #8884; --soft: #8881; --link: #0a58ca; }
@media (prefers-color-scheme: dark) { :root { --link: #7db4ff; } }
body { font: 16px/1.55 system-ui, sans-serif; max-width: 54rem; margin: 0 auto; padding: 1.5rem; }
h1 { font-size: 1.9rem; } h2 { margin-top: 3rem; border-bottom: 1px solid var(--line); }
h3 { margin: 2.5rem 0 .4rem; font-size: 1.05rem; } h4 { margin: 1.2rem 0 .3rem; font-size: .95rem; }
p { margin: .4rem 0; } a { color: var(--link); text-decoration: none; } a:hover { text-decoration: underline; }
code, pre { font: .875em/1.45 ui-monospace, monospace; }
pre { background: var(--soft); padding: .7rem .9rem; border-radius: 6px; overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-size: .93rem; }
th, td { text-align: left; vertical-align: top; padding: .3rem .8rem .3rem 0; border-top: 1px solid var(--line); }
nav ul { columns: 2; padding-left: 1.1rem; } .note { opacity: .75; font-size: .9rem; }
"""
_HASH: Final = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
POLICY: Final = (
    f"default-src 'none'; style-src 'sha256-{_HASH}'; base-uri 'none'; frame-ancestors 'none'"
)
_CODE: Final = re.compile(r"`([^`]+)`")


def page(routes: Sequence[Route], settings: Settings) -> str:
    """Return the whole page."""
    scheme = "http" if settings.tls_cert is None else "https"
    url = f"{scheme}://{settings.listen}"
    schemas = schemas_of(routes)
    tags = list(dict.fromkeys(route.doc.tag for route in routes))
    parts = [
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>logserver {escape(__version__)}: the HTTP API</title><style>{_STYLE}</style></head>",
        f'<body><h1>logserver <span class="note">{escape(__version__)}</span></h1>',
        '<p>The HTTP API, as this server has it. For programs: <a href="openapi.json">openapi.json</a>.</p>',
        f"<nav>{''.join(_contents(tag, routes) for tag in tags)}</nav>",
    ]
    for tag in tags:
        parts.append(f"<h2>{escape(tag)}</h2>")
        parts += (_call(one, schemas, settings, url) for one in routes if one.doc.tag == tag)
    parts += [_types(schemas), _errors(), "</body></html>\n"]
    return "\n".join(parts)


def _contents(tag: str, routes: Sequence[Route]) -> str:
    rows = "".join(
        f'<li><a href="#{route.doc.id}">{escape(route.doc.summary)}</a></li>'
        for route in routes
        if route.doc.tag == tag
    )
    return f"<h4>{escape(tag)}</h4><ul>{rows}</ul>"


def _call(route: Route, schemas: Schemas, settings: Settings, url: str) -> str:
    doc = route.doc
    codes = ", ".join(_error_link(code) for code in codes_of(doc, settings))
    parts = [
        f'<section id="{doc.id}"><h3><code>{route.method} {escape(route.pattern)}</code></h3>',
        f"<p><strong>{escape(doc.summary)}.</strong> {_text(doc.about)}</p>",
    ]
    if doc.scope is not None:
        parts.append(f'<p class="note">Scope: {doc.scope.value}</p>')
    parameters = [*path_parameters(route.pattern), *doc.query, *doc.headers]
    parts.append(_parameters(parameters, settings))
    if doc.bodies:
        optional = "" if doc.body_required else " (may be left out)"
        parts.append(f"<h4>Body{optional}</h4>{_shapes(doc.bodies, schemas)}")
    parts += (_answer(answer, schemas) for answer in doc.answers)
    parts.append(f'<p class="note">Errors: {codes}</p>')
    parts += (_example(route, example, url) for example in doc.examples)
    return "".join([*parts, "</section>"])


def _parameters(parameters: Sequence[Parameter[Any]], settings: Settings) -> str:
    rows = []
    for one in parameters:
        default = one.fallback(settings)
        about = _text(one.about) + (f" Default: <code>{escape(default)}</code>." if default else "")
        rows.append((f"<code>{one.name}</code>", _kind(one.kind.schema(settings)), about))
    return _table(("parameter", "takes", "meaning"), rows)


def _kind(schema: Json) -> str:
    """Describe a schema in words."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f'<a href="#type-{escape(name)}">{escape(name)}</a>'
    if "enum" in schema:
        return ", ".join(f"<code>{escape(str(word))}</code>" for word in schema["enum"])
    if "anyOf" in schema:
        return " or ".join(_kind(one) for one in schema["anyOf"])
    kind = schema.get("type", "anything")
    if kind == "array":
        return f"list of {_kind(schema['items'])}"
    if kind == "object" and isinstance(schema.get("additionalProperties"), Mapping):
        return f"object of {_kind(schema['additionalProperties'])}"
    if "maximum" in schema:
        return f"{kind}, {schema.get('minimum', '')} to {schema['maximum']}"
    return "base64" if schema.get("contentEncoding") == "base64" else str(kind)


def _shapes(shapes: Mapping[str, Any], schemas: Schemas) -> str:
    by_holding: dict[str, list[str]] = {}
    for media_type, shape in shapes.items():
        holds = "bytes" if isinstance(shape, Octets) else _kind(schemas.of(shape))
        by_holding.setdefault(holds, []).append(f"<code>{escape(media_type)}</code>")
    rows = [("<br>".join(kinds), holds) for holds, kinds in by_holding.items()]
    return _table(("media type", "holds"), rows)


def _answer(answer: Answer, schemas: Schemas) -> str:
    headers = [(f"<code>{name}</code>", _text(about)) for name, about in answer.headers.items()]
    return (
        f"<h4>{answer.status}</h4><p>{_text(answer.about)}</p>"
        f"{_shapes(answer.shapes, schemas)}{_table(('header', 'meaning'), headers)}"
    )


def _example(route: Route, example: Example, url: str) -> str:
    only = f" ({', '.join(example.backends)} only)" if example.backends else ""
    title = "Example" if example.name == "default" else f"Example: {example.name}"
    lines = escape(curl(route, example, url))
    if example.answer is not None:
        lines += "\n" + escape(_json(example.answer))
    return f"<h4>{escape(title + only)}</h4><pre>{lines}</pre>"


def curl(route: Route, example: Example, url: str) -> str:
    """Return an example as a curl command line."""
    parts = ["curl", f"-X {route.method}"] if route.method != "GET" else ["curl"]
    headers = dict(example.headers)
    if example.media_type is not None:
        headers["Content-Type"] = example.media_type
    parts += (f"-H '{name}: {value}'" for name, value in headers.items())
    if example.body is not None:
        text = example.body if isinstance(example.body, str) else _json(example.body)
        quoted = text.replace("'", "'\\''")
        parts.append(f"--data-binary '{quoted}'")
    parts.append(f"'{url}{target(route.pattern, example)}'")
    return " ".join(parts)


def target(pattern: str, example: Example) -> str:
    """Return the path and the query of an example."""
    path = "/".join(
        quote(example.path.get(part[1:-1], SAMPLES[part[1:-1]]), safe=":")
        if part.startswith("{")
        else part
        for part in pattern.split("/")
    )
    return f"{path}?{urlencode(example.query, quote_via=quote)}" if example.query else path


def _types(schemas: Schemas) -> str:
    parts = ["<h2>Types</h2>"]
    for name, schema in schemas.components.items():
        rows = [
            (f"<code>{escape(field)}</code>", _kind(kind))
            for field, kind in schema.get("properties", {}).items()
        ]
        about = _text(schema.get("description", ""))
        parts.append(f'<section id="type-{escape(name)}"><h3>{escape(name)}</h3><p>{about}</p>')
        parts.append(f"{_table(('member', 'takes'), rows)}</section>")
    return "".join(parts)


def _errors() -> str:
    rows = [
        (f'<code id="error-{code}">{code}</code>', _text(meaning))
        for code, meaning in MEANINGS.items()
    ]
    return f"<h2>Errors</h2>{_table(('error_code', 'when'), rows)}"


def _error_link(code: int) -> str:
    return f'<a href="#error-{code}">{code}</a>'


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table with HTML cells; an empty string if there are no rows."""
    body = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in rows)
    titles = "".join(f"<th>{escape(title)}</th>" for title in head)
    return f"<table><thead><tr>{titles}</tr></thead><tbody>{body}</tbody></table>" if body else ""


def _text(text: str) -> str:
    return "".join(_marked(text))


def _marked(text: str) -> Iterator[str]:
    """Convert text with `code` in it to HTML."""
    for position, part in enumerate(_CODE.split(text)):
        yield f"<code>{escape(part)}</code>" if position % 2 else escape(part)


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()
