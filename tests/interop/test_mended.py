"""Stores that other programs left with irregular content: the real Kafka reads them as stated here."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from storage import LogStore, Record, StoreOptions, TopicPartition, open_store
from storage.errors import DamagedStore
from storage.kafka.format.checkpoints import decode_epochs
from storage.kafka.format.names import segment_name
from tests.interop import peers
from tests.unit.kafka.log.old_messages import old_log

pytestmark = pytest.mark.java

T0 = TopicPartition("t", 0)
DENSE = StoreOptions(settings={"index.interval.bytes": "0"})


def made(root: Path, count: int = 20) -> Path:
    """Create a store of one partition, stop it cleanly, and return the partition's folder."""
    with open_store("kafka", root, DENSE) as store:
        store.create_topic("t", 1)
        append(store, count)
    return root / "t-0"


def append(store: LogStore, count: int) -> None:
    for n in range(count):
        store.append(T0, [Record(None, b"value %d" % n)])


@pytest.mark.parametrize("magic", [0, 1])
def test_what_we_refuse_to_cut_it_reads(tmp_path: Path, magic: int) -> None:
    folder = made(tmp_path / "s", 0)
    (folder / segment_name(0)).write_bytes(old_log(20, magic=magic))
    with pytest.raises(DamagedStore, match="v0 or v1"):
        open_store("kafka", tmp_path / "s")
    answer = peers.run_kafka_opens(tmp_path / "s", "--direct", "--clean", "yes")
    assert [row["offset"] for row in answer.records["t", 0]] == list(range(20))


@pytest.mark.parametrize("entry", [(0x7FFFFFFF, 0x7FFFFFFF), (20, 100)], ids=["high", "inside"])
def test_behind_a_wrong_index_entry_nothing_is_lost(tmp_path: Path, entry: tuple[int, int]) -> None:
    index = made(tmp_path / "s") / segment_name(0, ".index")
    index.write_bytes(index.read_bytes() + struct.pack(">ii", *entry))
    with open_store("kafka", tmp_path / "s", DENSE) as store:
        append(store, 3)
    peers.index_check([tmp_path / "s" / "t-0"])
    answer = peers.run_kafka_opens(tmp_path / "s", "--direct", "--clean", "yes")
    assert [row["offset"] for row in answer.records["t", 0]] == list(range(23))


@pytest.mark.parametrize(
    "text", [b"0\n2\n0 31\nx 200\n", bytes(20), b""], ids=["word", "zeros", "empty"]
)
def test_beside_a_lost_epoch_checkpoint_it_starts_after_us(tmp_path: Path, text: bytes) -> None:
    folder = made(tmp_path / "s")
    with open_store("kafka", tmp_path / "s", DENSE) as store:
        append(store, 5)
    checkpoint = folder / "leader-epoch-checkpoint"
    assert decode_epochs(checkpoint.read_bytes()) == [(0, 0), (1, 20)]
    checkpoint.write_bytes(text)
    open_store("kafka", tmp_path / "s", DENSE).close()
    assert decode_epochs(checkpoint.read_bytes()) == [(0, 0), (1, 20)]
    answer = peers.run_kafka_opens(tmp_path / "s", "--keep", str(tmp_path / "kept"))
    assert [row["offset"] for row in answer.records["t", 0]] == list(range(25))
    theirs = tmp_path / "kept" / "log" / "t-0" / "leader-epoch-checkpoint"
    assert decode_epochs(theirs.read_bytes())[:2] == [(0, 0), (1, 20)]
