"""What the record batches of a client must not be: control or transactional, until there are
transactions.

Owns this one refusal, which is the service's and not the storage's; reads only the attributes of
each batch header and leaves everything else about a batch to the store.

    position  bytes  field       note
    8         4      length      of what follows it
    16        1      magic       2
    21        2      attributes  bit 4 transactional, bit 5 control
"""

from __future__ import annotations

import struct
from typing import Final

from storage.errors import NotOffered

_LENGTH: Final = struct.Struct(">i")
_ATTRIBUTES: Final = struct.Struct(">H")
_LENGTH_POSITION: Final = 8
_MAGIC_POSITION: Final = 16
_MAGIC: Final = 2
_ATTRIBUTES_POSITION: Final = 21
_OVERHEAD_BYTES: Final = 12
_SMALLEST_LENGTH: Final = 49
_TRANSACTIONAL_OR_CONTROL: Final = 0x30


def refuse_transactions(data: bytes) -> None:
    """Raise NotOffered if one of the batches is transactional or a control batch. Malformed bytes
    pass.
    """
    position = 0
    while position + _OVERHEAD_BYTES + _SMALLEST_LENGTH <= len(data):
        (length,) = _LENGTH.unpack_from(data, position + _LENGTH_POSITION)
        if length < _SMALLEST_LENGTH or data[position + _MAGIC_POSITION] != _MAGIC:
            return
        (attributes,) = _ATTRIBUTES.unpack_from(data, position + _ATTRIBUTES_POSITION)
        if attributes & _TRANSACTIONAL_OR_CONTROL:
            raise NotOffered(
                f"the batch at position {position} is transactional or a control batch: "
                "transactions are not offered yet",
                feature="transactions",
                position=position,
            )
        position += _OVERHEAD_BYTES + length
