"""Suspect parts of a record: each part that cannot be as written is named, and likely values are accepted."""

from __future__ import annotations

from typing import Any

import pytest

from storage.rocketmq.format.message import MAGIC_V1, Message
from storage.rocketmq.format.suspect_fields import END_OF_TIME_MS, suspect_parts

HOST = b"\x7f\0\0\1\0\0\x2a\x9f"
V6_HOST = bytes(range(16)) + b"\0\0\x2a\x9f"
AT = 5000
GOOD = Message(
    200, MAGIC_V1, 0, 3, 7, 5, AT, 0, 1_700_000_000_000, HOST, 1_700_000_000_001, HOST, 0, 0, b"body", "orders",
    b"KEYS\x01k1 k2\x02TAGS\x01t\x02",
)  # fmt: skip


@pytest.mark.parametrize(
    "likely",
    [
        {},
        {"properties": b""},
        {"properties": b"KEYS\x01k"},
        {"properties": b"a\x01\x02b\x01x\x01y\x02"},
        {"properties": "größe\x01straße\n\x02".encode()},
        {"topic": "%RETRY%gruppe-ä"},
        {"sys_flag": 0x7B, "born_host": V6_HOST, "store_host": V6_HOST},
        {"sys_flag": 0x301},
        {"born_timestamp_ms": 0},
        {"born_timestamp_ms": -1},
        {"topic": "a\u3000b"},
        {"properties": b"__SHARDINGKEY\x01k\0\x02KEYS\x01k\0 a\x02"},
        {"properties": b"KEYS\x01\0\0\x02a\x01b\x02__SHARDINGKEY\x01\0\0\x02"},
        {"prepared_transaction_offset": AT - 100, "sys_flag": 8, "reconsume_times": 16},
    ],
    ids=str,
)
def test_likely(likely: dict[str, Any]) -> None:
    assert suspect_parts(GOOD._replace(**likely), AT) == ()


@pytest.mark.parametrize(
    ("part", "changed"),
    [
        ("topic", {"topic": ""}),
        ("topic", {"topic": "ord\0rs"}),
        ("topic", {"topic": "ord\nrs"}),
        ("topic", {"topic": "ord\ufffdrs"}),
        ("properties", {"properties": b"KEYS\x01k1 k2\x02TA\0S\x01t\x02"}),
        ("properties", {"properties": b"\0" * 20}),
        ("properties", {"properties": b"__SHARDINGKEY\x01k\0\x02KEYS\x01kk a\x02"}),
        ("properties", {"properties": b"__SHARDINGKEY\x01kk\x02KEYS\x01k\0 a\x02"}),
        ("properties", {"properties": b"__SHARDINGKEY\x01k\0\x02KEYS\x01k\0 \0\x02"}),
        ("properties", {"properties": b"__SHARDINGKEY\x01k\0\x02KEYS\x01k\0\x02a\x01\0\x02"}),
        ("properties", {"properties": b"KEYS\x01k1 k2\x02TAGSt\x02"}),
        ("properties", {"properties": b"\x01k1 k2\x02"}),
        ("properties", {"properties": b"KEYS\x01k\x02\x02"}),
        ("properties", {"properties": b"KEYS\x01k\xff\x02"}),
        ("queue_id", {"queue_id": -1}),
        ("queue_offset", {"queue_offset": -5}),
        ("physical_offset", {"physical_offset": AT + 1}),
        ("sys_flag", {"sys_flag": 0x800}),
        ("sys_flag", {"sys_flag": -1}),
        ("sys_flag", {"sys_flag": 0x400}),
        ("born_timestamp", {"born_timestamp_ms": -2}),
        ("store_timestamp", {"store_timestamp_ms": END_OF_TIME_MS}),
        ("born_host", {"born_host": b"\x7f\0\0\1\0\x01\0\0"}),
        ("store_host", {"store_host": b"\x7f\0\0\1\xff\xff\xff\xff"}),
        ("reconsume_times", {"reconsume_times": -1}),
        ("reconsume_times", {"reconsume_times": 1 << 24}),
        ("prepared_offset", {"prepared_transaction_offset": 8}),
        ("prepared_offset", {"prepared_transaction_offset": 1 << 50, "sys_flag": 8}),
        ("prepared_offset", {"prepared_transaction_offset": -1}),
    ],
    ids=str,
)
def test_suspect(part: str, changed: dict[str, Any]) -> None:
    assert suspect_parts(GOOD._replace(**changed), AT) == (part,)


def test_several_parts_are_all_named() -> None:
    zeroed = GOOD._replace(topic="\0" * 6, properties=b"\0" * 20, queue_id=-1)
    assert suspect_parts(zeroed, AT) == ("topic", "properties", "queue_id")
