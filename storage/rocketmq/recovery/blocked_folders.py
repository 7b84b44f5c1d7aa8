"""Files in place of folders that a start creates: `consumequeue`, the folder of a topic or of a queue, `index`, and
`commitlog` and `config`.

Owns finding them, the refusal of a writable start, and removing them from a read-only view; must not read their
content. The first four folders are built from the log; the last two cannot be rebuilt.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from storage.errors import IoFailure
from storage.findings import damaged_store, finding
from storage.model import Finding
from storage.rocketmq.format import names
from storage.rocketmq.index.consume_queue import IN_THE_WAY
from storage.rocketmq.index.queues import QueueTable
from storage.rocketmq.state.root import StoreDirectory

RESTORE: Final = "a file in the place of a folder. Move it away, and restore the folder: nothing else holds its content"


def refuse(directory: StoreDirectory) -> None:
    """Raise DamagedStore, for a start that writes, if a file has the name of one of a store's own folders.

    A file in place of a queue's folder matters only when that folder is created: see ConsumeQueue.
    """
    found = [blocked(path) for path in roots(directory)]
    if found:
        raise damaged_store(found)


def take_out(directory: StoreDirectory) -> Sequence[Path]:
    """Remove such files from a read-only view, without a change on disk; return their paths."""
    found: list[Path] = []
    for path in _blocking(directory):
        with suppress(IoFailure):  # a circular link: reported where it is read
            directory.fs.remove(path)
            found.append(path)
    return found


def findings(taken: Sequence[Path], queues: QueueTable) -> Iterator[Finding]:
    """Yield findings for removed files in place of needed folders: a queue's folder is needed if it has records."""
    folders = [queue.units.directory for queue in queues if not queue.units.is_empty]
    needed = {*folders, *(folder.parent for folder in folders)}
    for path in taken:
        if path in needed or path.parent == queues.root.parent:
            yield blocked(path)


def roots(directory: StoreDirectory) -> Iterator[Path]:
    """Yield the paths of a store's own folders that are files."""
    fs = directory.fs
    own_log = directory.path / names.COMMIT_LOG
    for folder in (own_log, directory.consume_queue, directory.index, directory.config):
        if fs.exists(folder) and not fs.is_dir(folder):
            yield folder


def lost(directory: StoreDirectory) -> Iterator[Path]:
    """Yield the files in place of folders that cannot be rebuilt from the log."""
    return (path for path in roots(directory) if not _is_built(path))


def derived(directory: StoreDirectory) -> Iterator[Path]:
    """Yield the files in place of folders that are built from the log, including topic and queue folders."""
    return (path for path in _blocking(directory) if _is_built(path))


def _blocking(directory: StoreDirectory) -> Iterator[Path]:
    fs, queues = directory.fs, directory.consume_queue
    yield from roots(directory)
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


def blocked(path: Path) -> Finding:
    """Return the finding for a file in place of a folder."""
    message = IN_THE_WAY if _is_built(path) else RESTORE
    return finding("unknown-file", path, severity="error", message=message)


def _is_built(path: str | Path) -> bool:
    """Return whether a start builds this folder from the log."""
    return Path(path).name not in (names.COMMIT_LOG, names.CONFIG)
