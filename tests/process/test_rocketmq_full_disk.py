"""A server on a RocketMQ store whose disk is full: 507, nothing lost, and on it goes with more space."""

from __future__ import annotations

from pathlib import Path

from tests.process.server import Server
from tests.process.test_full_disk import DISK_FULL, fill, small_disk, use_up, values

__all__ = ["small_disk"]

OPTIONS = (
    "--backend=rocketmq",
    "--set=mappedFileSizeCommitLog=65536",
    "--set=mappedFileSizeConsumeQueue=2000",
    "--set=maxHashSlotNum=500",
    "--set=maxIndexNum=2000",
)
VALUE = "x" * 2000


def test_a_full_volume(small_disk: Path) -> None:
    with Server(small_disk, *OPTIONS) as server, server.client() as client:
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
    with Server(small_disk, *OPTIONS) as server, server.client() as client:
        assert values(client, "t") == [*stored, "after"]
    assert sorted(path.name for path in small_disk.parent.iterdir()) == ["volume"]


def test_a_stop_on_a_full_disk_keeps_everything(small_disk: Path) -> None:
    ballast = small_disk / "ballast"
    with Server(small_disk, *OPTIONS) as server, server.client() as client:
        assert client.call("PUT", "/topics/t", {"partitions": 1}).status == 201
        ballast.write_bytes(bytes(500_000))
        stored = fill(client, "t")
        use_up(ballast)
        server.process.terminate()
        _, errors = server.process.communicate(timeout=30)
        assert "Traceback" not in errors
    ballast.unlink()
    with Server(small_disk, *OPTIONS) as server, server.client() as client:
        assert values(client, "t") == stored


def test_preallocated_files_take_no_space(small_disk: Path) -> None:
    """With the real store's own sizes, 1 GiB and 420 MB a file, on a disk of one megabyte."""
    with Server(small_disk, "--backend=rocketmq") as server, server.client() as client:
        for number in range(20):
            answer = client.produce("/topics/t", [{"value": f"{number} {VALUE}"}])
            assert answer.status == 200, answer
        server.stop()
    assert (small_disk / "commitlog" / f"{0:020}").stat().st_size == 1 << 30
