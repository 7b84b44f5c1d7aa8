"""`logserver find` on RocketMQ stores: it finds the same records as a search through `dump`, and as the real index."""

from __future__ import annotations

import base64
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from storage import Record, StoreOptions, TopicPartition, open_store
from storage.rocketmq.format.body import decompress
from tests.cli.runner import fine, run, settings_options
from tests.cli.test_find import STOPPED
from tests.contract.harness import ManualClock
from tests.golden import rocketmq_stores as stores
from tests.golden.rocketmq_stores import GoldenStore

BASIC = stores.golden("basic")
EVERYTHING = ("--limit", 100_000)
SETTINGS = {
    "mappedFileSizeCommitLog": "16384",
    "mappedFileSizeConsumeQueue": "2000",
    "maxHashSlotNum": "10",
    "maxIndexNum": "50",
}
Row = dict[str, Any]


def dumped(golden: GoldenStore = BASIC) -> list[Row]:
    """Return every record of every queue in log order."""
    rows = fine("dump", golden.root, *settings_options(golden.settings)).rows
    return sorted(rows, key=lambda row: int(row["physicalOffset"]))


def found(*options: object, golden: GoldenStore = BASIC, root: Path | None = None) -> list[Row]:
    sizes = settings_options(golden.settings)
    return fine("find", root or golden.root, *options, *EVERYTHING, *sizes).rows


def has_key(row: Row, key: str) -> bool:
    return key in (row["keys"] or "").split(" ")


def test_by_key_over_all_topics() -> None:
    rows = dumped()
    wanted = [row for row in rows if has_key(row, "k3")]
    assert len({row["topic"] for row in wanted}) > 1
    assert found("--key", "k3") == wanted
    topic = wanted[0]["topic"]
    of_topic = [row for row in wanted if row["topic"] == topic]
    assert found("--key", "k3", "--topic", topic) == of_topic
    limited = run(
        "find", BASIC.root, "--key", "k3", "--limit", 2, *settings_options(BASIC.settings)
    )
    assert (limited.code, limited.err) == (0, STOPPED.format(2))
    assert limited.rows == wanted[-2:]  # the newest records, as the real store returns


def test_colliding_keys_are_told_apart() -> None:
    """Keys with the same hash, such as Aa and BB, are distinguished."""
    rows = dumped()
    for key in ("Aa", "BB"):
        wanted = [row for row in rows if has_key(row, key)]
        assert wanted
        assert found("--key", key) == wanted


