"""Salvage and conversion carry the records that only a real broker's compacted logs still have."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Container, Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest

from storage import (
    Record,
    StoreOptions,
    TopicPartition,
    convert_store,
    open_inspector,
    open_store,
)
from storage.contract import run_serially
from storage.errors import IoFailure
from storage.files import RealFileSystem
from storage.rocketmq.format.queue_entry import SPARSE_UNIT_SIZE
from tests.cli.runner import fine, run
from tests.golden.test_rocketmq_compacted import (
    DAMAGES,
    FIRST,
    OPTIONS,
    SIZES,
    STORE,
    dumped,
    expected,
    seen,
)
from tests.golden.trees import picture

SETTINGS = StoreOptions(settings=SIZES)
PLAIN = TopicPartition("plain", 0)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """The golden store after retention: the commit log has none of the compacted topic's records any more."""
    path = tmp_path / "store"
    shutil.copytree(STORE, path)
    with open_store("rocketmq", path, SETTINGS) as opened:
        while len(list((path / "commitlog").iterdir())) < 2:
            opened.append(PLAIN, [Record(None, b"x" * 1000)])
        opened.append(PLAIN, [Record(None, b"x" * 1000)])
    (path / "commitlog" / f"{0:020}").unlink()
    with open_store("rocketmq", path, SETTINGS) as opened:
        for queue in range(2):
            bounds = opened.bounds(TopicPartition("latest", queue))
            assert bounds.start == bounds.end > 30
    return path


def converted(store: Path, target: Path, **how: Any) -> list[dict[str, Any]]:
    """Return the records of the compacted topic in a converted store."""
    report = convert_store(store, target, to="kafka", options=SETTINGS, **how)
    assert {found.code for found in report.findings} <= {"compaction-log"}
    assert (report.left_out, report.moved) == ([], [])
    rows = []
    with open_store("kafka", target, read_only=True) as made:
        for queue in range(2):
            for record in made.scan(TopicPartition("latest", queue)):
                headers = dict(record.headers)
                rows.append(
                    {
                        "queueId": queue,
                        "queueOffset": record.offset,
                        "keys": (headers.get("KEYS") or b"").decode(),
                        "body": (record.value or b"").decode(),
                    }
                )
    return rows


