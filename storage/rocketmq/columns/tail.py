"""A view of a store that other processes may be writing to, as recovery would leave it, updated without a lock.

Owns the known log, queues and topics, how they are brought up to date, and where the entries of a queue are found; must
not cut splits. The first read is recovery itself, with its changes in memory (`store`, opened read-only); its findings
about log and queues are kept. Later reads inspect only new data: the log from its known end on. An entry that a server
has not written yet, or never will, is made from its record.

    log       | known ............... end | new records ... end |
    queue     start ......... tail_start | ............ end
              in the queue's files       | `tail`, until the files hold them too

Never writes. For one thread at a time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from storage.contract import Clock, StoreOptions
from storage.errors import Corrupt, IoFailure
from storage.files import FileSystem, HandleCache, OverlayFileSystem
from storage.rocketmq.format import names
from storage.rocketmq.format.message import BODY_POSITION
from storage.rocketmq.format.queue_entry import FILLER, UNIT_SIZE, QueueEntry, decode_units
from storage.rocketmq.format.scan import BAD
from storage.rocketmq.index.consume_queue import ConsumeQueue
from storage.rocketmq.index.dispatcher import Builder, BuildOptions
from storage.rocketmq.index.queues import Queue, QueueTable
from storage.rocketmq.log.commit_log import CommitLog
from storage.rocketmq.log.file_sequence import FileSequence
from storage.rocketmq.log.scan import Stop, walk_log
from storage.rocketmq.state.root import StoreDirectory
from storage.rocketmq.state.settings import parse_store_settings
from storage.rocketmq.state.topics import TopicFiles
from storage.rocketmq.store import RocketMQStore, open_rocketmq

NOWHERE: Final = -1
TIME_STEP_MS: Final = 2000
"""The coarsest resolution of file times (FAT; 4 ms on most): two writes within it may leave the same file time."""
_WITHOUT_INDEX: Final = {"messageIndexEnable": "false"}
_TOPIC_FILES: Final = (f"{names.CONFIG}/{names.TOPICS}", names.DELETED_FILE)


class TailedStore:
    """The known state of one store. `log` and `queues` are replaced if the directory turns out to hold
    another store.
    """

    def __init__(self, path: Path, options: StoreOptions, *, fs: FileSystem, clock: Clock) -> None:
        self.path = path
        self._options = replace(options, settings={**options.settings, **_WITHOUT_INDEX})
        self._fs = fs
        self._clock = clock
        self._bad_at = self._looked_behind = -1
        self._open()

    def close(self) -> None:
        """Close the open files."""
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
        # Bytes that recovery cut are still in the files; they count as new only after another write.
        self._cut_look = look if store.recovery.losses else None
        latest_ms = max((changed_ms for _, changed_ms in look), default=0)
        self._shows_writes = latest_ms + TIME_STEP_MS < began_ms

    def _take_over(self, store: RocketMQStore) -> None:
        """Set the state that recovery found, over the unchanged files."""
        self._files = HandleCache(self._fs, self._options.open_files)
        run = FileSequence(
            self._files,
            store.log.run.directory,
            store.log.run.file_bytes,
            kind=names.COMMIT_LOG,
            folders=store.log.run.folders,
        )
        run.load()
        self.log = CommitLog(run, end=store.log.end)
        self.queues = TailedQueues(
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
            self.queues, None, self._deleted_topics(), BuildOptions(with_fillers=run.lacks_first)
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
        """Return the names of the log's files, and the time of the last change of each."""
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
        """Read the changes in the directory; see Splitter.refresh."""
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
        """Return whether the log still contains its known records. Files are opened again from here on:
        the old files may have been replaced.
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

    def _head_of_last(self, run: FileSequence) -> bytes:
        """Return the first bytes of the last known record, which identify it later."""
        if self._last == NOWHERE:
            return b""
        try:
            return run.read(self._last, BODY_POSITION)
        except (Corrupt, IoFailure):
            return b""

    def _take_in_topics(self) -> bool:
        """Add topics that were created; return False if a topic was deleted."""
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
        """Move the start of the queues after the first files of the log were deleted."""
        for queue in self.queues:
            queue.units.run.load()
            head = max(self.log.start, self._builder.deleted.get(queue.partition.topic, 0))
            queue.units.start = queue.units.first_at(head)

    def _walk(self) -> None:
        """Make the entries of the records after the known end."""
        run = self.log.run
        for step in walk_log(run, self.log.end, run.limit):
            if isinstance(step, Stop):
                self._note_bad(step)
                return
            self._last = step.last
            self._builder.take(step.data, step.start, step.size_bytes)
            self._builder.build()
            self._builder.build_queues(self._builder.in_lmqs(step))
            self.log.end = step.end
            self._last_head = self._head_of_last(run)

    def _note_bad(self, stop: Stop) -> None:
        """Handle bytes that are no valid record: a server may be writing them. If they are still invalid at
        the next refresh, recovery runs, once per position, and decides how the log continues.
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
    """Return the physical offset of the last record of a queue; NOWHERE if it has none."""
    units = queue.units
    return NOWHERE if units.is_empty else units.unit(units.end - 1).physical_offset


