"""Reading a queue: units, then the records they point to, then records as callers see them.

Owns the way from an offset to records, and the mapping from a message to a StoredRecord; must not
write. The other way is encoding.py. Source: DefaultMessageStore.getMessage of RocketMQ.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from storage.errors import Corrupt
from storage.model import Header, StoredRecord, TopicPartition
from storage.rocketmq.commit_log import CommitLog
from storage.rocketmq.consume_queue import ConsumeQueue
from storage.rocketmq.encoding import SEQUENCE_PROPERTY
from storage.rocketmq.format.body import decompress
from storage.rocketmq.format.message import Message
from storage.rocketmq.format.properties import (
    KEYS,
    RESERVED,
    SHARDING_KEY,
    TAGS,
    decode_properties,
)
from storage.rocketmq.format.queue_unit import Unit

WINDOW_BYTES: Final = 1 << 20
NEAR_BYTES: Final = 8 << 10  # records closer than this are read in one go
UNITS_AT_ONCE: Final = 1024
MAX_BODY_BYTES: Final = 64 << 20  # of a compressed body when it is unpacked
V6_MARK: Final = 1 << 224  # tells an id of 28 bytes from one of 16 in a locator
_HIDDEN: Final = RESERVED | {SHARDING_KEY, SEQUENCE_PROPERTY}


class Limits(NamedTuple):
    """How much one read gives: at least one record, and then no more than these."""

    max_records: int
    max_bytes: int


def locator_of(store_host: bytes, physical_offset: int) -> int:
    """The offset id (CommitLog's msgId) as one number."""
    number = int.from_bytes(store_host, "big") << 64 | physical_offset
    return number | V6_MARK if len(store_host) > 8 else number


def locator_text(locator: int) -> str:
    """The offset id as RocketMQ writes it: 32 hex digits, 56 for an IPv6 host."""
    return f"{locator - V6_MARK:056X}" if locator >= V6_MARK else f"{locator:032X}"


def to_stored(message: Message, offset: int, physical_offset: int) -> StoredRecord:
    """A message as a record. Raises Corrupt for a body that cannot be unpacked."""
    properties = decode_properties(message.properties)
    key = properties.get(SHARDING_KEY)
    lookup_keys = [k for k in properties.get(KEYS, "").split(" ") if k]
    if key in lookup_keys:
        lookup_keys.remove(key)
    headers: Sequence[Header] = [
        (name, value.encode()) for name, value in properties.items() if name not in _HIDDEN
    ]
    return StoredRecord(
        offset,
        message.born_timestamp_ms,
        None if key is None else key.encode("utf-8", "surrogateescape"),
        decompress(message.body, message.sys_flag, MAX_BODY_BYTES),
        headers,
        "CreateTime",
        properties.get(TAGS),
        lookup_keys,
        locator_of(message.store_host, physical_offset),
        message.store_timestamp_ms,
        properties,
    )


class QueueReader:
    """Reads one queue of a store. Any number of threads at any time."""

    def __init__(self, log: CommitLog, units: ConsumeQueue, partition: TopicPartition) -> None:
        self._log = log
        self._units = units
        self._partition = partition

    def read(self, offset: int, end: int, limits: Limits) -> tuple[Sequence[StoredRecord], int]:
        """(records from `offset` on below `end`, where to read on). See LogStore.read."""
        records: list[StoredRecord] = []
        size_bytes = 0
        while offset < end and len(records) < max(limits.max_records, 1):
            count = min(end - offset, max(limits.max_records, 1) - len(records), UNITS_AT_ONCE)
            units = self._units.read(offset, count)
            stop = offset + len(units)
            for unit, message in self._messages(units, offset, bool(records)):
                if message is not None:
                    size_bytes += unit.size
                    if records and size_bytes > limits.max_bytes:
                        return records, offset
                    records.append(self._stored(message, offset, unit))
                offset += 1
            if offset < stop:
                break  # before a damaged record
        return records, offset

    def _stored(self, message: Message, offset: int, unit: Unit) -> StoredRecord:
        try:
            return to_stored(message, offset, unit.physical_offset)
        except Corrupt as error:
            raise self._damaged(
                self._log.damage(unit.physical_offset, error.message), offset
            ) from error

    def _messages(
        self, units: Sequence[Unit], offset: int, begun: bool
    ) -> Iterator[tuple[Unit, Message | None]]:
        """The units with their messages; a filler has none. Ends before a damaged record, unless it
        is the first: then Corrupt is raised.
        """
        data, start = b"", 0
        for at, unit in enumerate(units):
            if unit.is_filler:
                yield unit, None
                continue
            position = unit.physical_offset - start
            try:
                if not 0 <= position <= len(data) - unit.size:
                    start, position = unit.physical_offset, 0
                    data = self._window(units, at)
                message = self._checked(data, position, unit)
            except Corrupt as error:
                if begun or at:
                    return
                raise self._damaged(error, offset + at) from error
            yield unit, message

    def _window(self, units: Sequence[Unit], at: int) -> bytes:
        """The bytes of the record of `units[at]` and of those behind it that lie close."""
        unit = units[at]
        if not unit.is_valid:
            raise Corrupt("the queue's unit is damaged", kind="consumequeue", found=str(unit))
        size = _window_bytes(units, at, self._log.largest_record)
        return self._log.read(unit.physical_offset, size)

    def _checked(self, data: bytes, position: int, unit: Unit) -> Message:
        message = self._log.checked(data, position, unit.physical_offset)
        topic, queue_id = self._partition
        if message.topic != topic or message.queue_id != queue_id:
            raise self._log.damage(
                unit.physical_offset,
                f"the unit of {self._partition} points to a record of another queue",
                expected=str(self._partition),
                found=f"{message.topic}-{message.queue_id}",
            )
        return message

    def _damaged(self, error: Corrupt, offset: int) -> Corrupt:
        """The error with the offsets of the damaged record and of the one to read on with."""
        facts = {
            **error.facts(),
            "topic": self._partition.topic,
            "partition": self._partition.partition,
            "offset": offset,
            "next_good_offset": offset + 1,
        }
        return Corrupt(f"{self._partition} offset {offset}: {error.message}", **facts)


def _window_bytes(units: Sequence[Unit], at: int, limit_bytes: int) -> int:
    """How many bytes to read for the record of `units[at]` and those of the units behind it that
    lie close.
    """
    start = units[at].physical_offset
    end = start + min(max(units[at].size, 0), limit_bytes)
    for unit in units[at + 1 :]:
        following = unit.physical_offset + unit.size
        if unit.is_filler or not end <= unit.physical_offset <= end + NEAR_BYTES:
            break
        if following - start > WINDOW_BYTES:
            break
        end = following
    return end - start
