"""Query parameters: typed, bounded, none misspelt.

Owns how a parameter's text becomes a value; a message names the parameter and the limit. A
parameter that the call does not know is refused: ignoring a misspelt `producer_id` would store a
record twice.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final, TypeVar
from urllib.parse import unquote_to_bytes

from api.errors import MALFORMED, ApiError
from logserver.requests import Start, StartAt

T = TypeVar("T")

MAX_INT64: Final = (1 << 63) - 1
_INTEGER: Final = re.compile(r"-?[0-9]{1,19}")


class Params:
    """The query of one request. Of a repeated parameter the last counts."""

    def __init__(self, query: Mapping[str, str], known: Sequence[str]) -> None:
        self._query = dict(query.items())
        for name in self._query:
            if name not in known:
                allowed = ", ".join(known) or "none"
                raise ApiError(
                    MALFORMED, f"query parameter {name[:80]!r} is unknown here: it takes {allowed}"
                )

    @property
    def given(self) -> Mapping[str, str]:
        """Every parameter that was given, as it was given."""
        return self._query

    def text(self, name: str) -> str | None:
        """The text as given; None when it is not there."""
        return self._query.get(name)

    def integer(self, name: str, default: T, *, low: int, high: int = MAX_INT64) -> int | T:
        """A whole number within its limits."""
        text = self._query.get(name)
        if text is None:
            return default
        return checked_integer(name, text, low=low, high=high)

    def choice(self, name: str, choices: Mapping[str, T], default: T) -> T:
        """One of the words that `choices` maps to values."""
        text = self._query.get(name)
        if text is None:
            return default
        if text not in choices:
            raise ApiError(
                MALFORMED,
                f"query parameter {name} is {text[:80]!r}: it must be one of {', '.join(choices)}",
            )
        return choices[text]

    def start(self, name: str) -> Start:
        """Where to begin: N, earliest, latest, -N (the last N), @milliseconds; earliest when it is
        not there.
        """
        text = self._query.get(name, "earliest")
        if text in {"earliest", "latest"}:
            return Start(StartAt(text))
        if text.startswith("@"):
            return Start(StartAt.TIME, checked_integer(name, text[1:], low=0))
        if text.startswith("-"):
            return Start(StartAt.LAST, checked_integer(name, text[1:], low=1))
        return Start(StartAt.OFFSET, checked_integer(name, text, low=0))


def check_percent_encoding(raw_query: str) -> None:
    """Raise 40000 for bytes that are no UTF-8: they would be read as another text."""
    try:
        unquote_to_bytes(raw_query).decode()
    except UnicodeDecodeError:
        raise ApiError(MALFORMED, "the query is not percent-encoded UTF-8") from None


def checked_integer(name: str, text: str, *, low: int, high: int = MAX_INT64) -> int:
    """`text` as a whole number from `low` to `high`. Raises 40000 naming the parameter."""
    if not _INTEGER.fullmatch(text) or not low <= int(text) <= high:
        raise ApiError(
            MALFORMED,
            f"parameter {name} is {text[:80]!r}: it must be a whole number from {low} to {high}",
        )
    return int(text)
