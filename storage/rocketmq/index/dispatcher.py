"""Building the queues and the index from the commit log (ReputMessageService).

Owns the order in which records are dispatched, how far dispatching is done, and the one thread of the
storage layer; must not read the log: an append or recovery passes the bytes of records in. `step` does in
the calling thread the work of the background thread, so a reader never waits for that thread.

    append -> submit -> [records, ...] -> build: pass over them, entries of each queue, then the index
                                       -> the files of queues that have none for their entries

A record that cannot be written stays pending. On a full disk the write is tried again; any other error fences the
store, and the next start builds from the log. Readers meanwhile find the queue entries in memory. The index has no
such copy in memory. Entries whose file does not exist yet wait in memory for the thread, which creates the files of
many queues together: an append or a reader never waits for these syncs.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Final, NamedTuple

from storage.errors import DiskFull, StorageError, StoreFenced
from storage.files import Fence
from storage.rocketmq.format.queue_entry import UNIT_SIZE
from storage.rocketmq.index.consume_queue import ConsumeQueue, WaitingQueues, settle
from storage.rocketmq.index.dispatch_request import Dispatch
from storage.rocketmq.index.key_index import KeyIndex
from storage.rocketmq.index.light_queues import lmq_dispatches
from storage.rocketmq.index.queue_runs import (
    LARGEST_GAP,
    first_place,
    fit,
    joined,
    runs_of,
    without_false_begin,
)
from storage.rocketmq.index.queues import Queue, QueueTable
from storage.rocketmq.index.record_pass import NOTHING, Passed, QueueRuns, RecordPass
from storage.rocketmq.log.scan import LogRange

GATHER_S: Final = 0.01  # a wake-up waits this long for more; a reader that comes first runs `step`
RETRY_S: Final = 1.0  # wait after a full disk
TOGETHER_BYTES: Final = 1 << 20  # stop gathering records for one build at this size
TOGETHER_APPENDS: Final = 256  # or at so many appends: an append or reader may wait for the build
REMEMBERED: Final = 16  # first entries of a queue, which may be false
PENDING_APPENDS: Final = 1024
PENDING_BYTES: Final = 16 << 20
WAITING_BYTES: Final = 16 << 20  # of queue entries that wait for their files


class BuildOptions(NamedTuple):
    """How records become entries and strings: see RecordPass for `with_tags` and `delays_ms`.

    `with_fillers`: write a filler for each offset without a record. Only for a log without its first possible file:
    when RocketMQ meets a filler in a pull, it skips all records in that file (DefaultMessageStore.getMessage). See
    `FileSequence.lacks_first`.
    """

    with_fillers: bool
    with_tags: bool = True
    delays_ms: Sequence[int] | None = None


class Last(NamedTuple):
    """The last record that was built."""

    physical_offset: int
    store_timestamp_ms: int


class Builder:
    """A builder of queues and index from the bytes of the log: each record once, in the order of the log.

    `deleted`: by topic, the physical offset below which its records are deleted. Not thread-safe.
    """

    def __init__(
        self,
        queues: QueueTable,
        index: KeyIndex | None,
        deleted: Mapping[str, int],
        options: BuildOptions,
    ) -> None:
        self.queues = queues
        self.index = index
        self.moved: dict[tuple[str, int], Dispatch] = {}  # by queue, see `fit`
        self.last: Last | None = None
        self.refused: list[Dispatch] = []  # records without an entry, see `fit` and RecordPass
        self._begun: dict[tuple[str, int], QueueRuns] = {}  # the first entries of queues begun here
        self._waiting: WaitingQueues | None = None
        self._deleted = deleted
        self._options = options
        self._pass = self.new_pass()
        self._bad_places: list[tuple[int, int]] = []  # in the log: physical offset and bytes
        self._log_start = 0

    @property
    def deleted(self) -> Mapping[str, int]:
        """By topic, the physical offset below which its records are deleted."""
        return self._deleted

    @deleted.setter
    def deleted(self, deleted: Mapping[str, int]) -> None:
        self._deleted = deleted
        self._pass.forget_topics()

    def new_pass(self, *, queues_from: int = 0, strings_from: int = 0) -> RecordPass:
        """Return a pass over records for these queues and this index; see RecordPass."""
        return RecordPass(
            self,
            with_tags=self._options.with_tags,
            delays_ms=self._options.delays_ms,
            batch_topics=self.queues.batch_topics,
            queues_from=queues_from,
            strings_from=NOTHING if self.index is None else strings_from,
        )

    # ---- the rules of the pass ----

    def alive_from(self, topic: str, queue_id: int) -> int:
        """Return the physical offset from which on the records of a queue are not deleted."""
        return self._deleted.get(topic, 0)

    def is_over(self, dispatch: Dispatch) -> bool:
        """Return whether a record was deleted with its topic."""
        return dispatch.physical_offset < self._deleted.get(dispatch.topic, 0)

    def code_of(self, dispatch: Dispatch) -> int:
        """Return the tags code of a record of the schedule topic."""
        return dispatch.tags_code

    # ---- building ----

    def pass_over(self, physical_offset: int, size_bytes: int, *, log_start: int) -> None:
        """Add a bad place of the log, where records may be missing: entries of these records will point to it."""
        self._bad_places.append((physical_offset, size_bytes))
        self._log_start = log_start

    def take(self, data: bytes, physical_offset: int, size_bytes: int) -> None:
        """Pass over the records that are the first bytes of `data`; the first is at this physical offset."""
        self._pass.take(data, 0, size_bytes, physical_offset)

    def build(self) -> None:
        """Append what was taken to the queues, then to the index. Entries that exist are left unchanged. After an
        error the same records must be taken again.
        """
        record_pass = self._pass
        has_records = record_pass.records > 0
        self.build_passed(record_pass.taken())
        if has_records:
            self.last = Last(record_pass.last_offset, record_pass.last_time_ms)

    def build_passed(self, passed: Passed) -> None:
        """Append the result of a pass to the queues, then to the index."""
        self.refused += passed.refused
        self.build_queues(passed.queues)
        self.build_index(passed.strings)

    def follow_appends(self, waiting: WaitingQueues) -> None:
        """From now on let entries without a file wait there. The records are appended by this process: their offsets
        are right.
        """
        self._waiting = waiting
        self._begun = {}

    def build_queues(self, entries: Sequence[QueueRuns]) -> None:
        """Append the missing entries, with one write per queue. All files for them are created and made durable
        first, if entries do not wait for them: if one cannot be created, no queue gets its entries.
        """
        groups = [(self.queues.add(group.topic, group.queue_id), group) for group in entries]
        if self._waiting is None:
            for queue, group in groups:
                queue.units.make_room(group.runs[0].queue_offset)
            settle([queue.units for queue, _ in groups])
        for queue, group in groups:
            self._append_units(queue, group)

    def in_lmqs(self, log_range: LogRange, physical_offset: int = 0) -> Sequence[QueueRuns]:
        """Return the entries of LMQ queues for the records that are not deleted, from this physical offset on."""
        found = lmq_dispatches(log_range, self.queues)
        return runs_of(
            d for d in found if d.physical_offset >= physical_offset and not self.is_over(d)
        )

    def _append_units(self, queue: Queue, group: QueueRuns) -> None:
        units, waiting = queue.units, self._waiting
        if waiting is None:
            group = self._begun_rightly(units, group)
        if not group.runs:
            return
        deleted_end = self._deleted.get(queue.partition.topic, 0)
        bad_places = [place for place in self._bad_places if place[0] >= deleted_end]
        first = units.taken_end
        if units.is_empty and not self._may_lack_first(first, group, bad_places):
            first = max(first, group.runs[0].queue_offset)
        fitted = fit(
            group,
            first,
            last_end=units.last_end,
            bad_places=bad_places,
            with_fillers=self._options.with_fillers,
        )
        self.refused += fitted.refused
        if fitted.moved is not None:
            self.moved.setdefault((group.topic, group.queue_id), fitted.moved)
        if fitted.parts and waiting is None:
            units.append(b"".join(fitted.parts), first, fitted.last_end)
        elif fitted.parts and waiting is not None:
            waiting.take(units, b"".join(fitted.parts), first, fitted.last_end)

    def _begun_rightly(self, units: ConsumeQueue, group: QueueRuns) -> QueueRuns:
        """Return the entries to append, without records whose damaged offset the queue seems to begin at.

        The first records of a queue may come alone. So the first entries are remembered, and if the next ones show that
        they were false, the queue begins again.
        """
        key = group.topic, group.queue_id
        begun = None if units.is_empty else self._begun.get(key)
        if begun is None and not units.is_empty:
            return group
        together = group if begun is None else joined([[begun], [group]])[0]
        right, false = without_false_begin(together)
        if sum(len(run.units) for run in right.runs) <= REMEMBERED * UNIT_SIZE:
            self._begun[key] = right
        else:
            self._begun.pop(key, None)
        if begun is not None and not false:
            return group
        if begun is not None:
            self.refused[:] = [d for d in self.refused if (d.topic, d.queue_id) != key]
            units.discard()
        self.refused += false
        return right

    def hold(self, taken: Iterable[tuple[bytes, int]]) -> None:
        """Expose queue entries of records, (bytes, physical offset), that are not yet written to a file."""
        record_pass = self.new_pass(strings_from=NOTHING)
        for data, physical_offset in taken:
            record_pass.take(data, 0, len(data), physical_offset)
        for group in record_pass.taken().queues:
            units = self.queues.add(group.topic, group.queue_id).units
            fitted = fit(
                group,
                units.taken_end,
                last_end=units.last_end,
                with_fillers=self._options.with_fillers,
            )
            units.hold(b"".join(fitted.parts))

    def _may_lack_first(
        self, first: int, group: QueueRuns, bad_places: Sequence[tuple[int, int]]
    ) -> bool:
        """Return whether a queue without entries begins at `first`, with entries for records lost at a bad place.
        Otherwise it begins with this record: the records before it were deleted with the head of the log.
        """
        queue_offset, physical_offset = first_place(group)
        if self._log_start or not 0 <= queue_offset - first <= LARGEST_GAP:
            return False
        return any(position < physical_offset for position, _ in bad_places)

    def build_index(self, strings: bytes) -> None:
        """Put the strings into the index; do nothing if the index is off."""
        if self.index is not None:
            self.index.put_strings(strings)


class Dispatcher:
    """The queue of pending dispatches and the thread that builds from it. `submit` is called in log order."""

    def __init__(self, builder: Builder, *, position: int, fence: Fence) -> None:
        self.builder = builder
        self.failure: StorageError | None = None  # of the last step; None if it succeeded
        self._fence = fence
        self._broken = (
            False  # a write by the dispatcher has failed: written under `_lock` or `_filing`
        )
        self._position = position  # written under `_lock`, read by any thread
        self._filed = position  # as far as the entries were in files when queues last began to wait
        self._pending: deque[tuple[bytes, int]] = deque()  # records, and where they begin
        self._submitted = position  # the end of the last pending record
        self._lock = threading.Lock()
        self._waiting = WaitingQueues(self._lock)
        self._filing = (
            threading.Lock()
        )  # held while files are created; no holder of `_lock` waits for it
        self._wake = threading.Event()
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        builder.follow_appends(self._waiting)

    @property
    def position(self) -> int:
        """The physical offset up to which queues, in files, and index are built."""
        return self._filed if len(self._waiting) else self._position

    def submit(self, records: bytes, physical_offset: int) -> None:
        """Add appended records that are adjacent in the log, from this physical offset on."""
        self._submitted = physical_offset + len(records)
        self._pending.append((records, physical_offset))
        if not self._wake.is_set():
            self._wake.set()

    @property
    def is_full(self) -> bool:
        """Whether so much is pending that an append must build first."""
        return self._is_far_behind or self._waiting.size_bytes >= WAITING_BYTES

    @property
    def _is_far_behind(self) -> bool:
        pending_bytes = self._submitted - self._position
        return len(self._pending) >= PENDING_APPENDS or pending_bytes >= PENDING_BYTES

    def make_way(self) -> None:
        """Build in the calling thread, before an append, if too much is pending: this bounds the
        pending records. Files are created only if too many entries wait for them. Raises DiskFull, StoreFenced.
        """
        many_wait = self._waiting.size_bytes >= WAITING_BYTES
        if not many_wait and not self._is_far_behind:
            return
        if many_wait or self._thread is None:
            self.step()
        while self._is_far_behind:
            self._build_some()

    def step(self) -> None:
        """Put all records that were submitted before into the files of the queues and the index. This works also in a
        store that another failure has fenced.

        Raises DiskFull (the records stay pending and are tried again), StoreFenced.
        """
        self.build()
        self.write_waiting()

    def build(self) -> None:
        """Run `step` without the creation of files: entries without a file can be read, and wait for one."""
        while self._pending:
            self._build_some()

    def write_waiting(self) -> None:
        """Create the files of the queues that wait now, and write their entries. Other calls go on meanwhile.

        Raises DiskFull (entries wait on), StoreFenced.
        """
        if not len(self._waiting):
            return
        with self._lock:
            queues, built = self._waiting.listed(), self._position
        while queues:
            with self._filing, self._noting_failure():
                queues = self._waiting.write(queues)
            if self._pending:
                self.build()
        with self._lock:
            self._filed = max(self._filed, built)
            self.failure = None

    @contextmanager
    def _noting_failure(self) -> Iterator[None]:
        """Let the first failed write or sync of the dispatcher be its last. Raises StoreFenced."""
        if self._broken:
            self._fence.check()
        try:
            with self._fence.tripping():
                yield
        except StoreFenced:
            self._broken = True
            raise

    def catch_up(self, queue: Queue, end: int) -> None:
        """On return readers find an entry of the queue for every offset below `end`. Entries that cannot
        be written are held in memory, so that a failed write blocks no reader.
        """
        self.try_step()
        if queue.units.readable_end < end:
            with self._lock:
                self.builder.hold(tuple(self._pending))

    def try_step(self) -> int:
        """Build as far as possible, without DiskFull and StoreFenced; return as far as the index is built."""
        with suppress(DiskFull, StoreFenced):
            if self._thread is None:
                self.step()  # nothing else creates files
            else:
                self.build()
        return self._position

    def step_past(self, end: int) -> None:
        """Run `step`; on a full disk, records after the physical offset `end` may stay pending."""
        try:
            self.step()
        except DiskFull:
            if self.position < end:
                raise

    def _build_some(self) -> None:
        """Build some of the pending records; they are removed from the pending queue only after that."""
        with self._lock, self._noting_failure():
            taken = size_bytes = 0
            begin = end = self._position
            adjacent: list[bytes] = []  # one pass over many small appends
            for records, physical_offset in tuple(self._pending):  # copied at once: submits go on
                if physical_offset != end:
                    self._take_adjacent(adjacent, begin, end)
                    adjacent, begin = [], physical_offset
                adjacent.append(records)
                taken, end = taken + 1, physical_offset + len(records)
                size_bytes += len(records)
                if size_bytes >= TOGETHER_BYTES or taken >= TOGETHER_APPENDS:
                    break
            self._take_adjacent(adjacent, begin, end)
            if not len(self._waiting):
                self._filed = self._position
            self.builder.build()
            for _ in range(taken):
                self._pending.popleft()
            self._position = end
            if not len(self._waiting):
                self.failure = None

    def _take_adjacent(self, records: Sequence[bytes], begin: int, end: int) -> None:
        if records:
            self.builder.take(b"".join(records), begin, end - begin)

    def start(self) -> None:
        """Start the background thread."""
        self._thread = threading.Thread(target=self._run, name="dispatch", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop the thread; pending records stay pending."""
        self._stopping.set()
        self._wake.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def _run(self) -> None:
        while True:
            self._wake.wait()
            self._stopping.wait(GATHER_S)
            if self._stopping.is_set():
                return
            self._wake.clear()
            try:
                self.step()
            except DiskFull as error:
                self.failure = error
                self._stopping.wait(RETRY_S)
                self._wake.set()
            except StorageError as error:
                self.failure = error
