"""Recreation of queues or index from the commit log alone. The real store does not guarantee that this works.

Owns the refusals, and the store's lock, which is held for the whole rebuild with `write`; must not build. The
work is done in rebuild_store, or in rebuild_parts if it is run in parts.
"""

from __future__ import annotations

from typing import Final

from storage.contract import Progress, TaskRunner
from storage.errors import InvalidArgument, NotOffered
from storage.model import RebuildReport
from storage.rocketmq.format import names
from storage.rocketmq.state import live_data
from storage.rocketmq.state.root import StoreDirectory, take_lock
from storage.rocketmq.tools.rebuild.parts import SharedRebuild
from storage.rocketmq.tools.rebuild.store import INDEX, QUEUES, Rebuild
from storage.rocketmq.tools.unrecovered import RawStore
from storage.rocketmq.tools.view import View

KINDS: Final = (QUEUES, INDEX)


def rebuild(
    view: View, what: str, *, write: bool, progress: Progress, run: TaskRunner | None = None
) -> RebuildReport:
    """See SupportsInspect.rebuild, and SupportsParts if `run` is given. Raises:

    - StoreLocked: a server owns the store (only with `write`);
    - InvalidArgument: an unknown `what`, or PATH is only a part of a store;
    - NotOffered: the queues have an extension file or are in a database, or DLedger keeps the log.
    """
    if what not in KINDS:
        raise InvalidArgument(
            f"rebuild: {what!r} is unknown here, choose one of {', '.join(KINDS)}", field="what"
        )
    if not view.is_whole:
        raise InvalidArgument(
            "rebuild needs the whole store: all of it is in one log", field="path"
        )
    if what == QUEUES and view.base.exists(view.root / names.QUEUE_EXTENSION):
        raise NotOffered(
            f"rebuild: {names.QUEUE_EXTENSION} holds what the log does not tell", feature="rebuild"
        )
    live_data.refuse_dledger(StoreDirectory(view.base, view.root))
    if what == QUEUES and StoreDirectory(view.base, view.root).queues_in_database():
        raise NotOffered("rebuild: the broker keeps its queues in RocksDB", feature="rebuild")
    if not write:
        return _run(view, what, write=False, progress=progress, run=run)
    lock = take_lock(view.base, view.root)
    try:
        return _run(view, what, write=True, progress=progress, run=run)
    finally:
        lock.release()


def _run(
    view: View, what: str, *, write: bool, progress: Progress, run: TaskRunner | None
) -> RebuildReport:
    raw = RawStore(view.root, view.options, fs=view.base, clock=view.clock)
    try:
        report: RebuildReport | None = None
        while report is None:
            if run is None:
                report = Rebuild(view, raw, what, write=write, progress=progress).run()
            else:
                shared = SharedRebuild(view, raw, what, write=write, progress=progress, run=run)
                report = shared.run()
        return report
    finally:
        raw.close()
