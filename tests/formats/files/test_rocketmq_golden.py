"""The real store's queues, index files, checkpoints and config files: read as by the broker, encoded back the same."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from storage.rocketmq.format import names
from storage.rocketmq.format.checkpoint import decode_checkpoint, encode_checkpoint
from storage.rocketmq.format.config_json import decode_config, encode_config
from storage.rocketmq.format.index_file import (
    HEADER_SIZE,
    SLOT,
    SLOT_SIZE,
    decode_entries,
    decode_header,
    encode_entry,
    encode_header,
    entry_position,
    file_size,
    slot_position,
)
from storage.rocketmq.format.queue_entry import (
    UNIT_SIZE,
    QueueEntry,
    decode_units,
    encode_unit,
)
from tests.golden.rocketmq_stores import CLEAN, GoldenStore, all_stores, by_id, golden

stores = pytest.mark.parametrize("store", all_stores(), ids=by_id)
CONFIG_FILES = sorted((golden("broker").root / "config").glob("*.json*"))


@stores
def test_queues(store: GoldenStore) -> None:
    """Every queue entry fits the real store's message of its queue offset, and the rest of its file is free."""
    expected = {
        (row["topic"], row["queueId"], row["queueOffset"]): QueueEntry(
            row["physicalOffset"], row["size"], row["tagsCode"]
        )
        for row in store.expected()
    }
    seen = 0
    for path in sorted((store.root / names.CONSUME_QUEUE).glob("*/*/*")):
        queue_id, position = (
            names.parse_queue_id(path.parent.name),
            names.parse_file_name(path.name),
        )
        assert position is not None
        data = path.read_bytes()
        units = [unit for unit in decode_units(data) if unit.is_valid]
        assert b"".join(encode_unit(*unit) for unit in units).ljust(len(data), b"\0") == data
        for number, unit in enumerate(units, start=position // UNIT_SIZE):
            row = expected.get((path.parent.parent.name, queue_id, number))
            assert unit.is_filler or row in (unit, None)
            seen += row == unit
    assert seen == len(expected) or not store.clean  # otherwise recovery adds the missing entries


@pytest.mark.parametrize("name", CLEAN)
def test_index_files(name: str) -> None:
    store = golden(name)
    slots, entries = (int(store.settings[key]) for key in ("maxHashSlotNum", "maxIndexNum"))
    for dump in store.index_dump:
        data = (store.root / names.INDEX / dump["file"]).read_bytes()
        assert len(data) == file_size(slots, entries) == dump["size"]
        assert as_dump(data, slots) == {
            key: value for key, value in dump.items() if key not in {"file", "size"}
        }
        assert again(data, slots) == data


def as_dump(data: bytes, slots: int) -> Mapping[str, Any]:
    """Return the file in the form of index-dump.json."""
    header = decode_header(data)
    used = [(slot, value) for slot in range(slots) if (value := slot_at(data, slot))]
    start = entry_position(slots, 0)
    entries = decode_entries(data[start : entry_position(slots, header.index_count)])
    return {
        "beginTimestamp": header.begin_timestamp_ms,
        "endTimestamp": header.end_timestamp_ms,
        "beginPhyOffset": header.begin_physical_offset,
        "endPhyOffset": header.end_physical_offset,
        "hashSlotCount": header.hash_slot_count,
        "indexCount": header.index_count,
        "slotsUsed": len(used),
        "slots": [list(pair) for pair in used],
        "entries": [list(entry) for entry in entries],
    }


def slot_at(data: bytes, slot: int) -> int:
    value: int = SLOT.unpack_from(data, slot_position(slot))[0]
    return value


def again(data: bytes, slots: int) -> bytes:
    """Return the file, decoded and encoded again."""
    start = entry_position(slots, 0)
    entries = b"".join(map(encode_entry, decode_entries(data[start:])))
    table = b"".join(SLOT.pack(slot_at(data, slot)) for slot in range(slots))
    assert len(table) == slots * SLOT_SIZE
    assert start == HEADER_SIZE + len(table)
    return encode_header(decode_header(data)) + table + entries


@stores
def test_checkpoints(store: GoldenStore) -> None:
    data = (store.root / names.CHECKPOINT).read_bytes()
    checkpoint = decode_checkpoint(data)
    assert encode_checkpoint(checkpoint) == data
    reported = store.json("store.json")["checkpoint"]
    assert reported.pop("size") == len(data)
    assert list(checkpoint) == list(reported.values())


@pytest.mark.parametrize("path", CONFIG_FILES, ids=lambda path: path.name)
def test_config_files(path: Any) -> None:
    data = path.read_bytes()
    assert encode_config(decode_config(data)) == data


def test_what_is_in_the_config_files() -> None:
    config = {path.name: decode_config(path.read_bytes()) for path in CONFIG_FILES}
    assert len(config) == 12
    offsets = config[names.OFFSETS]["offsetTable"]
    assert offsets["order-live@order-group"] == {0: 29, 1: 30, 2: 28}
    assert config[names.DELAY_OFFSETS]["offsetTable"] == {1: 1, 2: 1, 3: 17, 18: 0}
    topics = config[names.TOPICS]["topicConfigTable"]
    assert all(name == topic["topicName"] for name, topic in topics.items())
    assert {name for name in topics if names.is_system_topic(name)} > {names.SCHEDULE_TOPIC}
    metrics = golden("broker").root / names.CONFIG / "transactionMetrics"
    assert decode_config(metrics.read_bytes())["transactionCount"]


@stores
def test_every_name_is_known(store: GoldenStore) -> None:
    assert {path.name for path in store.root.iterdir()} <= names.ROOT_NAMES
    for path in (store.root / names.COMMIT_LOG).iterdir():
        position = names.parse_file_name(path.name)
        assert position is not None
        assert names.file_name(position) == path.name
    for path in (store.root / names.INDEX).iterdir():
        assert names.parse_index_name(path.name) == int(path.name)
