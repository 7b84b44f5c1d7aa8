"""`meta.properties` of a log directory: Java properties text, the rules for its keys, and Kafka's
text form of UUIDs.

Owns the syntax and the rules; must not make random numbers or touch a file. Bytes are ISO-8859-1,
other characters are written as backslash-u escapes; from java.util.Properties.load, Kafka's
MetaProperties, DirectoryId and Uuid.

    position  bytes  field      note
    ...       any    blank      left out by the reader, as are lines that begin with `#` or `!`
    ...       any    key        up to the first `=`, `:` or white space without a backslash
    ...       0-n    separator  white space, at most one `=` or `:`, white space
    ...       any    value      the rest; a backslash at the end goes on with the next line

Order, comments and a final newline have no meaning for the broker; unknown keys are kept.
`directory.id` must never change: the cluster's metadata refers to the directory by it.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from storage.coding.varint import INT32_MAX
from storage.errors import Corrupt, InvalidArgument, UnsupportedFormat

KIND: Final = "meta.properties"
VERSIONS: Final = (0, 1)
UUID_BYTES: Final = 16
UUID_CHARACTERS: Final = 22
RESERVED_UUIDS: Final = 100

_WHITE_SPACE = " \t\f"
_LINE_END = re.compile(r"\r\n|\n|\r")
_KEY_END = re.compile(r"(?:[^\\=: \t\f]|\\.)*", re.DOTALL)
_SEPARATOR = re.compile(r"[ \t\f]*[=:]?[ \t\f]*")
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_UNESCAPED = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_ESCAPED = {"\t": "\\t", "\n": "\\n", "\r": "\\r", "\f": "\\f"} | {c: f"\\{c}" for c in "\\=:#!"}
_NUMBER = re.compile(r"\+?[0-9]{1,10}")
_UUID_TEXT = re.compile(r"[A-Za-z0-9_-]{22}")


@dataclass(frozen=True, slots=True, kw_only=True)
class MetaProperties:
    """The content of `meta.properties`; `directory_id` is None if the file has none yet."""

    version: int
    cluster_id: str
    node_id: int
    directory_id: str | None


def decode_properties(data: bytes) -> dict[str, str]:
    """Decode keys and values, in the order of the keys' first lines; a key's last line counts. Raises
    Corrupt at an invalid escape.
    """
    properties: dict[str, str] = {}
    for line in _logical_lines(data.decode("iso-8859-1")):
        key_end = _end(_KEY_END.match(line))
        value_start = _end(_SEPARATOR.match(line, key_end))
        properties[_unescape(line[:key_end])] = _unescape(line[value_start:])
    return properties


def encode_properties(properties: Mapping[str, str]) -> bytes:
    """Encode one `key=value` line each, in the mapping's order, in ASCII. `decode_properties` returns
    the same mapping.
    """
    lines = [f"{_escape(key, key=True)}={_escape(value)}\n" for key, value in properties.items()]
    return "".join(lines).encode("ascii")


def parse_meta_properties(properties: Mapping[str, str]) -> MetaProperties:
    """Check `meta.properties` as the broker does at its start, and return its values.

    Raises UnsupportedFormat for a version other than 0 or 1. Raises Corrupt if:

    - version, cluster.id or node.id (version 0: broker.id) is missing or malformed;
    - directory.id is malformed or one of the 100 reserved ids.
    """
    version = _integer(properties, "version", spaces=True)
    if version not in VERSIONS:
        raise UnsupportedFormat(
            f"{KIND}: version {version}, known are 0 and 1",
            kind=KIND,
            expected="0 or 1",
            found=version,
        )
    directory_id = properties.get("directory.id")
    if directory_id is not None:
        raw = read_uuid_text(directory_id, field="directory.id")
        directory_id = uuid_text(raw)
        parse_uuid_text(directory_id, field="directory.id")
    return MetaProperties(
        version=version,
        cluster_id=_required(properties, "cluster.id"),
        node_id=_integer(properties, "node.id" if version == 1 else "broker.id"),
        directory_id=directory_id,
    )


def new_meta_properties(*, cluster_id: str, node_id: int, directory_id: str) -> dict[str, str]:
    """Return the properties of a new directory, version 1. Raises InvalidArgument for values that a
    broker would reject.
    """
    properties = {
        "version": "1",
        "cluster.id": cluster_id,
        "node.id": str(node_id),
        "directory.id": directory_id,
    }
    try:
        parse_meta_properties(properties)
    except Corrupt as error:
        raise InvalidArgument(error.message, field="meta.properties") from error
    return properties


def new_uuid_text(random16: bytes) -> str:
    """Return a UUID of version 4 from 16 random bytes, as Kafka writes it: 22 characters of URL-safe
    base64, no padding.

    Some bits are fixed: the version and variant bits, as in any random UUID, so the result is never
    a reserved id. The first bit is cleared if the text would begin with `-`, because command lines
    would take it for an option. Raises InvalidArgument unless there are 16 bytes.
    """
    if len(random16) != UUID_BYTES:
        raise InvalidArgument(
            f"{len(random16)} random bytes, {UUID_BYTES} needed", field="random16"
        )
    raw = bytearray(random16)
    raw[6] = raw[6] & 0x0F | 0x40
    raw[8] = raw[8] & 0x3F | 0x80
    if raw[0] >> 2 == 62:
        raw[0] &= 0x7F
    return uuid_text(bytes(raw))


def parse_uuid_text(text: str, *, field: str, kind: str = KIND) -> bytes:
    """Return the 16 bytes of a UUID text as Kafka writes it. Raises Corrupt if it is malformed or one of the 100
    reserved ids.
    """
    raw = read_uuid_text(text, field=field, kind=kind)
    if uuid_text(raw) != text:
        raise _corrupt(field, expected="22 characters of URL-safe base64", found=text, kind=kind)
    if int.from_bytes(raw, "big") < RESERVED_UUIDS:
        raise _corrupt(field, expected="an id that is not reserved", found=text, kind=kind)
    return raw


def read_uuid_text(text: str, *, field: str, kind: str = KIND) -> bytes:
    """Return the 16 bytes of a UUID text as Kafka reads it (Uuid.fromString). Raises Corrupt.

    `==` at the end is optional, and the last four bits may have any value.
    """
    if _UUID_TEXT.fullmatch(text.removesuffix("==")) is None:
        raise _corrupt(field, expected="22 characters of URL-safe base64", found=text, kind=kind)
    return base64.urlsafe_b64decode(text.removesuffix("==") + "==")


def uuid_text(raw: bytes) -> str:
    """Encode 16 bytes as Kafka writes a UUID: 22 characters of URL-safe base64, no padding."""
    return base64.urlsafe_b64encode(raw)[:UUID_CHARACTERS].decode("ascii")


def _logical_lines(text: str) -> Iterator[str]:
    """Yield lines as java.util.Properties joins them, without comments, blank lines and leading white space.

    As in Java, a line that is empty after a backslash alone starts again: the next line may be a comment.
    """
    pending: str | None = None
    for natural in _LINE_END.split(text):
        line = natural.lstrip(_WHITE_SPACE)
        if not pending and (not line or line[0] in "#!"):
            pending = None
            continue
        line = (pending or "") + line
        if _ends_in_backslash(line):
            pending = line[:-1]
        else:
            pending = None
            yield line
    if pending:
        yield pending


def _ends_in_backslash(line: str) -> bool:
    """Whether the next line continues this one: an odd number of backslashes; an even number are escaped ones."""
    return (len(line) - len(line.rstrip("\\"))) % 2 == 1


def _end(match: re.Match[str] | None) -> int:
    """Return the end of a match; 0 if there is none, for patterns that can match the empty text."""
    return match.end() if match is not None else 0


def _unescape(text: str) -> str:
    if "\\u" in text:
        return _join_surrogates(_ESCAPE.sub(_unescaped, text))
    return _ESCAPE.sub(_unescaped, text)


def _unescaped(match: re.Match[str]) -> str:
    escape = match[1]
    if escape == "u":
        raise _corrupt("an escape", expected="\\u and four hex digits", found=match.string[:80])
    if len(escape) > 1:
        return chr(int(escape[1:], 16))
    return _UNESCAPED.get(escape, escape)


def _join_surrogates(text: str) -> str:
    """Join two escapes that are the halves of one character; a single half stays unchanged."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")


