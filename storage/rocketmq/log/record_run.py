"""The records of one append in one buffer: encoded before their place is known, and placed under the append lock.

Owns the buffer, the fields that depend on the place, and a fast way from a usual record to its bytes; must not decide
where records go. `encoding` owns the mapping from records to messages: `put_usual` is a fast copy of it for records
that need no other check than the one for separators, and a test compares the two. Everything else goes message by
message through `message_encoding`. The fields that `placed` fills in (`format.message` has the whole record; an IPv6
born host moves the last one by 12):

    position  bytes  field            note
    0         4      total size       read, to find the next record
    20        8      queue offset     0 stays in a prepared or rolled back record: it does not count
    28        8      physical offset
    39        1      sys flag         read: its lowest byte
    56        8      store timestamp

Compiled if a compiler is available: then a usual record makes no Python object besides the encoded texts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import pairwise
from struct import Struct
from typing import Any, Final, NamedTuple
from zlib import crc32

from storage.coding.native import (
    BytesWriter,
    i16,
    i64,
    is_native,
    u8,
    write_i16_be,
)
from storage.coding.varint import INT32_MAX, INT64_MAX, INT64_MIN
from storage.errors import UnrepresentableRecord
from storage.model import RawMessage, Record
from storage.rocketmq.format.message import (
    BORN_HOST_V6,
    CRC_MASK,
    FIXED_SIZE_V4,
    HOST_BITS_POSITION,
    HOST_SIZE_V4,
    MAGIC_V1,
    MAX_SIGNED_SHORT,
    MAX_SIZE,
    PHYSICAL_OFFSET_POSITION,
    PREPARED_OFFSET_POSITION,
    QUEUE_ID_POSITION,
    QUEUE_OFFSET_POSITION,
    STORE_HOST_V6,
    STORE_TIME_POSITION,
    TRANSACTION_PREPARED,
    V6_EXTRA_BYTES,
    magic_for,
)
from storage.rocketmq.format.message_encoding import (
    Placement,
    encode_messages,
    host_bits,
    put_head,
    topic_field,
)
from storage.rocketmq.format.properties import (
    KEYS,
    NAME_VALUE_SEPARATOR,
    PROPERTY_SEPARATOR,
    RESERVED,
    SHARDING_KEY,
    TAGS,
    TRANSACTION_MARK,
    UNIQ_KEY,
    closed_record,
    has_key_beside,
)

SEQUENCE_PROPERTY: Final = "__LOGSERVER_SEQ"
NOT_THE_USERS: Final = RESERVED | {SHARDING_KEY, SEQUENCE_PROPERTY, TRANSACTION_MARK}
"""The names that no header may have."""

_crc32: Final = crc32  # compiled code finds a constant faster than an imported name
_OFFSETS: Final = Struct(
    ">"
    "q"  # queue offset
    "q"  # physical offset
)
_NUMBER: Final = Struct(">q")

_NAME_END: Final = NAME_VALUE_SEPARATOR.encode()
_END: Final = PROPERTY_SEPARATOR.encode()
_SHARDING_KEY: Final = SHARDING_KEY.encode() + _NAME_END
_KEYS: Final = KEYS.encode() + _NAME_END
_TAGS: Final = TAGS.encode() + _NAME_END
_UNIQ_KEY: Final = UNIQ_KEY.encode() + _NAME_END
_SEQUENCE: Final = SEQUENCE_PROPERTY.encode() + _NAME_END
_HEX: Final = b"0123456789ABCDEF"
_SPACE: Final = b" "
_SPACE_BYTE: Final = 0x20
_FIRST_PLAIN: Final = 3
"""The bytes below are NUL and the two separators."""


class TopicForm(NamedTuple):
    """The form of a topic in a record: its name, the magic of the record version, and the name after its length."""

    utf8: bytes
    magic: int
    field: bytes


@lru_cache(maxsize=1024)
def form_of(topic: str) -> TopicForm:
    """Return the form of a topic in a record. Raises InvalidTopic."""
    magic, utf8 = magic_for(topic), topic.encode()
    return TopicForm(utf8, magic, topic_field(utf8, magic))


class RecordRun:
    """The records of an append, one after another: `count` records in `size_bytes`, the largest in `largest_bytes`.
    `queued`: the number of records that take a queue offset. Not thread-safe.
    """

    def __init__(
        self,
        data: BytesWriter,
        store_host: bytes,
        *,
        with_crc: bool,
        has_keys_beside: bool = False,
    ) -> None:
        """`with_crc`: each record ends in the CRC property, which `placed` makes right. `has_keys_beside`: the index
        lacks a string for the key of some record; see `properties.has_key_beside`.
        """
        self.store_host = store_host
        self.with_crc = with_crc
        self.has_keys_beside = has_keys_beside
        self.size_bytes = int(i64(len(data)))
        self._data = data
        count: i64 = 0
        queued: i64 = 0
        largest: i64 = 0
        at: i64 = 0
        end: i64 = len(data)
        while at < end:
            size: i64 = _size_at(data, at)
            if not i64(data[at + HOST_BITS_POSITION]) & TRANSACTION_PREPARED:
                queued += 1
            if size > largest:
                largest = size
            count += 1
            at += size
        self.count = int(count)
        self.queued = int(queued)
        self.largest_bytes = int(largest)

    def starts(self, first: int) -> list[int]:
        """Return where each record begins if the first begins at `first`."""
        found = [first]
        data = self._data
        at: i64 = _size_at(data, 0)
        end: i64 = len(data)
        while at < end:
            found.append(first + int(at))  # a locator has more than 64 bits
            at += _size_at(data, at)
        return found

    def sizes(self) -> list[int]:
        """Return the size of each record in bytes."""
        starts = [*self.starts(0), self.size_bytes]
        return [stop - start for start, stop in pairwise(starts)]

    def parts(self, limit_bytes: int) -> Sequence[RecordRun]:
        """Return the records as runs of at most this size, or of one record that is larger."""
        if self.size_bytes <= limit_bytes:
            return [self]
        parts: list[RecordRun] = []
        data = self._data.getvalue()
        begin = stop = 0
        for size in self.sizes():
            if stop > begin and stop + size - begin > limit_bytes:
                parts.append(self._part(data[begin:stop]))
                begin = stop
            stop += size
        parts.append(self._part(data[begin:]))
        return parts

    def _part(self, data: bytes) -> RecordRun:
        part = BytesWriter()
        part.write(data)
        return RecordRun(
            part,
            self.store_host,
            with_crc=self.with_crc,
            has_keys_beside=self.has_keys_beside,
        )

    def placed(self, queue_offset: int, physical_offset: int, time_ms: int) -> bytes:
        """Return the records with their places: consecutive queue offsets, physical offsets and the store time. Raises
        UnrepresentableRecord for a number that does not fit its field.
        """
        limit = INT64_MAX - self.size_bytes
        if not (
            INT64_MIN <= queue_offset <= limit
            and INT64_MIN <= physical_offset <= limit
            and INT64_MIN <= time_ms <= limit
        ):
            raise _no_place(queue_offset, physical_offset, time_ms, limit)
        if _NATIVE:
            self._place(queue_offset, physical_offset, time_ms)
        else:
            self._place_plainly(queue_offset, physical_offset, time_ms)
        data = self._data.getvalue()
        if self.with_crc:
            starts = [*self.starts(0), len(data)]
            data = b"".join(closed_record(data[start:stop]) for start, stop in pairwise(starts))
        return data

    def _place(self, queue_offset: i64, physical_offset: i64, time_ms: i64) -> None:
        data = self._data
        at: i64 = 0
        end: i64 = len(data)
        while at < end:
            size: i64 = _size_at(data, at)
            flag: i64 = i64(data[at + HOST_BITS_POSITION])
            if not flag & TRANSACTION_PREPARED:
                _set_i64(data, at + QUEUE_OFFSET_POSITION, queue_offset)
                queue_offset += 1
            _set_i64(data, at + PHYSICAL_OFFSET_POSITION, physical_offset + at)
            time_at: i64 = at + STORE_TIME_POSITION
            if flag & BORN_HOST_V6:
                time_at += V6_EXTRA_BYTES
            _set_i64(data, time_at, time_ms)
            at += size

    def _place_plainly(self, queue_offset: int, physical_offset: int, time_ms: int) -> None:
        """Do what `_place` does, in fewer steps of interpreted Python."""
        data: Any = self._data
        for start in self.starts(0):
            flag = data[start + HOST_BITS_POSITION]
            counts = flag & TRANSACTION_PREPARED == 0
            _OFFSETS.pack_into(
                data,
                start + QUEUE_OFFSET_POSITION,
                queue_offset if counts else 0,
                physical_offset + start,
            )
            queue_offset += counts
            time_at = start + STORE_TIME_POSITION + (V6_EXTRA_BYTES if flag & BORN_HOST_V6 else 0)
            _NUMBER.pack_into(data, time_at, time_ms)


def _no_place(*numbers_and_limit: int) -> UnrepresentableRecord:
    *numbers, limit = numbers_and_limit
    number = next(number for number in numbers if not INT64_MIN <= number <= limit)
    return _misfit(number)


def _misfit(number: int) -> UnrepresentableRecord:
    return UnrepresentableRecord(
        f"record 0: {number} does not fit its field", field="message", index=0
    )


class RunWriter:
    """A writer of the records of one append to one queue.

    `unique_head`: the digits of the unique ids of the next records, but for the last two. `mark`: the value of
    SEQUENCE_PROPERTY for the next record; empty for none.
    """

    def __init__(
        self, form: TopicForm, queue_id: int, store_host: bytes, *, limit_bytes: int
    ) -> None:
        """`limit_bytes`: of the body of a record. Raises UnrepresentableRecord for a queue id over four bytes."""
        if not -INT32_MAX - 1 <= queue_id <= INT32_MAX:
            raise _misfit(queue_id)
        self.unique_head = b""
        self.mark = b""
        self.has_keys_beside = False
        self.limit_bytes: i64 = limit_bytes
        self._data = BytesWriter()
        self._form = form
        self._topic_field = form.field
        self._magic = form.magic
        self._queue_id = queue_id
        self._store_host = store_host

    def run(self, *, with_crc: bool) -> RecordRun:
        """Return the records that were put. The writer must not be used any more."""
        return RecordRun(
            self._data, self._store_host, with_crc=with_crc, has_keys_beside=self.has_keys_beside
        )

    def put(self, messages: Sequence[RawMessage], store_host: bytes | None = None) -> None:
        """Add messages of any kind, all or none. `store_host`: of their records, if it is not the run's. Raises the
        errors of `encode_messages`.
        """
        form = self._form
        host = self._store_host if store_host is None else store_host
        place = Placement(form.utf8, form.magic, self._queue_id, 0, 0, 0, host)
        self._data.write(b"".join(encode_messages(messages, place)))

    def put_copy(self, head: bytes, body: bytes, properties: bytes) -> bool:
        """Add a v1 record with these parts for this topic and queue: `head`, with IPv4 hosts, keeps its other fields,
        and no transaction. Return False, and add nothing, if the record is not v1 or too large.
        """
        data = self._data
        start: i64 = len(data)
        size: i64 = FIXED_SIZE_V4 + i64(len(body) + len(properties) + len(self._form.utf8))
        if self._magic != MAGIC_V1 or i64(len(body)) > self.limit_bytes or size > MAX_SIZE:
            return False
        data.write(head)
        _set_i32(data, start, size)
        _set_i32(data, start + QUEUE_ID_POSITION, self._queue_id)
        _set_i64(data, start + PREPARED_OFFSET_POSITION, 0)
        data.write(body)
        data.write(self._topic_field)
        write_i16_be(data, i16(len(properties)))
        data.write(properties)
        if not self.has_keys_beside:
            self.has_keys_beside = has_key_beside(properties)
        return True

    def put_usual(self, record: Record, now_ms: i64, born_host: bytes, id_number: i64) -> bool:
        """Add a record; return False, and add nothing, if it is unusual: with a NUL or a field that is not valid.
        `now_ms`: its time, if it has none. `id_number`: the last two digits of its unique id, if it brings none.
        Raises InvalidArgument for a host that has neither 8 nor 20 bytes.
        """
        key: bytes | None
        value: bytes | None
        headers: Sequence[tuple[str, bytes | None]]
        given_ms: int | None
        tag: str | None
        lookup_keys: Sequence[str]
        properties: Mapping[str, str] | None
        fields: tuple[Any, ...] = record  # unpacked in half the time of a named tuple
        key, value, headers, given_ms, tag, lookup_keys, properties = fields
        if value is None or i64(len(value)) > self.limit_bytes:
            return False
        born_ms: i64 = now_ms
        if given_ms is not None:
            if not INT64_MIN <= given_ms <= INT64_MAX:
                return False
            born_ms = given_ms
        given_id: str | None = None
        if properties:
            given_id = properties.get(UNIQ_KEY)
            if given_id is None or len(properties) != 1:
                return False
        data, store_host = self._data, self._store_host
        bits: i64 = 0
        if len(born_host) != HOST_SIZE_V4 or len(store_host) != HOST_SIZE_V4:
            bits = host_bits(born_host, BORN_HOST_V6) | host_bits(store_host, STORE_HOST_V6)
        start: i64 = len(data)
        crc: i64 = _crc32(value) & CRC_MASK
        # fmt: off
        put_head(
            data, size=0, magic=self._magic, body_crc=crc, queue_id=self._queue_id, flag=0,
            queue_offset=0, physical_offset=0, sys_flag=bits, born_ms=born_ms, born_host=born_host,
            stored_ms=0, store_host=store_host, times=0, prepared=0, body_size=len(value),
        )
        # fmt: on
        data.write(value)
        data.write(self._topic_field)
        properties_at: i64 = len(data)
        write_i16_be(data, i16(0))
        good = (not headers or _put_headers(data, headers)) and (
            given_id is None or _put_text(data, _UNIQ_KEY, _utf8(given_id))
        )
        good = good and _put_keys(data, key, lookup_keys)
        good = good and (tag is None or _put_text(data, _TAGS, _utf8(tag)))
        if good and given_id is None:
            _put_unique_id(data, self.unique_head, id_number)
        good = good and (not self.mark or _put_text(data, _SEQUENCE, self.mark))
        properties_bytes: i64 = i64(len(data)) - properties_at - 2
        size: i64 = i64(len(data)) - start
        if not good or properties_bytes > MAX_SIGNED_SHORT or size > MAX_SIZE:
            data.truncate(start)
            return False
        data[properties_at] = u8(properties_bytes >> 8)
        data[properties_at + 1] = u8(properties_bytes & 0xFF)
        _set_i32(data, start, size)
        return True


# ---- properties of a usual record ----


def _is_plain(text: bytes) -> bool:
    """Return whether a text is not empty and has neither NUL nor a separator."""
    end: i64 = len(text)
    at: i64 = 0
    while at < end:
        if i64(text[at]) < _FIRST_PLAIN:
            return False
        at += 1
    return end > 0


def _is_word(text: bytes) -> bool:
    """Return whether a text is plain and has no space."""
    end: i64 = len(text)
    at: i64 = 0
    while at < end:
        byte: i64 = i64(text[at])
        if byte < _FIRST_PLAIN or byte == _SPACE_BYTE:
            return False
        at += 1
    return end > 0


def _utf8(text: str) -> bytes:
    """Return a text in UTF-8; nothing, which is not plain, if it is not valid Unicode."""
    try:
        return text.encode()
    except UnicodeEncodeError:
        return b""


def _is_utf8(data: bytes) -> bool:
    if not data.isascii():
        try:
            data.decode()
        except UnicodeDecodeError:
            return False
    return True


def _put_text(data: BytesWriter, name: bytes, text: bytes) -> bool:
    """Add a property; return False for a text that is not plain. `name` ends in its separator."""
    if not _is_plain(text):
        return False
    data.write(name)
    data.write(text)
    data.write(_END)
    return True


def _put_headers(data: BytesWriter, headers: Sequence[tuple[str, bytes | None]]) -> bool:
    """Add the headers; return False if one is unusual or not valid."""
    if len(headers) > 1 and len({name for name, _ in headers}) != len(headers):
        return False
    for name, value in headers:
        if name in NOT_THE_USERS or value is None or not _is_utf8(value):
            return False
        utf8 = _utf8(name)
        if not _is_plain(utf8) or not _put_text(data, utf8 + _NAME_END, value):
            return False
    return True


def _put_keys(data: BytesWriter, key: bytes | None, lookup_keys: Sequence[str]) -> bool:
    """Add the key, and KEYS as `encoding` makes it; return False if one is unusual or not valid."""
    if key is not None and not (_is_utf8(key) and _put_text(data, _SHARDING_KEY, key)):
        return False
    at: i64 = len(data)
    data.write(_KEYS)
    first_at: i64 = len(data)
    if key is not None and _is_word(key) and not _is_listed(key, lookup_keys):
        data.write(key)
    for lookup_key in lookup_keys:
        text = _utf8(lookup_key)
        if not _is_word(text):
            return False
        if i64(len(data)) > first_at:
            data.write(_SPACE)
        data.write(text)
    if i64(len(data)) > first_at:
        data.write(_END)
    else:
        data.truncate(at)
    return True


def _is_listed(key: bytes, lookup_keys: Sequence[str]) -> bool:
    return bool(lookup_keys) and key in [_utf8(lookup_key) for lookup_key in lookup_keys]


def _put_unique_id(data: BytesWriter, head: bytes, number: i64) -> None:
    data.write(_UNIQ_KEY)
    data.write(head)
    data.append(u8(_HEX[number >> 4]))
    data.append(u8(_HEX[number & 15]))
    data.write(_END)


# ---- numbers in the buffer ----


def _size_at(data: BytesWriter, at: i64) -> i64:
    """Return the total size of the record at a position."""
    return (
        i64(data[at]) << 24 | i64(data[at + 1]) << 16 | i64(data[at + 2]) << 8 | i64(data[at + 3])
    )


def _set_i32(data: BytesWriter, at: i64, number: i64) -> None:
    data[at] = u8(number >> 24 & 0xFF)
    data[at + 1] = u8(number >> 16 & 0xFF)
    data[at + 2] = u8(number >> 8 & 0xFF)
    data[at + 3] = u8(number & 0xFF)


def _set_i64(data: BytesWriter, at: i64, number: i64) -> None:
    _set_i32(data, at, number >> 32)
    _set_i32(data, at + 4, number)


_NATIVE: Final = is_native(_set_i64)
