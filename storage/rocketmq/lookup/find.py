"""Finding records by key, unique id, tag and time, in pages that miss no record; and by id.

Owns the search, its two directions and its cursor ("log:OFFSET", the physical offset to continue from;
with a leading "-" in the backward direction); must not write. One log holds all queues of a topic, so records are
ordered as in the log. In ranges that the key index covers, its candidates are checked one by one: the
real key is compared, so a record with only the same hash is never returned. In other ranges the entries of
all queues are scanned, merged by physical offset, up to a budget. Damage is raised when it comes first on
a page, with the cursor to continue after it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from heapq import merge
from typing import Final, NamedTuple

from storage.errors import Corrupt, DataError, InvalidArgument, RecordNotFound
from storage.model import FindQuery, FoundPage, StoredRecord, TopicPartition
from storage.rocketmq.format.body import decompress
from storage.rocketmq.format.index_file import TAG_TYPE, index_string
from storage.rocketmq.format.message import Message
from storage.rocketmq.format.message_id import decode_offset_id
from storage.rocketmq.format.names import SCHEDULE_TOPIC
from storage.rocketmq.format.properties import KEYS, SHARDING_KEY, TAGS, UNIQ_KEY, decode_properties
from storage.rocketmq.format.queue_entry import QueueEntry, tags_code
from storage.rocketmq.index.index_coverage import CoveredRange
from storage.rocketmq.index.key_index_file import ALWAYS, DoubtedIndex, TimeRange
from storage.rocketmq.index.light_queues import is_lmq
from storage.rocketmq.index.queues import Queue
from storage.rocketmq.log.commit_log import CommitLog
from storage.rocketmq.log.reading import MAX_BODY_BYTES, to_stored
from storage.rocketmq.lookup.entries import judged_units, offsets_near, units_as_they_stand
from storage.rocketmq.queue import UNITS_AT_ONCE, WRONG_PLACE, check_address, damaged, unit_error
from storage.rocketmq.recovery.store_files import OpenedStore
from storage.shared.query import Inspected, Search, check_limits, page_of, parse_cursor

_CURSOR: Final = re.compile(r"(-?)log:([0-9]{1,19})")
TIME_AXIS: Final = "store_timestamp"

WINDOW_BYTES: Final = 64 << 10  # of the log read at once on a scan, where records are adjacent
LIKELY_BYTES: Final = 2 << 10  # read for a candidate of unknown size; most records are smaller
_INT32: Final = range(-1 << 31, 1 << 31)


class MessageSearch(Search):
    """A query that is compared with messages; its times are store times."""

    @property
    def times(self) -> TimeRange:
        """The range of store times."""
        from_ms, to_ms = self.query.from_ms, self.query.to_ms
        return TimeRange(
            ALWAYS.begin_ms if from_ms is None else from_ms,
            ALWAYS.end_ms if to_ms is None else to_ms,
        )

    @property
    def indexed_text(self) -> str | None:
        """The text to look up in the index, the unique id or the key; None if only a scan can answer.

        A key that is not UTF-8 text is in no record. The index can answer this too: the empty text is
        looked up instead, which has no index entry.
        """
        if self.query.unique_id is not None:
            text = self.query.unique_id
        elif self.key is not None:
            text = _text(self.key) or ""
        else:
            return None
        # Keys are split at spaces, and the prefix `T#` marks the index strings of tags.
        return None if " " in text or text.startswith(f"{TAG_TYPE}#") else text

    def matches(self, message: Message) -> bool:
        """Return whether a message meets all conditions."""
        query = self.query
        if not self.is_in_time(message.store_timestamp_ms):
            return False
        if {query.key, query.unique_id, query.tag, query.grep} == {None}:
            return True
        properties = decode_properties(message.properties)
        return (
            (self.key is None or self._is_key_of(properties))
            and query.unique_id in (None, properties.get(UNIQ_KEY))
            and query.tag in (None, properties.get(TAGS))
            and (query.grep is None or self._has_text(message, properties))
        )

    def _is_key_of(self, properties: Mapping[str, str]) -> bool:
        text = _text(self.key or b"")
        if not text:
            return False
        return text == properties.get(SHARDING_KEY) or text in properties.get(KEYS, "").split(" ")

    def _has_text(self, message: Message, properties: Mapping[str, str]) -> bool:
        """Return whether the (decompressed) body, the key or the lookup keys contain a text."""
        try:
            body = decompress(message.body, message.sys_flag, MAX_BODY_BYTES)
        except DataError:
            body = message.body
        keys = (properties.get(name, "").encode() for name in (SHARDING_KEY, KEYS))
        return self.query.has_text(body, *keys)


class _Part(NamedTuple):
    """The physical offsets [low, high) of a log that ends at `end`."""

    low: int
    high: int
    end: int


class _Found(NamedTuple):
    """An examined physical offset, with the record there if it matches, or the error if it cannot be
    read.
    """

    physical_offset: int
    partition: int = -1
    record: StoredRecord | None = None
    damage: Corrupt | None = None


def find_records(store: OpenedStore, topic: str, query: FindQuery) -> FoundPage:
    """Return one page of matches in the order of the log (or exactly the reverse), from the cursor on.

    Raises InvalidArgument for a bad cursor and for limits below 1; Corrupt at a damaged record: see `page_of`.
    """
    check_limits(query)
    search = MessageSearch(query)
    part = _part(store, topic, query)
    if can_ask_index(store, search, topic):
        store.check_index(part.low, part.high)
    while True:
        try:
            return _page(store, topic, search, part)
        except DoubtedIndex:
            continue  # the doubted file is no longer used: at most one retry per index file


def _page(store: OpenedStore, topic: str, search: MessageSearch, part: _Part) -> FoundPage:
    """Return one page of the rest of the search. Raises DoubtedIndex if an index file proves to be bad."""
    pieces = index_pieces(store, search, [topic], part.low, part.high)
    backward = search.query.backward
    return page_of(
        _inspected(_in_pieces(store, topic, search, part, pieces), backward=backward),
        search.query,
        partial(_cursor, backward=backward),
        time_axis=TIME_AXIS,
        indexed=can_ask_index(store, search, topic) and all(piece.by_index for piece in pieces),
    )


def _inspected(found: Iterator[_Found], *, backward: bool) -> Iterator[tuple[int, Inspected]]:
    for at, partition, record, damage in found:
        onward = None
        if damage is not None:
            onward = _cursor(at + (-1 if backward else 1), backward=backward)
        yield at, Inspected(partition, record, damage, onward)


def _cursor(at: int, *, backward: bool) -> str | None:
    """Return the cursor that continues at a physical offset; None before the log's first byte."""
    return f"{'-' if backward else ''}log:{at}" if at >= 0 else None


