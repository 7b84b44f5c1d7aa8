"""Appending messages to the commit log: one append at a time, all of its messages or none.

Owns the append lock, the order of the steps and the undo of a failed append; must not flush. Sources:
CommitLog.asyncPutMessage and asyncPutMessages of RocketMQ.

    place (padding, roll) -> encode -> write -> dispatch -> visible
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from functools import lru_cache
from typing import Final, NamedTuple

from storage.contract import Clock
from storage.errors import InvalidArgument, IoFailure, RecordTooLarge, StorageError
from storage.files import Fence
from storage.model import AppendResult, ProducerSequence
from storage.rocketmq.format.message import (
    HOST_SIZE_V4,
    magic_for,
    message_size,
)
from storage.rocketmq.format.message_encoding import Placement, encode_messages
from storage.rocketmq.format.properties import closed_record
from storage.rocketmq.index.dispatch import Dispatch, new_dispatches
from storage.rocketmq.index.dispatcher import Dispatcher
from storage.rocketmq.index.index_coverage import key_beside
from storage.rocketmq.index.queues import Queue
from storage.rocketmq.log.encoding import Encoded, runs
from storage.rocketmq.reading import locator_of
from storage.rocketmq.recovery.opening import OpenedStore
from storage.rocketmq.state.settings import StoreSettings
from storage.shared.sequencing import SequencedBatch

RECORD_EXTRA_BYTES: Final = 64 << 10  # for all of a record except its body (MessageExtEncoder)


class Stamp(NamedTuple):
    """The fields that the store sets in every record of an append."""

    store_timestamp_ms: int
    store_host: bytes


class _Form(NamedTuple):
    """The form of a topic in a record. `size_bytes`: a record with IPv4 hosts and without body and properties."""

    utf8: bytes
    magic: int
    size_bytes: int


@lru_cache(maxsize=1024)
def _form_of(topic: str) -> _Form:
    """Return the form of a topic in a record. Raises InvalidTopic."""
    utf8, magic = topic.encode(), magic_for(topic)
    smallest = message_size(
        topic_bytes=len(utf8), body_bytes=0, properties_bytes=0, sys_flag=0, magic=magic
    )
    return _Form(utf8, magic, smallest)


class Appender:
    """The appender to all queues of a store. `lock` orders appends, deletions and the log end."""

    def __init__(
        self,
        parts: OpenedStore,
        dispatcher: Dispatcher,
        fence: Fence,
        settings: StoreSettings,
        clock: Clock,
    ) -> None:
        self.lock = threading.RLock()
        self._log = log = parts.log
        self._coverage = parts.coverage
        self._dispatcher = dispatcher
        self._fence = fence
        self._clock = clock
        self._store_host = settings.store_host
        self._batch_bytes = min(settings.max_message_bytes + RECORD_EXTRA_BYTES, log.largest_record)
        self._with_tags = settings.index_tags
        self._with_crc = parts.with_crc  # the properties reserve room for the CRC over the record

    def append(
        self,
        queue: Queue,
        encoded: Sequence[Encoded],
        *,
        producer: ProducerSequence | None,
        publish: bool,
    ) -> AppendResult:
        """Append encoded records (lock held). A repeat of a producer's earlier append writes nothing and returns
        the earlier offsets. Raises OutOfOrderSequence, FencedProducer and the errors of `append_stamped`.
        """
        if producer is not None:
            known = queue.producers.find_duplicate(producer, len(encoded))
            if known is not None:
                return self._first_answer(queue, known)
            queue.producers.check(producer)
        stamp = Stamp(self._clock(), self._store_host)
        result = self.append_stamped(queue, encoded, stamp, publish=publish)
        if producer is not None:
            queue.producers.add(
                producer,
                len(encoded),
                base_offset=result.base_offset,
                timestamp_ms=stamp.store_timestamp_ms,
            )
        return result

    def _first_answer(self, queue: Queue, known: SequencedBatch) -> AppendResult:
        first, last = known.base_offset, known.last_offset
        self._dispatcher.catch_up(queue, last + 1)
        start = max(first, queue.units.start)
        host = locator_of(self._store_host, 0)
        units = queue.units.read(start, last + 1 - start)
        locators = [host + unit.physical_offset for unit in units]
        return AppendResult(first, last, -1, locators, duplicate=True)

    def begin_at(self, physical_offset: int) -> None:
        """Set the physical offset at which the log of an empty store begins. Raises InvalidArgument."""
        if self._log.end or physical_offset < 0:
            raise InvalidArgument(
                f"start_physical_offset {physical_offset}: only the log of an empty store can begin "
                f"elsewhere, this one ends at {self._log.end}",
                field="start_physical_offset",
            )
        self._log.begin_at(physical_offset)

    def append_stamped(
        self,
        queue: Queue,
        encoded: Sequence[Encoded],
        stamp: Stamp,
        *,
        publish: bool,
        are_raw: bool = False,
    ) -> AppendResult:
        """Append checked messages (lock held). On an error none of them stays. `are_raw`: not encoded by logserver."""
        topic, queue_id = queue.partition
        form = _form_of(topic)
        sizes = self._sizes(form, encoded, stamp)
        first_offset = following = queue.next_offset
        log = self._log
        log_end = log.end
        dispatches: list[Dispatch] = []
        self._dispatcher.make_way()
        with self._fence.guarding():
            try:
                for start, stop in runs(sizes, self._batch_bytes):
                    position = log.reserve(sum(sizes[start:stop]))
                    place = Placement(form.utf8, form.magic, queue_id, following, position, *stamp)
                    data, following = self._place(topic, encoded[start:stop], place, dispatches)
                    log.write(data)
            except StorageError:
                self._take_back(log_end, sum(sizes))
                raise
        if are_raw and self._coverage is not None and any(key_beside(p) for _, p in encoded):
            self._coverage.exclude_keys([(log_end, log.end)])  # before a reader sees the records
        count = following - first_offset
        self._dispatcher.submit(dispatches, log.end)
        queue.advance(count, log_end=log.end, publish=publish)
        locator = locator_of(stamp.store_host, 0)
        return AppendResult(
            first_offset,
            first_offset + count - 1,
            -1,
            [locator + dispatch.physical_offset for dispatch in dispatches],
        )

    def check_sizes(self, topic: str, encoded: Sequence[Encoded]) -> None:
        """Raise RecordTooLarge if an append of these records would; no lock is needed."""
        self._sizes(_form_of(topic), encoded, Stamp(0, self._store_host))

    def _sizes(self, form: _Form, encoded: Sequence[Encoded], stamp: Stamp) -> Sequence[int]:
        """Return the sizes of the records. Raises RecordTooLarge."""
        smallest = form.size_bytes + len(stamp.store_host) - 2 * HOST_SIZE_V4
        limit = self._log.largest_record
        sizes = [
            smallest + len(message.born_host) + len(message.body) + len(message.properties)
            for message, _ in encoded
        ]
        if max(sizes) > limit:
            index = next(index for index, size in enumerate(sizes) if size > limit)
            raise RecordTooLarge(
                f"record {index} takes {sizes[index]} bytes: a commit log file holds {limit} at most",
                size_bytes=sizes[index],
                limit_bytes=limit,
                index=index,
            )
        return sizes

    def _place(
        self,
        topic: str,
        encoded: Sequence[Encoded],
        place: Placement,
        dispatches: list[Dispatch],
    ) -> tuple[bytes, int]:
        """Return (the bytes of records, the queue offset after them); add their dispatches to `dispatches`."""
        records = encode_messages([message for message, _ in encoded], place)
        if self._with_crc:
            records = [closed_record(record) for record in records]
        made, following = new_dispatches(topic, encoded, records, place, with_tags=self._with_tags)
        dispatches += made
        return b"".join(records), following

    def _take_back(self, log_end: int, written_bytes: int) -> None:
        """Undo the writes of a failed append; if that fails too, the store is fenced. Raises IoFailure."""
        try:
            self._log.rewind(log_end, written_bytes=written_bytes)
        except IoFailure as error:
            raise IoFailure(f"undoing an append: {error.message}", **error.facts()) from error
