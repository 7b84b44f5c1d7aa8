"""The 61 bytes before a batch's records, and what can be done to a batch by them alone.

Owns the header's fields, their plausibility, the CRC and the fields that the log's owner stamps; must not know records,
codecs or files. Source: DefaultRecordBatch of Kafka's clients.

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
"""

from __future__ import annotations

from struct import Struct
from struct import error as StructError
from typing import Final, NamedTuple, TypeAlias

from storage.coding.checksum import crc32c
from storage.errors import Corrupt, InvalidArgument, Truncated
from storage.kafka.format.compression import ZSTD

Buffer: TypeAlias = bytes | bytearray | memoryview

MAGIC: Final = 2
HEADER_SIZE: Final = 61
SIZE_BEFORE_LENGTH: Final = 12
"""The size of a batch is its length field and this."""
LEADER_EPOCH_POSITION: Final = 12
CRC_START: Final = 21
UNCOVERED_FIELDS: Final = 5
MIN_LENGTH: Final = HEADER_SIZE - SIZE_BEFORE_LENGTH
MAX_LENGTH: Final = (1 << 31) - 1
MAX_BASE_OFFSET: Final = (1 << 63) - 1 - (1 << 31)
"""Above this an offset of the batch could leave 64 bits."""
CODEC_MASK: Final = 0x07
LOG_APPEND_TIME: Final = 0x08
TRANSACTIONAL: Final = 0x10
CONTROL: Final = 0x20
DELETE_HORIZON: Final = 0x40
KNOWN_ATTRIBUTES: Final = 0x7F

MAX_SEQUENCE: Final = (1 << 31) - 1
"""The next sequence is 0."""

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
    def log_end(self) -> int:
        """Return where a log that ends with this batch goes on, so that no offset of its records is given again.

        That is `next_offset`, unless the last offset delta is too small for the count: then records have offsets
        behind it (Sarama before 1.16 wrote 0).
        """
        return self.base_offset + max(self.last_offset_delta + 1, self.count)

    @property
    def codec(self) -> int:
        """Index into `compression.CODECS`, which has no name for 5 to 7."""
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


def decode_header(data: Buffer, position: int = 0) -> BatchHeader:
    """The header at `position`; neither the CRC nor the rest of the batch is looked at.

    Raises Truncated where fewer than 61 bytes are there, Corrupt for values with which a batch has no place in a log.
    What else is odd in it (`check_offered`) keeps no broker from serving it, and is no sign of damage.
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
    """Whether a batch with a right CRC is at `position`, whole, whose header `decode_header` does not take."""
    if not 0 <= position <= len(data) - HEADER_SIZE:
        return False
    fields: tuple[int, ...] = _HEADER.unpack_from(data, position)
    header = _new_header(BatchHeader, fields)
    if header.magic != MAGIC or header.length < MIN_LENGTH:
        return False
    return position + header.size_bytes <= len(data) and check_crc(data, position, header)


def check_offered(header: BatchHeader, position: int) -> None:
    """Raise Corrupt for a batch that is not to be appended: a codec of a later version, a count that its offsets do
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
        field, found = "attributes", header.attributes
        expected = f"codec 0 to {ZSTD} in bits 0-2"
    return corrupt_batch(
        position, f"the {field} is {found}", field=field, expected=expected, found=f"{found}"
    )


def truncated_batch(position: int, needed: int) -> Truncated:
    """The error for a batch whose end is missing; `needed` bytes are, from `position` on."""
    return Truncated(
        f"the data ends inside the batch at {position}",
        kind="batch",
        position=position,
        needed=needed,
    )


def corrupt_batch(position: int, what: str, **facts: object) -> Corrupt:
    """The error for a batch that breaks the format."""
    return Corrupt(f"batch at {position}: {what}", kind="batch", position=position, **facts)


def check_crc(data: Buffer, position: int, header: BatchHeader) -> bool:
    """Whether the CRC of the whole batch at `position` is right. Raises Truncated where its end is missing."""
    stop = position + SIZE_BEFORE_LENGTH + header.length
    if stop > len(data):
        raise truncated_batch(position, header.size_bytes)
    return crc32c(memoryview(data)[position + CRC_START : stop]) == header.crc


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
    _BASE_OFFSET.pack_into(buffer, position, base_offset)
    _LEADER_EPOCH.pack_into(buffer, position + LEADER_EPOCH_POSITION, leader_epoch)


def restamp_append_time(buffer: bytearray, position: int, timestamp_ms: int) -> None:
    """Make the batch at `position` one of LogAppendTime. What is in the records stays; the CRC is made anew.

    Raises as `decode_header`, and Truncated where the batch's end is missing.
    """
    header = decode_header(buffer, position)
    attributes = header.attributes | LOG_APPEND_TIME
    _reseal(buffer, position, header._replace(attributes=attributes, max_timestamp=timestamp_ms))


def restamp_latest(buffer: bytearray, position: int, timestamp_ms: int) -> None:
    """Let the batch at `position` say that this is its largest timestamp; the CRC is made anew.

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
