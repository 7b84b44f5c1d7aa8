"""The pass over commit log bytes that makes queue entries and index strings: one for appends, starts and rebuilds.

Owns how a stored record becomes its queue entry and the hashes of its strings (CommitLog.checkMessageAndReturnSize and
IndexService.buildIndex of RocketMQ); must not do IO, and must not decide which entries a queue takes: dispatcher.py
does. Compiled if a compiler is available: then records of the usual shape take a path without any Python object for a
record (`_take_plain`). All others, and all records when interpreted, take the exact path, record by record. The fields
that are read (`format.message` has the whole record):

    position  bytes  field            note
    0         4      total size
    4         4      magic            v2: exact path
    12        4      queue id
    20        8      queue offset
    36        4      sys flag         IPv6 hosts, a prepared or rolled back record: exact path
    56        8      store timestamp
    84        4      body length
    88 + n    1, m   topic            after the body. The schedule topic, or a topic that can have no queue: exact path
    .         2      properties length
    .         .      properties       UNIQ_KEY, KEYS and TAGS count; one with a byte above 7f: exact path

What comes out. The entries of a queue are one buffer, in log order; a new run begins where a queue offset does not
follow the one before it:

    run 1: queue offset 17                | run 2: queue offset 40
    +----------------+----------------+   | +----------------+
    | offset  8      | offset  8      |   | | offset  8      |
    | size    4      | size    4      |   | | size    4      |
    | code    8      | code    8      |   | | code    8      |
    +----------------+----------------+   | +----------------+

The index strings of all records are one buffer of 20 bytes each:

    position  bytes  field            note
    0         4      key hash         not negative; -1: a record without strings
    4         8      physical offset  of the record
    12        8      store timestamp  of the record
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import Final, NamedTuple, Protocol

from storage.coding.hashes import BASE, MASK, SIGN, SUFFIX, SUFFIX_POWER, KeyHasher
from storage.coding.native import (
    BytesWriter,
    i32,
    i64,
    is_native,
    read_i32_be,
    read_i64_be,
    write_i32_be,
    write_i64_be,
)
from storage.rocketmq.format.message import (
    BODY_POSITION,
    BODY_SIZE_POSITION,
    FIXED_SIZE_V4,
    HOSTS_V6,
    MAGIC_POSITION,
    MAGIC_V1,
    QUEUE_ID_POSITION,
    QUEUE_OFFSET_POSITION,
    STORE_TIME_POSITION,
    SYS_FLAG_POSITION,
    TRANSACTION_PREPARED,
    decode_message,
    takes_queue_offset,
)
from storage.rocketmq.format.names import SCHEDULE_TOPIC
from storage.rocketmq.format.properties import decode_properties
from storage.rocketmq.format.queue_entry import UNIT, UNIT_SIZE, code_of
from storage.rocketmq.format.suspect_fields import is_folder_name
from storage.rocketmq.index.dispatch_request import Dispatch, keys_of, new_dispatch

STRING: Final = Struct(
    ">"
    "i"  # key hash
    "q"  # physical offset
    "q"  # store timestamp
)
STRING_SIZE: Final = 20
assert STRING.size == STRING_SIZE
NO_STRING: Final = -1
"""The key hash of a record without strings."""
NOTHING: Final = 1 << 62
"""A physical offset after all records."""

_HEAD: Final = Struct(
    ">"
    "i"  # total size
    "i"  # magic
    "4x"
    "i"  # queue id
    "4x"
    "q"  # queue offset
    "8x"
    "i"  # sys flag
    "16x"
    "q"  # store timestamp
    "20x"
    "i"  # body length
)
assert _HEAD.size == BODY_POSITION
_unpack_head: Final = _HEAD.unpack_from
_pack_unit: Final = UNIT.pack
_pack_string: Final = STRING.pack
_UNUSUAL: Final = HOSTS_V6 | TRANSACTION_PREPARED
_KEYS: Final = 0x4B455953  # the letters, as a number
_TAGS: Final = 0x54414753
_UNIQ_KEY: Final = 0x554E49515F4B4559
RARE_NAME: Final = 13
"""Bytes of the shortest name of a property for which a caller of the pass looks at the records again."""
_SHORT_NAME: Final = 4
_LONG_NAME: Final = 8
_NAME_VALUE: Final = 1
_PROPERTY: Final = 2
_SPACE: Final = 0x20
_ASCII: Final = 0x7F


class Rules(Protocol):
    """Which records count, and which code an entry gets. Asked about few records."""

    def alive_from(self, topic: str, queue_id: int) -> int:
        """Return the physical offset from which on no record of this queue needs to be asked about."""

    def is_over(self, dispatch: Dispatch) -> bool:
        """Return whether a record was deleted. Asked for records below `alive_from`, and for all without a queue."""

    def code_of(self, dispatch: Dispatch) -> int:
        """Return the tags code for the entry of a record of the schedule topic."""


class AllRecords:
    """Rules by which no record was deleted."""

    def alive_from(self, topic: str, queue_id: int) -> int:
        """Return the start of the log."""
        return 0

    def is_over(self, dispatch: Dispatch) -> bool:
        """Return False."""
        return False

    def code_of(self, dispatch: Dispatch) -> int:
        """Return the code that follows from the record."""
        return dispatch.tags_code


class EntryRun(NamedTuple):
    """Adjacent entries of a queue: the queue offset of the first, and their bytes."""

    queue_offset: int
    units: bytes

    @property
    def last_offset(self) -> int:
        """The queue offset of the last entry."""
        return self.queue_offset + len(self.units) // UNIT_SIZE - 1

    @property
    def first(self) -> int:
        """The physical offset of the first record."""
        return int(UNIT.unpack_from(self.units)[0])


class QueueRuns(NamedTuple):
    """The entries of one queue in log order."""

    topic: str
    queue_id: int
    runs: Sequence[EntryRun]


class Passed(NamedTuple):
    """The result of passes: entries by queue, index strings, and records of topics that can have no queue."""

    queues: Sequence[QueueRuns]
    strings: bytes
    refused: Sequence[Dispatch]


class _Fields:
    """The fields of one record of the usual shape: numbers, and positions in the data. An absent property ends at 0."""

    def __init__(self) -> None:
        self.end: i64 = 0
        self.size: i64 = 0
        self.physical_offset: i64 = 0
        self.queue_id: i64 = 0
        self.queue_offset: i64 = 0
        self.time_ms: i64 = 0
        self.topic_at: i64 = 0
        self.topic_end: i64 = 0
        self.unique_at: i64 = 0
        self.unique_end: i64 = 0
        self.keys_at: i64 = 0
        self.keys_end: i64 = 0
        self.tags_at: i64 = 0
        self.tags_end: i64 = 0
        self.code: i64 = 0


class _Queue:
    """One queue of a topic, and its entries since the last `taken`."""

    def __init__(self, queue_id: int, alive_from: int) -> None:
        self.queue_id: i64 = queue_id
        self.alive_from: i64 = alive_from
        self.units = BytesWriter()
        self.starts: list[tuple[int, int]] = []  # (position in `units`, queue offset) of each run
        self.following: i64 = 0  # the queue offset that continues the last run, if there is one
        self.next_offset: i64 = 0  # after the last record met, deleted or not
        self.is_met = False  # since the last `taken`

    def put(self, fields: _Fields) -> None:
        """Add the entry of a record of the usual shape."""
        if fields.queue_offset != self.following or not self.starts:
            self.starts.append((len(self.units), fields.queue_offset))
        self.following = fields.queue_offset + 1
        units = self.units
        write_i64_be(units, fields.physical_offset)
        write_i32_be(units, i32(fields.size))
        write_i64_be(units, fields.code)

    def put_unit(self, queue_offset: i64, unit: bytes) -> None:
        """Add an entry."""
        if queue_offset != self.following or not self.starts:
            self.starts.append((len(self.units), queue_offset))
        self.following = queue_offset + 1
        self.units.write(unit)

    def take_runs(self) -> list[EntryRun]:
        """Return the entries, and forget them."""
        units, starts = self.units.getvalue(), self.starts
        self.units, self.starts = BytesWriter(), []
        if len(starts) <= 1:
            return [EntryRun(offset, units) for _, offset in starts]
        stops = [position for position, _ in starts[1:]] + [len(units)]
        return [
            EntryRun(offset, units[position:stop])
            for (position, offset), stop in zip(starts, stops, strict=True)
        ]


class _Topic:
    """One topic of the log."""

    def __init__(self, name: str, *, is_plain: bool, has_queues: bool) -> None:
        self.name = name
        self.utf8 = b""  # as it is in records
        self.is_plain = is_plain  # its usual records take the fast path
        self.has_queues = has_queues
        self.queues: dict[int, _Queue] = {}
        self.seed: i64 = 0  # the hash of `topic#`, with which its strings begin
        self.tag_seed: i64 = 0  # likewise of `topic#T#`


class RecordPass:
    """A pass over good records, any number of bytes at a time; `taken` returns what it made. Not thread-safe.

    `queues_from`, `strings_from`: records before this physical offset make no entry, or no strings. The fields `last_*`
    describe the last record met, `last_alive_*` the last one that was not deleted; `last_alive_strings` is the
    number of its strings. `left_out`: the number of deleted records.
    """

    def __init__(
        self,
        rules: Rules,
        *,
        with_tags: bool,
        delays_ms: Sequence[int] | None = None,
        batch_topics: frozenset[str] = frozenset(),
        queues_from: int = 0,
        strings_from: int = 0,
    ) -> None:
        """`with_tags`: tags are strings of the index. `delays_ms` as for `code_of`. `batch_topics`: their records have
        no entries of this kind.
        """
        self.queues_from: i64 = queues_from
        self.strings_from: i64 = strings_from
        self.records: i64 = 0  # since the last `taken`
        self.left_out: i64 = 0
        self.last_offset: i64 = -1
        self.last_time_ms: i64 = 0
        self.last_alive_offset: i64 = -1
        self.last_alive_time_ms: i64 = 0
        self.last_alive_strings: i64 = 0
        self.has_rare = (
            True  # a record of the last `take` may have a name of RARE_NAME bytes or more
        )
        self.unqueued: list[Dispatch] = []  # records without a queue offset since the last `taken`
        self._rules = rules
        self._with_tags = with_tags
        self._delays_ms = delays_ms
        self._batch_topics = batch_topics
        self._fields = _Fields()
        self._hasher = KeyHasher()
        self._topics: dict[bytes, _Topic] = {}
        self._by_name: dict[str, _Topic] = {}
        self._met: list[tuple[str, _Queue]] = []
        self._strings = BytesWriter()
        self._refused: list[Dispatch] = []

    def take(self, data: bytes, position: i64, stop: i64, physical_offset: i64) -> None:
        """Pass over the records in [position, stop) of the data, all good as `format.scan` checks them; the first is
        at this physical offset of the log. `has_rare` says afterwards whether one of them may have a property that few
        records have.
        """
        self.has_rare = not _NATIVE
        shift: i64 = physical_offset - position
        while position < stop:
            if _NATIVE:
                position = self._take_plain(data, position, stop, shift)
                if position >= stop:
                    return
            self.has_rare = True
            position = self._take_one(data, position, shift)

    def taken(self) -> Passed:
        """Return what the passes since the last call made, and forget it."""
        queues: list[QueueRuns] = []
        for topic, queue in self._met:
            queue.is_met = False
            runs = queue.take_runs()
            if runs:
                queues.append(QueueRuns(topic, queue.queue_id, runs))
        passed = Passed(queues, self._strings.getvalue(), self._refused)
        self._met, self._strings, self._refused = [], BytesWriter(), []
        self.unqueued = []
        self.records = 0
        return passed

    def next_offsets(self) -> list[tuple[str, int, int]]:
        """Return (topic, queue id, queue offset after the last record) of the queues met since the last `taken`."""
        return [(topic, queue.queue_id, queue.next_offset) for topic, queue in self._met]

    def forget_topics(self) -> None:
        """Ask the rules again about all queues. What was made is kept until `taken`."""
        self._topics, self._by_name = {}, {}

    # ---- records of the usual shape ----

    def _take_plain(self, data: bytes, position: i64, stop: i64, shift: i64) -> i64:
        """Pass over records of the usual shape; return the position of the first other record."""
        fields = self._fields
        topic: _Topic | None = None
        queue: _Queue | None = None
        alive: i64 = -1
        while _read_head(fields, data, position, stop):
            if topic is None or not _is_at(topic.utf8, data, fields):
                topic = self._topic_of(data[fields.topic_at : fields.topic_end])
                queue = None
            if not topic.is_plain:
                break
            if queue is None or queue.queue_id != fields.queue_id:
                queue = self._queue_of(topic, fields.queue_id)
            fields.physical_offset = position + shift
            if fields.physical_offset < queue.alive_from:
                break
            if _find_properties(fields, data) >= RARE_NAME:
                self.has_rare = True
            if not self._put_plain(topic, data):
                break
            self._note_met(topic, queue, fields.queue_offset)
            if fields.physical_offset >= self.queues_from:
                queue.put(fields)
            self.records += 1
            alive = fields.physical_offset
            position = fields.end
        if alive >= 0:
            self.last_offset = self.last_alive_offset = alive
            self.last_time_ms = self.last_alive_time_ms
        return position

    def _put_plain(self, topic: _Topic, data: bytes) -> bool:
        """Add the strings of the record in the fields, and compute its code. Return False, and add nothing, if a
        character of them may be several bytes.
        """
        fields, strings = self._fields, self._strings
        fields.code = _hash(data, fields.tags_at, fields.tags_end, 0)
        count: i64 = 0
        if fields.physical_offset >= self.strings_from:
            before: i64 = len(strings)
            good = fields.code >= 0 and _put_keys(strings, fields, data, topic.seed)
            if not good:
                strings.truncate(before)
                return False
            if fields.tags_end and self._with_tags:
                tagged = _hash(data, fields.tags_at, fields.tags_end, topic.tag_seed)
                _put_string(strings, fields, tagged)
            count = (i64(len(strings)) - before) // STRING_SIZE
            if not count:
                write_i32_be(strings, NO_STRING)
                write_i64_be(strings, fields.physical_offset)
                write_i64_be(strings, fields.time_ms)
        elif fields.code < 0:
            return False
        if fields.code >= SIGN:
            fields.code -= MASK + 1
        self.last_alive_strings = count
        self.last_alive_time_ms = fields.time_ms
        return True

    # ---- any record ----

    def _take_one(self, data: bytes, position: i64, shift: i64) -> i64:
        """Pass over one record of any shape; return the position after it."""
        size, magic, queue_id, queue_offset, sys_flag, time_ms, body_size = _unpack_head(
            data, position
        )
        end: i64 = position + size
        if magic != MAGIC_V1 or sys_flag & HOSTS_V6:
            message = decode_message(data, position, check_crc=False)
            queue_id, queue_offset = message.queue_id, message.queue_offset
            sys_flag, time_ms = message.sys_flag, message.store_timestamp_ms
            topic = self._topic_named(message.topic)
            text = message.properties
        else:
            topic_at: i64 = position + BODY_POSITION + body_size + 1
            topic_end: i64 = topic_at + data[topic_at - 1]
            topic = self._topic_of(data[topic_at:topic_end])
            text = data[topic_end + 2 : end]
        properties = decode_properties(text)
        code = code_of(topic.name, properties, time_ms, self._delays_ms)
        physical_offset: i64 = position + shift
        self.records += 1
        self.last_offset, self.last_time_ms = physical_offset, time_ms
        queue: _Queue | None = None
        if takes_queue_offset(sys_flag):
            queue = self._queue_of(topic, queue_id)
            self._note_met(topic, queue, queue_offset)
            if topic.is_plain and physical_offset >= queue.alive_from:
                self._put_strings(topic.name, properties, sys_flag)
                if physical_offset >= self.queues_from:
                    queue.put_unit(queue_offset, _pack_unit(physical_offset, size, code))
                return end
        # fmt: off
        dispatch: Dispatch = new_dispatch(Dispatch, (
            topic.name, queue_id, queue_offset, physical_offset, size, code, time_ms, sys_flag, (),
        ))
        # fmt: on
        if queue is None:
            self.unqueued.append(dispatch)
        if queue is not None and topic.has_queues and physical_offset >= queue.alive_from:
            is_over = False
        else:
            is_over = self._rules.is_over(dispatch)
        if is_over:
            self.left_out += 1
        else:
            self._put_strings(topic.name, properties, sys_flag)
            self._put_unusual(topic, queue, dispatch)
        return end

    def _put_unusual(self, topic: _Topic, queue: _Queue | None, dispatch: Dispatch) -> None:
        """Add the entry of a record that was not deleted, if it has one."""
        if queue is None or dispatch.physical_offset < self.queues_from:
            return
        if topic.has_queues:
            code = dispatch.tags_code
            if topic.name == SCHEDULE_TOPIC:
                code = self._rules.code_of(dispatch)
            unit = _pack_unit(dispatch.physical_offset, dispatch.size, code)
            queue.put_unit(dispatch.queue_offset, unit)
        elif topic.name not in self._batch_topics:
            self._refused.append(dispatch)

    def _put_strings(self, topic: str, properties: dict[str, str], sys_flag: int) -> None:
        """Add the strings of the last record, or the note that it has none."""
        physical_offset, time_ms = self.last_offset, self.last_time_ms
        self.last_alive_offset, self.last_alive_time_ms = physical_offset, time_ms
        self.last_alive_strings = 0
        if physical_offset < self.strings_from:
            return
        prefixes, suffixes = self._hasher.prefixes, self._hasher.suffixes
        strings = self._strings
        keys = keys_of(topic, properties, sys_flag, with_tags=self._with_tags)
        self.last_alive_strings = len(keys)
        for key in keys:
            try:
                hashed = prefixes[key[:-SUFFIX]] * SUFFIX_POWER + suffixes[key[-SUFFIX:]] & MASK
            except KeyError:
                hashed = self._hasher.java_hash(key)
            if hashed >= SIGN:
                hashed = 0 if hashed == SIGN else MASK + 1 - hashed
            strings.write(_pack_string(hashed, physical_offset, time_ms))
        if not keys:
            strings.write(_pack_string(NO_STRING, physical_offset, time_ms))

    # ---- topics and queues ----

    def _topic_of(self, utf8: bytes) -> _Topic:
        """Return the topic with this name in a record."""
        topic = self._topics.get(utf8)
        if topic is None:
            topic = self._topics[utf8] = self._topic_named(utf8.decode(errors="replace"))
            topic.utf8 = utf8
        return topic

    def _topic_named(self, name: str) -> _Topic:
        topic = self._by_name.get(name)
        if topic is None:
            has_queues = is_folder_name(name) and name not in self._batch_topics
            is_plain = has_queues and name != SCHEDULE_TOPIC
            topic = _Topic(name, is_plain=is_plain, has_queues=has_queues)
            topic.seed = self._hasher.java_hash(f"{name}#")
            topic.tag_seed = self._hasher.java_hash(f"{name}#T#")
            self._by_name[name] = topic
        return topic

    def _queue_of(self, topic: _Topic, queue_id: int) -> _Queue:
        queue = topic.queues.get(queue_id)
        if queue is None:
            alive_from = self._rules.alive_from(topic.name, queue_id) if topic.has_queues else 0
            queue = topic.queues[queue_id] = _Queue(queue_id, alive_from)
        return queue

    def _note_met(self, topic: _Topic, queue: _Queue, queue_offset: i64) -> None:
        queue.next_offset = queue_offset + 1
        if not queue.is_met:
            queue.is_met = True
            self._met.append((topic.name, queue))


# ---- the fields of a usual record, without any Python object ----


def _read_head(fields: _Fields, data: bytes, position: i64, stop: i64) -> bool:
    """Read the fields up to the properties; return False if there is no usual record before `stop`."""
    if position + FIXED_SIZE_V4 > stop:
        return False
    end: i64 = position + i64(read_i32_be(data, position))
    body_size: i64 = i64(read_i32_be(data, position + BODY_SIZE_POSITION))
    if i64(read_i32_be(data, position + MAGIC_POSITION)) != MAGIC_V1:
        return False
    if i64(read_i32_be(data, position + SYS_FLAG_POSITION)) & _UNUSUAL:
        return False
    topic_at: i64 = position + BODY_POSITION + body_size + 1
    if body_size < 0 or end > stop or topic_at + 2 > end:
        return False
    topic_end: i64 = topic_at + i64(data[topic_at - 1])
    if topic_end + 2 > end:
        return False
    fields.end, fields.size = end, end - position
    fields.topic_at, fields.topic_end = topic_at, topic_end
    fields.queue_id = i64(read_i32_be(data, position + QUEUE_ID_POSITION))
    fields.queue_offset = read_i64_be(data, position + QUEUE_OFFSET_POSITION)
    fields.time_ms = read_i64_be(data, position + STORE_TIME_POSITION)
    return True


def _is_at(text: bytes, data: bytes, fields: _Fields) -> bool:
    """Return whether the topic in the fields is this text."""
    at: i64 = fields.topic_at
    if i64(len(text)) != fields.topic_end - at:
        return False
    index: i64 = 0
    while at < fields.topic_end:
        if text[index] != data[at]:
            return False
        index += 1
        at += 1
    return True


def _find_properties(fields: _Fields, data: bytes) -> i64:
    """Find the values of the properties that count, as `decode_properties` does: of a name the last value counts,
    and pieces without a name or a value are skipped. Return the length of the longest name.
    """
    longest: i64 = 0
    fields.unique_at = fields.unique_end = fields.keys_at = fields.keys_end = 0
    fields.tags_at = fields.tags_end = 0
    at: i64 = fields.topic_end + 2
    end: i64 = fields.end
    while at < end:
        value_at: i64 = at
        while value_at < end and data[value_at] != _NAME_VALUE and data[value_at] != _PROPERTY:
            value_at += 1
        if value_at < end and data[value_at] == _NAME_VALUE:
            if value_at - at > longest:
                longest = value_at - at
            value_end: i64 = value_at + 1
            while value_end < end and data[value_end] != _PROPERTY:
                value_end += 1
            if value_end > value_at + 1:
                _note_property(fields, data, at, value_at, value_end)
            at = value_end + 1
        else:
            at = value_at + 1
    return longest


def _note_property(fields: _Fields, data: bytes, at: i64, name_end: i64, value_end: i64) -> None:
    """Note the place of a value, if the property counts."""
    size: i64 = name_end - at
    if size == _SHORT_NAME:
        name: i64 = i64(read_i32_be(data, at))
        if name == _KEYS:
            fields.keys_at, fields.keys_end = name_end + 1, value_end
        elif name == _TAGS:
            fields.tags_at, fields.tags_end = name_end + 1, value_end
    elif size == _LONG_NAME and read_i64_be(data, at) == _UNIQ_KEY:
        fields.unique_at, fields.unique_end = name_end + 1, value_end


def _hash(data: bytes, at: i64, end: i64, seed: i64) -> i64:
    """Return Java's hash of text that follows text with the hash `seed`; -1 for a byte that is no ASCII character."""
    hashed: i64 = seed
    while at < end:
        byte: i64 = i64(data[at])
        if byte > _ASCII:
            return -1
        hashed = (hashed * BASE + byte) & MASK
        at += 1
    return hashed


def _put_keys(strings: BytesWriter, fields: _Fields, data: bytes, seed: i64) -> bool:
    """Add the strings of the unique key and of the keys; return False at a byte that is no ASCII character."""
    hashed: i64
    if fields.unique_end:
        hashed = _hash(data, fields.unique_at, fields.unique_end, seed)
        if hashed < 0:
            return False
        _put_string(strings, fields, hashed)
    at: i64 = fields.keys_at
    while at < fields.keys_end:
        end: i64 = at
        while end < fields.keys_end and data[end] != _SPACE:
            end += 1
        if end > at:
            hashed = _hash(data, at, end, seed)
            if hashed < 0:
                return False
            _put_string(strings, fields, hashed)
        at = end + 1
    return True


def _put_string(strings: BytesWriter, fields: _Fields, hashed: i64) -> None:
    """Add a string, with its hash as an index file stores it."""
    if hashed >= SIGN:
        hashed = 0 if hashed == SIGN else MASK + 1 - hashed
    write_i32_be(strings, i32(hashed))
    write_i64_be(strings, fields.physical_offset)
    write_i64_be(strings, fields.time_ms)


_NATIVE: Final = is_native(_put_string)
