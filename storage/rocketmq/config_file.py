"""One file of config/ with its `.bak`, as the broker's ConfigManager keeps them.

Owns which of the two is read and how both are written; must not know what is in them. A `.bak` has
the content before the last change.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, Generic, TypeVar

from storage.errors import Corrupt, DataError
from storage.files import FileSystem, atomic_write
from storage.rocketmq.format import names

VERSION: Final = "dataVersion"
_T = TypeVar("_T")


def next_version(stored: object, now_ms: int) -> Mapping[str, Any]:
    """The dataVersion behind this one (DataVersion.nextVersion)."""
    version: dict[str, Any] = {"counter": 0, "stateVersion": 0, "timestamp": 0}
    version |= stored if isinstance(stored, dict) else {}
    counter = version["counter"] if isinstance(version["counter"], int) else 0
    return version | {"counter": counter + 1, "timestamp": now_ms}


class ConfigFile(Generic[_T]):
    """config/NAME of the store at `root`. Not thread-safe.

    `decode` raises DataError; a damaged file is moved to `damaged`, at the store's root, by the
    first write. `report` is told what was passed over.
    """

    def __init__(
        self,
        fs: FileSystem,
        root: Path,
        name: str,
        decode: Callable[[bytes], _T],
        *,
        damaged: str,
        report: Callable[[Path, str], None],
    ) -> None:
        self.path = root / names.CONFIG / name
        self._fs = fs
        self._backup = self.path.with_name(name + names.BACKUP)
        self._damaged = root / damaged
        self._decode = decode
        self._report = report
        self._stored: bytes | None = None  # the file as it stands, if it can be understood

    @property
    def is_understood(self) -> bool:
        """Whether the file itself, not its `.bak`, tells what was read last."""
        return bool(self._stored)

    def read(self) -> _T | None:
        """What the file says; without it, or when it is damaged, its `.bak`, as the broker does. None
        where there is neither. Raises Corrupt, naming the file, when neither can be understood.
        """
        if not self._fs.is_dir(self.path.parent):
            return None
        self._stored = self._fs.read_bytes(self.path) if self._fs.exists(self.path) else None
        if not self._stored and not self._fs.exists(self._backup):
            return None
        try:
            return self._decode(self._stored or b"")
        except DataError as error:
            self._stored = None
            return self._read_backup(error)

    def _read_backup(self, error: DataError) -> _T:
        data = self._fs.read_bytes(self._backup) if self._fs.exists(self._backup) else b""
        try:
            value = self._decode(data)
        except DataError:
            raise Corrupt(
                f"{self.path}: neither it nor its {names.BACKUP} can be understood: {error.message}",
                **{**error.facts(), "path": str(self.path)},
            ) from error
        self._report(self.path, f"read from its {names.BACKUP}: {error.message}")
        return value

    def write(self, data: bytes) -> None:
        """Make the file hold `data`, its former content the `.bak`; durable on return, and left out
        where it would change nothing.

        A damaged one is kept at the store's root: then the `.bak` is the last good one, and stays.
        """
        if data == self._stored:
            return
        config = self.path.parent
        if not self._fs.exists(config):
            self._fs.make_dir(config)
            self._fs.sync_dir(config.parent)
        if self._stored is not None:
            atomic_write(self._fs, self._backup, self._stored)
        elif self._fs.exists(self.path):
            atomic_write(self._fs, self._damaged, self._fs.read_bytes(self.path))
        atomic_write(self._fs, self.path, data)
        self._stored = data