def fields(rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    names = ("queueId", "queueOffset", "body")
    return [{name: row[name] for name in names} | {"keys": row["keys"] or ""} for row in rows]


def contents(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


@pytest.mark.parametrize(
    "how", [{}, {"run": run_serially}, {"run": run_serially, "split_bytes": 1}]
)
def test_a_conversion_has_what_consumers_of_the_broker_get(
    store: Path, tmp_path: Path, how: dict[str, Any]
) -> None:
    before = picture(store)
    assert converted(store, tmp_path / "new", **how) == fields(expected())
    assert picture(store) == before
    assert fine("verify", tmp_path / "new").rows == []


@pytest.mark.parametrize("how", [{}, {"run": run_serially}])
def test_the_commit_log_s_records_come_between(tmp_path: Path, how: dict[str, Any]) -> None:
    """Where the commit log has all records, with older ones of each key, the compacted log adds none."""
    rows = converted(STORE, tmp_path / "new", **how)
    assert len(rows) == 82
    assert all(row in rows for row in fields(expected()))


@pytest.mark.parametrize("how", [{}, {"run": run_serially}])
def test_a_topic_that_is_in_compacted_logs_only(
    store: Path, tmp_path: Path, how: dict[str, Any]
) -> None:
    shutil.rmtree(store / "consumequeue" / "latest")
    (store / "config" / "topics.json").unlink()
    assert converted(store, tmp_path / "new", **how) == fields(expected())


@pytest.mark.parametrize("how", [{}, {"run": run_serially}])
def test_messages_before_and_after_those_of_the_commit_log(
    tmp_path: Path, how: dict[str, Any]
) -> None:
    """Where both logs have a message of an offset, the commit log's counts."""
    path, queue = tmp_path / "store", TopicPartition("latest", 0)
    with open_store("rocketmq", path, SETTINGS) as opened:
        opened.create_topic("latest", 2)
        for _ in range(36):
            opened.append(queue, [Record(None, b"x" * 1000)])
    (path / "commitlog" / f"{0:020}").unlink()
    with open_store("rocketmq", path, SETTINGS) as opened:
        start, _, end = opened.bounds(queue)
        assert (20 < start < end, end) == (True, 36)
    shutil.copytree(STORE / "compaction", path / "compaction")
    found = [row for row in converted(path, tmp_path / "new", **how) if row["queueId"] == 0]
    assert [row["queueOffset"] for row in found if row["body"][0] == "x"] == [*range(start, end)]
    theirs = [row for row in fields(expected(0)) if not start <= row["queueOffset"] < end]
    assert [row for row in found if row["body"][0] != "x"] == theirs
    assert theirs[0]["queueOffset"] < start
    assert theirs[-1]["queueOffset"] >= end


def test_salvage_copies_the_logs(store: Path, tmp_path: Path) -> None:
    target = tmp_path / "new"
    ended = fine("salvage", store, "--to", target, *OPTIONS)
    assert ended.document["losses"] == []
    assert {row["code"] for row in ended.document["findings"]} <= {
        "left-behind",
        "entries-before-log",
    }
    assert contents(target / "compaction") == contents(store / "compaction")
    assert seen(dumped(target, "--what", "compacted")) == expected()
    assert converted(target, tmp_path / "kafka") == fields(expected())


@pytest.mark.parametrize("name", DAMAGES)
def test_salvage_of_a_damaged_log(name: str, store: Path, tmp_path: Path) -> None:
    """The new store has the good records, and nothing is wrong with it."""
    code, inflict, lost = DAMAGES[name]
    part = store / "compaction"
    inflict(part / "compactionLog/latest/0", part / "compactionCq/latest/0")
    target = tmp_path / "new"
    ended = run("salvage", store, "--to", target, *OPTIONS)
    assert ended.code == 1
    assert code in {row["code"] for row in ended.document["findings"]}
    shown = seen(dumped(target, "--what", "compacted"))
    assert [row for row in shown if row not in expected()] == []
    assert len(expected()) - len(shown) == lost
    found = [row for row in run("verify", target, *OPTIONS).rows if row["severity"] != "info"]
    assert {row["code"] for row in found} == {"compaction-log"}


# ---- while a broker compacts -----------------------------------------------------------------------


class Meanwhile(RealFileSystem):
    """A disk on which a broker compacts queue 0 at the `nth` call for its files: the first record goes. Between the
    removal of the old files and the new names there is one more call.
    """

    def __init__(self, folder: Path, nth: int) -> None:
        self._folders = (folder / "compactionLog/latest/0", folder / "compactionCq/latest/0")
        self.left = nth
        self._new: dict[Path, bytes] = {}

    def _meet(self, path: Path) -> None:
        if not {path, path.parent}.intersection(self._folders):
            return
        self.left -= 1
        for new, data in self._new.items():
            new.write_bytes(data)
        self._new.clear()
        if not self.left:
            log, queue = (folder / FIRST for folder in self._folders)
            entries = queue.read_bytes()
            self._new = {
                log: log.read_bytes(),
                queue: entries[SPARSE_UNIT_SIZE:] + bytes(SPARSE_UNIT_SIZE),
            }
            log.unlink()
            queue.unlink()

    def open(self, path: Path, *, write: bool = False, create: bool = False) -> Any:
        self._meet(path)
        return super().open(path, write=write, create=create)

    def list_dir(self, path: Path) -> Sequence[str]:
        self._meet(path)
        return super().list_dir(path)

    def mtime_ms(self, path: Path) -> int:
        self._meet(path)
        return super().mtime_ms(path)


def dump_rows(path: Path, fs: RealFileSystem, _: Path) -> list[dict[str, Any]]:
    inspector = open_inspector(path, SETTINGS, fs=fs)
    rows = [row for rows in inspector.dump("compacted") for row in rows]
    bad = [found.code for found in inspector.findings() if found.severity == "error"]
    inspector.close()
    assert bad == []
    return those({(row["queueId"], row["queueOffset"]) for row in rows})


def those(places: Container[tuple[Any, Any]]) -> list[dict[str, Any]]:
    """Return the broker's records at these queues and offsets."""
    return [row for row in expected() if (row["queueId"], row["queueOffset"]) in places]


def salvaged_rows(path: Path, fs: RealFileSystem, target: Path) -> list[dict[str, Any]]:
    inspector = open_inspector(path, SETTINGS, fs=fs)
    report = inspector.salvage(target)
    inspector.close()
    assert [found.code for found in report.findings if found.severity != "info"] == []
    return dump_rows(target, RealFileSystem(), target)


def converted_rows(path: Path, fs: RealFileSystem, target: Path) -> list[dict[str, Any]]:
    report = convert_store(path, target, to="kafka", options=SETTINGS, fs=fs)
    assert {found.code for found in report.findings} <= {"compaction-log"}
    with open_store("kafka", target, read_only=True) as made:
        return those(
            {
                (queue, record.offset)
                for queue in range(2)
                for record in made.scan(TopicPartition("latest", queue))
            }
        )


@pytest.mark.parametrize("work", [dump_rows, salvaged_rows, converted_rows])
def test_a_compaction_meanwhile_is_no_damage(
    store: Path, tmp_path: Path, work: Callable[[Path, RealFileSystem, Path], list[dict[str, Any]]]
) -> None:
    calm = Meanwhile(store / "compaction", 1 << 30)
    assert work(store, calm, tmp_path / "calm") == expected()
    calls, refused = (1 << 30) - calm.left, 0
    assert calls > 5
    for nth in range(1, calls + 1):
        path = tmp_path / f"store-{nth}"
        shutil.copytree(store, path)
        try:
            rows = work(path, Meanwhile(path / "compaction", nth), tmp_path / f"new-{nth}")
        except IoFailure as error:
            if "run it again" not in error.message:
                raise
            refused += 1
        else:
            assert rows in (expected(), expected()[1:]), nth
    assert refused <= 1, "only if the files were gone at the one moment when they were listed"
