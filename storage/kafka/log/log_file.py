"""The walk over a `.log` file, batch by batch, past damage too.

Owns the decision whether a batch is good, and the search for the next good batch; must not write, and must not know
indexes or partitions. Reads, recovery and verify use the same walk, so that all three agree.

A batch is good if:
- its header is sane,
- the whole batch is inside the file,
- its CRC-32C is right,
- its offsets continue the log: base offset >= the expected next offset, and all offsets below the next segment's base.

The CRC does not cover the base offset. So a batch that jumps ahead is good only if the batch after
it does not contradict the jump. The distance of offsets from the segment's base is not checked here.

A whole batch with a right CRC is never a torn tail, even if its offsets fit nowhere: its gap is `misplaced`.

Messages of the formats v0 and v1 are not batches, and cannot be read here, but they are not damage: their
gap has the offset after the last message (`old_end`).
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any, Final, NamedTuple

from storage.coding.checksum import crc32c
from storage.coding.varint import INT64_MAX
from storage.errors import Corrupt, DataError
from storage.files import File, Readable
from storage.kafka.format import old_message
from storage.kafka.format.batch import (
    CRC_START,
    HEADER_SIZE,
    BatchHeader,
    check_crc,
    check_offered,
    decode_header,
    is_whole_misfit,
)
from storage.kafka.format.old_message import OldMessage

CHUNK_BYTES: Final = 1 << 20
SECTOR_BYTES: Final = 512
BASE_OFFSET_BYTES: Final = 8
LENGTH_BYTES: Final = 4
TRIED_BYTES: Final = 16 << 20
"""After damage a larger batch is tried only if all fields of its header are valid (`check_offered`)."""
SEGMENT_OFFSETS: Final = 1 << 31  # index entries hold offsets below the segment's base plus this
MISPLACED: Final = "misplaced-batch"
"""The code of the finding for a whole batch with a right CRC and with offsets that fit nowhere."""
OLD_FORMAT: Final = "old-message-format"
"""The reason of a gap that contains messages of format v0 or v1, and the code of its finding."""
# Matches a possible magic byte of a header: magic 2, any CRC, lastOffsetDelta >= 0; and either attributes 00 xx (the
# upper byte is unused yet) or a base offset below 2^56 and a length >= 0. Without this second condition every 256th
# byte of random data would be a candidate.
_MAGIC: Final = re.compile(
    rb"\x02(?:(?=.{4}\x00.[\x00-\x7f])|(?=.{6}[\x00-\x7f])(?<=\x00.{7}[\x00-\x7f].{7}\x02))",
    re.DOTALL,
)
_MAGIC_AT: Final = 16
_CLAIM: Final = struct.Struct(">qi11xi")  # base offset, length, 11 bytes between, last offset delta


class StoredBatch(NamedTuple):
    """A good batch: its file, its position in the file, its header, and its bytes data[at : at + header.size_bytes].

    `data` is what the file's `pread` returned: of a CachedFile a bytearray, which only `reading.read_bytes` gets.
    """

    path: Path
    position: int
    header: BatchHeader
    data: bytes
    at: int


class Gap(NamedTuple):
    """Bytes [position, end) without a good batch. `next_offset` is the base offset of the good batch at
    `end`, if any. `old_end`: the offset after the messages of format v0 or v1 in the gap; None without such messages.
    `misplaced`: the gap contains a whole batch with a right CRC and with offsets that do not fit there.
    """

    position: int
    end: int
    next_offset: int | None
    reason: str
    expected: str
    found: str
    old_end: int | None = None
    misplaced: bool = False


def end_of(item: StoredBatch | Gap) -> int | None:
    """Return the offset after a batch, or after the messages of an old format in a gap; None for any other gap."""
    return item.header.next_offset if isinstance(item, StoredBatch) else item.old_end


def good_batches(items: Iterable[StoredBatch | Gap]) -> Iterator[StoredBatch]:
    """Yield the batches of a walk without its gaps."""
    return (item for item in items if isinstance(item, StoredBatch))


class Portion(NamedTuple):
    """The limit of a walk: `size_bytes` from the batch that holds `offset` (or the next batch) on. Later batches that
    end beyond this limit are not read.
    """

    offset: int
    size_bytes: int


class _Problem(NamedTuple):
    reason: str
    expected: str
    found: str
    is_whole: bool = False  # its CRC is right


def damaged(path: Path, gap: Gap, *, next_good: int) -> Corrupt:
    """Return the error for a gap. `next_good`: the next good offset if no good batch follows in this file; INT64_MAX if
    there is none.
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
    """A range of the file in memory that moves forward. A file that shrinks meanwhile ends where it was cut."""

    def __init__(self, file: Readable, end: int, *, chunk_bytes: int, check_crcs: bool) -> None:
        self.file = file
        self.end = end
        self.asked_end = end
        self.chunk_bytes = chunk_bytes
        self.check_crcs = check_crcs
        self.start = 0
        self.data: bytes | bytearray = b""

    def hold(self, position: int, size_bytes: int) -> int:
        """Load [position, position + size_bytes), up to the end of the file; return the index of `position` in
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
    file: Readable,
    *,
    position: int,
    end: int,
    next_offset: int,
    limit_offset: int = INT64_MAX,
    chunk_bytes: int = CHUNK_BYTES,
    check_crcs: bool = True,
    portion: Portion | None = None,
) -> Iterator[StoredBatch | Gap]:
    """Yield every good batch of [position, end) in order, and a Gap for the bytes between; stop at `end`, or at the
    end of the `portion`.

    `next_offset`: no batch may begin below it; `limit_offset`: no batch may reach it (the next
    segment's base). The file is read `chunk_bytes` at a time. Batches in the same chunk share its bytes.
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
            data: Any = window.data
            yield StoredBatch(file.path, position, header, data, at)
            if portion and portion_end == INT64_MAX and header.last_offset >= portion.offset:
                portion_end = position + portion.size_bytes
            position += header.size_bytes
            next_offset = header.next_offset
            continue
        gap = _gap(window, position, header, next_offset, limit_offset)
        yield gap
        position = gap.end


def _said_end(window: _Window, position: int) -> int:
    """Return the end position that the length field at `position` claims; no other field is read or checked."""
    at = position + BASE_OFFSET_BYTES - window.start
    if 0 <= at <= len(window.data) - LENGTH_BYTES:
        length = window.data[at : at + LENGTH_BYTES]
    else:
        length = window.file.pread(LENGTH_BYTES, position + BASE_OFFSET_BYTES)
    return position + BASE_OFFSET_BYTES + LENGTH_BYTES + int.from_bytes(length, "big", signed=True)


def _judge(
    window: _Window, position: int, next_offset: int, limit_offset: int
) -> BatchHeader | _Problem:
    """Return the header of the good batch at `position`, or the problem there."""
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
    """Return whether a batch with an invalid header is whole and has a right CRC."""
    if not window.check_crcs:
        return False
    at = window.hold(position, min(_claim(window, position).end, window.end) - position)
    return is_whole_misfit(window.data, at)


def _contradicted(window: _Window, position: int, header: BatchHeader, next_offset: int) -> bool:
    """Return whether the batch after a batch that jumps ahead contradicts the jump: its base offset is not below
    `next_offset`, but below the end of the jumping batch.
    """
    after = _check_bytes(window, position + header.size_bytes)
    window.hold(position, header.size_bytes)
    return isinstance(after, BatchHeader) and next_offset <= after.base_offset < header.next_offset


def _gap(
    window: _Window, position: int, problem: _Problem, next_offset: int, limit_offset: int
) -> Gap:
    """Return the gap at `position`: up to the first good batch after it, or to the end."""
    after = _pass_old(window, position, next_offset, limit_offset)
    if after is None:
        good = _next_good(window, position, next_offset, limit_offset)
        misplaced = problem.is_whole or (good.next_offset is None and good.misplaced)
        return Gap(position, good.end, good.next_offset, *problem[:3], misplaced=misplaced)
    at, old_end = after
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
    """Return the position and offset after the messages of format v0 or v1 at `position`; None without such messages.

    A bad message is passed over if a good old message begins at the end that it claims.
    """
    after = None
    while True:
        message = _old_message(window, position, next_offset, limit_offset)
        if message is None:
            position, bad_at = _claim(window, position).end, position
            message = _old_message(window, position, next_offset, limit_offset)
            if message is None or position == bad_at:
                return after
        position, next_offset = position + message.size_bytes, message.offset + 1
        after = position, next_offset


def _old_message(
    window: _Window, position: int, next_offset: int, limit_offset: int
) -> OldMessage | None:
    """Return the whole message of format v0 or v1 at `position`, if its CRC is right and it continues the log."""
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
    """The claims of a bad batch's header, right or wrong: the end of its bytes, and the offset after it."""

    end: int
    next_offset: int


def _claim(window: _Window, position: int) -> _Claim:
    at = window.hold(position, HEADER_SIZE)
    raw = window.data[at : at + HEADER_SIZE].ljust(HEADER_SIZE, b"\0")
    base_offset, length, last_offset_delta = _CLAIM.unpack_from(raw)
    end = position + 12 + length if length >= old_message.MIN_SIZE else position
    return _Claim(min(end, window.end), base_offset + last_offset_delta + 1)


class _NextGood(NamedTuple):
    """The end of a gap, and the base offset of the good batch there (None: the data ends there).

    `misplaced`: the gap contains a whole batch that fits nowhere. A batch inside the bytes that the bad batch claims
    does not count: it may be part of a record's value.
    """

    end: int
    next_offset: int | None
    misplaced: bool


def _next_good(window: _Window, position: int, next_offset: int, limit_offset: int) -> _NextGood:
    """Find the first good batch after the bad batch at `position`."""
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
    """Return whether to compute the CRC of a possible batch: garbage often claims a large size and invalid fields."""
    at = window.hold(position, HEADER_SIZE)
    if _claim(window, position).end - position <= TRIED_BYTES:
        return True
    try:
        check_offered(decode_header(window.data, at), position)
    except DataError:
        return False
    return True


def _magics(window: _Window, position: int) -> Iterator[int]:
    """Yield the positions from `position` on where a batch may begin: some bytes look like its magic and attributes."""
    while position + HEADER_SIZE <= window.end:
        # Base offset and length begin with zeros: a header may begin in the end of a hole.
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
    """Return whether good batches follow each other from `position` to `end` or beyond.

    `end` is the end that a bad batch claims. Good batches that stop before it may be inside a record's value, because
    a value can hold a copy of a log.
    """
    position += header.size_bytes
    while position < end:
        following = _judge(window, position, header.next_offset, INT64_MAX)
        if not isinstance(following, BatchHeader):
            return False
        position, header = position + following.size_bytes, following
    return True


def begins_in_lost_write(file: File, *, position: int, end: int) -> bool:
    """Return whether the rest of the sector at `position`, where a batch should begin, is zeros: a lost write.

    The disk then has the next sector and not this one. No CRC covers a base offset, so the batch may look whole, with
    offset 0. False if the rest is shorter than a base offset, because a base offset may be zeros.
    """
    stop = -(-position // SECTOR_BYTES) * SECTOR_BYTES
    rest = file.pread(min(stop, end) - position, position)
    return len(rest) >= BASE_OFFSET_BYTES and not any(rest)


def holds_lost_write(file: File, *, position: int, end: int) -> bool:
    """Return whether [position, end), where a batch should begin, covers an aligned sector of zeros: a lost write.

    A power loss leaves such a sector if the disk never got its write. In the first sector only the rest from `position`
    counts (see `begins_in_lost_write`). The last sector may reach up to 7 bytes beyond `end`: the base offset of the
    batch at `end` may begin with these zeros.
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
    """Return whether [position, end) has only zeros, as a preallocated file has after its data."""
    while (position := file.next_data(position)) < end:
        data = file.pread(min(CHUNK_BYTES, end - position), position)
        if data.strip(b"\0"):
            return False
        if not data:
            return True
        position += len(data)
    return True
