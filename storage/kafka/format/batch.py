"""A record batch (version 2): what a `.log` file is a plain run of, and what a producer sends.

Owns the batch's header, CRC, framing and the markers of transactions; leaves records to `record` and codecs to
`compression`, and must not know about files. Sources: DefaultRecordBatch, EndTransactionMarker of Kafka's clients.

    position  bytes  field              note
    0         8      base offset        not covered by the CRC: the log's owner stamps it
    8         4      length             of what follows this field; not covered
    12        4      leader epoch       not covered
    16        1      magic              2; not covered
    17        4      CRC-32C            of everything from byte 21 to the end
    21        2      attributes         bits 0-2 codec, 3 LogAppendTime, 4 transactional, 5 control, 6 delete horizon
    23        4      last offset delta  next offset = base offset + this + 1, also where compaction took records out
    27        8      base timestamp     the first record's, or (bit 6) the delete horizon; record times count from it
    35        8      max timestamp      with LogAppendTime every record's timestamp
    43        8      producer id        -1: none
    51        2      producer epoch     -1: none
    53        4      base sequence      -1: none; wraps from 2^31 - 1 to 0
    57        4      count              of records; below last offset delta + 1 after compaction, 0 in an emptied batch
    61        n      records            as they are, or one compressed block

The one record of a control batch: key = i16 version 0, i16 type (0 abort, 1 commit; others are the controller's), value
of a marker = i16 version 0, i32 coordinator epoch.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from struct import error as StructError
from typing import Final, NamedTuple, TypeAlias

from storage.coding.checksum import crc32c
from storage.errors import Corrupt, DataError, InvalidArgument, RecordTooLarge, Truncated
from storage.kafka.format import record
from storage.kafka.format.compression import ZSTD, compress, decompress
from storage.kafka.format.record import DecodedRecord, NewRecord

Buffer: TypeAlias = bytes | bytearray | memoryview

MAGIC: Final = 2
HEADER_SIZE: Final = 61
SIZE_BEFORE_LENGTH: Final = 12
"""The size of a batch is its length field and this."""
CRC_START: Final = 21
UNCOVERED_FIELDS: Final = 5
MIN_LENGTH: Final = HEADER_SIZE - SIZE_BEFORE_LENGTH
MAX_LENGTH: Final = (1 << 31) - 1
MAX_BASE_OFFSET: Final = (1 << 63) - 1 - (1 << 31)
"""Above this an offset of the batch could leave 64 bits."""
DEFAULT_MAX_BYTES: Final = 1 << 28
"""What a batch's records may measure after decompression, unless the caller says otherwise."""

CODEC_MASK: Final = 0x07
LOG_APPEND_TIME: Final = 0x08
TRANSACTIONAL: Final = 0x10
CONTROL: Final = 0x20
DELETE_HORIZON: Final = 0x40
KNOWN_ATTRIBUTES: Final = 0x7F

MAX_SEQUENCE: Final = (1 << 31) - 1
"""The next sequence is 0."""

ABORT: Final = 0
COMMIT: Final = 1

_UNCOVERED: Final = Struct(
    ">"
    "q"  # base offset
    "i"  # length
    "i"  # leader epoch
    "b"  # magic
    "I"  # CRC-32C
)
assert _UNCOVERED.size == CRC_START
_COVERED: Final = Struct(
    ">"
    "h"  # attributes
    "i"  # last offset delta
    "q"  # base timestamp
    "q"  # max timestamp
    "q"  # producer id
    "h"  # producer epoch
    "i"  # base sequence
    "i"  # count
)
assert _COVERED.size == HEADER_SIZE - CRC_START
_HEADER: Final = Struct(_UNCOVERED.format + _COVERED.format.removeprefix(">"))
assert _HEADER.size == HEADER_SIZE
_STAMP: Final = Struct(
    ">"
    "q"  # base offset
    "i"  # length
    "i"  # leader epoch
)
assert _STAMP.size == SIZE_BEFORE_LENGTH + 4
_WALK: Final = Struct(
    ">"
    "q"  # base offset
    "i"  # length
    "4x"
    "b"  # magic
    "6x"
    "i"  # last offset delta
)
assert _WALK.size == 27
_CONTROL_KEY: Final = Struct(
    ">"
    "h"  # version
    "h"  # type
)
assert _CONTROL_KEY.size == 4
_MARKER: Final = Struct(
    ">"
    "h"  # version
    "i"  # coordinator epoch
)
assert _MARKER.size == 6