def can_ask_index(store: OpenedStore, search: MessageSearch, *topics: str) -> bool:
    """Return whether the index can answer this search; it has the records of an LMQ under other topics."""
    if search.query.scan or store.coverage is None or search.indexed_text is None:
        return False
    return not any(map(is_lmq, topics))


def index_pieces(
    store: OpenedStore, search: MessageSearch, topics: Sequence[str], low: int, high: int
) -> Sequence[CoveredRange]:
    """Return the pieces of [low, high), in the search's order, each with whether the index covers it completely.

    All other pieces must be scanned. Server and tools search by these pieces.
    """
    if store.coverage is None or not can_ask_index(store, search, *topics):
        return [CoveredRange(low, high, by_index=False)] if low < high else []
    pieces = store.coverage.pieces(
        low,
        high,
        built_end=store.catch_up_index(),
        for_keys=search.query.unique_id is None,
    )
    return pieces[::-1] if search.query.backward else pieces


def _part(store: OpenedStore, topic: str, query: FindQuery) -> _Part:
    """Return the part of the log that is left to search."""
    low, high = max(store.log.start, store.deleted_below(topic)), store.log.end
    parts = parse_cursor(query, _CURSOR)
    if parts is None:
        return _Part(low, high, high)
    place = int(parts[2])
    if query.backward:
        return _Part(low, min(high, place + 1), high)
    return _Part(max(low, place), high, high)


