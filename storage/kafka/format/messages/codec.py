"""Messages of Kafka as bytes: decoded and encoded by the table of their schemas.

Owns the types on the wire, in both directions; must not know the purpose of a message. All integers are big-endian.
From Kafka's Message, MessageUtil, ByteBufferAccessor and the code that its generator makes of each schema.

    type                   plain version            flexible version
    intN, uint16, uint32   N bits                   the same
    float64, bool, uuid    8, 1 and 16 bytes        the same
    string                 i16 length (-1 null)     uvarint length + 1 (0 null)
    bytes, records         i32 length (-1 null)     uvarint length + 1 (0 null)
    []TYPE                 i32 count (-1 null)      uvarint count + 1 (0 null)
    struct                 its fields               its fields, then the tagged ones
    struct that may be     i8: -1 null, 1 not       the same; as a tagged field uvarint: 0 null, 1 not
    null

Tagged fields: a uvarint count, then for each field a uvarint tag, a uvarint size and the content, by rising tags. A
field with its default is left out. Tags that the table does not know are kept, under UNKNOWN_TAGS, and written again.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from storage.coding.varint import decode_uvarint, encode_uvarint
from storage.errors import Corrupt, InvalidArgument, UnsupportedFormat
from storage.kafka.format.messages.schema import STRUCT, Field, Message, messages

Fields = dict[str, Any]
"""A message's fields by name: str, int, float, bool, bytes (also uuid and records), lists, and Fields for structs."""

UNKNOWN_TAGS: Final = "unknownTaggedFields"

_NUMBERS: Final = {
    "int8": struct.Struct(">b"),
    "int16": struct.Struct(">h"),
    "uint16": struct.Struct(">H"),
    "int32": struct.Struct(">i"),
    "uint32": struct.Struct(">I"),
    "int64": struct.Struct(">q"),
    "float64": struct.Struct(">d"),
}
_I8: Final = _NUMBERS["int8"]
_UUID: Final = struct.Struct("16s")
_LENGTHS: Final = {"string": _NUMBERS["int16"]}  # all other types: int32


class Decoded(NamedTuple):
    """The fields of a message, and the position of its end."""

    fields: Fields
    end: int


def decode(name: str, version: int, data: bytes, at: int = 0) -> Decoded:
    """Decode a message that begins at `at`; bytes after its last field are ignored.

    Raises UnsupportedFormat for a message or a version that the table does not know. Raises Corrupt for bytes that do
    not fit the schema, and Truncated for an incomplete varint.
    """
    message = _message(name, version)
    reader = _Reader(name, data, at, version, flexible=version in message.flexible)
    fields = reader.struct(message.fields)
    return Decoded(fields, reader.at)


def encode(name: str, version: int, fields: Mapping[str, Any]) -> bytes:
    """Encode a message. A field that is left out has its default.

    Raises UnsupportedFormat as `decode` does. Raises InvalidArgument for an unknown field, a value of the wrong type or
    size, and a value that this version cannot store: null in a field that is not nullable, tagged fields, a field that
    this version does not have and that is not ignorable.
    """
    message = _message(name, version)
    writer = _Writer(name, version, flexible=version in message.flexible)
    writer.struct(message.fields, fields)
    return b"".join(writer.parts)


def _message(name: str, version: int) -> Message:
    message = messages().get(name)
    if message is None or version not in message.versions:
        known = "no message" if message is None else f"versions {_span(message.versions)}"
        raise UnsupportedFormat(
            f"{name}: version {version}; the table has {known}",
            kind=name,
            expected=known,
            found=version,
        )
    return message


def _span(versions: range) -> str:
    return f"{versions.start} to {versions.stop - 1}" if versions else "none"


