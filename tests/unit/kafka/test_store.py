"""The whole store: its lock, root files, adoption, few open files, stops and starts."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from storage import LogStore, Record, StoreOptions, TopicPartition, detect, open_store
from storage.errors import (
    Corrupt,
    InvalidConfig,
    IoFailure,
    StoreLocked,
    TopicExists,
    UnsupportedFormat,
)
from storage.files import OverlayFileSystem, RealFileSystem
from storage.kafka.format.checkpoints import decode_offsets, encode_offsets
from tests.golden import stores
from tests.golden.trees import picture
from tests.unit.files.guarded import Watched
from tests.unit.kafka.workshop import ROOT, T0, Workshop, put_sequenced, put_value, values

RECOVERY_POINTS = "recovery-point-offset-checkpoint"
HIGH_WATERMARKS = "replication-offset-checkpoint"
LOG_STARTS = "log-start-offset-checkpoint"
CHECKPOINTS = (RECOVERY_POINTS, HIGH_WATERMARKS, LOG_STARTS)


# ---- the directory ---------------------------------------------------------------------------------------------------


def test_a_new_directory(shop: Workshop) -> None:
    shop.open({"cluster.id": "my-cluster", "node.id": "5"}).close()
    assert set(shop.fs.list_dir(ROOT)) == {
        ".kafka_cleanshutdown",
        ".lock",
        ".logserver.store.json",
        "meta.properties",
        *CHECKPOINTS,
    }
    lines = shop.fs.read_bytes(ROOT / "meta.properties").decode().splitlines()
    found = dict(line.split("=", 1) for line in lines if not line.startswith("#"))
    assert found.pop("directory.id")
    assert found == {"version": "1", "node.id": "5", "cluster.id": "my-cluster"}
    marker = json.loads(shop.fs.read_bytes(ROOT / ".kafka_cleanshutdown"))
    assert marker == {"version": 0, "brokerEpoch": -1}


def test_a_new_topic(shop: Workshop) -> None:
    store = shop.open()
    info = store.create_topic("t", 2, {"segment.ms": "5"})
    for number in (0, 1):
        address = TopicPartition("t", number)
        assert shop.names(address) == [
            "00000000000000000000.index",
            "00000000000000000000.log",
            "00000000000000000000.timeindex",
            "leader-epoch-checkpoint",
            "partition.metadata",
        ]
        metadata = shop.fs.read_bytes(ROOT / str(address) / "partition.metadata").decode()
        assert metadata == f"version: 0\ntopic_id: {info.topic_id}"
        assert shop.epochs(address) == [(0, 0)]
    assert json.loads(shop.fs.read_bytes(ROOT / ".logserver.topics.json")) == {
        "t": {"segment.ms": "5"}
    }


def test_adoption_leaves_the_identity_alone(tmp_path: Path) -> None:
    root = stores.copy_store(stores.KAFKA / "parts" / "data", tmp_path / "store")
    identity = b"#made by another\nversion=1\ncluster.id=theirs\nnode.id=7\n"
    (root / "meta.properties").write_bytes(identity)
    before = picture(root)
    assert detect(root) == ("kafka", False)
    with open_store("kafka", root) as store:
        assert store.recovery.clean_shutdown
    assert detect(root) == ("kafka", True)
    after = picture(root)
    changed = {name for name in after if after[name] != before.get(name)} - {"."}
    assert changed <= {".kafka_cleanshutdown", ".lock", ".logserver.store.json", *CHECKPOINTS}
    assert set(before) <= set(after)
    assert (root / "meta.properties").read_bytes() == identity


def test_an_adopted_directory_without_an_identity_gets_none(tmp_path: Path) -> None:
    root = stores.copy_store(stores.KAFKA / "parts" / "data", tmp_path / "store")
    with open_store("kafka", root):
        pass
    assert not (root / "meta.properties").exists()


def test_a_directory_of_something_else_is_refused_and_left_alone(tmp_path: Path) -> None:
    (tmp_path / "letter.txt").write_text("dear reader")
    before = picture(tmp_path)
    for read_only in (True, False):
        with pytest.raises(UnsupportedFormat):
            open_store("kafka", tmp_path, read_only=read_only)
    assert picture(tmp_path) == before


def test_what_cannot_be_opened(tmp_path: Path) -> None:
    with pytest.raises(IoFailure):
        open_store("kafka", tmp_path / "missing", read_only=True)
    (tmp_path / "file").touch()
    for read_only in (True, False):
        with pytest.raises((IoFailure, UnsupportedFormat)):
            open_store("kafka", tmp_path / "file", read_only=read_only)


@pytest.mark.parametrize(
    "left", [[], [".lock"], ["lost+found/"], [".lock", ".logserver.store.json.tmp"]]
)
def test_what_a_first_start_left_is_as_good_as_empty(tmp_path: Path, left: list[str]) -> None:
    for name in left:
        (tmp_path / name).mkdir() if name.endswith("/") else (tmp_path / name).touch()
    assert detect(tmp_path) in (None, ("kafka", True))
    with open_store("kafka", tmp_path) as store:
        store.create_topic("t", 1)
    assert (tmp_path / "meta.properties").exists()


# ---- the lock --------------------------------------------------------------------------------------------------------


def test_a_store_has_one_owner_in_a_process(tmp_path: Path) -> None:
    with open_store("kafka", tmp_path / "s"):
        with pytest.raises(StoreLocked) as refusal:
            open_store("kafka", tmp_path / "s")
        assert refusal.value.facts()["pid"] == os.getpid()
        open_store("kafka", tmp_path / "s", read_only=True).close()
        with pytest.raises(StoreLocked):
            open_store("kafka", tmp_path / "s")
    open_store("kafka", tmp_path / "s").close()


OWNER = """
import sys, storage
with storage.open_store("kafka", sys.argv[1]) as store:
    print("mine", flush=True)
    sys.stdin.read()