# ---- by the index ----


def _in_pieces(
    store: OpenedStore,
    topic: str,
    search: MessageSearch,
    part: _Part,
    pieces: Sequence[CoveredRange],
) -> Iterator[_Found]:
    """Yield the results piece by piece: by the index where it covers the log, by a scan elsewhere."""
    for low, high, by_index in pieces:
        walk = _by_index if by_index else _scanned
        yield from walk(store, topic, search, part._replace(low=low, high=high))


def _by_index(
    store: OpenedStore, topic: str, search: MessageSearch, part: _Part
) -> Iterator[_Found]:
    """Yield the results for the candidates of the index."""
    text, index = search.indexed_text, store.index
    assert index is not None
    assert text is not None
    for at in index.candidates(
        index_string(topic, text),
        low=part.low,
        high=part.high,
        times=search.times,
        backward=search.query.backward,
    ):
        yield _looked_at(store, topic, search, at)


def _looked_at(store: OpenedStore, topic: str, search: MessageSearch, at: int) -> _Found:
    """Return the record at a candidate of the index, if it matches and is visible to readers.

    RocketMQ does not cut its index together with the log, so an index entry may point into data that was
    written later. A bad record is reported as damaged only if a queue has an entry for its physical offset.
    """
    try:
        message = message_at(store.log, at)
    except Corrupt as error:
        for queue in store.queues.of_topic(topic):
            offset = _unit_offset(queue, at)
            if offset is not None:
                return _Found(at, damage=damaged(error, queue.partition, offset))
        return _Found(at)
    if message.topic == topic and search.matches(message):
        queue_there = store.queues.get(topic, message.queue_id)
        if queue_there is None:
            return _Found(at)
        offset = offset_of(queue_there, message, at)
        if offset is not None:
            return _stored(store.log, queue_there.partition, message, offset, at)
        return _Found(at, damage=_bad_unit(store.log, queue_there, message, at))
    return _Found(at)


def _bad_unit(log: CommitLog, queue: Queue, message: Message, at: int) -> Corrupt | None:
    """Return the damage that hides a record from its queue's readers: the entry at its offset points to no record.

    None if there is no damage: the record is not visible yet or any more, another record or a filler has its offset,
    or it is of the kind that is in no queue.
    """
    offset = message.queue_offset
    if not message.in_queue or offset not in _visible(queue):
        return None
    (unit,) = units_as_they_stand(queue.units, offset, 1)
    if unit.is_filler:
        return None
    if unit.is_valid and unit.physical_offset != at:
        try:
            other = message_at(log, unit.physical_offset)
        except Corrupt:
            pass
        else:
            if (other.topic, other.queue_id) == queue.partition:
                return None
    error = unit_error(queue.units.run, offset, WRONG_PLACE, unit)
    return damaged(error, queue.partition, offset)


def message_at(log: CommitLog, physical_offset: int) -> Message:
    """Read and check the message at a physical offset, without a known size. Raises Corrupt."""
    data = log.read(physical_offset, LIKELY_BYTES)
    size = int.from_bytes(data[:4], "big", signed=True)
    if size > len(data):
        data = log.read(physical_offset, min(size, log.largest_record))
    return log.checked(data, 0, physical_offset)


def offset_of(queue: Queue, message: Message, physical_offset: int) -> int | None:
    """Return the offset of a message in its queue; None if readers see it under no offset.

    The offset in the message itself counts only if the queue entry at that offset points to the message.
    """
    own_offset = message.queue_offset
    if own_offset in _visible(queue):
        (unit,) = units_as_they_stand(queue.units, own_offset, 1)
        if unit.is_valid and unit.physical_offset == physical_offset:
            return own_offset
    return _unit_offset(queue, physical_offset)


