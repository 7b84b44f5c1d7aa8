"""`verify` ends with a summary of the checked data: in the table, on standard error next to JSON, and in a file."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.cli.runner import run, settings_options
from tests.golden import rocketmq_stores, stores

SMALL = rocketmq_stores.golden("small")
KAFKA = stores.KAFKA / "txn/data"
LINE = re.compile(
    r"checked: (\d+) topics?, (\d+) partitions?, (\d+) files?, (\d+) records?, .+ in \d+\.\d s"
)


def checked(path: Path, tmp_path: Path, *options: object) -> dict[str, Any]:
    """Return the summary in the file. The last line of the table and the line next to JSON must repeat it."""
    summary = tmp_path / "summary.json"
    table = run("verify", path, "--output", "table", "--summary", summary, *options)
    document: dict[str, Any] = json.loads(summary.read_bytes())
    counts = [document[name] for name in ("topics", "partitions", "files", "records")]
    lines = [table.out.decode().splitlines()[-1]]
    for output in ("json", "ndjson"):
        ended = run("verify", path, "--output", output, *options)
        assert len(ended.err.splitlines()) == 1
        lines.append(ended.err.rstrip())
        rows = ended.document if output == "json" else ended.rows
        assert sum(document["findings"].values()) == len(rows)
    for line in lines:
        match = LINE.fullmatch(line)
        assert match is not None
        assert list(map(int, match.groups())) == counts
    assert document["seconds"] >= 0
    return document


def size_of(*paths: Path) -> int:
    return sum(path.stat().st_size for path in paths)


def test_a_kafka_store(tmp_path: Path) -> None:
    reported = checked(KAFKA, tmp_path)
    logs = list(KAFKA.glob("*/*.log"))
    files = [path for path in KAFKA.glob("*/*") if path.is_file()]
    assert reported["partitions"] == len({path.parent for path in logs})
    assert (reported["files"], reported["bytes"]) == (len(files), size_of(*files))
    batches = run("dump", KAFKA, "--what", "batches").rows
    assert reported["records"] == sum(
        batch["count"] for batch in batches
    )  # including transaction markers


@pytest.mark.parametrize("suffix", ["log", "index", "timeindex", "snapshot"])
def test_a_kafka_file(suffix: str, tmp_path: Path) -> None:
    path = min((KAFKA / "txn-mixed-0").glob(f"*.{suffix}"))
    reported = checked(path, tmp_path)
    assert (reported["files"], reported["partitions"], reported["bytes"]) == (1, 1, size_of(path))
    assert (reported["records"] > 0) == (suffix == "log")


def test_a_rocketmq_store(tmp_path: Path) -> None:
    reported = checked(SMALL.root, tmp_path, *settings_options(SMALL.settings))
    queues = {path.parent for path in (SMALL.root / "consumequeue").glob("*/*/*")}
    assert reported["partitions"] == len(queues)
    assert reported["topics"] == len({path.parent for path in queues})
    logs = list((SMALL.root / "commitlog").iterdir())
    units = list((SMALL.root / "consumequeue").glob("*/*/*"))
    indexes = list((SMALL.root / "index").iterdir())
    assert reported["files"] == len(logs) + len(units) + len(indexes)
    options = settings_options(SMALL.settings)
    rows = run("dump", SMALL.root, "--what", "commitlog", *options).rows
    assert reported["records"] == sum(row["kind"] == "log" for row in rows)


@pytest.mark.parametrize("folder", ["commitlog", "consumequeue", "index"])
def test_a_rocketmq_file(folder: str, tmp_path: Path) -> None:
    path = min(path for path in (SMALL.root / folder).rglob("*") if path.is_file())
    reported = checked(path, tmp_path, *settings_options(SMALL.settings))
    assert (reported["files"], reported["bytes"]) == (1, size_of(path))
    assert (reported["records"] > 0) == (folder == "commitlog")


def test_a_rocketmq_log_without_its_store(tmp_path: Path) -> None:
    """In a folder of several files each file is counted."""
    folder = tmp_path / "store" / "commitlog"
    shutil.copytree(SMALL.root / "commitlog", folder)
    reported = checked(folder, tmp_path, *settings_options(SMALL.settings))
    files = list(folder.iterdir())
    assert reported["files"] == len(files)
    assert (
        size_of(*files[:-1]) < reported["bytes"] <= size_of(*files)
    )  # without the free space at the end


def test_a_rocketmq_store_without_queues_has_its_topics(tmp_path: Path) -> None:
    options = settings_options(SMALL.settings)
    whole = checked(SMALL.root, tmp_path, *options)
    root = rocketmq_stores.copy_store(SMALL, tmp_path / "store")
    shutil.rmtree(root / "consumequeue")
    reported = checked(root, tmp_path, *options)
    for name in ("topics", "partitions", "records"):
        assert reported[name] == whole[name]


def test_damage_is_counted_by_severity(tmp_path: Path) -> None:
    root = stores.copy_store(KAFKA, tmp_path / "data")
    for path in root.glob("*/*.index"):
        path.unlink()
    lost = len(list(KAFKA.glob("*/*.index")))
    reported = checked(root, tmp_path)
    assert reported["findings"] == {"error": 0, "warning": lost, "info": 0}
    table = run("verify", root, "--output", "table").out.decode().splitlines()
    assert len(table) == 3
    assert f"({lost} like it, this is the first" in table[0]
    assert "; run: logserver rebuild" in table[0]
    every = run("verify", root, "--output", "table", "--all").out.decode().splitlines()
    assert len(every) == lost + 2
    assert table[1] == f"0 errors, {lost} warnings; what a code means: logserver explain CODE"
