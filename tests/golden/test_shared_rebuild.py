"""A rebuild in parts equals the real servers' files and a rebuild in one part, byte for byte, also after a kill."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypeVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from storage import RebuildReport, StoreOptions, SupportsParts, TaskRunner, open_inspector
from storage.errors import StoreLocked
from storage.files import RealFileSystem
from storage.rocketmq.state.root import take_lock
from storage.rocketmq.tools import log_tasks
from tests.cli.rocketmq.test_rocketmq_rebuild import KINDS, WHOLE, derived
from tests.golden import rocketmq_stores as rocketmq
from tests.golden import stores
from tests.golden.rocketmq_stores import GoldenStore, by_id
from tests.golden.sharing import Shared
from tests.golden.stores import GoldenPartition
from tests.golden.test_audit import NUMBERS, spoil
from tests.golden.trees import picture

P = TypeVar("P")
R = TypeVar("R")


def rebuilt(
    root: Path,
    given: Mapping[str, str],
    what: str,
    *,
    write: bool,
    run: TaskRunner | None = None,
    range_bytes: int = 3000,
) -> RebuildReport:
    """Rebuild a store and return the report; with `run` the work is done in parts."""
    inspector = open_inspector(root, StoreOptions(settings=dict(given)))
    assert isinstance(inspector, SupportsParts)
    try:
        if run is None:
            return inspector.rebuild(what, write=write)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(log_tasks, "RANGE_BYTES", range_bytes)
            return inspector.rebuild_in_parts(what, run, write=write)
    finally:
        inspector.close()


def stripped(golden: GoldenStore, root: Path) -> Path:
    """Return a copy that contains only the log."""
    rocketmq.copy_store(golden, root)
    for folder in ("consumequeue", "index"):
        shutil.rmtree(root / folder)
    return root


@pytest.mark.parametrize("golden", WHOLE, ids=by_id)
def test_rocketmq_byte_for_byte(golden: GoldenStore, tmp_path: Path) -> None:
    root = stripped(golden, tmp_path / "store")
    for what in KINDS:
        report = rebuilt(root, golden.settings, what, write=True, run=Shared(1000))
        assert len(report.changed) == report.files > 0
    assert derived(root) == derived(golden.root)
    assert [path.name for path in tmp_path.iterdir()] == ["store"]


@pytest.mark.parametrize("what", KINDS)
@pytest.mark.parametrize("name", ["small", "deleted-head", "unclean"])
def test_without_write_it_is_only_told(name: str, what: str, tmp_path: Path) -> None:
    golden = rocketmq.golden(name)
    root = rocketmq.copy_store(golden, tmp_path / "store")
    spoil(root, [(3, 100), (40, 30)])
    before = picture(root)
    expected = rebuilt(root, golden.settings, what, write=False)
    found = rebuilt(root, golden.settings, what, write=False, run=Shared(7))
    assert list(found.changed) == list(expected.changed)
    assert (found.files, found.findings) == (expected.files, expected.findings)
    assert picture(root) == before


@pytest.mark.slow
@settings(max_examples=25, deadline=None)
@given(
    name=st.sampled_from(["small", "many", "batch", "deleted-head", "times"]),
    places=st.lists(st.tuples(NUMBERS, NUMBERS), max_size=4),
    range_bytes=st.integers(200, 20_000),
    wave=st.integers(1, 40),
    what=st.sampled_from(KINDS),
)
def test_cut_anywhere(
    name: str, places: list[tuple[int, int]], range_bytes: int, wave: int, what: str
) -> None:
    golden = rocketmq.golden(name)
    with TemporaryDirectory() as folder:
        one = rocketmq.copy_store(golden, Path(folder) / "one" / "store")
        spoil(one, places)
        many = Path(shutil.copytree(one, Path(folder) / "many" / "store"))
        expected = rebuilt(one, golden.settings, what, write=True)
        run = Shared(wave)
        found = rebuilt(many, golden.settings, what, write=True, run=run, range_bytes=range_bytes)
        assert derived(many) == derived(one)
        assert found.files == expected.files
        assert len(found.changed) == len(expected.changed)


class Killed:
    """A `TaskRunner` that ends its process after a number of parts, as if it were killed."""

    def __init__(self, parts: int) -> None:
        self._left = parts

    def __call__(self, work: Callable[[P], R], parts: Iterable[P], /) -> Iterator[R]:
        for part in parts:
            if not self._left:
                os._exit(9)
            self._left -= 1
            yield work(part)


@pytest.mark.parametrize("parts", [3, 12, 20])
@pytest.mark.parametrize("what", KINDS)
def test_killed_and_done_again(what: str, parts: int, tmp_path: Path) -> None:
    golden = rocketmq.golden("small")
    root = stripped(golden, tmp_path / "store")
    child = os.fork()
    if not child:
        rebuilt(root, golden.settings, what, write=True, run=Killed(parts))
        os._exit(0)
    _, status = os.waitpid(child, 0)
    rebuilt(root, golden.settings, what, write=True, run=Shared(1000))
    at = KINDS.index(what)
    if os.waitstatus_to_exitcode(status) == 9:
        assert [path for path in tmp_path.iterdir() if ".rebuild-" in path.name]
    made = root / ("consumequeue", "index")[at]
    other = golden.root / made.name
    assert sorted(p.read_bytes() for p in made.rglob("*") if p.is_file()) == sorted(
        p.read_bytes() for p in other.rglob("*") if p.is_file()
    )


@pytest.mark.parametrize("what", KINDS)
def test_not_beside_a_server(what: str, tmp_path: Path) -> None:
    golden = rocketmq.golden("small")
    root = stripped(golden, tmp_path / "store")
    lock = take_lock(RealFileSystem(), root)
    before = picture(tmp_path)
    with pytest.raises(StoreLocked):
        rebuilt(root, golden.settings, what, write=True, run=Shared(10))
    assert picture(tmp_path) == before
    lock.release()


# ---- Kafka ---------------------------------------------------------------------------------------

PARTITIONS = [GoldenPartition("txn", "txn-mixed-0"), GoldenPartition("segments", "seg-small-0")]


def indexes(folder: Path) -> dict[str, bytes]:
    """Return the index files of a partition."""
    return {path.name: path.read_bytes() for path in folder.glob("*index")}


@pytest.mark.parametrize("where", PARTITIONS, ids=stores.by_id)
def test_kafka_byte_for_byte(where: GoldenPartition, tmp_path: Path) -> None:
    """Without a snapshot the open transactions are unknown at first: then segments are processed again."""
    root = stores.copy_store(where.root, tmp_path / "data")
    folder = root / where.name
    for path in [*folder.glob("*index"), *folder.glob("*.snapshot")]:
        path.unlink()
    run = Shared(1000)
    report = rebuilt(root / where.name, where.settings, "indexes", write=True, run=run)
    assert report.changed
    assert indexes(folder) == indexes(where.data)
    assert [path.name for path in tmp_path.iterdir()] == ["data"]
    assert (run.done > len(where.log_files)) == (where.store == "txn")
    again = rebuilt(root / where.name, where.settings, "indexes", write=True, run=Shared(2))
    assert not again.changed


def test_kafka_killed_and_done_again(tmp_path: Path) -> None:
    where = PARTITIONS[1]
    root = stores.copy_store(where.root, tmp_path / "data")
    for path in (root / where.name).glob("*index"):
        path.unlink()
    child = os.fork()
    if not child:
        rebuilt(root / where.name, where.settings, "indexes", write=True, run=Killed(4))
        os._exit(0)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 9
    assert 0 < len(indexes(root / where.name)) < len(indexes(where.data))
    rebuilt(root / where.name, where.settings, "indexes", write=True, run=Shared(1000))
    assert indexes(root / where.name) == indexes(where.data)


def test_kafka_what_was_there_is_kept_aside(tmp_path: Path) -> None:
    where = PARTITIONS[1]
    root = stores.copy_store(where.root, tmp_path / "data")
    path = sorted((root / where.name).glob("*.index"))[1]
    path.write_bytes(b"\x5a" * 16)
    report = rebuilt(root / where.name, where.settings, "indexes", write=False, run=Shared(1000))
    assert list(report.changed) == [str(path)]
    assert path.read_bytes() == b"\x5a" * 16
    report = rebuilt(root / where.name, where.settings, "indexes", write=True, run=Shared(1000))
    (finding,) = [finding for finding in report.findings if finding.code == "kept-aside"]
    assert (Path(finding.path) / where.name / path.name).read_bytes() == b"\x5a" * 16
    assert indexes(root / where.name) == indexes(where.data)
