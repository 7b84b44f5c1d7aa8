"""Folders that a real broker renamed, and folders that are not partitions, as the commands show them."""

from __future__ import annotations

import base64
import shutil
from pathlib import Path

import pytest

from storage import TopicPartition
from storage.kafka.format import names
from tests.cli.runner import fine, run
from tests.golden.stores import GoldenPartition

KEYED = GoldenPartition("parts", "keyed-1")
OFFSETS = [row["offset"] for row in KEYED.lines("expected.jsonl")]
KEY = base64.b64decode(KEYED.lines("expected.jsonl")[0]["key"]).decode()
ID = "2w0vQbUXTkWXPCWb7I2fpA"
HEX_ID = "0a1b2c3d4e5f60718293a4b5c6d7e8f9"
RENAMED = {
    f"orders-7.{ID}-delete": ("orders", 7, "delete", "info"),
    f"orders-0.{HEX_ID}-stray": ("orders", 0, "stray", "warning"),
    f"my.topic-v1_x-12.{HEX_ID}-future": ("my.topic-v1_x", 12, "future", "info"),
    "t-0.a-b-delete": ("t", 0, "delete", "info"),
}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A store of the real broker with one partition."""
    root = tmp_path / "data"
    root.mkdir()
    (root / ".kafka_cleanshutdown").write_text('{"version":0,"brokerEpoch":12}')
    shutil.copytree(KEYED.data, root / "keyed-0")
    return root


@pytest.mark.parametrize("name", RENAMED)
def test_a_renamed_folder_is_its_partition(root: Path, name: str) -> None:
    """Every command that reads a renamed folder reads it as its partition and reports its state."""
    topic, partition, state, severity = RENAMED[name]
    shutil.copytree(KEYED.data, root / name)
    chosen = ("--topic", topic, "--partition", partition)
    stated = [("renamed-folder", severity, str(root / name), state)]

    def states(rows: list[dict[str, object]]) -> list[tuple[object, ...]]:
        return [(r["code"], r["severity"], r["path"], r["found"]) for r in rows]

    assert states(run("verify", root).rows) == stated
    summary = run("inspect", root).document
    assert states(summary["findings"]) == stated
    shown = {(t["topic"], p["partition"]): p for t in summary["topics"] for p in t["partitions"]}
    assert shown[topic, partition]["state"] == state
    assert shown["keyed", 0]["state"] is None
    dumped = run("dump", root, *chosen)
    assert [(r["topic"], r["partition"], r["offset"]) for r in dumped.rows] == [
        (topic, partition, offset) for offset in OFFSETS
    ]
    assert "[renamed-folder]" in dumped.err
    found = run("find", root, "--topic", topic, "--key", KEY, "--limit", 1)
    assert [(r["topic"], r["partition"]) for r in found.rows] == [(topic, partition)]
    assert "[renamed-folder]" in found.err


@pytest.mark.parametrize("name", ["a-0", "my.topic-12", "t-3"])
def test_the_command_that_helps_names_the_renamed_folder(root: Path, name: str) -> None:
    folder = root / f"{name}.{HEX_ID}-stray"
    shutil.copytree(KEYED.data, folder)
    shown = run("verify", root, "--output", "table").out.decode()
    (line,) = [line for line in shown.splitlines() if "[renamed-folder]" in line]
    assert line.endswith(f"; run: logserver salvage {folder} --to NEW")


@pytest.mark.parametrize("name", RENAMED)
def test_a_renamed_folder_alone(tmp_path: Path, name: str) -> None:
    """A renamed folder alone is read and salvaged under the name of its partition."""
    topic, partition, state, _ = RENAMED[name]
    folder = tmp_path / "found" / name
    shutil.copytree(KEYED.data, folder)
    assert {(r["topic"], r["partition"]) for r in run("dump", folder).rows} == {(topic, partition)}
    log = next(folder.glob("*.log"))
    assert {(r["topic"], r["partition"]) for r in fine("dump", log).rows} == {(topic, partition)}
    (row,) = run("inspect", folder).document["topics"][0]["partitions"]
    assert row["state"] == state
    run("salvage", folder, "--to", tmp_path / "new")
    assert [path.name for path in (tmp_path / "new").glob("*-*/")] == [f"{topic}-{partition}"]
    assert [r["offset"] for r in fine("dump", tmp_path / "new").rows] == OFFSETS


@pytest.mark.parametrize("state", ["delete", "stray", "future"])
def test_two_folders_of_one_partition(root: Path, tmp_path: Path, state: str) -> None:
    """The served folder is shown. The renamed folder is reported, is named as left out, and can be salvaged alone."""
    renamed = root / f"keyed-0.{HEX_ID}-{state}"
    shutil.copytree(KEYED.data, renamed)
    for name in ("log-start-offset-checkpoint", "recovery-point-offset-checkpoint"):
        (root / name).write_text("0\n1\nkeyed 0 5\n")
    assert [r["offset"] for r in run("dump", root).rows] == [o for o in OFFSETS if o >= 5]
    (row,) = run("verify", root).rows
    assert (row["code"], row["found"]) == ("renamed-folder", state)
    assert "keyed-0 holds the same partition" in row["message"]
    salvaged = run("salvage", root, "--to", tmp_path / "new")
    assert f"keyed-0.{HEX_ID}-{state}" in salvaged.out.decode() + salvaged.err
    assert "not taken along" in salvaged.out.decode() + salvaged.err
    assert [r["offset"] for r in run("dump", renamed).rows] == OFFSETS, (
        "the start is the other one's"
    )


def test_a_salvage_brings_a_partition_back_that_was_deleted(root: Path, tmp_path: Path) -> None:
    (root / "keyed-0").rename(root / f"keyed-0.{HEX_ID}-delete")
    run("salvage", root, "--to", tmp_path / "new")
    assert [r["offset"] for r in fine("dump", tmp_path / "new", "--topic", "keyed").rows] == OFFSETS


@pytest.mark.parametrize("name", ["lost+found", "backup", "old-data", ".snapshot", "keyed-0.gone"])
def test_a_foreign_folder_is_an_error(root: Path, name: str) -> None:
    (root / name).mkdir()
    for rows in (run("verify", root).rows, run("inspect", root).document["findings"]):
        assert [(r["code"], r["severity"], r["path"]) for r in rows] == [
            ("foreign-folder", "error", str(root / name))
        ]
        assert "a real broker does not start" in rows[0]["message"]


@pytest.mark.parametrize("name", ["remote-log-index-cache", "__cluster_metadata-0", "c-007"])
def test_folders_that_a_broker_takes(root: Path, name: str) -> None:
    (root / name).mkdir()
    assert "foreign-folder" not in [row["code"] for row in run("verify", root).rows]


def test_a_file_is_no_foreign_folder(root: Path) -> None:
    (root / "lost+found").write_text("")
    assert [(r["code"], r["severity"]) for r in run("verify", root).rows] == [
        ("unknown-file", "info")
    ]


@pytest.mark.parametrize(
    ("name", "partition", "state"),
    [
        (f"orders-7.{ID}-delete", "orders-7", "delete"),
        ("a.b-1.c-d-future", "a.b-1", "future"),
        ("a-b-3.x-stray", "a-b-3", "stray"),
        ("orders-7", None, None),
        ("orders-7-delete", None, None),
        ("orders-7.-delete", None, None),
        ("orders.abc-delete", None, None),
        ("orders-7.abc-gone", None, None),
        ("a.b-delete-0", None, None),
        (f"orders-2147483648.{ID}-delete", None, None),
    ],
)
def test_names_of_renamed_folders(name: str, partition: str | None, state: str | None) -> None:
    found = names.parse_renamed_dir(name)
    assert (found and str(found.partition), found and found.state) == (partition, state)
    if found is None:
        return
    assert names.partition_of_dir(name) == found.partition
    assert isinstance(found.partition, TopicPartition)
