"""Builds the queues and the index behind the commit log (ReputMessageService).

Owns the order in which records are dispatched, how far that has come, and the one thread of the
storage layer; must not read the log: whoever appends or recovers hands the dispatches over. `step`
does in the calling thread what the background thread does, so a reader never waits for that one.

    append -> submit -> [dispatches, ...] -> step: units of each queue, then the index

What cannot be written stays pending: on a full disk it is tried again; any other error fences the store, and the next
start makes it from the log. Its units are held in memory meanwhile, for readers. The index has no such stand-in.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Final

from storage.errors import DiskFull, StorageError, StoreFenced
from storage.files import Fence
from storage.rocketmq.consume_queue import settle
from storage.rocketmq.dispatch import LARGEST_GAP, Dispatch, by_queue, units_of
from storage.rocketmq.key_index import KeyIndex
from storage.rocketmq.queues import Queue, QueueTable

GATHER_S: Final = 0.01  # so long a wake-up waits for more: a reader that is sooner does it itself
RETRY_S: Final = 1.0  # after a disk that was full
TOGETHER: Final = 4096  # records dispatched at once at most
PENDING_APPENDS: Final = 1024


class Builder:
    """Puts dispatches into the queues and the index: each record once, in the order of the log.

    `deleted` tells by topic up to which physical offset its records are gone. Not thread-safe.
    """

    def __init__(
        self,
        queues: QueueTable,
        index: KeyIndex | None,
        deleted: Mapping[str, int],
        *,
        with_fillers: bool,
    ) -> None:
        """`with_fillers`: a filler stands for each offset that no record has. Only for a log without its first possible
        file: when the real store meets a filler in a pull, it skips all records in that file
        (DefaultMessageStore.getMessage). See `FileRun.lacks_first`.
        """
        self.queues = queues
        self.index = index
        self.deleted = deleted
        self.moved: dict[tuple[str, int], Dispatch] = {}  # by queue, see `units_of`
        self._with_fillers = with_fillers
        self.last: Dispatch | None = None  # the last record that was built
        self.refused: list[Dispatch] = []  # records whose queue offset cannot be
        self._bad_places: list[tuple[int, int]] = []  # of the log: physical offset and bytes
        self._log_start = 0

    def pass_over(self, physical_offset: int, size_bytes: int, *, log_start: int) -> None:
        """Records may be missing at a bad place of the log: whoever reads them is to be led there."""
        self._bad_places.append((physical_offset, size_bytes))
        self._log_start = log_start

    def build(self, dispatches: Sequence[Dispatch]) -> None:
        """Queues first, then the index. What is there already is left as it is."""
        live = self.live(dispatches)
        self.build_queues(live)
        self.build_index(live)
        if dispatches:
            self.last = dispatches[-1]

    def live(self, dispatches: Sequence[Dispatch]) -> Sequence[Dispatch]:
        """Those of records that were not deleted with their topic."""
        deleted = self.deleted
        if not deleted:
            return dispatches
        return [d for d in dispatches if d.physical_offset >= deleted.get(d.topic, 0)]

    def build_queues(self, dispatches: Sequence[Dispatch]) -> None:
        """Append the missing units, one write for each queue. The files that they need are made before,
        all of them, and then made durable: where one cannot be made, no queue gets its units.
        """
        batch_topics = self.queues.batch_topics
        groups = [
            (self.queues.add(*key), group)
            for key, group in by_queue(dispatches).items()
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
        """Let readers find in memory the units that are in no file of their queues."""
        for key, group in by_queue(self.live(dispatches)).items():
            units = self.queues.add(*key).units
            parts, *_ = units_of(
                group, units.end, last_end=units.last_end, with_fillers=self._with_fillers
            )
            units.hold(b"".join(parts))

    def _may_lack_first(
        self, first: int, dispatch: Dispatch, bad_places: Sequence[tuple[int, int]]
    ) -> bool:
        """Whether a queue without a unit begins at `first`, with what a bad place took before this
        record; else with the record: what was before it was deleted with the head of the log.
        """
        if self._log_start or not 0 <= dispatch.queue_offset - first <= LARGEST_GAP:
            return False
        return any(position < dispatch.physical_offset for position, _ in bad_places)

    def build_index(self, dispatches: Sequence[Dispatch]) -> None:
        """Put the keys into the index; with the index off nothing is done."""
        if self.index is not None:
            self.index.put_all(dispatches)


class Dispatcher:
    """The queue of dispatches and the thread that works it off. `submit` is called in log order."""

    def __init__(self, builder: Builder, *, position: int, fence: Fence) -> None:
        self.builder = builder
        self.failure: StorageError | None = None  # of the last step, None when it went well
        self._fence = fence
        self._broken = False  # a write of its own has failed: under `_lock`
        self._position = position  # written under `_lock`, read by anyone
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
        """Hand over the records of one append, which end at the physical offset `end`."""
        self._pending.append((dispatches, end))
        if not self._wake.is_set():
            self._wake.set()

    def make_way(self) -> None:
        """Before an append: whoever is far ahead of the thread does its work, so that what is pending
        stays little. Raises DiskFull, StoreFenced.
        """
        if len(self._pending) >= PENDING_APPENDS:
            self.step()

    def step(self) -> None:
        """On return all that was submitted before is in the queues and the index: in a store that
        was fenced by something else too.

        Raises DiskFull (it stays pending and is tried again), StoreFenced.
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
        """On return readers find a unit of the queue for every offset below `end`: what cannot be written
        keeps nobody from reading.
        """
        self.try_step()
        if queue.units.readable_end < end:
            with self._lock:
                self.builder.hold([d for dispatches, _ in tuple(self._pending) for d in dispatches])

    def try_step(self) -> int:
        """As `step`, as far as it can be done; gives the `position` that it has come to."""
        with suppress(DiskFull, StoreFenced):
            self.step()
        return self._position

    def step_past(self, end: int) -> None:
        """As `step`, but what lies behind the physical offset `end` may stay pending on a full disk."""
        try:
            self.step()
        except DiskFull:
            if self._position < end:
                raise

    def _build_some(self) -> None:
        """Build a run of what is pending; it is taken off only when it is built."""
        gathered: list[Dispatch] = []
        taken, end = 0, self._position
        for dispatches, stop in tuple(self._pending):  # in one step: more is submitted meanwhile
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
        """Start the thread."""
        self._thread = threading.Thread(target=self._run, name="dispatch", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the thread; what is pending stays so."""
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
