"""How a real broker is driven, on one that is made up: how many records it is sent, and what its readers must have."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import pytest

from logserver.bench.processes import Cores, ServerFailed
from logserver.bench.result import NotDone, TargetFacts
from logserver.bench.targets import Bench, tools
from logserver.bench.targets.broker import Produced, RealBroker
from logserver.bench.targets.tools import SERVER_PORTS, Tool, free_ports
from logserver.bench.workload import Workload, parse_workload


class MadeUp:
    """Sends as fast as `rates` say, one after the other; its readers miss `missed` records."""

    facts = TargetFacts(name="kafka", kind="kafka")
    paces = True
    reads = True
    pid = os.getpid()

    def __init__(self, data: Path, rates: list[float], missed: int = 0) -> None:
        self.data = data
        self.sent: list[int] = []
        self._rates = iter(rates)
        self._missed = missed

    def start(self, flush: str) -> None:
        self.data.mkdir(exist_ok=True)

    def stop(self) -> None: ...

    kill = stop

    def not_done(self, workload: Workload) -> list[NotDone]:
        return []

    def create(self, topic: str, partitions: int) -> None:
        self.sent.clear()

    def produce(
        self, topic: str, workload: Workload, records: int, *, rate: int = 0, warm: int = 0
    ) -> Produced:
        self.sent.append(records + warm)
        return Produced(records, next(self._rates), None, warm=warm)

    def follow(self, topic: str, group: str, records: int) -> Tool:
        return cast("Tool", Reading(records - self._missed))

    catch_up = follow

    def read(self, tool: Tool) -> tuple[int, float]:
        return cast("Reading", tool).records, 1.0

    def stored(self, topic: str) -> int:
        return sum(self.sent)

    def load_s(self) -> float | None:
        return None


class Reading:
    """A reader that has ended."""

    def __init__(self, records: int) -> None:
        self.records = records

    def __enter__(self) -> Reading:
        return self

    def __exit__(self, *_: object) -> None: ...


def unheard(what: str) -> None:
    """Nobody is told how far it is."""


def workload(more: str = "") -> Workload:
    text = f'name = "w"\nwarmupDurationMinutes = 0.0\ntestDurationMinutes = 0.05\n{more}'
    return parse_workload(text.encode(), "w.toml")


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    with asyncio.Runner() as runner:
        yield Bench(folder=tmp_path, runner=runner, cores=Cores(), peers=tmp_path, quick=False)


def test_how_many_records_take_the_time_is_found_out_warm(bench: Bench, tmp_path: Path) -> None:
    """A second or more of 5,000/s is the cold one; five seconds of it tell 800/s; three seconds of that are measured,
    at 1,000/s, which the next repeat goes by.
    """
    broker = MadeUp(tmp_path / "broker", rates=[10_000, 5_000, 800, 1_000, 1_100])
    target = RealBroker(bench, broker)
    first = target.repeat(workload(), 1, unheard)
    assert broker.sent == [1_000, 10_000, 25_000, 2_400]
    assert (first.published_records, first.errors) == (2_400, [])
    second = target.repeat(workload(), 2, unheard)
    assert broker.sent == [3_000]
    assert second.published_records_per_s == 1_100


@pytest.mark.parametrize(("missed", "errors"), [(0, []), (1, ["999 of 1000 records were read"])])
def test_readers_must_have_all(
    bench: Bench, tmp_path: Path, missed: int, errors: list[str]
) -> None:
    broker = MadeUp(tmp_path / "broker", rates=[100], missed=missed)
    rated = workload("producerRate = 100\nsubscriptionsPerTopic = 2\n")
    repeat = RealBroker(bench, broker).repeat(rated, 1, unheard)
    assert (repeat.consumed_records, repeat.consumed_records_per_s) == (2_000 - 2 * missed, None)
    assert repeat.errors == errors


def test_ports_are_free_and_none_of_outgoing_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    given_out = Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()
    assert max(SERVER_PORTS) + 11 < int(given_out[0])
    assert free_ports((8, 10)) in SERVER_PORTS
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        taken = one.getsockname()[1]
        for first, offsets in ((taken, ()), (taken - 8, (8, 10)), (taken - 10, (8, 10))):
            monkeypatch.setattr(tools, "SERVER_PORTS", [first])
            with pytest.raises(ServerFailed, match="no free ports"):
                free_ports(offsets)
