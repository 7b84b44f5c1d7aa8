"""A file system that counts the bytes that are read."""

from __future__ import annotations

from storage.files.fs import File, FileSystem
from tests.robustness.crash.relay import Relay, RelayFile


class CountedReads(Relay):
    """A file layer that counts the bytes read through open files."""

    def __init__(self, fs: FileSystem) -> None:
        super().__init__(fs)
        self.count_bytes = 0

    def wrap(self, file: File) -> File:
        return CountedFile(self, file)


class CountedFile(RelayFile):
    """A file of `CountedReads`."""

    def __init__(self, counted: CountedReads, file: File) -> None:
        super().__init__(counted, file)
        self._counted = counted

    def pread(self, size_bytes: int, position: int) -> bytes:
        data = super().pread(size_bytes, position)
        self._counted.count_bytes += len(data)
        return data
