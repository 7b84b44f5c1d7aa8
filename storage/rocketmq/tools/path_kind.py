"""The kind of a PATH (a store, a part of a store, or a file), found by its name, location and content.

Owns that decision; must not read more than the beginning of a file.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

from storage.errors import Truncated
from storage.files import FileSystem
from storage.rocketmq.format import names
from storage.rocketmq.format.message import MAGIC_PADDING, MAGIC_V1, MAGIC_V2, PADDING_SIZE, peek
from storage.rocketmq.format.queue_entry import UNIT_SIZE
from storage.rocketmq.state.root import detect
from storage.rocketmq.tools.dump import (
    CHECKPOINTS,
    COMMIT_LOG,
    COMPACTED,
    CONSUME_QUEUE,
    INDEX_FILE,
    is_config_name,
)

PARTS: Final = {
    names.COMMIT_LOG: COMMIT_LOG,
    names.CONSUME_QUEUE: CONSUME_QUEUE,
    names.INDEX: INDEX_FILE,
    names.CONFIG: CHECKPOINTS,
    names.COMPACTION: COMPACTED,
}
"""The folders of a store, and the kind of dump that shows the contents of each folder."""

_CONFIG_FILES: Final = frozenset(
    {
        *(names.TOPICS, names.OFFSETS, names.LMQ_OFFSETS),
        *(names.DELAY_OFFSETS, names.SUBSCRIPTION_GROUPS),
        *("consumerFilter.json", "consumerOrderInfo.json"),
    }
)


class InStore(NamedTuple):
    """A store, or some of its queues. `part` is the dump kind of the store folder that PATH named, if any."""

    root: Path
    topic: str | None = None
    queue_id: int | None = None
    part: str | None = None


class Alone(NamedTuple):
    """Files of one kind, inspected without a store around them. `path` is one file, or the folder of the files."""

    path: Path
    kind: str
    bases: Sequence[int]  # base offsets of the files of a log or queue
    topic: str | None = None
    queue_id: int | None = None


def place_of(fs: FileSystem, path: Path) -> InStore | Alone | None:
    """Return the kind of PATH; None if it is not a RocketMQ path."""
    return _folder(fs, path) if fs.is_dir(path, follow=True) else _file(fs, path)


def _folder(fs: FileSystem, path: Path) -> InStore | Alone | None:
    full = path.absolute()
    if detect(fs, path) is not None:
        return InStore(path)
    if full.name in PARTS and _is_store(fs, full.parent):
        return InStore(path.parent, part=PARTS[full.name])
    parents = full.parents
    if len(parents) > 1 and parents[0].name == names.CONSUME_QUEUE and _is_store(fs, parents[1]):
        return InStore(path.parent.parent, topic=full.name)
    queue_id = names.parse_queue_id(full.name)
    in_queues = len(parents) > 2 and parents[1].name == names.CONSUME_QUEUE
    if in_queues and queue_id is not None and _is_store(fs, parents[2]):
        return InStore(path.parent.parent.parent, topic=parents[0].name, queue_id=queue_id)
    found = [
        base
        for name in fs.list_dir(path)
        if (base := names.parse_file_name(name)) is not None and not fs.is_dir(path / name)
    ]
    if not found:
        return None
    return _run(fs, path, path / names.file_name(found[0]), found)


def _is_store(fs: FileSystem, path: Path) -> bool:
    return detect(fs, path) is not None


def _file(fs: FileSystem, path: Path) -> Alone | None:
    base = names.parse_file_name(path.name)
    if base is not None:
        return _run(fs, path, path, [base])
    if names.parse_index_name(path.name) is not None:
        return Alone(path, INDEX_FILE, ())
    if path.name == names.CHECKPOINT or path.name.removesuffix(names.BACKUP) in _CONFIG_FILES:
        return Alone(path, CHECKPOINTS, ())
    if is_config_name(path.name) and path.absolute().parent.name == names.CONFIG:
        return Alone(path, CHECKPOINTS, ())
    return None


def _run(fs: FileSystem, path: Path, file: Path, bases: Sequence[int]) -> Alone | None:
    """Return the place for files of a log or of a queue; None if they are neither."""
    parents = file.absolute().parents
    if parents[0].name == names.COMMIT_LOG or _begins_log(fs, file):
        return Alone(path, COMMIT_LOG, bases)
    if len(parents) > 2 and parents[2].name == names.CONSUME_QUEUE:
        queue_id = names.parse_queue_id(parents[0].name)
        return Alone(path, CONSUME_QUEUE, bases, parents[1].name, queue_id)
    return None if fs.size(file) % UNIT_SIZE else Alone(path, CONSUME_QUEUE, bases)


def _begins_log(fs: FileSystem, path: Path) -> bool:
    """Return whether a file begins with a record or a padding."""
    file = fs.open(path)
    try:
        _, magic = peek(file.pread(PADDING_SIZE, 0), 0)
    except Truncated:
        return False
    finally:
        file.close()
    return magic in (MAGIC_V1, MAGIC_V2, MAGIC_PADDING)
