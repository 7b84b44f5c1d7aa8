"""What the kernel's page cache has of a file, read without a wait: for a thread that must not wait for a disk.

Owns the limits of such a read; must not know a format, open files or read anything else. A reader of batches gets a
`CachedFile` in place of the file. The first bytes that are not in the cache end the whole read, by an exception: the
reader then runs again in another thread, with the file itself.

    loop: CachedFile.pread -> preadv(RWF_NOWAIT) -> bytes, or WouldWait -> thread: File.pread
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from storage.files.fs import File

PROMPT_READ_BYTES: Final = 1 << 20
"""The largest read, without the headers around it. Its copy and its checksum take 0.2 ms."""
PROMPT_BATCHES: Final = 256
"""The most batches and files of such a read. To find and check a batch takes 4 us, of 70 bytes as of many."""
_SLACK_BYTES: Final = 64 << 10
"""For headers, and for a batch that is read again because it crosses the end of a chunk."""


class WouldWait(Exception):  # no error of the data: the same read is made in another thread
    """The read needs bytes that are not in memory, or too many bytes."""


class PromptBudget:
    """The batches that one read may look at, in all its files together. Twice the bytes: of the last file it may look
    at a batch that does not fit into the answer.
    """

    __slots__ = ("_left_batches", "_left_bytes")

    def __init__(self) -> None:
        self._left_batches = PROMPT_BATCHES
        self._left_bytes = 2 * PROMPT_READ_BYTES

    def take(self, size_bytes: int = 0) -> None:
        """Count one batch, or a file without bytes. Raises WouldWait."""
        self._left_batches -= 1
        self._left_bytes -= size_bytes
        if self._left_batches < 0 or self._left_bytes < 0:
            raise WouldWait


class CachedFile:
    """A file as far as the page cache has it, for one read of at most PROMPT_READ_BYTES."""

    __slots__ = ("_file", "_left_bytes", "path")

    def __init__(self, file: File) -> None:
        self.path: Path = file.path
        self._file = file
        self._left_bytes = PROMPT_READ_BYTES + _SLACK_BYTES

    def pread(self, size_bytes: int, position: int) -> bytearray:
        """Return exactly `size_bytes` from `position`. Raises WouldWait."""
        self._left_bytes -= size_bytes
        if self._left_bytes < 0:
            raise WouldWait
        data = self._file.pread_cached(size_bytes, position)
        if data is None:
            raise WouldWait
        return data

    def next_data(self, start: int) -> int:
        """Only a search after damage asks for it. Raises WouldWait."""
        raise WouldWait
