"""The real Kafka and the real RocketMQ read what the Spark sink writes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from logserver.pipeline.write.store import Task
from storage import open_store
from tests.interop import peers, written
from tests.interop.rocketmq import rocketmq_peers, rocketmq_written
from tests.pipeline.sink.test_sink import NOON, batch, planned

pytestmark = pytest.mark.java

COUNT = 300
SIZES = rocketmq_written.SIZES


def write(path: Path, backend: str, **options: Any) -> None:
    """Run two jobs, and a stream's micro-batch twice: a new store, then records after the existing ones."""
    settings = {
        f"set.{name}": value for name, value in (SIZES if backend == "rocketmq" else {}).items()
    }
    for job in range(2):
        sink = planned(
            path, list(columns(0)), backend=backend, numPartitions=3, **settings, **options
        )
        staged = [sink.stage([batch(columns(10 * job + task))], Task(task)) for task in range(2)]
        sink.commit(staged)
    for _ in range(2):
        sink = planned(path, list(columns(0)), True, backend=backend, **settings)
        sink.commit([sink.stage([batch(columns(99))], Task(0, "query", 0))], 0)


def columns(task: int) -> Mapping[str, list[Any]]:
    numbers = range(COUNT)
    return {
        "topic": ["even" if n % 2 else "odd" for n in numbers],
        "key": [None if n % 5 == 0 else b"key-%d" % (n % 7) for n in numbers],
        "value": [b"%d/%d " % (task, n) * (n % 40 + 1) for n in numbers],
        "headers": [None if n % 3 else [("task", b"%d" % task), ("häder", b"w\xc3\xa4rt")] for n in numbers],
        "timestamp": [NOON if n % 4 else None for n in numbers],
        "tag": [None if n % 6 else f"tag{n % 2}" for n in numbers],
        "keys": [[f"k{n}", "x"] if n % 10 == 0 else None for n in numbers],
    }  # fmt: skip


@pytest.mark.parametrize("clean", ["yes", "no"])
@pytest.mark.parametrize("compression", ["none", "lz4"])
def test_the_real_kafka_reads_it(tmp_path: Path, clean: str, compression: str) -> None:
    path = tmp_path / "store"
    write(path, "kafka", compression=compression)
    answer = peers.run_kafka_opens(path, "--clean", clean)
    with open_store("kafka", path, read_only=True) as store:
        mine = written.rows(store)
    assert answer.records == mine
    assert sum(map(len, mine.values())) == 5 * COUNT
    peers.index_check(sorted(each for each in path.iterdir() if each.is_dir()))


def test_the_real_kafka_reads_nulls(tmp_path: Path) -> None:
    path = tmp_path / "store"
    sink = planned(path, ["key", "value"], backend="kafka", topic="t")
    sink.commit(
        [sink.stage([batch({"key": [None, b"k", b""], "value": [None, None, b""]})], Task(0))]
    )
    records = peers.run_kafka_opens(path, "--clean", "yes").records["t", 0]
    assert [(record["key"], record["value"]) for record in records] == [
        (None, None),
        ("aw==", None),
        ("", ""),
    ]


def test_the_real_rocketmq_reads_it(tmp_path: Path) -> None:
    path = tmp_path / "store"
    write(path, "rocketmq")
    answer = rocketmq_peers.run_rocketmq_opens(path, SIZES, "--scan", "--min-max")
    mine = rocketmq_written.rows(path)
    assert answer.odd == []
    assert answer.messages == mine
    assert sum(map(len, mine.values())) == 5 * COUNT
