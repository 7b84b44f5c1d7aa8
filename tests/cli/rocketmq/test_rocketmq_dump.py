"""`logserver dump` of a RocketMQ store with damage: exit code 1, and a summary with topic, queue and offset."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from tests.cli.runner import fine, run, settings_options
from tests.golden import rocketmq_stores as stores

QUEUE = ("order_s1", 0)
QUEUE_OFFSET = 20


@pytest.mark.parametrize(("number", "said"), [(5, 4), (5, 0), (3, 1 << 40), (0, 2)])
def test_a_wrong_queue_offset_in_a_record(number: int, said: int, tmp_path: Path) -> None:
    golden = stores.golden("small")
    root = stores.copy_store(golden, tmp_path / "store")
    row = [r for r in golden.expected() if (r["topic"], r["queueId"]) == QUEUE][number]
    at = row["physicalOffset"]
    base = at - at % golden.file_bytes
    with (root / "commitlog" / f"{base:020}").open("r+b") as file:
        file.seek(at - base + QUEUE_OFFSET)
        file.write(struct.pack(">q", said))
    ended = run("dump", root, *settings_options(golden.settings))
    assert ended.code == 1
    assert "incomplete" in ended.err
    assert "order_s1-0: 1 unit-offset-differs" in ended.err
    assert f"the record of entry {number} says that its offset is {said}" in ended.err
    assert len(fine("dump", golden.root, *settings_options(golden.settings)).rows) == len(
        ended.rows
    )
