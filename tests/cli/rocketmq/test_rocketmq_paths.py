"""Each command accepts a RocketMQ store, a folder in it or a single file as PATH, and reads without any change."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.cli.runner import fine, run, settings_options
from tests.golden import rocketmq_stores as stores
from tests.golden.rocketmq_stores import GoldenStore, by_id
from tests.golden.trees import picture

BASIC = stores.golden("basic")
QUEUE = ("order_paid", 1)
Row = dict[str, Any]


def sizes(golden: GoldenStore = BASIC) -> list[str]:
    return settings_options(golden.settings)


def of_queue(rows: list[Row]) -> list[Row]:
    return [row for row in rows if (row["topic"], row["queueId"]) == QUEUE]


def inspected(path: Path, golden: GoldenStore = BASIC) -> Row:
    document: Row = fine("inspect", path, *sizes(golden)).document
    return document


# ---- folders ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("golden", stores.all_stores(), ids=by_id)
def test_a_store(golden: GoldenStore) -> None:
    summary = inspected(golden.root, golden)
    assert (summary["backend"], summary["kind"]) == ("rocketmq", "store")
    assert summary["cleanShutdown"] is golden.clean
    assert summary["adopted"] is False
    assert {name: str(n) for name, n in summary["fileSizes"].items()} == golden.settings
    assert summary["log"] == {
        "minPhyOffset": golden.after["minPhyOffset"],
        "maxPhyOffset": golden.after["maxPhyOffset"],
    }
    found = {
        (topic["topic"], queue["partition"]): (queue["earliest"], queue["latest"])
        for topic in summary["topics"]
        for queue in topic["partitions"]
    }
    assert golden.queues.items() <= found.items()
    assert len(found) == summary["partitionCount"]
    times = {(r["topic"], r["queueId"]): r["storeTimestamp"] for r in golden.expected()}
    for topic in summary["topics"]:
        for queue in topic["partitions"]:
            latest = queue["maxTimestamp"]
            place = topic["topic"], queue["partition"]
            assert (latest and latest["timestamp"]) == times.get(place)
    assert summary["index"]["entries"] == sum(f["indexCount"] - 1 for f in golden.index_dump)


def test_the_screen() -> None:
    lines = fine("inspect", BASIC.root, "--output", "table", *sizes()).out.decode().splitlines()
    assert lines[0] == f"rocketmq store  {BASIC.root}"
    assert any(line.startswith("  fileSizes") and "65536" in line for line in lines)
    assert any(line.startswith("order_paid-1") for line in lines)
    assert "nothing wrong" in lines[-1]


def test_many_empty_queues_are_left_out_of_the_screen() -> None:
    golden = stores.golden("broker")
    ended = fine("inspect", golden.root, "--output", "table", *sizes(golden))
    lines = ended.out.decode().splitlines()
    assert not any(line.startswith("BenchmarkTest") for line in lines)
    assert any("empty ones are left out" in line for line in lines)
    assert "…" not in ended.out.decode(), "whatever the width of the terminal"
    header = next(line for line in lines if line.startswith("partition"))
    assert header.split()[:4] == ["partition", "first", "next", "size"]
    assert "  owner           a real broker" in lines


@pytest.mark.parametrize("topic_only", [True, False])
def test_a_queue_or_all_of_a_topic(*, topic_only: bool) -> None:
    topic, queue_id = QUEUE
    folder = BASIC.root / "consumequeue" / topic / ("" if topic_only else str(queue_id))
    expected = [
        row
        for row in BASIC.expected()
        if row["topic"] == topic and (topic_only or row["queueId"] == queue_id)
    ]
    rows = fine("dump", folder, *sizes()).rows
    assert [row["msgId"] for row in rows] == [row["msgId"] for row in expected]
    summary = inspected(folder)
    assert summary["kind"] == ("topic" if topic_only else "queue")
    assert summary["path"] == str(folder)
    assert {t["topic"] for t in summary["topics"]} == {topic}
    found = fine("find", folder, "--from", "0", "--limit", "100000", *sizes()).rows
    assert {row["msgId"] for row in found} == {row["msgId"] for row in expected}
    ends = fine("offsets", folder, "--partition", queue_id, *sizes()).document
    assert ends["latest"] == 1 + expected[-1]["queueOffset"]


PARTS = {
    "commitlog": "commitlog",
    "consumequeue": "consumequeue",
    "index": "indexfile",
    "config": "checkpoints",
}


@pytest.mark.parametrize("part", PARTS)
def test_a_folder_of_a_store(part: str) -> None:
    """A folder of a store is opened as the store, and `dump` shows the content of the folder by default."""
    golden = stores.golden("broker")
    found = fine("dump", golden.root / part, *sizes(golden)).out
    whole = fine("dump", golden.root, "--what", PARTS[part], *sizes(golden)).out
    assert found == whole != b""


# ---- one file --------------------------------------------------------------------------------------------------------


def test_a_file_of_the_log() -> None:
    path = BASIC.root / "commitlog" / f"{65536:020}"
    expected = [r for r in BASIC.lines("commitlog.jsonl") if 65536 <= r["physicalOffset"] < 131072]
    assert fine("dump", path, "--what", "commitlog").rows == expected
    records = fine("dump", path).rows
    offsets = [row["physicalOffset"] for row in expected if row["kind"] == "log"]
    assert [row["physicalOffset"] for row in records] == offsets
    summary = inspected(path)
    assert (summary["kind"], summary["content"]) == ("file", "commitlog")
    assert summary["records"] == len(offsets)
    chosen = fine("dump", path, "--topic", QUEUE[0], "--partition", QUEUE[1]).rows
    assert chosen == of_queue(records)
    bounds = fine("offsets", path, "--topic", QUEUE[0], "--partition", QUEUE[1]).document
    assert bounds["earliest"] == chosen[0]["queueOffset"]
    assert bounds["latest"] == chosen[-1]["queueOffset"] + 1
    row = chosen[7]
    (found,) = fine("find", path, "--id", row["msgId"]).rows
    assert found == row
    by_time = ("--time", row["storeTimestamp"], "--topic", QUEUE[0], "--partition", QUEUE[1])
    assert fine("offsets", path, *by_time).document["offset"] == row["queueOffset"]
    assert fine("verify", path).rows == []


def test_a_log_on_its_own(tmp_path: Path) -> None:
    """A folder of log files under any name can be read without a store around it."""
    folder = tmp_path / "saved"
    shutil.copytree(BASIC.root / "commitlog", folder)
    assert inspected(folder)["kind"] == "folder"
    rows = fine("dump", folder).rows
    assert sorted(row["msgId"] for row in rows) == sorted(r["msgId"] for r in BASIC.expected())
    assert fine("dump", folder, "--what", "commitlog").rows == BASIC.lines("commitlog.jsonl")
    assert fine("verify", folder).rows == []


def test_a_damaged_file_of_the_log(tmp_path: Path) -> None:
    path = tmp_path / f"{0:020}"
    data = bytearray((BASIC.root / "commitlog" / path.name).read_bytes())
    at = BASIC.lines("commitlog.jsonl")[9]["physicalOffset"]
    data[at + 100] ^= 0xFF
    path.write_bytes(data)
    ended = run("dump", path)
    assert ended.code == 1
    assert "[damaged-record]" in ended.err
    assert len(ended.rows) == len([r for r in BASIC.expected() if r["physicalOffset"] < 65536]) - 1
    (finding,) = run("verify", path).rows
    assert (finding["code"], finding["position"]) == ("damaged-record", at)


@pytest.mark.parametrize(
    "command", [("dump",), ("dump", "--what", "commitlog"), ("inspect",), ("find", "--key", "k")]
)
def test_what_follows_the_last_record_of_a_file_is_told(
    command: tuple[str, ...], tmp_path: Path
) -> None:
    path = tmp_path / "commitlog" / f"{0:020}"
    path.parent.mkdir()
    path.write_bytes(b"\x5a" * 900)
    ended = run(command[0], path, *command[1:])
    assert ended.code == 1
    assert "torn-tail" in ended.err + ended.out.decode()
    (finding,) = run("verify", path).rows
    assert (finding["code"], finding["position"]) == ("torn-tail", 0)


@pytest.mark.parametrize("alone", [False, True])
def test_a_file_of_a_queue(*, alone: bool, tmp_path: Path) -> None:
    path = BASIC.root / "consumequeue" / QUEUE[0] / str(QUEUE[1]) / f"{1000:020}"
    if alone:
        path = Path(shutil.copyfile(path, tmp_path / path.name))
    rows = fine("dump", path).rows
    expected = of_queue(BASIC.expected())[50:]
    assert [row["physicalOffset"] for row in rows] == [r["physicalOffset"] for r in expected]
    assert [row["queueOffset"] for row in rows] == [r["queueOffset"] for r in expected]
    assert [row["tagsCode"] for row in rows] == [r["tagsCode"] for r in expected]
    assert {row["topic"] for row in rows} == {None if alone else QUEUE[0]}
    assert (inspected(path)["earliest"], inspected(path)["latest"]) == (50, 68)
    assert fine("verify", path).rows == []
    assert run("find", path, "--from", "0").code == 2


def test_units_of_a_queue() -> None:
    rows = fine("dump", BASIC.root, "--what", "consumequeue", *sizes()).rows
    names = ("topic", "queueId", "queueOffset", "physicalOffset", "size", "tagsCode")
    expected = [{name: row[name] for name in names} for row in BASIC.expected()]
    assert [{name: row[name] for name in names} for row in rows] == expected
    assert {row["kind"] for row in rows} == {"unit"}


def test_an_index_file(tmp_path: Path) -> None:
    for number, path in enumerate(sorted((BASIC.root / "index").iterdir())):
        assert fine("dump", path).rows == [BASIC.index_dump[number]]
        assert fine("verify", path).rows == []
        assert inspected(path)["entries"] == BASIC.index_dump[number]["indexCount"] - 1
    table = fine("dump", path, "--output", "table").out.decode().splitlines()
    assert table[0].split() == [
        "file",
        "number",
        "keyHash",
        "physicalOffset",
        "timeDiff",
        "previous",
    ]
    assert len(table) == 1 + BASIC.index_dump[-1]["indexCount"]
    data = path.read_bytes()
    spoiled = tmp_path / path.name
    spoiled.write_bytes(data[:40] + bytes(2000) + data[2040:])
    found = run("verify", spoiled, *sizes()).rows
    assert {row["code"] for row in found} == {"wrong-index-slot"}


def test_a_checkpoint() -> None:
    (row,) = fine("dump", BASIC.root / "checkpoint").rows
    assert row["entries"] == [BASIC.json("store.json")["checkpoint"]]


def test_config_files(tmp_path: Path) -> None:
    golden = stores.golden("broker")
    (row,) = fine("dump", golden.root / "config" / "consumerOffset.json").rows
    (content,) = row["entries"]
    assert all(key.isdigit() for offsets in content["offsetTable"].values() for key in offsets)
    damaged = tmp_path / "delayOffset.json"
    damaged.write_bytes(b"{1:")
    ended = run("dump", damaged)
    assert ended.code == 1
    assert "[bad-config-file]" in ended.err


# ---- nothing changes -------------------------------------------------------------------------------------------------


def everything_about(path: Path, golden: GoldenStore) -> None:
    """Run every command that only reads."""
    options = sizes(golden)
    for kind in ("records", "commitlog", "consumequeue", "indexfile", "checkpoints"):
        run("dump", path, "--what", kind, *options)
    for command in ("inspect", "offsets", "verify"):
        run(command, path, *options)
    run("find", path, "--grep", "nothing has this", *options)
    run("find", path, "--topic", "order_s1", "--key", "k", "--raw", *options)
    run("offsets", path, "--time", "1700000000000", *options)
    for kind in ("consumequeue", "indexfile"):
        run("rebuild", path, "--what", kind, *options)


@pytest.mark.parametrize("golden", stores.all_stores(), ids=by_id)
def test_looking_changes_nothing(golden: GoldenStore) -> None:
    before = picture(golden.folder)
    everything_about(golden.root, golden)
    assert picture(golden.folder) == before


@pytest.mark.slow
def test_looking_at_parts_changes_nothing() -> None:
    golden = stores.golden("unclean")
    before = picture(golden.folder)
    for path in sorted(golden.root.rglob("*")):
        everything_about(path, golden)
    assert picture(golden.folder) == before
