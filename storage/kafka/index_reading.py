"""Reading the index files of a partition while a start looks at it: each file once, and without its holes.

Owns how much of an index file is read, and what is kept of it meanwhile; must not know entries. An active segment's
indexes are preallocated, megabytes of zeros after some entries, and several questions of a start go to the same file.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final, Protocol

from storage.files import File, FileSystem

_SLACK_BYTES: Final = 64
"""More than an entry: the last one may end in zeros, which need no data on the disk."""


class ReadsFiles(Protocol):
    """Reads files: a file system, or an `IndexReader`."""

    def read_bytes(self, path: Path) -> bytes:
        """All of a file that may be something else than zeros."""


def index_bytes(file: File) -> bytes:
    """Return an index file up to its last data; of the zeros after that only some."""
    return file.pread(min(file.data_end(0) + _SLACK_BYTES, file.size()), 0)


class IndexReader:
    """Reads index files that do not change meanwhile. Memory: one file of each kind, the last that was asked for."""

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
