"""Settings as text: what every backend asks of a value before it becomes a number or a choice.

Owns the checks and their words; must not know a setting.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from storage.errors import InvalidConfig

_MAX_DIGITS: Final = 19  # of a 64-bit number


def whole_number(name: str, value: str, *, low: int, high: int) -> int:
    """The number that `value` writes. Raises InvalidConfig outside [low, high]."""
    digits = value.removeprefix("-")
    is_number = digits.isascii() and digits.isdigit() and len(digits) <= _MAX_DIGITS
    if not is_number or not low <= int(value) <= high:
        raise unlike(name, value, f"a whole number from {low} to {high}")
    return int(value)


def one_of(name: str, value: str, choices: Sequence[str]) -> str:
    """`value`, if it is one of the choices. Raises InvalidConfig."""
    if value not in choices:
        raise unlike(name, value, f"one of {', '.join(choices)}")
    return value


def unlike(name: str, value: str, wanted: str) -> InvalidConfig:
    """The error for a value that is not `wanted`."""
    return InvalidConfig(f"config {name} must be {wanted}, not {value!r}", name=name, value=value)


def unknown(name: str, value: str | None) -> InvalidConfig:
    """The error for a name that is no setting; `value` None: it was to be reset."""
    return InvalidConfig(f"config {name!r} is unknown", name=name, value=value)
