"""Errors of decoding in words: the field, its value, and the values that it may have.

Owns the conversion of msgspec's errors to text for a user; must not know HTTP or a file. Of msgspec's own text only the
path and the name of a missing or unknown field are used. The allowed values come from the type, and the value is looked
up in the data. Pure.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final, NamedTuple

import msgspec
from msgspec import inspect

MAX_SHOWN_CHARACTERS: Final = 80
MAX_NAMED_FIELDS: Final = 20

_PATH: Final = re.compile(r" - at (`key` in )?`\$(.*)`\Z", re.DOTALL)
_MISSING: Final = re.compile(r"Object missing required field `(.*?)`", re.DOTALL)
_UNKNOWN: Final = re.compile(r"Object contains unknown field `(.*?)`(?: - at |\Z)", re.DOTALL)
_STEP: Final = re.compile(r"\[(?:(\d+)|\.\.\.)\]|\.([^.\[]+)")
_MALFORMED: Final = re.compile(r"JSON is malformed: (.*) \(byte (\d+)\)", re.DOTALL)
_HALF_PAIR: Final = re.compile(rb"(\\u[dD][89abAB][0-9a-fA-F]{2})[^\\].{0,4}\Z", re.DOTALL)
_ANY_NUMBER: Final = "a number"
_ANY_INTEGER: Final = "a whole number"
_UNKNOWN_VALUE: Final = object()  # the value cannot be looked up, or it is not the wrong one


class WrongValue(NamedTuple):
    """A value of the wrong type or out of its limits, in words. `field`: the path of its place; `needs_base64`: this
    place has base64 text.
    """

    text: str
    field: str
    needs_base64: bool = False


class _Place(NamedTuple):
    """A place in a type: the steps to it, and its own type with the words for its values.

    A step is the name of a field, the number of an item, or the type of the values of a map: msgspec does not report
    the key.
    """

    steps: tuple[str | int | inspect.Type, ...]
    type: inspect.Type
    options: Sequence[Any]
    words: str
    needs_base64: bool


def in_words(error: Exception, kind: Any, data: bytes, *, whole: str) -> str:
    """Return in words why JSON text is no `kind`, for each error of the decoder: of its syntax and of its values."""
    if isinstance(error, msgspec.ValidationError):
        return wrong_value(error, kind, data, whole=whole).text
    return f"{whole} is no JSON: {wrong_json(error, data)}"


def wrong_value(
    error: msgspec.ValidationError,
    kind: Any,
    data: Any,
    *,
    whole: str = "the body",
    within: str = "",
) -> WrongValue:
    """Return in words why `data`, which is JSON text or a decoded value, is no `kind`.

    `whole` names the data if the error is in no part of it. `within`: the name of the place that has the data.
    """
    message = str(error)
    found = _PATH.search(message)
    place = _place(kind, found[2] if found is not None else "")
    name, value = _look_up(place, _decoded(data), within)
    if found is not None and found[1]:
        return WrongValue(f"{name or whole} has a name that is not possible there", name)
    if (missing := _MISSING.match(message)) is not None:
        field = _joined(name, missing[1])
        words = _words(_member(place.type, missing[1]))
        return WrongValue(f"{field} is missing: it must be {words}", field)
    if (unknown := _UNKNOWN.match(message)) is not None:
        field = _joined(name, unknown[1][:MAX_SHOWN_CHARACTERS])
        names = _listed_names(place.type)
        return WrongValue(f"{field} is unknown: the possible names are {names}", field)
    problem = f"it must be {place.words}"
    if value is _UNKNOWN_VALUE or _fits(value, place.options):
        text = f"{name or whole} has a wrong value: {problem}"
    else:
        text = f"{name or whole} is {shown(value)}: {problem}"
    return WrongValue(text, name, place.needs_base64)


def wrong_json(error: Exception, text: bytes = b"") -> str:
    """Return in words why `text` is not JSON."""
    if isinstance(error, UnicodeDecodeError):
        return f"it is not UTF-8 at byte {error.start}"
    message = str(error)
    if "truncated" in message:
        # The decoder reports half of a surrogate pair near the end as truncated text.
        half = _HALF_PAIR.search(text)
        return (
            "it ends too early"
            if half is None
            else f"{half[1].decode()} is half of a surrogate pair"
        )
    found = _MALFORMED.match(message)
    return message if found is None else f"{found[1]} at byte {found[2]}"


def shown(value: object) -> str:
    """Return a value as short JSON."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    text = msgspec.json.encode(value, enc_hook=str).decode(errors="replace")
    if len(text) <= MAX_SHOWN_CHARACTERS:
        return text
    return f"{text[:MAX_SHOWN_CHARACTERS]}..."


