"""The real Kafka, driven by kafka-producer-perf-test and kafka-consumer-perf-test.

Owns the options and the output of these tools, and the broker's settings. Must not know the order of a repeat. Needs
the scripts of tests/interop/peers/kafka.
"""

from __future__ import annotations

import re
from typing import Final

from logserver.bench.processes import ServerFailed
from logserver.bench.result import Latency, NotDone, TargetFacts
from logserver.bench.targets.base import Bench
from logserver.bench.targets.broker import Produced
from logserver.bench.targets.tools import Tool, free_ports, require, run
from logserver.bench.workload import Workload

JVM: Final = "-Xshare:auto -XX:+UseG1GC -Xms1g -Xmx1g"  # as in Kafka's own scripts
FLUSHES: Final = {
    "sync": "log.flush.interval.messages=1",
    "async": "log.flush.interval.ms=500",
    "os": "",
}
RECORD_OVERHEAD: Final = 12  # bytes in a batch, about
BATCH_OVERHEAD: Final = 61
FULL_MS: Final = 1000  # linger.ms at full speed: the longest wait for a full batch
PACED_MS: Final = 5  # linger.ms at a rate: a longer wait would be reported as latency
FILL_UNDER_WAY: Final = 5  # concurrent requests: Kafka's default
BESIDE: Final = (1,)  # offset of the controller's port from the broker's
TIMEOUT: Final = ("--timeout", 120_000)  # ms; for readers, and for a group, which else waits 5 s
LOADED: Final = re.compile(r"Loaded \d+ logs in (\d+)ms")
PRODUCED: Final = re.compile(
    r"(\d+) (?:steady state )?records sent, ([\d.]+) records/sec \([\d.]+ MB/sec\), ([\d.]+) ms avg latency, "
    r"([\d.]+) ms max latency, (\d+) ms 50th, \d+ ms 95th, (\d+) ms 99th, (\d+) ms 99.9th"
)


def produced(output: str) -> Produced:
    """Parse the last report of kafka-producer-perf-test: the records after the warm-up. Raises ServerFailed."""
    found = PRODUCED.findall(output)
    if not found:
        raise ServerFailed(f"kafka-producer-perf-test: {output[-300:]!r}")
    records, rate, *latencies_ms = found[-1]
    mean, most, p50, p99, p99_9 = (float(value) * 1000 for value in latencies_ms)
    latency = Latency(
        count=int(records), mean_us=mean, max_us=most, p50_us=p50, p99_us=p99, p99_9_us=p99_9
    )
    return Produced(int(records), float(rate), latency)


