"""A query killed at several points, one after another, and restarted each time: every row is stored once.

All processes of the query get SIGKILL as soon as a file shows that a point is reached. The kill interrupts the next
operation at an arbitrary place, and the rows must be right in each case. CI takes some of the points, the soak all.
(tests/robustness/test_staged_append.py shows that each single change of the disk may be the last one.)
"""

from __future__ import annotations

import json
import operator
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from storage import TopicPartition, open_store
from tests.pipeline.classes import java_options
from tests.pipeline.jobs import stream_job

pytestmark = [pytest.mark.spark, pytest.mark.slow]

ROWS = 4000  # of a micro-batch
FILLER = "x" * 500
GIVE_UP_S = 300.0
NOTE = ".logserver.staged.json"


class Place(NamedTuple):
    """A test's files and their state; numbers are the numbers of the newest micro-batch.

    Reading the state takes some microseconds, since the query needs the processors.
    """

    source: Path
    store: Path
    checkpoint: Path

    def write(self, number: int) -> None:
        """Write a file of rows, which becomes a micro-batch; files are read in the order of their numbers."""
        self.source.mkdir(exist_ok=True)
        file = self.source / f"{number:03}.txt"
        file.write_text("".join(f"{number * ROWS + row} {FILLER}\n" for row in range(ROWS)))
        os.utime(file, (number + 1, number + 1))

    def staged(self) -> frozenset[str]:
        """Return the files that tasks and driver have next to the store."""
        beside = (n for n in names(self.store.parent) if n.startswith("store.staged-"))
        return frozenset(name for n in beside for name in names(self.store.parent / n))

    def planned(self) -> int:
        """Return the newest micro-batch that Spark has planned."""
        return newest(self.checkpoint / "offsets")

    def committed(self) -> int:
        """Return the newest micro-batch that Spark has committed."""
        return newest(self.checkpoint / "commits")

    def pending(self) -> object:
        """Return the write that the store has decided to append and not yet appended."""
        return self._note().get("pending")

    def done(self) -> int:
        """Return the newest micro-batch that the store has appended."""
        units: dict[str, int] = self._note().get("units") or {}
        return max(units.values(), default=-1)

    def done_and_staged(self) -> tuple[int, frozenset[str]]:
        """Return the newest appended micro-batch and the staged files."""
        return self.done(), self.staged()

    def stored_blocks(self) -> int:
        """Return the blocks of the log on the disk."""
        return sum(map(blocks, [*self.store.glob("t-*/*.log"), *self.store.glob("commitlog/*")]))

    def _note(self) -> dict[str, Any]:
        try:
            note: dict[str, Any] = json.loads((self.store / NOTE).read_bytes())
        except FileNotFoundError:
            return {}
        return note


def names(folder: Path) -> Sequence[str]:
    """Return the names in a folder; empty if the folder does not exist."""
    try:
        return [path.name for path in folder.iterdir()]
    except FileNotFoundError:
        return ()


def newest(log: Path) -> int:
    """Return the number of a checkpoint's newest file."""
    return max((int(name) for name in names(log) if name.isdigit()), default=-1)


def blocks(file: Path) -> int:
    """Return the disk blocks of a file; a new file may get its name at this very moment."""
    try:
        return file.stat().st_blocks
    except FileNotFoundError:
        return 0


class Point(NamedTuple):
    """A point that is reached once the result of `look` has changed as required since the start of the run.

    `of_a_store_there`: since the store has been there, if the run makes it.
    """

    look: Callable[[Place], Any]
    reached: Callable[[Any, Any], bool]
    of_a_store_there: bool = False


POINTS: Mapping[str, Point] = {
    "the new store is being made": Point(Place.staged, lambda old, new: "store" in new),
    "the next batch is planned": Point(Place.planned, operator.lt),
    "a task began to stage": Point(Place.staged, operator.lt),
    "both tasks have begun": Point(Place.staged, lambda old, new: len(new - old) > 1),
    "space is held back": Point(Place.staged, lambda old, new: "reserve" in new - old),
    "the write is decided": Point(Place.pending, lambda old, new: new not in (None, old)),
    "runs are being put in": Point(Place.stored_blocks, operator.lt, of_a_store_there=True),
    "the batch is done": Point(Place.done, operator.lt),
    "its files are gone": Point(
        Place.done_and_staged, lambda old, new: new[0] > old[0] and not new[1]
    ),
    "the checkpoint has it": Point(Place.committed, operator.lt),
}


OF_THE_STORE: Sequence[str] = (
    "the new store is being made",
    "space is held back",
    "the write is decided",
    "runs are being put in",
    "the batch is done",
)
"""Points at which the backends have their own code; at the other points both run the same code."""
KILLS: Mapping[str, Sequence[str]] = {"kafka": tuple(POINTS), "rocketmq": OF_THE_STORE}
IN_CI = 3  # points of a backend, chosen by the commit


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("backend", KILLS)
def test_every_row_is_there_once(
    tmp_path: Path, backend: str, turn: Callable[[int], slice], seed: int
) -> None:
    place = Place(tmp_path / "source", tmp_path / "store", tmp_path / "checkpoint")
    kills = KILLS[backend]
    if turn(2) != slice(None):  # all in the soak
        kills = in_turn(kills, seed)
    for number in range(len(kills) + 1):
        place.write(number)
    for name in kills:
        killed = killed_at(place, backend, POINTS[name])
        assert killed, f"the query ended before: {name}"
    with running(place, backend) as query:
        assert query.wait(GIVE_UP_S) == 0
    counts = Counter(rows(place, backend))
    assert counts.keys() == set(range((len(kills) + 1) * ROWS))
    assert set(counts.values()) == {1}
    assert not place.staged()


def in_turn(kills: Sequence[str], seed: int) -> Sequence[str]:
    """Return `IN_CI` of the points, in order and far from each other; each seed has others."""
    count = len(kills)  # no multiple of IN_CI
    return [name for at, name in enumerate(kills) if (at * IN_CI + seed) % count < IN_CI]


def killed_at(place: Place, backend: str, point: Point) -> bool:
    """Run the query, and kill it at a point; return False if it ended by itself."""
    old = point.look(place)
    deadline_s = time.monotonic() + GIVE_UP_S
    with running(place, backend) as query:
        while query.poll() is None and not stream_job.begun(place.source).exists():
            time.sleep(0.02)  # Spark starts for seconds
        while query.poll() is None and time.monotonic() < deadline_s:
            is_there = not point.of_a_store_there or place.store.exists()
            new = point.look(place)
            if not is_there:
                old = new
            elif point.reached(old, new):
                return True
            time.sleep(0.001)
    return False


class running:
    """A query in its own session; the exit kills all processes of that session."""

    def __init__(self, place: Place, backend: str) -> None:
        stream_job.begun(place.source).unlink(missing_ok=True)
        command = [sys.executable, "-m", "tests.pipeline.jobs.stream_job", *map(str, place)]
        command += [backend, java_options()]
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
    """Yield the living processes of a session, including processes in other process groups."""
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                fields = (folder / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if int(fields[3]) == session and fields[0] != "Z":
                yield int(folder.name)


def rows(place: Place, backend: str) -> Iterator[int]:
    """Yield the rows in the store."""
    with open_store(backend, place.store) as store:
        for number in store.topics()["t"].partitions:
            for record in store.scan(TopicPartition("t", number)):
                yield int((record.value or b"").split()[0])
