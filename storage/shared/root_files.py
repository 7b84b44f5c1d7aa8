"""The small files at the root of a store that every backend has: `.logserver.store.json`, and the files that are read
and written in the same way.

Owns reading them (an invalid file counts as missing and is reported) and writing each file atomically, if its bytes
would change; must not know a backend's other files at the root.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Final, Generic, TypeVar

import msgspec

from storage.coding.json_file import decode_json
from storage.display import encode_json
from storage.errors import DataError, UnsupportedFormat
from storage.files import STORE_FILE, FileSystem, atomic_write
from storage.findings import finding
from storage.model import Finding

STORE_VERSION: Final = 1
_OURS: Final = ".logserver."


class StoreFacts(msgspec.Struct, kw_only=True):
    """The content of `.logserver.store.json`. `created`: logserver created the directory, including its identity.

    A backend's own struct sets the backend's name, and adds its own fields.
    """

    backend: str
    version: int = STORE_VERSION
    created: bool = False
    next_producer_id: int = 0


_T = TypeVar("_T")
_Facts = TypeVar("_Facts", bound=StoreFacts)


class RootFiles(Generic[_Facts]):
    """The root of one store of `backend`. Reading is for one thread, at the start.

    A file is encoded and written under one lock. A checkpoint and a block of producer ids may be written at the same
    time, and both write all facts.
    """

    def __init__(self, fs: FileSystem, path: Path, backend: str, facts: type[_Facts]) -> None:
        self.fs = fs
        self.path = path
        self.findings: list[Finding] = []
        self._backend = backend
        self._facts = facts
        self._stored: dict[str, bytes] = {}
        self._damaged: set[str] = set()  # names of files that could not be decoded
        self._writing = threading.RLock()

    def store_file(self) -> _Facts | None:
        """Return our own facts about the store; None if the store is not adopted (yet), or if the file names another
        backend, which is reported. Raises UnsupportedFormat for another version.
        """
        path = self.path / STORE_FILE
        stored = self._read_json(STORE_FILE, self._facts)
        if stored is not None and stored.backend != self._backend:
            self._damaged.add(STORE_FILE)
            message = (
                f"the file names the backend {stored.backend!r}, and the store's files have the format of "
                f"{self._backend}: it counts as missing"
            )
            self._report(path, message)
            return None
        if stored is not None and stored.version != STORE_VERSION:
            raise UnsupportedFormat(
                f"{path}: version {stored.version}; known here is version {STORE_VERSION}",
                path=str(path),
            )
        return stored

    def write_store_file(self, content: _Facts) -> None:
        """Write our own facts about the store; durable on return."""
        self._write_json(STORE_FILE, content)

    def write_next_producer_id(self, content: _Facts, next_id: int) -> None:
        """Set the next producer id in `content` and write it; durable on return."""
        with self._writing:
            content.next_producer_id = next_id
            self.write_store_file(content)

    def _read(self, name: str, decode: Callable[[bytes], _T]) -> _T | None:
        """Return the decoded content of a file at the root; None if the file is missing or cannot be decoded."""
        path = self.path / name
        if not self.fs.exists(path):
            return None
        data = self._stored[name] = self.fs.read_bytes(path)
        return self._understood(path, data, decode)

    def _read_json(self, name: str, kind: type[_T]) -> _T | None:
        return self._read(name, lambda data: decode_json(data, kind))

    def _understood(self, path: Path, data: bytes, decode: Callable[[bytes], _T]) -> _T | None:
        try:
            return decode(data)
        except DataError as error:
            self._damaged.add(path.name)
            self._report(path, str(error))
            return None

    def _report(self, path: Path, message: str) -> None:
        self._note(finding("bad-root-file", path, message=message))

    def _note(self, found: Finding) -> None:
        """Add a finding once: a file may be read more than once."""
        if found not in self.findings:
            self.findings.append(found)

    def _write(self, name: str, data: bytes) -> None:
        """Write the file, durable on return; skip it if the file is known to have these bytes. A file that could not be
        decoded is first kept under another name.
        """
        with self._writing:
            if self._stored.get(name) != data:
                self._stored.pop(name, None)
                if name in self._damaged and self.fs.exists(self.path / name):
                    kept = self.path / kept_name(name)
                    atomic_write(self.fs, kept, self.fs.read_bytes(self.path / name))
                    self._damaged.discard(name)
                atomic_write(self.fs, self.path / name, data)
                self._stored[name] = data

    def _write_json(self, name: str, content: object) -> None:
        with self._writing:
            self._write(name, json_text(content))


def kept_name(name: str) -> str:
    """Return the name under which an invalid file is kept when its place is needed: `.logserver.NAME.damaged`."""
    return f"{_OURS}{name.removeprefix(_OURS)}.damaged"


def json_text(content: object) -> bytes:
    """Return a value as the bytes of one of our own files."""
    return msgspec.json.format(encode_json(content), indent=1) + b"\n"