def _unit_offset(queue: Queue, physical_offset: int) -> int | None:
    """Return the offset of the entry that points to a physical offset; None if no visible entry does."""
    near = offsets_near(queue.units, _visible(queue), physical_offset)
    for begin in near[::UNITS_AT_ONCE]:
        units = units_as_they_stand(queue.units, begin, min(near.stop - begin, UNITS_AT_ONCE))
        for offset, unit in enumerate(units, begin):
            is_there = unit.is_valid and not unit.is_filler
            if is_there and unit.physical_offset == physical_offset:
                return offset
    return None


def _visible(queue: Queue) -> range:
    """Return the offsets that readers see and that have entries."""
    start, _, end = queue.bounds()
    return range(start, min(end, queue.units.readable_end))


def _stored(
    log: CommitLog, queue: TopicPartition, message: Message, offset: int, at: int
) -> _Found:
    try:
        record = to_stored(message, offset, at)
    except Corrupt as error:
        damage = log.damage(at, error.message)
        return _Found(at, queue.partition, damage=damaged(damage, queue, offset))
    if record.suspect:
        log.suspect_records += 1
    return _Found(at, queue.partition, record)


# ---- by a scan ----


def _scanned(
    store: OpenedStore, topic: str, search: MessageSearch, part: _Part
) -> Iterator[_Found]:
    """Yield a result for every record of the topic, in the search's order. If the queue entry shows another
    tag, the record is not read.
    """
    window = LogWindow(store.log, backward=search.query.backward)
    queues = store.queues.of_topic(topic)
    for queue in queues:
        store.catch_up(queue, queue.bounds().end)
    code = None
    if search.query.tag is not None and topic != SCHEDULE_TOPIC:
        code = tags_code(search.query.tag)
    steps = [_steps(store.log, queue, part, backward=search.query.backward) for queue in queues]
    for at, partition, offset, unit, damage in merge(*steps, reverse=search.query.backward):
        if damage is not None:
            yield _Found(at, partition, damage=damage)
            continue
        # A tags code outside int32 is not a hash, but an address in consumequeue_ext.
        if code is not None and unit.tags_code != code and unit.tags_code in _INT32:
            yield _Found(at)
            continue
        address = TopicPartition(topic, partition)
        try:
            message = window.message(unit)
            check_address(store.log, address, message, at)
        except Corrupt as error:
            yield _Found(at, partition, damage=damaged(error, address, offset))
            continue
        yield (
            _stored(store.log, address, message, offset, at)
            if search.matches(message)
            else _Found(at)
        )


class _Step(NamedTuple):
    """An entry of a queue, or the first of a run of damaged entries."""

    place: int
    partition: int
    offset: int
    unit: QueueEntry
    damage: Corrupt | None = None


def _steps(log: CommitLog, queue: Queue, part: _Part, *, backward: bool) -> Iterator[_Step]:
    """Yield the steps over a queue's entries that point into a part of the log, in the search's order."""
    visible = _visible(queue)
    if backward:
        offsets = range(visible.start, offsets_near(queue.units, visible, part.high).stop)
    else:
        offsets = range(offsets_near(queue.units, visible, part.low).start, visible.stop)
    units = judged_units(log, queue.units, visible, offsets, backward=backward)
    for step in _placed(queue, units, part.end, backward=backward):
        if part.low <= step.place < part.high:
            yield step
        elif (step.place < part.low) is backward:
            return


