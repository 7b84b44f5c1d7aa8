"""A staged append and its state after crashes: the write itself, and the judgement of its outcome.

Owns the rows, their staging, and the check that after any crash, a restart and a repeat each row is stored once;
must not choose crashes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from storage import LogStore, Record, StagedWrite, TopicPartition, Unit
from storage.files import FileSystem
from storage.registry import staged_form
from storage.shared.staged_append import append_staged
from storage.shared.staged_files import Run, StagedFile, StagedWriter, staging_folder
from tests.contract.harness import ManualClock
from tests.robustness.crash.workload import PATH, Backend, open_at
from tests.unit.rocketmq.workshop import by_hand

OLD = TopicPartition("old", 0)
PLACES = [OLD, TopicPartition("old", 1), TopicPartition("new", 0), TopicPartition("new", 1)]
TASKS = 2
RUNS = 3  # of each task for each partition
RECORDS = 2  # of each run
UNIT = Unit("query", 0)


@dataclass(frozen=True)
class Staging:
    """Writes rows for one backend, with small files and a fixed clock: no timestamp reveals which record is later."""

    backend: Backend
    clock: ManualClock

    def open(self, fs: FileSystem) -> LogStore:
        """Open the store."""
        with by_hand():
            return open_at(fs, self.backend, self.clock)

    def prepare(self, fs: FileSystem) -> None:
        """Create a store with a topic and a record, and stop it."""
        fs.make_dir(PATH.parent)
        with self.open(fs) as store:
            store.create_topic(OLD.topic, 2)
            store.append(OLD, [Record(None, b"before")])

    def stage(self, fs: FileSystem, attempt: str, unit: Unit = UNIT) -> StagedWrite:
        """Write the files of the tasks: rows with values that contain their address and the attempt."""
        folder = staging_folder(PATH, unit.writer)
        files = [self._task(fs, folder, f"{unit.number}-{n}-{attempt}", n) for n in range(TASKS)]
        return StagedWrite(folder=folder, files=files, topics={"old": 2, "new": 2}, unit=unit)

    def _task(self, fs: FileSystem, folder: Path, name: str, task: int) -> StagedFile:
        form = staged_form(self.backend.name, self.clock)
        encoder = form.encoder()
        writer = StagedWriter(fs, folder, name)
        for run in range(RUNS):
            for place in PLACES:
                rows = [row(name, task, run, place, at) for at in range(RECORDS)]
                shape = form.shape(None, place.topic)
                for records, data in encoder.encode(rows, shape, compression=None):
                    writer.add(Run(*place, records, data))
        return writer.finish()

    def commit(self, fs: FileSystem, write: StagedWrite) -> bool:
        """Append the staged write, as a separate process would."""
        with self.open(fs) as store:
            return append_staged(store, staged_form(self.backend.name, self.clock), write)

    def rows(self, fs: FileSystem) -> Sequence[bytes]:
        """Return all values in the store, each partition's values in order."""
        with self.open(fs) as store:
            return [
                record.value or b""
                for name, info in store.topics().items()
                for number in info.partitions
                for record in store.scan(TopicPartition(name, number))
            ]


def row(name: str, task: int, run: int, place: TopicPartition, at: int) -> Record:
    """Return a row of an attempt."""
    return Record(b"k", f"{name.split('-')[2]} {place} {task} {run} {at}".encode())


def problem(rows: Sequence[bytes], *, attempts: Sequence[str], whole: bool) -> str | None:
    """Return the problem in a store's rows, or None.

    The rows of one attempt must all exist, each once and in order. Without `whole`, no row at all is also right.
    """
    if rows[0] != b"before" and rows[-1] != b"before" and b"before" not in rows:
        return "the record of before is gone"
    ours = [value.decode() for value in rows if value != b"before"]
    if not ours:
        return "nothing is there" if whole else None
    attempt = ours[0].split()[0]
    if attempt not in attempts:
        return f"rows of attempt {attempt}"
    found: dict[str, list[str]] = {}
    for value in ours:
        found.setdefault(value.split()[1], []).append(value)
    for place in PLACES:
        wanted = [
            row(f"0-{task}-{attempt}", task, run, place, at).value.decode()  # type: ignore[union-attr]
            for task in range(TASKS)
            for run in range(RUNS)
            for at in range(RECORDS)
        ]
        if found.get(str(place)) != wanted:
            counts = Counter(found.get(str(place), []))
            return f"{place} of attempt {attempt}: {counts}, not {wanted}"
    return None
