"""Kinds of the files of a RocketMQ store.

Owns the way from a path to its kind; must not open a file.

    file                            kind          it begins at
    commitlog/POSITION              commitlog     this physical offset
    consumequeue/TOPIC/N/POSITION   consumequeue  the queue's offset POSITION / 20
    index/TIME                      indexfile
    config/*                        config
    checkpoint                      checkpoint
    abort, lock                     marker, lock
    .logserver.*                    logserver: state for which the broker has no file
    anything else                   other
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from storage.files import FileSystem
from storage.model import Finding, StoredFile, TopicPartition
from storage.rocketmq.format import names
from storage.rocketmq.format.queue_entry import UNIT_SIZE
from storage.shared.diagnostics import PathFacts, unreadable_findings
from storage.shared.file_listing import Described, list_below

_OTHER: Final = Described("other")
_OURS: Final = ".logserver."
_AT_ROOT: Final[Mapping[str, str]] = {
    names.CHECKPOINT: "checkpoint",
    names.ABORT: "marker",
    names.ABORT_BACKUP: "marker",
    names.LOCK: "lock",
}


def list_files(
    fs: FileSystem, root: Path, partition: TopicPartition | None, *, after: str
) -> Iterator[StoredFile]:
    """See storage.list_files. For a partition: the files of its queue. All queues share the log with the records."""
    folder: Sequence[str] = ()
    if partition is not None:
        folder = (names.CONSUME_QUEUE, partition.topic, str(partition.partition))
    return list_below(fs, root, _describe, folder=folder, after=after)


def _describe(path: Sequence[str]) -> Described:
    match path:
        case [name]:
            return Described(_AT_ROOT.get(name, "logserver" if name.startswith(_OURS) else "other"))
        case [names.COMMIT_LOG, name]:
            base = names.parse_file_name(name)
            return _OTHER if base is None else Described("commitlog", physical_offset=base)
        case [names.CONSUME_QUEUE, topic, queue, name]:
            return _in_queue(topic, names.parse_queue_id(queue), names.parse_file_name(name))
        case [names.INDEX, name]:
            return _OTHER if names.parse_index_name(name) is None else Described("indexfile")
        case [names.CONFIG, _]:
            return Described("config")
    return _OTHER


def _in_queue(topic: str, queue_id: int | None, position: int | None) -> Described:
    if queue_id is None or position is None:
        return _OTHER
    queue = TopicPartition(topic, queue_id)
    return Described("consumequeue", queue, base_offset=position // UNIT_SIZE)


def unread_findings(fs: FileSystem) -> Sequence[Finding]:
    """Return findings about files that reads through `fs` could not get so far; see storage.shared.diagnostics."""
    return unreadable_findings(fs, _facts)


def _facts(path: Path) -> PathFacts:
    if names.COMMIT_LOG in (path.name, path.parent.name):
        return PathFacts(True)
    for queue in (path, path.parent):
        queue_id = names.parse_queue_id(queue.name)
        if queue_id is not None and queue.parent.parent.name == names.CONSUME_QUEUE:
            return PathFacts(False, TopicPartition(queue.parent.name, queue_id))
    return PathFacts(False)
