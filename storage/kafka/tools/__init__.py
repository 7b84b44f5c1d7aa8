"""Looking at Kafka's files offline: a store, one partition of it, or one file, and mending indexes.

Owns the decision what a PATH is. The door is `open_inspector`; the parts behind it:

    directory_inspector, file_inspector   SupportsInspect for a directory and for a file
    view        a log directory as recovery would leave it, in memory
    dump, rows  what is in it, as rows;  search: one record among them;  summary: all on one screen
    verify      what is wrong with it (verify_partition, verify_log, check_indexes, verify_files)
    rebuild     indexes anew, a segment at a time (rebuild_segment)
    salvage     a new store of what is good (salvage_log, salvage_files)
    logs        the walk over `.log` files that all of them share

Must not write, but for `rebuild` when it is told to, and the new store of a `salvage`.
"""

from __future__ import annotations

from pathlib import Path

from storage.files import FileSystem
from storage.interface import Clock, StoreOptions, SupportsInspect
from storage.kafka.directory import detect
from storage.kafka.format import names
from storage.kafka.format.names import parse_segment_name, partition_of_dir
from storage.kafka.tools.directory_inspector import DirectoryInspector
from storage.kafka.tools.file_inspector import FileInspector, classify
from storage.kafka.tools.view import View
from storage.model import TopicPartition


def open_inspector(
    path: Path, options: StoreOptions, *, fs: FileSystem, clock: Clock
) -> SupportsInspect | None:
    """Look at PATH, or None when it is nothing of Kafka's. Raises InvalidConfig, IoFailure.

    A folder of segments is looked at as a partition of the directory above it; its name tells topic
    and number, any other name is taken as a topic with the one partition 0.
    """
    if path.name in {"", ".."}:
        path = path.resolve()
    if not fs.is_dir(path, follow=True):
        kind = classify(path.name)
        return None if kind is None else FileInspector(fs, path, options, clock=clock)
    adopted = detect(fs, path)
    if adopted is not None:
        return DirectoryInspector(
            lambda: View(path, options, fs=fs, clock=clock), kind="store", adopted=adopted
        )
    if not _holds_segments(fs, path):
        return None
    address = partition_of_dir(path.name) or TopicPartition(path.name, 0)
    return DirectoryInspector(
        lambda: View(path.parent, options, fs=fs, clock=clock, only=(address, path)),
        kind="partition",
        adopted=detect(fs, path.parent),
    )


def _holds_segments(fs: FileSystem, path: Path) -> bool:
    entries = fs.list_dir(path)
    return names.PARTITION_METADATA in entries or any(map(parse_segment_name, entries))
