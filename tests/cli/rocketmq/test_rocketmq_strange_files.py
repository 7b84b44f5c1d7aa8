"""`logserver verify` on names in a RocketMQ store that have no meaning at their place."""

from __future__ import annotations

from pathlib import Path

import pytest

from storage import StoreOptions, TopicPartition, open_store
from tests.cli.runner import fine, run, settings_options
from tests.golden import rocketmq_stores as stores

STRANGE_FOLDERS = [
    "commitlog/00000000000000100000",
    "commitlog/00000000000000000007",
    "index/20270101000000000",
    "consumequeue/order_s1/0/00000000000000100000",
]
STRANGE_QUEUES = ["consumequeue/order_s1/9", "consumequeue/strange"]


def test_what_bears_a_name_of_another_kind_is_left_alone(tmp_path: Path) -> None:
    """Folders in place of files, and files in place of folders, are reported by verify and disturb no command."""
    golden = stores.golden("small")
    root = stores.copy_store(golden, tmp_path / "store")
    for name in STRANGE_FOLDERS:
        (root / name).mkdir()
    for name in STRANGE_QUEUES:
        (root / name).write_text("x")
    options = settings_options(golden.settings)
    found = fine("verify", root, *options).rows
    assert {row["code"] for row in found} == {"unknown-file"}
    assert {row["path"] for row in found} == {
        str(root / n) for n in STRANGE_FOLDERS + STRANGE_QUEUES
    }
    for what in ("consumequeue", "indexfile"):
        assert run("rebuild", root, "--what", what, *options).document["changed"] == []
    for command in (("inspect",), ("dump",), ("dump", "--what", "commitlog"), ("offsets",)):
        assert run(command[0], root, *command[1:], *options).code == 0
    for what in ("dump", "verify"):
        assert run(what, root / STRANGE_FOLDERS[2], *options).code == 2
    with open_store("rocketmq", root, StoreOptions(settings=golden.settings)) as store:
        queue = TopicPartition("order_s1", 0)
        assert store.bounds(queue).end == golden.queues[queue][1]
    for name in (*STRANGE_FOLDERS, *STRANGE_QUEUES):
        assert (root / name).exists()


@pytest.mark.parametrize(
    ("name", "data", "severity"),
    [
        ("commitlog/.DS_Store", b"x", "error"),
        ("commitlog/.DS_Store", b"", "error"),
        ("commitlog/00000000000000000000.bak", b"x", "error"),
        ("commitlog/z", b"x", "error"),
        ("commitlog/z", b"", "info"),
        ("consumequeue/order_s1/0/.DS_Store", b"", "error"),
        ("consumequeue/order_s1/.DS_Store", b"x", "info"),
        ("index/notes.txt", b"x", "info"),
    ],
)
def test_a_file_is_an_error_where_the_real_store_would_not_load(
    name: str, data: bytes, severity: str, tmp_path: Path
) -> None:
    golden = stores.golden("small")
    root = stores.copy_store(golden, tmp_path / "store")
    (root / name).write_bytes(data)
    ended = run("verify", root, *settings_options(golden.settings))
    assert [(row["code"], row["severity"], row["path"]) for row in ended.rows] == [
        ("unknown-file", severity, str(root / name))
    ]
    assert ended.code == (1 if severity == "error" else 0)


@pytest.mark.parametrize(
    ("name", "is_folder"),
    [
        ("abort", True),
        ("checkpoint", True),
        ("lock", True),
        ("config/topics.json", True),
        ("config", False),
        ("commitlog", False),
    ],
)
def test_one_kind_in_the_place_of_the_other_is_named_by_every_command(
    name: str, is_folder: bool, tmp_path: Path
) -> None:
    golden = stores.golden("small")
    root = stores.copy_store(golden, tmp_path / "store")
    path = root / name
    if path.exists():
        path.rename(tmp_path / "aside")
    path.parent.mkdir(exist_ok=True)
    if is_folder:
        path.mkdir()
        (path / "notes.txt").write_text("x")
    else:
        path.write_text("x")
    options = settings_options(golden.settings)
    found = [
        run("verify", root, *options).rows,
        run("inspect", root, *options).document["findings"],
    ]
    report = run("salvage", root, "--to", tmp_path / "new", "--json", *options)
    assert report.code == 1
    for rows in (*found, report.document["findings"]):
        named = [row for row in rows if row["path"] == str(path)]
        assert ("unknown-file", "error") in [(row["code"], row["severity"]) for row in named]
    before = sorted(root.rglob("*"))
    ended = run("serve", "--data", root, "--write", "--listen", "127.0.0.1:0", *options)
    assert ended.code == 1
    assert str(path) in ended.err
    assert "Move it away" in ended.err
    assert sorted(root.rglob("*")) == before
