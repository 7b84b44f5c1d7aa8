"""A store that was never stopped cleanly, and what its recovery must come to however often it fails on the way.

Owns one start on a disk with bad moments; must not know a backend's files.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

from storage import LogStore, TopicPartition
from storage.errors import StorageError
from storage.files import FileSystem, OverlayFileSystem
from tests.faults.faulty import Fault, FaultyFileSystem, Killed, at_change

T0 = TopicPartition("t", 0)


class Torn(ABC):
    """Such a store, as it lies on `disk`."""

    disk: OverlayFileSystem

    @abstractmethod
    def open(self, fs: FileSystem) -> LogStore:
        """Open it on this disk."""

    @abstractmethod
    def check(self, left: FileSystem) -> None:
        """A start finds all but the torn record, and the torn bytes are kept once."""

    def recover(self, fault: Fault, *, at: int) -> FaultyFileSystem:
        """Start with this fault at one change; the disk as it is then. A start that fails leaves no file open."""
        fs = FaultyFileSystem(OverlayFileSystem(self.disk))
        fs.fault = at_change(fs, at, fault)
        try:
            self.open(fs)
        except StorageError:
            assert not fs.open_files
        except Killed:
            pass
        return fs
