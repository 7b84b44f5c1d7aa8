"""Reader and writer of the primitive types of the wire protocol.

Owns the types on the wire, in both directions, the limits that keep a hostile message small in memory, and the base of
the messages that are compiled; must not know messages. All integers are big-endian. From Kafka's ByteBufferAccessor and
MessageUtil.

    type                   plain version            flexible version
    intN, uint16           N bits                   the same
    float64, bool, uuid    8, 1 and 16 bytes        the same
    string                 i16 length (-1 null)     uvarint length + 1 (0 null)
    bytes, records         i32 length (-1 null)     uvarint length + 1 (0 null)
    array                  i32 count (-1 null)      uvarint count + 1 (0 null)
    end of a struct        nothing                  uvarint count, then for each tagged field: uvarint tag,
                                                    uvarint size, content
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from struct import Struct, error
from typing import Any, ClassVar, Final, TypeAlias, TypeVar

T = TypeVar("T")

MAX_ITEMS: Final = 1 << 18
"""Most items of all arrays of one message together. An item costs 100 to 300 bytes here, and 1 to 2 on the wire."""
MAX_UVARINT_BYTES: Final = 5

_I8: Final = Struct(">b")
_I16: Final = Struct(">h")
_U16: Final = Struct(">H")
_I32: Final = Struct(">i")
_I64: Final = Struct(">q")
_F64: Final = Struct(">d")
NO_UUID: Final = bytes(16)
EMPTY: Final[list[Any]] = []
"""The argument of a message's constructor in place of a list: it makes a new one."""
_ONE_BYTE: Final = [bytes([number]) for number in range(128)]
MAX_STRING_BYTES: Final = (1 << 15) - 1
NULL: Final = "a field is null that may not be null in this version"


class Malformed(Exception):  # a fact about the client's bytes
    """Error for bytes that are no message of their API and version. The connection ends, since no later byte of it can
    be trusted.
    """


