"""Reports to the service manager, received by a real datagram socket."""

from __future__ import annotations

import asyncio
import os
import socket
import threading
from pathlib import Path

import pytest

import api.server
from logserver.opening import StorePlan, plan_store
from logserver.service_manager import ServiceManager
from storage import LogStore, Progress
from storage.contract import no_progress
from tests.deploy.manager import managing
from tests.http.harness import settings


@pytest.fixture(params=["path", "abstract"])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An address of each kind that systemd gives."""
    return str(tmp_path / "notify") if request.param == "path" else f"@logserver-test-{os.getpid()}"


def test_reports_arrive(address: str) -> None:
    with managing(address) as received:
        manager = ServiceManager.from_environment({"NOTIFY_SOCKET": address})
        assert manager.is_present
        manager.ready("serves it")
        assert received.next() == {"READY": "1", "STATUS": "serves it"}
        manager.stopping()
        report = received.next()
        assert report.pop("STATUS").startswith("stopping")
        assert report == {"STOPPING": "1"}


def test_progress_extends_the_time_of_the_start(tmp_path: Path) -> None:
    """A recovery that reports the same progress again hangs: the manager may end it."""
    with managing(str(tmp_path / "notify")) as received:
        manager = ServiceManager(str(tmp_path / "notify"))
        manager.recovering(("examining partitions", 1, 9))
        assert received.next() == {
            "STATUS": "recovering: examining partitions, 1 of 9",
            "EXTEND_TIMEOUT_USEC": "120000000",
        }
        manager.recovering(("examining partitions", 1, 9))
        assert received.is_silent()
        manager.recovering(("examining partitions", 2, 9))
        assert received.next()["STATUS"].endswith("2 of 9")


def test_a_status_is_one_line_and_may_have_any_byte(tmp_path: Path) -> None:
    with managing(str(tmp_path / "notify")) as received:
        ServiceManager(str(tmp_path / "notify")).ready("a\nREADY=0\udcff")
        assert received.next() == {"READY": "1", "STATUS": r"a\nREADY=0\xff"}


@pytest.mark.parametrize("wrong", ["", "relative", "/no/such/socket", "@nobody-listens", "/a\0b"])
def test_a_manager_that_cannot_be_reached_is_no_error(wrong: str) -> None:
    ServiceManager(wrong).ready("serves it")


def test_without_a_manager_nothing_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "socket", None)  # an attempt to send would raise TypeError
    manager = ServiceManager.from_environment({})
    assert not manager.is_present
    manager.recovering(("examining partitions", 1, 9))
    manager.ready("serves it")
    manager.stopping()


class _Slow(StorePlan):
    """A store that recovers until the test lets it go on."""

    go_on = threading.Event()

    def open(self, progress: Progress) -> LogStore:
        """Report progress, wait, report more, open."""
        progress("examining partitions", 1, 2)
        assert self.go_on.wait(30)
        progress("examining partitions", 2, 2)
        return super().open(progress)


async def test_a_server_reports_recovery_start_and_stop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(api.server, "REPORT_EVERY_S", 0.001)
    chosen = settings(tmp_path / "data")
    plan = plan_store(chosen)
    slow = _Slow(**{name: getattr(plan, name) for name in StorePlan.__dataclass_fields__})
    started: list[api.server.Started] = []
    stop = asyncio.Event()
    with managing(str(tmp_path / "notify")) as received:
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        serving = asyncio.create_task(
            api.server._serve_until(stop, chosen, slow, started.append, no_progress)
        )
        first = await asyncio.to_thread(received.next)
        assert first["STATUS"] == "recovering: examining partitions, 1 of 2"
        assert not started
        slow.go_on.set()
        reports = await asyncio.to_thread(received.until, "READY")
        assert reports[-1]["STATUS"] == (
            f"serves the kafka store {tmp_path / 'data'} at {started[0].url}"
        )
        assert received.is_silent()
        stop.set()
        await serving
        assert [report.keys() for report in received.until("STOPPING")] == [{"STOPPING", "STATUS"}]
        assert received.is_silent()
