"""kill -9 of a server that schedules and delivers: each acknowledged record is delivered, in order and not early."""

from __future__ import annotations

import random
import threading
import time
from pathlib import Path
from typing import Any

from tests.robustness.process.backends import BACKENDS
from tests.robustness.process.server import Client, Server

OPTIONS = (*BACKENDS["rocketmq"].options, "--set=messageDelayLevel=1s 2s", "--flush=sync")
QUICK, THOROUGH = 3, 12
PATIENCE_S = 60
PARTITIONS = 2


class Sender:
    """Sends delayed records to one partition until the server is killed; remembers those that were answered."""

    def __init__(self, number: int, level: int) -> None:
        self.number = number
        self.level = level
        self.acked: list[tuple[str, int]] = []  # value, time of the delivery
        self._count = 0

    @property
    def partition(self) -> int:
        return self.number % PARTITIONS

    def run(self, server: Server) -> None:
        path = f"/topics/t/partitions/{self.partition}"
        try:
            with server.client() as client:
                while True:
                    self._count += 1
                    value = f"{self.number}:{self._count}"
                    answer = client.produce(path, [{"value": value, "delay_level": self.level}])
                    if answer.status == 200:
                        self.acked.append((value, answer.body["offsets"][0]["deliver_at"]))
        except (OSError, ConnectionError, ValueError, AssertionError, EOFError):
            return  # the server was killed
        except Exception as error:  # http.client has errors of its own
            if type(error).__module__ != "http.client":
                raise


def work(server: Server, senders: list[Sender], seconds: float) -> None:
    threads = [threading.Thread(target=sender.run, args=(server,)) for sender in senders]
    for thread in threads:
        thread.start()
    time.sleep(seconds)
    server.kill()
    for thread in threads:
        thread.join(timeout=30)


def until_delivered(client: Client) -> None:
    deadline_s = time.monotonic() + PATIENCE_S
    while client.call("GET", "/delayed?limit=1").body["delayed"]:
        assert time.monotonic() < deadline_s
        time.sleep(0.1)


def test_each_acknowledged_record_is_delivered(tmp_path: Path, thorough: bool) -> None:
    data = tmp_path / "data"
    dice = random.Random(1)
    senders = [Sender(number, 1 + number // PARTITIONS) for number in range(2 * PARTITIONS)]
    with Server(data, *OPTIONS) as server, server.client() as client:
        assert client.call("PUT", "/topics/t", {"partitions": PARTITIONS}).status == 201
        server.stop()
    for _ in range(THOROUGH if thorough else QUICK):
        with Server(data, *OPTIONS) as server:
            work(server, senders, dice.uniform(0.5, 2.5))
    with Server(data, *OPTIONS) as server, server.client() as client:
        until_delivered(client)
        rows: list[dict[str, Any]] = []
        for partition in range(PARTITIONS):
            rows += client.records("t", partition)
        server.stop()
    for sender in senders:
        check(sender, [row for row in rows if row["partition"] == sender.partition])
    assert sum(len(sender.acked) for sender in senders) > 50


def check(sender: Sender, rows: list[dict[str, Any]]) -> None:
    """Check that every answered record came at its time or later, the first ones in the order they were sent."""
    delivered: dict[str, int] = {}
    for row in rows:
        delivered.setdefault(row["value"], row["store_timestamp"])
    for value, due_ms in sender.acked:
        assert delivered[value] >= due_ms, value
    mine = [
        int(value.split(":")[1]) for value in delivered if value.startswith(f"{sender.number}:")
    ]
    assert mine == sorted(mine)
