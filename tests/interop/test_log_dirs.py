"""A real broker with several log directories: our commands with `log.dirs` return what its consumer reads."""

from __future__ import annotations

import asyncio
import base64
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient, NewTopic, RecordsToDelete
from aiokafka.structs import TopicPartition

from tests.cli.runner import fine, place_of, run
from tests.interop.brokers import Broker

pytestmark = pytest.mark.java

PARTITIONS = {"orders": 4, "a-1.b": 3}
ADDRESSES = [
    TopicPartition(t, number) for t, count in PARTITIONS.items() for number in range(count)
]
CHECKPOINTS = ("log-start-offset-checkpoint", "recovery-point-offset-checkpoint")
SOON = (
    "log.flush.start.offset.checkpoint.interval.ms=500",
    "log.flush.offset.checkpoint.interval.ms=500",
    "log.initial.task.delay.ms=500",  # 30 s by default, until the first checkpoints
)
WAIT_S = 60.0  # for a checkpoint
TIME_MS = 1_700_000_000_000
Row = dict[str, Any]


class Answers(NamedTuple):
    """The answers that the broker's clients received."""

    records: dict[TopicPartition, list[Row]]
    bounds: dict[TopicPartition, tuple[int, int]]
    at_time: dict[TopicPartition, int | None]


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    """A broker that is not started yet."""
    found = Broker(tmp_path / "broker")
    yield found
    found.end(kill=True)


async def fill(address: str) -> None:
    """Create topics with records, delete the first 5 records of one partition, and commit offsets of a group."""
    admin = AIOKafkaAdminClient(bootstrap_servers=address)
    await admin.start()
    try:
        await admin.create_topics([NewTopic(t, count, 1) for t, count in PARTITIONS.items()])
        producer = AIOKafkaProducer(bootstrap_servers=address, compression_type="lz4")
        await producer.start()
        try:
            for topic, number in ADDRESSES:
                for n in range(20 + number):
                    await producer.send(
                        topic,
                        b"%s-%d" % (topic.encode(), n),
                        key=b"k%d" % n,
                        partition=number,
                        timestamp_ms=TIME_MS + n,
                        headers=[("n", b"%d" % n)],
                    )
                await producer.flush()
        finally:
            await producer.stop()
        await admin.delete_records({ADDRESSES[1]: RecordsToDelete(before_offset=5)})
    finally:
        await admin.close()
    consumer = AIOKafkaConsumer(
        bootstrap_servers=address, group_id="readers", enable_auto_commit=False
    )
    await consumer.start()
    try:
        consumer.assign(ADDRESSES)
        await consumer.commit({one: 7 + one.partition for one in ADDRESSES})
    finally:
        await consumer.stop()


async def read(address: str) -> Answers:
    """Return everything that a consumer receives."""
    consumer = AIOKafkaConsumer(bootstrap_servers=address, auto_offset_reset="earliest")
    await consumer.start()
    try:
        consumer.assign(ADDRESSES)
        begin = await consumer.beginning_offsets(ADDRESSES)
        end = await consumer.end_offsets(ADDRESSES)
        found = await consumer.offsets_for_times(dict.fromkeys(ADDRESSES, TIME_MS + 11))
        records: dict[TopicPartition, list[Row]] = {one: [] for one in ADDRESSES}
        await consumer.seek_to_beginning(*ADDRESSES)
        while sum(map(len, records.values())) < sum(end[one] - begin[one] for one in ADDRESSES):
            for one, batch in (await consumer.getmany(timeout_ms=1000)).items():
                records[one] += [as_row(record) for record in batch]
    finally:
        await consumer.stop()
    return Answers(
        records,
        {one: (begin[one], end[one]) for one in ADDRESSES},
        {one: None if at is None else at.offset for one, at in found.items()},
    )


def text(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode()


def as_row(record: Any) -> Row:
    headers = [[name, text(value)] for name, value in record.headers]
    return {
        "offset": record.offset,
        "timestamp": record.timestamp,
        "key": text(record.key),
        "value": text(record.value),
        "headers": headers,
    }


def check(paths: list[Path], roots: list[Path], theirs: Answers) -> None:
    """Check that each of our read commands returns the broker's answers, whichever of the directories is its PATH."""
    for root in paths:
        options = ["--set", "log.dirs=" + ",".join(map(str, roots))]
        for one in ADDRESSES:
            place = place_of(one)
            rows = run("dump", root, *options, *place).rows
            assert [our_row(row) for row in rows] == theirs.records[one]
            reported = fine("offsets", root, *options, *place).document
            assert (reported["earliest"], reported["latest"]) == theirs.bounds[one]
            at = fine("offsets", root, *options, *place, "--time", TIME_MS + 11).document
            assert at["offset"] == theirs.at_time[one]
        found = run("find", root, *options, "--topic", "orders", "--key", "k6").rows
        wanted = [
            r for one in ADDRESSES[:4] for r in theirs.records[one] if r["key"] == text(b"k6")
        ]
        assert sorted(row["offset"] for row in found) == sorted(r["offset"] for r in wanted)
        committed = run("dump", root, *options, "--what", "offsets").rows
        assert {
            TopicPartition(r["topic"], r["partition"]): r["offset"]
            for r in committed
            if r["group"] == "readers"
        } == {one: 7 + one.partition for one in ADDRESSES}


def our_row(row: Row) -> Row:
    return {
        "offset": row["offset"],
        "timestamp": row["timestamp"],
        "key": row["key"],
        "value": row["value"],
        "headers": [list(header) for header in row["headers"]],
    }


def wait_for_start(roots: list[Path]) -> None:
    """Wait until the broker has written the log start of the partition with deleted records, and the recovery point
    that it raised to it.
    """
    line = "{} {} 5".format(*ADDRESSES[1])
    ends = time.monotonic() + WAIT_S
    while not any(all(line in lines_of(root / name) for name in CHECKPOINTS) for root in roots):
        assert time.monotonic() < ends
        time.sleep(0.1)


def lines_of(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


def test_two_log_directories_of_a_broker_are_read_as_its_consumer_reads_them(
    broker: Broker,
) -> None:
    """This holds while the broker runs, and after its clean stop, which writes the checkpoints of both directories."""
    roots = [broker.log, broker.work / "other"]
    broker.start(["log.dirs=" + ",".join(map(str, roots)), *SOON])
    asyncio.run(fill(broker.address))
    theirs = asyncio.run(read(broker.address))
    assert [len(theirs.records[one]) for one in ADDRESSES[:3]] == [20, 16, 22]
    homes = [sum((root / f"{t}-{n}").is_dir() for t, n in ADDRESSES) for root in roots]
    assert min(homes) > 0
    assert sum(homes) == len(ADDRESSES)
    wait_for_start(roots)
    check(roots[1:], roots, theirs)
    broker.end(kill=False)
    check(roots, roots, theirs)
    rows = run("verify", roots[0], "--set", "log.dirs=" + ",".join(map(str, roots))).rows
    assert [row for row in rows if row["severity"] != "info"] == []
