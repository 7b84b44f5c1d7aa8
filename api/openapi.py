"""The OpenAPI 3.1 document of one server: the route table and its descriptions, as JSON.

Owns the form of the document; must not know the content of a call, which `api.description` defines. Pure. The limits
are taken from the settings in force.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from http import HTTPStatus
from typing import Any, Final, TypeAlias

import msgspec
from msgspec import Struct

from api.description.doc import Answer, Doc, Example, Lines, Octets, OneOf, Shape
from api.description.parameters import PATH, SAMPLES
from api.http.errors import JSON, MEANINGS, PROBLEM_JSON, status_of
from api.http.parameters import Parameter
from api.route import Route
from logserver import __version__
from logserver.config import Settings

Json: TypeAlias = dict[str, Any]

OPENAPI: Final = "3.1.0"
_BEARER: Final = "bearer"
_REF: Final = "#/components/schemas/{name}"
_ABOUT: Final = (
    "Serves the records of a Kafka log directory or a RocketMQ store. Times are milliseconds since the epoch; whole "
    "numbers have 64 bits. Keys and values are bytes: base64 in JSON, or JSON itself, or text, as the media type or "
    "the parameter `format` says."
)


class Error(Struct):
    """Every error has this body; facts such as `topic`, `offset` or `earliest` are members next to the message."""

    error_code: int
    message: str


class Problem(Struct):
    """RFC 9457, for clients that accept application/problem+json, with the same facts."""

    type: str
    title: str
    status: int
    detail: str
    error_code: int


class Schemas:
    """The types of all bodies and answers, each defined once and referenced by name."""

    def __init__(self, shapes: Sequence[Shape]) -> None:
        types = list(dict.fromkeys(kind for shape in shapes for kind in _types(shape)))
        refs, components = msgspec.json.schema_components(
            types, schema_hook=_anything, ref_template=_REF
        )
        self.components: Mapping[str, Json] = _tidy(components)
        self._refs = dict(zip(types, refs, strict=True))

    def of(self, shape: Shape) -> Json:
        """Return the schema of one shape; a named type is a reference."""
        if isinstance(shape, OneOf):
            return {"anyOf": [self.of(kind) for kind in shape.types]}
        if isinstance(shape, Lines):
            return {"description": "JSON values, one after the other or each in an event."}
        if isinstance(shape, Octets):
            return {"type": "string"} if shape.is_text else {}
        schema: Json = _tidy(self._refs[shape])
        return schema


def schemas_of(routes: Sequence[Route]) -> Schemas:
    """Return the schemas of all bodies and answers of the routes."""
    shapes: list[Shape] = [Error, Problem]
    for route in routes:
        shapes += route.doc.bodies.values()
        shapes += (shape for answer in route.doc.answers for shape in answer.shapes.values())
    return Schemas(shapes)


def document(routes: Sequence[Route], settings: Settings) -> Json:
    """Return the whole document."""
    schemas = schemas_of(routes)
    paths: dict[str, Json] = {}
    for route in routes:
        operation = _operation(route, schemas, settings)
        paths.setdefault(route.pattern, {})[route.method.lower()] = operation
    components: Json = {"schemas": schemas.components}
    if settings.token_file is not None:
        components["securitySchemes"] = {_BEARER: {"type": "http", "scheme": "bearer"}}
    tags = dict.fromkeys(route.doc.tag for route in routes)
    return {
        "openapi": OPENAPI,
        "info": {"title": "logserver", "version": __version__, "description": _ABOUT},
        "tags": [{"name": tag} for tag in tags],
        "paths": paths,
        "components": components,
    }


def codes_of(doc: Doc, settings: Settings) -> Sequence[int]:
    """Return the error codes of a call, including the codes of every call, in order."""
    codes = {*doc.errors, 40000, 42901}
    if doc.offers:
        codes.add(406)
    if doc.bodies:
        codes |= {400, 408, 415, 417, 41301, 42201}
    if doc.scope is not None and settings.token_file is not None:
        codes |= {401, 403}
    if doc.needs_store:
        codes.add(50301)
    return sorted(codes, key=lambda code: (status_of(code), code))


def path_parameters(pattern: str) -> Sequence[Parameter[Any]]:
    """Return the parameters of a path, in order."""
    return [PATH[part[1:-1]] for part in pattern.split("/") if part.startswith("{")]


def _operation(route: Route, schemas: Schemas, settings: Settings) -> Json:
    doc = route.doc
    operation: Json = {
        "operationId": doc.id,
        "tags": [doc.tag],
        "summary": doc.summary,
        "parameters": list(_parameters(route, settings)),
        "responses": _responses(doc, schemas, settings),
    }
    if doc.about:
        operation["description"] = doc.about
    if doc.bodies:
        content = {kind: _body(kind, doc, schemas) for kind in doc.bodies}
        operation["requestBody"] = {"required": doc.body_required, "content": content}
    if settings.token_file is not None:
        operation["security"] = [] if doc.scope is None else [{_BEARER: [doc.scope.value]}]
    return operation


def _parameters(route: Route, settings: Settings) -> Iterator[Json]:
    doc = route.doc
    for parameter in path_parameters(route.pattern):
        given = {one.name: one.path.get(parameter.name) for one in doc.examples}
        samples = {name: value or SAMPLES[parameter.name] for name, value in given.items()}
        yield {**_parameter(parameter, settings, samples), "in": "path", "required": True}
    for place, parameters in (("query", doc.query), ("header", doc.headers)):
        for parameter in parameters:
            samples = {
                one.name: text
                for one in doc.examples
                if (text := getattr(one, _GIVEN[place]).get(parameter.name)) is not None
            }
            required = parameter.required
            yield {**_parameter(parameter, settings, samples), "in": place, "required": required}


_GIVEN: Final = {"query": "query", "header": "headers"}


def _parameter(parameter: Parameter[Any], settings: Settings, samples: Mapping[str, str]) -> Json:
    schema = parameter.kind.schema(settings)
    default = parameter.fallback(settings)
    if default is not None:
        schema["default"] = _typed(default, schema)
    told: Json = {"name": parameter.name, "description": parameter.about, "schema": schema}
    if samples:
        told["examples"] = {name: {"value": _typed(text, schema)} for name, text in samples.items()}
    return told


def _typed(text: str, schema: Json) -> str | int:
    return int(text) if schema["type"] == "integer" else text


def _body(media_type: str, doc: Doc, schemas: Schemas) -> Json:
    told: Json = {"schema": schemas.of(doc.bodies[media_type])}
    examples = {
        one.name: {"value": one.body} for one in doc.examples if one.media_type == media_type
    }
    if examples:
        told["examples"] = examples
    return told


def _responses(doc: Doc, schemas: Schemas, settings: Settings) -> Json:
    responses = {str(answer.status): _answer(answer, doc, schemas) for answer in doc.answers}
    by_status: dict[int, list[int]] = {}
    for code in codes_of(doc, settings):
        by_status.setdefault(status_of(code), []).append(code)
    for status, codes in by_status.items():
        responses[str(status)] = {
            "description": "; ".join(f"{code}: {MEANINGS[code]}" for code in codes) + ".",
            "content": {
                JSON: {"schema": schemas.of(Error)},
                PROBLEM_JSON: {"schema": schemas.of(Problem)},
            },
        }
    return dict(sorted(responses.items()))


def _answer(answer: Answer, doc: Doc, schemas: Schemas) -> Json:
    told: Json = {"description": answer.about or HTTPStatus(answer.status).phrase}
    if answer.headers:
        told["headers"] = {
            name: {"description": about, "schema": {"type": "string"}}
            for name, about in answer.headers.items()
        }
    if answer.shapes:
        told["content"] = {
            kind: _answer_content(kind, answer, doc, schemas) for kind in answer.shapes
        }
    return told


def _answer_content(media_type: str, answer: Answer, doc: Doc, schemas: Schemas) -> Json:
    told: Json = {"schema": schemas.of(answer.shapes[media_type])}
    examples = {
        one.name: {"value": one.answer}
        for one in doc.examples
        if one.status == answer.status
        and one.answer is not None
        and answer_type(one, doc) == media_type
    }
    if examples:
        told["examples"] = examples
    return told


def answer_type(example: Example, doc: Doc) -> str:
    """Return the media type of an example's answer."""
    return example.headers.get("Accept") or doc.offers[0]


def _types(shape: Shape) -> Iterator[Any]:
    """Yield the msgspec types of a shape."""
    if isinstance(shape, OneOf):
        yield from shape.types
    elif isinstance(shape, Lines):
        yield from _types(shape.type)
    elif not isinstance(shape, Octets):
        yield shape


def _anything(kind: type) -> Json:
    if kind is object:
        return {"description": "JSON of any kind."}
    raise NotImplementedError


def _tidy(schema: Any) -> Any:
    """Return the schema with int64 for whole numbers, and each description as one line."""
    if isinstance(schema, Mapping):
        told = {name: _tidy(value) for name, value in schema.items()}
        if isinstance(told.get("description"), str):
            told["description"] = " ".join(told["description"].split())
        return {**told, "format": "int64"} if told.get("type") == "integer" else told
    return [_tidy(value) for value in schema] if isinstance(schema, list) else schema
