"""Random damage of a store: the effects of disks, crashes and people on files and folders.

Owns the kinds of damage and the random choice between them; must not know how a format reacts to them. A case has one
to three kinds of damage, drawn from a seed and a number, so each case can be repeated.
"""

from __future__ import annotations

import errno
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from storage.files.failures import io_failure
from storage.files.fs import File, FileSystem
from tests.damage.sources import LOG_STARTS, ROOT
from tests.robustness.crash.ram import Ram
from tests.robustness.crash.relay import Relay, RelayFile

SECTOR = 512
MOST = 3
FULL = 1 << 62


class Bad(NamedTuple):
    """A range of a file, or a folder, that the operating system refuses to read: EIO or EACCES."""

    path: Path
    number: int
    start: int = 0
    stop: int = FULL


class Unreadable(Relay):
    """A disk with some unreadable files and folders."""

    def __init__(self, fs: FileSystem, bad: Sequence[Bad]) -> None:
        super().__init__(fs)
        self._bad = bad

    def check(self, path: Path, operation: str, start: int = 0, stop: int = FULL) -> None:
        """Raise IoFailure if the bytes cannot be read."""
        for bad in self._bad:
            here = path == bad.path or (bad.path in path.parents and bad.number == errno.EACCES)
            if here and start < bad.stop and bad.start < stop:
                raise io_failure(bad.number, path, operation)

    def _check_open(self, path: Path, operation: str) -> None:
        for bad in self._bad:
            if bad.number == errno.EACCES:
                self.check(path, operation)

    def open(self, path: Path, *, write: bool = False, create: bool = False) -> File:
        """Open a file; refuse a file without access."""
        self._check_open(path, "open")
        return super().open(path, write=write, create=create)

    def wrap(self, file: File) -> File:
        """Return a file that checks each read."""
        return UnreadableFile(self, file)

    def list_dir(self, path: Path) -> Sequence[str]:
        """List a folder; refuse an unreadable folder."""
        if self._fs.is_dir(path):
            self.check(path, "list")
        return super().list_dir(path)

    def read_bytes(self, path: Path) -> bytes:
        """Read a file; refuse it if any part is unreadable."""
        self.check(path, "read", 0, self._fs.size(path))
        return super().read_bytes(path)


class UnreadableFile(RelayFile):
    """An open file of `Unreadable`."""

    def __init__(self, disk: Unreadable, file: File) -> None:
        super().__init__(disk, file)
        self._disk = disk

    def pread(self, size_bytes: int, position: int) -> bytes:
        """Read a range; refuse it if any part is unreadable."""
        self._disk.check(self.path, "read", position, position + size_bytes)
        return super().pread(size_bytes, position)


