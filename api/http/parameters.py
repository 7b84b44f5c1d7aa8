"""Parameters: the values that each allows, the conversion of its text, and its documentation.

Owns the kinds of parameters and the check of a query against them; must not know calls. A kind reads the text and
returns the JSON schema of the allowed values, so that documentation and check agree. A message names the parameter
and the limit. A parameter that the call does not know is rejected: ignoring a misspelt `producer_id` would store a
record twice.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, Generic, Protocol, TypeAlias, TypeVar
from urllib.parse import parse_qsl

from api.http.errors import MALFORMED, ApiError
from logserver.config import Settings
from logserver.service.requests import Start, StartAt

T = TypeVar("T")
Value = TypeVar("Value", covariant=True)

MAX_INT64: Final = (1 << 63) - 1
MAX_INT32: Final = (1 << 31) - 1
MAX_INT16: Final = (1 << 15) - 1
CACHED_QUERIES: Final = 256
_INTEGER: Final = re.compile(r"-?[0-9]{1,19}")

Schema: TypeAlias = dict[str, Any]


class Kind(Protocol[Value]):
    """The type of a parameter's value."""

    def read(self, name: str, text: str, settings: Settings) -> Value:
        """Convert `text` to its value. Raises 40000, which names the parameter and the allowed values."""
        ...

    def schema(self, settings: Settings) -> Schema:
        """Return the allowed values as JSON schema."""
        ...


@dataclass(frozen=True, slots=True)
class Integer:
    """A whole number from `low` to `high`; `high` may be the name of a setting."""

    low: int = 0
    high: int | str = MAX_INT64

    def read(self, name: str, text: str, settings: Settings) -> int:
        return checked_integer(name, text, low=self.low, high=self.highest(settings))

    def schema(self, settings: Settings) -> Schema:
        high = self.highest(settings)
        return {"type": "integer", "format": "int64", "minimum": self.low, "maximum": high}

    def highest(self, settings: Settings) -> int:
        """Return the limit in force."""
        return self.high if isinstance(self.high, int) else int(getattr(settings, self.high))


@dataclass(frozen=True, slots=True)
class IntegerOrWord:
    """A whole number, or this word."""

    word: str

    def read(self, name: str, text: str, settings: Settings) -> int | str:
        if text == self.word:
            return text
        return checked_integer(name, text, low=0, instead=self.word)

    def schema(self, settings: Settings) -> Schema:
        """Return the pattern. `read` accepts numbers up to int64; the pattern allows 18 digits."""
        return {"type": "string", "pattern": f"^({self.word}|[0-9]{{1,18}})$"}


@dataclass(frozen=True, slots=True)
class Choice(Generic[T]):
    """One of the words that `words` maps to values."""

    words: Mapping[str, T]

    def read(self, name: str, text: str, settings: Settings) -> T:
        if text not in self.words:
            raise ApiError(
                MALFORMED,
                f"parameter {name} is {text[:80]!r}: it must be one of {', '.join(self.words)}",
            )
        return self.words[text]

    def schema(self, settings: Settings) -> Schema:
        return {"type": "string", "enum": list(self.words)}


@dataclass(frozen=True, slots=True)
class Text:
    """Text of at least `shortest` characters."""

    shortest: int = 0

    def read(self, name: str, text: str, settings: Settings) -> str:
        if len(text) < self.shortest:
            raise ApiError(MALFORMED, f"parameter {name} is empty: give a value, or leave it out")
        return text

    def schema(self, settings: Settings) -> Schema:
        return {"type": "string", "minLength": self.shortest}


@dataclass(frozen=True, slots=True)
class StartPosition:
    """A start position: N, earliest, latest, -N (the last N), @milliseconds."""

    def read(self, name: str, text: str, settings: Settings) -> Start:
        if text in {"earliest", "latest"}:
            return Start(StartAt(text))
        try:
            if text.startswith("@"):
                return Start(StartAt.TIME, checked_integer(name, text[1:], low=0))
            if text.startswith("-"):
                return Start(StartAt.LAST, checked_integer(name, text[1:], low=1))
            return Start(StartAt.OFFSET, checked_integer(name, text, low=0))
        except ApiError:
            raise ApiError(
                MALFORMED,
                f"parameter {name} is {text[:80]!r}: it must be earliest, latest, N, -N (the last N) "
                f"or @MS, with a whole number up to {MAX_INT64}",
            ) from None

    def schema(self, settings: Settings) -> Schema:
        """Return the pattern. `read` accepts numbers up to int64; the pattern allows 18 digits."""
        number = "[0-9]{1,18}"
        pattern = f"^(earliest|latest|{number}|-[1-9][0-9]{{0,17}}|@{number})$"
        return {"type": "string", "pattern": pattern}


