"""Settings as text: the checks that every backend makes before a value becomes a number or a choice.

Owns the checks and their messages; must not know a setting.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from typing import Final

from storage.errors import InvalidConfig

_MAX_DIGITS: Final = 19  # digits of a 64-bit number


def whole_number(name: str, value: str, *, low: int, high: int) -> int:
    """Return `value` as a number. Raises InvalidConfig if it is not a whole number in [low, high]."""
    digits = value.removeprefix("-")
    is_number = digits.isascii() and digits.isdigit() and len(digits) <= _MAX_DIGITS
    if not is_number or not low <= int(value) <= high:
        raise unlike(name, value, f"a whole number from {low} to {high}")
    return int(value)


def one_of(name: str, value: str, choices: Sequence[str]) -> str:
    """Return `value` if it is one of the choices. Raises InvalidConfig."""
    if value not in choices:
        raise unlike(name, value, f"one of {', '.join(choices)}")
    return value


def unlike(name: str, value: str, wanted: str) -> InvalidConfig:
    """Return the error for a value that is not `wanted`."""
    return InvalidConfig(f"config {name} must be {wanted}, not {value!r}", name=name, value=value)


def unknown(name: str, value: str | None, known: Iterable[str]) -> InvalidConfig:
    """Return the error for a name that is not one of the `known` settings. It names a similar one. `value` None: the
    request was to reset it.
    """
    similar = difflib.get_close_matches(name, known, n=1, cutoff=0.7)
    hint = f"; similar: {similar[0]}" if similar else ""
    return InvalidConfig(f"config {name!r} is unknown{hint}", name=name, value=value)


def fraction(name: str, value: str) -> float:
    """Return `value` as a number from 0 to 1. Raises InvalidConfig."""
    try:
        number = float(value)
    except ValueError:
        number = -1.0
    if not 0 <= number <= 1:
        raise unlike(name, value, "a number from 0 to 1")
    return number
