"""The commit log: every record of every queue in one sequence of bytes (CommitLog).

Owns where the next record goes (padding, roll, the spare file), how far the log is written and
synced, and reading a record by its physical offset; must not know queues or the index. Sources:
CommitLog, DefaultAppendMessageCallback and AllocateMappedFileService of RocketMQ.

    | record | record | ... | record | padding: 8 bytes, then any value | next file: record | ...

A record goes into the current file if it leaves 8 bytes there for a padding; otherwise a padding
takes all that is left. One file more than needed is kept ahead and removed at a clean stop.
Appends, rewinds and deletions: one at a time, under the store's append lock. Reads and syncs: at
any time.
"""

from __future__ import annotations

import threading

from storage.errors import Corrupt, DataError, DiskFull, RecordTooLarge
from storage.rocketmq.file_run import FileRun
from storage.rocketmq.format.message import (
    FIXED_SIZE_V4,
    PADDING_SIZE,
    Message,
    decode_message,
    encode_padding,
)


class CommitLog:
    """The log over a run of files; `end` is where recovery found the end of the data."""

    def __init__(self, run: FileRun, *, end: int) -> None:
        self.run = run
        self.end = end  # written under the append lock, read by anyone
        self.suspect_records = (
            0  # how often one was read whose header or properties cannot be right
        )
        self._flushed = end
        self._flush_lock = threading.Lock()

    @property
    def start(self) -> int:
        """The physical offset of the first byte that is there."""
        return self.run.start if self.run.bases else self.end

    @property
    def flushed(self) -> int:
        """Everything below it is on disk."""
        return self._flushed

    @property
    def largest_record(self) -> int:
        """The size of the largest record that fits a file."""
        return self.run.file_bytes - PADDING_SIZE

    def begin_at(self, physical_offset: int) -> None:
        """Let an empty log begin there."""
        self.end = self._flushed = physical_offset

    def reserve(self, size_bytes: int) -> int:
        """Where a record (or a batch, which is never split) of this size goes: the end, after a
        padding where the current file has no room. Raises RecordTooLarge, DiskFull.
        """
        if size_bytes > self.largest_record:
            raise RecordTooLarge(
                f"{size_bytes} bytes do not fit a commit log file: the limit is "
                f"{self.largest_record}, mappedFileSizeCommitLog less {PADDING_SIZE}",
                size_bytes=size_bytes,
                limit_bytes=self.largest_record,
                index=0,
            )
        if self.run.base_of(self.end) is None:
            self._open_file(self.end - self.end % self.run.file_bytes)
        left = self.run.file_end(self.end) - self.end
        if size_bytes + PADDING_SIZE > left:
            self._roll(left)
        return self.end

    def _roll(self, left: int) -> None:
        """Fill the current file with a padding and go to the next one.

        What is in the old file is on disk before anything is written to the new one, so that a
        power cut loses a suffix of the log.
        """
        following = self.end + left
        self._open_file(following)
        self.run.write(self.end, encode_padding(left))
        self.end = following
        self.flush()
        try:
            self._open_file(following + self.run.file_bytes)
        except DiskFull:
            return  # then it is made when it is needed

    def _open_file(self, base: int) -> None:
        """Make the file unless it is there. A real store that is started by mistake beside this one
        removes the spare file before it finds the lock taken.
        """
        fs = self.run.files.fs
        if not fs.exists(self.run.directory):
            fs.make_dir(self.run.directory)
            fs.sync_dir(self.run.directory.parent)
        if not self.run.is_there(base):
            self.run.create(base)

    def write(self, data: bytes) -> None:
        """Put reserved records at the end. They are with the operating system, not on disk."""
        self.run.write(self.end, data)
        self.end += len(data)

    def rewind(self, end: int, *, written_bytes: int) -> None:
        """Take back what was written behind `end`, the last write of at most `written_bytes` too.

        It is overwritten with zeros: records behind the end would come to life again when a record
        that ends before one of them is all that a crash leaves.
        """
        with self._flush_lock:  # a sync that runs now must not count what is taken back
            self.run.zero(end, min(self.end + written_bytes, self.run.limit))
            self.end = end
            self._flushed = min(self._flushed, end)

    def flush(self) -> int:
        """On return everything below the result is on disk. Many callers share one sync."""
        with self._flush_lock:
            target = self.end
            if self._flushed < target:
                self.run.sync(self._flushed, target)
                self._flushed = target
            return target

    def remove_spare(self) -> None:
        """Remove the files that hold nothing, as a clean stop does."""
        spare = [base for base in self.run.bases if base >= max(self.end, 1)]
        self.run.remove_in_turn(spare[::-1])

    def read(self, physical_offset: int, size_bytes: int) -> bytes:
        """The bytes of a record, fewer when the file ends first. Raises Corrupt where no file is."""
        return self.run.read(physical_offset, size_bytes)

    def checked(
        self, data: bytes, position: int, physical_offset: int, *, check_crc: bool = True
    ) -> Message:
        """The record at `data[position:]`, which lies at `physical_offset`.

        Raises Corrupt with the file and the position in it for one that is damaged. The physical
        offset that the record itself tells is not compared, as in the real store.
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
        """The error for a bad record: file, position in it, what was expected and found."""
        base = self.run.base_of(physical_offset)
        path = self.run.directory if base is None else self.run.path(base)
        position = physical_offset - (base or 0)
        return Corrupt(
            f"{path}: position {position}: {what}",
            kind="message",
            path=str(path),
            position=position,
            expected=expected,
            found=found,
        )

    def size_at(self, physical_offset: int) -> int:
        """The size that the record at a place tells. Raises Corrupt where none can be."""
        data = self.read(physical_offset, 4)
        size = int.from_bytes(data, "big", signed=True)
        if len(data) < 4 or not 0 < size <= self.largest_record:
            raise self.damage(physical_offset, "no record begins here", found=str(size))
        return size


def record_at(run: FileRun, physical_offset: int) -> Message | None:
    """The whole good record that lies there and says so itself; None for anything else."""
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


def store_time_at(run: FileRun, physical_offset: int) -> int:
    """The store time of the record that lies there; 0 where none does."""
    message = record_at(run, physical_offset)
    return 0 if message is None else message.store_timestamp_ms
