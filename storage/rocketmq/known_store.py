"""A store that others may be writing to, as recovery would leave it, kept up to date without a lock.

Owns what is known of log, queues and topics, and how it is brought up to date; must not cut splits.
The first look is recovery itself, on changes in memory (`store`, opened for reading only), whose
findings about log and queues are taken over. After that only what is new is looked at: the log from
its known end on, from which the units are made that a server has not written yet.

    log       | known ............... end | new records ... end |
    queues    | in their files  | made from the records, in memory |

Never writes. For one thread at a time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from storage.errors import Corrupt, IoFailure
from storage.files import FileSystem, HandleCache, OverlayFileSystem
from storage.interface import Clock, StoreOptions
from storage.rocketmq.commit_log import CommitLog
from storage.rocketmq.directory import StoreDirectory
from storage.rocketmq.dispatch import dispatches_of
from storage.rocketmq.dispatcher import Builder
from storage.rocketmq.file_run import FileRun
from storage.rocketmq.format import names
from storage.rocketmq.format.message import BODY_POSITION
from storage.rocketmq.format.walking import BAD
from storage.rocketmq.known_queues import KnownQueues
from storage.rocketmq.lmq import lmq_dispatches
from storage.rocketmq.queues import Queue
from storage.rocketmq.settings import parse_store_settings
from storage.rocketmq.store import RocketMQStore, open_rocketmq
from storage.rocketmq.topic_files import TopicFiles
from storage.rocketmq.walking import Stop, walk_log

NOWHERE: Final = -1
TIME_STEP_MS: Final = 2000
"""Of file times, the coarsest that there is (FAT; 4 ms on most): a write so soon after another may not show in them."""
_WITHOUT_INDEX: Final = {"messageIndexEnable": "false"}
_TOPIC_FILES: Final = (f"{names.CONFIG}/{names.TOPICS}", names.DELETED_FILE)


class KnownStore:
    """What is known of one store. `log` and `queues` are replaced when the store turns out to be
    another one.
    """

    def __init__(self, path: Path, options: StoreOptions, *, fs: FileSystem, clock: Clock) -> None:
        self.path = path
        self._options = replace(options, settings={**options.settings, **_WITHOUT_INDEX})
        self._fs = fs
        self._clock = clock
        self._bad_at = self._looked_behind = -1
        self._open()

    def close(self) -> None:
        """Let go of open files."""
        self._files.close(sync=False)

    # ---- opening ----

    def _open(self) -> None:
        self._topic_bytes = self._read_topic_files()
        began_ms, look = self._clock(), self._look_of_log()
        store = open_rocketmq(
            self.path, self._options, fs=self._fs, clock=self._clock, read_only=True
        )
        try:
            self._take_over(store)
        finally:
            store.close()
        # What recovery cut still stands in the files, and is no news until somebody writes there.
        self._cut_look = look if store.recovery.losses else None
        latest_ms = max((changed_ms for _, changed_ms in look), default=0)
        self._shows_writes = latest_ms + TIME_STEP_MS < began_ms

    def _take_over(self, store: RocketMQStore) -> None:
        """Know what recovery found, over the files as they are."""
        self._files = HandleCache(self._fs, self._options.open_files)
        run = FileRun(
            self._files,
            store.log.run.directory,
            store.log.run.file_bytes,
            kind=names.COMMIT_LOG,
            folders=store.log.run.folders,
        )
        run.load()
        self.log = CommitLog(run, end=store.log.end)
        self.queues = KnownQueues(
            self._files,
            store.queues.root,
            store.queues.file_bytes,
            batch_topics=store.queues.batch_topics,
        )
        changed = _and_folders(store.fs)
        for queue in store.queues:
            known = self.queues.add_known(*queue.partition)
            known.take_over(queue.units, are_stored=known.directory not in changed)
        self.findings = store.recovery.findings
        self._topics = frozenset(store.topics())
        self._builder = Builder(
            self.queues, None, self._deleted_topics(), with_fillers=run.lacks_first
        )
        self._last = max((_last_place(queue) for queue in self.queues), default=NOWHERE)
        self._last_head = self._head_of_last(run)
        self._publish()

    def _deleted_topics(self) -> Mapping[str, int]:
        deleted = StoreDirectory(self._fs, self.path).deleted_topics().topics
        return {topic: min(end, self.log.end) for topic, end in deleted.items()}

    def _read_topic_files(self) -> Sequence[bytes]:
        return [self._read_if_there(self.path / name) for name in _TOPIC_FILES]

    def _read_if_there(self, path: Path) -> bytes:
        try:
            return self._fs.read_bytes(path) if self._fs.exists(path) else b""
        except IoFailure:
            return b""  # replaced or removed at this moment

    def _look_of_log(self) -> Sequence[tuple[str, int]]:
        """The names of the log's files, and when each last changed."""
        settings = parse_store_settings(self._options.settings)
        folders = StoreDirectory(self._fs, self.path, log_folders=settings.log_folders).log_folders
        return [
            (name, self._fs.mtime_ms(folder / name))
            for folder in folders
            if self._fs.is_dir(folder)
            for name in self._fs.list_dir(folder)
        ]

    # ---- bringing up to date ----

    def refresh(self) -> None:
        """Look at the directory again; see Splitter.refresh."""
        if self._cut_look is not None and self._cut_look == self._look_of_log():
            if not self._shows_writes:
                self._open_anew()
            return
        self._cut_look = None
        if not self._is_same() or not self._take_in_topics():
            self._open_anew()
            return
        if self.log.start > self._start:
            self._forget_head()
        self._walk()
        for queue in self.queues:
            self.queues.known(queue).forget_stored()
        self._publish()

    def _open_anew(self) -> None:
        self._files.close(sync=False)
        self._open()

    def _is_same(self) -> bool:
        """Whether the log still has what is known of it. Files are opened again from here on, since
        those of before may have been replaced.
        """
        self._files.close(sync=False)
        self._files = HandleCache(self._fs, self._options.open_files)
        self.queues.use_files(self._files)
        run = self.log.run
        run.files = self._files
        run.load()
        if not run.bases or not run.start <= self.log.end <= run.limit:
            return not run.bases and self.log.end == 0
        return run.start >= self._start and self._head_of_last(run) == self._last_head

    def _head_of_last(self, run: FileRun) -> bytes:
        """The first bytes of the last record that is known, by which it is known again."""
        if self._last == NOWHERE:
            return b""
        try:
            return run.read(self._last, BODY_POSITION)
        except (Corrupt, IoFailure):
            return b""

    def _take_in_topics(self) -> bool:
        """Take in topics that were made; False where one was deleted."""
        found = self._read_topic_files()
        if found == self._topic_bytes:
            return True
        if found[1:] != self._topic_bytes[1:]:
            return False
        directory = StoreDirectory(self._fs, self.path)
        topics = TopicFiles(directory, read_only=True, forget_offsets=lambda _: None)
        infos = topics.infos()
        self.queues.batch_topics = topics.batch_topics
        for topic, info in infos.items():
            for queue_id in info.partitions:
                self.queues.add(topic, queue_id)
        self._topic_bytes = found
        before, self._topics = self._topics, frozenset(infos)
        return before <= self._topics

    def _forget_head(self) -> None:
        """The first files of the log were deleted, and of the queues what led there."""
        for queue in self.queues:
            queue.units.run.load()
            head = max(self.log.start, self._builder.deleted.get(queue.partition.topic, 0))
            queue.units.start = queue.units.first_at(head)

    def _walk(self) -> None:
        """Make the units of the records behind the known end."""
        run = self.log.run
        for step in walk_log(run, self.log.end, run.limit):
            if isinstance(step, Stop):
                self._note_bad(step)
                return
            found = dispatches_of(step.data, step.records, step.start, with_tags=False)
            self._builder.build(found)
            in_lmqs = lmq_dispatches(step, self.queues)
            self._builder.build_queues(self._builder.live(in_lmqs))
            self._last, size = step.records[-1]
            self.log.end = self._last + size
            self._last_head = self._head_of_last(run)

    def _note_bad(self, stop: Stop) -> None:
        """What is no record may be one that is being written; when it still is none the next time,
        recovery says once what follows it.
        """
        if stop.reason != BAD or stop.position == self._looked_behind:
            return
        if stop.position != self._bad_at:
            self._bad_at = stop.position
            return
        self._looked_behind = stop.position
        self._open_anew()

    def _publish(self) -> None:
        self._start = self.log.start
        for queue in self.queues:
            queue.next_offset = queue.published = queue.units.end


def _last_place(queue: Queue) -> int:
    """Where the last record of a queue lies."""
    units = queue.units
    return NOWHERE if units.is_empty else units.unit(units.end - 1).physical_offset


def _and_folders(fs: FileSystem) -> frozenset[Path]:
    """What was changed in an overlay, with all folders above."""
    assert isinstance(fs, OverlayFileSystem)
    return frozenset(place for path in fs.changed() for place in (path, *path.parents))
