"""Offline tools for Kafka's files: inspect a store, one partition of it or one file; rebuild indexes; salvage.

Owns the decision what kind of thing a PATH is. The entry point is `open_inspector`. `view` is a log directory as
recovery would leave it, in memory; `logs` the walk over `.log` files that all of these tools share. Must not write,
except for `rebuild` with `write`, and for the new store of a `salvage`.
"""

from __future__ import annotations

from pathlib import Path

from storage.contract import Clock, StoreOptions, SupportsInspect
from storage.files import FileSystem
from storage.kafka.format import names
from storage.kafka.format.names import parse_segment_name, partition_of_dir
from storage.kafka.state.root import detect
from storage.kafka.tools.file_inspector import FileInspector, classify
from storage.kafka.tools.store_inspector import StoreInspector
from storage.kafka.tools.view import View
from storage.model import TopicPartition


def open_inspector(
    path: Path, options: StoreOptions, *, fs: FileSystem, clock: Clock
) -> SupportsInspect | None:
    """Open PATH for inspection. Return None if PATH is not one of Kafka's. Raises InvalidConfig, IoFailure.

    A folder of segments is opened as a partition of the directory above it. Its name gives the topic and
    the partition number. Any other name is taken as a topic with the one partition 0.
    """
    if path.name in {"", ".."}:
        path = path.resolve()
    if not fs.is_dir(path, follow=True):
        kind = classify(path.name)
        return None if kind is None else FileInspector(fs, path, options, clock=clock)
    adopted = detect(fs, path)
    if adopted is not None:
        return StoreInspector(
            lambda: View(path, options, fs=fs, clock=clock), kind="store", adopted=adopted
        )
    if not _holds_segments(fs, path):
        return None
    address = partition_of_dir(path.name) or TopicPartition(path.name, 0)
    return StoreInspector(
        lambda: View(path.parent, options, fs=fs, clock=clock, only=(address, path)),
        kind="partition",
        adopted=detect(fs, path.parent),
    )


def _holds_segments(fs: FileSystem, path: Path) -> bool:
    entries = fs.list_dir(path)
    return names.PARTITION_METADATA in entries or any(map(parse_segment_name, entries))
