"""Every record of every golden store: compared with the dump of the real store, and written again byte for byte."""

from __future__ import annotations

import base64
import hashlib
import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from storage.rocketmq.format.body import decompress
from storage.rocketmq.format.message import (
    PADDING_SIZE,
    Message,
    decode_message,
    encode_padding,
    magic_for,
)
from storage.rocketmq.format.message_encoding import encode_messages
from storage.rocketmq.format.message_id import decode_offset_id, encode_host, host_text, offset_id
from storage.rocketmq.format.properties import decode_properties
from storage.rocketmq.format.scan import BLANK, PADDING
from tests.formats.rocketmq_messages.cases import new_message, placement, walked

STORES = Path(__file__).resolve().parents[2] / "golden" / "rocketmq"
NAMES = sorted(path.parent.name for path in STORES.glob("*/commitlog.jsonl"))
LIMIT_BYTES = 1 << 20

Row = dict[str, Any]


@cache
def rows(store: str, name: str) -> list[Row]:
    return [json.loads(line) for line in (STORES / store / name).read_bytes().splitlines()]


@cache
def log_files(store: str) -> dict[int, bytes]:
    """Return the commit log's files by the physical offset of their first byte."""
    paths = sorted((STORES / store / "store" / "commitlog").iterdir())
    return {int(path.name): path.read_bytes() for path in paths}


def place(store: str, physical_offset: int) -> tuple[bytes, int]:
    """Return the bytes of the file with a physical offset, and the position in the file."""
    base = max(base for base in log_files(store) if base <= physical_offset)
    return log_files(store)[base], physical_offset - base


def message_at(store: str, physical_offset: int) -> Message:
    return decode_message(*place(store, physical_offset))


def logged(store: str) -> list[Row]:
    return [row for row in rows(store, "commitlog.jsonl") if row["kind"] == "log"]


def as_logged(physical_offset: int, message: Message) -> Row:
    """Return the record in the form of `commitlog.jsonl`."""
    return {
        "kind": "log",
        "physicalOffset": physical_offset,
        "size": message.size,
        "magic": f"{message.magic & 0xFFFFFFFF:08x}",
        "topic": message.topic,
        "queueId": message.queue_id,
        "queueOffset": message.queue_offset,
        "sysFlag": message.sys_flag,
        "storeTimestamp": message.store_timestamp_ms,
        "bodyLength": len(message.body),
        "bodyCRC": message.body_crc,
    }


def as_expected(message: Message) -> Row:
    """Return the record in the form of `expected.jsonl`, with both forms of the body and without the queue's fields."""
    properties = decode_properties(message.properties)
    row = as_logged(message.physical_offset, message) | {
        "kind": "message",
        "bornTimestamp": message.born_timestamp_ms,
        "flag": message.flag,
        "tags": properties.get("TAGS"),
        "keys": properties.get("KEYS"),
        "properties": properties,
        "msgId": offset_id(message.store_host, message.physical_offset),
        "reconsumeTimes": message.reconsume_times,
        "preparedTransactionOffset": message.prepared_transaction_offset,
        "bornHost": host_text(message.born_host),
        "storeHost": host_text(message.store_host),
        "body": base64.b64encode(message.body).decode(),
        "bodySha256": hashlib.sha256(message.body).hexdigest(),
    }
    if message.sys_flag & 1:
        plain = decompress(message.body, message.sys_flag, LIMIT_BYTES)
        row |= {"plainLength": len(plain), "plainSha256": hashlib.sha256(plain).hexdigest()}
    return row


def test_the_stores_are_there() -> None:
    assert len(NAMES) >= 12
    assert sum(len(logged(name)) for name in NAMES) > 2_600


@pytest.mark.parametrize("store", NAMES)
def test_the_log(store: str) -> None:
    for row in logged(store):
        message = message_at(store, row["physicalOffset"])
        assert as_logged(row["physicalOffset"], message) == row
        assert message.physical_offset == row["physicalOffset"]


@pytest.mark.parametrize("store", NAMES)
def test_the_queues(store: str) -> None:
    """Every record of a queue equals the log's record at its physical offset; all other records are in no queue."""
    expected = {row["physicalOffset"]: row for row in rows(store, "expected.jsonl")}
    for row in logged(store):
        message = message_at(store, row["physicalOffset"])
        assert message.in_queue == (message.physical_offset in expected)
        if message.in_queue:
            found = expected.pop(message.physical_offset)
            del found["tagsCode"]
            ours = as_expected(message)
            assert {name: ours[name] for name in found} == found
            assert ours.keys() - found.keys() in ({"body"}, {"bodySha256"})
    assert expected == {}


@pytest.mark.parametrize("store", NAMES)
def test_writing_again(store: str) -> None:
    for row in logged(store):
        data, position = place(store, row["physicalOffset"])
        message = decode_message(data, position)
        stored = data[position : position + message.size]
        assert magic_for(message.topic) == message.magic
        assert encode_messages([new_message(message)], placement(message)) == [stored]


@pytest.mark.parametrize("store", NAMES)
def test_padding(store: str) -> None:
    for row in rows(store, "commitlog.jsonl"):
        if row["kind"] == "blank":
            data, position = place(store, row["physicalOffset"])
            assert len(data) - position == row["size"]
            assert data[position : position + PADDING_SIZE] == encode_padding(row["size"])


def test_padding_of_every_kind_is_there() -> None:
    sizes = [row["size"] for row in rows("edges", "commitlog.jsonl") if row["kind"] == "blank"]
    assert {8, 9, 12, 16201} <= set(sizes)
    largest = max(row["size"] for row in logged("edges"))
    assert largest == len(log_files("edges")[0]) - PADDING_SIZE


@pytest.mark.parametrize("store", NAMES)
def test_walking(store: str) -> None:
    found: list[tuple[int, int]] = []
    reasons = []
    for base, data in log_files(store).items():
        records, position, reason = walked(data, 0, len(data), base)
        assert position == sum(size for _, size in records)
        found += records
        reasons.append(reason)
    assert found == [(row["physicalOffset"], row["size"]) for row in logged(store)]
    assert set(reasons[:-1]) <= {PADDING, BLANK}
    assert reasons[-1] == BLANK


@pytest.mark.parametrize("store", NAMES)
def test_ids_and_hosts_both_ways(store: str) -> None:
    for row in rows(store, "expected.jsonl"):
        message = message_at(store, row["physicalOffset"])
        assert decode_offset_id(row["msgId"]) == (message.store_host, message.physical_offset)
        for host in ("bornHost", "storeHost"):
            address, _, port = row[host].rpartition(":")
            stored = message.born_host if host == "bornHost" else message.store_host
            assert encode_host(address.strip("[]"), int(port)) == stored


def test_every_kind_of_record_is_there() -> None:
    messages = [message_at(name, row["physicalOffset"]) for name in NAMES for row in logged(name)]
    flags = {message.sys_flag for message in messages}
    assert {0, 1, 2, 4, 8, 12, 16, 32, 48, 0x101, 0x201, 0x301} <= flags
    assert {len(message.topic) for message in messages} >= {1, 126, 127, 128, 200, 255}
    assert any(not message.body for message in messages)
    assert any(not message.properties for message in messages)
    assert any(len(message.properties) > 20_000 for message in messages)
