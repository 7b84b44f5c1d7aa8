"""The records inside a batch: the bytes after a batch's header, after decompression.

Owns the record's layout, in both directions; must not know the batch's header, its CRC or any codec. Offsets and
timestamps are stored as differences from the batch's. Source: DefaultRecord of Kafka's clients.

    position  bytes  field            note
    0         1..5   length           of all that follows
    .         1      attributes       0; ignored when read
    .         1..10  timestamp delta  from the batch's base timestamp; may be negative; wraps at 64 bits as in Java
    .         1..5   offset delta     from the batch's base offset; rises, but see `decode_records`
    .         1..5   key length       -1: null
    .         n      key
    .         1..5   value length     -1: null
    .         n      value
    .         1..5   header count
    .         n      headers          each: name length, name (never null), value length (-1: null), value

Every number except `attributes` is a zig-zag varint. Bytes that are not UTF-8 in a header's name are read as U+FFFD, as
Kafka's consumer does: the broker checks no name.

These loops are compiled if there is a C compiler. Without one they take most of a request's time. For that case there
are the table of varints, the one-byte shortcuts and the local variables.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from storage.coding.cursor import Cursor, decode_blob
from storage.coding.varint import (
    INT64_MAX,
    INT64_MIN,
    TABLE_SIZE,
    VARINTS,
    decode_varint,
    encode_varint,
)
from storage.errors import Corrupt, DataError, UnrepresentableRecord

if TYPE_CHECKING:
    from mypy_extensions import i64

Header: TypeAlias = tuple[str, bytes | None]

NewRecord: TypeAlias = tuple[Any, ...]
"""(key, value, headers, timestamp_ms or None, any further fields): `storage.model.Record`, or a plain tuple."""

DecodedRecord: TypeAlias = tuple[int, int, bytes | None, bytes | None, Sequence[Header]]
"""(offset, timestamp_ms, key, value, headers)."""

NULL: Final = encode_varint(-1)
NULL_BYTE: Final = 1
NONE_THERE: Final = encode_varint(0)
MIN_RECORD_BYTES: Final = 7
MAX_DELTA: Final = (1 << 31) - 1
"""Offset deltas have 32 bits."""
NULL_NAME: Final = "a header name is null"
NOT_YET: Final[DecodedRecord] = (-1, -1, None, None, ())
"""Placeholder for a record that is not decoded yet: no record has the offset -1."""
DROPPED: Final[DecodedRecord] = (-2, -1, None, None, ())
"""Placeholder for a record that is given to no consumer."""
LONG_RECORD: Final = "its length reaches over the end of the batch"
UNFILLED: Final = "its fields do not fill its length"
NO_DELTA: Final = 1 << 31
"""No record has this offset delta, or a higher one."""
SHORT_RUN: Final = 16
"""The number of records of a part that are decoded before their sizes are compared with its limits."""
NO_TIMESTAMP: Final = -1
"""Kafka's value for the largest timestamp if no record has a higher one."""
NEAR: Final = 1 << 61
"""Timestamps between -NEAR and NEAR cannot have exceeded 64 bits. Compiled code compares fast with this number."""


def encode_records(
    records: list[NewRecord], *, base_timestamp_ms: int, now_ms: int
) -> tuple[bytes, int]:
    """Encode records. Return (their bytes, the largest timestamp).

    A timestamp of None means `now_ms`; offset deltas count from 0. Raises UnrepresentableRecord for a timestamp outside
    64 bits or a header name that cannot be encoded as UTF-8.
    """
    out: list[bytes] = []
    varints = VARINTS
    limit: i64 = TABLE_SIZE
    index: i64 = 0
    try:
        _check_timestamp(base_timestamp_ms)
        base: i64 = base_timestamp_ms
        latest: i64 = base
        near: i64 = limit if base <= INT64_MAX - limit else 0  # timestamps that need no check
        for record in records:
            time_ms: int | None = record[3]
            timestamp: i64 = now_ms if time_ms is None else time_ms
            if timestamp > latest:
                latest = timestamp
            delta: i64 = timestamp - base
            key: bytes | None = record[0]
            value: bytes | None = record[1]
            size: i64 = 0
            if value is None:
                value_length = NULL
                value = b""
            else:
                size = len(value)
                value_length = varints[size] if size < limit else encode_varint(size)
            headers: Sequence[Header] = record[2]
            body = b"\0%b%b%b%b%b%b" % (
                varints[delta] if 0 <= delta < near else _encode_delta(timestamp, base),
                varints[index] if index < limit else encode_varint(index),
                NULL if key is None else encode_varint(len(key)) + key,
                value_length,
                value,
                _encode_headers(headers) if headers else NONE_THERE,
            )
            size = len(body)
            out.append(varints[size] if size < limit else encode_varint(size))
            out.append(body)
            index += 1
    except ValueError as cause:  # compiled code raises it for a number over 64 bits, too
        raise _unrepresentable(index, cause) from cause
    return b"".join(out), latest


