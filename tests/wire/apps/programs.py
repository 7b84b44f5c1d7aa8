"""Programs of Kafka's Java libraries, started and watched, and what they read and write.

Owns how a program runs and how a topic is filled and read; must not know what the programs do.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import confluent_kafka
from confluent_kafka.admin import AdminClient, NewTopic

from tests.interop.peers import KAFKA

APPS = KAFKA.parent / "kafka_apps"
PARTITIONS = 2
PATIENCE_S = 90


class App:
    """A Java program that runs until it is ended; its output is in a file."""

    def __init__(self, classpath: str, output: Path, main: str, *arguments: str) -> None:
        options = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx384m", "-cp", classpath)
        self.output = output
        with output.open("wb") as file:
            self.process = subprocess.Popen(
                ["java", *options, main, *arguments], stdout=file, stderr=subprocess.STDOUT
            )

    def kill(self) -> None:
        """End it at once."""
        self.process.kill()
        self.process.wait()

    def stop(self) -> None:
        """Ask it to end, and wait."""
        self.process.terminate()
        self.process.wait(30)


def wait_for(condition: Callable[[], bool], app: App) -> None:
    """Wait until the condition holds; fail with the application's output if it does not."""
    until_s = time.monotonic() + PATIENCE_S
    while not condition():
        assert app.process.poll() is None, app.output.read_text()
        assert time.monotonic() < until_s, app.output.read_text()
        time.sleep(0.2)


def create(address: str, *topics: str) -> None:
    """Create topics."""
    admin = AdminClient({"bootstrap.servers": address})
    for made in admin.create_topics([NewTopic(name, PARTITIONS, 1) for name in topics]).values():
        made.result(10)


def write(address: str, topic: str, lines: Sequence[str]) -> None:
    """Send lines to a topic."""
    producer = confluent_kafka.Producer({"bootstrap.servers": address})
    for line in lines:
        producer.produce(topic, line)
    assert producer.flush(20) == 0


class Reader:
    """A reader of a topic from its beginning, of committed records unless it is to read all."""

    def __init__(self, address: str, topic: str, isolation: str = "read_committed") -> None:
        self.consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": address,
                "group.id": "reader",
                "isolation.level": isolation,
                "enable.auto.commit": False,
            }
        )
        self.consumer.assign(
            [confluent_kafka.TopicPartition(topic, n, 0) for n in range(PARTITIONS)]
        )
        self.records: list[tuple[str | None, str]] = []

    def read(self) -> int:
        """Read what has arrived; return the number of records so far."""
        while found := self.consumer.consume(500, 0.2):
            for record in found:
                assert record.error() is None
                key, value = record.key(), record.value()
                self.records.append((key and key.decode(), value.decode()))
        return len(self.records)

    def of_key(self, key: str) -> list[str]:
        """Return the values of a key."""
        return [value for found, value in self.records if found == key]