class BatchHeader(NamedTuple):
    """The 61 bytes in wire order; `length`, `crc` and all else as stored."""

    base_offset: int
    length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    count: int  # type: ignore[assignment]  # hides tuple.count, which nobody needs here

    @property
    def size_bytes(self) -> int:
        """Of the whole batch."""
        return SIZE_BEFORE_LENGTH + self.length

    @property
    def last_offset(self) -> int:
        """The last offset that the batch takes up, whether or not its record is still there."""
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        """The offset behind the batch."""
        return self.base_offset + self.last_offset_delta + 1

    @property
    def codec(self) -> int:
        """Index into `compression.CODECS`."""
        return self.attributes & CODEC_MASK

    @property
    def is_log_append_time(self) -> bool:
        """Every record's timestamp is `max_timestamp`."""
        return self.attributes & LOG_APPEND_TIME != 0

    @property
    def is_transactional(self) -> bool:
        """Part of a transaction, or its marker."""
        return self.attributes & TRANSACTIONAL != 0

    @property
    def is_control(self) -> bool:
        """Holds a marker (or a record of the controller), never a user's record."""
        return self.attributes & CONTROL != 0

    @property
    def has_delete_horizon(self) -> bool:
        """`base_timestamp` is the time from which compaction may drop the batch's tombstones or marker."""
        return self.attributes & DELETE_HORIZON != 0

    @property
    def last_sequence(self) -> int:
        """The producer's sequence of the last offset, wrapping from 2^31 - 1 to 0; -1 without a sequence."""
        if self.base_sequence < 0:
            return -1
        return (self.base_sequence + self.last_offset_delta) & MAX_SEQUENCE


_new_header: Final = tuple.__new__
"""`BatchHeader._make` without its length check, in half the time."""


class ControlMarker(NamedTuple):
    """What a control batch says. `coordinator_epoch` is -1 for types other than `ABORT` and `COMMIT`."""

    type: int
    coordinator_epoch: int
    timestamp_ms: int


def decode_header(data: Buffer, position: int = 0) -> BatchHeader:
    """The header at `position`; neither the CRC nor the rest of the batch is looked at.

    Raises Truncated where fewer than 61 bytes are there, Corrupt for values that no batch can have.
    """
    if not 0 <= position <= len(data) - HEADER_SIZE:
        raise _truncated(position, HEADER_SIZE)
    header = _new_header(BatchHeader, _HEADER.unpack_from(data, position))
    base_offset: int = header[0]
    length: int = header[1]
    magic: int = header[3]
    attributes: int = header[5]
    last_offset_delta: int = header[6]
    count: int = header[12]
    if (
        magic != MAGIC
        or length < MIN_LENGTH
        or not 0 <= base_offset <= MAX_BASE_OFFSET
        or not 0 <= attributes <= KNOWN_ATTRIBUTES
        or attributes & CODEC_MASK > ZSTD
        or last_offset_delta < 0
        or not 0 <= count <= last_offset_delta + 1
    ):
        raise _implausible(header, position)
    return header


def _implausible(header: BatchHeader, position: int) -> Corrupt:
    if header.magic != MAGIC:
        field, expected, found = "magic", f"{MAGIC}", header.magic
    elif header.length < MIN_LENGTH:
        field, expected, found = "length", f"at least {MIN_LENGTH}", header.length
    elif not 0 <= header.base_offset <= MAX_BASE_OFFSET:
        field, expected, found = "base offset", f"0 to {MAX_BASE_OFFSET}", header.base_offset
    elif header.last_offset_delta < 0:
        field, expected, found = "last offset delta", "0 or more", header.last_offset_delta
    elif not 0 <= header.count <= header.last_offset_delta + 1:
        field, found = "count", header.count
        expected = f"0 to {header.last_offset_delta + 1}"
    else:
        field, found = "attributes", header.attributes
        expected = f"bits of {KNOWN_ATTRIBUTES:#x}, codec 0 to {ZSTD}"
    return _corrupt(
        position, f"the {field} is {found}", field=field, expected=expected, found=f"{found}"
    )


def _truncated(position: int, needed: int) -> Truncated:
    return Truncated(
        f"the data ends inside the batch at {position}",
        kind="batch",
        position=position,
        needed=needed,
    )


def _corrupt(position: int, what: str, **facts: object) -> Corrupt:
    return Corrupt(f"batch at {position}: {what}", kind="batch", position=position, **facts)