@pytest.mark.parametrize("name", ["basic", "broker", "bodies"])
def test_by_unique_id(name: str) -> None:
    golden = stores.golden(name)
    rows = dumped(golden)
    for row in rows[:: len(rows) // 7]:
        unique_id = row["properties"].get("UNIQ_KEY")
        if unique_id is not None:
            wanted = [r for r in rows if r["properties"].get("UNIQ_KEY") == unique_id]
            assert found("--unique-id", unique_id, golden=golden) == wanted


def test_by_tag() -> None:
    rows = dumped()
    wanted = [row for row in rows if row["tags"] == "tag-with-dash"]
    assert wanted
    assert found("--tag", "tag-with-dash") == wanted


def test_by_id() -> None:
    row = dumped()[100]
    assert found("--id", row["msgId"]) == [row]
    assert found("--id", row["msgId"].lower()) == [row]
    assert found("--id", row["msgId"], "--topic", "another") == []
    assert found("--id", "0A" + row["msgId"][2:]) == [], "another host stored it"
    assert found("--id", row["msgId"][:-1] + "1") == [], "no record begins there"
    assert found("--id", row["msgId"][:-6] + "FFFFFF") == [], "after the end"
    ended = run("find", BASIC.root, "--id", "t:0:1", *settings_options(BASIC.settings))
    assert ended.code == 2
    assert "message id" in ended.err


def test_by_text_in_every_codec() -> None:
    golden = stores.golden("bodies")
    rows = dumped(golden)
    wanted = [row for row in rows if b"item-9" in plain(row)]
    assert {row["sysFlag"] & 0x701 for row in wanted} >= {0, 0x101, 0x201, 0x301}
    assert found("--grep", "item-9", golden=golden) == wanted


def plain(row: Row) -> bytes:
    return decompress(base64.b64decode(row["body"]), row["sysFlag"], 1 << 20)


def test_by_store_time() -> None:
    rows = dumped()
    times = sorted(row["storeTimestamp"] for row in rows)
    start, end = times[100], times[200]
    wanted = [row for row in rows if start <= row["storeTimestamp"] <= end]
    assert len(wanted) > 100
    assert found("--from", start, "--to", end) == wanted
    keyed = [row for row in wanted if has_key(row, wanted[3]["keys"].split()[0])]
    key = wanted[3]["keys"].split()[0]
    assert found("--key", key, "--from", start, "--to", end) == keyed


@pytest.mark.parametrize("name", ["basic", "system"])
@pytest.mark.parametrize("gone", ["index", "one", "all"])
def test_without_an_index_nothing_is_missed(name: str, gone: str, tmp_path: Path) -> None:
    """Records that the index does not cover are searched in the log, prepared messages included."""
    golden = stores.golden(name)
    root = stores.copy_store(golden, tmp_path / "store")
    if gone == "all":
        shutil.rmtree(root / "consumequeue")
    if gone == "one":
        min((root / "index").iterdir()).unlink()
    else:
        shutil.rmtree(root / "index")
    queries = golden.json("queries.json")
    for query in queries[:: len(queries) // 9]:
        by = "--tag" if query.get("indexType") == "T" else "--key"
        wanted = [by, query["key"], "--topic", query["topic"], "--from", query["begin"]]
        places = [row["physicalOffset"] for row in found(*wanted, golden=golden)]
        again = [row["physicalOffset"] for row in found(*wanted, golden=golden, root=root)]
        assert places == again


def test_a_key_with_a_space(tmp_path: Path) -> None:
    """A key with a space is found without the index: the index splits keys at spaces."""
    root = tmp_path / "store"
    with open_store(
        "rocketmq", root, StoreOptions(settings=SETTINGS), clock=ManualClock()
    ) as store:
        store.create_topic("t", 1)
        records = [Record(b"a b", b"0"), Record(b"a", b"1"), Record(b"b", b"2")]
        store.append(TopicPartition("t", 0), records)
    sizes = settings_options(SETTINGS)
    (row,) = fine("find", root, "--key", "a b", *sizes).rows
    assert row["queueOffset"] == 0
    (row,) = fine("find", root, "--key", "a", *sizes).rows
    assert row["queueOffset"] == 1


def test_records_of_a_deleted_topic_are_not_found(tmp_path: Path) -> None:
    root = tmp_path / "store"
    with open_store(
        "rocketmq", root, StoreOptions(settings=SETTINGS), clock=ManualClock()
    ) as store:
        store.create_topic("t", 1)
        store.create_topic("other", 1)
        store.append(TopicPartition("t", 0), [Record(b"k", b"old", tag="a")])
        store.append(TopicPartition("other", 0), [Record(b"k", b"other", tag="a")])
        store.delete_topic("t")
        store.create_topic("t", 1)
        store.append(TopicPartition("t", 0), [Record(b"k", b"new", tag="a")])
    for query in (["--key", "k"], ["--tag", "a"], ["--from", "0"]):
        rows = fine("find", root, *query, *settings_options(SETTINGS)).rows
        assert [base64.b64decode(row["body"]) for row in rows] == [b"other", b"new"]


# ---- raw -------------------------------------------------------------------------------------------------------------


def test_raw_shows_what_is_gone() -> None:
    golden = stores.golden("deleted-head")
    query = next(
        q for q in golden.json("queries.json") if q["result"] and q["indexOrder"][-1] < golden.start
    )
    sizes = settings_options(golden.settings)
    options = ["--topic", query["topic"], "--limit", query["maxNum"], "--from", query["begin"]]
    key = ["--tag" if query.get("indexType") == "T" else "--key", query["key"]]
    rows = fine("find", golden.root, "--raw", *key, *options, "--to", query["end"], *sizes).rows
    assert [row["physicalOffset"] for row in rows] == query["indexOrder"]
    gone = [row for row in rows if row["physicalOffset"] < golden.start]
    assert gone
    assert all(row == {"kind": "gone", "physicalOffset": row["physicalOffset"]} for row in gone)


def test_raw_does_not_compare_keys() -> None:
    """A raw search returns all entries with the hash of the key: Aa and BB have the same hash, and so have longer
    strings made of them.
    """
    raw = [row["physicalOffset"] for row in asked_raw("--key", "Aa")]
    assert raw == [row["physicalOffset"] for row in asked_raw("--key", "BB")]
    rows = [row for row in dumped() if row["topic"] == "order_created"]
    ours = {row["physicalOffset"] for row in rows if has_key(row, "Aa")}
    others = {row["physicalOffset"] for row in rows if has_key(row, "BB")}
    assert ours
    assert others
    assert ours | others == set(raw)


def asked_raw(*options: object) -> list[Row]:
    sizes = settings_options(BASIC.settings)
    place = ("--topic", "order_created", "--limit", 1000, "--raw")
    return fine("find", BASIC.root, *place, *options, *sizes).rows


@pytest.mark.parametrize(
    ("options", "word"),
    [
        (["--raw", "--key", "k"], "topic"),
        (["--raw", "--topic", "order_paid", "--grep", "x"], "key"),
        (["--key", "a", "--tag", "b"], "exclude"),
        ([], "nothing to look for"),
        (["--key", "a", "--limit", "0"], "limit"),
    ],
)
def test_refusals(options: list[str], word: str) -> None:
    ended = run("find", BASIC.root, *options, *settings_options(BASIC.settings))
    assert ended.code == 2
    assert word in ended.err


def test_an_unknown_topic() -> None:
    ended = run(
        "find", BASIC.root, "--topic", "none", "--key", "a", *settings_options(BASIC.settings)
    )
    assert ended.code == 2
    assert "[unknown-topic]" in ended.err


# ---- tables and times ------------------------------------------------------------------------------------------------


def test_a_table_shows_what_fits_a_line() -> None:
    row = dumped()[100]
    for command in (("find", BASIC.root, "--id", row["msgId"]), ("dump", BASIC.root)):
        ended = fine(*command, "--output", "table", *settings_options(BASIC.settings))
        head, *lines = ended.out.decode().splitlines()
        assert head.split()[:4] == ["topic", "queueId", "queueOffset", "physicalOffset"]
        assert any(str(row["physicalOffset"]) in line for line in lines)


@pytest.mark.parametrize("name", ["basic", "times"])
def test_offsets_by_time(name: str) -> None:
    golden = stores.golden(name)
    sizes = settings_options(golden.settings)
    asked = golden.json("times.json")
    for row in asked[:: len(asked) // 20]:
        place = ("--topic", row["topic"], "--partition", row["queueId"])
        when = ("--time", row["timestamp"]) if row["timestamp"] >= 0 else ("--time=-1",)
        document = fine("offsets", golden.root, *place, *when, *sizes).document
        assert document["offset"] == row["lower"]


def a_pipe(path: Path) -> None:
    os.mkfifo(path)


def a_folder(path: Path) -> None:
    path.mkdir()


def a_link_to_nothing(path: Path) -> None:
    path.symlink_to("nowhere")


def a_link_to_a_folder(path: Path) -> None:
    path.symlink_to("..")


@pytest.mark.parametrize("make", [a_pipe, a_folder, a_link_to_nothing, a_link_to_a_folder])
@pytest.mark.parametrize("number", [0, 1, -1])
def test_no_index_file_is_a_reason_to_miss_a_record(
    make: Callable[[Path], None], number: int, tmp_path: Path
) -> None:
    golden = stores.golden("small")
    root = stores.copy_store(golden, tmp_path / "store")
    path = sorted((root / "index").iterdir())[number]
    path.unlink()
    make(path)
    rows = [row for row in dumped(golden) if row["topic"] == "order_s1" and row["keys"]]
    for row in rows[:: len(rows) // 5]:
        key = row["keys"].split(" ")[0]
        wanted = [other for other in rows if has_key(other, key)]
        sizes = settings_options(golden.settings)
        ended = run("find", root, "--key", key, "--topic", "order_s1", *EVERYTHING, *sizes)
        assert ended.rows == wanted
        assert ended.code in (0, 1), "the file is reported"
    options = StoreOptions(settings=golden.settings)
    with open_store("rocketmq", root, options) as store:
        for row in rows[::9]:
            key = row["keys"].split(" ")[0]
            page = store.find("order_s1", key=key, limit=999)
            assert len(page.records) == len([other for other in rows if has_key(other, key)])
            assert page.complete