class Reader:
    """A reader of one message from front to back. Raises Malformed for bytes that do not fit.

    A length or count is compared with the bytes that are left before anything of that size is made.
    """

    __slots__ = ("_data", "_end", "_items", "_tag_end", "at", "flexible")

    def __init__(self, data: bytes, at: int = 0, *, flexible: bool = False) -> None:
        self._data = data
        self._end = len(data)
        self._items = 0
        self._tag_end = 0
        self.at = at
        self.flexible = flexible

    @property
    def left(self) -> int:
        """The number of bytes that are not read yet."""
        return self._end - self.at

    def _number(self, kind: Struct) -> int:
        at = self.at
        try:
            (value,) = kind.unpack_from(self._data, at)
        except error:
            raise Malformed(f"the message ends inside a field, at byte {at}") from None
        self.at = at + kind.size
        return value  # type: ignore[no-any-return]  # the integer formats

    def int8(self) -> int:
        """Read an int8."""
        return self._number(_I8)

    def int16(self) -> int:
        """Read an int16."""
        return self._number(_I16)

    def uint16(self) -> int:
        """Read a uint16."""
        return self._number(_U16)

    def int32(self) -> int:
        """Read an int32."""
        return self._number(_I32)

    def int64(self) -> int:
        """Read an int64."""
        return self._number(_I64)

    def float64(self) -> float:
        """Read a float64."""
        return float(self._number(_F64))

    def boolean(self) -> bool:
        """Read a bool: any byte but 0 is true."""
        return self._number(_I8) != 0

    def uuid(self) -> bytes:
        """Read the 16 bytes of a UUID."""
        return self._take(16)

    def _take(self, size: int) -> bytes:
        at = self.at
        stop = at + size
        if size < 0 or stop > self._end:
            raise Malformed(
                f"a field of {size} bytes at byte {at}: {self._end - at} bytes are left"
            )
        self.at = stop
        return self._data[at:stop]

    def uvarint(self) -> int:
        """Read an unsigned varint of at most 32 bits."""
        value = 0
        for shift in range(0, 7 * MAX_UVARINT_BYTES, 7):
            at = self.at
            if at >= self._end:
                raise Malformed("the message ends inside a varint")
            byte = self._data[at]
            self.at = at + 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
        raise Malformed(f"a varint of more than {MAX_UVARINT_BYTES} bytes")

    def nullable_string(self) -> str | None:
        """Read a string, or null."""
        size = self.uvarint() - 1 if self.flexible else self.int16()
        return self._text(size)

    def plain_nullable_string(self) -> str | None:
        """Read a string, or null, in the form of plain versions, which some fields keep in flexible ones."""
        return self._text(self.int16())

    def client_id(self) -> str | None:
        """Read the client id of a header, or null. Bytes that are no UTF-8 are replaced, as the real server does."""
        size = self.int16()
        return None if size < 0 else self._take(size).decode(errors="replace")

    def _text(self, size: int) -> str | None:
        if size < 0:
            return None
        if size > MAX_STRING_BYTES:
            raise Malformed(f"a string of {size} bytes: the limit is {MAX_STRING_BYTES}")
        try:
            return self._take(size).decode()
        except UnicodeDecodeError:
            raise Malformed("a string is no UTF-8") from None

    def string(self) -> str:
        """Read a string that is not null."""
        return _not_null(self.nullable_string())

    def nullable_data(self) -> bytes | None:
        """Read bytes, or null."""
        size = self.uvarint() - 1 if self.flexible else self.int32()
        return None if size < 0 else self._take(size)

    def data(self) -> bytes:
        """Read bytes that are not null."""
        return _not_null(self.nullable_data())

    def nullable_count(self) -> int | None:
        """Read the count of an array, or null. Every item takes at least one byte."""
        count = self.uvarint() - 1 if self.flexible else self.int32()
        if count < 0:
            return None
        if count > self._end - self.at:
            raise Malformed(f"an array of {count} items: {self._end - self.at} bytes are left")
        self._items += count
        if self._items > MAX_ITEMS:
            raise Malformed(f"{self._items} items in one message: the limit is {MAX_ITEMS}")
        return count

    def count(self) -> int:
        """Read the count of an array that is not null."""
        return _not_null(self.nullable_count())

    def tags(self) -> Iterator[int]:
        """Yield the tags at the end of a struct. For each tag the caller reads its content, or calls `skip_tag`."""
        if not self.flexible:
            return
        for _ in range(self.uvarint()):
            tag = self.uvarint()
            size = self.uvarint()
            end = self.at + size
            if end > self._end:
                raise Malformed(f"tagged field {tag} of {size} bytes: {self.left} bytes are left")
            self._tag_end = end
            yield tag
            if self.at != end:
                raise Malformed(f"tagged field {tag}: {size} bytes are not its size")

    def skip_tag(self) -> None:
        """Skip the content of an unknown tag."""
        self.at = self._tag_end

    def skip_tags(self) -> None:
        """Skip the tagged fields of a struct of which none is known."""
        if not self.flexible:
            return
        if self.at < self._end and self._data[self.at] == 0:  # no tagged field, as nearly always
            self.at += 1
            return
        for _ in self.tags():
            self.skip_tag()


def _not_null(value: T | None) -> T:
    if value is None:
        raise Malformed(NULL)
    return value


