"""Looking for records by key, unique id, tag and time, in pages that miss nothing; and by id.

Owns the search, its two directions and its cursor ("log:OFFSET", the physical offset to go on with;
with a "-" before it on the way back); must not write. One log holds all queues of a topic, so the
order is that of the log. Where the key index can answer, its candidates are looked at one by one:
the real key is compared, so that strings with the same hash never come back. Else the units of all
queues are walked, merged by where they point to, up to a budget. What is damaged is told when it is the
first thing on a page, with the cursor to go on behind it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from heapq import merge
from typing import Final, NamedTuple, Protocol

from storage.errors import Corrupt, InvalidArgument, RecordNotFound
from storage.model import FoundPage, StoredRecord, TopicPartition, weight_bytes
from storage.rocketmq.commit_log import CommitLog
from storage.rocketmq.format.index_file import TAG_TYPE, index_string
from storage.rocketmq.format.message import Message
from storage.rocketmq.format.message_id import decode_offset_id
from storage.rocketmq.format.names import SCHEDULE_TOPIC
from storage.rocketmq.format.properties import (
    KEYS,
    SHARDING_KEY,
    TAGS,
    UNIQ_KEY,
    decode_properties,
)
from storage.rocketmq.format.queue_unit import Unit, tags_code
from storage.rocketmq.index_coverage import IndexCoverage, Piece
from storage.rocketmq.key_index import KeyIndex
from storage.rocketmq.key_index_file import ALWAYS, DoubtedIndex, TimeRange
from storage.rocketmq.lmq import is_lmq
from storage.rocketmq.queues import Queue, QueueTable
from storage.rocketmq.reading import (
    UNITS_AT_ONCE,
    WRONG_PLACE,
    check_address,
    damaged,
    judged_units,
    offsets_near,
    to_stored,
    unit_error,
    units_as_they_stand,
)

_CURSOR: Final = re.compile(r"(-?)log:([0-9]{1,19})")
TIME_AXIS: Final = "store_timestamp"

WINDOW_BYTES: Final = 64 << 10  # of the log read at once on a scan, where records lie side by side
LIKELY_BYTES: Final = 2 << 10  # read for a candidate whose size is not known; most records are less
_INT32: Final = range(-1 << 31, 1 << 31)


class Searched(Protocol):
    """What is needed of a store: its log, its queues, its index if it has one."""

    @property
    def log(self) -> CommitLog: ...

    @property
    def queues(self) -> QueueTable: ...

    @property
    def index(self) -> KeyIndex | None: ...

    @property
    def coverage(self) -> IndexCoverage | None: ...

    def deleted_below(self, topic: str) -> int:
        """The physical offset below which records of this topic are gone."""

    def catch_up(self, queue: Queue, end: int) -> None:
        """On return readers find a unit of the queue for every offset below `end`."""

    def catch_up_index(self) -> int:
        """The physical offset below which the index has every record that was appended in this run."""

    def check_index(self, low: int, high: int) -> None:
        """Find out more of where in [low, high) the index can be trusted."""


class Search(NamedTuple):
    """What is looked for (None: not asked), in which direction, and where a page ends.

    `key` is a record's key or one of its lookup keys; times are store times, inclusive. `scan`: the
    index is not asked. A page holds at most `limit` records and `max_bytes` by their weight (but
    for the first), and comes of at most `max_scanned` records that were looked at.
    """

    key: bytes | None
    unique_id: str | None
    tag: str | None
    from_ms: int | None
    to_ms: int | None
    limit: int
    backward: bool
    scan: bool
    max_scanned: int
    max_bytes: int

    @property
    def times(self) -> TimeRange:
        """The range of store times."""
        return TimeRange(
            ALWAYS.begin_ms if self.from_ms is None else self.from_ms,
            ALWAYS.end_ms if self.to_ms is None else self.to_ms,
        )

    @property
    def indexed_text(self) -> str | None:
        """What the index has for it: the unique id or the key; None where only a scan will do.

        A key that is no text is in no record, so that the index answers that too: it has no string
        for the empty key.
        """
        if self.unique_id is not None:
            text = self.unique_id
        elif self.key is not None:
            text = _text(self.key) or ""
        else:
            return None
        # Keys are split at spaces, and `T#...` is indexed for tags.
        return None if " " in text or text.startswith(f"{TAG_TYPE}#") else text

    def matches(self, message: Message) -> bool:
        """Whether this message is one of those looked for."""
        time_ms = message.store_timestamp_ms
        if self.from_ms is not None and time_ms < self.from_ms:
            return False
        if self.to_ms is not None and time_ms > self.to_ms:
            return False
        if self.key is None and self.unique_id is None and self.tag is None:
            return True
        properties = decode_properties(message.properties)
        return (
            (self.key is None or self._is_key_of(properties))
            and self.unique_id in (None, properties.get(UNIQ_KEY))
            and self.tag in (None, properties.get(TAGS))
        )

    def _is_key_of(self, properties: Mapping[str, str]) -> bool:
        text = _text(self.key or b"")
        if not text:
            return False
        return text == properties.get(SHARDING_KEY) or text in properties.get(KEYS, "").split(" ")


class _Part(NamedTuple):
    """Physical offsets [low, high), of a log that ends at `end`."""

    low: int
    high: int
    end: int


class _Found(NamedTuple):
    """A place in the log that was looked at, with the record there if it is one of those sought,
    or the error if none can be read.
    """

    physical_offset: int
    partition: int = -1
    record: StoredRecord | None = None
    damage: Corrupt | None = None


def find_records(store: Searched, topic: str, search: Search, cursor: str | None) -> FoundPage:
    """One page of matches in the order of the log (or exactly the other way), from the cursor on.

    Raises InvalidArgument for a bad cursor and for limits below 1, with which no page would end;
    Corrupt at a damaged record, with the `cursor` behind it (None: nothing is left). A page that has
    found something ends before it.
    """
    for field in ("limit", "max_scanned"):
        if getattr(search, field) < 1:
            raise InvalidArgument(f"{field} must be at least 1", field=field)
    part = _part(store, topic, search, cursor)
    if can_ask_index(store, search, topic):
        store.check_index(part.low, part.high)
    while True:
        try:
            return _page(store, topic, search, part)
        except DoubtedIndex:
            continue  # the file counts no more: once for each file at most


def _page(store: Searched, topic: str, search: Search, part: _Part) -> FoundPage:
    """One page of what is left to look at. Raises DoubtedIndex, when an index file turns out to be none."""
    pieces = index_pieces(store, search, [topic], part.low, part.high)
    indexed = can_ask_index(store, search, topic) and all(piece.by_index for piece in pieces)
    found: list[tuple[int, StoredRecord]] = []
    scanned = found_bytes = 0
    following = None
    for step in _in_pieces(store, topic, search, part, pieces):
        at, partition, record, damage = step
        if record is not None:
            found_bytes += weight_bytes(record)
        full = len(found) >= search.limit or (
            found and (found_bytes > search.max_bytes or damage is not None)
        )
        if full or scanned >= search.max_scanned:
            following = _cursor(at, backward=search.backward)
            break
        if damage is not None:
            behind = _cursor(at + (-1 if search.backward else 1), backward=search.backward)
            raise Corrupt(damage.message, **{**damage.facts(), "cursor": behind}) from damage
        scanned += 1
        if record is not None:
            found.append((partition, record))
    return FoundPage(found, scanned, indexed, following is None, following, TIME_AXIS)


def _cursor(at: int, *, backward: bool) -> str | None:
    """The cursor that goes on at a place; None before the log's first byte."""
    return f"{'-' if backward else ''}log:{at}" if at >= 0 else None


