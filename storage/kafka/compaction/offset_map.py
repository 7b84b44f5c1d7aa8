"""The newest offset of each key, in a table of a fixed size.

Owns the table and the hash of keys; must not know records. It replaces the broker's SkimpyOffsetMap, with the same
size and the same guarantee: a key is known by 16 bytes of a cryptographic hash, so two keys are never taken for one.
The hash is BLAKE2b, which needs the time of the broker's MD5 and has no known collisions. The table is in memory only.

    slot    16 bytes  hash of the key   in one array
            8 bytes   its offset + 1    in another array; 0: the slot is free

A key stands in the first free slot after the slot that its hash names. The memory of slots that were never used is not
taken: the arrays begin as untouched zeros. Compiled if there is a C compiler.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from mypy_extensions import i64

HASH_BYTES: Final = 16
SLOT_BYTES: Final = HASH_BYTES + 8
NO_SLOT: Final = -1


class OffsetMap:
    """Offsets by key. Not thread-safe. `latest_offset`: every record up to this offset was offered to the map; -1 if
    none was.
    """

    def __init__(self, size_bytes: int, load_factor: float) -> None:
        """Create an empty map. It takes keys until this part of its slots is in use."""
        slots: int = max(size_bytes // SLOT_BYTES, 1)
        self._slots: i64 = slots
        self._most: i64 = max(int(slots * load_factor), 1)
        self._used: i64 = 0
        self._hashes = bytearray(slots * HASH_BYTES)
        self._offsets = memoryview(bytearray(slots * 8)).cast("q")
        self.latest_offset: i64 = -1

    def __len__(self) -> int:
        return self._used

    def put(self, key: bytes, offset: i64) -> bool:
        """Set the newest offset of a key. Return False, with the map unchanged, if the map is full.

        As in the broker, a full map takes no offset of a known key either: the pass ends there.
        """
        if self._used >= self._most:
            return False
        hashed = blake2b(key, digest_size=HASH_BYTES).digest()
        slot = self._find(hashed)  # a slot is free
        if self._offsets[slot] == 0:
            self._hashes[slot * HASH_BYTES : (slot + 1) * HASH_BYTES] = hashed
            self._used += 1
        self._offsets[slot] = offset + 1
        self.latest_offset = offset
        return True

    def get(self, key: bytes) -> i64:
        """Return the newest offset of a key; -1 for an unknown key."""
        slot = self._find(blake2b(key, digest_size=HASH_BYTES).digest())
        if slot == NO_SLOT:
            return -1
        offset: i64 = self._offsets[slot]
        return offset - 1

    def _find(self, hashed: bytes) -> i64:
        """Return the slot of a hash, or the free slot where it belongs; NO_SLOT if it is not in a map without a free
        slot, which a load factor of 1 allows, and one slot.
        """
        number: i64 = (
            hashed[0]
            | hashed[1] << 8
            | hashed[2] << 16
            | hashed[3] << 24
            | hashed[4] << 32
            | hashed[5] << 40
        )
        first = number % self._slots
        slot = first
        while self._offsets[slot] and (
            self._hashes[slot * HASH_BYTES : (slot + 1) * HASH_BYTES] != hashed
        ):
            slot += 1
            if slot == self._slots:
                slot = 0
            if slot == first:
                return NO_SLOT
        return slot
