"""A query killed at up to ten points, one after another, and restarted each time: every row is there once.

All processes of the query get SIGKILL as soon as a file says that a point is reached: what it does next is
cut off somewhere, and wherever that is the rows must come out right. (That each single change of the disk may be
the last one is shown in tests/faults/test_staged_append.py.)
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
from tests.pipeline.conftest import SHORT_LIVED

pytestmark = [pytest.mark.spark, pytest.mark.slow]

ROWS = 4000  # of a micro-batch
FILLER = "x" * 500
GIVE_UP_S = 300.0
NOTE = ".logserver.staged.json"


class Place(NamedTuple):
    """A test's files, and what they tell: numbers are those of the newest micro-batch. A look costs some
    microseconds, as the query needs the processors.
    """

    source: Path
    store: Path
    checkpoint: Path

    def write(self, number: int) -> None:
        """A file of rows, which is a micro-batch; they are taken in their order."""
        self.source.mkdir(exist_ok=True)
        file = self.source / f"{number:03}.txt"
        file.write_text("".join(f"{number * ROWS + row} {FILLER}\n" for row in range(ROWS)))
        os.utime(file, (number + 1, number + 1))

    def staged(self) -> frozenset[str]:
        """What tasks and driver have beside the store."""
        beside = (n for n in names(self.store.parent) if n.startswith("store.staged-"))
        return frozenset(name for n in beside for name in names(self.store.parent / n))

    def planned(self) -> int:
        """By Spark."""
        return newest(self.checkpoint / "offsets")

    def committed(self) -> int:
        """By Spark."""
        return newest(self.checkpoint / "commits")

    def pending(self) -> object:
        """What the store has decided to take and not yet taken."""
        return self._note().get("pending")

    def done(self) -> int:
        """By the store."""
        units: dict[str, int] = self._note().get("units") or {}
        return max(units.values(), default=-1)

    def done_and_staged(self) -> tuple[int, frozenset[str]]:
        """Both."""
        return self.done(), self.staged()

    def stored_blocks(self) -> int:
        """Of the log, on the disk."""
        return sum(map(blocks, [*self.store.glob("t-*/*.log"), *self.store.glob("commitlog/*")]))

    def _note(self) -> dict[str, Any]:
        try:
            note: dict[str, Any] = json.loads((self.store / NOTE).read_bytes())
        except FileNotFoundError:
            return {}
        return note


def names(folder: Path) -> Sequence[str]:
    """What is in a folder that may not be there."""
    try:
        return [path.name for path in folder.iterdir()]
    except FileNotFoundError:
        return ()


def newest(log: Path) -> int:
    """The number of a checkpoint's newest file."""
    return max((int(name) for name in names(log) if name.isdigit()), default=-1)


def blocks(file: Path) -> int:
    """What a file takes on the disk; a new one may get its name at this very moment."""
    try:
        return file.stat().st_blocks
    except FileNotFoundError:
        return 0


class Point(NamedTuple):
    """Reached, when what `look` tells has become so since the start of the run."""

    look: Callable[[Place], Any]
    reached: Callable[[Any, Any], bool]


POINTS: Mapping[str, Point] = {
    "the new store is being made": Point(Place.staged, lambda old, new: "store" in new),
    "the next batch is planned": Point(Place.planned, operator.lt),
    "a task began to stage": Point(Place.staged, operator.lt),
    "both tasks have begun": Point(Place.staged, lambda old, new: len(new - old) > 1),
    "space is held back": Point(Place.staged, lambda old, new: "reserve" in new - old),
    "the write is decided": Point(Place.pending, lambda old, new: new not in (None, old)),
    "runs are being put in": Point(Place.stored_blocks, operator.lt),
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
"""Points at which the backends do something of their own; the others are the same code for both."""
KILLS: Mapping[str, Sequence[str]] = {"kafka": tuple(POINTS), "rocketmq": OF_THE_STORE}


@pytest.fixture(scope="module")
def java_options(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Of virtual machines that live for seconds: their classes come from the archive that a first run leaves, which
    takes half of what a start costs.
    """
    folder = tmp_path_factory.mktemp("classes")
    place = Place(folder / "source", folder / "store", folder / "checkpoint")
    place.write(0)
    with running(
        place, "kafka", f"{SHORT_LIVED} -XX:ArchiveClassesAtExit={folder / 'classes'}"
    ) as query:
        assert query.wait(GIVE_UP_S) == 0
        wait_for_end(query.pid)  # of the virtual machine, which writes the archive last
    yield f"{SHORT_LIVED} -XX:SharedArchiveFile={folder / 'classes'}"
    (folder / "classes").unlink(missing_ok=True)  # some hundred megabytes


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("backend", KILLS)
def test_every_row_is_there_once(tmp_path: Path, backend: str, java_options: str) -> None:
    place = Place(tmp_path / "source", tmp_path / "store", tmp_path / "checkpoint")
    kills = KILLS[backend]
    for number in range(len(kills) + 1):
        place.write(number)
    for name in kills:
        killed = killed_at(place, backend, POINTS[name], java_options)
        assert killed, f"the query ended before: {name}"
    with running(place, backend, java_options) as query:
        assert query.wait(GIVE_UP_S) == 0
    counts = Counter(rows(place, backend))
    assert counts.keys() == set(range((len(kills) + 1) * ROWS))
    assert set(counts.values()) == {1}
    assert not place.staged()


def killed_at(place: Place, backend: str, point: Point, java_options: str) -> bool:
    """Run the query, and kill it at a point; False if it ended by itself."""
    old = point.look(place)
    deadline_s = time.monotonic() + GIVE_UP_S
    with running(place, backend, java_options) as query:
        while query.poll() is None and time.monotonic() < deadline_s:
            if point.reached(old, point.look(place)):
                return True
            time.sleep(0.001)
    return False


class running:
    """The query in a session of its own, of which nothing is left behind."""

    def __init__(self, place: Place, backend: str, java_options: str) -> None:
        command = [sys.executable, "-m", "tests.pipeline.stream_job", *map(str, place)]
        command += [backend, java_options]
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


def wait_for_end(session: int) -> None:
    """Until its processes have ended by themselves."""
    deadline_s = time.monotonic() + GIVE_UP_S
    while list(of_session(session)) and time.monotonic() < deadline_s:
        time.sleep(0.1)


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
