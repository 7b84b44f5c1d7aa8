"""Every small file of the real broker: read as by its own tools, and encoded back byte for byte."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from storage.errors import Corrupt, Truncated
from storage.kafka.format import checkpoints, names, producer_snapshot, txn_index
from storage.kafka.format.producer_snapshot import ProducerEntry
from storage.kafka.format.sparse_index import offset_index, time_index
from storage.model import TopicPartition
from tests.golden.stores import HEALTHY


def index_rows(data: bytes, base_offset: int) -> list[list[int]]:
    entries = offset_index.decode_entries(data)
    return [[base_offset + relative, position] for relative, position in entries]


def time_rows(data: bytes, base_offset: int) -> list[list[int]]:
    entries = time_index.decode_entries(data)
    return [[timestamp, base_offset + relative] for timestamp, relative in entries]


def txn_rows(data: bytes, base_offset: int) -> list[dict[str, int]]:
    return [
        {
            "version": txn_index.VERSION,
            "producerId": entry.producer_id,
            "firstOffset": entry.first_offset,
            "lastOffset": entry.last_offset,
            "lastStableOffset": entry.last_stable_offset,
        }
        for entry in txn_index.decode_entries(data)
    ]


def snapshot_rows(data: bytes, base_offset: int) -> list[dict[str, int | None]]:
    return [snapshot_row(entry) for entry in producer_snapshot.decode_snapshot(data)]


def snapshot_row(entry: ProducerEntry) -> dict[str, int | None]:
    """Return the entry as Kafka's dump tool prints it: without batch fields if its epoch has no batch yet."""
    first = entry.current_txn_first_offset
    row: dict[str, int | None] = {
        "producerId": entry.producer_id,
        "producerEpoch": entry.epoch,
        "coordinatorEpoch": entry.coordinator_epoch,
        "currentTxnFirstOffset": None if first < 0 else first,
        "lastTimestamp": entry.timestamp_ms,
    }
    if entry.last_offset >= 0:
        row |= {
            "firstSequence": entry.last_sequence - entry.offset_delta,
            "lastSequence": entry.last_sequence,
            "lastOffset": entry.last_offset,
            "offsetDelta": entry.offset_delta,
            "timestamp": entry.timestamp_ms,
        }
    return row


ROWS: dict[str, Callable[[bytes, int], list[Any]]] = {
    names.INDEX: index_rows,
    names.TIME_INDEX: time_rows,
    names.TXN_INDEX: txn_rows,
    names.SNAPSHOT: snapshot_rows,
}


def encode_index(data: bytes) -> bytes:
    return b"".join(offset_index.encode_entry(*e) for e in offset_index.decode_entries(data))


def encode_times(data: bytes) -> bytes:
    return b"".join(time_index.encode_entry(*e) for e in time_index.decode_entries(data))


def encode_txns(data: bytes) -> bytes:
    return b"".join(map(txn_index.encode_entry, txn_index.decode_entries(data)))


def encode_offsets(data: bytes) -> bytes:
    return checkpoints.encode_offsets(checkpoints.decode_offsets(data)) if data else b""


AGAIN: dict[str, Callable[[bytes], bytes]] = {
    names.INDEX: encode_index,
    names.TIME_INDEX: encode_times,
    names.TXN_INDEX: encode_txns,
    names.SNAPSHOT: lambda data: producer_snapshot.encode_snapshot(
        producer_snapshot.decode_snapshot(data)
    ),
    names.LEADER_EPOCHS: lambda data: checkpoints.encode_epochs(checkpoints.decode_epochs(data)),
    names.PARTITION_METADATA: lambda data: checkpoints.encode_partition_metadata(
        checkpoints.decode_partition_metadata(data).topic_id
    ),
    names.CLEAN_SHUTDOWN: lambda data: checkpoints.encode_clean_shutdown(
        checkpoints.decode_clean_shutdown(data) or 0
    ),
    names.RECOVERY_POINTS: encode_offsets,
    names.HIGH_WATERMARKS: encode_offsets,
    names.LOG_STARTS: encode_offsets,
    names.CLEANER_OFFSETS: encode_offsets,
}


def kind_of(name: str) -> str | None:
    """Return the key of AGAIN for this file name; a left-over file counts as its original kind."""
    parsed = names.parse_segment_name(name)
    if parsed is None:
        return name if name in AGAIN else None
    suffix = "." + parsed[1].split(".")[1]
    return suffix if suffix in AGAIN else None


def files_of(store: Path) -> Iterator[tuple[str, Path]]:
    for path in sorted(store.rglob("*")):
        kind = kind_of(path.name)
        if path.is_file() and kind is not None:
            yield kind, path


