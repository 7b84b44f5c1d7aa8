"""One file of config/ with its `.bak`, as the broker's ConfigManager keeps them.

Owns which of the two is read and how both are written; must not know their content. A `.bak` has
the content before the last change. ConfigManager.load reads it if the file is missing or empty, or if
decoding it fails.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Generic, TypeVar

from storage.errors import Corrupt, DataError
from storage.files import FileSystem, atomic_write
from storage.rocketmq.format import names

VERSION: Final = "dataVersion"
EMPTY: Final = f"an empty file, which has no {names.BACKUP}: what it held is not known"
_T = TypeVar("_T")


def next_version(stored: object, now_ms: int) -> Mapping[str, Any]:
    """Return the dataVersion after `stored` (DataVersion.nextVersion)."""
    version: dict[str, Any] = {"counter": 0, "stateVersion": 0, "timestamp": 0}
    version |= stored if isinstance(stored, dict) else {}
    counter = version["counter"] if isinstance(version["counter"], int) else 0
    return version | {"counter": counter + 1, "timestamp": now_ms}


@dataclass(frozen=True, slots=True)
class Decoders(Generic[_T]):
    """The decoders of a file: as the broker decodes it, and as much of it as can be decoded."""

    decode: Callable[[bytes], _T]
    decode_loosely: Callable[[bytes], _T]


class ConfigFile(Generic[_T]):
    """config/NAME of the store at `root`. Not thread-safe.

    `decode` reads as the broker does, `decode_loosely` skips parts that it cannot read; both raise DataError. The
    first write moves a damaged file to `damaged`, at the store's root. `report` is called with each problem found.
    """

    def __init__(
        self,
        fs: FileSystem,
        root: Path,
        name: str,
        decoders: Decoders[_T],
        *,
        damaged: str,
        report: Callable[[Path, str], None],
    ) -> None:
        self.path = root / names.CONFIG / name
        self._fs = fs
        self._backup = self.path.with_name(name + names.BACKUP)
        self._damaged = root / damaged
        self._decoders = decoders
        self._report = report
        self._stored: bytes | None = None  # the current file content, if the broker can read it
        self._is_loose = False  # whether the content has parts that the broker cannot read

    @property
    def is_understood(self) -> bool:
        """Whether the last content read came from the file itself, not from its `.bak`."""
        return bool(self._stored)

    def read(self) -> _T | None:
        """Read the file; if it is missing or damaged, its `.bak`, as the broker does.

        If the broker can read neither, return the readable parts of the file, or else of its `.bak`. Return
        None if neither exists. Raises Corrupt, naming the file, if nothing can be read.
        """
        self._is_loose = False
        self._stored = self._bytes_of(self.path)
        backup = self._bytes_of(self._backup)
        if not self._stored and backup is None:
            if self._stored is not None:
                self._report(self.path, EMPTY)
            return None
        main = self._stored or b""
        try:
            return self._decoders.decode(main)
        except DataError as error:
            self._stored = None
            return self._read_otherwise(main, backup or b"", error)

    def _bytes_of(self, path: Path) -> bytes | None:
        """Return the content of a file, None without it. state.blocked_paths reports a folder in place of the file."""
        fs = self._fs
        is_there = fs.is_dir(path.parent) and fs.exists(path) and not fs.is_dir(path)
        return fs.read_bytes(path) if is_there else None

    def _read_otherwise(self, main: bytes, backup: bytes, error: DataError) -> _T:
        """Read a file that the broker cannot read: its `.bak`, else the readable parts. `error`: the reason."""
        with suppress(DataError):
            value = self._decoders.decode(backup)
            self._report(self.path, f"read from its {names.BACKUP}: {error.message}")
            return value
        self._is_loose = True
        for data, source in ((main, ""), (backup, f" from its {names.BACKUP}")):
            with suppress(DataError):
                value = self._decoders.decode_loosely(data)
                message = f"read{source} as far as it can be understood; the broker cannot read it"
                self._report(self.path, f"{message}: {error.message}")
                return value
        raise Corrupt(
            f"{self.path}: neither it nor its {names.BACKUP} can be understood: {error.message}",
            **{**error.facts(), "path": str(self.path)},
        ) from error

    def write(self, data: bytes) -> None:
        """Write `data` to the file and its former content to the `.bak`. Durable on return; skipped if the
        content is unchanged.

        A damaged file is kept at the store's root: then the `.bak` is the last good content, and stays. Content
        that the broker cannot read never becomes the `.bak`: with both unreadable the broker would not start.
        """
        if data == self._stored:
            return
        config = self.path.parent
        if not self._fs.exists(config):
            self._fs.make_dir(config)
            self._fs.sync_dir(config.parent)
        if self._stored is not None and not self._is_loose:
            atomic_write(self._fs, self._backup, self._stored)
        elif self._stored is None and self._fs.exists(self.path):
            atomic_write(self._fs, self._damaged, self._fs.read_bytes(self.path))
        atomic_write(self._fs, self.path, data)
        self._stored = data
