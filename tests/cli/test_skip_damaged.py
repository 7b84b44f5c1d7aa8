"""`consume` and `tail` stop at damage in the server's store, or skip it and report the skipped offsets."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from logserver import LogServer
from logserver.client import BlockingClient
from tests.cli.runner import Ended, run
from tests.http.harness import ONE_PARTITION

RECORDS = 6
WRITTEN_BYTES = (
    65_536  # more than the records take; the rest of RocketMQ's log file of 1 GiB is zeros
)
LOGS = {"kafka": "{topic}-0/*.log", "rocketmq": "commitlog/*"}


class Stored(NamedTuple):
    """A topic of six records in a running server, and its log file. Their values begin with the topic's name."""

    topic: str
    log: Path

    def value(self, number: int) -> str:
        return f"{self.topic}-value-{number}"

    def left(self, *numbers: int) -> list[str]:
        """Return the values of all records but these."""
        return [self.value(number) for number in range(RECORDS) if number not in numbers]


@pytest.fixture(scope="module", params=["kafka", "rocketmq"])
def running(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[LogServer]:
    """A server of each backend in turn, whose files the tests damage."""
    backend = str(request.param)
    folder = tmp_path_factory.mktemp("data")
    with LogServer(folder, backend=backend, set=ONE_PARTITION.get(backend)) as server:
        yield server


@pytest.fixture
def store(running: LogServer, topic: str, monkeypatch: pytest.MonkeyPatch) -> Stored:
    """A topic of the server."""
    monkeypatch.setenv("LOGSERVER_URL", running.url)
    with BlockingClient(running.url) as client:
        client.create_topic(topic, partitions=1)
        for number in range(RECORDS):
            client.produce(topic, f"{topic}-value-{number}")
        assert len(client.records(topic)) == RECORDS
    (log,) = Path(running.data).glob(LOGS[running.backend].format(topic=topic))
    return Stored(topic, log)


def damage(store: Stored, *numbers: int) -> None:
    """Flip a bit in the values of these records in place, as a faulty disk does."""
    with store.log.open("r+b") as file:
        data = file.read(WRITTEN_BYTES)
        for number in numbers:
            at = data.index(store.value(number).encode())
            file.seek(at)
            file.write(bytes([data[at] ^ 1]))


def values(ended: Ended) -> list[str]:
    return [json.loads(line)["value"] for line in ended.out.splitlines()]


@pytest.mark.parametrize("numbers", [(0,), (2, 3), (1, 4)])
def test_consume(store: Stored, numbers: tuple[int, ...]) -> None:
    damage(store, *numbers)
    stopped = run("consume", "-t", store.topic, "-e")
    assert stopped.code == 1
    assert "--skip-damaged" in stopped.err
    skipped = run("consume", "-t", store.topic, "-e", "--skip-damaged")
    assert (skipped.code, values(skipped)) == (1, store.left(*numbers))
    lines = skipped.err.splitlines()
    assert all(line.startswith(f"skipped: {store.topic}-0 offsets ") for line in lines)
    named = [
        line.removeprefix(f"skipped: {store.topic}-0 offsets ").partition(":")[0] for line in lines
    ]
    ranges = [tuple(map(int, name.split(" to "))) for name in named]
    assert [o for first, last in ranges for o in range(first, last + 1)] == [*numbers]


def test_tail(store: Stored) -> None:
    damage(store, 4)
    ended = run("tail", "-t", store.topic, "-e", "-o", "-3", "--skip-damaged")
    assert (ended.code, values(ended)) == (1, [store.value(3), store.value(5)])
    assert ended.err.startswith(f"skipped: {store.topic}-0 offsets 4 to 4: ")


def test_a_member_of_a_group(store: Stored) -> None:
    damage(store, 1)
    assert run("consume", "-t", store.topic, "-G", store.topic, "-e").code == 1
    ended = run("consume", "-t", store.topic, "-G", store.topic, "-e", "--skip-damaged")
    assert ended.code == 1
    assert values(ended)[-4:] == store.left(0, 1)
    assert ended.err.startswith(f"skipped: {store.topic}-0 offsets 1 to 1: ")
    again = run("consume", "-t", store.topic, "-G", store.topic, "-e", "--skip-damaged")
    assert (again.code, values(again), again.err) == (0, [], "")  # the commit is after the damage


def test_nothing_to_skip(store: Stored) -> None:
    ended = run("consume", "-t", store.topic, "-e", "--skip-damaged")
    assert (ended.code, values(ended), ended.err) == (0, store.left(), "")


def test_the_tail_of_the_log_is_damaged(store: Stored) -> None:
    """If no good record follows the damage, reading ends with the error, after the records before the damage."""
    damage(store, RECORDS - 1)
    ended = run("consume", "-t", store.topic, "-e", "--skip-damaged")
    assert ended.code == 1
    assert values(ended) == store.left(RECORDS - 1)