@pytest.mark.parametrize("store", HEALTHY)
def test_values_are_those_of_kafkas_own_dump(golden_dir: Path, store: str) -> None:
    compared = 0
    for indexes in sorted((golden_dir / store / "expect").glob("*/indexes.json")):
        for name, expected in json.loads(indexes.read_bytes()).items():
            path = golden_dir / store / "data" / indexes.parent.name / name
            parsed = names.parse_segment_name(name)
            assert parsed is not None
            base_offset, suffix = parsed
            assert ROWS[suffix](path.read_bytes(), base_offset) == expected, path
            compared += 1
    assert compared > 0


@pytest.mark.parametrize("store", HEALTHY)
def test_every_file_encodes_back_byte_for_byte(golden_dir: Path, store: str) -> None:
    seen: Counter[str] = Counter()
    for kind, path in files_of(golden_dir / store / "data"):
        data = path.read_bytes()
        assert AGAIN[kind](data) == data, path
        seen[kind] += 1
    assert set(seen) >= set(AGAIN) - {names.TXN_INDEX, names.CLEANER_OFFSETS, names.SNAPSHOT}


def test_the_golden_stores_hold_every_kind(golden_dir: Path) -> None:
    seen = {kind for store in HEALTHY for kind, _ in files_of(golden_dir / store / "data")}
    assert seen == set(AGAIN)


@pytest.mark.parametrize("store", HEALTHY)
def test_every_partition_folder_and_file_has_a_known_name(golden_dir: Path, store: str) -> None:
    for path in sorted((golden_dir / store / "data").iterdir()):
        if path.is_file():
            assert path.name in names.ROOT_FILES
            continue
        partition = names.parse_partition_dir(path.name)
        assert partition is not None
        assert names.partition_dir_name(*partition) == path.name
        for file in path.iterdir():
            parsed = names.parse_segment_name(file.name)
            if parsed is None:
                assert file.name in {names.LEADER_EPOCHS, names.PARTITION_METADATA}
            else:
                assert names.segment_name(*parsed) == file.name


def test_checkpoints_say_where_the_logs_end(golden_dir: Path) -> None:
    data = golden_dir / "deleted" / "data"
    ends = checkpoints.decode_offsets((data / names.RECOVERY_POINTS).read_bytes())
    starts = checkpoints.decode_offsets((data / names.LOG_STARTS).read_bytes())
    assert ends == {
        TopicPartition("del-all", 0): 225,
        TopicPartition("del-leading", 0): 219,
        TopicPartition("del-mid", 0): 260,
    }
    assert starts == {
        TopicPartition("del-all", 0): 225,
        TopicPartition("del-leading", 0): 147,
        TopicPartition("del-mid", 0): 2,
    }


def test_epochs_of_four_starts(golden_dir: Path) -> None:
    path = golden_dir / "epochs" / "data" / "epoch-idem-0" / names.LEADER_EPOCHS
    assert checkpoints.decode_epochs(path.read_bytes()) == [(0, 0), (2, 103), (4, 306), (6, 660)]


class TestDamaged:
    """The damaged copies: errors are named, and a preallocated tail is no error."""

    def path(self, golden_dir: Path, variant: str, name: str) -> Path:
        return golden_dir / "torn" / variant / "data" / "epoch-idem-0" / name

    def test_stray_bytes_behind_an_index(self, golden_dir: Path) -> None:
        name = names.segment_name(597, names.INDEX)
        data = self.path(golden_dir, "index-odd-size-clean", name).read_bytes()
        with pytest.raises(Truncated) as caught:
            offset_index.decode_entries(data)
        assert caught.value.facts() == {"kind": "offset index", "position": 72, "needed": 8}
        whole = (golden_dir / "epochs" / "data" / "epoch-idem-0" / name).read_bytes()
        assert offset_index.leading_entries(data) == offset_index.decode_entries(whole)

    @pytest.mark.parametrize("variant", ["index-zero-extended", "index-zero-extended-clean"])
    def test_zeros_behind_the_entries(self, golden_dir: Path, variant: str) -> None:
        for suffix, decode in (
            (names.INDEX, offset_index.decode_entries),
            (names.TIME_INDEX, time_index.decode_entries),
        ):
            name = names.segment_name(1113, suffix)
            whole = (golden_dir / "epochs" / "data" / "epoch-idem-0" / name).read_bytes()
            extended = self.path(golden_dir, variant, name).read_bytes()
            assert decode(extended) == decode(whole) != []

    def test_a_flipped_bit_in_a_snapshot(self, golden_dir: Path) -> None:
        path = self.path(golden_dir, "snapshot-flip-clean", "00000000000000001203.snapshot")
        with pytest.raises(Corrupt) as caught:
            producer_snapshot.decode_snapshot(path.read_bytes())
        # the two checksums that the broker logged
        assert caught.value.facts()["expected"] == 2492358320
        assert caught.value.facts()["found"] == 3670001111
