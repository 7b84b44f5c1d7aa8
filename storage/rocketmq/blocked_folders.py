"""Files in the place of folders that a start makes: `consumequeue`, the folder of a topic or of a queue, `index`.

Owns finding them, the refusal of a writable start, and taking them out of a read-only view; must not look into them.
All that these folders hold is built from the log.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from storage.errors import DamagedStore, IoFailure
from storage.findings import finding
from storage.model import Finding
from storage.rocketmq.consume_queue import IN_THE_WAY
from storage.rocketmq.directory import StoreDirectory
from storage.rocketmq.format import names
from storage.rocketmq.queues import QueueTable


def refuse(directory: StoreDirectory) -> None:
    """Raise DamagedStore, for a start that writes, where a file has the name of `consumequeue` or `index`.

    One in the place of a queue's folder only matters once that folder is made: see ConsumeQueue.
    """
    found = [blocked(path) for path in _roots(directory)]
    if found:
        path = found[0].path
        raise DamagedStore(
            f"{path}: {IN_THE_WAY}; or serve the store with --read-only",
            path=path,
            position=0,
            findings=found,
        )


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
        if path in needed or path.name in (names.CONSUME_QUEUE, names.INDEX):
            yield blocked(path)


def _roots(directory: StoreDirectory) -> Iterator[Path]:
    fs = directory.fs
    for folder in (directory.consume_queue, directory.index):
        if fs.exists(folder) and not fs.is_dir(folder):
            yield folder


def _blocking(directory: StoreDirectory) -> Iterator[Path]:
    fs, queues = directory.fs, directory.consume_queue
    yield from _roots(directory)
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
    """A file in the place of a folder."""
    return finding(
        "unknown-file",
        path,
        severity="error",
        message="a file in the place of a folder: what belongs there is built from the log",
    )
