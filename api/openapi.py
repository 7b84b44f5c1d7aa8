"""The OpenAPI 3.1 document of one server: the declarations of its operations, as JSON.

Owns the form of the document; must not know the content of an operation, which its declaration defines. Pure. The
limits are taken from the settings in force.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from http import HTTPStatus
from typing import Any, Final, TypeAlias

import msgspec
from msgspec import Struct

from api.http.errors import JSON, MEANINGS, PROBLEM_JSON, status_of
from api.http.negotiation import HTML
from api.http.parameters import Parameter
from api.operation import TEXT, Answer, Lines, Octets, OneOf, Operation, Shape
from api.operations.parameters import PATH, SAMPLES
from logserver import __version__
from logserver.config import Settings

Json: TypeAlias = dict[str, Any]

OPENAPI: Final = "3.1.0"
_BEARER: Final = "bearer"
_REF: Final = "#/components/schemas/{name}"
_ABOUT: Final = (
    "Serves the records of a Kafka log directory or a RocketMQ store. Times are milliseconds since the epoch; whole "
    "numbers have 64 bits. Keys and values are bytes: base64 in JSON, or JSON itself, or text, as the media type or "
    "the parameter `format` says. Under `application/json` they are base64, and a produce request with any other value "
    "is refused as a whole: send JSON as `application/vnd.kafka.json.v2+json`, text with `format=text`."
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

    def __init__(self, operations: Sequence[Operation]) -> None:
        shapes: list[Shape] = [Error, Problem]
        for operation in operations:
            shapes += operation.bodies.values()
            shapes += (shape for answer in operation.answers for shape in answer.shapes.values())
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


class ApiDocs:
    """The documentation of one server: its operations under its settings.

    The sequence of operations is read at the first use, so that it may contain the operations that serve this object.
    """

    def __init__(self, operations: Sequence[Operation], settings: Settings) -> None:
        self.operations = operations
        self.settings = settings

    @cached_property
    def schemas(self) -> Schemas:
        """The schemas of all bodies and answers."""
        return Schemas(self.operations)

    @cached_property
    def openapi(self) -> bytes:
        """The OpenAPI document as JSON."""
        return msgspec.json.encode(self.document())

    def document(self) -> Json:
        """Return the OpenAPI document."""
        paths: dict[str, Json] = {}
        for operation in self.operations:
            path = paths.setdefault(operation.pattern, {})
            path[operation.method.lower()] = self._operation(operation)
        components: Json = {"schemas": self.schemas.components}
        if self.settings.token_file is not None:
            components["securitySchemes"] = {_BEARER: {"type": "http", "scheme": "bearer"}}
        tags = dict.fromkeys(operation.tag for operation in self.operations)
        return {
            "openapi": OPENAPI,
            "info": {"title": "logserver", "version": __version__, "description": _ABOUT},
            "tags": [{"name": tag} for tag in tags],
            "paths": paths,
            "components": components,
        }

    def codes_of(self, operation: Operation) -> Sequence[int]:
        """Return the error codes of an operation, including the codes of every operation, in order."""
        codes = {*operation.errors, 40000, 42901}
        if operation.offers:
            codes.add(406)
        if operation.bodies:
            codes |= {400, 408, 415, 417, 41301, 42201}
        if operation.scope is not None and self.settings.token_file is not None:
            codes |= {401, 403}
        if operation.needs_store:
            codes.add(50301)
        return sorted(codes, key=lambda code: (status_of(code), code))

    def _operation(self, operation: Operation) -> Json:
        described: Json = {
            "operationId": operation.id,
            "tags": [operation.tag],
            "summary": operation.summary,
            "parameters": list(self._parameters(operation)),
            "responses": self._responses(operation),
        }
        if operation.about:
            described["description"] = operation.about
        if operation.bodies:
            content = {kind: self._body(kind, operation) for kind in operation.bodies}
            described["requestBody"] = {"required": operation.body_required, "content": content}
        if self.settings.token_file is not None:
            scope = operation.scope
            described["security"] = [] if scope is None else [{_BEARER: [scope.value]}]
        return described

    def _parameters(self, operation: Operation) -> Iterator[Json]:
        examples = operation.examples
        for parameter in path_parameters(operation.pattern):
            sample = SAMPLES[parameter.name]
            samples = {one.name: one.path.get(parameter.name) or sample for one in examples}
            yield {**self._parameter(parameter, samples), "in": "path", "required": True}
        query = [("query", parameter, "query") for parameter in operation.query]
        headers = [("header", parameter, "headers") for parameter in operation.headers]
        for place, parameter, member in (*query, *headers):
            values = {one.name: getattr(one, member).get(parameter.name) for one in examples}
            samples = {name: text for name, text in values.items() if text is not None}
            required = parameter.required
            yield {**self._parameter(parameter, samples), "in": place, "required": required}

    def _parameter(self, parameter: Parameter[Any], samples: Mapping[str, str]) -> Json:
        schema = parameter.kind.schema(self.settings)
        default = parameter.fallback(self.settings)
        if default is not None:
            schema["default"] = _typed(default, schema)
        described: Json = {"name": parameter.name, "description": parameter.about, "schema": schema}
        values = {name: _typed(text, schema) for name, text in samples.items()}
        return _with_examples(described, values)

    def _body(self, media_type: str, operation: Operation) -> Json:
        described: Json = {"schema": self.schemas.of(operation.bodies[media_type])}
        bodies = {one.name: one.body for one in operation.examples if one.media_type == media_type}
        return _with_examples(described, bodies)

    def _responses(self, operation: Operation) -> Json:
        responses = {
            str(answer.status): self._answer(answer, operation) for answer in operation.answers
        }
        by_status: dict[int, list[int]] = {}
        for code in self.codes_of(operation):
            by_status.setdefault(status_of(code), []).append(code)
        for status, codes in by_status.items():
            content = {
                JSON: {"schema": self.schemas.of(Error)},
                PROBLEM_JSON: {"schema": self.schemas.of(Problem)},
            }
            if HTML in operation.offers:
                content[HTML] = {"schema": self.schemas.of(TEXT)}
            responses[str(status)] = {
                "description": "; ".join(f"{code}: {MEANINGS[code]}" for code in codes) + ".",
                "content": content,
            }
        return dict(sorted(responses.items()))

    def _answer(self, answer: Answer, operation: Operation) -> Json:
        described: Json = {"description": answer.about or HTTPStatus(answer.status).phrase}
        if answer.headers:
            described["headers"] = {
                name: {"description": about, "schema": {"type": "string"}}
                for name, about in answer.headers.items()
            }
        if answer.shapes:
            described["content"] = {
                kind: self._answer_content(kind, answer, operation) for kind in answer.shapes
            }
        return described

    def _answer_content(self, media_type: str, answer: Answer, operation: Operation) -> Json:
        described: Json = {"schema": self.schemas.of(answer.shapes[media_type])}
        answers = {
            one.name: one.answer
            for one in operation.examples
            if one.status == answer.status
            and one.answer is not None
            and (one.headers.get("Accept") or operation.offers[0]) == media_type
        }
        return _with_examples(described, answers)


def path_parameters(pattern: str) -> Sequence[Parameter[Any]]:
    """Return the parameters of a path, in order."""
    return [PATH[part[1:-1]] for part in pattern.split("/") if part.startswith("{")]


def _with_examples(described: Json, values: Mapping[str, Any]) -> Json:
    if values:
        described["examples"] = {name: {"value": value} for name, value in values.items()}
    return described


def _typed(text: str, schema: Json) -> str | int:
    return int(text) if schema["type"] == "integer" else text


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
        described = {name: _tidy(value) for name, value in schema.items()}
        if isinstance(described.get("description"), str):
            described["description"] = " ".join(described["description"].split())
        return {**described, "format": "int64"} if described.get("type") == "integer" else described
    return [_tidy(value) for value in schema] if isinstance(schema, list) else schema
