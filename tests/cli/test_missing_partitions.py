"""Partitions with a missing folder though other files name their records: every copy of the store reports them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from logserver.pipeline.jobs import export
from storage import Record, StoreOptions, TopicPartition, open_splitter, open_store
from storage.errors import Corrupt, InvalidArgument
from tests.cli.runner import run, settings_options
from tests.golden import rocketmq_stores

SIZES = rocketmq_stores.golden("small").settings
GONE = [("orders", 0), ("orders", 1), ("orders", 2)]


def a_kafka_store(root: Path) -> Path:
    with open_store("kafka", root) as store:
        for topic, partitions in (("orders", 3), ("other", 1)):
            store.create_topic(topic, partitions)
            for number in range(partitions):
                for n in range(5):
                    store.append(TopicPartition(topic, number), [Record(b"k", b"%d" % n)])
    return root


def a_rocketmq_store(root: Path, *, used: int) -> Path:
    """Create a store with queue 0 of `orders` ending at 5, and a group that has read up to `used`."""
    with open_store("rocketmq", root, StoreOptions(settings=SIZES)) as store:
        store.create_topic("orders", 1)
        for n in range(5):
            store.append(TopicPartition("orders", 0), [Record(b"k", b"%d" % n)])
    offsets = {"offsetTable": {"orders@g": {"0": used}}}
    (root / "config" / "consumerOffset.json").write_text(json.dumps(offsets))
    (root / "checkpoint").unlink()
    return root


def missing_in(rows: list[dict[str, object]]) -> list[tuple[object, object]]:
    codes = ("partition-without-folder", "queue-ends-early")
    return [(row["topic"], row["partition"]) for row in rows if row["code"] in codes]


@pytest.mark.parametrize("gone", GONE)
@pytest.mark.parametrize("clean", [True, False])
def test_a_conversion_reports_the_missing_partition(
    tmp_path: Path, gone: tuple[str, int], clean: bool
) -> None:
    root = a_kafka_store(tmp_path / "s")
    shutil.rmtree(root / f"{gone[0]}-{gone[1]}")
    if not clean:
        (root / ".kafka_cleanshutdown").unlink()
    sizes = [part.replace("--set", "--target-set") for part in settings_options(SIZES)]
    for number, topics in enumerate([(), ("--topic", "orders"), ("--topic", "other")]):
        ended = run("convert", root, tmp_path / f"new{number}", "--to", "rocketmq", *topics, *sizes)
        is_there = "other" not in topics
        assert missing_in(ended.document["findings"]) == ([gone] if is_there else [])
        assert ended.code == (1 if is_there else 0)
        kept = json.loads((tmp_path / f"new{number}/.logserver.convert.json").read_bytes())
        assert missing_in(kept["findings"]) == ([gone] if is_there else [])
    shown = run("convert", root, tmp_path / "t", "--to", "rocketmq", "--output", "table", *sizes)
    assert f"{gone[0]}-{gone[1]}" in shown.out.decode()


@pytest.mark.parametrize("used", [6, 9, 5000])
def test_a_conversion_reports_a_queue_that_ends_early(tmp_path: Path, used: int) -> None:
    root = a_rocketmq_store(tmp_path / "s", used=used)
    ended = run("convert", root, tmp_path / "new", "--to", "kafka", *settings_options(SIZES))
    assert missing_in(ended.document["findings"]) == [("orders", 0)]
    assert (ended.code, ended.document["records"]) == (1, 5)


@pytest.mark.parametrize("gone", GONE)
def test_an_export_fails_or_reports_the_missing_partition(
    tmp_path: Path, gone: tuple[str, int], caplog: pytest.LogCaptureFixture
) -> None:
    root = a_kafka_store(tmp_path / "s")
    whole = export.planned(root, tmp_path / "out", {}, export.ExportOptions())
    shutil.rmtree(root / f"{gone[0]}-{gone[1]}")
    for topics in (None, "orders", "o.*"):
        with pytest.raises(Corrupt, match=f"partition {gone[1]}") as caught:
            export.planned(root, tmp_path / "out", {}, export.ExportOptions(topics=topics))
        assert caught.value.facts()["path"] == str(root / f"{gone[0]}-{gone[1]}")
    others = export.planned(root, tmp_path / "out", {}, export.ExportOptions(topics="other"))
    assert [span.partition for span in others] == [("other", 0)]
    assert not caplog.records
    rest = export.planned(root, tmp_path / "out", {}, export.ExportOptions(permissive=True))
    assert rest == [span for span in whole if span.partition != gone]
    assert [f"partition {gone[1]}" in record.getMessage() for record in caplog.records] == [True]


@pytest.mark.parametrize("hurt", [("orders", 0), ("orders", 2), ("other", 0)])
@pytest.mark.parametrize("lost", ["the last segment", "all logs", "read before"])
def test_an_export_fails_or_reports_a_partition_that_misses_its_end(
    tmp_path: Path, hurt: tuple[str, int], lost: str, caplog: pytest.LogCaptureFixture
) -> None:
    root = a_kafka_store(tmp_path / "s")
    rolled = StoreOptions(settings={"internal.segment.bytes": "100"})
    with open_store("kafka", root, rolled) as store:
        for n in range(5):
            store.append(TopicPartition(*hurt), [Record(b"k", b"%d" % n)])
    whole = export.planned(root, tmp_path / "out", {}, export.ExportOptions())
    logs = sorted((root / f"{hurt[0]}-{hurt[1]}").glob("*.log"))
    assert len(logs) > 2
    for log in logs if lost == "all logs" else logs[-1:]:
        for path in log.parent.glob(f"{log.stem}.*"):
            path.unlink()
    ends = {hurt[0]: {str(hurt[1]): 10}} if lost == "read before" else {}
    for topics in (None, hurt[0], hurt[0][:2] + ".*"):
        with pytest.raises(Corrupt, match=f"{hurt[0]}' partition {hurt[1]}") as caught:
            export.planned(root, tmp_path / "out", ends, export.ExportOptions(topics=topics))
        assert caught.value.facts()["kind"] in ("checkpoint-ahead", "partition-without-logs")
    others = "orders" if hurt[0] == "other" else "other"
    export.planned(root, tmp_path / "out", {}, export.ExportOptions(topics=others))
    assert not caplog.records
    rest = export.planned(root, tmp_path / "out", {}, export.ExportOptions(permissive=True))
    assert [span for span in whole if span.partition != hurt] == [
        span for span in rest if span.partition != hurt
    ]
    assert [f"partition {hurt[1]}" in record.getMessage() for record in caplog.records] == [True]


def test_an_export_of_a_topic_without_any_folder_names_a_missing_one(tmp_path: Path) -> None:
    root = a_kafka_store(tmp_path / "s")
    for number in range(3):
        shutil.rmtree(root / f"orders-{number}")
    (root / ".logserver.topics.json").write_text(json.dumps({"orders": {"retention.ms": "-1"}}))
    with pytest.raises(Corrupt, match="'orders' partition 0"):
        export.planned(root, tmp_path / "out", {}, export.ExportOptions(topics="orders"))
    with pytest.raises(InvalidArgument, match="the store has none"):
        export.planned(
            root, tmp_path / "out", {}, export.ExportOptions(topics="orders", permissive=True)
        )


def test_a_partition_without_records_is_not_missed(tmp_path: Path) -> None:
    """A missing partition without records is not reported. Another broker may have it: no file here names an offset."""
    root = a_kafka_store(tmp_path / "s")
    shutil.rmtree(root / "orders-1")
    for name in ("recovery-point-offset-checkpoint", "replication-offset-checkpoint"):
        lines = (root / name).read_text().splitlines()
        kept = [line for line in lines[2:] if not line.startswith("orders 1 ")]
        (root / name).write_text("\n".join([lines[0], str(len(kept)), *kept, ""]))
    assert len(export.planned(root, tmp_path / "out", {}, export.ExportOptions())) == 3


@pytest.mark.parametrize("used", [6, 9, 5000])
def test_an_export_fails_at_a_queue_that_ends_early(tmp_path: Path, used: int) -> None:
    root = a_rocketmq_store(tmp_path / "s", used=used)
    with pytest.raises(Corrupt, match="'orders' partition 0"):
        export.planned(root, tmp_path / "out", {}, export.ExportOptions())
    (span,) = export.planned(root, tmp_path / "out", {}, export.ExportOptions(permissive=True))
    assert span == (("orders", 0), 0, 5)
    (root / "config" / "consumerOffset.json").unlink()
    splitter = open_splitter(root)
    assert splitter.missing() == []
    splitter.close()
