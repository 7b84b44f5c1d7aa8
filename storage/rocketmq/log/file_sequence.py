"""A run of files of one size that together are one long file: RocketMQ's MappedFileQueue.

Owns the names and lengths of the files in one folder and the mapping of a position in the run to a
file; must not know what the bytes mean. A file is named after the position of its first byte in the
run and is created at its full length, sparsely. Writes use pwrite, so that a full disk raises an error
at the write.

    position in the run   0 ............. size-1 | size ........ 2*size-1 | ...
    file                  00000000000000000000   | 0000000000000000SIZE   | ...

One writer at a time (its owner's lock); readers at any time.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from pathlib import Path

from storage.errors import Corrupt, DiskFull
from storage.files import HandleCache
from storage.rocketmq.format.names import file_name, parse_file_name

CHUNK_BYTES = 1 << 20
_ZEROS = memoryview(bytes(CHUNK_BYTES))


class FileSequence:
    """The files of one folder, by the position of their first byte. `kind` is used in error messages."""

    def __init__(
        self,
        files: HandleCache,
        directory: Path,
        file_bytes: int,
        *,
        kind: str,
        folders: Sequence[Path] = (),
    ) -> None:
        """`folders`: all folders with files of this run, for reading (MultiPathMappedFileQueue); `directory` is
        the folder for new files.
        """
        self.files = files
        self.directory = directory
        self.folders = tuple(folders) or (directory,)
        self.file_bytes = file_bytes
        self.kind = kind
        self._paths: dict[int, Path] = {}  # cached: to build a path takes longer than to write
        # Replaced as a whole by the one writer, so that a reader's copy does not change.
        self._bases: tuple[int, ...] = ()

    def load(self) -> None:
        """List the files that exist. Names that are not a valid base offset of this run are ignored."""
        fs = self.files.fs
        found: dict[int, Path] = {}
        for folder in self.folders:
            for name in fs.list_dir(folder) if fs.is_dir(folder) else ():
                base = parse_file_name(name)
                if base is None or base % self.file_bytes or fs.is_dir(folder / name):
                    continue
                found.setdefault(base, folder / name)
        if len(self.folders) > 1:
            self._paths |= found
        self._bases = tuple(sorted(found))

    def take_as_there(self, bases: Sequence[int]) -> None:
        """Use this list of files, in ascending order, without reading the folder."""
        self._bases = tuple(bases)

    def forget(self) -> None:
        """Treat the run as having no files; they stay on disk."""
        self._bases = ()

    @property
    def is_whole(self) -> bool:
        """Whether each file begins where the previous file ends."""
        bases = self._bases
        return not bases or bases == tuple(range(bases[0], bases[-1] + 1, self.file_bytes))

    @property
    def is_full(self) -> bool:
        """Whether each file has its full length; a last file of 0 bytes is allowed: a crash may leave it."""
        fs = self.files.fs
        sizes = [fs.size(self.path(base)) for base in self._bases]
        return all(size == self.file_bytes for size in (sizes if sizes[-1:] != [0] else sizes[:-1]))

    @property
    def lacks_first(self) -> bool:
        """Whether the file that begins at position 0 was deleted or never existed."""
        return self.start >= self.file_bytes

    @property
    def bases(self) -> Sequence[int]:
        """The base offsets of the files, in ascending order: a snapshot."""
        return self._bases

    @property
    def start(self) -> int:
        """The position of the first stored byte; 0 without files."""
        bases = self._bases
        return bases[0] if bases else 0

    @property
    def limit(self) -> int:
        """The position after the last file; 0 without files."""
        bases = self._bases
        return bases[-1] + self.file_bytes if bases else 0

    def base_of(self, position: int) -> int | None:
        """Return the base offset of the file that covers a position; None if there is no such file."""
        bases = self._bases
        at = bisect_right(bases, position) - 1
        if at < 0 or position >= bases[at] + self.file_bytes:
            return None
        return bases[at]

    def _between(self, start: int, end: int) -> Sequence[int]:
        """Return the base offsets of the files that overlap [start, end)."""
        bases = self._bases
        first = bisect_left(bases, start - self.file_bytes + 1)
        return bases[first : bisect_left(bases, end)]

    def path(self, base: int) -> Path:
        """Return the path of the file with this base offset."""
        path = self._paths.get(base)
        if path is None:
            path = self._paths[base] = self._folder_of(base) / file_name(base)
        return path

    def place_of(self, position: int) -> tuple[Path, int]:
        """Return (the file that covers a position, the position in it); the folder if there is no such file."""
        base = self.base_of(position)
        return (self.directory, position) if base is None else (self.path(base), position - base)

    def _folder_of(self, base: int) -> Path:
        """Return the folder that holds a file: the first such folder if several hold it."""
        name, fs = file_name(base), self.files.fs
        for folder in self.folders[:-1]:
            if fs.exists(folder / name):
                return folder
        return self.folders[-1] if len(self.folders) > 1 else self.directory

    def file_end(self, position: int) -> int:
        """Return the end position of the file that covers `position`, whether the file exists or not."""
        base = self.base_of(position)
        if base is None:
            base = position - position % self.file_bytes
        return base + self.file_bytes

    def read(self, position: int, size_bytes: int) -> bytes:
        """Read up to `size_bytes` from `position`, fewer at the end of that file. Raises Corrupt if no
        file covers the position.
        """
        base = self.base_of(position)
        if base is None:
            raise self.missing(position)
        size_bytes = min(size_bytes, base + self.file_bytes - position)
        with self.files.borrow(self.path(base)) as file:
            return file.pread(size_bytes, position - base)

    def missing(self, position: int) -> Corrupt:
        """Return the error for a position that no file covers."""
        return Corrupt(
            f"{self.directory}: no file holds position {position}",
            kind=self.kind,
            path=str(self.directory),
            position=position,
            expected=f"a file from {self.start} to {self.limit}",
            found="none",
        )

    def write(self, position: int, data: bytes) -> None:
        """Write all of `data` at `position`, inside one existing file."""
        base = self.base_of(position)
        if base is None:
            raise self.missing(position)
        path = self._paths.get(base) or self.path(base)  # each append comes here
        with self.files.borrow(path, write=True) as file:
            file.pwrite(data, position - base)

    def is_there(self, base: int) -> bool:
        """Return whether the file exists. A file that another process removed is dropped from the run."""
        path = self.path(base)
        if base in self._bases and not self.files.fs.exists(path):
            self.files.forget(path, sync=False)
            self._bases = tuple(other for other in self._bases if other != base)
        return base in self._bases

    def create(self, base: int) -> None:
        """Create the file that begins at `base`, at full length. Its name and length are durable on
        return, so that a power cut leaves at most the last file of a run without a length.
        """
        self.make(base)
        self.files.datasync(self.path(base))
        self.files.fs.sync_dir(self.directory)

    def make(self, base: int) -> None:
        """Create the file, not durably: the owner must sync it and the folder before it makes another file."""
        with self.files.borrow(self.path(base), write=True, create=True) as file:
            file.truncate(self.file_bytes)
        self._bases = tuple(sorted({*self._bases, base}))

    def remove(self, bases: Sequence[int]) -> None:
        """Remove files. The removal is durable after a sync of the directory."""
        self._bases = tuple(base for base in self._bases if base not in bases)
        for base in bases:
            path = self.path(base)
            self.files.fs.remove(path)
            self.files.forget(path, sync=False)
            self._paths.pop(base, None)

    def remove_in_turn(self, bases: Sequence[int]) -> None:
        """Remove files in this order, each durably before the next. A disk may lose a removal and keep
        a later one; an order from the ends of a run inwards then leaves no gap.
        """
        for base in bases:
            self.remove([base])
            self.files.fs.sync_dir(self.directory)

    def distrust(self, base: int) -> None:
        """Mark this file as written, so that the next `sync` reaches the disk even if another process wrote it."""
        with self.files.borrow(self.path(base), write=True):
            return

    def sync(self, start: int, end: int) -> None:
        """Sync all writes to [start, end), file by file in ascending order."""
        for base in self._between(start, end):
            self.files.datasync(self.path(base))

    def data_end(self, position: int) -> int:
        """Return the position after the last non-zero byte at or after `position`; `position` if there is none."""
        for base in reversed(self._bases):
            if base + self.file_bytes <= position:
                break
            end = self.data_end_in(base, max(base, position))
            if end > max(base, position):
                return end
        return position

    def zeros_from(self, base: int) -> int:
        """Return a position from which on one file reads as zeros: the nearest one known without reading."""
        with self.files.borrow(self.path(base)) as file:
            return base + min(file.data_end(0), self.file_bytes)

    def data_end_in(self, base: int, start: int) -> int:
        """Return the position after the last non-zero byte of one file at or after `start`; `start` if none."""
        with self.files.borrow(self.path(base)) as file:
            end = min(base + file.data_end(start - base), base + self.file_bytes)
        while end > start:
            begin = max(start, end - CHUNK_BYTES)
            data = self.read(begin, end - begin)
            if data != _ZEROS[: len(data)]:
                return begin + len(data.rstrip(b"\0"))
            end = begin
        return start

    def zero(self, start: int, end: int) -> None:
        """Overwrite [start, end) with zeros and sync it. Missing files are skipped.

        Only non-zero bytes are written: a hole stays a hole and needs no disk space. If the disk is too
        full even to overwrite, the file is truncated at the range and extended again. The caller must
        need no byte after `end`.
        """
        for base in self._between(start, end):
            begin, stop = max(start, base), min(end, base + self.file_bytes)
            try:
                self._zero_in(begin, stop)
            except DiskFull:
                with self.files.borrow(self.path(base), write=True) as file:
                    file.truncate(begin - base)
                    file.truncate(self.file_bytes)
        self.sync(start, end)

    def _zero_in(self, start: int, end: int) -> None:
        for at in range(start, end, CHUNK_BYTES):
            data = self.read(at, min(CHUNK_BYTES, end - at))
            written = len(data.rstrip(b"\0"))
            first = written - len(data[:written].lstrip(b"\0"))
            if first < written:
                self.write(at + first, bytes(written - first))

    def chunks(self, start: int, end: int, size_bytes: int) -> Iterator[tuple[int, bytes]]:
        """Yield (position, bytes) for [start, end), in pieces of at most this size that stay inside a file."""
        position = start
        while position < end:
            data = self.read(position, min(size_bytes, end - position))
            if not data:
                raise self.missing(position)
            yield position, data
            position += len(data)