class Damage:
    """A damaged copy of a disk: `disk` holds the bytes, `bad` the unreadable ranges, `story` the damage done."""

    def __init__(self, disk: Ram, rng: random.Random) -> None:
        self.disk = disk
        self.bad: list[Bad] = []
        self.story: list[str] = []
        self._rng = rng

    def view(self) -> FileSystem:
        """Return a copy of the disk that may be changed."""
        copy = self.disk.copy()
        return Unreadable(copy, self.bad) if self.bad else copy

    def strike(self) -> None:
        """Do one to three kinds of damage."""
        for _ in range(self._rng.randint(1, MOST)):
            self._rng.choice(KINDS)(self)

    # ---- targets ----

    def _files(self) -> list[Path]:
        return [Path(name) for name, _ in self.disk.files() if not name.endswith("/")]

    def _file(self) -> Path | None:
        """Draw a file: first draw a folder, so that the one log file counts as much as its many indexes."""
        files = [path for path in self._files() if ROOT in path.parents]
        if not files:
            return None
        folder = self._rng.choice(sorted({path.parent for path in files}))
        return self._rng.choice([path for path in files if path.parent == folder])

    def _folder(self) -> Path | None:
        folders = {
            folder for path in self._files() for folder in path.parents if ROOT in folder.parents
        }
        return self._rng.choice(sorted(folders)) if folders else None

    def _range(self, path: Path) -> tuple[int, int]:
        """Draw a range of a file: whole sectors, or any bytes."""
        size = max(len(self.disk.read_bytes(path).rstrip(b"\0")), 1)
        step = self._rng.choice((1, 1, SECTOR))
        start = self._rng.randrange(0, size, step) // step * step
        return start, start + step * self._rng.choice((1, 1, 2, 8, 64))

    def _write(self, path: Path, data: bytes) -> None:
        file = self.disk.open(path, create=True)
        file.truncate(0)
        file.pwrite(data, 0)
        file.close()

    # ---- the kinds ----

    def delete_file(self) -> None:
        """Remove a file."""
        path = self._file()
        if path is not None:
            self.disk.remove(path)
            self.story.append(f"removed {path}")

    def delete_folder(self) -> None:
        """Remove a folder and everything in it."""
        path = self._folder()
        if path is not None:
            self.disk.remove_tree(path)
            self.story.append(f"removed folder {path}")

    def truncate(self) -> None:
        """Truncate a file, sometimes to zero length."""
        path = self._file()
        if path is not None:
            data = self.disk.read_bytes(path)
            end = self._rng.choice((0, self._rng.randint(0, len(data)), self._range(path)[0]))
            self._write(path, data[:end])
            self.story.append(f"cut {path} at {end} of {len(data)}")

    def zero(self) -> None:
        """Overwrite a range of a file with zeros."""
        self._overwrite("zeros", bytes)

    def garbage(self) -> None:
        """Overwrite a range of a file with random bytes."""
        self._overwrite("garbage", self._rng.randbytes)

    def _overwrite(self, what: str, fill: Callable[[int], bytes]) -> None:
        path = self._file()
        if path is None:
            return
        data = self.disk.read_bytes(path)
        start, stop = self._range(path)
        stop = min(stop, len(data))
        if start < stop:
            self._write(path, data[:start] + fill(stop - start) + data[stop:])
            self.story.append(f"{what} over {path} from {start} to {stop}")

    def flip(self) -> None:
        """Flip one bit."""
        path = self._file()
        if path is None or not self.disk.read_bytes(path):
            return
        data = bytearray(self.disk.read_bytes(path))
        at = min(self._range(path)[0], len(data) - 1)
        bit = self._rng.randrange(8)
        data[at] ^= 1 << bit
        self._write(path, bytes(data))
        self.story.append(f"flipped bit {bit} of byte {at} of {path}")

    def swap(self) -> None:
        """Exchange two files of one folder that have the same suffix."""
        path = self._file()
        others = [] if path is None else self.disk.list_dir(path.parent)
        names = [
            n
            for n in others
            if path is not None and n != path.name and Path(n).suffix == path.suffix
        ]
        if path is None or not names:
            return
        other = path.with_name(self._rng.choice(names))
        # If a log start gets a high watermark's value, all records look deleted, and no other file contradicts that.
        if self.disk.is_dir(other) or LOG_STARTS in (path.name, other.name):
            return
        one, two = self.disk.read_bytes(path), self.disk.read_bytes(other)
        self._write(path, two)
        self._write(other, one)
        self.story.append(f"swapped {path} and {other.name}")

    def rename(self) -> None:
        """Rename a file or folder."""
        path = self._file() if self._rng.random() < 0.7 else self._folder()
        if path is None:
            return
        name = self._rng.choice(
            (f"{path.name}.bak", f"{path.name}~", "renamed", f"old-{path.name}")
        )
        if not self.disk.exists(path.with_name(name)):
            self.disk.rename(path, path.with_name(name))
            self.story.append(f"renamed {path} to {name}")

    def unreadable_range(self) -> None:
        """Make reads of some sectors fail with EIO."""
        path = self._file()
        if path is not None:
            start, stop = self._range(path)
            start, stop = start // SECTOR * SECTOR, -(-stop // SECTOR) * SECTOR
            self.bad.append(Bad(path, errno.EIO, start, stop))
            self.story.append(f"EIO at {path} from {start} to {stop}")

    def no_access(self) -> None:
        """Make a file or a folder fail with EACCES."""
        path = self._file() if self._rng.random() < 0.7 else self._folder()
        if path is not None:
            self.bad.append(Bad(path, errno.EACCES))
            self.story.append(f"EACCES at {path}")


KINDS: Sequence[Callable[[Damage], None]] = (
    Damage.delete_file,
    Damage.delete_folder,
    Damage.truncate,
    Damage.zero,
    Damage.garbage,
    Damage.flip,
    Damage.swap,
    Damage.rename,
    Damage.unreadable_range,
    Damage.no_access,
)