def _escape(text: str, *, key: bool = False) -> str:
    """Escape a key or a value. Spaces are escaped everywhere in a key, and at the start of a value: a reader
    would take them for white space.
    """
    parts: list[str] = []
    for index, character in enumerate(text):
        if character == " ":
            parts.append("\\ " if key or index == 0 else " ")
        elif character in _ESCAPED:
            parts.append(_ESCAPED[character])
        elif " " < character <= "~":
            parts.append(character)
        else:
            units = character.encode("utf-16-be", "surrogatepass").hex()
            parts += [f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4)]
    return "".join(parts)


def _required(properties: Mapping[str, str], key: str) -> str:
    value = properties.get(key, "")
    if not value:
        raise _corrupt(key, expected="a value", found=properties.get(key))
    return value


def _integer(properties: Mapping[str, str], key: str, *, spaces: bool = False) -> int:
    """Parse a number of 31 bits. `spaces`: strip white space around it, which Kafka does for the version only."""
    value = _required(properties, key)
    text = value.strip() if spaces else value
    if _NUMBER.fullmatch(text) is None or int(text) > INT32_MAX:
        raise _corrupt(key, expected="a number from 0 to 2^31 - 1", found=value)
    return int(text)


def _corrupt(field: str, *, expected: str, found: object, kind: str = KIND) -> Corrupt:
    return Corrupt(
        f"{field} is {found!r}, expected {expected}",
        kind=kind,
        field=field,
        expected=expected,
        found=found,
    )
