"""Converted stores, opened by the real servers of the other format: every record keeps its offset and its times."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from storage import StoreOptions, TopicPartition, convert_store, open_store
from storage.contract import run_serially
from tests.golden import rocketmq_stores, stores
from tests.golden.rocketmq_stores import GoldenStore
from tests.interop import peers, written
from tests.interop.rocketmq import rocketmq_peers, rocketmq_written

pytestmark = pytest.mark.java

SIZES: Mapping[str, str] = {
    "mappedFileSizeCommitLog": str(2 << 20),
    "mappedFileSizeConsumeQueue": "6000",
    "maxHashSlotNum": "100",
    "maxIndexNum": "400",
}
OPENED = [
    rocketmq_stores.golden(name)
    for name in ("basic", "bodies", "deleted-head", "system", "unclean")
]


@pytest.mark.parametrize("golden", OPENED, ids=rocketmq_stores.by_id)
def test_the_real_kafka_reads_a_rocketmq_store(golden: GoldenStore, tmp_path: Path) -> None:
    options = StoreOptions(settings=golden.settings)
    report = convert_store(golden.root, tmp_path / "new", to="kafka", encode=True, options=options)
    answer = peers.run_kafka_opens(tmp_path / "new", "--direct", "--clean", "yes")
    with open_store("kafka", tmp_path / "new", read_only=True) as store:
        assert answer.records == written.rows(store)
    names = {topic.topic: topic.name for topic in report.topics}
    for row in golden.expected():
        if row["topic"] in names:
            theirs = answer.records[names[row["topic"]], row["queueId"]]
            (found,) = [r for r in theirs if r["offset"] == row["queueOffset"]]
            assert found["timestamp"] == row["bornTimestamp"]


def test_a_real_kafka_broker_boots_on_one_and_goes_on(tmp_path: Path) -> None:
    golden = rocketmq_stores.golden("small")
    options = StoreOptions(settings=golden.settings)
    report = convert_store(golden.root, tmp_path / "new", to="kafka", options=options)
    topic = next(topic for topic in report.topics if topic.records)
    answer = peers.run_kafka_opens(tmp_path / "new", "--append", f"{topic.name}:0:5")
    with open_store("kafka", tmp_path / "new", read_only=True) as store:
        mine = written.rows(store)[topic.name, 0]
        assert answer.records[topic.name, 0][:-5] == mine


def test_the_real_rocketmq_reads_kafka_s_stores(tmp_path: Path) -> None:
    """All golden stores are read in one JVM, including queues that begin after offset 0."""
    options = StoreOptions(settings=SIZES)
    for name in stores.healthy_stores():
        convert_store(
            stores.KAFKA / name / "data",
            tmp_path / name,
            to="rocketmq",
            encode=True,
            target_options=options,
        )
    answers = rocketmq_peers.run_rocketmq_opens_each(tmp_path, SIZES)
    assert sorted(answers) == sorted(stores.healthy_stores())
    for name, answer in answers.items():
        assert answer.odd == []
        assert answer.store["lastExit"] == "normal"
        mine = rocketmq_written.rows(tmp_path / name, SIZES)
        assert answer.messages == mine, name
        with open_store("rocketmq", tmp_path / name, options, read_only=True) as store:
            for (topic, number), bounds in answer.queues.items():
                ours = store.bounds(TopicPartition(topic, number))
                assert bounds == ours[::2], (name, topic, number)


def test_the_real_rocketmq_reads_a_log_that_was_written_in_parts(tmp_path: Path) -> None:
    """The files end in long paddings; another part writes each file's last record than the next file's first."""
    sizes = {**SIZES, "mappedFileSizeCommitLog": str(128 << 10)}
    for name in ("parts", "segments", "deleted"):  # the last store begins after offset 0
        convert_store(
            stores.KAFKA / name / "data",
            tmp_path / name,
            to="rocketmq",
            encode=True,
            target_options=StoreOptions(settings=sizes),
            run=run_serially,
        )
    assert len(list((tmp_path / "segments" / "commitlog").iterdir())) > 1
    answers = rocketmq_peers.run_rocketmq_opens_each(tmp_path, sizes)
    assert sorted(answers) == ["deleted", "parts", "segments"]
    for name, answer in answers.items():
        assert answer.odd == []
        assert answer.store["lastExit"] == "normal"
        assert answer.messages == rocketmq_written.rows(tmp_path / name, sizes), name


def test_the_real_rocketmq_finds_by_key_and_time(tmp_path: Path) -> None:
    options = StoreOptions(settings=SIZES)
    convert_store(
        stores.KAFKA / "parts" / "data", tmp_path / "new", to="rocketmq", target_options=options
    )
    rows = [r for found in rocketmq_written.rows(tmp_path / "new", SIZES).values() for r in found]
    keyed = [row for row in rows if row["keys"]][:20]
    queries = tmp_path / "queries.json"
    queries.write_text(
        rocketmq_stores.in_order(
            [
                {
                    "topic": row["topic"],
                    "key": row["keys"],
                    "maxNum": 64,
                    "begin": row["storeTimestamp"] - 1000,
                    "end": row["storeTimestamp"] + 1000,
                }
                for row in keyed
            ]
        )
    )
    answer = rocketmq_peers.run_rocketmq_opens(tmp_path / "new", SIZES, "--queries", queries)
    assert len(answer.queries) == len(keyed) > 0
    for row, found in zip(keyed, answer.queries, strict=True):
        assert row["physicalOffset"] in found["indexOrder"]
