"""The driver of real brokers, tested with a simulated one: warm-up, number of records sent, complete readers."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import chain, count
from itertools import repeat as repeat_of
from pathlib import Path
from typing import cast

import pytest

from logserver.bench.processes import Cores, ServerFailed
from logserver.bench.result import NotDone, TargetFacts
from logserver.bench.targets import kafka, rocketmq, tools
from logserver.bench.targets.base import Bench
from logserver.bench.targets.broker import Produced, RealBroker
from logserver.bench.targets.tools import SERVER_PORTS, Tool, free_ports
from logserver.bench.workload import Workload, parse_workload


class MadeUp:
    """A broker that sends at the given `rates`, one after the other; its readers miss `missed` records."""

    facts = TargetFacts(name="kafka", kind="kafka")
    paces = True
    reads = True
    pid = os.getpid()

    def __init__(self, data: Path, rates: Iterable[float], missed: int = 0) -> None:
        self.data = data
        self.sent: dict[str, list[int]] = {}
        self.starts: list[bool] = []  # for each start: whether the store existed
        self._rates = iter(rates)
        self._missed = missed

    def start(self, flush: str) -> None:
        self.starts.append(self.data.exists())
        self.data.mkdir(exist_ok=True)

    def stop(self) -> None: ...

    kill = stop

    def not_done(self, workload: Workload) -> list[NotDone]:
        return []

    def create(self, topic: str, partitions: int) -> None:
        self.sent[topic] = []

    def produce(
        self, topic: str, workload: Workload, records: int, *, rate: int = 0, warm: int = 0
    ) -> Produced:
        self.sent[topic].append(records + warm)
        return Produced(records, next(self._rates), None, warm=warm)

    def follow(self, topic: str, group: str, records: int) -> Tool:
        return cast("Tool", Reading(records - self._missed))

    catch_up = follow

    def read(self, tool: Tool) -> tuple[int, float]:
        return cast("Reading", tool).records, 1.0

    def stored(self, topic: str) -> int:
        return sum(self.sent[topic])

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
    """Ignore the progress."""


def workload(more: str = "") -> Workload:
    text = f'name = "w"\nwarmupDurationMinutes = 0.0\ntestDurationMinutes = 0.05\n{more}'
    return parse_workload(text.encode(), "w.toml")


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    with asyncio.Runner() as runner:
        yield Bench(folder=tmp_path, runner=runner, cores=Cores(), peers=tmp_path, quick=False)


def test_a_broker_is_warmed_until_it_gets_no_faster(bench: Bench, tmp_path: Path) -> None:
    """The warm-up ends when two consecutive pieces are less than a tenth faster than the best before them.

    The first piece of a second or more, at 5,000/s, is cold. Then each rate determines the size of the next piece, ten
    seconds. Three seconds at the last rate are measured; the measured 9,600/s determines the next repeat.
    """
    rates = [10_000, 5_000, 6_000, 9_000, 9_500, 9_400, 9_600, 9_700]
    broker = MadeUp(tmp_path / "broker", rates)
    target = RealBroker(bench, broker)
    first = target.repeat(workload(), 1, unheard)
    assert broker.sent == {
        "bench-w-warm": [1_000, 10_000, 50_000, 60_000, 90_000, 95_000],
        "bench-w-1": [28_200],
    }
    assert (first.published_records, first.errors) == (28_200, [])
    second = target.repeat(workload(), 2, unheard)
    assert broker.sent["bench-w-2"] == [28_800]
    assert second.published_records_per_s == 9_700
    assert broker.starts == [False]


def test_a_warm_up_has_an_end(bench: Bench, tmp_path: Path) -> None:
    """The warm-up also ends for a broker that becomes ever faster.

    With values of a megabyte each run has at most half a gigabyte.
    """
    broker = MadeUp(tmp_path / "broker", (1_000 * 1.2**number for number in count()))
    large = workload("messageSize = 1_000_000\n[logserver]\nrecordsPerRequest = 1\n")
    repeat = RealBroker(bench, broker).repeat(large, 1, unheard)
    first, *pieces = broker.sent["bench-w-warm"]
    assert (first, pieces) == (1_000, [500] * 12)
    assert repeat.published_records_per_s == pytest.approx(1_000 * 1.2**13)


def test_a_repeat_that_kills_has_a_store_of_its_own(bench: Bench, tmp_path: Path) -> None:
    broker = MadeUp(tmp_path / "broker", [1_000, 1_000])
    target = RealBroker(bench, broker)
    killed = workload("producersPerTopic = 0\n[logserver]\nfillGB = 0.001\nkill = true\n")
    repeats = [target.repeat(killed, number, unheard) for number in (1, 2)]
    assert [repeat.stored_records for repeat in repeats] == [10_000, 10_000]
    assert broker.starts == [False, True, True] * 2


@pytest.mark.parametrize(("rate", "held"), [(94, False), (96, True), (105, True), (106, False)])
def test_a_rate_is_held_neither_less_nor_more(
    bench: Bench, tmp_path: Path, rate: float, held: bool
) -> None:
    """A tool that catches up after its warm-up sends more than the offered rate."""
    broker = MadeUp(tmp_path / "broker", chain([500, 500, 500], repeat_of(rate)))
    paced = RealBroker(bench, broker).repeat(workload("producerRate = 100\n"), 1, unheard)
    assert paced.rate_held is held
    assert broker.sent["bench-w-1"] == [1_000]


def test_who_puts_the_load_on_is_measured_too(bench: Bench, tmp_path: Path) -> None:
    """The load tool's processor time is measured: this tool takes some tenths of a second."""

    class Working(MadeUp):
        def produce(
            self, topic: str, workload: Workload, records: int, *, rate: int = 0, warm: int = 0
        ) -> Produced:
            subprocess.run([sys.executable, "-S", "-c", "sum(range(20_000_000))"], check=True)
            return super().produce(topic, workload, records, rate=rate, warm=warm)

    quick = replace(bench, quick=True)
    repeat = RealBroker(quick, Working(tmp_path / "broker", [100])).repeat(workload(), 1, unheard)
    assert repeat.generator_busy_share is not None
    assert repeat.seconds is not None
    assert 0.1 < repeat.generator_busy_share * repeat.seconds < 30


