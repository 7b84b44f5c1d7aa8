"""`logserver dump` prints the same as the real Kafka's tools for every golden store."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from storage import StoreOptions, open_store
from tests.cli.runner import Ended, fine, place_of, run, settings_options
from tests.golden import rocketmq_stores, stores
from tests.golden.stores import GoldenPartition, by_id

ALL = stores.partitions()
each_partition = pytest.mark.parametrize("partition", ALL, ids=by_id)
TRANSACTIONAL = [p for p in ALL if (p.expect / stores.COMMITTED).exists()]
INDEX_KINDS = {
    "index": ".index",
    "timeindex": ".timeindex",
    "txnindex": ".txnindex",
    "snapshot": ".snapshot",
}
TXN = GoldenPartition("txn", "txn-mixed-0")


def dump(partition: GoldenPartition, *options: object) -> Ended:
    """Dump a partition of a store."""
    return fine("dump", partition.root, *place_of(partition.address), *options)


def in_order(document: Any) -> str:
    """Return a JSON value as text, with the order of its fields."""
    return json.dumps(document)


@each_partition
def test_records(partition: GoldenPartition) -> None:
    expected = partition.lines("expected.jsonl")
    assert list(map(in_order, dump(partition).rows)) == list(map(in_order, expected))


@pytest.mark.parametrize("partition", TRANSACTIONAL, ids=by_id)
def test_committed_records(partition: GoldenPartition) -> None:
    found = dump(partition, "--isolation", "read_committed").rows
    assert found == partition.lines(stores.COMMITTED)


@each_partition
def test_batches(partition: GoldenPartition) -> None:
    document = dump(partition, "--what", "batches", "--output", "json").document
    assert in_order(document) == in_order(partition.json("batches.json"))


@each_partition
def test_a_row_for_every_batch(partition: GoldenPartition) -> None:
    topic, number = partition.address
    expected = [
        {"topic": topic, "partition": number, "file": file, **batch}
        for file, batches in partition.json("batches.json").items()
        for batch in batches
    ]
    assert in_order(dump(partition, "--what", "batches").rows) == in_order(expected)


@pytest.mark.one_in(3)
@each_partition
@pytest.mark.parametrize("kind", INDEX_KINDS)
def test_index_files(partition: GoldenPartition, kind: str) -> None:
    expected = {
        file: entries
        for file, entries in partition.json("indexes.json").items()
        if file.endswith(INDEX_KINDS[kind])
    }
    document = dump(partition, "--what", kind, "--output", "json").document
    assert in_order(document) == in_order(expected)
    topic, number = partition.address
    rows = [
        {"topic": topic, "partition": number, "file": file, "entries": entries}
        for file, entries in expected.items()
    ]
    assert dump(partition, "--what", kind).rows == rows


@pytest.mark.parametrize("store", stores.healthy_stores())
def test_a_store_is_its_partitions(store: str) -> None:
    root = stores.KAFKA / store / "data"
    expected = [row for p in ALL if p.store == store for row in p.lines("expected.jsonl")]
    rows = fine("dump", root).rows
    assert sorted(rows, key=_place) == sorted(expected, key=_place)


def _place(row: dict[str, Any]) -> tuple[str, int, int]:
    return row["topic"], row["partition"], row["offset"]


@each_partition
def test_a_partition_directory(partition: GoldenPartition) -> None:
    """A dump of a partition folder uses the marker and checkpoints of the surrounding store, as the log start shows."""
    assert fine("dump", partition.data).rows == partition.lines("expected.jsonl")


@each_partition
def test_single_logs(partition: GoldenPartition) -> None:
    """A single file has no log start, so no record in it is hidden."""
    start = partition.json("times.json")["summary"]["earliest"]
    rows = [row for path in partition.log_files for row in fine("dump", path).rows]
    assert [row for row in rows if row["offset"] >= start] == partition.lines("expected.jsonl")
    for path in partition.log_files:
        document = fine("dump", path, "--what", "batches", "--output", "json").document
        expected = partition.json("batches.json")
        assert document == {name: expected[name] for name in expected if name == path.name}


@each_partition
def test_single_index_files(partition: GoldenPartition) -> None:
    for name, entries in partition.json("indexes.json").items():
        assert fine("dump", partition.data / name, "--output", "json").document == {name: entries}


def test_records_as_one_document() -> None:
    rows = dump(TXN, "--output", "json").document
    assert rows == TXN.lines("expected.jsonl")
    assert fine("dump", stores.KAFKA / "edge/data/edge-empty-0", "--output", "json").document == []


def test_several_partitions_as_one_document() -> None:
    options = ("--topic", "txn-two", "--what", "batches", "--output", "json")
    document = fine("dump", TXN.root, *options).document
    two = [p for p in ALL if p.address.topic == "txn-two"]
    assert document == {p.name: p.json("batches.json") for p in two}


def test_records_as_a_table() -> None:
    lines = dump(TXN, "--output", "table").out.decode().splitlines()
    assert lines[0].split() == list(TXN.lines("expected.jsonl")[0])
    assert len(lines) == 1 + len(TXN.lines("expected.jsonl"))
    assert len({line[: len("txn-mixed  0")] for line in lines[1:]}) == 1


def test_index_entries_as_a_table() -> None:
    lines = dump(TXN, "--what", "index", "--output", "table").out.decode().splitlines()
    assert lines[0].split() == ["topic", "partition", "file", "offset", "position"]
    expected = TXN.json("indexes.json")
    pairs = [pair for name in expected if name.endswith(".index") for pair in expected[name]]
    assert [list(map(int, line.split()[-2:])) for line in lines[1:]] == pairs


def test_checkpoints_of_a_store() -> None:
    root = stores.KAFKA / "epochs/data"
    document = fine("dump", root, "--what", "checkpoints", "--output", "json").document
    assert document[""]["recovery-point-offset-checkpoint"] == [
        {"topic": "epoch-idem", "partition": 0, "offset": 1203},
        {"topic": "epoch-sparse", "partition": 0, "offset": 35},
    ]
    assert [*document[""][".kafka_cleanshutdown"][0]] == ["version", "brokerEpoch"]
    epochs = document["epoch-idem-0"]["leader-epoch-checkpoint"]
    assert [(e["epoch"], e["startOffset"]) for e in epochs] == [
        (0, 0),
        (2, 103),
        (4, 306),
        (6, 660),
    ]
    (metadata,) = document["epoch-idem-0"]["partition.metadata"]
    text = (root / "epoch-idem-0/partition.metadata").read_text()
    assert text == f"version: {metadata['version']}\ntopic_id: {metadata['topicId']}"


def test_checkpoints_of_a_partition() -> None:
    """Lines of the root's checkpoints for the partition are shown, and the partition's own files."""
    rows = fine("dump", stores.KAFKA / "epochs/data/epoch-sparse-0", "--what", "checkpoints").rows
    by_file = {row["file"]: row["entries"] for row in rows}
    assert by_file["replication-offset-checkpoint"] == [
        {"topic": "epoch-sparse", "partition": 0, "offset": 35}
    ]
    assert "partition.metadata" in by_file
    assert ".kafka_cleanshutdown" not in by_file


@pytest.mark.parametrize(
    "name", ["leader-epoch-checkpoint", "partition.metadata", "../cleaner-offset-checkpoint"]
)
def test_single_small_files(name: str) -> None:
    path = (stores.KAFKA / "compacted/data/compact-lz4-0" / name).resolve()
    (row,) = fine("dump", path).rows
    assert row["file"] == path.name
    assert row["entries"]


def test_meta_properties(tmp_path: Path) -> None:
    path = tmp_path / "meta.properties"
    path.write_text("version=1\ncluster.id=abc\nnode.id=7\n")
    (row,) = fine("dump", path).rows
    assert row["entries"] == [{"version": "1", "cluster.id": "abc", "node.id": "7"}]


def test_a_file_that_was_deleted_already_can_still_be_read() -> None:
    folder = stores.KAFKA / "compacted/data/compact-none-0"
    path = min(folder.glob("*.log.deleted"))
    assert fine("dump", path).rows[0]["topic"] == "compact-none"


def test_read_committed_of_one_file_is_not_guessed() -> None:
    ended = run("dump", TXN.log_files[0], "--isolation", "read_committed")
    assert ended.code == 2
    assert "needs the partition's directory" in ended.err


def test_read_committed_with_a_damaged_transaction_index(tmp_path: Path) -> None:
    """The transaction index is rebuilt from the log in memory, as by the next start; the file stays unchanged."""
    root = stores.copy_store(TXN.root, tmp_path / "data")
    index = next((root / TXN.name).glob("*.txnindex"))
    damaged = index.read_bytes()[:-1]
    index.write_bytes(damaged)
    shown = run("dump", root, *place_of(TXN.address), "--isolation", "read_committed")
    assert shown.rows == TXN.lines(stores.COMMITTED)
    assert shown.code == 1
    assert f"{index.name}" in shown.err
    assert "[bad-index]" in shown.err
    assert index.read_bytes() == damaged


def test_committed_offsets() -> None:
    """The offsets of each group equal the offsets that the real broker reports; a topic and partition can be given."""
    store = stores.KAFKA / "offsets"
    reported = json.loads((store / "expect" / "committed.json").read_text())
    expected = {
        (group, row["topic"], row["partition"]): (
            row["offset"],
            row["leaderEpoch"],
            row["metadata"],
        )
        for group, rows in reported.items()
        for row in rows
    }
    rows = fine("dump", store / "data", "--what", "offsets").rows
    found = {
        (row["group"], row["topic"], row["partition"]): (
            row["offset"],
            row["leaderEpoch"],
            row["metadata"],
        )
        for row in rows
    }
    assert found == expected
    assert len(rows) == len(expected)
    assert all(row["commitTimestamp"] > 1_795_000_000_000 for row in rows)
    some = fine("dump", store / "data", "--what", "offsets", *place_of(("orders", 1))).rows
    assert some == [row for row in rows if (row["topic"], row["partition"]) == ("orders", 1)]


def test_committed_offsets_of_one_partition_folder() -> None:
    """A folder of `__consumer_offsets` shows the offsets of the groups stored in it; other folders show none."""
    folder = stores.KAFKA / "offsets" / "data"
    parts = [
        fine("dump", folder / f"__consumer_offsets-{number}", "--what", "offsets").rows
        for number in range(4)
    ]
    whole = fine("dump", folder, "--what", "offsets").rows
    assert [row for rows in parts for row in rows] == whole
    assert fine("dump", folder / "orders-0", "--what", "offsets").rows == []


def test_committed_offsets_of_rocketmq() -> None:
    golden = rocketmq_stores.golden("broker")
    rows = fine(
        "dump",
        golden.root,
        "--what",
        "offsets",
        "--topic",
        "order-live",
        *settings_options(golden.settings),
    ).rows
    assert rows == [
        {"group": "order-group", "topic": "order-live", "queueId": queue_id, "offset": offset}
        for queue_id, offset in enumerate((29, 30, 28))
    ]


@pytest.mark.parametrize(
    ("kind", "note"), [("snapshot", "no entries (snapshot)"), ("records", "no records")]
)
def test_an_empty_table_says_so(tmp_path: Path, kind: str, note: str) -> None:
    with open_store("kafka", tmp_path / "store", StoreOptions()) as store:
        store.create_topic("t", 1)
    options = ("dump", tmp_path / "store", "--topic", "t", "--what", kind, "--output")
    assert run(*options, "table") == (0, b"", f"{note}\n")
    assert run(*options, "ndjson") == (0, b"", "")
