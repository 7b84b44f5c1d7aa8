"""Looking at RocketMQ's files offline: a store, some of its queues, or one file, and mending indexes.

Owns the decision what a PATH is. The door is `open_inspector`; the parts behind it:

    store_inspector             SupportsInspect for a store and for queues of it
    view, log_walk              a store as recovery would leave it, in memory; its log, over damage
    dump, rows                  what is in it, as rows;  search: some records of it;  summary: all on one screen

Must not write, but for `rebuild` when it is told to.
"""

from __future__ import annotations

from pathlib import Path

from storage.files import FileSystem
from storage.interface import Clock, StoreOptions, SupportsInspect
from storage.rocketmq.directory import detect
from storage.rocketmq.tools.store_inspector import StoreInspector
from storage.rocketmq.tools.view import View


def open_inspector(
    path: Path, options: StoreOptions, *, fs: FileSystem, clock: Clock
) -> SupportsInspect | None:
    """Look at PATH, or None when it is nothing of RocketMQ's. Raises InvalidConfig, IoFailure."""
    if path.name in {"", ".."}:
        path = path.resolve()
    if not fs.is_dir(path):
        return None
    adopted = detect(fs, path)
    if adopted is None:
        return None
    return StoreInspector(View(path, options, fs=fs, clock=clock), adopted=adopted)
