"""`logserver dump --what decoded`: records of internal topics, as Kafka's own dump tool shows them."""

from __future__ import annotations

import base64
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from storage.kafka.format.messages.codec import encode
from storage.kafka.format.offset_records import decode_key, decode_value
from tests.cli.runner import fine, run
from tests.golden import stores
from tests.unit.kafka.log.batches import data_batch

FIXTURES = Path(__file__).resolve().parents[1] / "formats" / "files" / "internal_topics"
SNAPSHOT = "00000000000000000029-0000000001.checkpoint"
LOG = "00000000000000000000.log"
OFFSETS = stores.KAFKA / "offsets" / "data"


def expected(name: str) -> list[dict[str, Any]]:
    """Return the output of kafka-dump-log for a file written by a real broker."""
    return [json.loads(line) for line in (FIXTURES / f"{name}.jsonl").read_text().splitlines()]


def same(rows: list[dict[str, Any]], name: str) -> None:
    reported = expected(name)
    assert [
        {key: row[key] for key in line} for row, line in zip(rows, reported, strict=True)
    ] == reported


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A log directory with a metadata log and transactions."""
    for topic, name in (
        ("__cluster_metadata", "cluster-metadata.log"),
        ("__transaction_state", "transaction-state.log"),
    ):
        folder = tmp_path / "data" / f"{topic}-0"
        folder.mkdir(parents=True)
        shutil.copy(FIXTURES / name, folder / LOG)
    shutil.copy(FIXTURES / SNAPSHOT, tmp_path / "data" / "__cluster_metadata-0" / SNAPSHOT)
    (tmp_path / "data" / ".kafka_cleanshutdown").write_text("")
    return tmp_path / "data"


def test_a_store(root: Path) -> None:
    rows = fine("dump", root, "--what", "decoded").rows
    metadata = [row for row in rows if row["topic"] == "__cluster_metadata"]
    same(metadata, "cluster-metadata.log")
    same([row for row in rows if row["topic"] == "__transaction_state"], "transaction-state.log")
    assert len(rows) == len(expected("cluster-metadata.log")) + len(
        expected("transaction-state.log")
    )


def test_one_topic_of_a_store(root: Path) -> None:
    for name in ("cluster-metadata", "transaction-state"):
        topic = "__" + name.replace("-", "_")
        rows = fine("dump", root, "--what", "decoded", "--topic", topic).rows
        same(rows, f"{name}.log")


@pytest.mark.parametrize("name", [SNAPSHOT, "bootstrap.checkpoint"])
def test_a_snapshot_of_the_metadata(name: str) -> None:
    """The content of a `.checkpoint` file is shown without an option."""
    same(fine("dump", FIXTURES / name).rows, name)
    assert fine("verify", FIXTURES / name).rows == []


def test_a_folder_and_a_file_of_it(root: Path) -> None:
    folder = root / "__cluster_metadata-0"
    same(run("dump", folder, "--what", "decoded").rows, "cluster-metadata.log")
    same(fine("dump", folder / LOG, "--what", "decoded").rows, "cluster-metadata.log")
    same(fine("dump", folder / SNAPSHOT).rows, SNAPSHOT)


def test_the_offsets_of_the_real_broker() -> None:
    """Every record has a known type, and commits equal the commits that the engine reads."""
    rows = fine("dump", OFFSETS, "--what", "decoded").rows
    plain = {
        (row["topic"], row["partition"], row["offset"]): row for row in fine("dump", OFFSETS).rows
    }
    kinds = {row["type"] for row in rows}
    assert kinds >= {
        "OffsetCommit",
        "GroupMetadata",
        "ConsumerGroupMetadata",
        "ConsumerGroupMemberMetadata",
    }
    for row in rows:
        if row["type"] != "OffsetCommit":
            continue
        record = plain[row["topic"], row["partition"], row["offset"]]
        key = decode_key(_bytes(record["key"]))
        assert key is not None
        assert row["key"] == key._asdict()
        if record["value"] is not None:
            value = decode_value(_bytes(record["value"]))
            assert row["value"]["offset"] == value.offset
            assert row["value"]["leaderEpoch"] == value.leader_epoch
            assert row["value"]["commitTimestamp"] == value.commit_timestamp_ms


def _bytes(text: str) -> bytes:
    return base64.b64decode(text)


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        (b"\x00\x63later", b"\x00\x00", "type 99 is not known"),
        (b"\x00\x00\x00\x01t", b"\x00\x07later", "version 7"),
        (b"\x00\x00\x00\x01t", b"\x00\x01cut", "end inside a field"),
        (
            b"\x00\x00\x00\x01t",
            b"\x00\x00" + encode("TransactionLogValue", 0, {}) + b"x",
            "after its end",
        ),
    ],
)
def test_what_is_not_known_is_shown_as_bytes(
    tmp_path: Path, key: bytes, value: bytes, message: str
) -> None:
    folder = tmp_path / "__transaction_state-0"
    folder.mkdir()
    batches = data_batch(0, key=key, value=value) + data_batch(
        1, key=b"\x00\x00\x00\x01t", value=None
    )
    (folder / LOG).write_bytes(batches)
    ended = run("dump", folder, "--what", "decoded")
    assert ended.code == 1
    assert "[unknown-record]" in ended.err
    assert message in ended.err
    first, second = ended.rows
    assert first["value"] == base64.b64encode(value).decode()
    assert (second["type"], second["value"]) == ("TransactionLog", None)


def test_a_topic_of_users_is_not_decoded(root: Path, tmp_path: Path) -> None:
    shutil.copytree(root / "__transaction_state-0", root / "orders-0")
    for arguments in (("--topic", "orders"), ("--topic", "nosuch")):
        assert run("dump", root, "--what", "decoded", *arguments).code == 2
    shutil.copy(root / "orders-0" / LOG, tmp_path / LOG)
    assert run("dump", tmp_path / LOG, "--what", "decoded").code == 2
