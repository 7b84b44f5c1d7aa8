"""kill -9 of a server on a RocketMQ store in the middle of producing: nothing acknowledged is lost, not even by key.

The producers and what they check of each partition are those of the Kafka backend's test: a client sees no difference.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.cli.runner import fine, settings_options
from tests.golden.rocketmq_stores import by_golden_order, shown
from tests.interop import rocketmq_peers as peers
from tests.process.server import Client, Server
from tests.process.test_kill import Producer, check, producers

SIZES = {
    "mappedFileSizeCommitLog": "16384",
    "mappedFileSizeConsumeQueue": "2000",
    "maxHashSlotNum": "500",
    "maxIndexNum": "2000",
}
OPTIONS = (
    "--backend=rocketmq",
    "--set=defaultTopicQueueNums=4",
    *(f"--set={name}={value}" for name, value in SIZES.items()),
)
ASKED = 8


class KeyedProducer(Producer):
    """Gives each record a lookup key and a tag."""

    topic = "keyed"

    def _request(self, client: Client, path: str, numbers: range) -> None:
        records = [
            {"value": self.value(n), "keys": [self.value(n)], "tag": f"t{self.number}"}
            for n in numbers
        ]
        answer = client.produce(path, records)
        if answer.status == 200 and all(o["error_code"] is None for o in answer.body["offsets"]):
            self.acknowledged += numbers
        else:
            self.refused.append(answer)


def crew_of_all() -> list[Producer]:
    return [*producers(), *(KeyedProducer(n, 7 + n) for n in (2, 3))]


def produce_and_kill(data: Path, crew: list[Producer], delay_s: float) -> list[Producer]:
    """Start, check what is there, let them all send, kill after a while; gives the producers as they ended."""
    with Server(data, *OPTIONS) as server:
        check_all(server, crew)
        crew = [producer.again(server.url) for producer in crew]
        for producer in crew:
            producer.start()
        crew[0].join(delay_s)
        server.kill()
        for producer in crew:
            producer.join()
    assert [refusal for producer in crew for refusal in producer.refused] == []
    return crew


def check_all(server: Server, crew: list[Producer]) -> None:
    """Everything that was acknowledged is there, and found by key."""
    check(server, crew)
    with server.client() as client:
        for producer in crew:
            if isinstance(producer, KeyedProducer) and producer.acknowledged:
                _check_keys(client, producer)


def _check_keys(client: Client, producer: KeyedProducer) -> None:
    chosen = random.Random(len(producer.acknowledged))
    for number in chosen.choices(producer.acknowledged, k=ASKED):
        key = producer.value(number)
        query = f"key={key.replace('/', '%2F')}&tag=t{producer.number}"
        answer = client.call("GET", f"/topics/keyed/messages?{query}")
        assert answer.status == 200, answer
        assert [row["value"] for row in answer.body["records"]] == [key]
        assert answer.body["indexed"]
        message_id = answer.body["records"][0]["message_id"]
        found = client.call("GET", f"/messages/{message_id}")
        assert found.body["value"] == key


@pytest.mark.parametrize("cycles", [3, pytest.param(25, marks=pytest.mark.slow)])
def test_nothing_acknowledged_is_lost(tmp_path: Path, cycles: int) -> None:
    moments = random.Random(cycles)
    crew = crew_of_all()
    for _ in range(cycles):
        crew = produce_and_kill(tmp_path / "data", crew, moments.uniform(0.05, 0.5))
    with Server(tmp_path / "data", *OPTIONS) as server:
        check_all(server, crew)
        server.stop()
    with Server(tmp_path / "data", *OPTIONS) as server:
        check_all(server, crew)
    assert all(len(producer.acknowledged) > cycles for producer in crew)


@pytest.mark.java
def test_the_real_store_opens_what_is_left_of_a_kill(tmp_path: Path) -> None:
    """As the killed server left it, and as our own start leaves it: the same records."""
    data = tmp_path / "data"
    crew = produce_and_kill(data, crew_of_all(), 0.5)
    left = peers.run_rocketmq_opens(data, SIZES)
    assert left.store["lastExit"] == "abnormal"
    with Server(data, *OPTIONS) as server:
        check_all(server, crew)
        server.stop()
    recovered = peers.run_rocketmq_opens(data, SIZES)
    assert recovered.store["lastExit"] == "normal"
    rows = fine("dump", data, *settings_options(SIZES)).rows
    mine = [by_golden_order(shown(row)) for row in rows]
    assert [row for part in recovered.messages.values() for row in part] == mine
    for place, found in left.messages.items():
        assert recovered.messages[place][: len(found)] == found
