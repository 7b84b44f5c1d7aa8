"""The real RocketMQ reads and continues what the library writes, and the library continues what RocketMQ leaves."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from storage import (
    Bound,
    FindQuery,
    LogStore,
    Record,
    StoreOptions,
    SupportsRetentionSettings,
    TopicPartition,
    open_inspector,
)
from storage import open_store as open_any
from tests.cli.runner import fine, run, settings_options
from tests.golden.rocketmq_stores import GoldenStore
from tests.golden.trees import picture
from tests.interop.rocketmq import rocketmq_peers as peers
from tests.interop.rocketmq import rocketmq_written as written
from tests.interop.rocketmq.rocketmq_peers import RocketAnswer

pytestmark = pytest.mark.java

ORDERS = TopicPartition("orders", 0)
APPENDED = 25
END_OF_TIME = (1 << 63) - 1
KEYS = (
    "k3",
    "k7",
    "run-1-44",
    "key",
    "Aa",
    "BB",
    "polygenelubricants",
    "large",
    "b1-60",
    "raw-4",
    "raw-12",
)
TAGS = ("t0", "退款", "batch", "raw", "Aa")
TIMES = (0, 1, 59_000, 3_600_000, 3_600_001, 3_700_000, 7_200_000, 7_300_000, 99_999_999)


def questions(root: Path, folder: Path) -> tuple[Path, Path]:
    """Write files with the queries and times to ask a store for."""
    begin = written.BEGIN_MS
    asked = (
        ((0, END_OF_TIME), 64),
        ((begin + 20_000, begin + 3_620_000), 64),
        ((0, END_OF_TIME), 2),
    )
    topics = ("orders", "shapes", "many-at-once", "raw")
    queries = [_query(t, key, span, limit) for t in topics for key in KEYS for span, limit in asked]
    queries += [
        {**_query(t, tag, (0, END_OF_TIME), 64), "indexType": "T"} for t in topics for tag in TAGS
    ]
    times = [
        {"topic": topic, "queueId": number, "timestamp": begin + moment if moment > 1 else moment}
        for topic, number in written.rows(root)
        for moment in TIMES
    ]
    folder.mkdir(exist_ok=True)
    files = (folder / "queries.json", folder / "times.json")
    for file, content in zip(files, (queries, times), strict=True):
        file.write_text(json.dumps(content))
    return files


def _query(topic: str, key: str, span: tuple[int, int], limit: int) -> dict[str, Any]:
    return {"topic": topic, "key": key, "maxNum": limit, "begin": span[0], "end": span[1]}


def ask(root: Path, folder: Path, *more: str) -> RocketAnswer:
    """Return all answers of the real store about a copy."""
    queries, times = questions(root, folder)
    options = ("--scan", "--min-max", "--index-dump", *more)
    return peers.run_rocketmq_opens(
        root, written.SIZES, "--queries", queries, "--times", times, *options
    )


def check_same(root: Path, answer: RocketAnswer, *, index: bool = True) -> None:
    """Check that the real store read what we read; check the index only if no record was indexed again."""
    assert answer.odd == []
    mine = written.rows(root)
    assert sorted(answer.messages) == sorted(mine)
    for place, expected in mine.items():
        assert answer.messages[place] == expected, place
    assert dump(root, "commitlog") == answer.log
    if index:
        ours = [_nameless(row) for row in dump(root, "indexfile")]
        assert ours == [_nameless(row) for row in answer.index]
        check_queries(root, answer)
    with open_any("rocketmq", root, written.options(), read_only=True) as store:
        check_queues(store, answer)
        check_times(store, answer)


def _nameless(row: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name not in ("kind", "file")}


def dump(root: Path, what: str) -> list[dict[str, Any]]:
    return fine("dump", root, "--what", what, *settings_options(written.SIZES)).rows


def check_queues(store: LogStore, answer: RocketAnswer) -> None:
    for (topic, number), (start, end) in answer.queues.items():
        assert store.bounds(TopicPartition(topic, number)) == (start, end, end), (topic, number)


def check_times(store: LogStore, answer: RocketAnswer) -> None:
    assert answer.times
    for row in answer.times:
        address = TopicPartition(row["topic"], row["queueId"])
        bounds = store.bounds(address)
        lower = store.offset_for_time(address, row["timestamp"])
        upper = store.offset_for_time(address, row["timestamp"], bound=Bound.UPPER)
        assert row["lower"] == row["default"] == (lower.offset if lower else bounds.end), row
        assert row["upper"] == (upper.offset if upper else bounds.start), row


def check_queries(root: Path, answer: RocketAnswer) -> None:
    inspector = open_inspector(root, written.options())
    assert sum(len(row["indexOrder"]) for row in answer.queries) > 100
    for row in answer.queries:
        by = "tag" if row.get("indexType") == "T" else "key"
        wanted = FindQuery(
            topic=row["topic"],
            from_ms=row["begin"],
            to_ms=row["end"],
            limit=row["maxNum"],
            raw=True,
            **{by: row["key"]},
        )
        found = [hit["physicalOffset"] for hit in inspector.find(wanted)]
        assert found == row["indexOrder"], row
    inspector.close()


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The store with everything that we can write."""
    path = tmp_path_factory.mktemp("ours") / "store"
    written.write(path)
    return path


@pytest.mark.parametrize("exit_before", ["normal", "abnormal"])
def test_the_real_store_reads_what_we_wrote(root: Path, tmp_path: Path, exit_before: str) -> None:
    copy = tmp_path / "store"
    shutil.copytree(root, copy)
    if exit_before == "abnormal":
        (copy / "abort").write_text("1")
    before = picture(copy)
    answer = ask(copy, tmp_path / "asked")
    assert answer.store["lastExit"] == exit_before
    assert picture(copy) == before
    check_same(root, answer, index=exit_before == "normal")


