"""Stores of a broker that keeps queues or configs in RocksDB: they are never written, and are read from their log."""

from __future__ import annotations

import pytest

from storage.contract import SupportsParts, run_serially
from storage.errors import NotOffered, UnsupportedFormat
from storage.model import RebuildReport, TopicPartition
from storage.rocketmq.format.names import file_name
from tests.unit.rocketmq.recovery.foreign_log import (
    Message,
    found_by_verify,
    inspector,
    write_log,
    write_topics,
)
from tests.unit.rocketmq.workshop import ROOT, Workshop, put_file, put_value, values

VALUES = [b"v%02d" % n for n in range(6)]
TOLD = [("rocksdb-store", "info", None)]
QUEUES = ("consumequeue", "config/topics", "config/consumerOffsets", "config/subscriptionGroups")
SEPARATE = ("consumequeue_rocksdb",)
CONFIGS = ("config/topics",)
CURRENT = TopicPartition("CURRENT", 0)


def make_databases(shop: Workshop, folders: tuple[str, ...]) -> None:
    """Create folders with files named as RocksDB names them; the content of these files is never read."""
    for folder in folders:
        shop.fs.make_dir(ROOT / folder)
        for name in "CURRENT", "IDENTITY", "LOCK", "MANIFEST-000005", "000004.log", "000010.sst":
            put_file(shop.fs, ROOT / folder / name, b"MANIFEST-000005\n")


@pytest.fixture(params=[QUEUES, SEPARATE], ids=["queues", "separate"])
def theirs(request: pytest.FixtureRequest, shop: Workshop) -> Workshop:
    """A store without queue files: six records of t, and databases."""
    write_log(shop, [Message("t", n, value) for n, value in enumerate(VALUES)])
    make_databases(shop, request.param)
    return shop


def rebuild(shop: Workshop, *, shared: bool) -> RebuildReport:
    with inspector(shop) as tools:
        if shared:
            assert isinstance(tools, SupportsParts)
            return tools.rebuild_in_parts("consumequeue", run_serially, write=True)
        return tools.rebuild("consumequeue", write=True)


@pytest.mark.parametrize("accept_loss", [False, True])
def test_a_start_for_writing_is_refused_and_changes_nothing(
    theirs: Workshop, accept_loss: bool
) -> None:
    before = theirs.files()
    with pytest.raises(
        UnsupportedFormat, match=r"consumequeue.* is a RocksDB database .*read-only"
    ):
        theirs.open(accept_loss=accept_loss)
    assert theirs.files() == before


def test_a_reader_gets_what_the_log_has(theirs: Workshop) -> None:
    before = theirs.files()
    with theirs.open(read_only=True) as store:
        assert values(store) == VALUES
        assert [(f.code, f.severity, f.topic) for f in store.recovery.findings] == TOLD
    assert theirs.files() == before


def test_verify_misses_no_unit_and_knows_the_files(theirs: Workshop) -> None:
    found = [
        reported for reported in found_by_verify(theirs) if reported[0] != "missing-index-entry"
    ]
    assert found == TOLD


def test_files_of_queues_from_before_are_not_looked_at(shop: Workshop) -> None:
    """The broker used queue files until it was switched to RocksDB."""
    with shop.open_with_topic() as store:
        put_value(store, b"a")
    shop.overwrite(ROOT / "consumequeue/t/0" / file_name(0), 0, b"\x01")
    make_databases(shop, QUEUES)
    assert found_by_verify(shop) == TOLD


@pytest.mark.parametrize("shared", [False, True], ids=["alone", "in parts"])
def test_rebuild_makes_no_queues(theirs: Workshop, shared: bool) -> None:
    before = theirs.files()
    with pytest.raises(NotOffered, match="keeps its queues in RocksDB"):
        rebuild(theirs, shared=shared)
    assert theirs.files() == before


def test_salvage_makes_a_store_of_the_log(theirs: Workshop) -> None:
    with inspector(theirs) as tools:
        report = tools.salvage(ROOT.with_name("saved"))
    assert (report.losses, report.kept_records) == ([], len(VALUES))
    assert [f.code for f in report.findings if f.code == "rocksdb-store"] == ["rocksdb-store"]
    assert list(theirs.fs.list_dir(ROOT.with_name("saved") / "consumequeue")) == ["t"]


def test_topics_in_a_database_do_not_count_as_deleted(shop: Workshop) -> None:
    """An old topics.json, from before the broker had a database, lacks all topics created since then."""
    with shop.open() as store:
        store.create_topic("old", 1)
        store.create_topic("t", 1)
        put_value(store, b"a")
        put_value(store, b"b")
    write_topics(shop, {"old": {"readQueueNums": 1, "writeQueueNums": 1}})
    shop.fs.remove_tree(ROOT / "consumequeue/t")
    shop.fs.make_dir(ROOT / "consumequeue/old/0")
    make_databases(shop, QUEUES)
    with shop.open(read_only=True) as store:
        assert values(store) == [b"a", b"b"]


def test_configs_alone_in_a_database(shop: Workshop) -> None:
    """The queues are files, which are checked and rebuilt; but a writer would not know the topics."""
    write_log(shop, [Message("t", n, value) for n, value in enumerate(VALUES)])
    make_databases(shop, CONFIGS)
    with pytest.raises(UnsupportedFormat, match="topics is a RocksDB database"):
        shop.open()
    assert ("missing-unit", "warning", "t") in found_by_verify(shop)
    assert rebuild(shop, shared=False).changed
    assert [
        reported for reported in found_by_verify(shop) if reported[0] != "missing-index-entry"
    ] == TOLD


def test_a_topic_may_bear_the_name_of_the_databases_file(shop: Workshop) -> None:
    with shop.open() as store:
        store.create_topic("CURRENT", 1)
        put_value(store, b"a", CURRENT)
    with shop.open() as store:
        assert values(store, CURRENT) == [b"a"]
