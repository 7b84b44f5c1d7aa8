"""Inspect RocketMQ's files offline (a store, part of a store, or one file), and repair queues and index.

Owns the entry point `open_inspector`; must not write, except in `rebuild` with `write` and in the new store of a
`salvage`. The modules:

    path_kind                        what a PATH is
    store_inspector, file_inspector  SupportsInspect for a store or some of its queues, and for single files
    view                             a store as recovery would leave it, in memory
    unrecovered, snapshot            its files as they are stored; the same for work in parts
    log_walk, log_tasks              the walk over the whole log, across damage; the walk in parts
    dump, rows, search, summary      the contents as rows; some records; an overview on one screen
    compacted                        the logs of topics that a broker compacts
    verify, rebuild, salvage         find errors; recreate queues or index from the log; build a new store
"""

from __future__ import annotations

from pathlib import Path

from storage.contract import Clock, StoreOptions, SupportsInspect
from storage.files import FileSystem
from storage.rocketmq.state.root import detect
from storage.rocketmq.tools.compacted.inspector import CompactedInspector, place_in
from storage.rocketmq.tools.file_inspector import FileInspector
from storage.rocketmq.tools.path_kind import Alone, place_of
from storage.rocketmq.tools.store_inspector import StoreInspector
from storage.rocketmq.tools.view import View


def open_inspector(
    path: Path, options: StoreOptions, *, fs: FileSystem, clock: Clock
) -> SupportsInspect | None:
    """Open PATH for inspection; return None if it is not a RocketMQ path. Raises InvalidConfig, IoFailure.

    A topic's or queue's folder below consumequeue is opened together with its store. The log's folder, or a
    single file, is opened alone if there is no store around it.
    """
    if path.name in {"", ".."}:
        path = path.resolve()
    compacted = place_in(fs, path)
    if compacted is not None:
        return CompactedInspector(fs, compacted, options)
    place = place_of(fs, path)
    if place is None:
        return None
    if isinstance(place, Alone):
        return FileInspector(fs, place, options, clock=clock)
    view = View(place.root, options, fs=fs, clock=clock, topic=place.topic, queue_id=place.queue_id)
    return StoreInspector(view, adopted=detect(fs, place.root), part=place.part)