def test_the_real_store_reads_what_retention_left(root: Path, tmp_path: Path) -> None:
    """The first log files are removed, with what only they needed, and a topic has more queues."""
    left = tmp_path / "store"
    shutil.copytree(root, left)
    with open_any("rocketmq", left, written.options()) as store:
        assert isinstance(store, SupportsRetentionSettings)
        store.add_partitions("orders", 9)
        bases = store.stats().details["min_physical_offset"]
        store.change_retention({"diskMaxUsedSpaceRatio": "10", "fileReservedTime": "1"})
        store.enforce_retention(1 << 50)
        assert store.stats().deleted_segments > 3
        assert store.stats().details["min_physical_offset"] != bases
        store.append(TopicPartition("orders", 8), [Record(b"k", b"in a new queue")])
    answer = ask(left, tmp_path / "asked")
    assert answer.odd == []
    assert {place: rows for place, rows in answer.messages.items() if rows} == written.rows(left)
    assert len(answer.messages["orders", 8]) == 1
    with open_any("rocketmq", left, written.options(), read_only=True) as store:
        check_queues(store, answer)


def test_there_is_something_of_everything(root: Path) -> None:
    found = written.rows(root)
    assert len(found["shapes", 0]) == 3 * len(written.SHAPES)
    assert len(found["many-at-once", 0]) == 3 * 273
    assert len(found["raw", 0]) + len(found["raw", 1]) == 3 * 6, "two of eight are in no queue"
    assert len(list((root / "commitlog").iterdir())) > 5
    assert len(list((root / "index").iterdir())) > 5
    assert {row["bornHost"] for row in found["raw", 1]} == {"[2001:db8:0:0:0:0:0:17]:50002"}


def test_a_store_goes_to_and_fro(root: Path, tmp_path: Path) -> None:
    """The real store appends to ours and stops, then ours opens the result, appends and stops; all of it twice."""
    here = tmp_path / "ours"
    shutil.copytree(root, here)
    for turn in (1, 2):
        kept = tmp_path / f"theirs-{turn}"
        ends = {"orders": len(written.rows(here)["orders", 0])}
        options = ("--append", "orders", "0", str(APPENDED), "--result", str(kept))
        answer = ask(here, tmp_path / f"asked-{turn}", *options)
        assert len(answer.messages["orders", 0]) == ends["orders"] + APPENDED
        check_same(kept, answer)
        here = kept
        _append(here, turn, ends["orders"] + APPENDED)
    answer = ask(here, tmp_path / "asked-last")
    check_same(here, answer)
    assert [row["keys"] for row in answer.messages["orders", 0]].count("k ours") == 4


def test_a_log_whose_records_end_in_a_crc_goes_on_so(tmp_path: Path) -> None:
    """A broker that requires a CRC in every record ends the log before the first record without one."""
    peers.write_golden(tmp_path / "theirs", profile="propcrc", seed=1014)
    theirs = GoldenStore(tmp_path / "theirs")
    ours, killed = tmp_path / "each" / "ours", tmp_path / "each" / "killed"
    shutil.copytree(theirs.root, ours)
    written.write(ours, StoreOptions(settings=theirs.settings))
    shutil.copytree(ours, killed)
    (killed / "abort").write_text("1")
    params = tmp_path / "params.json"
    params.write_text(json.dumps({**theirs.json("params.json"), "forceVerifyPropCRC": True}))
    answers = peers.run_rocketmq_opens_each(tmp_path / "each", {}, "--params", params)
    mine = written.rows(ours, theirs.settings)
    assert len(mine["many-at-once", 0]) == 3 * 273
    for answer in answers.values():
        assert answer.odd == []
        assert answer.messages == mine
    verified = run("verify", ours, *settings_options(theirs.settings)).rows
    assert [row for row in verified if row["severity"] == "error"] == []


STRANGE = {
    "commitlog/.DS_Store": b"x",
    "commitlog/00000000000000000000.bak": b"x",
    "commitlog/z": b"",
    "consumequeue/orders/0/.DS_Store": b"",
    "consumequeue/orders/.DS_Store": b"x",
    "index/notes.txt": b"x",
}


def test_what_verify_calls_an_error_keeps_the_real_store_from_loading(
    root: Path, tmp_path: Path
) -> None:
    reported = {}
    for number, (name, data) in enumerate(STRANGE.items()):
        copy = tmp_path / "each" / str(number)
        shutil.copytree(root, copy)
        (copy / name).write_bytes(data)
        options = settings_options(dict(written.options().settings))
        rows = run("verify", copy, *options).rows
        reported[str(number)] = [row["severity"] for row in rows if row["code"] == "unknown-file"]
    answers = peers.run_rocketmq_opens_each(tmp_path / "each", written.SIZES)
    refused = {name: any(row["kind"] == "refused" for row in a.odd) for name, a in answers.items()}
    assert reported == {
        name: ["error" if is_refused else "info"] for name, is_refused in refused.items()
    }
    assert list(refused.values()).count(True) == 3


def _append(root: Path, turn: int, end: int) -> None:
    """Append two of our records, and check that the store is intact."""
    checkpoint = (root / "checkpoint").read_bytes()
    with open_any("rocketmq", root, written.options()) as store:
        assert store.recovery.clean_shutdown
        assert (store.recovery.findings, store.recovery.losses) == ([], [])
        for n in range(2):
            record = Record(b"k", b"ours %d" % n, tag="t0", lookup_keys=["ours"])
            assert store.append(ORDERS, [record]).base_offset == end + n
        appended = store.find("orders", key="appended", limit=100).records
        assert len(appended) == APPENDED * turn
    assert (root / "checkpoint").read_bytes() != checkpoint
    assert not (root / "abort").exists()
