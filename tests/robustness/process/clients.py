"""Producers and consumers of a server that may end at any moment, and a book of their requests, answers and reads.

Owns the client side: a client that does not know whether a request was stored repeats a numbered request, and never
repeats any other. The notes are judged by the one checker (tests/robustness/crash). Must not start or end servers.
"""

from __future__ import annotations

import http.client
import random
import threading
from base64 import b64decode, b64encode
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from typing import Any

from storage import OffsetBounds, ProducerSequence, Record, StoredRecord, TopicPartition
from tests.robustness.crash.history import (
    Acked,
    HeadGoing,
    HeadGone,
    History,
    Note,
    Recovered,
    Sent,
    Served,
    TopicMade,
    value_of,
)
from tests.robustness.crash.invariants import check_records, require
from tests.robustness.process.server import BINARY, Answer, Client

MOST_RECORDS = 4  # of one request
IN_A_HURRY = 0.1  # how often a numbered producer waits for only one millisecond
WAIT_MS = 100
TIMED_OUT = 504
OUT_OF_RANGE = 416
MOST_DELETED = 3  # records of one request to delete


class Gone(Exception):
    """The server reports that it is stopping."""


class Book:
    """A history that several clients write at the same time."""

    def __init__(self) -> None:
        self.history = History()
        self._lock = threading.Lock()
        self._requests = count()
        self._producer_ids: set[int] = set()

    def note(self, note: Note) -> None:
        """Add one note."""
        with self._lock:
            self.history.note(note)

    def send(
        self,
        partition: TopicPartition,
        records: int,
        *,
        size_bytes: int = 0,
        keyed: bool = False,
        producer: ProducerSequence | None = None,
        durable: bool = True,
    ) -> Sent:
        """Note a request of `records` records before it is sent."""
        with self._lock:
            request = next(self._requests)
            values = [value_of(request, index, size_bytes) for index in range(records)]
            sent = Sent(
                request,
                partition,
                [
                    Record(None, value, lookup_keys=lookup_keys(value) if keyed else ())
                    for value in values
                ],
                producer,
                durable,
            )
            self.history.note(sent)
            return sent

    def forget(self, sent: Sent) -> None:
        """Forget a request that was finally refused: from now on it counts as never sent."""
        with self._lock:
            del self.history.sent[sent.request]

    def make_topic(self, client: Client, name: str, partitions: int) -> None:
        """Create a topic."""
        answer = client.call("PUT", f"/topics/{name}", {"partitions": partitions})
        assert answer.status == 201, answer
        self.note(TopicMade(name, partitions))

    def new_producer_id(self, client: Client) -> int:
        """Return a new producer id. I3: if two producers had one id, their records would count as repeats."""
        answer = expect(client.call("POST", "/producers"))
        number: int = answer.body["producer_id"]
        with self._lock:
            require(number not in self._producer_ids, "I3", f"producer id {number} given twice")
            self._producer_ids.add(number)
        return number

    def check(self, client: Client, *, whole_batches: bool) -> int:
        """Check that everything promised is stored, and nothing else; return the number of records.

        Call this while no client writes.
        """
        return sum(
            self._check_partition(client, TopicPartition(name, number), whole_batches=whole_batches)
            for name, partitions in self.history.topics.items()
            for number in range(partitions)
        )

    def _check_partition(
        self, client: Client, partition: TopicPartition, *, whole_batches: bool
    ) -> int:
        name, number = partition
        rows = client.records(name, number, kind=BINARY)
        records = [as_record(row) for row in rows]
        ends = expect(client.call("GET", f"/topics/{name}/partitions/{number}/offsets")).body
        bounds = OffsetBounds(ends["beginning_offset"], ends["end_offset"], ends["end_offset"])
        head = self.history.heads.get(partition, 0)
        require(bounds.start >= head, "I3", f"{partition}: {bounds.start} to {head} are back")
        check_records(
            self.history, partition, records, bounds, killed=True, whole_batches=whole_batches
        )
        self.note(Recovered(partition, bounds.start, values_of(records)))
        return len(records)


def as_record(row: dict[str, Any]) -> StoredRecord:
    """Convert a row of a fetch answer."""
    return StoredRecord(
        row["offset"], row["timestamp"], _decoded(row["key"]), _decoded(row["value"])
    )


def _decoded(text: str | None) -> bytes | None:
    return None if text is None else b64decode(text)


def lookup_keys(value: bytes) -> list[str]:
    """Return the unique lookup key of a record: its number."""
    return [value.split(b" ")[0].decode()]


def values_of(records: Sequence[StoredRecord]) -> list[bytes]:
    """Return the values of the records, none of which is missing."""
    return [record.value or b"" for record in records]


def expect(answer: Answer) -> Answer:
    """Return the answer if it is a 200. Raises Gone while the server stops, AssertionError otherwise."""
    if answer.status == 503 and answer.body.get("state") == "stopping":
        raise Gone
    assert answer.status == 200, answer
    return answer


