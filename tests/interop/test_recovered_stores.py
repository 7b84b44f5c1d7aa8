"""The real servers read a store that our start recovered after a power loss: the same records, at their offsets.

The environment variable RECOVERED_STORES sets the number of stores of each backend (default 20).
"""

from __future__ import annotations

import base64
import os
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from storage import StoredRecord, TopicPartition, open_store
from storage.kafka.format import names
from storage.kafka.format.checkpoints import decode_offsets, encode_offsets
from storage.rocketmq.format.properties import SHARDING_KEY
from tests.contract.harness import START_MS
from tests.golden.stores import as_answer, as_row
from tests.interop import peers
from tests.interop.recovered import Recovered, recovered
from tests.interop.rocketmq import rocketmq_peers
from tests.interop.rocketmq.rocketmq_peers import RocketAnswer
from tests.robustness.crash.workload import BACKENDS, HOUR_MS

pytestmark = pytest.mark.java

WANTED = int(os.environ.get("RECOVERED_STORES", "20"))
TIMES_MS = [START_MS + life * HOUR_MS + after for life in range(3) for after in (0, 1, 45, 200)]
CHECKPOINTS = (names.RECOVERY_POINTS, names.HIGH_WATERMARKS, names.LOG_STARTS)
AT_ONCE = 20  # stores in one JVM: each has a dozen busy threads
Figures = Callable[[str], None]


@pytest.fixture(scope="module")
def of_kafka(tmp_path_factory: pytest.TempPathFactory) -> Sequence[Recovered]:
    return list(recovered(BACKENDS["kafka"], WANTED, tmp_path_factory.mktemp("kafka")))


@pytest.fixture(scope="module")
def of_rocketmq(tmp_path_factory: pytest.TempPathFactory) -> Sequence[Recovered]:
    return list(recovered(BACKENDS["rocketmq"], WANTED, tmp_path_factory.mktemp("rocketmq")))


def tell(figures: Figures, backend: str, how: str, stores: Sequence[Recovered]) -> None:
    counts = [len(records) for store in stores for records in store.records.values()]
    figures(
        f"recovered stores, {backend}, {how}: {len(stores)} stores, {len(counts)} partitions, {sum(counts)} records"
    )


# ---- Kafka ----


def renamed(store: Recovered, partition: TopicPartition) -> TopicPartition:
    """Return a partition's name in a directory that it shares with partitions of other stores."""
    return TopicPartition(f"{store.path.name}-{partition.topic}", partition.partition)


def merge(stores: Sequence[Recovered], root: Path) -> None:
    """Create one log directory with the partitions of all the stores, each renamed, as after a clean stop.

    Topic ids are not copied: stores of one workload have the same ids. The broker assigns new ones.
    """
    offsets: dict[str, dict[TopicPartition, int]] = {name: {} for name in CHECKPOINTS}
    for store in stores:
        for partition in store.records:
            new = renamed(store, partition)
            shutil.copytree(
                store.path / names.partition_dir_name(*partition),
                root / names.partition_dir_name(*new),
                ignore=shutil.ignore_patterns(names.PARTITION_METADATA),
            )
        for name, merged in offsets.items():
            file = store.path / name
            reported = decode_offsets(file.read_bytes()) if file.exists() else {}
            merged |= {renamed(store, partition): offset for partition, offset in reported.items()}
    for name, merged in offsets.items():
        (root / name).write_bytes(encode_offsets(merged))


def is_passed(store: Recovered, partition: TopicPartition) -> bool:
    """Return whether the first segment is below the log start: a crash came before delete-records removed it.

    The real broker looks up a time in the first segment that reaches it, also in such a one, and finds no record; it
    does so until its next round of retention has removed the segment (UnifiedLog.fetchOffsetByTimestamp).
    """
    folder = store.path / names.partition_dir_name(*partition)
    bases = sorted(int(path.stem) for path in folder.glob("*.log"))
    return len(bases) > 1 and bases[1] <= store.bounds[partition].start


