"""The commit log of a salvage: good records at their positions, blanks between them.

Owns the layout of the new log; must not judge records (survey.py does). All records may be moved by a number
of whole files. Then each record gets its new physical offset, a committed record the new physical offset of its half
record, and a CRC over the record is recomputed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from struct import Struct
from typing import Final

from storage.findings import finding
from storage.model import Finding
from storage.rocketmq.format.message import (
    FIXED_FIELDS,
    HOST_BITS_POSITION,
    HOSTS_V6,
    PHYSICAL_OFFSET_POSITION,
    QUEUE_OFFSET_POSITION,
    TRANSACTION_MASK,
    encode_padding,
)
from storage.rocketmq.format.properties import check_crc_property, closed_record, has_crc_property
from storage.rocketmq.log.file_sequence import FileSequence
from storage.rocketmq.log.filler_records import fill
from storage.rocketmq.log.scan import LogRange, Stop, walk_log
from storage.rocketmq.tools.salvage.survey import Bad, Survey

_OFFSET: Final = Struct(">q")
_PREPARED_BEFORE_BODY: Final = 12


def write_log(survey: Survey, target: FileSequence, *, moved_bytes: int) -> Sequence[Finding]:
    """Write the good records of the survey to `target`, moved forward by `moved_bytes`; durable on return.

    Return findings for records whose stored physical offset was wrong; it is corrected. Blanks end with a CRC property
    if the newest record has one.
    """
    run = survey.source.run
    with_crc = False
    mended: list[Finding] = []
    for start, end in survey.kept:
        for step in walk_log(run, start, end, check_crc=False):
            if not isinstance(step, Stop):
                data, wrong = _records(step, moved_bytes, survey.mended)
                mended += [_mended(run, at, stored) for at, stored in wrong]
                _write(target, step.start + moved_bytes, data)
                with_crc = has_crc_property(data)
    for at, size in survey.paddings:
        _write(target, at + moved_bytes, encode_padding(size))
    for bad in survey.bad:
        for at, data in _filling(bad, run.file_bytes, moved_bytes, with_crc=with_crc):
            _write(target, at, data)
    if target.bases:
        target.sync(target.start, target.limit)
    return mended


def _write(target: FileSequence, position: int, data: bytes) -> None:
    if target.base_of(position) is None:
        target.files.fs.make_dir(target.directory)
        target.create(position - position % target.file_bytes)
    target.write(position, data)


def _records(
    log_range: LogRange, moved_bytes: int, mended: Mapping[int, int]
) -> tuple[bytes, Sequence[tuple[int, int]]]:
    """Return (the bytes of the records, moved forward by `moved_bytes`; (physical offset, stored physical offset) of
    each record where they differ). `mended`: physical offset -> queue offset to set.
    """
    records, data = log_range.records, log_range.data[: log_range.size_bytes]
    unpack, start = _OFFSET.unpack_from, log_range.start
    stored = [unpack(data, at - start + PHYSICAL_OFFSET_POSITION)[0] for at, _ in records]
    wrong = [(at, place) for (at, _), place in zip(records, stored, strict=True) if at != place]
    numbered = [at for at, _ in records if at in mended] if mended else []
    if not moved_bytes and not wrong and not numbered:
        return data, ()
    buffer = bytearray(data)
    for at, size in records:
        position = at - start
        buffer[position : position + size] = _moved(
            data[position : position + size], at, moved_bytes, mended.get(at)
        )
    return bytes(buffer), wrong


def _moved(
    data: bytes, physical_offset: int, moved_bytes: int, queue_offset: int | None = None
) -> bytes:
    """Return a record of this physical offset moved forward by `moved_bytes`; `queue_offset` None keeps its queue
    offset.
    """
    record = bytearray(data)
    if queue_offset is not None:
        _OFFSET.pack_into(record, QUEUE_OFFSET_POSITION, queue_offset)
    _OFFSET.pack_into(record, PHYSICAL_OFFSET_POSITION, physical_offset)
    closed = has_crc_property(data) and check_crc_property(bytes(record))
    _OFFSET.pack_into(record, PHYSICAL_OFFSET_POSITION, physical_offset + moved_bytes)
    flags = record[HOST_BITS_POSITION]
    if flags & TRANSACTION_MASK:
        position = FIXED_FIELDS[flags & HOSTS_V6].size - _PREPARED_BEFORE_BODY
        (prepared,) = _OFFSET.unpack_from(record, position)
        _OFFSET.pack_into(record, position, prepared + moved_bytes)
    if closed:
        return closed_record(bytes(record))
    return bytes(record)


def _filling(
    bad: Bad, file_bytes: int, moved_bytes: int, *, with_crc: bool
) -> Iterator[tuple[int, bytes]]:
    """Yield (physical offset, bytes) that fill a bad place, moved forward by `moved_bytes`, file by file."""
    begin, end = bad.start + moved_bytes, bad.end + moved_bytes
    while begin < end:
        file_end = begin - begin % file_bytes + file_bytes
        stop = min(file_end, end)
        yield from fill(begin, stop, file_end=file_end, time_ms=bad.time_ms, with_crc=with_crc)
        begin = stop


def _mended(run: FileSequence, physical_offset: int, stored: int) -> Finding:
    base = physical_offset - physical_offset % run.file_bytes
    return finding(
        "wrong-physical-offset",
        run.path(base),
        position=physical_offset - base,
        expected=str(physical_offset),
        found=str(stored),
        message="the record had another physical offset than its place; in the new store it has its own",
    )
