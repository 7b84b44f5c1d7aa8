"""Looking at RocketMQ's files offline: a store, a part of it or one file; and mending queues and index.

The door is `open_inspector`; the parts behind it:

    place                            what a PATH is
    store_inspector, file_inspector  SupportsInspect for a store or some of its queues, and for files alone
    view        a store as recovery would leave it, in memory;  raw: its files as they lie there
    log_walk    the log from one end to the other, over damage
    dump, rows  what is in it, as rows;  search: some records of it;  summary: all on one screen
    verify      what is wrong with it (verify_files, record_check, check_queues, check_index)
    rebuild     queues or index anew, from the log (rebuild_store; in parts rebuild_parts)
    picture, stretches   a store handed to whoever does parts: verify_stretch, verify_rest, rebuild_stretch
    salvage     a new store of what is good (salvage_survey, salvage_log, blanks)

Must not write, but for `rebuild` when it is told to, and the new store of a `salvage`.
"""

from __future__ import annotations

from pathlib import Path

from storage.files import FileSystem
from storage.interface import Clock, StoreOptions, SupportsInspect
from storage.rocketmq.directory import detect
from storage.rocketmq.tools.file_inspector import FileInspector
from storage.rocketmq.tools.place import Alone, place_of
from storage.rocketmq.tools.store_inspector import StoreInspector
from storage.rocketmq.tools.view import View


def open_inspector(
    path: Path, options: StoreOptions, *, fs: FileSystem, clock: Clock
) -> SupportsInspect | None:
    """Look at PATH, or None when it is nothing of RocketMQ's. Raises InvalidConfig, IoFailure.

    A topic's or a queue's folder below consumequeue is looked at with the store around it; the log's
    folder, and a file, are looked at alone where there is no store around them.
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