class Kafka:
    """The Kafka broker and its tools: see broker.Broker."""

    paces = True
    reads = True

    def __init__(self, bench: Bench) -> None:
        self._scripts = require(bench.peers, "kafka")
        version = re.search(r"<kafka.version>(.*?)<", (self._scripts / "pom.xml").read_text())
        self.facts = TargetFacts(
            name="kafka",
            kind="kafka",
            version=version[1] if version else None,
            driver="kafka-producer-perf-test, kafka-consumer-perf-test",
        )
        self.data = bench.folder / "kafka"
        self._port = free_ports(BESIDE)

    @property
    def pid(self) -> int:
        """The id of its process."""
        return int((self.data / "pid").read_text())

    def start(self, flush: str) -> None:
        """Start on the existing data; on return the broker serves."""
        env = {"PEER_BROKER_JVM": JVM, "BROKER_PROPS": FLUSHES[flush]}
        run(self._scripts / "broker", "start", self.data, self._port, env=env)

    def stop(self) -> None:
        """Stop cleanly."""
        run(self._scripts / "broker", "stop", self.data)

    def kill(self) -> None:
        """Kill the process, as kill -9 does."""
        run(self._scripts / "broker", "kill", self.data)

    def not_done(self, workload: Workload) -> list[NotDone]:
        """Return the fields of a workload that the tools do not support."""
        missing = [NotDone("logserver.recordsPerRequest", "a batch.size that holds about so many")]
        if workload.under_way > 1:
            reason = f"one producer with {workload.under_way} requests under way"
            missing.append(NotDone("producersPerTopic", reason))
        if workload.producer_rate:
            reason = "latency counts from when a record was sent: publish_service alone"
            missing.append(NotDone("producerRate", reason))
        if workload.subscriptions_per_topic:
            reason = "no latency from end to end, and no rate: a reader's clock begins before the records come"
            missing.append(NotDone("subscriptionsPerTopic", reason))
        if workload.consumer_per_subscription != 1:
            missing.append(NotDone("consumerPerSubscription", "one process each"))
        return missing

    def create(self, topic: str, partitions: int) -> None:
        """Create a topic."""
        self._run("topics", "--create", "--topic", topic, "--partitions", partitions)

    def produce(
        self, topic: str, workload: Workload, records: int, *, rate: int = 0, warm: int = 0
    ) -> Produced:
        """Publish `warm` records, then `records` that count, at `rate` a second or, if 0, as fast as possible."""
        size = workload.own.records_per_request
        wait_ms = PACED_MS if rate else FULL_MS
        properties = [
            f"acks={workload.own.acks}",
            f"batch.size={BATCH_OVERHEAD + size * (workload.message_size + RECORD_OVERHEAD)}",
            f"max.in.flight.requests.per.connection={workload.under_way or FILL_UNDER_WAY}",
            "enable.idempotence=false",
            f"linger.ms={0 if size == 1 else wait_ms}",
        ]
        if workload.topics > 1:  # so that all partitions get records, as if each had a producer
            properties.append(
                "partitioner.class=org.apache.kafka.clients.producer.RoundRobinPartitioner"
            )
        options = [
            "--topic",
            topic,
            "--num-records",
            records + warm,
            "--record-size",
            workload.message_size,
        ]
        if warm:
            options += ["--warmup-records", warm]  # part of the records above
        options += ["--throughput", rate or -1, "--command-property", *properties]
        return produced(self._run("produce", *options))._replace(warm=warm)

    def follow(self, topic: str, group: str, records: int) -> Tool:
        """Start a reader of the next `records` records: the offsets of its group are first set to the log end."""
        to_the_end = ("--reset-offsets", "--to-latest", "--execute")
        output = self._run("groups", "--group", group, "--topic", topic, *to_the_end, *TIMEOUT)
        if "NEW-OFFSET" not in output:  # the exit status is 0 even on failure
            raise ServerFailed(f"kafka-consumer-groups: {output[-300:]!r}")
        return self.catch_up(topic, group, records)

    def catch_up(self, topic: str, group: str, records: int) -> Tool:
        """Start a reader of the first `records` records."""
        options = ["--topic", topic, "--group", group, "--num-records", records]
        return self._tool("consume", *options, *TIMEOUT)

    def read(self, tool: Tool) -> tuple[int, float]:
        """Wait until a reader ends; return its records and its records a second, without the wait for its
        partitions.
        """
        cells = tool.output().strip().rpartition("\n")[2].split(", ")
        try:
            return int(cells[4]), float(cells[9])
        except (IndexError, ValueError):
            raise ServerFailed(f"kafka-consumer-perf-test: {', '.join(cells)!r}") from None

    def stored(self, topic: str) -> int:
        """Return the number of records in a topic."""
        lines = self._run("offsets", "--topic", topic).split()
        return sum(int(line.rpartition(":")[2]) for line in lines if line.startswith(f"{topic}:"))

    def load_s(self) -> float | None:
        """Return the seconds that this start took to load the store, by the broker's log; None if the log has none."""
        found = LOADED.search((self.data / "server.log").read_text(errors="replace"))
        return None if found is None else int(found[1]) / 1000

    def _run(self, name: str, *options: object) -> str:
        with self._tool(name, *options) as tool:
            return tool.output()

    def _tool(self, name: str, *options: object) -> Tool:
        server = ("--bootstrap-server", f"127.0.0.1:{self._port}")
        return Tool(self._scripts / "perf", name, *server, *options)
