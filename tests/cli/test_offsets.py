"""`logserver offsets` gives every answer that the real broker gave about a golden store."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from storage import SupportsInspect, TimedOffset, open_inspector
from tests.cli.runner import fine, place_of, run
from tests.golden import stores
from tests.golden.stores import GoldenPartition, by_id

each_partition = pytest.mark.parametrize("partition", stores.partitions(), ids=by_id)
SHUFFLED = GoldenPartition("times", "time-shuffled-0")


@contextmanager
def inspecting(partition: GoldenPartition) -> Iterator[SupportsInspect]:
    """Open the partition's store by the library: a process for each question would take minutes."""
    inspector = open_inspector(partition.root)
    try:
        yield inspector
    finally:
        inspector.close()


@each_partition
def test_every_time(partition: GoldenPartition) -> None:
    wrong = []
    with inspecting(partition) as inspector:
        for time_ms, expected in partition.json("times.json")["times"]:
            found = inspector.offset_for_time(partition.address, time_ms)
            if _plain(found) != expected:
                wrong.append((time_ms, found, expected))
    assert wrong == []


def _plain(found: TimedOffset | None) -> dict[str, int | None] | None:
    if found is None:
        return None
    names = ("offset", "timestamp", "leaderEpoch")
    return dict(zip(names, found, strict=True))


@each_partition
def test_bounds(partition: GoldenPartition) -> None:
    summary = partition.json("times.json")["summary"]
    row = fine("offsets", partition.root, *place_of(partition.address)).document
    assert row == {name: summary[name] for name in ("topic", "partition", "earliest", "latest")}
    assert list(row) == ["topic", "partition", "earliest", "latest"]


@each_partition
def test_times_by_the_command(partition: GoldenPartition) -> None:
    asked = partition.json("times.json")
    times = asked["times"]
    sample = [times[0], times[len(times) // 2], times[-1]]
    sample += [entry for entry in times if entry[1] is None][:1]
    topic, number = partition.address
    for time_ms, expected in sample:
        options = [*place_of(partition.address), "--time", time_ms]
        row = fine("offsets", partition.root, *options).document
        offset = asked["summary"]["latest"] if expected is None else expected["offset"]
        timestamp = None if expected is None else expected["timestamp"]
        assert list(row.items()) == [
            ("topic", topic),
            ("partition", number),
            ("offset", offset),
            ("timestamp", timestamp),
        ]


def test_a_whole_store() -> None:
    rows = fine("offsets", stores.KAFKA / "parts/data").rows
    assert [(r["topic"], r["partition"], r["latest"]) for r in rows] == [
        ("keyed", 0, 509),
        ("keyed", 1, 542),
        ("keyed", 2, 449),
    ]
    assert fine("offsets", stores.KAFKA / "parts/data", "--output", "json").document == rows


def test_a_partition_directory_needs_no_topic() -> None:
    row = fine("offsets", SHUFFLED.data).document
    assert (row["topic"], row["latest"]) == ("time-shuffled", 503)


def test_one_log_file() -> None:
    path = SHUFFLED.log_files[1]
    batches = SHUFFLED.json("batches.json")[path.name]
    row = fine("offsets", path).document
    assert row["earliest"] == batches[0]["baseOffset"]
    assert row["latest"] == batches[-1]["lastOffset"] + 1
    records = [r for r in SHUFFLED.lines("expected.jsonl") if r["offset"] >= row["earliest"]]
    wanted = records[3]["timestamp"]
    first = next(r for r in records if r["timestamp"] >= wanted)
    found = fine("offsets", path, "--time", wanted).document
    assert (found["offset"], found["timestamp"]) == (first["offset"], first["timestamp"])
    assert fine("offsets", path, "--time", 1 << 60).document["timestamp"] is None


@pytest.mark.parametrize(
    "text",
    [
        "1700000000008",
        "2023-11-14T22:13:20.008Z",
        "2023-11-14T22:13:20.008",
        "2023-11-14T23:13:20.008+01:00",
    ],
)
def test_times_may_be_iso_8601(text: str) -> None:
    row = fine("offsets", stores.KAFKA / "txn/data/txn-mixed-0", "--time", text).document
    assert row["timestamp"] == 1700000000014


def test_negative_times_are_times() -> None:
    assert fine("offsets", SHUFFLED.data, "--time", "-1").document["offset"] == 0


def test_a_table() -> None:
    lines = fine("offsets", SHUFFLED.data, "--output", "table").out.decode().splitlines()
    assert [line.split() for line in lines] == [
        ["topic", "partition", "earliest", "latest"],
        ["time-shuffled", "0", "0", "503"],
    ]


def test_a_lookup_that_meets_damage_says_so() -> None:
    """A lookup that meets a damaged batch fails. (The answer may be in it; without index entries it must be read.)"""
    root = stores.KAFKA / "torn/flip-active/data"
    rows = stores.GoldenPartition("epochs", "epoch-idem-0").lines("expected.jsonl")
    before = max(row["timestamp"] for row in rows[:1155])
    wanted = next(row["timestamp"] for row in rows[1163:] if row["timestamp"] > before)
    ended = run("offsets", root, "--time", wanted, "--set", "index.interval.bytes=1000000")
    assert (ended.code, ended.out) == (1, b"")
    assert "00000000000000001113.log" in ended.err
    assert "position 3384" in ended.err
    assert "[corrupt]" in ended.err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--topic", "nope"], "topic 'nope' does not exist [unknown-topic]"),
        (["--topic", "keyed", "--partition", "3"], "has no partition 3: it has 3"),
        (["--partition", "9"], "partition 9"),
    ],
)
def test_what_is_not_there(options: list[str], message: str) -> None:
    for command in ("offsets", "dump"):
        ended = run(command, stores.KAFKA / "parts/data", *options)
        assert (ended.code, ended.out) == (2, b"")
        assert message in ended.err
