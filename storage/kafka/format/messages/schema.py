"""The table of Kafka's messages as values: the fields of a message, their versions and their types.

Owns the text form of schemas.txt; must not know bytes of messages. A line without indentation begins a message. An
indented line is a field, one space for each level; the fields of a struct follow the struct's line.

    NAME KIND KEY VERSIONS FLEXIBLE
     FIELD TYPE VERSIONS [null=VERSIONS] [tag=NUMBER:VERSIONS] [default=VALUE] [flexible=none] [ignorable]

Versions are `3` (that version), `0-4`, `2+` or `none`. KEY is the message's number within its KIND, `-` if it has no
number. TYPE is `int32`, a struct's name such as `TopicProduceData`, or `[]` and one of both for an array. In a flexible
version lengths are varints, and every struct ends in tagged fields.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from itertools import pairwise
from typing import Any, Final

TABLE: Final = "schemas.txt"
UUID_BYTES: Final = 16
STRUCT: Final = "struct"
LAST_VERSION: Final = (1 << 15) - 1

_EMPTY: Final[Mapping[str, Any]] = {
    "bool": False,
    "float64": 0.0,
    "string": "",
    "bytes": b"",
    "records": b"",
    "uuid": bytes(UUID_BYTES),
}
"""The default of a field without a default in the table; 0 for number types, which are not listed here."""

Versions = range
"""A set of versions of a message: `3 in versions`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """One field. `type` is without the brackets of an array, and STRUCT for every struct; `struct` is the name of the
    struct, `fields` are its fields.
    """

    name: str
    type: str
    is_array: bool
    versions: Versions
    nullable: Versions
    tag: int
    tagged: Versions
    default: Any
    compact: bool
    ignorable: bool
    struct: str
    fields: Sequence[Field] = field(default=())


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One message. `key` is its number within its kind, None if it has no number."""

    name: str
    kind: str
    key: int | None
    versions: Versions
    flexible: Versions
    fields: Sequence[Field]


@cache
def messages() -> Mapping[str, Message]:
    """Return every message of the table, by name."""
    text = resources.files(__package__).joinpath(TABLE).read_text("utf-8")
    return {message.name: message for message in parse_table(text)}


@cache
def by_key(kind: str) -> Mapping[int, Message]:
    """Return the messages of one kind, by number."""
    found = (message for message in messages().values() if message.kind == kind)
    return {message.key: message for message in found if message.key is not None}


def parse_table(text: str) -> Iterator[Message]:
    """Yield the messages of a table's text."""
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    starts = [at for at, line in enumerate(lines) if not line.startswith(" ")]
    for start, stop in pairwise([*starts, len(lines)]):
        name, kind, key, versions, flexible = lines[start].split(" ")
        yield Message(
            name=name,
            kind=kind,
            key=None if key == "-" else int(key),
            versions=_versions(versions),
            flexible=_versions(flexible),
            fields=_fields(lines[start + 1 : stop], 1),
        )


def _fields(lines: Sequence[str], depth: int) -> tuple[Field, ...]:
    starts = [at for at, line in enumerate(lines) if line[depth] != " "]
    return tuple(
        _field(lines[start], _fields(lines[start + 1 : stop], depth + 1))
        for start, stop in pairwise([*starts, len(lines)])
    )


def _field(line: str, fields: tuple[Field, ...]) -> Field:
    name, kind, versions, *extras = line.split()
    facts = dict(extra.partition("=")[::2] for extra in extras)
    type_name = kind.removeprefix("[]")
    is_array = kind != type_name
    struct = type_name if type_name[0].isupper() else ""
    type_name = STRUCT if struct else type_name
    tag, _, tagged = facts.get("tag", "-1:none").partition(":")
    return Field(
        name=name,
        type=type_name,
        is_array=is_array,
        versions=_versions(versions),
        nullable=_versions(facts.get("null", "none")),
        tag=int(tag),
        tagged=_versions(tagged),
        default=_default(type_name, is_array, facts.get("default"), fields),
        compact=facts.get("flexible") != "none",
        ignorable="ignorable" in facts,
        struct=struct,
        fields=fields,
    )


def _versions(text: str) -> Versions:
    """Parse `3`, `0-4`, `2+` and `none`."""
    match = re.fullmatch(r"(\d+)(?:(\+)|-(\d+))?", text)
    if match is None:
        return range(0)
    first = int(match[1])
    last = LAST_VERSION if match[2] else int(match[3] or first)
    return range(first, last + 1)


def _default(kind: str, is_array: bool, text: str | None, fields: Sequence[Field]) -> Any:
    """Return the value of a field that a version lacks, or that is tagged and left out."""
    if text == "null":
        return None
    if is_array:
        return ()
    if kind == STRUCT:
        return {inner.name: inner.default for inner in fields}
    if text is None:
        return _EMPTY.get(kind, 0)
    if kind == "bool":
        return text == "true"
    if kind == "string":
        return text
    return float(text) if kind == "float64" else int(text, 0)