def test_kafka_s_tool_has_as_many_requests_under_way_as_http_has_and_full_batches(
    bench: Bench, repo_root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kafka, "require", lambda *_: repo_root / "tests/interop/peers/kafka")
    reported: list[tuple[object, ...]] = []
    line = "9 records sent, 9.0 records/sec (0.0 MB/sec), 1.0 ms avg latency, 1.0 ms max latency, "
    line += "1 ms 50th, 1 ms 95th, 1 ms 99th, 1 ms 99.9th"

    def run(self: kafka.Kafka, *options: object) -> str:
        reported.append(options)
        return line

    monkeypatch.setattr(kafka.Kafka, "_run", run)
    broker = kafka.Kafka(bench)
    in_flight = "max.in.flight.requests.per.connection"
    for more, rate, wanted in (
        ("producersPerTopic = 16\n", 0, {f"{in_flight}=16", "linger.ms=1000"}),
        ("producersPerTopic = 16\n", 100, {f"{in_flight}=16", "linger.ms=5"}),
        ("[logserver]\nconnections = 3\n", 0, {f"{in_flight}=3", "linger.ms=1000"}),
        ("[logserver]\nrecordsPerRequest = 1\n", 0, {f"{in_flight}=1", "linger.ms=0"}),
        ("producersPerTopic = 0\n[logserver]\nfillGB = 1\n", 0, {f"{in_flight}=5"}),
    ):
        broker.produce("t", workload(more), 9, rate=rate)
        assert wanted <= set(reported[-1])


