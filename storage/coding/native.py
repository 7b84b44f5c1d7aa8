"""Fixed-width numbers in bytes, and a buffer for them: mypyc's run-time library (librt) under the names used here.

Owns the choice between the library and plain Python; must not know any format. A module that `setup.py` compiles
imports these names from here. The compiler follows them to librt, and each use becomes a few machine instructions. An
interpreted module gets the plain definitions below, which need no library: a call of librt from interpreted Python is
slower than `struct` for several fields. So code for both asks `is_native`, and works record by record if it is False.

Rule: compiled code needs librt (a requirement on CPython); interpreted code, so PyPy too, never imports it.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Final, cast

if TYPE_CHECKING:
    from librt.strings import BytesWriter as BytesWriter
    from librt.strings import read_i16_be as read_i16_be
    from librt.strings import read_i32_be as read_i32_be
    from librt.strings import read_i64_be as read_i64_be
    from librt.strings import write_i16_be as write_i16_be
    from librt.strings import write_i32_be as write_i32_be
    from librt.strings import write_i64_be as write_i64_be
    from librt.vecs import vec as vec
    from mypy_extensions import i16 as i16
    from mypy_extensions import i32 as i32
    from mypy_extensions import i64 as i64
    from mypy_extensions import u8 as u8
else:
    i16 = i32 = i64 = u8 = int
    _I16: Final = Struct(">h")
    _I32: Final = Struct(">i")
    _I64: Final = Struct(">q")

    vec = memoryview  # see `plain_row`

    class BytesWriter(bytearray):
        """A buffer that grows at its end."""

        def write(self, data: bytes) -> None:
            """Append bytes."""
            self += data

        def getvalue(self) -> bytes:
            """Return all bytes."""
            return bytes(self)

        def truncate(self, size: int) -> None:
            """Drop the bytes after the first `size`."""
            del self[size:]

    def read_i16_be(data: bytes, position: int) -> int:
        """Return the signed 16-bit number at `position`. Raises IndexError if the data ends before its end."""
        return _read(_I16, data, position)

    def read_i32_be(data: bytes, position: int) -> int:
        """Return the signed 32-bit number at `position`. Raises IndexError if the data ends before its end."""
        return _read(_I32, data, position)

    def read_i64_be(data: bytes, position: int) -> int:
        """Return the signed 64-bit number at `position`. Raises IndexError if the data ends before its end."""
        return _read(_I64, data, position)

    def _read(form: Struct, data: bytes, position: int) -> int:
        if not 0 <= position <= len(data) - form.size:
            raise IndexError("index out of range")
        return form.unpack_from(data, position)[0]

    def write_i16_be(writer: BytesWriter, number: int) -> None:
        """Append a signed 16-bit number."""
        writer += _I16.pack(number)

    def write_i32_be(writer: BytesWriter, number: int) -> None:
        """Append a signed 32-bit number."""
        writer += _I32.pack(number)

    def write_i64_be(writer: BytesWriter, number: int) -> None:
        """Append a signed 64-bit number."""
        writer += _I64.pack(number)


def is_native(function: object) -> bool:
    """Return whether a function is compiled. A compiled module asks this about one of its own functions."""
    return not hasattr(function, "__code__")


def plain_row(numbers: memoryview[int]) -> vec[i32]:
    """Return these numbers as interpreted code's form of `vec[i32]`."""
    return cast("vec[i32]", numbers)