def check_crc(data: Buffer, position: int, header: BatchHeader) -> bool:
    """Whether the CRC of the whole batch at `position` is right. Raises Truncated where its end is missing."""
    stop = position + SIZE_BEFORE_LENGTH + header.length
    if stop > len(data):
        raise _truncated(position, header.size_bytes)
    return crc32c(memoryview(data)[position + CRC_START : stop]) == header.crc


def split_batches(data: Buffer) -> list[tuple[int, BatchHeader]]:
    """(position, header) of every batch in `data`, which they fill: each header and each CRC is right.

    Raises Truncated where the last batch's end is missing, Corrupt for the first one that is wrong.
    """
    found: list[tuple[int, BatchHeader]] = []
    view = memoryview(data)
    end = len(data)
    position = 0
    while position < end:
        header = decode_header(data, position)
        stop = position + SIZE_BEFORE_LENGTH + header.length
        if stop > end:
            raise _truncated(position, header.size_bytes)
        crc = crc32c(view[position + CRC_START : stop])
        if crc != header.crc:
            raise _corrupt(
                position,
                "the CRC is wrong",
                field="crc",
                expected=f"{header.crc:08x}",
                found=f"{crc:08x}",
            )
        found.append((position, header))
        position = stop
    return found


def scan_headers(data: Buffer, position: int, end: int) -> list[tuple[int, int, int, int]]:
    """(position, base offset, next offset, size in bytes) of each batch in `data[position:end]`.

    Ends, without an error, at one that is cut, has an implausible header or does not lie behind the one before. CRCs
    are not checked.
    """
    found: list[tuple[int, int, int, int]] = []
    end = min(end, len(data))
    lowest_offset = 0
    while position + HEADER_SIZE <= end:
        walked: tuple[int, int, int, int] = _WALK.unpack_from(data, position)
        base_offset, length, magic, last_offset_delta = walked
        stop = position + SIZE_BEFORE_LENGTH + length
        if (
            magic != MAGIC
            or length < MIN_LENGTH
            or stop > end
            or last_offset_delta < 0
            or not lowest_offset <= base_offset <= MAX_BASE_OFFSET
        ):
            break
        lowest_offset = base_offset + last_offset_delta + 1
        found.append((position, base_offset, lowest_offset, stop - position))
        position = stop
    return found


def stamp(buffer: bytearray, position: int, *, base_offset: int, leader_epoch: int) -> None:
    """Give the batch at `position` its place in the log; the CRC does not cover these fields."""
    _, length, _ = _STAMP.unpack_from(buffer, position)
    _STAMP.pack_into(buffer, position, base_offset, length, leader_epoch)


def restamp_append_time(buffer: bytearray, position: int, timestamp_ms: int) -> None:
    """Make the batch at `position` one of LogAppendTime. What is in the records stays; the CRC is made anew.

    Raises as `decode_header`, and Truncated where the batch's end is missing.
    """
    header = decode_header(buffer, position)
    stop = position + header.size_bytes
    if stop > len(buffer):
        raise _truncated(position, header.size_bytes)
    header = header._replace(
        attributes=header.attributes | LOG_APPEND_TIME, max_timestamp=timestamp_ms
    )
    with memoryview(buffer) as view:
        sealed = _seal(header, view[position + HEADER_SIZE : stop])
    buffer[position : position + HEADER_SIZE] = sealed


def _seal(header: BatchHeader, payload: Buffer) -> bytes:
    """The header's bytes with the length and CRC that belong to `payload`, the bytes behind it."""
    try:
        covered = _COVERED.pack(*header[UNCOVERED_FIELDS:])
        crc = crc32c(payload, crc32c(covered))
        uncovered = _UNCOVERED.pack(
            header.base_offset, MIN_LENGTH + len(payload), header.leader_epoch, MAGIC, crc
        )
    except StructError as cause:
        raise InvalidArgument(
            f"a field of the batch header is out of range: {cause}", field="batch"
        ) from cause
    return uncovered + covered


