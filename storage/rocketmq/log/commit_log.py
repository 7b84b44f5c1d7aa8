"""The commit log: every record of every queue in one sequence of bytes (CommitLog).

Owns where the next record goes (padding, roll, the spare file), how far the log is written and
synced, and reading a record by its physical offset; must not know queues or the index. Sources:
CommitLog, DefaultAppendMessageCallback and AllocateMappedFileService of RocketMQ.

    | record | record | ... | record | padding: 8 bytes, then any value | next file: record | ...

A record goes into the current file if 8 bytes for a padding still fit after it; otherwise a padding
fills the rest of the file. One spare file is created ahead and removed at a clean stop. Appends, rewinds
and deletions run one at a time, under the store's append lock. Reads and syncs may run at any time.
"""

from __future__ import annotations

import threading
from pathlib import Path

from storage.errors import Corrupt, DataError, DiskFull, RecordTooLarge
from storage.rocketmq.format.message import (
    FIXED_SIZE_V4,
    PADDING_SIZE,
    Message,
    decode_message,
    encode_padding,
)
from storage.rocketmq.log.file_sequence import FileSequence


class CommitLog:
    """The commit log over a run of files; `end` is the end of the data that recovery found."""

    def __init__(self, run: FileSequence, *, end: int) -> None:
        self.run = run
        self.end = end  # written under the append lock, read by any thread
        self.suspect_records = (
            0  # number of records read with an impossible header or impossible properties
        )
        self._flushed = end
        self._flush_lock = threading.Lock()

    @property
    def start(self) -> int:
        """The physical offset of the first stored byte; `end` if there are no files."""
        return self.run.start if self.run.bases else self.end

    @property
    def flushed(self) -> int:
        """The physical offset below which everything is on disk."""
        return self._flushed

    @property
    def largest_record(self) -> int:
        """The size in bytes of the largest record that fits a file."""
        return self.run.file_bytes - PADDING_SIZE

    def begin_at(self, physical_offset: int) -> None:
        """Set the physical offset at which an empty log begins."""
        self.end = self._flushed = physical_offset

    def reserve(self, size_bytes: int) -> int:
        """Return the physical offset for a record, or for a batch, which is never split, of this size.

        The result is the log end, after a roll to the next file if the current file has no room.
        Raises RecordTooLarge, DiskFull.
        """
        run, end = self.run, self.end
        if size_bytes > run.file_bytes - PADDING_SIZE:
            raise RecordTooLarge(
                f"{size_bytes} bytes do not fit a commit log file: the limit is "
                f"{self.largest_record}, mappedFileSizeCommitLog less {PADDING_SIZE}",
                size_bytes=size_bytes,
                limit_bytes=self.largest_record,
                index=0,
            )
        base = run.base_of(end)
        if base is None:
            base = end - end % run.file_bytes
            self._open_file(base)
        left = base + run.file_bytes - end
        if size_bytes + PADDING_SIZE > left:
            self._roll(left)
        return self.end

    def path_for(self, size_bytes: int) -> Path | None:
        """Return the file that has room for so many bytes at the log end; None if `reserve` has to make or to leave a
        file.
        """
        run, end = self.run, self.end
        base = run.base_of(end)
        if base is None or size_bytes + PADDING_SIZE > base + run.file_bytes - end:
            return None
        return run.path(base)

    def _roll(self, left: int) -> None:
        """Fill the current file with a padding and go to the next file.

        The old file is synced before anything is written to the new file, so that a power cut loses
        a suffix of the log and leaves no hole.
        """
        following = self.end + left
        self._open_file(following)
        self.run.write(self.end, encode_padding(left))
        self.end = following
        self.flush()
        try:
            self._open_file(following + self.run.file_bytes)
        except DiskFull:
            return  # the spare file is created when it is needed

    def _open_file(self, base: int) -> None:
        """Create the file unless it exists. It may be missing from a running store: a RocketMQ broker
        started on it by mistake removes the spare file before it finds the lock taken.
        """
        fs = self.run.files.fs
        if not fs.exists(self.run.directory):
            fs.make_dir(self.run.directory)
            fs.sync_dir(self.run.directory.parent)
        if not self.run.is_there(base):
            self.run.create(base)

    def write(self, data: bytes) -> None:
        """Write reserved records at the log end. They reach the operating system, not the disk."""
        self.run.write(self.end, data)
        self.end += len(data)

    def rewind(self, end: int, *, written_bytes: int) -> None:
        """Undo all writes after `end`, including a failed last write of at most `written_bytes`.

        The range is overwritten with zeros. Otherwise an old record there could become valid again:
        after a crash that keeps only a new record that ends right before it.
        """
        with self._flush_lock:  # a concurrent sync must not count bytes that are undone
            self.run.zero(end, min(self.end + written_bytes, self.run.limit))
            self.end = end
            self._flushed = min(self._flushed, end)

    def flush(self) -> int:
        """Sync the log and return the physical offset below which everything is on disk. Concurrent
        callers share one sync.
        """
        with self._flush_lock:
            target = self.end
            if self._flushed < target:
                self.run.sync(self._flushed, target)
                self._flushed = target
            return target

    def remove_spare(self) -> None:
        """Remove the files that hold no data, as a clean stop does."""
        spare = [base for base in self.run.bases if base >= max(self.end, 1)]
        self.run.remove_in_turn(spare[::-1])

    def read(self, physical_offset: int, size_bytes: int) -> bytes:
        """Read the bytes of a record, fewer if the file ends first. Raises Corrupt if no file covers the offset."""
        return self.run.read(physical_offset, size_bytes)

    def checked(
        self, data: bytes, position: int, physical_offset: int, *, check_crc: bool = True
    ) -> Message:
        """Decode the record at `data[position:]`, which is stored at `physical_offset`.

        Raises Corrupt, with the file and the position in it, if the record is damaged. The physical
        offset in the record itself is not compared, as in RocketMQ.
        """
        try:
            message = decode_message(data, position, check_crc=check_crc)
        except DataError as error:
            facts = error.facts()
            raise self.damage(
                physical_offset,
                error.message,
                expected=facts.get("expected"),
                found=facts.get("found"),
            ) from error
        return message

    def damage(
        self, physical_offset: int, what: str, *, expected: object = None, found: object = None
    ) -> Corrupt:
        """Return the error for a bad record: file, position in it, expected and found values."""
        path, position = self.run.place_of(physical_offset)
        return Corrupt(
            f"{path}: position {position}: {what}",
            kind="message",
            path=str(path),
            position=position,
            expected=expected,
            found=found,
        )

    def size_at(self, physical_offset: int) -> int:
        """Return the size field of the record at an offset. Raises Corrupt if it is not a possible size."""
        data = self.read(physical_offset, 4)
        size = int.from_bytes(data, "big", signed=True)
        if len(data) < 4 or not 0 < size <= self.largest_record:
            raise self.damage(physical_offset, "no record begins here", found=str(size))
        return size


def record_at(run: FileSequence, physical_offset: int) -> Message | None:
    """Return the record at a physical offset if it is whole, valid and contains this offset; None otherwise."""
    if run.base_of(physical_offset) is None:
        return None
    head = run.read(physical_offset, 4)
    size = int.from_bytes(head, "big", signed=True)
    if len(head) < 4 or not FIXED_SIZE_V4 <= size <= run.file_bytes:
        return None
    try:
        message = decode_message(run.read(physical_offset, size))
    except DataError:
        return None
    return message if message.physical_offset == physical_offset else None


def store_time_at(run: FileSequence, physical_offset: int) -> int:
    """Return the store time in ms of the record at a physical offset; 0 if there is no valid record."""
    message = record_at(run, physical_offset)
    return 0 if message is None else message.store_timestamp_ms