@dataclass(frozen=True, slots=True, eq=False)
class Parameter(Generic[T]):
    """A parameter of the path, the query or the headers, with its kind and its meaning. `default` applies if it is
    not given. Compared by identity: two operations may give one name two meanings.
    """

    name: str
    kind: Kind[T]
    about: str
    default: str | None = None
    required: bool = False

    def fallback(self, settings: Settings) -> str | None:
        """Return the default, limited by the settings in force."""
        kind: object = self.kind
        if self.default is not None and isinstance(kind, Integer):
            return str(min(int(self.default), kind.highest(settings)))
        return self.default


class Params:
    """The query of a request, as parsed by `parse_query`. Requests with the same query share one, see `QueryReader`."""

    __slots__ = ("_read", "_settings", "_unset", "query")

    def __init__(
        self,
        query: Mapping[str, str],
        known: Sequence[str],
        settings: Settings,
        unset: dict[Any, Any],
    ) -> None:
        """Raise 40000 for a parameter that is not one of `known`. `unset` keeps the values of parameters that are not
        given, by parameter and by tuple of parameters, for all queries of a server.
        """
        self._settings = settings
        self._unset = unset
        self._read: dict[Callable[[Params], Any], Any] = {}
        self.query = query
        for name in query:
            if name not in known:
                allowed = ", ".join(known) or "none"
                raise ApiError(
                    MALFORMED, f"query parameter {name[:80]!r} is unknown here: it takes {allowed}"
                )

    def refuse(self, parameters: Sequence[Parameter[Any]], reason: str) -> None:
        """Raise 40000 if one of these parameters is given: it has no meaning in this form of the call."""
        for parameter in parameters:
            if parameter.name in self.query:
                raise ApiError(
                    MALFORMED, f"query parameter {parameter.name} is not taken here: {reason}"
                )

    def once(self, read: Callable[[Params], T]) -> T:
        """Return `read(self)`, which is called once: a producer sends the same query in each request. `read` must use
        nothing but the query.
        """
        values = self._read
        if read not in values:
            values[read] = read(self)
        value: T = values[read]
        return value

    def get(self, parameter: Parameter[T]) -> T | None:
        """Return the value of a parameter, or its default; None if it has neither. Raises 40000."""
        text = self.query.get(parameter.name)
        if text is not None:
            return parameter.kind.read(parameter.name, text, self._settings)
        unset = self._unset
        if parameter not in unset:
            unset[parameter] = self._value_if_unset(parameter)
        value: T | None = unset[parameter]
        return value

    def values(self, parameters: tuple[Parameter[Any], ...]) -> list[Any]:
        """Return what `get` returns for each of the parameters: one copy of their defaults, and the given values."""
        unset: list[Any] | None = self._unset.get(parameters)
        if unset is None:
            unset = [self._value_if_unset(parameter) for parameter in parameters]
            self._unset[parameters] = unset
        values = unset.copy()
        query, settings = self.query, self._settings
        for place, parameter in enumerate(parameters):
            text = query.get(parameter.name)
            if text is not None:
                values[place] = parameter.kind.read(parameter.name, text, settings)
        return values

    def _value_if_unset(self, parameter: Parameter[T]) -> T | None:
        text = parameter.fallback(self._settings)
        if text is not None:
            return parameter.kind.read(parameter.name, text, self._settings)
        if parameter.required:
            raise ApiError(
                MALFORMED,
                f"query parameter {parameter.name} is missing: add {parameter.name}=VALUE",
            )
        return None

    def __getitem__(self, parameter: Parameter[T]) -> T:
        """Return the value of a parameter that has a default. Raises 40000."""
        value = self.get(parameter)
        if value is None:
            raise LookupError(f"{parameter.name} has no default")
        return value


class QueryReader:
    """Parses the queries of one server. The last queries are kept, because a producer sends the same query in each
    request, and then its values are parsed once.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._unset: dict[Any, Any] = {}
        self.params = lru_cache(maxsize=CACHED_QUERIES)(self._params)

    def _params(self, raw_query: str, known: Sequence[str]) -> Params:
        """Return a query of an operation that takes the parameters `known`. `params` keeps the last ones."""
        return Params(parse_query(raw_query), known, self._settings, self._unset)


def parse_query(raw_query: str) -> Mapping[str, str]:
    """Return the parameters of a query; of a repeated parameter the last.

    Raises 40000 for bytes that are not UTF-8: they would be decoded to another text.
    """
    try:
        raw_query.encode()  # bytes that were not percent-encoded
        return dict(parse_qsl(raw_query, keep_blank_values=True, errors="strict"))
    except UnicodeError:
        raise ApiError(
            MALFORMED, "the query is not UTF-8: encode each byte of a value as %XX"
        ) from None


def checked_integer(
    name: str, text: str, *, low: int, high: int = MAX_INT64, instead: str = ""
) -> int:
    """Convert `text` to a whole number from `low` to `high`. Raises 40000, which names the parameter, and the word that
    is possible `instead`.
    """
    if not _INTEGER.fullmatch(text) or not low <= int(text) <= high:
        wanted = f"a whole number from {low} to {high}" + (f" or {instead}" if instead else "")
        raise ApiError(MALFORMED, f"parameter {name} is {text[:80]!r}: it must be {wanted}")
    return int(text)