def _listed_names(kind: inspect.Type) -> str:
    names = [field.encode_name for field in _fields(kind)]
    more = len(names) - MAX_NAMED_FIELDS
    return ", ".join(names[:MAX_NAMED_FIELDS]) + (f" and {more} more" if more > 0 else "")


def _decoded(data: Any) -> Any:
    if not isinstance(data, bytes | msgspec.Raw):
        return data
    try:
        return msgspec.json.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return _UNKNOWN_VALUE


# -- the place of an error


@lru_cache(maxsize=1024)
def _place(kind: Any, path: str) -> _Place:
    """Return the place of a path of msgspec in a type."""
    at, steps = _type_of(kind), list[str | int | inspect.Type]()
    while path:
        name = next((name for name in _names(at) if _begins(path, name)), None)
        if name is not None:
            steps.append(name)
            at, path = _member(at, name), path[len(name) + 1 :]
            continue
        step = _STEP.match(path)
        if step is None:
            break
        number, path = step[1], path[step.end() :]
        at = _item_type(at, "value_type" if number is None else "item_type")
        steps.append(at if number is None else int(number))
    options = _options(at)
    is_bytes = [isinstance(option, inspect.BytesType) for option in options]
    return _Place(tuple(steps), at, options, _words(at), any(is_bytes))


def _look_up(place: _Place, value: Any, within: str) -> tuple[str, Any]:
    """Return the name of a place, and its value in the data as far as it is known."""
    name = within
    for step in place.steps:
        if isinstance(step, str):
            name = _joined(name, step)
            value = value.get(step, _UNKNOWN_VALUE) if isinstance(value, dict) else _UNKNOWN_VALUE
        elif isinstance(step, int):
            name = f"{name}[{step}]"
            known = isinstance(value, list) and step < len(value)
            value = value[step] if known else _UNKNOWN_VALUE
        else:
            name, value = _wrong_entry(name, value, step)
    return name, value


def _wrong_entry(name: str, value: Any, kind: inspect.Type) -> tuple[str, Any]:
    """Return the first entry of a map that has a value of another type."""
    options = _options(kind)
    for key, one in value.items() if isinstance(value, dict) else ():
        if not _fits(one, options):
            return f"{name}[{shown(key)}]", one
    return f"a value in {name}", _UNKNOWN_VALUE


def _joined(name: str, field: str) -> str:
    return f"{name}.{field}" if name else field


def _begins(path: str, name: str) -> bool:
    return path.startswith(f".{name}") and path[len(name) + 1 : len(name) + 2] in {"", ".", "["}


def _names(kind: inspect.Type) -> Sequence[str]:
    """Return the names of the fields, the longest first: a name may have a dot."""
    return sorted((field.encode_name for field in _fields(kind)), key=len, reverse=True)


def _member(kind: inspect.Type, name: str) -> inspect.Type:
    kinds = [field.type for field in _fields(kind) if field.encode_name == name]
    return kinds[0] if kinds else inspect.AnyType()


def _item_type(kind: inspect.Type, member: str) -> inspect.Type:
    """Return the type of the items of a list, or of the values of a map."""
    kinds = [getattr(option, member, None) for option in _options(kind)]
    return next((one for one in kinds if one is not None), inspect.AnyType())


# -- types


def _type_of(kind: Any) -> inspect.Type:
    return _plain(inspect.type_info(kind))


def _plain(kind: inspect.Type) -> inspect.Type:
    while isinstance(kind, inspect.Metadata):
        kind = kind.type
    return kind


def _options(kind: inspect.Type) -> Sequence[Any]:
    """Return the types of a union, else the type alone."""
    kind = _plain(kind)
    return [_plain(one) for one in kind.types] if isinstance(kind, inspect.UnionType) else [kind]


def _fields(kind: inspect.Type) -> Sequence[inspect.Field]:
    for option in _options(kind):
        if isinstance(option, inspect.StructType | inspect.DataclassType):
            return option.fields
    return ()


def _fits(value: Any, options: Sequence[Any]) -> bool:
    """Return whether a scalar value is possible; a list or an object is compared by its kind only."""
    return any(_fits_one(value, option) for option in options)


def _fits_one(value: Any, kind: Any) -> bool:
    check = _CHECKS.get(type(kind))
    return check is None or check(value, kind)