def _encode_delta(timestamp_ms: int, base_ms: int) -> bytes:
    _check_timestamp(timestamp_ms)
    return encode_varint(wrap_timestamp(timestamp_ms - base_ms))


def _check_timestamp(timestamp_ms: int) -> None:
    if not INT64_MIN <= timestamp_ms <= INT64_MAX:
        raise ValueError


def wrap_timestamp(number: int) -> int:
    """Return the result of Java's 64-bit arithmetic; compiled code wraps in the same way by itself."""
    return (number - INT64_MIN & (1 << 64) - 1) + INT64_MIN


def _encode_headers(headers: Sequence[Header]) -> bytes:
    parts = [encode_varint(len(headers))]
    for name, value in headers:
        encoded = name.encode()
        parts.append(encode_varint(len(encoded)))
        parts.append(encoded)
        if value is None:
            parts.append(NULL)
        else:
            parts.append(encode_varint(len(value)))
            parts.append(value)
    return b"".join(parts)


def _unrepresentable(index: int, cause: Exception) -> UnrepresentableRecord:
    if isinstance(cause, UnicodeEncodeError):
        return UnrepresentableRecord(
            f"record {index}: a header name is not valid Unicode", field="headers", index=index
        )
    return UnrepresentableRecord(
        f"record {index}: the timestamp does not fit into 64 bits", field="timestamp", index=index
    )


class Part(NamedTuple):
    """The records of a batch that a page needs: from an offset on, up to the first one after the page's limits. Bytes
    count keys and values.

    A record above the last offset of its batch can be found only through that offset, so no page begins with it.
    """

    from_offset: int
    max_records: int
    max_bytes: int


def decode_records(
    data: bytes,
    position: i64,
    *,
    end: i64,
    count: i64,
    base_offset: i64,
    base_timestamp_ms: i64,
    last_offset: int = INT64_MAX,
    part: Part | None = None,
) -> list[DecodedRecord]:
    """Decode the `count` records that fill `data[position:end]` exactly. With `part`, return no record before it and
    few after it: these are checked like the others, but no objects are created for them.

    Offset deltas that do not rise from 0 are read as Kafka's consumer reads them (CompletedFetch.nextFetchedRecord): a
    record below the next offset of the record before it is dropped. Counts and lengths are checked before memory is
    allocated for them. `last_offset`: by the batch's header. Raises Corrupt; its fact `record` counts from 0.
    """
    check_count(count, end - position)
    if part is None:
        out, position = _decode_run(
            data,
            position,
            end=end,
            index=0,
            count=count,
            base_offset=base_offset,
            base_timestamp_ms=base_timestamp_ms,
            previous=-1,
        )
    else:
        out, position = _decode_part(
            data,
            position,
            end=end,
            count=count,
            base_offset=base_offset,
            base_timestamp_ms=base_timestamp_ms,
            last_offset=last_offset,
            part=part,
        )
    check_filled(position, end)
    return out


def check_count(count: i64, size_bytes: i64) -> None:
    """Raise Corrupt unless so many records can fit into so many bytes."""
    if count < 0:
        raise Corrupt(f"a count of {count} records", kind="record")
    if count > size_bytes // MIN_RECORD_BYTES:
        raise Corrupt(f"{count} records do not fit into {size_bytes} bytes", kind="record")


def check_filled(position: i64, end: i64) -> None:
    """Raise Corrupt unless the last record ends at the end of the data."""
    if position != end:
        raise Corrupt(
            f"{end - position} bytes follow the last record",
            kind="record",
            trailing_bytes=end - position,
        )


def _decode_part(
    data: bytes,
    position: i64,
    *,
    end: i64,
    count: i64,
    base_offset: i64,
    base_timestamp_ms: i64,
    last_offset: int,
    part: Part,
) -> tuple[list[DecodedRecord], i64]:
    """Return the records that a page needs, and the position after all `count` records.

    The records are decoded in runs: how many are needed depends on their sizes and offsets.
    """
    previous: i64 = max(part.from_offset - base_offset, 0) - 1
    position, index = _pass_records(
        data, position, end=end, index=0, count=count, to_delta=previous + 1
    )
    out: list[DecodedRecord] = []
    while index < count and not _is_enough(out, part, last_offset):
        most = max(part.max_records + 1 - len(out), 1)
        run: i64 = min(most, max(len(out), SHORT_RUN), count - index)
        found, position = _decode_run(
            data,
            position,
            end=end,
            index=index,
            count=run,
            base_offset=base_offset,
            base_timestamp_ms=base_timestamp_ms,
            previous=previous,
        )
        if found:
            previous = found[-1][0] - base_offset
            out += found
        index += run
    position, _ = _pass_records(
        data, position, end=end, index=index, count=count, to_delta=NO_DELTA
    )
    return out, position


