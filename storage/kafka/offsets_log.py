"""What the records of one partition of `__consumer_offsets` say: the newest offset per group and partition.

Owns which record counts; must not write. As the broker's loader (GroupCoordinatorShard, and
OffsetMetadataManager for transactions) the last record of a key counts, in the order of the log:

    record                               counts
    of no transaction                    at once, above all before it, those of open transactions too
    of a transaction                     when its COMMIT marker comes, unless a later record of its
                                         key has counted; never with ABORT or without a marker
    another type, or a key or value      not at all; it stays in the log as it is
    that cannot be understood

The log is read on from where the last look ended, so what others append is seen too.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Final, NamedTuple, TypeVar

from storage.errors import Corrupt, DataError, OffsetOutOfRange
from storage.group_offsets import OffsetTable
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

READ_BYTES: Final = 1 << 20
_T = TypeVar("_T")


def is_of(value: OffsetValue, topic_id: bytes | None) -> bool:
    """Whether an offset counts for the topic with this id: it is not of an earlier one of the same
    name (as in OffsetMetadataManager). None: not known.
    """
    return None in (value.topic_id, topic_id) or value.topic_id == topic_id


def id_bytes(topic_id: str | None) -> bytes | None:
    """Return a topic's id as the records have it; None where it is not known."""
    return None if topic_id is None else parse_uuid_text(topic_id, field="topic id")


class _Said(NamedTuple):
    """What one record says of its key; `value` None: there is no offset."""

    record_offset: int
    value: OffsetValue | None


class OffsetsLog:
    """The offsets of the groups that have their home in one partition. Thread-safe."""

    def __init__(self, partition: Partition) -> None:
        self.partition = partition
        self._lock = threading.Lock()  # over the fields below
        self._read_to = 0
        self._table = OffsetTable[OffsetValue]()
        self._pending: dict[int, dict[OffsetKey, _Said]] = {}  # of open transactions, by producer

    def look(self, question: Callable[[OffsetTable[OffsetValue]], _T]) -> _T:
        """What the table answers, up to the log's published end. Only copies may leave it."""
        with self._lock:
            self._catch_up()
            return question(self._table)

    def _catch_up(self) -> None:
        """Read on. A damaged place is passed over: what `verify` and a start report of it holds here too."""
        while True:
            bounds = self.partition.bounds()
            offset = max(self._read_to, bounds.start)
            if offset >= bounds.end:
                return
            with suppress(OffsetOutOfRange):  # segments were deleted meanwhile
                self._read_to = self._read(offset, bounds.end)

    def _read(self, offset: int, end: int) -> int:
        """Take in some batches from `offset` on; where to go on."""
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
        """Let a record count, above those before it that still wait for a marker."""
        for pending in self._pending.values():
            if key in pending and pending[key].record_offset < said.record_offset:
                del pending[key]
        address = TopicPartition(key.topic, key.partition)
        if said.value is None:
            self._table.drop(key.group, address)
        else:
            self._table.put(key.group, address, said.value)
