"""The folders of a RocketMQ log: a folder with two names counts once, and a log with no file at its end is verified."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from storage import StoreOptions
from storage.files import FollowingFileSystem
from storage.registry import open_inspector, open_store
from storage.rocketmq.format.names import file_name
from tests.unit.rocketmq.recovery.foreign_log import inspector
from tests.unit.rocketmq.workshop import LOG_BYTES, SMALL, Workshop, put_value


def on_disk(root: Path) -> None:
    """Create a store in a real folder, so that links are real links."""
    with closing(open_store("rocketmq", root, StoreOptions(settings=SMALL))) as store:
        store.create_topic("t", 1)
        for number in range(20):
            put_value(store, b"value-%02d" % number)


def moved_and_linked(root: Path) -> str:
    """Replace commitlog by a link to the folder that the setting names."""
    disk = root.parent / "disk"
    (root / "commitlog").rename(disk)
    (root / "commitlog").symlink_to(disk)
    return str(disk)


def named_by_a_link(root: Path) -> str:
    """Return, for the setting, a link to the store's own folder."""
    link = root.parent / "link"
    link.symlink_to(root / "commitlog")
    return str(link)


def below_a_linked_folder(root: Path) -> str:
    """Return, for the setting, a path to the folder through a linked parent."""
    link = root.parent / "other"
    link.symlink_to(root)
    return str(link / "commitlog")


def named_twice(root: Path) -> str:
    return f"{root / 'commitlog'},{named_by_a_link(root)}"


def named_around(root: Path) -> str:
    return f"{root}/../{root.name}/commitlog"


@pytest.mark.parametrize(
    "name", [moved_and_linked, named_by_a_link, below_a_linked_folder, named_twice, named_around]
)
def test_one_folder_by_two_names(name: Callable[[Path], str], tmp_path: Path) -> None:
    root = tmp_path / "store"
    on_disk(root)
    options = StoreOptions(settings={**SMALL, "storePathCommitLog": name(root)})
    with closing(open_inspector(root, options, fs=FollowingFileSystem())) as tools:
        found = list(tools.verify())
    assert [f for f in found if f.severity != "info"] == []


def test_another_folder_is_reported_still(tmp_path: Path) -> None:
    root = tmp_path / "store"
    on_disk(root)
    shutil.copytree(root / "commitlog", tmp_path / "copy")
    options = StoreOptions(settings={**SMALL, "storePathCommitLog": str(tmp_path / "copy")})
    with closing(open_inspector(root, options, fs=FollowingFileSystem())) as tools:
        found = [f for f in tools.verify() if f.code == "unknown-file"]
    assert found
    assert {f.severity for f in found} == {"error"}


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("files_later", [1, 2, 7])
def test_a_log_file_with_a_later_name(files_later: int, clean: bool, shop: Workshop) -> None:
    """The log ends where no file is: verify still makes all checks."""
    with closing(shop.open_with_topic()) as store:
        for number in range(20):
            put_value(store, b"value-%02d" % number)
    last = shop.log_bases()[-1]
    shop.fs.rename(shop.log_path(last), shop.log_path(last + files_later * LOG_BYTES))
    if not clean:
        shop.fs.open(shop.log_path().parent.parent / "abort", create=True).close()
    with inspector(shop) as tools:
        found = {f.code: f for f in tools.verify()}
    assert {"missing-file", "unit-beyond-log", "log-ends-early"} <= found.keys()
    assert found["missing-file"].path.endswith(file_name(last))
