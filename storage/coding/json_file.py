"""JSON of our own small files, decoded to a type. Owns the errors of its bytes; must not know their meaning."""

from __future__ import annotations

from typing import TypeVar

import msgspec

from storage.errors import Corrupt

T = TypeVar("T")


def decode_json(data: bytes, kind: type[T]) -> T:
    """Decode `data` as `kind`. Raises Corrupt if it is not JSON of that shape, not UTF-8, or nested too deeply."""
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