class Writer:
    """A writer of one message; `parts` are its bytes so far. Raises ValueError for a value that does not fit."""

    __slots__ = ("flexible", "parts")

    def __init__(self, *, flexible: bool = False) -> None:
        self.flexible = flexible
        self.parts: list[bytes | bytearray] = []

    def _number(self, kind: Struct, value: int) -> None:
        try:
            self.parts.append(kind.pack(value))
        except error as problem:
            raise ValueError(f"{value!r}: {problem}") from None

    def int8(self, value: int) -> None:
        """Write an int8."""
        self._number(_I8, value)

    def int16(self, value: int) -> None:
        """Write an int16."""
        self._number(_I16, value)

    def uint16(self, value: int) -> None:
        """Write a uint16."""
        self._number(_U16, value)

    def int32(self, value: int) -> None:
        """Write an int32."""
        self._number(_I32, value)

    def int64(self, value: int) -> None:
        """Write an int64."""
        self._number(_I64, value)

    def float64(self, value: float) -> None:
        """Write a float64."""
        self.parts.append(_F64.pack(value))

    def boolean(self, value: bool) -> None:
        """Write a bool."""
        self.parts.append(b"\1" if value else b"\0")

    def uuid(self, value: bytes) -> None:
        """Write the 16 bytes of a UUID."""
        if len(value) != len(NO_UUID):
            raise ValueError(f"a UUID has 16 bytes, not {len(value)}")
        self.parts.append(value)

    def uvarint(self, value: int) -> None:
        """Write an unsigned varint."""
        if value < 0x80:
            self.parts.append(_ONE_BYTE[value])
            return
        encoded = bytearray()
        while value > 0x7F:
            encoded.append(value & 0x7F | 0x80)
            value >>= 7
        encoded.append(value)
        self.parts.append(bytes(encoded))

    def nullable_string(self, value: str | None) -> None:
        """Write a string, or null."""
        if value is None:
            self.parts.append(b"\0" if self.flexible else b"\xff\xff")
            return
        encoded = value.encode()
        if self.flexible:
            self.uvarint(len(encoded) + 1)
        else:
            self.int16(len(encoded))
        self.parts.append(encoded)

    def plain_nullable_string(self, value: str | None) -> None:
        """Write a string, or null, in the form of plain versions."""
        encoded = b"" if value is None else value.encode()
        self.int16(-1 if value is None else len(encoded))
        self.parts.append(encoded)

    def string(self, value: str | None) -> None:
        """Write a string that is not null."""
        self.nullable_string(_given(value))

    def nullable_data(self, value: bytes | bytearray | None) -> None:
        """Write bytes, or null."""
        if value is None:
            self.null()
            return
        if self.flexible:
            self.uvarint(len(value) + 1)
        else:
            self.int32(len(value))
        self.parts.append(value)

    def data(self, value: bytes | bytearray | None) -> None:
        """Write bytes that are not null."""
        if value is None:
            raise ValueError(NULL)
        self.nullable_data(value)

    def null(self) -> None:
        """Write null in place of bytes or an array."""
        self.parts.append(b"\0" if self.flexible else b"\xff\xff\xff\xff")

    def nullable_array(self, items: Sequence[T] | None) -> Sequence[T]:
        """Write the count of an array, or null. Return the items, for the caller to write."""
        if items is None:
            self.null()
            return ()
        if self.flexible:
            self.uvarint(len(items) + 1)
        else:
            self.int32(len(items))
        return items

    def array(self, items: Sequence[T] | None) -> Sequence[T]:
        """Write the count of an array that is not null. Return the items, for the caller to write."""
        return self.nullable_array(_given(items))

    def tag(self, tags: Tags, tag: int) -> Writer:
        """Add a tagged field to `tags`, and return the writer of its content."""
        content = Writer(flexible=True)
        tags.append((tag, content))
        return content

    def end_struct(self, tags: Tags = ()) -> None:  # type: ignore[assignment]  # never changed
        """End a struct: in a flexible version write its tagged fields, in ascending order of tags."""
        if not self.flexible:
            return
        self.uvarint(len(tags))
        for tag, content in tags:
            encoded = b"".join(content.parts)
            self.uvarint(tag)
            self.uvarint(len(encoded))
            self.parts.append(encoded)


Tags: TypeAlias = list[tuple[int, Writer]]
"""The tagged fields of a struct that are not at their defaults."""


class Fields:
    """A message, or a struct in it, of a compiled module: equal to one of its class with equal fields."""

    FIELDS: ClassVar[Sequence[str]] = ()

    def values(self) -> dict[str, Any]:
        """Return the value of each field, by name."""
        return {name: getattr(self, name) for name in self.FIELDS}

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return self.values() == other.values()

    def __hash__(self) -> int:
        raise TypeError(f"{type(self).__name__} can change, and has no hash")

    def __repr__(self) -> str:
        fields = ", ".join([f"{name}={value!r}" for name, value in self.values().items()])
        return f"{type(self).__name__}({fields})"


def _given(value: T | None) -> T:
    if value is None:
        raise ValueError(NULL)
    return value