@pytest.mark.parametrize(("missed", "errors"), [(0, []), (1, ["999 of 1000 records were read"])])
def test_readers_must_have_all(
    bench: Bench, tmp_path: Path, missed: int, errors: list[str]
) -> None:
    broker = MadeUp(tmp_path / "broker", repeat_of(100), missed=missed)
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


def test_a_broker_that_did_not_come_back_is_started_by_the_next_workload(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """This also holds in a quick run, where a broker stays for all workloads of a flush mode."""
    broker = MadeUp(tmp_path / "broker", [1_000, 1_000, 1_000])
    target = RealBroker(replace(bench, quick=True), broker)
    filled = "producersPerTopic = 0\n[logserver]\nfillGB = 0.001\n"

    def lost() -> None:
        raise ServerFailed("not ready")

    monkeypatch.setattr(broker, "stop", lost)
    with pytest.raises(ServerFailed, match="not ready"):
        target.repeat(workload(filled + "kill = true\n"), 1, unheard)
    target.repeat(workload(filled), 1, unheard)
    target.repeat(workload(filled), 2, unheard)
    assert broker.starts == [False, True, False]


def test_a_topic_is_there_when_the_name_server_knows_it(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, repo_root: Path
) -> None:
    """The broker's acceptance of the topic is not enough, since the name server may not know the topic yet."""
    monkeypatch.setattr(rocketmq, "require", lambda *_: repo_root / "tests/interop/peers/rocketmq")
    answers = ["RemotingConnectException", "create topic to 127.0.0.1:1 success.\n"]
    answers += ["CODE: 17", "peer    0     0      0     \n"]
    answers += ["never asked"]
    monkeypatch.setattr(rocketmq.RocketMQ, "_run", lambda *_: answers.pop(0))
    rocketmq.RocketMQ(bench).create("t", 1)
    assert answers == ["never asked"]


def test_a_reader_whose_group_was_not_put_at_the_end_does_not_follow(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, repo_root: Path
) -> None:
    """Kafka's tool ends with success all the same."""
    monkeypatch.setattr(kafka, "require", lambda *_: repo_root / "tests/interop/peers/kafka")
    monkeypatch.setattr(kafka.Kafka, "_run", lambda *_: "Error: Executing consumer group command")
    with pytest.raises(ServerFailed, match="Executing consumer group command"):
        kafka.Kafka(bench).follow("t", "g", 1)


JAVA = """#!{python}
# A broker that takes a while, and the name server that it waits for.
import os, re, signal, socket, sys, time
if any(word.endswith("NamesrvStartup") for word in sys.argv):
    port = re.search(r"listenPort=(\\d+)", open(sys.argv[-1]).read())[1]
    listening = socket.create_server(("127.0.0.1", int(port)))
else:
    time.sleep(0.5)
    print("The broker boot success, process", os.getpid(), flush=True)
signal.alarm(60)
signal.pause()
"""


def test_a_real_broker_serves_when_its_own_process_says_so(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, repo_root: Path
) -> None:
    """The previous process's message does not count: its output is moved aside before the next process starts."""
    java, cache = tmp_path / "bin" / "java", tmp_path / "cache"
    (cache / "rocketmq").mkdir(parents=True)
    for name in (".done", "peer.jar"):  # as the set-up leaves them
        (cache / "rocketmq" / name).touch()
    java.parent.mkdir()
    java.write_text(JAVA.format(python=sys.executable))
    java.chmod(0o755)
    monkeypatch.setenv("PATH", f"{java.parent}:{os.environ['PATH']}")
    monkeypatch.setenv("PEERS_CACHE", str(cache))
    monkeypatch.setattr(rocketmq, "require", lambda *_: repo_root / "tests/interop/peers/rocketmq")
    broker = rocketmq.RocketMQ(bench)
    reported, before = broker.data / "broker.out", broker.data / "broker.out.old"
    try:
        broker.start("async")
        first = reported.read_text()
        broker.kill()
        broker.start("async")
        assert reported.read_text() == f"The broker boot success, process {broker.pid}\n" != first
        assert before.read_text() == first
    finally:
        broker.kill()
