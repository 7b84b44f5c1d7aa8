"""A bounded set of open files, so that a store of any size works with a fixed number of descriptors.

Owns when files are opened, synced and closed; must not know their content. The least recently borrowed file that is not
in use is closed first.

The rules of writing, and why the dirty mark is safe:

- Bytes are written only through a file borrowed with `write=True`, while it is borrowed. The caller must not run two
  writers of the same bytes at once.
- An entry is dirty while such a borrower holds it (`writers` > 0: it may be about to write) and after its release
  (`dirty`), until a sync that STARTED later has ended.
- The mark is cleared before fdatasync begins, so that a write during the sync sets it again.
- The mark is cleared under the entry's `gate`. So a second caller of `datasync` waits for the sync that cleared the
  mark, instead of finding nothing to do.
- A dirty file is synced before it is closed, and its path can still be borrowed meanwhile. No caller can act on a
  failure of that sync, so it is kept for good. Every later `datasync` or writing borrow of that path raises it.
"""

from __future__ import annotations

import contextlib
import threading
from collections import OrderedDict
from pathlib import Path

from storage.errors import IoFailure, StoreClosed
from storage.files.fs import File, FileSystem


class Lease:
    """The context manager that `borrow` returns: enter it once to get the file, leave it to release the file."""

    __slots__ = ("_entry", "_lock", "_write")

    def __init__(self, entry: _Entry, lock: threading.Lock, *, write: bool) -> None:
        self._entry = entry
        self._lock = lock
        self._write = write

    def __enter__(self) -> File:
        return self._entry.file

    def __exit__(self, *exc_info: object) -> None:
        entry = self._entry
        with self._lock:
            if self._write:
                entry.writers -= 1
                entry.dirty = True
            entry.pins -= 1
            last = entry.detached and not entry.pins
        if last:
            entry.cache._close_detached(entry)


class _Entry:
    """An open file. All fields except `file` are read and written under the cache's lock.

    A detached entry is no longer found by its path; it closes when the last borrower releases it.
    """

    __slots__ = (
        "cache",
        "detached",
        "dirty",
        "file",
        "gate",
        "path",
        "pins",
        "reading",
        "writers",
        "writing",
    )

    def __init__(self, cache: HandleCache, path: Path, file: File, *, write: bool) -> None:
        self.cache = cache
        self.path = path
        self.file = file
        self.pins = 0
        self.writers = 0
        self.dirty = False
        self.detached = False
        # Held during a sync of the file; no thread waits for it while it holds the cache's lock.
        self.gate = threading.Lock()
        # A lease has no state of a single borrow, so an entry has one lease of each kind for all borrowers.
        self.reading = Lease(self, cache._lock, write=False)
        self.writing = Lease(self, cache._lock, write=True) if write else None


