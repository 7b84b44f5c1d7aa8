"""Stores that others left with something odd in them: what the real Kafka reads of them, before us or after our start."""

from __future__ import annotations

from pathlib import Path

import pytest

from storage import Record, StoreOptions, TopicPartition, open_store
from storage.errors import DamagedStore
from storage.kafka.format.names import segment_name
from tests.interop import peers
from tests.unit.kafka.old_messages import old_log

pytestmark = pytest.mark.java

T0 = TopicPartition("t", 0)
FAST = StoreOptions(settings={"index.interval.bytes": "0", "flush": "os"})


def made(root: Path, count: int = 20) -> Path:
    """A store of one partition, cleanly stopped; gives the partition's folder."""
    with open_store("kafka", root, StoreOptions(settings={"index.interval.bytes": "0"})) as store:
        store.create_topic("t", 1)
        append(root, count, store)
    return root / "t-0"


def append(root: Path, count: int, store: object) -> None:
    for n in range(count):
        store.append(T0, [Record(None, b"value %d" % n)])  # type: ignore[attr-defined]


@pytest.mark.parametrize("magic", [0, 1])
def test_what_we_refuse_to_cut_it_reads(tmp_path: Path, magic: int) -> None:
    folder = made(tmp_path / "s", 0)
    (folder / segment_name(0)).write_bytes(old_log(20, magic=magic))
    with pytest.raises(DamagedStore, match="v0 or v1"):
        open_store("kafka", tmp_path / "s")
    answer = peers.run_kafka_opens(tmp_path / "s", "--direct", "--clean", "yes")
    assert [row["offset"] for row in answer.records["t", 0]] == list(range(20))
