"""Compaction by the real Kafka and by ours, of the same logs: each reads what the other left, and has nothing to do."""

from __future__ import annotations

import base64
import random
import shutil
import time
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path

import pytest

from storage import Isolation, TopicPartition, open_inspector, open_store
from storage.files import RealFileSystem
from storage.kafka.format import names
from storage.kafka.format.checkpoints import decode_offsets
from storage.kafka.store import KafkaStore
from tests.golden.stores import as_row
from tests.interop import peers
from tests.interop.brokers import Broker
from tests.robustness.crash.compacted import CONFIGS, CompactedTopic

pytestmark = pytest.mark.java

REQUESTS = 150
OURS, THEIRS = TopicPartition("ours", 0), TopicPartition("theirs", 0)
TOPICS = (OURS, THEIRS)
CLEANER = (
    "log.cleanup.policy=compact",
    "log.cleaner.min.cleanable.ratio=0.01",
    "log.cleaner.backoff.ms=100",
    f"log.cleaner.delete.retention.ms={CONFIGS['delete.retention.ms']}",
    "log.segment.delete.delay.ms=0",
)
MOST_S = 120


def filled(path: Path, seed: int) -> Mapping[TopicPartition, CompactedTopic]:
    """Write two topics of the same kind, and clean the first twice, with more records between."""
    topics = {at: CompactedTopic(at) for at in TOPICS}
    fs = RealFileSystem()
    for at, topic in topics.items():
        dice = random.Random(seed)
        for turn in range(2):
            with topic.open(fs, path) as store:
                topic.fill(store, dice, REQUESTS)
                if at == OURS:
                    assert topic.clean(store) >= 1
                if turn == 0:
                    topic.clock.now_ms += 200_000
    return topics


def committed(store: KafkaStore, at: TopicPartition) -> list[dict[str, object]]:
    scan = store.scan(at, isolation=Isolation.READ_COMMITTED)
    return [as_row(at, record) for record in scan]


def said(rows: list[dict[str, object]]) -> dict[bytes, bytes]:
    """Return the newest value of each key that these records tell."""
    found: dict[bytes, bytes] = {}
    for row in rows:
        key = base64.b64decode(str(row["key"]))
        if row["value"] is None:
            found.pop(key, None)
        else:
            found[key] = base64.b64decode(str(row["value"]))
    return found


def test_the_real_kafka_reads_what_our_cleaner_left(tmp_path: Path, seed: int) -> None:
    topics = filled(tmp_path, seed)
    with open_store("kafka", tmp_path, read_only=True) as store:
        assert isinstance(store, KafkaStore)
        rows = {at: committed(store, at) for at in TOPICS}
    # Kafka's own check of a time index takes an emptied batch for an error, also after its own cleaner.
    with closing(open_inspector(tmp_path)) as inspector:
        assert list(inspector.verify()) == []
    for clean in ("yes", "no"):
        answer = peers.run_kafka_opens(
            tmp_path, "--direct", "--clean", clean, "--isolation", "read_committed"
        )
        for at, topic in topics.items():
            assert answer.records[at] == rows[at]
            assert answer.summaries[at]["latest"] == topic.end
            assert said(answer.records[at]) == topic.values


def logs(root: Path, at: TopicPartition) -> dict[str, bytes]:
    """Return the closed segments of a partition."""
    found = sorted((root / str(at)).glob("*.log"))
    return {path.name: path.read_bytes() for path in found[:-1]}


def clean_by_broker(broker: Broker, end: int) -> None:
    """Let a broker take over the directory, clean its own topic up to an offset, and stop."""
    (broker.log / names.META_PROPERTIES).unlink()  # the broker has an identity of its own
    try:
        broker.adopt()
        broker.start(CLEANER)
        wait_for_cleaner(broker.log, end)
        broker.end(kill=False)
    finally:
        broker.end(kill=True)


def wait_for_cleaner(root: Path, end: int) -> None:
    """Wait until the broker's cleaner has cleaned its own topic up to an offset."""
    deadline = time.monotonic() + MOST_S
    path = root / names.CLEANER_OFFSETS
    while decode_offsets(path.read_bytes()).get(THEIRS, 0) < end:
        assert time.monotonic() < deadline, path.read_text()
        time.sleep(0.1)


def test_each_cleaner_has_nothing_to_do_after_the_other(tmp_path: Path, seed: int) -> None:
    broker = Broker(tmp_path)
    broker.log.mkdir()
    topics = filled(broker.log, seed)
    before = logs(broker.log, OURS)
    dirty_bytes = sum(map(len, logs(broker.log, THEIRS).values()))
    active = max(int(p.stem) for p in (broker.log / str(THEIRS)).glob("*.log"))
    ours_cleaned = decode_offsets((broker.log / names.CLEANER_OFFSETS).read_bytes())[OURS]
    clean_by_broker(broker, active)
    assert logs(broker.log, OURS) == before, "Kafka's cleaner found nothing to do"
    assert decode_offsets((broker.log / names.CLEANER_OFFSETS).read_bytes())[OURS] == ours_cleaned
    theirs = logs(broker.log, THEIRS)
    assert sum(map(len, theirs.values())) < dirty_bytes / 2

    with topics[THEIRS].open(RealFileSystem(), broker.log) as store:
        for topic in topics.values():
            assert topic.problem(store) is None
            store.alter_topic(topic.at.topic, CONFIGS)
        assert topics[THEIRS].clean(store) == 0, "ours finds nothing to do"
        assert logs(broker.log, THEIRS) == theirs


def test_both_cleaners_leave_the_same_records(tmp_path: Path, seed: int) -> None:
    """Not the same bytes: the broker's clock sets its delete horizons, and it forgets producers of old times."""
    root = tmp_path / "both"
    root.mkdir()
    topics = filled(root, seed)
    broker = Broker(tmp_path / "broker")
    broker.work.mkdir()
    shutil.copytree(root, broker.log)
    active = max(int(p.stem) for p in (root / str(THEIRS)).glob("*.log"))
    clean_by_broker(broker, active)
    topic = topics[THEIRS]
    with topic.open(RealFileSystem(), root) as store:
        topic.clean(store)
        mine = committed(store, THEIRS)
    with open_store("kafka", broker.log, read_only=True) as store:
        assert isinstance(store, KafkaStore)
        theirs = committed(store, THEIRS)
    assert mine == theirs
