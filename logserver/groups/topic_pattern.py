"""Topic patterns: regular expressions with a bounded cost, whatever pattern a client sends.

Owns the limits and RE2's options; must not know topics or clients. RE2 follows all reachable states at once, in time
linear in the length of the name. It has no look-around and no back references. A pattern must match a name as a
whole. Pure.

Where RE2 is missing (it has no wheels for musl), Python's own `re` takes its place (`compile_plain`), limited to
patterns whose cost can be bounded. Python's matcher goes back and tries again: `(a|a)*b` takes it 2^n steps. The number
of its steps is therefore bounded from the pattern alone, before the pattern is used, and a pattern that could take more
than MAX_STEPS is refused. An accepted pattern means the same as to RE2.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache, reduce
from importlib import import_module
from typing import Any, Final, NamedTuple

from storage.errors import InvalidArgument

try:
    re2: Any = import_module("re2")
except ImportError:
    re2 = None

MAX_PATTERN_LENGTH: Final = 500
MAX_PROGRAM_SIZE: Final = 5000
"""Largest number of instructions of a compiled pattern: repetitions such as `(a|b){0,120}` multiply them. A name of
249 characters takes 0.4 ms at worst.
"""
CACHED_PATTERNS: Final = 256
CACHED_MATCHES: Final = 4096


class TopicPattern:
    """A compiled pattern. Patterns with the same text are equal."""

    __slots__ = ("text",)

    def __init__(self, text: str) -> None:
        """Compile the pattern, which takes up to 50 ms. Raises InvalidArgument, which names the problem."""
        if len(text) > MAX_PATTERN_LENGTH:
            raise _invalid(f"is longer than {MAX_PATTERN_LENGTH} characters")
        self.text = text
        _compiled(text)

    def matches(self, name: str) -> bool:
        """Return whether the whole of `name` matches."""
        return _matches(self.text, name)

    def matching(self, names: Iterable[str]) -> dict[str, bool]:
        """Return for each name whether it matches; may run in a thread."""
        pattern = _compiled(self.text)
        return {name: pattern.fullmatch(name) is not None for name in names}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TopicPattern) and other.text == self.text

    def __hash__(self) -> int:
        return hash(self.text)


@lru_cache(maxsize=CACHED_PATTERNS)
def _compiled(text: str) -> Any:
    if re2 is not None:
        return _with_re2(text)
    try:
        return compile_plain(text)
    except PlainPatternError as error:
        raise _invalid(f"is refused: {error}") from None


def _with_re2(text: str) -> Any:
    options = re2.Options()
    options.log_errors = False  # else RE2 writes a client's text to standard error
    options.dot_nl = True
    options.never_capture = True  # groups need no positions: to find these is the slow part
    try:
        pattern = re2.compile(text, options)
    except re2.error as error:
        raise _invalid(f"is refused: {_reason(error)}") from None
    if pattern.programsize > MAX_PROGRAM_SIZE:
        raise _invalid(
            f"is too large when its repetitions are written out: {pattern.programsize} steps, "
            f"the limit is {MAX_PROGRAM_SIZE}"
        )
    return pattern


@lru_cache(maxsize=CACHED_MATCHES)
def _matches(text: str, name: str) -> bool:
    """Match with a cache: all groups of a server ask about the same new topic."""
    return _compiled(text).fullmatch(name) is not None


def _reason(error: Exception) -> str:
    """Return RE2's own error text, which it gives as bytes."""
    reason = error.args[0] if error.args else ""
    return reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)


def _invalid(problem: str) -> InvalidArgument:
    return InvalidArgument(f"topic_pattern {problem}", field="topic_pattern")


# ---- without RE2 ----

MAX_NAME_LENGTH: Final = 255
"""Longer than each name of a topic: Kafka allows 249 characters, RocketMQ 255."""
MAX_STEPS: Final = 500_000
"""Largest number of steps for one name, about 2 ms. Two repetitions without an upper limit (`.*`) take 130,000."""
MAX_REPEAT: Final = 1000  # as in RE2

_QUANTIFIER: Final = re.compile(r"([*+?]|\{(\d+)(,(\d*))?\})(\??)")
_GROUP: Final = re.compile(r"\((?:\?:|\?P?<([A-Za-z_]\w*)>|(?!\?))", re.ASCII)
_CLASSES: Final = frozenset("dDsSwW")
_TOO_MANY: Final = MAX_STEPS + 1  # counts stop here: they would grow without an end


class PlainPatternError(ValueError):
    """A pattern that is not accepted, with the reason."""


class _Part(NamedTuple):
    """A part of a pattern: its text for `re`, and bounds for one place where it begins."""

    text: str
    ways: int  # to match: the matcher may go back into each of them
    steps: int  # to try all ways


_NOTHING: Final = _Part("", 1, 0)


def compile_plain(text: str) -> re.Pattern[str]:
    """Return the compiled pattern. Raises PlainPatternError if it is wrong, unknown here, or could be slow."""
    reader = _Reader(text)
    part = reader.alternatives()
    if reader.rest():
        raise PlainPatternError("unexpected )")
    if part.steps > MAX_STEPS:
        raise PlainPatternError(
            f"it could take more than {MAX_STEPS:,} steps for one name. Use fewer repetitions, no repetition of a "
            "group with alternatives or repetitions, or install RE2 in the server's environment: "
            "pip install 'duolog[re2]'"
        )
    return re.compile(part.text, re.ASCII | re.DOTALL)


