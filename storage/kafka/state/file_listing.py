"""The kind of each file of a log directory, by its name alone.

    file                                    kind
    TOPIC-N/OFFSET.log                      log
    TOPIC-N/OFFSET.index  .timeindex  ...   index, timeindex, txnindex, snapshot
    TOPIC-N/OFFSET.log.deleted  ...         log.deleted, ...: being removed or put in place
    TOPIC-N/leader-epoch-checkpoint         checkpoint, as those at the root
    TOPIC-N/partition.metadata              metadata, as meta.properties at the root
    .kafka_cleanshutdown, .lock             marker, lock
    .logserver.*                            logserver: state for which the broker has no file
    anything else                           other

Owns the rules from name to kind; must not open a file.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from storage.files import FileSystem
from storage.kafka.format import names
from storage.model import Finding, StoredFile, TopicPartition
from storage.shared.diagnostics import PathFacts, unreadable_findings
from storage.shared.file_listing import Described, list_below

_KINDS: Final[Mapping[str, str]] = {
    names.LEADER_EPOCHS: "checkpoint",
    names.RECOVERY_POINTS: "checkpoint",
    names.HIGH_WATERMARKS: "checkpoint",
    names.LOG_STARTS: "checkpoint",
    names.CLEANER_OFFSETS: "checkpoint",
    names.BOOTSTRAP: "checkpoint",
    names.PARTITION_METADATA: "metadata",
    names.META_PROPERTIES: "metadata",
    names.CLEAN_SHUTDOWN: "marker",
    names.LOCK: "lock",
}


def list_files(
    fs: FileSystem, root: Path, partition: TopicPartition | None, *, after: str
) -> Iterator[StoredFile]:
    """See storage.list_files."""
    folder = () if partition is None else (names.partition_dir_name(*partition),)
    return list_below(fs, root, _describe, folder=folder, after=after)


def _describe(path: Sequence[str]) -> Described:
    name = path[-1]
    partition = names.parse_partition_dir(path[0]) if len(path) == 2 else None
    segment = None if partition is None else names.parse_segment_name(name)
    if segment is not None:
        return Described(segment[1].removeprefix("."), partition, base_offset=segment[0])
    kind = "logserver" if name.startswith(names.OURS) else "other"
    return Described(_KINDS.get(name, kind), partition)


def unread_findings(fs: FileSystem) -> Sequence[Finding]:
    """Return findings for files that `fs` could not read so far; see storage.shared.diagnostics."""
    return unreadable_findings(fs, _facts)


def _facts(path: Path) -> PathFacts:
    folder = names.parse_partition_dir(path.name)
    if folder is not None:
        return PathFacts(True, folder)
    return PathFacts(path.suffix == names.LOG, names.parse_partition_dir(path.parent.name))