def produce(book: Book, client: Client, sent: Sent, *, query: str = "") -> Answer:
    """Send a noted request once; note its answer if it confirms that all records are stored."""
    topic, partition = sent.partition
    rows: list[dict[str, object]] = []
    for record in sent.records:
        row: dict[str, object] = {"value": b64encode(record.value or b"").decode()}
        if record.lookup_keys:
            row |= {"keys": record.lookup_keys, "tag": f"t{partition}"}
        rows.append(row)
    if sent.producer is not None:
        producer_id, epoch, sequence, _ = sent.producer
        query += f"&producer_id={producer_id}&producer_epoch={epoch}&sequence={sequence}"
    path = f"/topics/{topic}/partitions/{partition}?{query.lstrip('&')}"
    answer = client.produce(path, rows, kind=BINARY)
    if answer.status == 200:
        reported = answer.body["offsets"]
        assert [row["error_code"] for row in reported] == [None] * len(rows), answer
        base: int = reported[0]["offset"]
        assert [row["offset"] for row in reported] == list(range(base, base + len(rows))), answer
        book.note(Acked(sent.request, base))
    return answer


class Worker:
    """One client: it sends requests until its server ends, and continues with the next server."""

    def __init__(self, book: Book, partition: TopicPartition, seed: int) -> None:
        self.book = book
        self.partition = partition
        self.random = random.Random(seed)

    def step(self, client: Client) -> None:
        """Send one request. Raises Gone, AssertionError, or the errors of a broken connection."""
        raise NotImplementedError


class Producer(Worker):
    """A producer that sends each request once, some with acks=1."""

    keyed = False

    def step(self, client: Client) -> None:
        durable = self.random.random() < 0.8
        records = self.random.randint(1, MOST_RECORDS)
        sent = self.book.send(self.partition, records, keyed=self.keyed, durable=durable)
        expect(produce(self.book, client, sent, query="" if durable else "acks=1"))


class KeyedProducer(Producer):
    """A producer that sets a lookup key and a tag on each record."""

    keyed = True


class SequencedProducer(Worker):
    """A producer with sequence numbers: it repeats a request until it knows that the request is stored."""

    producer_id = -1
    sequence = 0
    unsure: Sent | None = None

    def step(self, client: Client) -> None:
        if self.producer_id < 0:
            self.producer_id = self.book.new_producer_id(client)
        self.unsure = self.unsure or self._next()
        hurried = self.random.random() < IN_A_HURRY
        query = "timeout=1" if hurried else ""
        answer = produce(self.book, client, self.unsure, query=query)
        if answer.status != TIMED_OUT or not hurried:
            expect(answer)
            self.unsure = None

    def _next(self) -> Sent:
        mark = ProducerSequence(self.producer_id, 0, self.sequence)
        records = self.random.randint(1, MOST_RECORDS)
        self.sequence += records
        return self.book.send(self.partition, records, producer=mark)


class Consumer(Worker):
    """A consumer that continues at its last offset, and notes the records it read."""

    next = 0

    def step(self, client: Client) -> None:
        topic, partition = self.partition
        path = f"/topics/{topic}/partitions/{partition}/records"
        query = f"offset={self.next}&timeout={WAIT_MS}&max_records=50"
        answer = client.call("GET", f"{path}?{query}", kind=BINARY)
        if answer.status == OUT_OF_RANGE:  # deleted meanwhile
            earliest = answer.body["earliest"]
            require(self.next < earliest, "I2", f"{self.partition} from {self.next}: {answer}")
            self.next = earliest
            return
        expect(answer)
        records = [as_record(row) for row in answer.body]
        offsets = [record.offset for record in records]
        require(
            offsets == list(range(self.next, self.next + len(records))),
            "I2",
            f"{topic}-{partition} from {self.next}: {offsets}",
        )
        self.book.note(Served(self.partition, self.next, values_of(records)))
        self.next += len(records)


class Deleter(Worker):
    """A client that deletes the first records of a partition, a few at a time."""

    def step(self, client: Client) -> None:
        topic, partition = self.partition
        path = f"/topics/{topic}/partitions/{partition}"
        ends = expect(client.call("GET", f"{path}/offsets")).body
        first, end = ends["beginning_offset"], ends["end_offset"]
        start = min(end, first + self.random.randint(0, MOST_DELETED))
        self.book.note(HeadGoing({self.partition: start}))
        expect(client.call("DELETE", f"{path}/records?before={start}"))
        self.book.note(HeadGone(self.partition, start))


class Crew:
    """Workers, each in its own thread while a server runs."""

    def __init__(self, workers: Sequence[Worker]) -> None:
        self.workers = list(workers)
        self._wrong: list[Exception] = []

    @contextmanager
    def at_work(self, url: str) -> Iterator[None]:
        """Run the workers inside the block, which must end the server; then raise the first problem found."""
        threads = [threading.Thread(target=self._work, args=(w, url)) for w in self.workers]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            for thread in threads:
                thread.join()
        if self._wrong:
            raise self._wrong[0]

    def _work(self, worker: Worker, url: str) -> None:
        with Client(url) as client:
            try:
                while not self._wrong:
                    worker.step(client)
            except (AssertionError, TimeoutError) as error:  # neither answered nor closed
                self._wrong.append(error)
            except (Gone, OSError, http.client.HTTPException):
                return
