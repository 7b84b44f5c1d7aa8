"""RocketMQ records with damage in parts that no checksum covers: their rows are marked, and the records are counted."""

from __future__ import annotations

from pathlib import Path

import pytest

from storage import Record, StoreOptions, TopicPartition, open_store
from tests.cli.runner import run
from tests.http.harness import opener, serving, settings

T0 = TopicPartition("t", 0)
SIZES = {"mappedFileSizeCommitLog": "16384", "maxHashSlotNum": "10", "maxIndexNum": "50"}
OLD = b"colour\x01blue"


@pytest.mark.parametrize("new", [b"colour\x01b\0\0e", b"colour=blue", b"\0" * len(OLD)])
async def test_a_damaged_property_is_served_as_suspect(tmp_path: Path, new: bytes) -> None:
    root = tmp_path / "store"
    with open_store("rocketmq", root, StoreOptions(settings=SIZES)) as store:
        store.create_topic("t", 1)
        for value in (b"good", b"hit", b"good too"):
            headers = [("colour", b"blue"), ("n", b"x")]
            store.append(T0, [Record(None, value, headers, lookup_keys=["k"])])
    hit(root, new)
    chosen = settings(root)
    parts = [None, ["properties"], None]
    async with serving(chosen, opener("rocketmq", chosen)) as api:
        rows = (await api.get("/topics/t/partitions/0/records?format=text")).json
        assert [row["value"] for row in rows] == ["good", "hit", "good too"]
        assert [row.get("suspect") for row in rows] == parts
        metrics = (await api.get("/metrics")).body.decode()
        assert "logserver_store_suspect_records_total 1.0" in metrics
        found = (await api.get("/topics/t/messages?format=text&key=k")).json["records"]
        assert sorted(row.get("suspect", []) for row in found) == [[], [], ["properties"]]
    for command in (("dump", root), ("find", root, "--topic", "t", "--key", "k")):
        dumped = sorted(run(*command).rows, key=lambda row: row["queueOffset"])
        assert [row.get("suspect") for row in dumped] == parts


def hit(root: Path, new: bytes) -> None:
    """Overwrite bytes in the properties of the second record."""
    (path, *_) = sorted((root / "commitlog").iterdir())
    data = path.read_bytes()
    at = data.index(OLD, data.index(b"hit"))
    with path.open("r+b") as file:
        file.seek(at)
        file.write(new)
