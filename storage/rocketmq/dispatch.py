"""What the commit log tells the structures built behind it: one Dispatch per record (DispatchRequest).

Owns that value and how it follows from a record's properties; must not do IO. Made by an append
from what it has at hand, and by recovery and rebuild from the stored record, so that all of them
build the same files. Source: CommitLog.checkMessageAndReturnSize of RocketMQ.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from storage.rocketmq.format.index_file import index_keys
from storage.rocketmq.format.message import (
    TRANSACTION_MASK,
    TRANSACTION_ROLLBACK,
    Message,
    takes_queue_offset,
)
from storage.rocketmq.format.properties import decode_properties
from storage.rocketmq.format.queue_unit import code_of


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

    @property
    def is_queued(self) -> bool:
        """Whether the record has a unit in its queue: not a prepared or rolled back one."""
        return takes_queue_offset(self.sys_flag)


new_dispatch: Final = tuple.__new__
"""`Dispatch._make` without its length check, in half the time."""


def keys_of(
    topic: str, properties: Mapping[str, str], sys_flag: int, *, with_tags: bool
) -> Sequence[str]:
    """The strings under which a record is indexed."""
    if sys_flag & TRANSACTION_MASK == TRANSACTION_ROLLBACK:
        return ()
    return index_keys(topic, properties, with_tags=with_tags)


def dispatch_of(message: Message, physical_offset: int, *, with_tags: bool) -> Dispatch:
    """The dispatch of a stored record that lies at `physical_offset`."""
    topic, properties = message.topic, decode_properties(message.properties)
    time_ms, sys_flag = message.store_timestamp_ms, message.sys_flag
    # fmt: off
    return new_dispatch(Dispatch, (
        topic, message.queue_id, message.queue_offset, physical_offset, message.size,
        code_of(topic, properties, time_ms), time_ms, sys_flag,
        keys_of(topic, properties, sys_flag, with_tags=with_tags),
    ))
    # fmt: on