class _Reader:
    """A reader of the fields of one message from front to back."""

    def __init__(self, name: str, data: bytes, at: int, version: int, *, flexible: bool) -> None:
        self.at = at
        self._name = name
        self._data = data
        self._version = version
        self._flexible = flexible

    def struct(self, schema: Sequence[Field]) -> Fields:
        """Read the fields of a message or struct, in the order of the schema."""
        fields: Fields = {}
        tagged: dict[int, Field] = {}
        for field in schema:
            if self._version in field.tagged:
                tagged[field.tag] = field
                fields[field.name] = field.default
            elif self._version in field.versions:
                fields[field.name] = self._value(field)
        if self._flexible:
            self._tags(tagged, fields)
        return fields

    def _tags(self, tagged: Mapping[int, Field], fields: Fields) -> None:
        unknown: dict[int, bytes] = {}
        for _ in range(self._count(self._uvarint())):
            tag, size = self._uvarint(), self._uvarint()
            start = self.at
            content = self._take(size)
            field = tagged.get(tag)
            if field is None:
                unknown[tag] = content
                continue
            self.at = start
            fields[field.name] = self._value(field)
            if self.at != start + size:
                raise self._corrupt(f"tagged field {field.name}: {size} bytes are not its size")
        if unknown:
            fields[UNKNOWN_TAGS] = unknown

    def _value(self, field: Field) -> Any:
        nullable = self._version in field.nullable
        if not field.is_array:
            return self._one(field, nullable=nullable)
        count = self._length(field)
        if count < 0:
            return self._null(field, nullable=nullable)
        return [self._one(field, nullable=False) for _ in range(self._count(count))]

    def _one(self, field: Field, *, nullable: bool) -> Any:
        """Read a single value: a field that is not an array, or an item of an array."""
        number = _NUMBERS.get(field.type)
        if number is not None:
            return number.unpack(self._take(number.size))[0]
        if field.type == STRUCT:
            if nullable and self._is_null(field):
                return None
            return self.struct(field.fields)
        if field.type == "bool":
            return self._take(1) != b"\0"
        if field.type == "uuid":
            return self._take(16)
        length = self._length(field, of=field.type)
        if length < 0:
            return self._null(field, nullable=nullable)
        content = self._take(length)
        return self._text(field, content) if field.type == "string" else content

    def _is_null(self, field: Field) -> bool:
        """Read the marker before a nullable struct. Return whether the struct is null."""
        if self._version in field.tagged:
            return self._uvarint() == 0
        return bool(_I8.unpack(self._take(1))[0] < 0)

    def _text(self, field: Field, content: bytes) -> str:
        try:
            return content.decode()
        except UnicodeDecodeError as error:
            raise self._corrupt(f"field {field.name} is no UTF-8") from error

    def _length(self, field: Field, *, of: str = "") -> int:
        """Read a length or a count; -1 for null."""
        if self._flexible and field.compact:
            return self._uvarint() - 1
        number = _LENGTHS.get(of, _NUMBERS["int32"])
        length: int = number.unpack(self._take(number.size))[0]
        return length

    def _null(self, field: Field, *, nullable: bool) -> None:
        if not nullable:
            raise self._corrupt(f"field {field.name} is null, which this version does not have")

    def _count(self, count: int) -> int:
        """Return a count of items, each at least one byte long. Raises Corrupt if fewer bytes are left."""
        if count > len(self._data) - self.at:
            raise self._corrupt(f"{count} entries in {len(self._data) - self.at} bytes")
        return count

    def _uvarint(self) -> int:
        value, self.at = decode_uvarint(self._data, self.at)
        return value

    def _take(self, size: int) -> bytes:
        stop = self.at + size
        if stop > len(self._data):
            raise self._corrupt(f"{len(self._data)} bytes end inside a field")
        content = self._data[self.at : stop]
        self.at = stop
        return content

    def _corrupt(self, problem: str) -> Corrupt:
        return Corrupt(
            f"{self._name} version {self._version}: {problem}",
            kind=self._name,
            position=self.at,
            expected=None,
            found=problem,
        )


