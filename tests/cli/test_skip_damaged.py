"""`consume` and `tail` stop at damage in the server's store, or skip it and report the skipped offsets."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from logserver import LogServer
from logserver.client import BlockingClient
from tests.api.harness import ONE_PARTITION
from tests.cli.runner import Ended, run

RECORDS = 6
WRITTEN_BYTES = (
    65_536  # more than the records take; the rest of RocketMQ's log file of 1 GiB is zeros
)
LOGS = {"kafka": "t-0/*.log", "rocketmq": "commitlog/*"}


@pytest.fixture(params=["kafka", "rocketmq"])
def store(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Path]:
    """The log file of a running server, with a topic `t` of six records."""
    backend, folder = str(request.param), tmp_path / "data"
    with LogServer(folder, backend=backend, set=ONE_PARTITION.get(backend)) as server:
        monkeypatch.setenv("LOGSERVER_URL", server.url)
        with BlockingClient(server.url) as client:
            client.create_topic("t", partitions=1)
            for number in range(RECORDS):
                client.produce("t", f"value-{number}")
            assert len(client.records("t")) == RECORDS
        (log,) = folder.glob(LOGS[backend])
        yield log


def damage(log: Path, *numbers: int) -> None:
    """Flip a bit in the values of these records in place, as a faulty disk does."""
    with log.open("r+b") as file:
        data = file.read(WRITTEN_BYTES)
        for number in numbers:
            at = data.index(b"value-%d" % number)
            file.seek(at)
            file.write(bytes([data[at] ^ 1]))


def values(ended: Ended) -> list[str]:
    return [json.loads(line)["value"] for line in ended.out.splitlines()]


def left(*numbers: int) -> list[str]:
    return [f"value-{number}" for number in range(RECORDS) if number not in numbers]


@pytest.mark.parametrize("numbers", [(0,), (2, 3), (1, 4)])
def test_consume(store: Path, numbers: tuple[int, ...]) -> None:
    damage(store, *numbers)
    stopped = run("consume", "-t", "t", "-e")
    assert stopped.code == 1
    assert "--skip-damaged" in stopped.err
    skipped = run("consume", "-t", "t", "-e", "--skip-damaged")
    assert (skipped.code, values(skipped)) == (1, left(*numbers))
    lines = skipped.err.splitlines()
    assert all(line.startswith("skipped: t-0 offsets ") for line in lines)
    named = [line.removeprefix("skipped: t-0 offsets ").partition(":")[0] for line in lines]
    ranges = [tuple(map(int, name.split(" to "))) for name in named]
    assert [o for first, last in ranges for o in range(first, last + 1)] == [*numbers]


def test_tail(store: Path) -> None:
    damage(store, 4)
    ended = run("tail", "-t", "t", "-e", "-o", "-3", "--skip-damaged")
    assert (ended.code, values(ended)) == (1, ["value-3", "value-5"])
    assert ended.err.startswith("skipped: t-0 offsets 4 to 4: ")


def test_a_member_of_a_group(store: Path) -> None:
    damage(store, 1)
    assert run("consume", "-t", "t", "-G", "g", "-e").code == 1
    ended = run("consume", "-t", "t", "-G", "g", "-e", "--skip-damaged")
    assert ended.code == 1
    assert values(ended)[-4:] == left(0, 1)
    assert ended.err.startswith("skipped: t-0 offsets 1 to 1: ")
    again = run("consume", "-t", "t", "-G", "g", "-e", "--skip-damaged")
    assert (again.code, values(again), again.err) == (0, [], "")  # the commit is after the damage


def test_nothing_to_skip(store: Path) -> None:
    ended = run("consume", "-t", "t", "-e", "--skip-damaged")
    assert (ended.code, values(ended), ended.err) == (0, left(), "")


def test_the_tail_of_the_log_is_damaged(store: Path) -> None:
    """If no good record follows the damage, reading ends with the error, after the records before the damage."""
    damage(store, RECORDS - 1)
    ended = run("consume", "-t", "t", "-e", "--skip-damaged")
    assert ended.code == 1
    assert values(ended) == left(RECORDS - 1)
