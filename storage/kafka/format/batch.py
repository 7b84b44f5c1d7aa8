"""A record batch (version 2): the unit that a `.log` file is a plain sequence of, and that a producer sends.

Owns the header of 61 bytes, its plausibility checks, the CRC and the fields that the log's owner stamps; the
combination of header and records, in both directions; the markers of transactions. Leaves the records to `record`, the
codecs to `compression`; must not know about files. Sources: DefaultRecordBatch, ControlRecordType and
EndTransactionMarker of Kafka's clients.

    position  bytes  field              note
    0         8      base offset        not covered by the CRC: the log's owner stamps it
    8         4      length             of what follows this field; not covered
    12        4      leader epoch       not covered, stamped too
    16        1      magic              2; not covered
    17        4      CRC-32C            of everything from byte 21 to the batch's end
    21        2      attributes         bits 0-2 codec, 3 LogAppendTime, 4 transactional, 5 control, 6 delete horizon;
                                           others are ignored (KNOWN_ATTRIBUTES)
    23        4      last offset delta  next offset = base offset + this + 1, also where compaction took records out;
                                           some producers wrote 0 whatever the count
    27        8      base timestamp     the first record's, or (bit 6) the delete horizon; record times count from it
    35        8      max timestamp      with LogAppendTime every record's timestamp
    43        8      producer id        -1: none
    51        2      producer epoch     -1: none
    53        4      base sequence      -1: none; wraps from 2^31 - 1 to 0
    57        4      count              of records; below last offset delta + 1 after compaction, 0 in an emptied batch
    61        n      records            as they are, or one compressed block

The one record of a control batch:

    position  bytes  field              note
    0         2      key: version       0
    2         2      key: type          0 abort, 1 commit; others are the controller's
    0         2      value: version     0; of a marker
    2         4      coordinator epoch
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from struct import error as StructError
from typing import Final, NamedTuple, TypeAlias

from storage.coding.checksum import crc32c
from storage.errors import Corrupt, DataError, InvalidArgument, RecordTooLarge, Truncated
from storage.kafka.format import record
from storage.kafka.format.compression import ZSTD, check_for_clients, compress, decompress
from storage.kafka.format.record import DecodedRecord, NewRecord, Part

Buffer: TypeAlias = bytes | bytearray | memoryview

MAGIC: Final = 2
HEADER_SIZE: Final = 61
SIZE_BEFORE_LENGTH: Final = 12
"""The size of a batch is this plus its length field."""
LEADER_EPOCH_POSITION: Final = 12
CRC_START: Final = 21
LOW_ATTRIBUTES: Final = CRC_START + 1
"""The second byte of the attributes, which has all that are defined."""
UNCOVERED_FIELDS: Final = 5
MIN_LENGTH: Final = HEADER_SIZE - SIZE_BEFORE_LENGTH
MAX_LENGTH: Final = (1 << 31) - 1
MAX_BASE_OFFSET: Final = (1 << 63) - 1 - (1 << 31)
"""Above this base offset, an offset of the batch could exceed 64 bits."""
CODEC_MASK: Final = 0x07
LOG_APPEND_TIME: Final = 0x08
TRANSACTIONAL: Final = 0x10
CONTROL: Final = 0x20
DELETE_HORIZON: Final = 0x40
KNOWN_ATTRIBUTES: Final = 0x7F

MAX_SEQUENCE: Final = (1 << 31) - 1
"""The sequence number after this is 0."""

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
_BASE_OFFSET: Final = Struct(">q")
assert _BASE_OFFSET.size == 8
_LEADER_EPOCH: Final = Struct(">i")
assert _LEADER_EPOCH.size == 4
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

DEFAULT_MAX_BYTES: Final = 256 << 20
"""The default limit for the size of a batch's records after decompression."""

