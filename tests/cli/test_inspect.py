"""`logserver inspect`: numbers equal the real broker's numbers, and the output fits on a screen."""

from __future__ import annotations

from pathlib import Path

import pytest

from storage import Record, TopicPartition, open_store
from tests.cli.runner import fine, run
from tests.golden import stores
from tests.golden.stores import GoldenPartition, by_id


@pytest.mark.parametrize("partition", stores.partitions(), ids=by_id)
def test_numbers_of_a_partition(partition: GoldenPartition) -> None:
    expected = partition.json("times.json")["summary"]
    summary = run("inspect", partition.data).document
    assert summary["kind"] == "partition"
    (topic,) = summary["topics"]
    assert topic["topic"] == partition.address.topic
    (row,) = topic["partitions"]
    names = ("partition", "earliest", "latest", "latestReadCommitted", "maxTimestamp")
    assert {n: row[n] for n in names if n in expected} == {
        n: expected[n] for n in names if n in expected
    }
    assert row["segments"] == len(partition.log_files)
    assert row["sizeBytes"] == sum(path.stat().st_size for path in partition.log_files)
    records = partition.lines("expected.jsonl")
    assert row["firstTimestamp"] == (records[0]["timestamp"] if records else None)
    assert row["leaderEpoch"] == partition.epochs[-1][0]
    assert row["state"] is None
    is_open = row["latestReadCommitted"] < row["latest"]
    assert bool(row["openTransactions"]) == is_open
    assert [f["code"] for f in summary["findings"]] == ["hanging-transaction"] * is_open


@pytest.mark.parametrize("store", stores.healthy_stores())
def test_a_store(store: str) -> None:
    root = stores.KAFKA / store / "data"
    summary = run("inspect", root).document
    assert summary["path"] == str(root)
    assert (summary["backend"], summary["kind"]) == ("kafka", "store")
    assert (summary["cleanShutdown"], summary["adopted"]) == (True, False)
    reported = ["hanging-transaction"] if store == "txnopen" else []
    assert [finding["code"] for finding in summary["findings"]] == reported
    assert summary["recovery"]["cut"] == []
    found = [f"{t['topic']}-{p['partition']}" for t in summary["topics"] for p in t["partitions"]]
    assert sorted(found) == sorted(p.name for p in stores.partitions() if p.store == store)
    assert summary["partitionCount"] == len(found)
    assert summary["sizeBytes"] == sum(path.stat().st_size for path in root.glob("*/*.log"))
    for topic in summary["topics"]:
        metadata = root / f"{topic['topic']}-0" / "partition.metadata"
        assert metadata.read_text().endswith(topic["topicId"])


def test_a_store_of_ours(tmp_path: Path) -> None:
    store = open_store("kafka", tmp_path / "data")
    store.create_topic("orders", 2, {"segment.ms": "5000"})
    store.close()
    summary = fine("inspect", tmp_path / "data").document
    assert summary["adopted"] is True
    assert set(summary["identity"]) == {"version", "cluster.id", "node.id", "directory.id"}
    (topic,) = summary["topics"]
    assert topic["configs"] == {"segment.ms": "5000"}
    assert [p["maxTimestamp"] for p in topic["partitions"]] == [None, None]
    assert [p["firstTimestamp"] for p in topic["partitions"]] == [None, None]


def test_beside_the_server_that_owns_it(tmp_path: Path) -> None:
    """Commands run next to a server without a lock, and ignore the server's lock. They show the data at their start."""
    with open_store("kafka", tmp_path / "data") as store:
        store.create_topic("t", 1)
        for value in (b"one", b"two"):
            store.append(TopicPartition("t", 0), [Record(None, value)])
        summary = fine("inspect", tmp_path / "data").document
        assert summary["cleanShutdown"] is False
        assert summary["topics"][0]["partitions"][0]["latest"] == 2
        assert [r["offset"] for r in fine("dump", tmp_path / "data").rows] == [0, 1]
        found = fine("verify", tmp_path / "data").rows
        assert {row["severity"] for row in found} == {"info"}
        store.append(TopicPartition("t", 0), [Record(None, b"three")])


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("00000000000000000021.log", {"content": "log", "records": 81, "earliest": 21}),
        ("00000000000000000021.index", {"content": "index", "entries": 14}),
        ("00000000000000000021.timeindex", {"content": "timeindex", "entries": 7}),
        ("00000000000000000021.txnindex", {"content": "txnindex", "entries": 2}),
        ("00000000000000000021.snapshot", {"content": "snapshot", "entries": 2}),
        ("leader-epoch-checkpoint", {"content": "checkpoints", "entries": 1}),
    ],
)
def test_one_file(name: str, expected: dict[str, object]) -> None:
    path = stores.KAFKA / "txn/data/txn-mixed-0" / name
    summary = fine("inspect", path).document
    assert summary["kind"] == "file"
    assert (summary["topic"], summary["partition"]) == ("txn-mixed", 0)
    assert summary["sizeBytes"] == path.stat().st_size
    assert {name: summary[name] for name in expected} == expected


def test_the_screen() -> None:
    lines = fine("inspect", stores.KAFKA / "txn/data", "--output", "table").out.decode().split("\n")
    assert lines[0] == f"kafka store  {stores.KAFKA / 'txn/data'}"
    assert any(line.split() == ["cleanShutdown", "true"] for line in lines)
    row = next(line for line in lines if line.startswith("txn-mixed-0"))
    assert row.split()[1:5] == ["0", "574", "54.4", "KiB"]
    assert "2023-11-14 22:13" in row
    assert max(map(len, lines[1:])) <= 80
    assert len(lines) < 24


def test_the_screen_of_a_damaged_store() -> None:
    ended = run("inspect", stores.KAFKA / "torn/flip-active/data", "--output", "table")
    assert ended.code == 1
    text = ended.out.decode()
    assert "a start for writing is refused" in text
    assert "00000000000000001113.log at 3384" in text
    assert "[damaged-batch]" in text


def test_the_screen_of_a_file() -> None:
    path = stores.KAFKA / "txn/data/txn-mixed-0/00000000000000000021.index"
    assert "entries         14" in fine("inspect", path, "--output", "table").out.decode()
