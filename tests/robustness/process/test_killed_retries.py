"""kill -9 of a server while a group hands messages back: each one that was answered is delivered again, or is a dead
letter.
"""

from __future__ import annotations

import random
import threading
import time
from pathlib import Path

from tests.robustness.process.backends import BACKENDS
from tests.robustness.process.server import Client, Server

OPTIONS = (*BACKENDS["rocketmq"].options, "--set=messageDelayLevel=1s 1s 1s", "--flush=sync")
QUICK, THOROUGH = 3, 12
PATIENCE_S = 60
MESSAGES = 20
DEAD_EVERY = 5


class Member:
    """Hands messages back until the server is killed; remembers those that were answered."""

    def __init__(self, rows: list[dict[str, str]]) -> None:
        self.rows = rows
        self.acked: list[tuple[str, bool]] = []  # value, whether it is a dead letter
        self._count = 0

    def run(self, server: Server) -> None:
        try:
            with server.client() as client:
                while True:
                    self._count += 1
                    row = self.rows[self._count % len(self.rows)]
                    level = 0 if self._count % DEAD_EVERY else -1
                    body = {"message_id": row["message_id"], "delay_level": level}
                    answer = client.call("POST", "/groups/g/retry", body)
                    if answer.status == 200:
                        self.acked.append((row["value"], answer.body["dead"]))
        except (OSError, ConnectionError, ValueError, AssertionError, EOFError):
            return  # the server was killed
        except Exception as error:  # http.client has errors of its own
            if type(error).__module__ != "http.client":
                raise


def work(server: Server, members: list[Member], seconds: float) -> None:
    threads = [threading.Thread(target=member.run, args=(server,)) for member in members]
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


def prepared(client: Client) -> list[dict[str, str]]:
    """Create a topic with messages and a group with settings; return the messages."""
    assert client.call("PUT", "/topics/t", {"partitions": 1}).status == 201
    values = [{"value": f"{number}"} for number in range(MESSAGES)]
    answer = client.produce("/topics/t/partitions/0", values)
    assert answer.status == 200, answer.body
    assert client.call("PUT", "/groups/g/retry", {"max_times": 1000}).status == 200
    ids = [row["message_id"] for row in answer.body["offsets"]]
    return [{"value": f"{number}", "message_id": each} for number, each in enumerate(ids)]


def test_each_message_that_was_handed_back_is_delivered(tmp_path: Path, thorough: bool) -> None:
    data = tmp_path / "data"
    dice = random.Random(1)
    with Server(data, *OPTIONS) as server, server.client() as client:
        rows = prepared(client)
        server.stop()
    members = [Member(rows[at::2]) for at in range(2)]
    for _ in range(THOROUGH if thorough else QUICK):
        with Server(data, *OPTIONS) as server:
            work(server, members, dice.uniform(0.5, 2.5))
    with Server(data, *OPTIONS) as server, server.client() as client:
        until_delivered(client)
        retried = [row["value"] for row in client.records("%25RETRY%25g", 0)]
        dead = [row["value"] for row in client.records("%25DLQ%25g", 0)]
        assert client.call("GET", "/groups/g/retry").body["max_times"] == 1000
        server.stop()
    acked = [one for member in members for one in member.acked]
    for value in dict.fromkeys(value for value, _ in acked):
        assert retried.count(value) >= acked.count((value, False)), value
        assert dead.count(value) >= acked.count((value, True)), value
    assert len(acked) > 50
