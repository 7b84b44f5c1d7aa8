"""The committed offsets in one partition of `__consumer_offsets`: the newest offset per group and partition.

Owns the rule which record counts; must not write. As in the broker's loader (GroupCoordinatorShard, and
OffsetMetadataManager for transactions), the last record of a key counts, in the order of the log:

    record                               counts
    of no transaction                    at once; it replaces all earlier records of its key, also
                                         those in open transactions
    of a transaction                     when its COMMIT marker comes, unless a later record of its
                                         key has counted; never with ABORT or without a marker
    another type, or a key or value      not at all; it stays in the log as it is
    that cannot be understood

Each read of the log continues where the last read ended. So records that other clients append are seen too.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Final, NamedTuple, TypeVar

from storage.errors import Corrupt, DataError, OffsetOutOfRange
from storage.kafka.format.batch import (
    ABORT,
    COMMIT,
    BatchHeader,
    decode_control,
    decode_records,
    split_batches,
)
from storage.kafka.format.offset_records import OffsetKey, OffsetValue, decode_key, decode_value
from storage.kafka.format.properties import parse_uuid_text
from storage.kafka.partition import Partition
from storage.model import Isolation, TopicPartition
from storage.shared.group_offsets import OffsetTable

READ_BYTES: Final = 1 << 20
_T = TypeVar("_T")


def is_of(value: OffsetValue, topic_id: bytes | None) -> bool:
    """Return whether an offset belongs to the topic with this id, and not to an earlier topic of the same name (as in
    OffsetMetadataManager). An id that is not known (None) matches every topic.
    """
    return None in (value.topic_id, topic_id) or value.topic_id == topic_id


def id_bytes(topic_id: str | None) -> bytes | None:
    """Return a topic's id as the records store it; None if it is not known."""
    return None if topic_id is None else parse_uuid_text(topic_id, field="topic id")


class _Said(NamedTuple):
    """The content of one record for its key; `value` None: a tombstone, so the key has no offset."""

    record_offset: int
    value: OffsetValue | None


class OffsetsLog:
    """The committed offsets of the groups that belong to one partition. Thread-safe."""

    def __init__(self, partition: Partition) -> None:
        self.partition = partition
        self._lock = threading.Lock()  # guards the fields below
        self._read_to = 0
        self._table = OffsetTable[OffsetValue]()
        self._pending: dict[
            int, dict[OffsetKey, _Said]
        ] = {}  # of open transactions, by producer id

    def look(self, question: Callable[[OffsetTable[OffsetValue]], _T]) -> _T:
        """Return the result of `question` on the table, read up to the log's published end.

        The result must contain only copies of the table's data.
        """
        with self._lock:
            self._catch_up()
            return question(self._table)

    def _catch_up(self) -> None:
        """Read up to the published end. Damage is skipped: `verify` and a start report it."""
        while True:
            bounds = self.partition.bounds()
            offset = max(self._read_to, bounds.start)
            if offset >= bounds.end:
                return
            with suppress(OffsetOutOfRange):  # segments were deleted meanwhile: try again
                self._read_to = self._read(offset, bounds.end)

    def _read(self, offset: int, end: int) -> int:
        """Read and apply some batches from `offset` on. Return the offset to continue from."""
        try:
            page = self.partition.read_batches(
                offset, max_bytes=READ_BYTES, isolation=Isolation.READ_UNCOMMITTED
            )
        except Corrupt as error:
            following: object = error.facts().get("next_good_offset")
            return following if isinstance(following, int) and following > offset else end
        for at, header in split_batches(page.data):
            with suppress(DataError):
                self._take(page.data, at, header)
        return page.next_offset if page.next_offset > offset else end

    def _take(self, data: bytes, at: int, header: BatchHeader) -> None:
        if header.is_control:
            marker = decode_control(data, at)
            if marker is not None and marker.type in (ABORT, COMMIT):
                self._end_transaction(header.producer_id, commit=marker.type == COMMIT)
            return
        for record_offset, _, key, value, _ in decode_records(data, at, header=header):
            with suppress(DataError):
                whose = None if key is None else decode_key(key)
                if whose is None:
                    continue
                said = _Said(record_offset, None if value is None else decode_value(value))
                if header.is_transactional:
                    self._pending.setdefault(header.producer_id, {})[whose] = said
                else:
                    self._apply(whose, said)

    def _end_transaction(self, producer_id: int, *, commit: bool) -> None:
        ended = self._pending.pop(producer_id, {})
        for key, said in ended.items() if commit else ():
            self._apply(key, said)

    def _apply(self, key: OffsetKey, said: _Said) -> None:
        """Apply a record to the table. Earlier records of its key that still wait for a marker are dropped."""
        for pending in self._pending.values():
            if key in pending and pending[key].record_offset < said.record_offset:
                del pending[key]
        address = TopicPartition(key.topic, key.partition)
        if said.value is None:
            self._table.drop(key.group, address)
        else:
            self._table.put(key.group, address, said.value)
