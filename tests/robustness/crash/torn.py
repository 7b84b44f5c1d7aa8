"""A store that was never stopped cleanly, and the required result of its recovery, however often recovery fails.

Owns one start on a disk with injected faults; must not know a backend's files.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

from storage import LogStore, TopicPartition
from storage.errors import StorageError
from storage.files import FileSystem, OverlayFileSystem
from tests.robustness.crash.faulty import Fault, FaultyFileSystem, Killed, at_change

T0 = TopicPartition("t", 0)


class Torn(ABC):
    """Such a store, as stored on `disk`."""

    disk: OverlayFileSystem

    @abstractmethod
    def open(self, fs: FileSystem) -> LogStore:
        """Open the store on this disk."""

    @abstractmethod
    def check(self, left: FileSystem) -> None:
        """Check that a start finds everything but the torn record, and keeps one copy of the torn bytes."""

    def recover(self, fault: Fault, *, at: int) -> FaultyFileSystem:
        """Start with this fault at one change; return the disk as it is then. A failed start leaves no file open."""
        fs = FaultyFileSystem(OverlayFileSystem(self.disk))
        fs.fault = at_change(fs, at, fault)
        try:
            self.open(fs)
        except StorageError:
            assert not fs.open_files
        except Killed:
            pass
        return fs
