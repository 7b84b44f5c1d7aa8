"""An operation of the API: its route, its documentation and its handler, declared in one place.

Owns the values that describe an operation and the decorator that declares one; must not know any operation.

    TOPICS = Resource("Topics")

    @TOPICS.put("/topics/{topic}", Answer(201, "Created.", Topic), body=optional(NewTopic), errors=(40901,))
    async def create_topic(call: RequestContext, body: NewTopic | None) -> web.Response:
        \"\"\"Create a topic.

        The description follows, for the users of the API.
        \"\"\"

The handler's name is the operation's id in camel case, and its docstring is part of the documentation: the first line
is the summary, the rest the description. Query parameters are constants that the handler reads from `call.params`. The
app rejects other parameters, and another type of body, before it calls the handler. The first media type of the first
answer is the one for a client that accepts any type. The tests execute every example in a server with the topic
`orders`: see `prepared` in `tests/http/test_openapi.py`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from functools import cached_property
from inspect import cleandoc
from typing import Any, Final, Generic, TypeAlias, TypedDict, TypeVar, Unpack, cast, overload

from aiohttp import web

from api.http.errors import PAYLOAD, ApiError
from api.http.negotiation import PLAIN_TYPES, media_type
from api.http.parameters import Parameter
from api.request_context import RequestContext, decode_json
from logserver.access.tokens import Scope

B = TypeVar("B")
Handler: TypeAlias = Callable[[RequestContext], Awaitable[web.StreamResponse]]
BodyHandler: TypeAlias = Callable[[RequestContext, B], Awaitable[web.StreamResponse]]
H = TypeVar("H", bound=Handler)


@dataclass(frozen=True, slots=True)
class Lines:
    """A stream of JSON values of this type, each on its own line or in its own event."""

    type: Any


@dataclass(frozen=True, slots=True)
class OneOf:
    """A JSON value of one of these types."""

    types: Sequence[Any]


@dataclass(frozen=True, slots=True)
class Octets:
    """Bytes or text that are not JSON."""

    is_text: bool = False


OCTETS: Final = Octets()
TEXT: Final = Octets(is_text=True)

# A msgspec type, or one of the values above for a body that is not one JSON value.
Shape: TypeAlias = Any
Shapes: TypeAlias = Mapping[str, Shape]
"""The shape of a body under each media type."""


def plain(shape: Shape) -> Shapes:
    """Return a JSON value under each of the media types for JSON."""
    return dict.fromkeys(PLAIN_TYPES, shape)


@dataclass(frozen=True, slots=True)
class Answer:
    """One status that an operation can have, other than an error's.

    `shape`: a type for JSON under each of its media types, or a shape for each media type. `headers`: the meaning of
    each header.
    """

    status: int
    about: str
    shape: Shape | Shapes = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)

    @property
    def shapes(self) -> Shapes:
        """The shape of the answer under each media type."""
        return self.shape if isinstance(self.shape, Mapping) else plain(self.shape)


@dataclass(frozen=True, slots=True)
class Example:
    """A request and its answer.

    A path parameter that is not given has its value in `parameters.SAMPLES`. `answer` shows the answer's shape:
    offsets and times differ in another run. `backends`: the backends to which it applies; empty: all.
    """

    name: str = "default"
    _: KW_ONLY
    path: Mapping[str, str] = field(default_factory=dict)
    query: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    media_type: str | None = None
    body: Any = None
    status: int = 200
    answer: Any = None
    backends: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class JsonBody(Generic[B]):
    """A small JSON body without records, which is decoded before the handler is called.

    `documented`: the type that the documentation shows. `example`: the message about a missing body shows it; None:
    the body may be missing. `lax`: numbers and booleans may be text.
    """

    kind: Any
    documented: Shapes
    example: str | None
    lax: bool

    async def read(self, call: RequestContext) -> B:
        """Return the decoded body; None if it is missing and may be."""
        with call.service.budget.reserve(0) as reservation:
            if call.request.can_read_body:
                media_type(call.request.headers.get("Content-Type"), tuple(self.documented))
            body = await call.body(reservation)
            if body:
                return cast("B", decode_json(body, self.kind, lax=self.lax))
        if self.example is not None:
            raise ApiError(PAYLOAD, f"the body is empty: send {self.example}")
        return cast("B", None)


def required(
    kind: type[B], example: str, *, lax: bool = False, media_types: Sequence[str] = PLAIN_TYPES
) -> JsonBody[B]:
    """Return a body that a request must have."""
    return JsonBody(
        kind=kind, documented=dict.fromkeys(media_types, kind), example=example, lax=lax
    )


def optional(
    kind: type[B], *, lax: bool = False, documented: Shape | None = None
) -> JsonBody[B | None]:
    """Return a body that may be missing. `documented`: the type to show in place of `kind`."""
    return JsonBody(kind=kind, documented=plain(documented or kind), example=None, lax=lax)


class Details(TypedDict, total=False):
    """The optional parts of a declaration; see `Operation`."""

    about: str
    scope: Scope | None
    query: Sequence[Parameter[Any]]
    headers: Sequence[Parameter[Any]]
    errors: Sequence[int]
    needs_store: bool


@dataclass(frozen=True, kw_only=True, eq=False)
class Operation:
    """One operation.

    `tag` is its part of the API. `errors` are its codes in addition to the codes of every operation. `scope` is the
    scope that a token needs; None: no token is needed. `has_raw_body`: the handler reads the body itself.
    `needs_store` False: it is answered while the store is not open.
    """

    method: str
    pattern: str
    handler: Handler
    id: str
    tag: str
    summary: str
    answers: Sequence[Answer]
    examples: Sequence[Example]
    bodies: Shapes
    has_raw_body: bool
    body_required: bool
    about: str = ""
    scope: Scope | None = Scope.READ
    query: Sequence[Parameter[Any]] = ()
    headers: Sequence[Parameter[Any]] = ()
    errors: Sequence[int] = ()
    needs_store: bool = True

    @cached_property
    def query_names(self) -> Sequence[str]:
        """The names of the query parameters, in order."""
        return tuple(parameter.name for parameter in self.query)

    @cached_property
    def body_types(self) -> Sequence[str]:
        """The media types that the body may have."""
        return tuple(self.bodies)

    @cached_property
    def offers(self) -> Sequence[str]:
        """The possible media types of the answer; empty if it has no body."""
        return tuple(dict.fromkeys(kind for answer in self.answers for kind in answer.shapes))


class Resource:
    """The operations of one part of the API, in the order of their declaration; a decorator for each HTTP method."""

    def __init__(self, tag: str) -> None:
        self.tag = tag
        self.operations: list[Operation] = []
        self.get = Declaration(self, "GET")
        self.post = Declaration(self, "POST")
        self.put = Declaration(self, "PUT")
        self.patch = Declaration(self, "PATCH")
        self.delete = Declaration(self, "DELETE")


class Declaration:
    """Declares operations of a resource with one HTTP method."""

    def __init__(self, resource: Resource, method: str) -> None:
        self._resource = resource
        self._method = method

    @overload
    def __call__(
        self,
        path: str,
        *answers: Answer,
        examples: Sequence[Example],
        body: JsonBody[B],
        **details: Unpack[Details],
    ) -> Callable[[BodyHandler[B]], BodyHandler[B]]: ...

    @overload
    def __call__(
        self,
        path: str,
        *answers: Answer,
        examples: Sequence[Example],
        bodies: Shapes = ...,
        **details: Unpack[Details],
    ) -> Callable[[H], H]: ...

    def __call__(
        self,
        path: str,
        *answers: Answer,
        examples: Sequence[Example],
        body: JsonBody[Any] | None = None,
        bodies: Shapes | None = None,
        **details: Unpack[Details],
    ) -> Callable[[Any], Any]:
        """Declare the operation of a handler. `body`: decoded, it is the handler's second argument; `bodies`: the
        handler reads the body itself.
        """

        def declare(handler: Any) -> Any:
            first, *words = handler.__name__.split("_")
            summary, _, about = cleandoc(handler.__doc__ or "").partition("\n\n")
            details.setdefault("about", " ".join(about.split()))
            operation = Operation(
                method=self._method,
                pattern=path,
                handler=handler if body is None else _with_body(handler, body),
                id=first + "".join(word.capitalize() for word in words),
                tag=self._resource.tag,
                summary=summary.removesuffix("."),
                answers=answers,
                examples=examples,
                bodies=body.documented if body is not None else bodies or {},
                has_raw_body=bodies is not None,
                body_required=body is None or body.example is not None,
                **details,
            )
            self._resource.operations.append(operation)
            return handler

        return declare


def _with_body(handler: BodyHandler[B], body: JsonBody[B]) -> Handler:
    async def run(call: RequestContext) -> web.StreamResponse:
        return await handler(call, await body.read(call))

    return run
