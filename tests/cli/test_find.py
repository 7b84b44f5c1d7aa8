"""`logserver find` finds the same records as a search through the output of `dump`."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import pytest

from storage import Record, TopicPartition, open_store
from tests.cli.runner import fine, run
from tests.golden import stores
from tests.golden.stores import GoldenPartition, by_id

PARTS = stores.KAFKA / "parts/data"
Row = dict[str, Any]
EVERYTHING = ("--limit", "100000")
STOPPED = "stopped at --limit {}: more records may match; give a larger --limit\n"


def expected_of(store: str) -> list[Row]:
    """Return the records that the real consumer read from a store, in search order."""
    found = [
        row for p in stores.partitions() if p.store == store for row in p.lines("expected.jsonl")
    ]
    return sorted(found, key=lambda row: (row["topic"], row["partition"]))


def text_of(row: Row, field: str) -> bytes | None:
    """Return the bytes of a record's key or value."""
    return None if row[field] is None else base64.b64decode(row[field])


def test_by_key() -> None:
    rows = expected_of("parts")
    key = text_of(rows[7], "key")
    assert key is not None
    found = fine("find", PARTS, "--key", key.decode(), *EVERYTHING).rows
    assert found == [row for row in rows if text_of(row, "key") == key]
    assert len(found) > 1


@pytest.mark.parametrize("store", ["codecs", "edge", "compacted", "txn", "offsets"])
def test_by_text(store: str) -> None:
    """A text that is part of values and keys is found in every codec."""
    rows = expected_of(store)
    needle = "a"
    found = fine("find", stores.KAFKA / store / "data", "--grep", needle, *EVERYTHING).rows
    assert found == [row for row in rows if _holds(row, needle.encode())]
    assert found


def _holds(row: Row, needle: bytes) -> bool:
    return any(needle in (text_of(row, field) or b"") for field in ("key", "value"))


def test_by_id() -> None:
    row = expected_of("parts")[600]
    record_id = f"{row['topic']}:{row['partition']}:{row['offset']}"
    assert fine("find", PARTS, "--id", record_id).rows == [row]


@pytest.mark.parametrize("record_id", ["keyed:0:99999", "keyed:7:0", "other:0:0"])
def test_an_id_that_nothing_has(record_id: str) -> None:
    assert fine("find", PARTS, "--id", record_id).rows == []


def test_a_table_of_nothing_says_so() -> None:
    ended = run("find", PARTS, "--key", "nobody", "--output", "table")
    assert (ended.code, ended.out, ended.err) == (0, b"", "no record matches\n")
    assert fine("find", PARTS, "--key", "nobody").rows == []


def test_a_time_in_seconds_is_noted() -> None:
    ended = run("find", PARTS, "--from", "1700000002", "--limit", "1")
    assert (ended.code, len(ended.rows)) == (0, 1)
    assert ended.err.startswith("1700000002 is a time in 1970: numbers are milliseconds")
    assert "1700000002000" in ended.err


