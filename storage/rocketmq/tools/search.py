"""Offline search for records of a RocketMQ store by key, tag, id, text or time; and raw index queries.

Owns the choice of the source, so that no match is missed: the index where it covers the log, otherwise the log;
must not define a match, which is done by the engine's Search. Records in no queue (prepared ones) are found too.
Rolled back records are not found, as in the real store.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from heapq import merge
from itertools import islice

from storage.errors import Corrupt, InvalidArgument
from storage.model import FindQuery
from storage.rocketmq.format.index_file import TAG_TYPE, index_string
from storage.rocketmq.format.message import TRANSACTION_MASK, TRANSACTION_ROLLBACK, Message
from storage.rocketmq.format.message_id import decode_offset_id
from storage.rocketmq.index.key_index_file import ALWAYS, DoubtedIndex
from storage.rocketmq.log.scan import LogRange
from storage.rocketmq.lookup.find import MessageSearch, index_pieces, message_at, offset_of
from storage.rocketmq.tools.log_walk import LogWalk, Padding
from storage.rocketmq.tools.rows import Row, gone_row, message_row, queued_row
from storage.rocketmq.tools.view import View


class LogSearch(MessageSearch):
    """A query on the log."""

    def __init__(self, query: FindQuery) -> None:
        """Check the query. Raises InvalidArgument for a query that no tool takes."""
        query.check()
        super().__init__(query)

    def matches(self, message: Message) -> bool:
        """Return whether a record matches; one that was rolled back does not."""
        if self.query.topic not in (None, message.topic):
            return False
        if message.sys_flag & TRANSACTION_MASK == TRANSACTION_ROLLBACK:
            return False
        return super().matches(message)


def in_view(view: View, query: FindQuery) -> Iterator[Row]:
    """Return the matching records, in log order. If there are more than the limit, a search by key, unique id or tag
    returns the newest, as the real store does; any other search the oldest.
    """
    wanted = LogSearch(query)
    if query.raw:
        return _raw(view, query)
    if query.record_id is not None:
        return _by_id(view, wanted, query.record_id)
    topics = _topics(view, query.topic)
    found = _in_pieces(view, wanted, topics)
    seen: Iterator[tuple[int, Message]] = (
        (at, message) for at, message in found if _is_seen(view, message, at)
    )
    if query.grep is None and (query.key or query.unique_id or query.tag):
        seen = iter(deque(seen, maxlen=query.limit))
    return islice((_row(view, at, message) for at, message in seen), query.limit)


def _topics(view: View, topic: str | None) -> Sequence[str]:
    """Return the topics to search. Raises UnknownTopic."""
    return list(dict.fromkeys(address.topic for address in view.select(topic, None)))


def _is_seen(view: View, message: Message, at: int) -> bool:
    """Return whether a record belongs to the selected queues, and was not deleted with its topic."""
    if view.topic not in (None, message.topic) or view.queue_id not in (None, message.queue_id):
        return False
    return at >= view.store.files.deleted_below(message.topic)


def _row(view: View, at: int, message: Message) -> Row:
    """Return the row of a record, with its queue entry if there is one."""
    queue = view.store.queues.get(message.topic, message.queue_id)
    offset = None if queue is None else offset_of(queue, message, at)
    if queue is None or offset is None:
        return message_row(message, physical_offset=at)
    return queued_row(message, queue.units.unit(offset), offset, delays_ms=view.delays_ms)


# ---- by the index --------------------------------------------------------------------------------


def _in_pieces(
    view: View, wanted: LogSearch, topics: Sequence[str]
) -> Iterator[tuple[int, Message]]:
    """Yield matches piece by piece: by the index where it is known to cover the log, otherwise by walking the log.

    If an index file is found to be damaged, it is no longer used, and its piece is searched again.
    """
    store = view.store
    begin, last = store.log.start, -1
    while begin < store.log.end:
        pieces = index_pieces(store.files, wanted, topics, begin, store.log.end)
        try:
            for low, high, by_index in pieces:
                walk = _by_index if by_index else _by_walk
                for at, message in walk(view, wanted, topics, low, high):
                    if at > last:
                        yield at, message
                        last = at
                begin = high
        except DoubtedIndex:
            continue


def _by_walk(
    view: View, wanted: LogSearch, _: Sequence[str], low: int, high: int
) -> Iterator[tuple[int, Message]]:
    """Return matches in [low, high) of the log, by reading all of that range."""
    return in_log(view.walk("searching", start=low), wanted, end=high)


def _by_index(
    view: View, wanted: LogSearch, topics: Sequence[str], low: int, high: int
) -> Iterator[tuple[int, Message]]:
    """Return matches in [low, high) of the log, by the index."""
    index, text = view.store.index, wanted.indexed_text
    assert index is not None
    assert text is not None
    places = merge(
        *(
            index.candidates(index_string(topic, text), low=low, high=high, times=wanted.times)
            for topic in topics
        )
    )
    return _looked_at(view, wanted, places)


def _looked_at(
    view: View, wanted: LogSearch, places: Iterator[int]
) -> Iterator[tuple[int, Message]]:
    last = -1
    for at in places:
        if at == last:
            continue
        last = at
        message = _message(view, at)
        if message is not None and wanted.matches(message):
            yield at, message


def _message(view: View, at: int) -> Message | None:
    """Return the record at a physical offset; None if there is none."""
    log = view.store.log
    if not log.start <= at < log.end:
        return None
    try:
        return message_at(log, at)
    except Corrupt:
        return None


def _raw(view: View, query: FindQuery) -> Iterator[Row]:
    """Return the results of the index itself, as the real store does: keys are not compared.

    Raises InvalidArgument if the query has no topic or no key, or if the index is disabled.
    """
    key = query.key or query.unique_id or query.tag
    if query.topic is None or not key:
        raise InvalidArgument(
            "raw needs a topic, and a key, unique_id or tag", field="topic" if key else "key"
        )
    view.select(query.topic, None)
    index = view.store.index
    if index is None:
        raise InvalidArgument("raw: the index is switched off by messageIndexEnable", field="raw")
    found = index.query_raw(
        query.topic,
        key,
        max_count=query.limit,
        begin_ms=0 if query.from_ms is None else query.from_ms,
        end_ms=ALWAYS.end_ms if query.to_ms is None else query.to_ms,
        index_type=None if query.tag is None else TAG_TYPE,
    )
    return (_raw_row(view, at) for at in found)


def _raw_row(view: View, at: int) -> Row:
    message = _message(view, at)
    return gone_row(at) if message is None else _row(view, at, message)


def _by_id(view: View, wanted: LogSearch, record_id: str) -> Iterator[Row]:
    """Yield the record with this offset id; its store host must be the host in the id. Raises InvalidArgument if the id
    is malformed.
    """
    host, at = decode_offset_id(record_id)
    message = _message(view, at)
    if (
        message is not None
        and message.store_host == host
        and wanted.query.topic in (None, message.topic)
        and wanted.matches(message)
        and _is_seen(view, message, at)
    ):
        yield _row(view, at, message)


def with_id(messages: Iterator[Message], record_id: str) -> Iterator[Message]:
    """Return the records with this offset id. Raises InvalidArgument if the id is malformed."""
    wanted = decode_offset_id(record_id)
    return (m for m in messages if (m.store_host, m.physical_offset) == wanted)


# ---- by the log ----------------------------------------------------------------------------------


def in_log(
    walk: LogWalk, wanted: LogSearch, *, end: int | None = None
) -> Iterator[tuple[int, Message]]:
    """Yield matches by walking the log, up to `end`."""
    for log_range in walk.log_ranges():
        if isinstance(log_range, Padding):
            continue
        if end is not None and log_range.start >= end:
            return
        if wanted.needle in log_range.data:
            yield from _in_range(walk, log_range, wanted, end)


def _in_range(
    walk: LogWalk, log_range: LogRange, wanted: LogSearch, end: int | None
) -> Iterator[tuple[int, Message]]:
    needle, data, start = wanted.needle, log_range.data, log_range.start
    records = [
        (at, size)
        for at, size in log_range.records
        if data.find(needle, at - start, at - start + size) >= 0
    ]
    for placed in walk.placed(log_range, records):
        if end is not None and placed.physical_offset >= end:
            return
        if wanted.matches(placed.message):
            yield placed.physical_offset, placed.message
