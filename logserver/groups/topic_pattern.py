"""Topic patterns: regular expressions with a bounded cost, whatever pattern a client sends.

Owns the limits and RE2's options; must not know topics or clients. RE2 follows all reachable states at once, in time
linear in the length of the name. It has no look-around and no back references. A pattern must match a name as a
whole. Where RE2 is missing (it has no wheels for musl), `plain_pattern` takes its place and accepts fewer patterns.
Pure.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from importlib import import_module
from typing import Any, Final

from logserver.groups.plain_pattern import PlainPatternError, compile_plain
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
