"""kill -9 of a server in the middle of a cleaning: the newest record of every key is there, at each start."""

from __future__ import annotations

import random
import threading
import time
from pathlib import Path

from tests.robustness.process.backends import BACKENDS
from tests.robustness.process.server import Client, Server

OPTIONS = (
    *BACKENDS["kafka"].options,
    "--set=log.cleaner.backoff.ms=1",
    "--set=log.cleaner.enable=true",
    "--flush=sync",
)
QUICK, THOROUGH = 8, 40
CONFIGS = {
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "0.01",
    "file.delete.delay.ms": "200",
    "delete.retention.ms": "500",
}
KEYS, ROWS = 40, 100
VALUE = "v" * 100
PATIENCE_S = 60


class Writer:
    """Overwrites its own keys until the server is killed. A request without an answer may be stored or not."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.acked: dict[str, int | None] = {}
        self.doubtful: dict[str, set[int | None]] = {}
        self._dice = random.Random(number)
        self._count = 0

    def run(self, server: Server) -> None:
        try:
            with server.client() as client:
                while True:
                    self.step(client)
        except (OSError, ConnectionError, ValueError, AssertionError, EOFError):
            return  # the server was killed
        except Exception as error:  # http.client has errors of its own
            if type(error).__module__ != "http.client":
                raise

    def step(self, client: Client) -> None:
        rows: dict[str, int | None] = {}
        for _ in range(ROWS):
            self._count += 1
            key = f"{self.number}-{self._dice.randrange(KEYS)}"
            rows.pop(key, None)
            rows[key] = self._count if self._dice.random() < 0.9 else None
        for key, value in rows.items():
            self.doubtful.setdefault(key, set()).add(value)
        records = [
            {"key": key, "value": None if value is None else [value, VALUE]}
            for key, value in rows.items()
        ]
        answer = client.produce("/topics/t/partitions/0", records)
        assert answer.status == 200, answer.body
        self.acked |= rows
        for key in rows:
            del self.doubtful[key]

    def check(self, found: dict[str, int | None]) -> None:
        """Compare with the newest values that a reader of the whole topic has."""
        for key in self.acked.keys() | self.doubtful.keys():
            allowed = {self.acked.get(key), *self.doubtful.get(key, ())}
            assert found.get(key) in allowed, key
            self.acked[key] = found.get(key)
        self.doubtful.clear()


def newest(client: Client) -> dict[str, int | None]:
    found: dict[str, int | None] = {}
    previous = -1
    for row in client.records("t", 0):
        assert row["offset"] > previous
        previous = row["offset"]
        found[row["key"]] = None if row["value"] is None else row["value"][0]
    return found


def leftovers(data: Path) -> set[str]:
    return {path.suffix for path in (data / "t-0").iterdir()} & {".cleaned", ".swap", ".deleted"}


def until_cleaning(data: Path, dice: random.Random) -> None:
    """Wait until a file of a cleaning is there, and a moment more."""
    deadline_s = time.monotonic() + PATIENCE_S
    while not leftovers(data) and time.monotonic() < deadline_s:
        time.sleep(0.0005)
    time.sleep(dice.choice([0, 0, 0.0005, 0.002, 0.01]))


def test_no_newest_record_is_lost(tmp_path: Path, thorough: bool) -> None:
    data = tmp_path / "data"
    dice = random.Random(1)
    with Server(data, *OPTIONS) as server, server.client() as client:
        body = {"partitions": 1, "configs": CONFIGS}
        assert client.call("PUT", "/topics/t", body).status == 201
        server.stop()
    writers = [Writer(number) for number in range(2)]
    seen: set[str] = set()
    for _ in range(THOROUGH if thorough else QUICK):
        with Server(data, *OPTIONS) as server:
            with server.client() as client:
                found = newest(client)
            for writer in writers:
                writer.check(found)
            threads = [threading.Thread(target=writer.run, args=(server,)) for writer in writers]
            for thread in threads:
                thread.start()
            time.sleep(dice.uniform(0.2, 0.6))
            until_cleaning(data, dice)
            server.kill()
            for thread in threads:
                thread.join(timeout=30)
        seen |= leftovers(data)
    assert seen, "a kill left the files of a cleaning"
    with Server(data, *OPTIONS) as server, server.client() as client:
        found = newest(client)
        for writer in writers:
            writer.check(found)
        stats = client.call("GET", "/store").body["stats"]["compaction"]
        assert stats["uncleanable"] == []
        server.stop()