def _and_folders(fs: FileSystem) -> frozenset[Path]:
    """Return the paths that were changed in an overlay, with all parent folders."""
    assert isinstance(fs, OverlayFileSystem)
    return frozenset(place for path in fs.changed() for place in (path, *path.parents))


COMPARED_BYTES: Final = (1 << 20) // UNIT_SIZE * UNIT_SIZE


class TailedQueue(ConsumeQueue):
    """One known queue: it is read from files and memory, and appended to in memory."""

    def __init__(self, files: HandleCache, directory: Path, file_bytes: int) -> None:
        super().__init__(files, directory, file_bytes)
        self.tail_start = 0
        self.tail = bytearray()  # mutable: a follower appends to it many times

    def take_over(self, units: ConsumeQueue, *, are_stored: bool) -> None:
        """Set the entries that another read of the queue found. `are_stored`: the files contain all of them."""
        self.run.load()
        self.start, self.end, self.last_end = units.start, units.end, units.last_end
        self.tail_start = self.end
        if are_stored or not units.run.bases:
            return
        self.tail_start = units.first_offset
        chunks = units.run.chunks(units.run.start, units.end * UNIT_SIZE, COMPARED_BYTES)
        self.tail = bytearray().join(data for _, data in chunks)
        self.forget_stored()

    @property
    def first_offset(self) -> int:
        """The offset of the first entry that is known, or that a file has room for."""
        if not self.run.bases:
            return self.tail_start
        return min(super().first_offset, self.tail_start)

    def make_room(self, offset: int) -> None:
        """Do nothing: entries stay in memory, so no file is needed."""

    def append(self, units: bytes, offset: int, last_end: int) -> None:
        """Append entries in memory. In an empty queue, fillers go before them, from the start of a file."""
        if self.is_empty and self.end != offset:
            in_file = self.run.file_bytes // UNIT_SIZE
            self.tail_start = offset - offset % in_file
            self.tail = bytearray(FILLER * (offset - self.tail_start))
            self.start = self.end = offset
        self.tail += units
        self.end += len(units) // UNIT_SIZE
        self.last_end = last_end

    def raw(self, offset: int, count: int) -> bytes:
        """Return the bytes of the known entries from `offset` on, at most `count`. Raises Corrupt, IoFailure."""
        stop = min(offset + count, self.end)
        stored = b""
        if offset < self.tail_start:
            begin, end = offset * UNIT_SIZE, min(stop, self.tail_start) * UNIT_SIZE
            stored = b"".join(data for _, data in self.run.chunks(begin, end, COMPARED_BYTES))
            offset = min(stop, self.tail_start)
        first = (offset - self.tail_start) * UNIT_SIZE
        return stored + bytes(self.tail[first : (stop - self.tail_start) * UNIT_SIZE])

    def read(self, offset: int, count: int) -> Sequence[QueueEntry]:
        """Read entries as ConsumeQueue.read does."""
        return decode_units(self.raw(offset, max(count, 0)))

    def carried(self, first: int, end: int) -> bytes:
        """Return the bytes of the entries in [first, end) that the files do not contain."""
        first = max(first, self.tail_start)
        return self.raw(first, end - first) if first < end else b""

    def forget_stored(self) -> None:
        """Drop the entries from memory that the files now contain."""
        if self.tail and self.run.base_of((self.end - 1) * UNIT_SIZE) is None:
            self.run.load()
        done = 0
        while done < len(self.tail):
            wanted = bytes(self.tail[done : done + COMPARED_BYTES])
            same = _alike(wanted, self._stored(self.tail_start * UNIT_SIZE + done, len(wanted)))
            if not same:
                break
            done += same
        del self.tail[:done]
        self.tail_start += done // UNIT_SIZE

    def _stored(self, position: int, size_bytes: int) -> bytes:
        """Return the bytes of one file at a position; no bytes if the file is missing or unreadable."""
        if self.run.base_of(position) is None:
            return b""
        try:
            return self.run.read(position, size_bytes)
        except IoFailure:
            return b""


def _alike(wanted: bytes, found: bytes) -> int:
    """Return the number of equal bytes at the beginning of both, in whole entries."""
    if found[: len(wanted)] == wanted:
        return len(wanted)
    low, high = 0, min(len(wanted), len(found)) // UNIT_SIZE
    while low < high:
        middle = (low + high + 1) // 2
        if wanted[: middle * UNIT_SIZE] == found[: middle * UNIT_SIZE]:
            low = middle
        else:
            high = middle - 1
    return low * UNIT_SIZE


class TailedQueues(QueueTable):
    """The known queues of a store by topic and queue id; no queue file is written."""

    def units_of(self, topic: str, queue_id: int) -> TailedQueue:
        """Return a queue without known entries."""
        return TailedQueue(self.files, self.root / topic / str(queue_id), self.file_bytes)

    def add_known(self, topic: str, queue_id: int) -> TailedQueue:
        """Return the entries of a queue, which is added if it does not exist."""
        return self.known(self.add(topic, queue_id))

    def known(self, queue: Queue) -> TailedQueue:
        """Return the entries of one of these queues."""
        assert isinstance(queue.units, TailedQueue)
        return queue.units

    def use_files(self, files: HandleCache) -> None:
        """Read through these files from now on: files on disk may have been replaced."""
        self.files = files
        for queue in self:
            queue.units.run.files = files
