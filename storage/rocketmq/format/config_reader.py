"""A reader of the broker's config files that works as fastjson2 2.0.59 with the broker's classes.

Owns the grammar that fastjson2 accepts beyond JSON, and its conversions; must not know which file has which
shape. The results follow JSONReaderUTF16, ObjectReaderImplMapTyped and the generated readers of beans:

    before the value     NUL, white space, one byte order mark, comments
    comments             /* */ and //, after `{`, `,` and `}` of an object and after the colon of a number key
    names                in double or single quotes; of a map with number keys also bare
    commas               optional after a member of an object; one more may follow the last member
    numbers              as text, with the suffix L, F, D, B or S, with a fraction (cut off), true and false, in [ ]
    after the value      NUL, white space, a comma, comments; everything after the character 0x1A
    unknown members      skipped, with stricter rules: no comments, no bare names, no comma too many

Where the grammar differs from JSON, the results were compared with the real jar.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from enum import Enum, auto
from typing import Any, Final, TypeAlias

END: Final = "\x1a"
"""JSONReader.EOI: the reader takes this character for the end of its input."""
BYTE_ORDER_MARKS: Final = ("\ufeff", "\ufffe")

_INT32 = 1 << 31
_INT64 = 1 << 63
_MAX_EXPONENT = 2047
_SPACE = re.compile(r"[ \n\r\f\t\x08]*")
_SPACE_OR_NUL = re.compile(r"[ \n\r\f\t\x08\0]*")
_INTEGER = re.compile(r"[+-]?[0-9]*")
_NUMBER = re.compile(r"[+-]?[0-9]*(?:\.[0-9]*)?(?:[eE][+-]?[0-9]*)?")
_SKIPPED_NUMBER = re.compile(
    r"[+-]?(?:[0-9]+[LFDBS]|(?:[0-9]+\.?[0-9]*|\.[0-9]*)(?:[eE](?:[+-][0-9]+|[0-9]*))?[FD]?)"
)
_PLAIN_TEXT: Final = {'"': re.compile(r'[^"\\]+'), "'": re.compile(r"[^'\\]+")}
_HEX = re.compile(r"[0-9a-fA-F]+")
_ESCAPES: Final = {
    **{str(number): chr(number) for number in range(8)},
    **{"b": "\b", "t": "\t", "n": "\n", "v": "\v", "f": "\f", "F": "\f", "r": "\r"},
    **{char: char for char in "\"'/.\\#&[]@()_,~ "},
}


class Scalar(Enum):
    """The type of a value without members."""

    ANY = auto()
    """Any value: for a file whose class is unknown."""
    TEXT = auto()
    BOOL = auto()
    """A boolean, not an object: null is false."""
    INT32 = auto()
    """An int, not an object: null is 0."""
    INT64 = auto()
    NUMBER32 = auto()
    """An Integer: null stays null."""
    NUMBER64 = auto()
    FILTER_TYPE = auto()
    """TopicFilterType: a name, or its ordinal."""


@dataclass(frozen=True, slots=True)
class MapOf:
    """A Map of the broker. `allows_null`: it is a HashMap; a ConcurrentHashMap rejects null.

    `is_of_text`: it is a Map<String, String>, whose keys are names in quotes (ObjectReaderImplMapString).
    """

    key: Scalar
    value: Shape
    allows_null: bool = False
    is_of_text: bool = False


@dataclass(frozen=True, slots=True)
class ArrayOf:
    """A Set or List of the broker."""

    value: Shape


@dataclass(frozen=True, slots=True)
class Bean:
    """A class of the broker: its members by name; it does not know any other member."""

    members: Mapping[str, Shape] = field(default_factory=dict)


Shape: TypeAlias = "Scalar | MapOf | ArrayOf | Bean"

_FILTER_TYPES: Final = ("SINGLE_TAG", "MULTI_TAG")
_SIZES: Final = {
    Scalar.INT32: _INT32,
    Scalar.NUMBER32: _INT32,
    Scalar.INT64: _INT64,
    Scalar.NUMBER64: _INT64,
}
_PRIMITIVES: Final = (Scalar.INT32, Scalar.INT64, Scalar.BOOL)


@dataclass(frozen=True, slots=True)
class Verbatim:
    """A value as its text in the file, to be written back unchanged."""

    text: str


def is_plain(value: Any, shape: Shape) -> bool:
    """Return whether fastjson2 reads this value unchanged. The value was strict JSON, apart from bare number keys."""
    if isinstance(shape, Bean):
        return isinstance(value, dict) and all(
            isinstance(name, str) and _is_plain_member(item, shape.members.get(name))
            for name, item in value.items()
        )
    if isinstance(shape, MapOf):
        return isinstance(value, dict) and all(
            _is_plain_key(key, shape.key)
            and (shape.allows_null if item is None else is_plain(item, shape.value))
            for key, item in value.items()
        )
    if isinstance(shape, ArrayOf):
        return isinstance(value, list) and all(is_plain(item, shape.value) for item in value)
    return _is_plain_scalar(value, shape)


def _is_plain_member(value: Any, shape: Shape | None) -> bool:
    if shape is None:
        return _is_skipped(value, 0)
    return shape not in _PRIMITIVES if value is None else is_plain(value, shape)


def _is_skipped(value: Any, depth: int) -> bool:
    """Return whether fastjson2 can skip an unknown member. Bare names cannot be skipped; deeper values are left to the
    reader.
    """
    if isinstance(value, dict):
        return depth < 50 and all(
            isinstance(key, str) and _is_skipped(item, depth + 1) for key, item in value.items()
        )
    return not isinstance(value, list) or (
        depth < 50 and all(_is_skipped(item, depth + 1) for item in value)
    )


def _is_plain_key(key: int | str, shape: Scalar) -> bool:
    if shape is Scalar.TEXT:
        return isinstance(key, str)
    if isinstance(key, str):  # a number in quotes; the reader decides about other text
        return key.isascii() and key.isdigit() and len(key) < 10
    return -_SIZES[shape] <= key < _SIZES[shape]


def _is_plain_scalar(value: Any, shape: Scalar) -> bool:
    if shape is Scalar.ANY:
        return True
    if shape is Scalar.BOOL:
        return isinstance(value, bool)
    if shape is Scalar.TEXT:
        return isinstance(value, str)
    if shape is Scalar.FILTER_TYPE:
        return value in _FILTER_TYPES
    return type(value) is int and bool(-_SIZES[shape] <= value < _SIZES[shape])


class ConfigReader:
    """A reader for one text. Raises ValueError with the position where fastjson2 throws."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0  # position of the current character
        self._has_comma = False  # whether a comma followed the last skipped value

    def read(self, shape: Shape) -> Any:
        """Return the value of the whole text; None for null."""
        self._at = _end(_SPACE_OR_NUL, self._text, 0)
        if self._char() in BYTE_ORDER_MARKS:
            self._at = _end(_SPACE_OR_NUL, self._text, self._at + 1)
        self._skip_comments()
        value = self._value(shape)
        if self._char() != END:
            raise self._error("text after the end")
        return value

    # ---- characters ----

    def _char(self) -> str:
        return self._text[self._at : self._at + 1] or END

    def _error(self, message: str) -> ValueError:
        at = min(self._at, len(self._text))
        line = self._text.count("\n", 0, at) + 1
        column = at - self._text.rfind("\n", 0, at)
        return ValueError(f"{message}: line {line} column {column} (char {at})")

    def _pass_token(self) -> None:
        """Go past a structural character and the white space and comments after it."""
        self._at = _end(_SPACE_OR_NUL, self._text, self._at + 1)
        self._skip_comments()

    def _skip_comments(self) -> None:
        while self._char() == "/":
            start = self._text[self._at : self._at + 2]
            if start not in ("/*", "//") or self._at + 2 >= len(self._text):
                raise self._error("no comment")
            mark = "*/" if start == "/*" else "\n"
            end = self._text.find(mark, self._at + 2)
            self._at = len(self._text) if end < 0 else end + len(mark)
            self._at = _end(_SPACE, self._text, self._at)

    def _pass_value(self, end: int) -> None:
        """Go past a value that ends at `end`, and past the comma after it."""
        self._at = _end(_SPACE, self._text, end)
        if self._char() == ",":
            self._at = _end(_SPACE, self._text, self._at + 1)

    def _match(self, char: str) -> bool:
        """Go past this structural character, if it comes next; return whether it does."""
        at = _end(_SPACE, self._text, self._at)
        if self._text[at : at + 1] != char:
            return False
        self._at = at
        self._pass_token()
        return True

    def _object_ends(self) -> bool:
        """Go past the end of an object and the comma after it, if it comes next; return whether it does."""
        if self._char() != "}":
            return False
        self._at = _end(_SPACE_OR_NUL, self._text, self._at + 1)
        if self._char() == ",":
            self._at = _end(_SPACE_OR_NUL, self._text, self._at + 1)
        self._skip_comments()
        return True

    # ---- values ----

    def _value(self, shape: Shape) -> Any:
        if isinstance(shape, Bean):
            return self._bean(shape)
        if isinstance(shape, MapOf):
            return self._map(shape)
        if isinstance(shape, ArrayOf):
            return self._array(shape)
        if shape is Scalar.ANY:
            return self._any()
        if shape is Scalar.TEXT:
            return self._text_value()
        if shape is Scalar.BOOL:
            return self._bool()
        if shape is Scalar.FILTER_TYPE:
            return self._filter_type()
        return self._int(shape)

    def _null(self) -> bool:
        if not self._text.startswith("null", self._at):
            return False
        self._pass_value(self._at + 4)
        return True

    def _null_or_empty(self) -> bool:
        """Go past null, "null" or "", if it comes next; return whether it does."""
        for text in ("null", '""', "''", '"null"', "'null'"):
            if self._text.startswith(text, self._at):
                self._pass_value(self._at + len(text))
                return True
        return False

    def _bean(self, shape: Bean) -> dict[int | str, Any] | None:
        if self._null():
            return None
        if self._char() == "{":  # without the brace, the members are read too
            self._pass_token()
        members: dict[int | str, Any] = {}
        while not self._object_ends():
            self._skip_comments()
            name = self._name()
            known = shape.members.get(name)
            members[name] = self._skipped() if known is None else self._value(known)
        return members

    def _map(self, shape: MapOf) -> dict[int | str, Any] | None:
        if self._char() != "{":
            if self._null_or_empty():
                return None
            raise self._error("no object")
        self._pass_token()
        members: dict[int | str, Any] = {}
        while not self._object_ends() and self._char() != END:
            key = self._name() if shape.is_of_text else self._map_key(shape.key)
            value = self._value(shape.value)
            if value is None and not shape.allows_null:
                raise self._error(f"null as the value of {key!r}")
            members[key] = value
        self._match(",")
        return members

    def _map_key(self, shape: Scalar) -> int | str:
        """Read a key and its colon. The colon of a number key is optional, comments may follow it."""
        key: int | str | None
        if shape is Scalar.TEXT and self._char() in "\"'":
            return self._name()
        key = self._text_value() if shape is Scalar.TEXT else self._int(shape)
        if key is None:
            raise self._error("null as a key")
        if not self._match(":") and shape is Scalar.TEXT:
            raise self._error("no colon")
        return key

    def _array(self, shape: ArrayOf) -> list[Any] | None:
        if self._null_or_empty():
            return None
        if not self._match("["):
            raise self._error("no array")
        items = []
        while not self._match("]"):
            if self._char() == END:
                raise self._error("no end of the array")
            items.append(self._value(shape.value))
        self._match(",")
        return items

    def _name(self) -> str:
        """Read a name in quotes and its colon."""
        if self._char() not in "\"'":
            raise self._error("no name in quotes")
        name, end = self._string(self._at)
        self._at = _end(_SPACE, self._text, end)
        if self._char() != ":":
            raise self._error("no colon")
        self._at = _end(_SPACE, self._text, self._at + 1)
        return name

    def _string(self, start: int) -> tuple[str, int]:
        """Return the text of the string whose quote is at `start`, and the position after it."""
        quote = self._text[start]
        parts: list[str] = []
        at = start + 1
        while True:
            char = self._text[at : at + 1]
            if not char:
                raise self._error("no end of the string")
            if char == quote:
                text = "".join(parts)
                return text if len(parts) < 2 else _joined_surrogates(text), at + 1
            if char == "\\":
                char, at = self._escape(at + 1)
                parts.append(char)
                continue
            end = _end(_PLAIN_TEXT[quote], self._text, at)
            parts.append(self._text[at:end])
            at = end

    def _escape(self, at: int) -> tuple[str, int]:
        """Return the character of an escape whose letter is at `at`, and the position after it."""
        letter = self._text[at : at + 1]
        length = {"u": 4, "x": 2}.get(letter)
        if length is not None:
            digits = self._text[at + 1 : at + 1 + length]
            if len(digits) == length and _HEX.fullmatch(digits):
                return chr(int(digits, 16)), at + 1 + length
        elif letter in _ESCAPES:
            return _ESCAPES[letter], at + 1
        raise self._error(f"escape \\{letter}")

    # ---- numbers and other scalars ----

    def _int(self, shape: Scalar) -> int | None:
        """Read an integer, or a value that is converted to an integer."""
        if self._char() in "\"'n" and self._null_or_empty():
            return 0 if shape in _PRIMITIVES else None
        if self._char() == "[":
            return self._only_item(shape)
        quote = self._char() if self._char() in "\"'" else ""
        start = self._at + len(quote)
        for word, value in (("true", 1), ("false", 0)):
            if self._text.startswith(word, start):
                return self._number_ends(value, start + len(word), quote)
        end = _end(_INTEGER, self._text, start)
        if self._text[end : end + 1] in (".", "e", "E"):
            end = _end(_NUMBER, self._text, start)
            return self._number_ends(self._cut_off(self._text[start:end], shape), end, quote)
        digits = self._text[start:end]
        if not digits:
            raise self._error("no number")
        value = 0 if digits in "+-" else int(digits)
        if not -_SIZES[shape] <= value < _SIZES[shape]:
            raise self._error(f"{digits[:30]} is outside the range of a number")
        return self._number_ends(value, end, quote)

    def _number_ends(self, value: int, end: int, quote: str) -> int:
        if quote:
            if self._text[end : end + 1] != quote:
                raise self._error("text that is no number")
            end += 1
        if self._text[end : end + 1] in ("L", "F", "D", "B", "S"):
            end += 1
        self._pass_value(end)
        return value

    def _cut_off(self, text: str, shape: Scalar) -> int:
        """Return a decimal without its fraction, limited to the range of the type (Java's conversion of a double)."""
        mantissa, _, exponent = text.lower().partition("e")
        try:
            if abs(int(exponent or 0)) > _MAX_EXPONENT:
                raise self._error("too large an exponent")
            number = int(Decimal(f"{mantissa or 0}").scaleb(int(exponent or 0)))
        except (InvalidOperation, ValueError) as error:
            if mantissa in (".", "+.", "-."):
                raise self._error("no number") from error
            raise self._error(f"{text[:30]} is no number") from error
        size = _SIZES[shape]
        return max(-size, min(number, size - 1))

    def _only_item(self, shape: Scalar) -> int | None:
        """Read the number in an array of one item."""
        self._pass_token()
        value = self._int(shape)
        if not self._match("]"):
            raise self._error("an array as a number")
        self._match(",")
        return value

    def _text_value(self) -> str | None:
        """Read a string; a number, a boolean, an object or an array is returned as its text."""
        if self._null():
            return None
        if self._char() in "\"'":
            text, end = self._string(self._at)
            self._pass_value(end)
            return text
        if self._char() in "{[":
            return json.dumps(self._any(), separators=(",", ":"), ensure_ascii=False)
        start = self._at
        end = _end(_NUMBER, self._text, start)
        for word in ("true", "false"):
            if self._text.startswith(word, start):
                end = start + len(word)
        text = self._text[start:end].removeprefix("+")
        if not any(char.isalnum() for char in text):
            raise self._error("no text")
        self._pass_value(end)
        return text

    def _bool(self) -> bool:
        if self._char() in "\"'":
            text = (self._text_value() or "").lower()
            if text not in ("true", "false", "", "null", "0", "n", "1", "y"):
                raise self._error(f"{text[:30]!r} as true or false")
            return text in ("true", "1", "y")
        for word, value in (("true", True), ("false", False), ("null", False)):
            if self._text.startswith(word, self._at):
                self._pass_value(self._at + len(word))
                return value
        if self._char() == "[":
            self._pass_token()
            value = self._bool()
            if not self._match("]"):
                raise self._error("an array as true or false")
            return value
        return self._int(Scalar.INT64) == 1

    def _filter_type(self) -> str | None:
        if self._char() in "\"'n":
            text = self._text_value()
            known = {name.lower(): name for name in _FILTER_TYPES}
            return None if text is None else known.get(text.lower(), text)
        number = self._int(Scalar.INT32) or 0
        if number not in range(len(_FILTER_TYPES)):
            raise self._error(f"{number} as a filter type")
        return _FILTER_TYPES[number]

    # ---- values of unknown type ----

    def _any(self) -> Any:
        """Read a value of any type, with number keys bare or quoted."""
        char = self._char()
        if char == "{":
            self._pass_token()
            members: dict[int | str, Any] = {}
            while not self._object_ends():
                self._skip_comments()
                key = self._map_key(Scalar.TEXT if self._char() in "\"'" else Scalar.INT64)
                members[key] = self._any()
            self._match(",")
            return members
        if char == "[":
            return self._array(ArrayOf(Scalar.ANY))
        if char in "\"'":
            return self._text_value()
        for word, value in (("true", True), ("false", False), ("null", None)):
            if self._text.startswith(word, self._at):
                self._pass_value(self._at + len(word))
                return value
        end = _end(_SKIPPED_NUMBER, self._text, self._at)
        digits = self._text[self._at : end].rstrip("LFDBS")
        if end == self._at:
            raise self._error("no value")
        self._pass_value(end)
        return int(digits) if digits.lstrip("+-").isdigit() else float(digits)

    def _skipped(self) -> Verbatim:
        """Return the text of a member that the broker does not know (JSONReader.skipValue)."""
        start = self._at
        end = self._skip()
        return Verbatim(self._text[start:end])

    def _skip(self) -> int:
        """Go past a value and its comma; return the end of the value."""
        char = self._char()
        if char in "{[":
            end = self._skip_members("}" if char == "{" else "]")
        elif char in "\"'":
            end = self._string(self._at)[1]
        else:
            words = [
                word for word in ("true", "false", "null") if self._text.startswith(word, self._at)
            ]
            end = self._at + len(words[0]) if words else _end(_SKIPPED_NUMBER, self._text, self._at)
            if end == self._at:
                raise self._error("no value")
        self._at = _end(_SPACE, self._text, end)
        self._has_comma = self._char() == ","
        if self._has_comma:
            self._at = _end(_SPACE, self._text, self._at + 1)
            if self._char() in ("}", "]", END):
                raise self._error("a comma too many")
        elif self._char() not in ("}", "]", END):
            raise self._error("no comma")
        return end

    def _skip_members(self, close: str) -> int:
        self._pass_token()
        is_first = True
        while self._char() != close:
            if not is_first and not self._has_comma:
                raise self._error("no comma")
            if close == "}":
                self._name()
            self._skip()
            is_first = False
        return self._at + 1


def _end(pattern: re.Pattern[str], text: str, at: int) -> int:
    """Return the end of a match of a pattern at `at`; `at` if there is no match."""
    match = pattern.match(text, at)
    return at if match is None else match.end()


def _joined_surrogates(text: str) -> str:
    """Return the text with pairs of escaped surrogates replaced by the characters that they encode."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
