"""The broker's config files (topics.json, consumerOffset.json, ...): JSON with bare numbers for keys.

Owns their text in both directions; must not know their contents. The broker writes number keys
without quotes ({0:12}), indents with tabs, puts no space after a colon and no newline at the end;
from RocketMQ's ConfigManager and RemotingSerializable.

    position  bytes  field  note
    0         ...    value  one JSON value, UTF-8; int keys bare, other keys quoted

A dict key of type int is a bare number, a str is a quoted name, so that a value is written back as it was
read. An empty file has no value: the broker then reads the `.bak` next to it. Text that is not strict JSON,
or not of the broker's types, goes to config_reader, which reads it as fastjson2 does.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from json.encoder import encode_basestring
from typing import Any, Final

from storage.errors import Corrupt, InvalidArgument
from storage.rocketmq.format.config_reader import ConfigReader, Scalar, Shape, Verbatim, is_plain

KIND: Final = "config file"
MAX_DEPTH: Final = 100
"""Limit of nesting; no file of the broker has more than five levels."""

# A string (with the colon if it is a key), or a number used as a key: after '{' or ','. The
# closing quote is optional so that a string without an end is skipped in one step. The part after
# the text of a string is optional, so the string is never matched twice. A possessive group would do
# the same, but Python before 3.11.5 matches it wrongly (gh-106052).
_KEY = re.compile(
    r'("[^"\\]*(?:\\.[^"\\]*)*"?)(\s*:)?|(?<=[{,\s])(-?(?:0|[1-9][0-9]{0,18}))(\s*:)', re.DOTALL
)


def decode_config(data: bytes, shape: Shape = Scalar.ANY) -> Any:
    """Return the value of a config file as fastjson2 reads it into a class of this shape; None for null.

    If a name occurs twice, the later value counts. Members unknown to the class are kept, perhaps as Verbatim. Raises
    Corrupt (kind, position None, found: the line and column) where fastjson2 fails.
    """
    text = data.decode(errors="replace")  # as MixAll.file2String does
    try:
        value = _decode_strictly(text, parse_float=float if shape is Scalar.ANY else Verbatim)
        if is_plain(value, shape):
            return value
    except (ValueError, RecursionError):
        pass  # not strict JSON: the reader decides
    try:
        return ConfigReader(text).read(shape)
    except (ValueError, RecursionError) as error:
        what = f"no JSON: {error}" if data else "it is empty"
        raise Corrupt(
            f"{KIND}: {what}",
            kind=KIND,
            position=None,
            expected="JSON, number keys bare or quoted, as fastjson2 reads it",
            found=str(error),
        ) from error


def _decode_strictly(text: str, *, parse_float: Callable[[str], Any]) -> Any:
    """Return the value of JSON with bare number keys, as the broker writes it."""
    return json.loads(
        _KEY.sub(_mark_key, text),
        object_pairs_hook=_object,
        parse_constant=_refuse_constant,
        parse_float=parse_float,
    )


def decode_object(data: bytes, shape: Shape, *, kind: str) -> dict[int | str, Any]:
    """Return the value of a config file of a class; empty for null. Raises Corrupt (of `kind`)."""
    try:
        content: dict[int | str, Any] | None = decode_config(data, shape)
    except Corrupt as error:
        raise Corrupt(error.message, **{**error.facts(), "kind": kind}) from error
    return content or {}


def decode_loosely(data: bytes, table: str, *, kind: str) -> dict[int | str, Any]:
    """Return the value of a config file without a shape: an object, whose member `table` is missing, null or an object.

    Raises Corrupt (of `kind`).
    """
    content = decode_config(data)
    if not isinstance(content, dict) or not isinstance(content.get(table) or {}, dict):
        raise Corrupt(
            f"no {table} in it",
            kind=kind,
            position=None,
            expected=f"an object with {table}",
            found=type(content).__name__,
        )
    return content


def _mark_key(match: re.Match[str]) -> str:
    """Put a letter in front of a key, so that a bare number is still recognised after parsing."""
    text, colon, number, number_colon = match.groups()
    if number is not None:
        return f'"n{number}"{number_colon}'
    return f'"s{text[1:]}{colon}' if colon else str(text)


def _object(pairs: Sequence[tuple[str, Any]]) -> dict[int | str, Any]:
    return {int(key[1:]) if key[0] == "n" else key[1:]: value for key, value in pairs}


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")


def lay_out_member(key: object, value: Any, depth: int) -> str:
    """Return the text of a member with its key, for an object inside `depth - 1` others.

    Raises InvalidArgument for a value that JSON cannot hold.
    """
    return _key_text(key) + _text(value, depth)


def lay_out_object(members: Sequence[str], depth: int) -> Verbatim:
    """Return an object inside `depth` others, built from the texts of its members."""
    return Verbatim(_lines("{}", members, depth))


def encode_config(value: Any) -> bytes:
    """Return the bytes of a config file, in the broker's layout; dicts keep their order.

    Raises InvalidArgument for a value that JSON cannot hold.
    """
    # A lone surrogate is written as the escape from which it was read.
    return _text(value, 0).encode(errors="backslashreplace")


def _text(value: Any, depth: int) -> str:
    """Return the text of a value inside `depth` others."""
    if depth > MAX_DEPTH:
        raise InvalidArgument(f"{KIND}: nested deeper than {MAX_DEPTH}", field="value")
    if isinstance(value, Verbatim):
        return value.text
    if isinstance(value, Mapping):
        members = [lay_out_member(key, item, depth + 1) for key, item in value.items()]
        return _lines("{}", members, depth)
    if isinstance(value, list | tuple):
        return _lines("[]", [_text(item, depth + 1) for item in value], depth)
    return _scalar_text(value)


def _lines(brackets: str, items: Sequence[str], depth: int) -> str:
    """Return an object or array of these texts, one text a line."""
    if not items:
        return brackets
    line = "\n" + depth * "\t"
    between = f",{line}\t".join(items)
    return f"{brackets[0]}{line}\t{between}{line}{brackets[1]}"


def _key_text(key: object) -> str:
    if isinstance(key, str):
        return f"{encode_basestring(key)}:"
    if isinstance(key, int) and not isinstance(key, bool) and -1 << 63 <= key < 1 << 63:
        return f"{key}:"
    raise InvalidArgument(f"{KIND}: {key!r} cannot be a key", field="value")


def _scalar_text(value: object) -> str:
    if isinstance(value, str):
        return encode_basestring(value)
    if value is None or isinstance(value, bool | int | float):
        try:
            return json.dumps(value, allow_nan=False)
        except ValueError as error:
            raise InvalidArgument(f"{KIND}: {value!r} is no JSON", field="value") from error
    raise InvalidArgument(f"{KIND}: {type(value).__name__} is no JSON", field="value")
