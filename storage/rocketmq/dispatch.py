"""What the commit log tells the structures built behind it: one Dispatch per record (DispatchRequest).

Owns that one value; must not do IO. Made by an append from what it has at hand, and by recovery
and rebuild from the stored record, so that all three build the same files.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class Dispatch(NamedTuple):
    """One stored record as its queue and the index need it. `keys` are the strings to be indexed,
    in order; none for a record that is not indexed.
    """

    topic: str
    queue_id: int
    queue_offset: int
    physical_offset: int
    size: int
    tags_code: int
    store_timestamp_ms: int
    sys_flag: int
    keys: Sequence[str]
