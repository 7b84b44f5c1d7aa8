"""Folders in the place of files that a start reads or writes: at the root, and in the folder of a partition.

Owns finding these folders, the refusal of a writable start before it changes anything, and removing the folders from
a read-only view; must not inspect their content. If the clean-shutdown marker is such a folder, the view has no marker:
the store then counts as not stopped cleanly.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from storage.errors import IoFailure
from storage.files import STORE_FILE
from storage.findings import damaged_store, finding
from storage.kafka.directory import TOPICS_FILE, LogDirectory
from storage.kafka.format import names
from storage.model import Finding

_HERE: Final = "a folder in the place of a file"
_RESTORE: Final = "Move it away, and restore the file: what it held is in no other file"
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
}
"""The remedy for each file at the root, by file name."""
_TEMPORARY: Final = "Move it away: a file is written under this name before it gets its own"
_LOG: Final = "Move it away, and restore the segment: its records are in no other file"
_METADATA: Final = "Move it away, and restore the file if there is a copy: it holds the topic's id"
_BUILT: Final = "Move it away: a start makes the file again from the log"
_LEFT_OVER: Final = "Move it away: a file that is being deleted or replaced has such a name"


def refuse(directory: LogDirectory) -> None:
    """Raise DamagedStore if a folder has the name of a file that a start uses. For a writable start."""
    if directory.fs.is_dir(directory.path, follow=True) and (found := findings(directory)):
        raise damaged_store(found)


def findings(directory: LogDirectory) -> list[Finding]:
    """Return a finding for each folder in the place of a file; its message names the remedy."""
    fs = directory.fs
    found = []
    for root in directory.roots:
        for name in fs.list_dir(root):
            remedy = _root_remedy(name)
            if remedy is not None and fs.is_dir(root / name):
                found.append(_finding(root / name, remedy))
    for partition, folder in directory.partition_dirs():
        for path, remedy in _in_partition(directory, folder):
            found.append(_finding(path, remedy, *partition))
    return found


def take_out(directory: LogDirectory) -> list[Finding]:
    """Remove these folders from a read-only view, where no change reaches the disk; return their findings."""
    found = findings(directory)
    for one in found:
        with suppress(IoFailure):
            directory.fs.remove_tree(Path(one.path))
    return found


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


def _in_partition(directory: LogDirectory, folder: Path) -> Iterator[tuple[Path, str]]:
    """Yield the path and the remedy of each folder that has the name of a partition's file."""
    fs = directory.fs
    try:
        entries = fs.list_dir(folder)
    except (
        IoFailure
    ):  # unreadable, or deleted meanwhile by a broker: reported where its logs are read
        return
    for name in entries:
        remedy = _partition_remedy(name)
        if remedy is not None and fs.is_dir(folder / name):
            yield folder / name, remedy


def _partition_remedy(name: str) -> str | None:
    if name == names.PARTITION_METADATA:
        return _METADATA
    if name == names.LEADER_EPOCHS:
        return _BUILT
    if name in (names.PARTITION_METADATA + names.TEMPORARY, names.LEADER_EPOCHS + names.TEMPORARY):
        return _TEMPORARY
    parsed = names.parse_segment_name(name)
    if parsed is None:
        return None
    _, suffix = parsed
    if suffix.endswith(names.LEFTOVER_SUFFIXES):
        return _LEFT_OVER
    return _LOG if suffix == names.LOG else _BUILT
