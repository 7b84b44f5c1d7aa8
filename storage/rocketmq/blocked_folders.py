"""Files in the place of folders that a start makes: `consumequeue`, the folder of a topic or of a queue, `index`, and
`commitlog` and `config`.

Owns finding them, the refusal of a writable start, and taking them out of a read-only view; must not look into them.
What the first four hold is built from the log; nothing makes the last two again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from storage.errors import IoFailure
from storage.findings import damaged_store, finding
from storage.model import Finding
from storage.rocketmq.consume_queue import IN_THE_WAY
from storage.rocketmq.directory import StoreDirectory
from storage.rocketmq.format import names
from storage.rocketmq.queues import QueueTable

RESTORE: Final = "a file in the place of a folder. Move it away, and restore the folder: nothing else holds its content"


def refuse(directory: StoreDirectory) -> None:
    """Raise DamagedStore, for a start that writes, where a file has the name of one of a store's own folders.

    One in the place of a queue's folder only matters once that folder is made: see ConsumeQueue.
    """
    found = [blocked(path) for path in roots(directory)]
    if found:
        raise damaged_store(found)


def take_out(directory: StoreDirectory) -> Sequence[Path]:
    """Take such files out of a view that only reads, where nothing reaches the disk; gives their paths."""
    found: list[Path] = []
    for path in _blocking(directory):
        with suppress(IoFailure):  # a link into a circle: reported where it is read
            directory.fs.remove(path)
            found.append(path)
    return found


def findings(taken: Sequence[Path], queues: QueueTable) -> Iterator[Finding]:
    """Findings for those in whose place folders belong; a file in the place of no queue that has records is none."""
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
    """Yield those whose content is in no other file."""
    return (path for path in roots(directory) if not _is_built(path))


def derived(directory: StoreDirectory) -> Iterator[Path]:
    """Yield the files in the place of folders that are built from the log, those of topics and queues too."""
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
    """Return the finding for a file in the place of a folder."""
    message = IN_THE_WAY if _is_built(path) else RESTORE
    return finding("unknown-file", path, severity="error", message=message)


def _is_built(path: str | Path) -> bool:
    """Whether a start builds what belongs there."""
    return Path(path).name not in (names.COMMIT_LOG, names.CONFIG)