class _Reader:
    """Reads a pattern from left to right, a method for each rule of the grammar."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0

    def rest(self) -> str:
        """Return the text that is still to be read."""
        return self._text[self._at :]

    def alternatives(self) -> _Part:
        """Read `a|b|c` up to a `)` or the end."""
        parts = [self._sequence()]
        while self._takes("|"):
            parts.append(self._sequence())
        text = "|".join(part.text for part in parts)
        return _bounded(
            text, sum(part.ways for part in parts), sum(part.steps + 1 for part in parts)
        )

    def _sequence(self) -> _Part:
        parts = []
        while self.rest() and self.rest()[0] not in "|)":
            parts.append(self._repeated())
        return reduce(_then, parts, _NOTHING)

    def _repeated(self) -> _Part:
        part = self._atom()
        match = _QUANTIFIER.match(self._text, self._at)
        if match is None:
            return part
        self._at = match.end()
        least, most = _limits(match)
        if self.rest()[:1] in ("*", "+", "?") or _QUANTIFIER.match(self._text, self._at):
            raise PlainPatternError("a repetition of a repetition")
        return _repeat(part, least, most, match[0])

    def _atom(self) -> _Part:
        character = self.rest()[0]
        if character == "(":
            return self._group()
        if character == "[":
            return _Part(self._set(), 1, 1)
        if character == "\\":
            return _Part(self._escaped(), 1, 1)
        if character in "*+?":
            raise PlainPatternError(f"nothing to repeat before {character}")
        self._at += 1
        # `$` of Python also matches before a line feed at the end; Python repeats no anchor outside of a group.
        known = {".": ".", "^": r"(?:\A)", "$": r"(?:\Z)"}
        text = known.get(character) or re.escape(character)
        return _Part(text, 1, 1)

    def _group(self) -> _Part:
        opening = _GROUP.match(self._text, self._at)
        if opening is None:
            raise PlainPatternError(
                "a group that begins with (? is not supported, other than (?: and (?P<name>"
            )
        self._at = opening.end()
        inner = self.alternatives()
        if not self._takes(")"):
            raise PlainPatternError("missing )")
        return inner._replace(text=f"(?:{inner.text})")

    def _set(self) -> str:
        self._at += 1
        text = "[^" if self._takes("^") else "["
        first = True
        while first or not self.rest().startswith("]"):
            first = False
            text += self._set_item()
        self._at += 1
        return f"{text}]"

    def _set_item(self) -> str:
        """Read a character, a class or a range of a set."""
        low = self._set_character()
        if self.rest()[:1] != "-" or self.rest()[:2] in ("-]", "-"):
            return low
        self._at += 1
        high = self._set_character()
        if low[1:] in _CLASSES or high[1:] in _CLASSES or _bare(low) > _bare(high):
            raise PlainPatternError(f"the range {_bare(low)}-{_bare(high)} of a set")
        return f"{low}-{high}"

    def _set_character(self) -> str:
        character = self.rest()[:1]
        if not character:
            raise PlainPatternError("missing ]")
        if character == "\\":
            return self._escaped()
        if self.rest().startswith("[:"):
            raise PlainPatternError("classes such as [:alpha:] are not supported without RE2")
        self._at += 1
        # Escaped, though `re` needs it for few: it warns of some pairs that it may give a meaning later.
        return f"\\{character}" if character.isascii() and not character.isalnum() else character

    def _escaped(self) -> str:
        """Read a class such as `\\d`, or a character that is meant literally."""
        character = self.rest()[1:2]
        if character in _CLASSES or (character and character.isascii() and not character.isalnum()):
            self._at += 2
            return f"\\{character}"
        raise PlainPatternError(f"\\{character} is not supported without RE2")

    def _takes(self, character: str) -> bool:
        taken = self.rest().startswith(character)
        self._at += taken
        return taken


def _limits(match: re.Match[str]) -> tuple[int, int | None]:
    """Return the least and the largest number of repetitions; None: without a limit."""
    simple = {"*": (0, None), "+": (1, None), "?": (0, 1)}.get(match[1])
    if simple is not None:
        return simple
    least = int(match[2])
    most = least if match[3] is None else int(match[4]) if match[4] else None
    if max(least, most or 0) > MAX_REPEAT or (most is not None and most < least):
        raise PlainPatternError(f"the repetition {match[1]}: at most {MAX_REPEAT}, in rising order")
    return least, most


def _then(first: _Part, second: _Part) -> _Part:
    """Return both parts, one after the other: the second is tried for each way of the first."""
    return _bounded(
        first.text + second.text,
        first.ways * second.ways,
        first.steps + first.ways * second.steps,
    )


def _repeat(part: _Part, least: int, most: int | None, sign: str) -> _Part:
    """Return the repeated part. A name ends after MAX_NAME_LENGTH repetitions, unless the part can be empty."""
    most = max(least, MAX_NAME_LENGTH) if most is None else most
    ways, steps, total = 1, 0, 0
    for count in range(most + 1):
        if count >= least:
            total += ways
        if count < most:
            steps += ways * part.steps
            ways *= part.ways
        if max(steps, total, ways) > MAX_STEPS:
            return _Part(part.text + sign, _TOO_MANY, _TOO_MANY)
    return _bounded(part.text + sign, total, max(steps, total))


def _bounded(text: str, ways: int, steps: int) -> _Part:
    return _Part(text, min(ways, _TOO_MANY), min(steps, _TOO_MANY))


def _bare(character: str) -> str:
    return character[-1]
