"""The values that describe a call. Owns their shapes only; must not know routes, texts of the API or OpenAPI."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from functools import cached_property
from typing import Any, Final, TypeAlias

from api.http.negotiation import PLAIN_TYPES
from api.http.parameters import Parameter
from logserver.tokens import Scope


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


@dataclass(frozen=True, slots=True)
class Answer:
    """One status that a call can have, other than an error's. `headers`: the meaning of each header."""

    status: int
    about: str
    shapes: Mapping[str, Shape] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)


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


@dataclass(frozen=True, kw_only=True)
class Doc:
    """One call.

    `id` is its operation id, `tag` the part of the API. `errors` are its codes in addition to the codes of every
    call. `scope` is the scope that a token needs; None: no token is needed. `needs_store` False: the call is answered
    while the store is not open.
    """

    id: str
    tag: str
    summary: str
    about: str = ""
    scope: Scope | None = Scope.READ
    query: Sequence[Parameter[Any]] = ()
    headers: Sequence[Parameter[Any]] = ()
    bodies: Mapping[str, Shape] = field(default_factory=dict)
    body_required: bool = True
    answers: Sequence[Answer]
    errors: Sequence[int] = ()
    examples: Sequence[Example] = ()
    needs_store: bool = True

    @cached_property
    def query_names(self) -> Sequence[str]:
        """The names of the query parameters, in order."""
        return tuple(parameter.name for parameter in self.query)

    @cached_property
    def offers(self) -> Sequence[str]:
        """The possible media types of the answer; empty if it has no body."""
        return tuple(dict.fromkeys(kind for answer in self.answers for kind in answer.shapes))


def plain(shape: Shape) -> Mapping[str, Shape]:
    """Return a JSON value under each of the media types for JSON."""
    return dict.fromkeys(PLAIN_TYPES, shape)
