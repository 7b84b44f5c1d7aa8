"""Rows of the benchmark of Kafka's protocol: Kafka's own tools, and a client of single sends, against two servers.

Owns the measured work; must not time a row: harness.py does. `scripts/bench_kafka_wire` runs it. Both servers run all
the time, on loopback, with the flush mode of the real one's default (`os`); the row `sync` has a server of its own.
Each turn has a new topic, which is deleted after it. The processor time of a server is that of all its threads.
"""

from __future__ import annotations

import asyncio
import os
import socket
import struct
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, Final, NamedTuple

from logserver.bench.environment import versions
from logserver.bench.goals import KAFKA_WIRE
from logserver.bench.processes import ServerFailed, cpu_s, running, store_server
from logserver.bench.targets.kafka import BESIDE, JVM, TIMEOUT, produced
from logserver.bench.targets.tools import free_ports, require
from logserver.bench.targets.tools import run as run_tool
from logserver.client.kafka.client import KafkaClient
from scripts.bench.harness import Bench, Row, Turn, parser, run
from storage import is_compiled
from storage.kafka.format.batch import encode_batch
from storage.model import Record

ROOT: Final = Path(__file__).resolve().parents[2]
PEERS: Final = ROOT / "tests" / "interop" / "peers"
REAL: Final = "the real broker"
BATCHES: Final = {"16 KB": 16 << 10, "64 KB": 64 << 10, "1 MB": 1_000_000}
RECORDS: Final = {100: 1_000_000, 1000: 200_000}  # of a turn, by the size of a record
CONSUMED: Final = 400_000
SINGLE: Final = 2000
QUICK: Final = 2000
MEMORY_TIMES: Final = 10  # the bytes of a turn: the tools take some of them
ONCE_MORE_S: Final = 120.0
NOT_YET_LEADER: Final = frozenset({3, 6})  # UNKNOWN_TOPIC_OR_PARTITION, NOT_LEADER_OR_FOLLOWER
DELETED_AT_ONCE: Final = {"file.delete.delay.ms": "100"}


class Served(NamedTuple):
    """A server under load: its address, and its process."""

    address: str
    pid: int

    def used_s(self) -> float:
        """Return the processor time that it has used. Raises ServerFailed."""
        used_s = cpu_s(self.pid)
        if used_s is None:
            raise ServerFailed(f"the processor time of {self.address} is unknown")
        return used_s


class Measured(NamedTuple):
    """The result of a turn: records, processor seconds, seconds."""

    records: int
    cpu_s: float
    wall_s: float