def encode_batch(
    records: Sequence[NewRecord],
    *,
    base_offset: int,
    leader_epoch: int,
    now_ms: int,
    codec: int = 0,
    log_append_time: bool = False,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    transactional: bool = False,
) -> bytes:
    """One batch of (key, value, headers, timestamp_ms or None, ...) records, as a producer and its broker make it.

    A timestamp of None is `now_ms`; with `log_append_time` it is every record's time, whatever theirs are. Raises
    UnrepresentableRecord, RecordTooLarge for a batch of 2 GiB, InvalidArgument for no record or a field out of range.
    """
    listed = records if isinstance(records, list) else list(records)
    if not listed:
        raise InvalidArgument("a batch needs at least one record", field="records")
    first: int | None = listed[0][3]
    base_timestamp = now_ms if first is None else first
    payload, latest = record.encode_records(listed, base_timestamp_ms=base_timestamp, now_ms=now_ms)
    if codec:
        payload = compress(codec, payload)
    if len(payload) > MAX_LENGTH - MIN_LENGTH:
        raise RecordTooLarge(
            f"the batch has {len(payload)} bytes of records, the format allows {MAX_LENGTH - MIN_LENGTH}",
            size_bytes=len(payload),
            limit_bytes=MAX_LENGTH - MIN_LENGTH,
        )
    header = BatchHeader(
        base_offset=base_offset,
        length=0,
        leader_epoch=leader_epoch,
        magic=MAGIC,
        crc=0,
        attributes=codec
        | (LOG_APPEND_TIME if log_append_time else 0)
        | (TRANSACTIONAL if transactional else 0),
        last_offset_delta=len(listed) - 1,
        base_timestamp=base_timestamp,
        max_timestamp=now_ms if log_append_time else latest,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        count=len(listed),
    )
    return b"".join([_seal(header, payload), payload])


def decode_records(
    data: bytes, position: int = 0, *, max_bytes: int = DEFAULT_MAX_BYTES
) -> list[DecodedRecord]:
    """(offset, timestamp_ms, key, value, headers) of the batch at `position`; the CRC is not checked.

    A control batch gives its raw record. Raises Truncated where the batch's end is missing, Corrupt for what breaks the
    format and for compressed records that would measure more than `max_bytes`.
    """
    header = decode_header(data, position)
    stop = position + header.size_bytes
    if stop > len(data):
        raise _truncated(position, header.size_bytes)
    start = position + HEADER_SIZE
    try:
        if header.codec:
            data = decompress(header.codec, data[start:stop], max_bytes)
            start, stop = 0, len(data)
        found = record.decode_records(
            data,
            start,
            end=stop,
            count=header.count,
            base_offset=header.base_offset,
            last_offset_delta=header.last_offset_delta,
            base_timestamp_ms=header.base_timestamp,
        )
    except DataError as fault:
        raise _corrupt(position, fault.message) from fault
    if header.is_log_append_time:
        time = header.max_timestamp
        return [(offset, time, key, value, headers) for offset, _, key, value, headers in found]
    return found


def encode_control_batch(
    *,
    commit: bool,
    coordinator_epoch: int,
    producer_id: int,
    producer_epoch: int,
    base_offset: int,
    leader_epoch: int,
    timestamp_ms: int,
) -> bytes:
    """The marker that ends a transaction, as the coordinator lets it be written."""
    key = _CONTROL_KEY.pack(0, COMMIT if commit else ABORT)
    value = _MARKER.pack(0, coordinator_epoch)
    payload, _ = record.encode_records(
        [(key, value, (), timestamp_ms)], base_timestamp_ms=timestamp_ms, now_ms=timestamp_ms
    )
    header = BatchHeader(
        base_offset=base_offset,
        length=0,
        leader_epoch=leader_epoch,
        magic=MAGIC,
        crc=0,
        attributes=TRANSACTIONAL | CONTROL,
        last_offset_delta=0,
        base_timestamp=timestamp_ms,
        max_timestamp=timestamp_ms,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=-1,
        count=1,
    )
    return _seal(header, payload) + payload


def decode_control(data: bytes, position: int = 0) -> ControlMarker | None:
    """What the control batch at `position` says; None for one that compaction has emptied.

    Raises as `decode_records`, and Corrupt for a batch that is none or a key or value of another shape.
    """
    records = decode_records(data, position)
    if not decode_header(data, position).is_control:
        raise _corrupt(position, "it is no control batch")
    if not records:
        return None
    _, timestamp_ms, key, value, _ = records[0]
    if key is None or len(key) < _CONTROL_KEY.size:
        raise _corrupt(position, "the control record's key is too short")
    _, kind = _CONTROL_KEY.unpack_from(key)
    if kind not in (ABORT, COMMIT):
        return ControlMarker(kind, -1, timestamp_ms)
    if value is None or len(value) < _MARKER.size:
        raise _corrupt(position, "the marker's value is too short")
    _, coordinator_epoch = _MARKER.unpack_from(value)
    return ControlMarker(kind, coordinator_epoch, timestamp_ms)
