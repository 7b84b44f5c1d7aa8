"""The dispatch of a record: its fields that the queues and the index need (DispatchRequest).

Owns that value and how it follows from a record's properties; must not do IO. An append makes it from
the message in memory, recovery and rebuild from the stored record, so that all of them build the same
files. Source: CommitLog.checkMessageAndReturnSize of RocketMQ. Compiled if a compiler is
available.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from storage.rocketmq.format.index_file import index_keys
from storage.rocketmq.format.message import (
    TRANSACTION_MASK,
    TRANSACTION_ROLLBACK,
    Message,
    takes_queue_offset,
)
from storage.rocketmq.format.properties import decode_properties
from storage.rocketmq.format.queue_entry import code_of
from storage.rocketmq.format.suspect_fields import is_folder_name


class Dispatch(NamedTuple):
    """The fields of one stored record for its queue and the index. `keys` are the strings to be indexed,
    in order; empty for a record that is not indexed.
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
        """Whether the record has an entry in its queue. Prepared and rolled back records have none, nor have records
        of a topic whose name no folder can have.
        """
        return takes_queue_offset(self.sys_flag) and is_folder_name(self.topic)


new_dispatch: Final = tuple.__new__
"""`Dispatch._make` without its length check, in half the time."""


def keys_of(
    topic: str, properties: dict[str, str], sys_flag: int, *, with_tags: bool
) -> Sequence[str]:
    """Return the strings under which a record is indexed."""
    if sys_flag & TRANSACTION_MASK == TRANSACTION_ROLLBACK:
        return ()
    return index_keys(topic, properties, with_tags=with_tags)


def dispatch_of(
    message: Message,
    physical_offset: int,
    *,
    with_tags: bool,
    delays_ms: Sequence[int] | None = None,
) -> Dispatch:
    """Return the dispatch of a record stored at `physical_offset`; `delays_ms` as for `code_of`."""
    topic, properties = message.topic, decode_properties(message.properties)
    time_ms, sys_flag = message.store_timestamp_ms, message.sys_flag
    # fmt: off
    return new_dispatch(Dispatch, (
        topic, message.queue_id, message.queue_offset, physical_offset, message.size,
        code_of(topic, properties, time_ms, delays_ms), time_ms, sys_flag,
        keys_of(topic, properties, sys_flag, with_tags=with_tags),
    ))
    # fmt: on