ABORT: Final = 0
COMMIT: Final = 1

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
    """The 61 bytes in wire order; `length`, `crc` and all other fields as stored."""

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
    count: int  # type: ignore[assignment]  # hides tuple.count, which no caller needs

    @property
    def size_bytes(self) -> int:
        """The size of the whole batch."""
        return SIZE_BEFORE_LENGTH + self.length

    @property
    def last_offset(self) -> int:
        """The last offset that the batch occupies, whether or not its record still exists."""
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        """The offset after the batch."""
        return self.base_offset + self.last_offset_delta + 1

    @property
    def log_end(self) -> int:
        """The end of a log that ends with this batch: every record of the batch has a lower offset.

        That is `next_offset`, unless the last offset delta is too small for the count. Then records have offsets at or
        above `next_offset` (Sarama before 1.16 wrote 0).
        """
        return self.base_offset + max(self.last_offset_delta + 1, self.count)

    @property
    def codec(self) -> int:
        """The index into `compression.CODECS`, which has no name for 5 to 7."""
        return self.attributes & CODEC_MASK

    @property
    def is_log_append_time(self) -> bool:
        """Whether every record's timestamp is `max_timestamp`."""
        return self.attributes & LOG_APPEND_TIME != 0

    @property
    def is_transactional(self) -> bool:
        """Whether the batch is part of a transaction, or its marker."""
        return self.attributes & TRANSACTIONAL != 0

    @property
    def is_control(self) -> bool:
        """Whether the batch holds a marker (or a record of the controller), never a user's record."""
        return self.attributes & CONTROL != 0

    @property
    def has_delete_horizon(self) -> bool:
        """Whether `base_timestamp` is the time from which compaction may drop the batch's tombstones or marker."""
        return self.attributes & DELETE_HORIZON != 0

    @property
    def last_sequence(self) -> int:
        """The producer's sequence number of the last offset, wrapping from 2^31 - 1 to 0; -1 without a sequence."""
        if self.base_sequence < 0:
            return -1
        return (self.base_sequence + self.last_offset_delta) & MAX_SEQUENCE


_new_header: Final = tuple.__new__
"""`BatchHeader._make` without its length check, in half the time."""


def decode_header(data: Buffer, position: int = 0) -> BatchHeader:
    """Decode the header at `position`; neither the CRC nor the rest of the batch is checked.

    Raises Truncated if there are fewer than 61 bytes, Corrupt for values that no batch in a log can have. Other unusual
    values (`check_offered`) do not keep a broker from serving the batch, and are no sign of damage.
    """
    if not 0 <= position <= len(data) - HEADER_SIZE:
        raise truncated_batch(position, HEADER_SIZE)
    fields: tuple[int, ...] = _HEADER.unpack_from(data, position)
    header = _new_header(BatchHeader, fields)
    base_offset, length, _, magic, _, _, last_offset_delta, _, _, _, _, _, _ = fields
    if (
        magic != MAGIC
        or length < MIN_LENGTH
        or not 0 <= base_offset <= MAX_BASE_OFFSET
        or last_offset_delta < 0
    ):
        raise _implausible(header, position)
    return header


def is_whole_misfit(data: Buffer, position: int) -> bool:
    """Whether a complete batch with a correct CRC is at `position`, though `decode_header` may reject its header."""
    if not 0 <= position <= len(data) - HEADER_SIZE:
        return False
    fields: tuple[int, ...] = _HEADER.unpack_from(data, position)
    header = _new_header(BatchHeader, fields)
    if header.magic != MAGIC or header.length < MIN_LENGTH:
        return False
    return position + header.size_bytes <= len(data) and check_crc(data, position, header)


def check_offered(header: BatchHeader, position: int) -> None:
    """Raise Corrupt for a batch that must not be appended: a codec of a later version, or a count that its offsets do
    not allow.
    """
    if header.attributes & CODEC_MASK > ZSTD or not 0 <= header.count <= (
        header.last_offset_delta + 1
    ):
        raise _implausible(header, position)


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
        return corrupt_batch(
            position,
            f"the codec in the attributes is {header.codec}",
            field="codec",
            expected=f"0 to {ZSTD}",
            found=f"{header.attributes}",
        )
    return corrupt_batch(
        position, f"the {field} is {found}", field=field, expected=expected, found=f"{found}"
    )


def truncated_batch(position: int, needed: int) -> Truncated:
    """Return the error for an incomplete batch, which needs `needed` bytes from `position` on."""
    return Truncated(
        f"the data ends inside the batch at {position}",
        kind="batch",
        position=position,
        needed=needed,
    )


def corrupt_batch(position: int, what: str, **facts: object) -> Corrupt:
    """Return the error for a batch that violates the format."""
    return Corrupt(f"batch at {position}: {what}", kind="batch", position=position, **facts)


def is_marked_transactional(data: Buffer) -> bool:
    """Return whether the first batch has the attribute of a transaction, without a check of its header."""
    return len(data) > LOW_ATTRIBUTES and data[LOW_ATTRIBUTES] & TRANSACTIONAL != 0


