"""Reading of a partition's index files at a start: each file once, and without its holes.

Owns how much of an index file is read, and which files are kept in memory meanwhile; must not know entries. An active
segment's indexes are preallocated: megabytes of zeros after some entries. Several checks of a start read the same file.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final, Protocol

from storage.files import File, FileSystem

_SLACK_BYTES: Final = 64
"""More than the size of an entry: the last entry may end in zeros, and these may be in a hole of the file."""


class ReadsFiles(Protocol):
    """A reader of whole files: a file system, or an `IndexReader`."""

    def read_bytes(self, path: Path) -> bytes:
        """Return the content of a file; zeros at its end may be left out."""


def index_bytes(file: File) -> bytes:
    """Return the content of an index file up to its last data, with at most `_SLACK_BYTES` zeros after that."""
    return file.pread(min(file.data_end(0) + _SLACK_BYTES, file.size()), 0)


class IndexReader:
    """A reader of index files that do not change meanwhile. It keeps the last file of each kind in memory."""

    def __init__(self, fs: FileSystem) -> None:
        self._fs = fs
        self._last: dict[str, tuple[Path, bytes]] = {}

    def read_bytes(self, path: Path) -> bytes:
        """See ReadsFiles."""
        known = self._last.get(path.suffix)
        if known is not None and known[0] == path:
            return known[1]
        file = self._fs.open(path)
        try:
            data = index_bytes(file)
        finally:
            file.close()
        self._last[path.suffix] = path, data
        return data
