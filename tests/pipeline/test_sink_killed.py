"""A query killed at ten points, one after another, and restarted each time: every row is there once.

All processes of the query get SIGKILL as soon as a file says that a point is reached: what it does next is
cut off somewhere, and wherever that is the rows must come out right. (That each single change of the disk may be
the last one is shown in tests/faults/test_staged_append.py.)
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import pytest

from storage import TopicPartition, open_store

pytestmark = [pytest.mark.spark, pytest.mark.slow]

ROWS = 4000  # of a micro-batch
FILLER = "x" * 500
GIVE_UP_S = 300.0
NOTE = ".logserver.staged.json"


class Place(NamedTuple):
    """A test's files."""

    source: Path
    store: Path
    checkpoint: Path

    def look(self) -> Seen:
        """What they tell."""
        try:
            note = json.loads((self.store / NOTE).read_bytes())
        except FileNotFoundError:
            note = {}
        logs = [*self.store.glob("t-*/*.log"), *self.store.glob("commitlog/*")]
        return Seen(
            staged=frozenset(f.name for f in self.store.parent.glob("store.staged-*/*")),
            planned=self._newest("offsets"),
            committed=self._newest("commits"),
            pending=json.dumps(note.get("pending")),
            done=max((note.get("units") or {"": -1}).values()),
            stored_bytes=sum(log.stat().st_blocks for log in logs) * 512,
        )

    def _newest(self, log: str) -> int:
        names = (each.name for each in self.checkpoint.glob(f"{log}/*"))
        return max((int(name) for name in names if name.isdigit()), default=-1)


class Seen(NamedTuple):
    """What the files tell: numbers are those of the newest micro-batch, planned and committed by Spark, done by
    the store.
    """

    staged: frozenset[str]
    planned: int
    committed: int
    pending: str
    done: int
    stored_bytes: int


Reached = Callable[[Seen, Seen], bool]
"""Asked of what was there at the start of a run, and what is."""

POINTS: Mapping[str, Reached] = {
    "the new store is being made": lambda old, new: "store" in new.staged,
    "the next batch is planned": lambda old, new: new.planned > old.planned,
    "a task began to stage": lambda old, new: new.staged > old.staged,
    "both tasks have begun": lambda old, new: len(new.staged - old.staged) > 1,
    "space is held back": lambda old, new: "reserve" in new.staged - old.staged,
    "the write is decided": lambda old, new: new.pending not in ("null", old.pending),
    "runs are being put in": lambda old, new: new.stored_bytes > old.stored_bytes,
    "the batch is done": lambda old, new: new.done > old.done,
    "its files are gone": lambda old, new: new.done > old.done and not new.staged,
    "the checkpoint has it": lambda old, new: new.committed > old.committed,
}


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("backend", ["kafka", "rocketmq"])
def test_every_row_is_there_once(tmp_path: Path, backend: str) -> None:
    place = Place(tmp_path / "source", tmp_path / "store", tmp_path / "checkpoint")
    place.source.mkdir()
    for number in range(len(POINTS) + 1):
        lines = (f"{number * ROWS + row} {FILLER}\n" for row in range(ROWS))
        (place.source / f"{number:03}.txt").write_text("".join(lines))
        os.utime(place.source / f"{number:03}.txt", (number + 1, number + 1))  # taken in order
    for name, reached in POINTS.items():
        assert killed_at(place, backend, reached), f"the query ended before: {name}"
    with running(place, backend) as query:
        assert query.wait(GIVE_UP_S) == 0
    counts = Counter(rows(place, backend))
    assert counts.keys() == set(range((len(POINTS) + 1) * ROWS))
    assert set(counts.values()) == {1}
    assert not place.look().staged


def killed_at(place: Place, backend: str, reached: Reached) -> bool:
    """Run the query, and kill it at a point; False if it ended by itself."""
    old = place.look()
    deadline_s = time.monotonic() + GIVE_UP_S
    with running(place, backend) as query:
        while query.poll() is None and time.monotonic() < deadline_s:
            if reached(old, place.look()):
                return True
            time.sleep(0.0005)  # the query needs the processors
    return False


class running:
    """The query in a session of its own, of which nothing is left behind."""

    def __init__(self, place: Place, backend: str) -> None:
        command = [sys.executable, "-m", "tests.pipeline.stream_job", *map(str, place), backend]
        environment = {**os.environ, "PYSPARK_PYTHON": sys.executable}
        self._log = (place.source.parent / "query.log").open("ab")
        self._query = subprocess.Popen(
            command,
            env=environment,
            stdout=self._log,
            stderr=self._log,
            start_new_session=True,
        )

    def __enter__(self) -> subprocess.Popen[bytes]:
        return self._query

    def __exit__(self, *exc_info: object) -> None:
        while others := list(of_session(self._query.pid)):
            for pid in others:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    continue
            self._query.poll()
        self._query.wait()
        self._log.close()


def of_session(session: int) -> Iterator[int]:
    """The living processes of a session, those in groups of their own too."""
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                fields = (folder / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if int(fields[3]) == session and fields[0] != "Z":
                yield int(folder.name)


def rows(place: Place, backend: str) -> Iterator[int]:
    """The rows that the store has."""
    with open_store(backend, place.store) as store:
        for number in store.topics()["t"].partitions:
            for record in store.scan(TopicPartition("t", number)):
                yield int((record.value or b"").split()[0])
