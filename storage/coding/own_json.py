"""JSON of our own small files, read typed. Owns what can be wrong with its bytes; must not know what they mean."""

from __future__ import annotations

from typing import TypeVar

import msgspec

from storage.errors import Corrupt

T = TypeVar("T")


def decode_json(data: bytes, kind: type[T]) -> T:
    """`data` as `kind`. Raises Corrupt for what is no JSON of that shape, no UTF-8, or nested too deeply."""
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Corrupt(
            str(error),
            kind="JSON",
            position=None,
            expected=f"a JSON object as {kind.__name__}",
            found=str(error),
        ) from error
