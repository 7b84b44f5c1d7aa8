"""Building the queues and the index from the commit log (ReputMessageService).

Owns the order in which records are dispatched, how far dispatching is done, and the one thread of the
storage layer; must not read the log: an append or recovery passes the dispatches in. `step` does in
the calling thread the work of the background thread, so a reader never waits for that thread.

    append -> submit -> [dispatches, ...] -> step: units of each queue, then the index

A record that cannot be written stays pending. On a full disk the write is tried again; any other error fences the
store, and the next start builds from the log. Readers meanwhile find the queue entries in memory. The index has no
such copy in memory.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Final

from storage.errors import DiskFull, StorageError, StoreFenced
from storage.files import Fence
from storage.rocketmq.index.consume_queue import settle
from storage.rocketmq.index.dispatch_request import LARGEST_GAP, Dispatch, by_queue, units_of
from storage.rocketmq.index.key_index import KeyIndex
from storage.rocketmq.index.queues import Queue, QueueTable

GATHER_S: Final = 0.01  # a wake-up waits this long for more; a reader that comes first runs `step`
RETRY_S: Final = 1.0  # wait after a full disk
TOGETHER: Final = 4096  # stop gathering records for one build at this number
PENDING_APPENDS: Final = 1024


class Builder:
    """A builder of queues and index from dispatches: each record once, in the order of the log.

    `deleted`: by topic, the physical offset below which its records are deleted. Not thread-safe.
    """

    def __init__(
        self,
        queues: QueueTable,
        index: KeyIndex | None,
        deleted: Mapping[str, int],
        *,
        with_fillers: bool,
    ) -> None:
        """`with_fillers`: write a filler for each offset without a record. Only for a log without its first possible
        file: when RocketMQ meets a filler in a pull, it skips all records in that file
        (DefaultMessageStore.getMessage). See `FileSequence.lacks_first`.
        """
        self.queues = queues
        self.index = index
        self.deleted = deleted
        self.moved: dict[tuple[str, int], Dispatch] = {}  # by queue, see `units_of`
        self._with_fillers = with_fillers
        self.last: Dispatch | None = None  # the last record that was built
        self.refused: list[Dispatch] = []  # records with an impossible queue offset or topic
        self._bad_places: list[tuple[int, int]] = []  # in the log: physical offset and bytes
        self._log_start = 0

    def pass_over(self, physical_offset: int, size_bytes: int, *, log_start: int) -> None:
        """Add a bad place of the log, where records may be missing: entries of these records will point to it."""
        self._bad_places.append((physical_offset, size_bytes))
        self._log_start = log_start

    def build(self, dispatches: Sequence[Dispatch]) -> None:
        """Append to the queues, then to the index. Entries that exist are left unchanged."""
        live = self.live(dispatches)
        self.build_queues(live)
        self.build_index(live)
        if dispatches:
            self.last = dispatches[-1]

    def live(self, dispatches: Sequence[Dispatch]) -> Sequence[Dispatch]:
        """Return the dispatches of records that were not deleted with their topic."""
        deleted = self.deleted
        if not deleted:
            return dispatches
        return [d for d in dispatches if d.physical_offset >= deleted.get(d.topic, 0)]

    def build_queues(self, dispatches: Sequence[Dispatch]) -> None:
        """Append the missing entries, with one write per queue. All files for them are created and made durable
        first: if one cannot be created, no queue gets its entries.
        """
        batch_topics = self.queues.batch_topics
        groups = [
            (self.queues.add(*key), group)
            for key, group in by_queue(dispatches, self.refused).items()
            if key[0] not in batch_topics
        ]
        for queue, group in groups:
            queue.units.make_room(group[0].queue_offset)
        settle([queue.units for queue, _ in groups])
        for queue, group in groups:
            self._append_units(queue, group)

    def _append_units(self, queue: Queue, group: Sequence[Dispatch]) -> None:
        units = queue.units
        deleted_end = self.deleted.get(queue.partition.topic, 0)
        bad_places = [place for place in self._bad_places if place[0] >= deleted_end]
        first = units.end
        if units.is_empty and not self._may_lack_first(first, group[0], bad_places):
            first = max(first, group[0].queue_offset)
        parts, last_end, refused, moved = units_of(
            group,
            first,
            last_end=units.last_end,
            bad_places=bad_places,
            with_fillers=self._with_fillers,
        )
        self.refused += refused
        if moved is not None:
            self.moved.setdefault((moved.topic, moved.queue_id), moved)
        if parts:
            units.append(b"".join(parts), first, last_end)

    def hold(self, dispatches: Sequence[Dispatch]) -> None:
        """Expose queue entries that are not yet written to a file."""
        for key, group in by_queue(self.live(dispatches)).items():
            units = self.queues.add(*key).units
            parts, *_ = units_of(
                group, units.end, last_end=units.last_end, with_fillers=self._with_fillers
            )
            units.hold(b"".join(parts))

    def _may_lack_first(
        self, first: int, dispatch: Dispatch, bad_places: Sequence[tuple[int, int]]
    ) -> bool:
        """Return whether a queue without entries begins at `first`, with entries for records lost at a bad place.
        Otherwise it begins with this record: the records before it were deleted with the head of the log.
        """
        if self._log_start or not 0 <= dispatch.queue_offset - first <= LARGEST_GAP:
            return False
        return any(position < dispatch.physical_offset for position, _ in bad_places)

    def build_index(self, dispatches: Sequence[Dispatch]) -> None:
        """Put the keys into the index; do nothing if the index is off."""
        if self.index is not None:
            self.index.put_all(dispatches)


class Dispatcher:
    """The queue of pending dispatches and the thread that builds from it. `submit` is called in log order."""

    def __init__(self, builder: Builder, *, position: int, fence: Fence) -> None:
        self.builder = builder
        self.failure: StorageError | None = None  # of the last step; None if it succeeded
        self._fence = fence
        self._broken = False  # a write by the dispatcher has failed: guarded by `_lock`
        self._position = position  # written under `_lock`, read by any thread
        self._pending: deque[tuple[Sequence[Dispatch], int]] = deque()
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None

    @property
    def position(self) -> int:
        """The physical offset up to which queues and index are built."""
        return self._position

    def submit(self, dispatches: Sequence[Dispatch], end: int) -> None:
        """Add the records of one append, which end at the physical offset `end`."""
        self._pending.append((dispatches, end))
        if not self._wake.is_set():
            self._wake.set()

    def make_way(self) -> None:
        """Build in the calling thread, before an append, if too many appends are pending: this bounds the
        pending records. Raises DiskFull, StoreFenced.
        """
        if len(self._pending) >= PENDING_APPENDS:
            self.step()

    def step(self) -> None:
        """Put all records that were submitted before into the queues and the index. This works also in a
        store that another failure has fenced.

        Raises DiskFull (the records stay pending and are tried again), StoreFenced.
        """
        if not self._pending:
            return
        with self._lock:
            if self._broken:
                self._fence.check()
            try:
                with self._fence.tripping():
                    while self._pending:
                        self._build_some()
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
                self.builder.hold([d for dispatches, _ in tuple(self._pending) for d in dispatches])

    def try_step(self) -> int:
        """Run `step` as far as possible, without DiskFull and StoreFenced; return the `position` reached."""
        with suppress(DiskFull, StoreFenced):
            self.step()
        return self._position

    def step_past(self, end: int) -> None:
        """Run `step`; on a full disk, records after the physical offset `end` may stay pending."""
        try:
            self.step()
        except DiskFull:
            if self._position < end:
                raise

    def _build_some(self) -> None:
        """Build some of the pending records; they are removed from the pending queue only after that."""
        gathered: list[Dispatch] = []
        taken, end = 0, self._position
        for dispatches, stop in tuple(self._pending):  # copied at once: submits go on
            gathered += dispatches
            taken, end = taken + 1, stop
            if len(gathered) >= TOGETHER:
                break
        self.builder.build(gathered)
        for _ in range(taken):
            self._pending.popleft()
        self._position = end
        self.failure = None

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
