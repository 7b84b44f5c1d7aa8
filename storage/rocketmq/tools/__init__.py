"""Inspect RocketMQ's files offline (a store, part of a store, or one file), and repair queues and index.

Owns the entry point `open_inspector`; must not write, except in `rebuild` with `write` and in the new store of a
`salvage`. The modules:

    place                            what a PATH is
    store_inspector, file_inspector  SupportsInspect for a store or some of its queues, and for single files
    view        a store as recovery would leave it, in memory;  raw: its files as they are stored
    log_walk    the walk over the whole log, across damage
    dump, rows  the contents, as rows;  search: some records;  summary: an overview on one screen
    verify      finds errors (verify_files, record_check, check_queues, check_index)
    rebuild     recreates queues or index from the log (rebuild_store; in parts rebuild_parts)
    picture, stretches   a store snapshot for work in parts: verify_stretch, verify_rest, rebuild_stretch
    salvage     builds a new store from the good records (salvage_survey, salvage_log, blanks)
"""

from __future__ import annotations

from pathlib import Path

from storage.contract import Clock, StoreOptions, SupportsInspect
from storage.files import FileSystem
from storage.rocketmq.state.root import detect
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
    place = place_of(fs, path)
    if place is None:
        return None
    if isinstance(place, Alone):
        return FileInspector(fs, place, options, clock=clock)
    view = View(place.root, options, fs=fs, clock=clock, topic=place.topic, queue_id=place.queue_id)
    return StoreInspector(view, adopted=detect(fs, place.root), part=place.part)
