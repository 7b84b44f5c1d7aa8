"""Findings of a salvage for files in the place of a store's folders, and folders in the place of its files.

Owns these findings; must not copy. The contents of such a file or folder are not salvaged. A queue is rebuilt from its
records. A queue with no record left in the log continues at the offset known from its folder, which is lost here.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from pathlib import Path

from storage.findings import finding
from storage.model import Finding
from storage.rocketmq.format import names
from storage.rocketmq.index.light_queues import is_lmq
from storage.rocketmq.state import blocked_paths, live_data
from storage.rocketmq.state.root import StoreDirectory

Key = tuple[str, int]


def blocked_findings(
    source: StoreDirectory, met: Collection[Key], *, head_deleted: bool
) -> Iterator[Finding]:
    """Yield the findings. `met`: the queues with records in the log. `head_deleted`: earlier log files were deleted, so
    a queue without records may have had records.
    """
    yield from blocked_paths.file_findings(source)
    yield from map(blocked_paths.folder_finding, blocked_paths.lost_folders(source))
    for path in blocked_paths.derived_folders(source):
        yield live_data.file_left_behind(source.fs, path)
        lost = _lost_queues(source, path, met) if head_deleted else ()
        for topic, queue_id in lost:
            yield _position_lost(path, topic, queue_id)
        for topic in _lost_lmqs(source, path):
            yield _lmq_lost(path, topic)


def _lost_queues(source: StoreDirectory, path: Path, met: Collection[Key]) -> Iterator[Key]:
    """Yield queues without records whose folder belongs at `path`, according to topics.json."""
    topic, queue_id = _address(source, path)
    if path == source.index or (topic is not None and is_lmq(topic)):
        return
    table = StoreDirectory(source.fs, source.path).topics(read_only=True)
    for name in table.topics:
        if topic in (None, name):
            for number in table.info(name).partitions:
                if queue_id in (None, number) and (name, number) not in met:
                    yield name, number


def _lost_lmqs(source: StoreDirectory, path: Path) -> Iterator[str]:
    topic, _ = _address(source, path)
    if topic is not None and is_lmq(topic):
        yield topic


def _address(source: StoreDirectory, path: Path) -> tuple[str | None, int | None]:
    """Return the topic and the queue id whose folder belongs at `path`; None stands for all."""
    if path in (source.consume_queue, source.index):
        return None, None
    if path.parent == source.consume_queue:
        return path.name, None
    return path.parent.name, names.parse_queue_id(path.name)


def _position_lost(path: Path, topic: str, queue_id: int) -> Finding:
    return finding(
        "unknown-file",
        path,
        severity="error",
        topic=topic,
        partition=queue_id,
        message="a file in the place of a queue's folder, and no record of the queue is left in the log: its next "
        "offset is lost, and the new queue may give offsets again",
    )


def _lmq_lost(path: Path, topic: str) -> Finding:
    return finding(
        "unknown-file",
        path,
        severity="error",
        topic=topic,
        partition=0,
        message="a file in the place of the folder of a light message queue: the queue is not in the new store; its "
        "records are, in their own topics",
    )
