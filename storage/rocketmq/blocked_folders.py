"""Files in the place of folders that a start makes: `consumequeue`, the folder of a topic or of a queue, `index`.

Owns finding them, the refusal of a writable start, and taking them out of a read-only view; must not look into them.
All that these folders hold is built from the log.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from storage.errors import DamagedStore, IoFailure
from storage.findings import finding
from storage.model import Finding
from storage.rocketmq.directory import StoreDirectory
from storage.rocketmq.format import names

_TOPIC: Final = re.compile(r"[%|a-zA-Z0-9_-]+")
"""TopicValidator's: a file of another name is in no topic's place."""


def refuse(directory: StoreDirectory) -> None:
    """Raise DamagedStore, for a start that writes, where a file is in the place of a folder."""
    found = [blocked(path) for path in _blocking(directory)]
    if found:
        path = found[0].path
        raise DamagedStore(
            f"{path}: a file in the place of a folder. Nothing has been changed. Move it away, and the start builds "
            "what belongs there from the log; or serve the store with --read-only",
            path=path,
            position=0,
            findings=found,
        )


def take_out(directory: StoreDirectory) -> Sequence[Finding]:
    """Take such files out of a view that only reads, where nothing reaches the disk; gives a finding for each."""
    found: list[Finding] = []
    for path in _blocking(directory):
        with suppress(IoFailure):  # a link into a circle: reported where it is read
            directory.fs.remove(path)
            found.append(blocked(path))
    return found


def _blocking(directory: StoreDirectory) -> Iterator[Path]:
    fs, queues = directory.fs, directory.consume_queue
    for folder in (queues, directory.index):
        if fs.exists(folder) and not fs.is_dir(folder):
            yield folder
    if not fs.is_dir(queues) or directory.queues_in_database():
        return
    for topic in fs.list_dir(queues):
        folder = queues / topic
        if fs.is_dir(folder):
            for name in fs.list_dir(folder):
                if names.parse_queue_id(name) is not None and not fs.is_dir(folder / name):
                    yield folder / name
        elif _TOPIC.fullmatch(topic):
            yield folder


def blocked(path: Path) -> Finding:
    """A file in the place of a folder."""
    return finding(
        "unknown-file",
        path,
        severity="error",
        message="a file in the place of a folder: what belongs there is built from the log",
    )