@pytest.mark.parametrize(
    "options",
    [
        pytest.param(("--clean", "yes", "--direct"), id="as-stopped"),
        pytest.param(("--clean", "no", "--direct"), id="recovered-again"),
        pytest.param(("--clean", "yes"), id="broker"),
    ],
)
def test_the_real_kafka_reads_recovered_stores(
    of_kafka: Sequence[Recovered],
    tmp_path: Path,
    options: Sequence[str],
    figures: Figures,
    request: pytest.FixtureRequest,
) -> None:
    merge(of_kafka, tmp_path)
    times = ",".join(map(str, TIMES_MS))
    answer = peers.run_kafka_opens(tmp_path, *options, "--times", times)
    assert len(answer.records) == sum(len(store.records) for store in of_kafka)
    for store in of_kafka:
        with open_store("kafka", store.path, read_only=True) as ours:
            for old, records in store.records.items():
                new = renamed(store, old)
                assert answer.records[new] == [as_row(new, record) for record in records]
                reported = answer.summaries[new]
                assert (reported["earliest"], reported["latest"]) == (
                    store.bounds[old].start,
                    store.bounds[old].end,
                )
                found = [(t, as_answer(ours.offset_for_time(old, t))) for t in TIMES_MS]
                expected = [(t, answered) for t, answered in answer.times[new]]
                if is_passed(store, old):
                    found = [
                        (t, None if of_real is None else of_ours)
                        for (t, of_ours), (_, of_real) in zip(found, expected, strict=True)
                    ]
                assert found == expected
    tell(figures, "Kafka", request.node.callspec.id, of_kafka)


# ---- RocketMQ ----


def as_told(record: StoredRecord) -> dict[str, Any]:
    """Return the fields of one of our records that are compared with the real store."""
    keys = [record.key.decode()] if record.key is not None else []
    return {
        "queueOffset": record.offset,
        "storeTimestamp": record.store_timestamp_ms,
        "bornTimestamp": record.timestamp_ms,
        "key": keys[0] if keys else None,
        "keys": " ".join([*keys, *record.lookup_keys]) or None,
        "body": base64.b64encode(record.value or b"").decode(),
    }


def in_part(row: dict[str, Any]) -> dict[str, Any]:
    """Return the same fields of a message that the real store reports."""
    looked_at = ("queueOffset", "storeTimestamp", "bornTimestamp", "keys", "body")
    reported = {name: row[name] for name in looked_at}
    return reported | {"key": row["properties"].get(SHARDING_KEY)}


@pytest.mark.parametrize("exit_before", ["normal", "abnormal"])
def test_the_real_rocketmq_reads_recovered_stores(
    of_rocketmq: Sequence[Recovered], tmp_path: Path, exit_before: str, figures: Figures
) -> None:
    reported: dict[str, RocketAnswer] = {}
    for first in range(0, len(of_rocketmq), AT_ONCE):
        folder = tmp_path / f"{first}"
        for store in of_rocketmq[first : first + AT_ONCE]:
            copy = shutil.copytree(store.path, folder / store.path.name)
            if exit_before == "abnormal":
                (copy / "abort").write_text("1")
        reported |= rocketmq_peers.run_rocketmq_opens_each(folder, BACKENDS["rocketmq"].settings)
    assert len(reported) == len(of_rocketmq)
    for store in of_rocketmq:
        answer = reported[store.path.name]
        assert answer.store["lastExit"] == exit_before
        assert answer.odd == [], store.path
        for partition, records in store.records.items():
            messages = [in_part(row) for row in answer.messages.get(partition, [])]
            assert messages == [as_told(record) for record in records], (store.path, partition)
            bounds = store.bounds[partition]
            assert answer.queues.get(partition, (0, 0)) == (bounds.start, bounds.end)
        # The real store does not know of the deletion of a topic: it recreates queues for records at the log's end.
        others = set(answer.messages) - set(store.records)
        assert {topic for topic, _ in others} <= store.deleted
    tell(figures, "RocketMQ", f"exit {exit_before}", of_rocketmq)
