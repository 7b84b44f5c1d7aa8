"""The broker's timers in a salvaged store: copied with their positions in the new log, or left out.

Owns which timer files a salvage copies, and the physical offsets in them. Must not judge records of the
commit log (survey.py does).

    timerlog/POSITION            units: each names a record of topic rmq_sys_wheel_timer by physical offset
    timerwheel                   positions in the timer log, by second
    config/timercheck            the broker's progress
    config/timermetrics          counts

These files belong together. With all of them the broker continues at its last position. Without all of them it reads
the timer topic from the start and delivers messages again. So they are copied, except if a file is missing,
unreadable or damaged. A unit of the timer log, big-endian (TimerLog.append of RocketMQ 5.5.0):

    position  bytes  field
    0         4      size: 52
    4         8      position of the unit before it in its slot, -1: none
    12        4      magic: bits 0 to 3
    16        8      write time
    24        4      delay
    28        8      physical offset of the record
    36        4      size of the record
    40        12     hash of the topic, reserved
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from operator import itemgetter
from pathlib import Path
from struct import Struct
from typing import Final

from storage.files import File, FileSystem, copy_range
from storage.rocketmq.format import names
from storage.rocketmq.state import live_data
from storage.rocketmq.state.file_listing import unread_findings
from storage.rocketmq.state.root import StoreDirectory
from storage.rocketmq.tools.salvage.survey import Survey

UNIT: Final = Struct(">iqiqiqiq4x")
UNITS_AT_ONCE: Final = 16_384
MAX_MAGIC: Final = 15
BLANK_MAGIC: Final = -875286124
"""Magic of the unused rest of a full file."""
NO_RECORD: Final = -1
"""A physical offset that the broker skips as a lost record (StoreUtil.getMessage returns null)."""
CHECK_BYTES: Final = 40
_OFFSET: Final = Struct(">q")
_OFFSET_POSITION: Final = 28


def copy_timers(
    source: StoreDirectory, target: StoreDirectory, survey: Survey, *, moved_bytes: int
) -> bool:
    """Copy the timer files, with physical offsets raised by `moved_bytes`; return False if they are left out.

    A unit whose record is lost gets NO_RECORD. The copies are durable on return.
    """
    fs = source.fs
    if not _is_complete(source):
        return False
    is_whole = True
    for path in _files(source):
        copy = target.path / path.relative_to(source.path)
        if not fs.is_dir(copy.parent):
            fs.make_dir(copy.parent)
        copy_range(fs, path, copy, start=0)
        if copy.parent.name == names.TIMER_LOG:
            is_whole = _move(fs, copy, survey, moved_bytes) and is_whole
        fs.sync_dir(copy.parent)
    fs.sync_dir(target.path)
    unread = {Path(found.path) for found in unread_findings(fs)}
    if not is_whole or unread.intersection((source.path / names.TIMER_LOG, *_files(source))):
        _remove(target)
        return False
    return True


def _is_complete(source: StoreDirectory) -> bool:
    fs, check = source.fs, source.config / live_data.TIMER_CHECK
    wheel, log = source.path / names.TIMER_WHEEL, source.path / names.TIMER_LOG
    return (
        all(fs.exists(path) and not fs.is_dir(path) for path in (check, wheel))
        and fs.size(check) >= CHECK_BYTES
        and fs.is_dir(log)
        and any(names.parse_file_name(name) is not None for name in fs.list_dir(log))
    )


def _files(source: StoreDirectory) -> Iterator[Path]:
    fs, log = source.fs, source.path / names.TIMER_LOG
    yield from (log / n for n in fs.list_dir(log) if names.parse_file_name(n) is not None)
    yield source.path / names.TIMER_WHEEL
    for name in fs.list_dir(source.config):
        if live_data.is_timer_file(name) and not fs.is_dir(source.config / name):
            yield source.config / name


def _move(fs: FileSystem, path: Path, survey: Survey, moved_bytes: int) -> bool:
    """Set the physical offsets in one file of the new timer log to the records' positions in the new log.

    Return False if a unit is damaged: it is not valid, and more data follows.
    """
    file = fs.open(path, write=True)
    try:
        position, size = 0, file.size()
        while position < size:
            data = file.pread(min(UNITS_AT_ONCE * UNIT.size, size - position), position)
            whole = len(data) - len(data) % UNIT.size
            for at in range(0, whole, UNIT.size):
                unit_bytes, _, magic, _, _, offset, record_bytes, _ = UNIT.unpack_from(data, at)
                if unit_bytes != UNIT.size or not 0 <= magic <= MAX_MAGIC:
                    return magic == BLANK_MAGIC or _is_empty(file, position + at)
                is_kept = _is_kept(survey.kept, offset, record_bytes)
                new = offset + moved_bytes if is_kept else NO_RECORD
                if new != offset:
                    file.pwrite(_OFFSET.pack(new), position + at + _OFFSET_POSITION)
            if not whole:
                break
            position += whole
        return True
    finally:
        file.datasync()
        file.close()


def _is_empty(file: File, position: int) -> bool:
    """Return whether only zeros follow."""
    while (position := file.next_data(position)) < file.size():
        data = file.pread(UNITS_AT_ONCE * UNIT.size, position)
        if any(data):
            return False
        position += len(data)
    return True


def _is_kept(kept: Sequence[tuple[int, int]], offset: int, size: int) -> bool:
    found = bisect_right(kept, offset, key=itemgetter(0)) - 1
    return found >= 0 and offset + size <= kept[found][1]


def _remove(target: StoreDirectory) -> None:
    fs = target.fs
    if fs.exists(target.path / names.TIMER_LOG):
        fs.remove_tree(target.path / names.TIMER_LOG)
    for path in (
        target.path / names.TIMER_WHEEL,
        *(
            target.config / name
            for name in fs.list_dir(target.config)
            if live_data.is_timer_file(name)
        ),
    ):
        if fs.exists(path):
            fs.remove(path)
