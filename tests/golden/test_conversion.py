"""Stores of the real servers, converted there and back, keep the same records, order and times."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from storage import (
    ConversionReport,
    Record,
    StoreOptions,
    TopicPartition,
    convert_store,
    open_inspector,
    open_store,
)
from storage.conversion.report import REPORT
from tests.golden import rocketmq_stores, stores
from tests.golden.rocketmq_stores import GoldenStore
from tests.golden.stores import GoldenPartition

SMALL_FILES = {
    "mappedFileSizeCommitLog": str(2 << 20),
    "mappedFileSizeConsumeQueue": "6000",
    "maxHashSlotNum": "100",
    "maxIndexNum": "400",
}
PLACE = ("physicalOffset", "msgId")  # of a message in its log: differs in another log
TOO_LONG = 250  # characters of a topic; Kafka accepts 249


def options(settings: Mapping[str, str]) -> StoreOptions:
    return StoreOptions(settings=settings)


def records(report: ConversionReport) -> dict[str, int]:
    return {topic.topic: topic.records for topic in report.topics}


def committed(partition: GoldenPartition) -> list[dict[str, Any]]:
    """Return the records that the real read_committed consumer read."""
    return partition.lines(stores.COMMITTED) or partition.lines("expected.jsonl")


# ---- Kafka ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", stores.healthy_stores())
def test_kafka_there_and_back(name: str, tmp_path: Path) -> None:
    there, back = tmp_path / "there", tmp_path / "back"
    target = options(SMALL_FILES)
    report = convert_store(
        stores.KAFKA / name / "data", there, to="rocketmq", encode=True, target_options=target
    )
    assert report.left_out == []
    again = convert_store(there, back, to="kafka")
    assert (again.left_out, again.moved, again.records) == ([], [], report.records)
    with open_store("kafka", back, read_only=True) as store:
        for partition in stores.partitions():
            if partition.store == name and not partition.name.startswith("__"):
                mine = [stores.as_row(partition.address, r) for r in store.scan(partition.address)]
                assert mine == committed(partition)
    for root in (there, back):
        inspector = open_inspector(root)
        assert {finding.code for finding in inspector.verify()} <= {"offset-gap"}
        inspector.close()


@pytest.mark.parametrize("name", ["edge", "txn", "compacted"])
def test_what_rocketmq_cannot_keep_is_told_and_nothing_else_is_lost(
    name: str, tmp_path: Path
) -> None:
    target = options(SMALL_FILES)
    source = stores.KAFKA / name / "data"
    report = convert_store(source, tmp_path / "new", to="rocketmq", target_options=target)
    left = sum(note.records for note in report.left_out)
    assert (left > 0) == (name in {"edge", "compacted"})
    with open_store("rocketmq", tmp_path / "new", read_only=True) as store:
        for partition in stores.partitions():
            if partition.store != name or partition.name.startswith("__"):
                continue
            kept = [
                int((r.properties or {})["__kafka_offset"]) for r in store.scan(partition.address)
            ]
            rows = committed(partition)
            gone = [row["offset"] for row in rows if row["offset"] not in set(kept)]
            assert kept == [row["offset"] for row in rows if row["offset"] not in set(gone)]
            notes = [n for n in report.left_out if (n.topic, n.partition) == partition.address]
            assert sum(n.records for n in notes) == len(gone)
            assert {offset for n in notes for offset in n.offsets} <= set(gone)


def test_in_rocketmq_the_log_is_in_order_of_time(tmp_path: Path) -> None:
    target = options(SMALL_FILES)
    convert_store(
        stores.KAFKA / "parts" / "data", tmp_path / "new", to="rocketmq", target_options=target
    )
    inspector = open_inspector(tmp_path / "new")
    rows = [row for run in inspector.dump("commitlog") for row in run]
    inspector.close()
    times = [row["storeTimestamp"] for row in rows if row["kind"] == "log"]
    assert times == sorted(times)  # type: ignore[type-var]
    assert len({(row["topic"], row["queueId"]) for row in rows if row["kind"] == "log"}) > 1


def test_a_log_that_begins_behind_0_keeps_its_offsets(tmp_path: Path) -> None:
    """The log of the new store begins at its second file, since its first file must hold no record of a queue entry."""
    target = options(SMALL_FILES)
    there = tmp_path / "there"
    report = convert_store(
        stores.KAFKA / "deleted" / "data", there, to="rocketmq", encode=True, target_options=target
    )
    assert report.moved == []
    starts: list[int] = []
    with open_store("rocketmq", there, read_only=True) as store:
        for partition in stores.partitions():
            rows = committed(partition) if partition.store == "deleted" else []
            if rows:
                assert store.bounds(partition.address).start == rows[0]["offset"]
                starts.append(rows[0]["offset"])
    assert max(starts) > 0
    assert (there / "commitlog" / f"{2 << 20:020}").exists()
    assert not (there / "commitlog" / f"{0:020}").exists()


# ---- RocketMQ ------------------------------------------------------------------------------------


def rows_of(root: Path, settings: Mapping[str, str]) -> list[dict[str, Any]]:
    """Return every message of every queue, without its place in the log."""
    inspector = open_inspector(root, options(settings))
    found = [dict(row) for run in inspector.dump("records") for row in run]
    inspector.close()
    return [{name: row[name] for name in row if name not in PLACE} for row in found]


def unpacked(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row without the fields that depend on the codec implementation that compressed its body."""
    packed = ("size", "body", "bodyLength", "bodyCRC") if "plainSha256" in row else ()
    return {name: row[name] for name in row if name not in packed}


