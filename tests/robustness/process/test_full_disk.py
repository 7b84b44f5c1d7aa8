"""A server on a full disk answers 507 in the documented form, loses nothing, and continues once there is space."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.robustness.process.backends import Backend
from tests.robustness.process.server import Client, Server

DISK_FULL = 50701
VALUE = "x" * 2000


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of one megabyte, like the volume of a container: the store's directory is its root."""
    target = tmp_path / "volume"
    target.mkdir()
    mount = shutil.which("mount")
    command = [mount or "mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(target)]
    if mount is None or subprocess.run(command, capture_output=True, check=False).returncode != 0:
        pytest.skip("mounting a small disk needs root (test_limits.py has files that may not grow)")
    yield target
    subprocess.run(["umount", str(target)], check=True)


def fill(client: Client, topic: str) -> list[str]:
    """Produce until the disk is full; return the acknowledged values."""
    stored: list[str] = []
    for number in range(1000):
        value = f"{number} {VALUE}"
        answer = client.produce(f"/topics/{topic}/partitions/0", [{"value": value}])
        if answer.status != 200:
            assert (answer.status, answer.body["error_code"]) == (507, DISK_FULL)
            assert "No space" in answer.body["message"] or "larger" in answer.body["message"]
            return stored
        stored.append(value)
    raise AssertionError("the disk did not fill up")


def use_up(ballast: Path) -> None:
    """Use up the remaining space."""
    with suppress(OSError), ballast.open("ab", buffering=0) as file:
        while file.write(bytes(4096)):
            pass


def values(client: Client, topic: str) -> list[str]:
    return [row["value"] for row in client.records(topic, 0)]


@pytest.mark.slow
def test_a_full_volume(small_disk: Path, backend: Backend) -> None:
    with Server(small_disk, *backend.options) as server, server.client() as client:
        assert client.call("PUT", "/topics/t", {"partitions": 1}).status == 201
        ballast = small_disk / "ballast"
        ballast.write_bytes(bytes(500_000))
        stored = fill(client, "t")
        assert len(stored) > 50
        assert values(client, "t") == stored, "what there is is served"
        assert client.call("GET", "/livez").status == 200
        assert client.call("GET", "/readyz").status == 503
        again = client.produce("/topics/t/partitions/0", [{"value": VALUE}])
        assert (again.status, again.body["error_code"]) == (507, DISK_FULL)
        use_up(ballast)
        refused = client.call("PUT", "/topics/u", {"partitions": 3})
        assert (refused.status, refused.body["error_code"]) == (507, DISK_FULL)
        ballast.unlink()
        assert client.call("GET", "/topics").body == ["t"]
        assert client.call("PUT", "/topics/u", {"partitions": 3}).status == 201
        answer = client.produce("/topics/t/partitions/0", [{"value": "after"}])
        assert answer.status == 200
        assert answer.body["offsets"][0]["offset"] == len(stored)
        assert client.call("GET", "/readyz").status == 200
        server.stop()
    with Server(small_disk, *backend.options) as server, server.client() as client:
        assert values(client, "t") == [*stored, "after"]
    assert sorted(path.name for path in small_disk.parent.iterdir()) == ["volume"]


@pytest.mark.slow
def test_a_stop_on_a_full_disk_keeps_everything(small_disk: Path, backend: Backend) -> None:
    ballast = small_disk / "ballast"
    with Server(small_disk, *backend.options) as server, server.client() as client:
        assert client.call("PUT", "/topics/t", {"partitions": 1}).status == 201
        ballast.write_bytes(bytes(500_000))
        stored = fill(client, "t")
        use_up(ballast)
        server.process.terminate()
        _, errors = server.process.communicate(timeout=30)
        assert "Traceback" not in errors
    ballast.unlink()
    with Server(small_disk, *backend.options) as server, server.client() as client:
        assert values(client, "t") == stored


@pytest.mark.slow
def test_preallocated_files_of_rocketmq_take_no_space(small_disk: Path) -> None:
    """The files have the real store's own sizes, 1 GiB and 420 MB, on a disk of one megabyte."""
    with Server(small_disk, "--backend=rocketmq") as server, server.client() as client:
        for number in range(20):
            answer = client.produce("/topics/t", [{"value": f"{number} {VALUE}"}])
            assert answer.status == 200, answer
        server.stop()
    assert (small_disk / "commitlog" / f"{0:020}").stat().st_size == 1 << 30
