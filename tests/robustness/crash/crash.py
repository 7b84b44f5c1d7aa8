"""One crash: the files it left, and a check that a store runs correctly from there.

Owns the order in which a state is opened, checked, continued, stopped and opened again; must not choose states. The
result of a start depends only on the files: the clock stands still, and random draws are the same in every start. So
a later start from files that an earlier state of the workload also led to is skipped.
"""

from __future__ import annotations

import random
import secrets
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from unittest.mock import patch

from storage import (
    LogStore,
    Record,
    StorageError,
    StoredRecord,
    StoreOptions,
    TopicPartition,
    open_inspector,
)
from storage.files import FileSystem
from tests.contract.harness import ManualClock
from tests.robustness.crash.disk import Disk
from tests.robustness.crash.history import (
    Acked,
    Closed,
    Committed,
    Committing,
    History,
    Note,
    Recovered,
    Sent,
    origin_of,
    value_of,
)
from tests.robustness.crash.invariants import (
    Broken,
    check_lookups,
    check_positions,
    check_recovery,
    check_store,
    positions,
    require,
)
from tests.robustness.crash.keyed import on_own_loop, repeat_all
from tests.robustness.crash.ram import Ram
from tests.robustness.crash.recorder import Recorder
from tests.robustness.crash.workload import PATH, Backend, commit_offset, open_at
from tests.unit.rocketmq.workshop import by_hand


class Starts:
    """The later starts of a workload's states: their number, and how many of them repeated an earlier start."""

    def __init__(self) -> None:
        self.count = 0
        self.alike = 0
        self._seen: set[Hashable] = set()

    def is_new(self, fs: Ram, *facts: Hashable) -> bool:
        """Return whether no earlier start had the same files and the same facts about what must hold."""
        found = (fs.digest(), *facts)
        is_new = found not in self._seen
        self._seen.add(found)
        self.count += 1
        self.alike += not is_new
        return is_new


@dataclass
class Crash:
    """The files that a crash left of a store with this history.

    `killed`: the process died, but the disk did not lose its power.
    """

    backend: Backend
    history: History
    state: Ram
    now_ms: int
    killed: bool = False
    disk: Disk | None = None  # of a kill: its pending changes are still pending
    starts: Starts = field(default_factory=Starts)  # shared by all crashes of a workload

    def check(self, *, thorough: bool) -> None:
        """Open the store, check it, continue, stop and open it again. Raises `Broken`. `state` is not changed.

        `thorough`: also check every lookup, run a second recovery (as after a cut) and run `verify`.
        """
        try:
            self._live(thorough=thorough)
        except StorageError as error:
            raise refused(error) from error

    def _live(self, *, thorough: bool) -> None:
        fs = self.state.copy()
        reported = positions(self.state, PATH, self.backend.name)
        with by_hand(), drawn_alike():
            with self._open(fs) as store:
                check_recovery(store)
                self._check(self.history, store, killed=self.killed)
                check_positions(reported, store)
                if self.history.closed:
                    self._check_clean(store)
                history = self._after_start(store)
                if store.recovery.losses:
                    self._check_twice(fs, history)
                self._go_on(store, history.note, history)
                if thorough or store.recovery.losses:
                    self._check_twice(fs, history)
                if thorough:
                    check_lookups(store)
                topics = set(store.topics())
            self._check_stopped(fs, history, topics, thorough=thorough)

    def recover(self) -> tuple[Recorder, History]:
        """Open the store, continue and stop, all recorded. Return the recording, and the history at its start."""
        recorder = (
            Recorder(self.state.copy()) if self.disk is None else Recorder.after_kill_on(self.disk)
        )
        with by_hand():
            with self._open(recorder) as store:
                history = self._after_start(store)
                self._go_on(store, recorder.note, history)
            recorder.note(Closed())
        return recorder, history

    def _open(self, fs: FileSystem) -> LogStore:
        return open_at(fs, self.backend, ManualClock(self.now_ms))

    def _check(self, history: History, store: LogStore, *, killed: bool) -> None:
        whole = self.backend.whole_batches
        check_store(history, store, killed=killed, whole_batches=whole)

    def _check_clean(self, store: LogStore) -> None:
        """Check I13: the store was stopped cleanly, and this is the next start."""
        report = store.recovery
        require(report.clean_shutdown, "I13", "the mark of a clean stop is missing")
        require(not report.losses, "I13", f"lost {report.losses}")
        limit = self.backend.file_bytes * max(report.partitions, 1)
        require(report.bytes_scanned <= limit, "I13", f"read {report.bytes_scanned} bytes")

    def _after_start(self, store: LogStore) -> History:
        """Return the history that holds after this crash."""
        history = self.history.copy()
        if not self.killed:
            history.forget_lost_commits()
            for partition in partitions_of(store):
                history.forget_lost(partition, store.bounds(partition).end)
        return history

    def _go_on(self, store: LogStore, note: Callable[[Note], None], history: History) -> None:
        """Repeat the requests that producers would repeat, then append and flush new records."""
        clock = ManualClock(self.now_ms)
        on_own_loop(repeat_all(store, note, history, killed=self.killed, clock=clock))
        numbers = count(max(history.sent, default=0) + 1)
        commits = count(max(history.commits, default=0) + 1)
        for partition in partitions_of(store):
            if partition.topic in history.going:
                continue
            records = list(store.scan(partition))
            if records:
                values = [record.value or b"" for record in records]
                note(Recovered(partition, records[0].offset, values))
            for sent in repeats(history, partition, records):
                _repeat(store, sent, records)
            number = next(numbers)
            new = [Record(value=value_of(number, 0), key=b"new")]
            note(Sent(number, partition, new, None, durable=True))
            result = store.append(partition, new, publish=False)
            store.flush([partition])
            note(Acked(number, result.base_offset))
            commit = Committing(next(commits), "g1", partition, result.base_offset + 1, True)
            note(commit)
            commit_offset(store, commit)
            note(Committed(commit.number))

    def _check_twice(self, fs: Ram, history: History) -> None:
        """Check I6: two more starts after a kill give the same result, and the second start changes no log file."""
        if not self.starts.is_new(fs, "twice", history.facts()):
            return
        once = fs.copy()
        with self._open(once) as first:
            require(not first.recovery.losses, "I6", f"a kill lost {first.recovery.losses}")
            self._check(history, first, killed=True)
            twice = once.copy()
            with self._open(twice) as second:
                self._check(history, second, killed=True)
                differ = dict({*once.files()} ^ {*twice.files()})
                changed = [path for path in differ if is_log(Path(path))]
                require(not changed, "I6", f"a second recovery changed {changed}")

    def _check_stopped(
        self, fs: Ram, history: History, topics: set[str], *, thorough: bool
    ) -> None:
        """Check that after a clean stop all records exist and `verify` finds no problem in any file."""
        if not self.starts.is_new(fs, thorough, history.facts(), frozenset(topics)):
            return
        if thorough:
            inspector = open_inspector(PATH, StoreOptions(settings=self.backend.settings), fs=fs)
            found = [f for f in inspector.verify() if f.severity != "info"]
            inspector.close()
            require(not found, "I7", f"after a clean stop verify finds {found}")
        with self._open(fs) as store:
            self._check_clean(store)
            self._check(history, store, killed=True)
            again = set(store.topics())
            require(again == topics, "I6", f"topics {topics}, and after a stop {again}")