def _is_enough(found: list[DecodedRecord], part: Part, last_offset: int) -> bool:
    """Return whether the last of these records comes after the limits of the page, so that the page can end before."""
    if len(found) < 2 or found[-1][0] > last_offset:
        return False
    if len(found) > part.max_records:
        return True
    left_bytes = part.max_bytes
    for _, _, key, value, _ in found[:-1]:
        left_bytes -= len(key or b"") + len(value or b"")
    return left_bytes < 0


def _decode_run(
    data: bytes,
    position: i64,
    *,
    end: i64,
    index: i64,
    count: i64,
    base_offset: i64,
    base_timestamp_ms: i64,
    previous: i64,
) -> tuple[list[DecodedRecord], i64]:
    """Return the next `count` records, and the position after them. `index` is the number of the first, `previous` the
    offset delta that the next one must exceed.
    """
    out: list[DecodedRecord] = [NOT_YET] * count
    dropped: i64 = 0
    try:
        position, dropped = _decode_into(
            out,
            data,
            position,
            end=end,
            base_offset=base_offset,
            base_timestamp_ms=base_timestamp_ms,
            previous=previous,
        )
    except (IndexError, DataError) as cause:
        raise corrupt_record(cause, index + out.index(NOT_YET)) from cause
    if dropped:
        # Compare offsets, not identity: in compiled code a tuple is a new object each time it is read from a list.
        out = [found for found in out if found[0] >= 0]
    return out, position


def _decode_into(
    out: list[DecodedRecord],
    data: bytes,
    position: i64,
    *,
    end: i64,
    base_offset: i64,
    base_timestamp_ms: i64,
    previous: i64,
) -> tuple[i64, i64]:
    """Fill `out` from its start, so that on an error the caller sees how many records were decoded.

    Return the position after the records, and the number of records that are DROPPED.
    """
    none: Sequence[Header] = ()
    dropped: i64 = 0
    index: i64
    for index in range(len(out)):
        number, position = decode_varint(data, position)
        stop = position + number
        if stop > end:
            raise Corrupt(LONG_RECORD)
        position += 1
        number = data[position]
        if number < 0x80:
            number = (number >> 1) ^ -(number & 1)
            position += 1
        else:
            number, position = decode_varint(data, position)
        timestamp = base_timestamp_ms + number
        if not -NEAR <= timestamp <= NEAR:
            timestamp = wrap_timestamp(timestamp)
        number = data[position]
        if number < 0x80:
            number = (number >> 1) ^ -(number & 1)
            position += 1
        else:
            number, position = _decode_offset_delta(data, position)
        offset_delta = number
        key: bytes | None = None
        if data[position] == NULL_BYTE:
            position += 1
        else:
            key, position = decode_blob(data, position, stop)
        value, position = decode_blob(data, position, stop)
        headers = none
        if data[position] == 0:
            position += 1
        else:
            headers, position = _decode_headers(Cursor(data, position, stop))
        if position != stop:
            raise Corrupt(UNFILLED)
        if offset_delta > previous:
            previous = offset_delta
            out[index] = (base_offset + previous, timestamp, key, value, headers)
        else:
            out[index] = DROPPED
            dropped += 1
    return position, dropped


def _decode_offset_delta(data: bytes, position: i64) -> tuple[i64, i64]:
    number, position = decode_varint(data, position)
    if not -MAX_DELTA <= number <= MAX_DELTA:
        raise Corrupt(f"its offset delta {number} has more than 32 bits")
    return number, position


def _pass_records(
    data: bytes, position: i64, *, end: i64, index: i64, count: i64, to_delta: i64
) -> tuple[i64, i64]:
    """Check the records from `index` on, up to the first one with an offset delta of `to_delta` or more. Return the
    position and the index of that record, or of the end.
    """
    try:
        while index < count:
            following = scan_record(data, position, end)
            if following[1] >= to_delta:
                break
            position = following[0]
            index += 1
    except (IndexError, DataError) as cause:
        raise corrupt_record(cause, index) from cause
    return position, index