def can_ask_index(store: Searched, search: Search, *topics: str) -> bool:
    """Whether the index has answers to this search: records of an LMQ it has under other topics."""
    if search.scan or store.coverage is None or search.indexed_text is None:
        return False
    return not any(map(is_lmq, topics))


def index_pieces(
    store: Searched, search: Search, topics: Sequence[str], low: int, high: int
) -> Sequence[Piece]:
    """The pieces of [low, high), in the search's order, with those for which the index answers completely.

    All others are to be scanned: server and tools search by these pieces.
    """
    if store.coverage is None or not can_ask_index(store, search, *topics):
        return [Piece(low, high, by_index=False)] if low < high else []
    pieces = store.coverage.pieces(
        low,
        high,
        built_end=store.catch_up_index(),
        for_keys=search.unique_id is None,
    )
    return pieces[::-1] if search.backward else pieces


def _part(store: Searched, topic: str, search: Search, cursor: str | None) -> _Part:
    """The part of the log that is left to look at."""
    low, high = max(store.log.start, store.deleted_below(topic)), store.log.end
    if cursor is None:
        return _Part(low, high, high)
    parts = _CURSOR.fullmatch(cursor)
    if parts is None or (parts[1] == "-") is not search.backward:
        raise InvalidArgument(
            f"cursor {cursor[:80]!r} is none that was given for this direction", field="cursor"
        )
    place = int(parts[2])
    if search.backward:
        return _Part(low, min(high, place + 1), high)
    return _Part(max(low, place), high, high)


# ---- by the index ----


def _in_pieces(
    store: Searched, topic: str, search: Search, part: _Part, pieces: Sequence[Piece]
) -> Iterator[_Found]:
    """What is found piece by piece: by the index where it covers the log, by a scan elsewhere."""
    for low, high, by_index in pieces:
        walk = _by_index if by_index else _scanned
        yield from walk(store, topic, search, part._replace(low=low, high=high))


def _by_index(store: Searched, topic: str, search: Search, part: _Part) -> Iterator[_Found]:
    """What the index leads to."""
    text, index = search.indexed_text, store.index
    assert index is not None
    assert text is not None
    for at in index.candidates(
        index_string(topic, text),
        low=part.low,
        high=part.high,
        times=search.times,
        backward=search.backward,
    ):
        yield _looked_at(store, topic, search, at)


