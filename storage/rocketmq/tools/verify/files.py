"""Checks of names and small files of a RocketMQ store: which files exist, and whether they can be read.

Owns the list of names that are allowed in a store's folders; must not read the log, the queues or the index.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Final

from storage.errors import DataError, UnsupportedFormat
from storage.files import FileSystem, real_path
from storage.findings import finding
from storage.model import Finding
from storage.rocketmq.format import names
from storage.rocketmq.log.file_sequence import FileSequence
from storage.rocketmq.state import blocked_paths
from storage.rocketmq.state.config_file import EMPTY
from storage.rocketmq.tools.dump import bad_small_file, small_files
from storage.rocketmq.tools.log_walk import missing_files
from storage.rocketmq.tools.rows import small_file_entry
from storage.rocketmq.tools.unrecovered import UnrecoveredStore
from storage.shared.own_files import own_file_findings

OURS: Final = ".logserver."
_IGNORED: Final = frozenset({"lost+found"})
# MappedFileQueue.load refuses such a name, but skips folders and removes an empty last file
_REFUSED: Final = (
    "no file that this folder has: the real store does not load with it, so move it away"
)


def check_names(raw: UnrecoveredStore) -> Iterator[Finding]:
    """Yield findings for names that are not allowed in their folder, and for files missing between other files."""
    fs, root = raw.fs, raw.root
    for name in fs.list_dir(root):
        if (
            name not in names.ROOT_NAMES | _IGNORED
            and not name.startswith(OURS)
            and not names.is_dledger_name(name)
        ):
            yield _unknown(
                root / name, "no file or folder that a store has: it is not read and not changed"
            )
    yield from _check_run(fs, raw.run)
    yield from _check_unread_log(raw)
    yield from map(blocked_paths.folder_finding, blocked_paths.root_folders(raw.directory))
    yield from blocked_paths.file_findings(raw.directory)
    folder = raw.directory.consume_queue
    is_looked_at = fs.is_dir(folder) and not raw.directory.queues_in_database()
    for topic in fs.list_dir(folder) if is_looked_at else ():
        if not fs.is_dir(folder / topic):
            yield _unknown(folder / topic, "no folder of a topic: it is not read")
            continue
        for name in fs.list_dir(folder / topic):
            if names.parse_queue_id(name) is None or not fs.is_dir(folder / topic / name):
                yield _unknown(folder / topic / name, "no folder of a queue: it is not read")
    for queue in raw.queues:
        yield from _check_run(fs, queue.units.run)


def _check_run(fs: FileSystem, run: FileSequence) -> Iterator[Finding]:
    for folder in run.folders:
        yield from _check_run_names(fs, run, folder)
    placed = [base for base in run.bases if not base % run.file_bytes]
    for before, after in pairwise(placed):
        if before + run.file_bytes != after:
            yield missing_files(run, before + run.file_bytes)


def _check_run_names(fs: FileSystem, run: FileSequence, folder: Path) -> Iterator[Finding]:
    listed = fs.list_dir(folder) if fs.is_dir(folder) else ()
    for name in listed:
        path, base = folder / name, names.parse_file_name(name)
        is_folder = fs.is_dir(path)
        if base is not None and is_folder:
            yield _unknown(path, "a folder with the name of a file")
        elif (
            base is not None and base in run.bases and real_path(run.path(base)) != real_path(path)
        ):
            what = f"the log has this file in {run.path(base).parent} too, and that one is read"
            yield _unknown(path, what, severity="error")
        elif base is None and (is_folder or (name == listed[-1] and not fs.size(path))):
            yield _unknown(path, "no file that this folder has: it is not read and not changed")
        elif base is None:
            yield _unknown(path, _REFUSED, severity="error")


def _check_unread_log(raw: UnrecoveredStore) -> Iterator[Finding]:
    """Yield log files in the store's own folder while storePathCommitLog names other folders."""
    folder = raw.root / names.COMMIT_LOG
    if real_path(folder) in map(real_path, raw.run.folders):
        return
    for name in raw.fs.list_dir(folder) if raw.fs.is_dir(folder) else ():
        if names.parse_file_name(name) is not None:
            what = "a log file that is not read: storePathCommitLog names other folders"
            yield _unknown(folder / name, what, severity="error")


def _unknown(path: Path, what: str, *, severity: str | None = None) -> Finding:
    return finding("unknown-file", path, severity=severity, message=what)


def check_small_files(raw: UnrecoveredStore) -> Iterator[Finding]:
    """Check the checkpoint, the broker's config files and logserver's own small files."""
    for path in small_files(raw.fs, raw.root):
        data = raw.fs.read_bytes(path)
        try:
            if data or path.name == names.CHECKPOINT:
                small_file_entry(data, path.name)
            elif path.name != names.TOPICS and path != raw.directory.offsets_path:
                yield from _empty(raw.fs, path)
        except DataError as error:
            yield bad_small_file(path, error)
    try:
        raw.directory.topics(read_only=True)
        raw.directory.offsets()
        raw.directory.producers()
    except UnsupportedFormat as error:
        yield bad_small_file(raw.root / names.STORE_FILE, error)
    yield from raw.directory.findings
    yield from own_file_findings(raw.fs, raw.root)


def _empty(fs: FileSystem, path: Path) -> Iterator[Finding]:
    """Report an empty config file: ConfigManager.load reads its `.bak` instead. An empty `.bak` has no effect."""
    if path.name.endswith(names.BACKUP):
        return
    has_backup = fs.exists(path.with_name(path.name + names.BACKUP))
    what = f"an empty file: the broker reads its {names.BACKUP}" if has_backup else EMPTY
    yield finding("bad-config-file", path, message=what)
