"""Deleted records and added partitions between both programs: the real Kafka finds the same log starts."""

from __future__ import annotations

from pathlib import Path

import pytest

from storage import Record, StoreOptions, SupportsDeleteRecords, TopicPartition, open_store
from tests.interop import peers, written

pytestmark = pytest.mark.java

SMALL = {"internal.segment.bytes": "1500", "index.interval.bytes": "100"}
COUNT = 60
STARTS = {"inside": 13, "all": COUNT, "none": 0}


def write(root: Path) -> None:
    """Write a topic of one partition for each start, delete the records below it, and add a partition."""
    with open_store("kafka", root, StoreOptions(settings=SMALL)) as store:
        assert isinstance(store, SupportsDeleteRecords)
        for topic, start in STARTS.items():
            store.create_topic(topic, 1)
            for n in range(COUNT):
                store.append(TopicPartition(topic, 0), [Record(b"k", b"%090d" % n, (), 1000 + n)])
            store.delete_records(TopicPartition(topic, 0), start)
            store.add_partitions(topic, 2)
            store.append(TopicPartition(topic, 1), [Record(None, b"added", (), 5)])


@pytest.mark.parametrize("clean", ["yes", "no"])
def test_the_real_kafka_starts_where_we_do(tmp_path: Path, clean: str) -> None:
    """After its clean start and after its recovery; its records are ours."""
    root = tmp_path / "store"
    write(root)
    answer = peers.run_kafka_opens(root, "--clean", clean)
    for topic, start in STARTS.items():
        reported = answer.summaries[topic, 0]
        assert (reported["earliest"], reported["latest"]) == (start, COUNT)
        assert (answer.summaries[topic, 1]["earliest"], answer.summaries[topic, 1]["latest"]) == (
            0,
            1,
        )
    with open_store("kafka", root, read_only=True) as store:
        assert written.rows(store) == dict(answer.records)


def test_we_start_where_the_real_kafka_does(tmp_path: Path) -> None:
    """It appends to our logs and stops. Then we find its starts, and its records."""
    root = tmp_path / "store"
    write(root)
    appends = [word for topic in STARTS for word in ("--append", f"{topic}:0:25")]
    answer = peers.run_kafka_opens(
        root, "--whole", "yes", *appends, "--keep", str(tmp_path / "kafka")
    )
    with open_store("kafka", tmp_path / "kafka" / "log") as store:
        assert isinstance(store, SupportsDeleteRecords)
        assert list(store.recovery.findings) == []
        assert written.rows(store) == dict(answer.records)
        for topic, start in STARTS.items():
            assert store.bounds(TopicPartition(topic, 0)) == (start, COUNT + 25, COUNT + 25)
            assert answer.summaries[topic, 0]["earliest"] == start
            store.delete_records(TopicPartition(topic, 0), COUNT + 1)
    answer = peers.run_kafka_opens(tmp_path / "kafka" / "log", "--clean", "yes")
    for topic in STARTS:
        assert answer.summaries[topic, 0]["earliest"] == COUNT + 1


@pytest.mark.parametrize("clean", ["yes", "no"])
def test_the_real_kafka_starts_where_retention_leaves_off(tmp_path: Path, clean: str) -> None:
    """Also while the deleted files wait for their removal; and we do the same after its start."""
    root = tmp_path / "store"
    with open_store("kafka", root, StoreOptions(settings=SMALL)) as store:
        for topic, configs in (
            ("by-time", {"retention.ms": "1000"}),
            ("by-size", {"retention.bytes": "4000"}),
            ("whole", {"retention.bytes": "0"}),
        ):
            store.create_topic(topic, 1, configs)
            for n in range(COUNT):
                record = Record(b"k", b"%090d" % n, (), 1000 * n)
                store.append(TopicPartition(topic, 0), [record])
        store.flush()
        store.enforce_retention(1000 * COUNT)
        starts = {t: store.bounds(TopicPartition(t, 0)).start for t in store.topics()}
    assert len(list(root.rglob("*.log.deleted"))) > 3
    assert 0 < starts["by-size"] < starts["by-time"] < starts["whole"] == COUNT
    answer = peers.run_kafka_opens(
        root, "--clean", clean, "--append", "whole:0:3", "--keep", str(tmp_path / "kafka")
    )
    reported = {topic: answer.summaries[topic, 0]["earliest"] for topic in starts}
    assert reported == starts
    assert list((tmp_path / "kafka" / "log").rglob("*.deleted")) == []
    with open_store("kafka", tmp_path / "kafka" / "log") as store:
        assert {t: store.bounds(TopicPartition(t, 0)).start for t in starts} == starts
        assert store.bounds(TopicPartition("whole", 0)).end == COUNT + 3