def check_crc(data: Buffer, position: int, header: BatchHeader) -> bool:
    """Whether the CRC of the whole batch at `position` is right. Raises Truncated if the batch is incomplete."""
    stop = position + SIZE_BEFORE_LENGTH + header.length
    if stop > len(data):
        raise truncated_batch(position, header.size_bytes)
    return crc32c(memoryview(data)[position + CRC_START : stop]) == header.crc


def scan_headers(data: Buffer, position: int, end: int) -> list[tuple[int, int, int, int]]:
    """Return (position, base offset, next offset, size in bytes) of each batch in `data[position:end]`.

    Stops, without an error, at a batch that is incomplete, has an implausible header, or begins below the next offset
    of the batch before it. CRCs are not checked.
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
    """Write base offset and leader epoch into the batch at `position`; the CRC does not cover these fields."""
    _BASE_OFFSET.pack_into(buffer, position, base_offset)
    _LEADER_EPOCH.pack_into(buffer, position + LEADER_EPOCH_POSITION, leader_epoch)


def restamp_append_time(buffer: bytearray, position: int, timestamp_ms: int) -> None:
    """Convert the batch at `position` to LogAppendTime: set the attribute and the max timestamp, recompute the CRC.

    The records do not change. Raises as `decode_header`, and Truncated if the batch is incomplete.
    """
    header = decode_header(buffer, position)
    attributes = header.attributes | LOG_APPEND_TIME
    _reseal(buffer, position, header._replace(attributes=attributes, max_timestamp=timestamp_ms))


def restamp_latest(buffer: bytearray, position: int, timestamp_ms: int) -> None:
    """Set the max timestamp of the batch at `position`, and recompute the CRC.

    Raises as `restamp_append_time`.
    """
    header = decode_header(buffer, position)
    _reseal(buffer, position, header._replace(max_timestamp=timestamp_ms))


def _reseal(buffer: bytearray, position: int, header: BatchHeader) -> None:
    stop = position + header.size_bytes
    if stop > len(buffer):
        raise truncated_batch(position, header.size_bytes)
    payload = memoryview(buffer)[position + HEADER_SIZE : stop]
    buffer[position : position + HEADER_SIZE] = seal(header, payload)


def seal(header: BatchHeader, payload: Buffer) -> bytes:
    """Return the header's bytes with the length and CRC for `payload`, the bytes after the header."""
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


class ControlMarker(NamedTuple):
    """The content of a control batch. `coordinator_epoch` is -1 for types other than `ABORT` and `COMMIT`."""

    type: int
    coordinator_epoch: int
    timestamp_ms: int