@contextmanager
def drawn_alike() -> Iterator[None]:
    """Make the random draws of stores (cluster ids, message ids) the same in every block of this context manager."""
    dice = random.Random(0)
    with (
        patch.object(secrets, "randbits", dice.getrandbits),
        patch.object(secrets, "token_bytes", dice.randbytes),
    ):
        yield


def partitions_of(store: LogStore) -> list[TopicPartition]:
    """Return all partitions of a store that clients write to."""
    topics = [topic for topic in store.topics().values() if not topic.internal]
    return [TopicPartition(topic.name, number) for topic in topics for number in topic.partitions]


def is_log(path: Path) -> bool:
    """Return whether this file holds records."""
    return path.suffix == ".log" or path.parent.name == "commitlog"


def repeats(
    history: History, partition: TopicPartition, records: Sequence[StoredRecord]
) -> Iterator[Sent]:
    """Yield the request that each producer sends again after the crash.

    This is the request after the last one that the log contains, or else that last request. If the log contains none,
    it is the first request, unless the log's head was deleted: then the first request is unknown.
    """
    present = {origin_of(record.value) for record in records}
    requests: dict[int, list[Sent]] = {}
    for sent in history.sent.values():
        if sent.partition == partition and sent.producer is not None:
            requests.setdefault(sent.producer.producer_id, []).append(sent)
    for of_one in requests.values():
        there = [
            n for n, sent in enumerate(of_one) if (sent.request, len(sent.records) - 1) in present
        ]
        if there:
            yield of_one[min(there[-1] + 1, len(of_one) - 1)]
        elif not history.starts.get(partition):
            yield of_one[0]


def _repeat(store: LogStore, sent: Sent, records: Sequence[StoredRecord]) -> None:
    """Check I3: a request that is repeated with its sequence number is stored exactly once."""
    offsets = {origin_of(record.value): record.offset for record in records}
    known = [offsets.get((sent.request, index)) for index in range(len(sent.records))]
    result = store.append(sent.partition, sent.records, producer=sent.producer)
    if None not in known:
        once = result.duplicate and result.base_offset == known[0]
        require(once, "I3", f"{sent.partition}: repeat of {sent.request} at {known} gave {result}")
    lost = known[-1] is None and result.duplicate
    require(not lost, "I1", f"{sent.partition}: repeat of {sent.request} counts as stored: {known}")


def refused(error: StorageError) -> Broken:
    """Return the violation of I12: a store does not start, or an open store cannot be read or written."""
    return Broken("I12", f"{error.code}: {error.message} {error.facts()}")
