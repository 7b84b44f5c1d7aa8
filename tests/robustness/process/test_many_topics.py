"""A store with a thousand topics, killed: the start afterwards is quick, and all records are served again."""

from __future__ import annotations

import errno
import os
import shutil
import statistics
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.robustness.process.server import Server

TOPICS = 1000
PRODUCERS = 8
STARTS = 3
GOAL_S = 3.0  # on two free cores
LOADED = 5  # the suites of `scripts/test --all` share the cores and the disk
OPTIONS = {
    "kafka": ("--backend=kafka",),
    "rocketmq": ("--backend=rocketmq", "--set=defaultTopicQueueNums=1"),
}


def copy_with_holes(source: str, target: str) -> None:
    """Copy a file; its holes stay holes: the index files of a topic have 20 MiB of them."""
    with Path(source).open("rb") as reader, Path(target).open("wb") as writer:
        end, size = 0, os.fstat(reader.fileno()).st_size
        while (start := data_after(reader.fileno(), end)) is not None:
            end = os.lseek(reader.fileno(), start, os.SEEK_HOLE)
            os.pwrite(writer.fileno(), os.pread(reader.fileno(), end - start, start), start)
        writer.truncate(size)


def data_after(descriptor: int, position: int) -> int | None:
    """Return where data begins at or after a position; None if only a hole follows."""
    try:
        return os.lseek(descriptor, position, os.SEEK_DATA)
    except OSError as error:
        if error.errno == errno.ENXIO:
            return None
        raise


def name_of(number: int) -> str:
    return f"topic-{number:04}"


def produce(server: Server, first: int) -> None:
    """Produce three records to every eighth topic, each in a request of its own: it creates the topic."""
    with server.client() as client:
        for number in range(first, TOPICS, PRODUCERS):
            records = [{"key": "k", "value": value} for value in range(3)]
            answer = client.produce(f"/topics/{name_of(number)}", records)
            assert answer.status == 200, answer


@pytest.mark.slow
@pytest.mark.parametrize("backend", OPTIONS)
def test_a_start_after_a_kill_is_quick(
    backend: str, tmp_path: Path, figures: Callable[[str], None]
) -> None:
    left = tmp_path / "left"
    with Server(left, *OPTIONS[backend]) as server:
        with ThreadPoolExecutor(PRODUCERS) as pool:
            list(pool.map(lambda first: produce(server, first), range(PRODUCERS)))
        server.kill()
    times_s = []
    for number in range(STARTS):
        data = tmp_path / f"start-{number}"
        shutil.copytree(left, data, copy_function=copy_with_holes)
        os.sync()  # else the start waits for the writes of the copy too
        began_s = time.perf_counter()
        with Server(data, *OPTIONS[backend]) as server:
            times_s.append(time.perf_counter() - began_s)
            with server.client() as client:
                for topic in map(name_of, (0, TOPICS // 2, TOPICS - 1)):
                    assert [r["value"] for r in client.records(topic, 0)] == [0, 1, 2]
                assert len(client.call("GET", "/topics").body) == TOPICS
            server.kill()
        shutil.rmtree(data)
    figures(
        f"start after kill -9 with {TOPICS} topics, {backend}: "
        f"{min(times_s):.1f} {statistics.median(times_s):.1f} {max(times_s):.1f} s (min, median, max)"
    )
    assert min(times_s) < GOAL_S * LOADED
