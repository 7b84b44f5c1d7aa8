"""A cleaning of the real broker, made again from the segments that it left as `.deleted`: the same bytes."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from storage import TopicPartition
from storage.contract import StoreOptions
from storage.files import RealFileSystem
from storage.kafka.format import names
from storage.kafka.format.checkpoints import decode_offsets, encode_offsets
from storage.kafka.format.names import segment_name
from storage.kafka.store import KafkaStore, open_kafka
from tests.golden.stores import GoldenPartition

GOLDEN = GoldenPartition("compacted", "compact-none-0")
# The broker's last cleaning: it read 0 and 748, which it had cleaned before, and the dirty segments from 763 on.
SOURCES = (0, 748, 763, 788, 817, 842, 859, 892, 913)
CLEANED = (0, 763, 859)
ACTIVE = 940
FIRST_DIRTY, END = 763, 958
HORIZON_MS = 1_795_313_765_209  # of the tombstones that this cleaning found
SUFFIXES = (names.LOG, names.INDEX, names.TIME_INDEX)


@pytest.fixture
def before(tmp_path: Path) -> Path:
    """The log directory as it was before the broker's last cleaning."""
    folder = tmp_path / GOLDEN.name
    folder.mkdir()
    for base in SOURCES:
        for suffix in (*SUFFIXES, names.SNAPSHOT):
            source = GOLDEN.data / (segment_name(base, suffix) + names.DELETED)
            if source.exists():
                shutil.copy2(source, folder / segment_name(base, suffix))
    for suffix in (*SUFFIXES, names.SNAPSHOT):
        name = segment_name(ACTIVE, suffix)
        shutil.copy2(GOLDEN.data / name, folder / name)
    for name in (names.LEADER_EPOCHS, names.PARTITION_METADATA):
        shutil.copy2(GOLDEN.data / name, folder / name)
    shutil.copy2(GOLDEN.root / names.CLEAN_SHUTDOWN, tmp_path / names.CLEAN_SHUTDOWN)
    offsets = {names.CLEANER_OFFSETS: FIRST_DIRTY, names.RECOVERY_POINTS: END}
    for name, offset in offsets.items():
        (tmp_path / name).write_bytes(encode_offsets({GOLDEN.address: offset}))
    return tmp_path


def opened(path: Path, now_ms: int) -> KafkaStore:
    store = open_kafka(
        path, StoreOptions(), fs=RealFileSystem(), clock=lambda: now_ms, read_only=False
    )
    store.alter_topic(GOLDEN.address.topic, GOLDEN.configs)
    return store


def test_a_cleaning_leaves_the_bytes_that_the_brokers_left(before: Path) -> None:
    now_ms = HORIZON_MS - int(GOLDEN.configs["delete.retention.ms"])
    modified_ns = (before / GOLDEN.name / segment_name(913)).stat().st_mtime_ns
    with opened(before, now_ms) as store:
        report = store.compact(now_ms)
        assert (report.partition, report.cleaned_up_to) == (GOLDEN.address, ACTIVE)
        assert store.compact(now_ms).partition is None
        folder = before / GOLDEN.name
        logs = sorted(folder.glob("*.log"))
        assert [int(log.stem) for log in logs] == [*CLEANED, ACTIVE]
        for base in CLEANED:
            for suffix in SUFFIXES:
                name = segment_name(base, suffix)
                assert (folder / name).read_bytes() == (GOLDEN.data / name).read_bytes(), name
        assert (folder / segment_name(859)).stat().st_mtime_ns // 10**6 == modified_ns // 10**6
        left = {path.name: path.read_bytes() for path in folder.glob("*.deleted")}
        assert left == {
            path.name: path.read_bytes()
            for path in GOLDEN.data.glob("*.deleted")
            if int(path.name.partition(".")[0]) in SOURCES
        }
    wanted = decode_offsets((GOLDEN.root / names.CLEANER_OFFSETS).read_bytes())
    reported = decode_offsets((before / names.CLEANER_OFFSETS).read_bytes())
    assert reported == {GOLDEN.address: wanted[GOLDEN.address]}


@pytest.mark.parametrize("step_bytes", [1, 4000])
def test_a_cleaning_in_steps_leaves_the_same(before: Path, step_bytes: int) -> None:
    now_ms = HORIZON_MS - int(GOLDEN.configs["delete.retention.ms"])
    with opened(before, now_ms) as store:
        steps = 0
        while not store.compact(now_ms, max_bytes=step_bytes).finished:
            steps += 1
        assert steps >= len(CLEANED)
        for base in CLEANED:
            name = segment_name(base)
            assert (before / GOLDEN.name / name).read_bytes() == (GOLDEN.data / name).read_bytes()


@pytest.mark.parametrize(
    "name", ["compact-none-0", "compact-lz4-0", "compact-idem-0", "compact-txn-0"]
)
def test_of_what_the_broker_cleaned_nothing_is_dirty(tmp_path: Path, name: str) -> None:
    golden = GoldenPartition("compacted", name)
    root = tmp_path / "store"
    shutil.copytree(golden.root, root)
    now_ms = HORIZON_MS
    with open_kafka(
        root, StoreOptions(), fs=RealFileSystem(), clock=lambda: now_ms, read_only=False
    ) as store:
        store.alter_topic(golden.address.topic, golden.configs)
        before = {p.name: p.read_bytes() for p in (root / name).glob("*.log")}
        assert store.compact(now_ms).partition is None
        assert store.partition(TopicPartition(*golden.address)).settings.compacts
        assert {p.name: p.read_bytes() for p in (root / name).glob("*.log")} == before
