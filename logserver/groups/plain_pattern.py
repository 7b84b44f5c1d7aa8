"""Topic patterns where RE2 is not installed: Python's own `re`, limited to patterns whose cost can be bounded.

Owns the grammar and the bound; must not know topics or clients. Python's matcher goes back and tries again: `(a|a)*b`
takes it 2^n steps. The number of its steps is therefore bounded from the pattern alone, before the pattern is used,
and a pattern that could take more than MAX_STEPS is refused. An accepted pattern means the same as to RE2. Pure.
"""

from __future__ import annotations

import re
from functools import reduce
from typing import Final, NamedTuple

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