def _placed(
    queue: Queue, units: Iterator[tuple[int, QueueEntry, bool]], end: int, *, backward: bool
) -> Iterator[_Step]:
    """Yield a step for each entry that can be right, at its physical offset, and one for each run of bad entries.

    A run of bad entries gets an offset where no record begins, the same in both directions: inside the
    record before it, else before the record after it, else at the log end.
    """
    partition = queue.partition.partition
    bad: list[tuple[int, QueueEntry]] = []
    last: int | None = None
    for offset, unit, is_right in units:
        if not is_right:
            bad.append((offset, unit))
            continue
        at = unit.physical_offset
        if bad:
            place = at + 1 if backward else at - 1 if last is None else last + 1
            yield _damaged_step(queue, bad, place)
            bad = []
        last = at
        yield _Step(at, partition, offset, unit)
    if bad:
        place = end - 1 if last is None else last - 1 if backward else last + 1
        yield _damaged_step(queue, bad, place)


def _damaged_step(queue: Queue, bad: Sequence[tuple[int, QueueEntry]], place: int) -> _Step:
    (first, unit), (last, _) = min(bad), max(bad)
    error = unit_error(queue.units.run, first, WRONG_PLACE, unit)
    damage = damaged(error, queue.partition, first, next_good_offset=last + 1)
    return _Step(place, queue.partition.partition, first, unit, damage)


class LogWindow:
    """A part of the log in memory; entries in the order of the log, or its reverse, move it."""

    def __init__(
        self, log: CommitLog, window_bytes: int = WINDOW_BYTES, *, backward: bool = False
    ) -> None:
        self._log = log
        self._window_bytes = window_bytes
        self._backward = backward
        self._data = b""
        self._start = 0

    def message(self, unit: QueueEntry) -> Message:
        """Return the checked message of an entry. Raises Corrupt."""
        at, size = unit.physical_offset, unit.size
        position = at - self._start
        if not 0 <= position <= len(self._data) - size:
            self._move(at, size)
            position = at - self._start
        return self._log.checked(self._data, position, at)

    def _move(self, at: int, size: int) -> None:
        start = at
        window_bytes = self._window_bytes
        if self._backward and size < window_bytes:
            base = self._log.run.base_of(at)
            start = max(at + size - window_bytes, at if base is None else base)
        # The read may fail: then the window stays where it is, with its bytes.
        self._data = self._log.read(start, max(at + size - start, window_bytes))
        self._start = start


# ---- by id ----


class LocatedMessage(NamedTuple):
    """A message with its place: queue and offset as readers see them, and the physical offset."""

    partition: TopicPartition
    offset: int
    physical_offset: int
    message: Message


def message_by_id(store: OpenedStore, record_id: str) -> LocatedMessage:
    """Return the message with this offset id. The host in the id must be the host that stored the message.

    Raises RecordNotFound, also if the text is no id or if no visible record begins at its offset.
    """
    missing = RecordNotFound(f"no record has the id {record_id[:300]!r}", id=record_id)
    try:
        host, at = decode_offset_id(record_id)
        message = message_at(store.log, at)
    except (InvalidArgument, Corrupt) as error:
        raise missing from error
    queue = store.queues.get(message.topic, message.queue_id)
    if message.store_host != host or queue is None or at < store.deleted_below(message.topic):
        raise missing
    store.catch_up(queue, queue.bounds().end)
    offset = offset_of(queue, message, at)
    if offset is None:
        raise missing
    return LocatedMessage(queue.partition, offset, at, message)


def find_by_id(store: OpenedStore, record_id: str) -> tuple[TopicPartition, StoredRecord]:
    """Return the record with this offset id. Raises what `message_by_id` raises, and Corrupt."""
    partition, offset, at, message = message_by_id(store, record_id)
    found = _stored(store.log, partition, message, offset, at)
    if found.record is None:
        raise found.damage or RecordNotFound(f"no record has the id {record_id!r}", id=record_id)
    return partition, found.record


def _text(key: bytes) -> str | None:
    """Decode a key as RocketMQ stores it; None if it is not UTF-8, which no stored key can be."""
    try:
        return key.decode()
    except UnicodeDecodeError:
        return None