def split_batches(data: Buffer, *, with_crc: bool = True) -> list[tuple[int, BatchHeader]]:
    """Return (position, header) of every batch in `data`, which must hold complete batches and nothing else.

    Checks every header and, `with_crc`, every CRC. Raises Truncated if the last batch is incomplete, Corrupt for the
    first invalid batch.
    """
    found: list[tuple[int, BatchHeader]] = []
    view = memoryview(data)
    end = len(data)
    position = 0
    while position < end:
        header = decode_header(data, position)
        stop = position + SIZE_BEFORE_LENGTH + header.length
        if stop > end:
            raise truncated_batch(position, header.size_bytes)
        crc = crc32c(view[position + CRC_START : stop]) if with_crc else header.crc
        if crc != header.crc:
            raise corrupt_batch(
                position,
                "the CRC is wrong",
                field="crc",
                expected=f"{header.crc:08x}",
                found=f"{crc:08x}",
            )
        found.append((position, header))
        position = stop
    return found


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
    """Encode a batch of (key, value, headers, timestamp_ms or None, ...) records, as a producer and its broker do.

    A timestamp of None means `now_ms`. With `log_append_time`, `now_ms` is the time of every record, whatever its own.

    Raises UnrepresentableRecord, RecordTooLarge for a batch of 2 GiB, InvalidArgument for no record or a field out of
    range.
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
    return b"".join([seal(header, payload), payload])


def decode_records(
    data: bytes,
    position: int = 0,
    *,
    max_bytes: int = DEFAULT_MAX_BYTES,
    header: BatchHeader | None = None,
    part: Part | None = None,
) -> list[DecodedRecord]:
    """Return (offset, timestamp_ms, key, value, headers) of the batch's records. The CRC is not checked.

    The batch begins at `position`. Offsets rise; records that Kafka's consumer drops are left out (see
    `record.decode_records`). A caller that has the header passes it as `header`, so that it is not decoded again. For
    a control batch, returns its raw record. With `part`, records that a page does not need are only checked.

    Raises Truncated if the batch is incomplete. Raises Corrupt for a violation of the format, and for compressed
    records that would exceed `max_bytes`.
    """
    if header is None:
        header = decode_header(data, position)
    _check_end(data, position, header)
    try:
        content, start, stop = content_of(data, position, header, max_bytes)
        found = record.decode_records(
            content,
            start,
            end=stop,
            count=header.count,
            base_offset=header.base_offset,
            base_timestamp_ms=header.base_timestamp,
            last_offset=header.base_offset + header.last_offset_delta,
            part=part,
        )
    except DataError as fault:
        trailing_bytes = fault.facts().get("trailing_bytes", 0)
        raise corrupt_batch(position, fault.message, trailing_bytes=trailing_bytes) from fault
    if header.is_log_append_time:
        time = header.max_timestamp
        return [(offset, time, key, value, headers) for offset, _, key, value, headers in found]
    return found


def check_records(
    data: bytes, position: int, header: BatchHeader, *, max_bytes: int = DEFAULT_MAX_BYTES
) -> int:
    """Check every record of a producer's batch. Return the largest timestamp.

    Raises as `decode_records`, and Corrupt for what only a producer must not send: offset deltas with gaps, and blocks
    that Kafka's clients cannot read.
    """
    _check_end(data, position, header)
    try:
        content, start, stop = content_of(data, position, header, max_bytes)
        check_for_clients(header.codec, data, position + HEADER_SIZE)
        latest = record.check_records(
            content,
            start,
            end=stop,
            count=header.count,
            base_timestamp_ms=header.base_timestamp,
        )
    except DataError as fault:
        raise corrupt_batch(position, fault.message) from fault
    return header.max_timestamp if header.is_log_append_time else latest


def keyless(
    data: bytes, position: int, header: BatchHeader, *, max_bytes: int = DEFAULT_MAX_BYTES
) -> list[int]:
    """Return the numbers of the records without a key. Raises as `decode_records`."""
    _check_end(data, position, header)
    try:
        content, start, stop = content_of(data, position, header, max_bytes)
        return record.keyless(content, start, end=stop, count=header.count)
    except DataError as fault:
        raise corrupt_batch(position, fault.message) from fault


def _check_end(data: bytes, position: int, header: BatchHeader) -> None:
    if position + header.size_bytes > len(data):
        raise truncated_batch(position, header.size_bytes)


def content_of(
    data: bytes, position: int, header: BatchHeader, max_bytes: int = DEFAULT_MAX_BYTES
) -> tuple[bytes, int, int]:
    """Return (bytes, start, stop) of the records, decompressed if the batch has a codec. Raises Corrupt."""
    start, stop = position + HEADER_SIZE, position + SIZE_BEFORE_LENGTH + header.length
    if not header.codec:
        return data, start, stop
    content = decompress(header.codec, data[start:stop], max_bytes)
    return content, 0, len(content)


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
    """Encode the marker that ends a transaction, as the coordinator requests it.

    Raises InvalidArgument for a field out of range, UnrepresentableRecord for a time outside 64 bits.
    """
    key = _CONTROL_KEY.pack(0, COMMIT if commit else ABORT)
    if not -1 << 31 <= coordinator_epoch < 1 << 31:
        raise InvalidArgument(
            f"coordinator epoch {coordinator_epoch} does not fit into 32 bits", field="batch"
        )
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
    return seal(header, payload) + payload


def decode_control(data: bytes, position: int = 0) -> ControlMarker | None:
    """Return the content of the control batch at `position`; None for a batch that compaction has emptied.

    Raises as `decode_records`, and Corrupt for a batch that is not a control batch, or has a key or value of another
    shape.
    """
    header = decode_header(data, position)
    if not header.is_control:
        raise corrupt_batch(position, "it is no control batch")
    records = decode_records(data, position, header=header)
    if not records:
        return None
    _, timestamp_ms, key, value, _ = records[0]
    if key is None or len(key) < _CONTROL_KEY.size:
        raise corrupt_batch(position, "the control record's key is too short")
    _, kind = _CONTROL_KEY.unpack_from(key)
    if kind not in (ABORT, COMMIT):
        return ControlMarker(kind, -1, timestamp_ms)
    if value is None or len(value) < _MARKER.size:
        raise corrupt_batch(position, "the marker's value is too short")
    _, coordinator_epoch = _MARKER.unpack_from(value)
    return ControlMarker(kind, coordinator_epoch, timestamp_ms)
