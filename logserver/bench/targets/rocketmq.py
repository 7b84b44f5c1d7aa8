"""The real RocketMQ, driven by the benchmark producer of its own examples.

Owns the options and the output of that tool, and the broker's settings. Must not know the order of a repeat. Needs the
scripts of tests/interop/peers/rocketmq.
"""

from __future__ import annotations

import re
from typing import Final

from logserver.bench.processes import ServerFailed
from logserver.bench.result import ONE_RECORD, Latency, NotDone, TargetFacts
from logserver.bench.targets.base import Bench
from logserver.bench.targets.broker import Produced
from logserver.bench.targets.tools import Tool, free_ports, require, run
from logserver.bench.workload import Workload

FLUSHES: Final = {"sync": "SYNC_FLUSH", "async": "ASYNC_FLUSH", "os": "ASYNC_FLUSH"}
PATIENT: Final = (
    "waitTimeMillsInSendQueue=10000",
    "osPageCacheBusyTimeOutMills=10000",
)  # otherwise a busy broker rejects messages
FILL_THREADS: Final = 16
REPORT_MS: Final = 1000
BESIDE: Final = (8, 10, 11)  # offsets of the broker's ports from the name server's
ADMIN_TRIES: Final = 30  # a try takes a second or more
PRODUCED: Final = re.compile(
    r"^\[Complete\] Send Total: (\d+)"
    r"(?: \| Send TPS: (\d+) \| Max RT\(ms\): (\d+) \| Average RT\(ms\): +([\d.]+|NaN) \|)?"
    r" Send Failed: (\d+)(?: \|)? Response Failed: (\d+)",
    re.MULTILINE,
)
QUEUE: Final = re.compile(r"^\S+ +\d+ +(\d+) +(\d+) ", re.MULTILINE)


def produced(output: str) -> Produced:
    """Parse the last report of the benchmark producer. Raises ServerFailed.

    Rate and latency cover its last ten seconds; it has none if it was done in one or two seconds. Its total
    includes messages that could not be sent, but not messages answered with an error. Its failures count
    the last whole second before.
    """
    found = PRODUCED.search(output)
    if found is None:
        raise ServerFailed(f"the benchmark producer: {output[-300:]!r}")
    cells = (float(cell or 0) for cell in found.groups())
    total, rate, most_ms, mean_ms, unsent, refused = cells
    records = int(total - unsent)
    latency = Latency(count=records, mean_us=mean_ms * 1000, max_us=most_ms * 1000)
    return Produced(records, rate or None, latency if rate else None, failed=int(unsent + refused))


class RocketMQ:
    """The RocketMQ broker and its tools: see broker.Broker."""

    paces = False
    reads = False

    def __init__(self, bench: Bench) -> None:
        self._scripts = require(bench.peers, "rocketmq")
        pom = (self._scripts / "pom.xml").read_text()
        version = re.search(r"<rocketmq.version>(.*?)<", pom)
        self.facts = TargetFacts(
            name="rocketmq",
            kind="rocketmq",
            version=version[1] if version else None,
            driver="org.apache.rocketmq.example.benchmark.Producer",
        )
        self.data = bench.folder / "rocketmq"
        self._port = free_ports(BESIDE)

    @property
    def pid(self) -> int:
        """The id of its process."""
        return int((self.data / "broker.pid").read_text())

    def start(self, flush: str) -> None:
        """Start on the existing data; on return the broker serves."""
        settings = (f"flushDiskType={FLUSHES[flush]}", *PATIENT)
        run(self._scripts / "broker", "start", self.data, self._port, *settings)

    def stop(self) -> None:
        """Stop cleanly."""
        run(self._scripts / "broker", "stop", self.data)

    def kill(self) -> None:
        """Kill the process, as kill -9 does."""
        run(self._scripts / "broker", "kill", self.data)

    def not_done(self, workload: Workload) -> list[NotDone]:
        """Return the fields of a workload that the tools do not support."""
        missing = []
        if workload.own.records_per_request > 1:
            missing.append(NotDone("logserver.recordsPerRequest", ONE_RECORD))
        if workload.own.acks != "all" and workload.own.flush == "sync":
            missing.append(NotDone("logserver.acks", "the broker's flush mode alone decides"))
        if workload.own.flush == "os":
            missing.append(NotDone("logserver.flush", "ASYNC_FLUSH: twice a second"))
        return missing

    def create(self, topic: str, partitions: int) -> None:
        """Create a topic. A broker that has just started may refuse; trying again is harmless.

        The broker may accept the topic before the name server knows the broker. Producers find the topic only after
        that, so this waits for it.
        """
        queues = ("-r", partitions, "-w", partitions)
        broker = ("-b", f"127.0.0.1:{self._port + 10}")
        output = ""
        for _ in range(ADMIN_TRIES):
            output = self._run("admin", "updateTopic", *broker, "-t", topic, *queues)
            if "success" in output:
                self.stored(topic)
                return
        raise ServerFailed(f"mqadmin updateTopic: {output[-300:]!r}")

    def produce(
        self, topic: str, workload: Workload, records: int, *, rate: int = 0, warm: int = 0
    ) -> Produced:
        """Publish `warm` records, then `records` that count, as fast as possible."""
        threads = workload.under_way or FILL_THREADS
        size = ("-w", threads, "-s", workload.message_size, "-ri", REPORT_MS)
        warmed = None
        if warm:
            warmed = produced(self._run("produce", "-t", topic, *size, "-q", warm))
        found = produced(self._run("produce", "-t", topic, *size, "-q", records))
        if warmed is None:
            return found
        return found._replace(warm=warmed.records, failed=found.failed + warmed.failed)

    def follow(self, topic: str, group: str, records: int) -> Tool:
        """Raise ServerFailed: the benchmark consumer reports no counts and never ends."""
        raise ServerFailed("RocketMQ's benchmark consumer has no end")

    catch_up = follow

    def read(self, tool: Tool) -> tuple[int, float]:
        """Raise ServerFailed: there are no readers."""
        raise ServerFailed("RocketMQ's benchmark consumer has no end")

    def stored(self, topic: str) -> int:
        """Return the number of records in a topic. After a start the name server may take a while to know the topic's
        broker.
        """
        output = ""
        for _ in range(ADMIN_TRIES):
            output = self._run("admin", "topicStatus", "-t", topic)
            queues = QUEUE.findall(output)
            if queues:
                return sum(int(end) - int(begin) for begin, end in queues)
        raise ServerFailed(f"mqadmin topicStatus: {output[-300:]!r}")

    def load_s(self) -> float | None:
        """Return None: the broker's log has no such time."""
        return None

    def _run(self, name: str, *options: object) -> str:
        words = [*options, "-n", f"127.0.0.1:{self._port}"]
        with Tool(self._scripts / "perf", name, *words) as tool:
            return tool.output()
