"""Data of a store that this program does not read: databases, batch queues, compacted topics, timers, a log of DLedger.

Owns the names and the measuring of such data, the refusals, and the findings about it; must not read the content of its
files. All of it is live data of the broker. A tool that creates a new store reports what it leaves out.

    consumequeue/CURRENT, config/*/CURRENT     RocksDB (storeType=defaultRocksDB): queues, topics, groups, offsets
    batchconsumequeue/                         queues of topics with queue.type=BatchCQ, one entry per batch of records
    compaction/compactionLog/TOPIC/QUEUE/*     records of compacted topics; the older records are only here. The tools
                                               read and copy them: storage/rocketmq/tools/compacted
    timerlog/, timerwheel, config/timercheck   pending timed messages, by physical offset: they belong together
    dledger-NAME/data/*                        the log of a broker with enableDLegerCommitLog, in place of commitlog
    consumequeue_ext/                          tags codes of queue entries, by physical offset

A store with a database is never written: an append would assign queue offsets that the broker has assigned already, or
assigns again later, and the broker would never find those records. The records of topics with batch queues are in the
common log and stay there. A folder in `consumequeue` for such a topic keeps the broker from starting
(ConsumeQueueStore.queueTypeShouldBe), so logserver never creates one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from storage.display import counted
from storage.errors import NotOffered, UnsupportedFormat
from storage.files import FileSystem
from storage.findings import finding
from storage.model import Finding
from storage.rocketmq.format import names
from storage.rocketmq.state.root import StoreDirectory

BATCH_TOPIC: Final = "batch-topic"
"""The code of the finding of a topic with batch queues."""
COMPACTION_LOG: Final = "compaction-log"
NO_LOSSES: Final = frozenset({BATCH_TOPIC, COMPACTION_LOG})
"""Codes of findings that say of a whole store what readers do not get."""
TIMER_CHECK: Final = "timercheck"
TIMER_FILES: Final = (TIMER_CHECK, "timermetrics")
"""Files of config/ that fit only the timer log next to them.

