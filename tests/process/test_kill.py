"""kill -9 in the middle of producing, again and again: nothing acknowledged is lost, nothing is there twice.

Several producers wait for acks=all. After each kill the server is started on what is there: offsets are dense, every
acknowledged record stands once, in its producer's order. A sequenced producer sends its last request again, not knowing
whether it was stored: in the end its records stand once each, without a gap.
"""

from __future__ import annotations

import http.client
import random
import threading
from collections import Counter
from pathlib import Path

import pytest

from tests.process.server import Client, Server

OPTIONS = (
    "--set=internal.segment.bytes=30000",
    "--set=index.interval.bytes=500",
    "--set=num.partitions=4",
)
PLAIN = "plain"
SEQUENCED = "sequenced"


class Producer(threading.Thread):
    """Sends numbered records until the server goes away."""

    topic = PLAIN

    def __init__(self, number: int, seed: int) -> None:
        super().__init__()
        self.number = number
        self.next = 0  # the next record's number
        self.acknowledged: list[int] = []
        self.refused: list[object] = []
        self.url = ""
        self._random = random.Random(seed)

    def again(self, url: str) -> Producer:
        """The same producer, to be started on another server."""
        other = type(self)(self.number, self._random.getrandbits(32))
        other.next, other.acknowledged, other.url = self.next, self.acknowledged, url
        return other

    def value(self, number: int) -> str:
        """What a record holds: who sent it, and which it is."""
        return f"{self.number}/{number}"

    def run(self) -> None:
        with Client(self.url) as client:
            try:
                while not self.refused:
                    self.send(client)
            except (OSError, http.client.HTTPException):
                return

    def send(self, client: Client) -> None:
        """One request of some records."""
        numbers = range(self.next, self.next + self._random.randint(1, 4))
        self.next = numbers.stop  # sent once, stored or not
        self._request(client, f"/topics/{self.topic}/partitions/{self.number}", numbers)

    def _request(self, client: Client, path: str, numbers: range) -> None:
        answer = client.produce(path, [{"value": self.value(n)} for n in numbers])
        if answer.status == 200 and all(o["error_code"] is None for o in answer.body["offsets"]):
            self.acknowledged += numbers
        else:
            self.refused.append(answer)


class SequencedProducer(Producer):
    """Numbers its records for the server, and sends them again until they are acknowledged."""

    topic = SEQUENCED

    def __init__(self, number: int, seed: int) -> None:
        super().__init__(number, seed)
        self.producer_id = -1
        self.unsure: range | None = None

    def again(self, url: str) -> Producer:
        other = super().again(url)
        assert isinstance(other, SequencedProducer)
        other.producer_id, other.unsure = self.producer_id, self.unsure
        return other

    def send(self, client: Client) -> None:
        if self.producer_id < 0:
            self.producer_id = client.call("POST", "/producers").body["producer_id"]
        numbers = self.unsure or range(self.next, self.next + self._random.randint(1, 4))
        self.unsure = numbers
        mark = f"producer_id={self.producer_id}&producer_epoch=0&sequence={numbers.start}"
        path = f"/topics/{SEQUENCED}/partitions/{self.number}?{mark}"
        self._request(client, path, numbers)
        self.next, self.unsure = numbers.stop, None


def producers() -> list[Producer]:
    return [kind(n, 10 * n) for kind in (Producer, SequencedProducer) for n in (0, 1)]


def produce_and_kill(data: Path, crew: list[Producer], delay_s: float) -> list[Producer]:
    """Start, check what is there, let them all send, kill after a while; gives the producers as they ended."""
    with Server(data, *OPTIONS) as server:
        check(server, crew)
        crew = [producer.again(server.url) for producer in crew]
        for producer in crew:
            producer.start()
        crew[0].join(delay_s)
        server.kill()
        for producer in crew:
            producer.join()
    assert [refusal for producer in crew for refusal in producer.refused] == []
    return crew


def check(server: Server, crew: list[Producer]) -> None:
    """Everything that was acknowledged is there, once, in order, at dense offsets."""
    with server.client() as client:
        known = client.call("GET", "/topics").body
        for producer in crew:
            if producer.acknowledged or producer.topic in known:
                _check_partition(client, producer)


def _check_partition(client: Client, producer: Producer) -> None:
    rows = client.records(producer.topic, producer.number)
    assert [row["offset"] for row in rows] == list(range(len(rows)))
    found = [row["value"] for row in rows]
    assert [value for value, count in Counter(found).items() if count > 1] == []
    acknowledged = [producer.value(number) for number in producer.acknowledged]
    kept = set(acknowledged)
    assert [value for value in found if value in kept] == acknowledged
    unsure = {producer.value(number) for number in range(producer.next + 4)}
    assert set(found) <= unsure
    if producer.topic == SEQUENCED:
        assert found == [producer.value(number) for number in range(len(found))]


@pytest.mark.parametrize("cycles", [3, pytest.param(25, marks=pytest.mark.slow)])
def test_nothing_acknowledged_is_lost(tmp_path: Path, cycles: int) -> None:
    moments = random.Random(cycles)
    crew = producers()
    for _ in range(cycles):
        crew = produce_and_kill(tmp_path / "data", crew, moments.uniform(0.05, 0.5))
    with Server(tmp_path / "data", *OPTIONS) as server:
        check(server, crew)
        server.stop()
    with Server(tmp_path / "data", *OPTIONS) as server:
        check(server, crew)
    assert all(len(producer.acknowledged) > cycles for producer in crew)