"""


def test_a_store_has_one_owner_among_processes(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-P", "-c", OWNER, str(tmp_path / "s")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as owner:
        assert owner.stdout is not None
        assert owner.stdout.readline() == "mine\n"
        before = picture(tmp_path)
        with pytest.raises(StoreLocked) as refusal:
            open_store("kafka", tmp_path / "s")
        assert refusal.value.facts()["pid"] == owner.pid
        assert str(owner.pid) in refusal.value.message
        assert picture(tmp_path) == before
        owner.communicate("")
    assert owner.returncode == 0
    open_store("kafka", tmp_path / "s").close()


def test_a_start_that_fails_lets_go_of_the_lock(shop: Workshop) -> None:
    shop.open_with_topic().close()
    good = shop.fs.read_bytes(ROOT / "meta.properties")
    shop.put(ROOT / "meta.properties", b"version=9\n")
    with pytest.raises(UnsupportedFormat):
        shop.open()
    shop.put(ROOT / "meta.properties", b"xx\n")
    with pytest.raises(Corrupt, match="move it away"):
        shop.open()
    shop.put(ROOT / "meta.properties", good)
    shop.open().close()


# ---- stops and starts ------------------------------------------------------------------------------------------------


def filled(shop: Workshop, settings: dict[str, str]) -> LogStore:
    store = shop.open_with_topic(settings, partitions=3)
    for number in (0, 2):
        for n in range(10):
            put_value(store, b"value %d" % n, TopicPartition("t", number))
    put_sequenced(store, 7, 0)
    store.flush()
    return store


def test_a_clean_stop_and_start_change_no_data_file(tmp_path: Path) -> None:
    root = tmp_path / "s"
    options = StoreOptions(settings={"internal.segment.bytes": "300"})
    with open_store("kafka", root, options) as store:
        store.create_topic("t", 2)
        for n in range(9):
            store.append(T0, [Record(None, b"value %d" % n)])
    before = picture(root)
    for _ in range(2):
        with open_store("kafka", root, options) as store:
            assert store.recovery.clean_shutdown
            assert len(list(store.scan(T0))) == 9
            store.offset_for_time(T0, 0)
            store.checkpoint()
    after = picture(root)
    assert {name for name in after if after[name] != before.get(name)} <= {
        ".",
        ".kafka_cleanshutdown",
    }
    assert set(after) == set(before)


def test_a_start_after_a_clean_stop_reads_the_tail_of_the_last_segment_only(shop: Workshop) -> None:
    settings = {"index.interval.bytes": "200"}
    with shop.open_with_topic(settings) as store:
        for n in range(200):
            put_value(store, b"value %d" % n)
    with shop.open(settings) as store:
        assert store.recovery.segments_scanned == 1
        assert store.recovery.bytes_scanned < 600
    shop.fs.remove(ROOT / ".kafka_cleanshutdown")
    shop.fs.remove(ROOT / RECOVERY_POINTS)
    with shop.open(settings) as store:
        assert store.recovery.bytes_scanned == len(shop.bytes_of(0))


def test_the_marker_is_gone_while_the_store_is_open(shop: Workshop) -> None:
    store = shop.open_with_topic()
    assert not shop.fs.exists(ROOT / ".kafka_cleanshutdown")
    store.close()
    assert shop.fs.exists(ROOT / ".kafka_cleanshutdown")
    store = shop.open()
    assert not shop.fs.exists(ROOT / ".kafka_cleanshutdown")
    assert not shop.after_kill().open().recovery.clean_shutdown


def test_the_marker_comes_last() -> None:
    watched = Watched(OverlayFileSystem())
    shop = Workshop(watched)
    store = filled(shop, {})
    watched.log.clear()
    store.close()
    done = [step for step in watched.log if step[0] in ("write", "datasync", "rename", "truncate")]
    assert done[-1] == ("rename", ".kafka_cleanshutdown")
    assert watched.log[-1][0] in ("sync_dir", "close")
    assert watched.unsynced() == set()


def test_the_checkpoints_say_what_is_durable(shop: Workshop) -> None:
    store = shop.open_with_topic(partitions=2)
    other = TopicPartition("t", 1)
    put_value(store, b"x")
    store.checkpoint()
    assert shop.offsets(RECOVERY_POINTS) == {T0: 0, other: 0}
    assert shop.offsets(HIGH_WATERMARKS) == {T0: 0, other: 0}
    store.flush([T0])
    put_value(store, b"x", other)
    store.checkpoint()
    assert shop.offsets(RECOVERY_POINTS) == {T0: 1, other: 0}
    assert shop.offsets(HIGH_WATERMARKS) == {T0: 1, other: 0}
    store.close()
    assert shop.offsets(RECOVERY_POINTS) == {T0: 1, other: 1}
    assert shop.offsets(HIGH_WATERMARKS) == {T0: 1, other: 1}
    assert shop.offsets(LOG_STARTS) == {}


def test_a_checkpoint_makes_the_next_recovery_shorter(shop: Workshop) -> None:
    settings = {"internal.segment.bytes": "300"}
    store = shop.open_with_topic(settings)
    for n in range(20):
        put_value(store, b"value %d" % n)
    store.flush()
    everything = shop.after_kill().open(settings).recovery
    store.checkpoint()
    rest = shop.after_kill().open(settings).recovery
    assert (everything.segments_scanned, rest.segments_scanned) == (len(shop.bases()), 1)


@pytest.mark.parametrize("name", CHECKPOINTS)
def test_lines_of_partitions_that_are_elsewhere_are_kept(shop: Workshop, name: str) -> None:
    with shop.open_with_topic() as store:
        put_value(store, b"x")
    elsewhere = {TopicPartition("__cluster_metadata", 0): 99, TopicPartition("moved", 3): 7}
    shop.put(ROOT / name, encode_offsets({**elsewhere, T0: 0}))
    with shop.open() as store:
        store.create_topic("u", 1)
        store.delete_topic("u")
    found = shop.offsets(name)
    assert {address: found[address] for address in elsewhere} == elsewhere
    assert set(found) <= {*elsewhere, T0}


def test_the_lines_of_a_deleted_topic_go(shop: Workshop) -> None:
    store = shop.open_with_topic()
    put_value(store, b"x")
    store.flush()
    store.checkpoint()
    store.delete_topic("t")
    store.close()
    assert shop.offsets(RECOVERY_POINTS) == shop.offsets(HIGH_WATERMARKS) == {}


@pytest.mark.parametrize(
    ("topic", "start"), [("del-mid", 2), ("del-leading", 147), ("del-all", 225)]
)
def test_the_log_start_of_another_server_is_kept(topic: str, start: int) -> None:
    fs = OverlayFileSystem(RealFileSystem())
    root = stores.KAFKA / "deleted" / "data"
    address = TopicPartition(topic, 0)
    end = 0
    for _ in range(3):
        with stores.open_golden(root, {}, fs=fs) as store:
            assert store.bounds(address).start == start
            assert store.bounds(address).end >= end
            end = put_value(store, b"x", address).base_offset
    assert decode_offsets(fs.read_bytes(root / LOG_STARTS))[address] == start


def test_producer_ids_are_never_given_twice(shop: Workshop) -> None:
    seen: list[int] = []
    store = shop.open_with_topic()
    for _ in range(3):
        seen += [store.new_producer_id() for _ in range(3)]
        shop = shop.after_kill()
        store = shop.open()
    assert seen == sorted(set(seen))
    assert seen[0] >= 1 << 50, "a controller gives out ids from 0, and does not know ours"


def test_nor_is_one_that_a_client_has_taken(shop: Workshop) -> None:
    store = shop.open_with_topic()
    taken = (1 << 50) + 5_000
    put_sequenced(store, taken, 0)
    assert store.new_producer_id() > taken
    store.delete_topic("t")
    store.close()
    assert shop.open().new_producer_id() > taken


# ---- few open files --------------------------------------------------------------------------------------------------


def test_forty_partitions_with_eight_open_files() -> None:
    watched = Watched(OverlayFileSystem())
    shop = Workshop(watched)
    store = shop.open({"internal.segment.bytes": "300"}, open_files=8)
    store.create_topic("t", 40)
    addresses = [TopicPartition("t", n) for n in range(40)]
    watched.most_open = watched.open_now
    for n in range(9):
        for address in addresses:
            store.append(address, [Record(None, b"value %d" % n)], publish=False)
        store.flush()
        assert store.stats().open_files <= 8
    assert all(
        values(store, address) == [b"value %d" % n for n in range(9)] for address in addresses
    )
    assert watched.most_open <= 8 + 3
    assert watched.unsynced() <= {n for n in watched.written if n.endswith(("index", ".tmp"))}
    store.close()
    assert watched.open_now == 0
    again = shop.open({"internal.segment.bytes": "300"}, open_files=8)
    assert again.recovery.clean_shutdown
    assert all(len(values(again, address)) == 9 for address in addresses)


# ---- topics ----------------------------------------------------------------------------------------------------------


def test_configs_outlive_the_process_and_count_at_once(shop: Workshop) -> None:
    store = shop.open()
    store.create_topic("t", 1, {"internal.segment.bytes": "150"})
    for n in range(4):
        put_value(store, b"value %d" % n)
    assert shop.bases() == [0, 2]
    store.alter_topic("t", {"internal.segment.bytes": None})
    for n in range(4):
        put_value(store, b"value %d" % n)
    assert shop.bases() == [0, 2]
    store.alter_topic("t", {"max.message.bytes": "90"})
    store.close()
    with shop.open() as again:
        assert again.topics()["t"].configs == {"max.message.bytes": "90"}


def test_a_deleted_topics_configs_do_not_come_back(shop: Workshop) -> None:
    store = shop.open()
    store.create_topic("t", 1, {"retention.ms": "5"})
    store.delete_topic("t")
    store.create_topic("t", 1)
    store.close()
    with shop.open() as again:
        assert again.topics()["t"].configs == {}


def test_what_a_topic_may_not_be(shop: Workshop) -> None:
    store = shop.open_with_topic()
    before = list(shop.fs.list_dir(ROOT))
    for configs in ({"cleanup.policy": "compress"}, {"no.such": "1"}, {"segment.ms": "x"}):
        with pytest.raises(InvalidConfig):
            store.create_topic("u", 1, configs)
    with pytest.raises(TopicExists):
        store.create_topic("t", 5)
    assert list(shop.fs.list_dir(ROOT)) == before
