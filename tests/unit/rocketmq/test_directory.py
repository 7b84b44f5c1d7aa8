"""The root of a RocketMQ store: its detection, its small files, and the handling of damaged files."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from storage.errors import Corrupt, IoFailure, StoreLocked, UnsupportedFormat
from storage.files import STORE_FILE, FileSystem, OverlayFileSystem, RealFileSystem, atomic_write
from storage.kafka.state import root as kafka
from storage.model import ProducerSequence, TopicPartition
from storage.rocketmq.format import names
from storage.rocketmq.format.checkpoint import Checkpoint
from storage.rocketmq.state.root import (
    DAMAGED_TOPICS_FILE,
    DeletedTopics,
    StoreDirectory,
    StoreFile,
    detect,
    is_empty,
    refuse_other_format,
    take_lock,
)
from storage.rocketmq.state.settings import Sizes
from storage.rocketmq.state.topics_file import TopicTable
from storage.shared.sequencing import Producers
from tests.robustness.crash.faulty import FaultyFileSystem, Killed, at_change, disk_full, killed
from tests.unit.files.guarded import ReadOnly, Watched
from tests.unit.kafka.workshop import ROOT as KAFKA_ROOT
from tests.unit.kafka.workshop import Workshop

ROOT = Path("/store")
GOLDEN = Path(__file__).parents[2] / "golden"
TOPICS = ROOT / "config" / names.TOPICS
BACKUP = TOPICS.with_name(names.TOPICS + names.BACKUP)
OTHERS = {"consumerOffset.json": b'{"offsetTable":{"t@g":{0:1}}}', "delayOffset.json": b"{x"}


def a_store(**files: bytes) -> OverlayFileSystem:
    """Return a file system in memory with these files in the root."""
    fs = OverlayFileSystem(None)
    fs.make_dir(ROOT)
    for name, data in files.items():
        put(fs, ROOT / name, data)
    return fs


def put(fs: FileSystem, path: Path, data: bytes = b"") -> None:
    fs.make_dir(path.parent)
    atomic_write(fs, path, data)


def table(*topics: str) -> TopicTable:
    made = TopicTable()
    for topic in topics:
        made = made.created(topic, 2, {}, now_ms=1)
    return made


# ---- detection ----


@pytest.mark.parametrize(
    "store", sorted(path.parent.name for path in (GOLDEN / "rocketmq").glob("*/params.json"))
)
def test_golden_stores_are_known(store: str) -> None:
    fs = ReadOnly(RealFileSystem())
    root = GOLDEN / "rocketmq" / store / "store"
    assert detect(fs, root) is False
    assert kafka.detect(fs, root) is None
    refuse_other_format(fs, root)


def test_kafka_directories_are_not() -> None:
    fs = ReadOnly(RealFileSystem())
    for root in (GOLDEN / "kafka").glob("*/data"):
        assert detect(fs, root) is None
        with pytest.raises(UnsupportedFormat):
            refuse_other_format(fs, root)
    shop = Workshop()
    shop.open().close()
    assert detect(shop.fs, KAFKA_ROOT) is None


def test_our_stores_are_told_apart_by_their_store_file() -> None:
    ours = a_store()
    StoreDirectory(ours, ROOT).write_store_file(StoreFile(created=True))
    assert detect(ours, ROOT) is True
    assert kafka.detect(ours, ROOT) is None
    theirs = a_store()
    kafka.LogDirectory(theirs, ROOT).write_store_file(kafka.StoreFile())
    assert detect(theirs, ROOT) is None
    assert kafka.detect(theirs, ROOT) is True


@pytest.mark.parametrize(
    ("files", "found"),
    [
        (["commitlog/00000000000000000000"], False),
        (["commitlog/readme"], None),
        (["commitlog/00000000000000000000/readme"], None),
        (["commitlog/readme", "checkpoint"], False),
        (["consumequeue/t/0/00000000000000000000"], None),
        (["consumequeue/t/0/00000000000000000000", "checkpoint"], False),
        (["checkpoint"], None),
        (["checkpoint/00000000000000000000", "commitlog/readme"], None),
        (["config/topics.json", "checkpoint"], False),
        (["config/topics.json"], None),
        (["commitlog"], None),
        (["lock"], None),
        (["lock", STORE_FILE + ".tmp"], True),
        ([".lock", STORE_FILE + ".tmp"], None),
        (["letter.txt"], None),
        ([], None),
    ],
)
@pytest.mark.parametrize("damaged", [False, True])
def test_what_makes_a_store(files: list[str], found: bool | None, damaged: bool) -> None:
    """A damaged store file still marks the store as written by this program, if the other files show its format."""
    fs = a_store(**({STORE_FILE: b"{"} if damaged else {}), **dict.fromkeys(files, b""))
    assert detect(fs, ROOT) is (True if damaged and found is False else found)


@pytest.mark.parametrize(
    ("left", "empty"),
    [
        ([], True),
        (["lock"], True),
        (["lock", STORE_FILE + ".tmp", "lost+found/x"], True),
        ([STORE_FILE], False),
        (["letter.txt"], False),
        ([".lock"], False),
    ],
)
def test_what_an_interrupted_start_leaves_is_nothing(left: list[str], empty: bool) -> None:
    fs = a_store(**dict.fromkeys(left, b""))
    assert is_empty(fs, ROOT) is empty
    assert is_empty(fs, ROOT / "missing")


# ---- lock, abort, checkpoint ----


def test_the_lock_file_is_the_real_ones(tmp_path: Path) -> None:
    fs = RealFileSystem()
    lock = take_lock(fs, tmp_path)
    with pytest.raises(StoreLocked) as refused:
        take_lock(fs, tmp_path)
    assert refused.value.facts()["pid"] == os.getpid()
    lock.release()
    file = tmp_path / "lock"
    assert file.read_bytes() == b"lock"
    os.utime(file, ns=(1, 1))
    take_lock(fs, tmp_path).release()
    assert file.stat().st_mtime_ns == 1
    file.write_bytes(b"")
    take_lock(fs, tmp_path).release()
    assert file.read_bytes() == b"lock"


def test_abort() -> None:
    fs = Watched(a_store(abort=b"", **{"abort.bak": b"17"}))
    directory = StoreDirectory(fs, ROOT)
    assert directory.is_unclean()
    directory.write_abort()
    assert fs.read_bytes(ROOT / "abort") == b"%d logserver" % os.getpid()
    assert directory.is_left_by_us()
    assert fs.log[-1] == ("sync_dir", "store")
    assert fs.unsynced() == set()
    directory.remove_abort()
    assert fs.log[-2:] == [("remove", "abort"), ("sync_dir", "store")]
    assert not directory.is_unclean()
    directory.remove_abort()
    assert fs.read_bytes(ROOT / "abort.bak") == b"17"


def test_checkpoint() -> None:
    fs = Watched(a_store())
    directory = StoreDirectory(fs, ROOT)
    assert directory.checkpoint() == Checkpoint()
    content = Checkpoint(1, 2, 3, 4, 5, 6)
    directory.write_checkpoint(content)
    assert fs.size(ROOT / "checkpoint") == 4096
    again = StoreDirectory(fs, ROOT)
    assert again.checkpoint() == content
    fs.log.clear()
    again.write_checkpoint(content)
    directory.write_checkpoint(content)
    assert fs.log == []
    assert (directory.findings, again.findings) == ([], [])


def test_an_older_checkpoint_is_read() -> None:
    old = b"".join(n.to_bytes(8, "big") for n in (7, 8, 9))
    directory = StoreDirectory(a_store(checkpoint=old), ROOT)
    assert directory.checkpoint() == Checkpoint(7, 8, 9)
    assert directory.findings == []


def test_a_short_checkpoint_counts_as_zeros() -> None:
    fs = a_store(checkpoint=bytes(23))
    directory = StoreDirectory(fs, ROOT)
    assert directory.checkpoint() == Checkpoint()
    assert [(f.code, f.path) for f in directory.findings] == [
        ("bad-root-file", str(ROOT / "checkpoint"))
    ]
    directory.write_checkpoint(Checkpoint())
    assert fs.read_bytes(ROOT / "checkpoint") == bytes(4096)


# ---- this program's own files ----


def test_the_store_file() -> None:
    fs = a_store()
    directory = StoreDirectory(fs, ROOT)
    assert directory.store_file() is None
    sizes = Sizes(commit_log_bytes=1, consume_queue_bytes=2, index_slots=3, index_entries=4)
    content = StoreFile(created=True, sizes=sizes)
    directory.write_store_file(content)
    directory.write_next_producer_id(content, 17)
    stored = StoreDirectory(fs, ROOT).store_file()
    assert stored == StoreFile(created=True, sizes=sizes, next_producer_id=17)


def test_a_store_file_of_another_version_is_refused() -> None:
    content = b'{"backend":"rocketmq","version":2}'
    with pytest.raises(UnsupportedFormat, match="known here is version 1"):
        StoreDirectory(a_store(**{STORE_FILE: content}), ROOT).store_file()


def test_a_store_file_of_another_backend_counts_as_none() -> None:
    directory = StoreDirectory(a_store(**{STORE_FILE: b'{"backend":"kafka"}'}), ROOT)
    assert directory.store_file() is None
    assert [found.code for found in directory.findings] == ["bad-root-file"]


@pytest.mark.parametrize("name", [STORE_FILE, names.DELETED_FILE, names.PRODUCERS_FILE])
@pytest.mark.parametrize("garbage", [b"", b"{", b"[1]", b'{"topics":{"t":"x"}}x', b"\xff"])
def test_garbage_in_our_files_counts_as_none(name: str, garbage: bytes) -> None:
    directory = StoreDirectory(a_store(**{name: garbage}), ROOT)
    assert (directory.store_file(), directory.producers()) == (None, None)
    assert directory.deleted_topics() == DeletedTopics()
    assert {f.code for f in directory.findings} == {"bad-root-file"}
    assert {f.path for f in directory.findings} == {str(ROOT / name)}


def test_producers_both_ways() -> None:
    fs = a_store()
    producers = Producers()
    producers.add(ProducerSequence(7, 1, 2**31 - 1), 2, base_offset=5, timestamp_ms=9)
    queue, silent = TopicPartition("%RETRY%g", 3), TopicPartition("t", 0)
    states = {queue: producers.states(), silent: Producers().states()}
    StoreDirectory(fs, ROOT).write_producers(1234, states)
    found = StoreDirectory(fs, ROOT).producers()
    assert found is not None
    assert (found.physical_offset, list(found.by_queue())) == (1234, [queue])
    again = Producers(found.by_queue()[queue])
    batch = again.find_duplicate(ProducerSequence(7, 1, 2**31 - 1), 2)
    assert batch == (2**31 - 1, 0, 5, 6)


# ---- topics.json ----


def test_no_topics_file() -> None:
    directory = StoreDirectory(ReadOnly(a_store()), ROOT)
    assert directory.topics(read_only=False).topics == ()
    assert directory.findings == []


def test_the_former_content_becomes_the_backup() -> None:
    fs = a_store(**{f"config/{name}": data for name, data in OTHERS.items()})
    directory = StoreDirectory(fs, ROOT)
    directory.topics(read_only=False)
    directory.write_topics(table("a"))
    assert fs.read_bytes(TOPICS) == table("a").encode()
    assert not fs.exists(BACKUP)
    directory = StoreDirectory(fs, ROOT)
    assert directory.topics(read_only=False).topics == ("a",)
    for topics in (("a", "b"), ("a", "b", "c")):
        before = fs.read_bytes(TOPICS)
        directory.write_topics(table(*topics))
        assert fs.read_bytes(TOPICS) == table(*topics).encode()
        assert fs.read_bytes(BACKUP) == before
    for name, data in OTHERS.items():
        assert fs.read_bytes(ROOT / "config" / name) == data
    assert sorted(fs.list_dir(ROOT / "config")) == sorted([*OTHERS, TOPICS.name, BACKUP.name])
    assert directory.findings == []


def test_nothing_is_written_that_stands_there() -> None:
    fs = Watched(a_store(**{"config/topics.json": table("a").encode()}))
    directory = StoreDirectory(fs, ROOT)
    found = directory.topics(read_only=False)
    fs.log.clear()
    directory.write_topics(found)
    assert fs.log == []


@pytest.mark.parametrize("damage", [None, b"", b"{", table("new").encode()[:-40]])
def test_a_damaged_file_is_read_from_its_backup(damage: bytes | None) -> None:
    good = table("a").encode()
    fs = a_store(**{"config/topics.json.bak": good})
    if damage is not None:
        put(fs, TOPICS, damage)
    directory = StoreDirectory(fs, ROOT)
    assert directory.topics(read_only=False).topics == ("a",)
    assert [(f.code, f.path) for f in directory.findings] == [("bad-topics-file", str(TOPICS))]
    directory.write_topics(table("a", "b"))
    assert fs.read_bytes(BACKUP) == good
    assert fs.read_bytes(TOPICS) == table("a", "b").encode()
    assert fs.exists(ROOT / DAMAGED_TOPICS_FILE) is (damage is not None)
    if damage is not None:
        assert fs.read_bytes(ROOT / DAMAGED_TOPICS_FILE) == damage


@pytest.mark.parametrize("backup", [None, b"", b"[]"])
def test_a_start_without_either_is_refused(backup: bytes | None) -> None:
    fs = a_store(**{"config/topics.json": b"{"})
    if backup is not None:
        put(fs, BACKUP, backup)
    with pytest.raises(
        Corrupt, match=r"topics\.json: .*; --read-only serves the topics"
    ) as refused:
        StoreDirectory(ReadOnly(fs), ROOT).topics(read_only=False)
    assert refused.value.facts()["path"] == str(TOPICS)
    directory = StoreDirectory(ReadOnly(fs), ROOT)
    assert directory.topics(read_only=True).topics == ()
    assert [f.code for f in directory.findings] == ["bad-topics-file"]


def test_an_empty_file_alone_says_nothing() -> None:
    """A crash during a first write may leave such a file; the broker goes on without topics, too."""
    fs = a_store(**{"config/topics.json": b""})
    assert StoreDirectory(fs, ROOT).topics(read_only=False).topics == ()


def test_an_entry_that_is_no_topic_is_told() -> None:
    fs = a_store(**{"config/topics.json": b'{"topicConfigTable":{"bad":1,"good":{}}}'})
    directory = StoreDirectory(fs, ROOT)
    assert directory.topics(read_only=False).topics == ("good",)
    assert "the broker cannot read it" in directory.findings[0].message
    assert "'bad'" in directory.findings[1].message


def test_at_every_moment_one_of_both_can_be_read() -> None:
    """After a kill at any change of the disk, the topics are either the old or the new ones."""
    seen = set()
    for count in range(1, 30):
        disk = a_store(**{"config/topics.json": table("a").encode()})
        fs = FaultyFileSystem(disk)
        directory = StoreDirectory(fs, ROOT)
        directory.topics(read_only=False)
        fs.fault = at_change(fs, count, killed)
        try:
            directory.write_topics(table("b"))
        except Killed:
            after = StoreDirectory(disk, ROOT)
            seen.add(after.topics(read_only=False).topics)
            assert after.findings == []
        else:
            assert count > 8
            break
    assert seen == {("a",), ("b",)}


def test_a_full_disk_leaves_the_file_as_it_was() -> None:
    old = table("a").encode()
    fs = FaultyFileSystem(a_store(**{"config/topics.json": old}))
    directory = StoreDirectory(fs, ROOT)
    directory.topics(read_only=False)
    for count in range(1, 12):
        fs.fault = at_change(fs, count, disk_full)
        try:
            directory.write_topics(table("b"))
        except IoFailure:
            assert fs.read_bytes(TOPICS) == old
        else:
            break
    assert fs.read_bytes(TOPICS) == table("b").encode()
    assert fs.read_bytes(BACKUP) == old
    assert not fs.exists(ROOT / DAMAGED_TOPICS_FILE)


def test_queue_folders() -> None:
    files = ("t/0/x", "t/10/x", "t/2/x", "t/02/x", "t/x/y", "%DLQ%g/7/x", "none/x", "loose", "t/3")
    fs = a_store(**{f"consumequeue/{name}": b"" for name in files})
    assert StoreDirectory(fs, ROOT).queue_folders() == {"t": [0, 2, 10], "%DLQ%g": [7]}
    assert StoreDirectory(a_store(), ROOT).queue_folders() == {}
