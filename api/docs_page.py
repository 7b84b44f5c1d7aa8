"""The documentation as one readable HTML page, which loads no other resource.

Owns its form, with `templates/docs.html.j2`; must not define content: it shows the content of the OpenAPI document,
from the same declarations. This module loads Jinja2, so it is imported when the page is requested.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final
from urllib.parse import quote, urlencode

import msgspec

from api.html import render
from api.http.errors import MEANINGS
from api.openapi import ApiDocs, Json, path_parameters
from api.operation import Example, Octets, Operation, Shapes
from api.operations.parameters import SAMPLES

STYLE: Final = "docs.css"


def page_of(docs: ApiDocs) -> bytes:
    """Return the whole page."""
    tags = dict.fromkeys(operation.tag for operation in docs.operations)

    def schemas_of(shapes: Shapes) -> Sequence[tuple[Json | None, Sequence[str]]]:
        """Return each schema, None for bytes, with the media types that have it."""
        by_schema: dict[str, tuple[Json | None, list[str]]] = {}
        for kind, shape in shapes.items():
            schema = None if isinstance(shape, Octets) else docs.schemas.of(shape)
            by_schema.setdefault(_json(schema), (schema, []))[1].append(kind)
        return list(by_schema.values())

    return render(
        "docs.html.j2",
        STYLE,
        url=f"{'http' if docs.settings.tls_cert is None else 'https'}://{docs.settings.listen}",
        parts=[(tag, [one for one in docs.operations if one.tag == tag]) for tag in tags],
        settings=docs.settings,
        components=docs.schemas.components,
        meanings=MEANINGS,
        codes_of=docs.codes_of,
        schemas_of=schemas_of,
        parameters_of=lambda one: [*path_parameters(one.pattern), *one.query, *one.headers],
        curl=curl,
        json=_json,
    )


def curl(operation: Operation, example: Example, url: str) -> str:
    """Return an example as a curl command line."""
    parts = ["curl", f"-X {operation.method}"] if operation.method != "GET" else ["curl"]
    headers = dict(example.headers)
    if example.media_type is not None:
        headers["Content-Type"] = example.media_type
    parts += (f"-H '{name}: {value}'" for name, value in headers.items())
    if example.body is not None:
        text = example.body if isinstance(example.body, str) else _json(example.body)
        quoted = text.replace("'", "'\\''")
        parts.append(f"--data-binary '{quoted}'")
    parts.append(f"'{url}{target(operation.pattern, example)}'")
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


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()
