"""Kafka's own classes check our table of its messages: every message, in every version, in both directions."""

from __future__ import annotations

import base64
import json
import os
import random
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from storage.kafka.format.messages.codec import decode, encode
from storage.kafka.format.messages.records import shown
from storage.kafka.format.messages.schema import messages
from tests.cli.runner import fine
from tests.formats.files.random_messages import every_version, has_records, random_fields
from tests.interop.peers import dump_log, run_read_messages
from tests.unit.kafka.log.batches import data_batch

pytestmark = pytest.mark.java

ROOT = Path(__file__).resolve().parents[2]
SEED = 24
EACH = 12
ID = bytes(range(16))


def test_every_message_is_what_kafka_reads_and_writes(tmp_path: Path) -> None:
    """With random values Kafka reads the same fields from our bytes, and writes the same bytes."""
    seed = random.Random(SEED)
    sent = [
        (message.name, version, encode(message.name, version, fields))
        for message, version in every_version()
        if not has_records(message.fields)
        for fields in (random_fields(message.fields, version, seed) for _ in range(EACH))
    ]
    lines = [f"{name} {version} {data.hex()}" for name, version, data in sent]
    (tmp_path / "messages").write_text("".join(line + "\n" for line in lines))
    for (name, version, data), answer in zip(
        sent, run_read_messages(tmp_path / "messages"), strict=True
    ):
        assert "error" not in answer, (name, version, answer)
        assert (answer["left"], answer["hex"]) == (0, data.hex()), (name, version)
        fields = decode(name, version, data).fields
        assert answer["json"] == _as_json(shown(name, version, fields)), (name, version)


def _as_json(value: Any) -> Any:
    """Convert bytes to the form in which Kafka writes them into JSON."""
    if isinstance(value, dict):
        return {name: _as_json(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_as_json(inner) for inner in value]
    return base64.b64encode(value).decode() if isinstance(value, bytes) else value


def record(kind: str, name: str, version: int, fields: dict[str, Any]) -> bytes:
    """Return a value as stored in an internal topic: with a version, or in a frame with type and version."""
    body = encode(name, version, fields)
    if kind == "remote-log":
        key = messages()[name].key or 0
        return bytes((1, key, version)) + body
    return version.to_bytes(2, "big") + body


@pytest.mark.parametrize(
    ("topic", "decoder", "key", "value"),
    [
        (
            "__share_group_state",
            "--share-group-state-decoder",
            ("ShareSnapshotKey", {"groupId": "g", "topicId": ID, "partition": 3}),
            ("share", "ShareSnapshotValue", 0, {"snapshotEpoch": 2, "startOffset": 7}),
        ),
        (
            "__consumer_offsets",
            "--offsets-decoder",
            ("ConsumerGroupMetadataKey", {"groupId": "g"}),
            ("group", "ConsumerGroupMetadataValue", 0, {"epoch": 12}),
        ),
    ],
)
def test_records_of_internal_topics_are_what_kafka_reads(
    tmp_path: Path,
    topic: str,
    decoder: str,
    key: tuple[str, dict[str, Any]],
    value: tuple[str, str, int, dict[str, Any]],
) -> None:
    """Kafka's own dump tool shows the same fields of a record that we encoded."""
    number = messages()[key[0]].key or 0
    key_bytes = number.to_bytes(2, "big") + encode(key[0], 0, key[1])
    path = tmp_path / f"{topic}-0" / "00000000000000000000.log"
    path.parent.mkdir()
    path.write_bytes(data_batch(key=key_bytes, value=record(*value)))
    (row,) = fine("dump", path.parent, "--what", "decoded").rows
    said = dump_log([path], decoder)
    shown_value = json.loads(re.search(r"payload: (\{.*\})$", said, re.MULTILINE)[1])  # type: ignore[index]  # matches
    assert row["value"] == shown_value["data"]
    shown_key = json.loads(re.search(r"key: (\{.*\}) payload: ", said)[1])  # type: ignore[index]  # matches
    assert row["key"] == shown_key["data"]


def test_a_record_of_remote_log_metadata_is_what_kafka_reads(tmp_path: Path) -> None:
    """Kafka's dump tool shows such a record as text."""
    partition = {"name": "orders", "id": ID, "partition": 2}
    fields = {"brokerId": 9, "topicIdPartition": partition, "remotePartitionDeleteState": 1}
    path = tmp_path / "__remote_log_metadata-0" / "00000000000000000000.log"
    path.parent.mkdir()
    value = record("remote-log", "RemotePartitionDeleteMetadataRecord", 0, fields)
    path.write_bytes(data_batch(key=None, value=value))
    (row,) = fine("dump", path.parent, "--what", "decoded").rows
    assert row["type"] == "RemotePartitionDeleteMetadataRecord"
    reported = row["value"]["topicIdPartition"]
    said = dump_log([path], "--remote-log-metadata-decoder")
    assert f"topicPartition={reported['id']}:{reported['name']}-{reported['partition']}," in said
    assert f"brokerId={row['value']['brokerId']}}}" in said


def test_the_table_is_what_the_jars_say() -> None:
    """The jars are the ones fetched for the peers."""
    cache = os.environ.get("PEERS_CACHE", str(Path.home() / ".cache" / "peers" / "kafka"))
    command = [sys.executable, "-P", "scripts/kafka_schemas", str(Path(cache) / "libs"), "--check"]
    subprocess.run(command, cwd=ROOT, check=True)
