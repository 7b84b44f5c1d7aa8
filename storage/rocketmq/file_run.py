"""A run of files of one size that together are one long file: RocketMQ's MappedFileQueue.

Owns the names and lengths of the files in one folder and the way from a position in the run to a
file; must not know what the bytes mean. A file is named after the position of its first byte in the
run and is made at its full length, sparsely. Writes are pwrite, so a full disk shows there.

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


class FileRun:
    """The files of one folder, by the position of their first byte. `kind` is for messages."""

    def __init__(
        self,
        files: HandleCache,
        directory: Path,
        file_bytes: int,
        *,
        kind: str,
        folders: Sequence[Path] = (),
    ) -> None:
        """`folders`: all folders that hold files of this run, for reading (MultiPathMappedFileQueue); `directory` is
        the one that gets new files.
        """
        self.files = files
        self.directory = directory
        self.folders = tuple(folders) or (directory,)
        self.file_bytes = file_bytes
        self.kind = kind
        self._paths: dict[int, Path] = {}  # to make one takes longer than to write to its file
        # Replaced as a whole by the one writer, so that a reader's copy stays what it is.
        self._bases: tuple[int, ...] = ()

    def load(self) -> None:
        """Take in the files that are there. Names that are no place for a file are left alone."""
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
        """Count these files as there, whoever has seen them; ascending."""
        self._bases = tuple(bases)

    def forget(self) -> None:
        """Count the files as none; they stay where they are."""
        self._bases = ()

    @property
    def is_whole(self) -> bool:
        """Whether each file begins where the one before it ends."""
        bases = self._bases
        return not bases or bases == tuple(range(bases[0], bases[-1] + 1, self.file_bytes))

    @property
    def is_full(self) -> bool:
        """Whether each file has its whole length; a crash may leave a last one without a byte."""
        fs = self.files.fs
        sizes = [fs.size(self.path(base)) for base in self._bases]
        return all(size == self.file_bytes for size in (sizes if sizes[-1:] != [0] else sizes[:-1]))

    @property
    def lacks_first(self) -> bool:
        """Whether the file that begins at position 0 was deleted, or never was."""
        return self.start >= self.file_bytes

    @property
    def bases(self) -> Sequence[int]:
        """Where the files begin, ascending: a snapshot."""
        return self._bases

    @property
    def start(self) -> int:
        """The position of the first byte that is there; 0 without files."""
        bases = self._bases
        return bases[0] if bases else 0

    @property
    def limit(self) -> int:
        """The position behind the last file; 0 without files."""
        bases = self._bases
        return bases[-1] + self.file_bytes if bases else 0

    def base_of(self, position: int) -> int | None:
        """The file that covers a position; None where there is none."""
        bases = self._bases
        at = bisect_right(bases, position) - 1
        if at < 0 or position >= bases[at] + self.file_bytes:
            return None
        return bases[at]

    def _between(self, start: int, end: int) -> Sequence[int]:
        """The files that hold a part of [start, end)."""
        bases = self._bases
        first = bisect_left(bases, start - self.file_bytes + 1)
        return bases[first : bisect_left(bases, end)]

    def path(self, base: int) -> Path:
        """The path of the file that begins there."""
        path = self._paths.get(base)
        if path is None:
            path = self._paths[base] = self._folder_of(base) / file_name(base)
        return path

    def _folder_of(self, base: int) -> Path:
        """The folder that holds a file: the first one where it is in several."""
        name, fs = file_name(base), self.files.fs
        for folder in self.folders[:-1]:
            if fs.exists(folder / name):
                return folder
        return self.folders[-1] if len(self.folders) > 1 else self.directory

    def file_end(self, position: int) -> int:
        """The position behind the file that covers `position`, whether it is there or not."""
        base = self.base_of(position)
        if base is None:
            base = position - position % self.file_bytes
        return base + self.file_bytes

    def read(self, position: int, size_bytes: int) -> bytes:
        """Up to `size_bytes` from `position`, fewer at the end of that file. Raises Corrupt where
        no file is.
        """
        base = self.base_of(position)
        if base is None:
            raise self.missing(position)
        size_bytes = min(size_bytes, base + self.file_bytes - position)
        with self.files.borrow(self.path(base)) as file:
            return file.pread(size_bytes, position - base)

    def missing(self, position: int) -> Corrupt:
        """The error for a position that no file covers."""
        return Corrupt(
            f"{self.directory}: no file holds position {position}",
            kind=self.kind,
            path=str(self.directory),
            position=position,
            expected=f"a file from {self.start} to {self.limit}",
            found="none",
        )

    def write(self, position: int, data: bytes) -> None:
        """All of `data` at `position`, inside one file that is there."""
        base = self.base_of(position)
        if base is None:
            raise self.missing(position)
        with self.files.borrow(self.path(base), write=True) as file:
            file.pwrite(data, position - base)

    def is_there(self, base: int) -> bool:
        """Whether the file exists, and nobody has taken it away since it was made."""
        path = self.path(base)
        if base in self._bases and not self.files.fs.exists(path):
            self.files.forget(path, sync=False)
            self._bases = tuple(other for other in self._bases if other != base)
        return base in self._bases

    def create(self, base: int) -> None:
        """Make the file that begins at `base`, at full length; its name and its length are durable
        on return, so that a power cut leaves at most the last file of a run without a length.
        """
        self.make(base)
        self.files.datasync(self.path(base))
        self.files.fs.sync_dir(self.directory)

    def make(self, base: int) -> None:
        """As `create`, but not durable: the owner syncs it and the directory before it makes another."""
        with self.files.borrow(self.path(base), write=True, create=True) as file:
            file.truncate(self.file_bytes)
        self._bases = tuple(sorted({*self._bases, base}))

    def remove(self, bases: Sequence[int]) -> None:
        """Remove files; durable after a sync of the directory."""
        self._bases = tuple(base for base in self._bases if base not in bases)
        for base in bases:
            path = self.path(base)
            self.files.fs.remove(path)
            self.files.forget(path, sync=False)
            self._paths.pop(base, None)

    def remove_in_turn(self, bases: Sequence[int]) -> None:
        """Remove files in this order, each durably before the next: a disk may forget a removal and
        keep a later one, which from the ends of a run inwards leaves no gap.
        """
        for base in bases:
            self.remove([base])
            self.files.fs.sync_dir(self.directory)

    def distrust(self, base: int) -> None:
        """Let the next sync of this file be one, whoever wrote to it: it counts as written."""
        with self.files.borrow(self.path(base), write=True):
            return

    def sync(self, start: int, end: int) -> None:
        """On return what was written to [start, end) is on disk, in order of the files."""
        for base in self._between(start, end):
            self.files.datasync(self.path(base))

    def data_end(self, position: int) -> int:
        """The position behind the last byte that is not zero, at or behind `position`."""
        for base in reversed(self._bases):
            if base + self.file_bytes <= position:
                break
            end = self.data_end_in(base, max(base, position))
            if end > max(base, position):
                return end
        return position

    def data_end_in(self, base: int, start: int) -> int:
        """The position behind the last byte of one file that is not zero, at or behind `start`."""
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
        """Make [start, end), behind which nothing counts, zeros and sync it; files that are not
        there are left out.

        Written only where something else is: a hole stays one, and needs no space. Where a disk is
        too full even to write over what is there, the file is cut and made long again.
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
        """(position, bytes) of [start, end), in pieces of this size that stay inside a file."""
        position = start
        while position < end:
            data = self.read(position, min(size_bytes, end - position))
            if not data:
                raise self.missing(position)
            yield position, data
            position += len(data)
