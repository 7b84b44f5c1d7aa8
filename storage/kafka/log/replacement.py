"""The replacement of segments by one cleaned segment, crash-safe in the broker's order (LocalLog.replaceSegments).

Owns the files of the new segment under their suffixes, and the order of the renames; must not decide which records
stay, and must not know which segments readers find: the partition does, under its locks.

    1. NAME.cleaned        the new files are written and synced. A start removes them: nothing has happened.
    2. NAME.swap           all of them are renamed. Once the last one is, a start completes the replacement.
    3. OLD.deleted         the files of the old segments are renamed, from the first segment to the last.
    4. NAME                the new files get their names.

A start that completes a replacement removes only the old segments with a base offset below the end of the new log. The
others stay if the crash came before step 3. The order of their removal must then be durable: else a tombstone could go
and the older record of its key stay. So from the first of these on, the directory is synced after each. It is synced
before step 4 too: without a `.swap` file no start would remove the old segments.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from storage.coding.varint import INT32_MAX
from storage.errors import DiskFull, IoFailure, RecordTooLarge
from storage.files import File, HandleCache, remove_if_present, write_durably
from storage.kafka.format import names, txn_index
from storage.kafka.format.batch import BatchHeader
from storage.kafka.format.names import segment_name
from storage.kafka.format.sparse_index import offset_index, time_index
from storage.kafka.format.txn_index import AbortedTransaction
from storage.kafka.index.indexes import IndexRebuild
from storage.kafka.log.segment import Segment
from storage.kafka.state.settings import TopicSettings

WRITE_BYTES: Final = 1 << 20
SYNC_BYTES: Final = 16 << 20
"""A segment is synced after so many bytes, so that no step of a cleaning waits for the disk to write a gigabyte."""


class CleanedSegment:
    """A segment under the suffix `.cleaned`, which is written batch by batch. One thread uses it."""

    def __init__(
        self, files: HandleCache, directory: Path, base_offset: int, settings: TopicSettings
    ) -> None:
        """Create an empty log file. Raises DiskFull, IoFailure."""
        self.base_offset = base_offset
        self.end_offset = base_offset
        self.size_bytes = 0
        self.aborted: list[AbortedTransaction] = []
        self.suffixes: tuple[str, ...] = ()
        self._files = files
        self._directory = directory
        self._settings = settings
        self._indexes = IndexRebuild(
            base_offset=base_offset, interval_bytes=settings.index_interval_bytes
        )
        self._waiting: list[bytes | memoryview] = []
        self._waiting_bytes = 0
        self._synced_bytes = 0
        path = self._path(names.LOG, names.CLEANED)
        self._file: File | None = files.fs.open(path, write=True, create=True)
        self._file.truncate(0)

    def _path(self, suffix: str, state: str) -> Path:
        return self._directory / (segment_name(self.base_offset, suffix) + state)

    def append(self, header: BatchHeader, data: bytes | memoryview) -> None:
        """Add a batch. Raises DiskFull, IoFailure, or RecordTooLarge if the log becomes too long for its index."""
        position = self.size_bytes
        if position + len(data) > INT32_MAX:
            raise RecordTooLarge(
                f"the cleaned segment {self.base_offset} becomes longer than {INT32_MAX} bytes",
                size_bytes=position + len(data),
                limit_bytes=INT32_MAX,
            )
        self._indexes.add(position, header)
        self._waiting.append(data)
        self._waiting_bytes += len(data)
        self.size_bytes += len(data)
        self.end_offset = header.next_offset
        if self._waiting_bytes >= WRITE_BYTES:
            self._write()
            if self.size_bytes - self._synced_bytes >= SYNC_BYTES:
                self._sync()

    def _write(self) -> None:
        assert self._file is not None
        data = b"".join(self._waiting)
        self._file.pwrite(data, self.size_bytes - len(data))
        self._waiting.clear()
        self._waiting_bytes = 0

    def _sync(self) -> None:
        assert self._file is not None
        self._file.datasync()
        self._synced_bytes = self.size_bytes

    def finish(self, *, modified_ms: int) -> None:
        """Write everything and sync it, with the modification time of the newest segment that is replaced: it is the
        segment's time if no batch has a timestamp. Raises DiskFull, IoFailure.
        """
        fs = self._files.fs
        if self._waiting:
            self._write()
        self._sync()
        self._close()
        found = self._indexes.finish()
        contents = {
            names.INDEX: b"".join(offset_index.encode_entry(*e) for e in found.offsets),
            names.TIME_INDEX: b"".join(time_index.encode_entry(*e) for e in found.times),
        }
        if self.aborted:
            contents[names.TXN_INDEX] = b"".join(map(txn_index.encode_entry, self.aborted))
        for suffix, data in contents.items():
            write_durably(fs, self._path(suffix, names.CLEANED), data)
        fs.set_mtime_ms(self._path(names.LOG, names.CLEANED), modified_ms)
        self.suffixes = (names.LOG, *contents)
        fs.sync_dir(self._directory)

    def discard(self) -> None:
        """Remove the files of a segment that was not swapped in. What cannot be removed, the next start removes."""
        self._close()
        for suffix in (names.LOG, names.INDEX, names.TIME_INDEX, names.TXN_INDEX):
            with suppress(IoFailure):
                remove_if_present(self._files.fs, self._path(suffix, names.CLEANED))

    def _close(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            file.close()

    def swap_in(self, old: Sequence[Segment]) -> tuple[Segment, Sequence[Path]]:
        """Replace the files of the old segments; the new segment is durable on return. No other thread may open a
        file of these segments meanwhile.

        Return the new segment, and the files of the old ones, which are then named `.deleted`. Raises IoFailure, also
        for a full disk: then only a start knows which files count.
        """
        fs = self._files.fs
        set_aside: list[Path] = []
        try:
            for suffix in self.suffixes:
                fs.rename(self._path(suffix, names.CLEANED), self._path(suffix, names.SWAP))
            fs.sync_dir(self._directory)
            for segment in old:
                set_aside += self._set_aside(segment)
                if segment.base_offset >= self.end_offset:
                    fs.sync_dir(self._directory)
            fs.sync_dir(self._directory)
            for suffix in self.suffixes:
                fs.rename(self._path(suffix, names.SWAP), self._path(suffix, ""))
            fs.sync_dir(self._directory)
        except DiskFull as error:
            raise IoFailure(error.message, **error.facts()) from error
        for segment in old:
            for path in (*segment.paths(), segment.txn_index.path):
                self._files.forget(path, sync=False)
        segment = Segment(
            self._files,
            self._directory,
            self.base_offset,
            self._settings,
            size_bytes=self.size_bytes,
            has_txn_index=names.TXN_INDEX in self.suffixes,
        )
        return segment, set_aside

    def _set_aside(self, segment: Segment) -> Iterator[Path]:
        """Rename the files of an old segment. The snapshot at the base of the new segment stays."""
        paths = [*segment.paths(), segment.txn_index.path]
        if segment.base_offset != self.base_offset:
            paths.append(self._directory / segment_name(segment.base_offset, names.SNAPSHOT))
        for path in paths:
            if self._files.fs.exists(path):
                target = path.with_name(path.name + names.DELETED)
                self._files.fs.rename(path, target)
                yield target
