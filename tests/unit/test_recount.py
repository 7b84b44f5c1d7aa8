"""A tool that creates a store, or files of a store, counts the result: a difference from its report is an error.

A tool that creates a store then leaves no new store; `rebuild` names the old files that it kept, or leaves them.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from storage import (
    StoreOptions,
    SupportsInspect,
    SupportsParts,
    TaskRunner,
    TopicPartition,
    convert_store,
    open_inspector,
)
from storage.contract import run_serially
from storage.errors import MiscountedResult
from storage.files import RealFileSystem, atomic_write
from storage.kafka.tools.salvage.salvage import count_records as kafka_count
from storage.rocketmq.tools.rebuild.recount import Built
from storage.rocketmq.tools.rebuild.recount import count_records as rocketmq_count
from storage.shared.recount import Contents, check_files, check_recount
from tests.cli.rocketmq.test_rocketmq_rebuild import derived
from tests.golden import rocketmq_stores, stores

T = TopicPartition("t", 0)


def test_what_agrees_passes() -> None:
    check_recount(Path("new"), {T: Contents(3, None)}, {T: Contents(3, 9)})
    check_recount(Path("new"), {T: Contents(0, 0)}, {})


@pytest.mark.parametrize(
    ("reported", "counted"),
    [
        (Contents(3, None), Contents(2, 9)),
        (Contents(2, None), Contents(3, 9)),
        (Contents(3, 4), Contents(3, 5)),
        (Contents(1, None), None),
    ],
)
def test_both_numbers_are_named(reported: Contents, counted: Contents | None) -> None:
    with pytest.raises(MiscountedResult) as raised:
        check_recount(Path("new"), {T: reported}, {} if counted is None else {T: counted})
    facts = raised.value.facts()
    assert (facts["topic"], facts["partition"], facts["path"]) == ("t", 0, "new")
    assert facts["reported"] != facts["counted"]
    assert f"{facts['reported']}" in raised.value.message
    assert f"{facts['counted']}" in raised.value.message


def one_less(count: Callable[..., Any]) -> Callable[..., Any]:
    """Return a count that misses one record of the first partition that has records."""

    def counted(*args: Any) -> dict[TopicPartition, Contents]:
        found = dict(count(*args))
        address = next(a for a, contents in found.items() if contents.records)
        found[address] = found[address]._replace(records=found[address].records - 1)
        return found

    return counted


@pytest.mark.parametrize("name", ["basic", "small", "broker"])
def test_a_salvage_of_rocketmq_that_keeps_less_than_it_says(name: str, tmp_path: Path) -> None:
    from storage.rocketmq.tools.salvage import salvage

    golden = rocketmq_stores.golden(name)
    inspector = open_inspector(golden.root, StoreOptions(settings=golden.settings))
    with (
        patch.object(salvage, "count_records", one_less(rocketmq_count)),
        pytest.raises(MiscountedResult),
    ):
        inspector.salvage(tmp_path / "new")
    inspector.close()
    assert not RealFileSystem().exists(tmp_path / "new")


@pytest.mark.parametrize("name", ["basic", "small", "broker"])
def test_a_conversion_that_writes_less_than_it_says(name: str, tmp_path: Path) -> None:
    from storage.conversion import kafka_writer

    golden = rocketmq_stores.golden(name)
    with (
        patch.object(kafka_writer, "count_records", one_less(kafka_count)),
        pytest.raises(MiscountedResult),
    ):
        convert_store(
            golden.root,
            tmp_path / "new",
            to="kafka",
            encode=True,
            options=StoreOptions(settings=golden.settings),
        )
    assert not RealFileSystem().exists(tmp_path / "new")


@pytest.mark.parametrize("name", ["times", "segments", "txn"])
def test_a_salvage_of_kafka_that_keeps_less_than_it_says(name: str, tmp_path: Path) -> None:
    from storage.kafka.tools.salvage import salvage

    inspector = open_inspector(data_of(name), StoreOptions())
    with (
        patch.object(salvage, "count_records", one_less(kafka_count)),
        pytest.raises(MiscountedResult),
    ):
        inspector.salvage(tmp_path / "new")
    inspector.close()
    assert not RealFileSystem().exists(tmp_path / "new")


@pytest.mark.parametrize("name", ["times", "segments", "codecs"])
def test_a_conversion_to_rocketmq_that_writes_less_than_it_says(name: str, tmp_path: Path) -> None:
    from storage.conversion import rocketmq_writer

    with (
        patch.object(rocketmq_writer, "count_records", one_less(rocketmq_count)),
        pytest.raises(MiscountedResult),
    ):
        convert_store(data_of(name), tmp_path / "new", to="rocketmq", encode=True)
    assert not RealFileSystem().exists(tmp_path / "new")


def test_files_that_agree_pass() -> None:
    check_files({Path("a"): 3, Path("b"): None}, {Path("a"): 3, Path("c"): 1}, what="x", advice="")


@pytest.mark.parametrize(("reported", "counted"), [(3, 2), (0, None), (None, 0)])
def test_a_file_that_differs_is_named(reported: int | None, counted: int | None) -> None:
    with pytest.raises(MiscountedResult, match="store is as it was") as raised:
        check_files(
            {Path("a"): reported},
            {Path("a"): counted},
            what="entries",
            advice="The store is as it was",
        )
    assert raised.value.facts() == {"path": "a", "reported": reported, "counted": counted}


@pytest.mark.parametrize("name", ["times", "segments", "codecs"])
@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
def test_a_rebuild_of_kafka_that_writes_less_than_it_says(
    name: str, suffix: str, tmp_path: Path
) -> None:
    """The write of one index file omits its last entry; the replaced file is kept."""
    from storage.kafka.tools import rebuild

    root = stores.copy_store(data_of(name), tmp_path / "store")
    path = next(p for p in sorted(root.rglob("*" + suffix)) if p.stat().st_size)
    whole = path.read_bytes()
    path.write_bytes(whole[:-1] + b"\xee")
    write = atomic_write

    def short(fs: RealFileSystem, target: Path, data: bytes) -> None:
        write(fs, target, data[:-8] if target == path else data)

    inspector = open_inspector(root, StoreOptions())
    with (
        patch.object(rebuild, "atomic_write", short),
        pytest.raises(MiscountedResult) as raised,
    ):
        inspector.rebuild("indexes", write=True)
    inspector.close()
    facts = raised.value.facts()
    assert facts["path"] == str(path)
    assert facts["reported"] != facts["counted"]
    (kept,) = tmp_path.glob("store.cut-*")
    assert str(kept) in raised.value.message
    assert (kept / path.parent.name / path.name).read_bytes() == whole[:-1] + b"\xee"


def fewer_entries(built: Built) -> Built:
    """Return the counts with one entry less in the first folder that has entries."""
    folder = next(folder for folder, entries in built.entries.items() if entries)
    return built._replace(entries={**built.entries, folder: built.entries[folder] - 1})


def fewer_files(built: Built) -> Built:
    """Return the counts with one file less."""
    return built._replace(files=built.files - 1)


@pytest.mark.parametrize("wrong", [fewer_entries, fewer_files])
@pytest.mark.parametrize("run", [None, run_serially], ids=["alone", "in parts"])
@pytest.mark.parametrize(
    ("what", "counter"), [("consumequeue", "count_queues"), ("indexfile", "count_index")]
)
@pytest.mark.parametrize("name", ["small", "many", "deleted-head"])
def test_a_rebuild_of_rocketmq_that_writes_less_than_it_says(
    name: str,
    what: str,
    counter: str,
    run: TaskRunner | None,
    wrong: Callable[[Built], Built],
    tmp_path: Path,
) -> None:
    """The difference is found before any file is put in place: the store stays as it was."""
    from storage.rocketmq.tools.rebuild import rebuild

    golden = rocketmq_stores.golden(name)
    root = rocketmq_stores.copy_store(golden, tmp_path / "store")
    files = (root / ("index" if what == "indexfile" else what)).rglob("*")
    damaged = next(p for p in sorted(files) if p.is_file())
    damaged.write_bytes(b"\xee" + damaged.read_bytes()[1:])
    before = derived(root)
    inspector = open_inspector(root, StoreOptions(settings=golden.settings))
    count = getattr(rebuild, counter)
    with (
        patch.object(rebuild, counter, lambda *args: wrong(count(*args))),
        pytest.raises(MiscountedResult, match="store is unchanged"),
    ):
        rebuild_of(inspector, what, run)
    inspector.close()
    assert derived(root) == before
    assert [path.name for path in tmp_path.iterdir()] == ["store"]


def rebuild_of(inspector: SupportsInspect, what: str, run: TaskRunner | None) -> None:
    if run is None:
        inspector.rebuild(what, write=True)
    else:
        assert isinstance(inspector, SupportsParts)
        inspector.rebuild_in_parts(what, run, write=True)


def data_of(name: str) -> Path:
    """Return the directory of a store that the real Kafka wrote."""
    return next(p.root for p in stores.partitions() if p.store == name)
