"""SIGTERM while clients work: each client gets an answer or a closed connection, and the next start repairs nothing."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from tests.robustness.process.backends import Backend
from tests.robustness.process.life import Life
from tests.robustness.process.server import Server

GRACE_S = 10.0  # default of the setting: no client here takes that long


def test_a_stop_under_load(
    tmp_path: Path, backend: Backend, thorough: bool, figures: Callable[[str], None]
) -> None:
    stops = 4 if thorough else 1
    life = Life(tmp_path / "data", backend, seed=stops)
    life.make()
    for _ in range(stops):
        with Server(life.data, *backend.options) as server:
            life.check(server)
            assert_clean_start(server, backend)
            with life.crew.at_work(server.url):
                time.sleep(life.random.uniform(0.2, 0.5))
                began_s = time.monotonic()
                server.stop()
        assert time.monotonic() - began_s < GRACE_S
        assert backend.is_clean(life.data)
    with Server(life.data, *backend.options) as server:
        life.check(server)
        assert_clean_start(server, backend)
        server.stop()
    figures(f"SIGTERM under load, {backend.name}: {stops} stops, {life.counts()}")


def assert_clean_start(server: Server, backend: Backend) -> None:
    """I13: recovery found nothing and read only the ends of the newest files."""
    with server.client() as client:
        reported = client.call("GET", "/store").body
    found = reported["recovery"]
    assert found["clean_shutdown"]
    assert (found["findings"], found["losses"], found["indexes_rebuilt"]) == ([], [], 0), found
    newest = {"kafka": found["partitions"], "rocketmq": 1}[backend.name]
    assert found["segments_scanned"] <= newest, found
