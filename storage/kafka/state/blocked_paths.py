"""Folders with the name of a file that a start reads or writes: at the root, and in a partition's folder.

Owns finding them, refusing a writable start before it changes anything, and removing them from a read-only view; must
not read what they contain. The clean-stop marker is removed from a view too: the store then counts as not stopped
cleanly. A folder in the place of a `.txnindex` proves that there was one: a view loses the segment's offset index as
well, so that recovery rebuilds all its indexes, and no aborted record is shown.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from storage.errors import IoFailure
from storage.files import STORE_FILE, FileSystem
from storage.findings import damaged_store, finding
from storage.kafka.format import names
from storage.kafka.state.root import TOPICS_FILE, LogDirectory
from storage.kafka.state.topics import interrupted_folders
from storage.model import Finding, TopicPartition
from storage.shared.staged_append import NOTE

_HERE: Final = "a folder in the place of a file"
_RESTORE: Final = "Move it away, and restore the file: no other file has its content"
_AT_ROOT: Final = {
    names.CLEAN_SHUTDOWN: "Move it away: a start then recovers the logs, as after an unclean stop",
    names.RECOVERY_POINTS: "Move it away: a start recovers without it, and writes it again",
    names.HIGH_WATERMARKS: "Move it away: a start writes it again",
    names.CLEANER_OFFSETS: "Move it away: compaction then begins at the start of each log",
    names.LOG_STARTS: "Move it away, and restore the file: without it deleted records may be served again",
    names.META_PROPERTIES: _RESTORE,
    names.LOCK: "Move it away while no server runs: a start makes it again",
    STORE_FILE: _RESTORE,
    TOPICS_FILE: _RESTORE,
    NOTE: "Move it away, and restore the file: it lists the staged records that are stored already",
}
"""The remedy for a folder with this name at the root."""
_TEMPORARY: Final = "Move it away: a file is written under this name before it is renamed"
_LOG: Final = "Move it away, and restore the segment: no other file has its records"
_METADATA: Final = "Move it away, and restore the file if there is a copy: it holds the topic's id"
_EPOCHS: Final = "Move it away: a start makes the file again from the log"
_SNAPSHOT: Final = (
    "Move it away: a start needs the newest one alone, and makes that again from the log"
)
_INDEX: Final = "Move it away: a start makes all indexes of the segment again from the log"
_ABORTED: Final = (
    "Move it away together with the segment's `.index`: a start then makes all indexes of the segment again. Without "
    "the file aborted records are served"
)
_LEFT_OVER: Final = "Move it away: a file that is being deleted or replaced has such a name"
_OF_SEGMENT: Final = {
    names.LOG: _LOG,
    names.INDEX: _INDEX,
    names.TIME_INDEX: _INDEX,
    names.TXN_INDEX: _ABORTED,
    names.SNAPSHOT: _SNAPSHOT,
}


def refuse(directory: LogDirectory) -> None:
    """Raise DamagedStore for a writable start if a folder has the name of such a file."""
    if directory.fs.is_dir(directory.path, follow=True) and (found := findings(directory)):
        raise damaged_store(found)


def findings(directory: LogDirectory) -> list[Finding]:
    """Return a finding for each such folder, with the remedy."""
    return [*_at_root(directory), *_in_partitions(directory.fs, _folders(directory))]


def take_out(
    directory: LogDirectory, only: tuple[TopicPartition, Path] | None = None
) -> list[Finding]:
    """Remove these folders from a read-only view, where nothing reaches the disk. Return the findings.

    `only`: of the partitions check this one alone. A folder with the name of the clean-stop marker is removed first:
    without the marker other folders belong to interrupted topics.
    """
    found = _at_root(directory)
    _remove(directory.fs, found)
    of_partitions = list(
        _in_partitions(directory.fs, _folders(directory) if only is None else [only])
    )
    _remove(directory.fs, of_partitions)
    return [*found, *of_partitions]


def _remove(fs: FileSystem, found: Iterable[Finding]) -> None:
    for path in (Path(one.path) for one in found):
        with suppress(IoFailure):
            fs.remove_tree(path)
        index = path.with_suffix(names.INDEX)
        if path.suffix == names.TXN_INDEX and fs.exists(index) and not fs.is_dir(index):
            fs.remove(index)


def _folders(directory: LogDirectory) -> Iterator[tuple[TopicPartition, Path]]:
    """Yield the folders that a start reads: of the partitions, and of topics whose creation or deletion a crash
    interrupted.
    """
    yield from directory.partition_dirs()
    yield from interrupted_folders(directory).items()


def _at_root(directory: LogDirectory) -> list[Finding]:
    fs = directory.fs
    return [
        _finding(root / name, remedy)
        for root in directory.roots
        for name in fs.list_dir(root)
        if (remedy := _root_remedy(name)) is not None and fs.is_dir(root / name)
    ]


def _in_partitions(
    fs: FileSystem, folders: Iterable[tuple[TopicPartition, Path]]
) -> Iterator[Finding]:
    for partition, folder in folders:
        try:
            entries = fs.list_dir(folder)
        except (
            IoFailure
        ):  # unreadable, or just deleted by a broker: reported where its logs are read
            continue
        for name in entries:
            remedy = _partition_remedy(name)
            if remedy is not None and fs.is_dir(folder / name):
                yield _finding(folder / name, remedy, *partition)


def _finding(
    path: Path, remedy: str, topic: str | None = None, partition: int | None = None
) -> Finding:
    message = f"{_HERE}. {remedy}"
    return finding(
        "unknown-file", path, severity="error", topic=topic, partition=partition, message=message
    )


def _root_remedy(name: str) -> str | None:
    if name.removesuffix(names.TEMPORARY) not in _AT_ROOT:
        return None
    return _TEMPORARY if name.endswith(names.TEMPORARY) else _AT_ROOT[name]


def _partition_remedy(name: str) -> str | None:
    if name == names.PARTITION_METADATA:
        return _METADATA
    if name == names.LEADER_EPOCHS:
        return _EPOCHS
    if name in (names.PARTITION_METADATA + names.TEMPORARY, names.LEADER_EPOCHS + names.TEMPORARY):
        return _TEMPORARY
    parsed = names.parse_segment_name(name)
    if parsed is None:
        return None
    _, suffix = parsed
    return _LEFT_OVER if suffix.endswith(names.LEFTOVER_SUFFIXES) else _OF_SEGMENT[suffix]
