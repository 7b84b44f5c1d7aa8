"""Symbolic links in a store: followed and reported when the store is only read, refused when it would be written."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

import storage
from storage import Record, StoreOptions, TopicPartition
from storage.errors import IoFailure
from storage.files import FollowingFileSystem

T0 = TopicPartition("t", 0)
VALUES = [b"%d" % n for n in range(20)]
LINKED = {
    "kafka": ["t-0", "t-0/*.log", "t-0/*.index", "recovery-point-offset-checkpoint"],
    "rocketmq": [
        *("commitlog", "config", "consumequeue", "consumequeue/t", "consumequeue/t/0", "index"),
        *("commitlog/*", "consumequeue/t/0/*", "config/topics.json", "checkpoint"),
    ],
}
CASES = [(backend, name) for backend, linked in LINKED.items() for name in linked]
# Small files: a store of the usual sizes takes 1.4 GiB, which these tests would read, copy and delete.
SETTINGS = {
    "kafka": {},
    "rocketmq": {
        "mappedFileSizeCommitLog": "65536",
        "mappedFileSizeConsumeQueue": "2000",
        "maxHashSlotNum": "50",
        "maxIndexNum": "200",
    },
}
# The paths in the link findings of a walk over a looping folder.
LOOPS = {"kafka": "t-0/loop", "rocketmq": "consumequeue/loop"}
FILES = {"kafka": "t-0/*.log", "rocketmq": "commitlog/*"}


def opened(path: Path, backend: str) -> storage.LogStore:
    return storage.open_store(backend, path, StoreOptions(settings=SETTINGS[backend]))


def a_store(path: Path, backend: str) -> None:
    with opened(path, backend) as store:
        store.create_topic("t", 1)
        for value in VALUES:
            store.append(T0, [Record(None, value)])


def link(path: Path, elsewhere: Path) -> None:
    """Move a file or folder elsewhere, and put a link in its old place."""
    path.rename(elsewhere)
    path.symlink_to(elsewhere)


def bytes_below(path: Path) -> dict[str, bytes]:
    files = (Path(d, n) for d, _, names in os.walk(path) for n in names)
    return {str(f): f.read_bytes() for f in files if f.is_file()}


def read(store: storage.LogStore) -> list[bytes | None]:
    return [record.value for record in store.read(T0, 0, max_records=100).records]


@pytest.fixture(params=CASES, ids=lambda case: f"{case[0]}-{case[1]}")
def linked(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[str, Path, Path]]:
    """The tuple (backend, root, link)."""
    backend, name = request.param
    root = tmp_path / "store"
    a_store(root, backend)
    (path, *_) = root.glob(name)
    link(path, tmp_path / "elsewhere")
    before = bytes_below(tmp_path)
    yield backend, root, path
    left = {name: data for name, data in bytes_below(tmp_path).items() if name in before}
    assert left == before


def test_reading_follows_and_reports_it(linked: tuple[str, Path, Path]) -> None:
    backend, root, path = linked
    detected = storage.detect(root)
    assert detected is not None
    assert detected.backend == backend
    with storage.open_store(backend, root, read_only=True) as store:
        assert read(store) == VALUES
    with closing(storage.open_inspector(root)) as inspector:
        found = [f for f in inspector.verify() if f.severity != "info"]
        assert found == []
        links = [f for f in inspector.verify() if f.code == "symbolic-link"]
    assert [(f.path, f.severity, f.found) for f in links] == [
        (str(path), "info", str(path.resolve()))
    ]
    with closing(storage.open_inspector(root)) as inspector:
        findings = inspector.summary()["findings"]
        assert isinstance(findings, list)
        if path.suffix not in {".index", ""} or path.is_dir():  # a summary reads fewer files
            assert "symbolic-link" in {row["code"] for row in findings}


def test_salvage_copies_what_it_leads_to(linked: tuple[str, Path, Path], tmp_path: Path) -> None:
    backend, root, _ = linked
    with closing(storage.open_inspector(root)) as inspector:
        report = inspector.salvage(tmp_path / "new")
    assert report.lost_bytes == 0
    assert report.kept_records == len(VALUES)
    assert not [p for p in (tmp_path / "new").rglob("*") if p.is_symlink()]
    with opened(tmp_path / "new", backend) as store:
        assert read(store) == VALUES


def test_a_start_for_writing_refuses_it(linked: tuple[str, Path, Path]) -> None:
    backend, root, path = linked
    with pytest.raises(IoFailure, match=f"{path.name}: it is a symbolic link"):
        storage.open_store(backend, root)


@pytest.mark.parametrize("backend", LOOPS)
def test_loops_end(tmp_path: Path, backend: str) -> None:
    root = tmp_path / "store"
    a_store(root, backend)
    loop = root / LOOPS[backend]
    loop.symlink_to(loop.parent)
    (root / "self").symlink_to("self")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "back").symlink_to(root)
    (root / "there").symlink_to(tmp_path / "other")
    with closing(storage.open_inspector(root)) as inspector:
        list(inspector.verify())
        inspector.summary()
        assert inspector.salvage(tmp_path / "new").kept_records == len(VALUES)
    with storage.open_store(backend, root, read_only=True) as store:
        assert read(store) == VALUES


@pytest.mark.parametrize("backend", FILES)
@pytest.mark.parametrize("kind", ["fifo", "nothing", "device", "folder"])
def test_a_link_to_something_else_is_damage(tmp_path: Path, backend: str, kind: str) -> None:
    """Such a link ends no command, and no command waits for a writer of the FIFO."""
    root = tmp_path / "store"
    a_store(root, backend)
    (path, *_) = root.glob(FILES[backend])
    path.unlink()
    target = Path("/dev/zero") if kind == "device" else tmp_path / kind
    if kind == "fifo":
        os.mkfifo(target)
    elif kind == "folder":
        target.mkdir()
    path.symlink_to(target)
    with closing(storage.open_inspector(root)) as inspector:
        found = {f.path for f in inspector.verify() if f.severity == "error"}
        assert found & {str(path), str(path.parent)}
        inspector.summary()


def test_a_walk_ends_where_links_lead_around(tmp_path: Path) -> None:
    """With two folders that link to each other, the second visit is refused."""
    for name, other in (("a", "b"), ("b", "a")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "x").symlink_to(tmp_path / other)
    fs = FollowingFileSystem()
    assert fs.is_dir(tmp_path / "a/x")
    with pytest.raises(IoFailure, match="back to a folder that contains it"):
        fs.is_dir(tmp_path / "a/x/x")
