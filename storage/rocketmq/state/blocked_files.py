"""Folders in place of files that a start reads or writes: `abort`, `lock`, `checkpoint`, config/*.json, our own.

Owns finding them, the refusal of a writable start before it has changed anything, and removing them from a read-only
view; must not read their content. `abort` stays in a view: even a folder marks an unclean stop, as in RocketMQ.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from storage.errors import IoFailure
from storage.findings import damaged_store, finding
from storage.model import Finding
from storage.rocketmq.format import names
from storage.rocketmq.state.root import StoreDirectory
from storage.shared.staged_append import NOTE

_HERE: Final = "a folder in the place of a file"
_AT_ROOT: Final = {
    names.ABORT: "Move it away, and put an empty file there unless the store was stopped cleanly",
    names.CHECKPOINT: "Move it away: a start recovers without it, and writes it again",
    names.LOCK: "Move it away while no server runs: a start makes it again",
    names.STORE_FILE: "Move it away, and restore the file if there is a copy",
    names.PRODUCERS_FILE: "Move it away, and restore the file if there is a copy",
    names.DELETED_FILE: "Move it away, and restore the file: without it deleted topics may come back",
    names.INDEX_FILE: "Move it away: a start looks through the key index, and writes it again",
    NOTE: "Move it away, and restore the file: it lists the staged records that are stored already",
}
"""The remedy for each file name."""
_CONFIG: Final = "Move it away, and restore the file: what it held is in no other file"
_BACKUP: Final = "Move it away: it has the name of a file's former content"
_TEMPORARY: Final = "Move it away: a file is written under this name before it gets its own"


def refuse(directory: StoreDirectory) -> None:
    """Raise DamagedStore, for a start that writes, if a folder has the name of such a file."""
    found = findings(directory)
    if found:
        raise damaged_store(found)


def findings(directory: StoreDirectory) -> list[Finding]:
    """Return a finding with a remedy for each such folder."""
    return [
        finding("unknown-file", path, severity="error", message=f"{_HERE}. {remedy}")
        for path, remedy in _blocked(directory)
    ]


def take_out(directory: StoreDirectory) -> list[Finding]:
    """Remove the folders from a read-only view, without a change on disk; return the findings."""
    found = findings(directory)
    for one in found:
        path = Path(one.path)
        if path.name != names.ABORT:
            with suppress(IoFailure):
                directory.fs.remove_tree(path)
    return found


def _blocked(directory: StoreDirectory) -> Iterator[tuple[Path, str]]:
    """Yield the path and the remedy of each such folder."""
    fs, root = directory.fs, directory.path
    listed = set(fs.list_dir(root)) if fs.is_dir(root, follow=True) else set()
    for name, remedy in _AT_ROOT.items():
        for path, what in ((root / name, remedy), (root / (name + names.TEMPORARY), _TEMPORARY)):
            if path.name in listed and fs.is_dir(path):
                yield path, what
    for name in fs.list_dir(directory.config) if fs.is_dir(directory.config) else ():
        path = directory.config / name
        if _is_config_file(name) and fs.is_dir(path):
            yield path, _config_remedy(name)


def _is_config_file(name: str) -> bool:
    """Return whether a name belongs to a JSON file, to its `.bak`, or to the temporary file for either."""
    return name.removesuffix(names.TEMPORARY).removesuffix(names.BACKUP).endswith(".json")


def _config_remedy(name: str) -> str:
    if name.endswith(names.TEMPORARY):
        return _TEMPORARY
    return _BACKUP if name.endswith(names.BACKUP) else _CONFIG