def _looked_at(store: Searched, topic: str, search: Search, at: int) -> _Found:
    """The record that the index leads to, if it is one that is sought and that readers see.

    The real store does not cut its index with the log, so that an entry may point into what was
    written there later. Only where a queue has a unit for this place a record is damaged.
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
    """The damage that hides a record from its queue's readers: the unit at its offset leads to no record.

    None where there is no damage: the record is not visible yet or any more, another one took its offset, or it is of
    the kind that is in no queue.
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
    """The checked message at a place whose size is not known. Raises Corrupt."""
    data = log.read(physical_offset, LIKELY_BYTES)
    size = int.from_bytes(data[:4], "big", signed=True)
    if size > len(data):
        data = log.read(physical_offset, min(size, log.largest_record))
    return log.checked(data, 0, physical_offset)


def offset_of(queue: Queue, message: Message, physical_offset: int) -> int | None:
    """The offset that a message has in its queue; None where readers see it under none.

    It tells its own, but what counts is which unit points to it.
    """
    told = message.queue_offset
    if told in _visible(queue):
        (unit,) = units_as_they_stand(queue.units, told, 1)
        if unit.is_valid and unit.physical_offset == physical_offset:
            return told
    return _unit_offset(queue, physical_offset)


def _unit_offset(queue: Queue, physical_offset: int) -> int | None:
    """The offset of the unit that points to this place, among those that readers see."""
    near = offsets_near(queue.units, _visible(queue), physical_offset)
    for begin in near[::UNITS_AT_ONCE]:
        units = units_as_they_stand(queue.units, begin, min(near.stop - begin, UNITS_AT_ONCE))
        for offset, unit in enumerate(units, begin):
            is_there = unit.is_valid and not unit.is_filler
            if is_there and unit.physical_offset == physical_offset:
                return offset
    return None


def _visible(queue: Queue) -> range:
    """The offsets that readers see and that have units."""
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


def _scanned(store: Searched, topic: str, search: Search, part: _Part) -> Iterator[_Found]:
    """Every record of the topic, in the search's order; where the queue tells that the tag is
    another one the record is not read.
    """
    window = _Window(store.log, backward=search.backward)
    queues = store.queues.of_topic(topic)
    for queue in queues:
        store.catch_up(queue, queue.bounds().end)
    code = None
    if search.tag is not None and topic != SCHEDULE_TOPIC:
        code = tags_code(search.tag)
    steps = [_steps(store.log, queue, part, backward=search.backward) for queue in queues]
    for at, partition, offset, unit, damage in merge(*steps, reverse=search.backward):
        if damage is not None:
            yield _Found(at, partition, damage=damage)
            continue
        # A number that is no hash is a place in consumequeue_ext.
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
    """A unit of a queue, or damaged ones that follow each other: then the first of them."""

    place: int
    partition: int
    offset: int
    unit: Unit
    damage: Corrupt | None = None


def _steps(log: CommitLog, queue: Queue, part: _Part, *, backward: bool) -> Iterator[_Step]:
    """The steps over a queue's units at places in a part of the log, in the search's order."""
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
    queue: Queue, units: Iterator[tuple[int, Unit, bool]], end: int, *, backward: bool
) -> Iterator[_Step]:
    """A step for each unit that can be right, at its place, and one for those between that cannot.

    That has a place where no record begins, the same in both directions: inside the record before
    it, else before the one behind it, else at the end.
    """
    partition = queue.partition.partition
    bad: list[tuple[int, Unit]] = []
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


def _damaged_step(queue: Queue, bad: Sequence[tuple[int, Unit]], place: int) -> _Step:
    (first, unit), (last, _) = min(bad), max(bad)
    error = unit_error(queue.units.run, first, WRONG_PLACE, unit)
    damage = damaged(error, queue.partition, first, next_good_offset=last + 1)
    return _Step(place, queue.partition.partition, first, unit, damage)


class _Window:
    """A piece of the log in memory: the merged units of a topic lead through it in one direction."""

    def __init__(self, log: CommitLog, *, backward: bool) -> None:
        self._log = log
        self._backward = backward
        self._data = b""
        self._start = 0

    def message(self, unit: Unit) -> Message:
        """The checked message of a unit. Raises Corrupt."""
        at, size = unit.physical_offset, unit.size
        position = at - self._start
        if not 0 <= position <= len(self._data) - size:
            self._move(at, size)
            position = at - self._start
        return self._log.checked(self._data, position, at)

    def _move(self, at: int, size: int) -> None:
        self._start = at
        if self._backward and size < WINDOW_BYTES:
            base = self._log.run.base_of(at)
            self._start = max(at + size - WINDOW_BYTES, at if base is None else base)
        self._data = self._log.read(self._start, max(at + size - self._start, WINDOW_BYTES))


# ---- by id ----


def find_by_id(store: Searched, record_id: str) -> tuple[TopicPartition, StoredRecord]:
    """The record with this offset id: the host in it must be the one that stored the record.

    Raises RecordNotFound, for any other text too, and for a place where no visible record begins.
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
    found = _stored(store.log, queue.partition, message, offset, at)
    if found.record is None:
        raise found.damage or missing
    return queue.partition, found.record


def _text(key: bytes) -> str | None:
    """A key as RocketMQ keeps it; None for one that it cannot have."""
    try:
        return key.decode()
    except UnicodeDecodeError:
        return None
