"""Java's String.hashCode: both references place things by it (groups in Kafka, keys in RocketMQ's index).

Owns the arithmetic, h = 31 h + unit over the UTF-16 units in 32 bits; must not know what is hashed.
"""

from __future__ import annotations

from struct import unpack
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from mypy_extensions import i64

MASK: Final = 0xFFFFFFFF
SIGN: Final = 0x80000000


def java_hash(text: str) -> int:
    """The hash as Java's int: signed, 32 bits. A lone surrogate counts as the unit that it is."""
    units = text.encode("utf-16-be", "surrogatepass")
    hashed: i64 = 0
    unit: i64
    for unit in unpack(f">{len(units) // 2}H", units):
        hashed = hashed * 31 + unit & MASK
    return (hashed ^ SIGN) - SIGN