class Load:
    """The tools, against one server. Remembers the turns, for the row that shows the same turns by the clock."""

    _topics = count()

    def __init__(self, server: Served) -> None:
        self.server = server
        self.walls: deque[Turn] = deque()
        self._perf = require(PEERS, "kafka") / "perf"

    def _admin(self, call: Callable[[KafkaClient], Any]) -> None:
        async def ask() -> None:
            async with KafkaClient(self.server.address, timeout_s=ONCE_MORE_S) as client:
                await call(client)

        asyncio.run(ask())

    def topic(self) -> str:
        """Create a topic."""
        name = f"t{next(self._topics)}"
        self._admin(lambda client: client.create_topic(name, partitions=1, configs=DELETED_AT_ONCE))
        return name

    def delete(self, name: str) -> None:
        """Delete a topic."""
        self._admin(lambda client: client.delete_topic(name))

    def _tool(self, name: str, *options: object) -> str:
        return run_tool(self._perf, name, "--bootstrap-server", self.server.address, *options)

    def _noted(self, found: Measured) -> Turn:
        self.walls.append(Turn(found.records, found.wall_s))
        return Turn(found.records, found.cpu_s)

    def send(self, topic: str, records: int, size: int, batch: int, acks: str) -> Measured:
        """Send records with kafka-producer-perf-test."""
        properties = (
            f"acks={acks}",
            f"batch.size={batch}",
            "linger.ms=1000",
            "enable.idempotence=false",
        )
        options = ("--topic", topic, "--num-records", records, "--record-size", size)
        before_s = self.server.used_s()
        output = self._tool(
            "produce", *options, "--throughput", -1, "--command-property", *properties
        )
        used_s = self.server.used_s() - before_s
        done = produced(output)
        assert done.records_per_s is not None
        return Measured(done.records, used_s, done.records / done.records_per_s)

    def produce(self, records: int, size: int, batch: int, acks: str) -> Turn:
        """Send records to a topic of their own."""
        topic = self.topic()
        take_memory(MEMORY_TIMES * records * size)
        try:
            return self._noted(self.send(topic, records, size, batch, acks))
        finally:
            self.delete(topic)

    def consume(self, topic: str, records: int) -> Turn:
        """Read a topic with kafka-consumer-perf-test, from its first record."""
        options = ("--topic", topic, "--num-records", records, "--group", f"g{next(self._topics)}")
        before_s = self.server.used_s()
        cells = self._tool("consume", *options, *TIMEOUT).strip().rpartition("\n")[2].split(", ")
        used_s = self.server.used_s() - before_s
        try:
            found, rate = int(cells[4]), float(cells[9])
        except (IndexError, ValueError):
            raise ServerFailed(f"kafka-consumer-perf-test: {', '.join(cells)!r}") from None
        return self._noted(Measured(min(found, records), used_s, found / rate))

    def single(self, sends: int) -> Turn:
        """Send single records, each after the answer to the one before. Return the median; p99 is the other turn."""
        topic = self.topic()
        try:
            waits_s = sorted(single_sends(self.server.address, topic, sends))
        finally:
            self.delete(topic)
        self.walls.append(Turn(len(waits_s), waits_s[len(waits_s) * 99 // 100], 1))
        return Turn(len(waits_s), waits_s[len(waits_s) // 2], 1)


def take_memory(size_bytes: int) -> None:
    """Use memory and free it at once, so that it is there for the page cache of the next turn.

    A virtual machine gives free memory back to its host after two seconds. The first touch after that takes the host's
    time, which the guest counts as the toucher's: three times the time of a write, of the server that happens to have
    it.
    """
    with tempfile.TemporaryFile() as file:
        block = bytes(1 << 20)
        for _ in range(size_bytes >> 20):
            file.write(block)


def single_sends(address: str, topic: str, sends: int) -> Iterator[float]:
    """Yield the seconds of Produce requests of version 9 with acks=all, each with one record of 100 bytes.

    One send before them is not counted. It is made again until the broker leads the partition: a broker answers the
    creation of a topic before that.
    """
    data = encode_batch(
        [Record(None, b"x" * 100, timestamp_ms=0)], base_offset=0, leader_epoch=-1, now_ms=0
    )
    request = _frame(topic, data)
    # correlation id, tags; one topic: its name; one partition: its index, the error
    error_at = 4 + 1 + 1 + 1 + len(topic) + 1 + 4
    host, _, port = address.rpartition(":")
    with socket.create_connection((host, int(port)), ONCE_MORE_S) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        answers = connection.makefile("rb")

        def send() -> int:
            connection.sendall(request)
            answer = answers.read(int.from_bytes(answers.read(4), "big"))
            return int.from_bytes(answer[error_at : error_at + 2], "big", signed=True)

        until_s = time.monotonic() + ONCE_MORE_S
        while (error := send()) in NOT_YET_LEADER and time.monotonic() < until_s:
            time.sleep(0.01)
        for _ in range(sends):
            if error:
                raise ServerFailed(f"Produce: error {error}")
            begun_s = time.perf_counter()
            error = send()
            yield time.perf_counter() - begun_s
        if error:
            raise ServerFailed(f"Produce: error {error}")


def _frame(topic: str, data: bytes) -> bytes:
    """Return a Produce request of version 9: header 2, then ProduceRequest, with compact lengths and no tags."""
    name = topic.encode()
    body = (
        struct.pack(">hhih", 0, 9, 1, 1) + b"b" + b"\0"  # API, version, correlation id, client id
        b"\0"
        + struct.pack(">hi", -1, 30_000)  # no transaction, acks, timeout_ms
        + b"\2"
        + _varint(len(name) + 1)
        + name  # one topic
        + b"\2"
        + struct.pack(">i", 0)
        + _varint(len(data) + 1)
        + data
        + b"\0\0\0"  # one partition
    )
    return struct.pack(">i", len(body)) + body


def _varint(value: int) -> bytes:
    parts = bytearray()
    while value > 0x7F:
        parts.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*parts, value])


def own(stack: ExitStack, folder: Path, flush: str) -> Load:
    """Start this server."""
    port = free_ports()
    command = [*store_server("kafka", folder, flush), "--listen-kafka", f"127.0.0.1:{port}"]
    server = stack.enter_context(running(command, None))
    assert server.pid is not None
    return Load(Served(f"127.0.0.1:{port}", server.pid))


def real(stack: ExitStack, folder: Path) -> Load:
    """Start the real broker, with G1."""
    script, port = require(PEERS, "kafka") / "broker", free_ports(BESIDE)
    folder.mkdir()
    stack.callback(run_tool, script, "kill", folder)
    run_tool(script, "start", folder, port, env={"PEER_BROKER_JVM": JVM})
    return Load(Served(f"127.0.0.1:{port}", int((folder / "pid").read_text())))


def _pair(
    name: str,
    ends: tuple[str, str],
    ours: Load,
    peer: Load | None,
    work: Callable[[Load], Turn],
    expected: int,
    *,
    latency: bool = False,
) -> Iterator[Row]:
    """Yield the row that does the work, and the row that shows the other figure of the same turns."""
    for load in filter(None, (ours, peer)):
        load.walls.clear()

    def again(load: Load) -> Turn:
        if not load.walls:  # the other row was not chosen
            work(load)
        return load.walls.popleft()

    for end, does in zip(ends, (work, again), strict=True):
        yield Row(
            name=f"{name}: {end}",
            unit="sends" if latency else "records",
            ours=partial(does, ours),
            peer=None if peer is None else partial(does, peer),
            peer_name=REAL if peer is not None else "",
            expected=expected,
            once=True,
            latency=latency,
        )


def all_rows(stack: ExitStack, *, quick: bool) -> Iterator[Row]:
    """Yield every row. What it runs on is closed with `stack`."""
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
    ours, peer = own(stack, folder / "own", "os"), real(stack, folder / "real")
    ends = ("CPU", "rate")
    for size, records in RECORDS.items():
        number = QUICK if quick else records
        for text, batch in BATCHES.items():
            for acks in ("1", "all"):
                name = f"produce {size} B, {text}, acks={acks}"
                work = partial(_produce, number, size, batch, acks)
                yield from _pair(name, ends, ours, peer, work, number)
    number = QUICK if quick else CONSUMED
    for size in RECORDS:
        topics: dict[Load, str] = {}
        work = partial(_consume, topics, number, size)
        yield from _pair(f"consume {size} B", ends, ours, peer, work, number)
        for load, topic in topics.items():
            load.delete(topic)
    sends = QUICK // 10 if quick else SINGLE
    work = partial(_single, sends)
    yield from _pair("single sends", ("p50", "p99"), ours, peer, work, sends, latency=True)
    synced = own(stack, folder / "synced", "sync")
    number = QUICK if quick else RECORDS[1000]
    work = partial(_produce, number, 1000, BATCHES["64 KB"], "all")
    yield from _pair("sync: produce 1000 B, 64 KB, acks=all", ends, synced, None, work, number)


def _produce(records: int, size: int, batch: int, acks: str, load: Load) -> Turn:
    return load.produce(records, size, batch, acks)


def _consume(topics: dict[Load, str], records: int, size: int, load: Load) -> Turn:
    """Read the topic of a server, which the first call fills."""
    if load not in topics:
        topics[load] = load.topic()
        load.send(topics[load], records, size, BATCHES["64 KB"], "1")
    return load.consume(topics[load], records)


def _single(sends: int, load: Load) -> Turn:
    return load.single(sends)


def main() -> int:
    """Measure every selected row and report."""
    given = parser("Kafka's protocol", "no effect: every row needs Java").parse_args()
    os.environ.setdefault("PYTHONPATH", str(ROOT))
    bench = Bench(name=KAFKA_WIRE, compiled=is_compiled(), quick=given.quick, repeats=given.repeats)
    with ExitStack() as stack:
        about = versions("confluent-kafka") | {"peer": "Kafka 4.3.1, G1, 1 GB"}
        return run(bench, all_rows(stack, quick=given.quick), given, about)
