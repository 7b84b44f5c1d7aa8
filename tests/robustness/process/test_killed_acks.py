"""kill -9 of a server whose consumers acknowledge records: each one is acknowledged or delivered again."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import pytest

from tests.robustness.process.backends import BACKENDS
from tests.robustness.process.server import Client, Server

QUICK, THOROUGH = 3, 10
RECORDS = 3000
SECONDS = 1.0
QUERY = "ack=manual&invisible_ms=200&timeout=200&max_bytes=3000"


class Reader:
    """Acknowledges every second record at once, and the others when they are delivered again.

    `asked`: acknowledged in a request, whose answer may have been lost with the server; `acked`: by its answer too.
    """

    def __init__(self) -> None:
        self.seen: dict[int, int] = {}
        self.asked: set[int] = set()
        self.acked: set[int] = set()
        self._name = 0

    def run(self, server: Server) -> None:
        try:
            with server.client() as client:
                self._name += 1
                path = joined(client, f"c{self._name}")
                while True:
                    self.step(client, path)
        except (OSError, ConnectionError, ValueError, AssertionError, EOFError):
            return  # the server was killed
        except Exception as error:  # http.client has errors of its own
            if type(error).__module__ != "http.client":
                raise

    def step(self, client: Client, path: str) -> int:
        answer = client.call("GET", f"{path}/records?{QUERY}")
        assert answer.status == 200, answer.body
        rows: list[dict[str, Any]] = answer.body
        for row in rows:
            self.seen[row["offset"]] = self.seen.get(row["offset"], 0) + 1
        done = [
            {name: row[name] for name in ("topic", "partition", "offset")}
            for row in rows
            if row["offset"] % 2 or self.seen[row["offset"]] > 1
        ]
        if done:
            offsets = {int(str(row["offset"])) for row in done}
            self.asked |= offsets
            answer = client.call("POST", f"{path}/ack", {"records": done})
            assert answer.status == 200, answer.body
            self.acked |= offsets
        return len(rows)


def joined(client: Client, name: str) -> str:
    """Create an instance that reads the topic; return its path."""
    body = {"name": name, "format": "json", "auto.offset.reset": "earliest"}
    assert client.call("POST", "/consumers/g", body).status == 200
    path = f"/consumers/g/instances/{name}"
    assert client.call("POST", f"{path}/subscription", {"topics": ["t"]}).status == 204
    return path


def progress(client: Client) -> int:
    rows = client.call("GET", "/groups/g").body.get("partitions", [])
    return rows[0]["committed"] or 0 if rows else 0


@pytest.mark.parametrize("backend", ["kafka", "rocketmq"])
def test_no_record_is_passed_over(tmp_path: Path, backend: str, thorough: bool) -> None:
    options = (*BACKENDS[backend].options, "--flush=sync")
    data = tmp_path / "data"
    with Server(data, *options) as server, server.client() as client:
        assert client.call("PUT", "/topics/t", {"partitions": 1}).status == 201
        values = [{"value": number} for number in range(RECORDS)]
        assert client.produce("/topics/t/partitions/0", values).status == 200
        server.stop()
    reader, reached = Reader(), 0
    for _ in range(THOROUGH if thorough else QUICK):
        with Server(data, *options) as server:
            thread = threading.Thread(target=reader.run, args=(server,))
            thread.start()
            time.sleep(SECONDS)
            server.kill()
            thread.join(timeout=30)
        with Server(data, *options) as server, server.client() as client:
            now = progress(client)
            assert now >= reached
            assert set(range(now)) <= set(reader.seen), "progress passes no record by"
            reached = now
            server.stop()
    assert len(reader.acked) > 50
    with Server(data, *options) as server, server.client() as client:
        first = min(set(range(RECORDS)) - reader.asked, default=RECORDS)
        assert reached <= first, "a record that was not acknowledged is above the progress"
        path = joined(client, "last")
        deadline_s = time.monotonic() + 60
        while len(reader.asked) < RECORDS and time.monotonic() < deadline_s:
            reader.step(client, path)
        assert reader.asked == set(range(RECORDS))
        assert progress(client) == RECORDS
        server.stop()