Without the timer log the broker rebuilds its wheel from the timer topic, but only if timercheck is missing too
(TimerMessageStore.load).
"""


class Size(NamedTuple):
    """The size of a file or folder."""

    files: int
    size_bytes: int


def size_of(fs: FileSystem, path: Path) -> Size:
    """Return the number of files at and below a path, and their bytes."""
    if not fs.exists(path):
        return Size(0, 0)
    if not fs.is_dir(path):
        return Size(1, fs.size(path))
    below = [size_of(fs, path / name) for name in fs.list_dir(path)]
    return Size(sum(size.files for size in below), sum(size.size_bytes for size in below))


def dledger_folders(directory: StoreDirectory) -> Sequence[Path]:
    """Return the folders that contain a DLedger log."""
    fs, root = directory.fs, directory.path
    return [
        root / name
        for name in fs.list_dir(root)
        if names.is_dledger_name(name)
        and fs.is_dir(root / name)
        and fs.is_dir(root / name / "data")
    ]


def refuse_dledger(directory: StoreDirectory) -> None:
    """Raise UnsupportedFormat if DLedger keeps the log of the store."""
    for folder in (
        dledger_folders(directory) if directory.fs.is_dir(directory.path, follow=True) else ()
    ):
        raise UnsupportedFormat(
            f"{folder} is a log of DLedger (enableDLegerCommitLog), which is not read: the records of this store are "
            "there. Nothing has been changed. Read them with the broker's own tools",
            path=str(folder),
        )


def findings(directory: StoreDirectory, batch_topics: Iterable[str]) -> Iterator[Finding]:
    """Yield findings about live data that is not read. `batch_topics`: the topics with batch queues."""
    yield from database_findings(directory)
    yield from _dledger_findings(directory)
    yield from _compacted(directory)
    yield from _timers(directory)
    yield from batch_topic_findings(directory, batch_topics)


def _dledger_findings(directory: StoreDirectory) -> Iterator[Finding]:
    for folder in dledger_folders(directory):
        size = size_of(directory.fs, folder / "data")
        yield finding(
            "dledger-store",
            folder,
            message=f"a log of DLedger (enableDLegerCommitLog) with {size.size_bytes} bytes in "
            f"{counted(size.files, 'files')}: the records of this store are there, and are not read",
        )


def _compacted(directory: StoreDirectory) -> Iterator[Finding]:
    fs, folder = directory.fs, directory.path / names.COMPACTION / names.COMPACTION_LOG
    for topic in _folders(fs, folder):
        for queue in _folders(fs, folder / topic):
            size = size_of(fs, folder / topic / queue)
            if size.files:
                yield finding(
                    COMPACTION_LOG,
                    folder / topic / queue,
                    topic=topic,
                    partition=names.parse_queue_id(queue),
                    message=f"{size.size_bytes} bytes in {counted(size.files, 'files')} of a compacted topic "
                    "(cleanup.policy=COMPACTION): shown by a dump of kind compacted; readers get what the commit log "
                    "has, and appends are refused",
                )


def _timers(directory: StoreDirectory) -> Iterator[Finding]:
    size = size_of(directory.fs, directory.path / names.TIMER_LOG)
    if size.size_bytes:
        yield finding(
            "timer-log",
            directory.path / names.TIMER_LOG,
            message=f"{size.size_bytes} bytes of the broker's timers are not read; the timed messages themselves are "
            "in topic rmq_sys_wheel_timer",
        )


def _folders(fs: FileSystem, path: Path) -> Sequence[str]:
    if not fs.is_dir(path):
        return ()
    return [name for name in fs.list_dir(path) if fs.is_dir(path / name)]


def left_behind(directory: StoreDirectory, *, with_timers: bool) -> Iterator[Finding]:
    """Yield findings about data outside the log that a new store does not get.

    Such data is not part of the log, or points into it by rules of its own. `with_timers`: the timer files are left out
    too. The logs of compacted topics are copied.
    """
    fs, root = directory.fs, directory.path
    for name in fs.list_dir(root):
        known = name in names.ROOT_NAMES and name not in names.OTHER_FOLDERS + names.OTHER_FILES
        is_taken = name in (names.TIMER_LOG, names.TIMER_WHEEL) and not with_timers
        if known or is_taken or name == names.COMPACTION or name.startswith(".logserver."):
            continue
        size = size_of(fs, root / name)
        yield _left(root / name, size, names.is_live_data(name))
    for name in directory.config_files():
        if with_timers and is_timer_file(name):
            yield _left(
                directory.config / name, size_of(fs, directory.config / name), is_live=False
            )


def file_left_behind(fs: FileSystem, path: Path) -> Finding:
    """Return the finding for a file that has no part in a store."""
    return _left(path, size_of(fs, path), is_live=False)


def _left(path: Path, size: Size, is_live: bool) -> Finding:
    what = {
        names.TIMER_LOG: ": the broker builds its timers again from topic rmq_sys_wheel_timer, and may "
        "deliver again what was delivered",
        names.BATCH_QUEUE: ": the broker builds these queues again from the log",
    }.get(path.name, "")
    return finding(
        "left-behind",
        path,
        severity="warning" if is_live and size.size_bytes else "info",
        message=f"not taken along, {size.size_bytes} bytes in {counted(size.files, 'files')}{what}",
    )


def is_timer_file(name: str) -> bool:
    """Return whether a file of config/ belongs to the timer log."""
    return name.removesuffix(names.BACKUP) in TIMER_FILES


# ---- databases ----


def refuse_database(directory: StoreDirectory) -> None:
    """Raise UnsupportedFormat if a store that is to be written has such a database."""
    for folder in directory.databases():
        raise UnsupportedFormat(
            f"{folder} is a RocksDB database of the broker (storeType=defaultRocksDB), and such a store is not "
            "written. Nothing has been changed. Serve what its log has with --read-only",
            path=str(folder),
        )


def database_findings(directory: StoreDirectory) -> Iterator[Finding]:
    """Yield one finding if the store has such databases."""
    found = directory.databases()
    if found:
        yield finding(
            "rocksdb-store",
            found[0],
            message="a RocksDB database, which is not read: "
            + (
                "records come from the commit log, and no queue is read"
                if directory.queues_in_database()
                else "what the broker's configs say is not known"
            ),
        )


# ---- topics with batch queues ----


def batch_topic_refusal(topic: str) -> NotOffered:
    """Return the error for a request to read, write or change such a topic."""
    return NotOffered(
        f"topic {topic!r} has batch queues (queue.type=BatchCQ), which are not offered",
        feature="queue.type=BatchCQ",
    )


def compacted_topic_refusal(topic: str) -> NotOffered:
    """Return the error for a request to write to a compacted topic.

    A broker copies a record into its compaction log when it builds the queue entry. Consumers get only that log, so a
    record whose queue entry is ours would be lost to them (CompactionService, DefaultMessageStore.getMessage).
    """
    return NotOffered(
        f"topic {topic!r} is compacted by a broker (cleanup.policy=COMPACTION): its consumers would never see a record "
        "that is appended here",
        feature="cleanup.policy=COMPACTION",
    )


def batch_topic_findings(directory: StoreDirectory, topics: Iterable[str]) -> Iterator[Finding]:
    """Yield findings: batch-queue topics exist, and any of their files are in the wrong folder."""
    folders = directory.queue_folders()
    for topic in sorted(topics):
        yield finding(
            BATCH_TOPIC,
            directory.path / names.BATCH_QUEUE / topic,
            topic=topic,
            message="a topic with batch queues (queue.type=BatchCQ): its records stay in the log, and "
            "are neither read nor written",
        )
        if topic in folders:
            yield finding(
                "wrong-queue-type",
                directory.consume_queue / topic,
                topic=topic,
                message="queues of a topic with batch queues: the real broker does not start with them",
            )