class _Writer:
    """A writer of the fields of one message."""

    def __init__(self, name: str, version: int, *, flexible: bool) -> None:
        self.parts: list[bytes] = []
        self._name = name
        self._version = version
        self._flexible = flexible

    def struct(self, schema: Sequence[Field], fields: Mapping[str, Any]) -> None:
        """Write the fields of a message or struct, in the order of the schema, then the tagged fields."""
        unknown = fields.keys() - {field.name for field in schema} - {UNKNOWN_TAGS}
        if unknown:
            raise self._invalid(f"unknown field {min(unknown)}", min(unknown))
        tagged: dict[int, bytes] = dict(fields.get(UNKNOWN_TAGS, {}))
        for field in schema:
            value = fields.get(field.name, field.default)
            if self._version in field.tagged:
                if not _equal(value, field.default):
                    tagged[field.tag] = self._apart(field, value)
            elif self._version in field.versions:
                self._value(field, value)
            elif not field.ignorable and not _equal(value, field.default):
                raise self._invalid(f"field {field.name} is not in this version", field.name)
        if self._flexible:
            self._tags(tagged)
        elif tagged:
            raise self._invalid("this version has no tagged fields", UNKNOWN_TAGS)

    def _apart(self, field: Field, value: Any) -> bytes:
        writer = _Writer(self._name, self._version, flexible=True)
        writer._value(field, value)
        return b"".join(writer.parts)

    def _tags(self, tagged: Mapping[int, bytes]) -> None:
        self.parts.append(encode_uvarint(len(tagged)))
        for tag, content in sorted(tagged.items()):
            self.parts += (encode_uvarint(tag), encode_uvarint(len(content)), content)

    def _value(self, field: Field, value: Any) -> None:
        nullable = self._version in field.nullable
        if not field.is_array:
            self._one(field, value, nullable=nullable)
        elif value is None:
            self._null(field, nullable=nullable)
        else:
            self._length(field, len(value))
            for one in value:
                self._one(field, one, nullable=False)

    def _one(self, field: Field, value: Any, *, nullable: bool) -> None:
        number = _NUMBERS.get(field.type)
        try:
            if number is not None:
                self.parts.append(number.pack(value))
            elif field.type == STRUCT:
                self._inner(field, value, nullable=nullable)
            elif field.type == "bool":
                self.parts.append(b"\1" if value else b"\0")
            elif field.type == "uuid":
                self.parts += _UUID.unpack(value)  # raises unless there are exactly 16 bytes
            elif value is None:
                self._null(field, nullable=nullable)
            else:
                content = value.encode() if field.type == "string" else bytes(value)
                self._length(field, len(content), of=field.type)
                self.parts.append(content)
        except (struct.error, TypeError, AttributeError) as error:
            raise self._invalid(
                f"field {field.name}: {value!r} is no {field.type}", field.name
            ) from error

    def _inner(self, field: Field, value: Any, *, nullable: bool) -> None:
        if nullable:
            null = 0 if self._version in field.tagged else -1
            self.parts.append(_I8.pack(null if value is None else 1))
        elif value is None:
            raise self._invalid(f"field {field.name} may not be null", field.name)
        if value is not None:
            self.struct(field.fields, value)

    def _null(self, field: Field, *, nullable: bool) -> None:
        if not nullable:
            raise self._invalid(f"field {field.name} may not be null", field.name)
        self._length(field, -1, of="" if field.is_array else field.type)

    def _length(self, field: Field, length: int, *, of: str = "") -> None:
        if self._flexible and field.compact:
            self.parts.append(encode_uvarint(length + 1))
        else:
            self.parts.append(_LENGTHS.get(of, _NUMBERS["int32"]).pack(length))

    def _invalid(self, problem: str, field: str) -> InvalidArgument:
        return InvalidArgument(f"{self._name} version {self._version}: {problem}", field=field)


def _equal(value: Any, default: Any) -> bool:
    """Whether a value is its field's default; an empty sequence of any type equals the default of an array."""
    return value == default or (default == () and value is not None and not len(value))