class HandleCache:
    """Open files of `fs` by path: at most `limit` files, or more while more are borrowed.

    Thread-safe; system calls run outside the lock.
    """

    def __init__(self, fs: FileSystem, limit: int = 512) -> None:
        self._fs = fs
        self._limit = limit
        self._lock = threading.Lock()  # guards all fields below and the fields of the entries
        self._entries: OrderedDict[Path, _Entry] = OrderedDict()  # least recently borrowed first
        self._newest: _Entry | None = None  # the last of them, if known: a path's hash takes 0.1 us
        self._failed: dict[Path, IoFailure] = {}
        # The number of `forget` calls. A file opened before such a call may no longer be the file at its path.
        self._forgotten = 0
        self._closed = False

    @property
    def fs(self) -> FileSystem:
        """The file system on which the files are opened."""
        return self._fs

    @property
    def open_files(self) -> int:
        """The number of open files."""
        return len(self._entries)

    @property
    def room(self) -> int:
        """The number of files that can be opened before another file must be closed, and first synced."""
        return self._limit - len(self._entries)

    def is_writable(self, path: Path) -> bool:
        """Return whether the file is open for writing, so that a writing borrow closes and syncs no other file."""
        with self._lock:
            entry = self._entries.get(path)
            return entry is not None and entry.writing is not None

    def borrow(self, path: Path, write: bool = False, *, create: bool = False) -> Lease:
        """Return a lease; `with cache.borrow(path) as file:` keeps the file open inside the block. Enter a lease
        exactly once.

        `write`: the file may be written; `create`: it is also created if missing. Raises the errors of
        `FileSystem.open`, the kept sync failure of this path with `write`, StoreClosed after `close`.
        """
        with self._lock:
            entry = self._entries.get(path)
            if entry is not None:
                if not write and not create:
                    self._pin(entry)
                    return entry.reading
                if entry.writing is not None and not (self._failed and path in self._failed):
                    self._pin(entry)
                    entry.writers += 1
                    return entry.writing
        return self._borrow_opening(path, write=write or create, create=create)

    def borrow_open(self, path: Path) -> Lease | None:
        """Return a lease for reading like `borrow`, if the file is open already; else None."""
        with self._lock:
            entry = self._entries.get(path)
            if entry is None:
                return None
            self._pin(entry)
            return entry.reading

    def datasync(self, path: Path) -> None:
        """Make all data durable that was written to `path` through borrowed files before this call.

        Raises IoFailure: the file may have lost writes. Every later call for this path raises it again.
        """
        with self._lock:
            self._check(path)
            entry = self._entries.get(path)
            if entry is None:
                return
            entry.pins += 1
        try:
            self._sync(entry)
        finally:
            self._unpin(entry)
        with self._lock:
            self._raise_failed(path)

    def forget(self, path: Path, *, sync: bool = True) -> None:
        """Close the file after its borrowers release it, so that the next borrow opens the file then at this path.

        Used for a file that is renamed or removed. Call it AFTER the rename or removal, because a borrower in another
        thread may open the old file until then. Call `datasync` before, if the bytes must be on disk first. `sync`
        False: unsynced bytes may be lost, because the file is deleted. Raises IoFailure like `datasync`.
        """
        self._forget([path], sync=sync)

    def forget_tree(self, directory: Path, *, sync: bool = True) -> None:
        """Call `forget` for every file below a directory."""
        with self._lock:
            paths = [path for path in self._entries if path.is_relative_to(directory)]
        self._forget(paths, sync=sync)

    def close(self, *, sync: bool = True) -> None:
        """Close all files; dirty files are synced first unless the store is abandoned (`sync` False).

        Every file is closed even if a sync fails; then, or if a failure was kept earlier, one failure is raised. A
        second call does nothing. A borrowed file closes when it is released.
        """
        with self._lock:
            if self._closed:
                return
            self._closed = True
            paths = list(self._entries)
        self._forget(paths, sync=sync)
        with self._lock:
            for path in self._failed if sync else ():
                self._raise_failed(path)

    def _pin(self, entry: _Entry) -> None:
        """Pin an entry, under the lock, and make it the most recently borrowed one."""
        entry.pins += 1
        if entry is not self._newest:
            self._entries.move_to_end(entry.path)
            self._newest = entry

    def _borrow_opening(self, path: Path, *, write: bool, create: bool) -> Lease:
        """Open the file, or open it again for writing, and close other files above the limit."""
        lease: Lease | None = None
        while lease is None:
            with self._lock:
                self._check(path if write else None)
                forgotten = self._forgotten
            file = self._fs.open(path, write=write, create=create)
            lease = self._insert(_Entry(self, path, file, write=write), forgotten)
        self._shrink()
        return lease

    def _insert(self, entry: _Entry, forgotten: int) -> Lease | None:
        """Pin the entry under its path, or pin the entry that another thread inserted first.

        Return None if a path was forgotten or the cache was closed meanwhile: the file must be opened again.
        """
        write = entry.writing is not None
        unused: _Entry | None = entry
        lease = None
        with self._lock:
            if forgotten == self._forgotten and not self._closed:
                there = self._entries.get(entry.path)
                if there is None or (write and there.writing is None):
                    unused = self._detach(there)
                    self._entries[entry.path] = there = entry
                self._pin(there)
                if write:
                    there.writers += 1
                lease = there.writing if write else there.reading
        if unused is not None:
            _close(unused.file)
        return lease

    def _detach(self, entry: _Entry | None) -> _Entry | None:
        """Remove an entry, under the lock; return it if the caller must close it."""
        if entry is None:
            return None
        del self._entries[entry.path]
        if entry is self._newest:
            self._newest = None
        entry.detached = True
        return None if entry.pins else entry

    def _shrink(self) -> None:
        """Close the least recently borrowed files until the limit is met or all other files are in use."""
        while True:
            with self._lock:
                if len(self._entries) <= self._limit:
                    return
                victim = next((e for e in self._entries.values() if not e.pins), None)
                if victim is None:
                    return
                unused = None if victim.dirty else self._detach(victim)
                if unused is None:
                    victim.pins += 1
            if unused is not None:
                _close(unused.file)
            else:
                self._sync(victim)
                self._unpin(victim)

    def _sync(self, entry: _Entry) -> None:
        """Sync a pinned entry if it is dirty; a failure is kept in `_failed`."""
        with entry.gate:
            with self._lock:
                if not entry.dirty and not entry.writers:
                    return
                entry.dirty = False
            try:
                entry.file.datasync()
            except IoFailure as error:
                with self._lock:
                    self._failed.setdefault(entry.path, error)

    def _unpin(self, entry: _Entry) -> None:
        with self._lock:
            entry.pins -= 1
            last = entry.detached and not entry.pins
        if last:
            self._close_detached(entry)

    def _close_detached(self, entry: _Entry) -> None:
        self._sync(entry)
        _close(entry.file)

    def _forget(self, paths: list[Path], *, sync: bool) -> None:
        with self._lock:
            self._forgotten += 1
            entries = [self._entries[path] for path in paths if path in self._entries]
            for entry in entries:
                entry.pins += 1
                self._detach(entry)
                entry.dirty = entry.dirty and sync
        for entry in entries:
            if sync:
                self._sync(entry)
            self._unpin(entry)
        with self._lock:
            for path in paths if sync else ():
                self._raise_failed(path)

    def _check(self, path: Path | None) -> None:
        """Raise if the cache is closed, or if a sync of `path` has failed. Call it under the lock."""
        if self._closed:
            raise StoreClosed("the open files of the store have been closed")
        if path is not None:
            self._raise_failed(path)

    def _raise_failed(self, path: Path) -> None:
        """Raise the kept failure of a path as a new exception: two threads must not raise the same object."""
        failure = self._failed.get(path)
        if failure is not None:
            raise type(failure)(failure.message, **failure.facts()) from failure


def _close(file: File) -> None:
    """Close a file that has nothing left to sync; a failure has no effect on its data and is ignored."""
    with contextlib.suppress(IoFailure):
        file.close()
