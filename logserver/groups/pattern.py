"""Topic patterns: regular expressions whose cost is bounded, whatever a client writes.

Owns a subset of regular expressions: characters, `.`, classes, `\\d \\w \\s` and their opposites,
escapes, groups, `|`, `* + ?`, `{m,n}`, `^` and `$`. A pattern must match a name as a whole. Python's
own matcher goes back and forth, so that a pattern such as `(a+)+$` holds up the server for years;
here all places that can be reached are followed at once, in steps that grow with the name's length.
Pure.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Final, TypeAlias

from storage.errors import InvalidArgument

Places: TypeAlias = frozenset[int]
"""Positions in a name."""

Matcher: TypeAlias = Callable[[str, Places], Places]
"""From the places where a part of the pattern may begin to those where it may end."""

MAX_PATTERN_LENGTH: Final = 500
MAX_NESTING: Final = 10
MAX_REPEAT: Final = 255

_TOKEN: Final = re.compile(
    r"""
    (?P<open>\((?:\?:)?)
    | (?P<repeat>(?:[*+?]|\{\d{1,3}(?:,\d{0,3})?\})\??)
    | (?P<special>[)|^$])
    | (?P<atom>\\[dDwWsS] | \\[^a-zA-Z0-9] | \[\^?(?:\\[dDwWsS]|\\[^a-zA-Z0-9]|[^]\\[&|~])+\]
              | [^](){}*+?|^$\\[])
    """,
    re.VERBOSE | re.DOTALL,
)
_COUNTS: Final = {"*": (0, None), "+": (1, None), "?": (0, 1)}


class TopicPattern:
    """A pattern, ready to be matched. Equal patterns are equal."""

    def __init__(self, text: str) -> None:
        """Raises InvalidArgument naming what is wrong and where."""
        if len(text) > MAX_PATTERN_LENGTH:
            raise _invalid(f"is longer than {MAX_PATTERN_LENGTH} characters")
        self.text = text
        self._match = _Parser(text).parse()

    def matches(self, name: str) -> bool:
        """Whether the whole of `name` matches."""
        return len(name) in self._match(name, frozenset({0}))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TopicPattern) and other.text == self.text

    def __hash__(self) -> int:
        return hash(self.text)


class _Parser:
    """Recursive descent over the pattern's tokens."""

    def __init__(self, text: str) -> None:
        self._tokens = _tokens(text)
        self._next = 0
        self._depth = 0

    def parse(self) -> Matcher:
        matcher = self._alternatives()
        if self._next < len(self._tokens):
            raise _invalid("has a ')' without its '('")
        return matcher

    def _alternatives(self) -> Matcher:
        parts = [self._sequence()]
        while self._peek() == "|":
            self._next += 1
            parts.append(self._sequence())
        return parts[0] if len(parts) == 1 else partial(_any_of, parts)

    def _sequence(self) -> Matcher:
        parts: list[Matcher] = []
        while self._peek() not in {"", "|", ")"}:
            parts.append(self._repeated())
        return partial(_one_after_another, parts)

    def _repeated(self) -> Matcher:
        part = self._part()
        kind, text = self._token()
        if kind != "repeat":
            return part
        self._next += 1
        low, high = _counts(text)
        return partial(_repeated, part, low=low, high=high)

    def _part(self) -> Matcher:
        kind, text = self._token()
        self._next += 1
        if kind == "atom":
            return partial(_character, re.compile(text, re.DOTALL | re.ASCII))
        if kind == "open":
            return self._group()
        if text == "^":
            return _at_begin
        if text == "$":
            return _at_end
        raise _invalid(f"has {text!r} with nothing to repeat")

    def _group(self) -> Matcher:
        self._depth += 1
        if self._depth > MAX_NESTING:
            raise _invalid(f"has groups nested deeper than {MAX_NESTING}")
        matcher = self._alternatives()
        if self._peek() != ")":
            raise _invalid("has a '(' without its ')'")
        self._next += 1
        self._depth -= 1
        return matcher

    def _token(self) -> tuple[str, str]:
        return self._tokens[self._next] if self._next < len(self._tokens) else ("", "")

    def _peek(self) -> str:
        return self._token()[1]


def _tokens(text: str) -> Sequence[tuple[str, str]]:
    tokens = []
    position = 0
    while position < len(text):
        found = _TOKEN.match(text, position)
        if found is None:
            raise _invalid(f"has something that is not taken here at {text[position:][:20]!r}")
        tokens.append((found.lastgroup or "", found.group()))
        position = found.end()
    return tokens


def _counts(text: str) -> tuple[int, int | None]:
    counts = (
        text.rstrip("?") or "?"
    )  # a trailing ? (take as little as can be) matches the same names
    if counts in _COUNTS:
        return _COUNTS[counts]
    low, comma, high = counts[1:-1].partition(",")
    bounds = int(low), int(high) if high else None if comma else int(low)
    if bounds[1] is not None and bounds[1] < bounds[0]:
        raise _invalid(f"has {counts!r}, whose bounds are reversed")
    if max(bounds[0], bounds[1] or 0) > MAX_REPEAT:
        raise _invalid(f"has {counts!r}: at most {MAX_REPEAT} can be asked for")
    return bounds


def _invalid(problem: str) -> InvalidArgument:
    return InvalidArgument(f"topic_pattern {problem}", field="topic_pattern")


def _character(test: re.Pattern[str], name: str, places: Places) -> Places:
    return frozenset(at + 1 for at in places if at < len(name) and test.fullmatch(name[at]))


def _at_begin(name: str, places: Places) -> Places:
    return places & {0}


def _at_end(name: str, places: Places) -> Places:
    return places & {len(name)}


def _one_after_another(parts: Iterable[Matcher], name: str, places: Places) -> Places:
    for part in parts:
        places = part(name, places)
    return places


def _any_of(parts: Iterable[Matcher], name: str, places: Places) -> Places:
    return frozenset().union(*(part(name, places) for part in parts))


def _repeated(part: Matcher, name: str, places: Places, *, low: int, high: int | None) -> Places:
    """At least `low` times, then up to `high`. It ends early where one more time changes nothing:
    a part that can be empty only adds places, any other moves them on.
    """
    for _ in range(low):
        before, places = places, part(name, places)
        if places == before:
            break
    reached, fresh = places, places
    times_left = len(name) + 1 if high is None else high - low
    while fresh and times_left > 0:
        fresh = part(name, fresh) - reached
        reached |= fresh
        times_left -= 1
    return reached