def check_records(
    data: bytes, position: i64, *, end: i64, count: i64, base_timestamp_ms: i64
) -> int:
    """Check the `count` records that fill `data[position:end]` exactly. Return their largest timestamp.

    The result is at least `NO_TIMESTAMP`. No record objects are created, so it needs no memory and less time than
    `decode_records`. Raises Corrupt as that function does, and if offset deltas are not 0, 1, 2 and so on, which
    LogValidator requires of a producer.
    """
    check_count(count, end - position)
    latest: i64 = NO_TIMESTAMP
    index: i64 = 0
    try:
        while index < count:
            position, offset_delta, time_delta, _ = scan_record(data, position, end)
            if offset_delta != index:
                raise Corrupt(f"its offset delta is {offset_delta}, it must be {index}")
            timestamp = base_timestamp_ms + time_delta
            if not -NEAR <= timestamp <= NEAR:
                timestamp = wrap_timestamp(timestamp)
            if timestamp > latest:
                latest = timestamp
            index += 1
    except (IndexError, DataError) as cause:
        raise corrupt_record(cause, index) from cause
    check_filled(position, end)
    return latest


def keyless(data: bytes, position: i64, *, end: i64, count: i64) -> list[int]:
    """Return the numbers of the records without a key, of the `count` records that fill `data[position:end]`.

    Raises Corrupt.
    """
    check_count(count, end - position)
    found: list[int] = []
    index: i64 = 0
    try:
        while index < count:
            position, _, _, fields_at = scan_record(data, position, end)
            if data[fields_at] == NULL_BYTE or decode_varint(data, fields_at)[0] < 0:
                found.append(index)
            index += 1
    except (IndexError, DataError) as cause:
        raise corrupt_record(cause, index) from cause
    return found


def scan_record(data: bytes, position: i64, end: i64) -> tuple[i64, i64, i64, i64]:
    """Check a record, but not its place among others. Return (next position, offset delta, timestamp delta, position of
    the key length).

    Raises Corrupt, Truncated, or IndexError if the data ends inside the record.
    """
    number: i64 = data[position]
    if number >= 0x80 and (group := data[position + 1]) < 0x80:
        number = number & 0x7F | group << 7
        number = (number >> 1) ^ -(number & 1)
        position += 2
    else:
        number, position = decode_varint(data, position)
    stop = position + number
    if stop > end:
        raise Corrupt(LONG_RECORD)
    time_delta: i64 = data[position + 1]
    if time_delta < 0x80:
        time_delta = (time_delta >> 1) ^ -(time_delta & 1)
        position += 2
    else:
        time_delta, position = decode_varint(data, position + 1)
    offset_delta: i64 = data[position]
    if offset_delta < 0x80:
        offset_delta = (offset_delta >> 1) ^ -(offset_delta & 1)
        position += 1
    else:
        offset_delta, position = _decode_offset_delta(data, position)
    fields_at = position
    if data[position] == NULL_BYTE:
        position += 1
    else:
        position = _skip_blob(data, position, stop)
    position = _skip_blob(data, position, stop)
    if data[position] == 0:
        position += 1
    else:
        position = _check_headers(data, position, stop)
    if position != stop:
        raise Corrupt(UNFILLED)
    return position, offset_delta, time_delta, fields_at


def _skip_blob(data: bytes, position: i64, stop: i64) -> i64:
    """Return the position after a blob, which must end at `stop` or before."""
    size_bytes, position = decode_varint(data, position)
    return _blob_end(position, size_bytes, stop)


def _blob_end(position: i64, size_bytes: i64, stop: i64) -> i64:
    if size_bytes < 0:
        return position
    if size_bytes > stop - position:
        raise Corrupt(f"a length of {size_bytes} reaches over the end")
    return position + size_bytes


def _check_headers(data: bytes, position: i64, stop: i64) -> i64:
    """Check headers as `_decode_headers` does. Return the position after them."""
    count, position = decode_varint(data, position)
    _check_header_count(count, stop - position)
    while count > 0:
        count -= 1
        size_bytes, start = decode_varint(data, position)
        if size_bytes < 0:
            raise Corrupt(NULL_NAME)
        position = _skip_blob(data, _blob_end(start, size_bytes, stop), stop)
    return position


def _check_header_count(count: i64, left_bytes: i64) -> None:
    if not 0 <= count <= left_bytes:
        raise Corrupt(f"its header count is {count}")


def _decode_headers(cursor: Cursor) -> tuple[Sequence[Header], i64]:
    """Return (the headers, the position after them)."""
    headers: list[Header] = []
    count = cursor.varint()
    _check_header_count(count, cursor.end - cursor.position)
    while count > 0:
        count -= 1
        name = cursor.blob()
        if name is None:
            raise Corrupt(NULL_NAME)
        headers.append((name.decode("utf-8", "replace"), cursor.blob()))
    return headers or (), cursor.position


def corrupt_record(cause: Exception, index: int) -> Corrupt:
    """Return the error for the record with this number; `cause` is what its decoding raised."""
    what = cause.message if isinstance(cause, Corrupt) else "it reaches over the end of the data"
    return Corrupt(f"record {index}: {what}", kind="record", record=index)
