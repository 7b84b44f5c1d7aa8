"""Folders in place of a store's files, and files in place of its folders.

Owns finding them, the refusal of a writable start before it has changed anything, and removing them from a read-only
view; must not read their content.

    a folder in place of    `abort`, `lock`, `checkpoint`, config/*.json, our own files
    a file in place of      `consumequeue`, the folder of a topic or of a queue, `index`: built from the log
                            `commitlog`, `config`: nothing else has their content

`abort` stays in a view: even a folder marks an unclean stop, as in RocketMQ.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
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
IN_THE_WAY: Final = (
    "a file in the place of a folder. Move it away: the next start builds the folder from the log"
)
RESTORE: Final = "a file in the place of a folder. Move it away, and restore the folder: nothing else holds its content"


def refuse(directory: StoreDirectory) -> None:
    """Raise DamagedStore, for a start that writes, if the name of a store's own file or folder is taken.

    A file in place of a queue's folder matters only when that folder is created: see ConsumeQueue.
    """
    for found in (file_findings(directory), [*map(folder_finding, root_folders(directory))]):
        if found:
            raise damaged_store(found)


# ---- folders in place of files ----


def file_findings(directory: StoreDirectory) -> list[Finding]:
    """Return a finding with a remedy for each folder in place of a file."""
    return [
        finding("unknown-file", path, severity="error", message=f"{_HERE}. {remedy}")
        for path, remedy in _blocked_files(directory)
    ]


def take_out_files(directory: StoreDirectory) -> list[Finding]:
    """Remove folders in place of files from a read-only view, without a change on disk; return the findings."""
    found = file_findings(directory)
    for one in found:
        path = Path(one.path)
        if path.name != names.ABORT:
            with suppress(IoFailure):
                directory.fs.remove_tree(path)
    return found


def _blocked_files(directory: StoreDirectory) -> Iterator[tuple[Path, str]]:
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


# ---- files in place of folders ----


def folder_finding(path: Path) -> Finding:
    """Return the finding for a file in place of a folder."""
    message = IN_THE_WAY if _is_built(path) else RESTORE
    return finding("unknown-file", path, severity="error", message=message)


def take_out_folders(directory: StoreDirectory) -> Sequence[Path]:
    """Remove files in place of folders from a read-only view, without a change on disk; return their paths."""
    found: list[Path] = []
    for path in _blocked_folders(directory):
        with suppress(IoFailure):  # a circular link: reported where it is read
            directory.fs.remove(path)
            found.append(path)
    return found


def folder_findings(
    directory: StoreDirectory, taken: Sequence[Path], filled: Collection[Path]
) -> Iterator[Finding]:
    """Yield findings for removed files in place of needed folders. `filled`: the folders of queues with records."""
    needed = {*filled, *(folder.parent for folder in filled)}
    for path in taken:
        if path in needed or path.parent == directory.path:
            yield folder_finding(path)


def root_folders(directory: StoreDirectory) -> Iterator[Path]:
    """Yield the paths of a store's own folders that are files."""
    fs = directory.fs
    own_log = directory.path / names.COMMIT_LOG
    for folder in (own_log, directory.consume_queue, directory.index, directory.config):
        if fs.exists(folder) and not fs.is_dir(folder):
            yield folder


def lost_folders(directory: StoreDirectory) -> Iterator[Path]:
    """Yield the files in place of folders that cannot be rebuilt from the log."""
    return (path for path in root_folders(directory) if not _is_built(path))


def derived_folders(directory: StoreDirectory) -> Iterator[Path]:
    """Yield the files in place of folders that are built from the log, including topic and queue folders."""
    return (path for path in _blocked_folders(directory) if _is_built(path))


def _blocked_folders(directory: StoreDirectory) -> Iterator[Path]:
    fs, queues = directory.fs, directory.consume_queue
    yield from root_folders(directory)
    if not fs.is_dir(queues) or directory.queues_in_database():
        return
    for topic in fs.list_dir(queues):
        folder = queues / topic
        if not fs.is_dir(folder):
            yield folder
            continue
        for name in fs.list_dir(folder):
            if names.parse_queue_id(name) is not None and not fs.is_dir(folder / name):
                yield folder / name


def _is_built(path: Path) -> bool:
    """Return whether a start builds this folder from the log."""
    return path.name not in (names.COMMIT_LOG, names.CONFIG)