def _is_integer(value: Any, kind: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and _within(value, kind)


def _is_number(value: Any, kind: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and _within(value, kind)


def _is_text(value: Any, kind: inspect.StrType) -> bool:
    if not isinstance(value, str) or not _has_length(value, kind):
        return False
    return kind.pattern is None or re.search(kind.pattern, value) is not None


def _within(value: float, kind: Any) -> bool:
    return not (
        (kind.ge is not None and not value >= kind.ge)
        or (kind.gt is not None and not value > kind.gt)
        or (kind.le is not None and not value <= kind.le)
        or (kind.lt is not None and not value < kind.lt)
    )


def _has_length(value: Sequence[Any], kind: Any) -> bool:
    high = kind.max_length
    return len(value) >= (kind.min_length or 0) and (high is None or len(value) <= high)


def _words(kind: inspect.Type) -> str:
    """Return the allowed values of a type in words."""
    options = [_words_of(option) for option in _options(kind)]
    if _ANY_NUMBER in options:
        options = [words for words in options if words != _ANY_INTEGER]
    options.sort(key="null".__eq__)
    *first, last = dict.fromkeys(options)
    return f"{', '.join(first)}{', ' if ' or ' in last else ' or '}{last}" if first else last


def _words_of(kind: Any) -> str:
    words = _WORDS.get(type(kind))
    return "JSON" if words is None else words(kind)


def _one_of(values: Sequence[Any]) -> str:
    *first, last = [shown(value) for value in values]
    return f"{', '.join(first)} or {last}" if first else last


def _limits(kind: Any) -> str:
    if kind.ge is not None and kind.le is not None:
        return f" from {kind.ge} to {kind.le}"
    named = {"of at least": kind.ge, "above": kind.gt, "of at most": kind.le, "below": kind.lt}
    limits = [f"{words} {limit}" for words, limit in named.items() if limit is not None]
    return f" {' and '.join(limits)}" if limits else ""


def _length(kind: Any, thing: str) -> str:
    low, high = kind.min_length or 0, kind.max_length
    if high is not None:
        return f" of {low} to {high} {thing}s" if low else f" of at most {high} {thing}s"
    return f" of at least {low} {thing}{'s' if low > 1 else ''}" if low else ""


def _pattern(kind: inspect.StrType) -> str:
    return "" if kind.pattern is None else f" that matches {kind.pattern}"


_CHECKS: Final[Mapping[type[inspect.Type], Callable[[Any, Any], bool]]] = {
    inspect.NoneType: lambda value, kind: value is None,
    inspect.BoolType: lambda value, kind: isinstance(value, bool),
    inspect.IntType: _is_integer,
    inspect.FloatType: _is_number,
    inspect.StrType: _is_text,
    inspect.LiteralType: lambda value, kind: value in kind.values,
    inspect.EnumType: lambda value, kind: value in [member.value for member in kind.cls],
    inspect.BytesType: lambda value, kind: False,
    inspect.DateTimeType: lambda value, kind: False,
    inspect.StructType: lambda value, kind: isinstance(value, dict),
    inspect.DataclassType: lambda value, kind: isinstance(value, dict),
    inspect.DictType: lambda value, kind: isinstance(value, dict),
    inspect.ListType: lambda value, kind: isinstance(value, list) and _has_length(value, kind),
}
"""Whether a value of JSON is possible for a type; text of bytes and times is always reported as wrong."""

_WORDS: Final[Mapping[type[inspect.Type], Callable[[Any], str]]] = {
    inspect.NoneType: lambda kind: "null",
    inspect.BoolType: lambda kind: "true or false",
    inspect.IntType: lambda kind: f"{_ANY_INTEGER}{_limits(kind)}",
    inspect.FloatType: lambda kind: f"{_ANY_NUMBER}{_limits(kind)}",
    inspect.StrType: lambda kind: f"text{_length(kind, 'character')}{_pattern(kind)}",
    inspect.LiteralType: lambda kind: _one_of(kind.values),
    inspect.EnumType: lambda kind: _one_of([member.value for member in kind.cls]),
    inspect.BytesType: lambda kind: "base64 text",
    inspect.DateTimeType: lambda kind: f"a time in ISO 8601{' with its zone' if kind.tz else ''}",
    inspect.StructType: lambda kind: "an object",
    inspect.DataclassType: lambda kind: "an object",
    inspect.DictType: lambda kind: "an object",
    inspect.ListType: lambda kind: f"a list{_length(kind, 'item')}",
}
