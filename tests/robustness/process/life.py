"""One store across the lives of its servers, with a producer and a consumer for each partition.

Owns the set of clients and the checks at each start; must not choose when a server ends.
"""

from __future__ import annotations

import random
import time
from pathlib import Path

from storage import TopicPartition
from tests.robustness.process.backends import Backend
from tests.robustness.process.clients import (
    Book,
    Consumer,
    Crew,
    Deleter,
    KeyedProducer,
    Producer,
    SequencedProducer,
    Worker,
)
from tests.robustness.process.server import Client, Server, start

PLAIN, SEQUENCED, KEYED = "plain", "sequenced", "keyed"
KINDS: dict[str, type[Worker]] = {
    PLAIN: Producer,
    SEQUENCED: SequencedProducer,
    KEYED: KeyedProducer,
}
PARTITIONS = 2
ASKED = 8  # number of lookups by key at each start
OPENING_S = 30.0


class Life:
    """One store across the lives of its servers, with a producer and a consumer for each partition."""

    def __init__(self, data: Path, backend: Backend, seed: int) -> None:
        self.data = data
        self.backend = backend
        self.book = Book()
        self.random = random.Random(seed)
        self.topics = [PLAIN, SEQUENCED, *([KEYED] if backend.name == "rocketmq" else [])]
        self.records = 0
        self.starts_killed = 0
        partitions = [TopicPartition(t, n) for t in self.topics for n in range(PARTITIONS)]
        workers: list[Worker] = [
            kind(self.book, partition, self.random.getrandbits(32))
            for partition in partitions
            for kind in (KINDS[partition.topic], Consumer)
        ]
        if backend.name == "kafka":
            partition = TopicPartition(PLAIN, PARTITIONS - 1)
            workers.append(Deleter(self.book, partition, self.random.getrandbits(32)))
        self.crew = Crew(workers)

    def make(self) -> None:
        """Create the store and its topics."""
        with Server(self.data, *self.backend.options) as server, server.client() as client:
            for topic in self.topics:
                self.book.make_topic(client, topic, PARTITIONS)
            server.stop()

    def work_and_kill(self, delay_s: float) -> None:
        """Start, check the stored records, let all clients work, and kill the server after a delay."""
        with Server(self.data, *self.backend.options) as server:
            self.check(server)
            with self.crew.at_work(server.url):
                time.sleep(delay_s)
                server.kill()

    def kill_starting(self) -> None:
        """Start, and kill some milliseconds after the server begins to open the store. It may serve by then."""
        process = start(self.data, *self.backend.options)
        try:
            until_opening(process.pid, self.data)
            time.sleep(self.random.uniform(0, 0.06))
        finally:
            process.kill()
            reported, _ = process.communicate()
        self.starts_killed += not reported

    def check(self, server: Server) -> None:
        """Check everything that the book promises; look up records by their key."""
        with server.client() as client:
            self.records = self.book.check(client, whole_batches=self.backend.whole_batches)
            if KEYED in self.topics:
                self._check_keys(client)

    def _check_keys(self, client: Client) -> None:
        history = self.book.history
        keyed = [sent for n in history.acked if (sent := history.sent[n]).partition.topic == KEYED]
        for sent in self.random.choices(keyed, k=ASKED) if keyed else ():
            record = self.random.choice(sent.records)
            assert record.value is not None
            query = f"key={record.lookup_keys[0]}&tag=t{sent.partition.partition}&format=text"
            answer = client.call("GET", f"/topics/{KEYED}/messages?{query}")
            assert answer.status == 200, answer
            assert [row["value"] for row in answer.body["records"]] == [record.value.decode()]
            assert answer.body["indexed"]
            message_id = answer.body["records"][0]["message_id"]
            found = client.call("GET", f"/messages/{message_id}?format=text")
            assert found.body["value"] == record.value.decode()

    def counts(self) -> str:
        """Return the counts of this life as text."""
        history = self.book.history
        acknowledged = sum(len(history.sent[request].records) for request in history.acked)
        served = sum(map(len, history.served.values()))
        return (
            f"{acknowledged} records acknowledged, {served} seen by consumers, {self.records} there"
        )


def until_opening(pid: int, data: Path) -> None:
    """Wait until a process has a file of the store open."""
    deadline_s = time.monotonic() + OPENING_S
    while not has_open(pid, data):
        assert time.monotonic() < deadline_s, "the server does not open its store"
        time.sleep(0.001)


def has_open(pid: int, data: Path) -> bool:
    """Return whether a process currently has a file below this directory open."""
    for number in Path(f"/proc/{pid}/fd").iterdir():
        try:
            if number.readlink().is_relative_to(data):
                return True
        except FileNotFoundError:  # closed meanwhile
            continue
    return False
