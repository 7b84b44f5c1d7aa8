"""Walking a `.log` file batch by batch, over damage too.

Owns the question "is this a good batch, and if not, where does the next one begin?"; used by reads,
recovery and verify alike, so that all three agree. Must not write, and must not know indexes or
partitions.

A batch is good when its header is sane, it lies whole inside the file, its CRC-32C holds and its
offsets continue the log: base offset >= the offset expected next, and below the next segment's
base. Offsets lie outside the CRC, so a batch that jumps ahead is believed only if the batch behind
it does not contradict it. How far a segment's offsets reach from its base is no question here.

A batch that is whole and has a right CRC is never torn, though its offsets may fit nowhere: the gap
that it makes is `misplaced`.

Messages of the formats v0 and v1 are no batches, and cannot be read here, but no damage either: the gap
that they are says where their offsets end.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Final, NamedTuple

from storage.coding.checksum import crc32c
from storage.errors import Corrupt, DataError
from storage.files import File
from storage.kafka.format import old_message
from storage.kafka.format.batch import (
    HEADER_SIZE,
    BatchHeader,
    check_crc,
    check_offered,
    decode_header,
    is_whole_misfit,
)
from storage.kafka.format.batch_header import CRC_START
from storage.kafka.format.old_message import OldMessage

CHUNK_BYTES: Final = 1 << 20
SECTOR_BYTES: Final = 512
BASE_OFFSET_BYTES: Final = 8
LENGTH_BYTES: Final = 4
TRIED_BYTES: Final = 16 << 20
"""Behind damage a batch of more bytes than that is looked for only with a header that is right in every way."""
INT64_MAX: Final = 2**63 - 1
SEGMENT_OFFSETS: Final = 1 << 31  # how far an index entry reaches from its segment's base
MISPLACED: Final = "misplaced-batch"
"""The code of the finding for a whole batch with a right CRC whose offsets fit nowhere."""
OLD_FORMAT: Final = "old-message-format"
"""The reason of a gap in which messages of format v0 or v1 lie, and the code of the finding."""
# Where a header's magic byte may stand: magic 2, any CRC, lastOffsetDelta >= 0; and either attributes 00 xx (the
# upper ones mean nothing yet) or a base offset below 2^56 and a length >= 0. Without one of these two bytes of zeros
# each 256th byte of any data would be tried.
_MAGIC: Final = re.compile(
    rb"\x02(?:(?=.{4}\x00.[\x00-\x7f])|(?=.{6}[\x00-\x7f])(?<=\x00.{7}[\x00-\x7f].{7}\x02))",
    re.DOTALL,
)
_MAGIC_AT: Final = 16
_CLAIM: Final = struct.Struct(">qi11xi")  # base offset, length, 11 bytes between, last offset delta


class Batch(NamedTuple):
    """A good batch: file, position in it, header, and bytes: data[at : at + header.size_bytes]."""

    path: Path
    position: int
    header: BatchHeader
    data: bytes
    at: int


class Gap(NamedTuple):
    """Bytes [position, end) that hold no good batch; `next_offset` is that of the good batch at
    `end`, if any. `old_end`: the offset behind the messages of format v0 or v1 in it; None: no such.
    `misplaced`: a whole batch with a right CRC is among them, whose offsets do not fit there.
    """

    position: int
    end: int
    next_offset: int | None
    reason: str
    expected: str
    found: str
    old_end: int | None = None
    misplaced: bool = False


def end_of(item: Batch | Gap) -> int | None:
    """The offset behind what is good there; None for a gap that is nothing but damage."""
    return item.header.next_offset if isinstance(item, Batch) else item.old_end


class Portion(NamedTuple):
    """Bytes wanted from the batch on that holds `offset` (or the next one): batches that end behind them are not
    looked at, but for that first one.
    """

    offset: int
    size_bytes: int


class _Problem(NamedTuple):
    reason: str
    expected: str
    found: str
    is_whole: bool = False  # its CRC is right


def damaged(path: Path, gap: Gap, *, next_good: int) -> Corrupt:
    """The error for a bad place; `next_good`: where offsets go on if no good batch follows in this
    file, INT64_MAX for nowhere.
    """
    next_offset = next_good if gap.next_offset is None else gap.next_offset
    old = gap.old_end is not None
    what = "messages of an old format, not supported," if old else "damaged batch"
    return Corrupt(
        f"{path}: {what} at position {gap.position}: expected {gap.expected}, found {gap.found}",
        kind=gap.reason,
        path=str(path),
        position=gap.position,
        expected=gap.expected,
        found=gap.found,
        next_good_offset=None if next_offset == INT64_MAX else next_offset,
    )


class _Window:
    """A stretch of the file in memory that moves forward; a file that shrinks meanwhile ends there."""

    def __init__(self, file: File, end: int, *, chunk_bytes: int, check_crcs: bool) -> None:
        self.file = file
        self.end = end
        self.asked_end = end
        self.chunk_bytes = chunk_bytes
        self.check_crcs = check_crcs
        self.start = 0
        self.data = b""

    def hold(self, position: int, size_bytes: int) -> int:
        """Make [position, position + size_bytes) available as far as the file goes; its index in
        `data`.
        """
        at = position - self.start
        if at < 0 or at + size_bytes > len(self.data):
            want = max(min(max(size_bytes, self.chunk_bytes), self.end - position), 0)
            if at < 0 or position + len(self.data) - at < min(position + size_bytes, self.end):
                self.data = self.file.pread(want, position)
                self.start = position
                at = 0
                if len(self.data) < want:
                    self.end = position + len(self.data)
        return at


def walk(
    file: File,
    *,
    position: int,
    end: int,
    next_offset: int,
    limit_offset: int = INT64_MAX,
    chunk_bytes: int = CHUNK_BYTES,
    check_crcs: bool = True,
    portion: Portion | None = None,
) -> Iterator[Batch | Gap]:
    """Every good batch of [position, end) in order, and a Gap for what lies between; ends at `end`, or with the
    `portion`.

    `next_offset`: no batch may begin below it; `limit_offset`: none may reach it (the next
    segment's base). The file is read `chunk_bytes` at a time; batches that lie in one such piece
    share its bytes.
    """
    window = _Window(file, end, chunk_bytes=chunk_bytes, check_crcs=check_crcs)
    portion_end = INT64_MAX
    while position < end:
        if portion_end != INT64_MAX and _said_end(window, position) > portion_end:
            return
        at = window.hold(position, HEADER_SIZE)
        header = _judge(window, position, next_offset, limit_offset)
        if isinstance(header, BatchHeader):
            at = window.hold(position, header.size_bytes)
            yield Batch(file.path, position, header, window.data, at)
            if portion and portion_end == INT64_MAX and header.last_offset >= portion.offset:
                portion_end = position + portion.size_bytes
            position += header.size_bytes
            next_offset = header.next_offset
            continue
        gap = _gap(window, position, header, next_offset, limit_offset)
        yield gap
        position = gap.end


def _said_end(window: _Window, position: int) -> int:
    """Where the batch at `position` ends, if there is one and its length is right; nothing more of it is read."""
    at = position + BASE_OFFSET_BYTES - window.start
    if 0 <= at <= len(window.data) - LENGTH_BYTES:
        length = window.data[at : at + LENGTH_BYTES]
    else:
        length = window.file.pread(LENGTH_BYTES, position + BASE_OFFSET_BYTES)
    return position + BASE_OFFSET_BYTES + LENGTH_BYTES + int.from_bytes(length, "big", signed=True)


def _judge(
    window: _Window, position: int, next_offset: int, limit_offset: int
) -> BatchHeader | _Problem:
    """The header of the good batch at `position`, or what is wrong there."""
    header = _check_bytes(window, position)
    if isinstance(header, _Problem):
        return header
    misfit = None
    if header.base_offset < next_offset:
        misfit = f"base offset >= {next_offset}", str(header.base_offset)
    elif header.next_offset > limit_offset:
        misfit = f"offsets below {limit_offset}", str(header.last_offset)
    elif header.base_offset > next_offset and _contradicted(window, position, header, next_offset):
        misfit = f"base offset near {next_offset}", str(header.base_offset)
    if misfit:
        return _Problem("offset-order", *misfit, is_whole=window.check_crcs)
    return header


def _check_bytes(window: _Window, position: int) -> BatchHeader | _Problem:
    at = window.hold(position, HEADER_SIZE)
    left = window.end - position
    if left < HEADER_SIZE:
        return _Problem("torn", f"a header of {HEADER_SIZE} bytes", f"{left} bytes")
    try:
        header = decode_header(window.data, at)
    except DataError as error:
        if not any(window.data[at : at + HEADER_SIZE]):
            return _Problem("zeros", "a batch header", "zeros")
        return _Problem("header", "a batch header", error.message, _is_whole(window, position))
    if header.size_bytes <= left:
        at = window.hold(position, header.size_bytes)
        left = window.end - position
    if header.size_bytes > left:
        return _Problem("torn", f"a batch of {header.size_bytes} bytes", f"{left} bytes")
    if window.check_crcs and not check_crc(window.data, at, header):
        with memoryview(window.data) as view:
            found = crc32c(view[at + CRC_START : at + header.size_bytes])
        return _Problem("crc", f"CRC {header.crc:#010x}", f"CRC {found:#010x}")
    return header


def _is_whole(window: _Window, position: int) -> bool:
    """Whether a batch that has no place in a log is whole and has a right CRC."""
    if not window.check_crcs:
        return False
    at = window.hold(position, min(_claim(window, position).end, window.end) - position)
    return is_whole_misfit(window.data, at)


def _contradicted(window: _Window, position: int, header: BatchHeader, next_offset: int) -> bool:
    """Whether the batch behind one that jumps ahead continues from before the jump."""
    behind = _check_bytes(window, position + header.size_bytes)
    window.hold(position, header.size_bytes)
    return (
        isinstance(behind, BatchHeader) and next_offset <= behind.base_offset < header.next_offset
    )


def _gap(
    window: _Window, position: int, problem: _Problem, next_offset: int, limit_offset: int
) -> Gap:
    """The bad place at `position`: up to the first good batch behind it, or to the end."""
    behind = _pass_old(window, position, next_offset, limit_offset)
    if behind is None:
        good = _next_good(window, position, next_offset, limit_offset)
        misplaced = problem.is_whole or (good.next_offset is None and good.misplaced)
        return Gap(position, good.end, good.next_offset, *problem[:3], misplaced=misplaced)
    at, old_end = behind
    header = _judge(window, at, old_end, limit_offset)
    if isinstance(header, BatchHeader):
        good = _NextGood(at, header.base_offset, misplaced=False)
    else:
        good = _next_good(window, at, old_end, limit_offset)
    wanted = "batches of format v2", "messages of v0 or v1"
    return Gap(position, good.end, good.next_offset, OLD_FORMAT, *wanted, old_end)


def _pass_old(
    window: _Window, position: int, next_offset: int, limit_offset: int
) -> tuple[int, int] | None:
    """Position and offset behind the messages of format v0 or v1 that begin here, or where the bad one
    here says that it ends, and go on over such bad ones; None where there are none.
    """
    behind = None
    while True:
        message = _old_message(window, position, next_offset, limit_offset)
        if message is None:
            position, bad_at = _claim(window, position).end, position
            message = _old_message(window, position, next_offset, limit_offset)
            if message is None or position == bad_at:
                return behind
        position, next_offset = position + message.size_bytes, message.offset + 1
        behind = position, next_offset


def _old_message(
    window: _Window, position: int, next_offset: int, limit_offset: int
) -> OldMessage | None:
    """The message of format v0 or v1 at `position`, if a whole and good one that continues the log is there."""
    at = window.hold(position, old_message.HEAD_SIZE)
    try:
        message = old_message.decode_head(window.data, at)
        end = position + message.size_bytes
        if end <= window.end and next_offset <= message.offset < limit_offset:
            at = window.hold(position, message.size_bytes)
            return message if old_message.check_crc(window.data, at, message) else None
    except DataError:
        pass
    return None


class _Claim(NamedTuple):
    """What the header of a bad batch says, true or not: where its bytes end, and the offset behind its last."""

    end: int
    next_offset: int


def _claim(window: _Window, position: int) -> _Claim:
    at = window.hold(position, HEADER_SIZE)
    raw = window.data[at : at + HEADER_SIZE].ljust(HEADER_SIZE, b"\0")
    base_offset, length, last_offset_delta = _CLAIM.unpack_from(raw)
    end = position + 12 + length if length >= old_message.MIN_SIZE else position
    return _Claim(min(end, window.end), base_offset + last_offset_delta + 1)


class _NextGood(NamedTuple):
    """Where a bad place ends, and the base offset of the good batch there (None: the data ends there).

    `misplaced`: a whole batch was met that fits nowhere. Those inside the bytes that the bad batch claims do not
    count: they may lie in a value of it.
    """

    end: int
    next_offset: int | None
    misplaced: bool


def _next_good(window: _Window, position: int, next_offset: int, limit_offset: int) -> _NextGood:
    """The first good batch behind a bad place."""
    claim = _claim(window, position)
    misplaced = False
    for candidate in chain([claim.end], _magics(window, position + 1)):
        if candidate <= position or not _is_worth_a_try(window, candidate):
            continue
        header = _judge(window, candidate, next_offset, limit_offset)
        if not isinstance(header, BatchHeader):
            misplaced |= header.is_whole and candidate >= claim.end
            continue
        continues = header.base_offset == claim.next_offset
        if continues or _leads_out(window, candidate, header, claim.end):
            return _NextGood(candidate, header.base_offset, misplaced)
    return _NextGood(window.asked_end, None, misplaced)


def _is_worth_a_try(window: _Window, position: int) -> bool:
    """Whether the CRC of what may be a batch is to be computed: garbage claims to be large, and odd in other ways."""
    at = window.hold(position, HEADER_SIZE)
    if _claim(window, position).end - position <= TRIED_BYTES:
        return True
    try:
        check_offered(decode_header(window.data, at), position)
    except DataError:
        return False
    return True


def _magics(window: _Window, position: int) -> Iterator[int]:
    """Where a batch may begin at or behind `position`: some bytes look like its magic and attributes."""
    while position + HEADER_SIZE <= window.end:
        # A base offset and a length begin with zeros: a header may begin in the end of a hole.
        position = max(position, window.file.next_data(position) - HEADER_SIZE)
        if position + HEADER_SIZE > window.end:
            return
        data = window.file.pread(min(CHUNK_BYTES, window.end - position), position)
        for match in _MAGIC.finditer(data, _MAGIC_AT):
            yield position + match.start() - _MAGIC_AT
        if position + len(data) >= window.end or len(data) <= HEADER_SIZE:
            return
        position += len(data) - HEADER_SIZE


def _leads_out(window: _Window, position: int, header: BatchHeader, end: int) -> bool:
    """Whether good batches lead from here to `end` or beyond.

    Inside the bytes that a bad batch claims, others that do not may lie in a value of it: a value can hold a log.
    """
    position += header.size_bytes
    while position < end:
        following = _judge(window, position, header.next_offset, INT64_MAX)
        if not isinstance(following, BatchHeader):
            return False
        position, header = position + following.size_bytes, following
    return True


def begins_in_lost_write(file: File, *, position: int, end: int) -> bool:
    """Whether the rest of the sector at `position`, where a batch should begin, is zeros: the disk got the next sector
    and not this one. No CRC covers a base offset, so the batch may look whole, with offset 0. A rest that the zeros of
    a base offset fill says nothing.
    """
    stop = -(-position // SECTOR_BYTES) * SECTOR_BYTES
    rest = file.pread(min(stop, end) - position, position)
    return len(rest) >= BASE_OFFSET_BYTES and not any(rest)


def holds_lost_write(file: File, *, position: int, end: int) -> bool:
    """Whether [position, end), where a batch should begin, covers an aligned sector of zeros: a write
    that the disk never got (a power loss). Of the sector in which it begins the rest counts, unless
    it is so short that the zeros of a base offset fill it. With such zeros the batch at `end` may
    itself begin in the last one.
    """
    zeros = bytes(SECTOR_BYTES)
    start = -(-position // SECTOR_BYTES) * SECTOR_BYTES
    if begins_in_lost_write(file, position=position, end=end):
        return True
    limit = end + BASE_OFFSET_BYTES - 1
    while start + SECTOR_BYTES <= limit:
        data = file.pread(min(CHUNK_BYTES, limit - start), start)
        for at in range(0, len(data) - SECTOR_BYTES + 1, SECTOR_BYTES):
            if data[at : at + SECTOR_BYTES] == zeros:
                return True
        start += CHUNK_BYTES
    return False


def is_zero(file: File, *, position: int, end: int) -> bool:
    """Whether [position, end) holds nothing but zeros, as a preallocated file does behind its data."""
    while (position := file.next_data(position)) < end:
        data = file.pread(min(CHUNK_BYTES, end - position), position)
        if data.strip(b"\0"):
            return False
        if not data:
            return True
        position += len(data)
    return True