@pytest.mark.parametrize("golden", rocketmq_stores.all_stores(), ids=rocketmq_stores.by_id)
def test_rocketmq_there_and_back(golden: GoldenStore, tmp_path: Path) -> None:
    there, back = tmp_path / "there", tmp_path / "back"
    settings = options(golden.settings)
    report = convert_store(golden.root, there, to="kafka", encode=True, options=settings)
    again = convert_store(there, back, to="rocketmq", target_options=settings)
    assert (again.left_out, again.moved, again.records) == ([], [], report.records)
    left = {note.topic for note in report.left_out}
    wanted = [row for row in rows_of(golden.root, golden.settings) if row["topic"] not in left]
    found = rows_of(back, golden.settings)
    assert list(map(unpacked, found)) == list(map(unpacked, wanted))
    if golden.name not in {"bodies", "broker"}:  # where a client packed bodies with another lz4
        assert found == wanted
    assert all(len(topic) >= TOO_LONG or not topic.isascii() for topic in left)


def test_a_crc_over_a_message_is_of_its_new_place(tmp_path: Path) -> None:
    source, there, back = tmp_path / "source", tmp_path / "there", tmp_path / "back"
    given = options({**SMALL_FILES, "enabledAppendPropCRC": "true"})
    with open_store("rocketmq", source, given) as store:
        for topic in ("other", "t"):
            store.create_topic(topic, 1)
            store.append(TopicPartition(topic, 0), [Record(None, b"value")])
    convert_store(source, there, to="kafka", topics=["t"])
    convert_store(there, back, to="rocketmq", target_options=options(SMALL_FILES))
    inspector = open_inspector(back, options(SMALL_FILES))
    (row,) = (row for run in inspector.dump("records") for row in run)
    assert (row["physicalOffset"], "__CRC32#" in str(row["properties"])) == (0, True)
    assert list(inspector.verify()) == []
    inspector.close()


@pytest.mark.parametrize("golden", rocketmq_stores.all_stores(), ids=rocketmq_stores.by_id)
def test_as_kafka_it_has_key_times_tag_and_keys(golden: GoldenStore, tmp_path: Path) -> None:
    report = convert_store(
        golden.root, tmp_path / "new", to="kafka", encode=True, options=options(golden.settings)
    )
    names = {topic.topic: topic.name for topic in report.topics}
    with open_store("kafka", tmp_path / "new", read_only=True) as store:
        for address, (first, end) in golden.queues.items():
            if address.topic not in names or first == end:
                continue
            target = address._replace(topic=names[address.topic])
            rows = [row for row in golden.expected() if (row["topic"], row["queueId"]) == address]
            found = list(store.scan(target))
            assert store.bounds(target)[::2] == (rows[0]["queueOffset"], end)
            for row, record in zip(rows, found, strict=True):
                headers = dict(record.headers)
                assert record.offset == row["queueOffset"]
                assert record.timestamp_ms == row["bornTimestamp"]
                assert headers["__store_ts"] == b"%d" % row["storeTimestamp"]
                assert headers["__born_ts"] == b"%d" % row["bornTimestamp"]
                assert record.tag == row["tags"]
                assert list(record.lookup_keys) == (row["keys"] or "").split()
                key = row["properties"].get("__SHARDINGKEY")
                assert record.key == (None if key is None else key.encode())


def test_topics_that_kafka_does_not_take_are_told(tmp_path: Path) -> None:
    golden = rocketmq_stores.golden("system")
    report = convert_store(
        golden.root, tmp_path / "new", to="kafka", options=options(golden.settings)
    )
    left = {note.topic: note for note in report.left_out}
    assert left
    assert all("%" in topic or topic.startswith(("RMQ_", "SCHEDULE")) for topic in left)
    expected = sum(row["topic"] in left for row in golden.expected())
    assert sum(note.records for note in report.left_out) == expected
    assert sum(records(report).values()) == len(golden.expected()) - expected


def test_the_report_is_in_the_new_store(tmp_path: Path) -> None:
    golden = rocketmq_stores.golden("small")
    report = convert_store(
        golden.root, tmp_path / "new", to="kafka", options=options(golden.settings)
    )
    assert f'"records": {report.records}' in (tmp_path / "new" / REPORT).read_text()
