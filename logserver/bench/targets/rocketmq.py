"""The real RocketMQ, driven by the benchmark producer of its own examples.

Owns what that takes and prints, and the broker's settings. Needs the scripts of tests/interop/peers/rocketmq.
"""

from __future__ import annotations

import re
from typing import Final

from logserver.bench.processes import ServerFailed
from logserver.bench.result import ONE_RECORD, Latency, NotDone, TargetFacts
from logserver.bench.targets import Bench
from logserver.bench.targets.broker import Produced
from logserver.bench.targets.tools import Tool, free_ports, require, run
from logserver.bench.workload import Workload

FLUSHES: Final = {"sync": "SYNC_FLUSH", "async": "ASYNC_FLUSH", "os": "ASYNC_FLUSH"}
PATIENT: Final = (
    "waitTimeMillsInSendQueue=10000",
    "osPageCacheBusyTimeOutMills=10000",
)  # else a busy one refuses
FILL_THREADS: Final = 16
REPORT_MS: Final = 1000
BESIDE: Final = (8, 10, 11)  # the broker's ports, so far behind the name server's
ADMIN_TRIES: Final = 30  # each takes a second or more
PRODUCED: Final = re.compile(
    r"^\[Complete\] Send Total: (\d+)"
    r"(?: \| Send TPS: (\d+) \| Max RT\(ms\): (\d+) \| Average RT\(ms\): +([\d.]+|NaN) \|)?"
    r" Send Failed: (\d+)(?: \|)? Response Failed: (\d+)",
    re.MULTILINE,
)
QUEUE: Final = re.compile(r"^\S+ +\d+ +(\d+) +(\d+) ", re.MULTILINE)


def produced(output: str) -> Produced:
    """What the benchmark told at its end: rate and latency are those of its last ten seconds, and it has none when it
    was done in one or two. Its total holds what failed to be sent, not what was answered with an error; its failures
    are those of its last whole second before. Raises ServerFailed.
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
    """The broker and its tools: see broker.Broker."""

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
        """Of its process."""
        return int((self.data / "broker.pid").read_text())

    def start(self, flush: str) -> None:
        """On the data that is there; on return it serves."""
        settings = (f"flushDiskType={FLUSHES[flush]}", *PATIENT)
        run(self._scripts / "broker", "start", self.data, self._port, *settings)

    def stop(self) -> None:
        """Cleanly."""
        run(self._scripts / "broker", "stop", self.data)

    def kill(self) -> None:
        """As kill -9 does."""
        run(self._scripts / "broker", "kill", self.data)

    def not_done(self, workload: Workload) -> list[NotDone]:
        """What its tools cannot do."""
        missing = []
        if workload.own.records_per_request > 1:
            missing.append(NotDone("logserver.recordsPerRequest", ONE_RECORD))
        if workload.own.acks != "all" and workload.own.flush == "sync":
            missing.append(NotDone("logserver.acks", "the broker's flush mode alone decides"))
        if workload.own.flush == "os":
            missing.append(NotDone("logserver.flush", "ASYNC_FLUSH: twice a second"))
        return missing

    def create(self, topic: str, partitions: int) -> None:
        """A topic. A broker that has just started may refuse; a second time changes nothing. It may also take it before
        the name server knows the broker, and producers find the topic only afterwards.
        """
        queues = ("-r", partitions, "-w", partitions)
        broker = ("-b", f"127.0.0.1:{self._port + 10}")
        told = ""
        for _ in range(ADMIN_TRIES):
            told = self._run("admin", "updateTopic", *broker, "-t", topic, *queues)
            if "success" in told:
                self.stored(topic)
                return
        raise ServerFailed(f"mqadmin updateTopic: {told[-300:]!r}")

    def produce(
        self, topic: str, workload: Workload, records: int, *, rate: int = 0, warm: int = 0
    ) -> Produced:
        """So many records as fast as possible, behind `warm` of them."""
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
        """Its benchmark consumer tells neither counts nor an end."""
        raise ServerFailed("RocketMQ's benchmark consumer has no end")

    catch_up = follow

    def read(self, tool: Tool) -> tuple[int, float]:
        """There are no readers."""
        raise ServerFailed("RocketMQ's benchmark consumer has no end")

    def stored(self, topic: str) -> int:
        """Records that the topic holds. The name server may learn only a while after a start who has it."""
        told = ""
        for _ in range(ADMIN_TRIES):
            told = self._run("admin", "topicStatus", "-t", topic)
            queues = QUEUE.findall(told)
            if queues:
                return sum(int(end) - int(begin) for begin, end in queues)
        raise ServerFailed(f"mqadmin topicStatus: {told[-300:]!r}")

    def load_s(self) -> float | None:
        """Its log tells no such time."""
        return None

    def _run(self, name: str, *options: object) -> str:
        words = [*options, "-n", f"127.0.0.1:{self._port}"]
        with Tool(self._scripts / "perf", name, *words) as tool:
            return tool.output()