@pytest.mark.parametrize("partition", stores.partitions(), ids=by_id)
def test_by_time(partition: GoldenPartition) -> None:
    """Every record in the time range is found, whatever the order of times and whatever compaction emptied."""
    rows = partition.lines("expected.jsonl")
    times = sorted(row["timestamp"] for row in rows) or [0]
    low, high = times[len(times) // 3], times[2 * len(times) // 3]
    options = ("--from", low, "--to", high, *EVERYTHING)
    found = fine("find", partition.data, *options).rows
    assert found == [row for row in rows if low <= row["timestamp"] <= high]


def test_a_segment_without_times_does_not_end_the_search() -> None:
    """The search passes an emptied segment: the file of a segment in `compact-lz4` is newer than every record."""
    partition = GoldenPartition("compacted", "compact-lz4-0")
    rows = partition.lines("expected.jsonl")
    last = rows[-1]["timestamp"]
    found = fine("find", partition.data, "--from", last, *EVERYTHING).rows
    assert found == [row for row in rows if row["timestamp"] >= last]


def test_limit() -> None:
    rows = expected_of("parts")
    for options, limit in (([], 32), (["--limit", "3"], 3)):
        ended = run("find", PARTS, "--from", "0", *options)
        assert (ended.code, ended.rows) == (0, rows[:limit])
        assert ended.err == STOPPED.format(limit)
    assert fine("find", PARTS, "--from", "0", "--limit", len(rows) + 1).rows == rows


def test_one_topic() -> None:
    root = stores.KAFKA / "txn/data"
    found = fine("find", root, "--topic", "txn-two", "--from", "0", *EVERYTHING).rows
    assert {row["topic"] for row in found} == {"txn-two"}
    assert len(found) == 24


def test_one_log_file() -> None:
    partition = GoldenPartition("segments", "seg-small-0")
    path = partition.log_files[1]
    rows = fine("dump", path).rows
    key = text_of(rows[2], "key")
    assert key is not None
    found = run("find", path, "--key", key.decode()).rows
    assert found == [row for row in rows if text_of(row, "key") == key][:32]
    assert run("find", path, "--from", "0", "--limit", "2").rows == rows[:2]


@pytest.mark.parametrize("compression", ["none", "zstd"])
def test_by_tag_and_lookup_key(tmp_path: Path, compression: str) -> None:
    address = TopicPartition("t", 0)
    with open_store("kafka", tmp_path / "data") as store:
        store.create_topic("t", 1)
        records = [
            Record(b"k1", b"v0", (), 1000, tag="red"),
            Record(b"k2", b"v1", (), 2000, tag="reddish", lookup_keys=("k1", "k3")),
            Record(None, b"k1 red", (), 3000),
            Record(b"k1", None, (("KEYS", None), ("TAGS", b"\xff")), 4000),
        ]
        store.append(address, records, compression=compression)

    def offsets(*options: str) -> list[int]:
        return [row["offset"] for row in fine("find", tmp_path / "data", *options).rows]

    assert offsets("--tag", "red") == [0]
    assert offsets("--tag", "\ufffd") == [3]
    assert offsets("--key", "k1") == [0, 1, 3]
    assert offsets("--key", "k3") == [1]
    assert offsets("--key", "k1 k3") == []
    assert offsets("--key", "k1", "--from", "1500", "--to", "2500") == [1]
    assert offsets("--grep", "k1") == [0, 2, 3]
    assert offsets("--grep", "") == [0, 1, 2, 3]
    assert offsets("--key", "") == []


MISUSE: dict[str, tuple[list[str], str]] = {
    "nothing": ([], "nothing to look for: give one of key, id, unique id, tag, grep, or a time"),
    "two things": (["--key", "a", "--tag", "b"], "key and tag exclude each other"),
    "an id that is none": (["--id", "keyed-0-1"], "is not TOPIC:PARTITION:OFFSET"),
    "an id with a word": (["--id", "keyed:0:x"], "is not TOPIC:PARTITION:OFFSET"),
    "unique id": (["--unique-id", "AC11"], "[not-offered]"),
    "raw": (["--key", "a", "--raw"], "[not-offered]"),
    "two ids": (["--id", "a", "--unique-id", "b"], "id and unique id exclude each other"),
    "times in reverse": (["--from", "2030-01-01", "--to", "2020-01-01"], "is after to"),
    "no limit": (["--key", "a", "--limit", "0"], "limit must be at least 1"),
    "a time that is none": (["--from", "yesterday"], "neither milliseconds nor ISO 8601"),
    "a topic that is none": (["--topic", "x", "--key", "a"], "does not exist [unknown-topic]"),
    "a topic with a slip": (["--topic", "keyd", "--key", "a"], "does not exist; similar: keyed ["),
}


@pytest.mark.parametrize("case", MISUSE)
def test_misuse(case: str) -> None:
    options, message = MISUSE[case]
    ended = run("find", PARTS, *options)
    assert (ended.code, ended.out) == (2, b"")
    assert message in ended.err


def test_looking_into_a_file_without_records() -> None:
    ended = run("find", PARTS / "keyed-0/00000000000000000000.index", "--key", "a")
    assert ended.code == 2
    assert "holds none" in ended.err
