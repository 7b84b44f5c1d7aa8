"""Garbage in the files beside the logs: every record is still read and appended to, or the start is refused."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage import LogStore
from storage.errors import Corrupt, UnsupportedFormat
from storage.files import STORE_FILE, OverlayFileSystem
from storage.kafka.directory import TOPICS_FILE
from storage.kafka.format import names
from tests.unit.kafka.workshop import ROOT, T0, Workshop, put_sequenced, put_value, values

SETTINGS = {"internal.segment.bytes": "400", "index.interval.bytes": "80"}
WRITTEN = [b"value %d" % n for n in range(12)]
SUFFIXES = (names.INDEX, names.TIME_INDEX, names.SNAPSHOT)
OF_THE_PARTITION = (names.LEADER_EPOCHS, names.PARTITION_METADATA)
OF_THE_ROOT = (
    names.RECOVERY_POINTS,
    names.HIGH_WATERMARKS,
    names.LOG_STARTS,
    names.CLEAN_SHUTDOWN,
    STORE_FILE,
    TOPICS_FILE,
)
garbage = st.one_of(
    st.binary(max_size=200),
    st.lists(st.integers(0, 300), max_size=40).map(lambda n: struct.pack(f">{len(n)}i", *n)),
    st.integers(0, 400).map(bytes),
    st.integers(2, 40).map(lambda n: b"0\n1\nt 0 " + b"9" * n + b"\n"),
)


def a_store(*, clean: bool) -> Workshop:
    """Twelve records over several segments, with a config and a producer, stopped or killed."""
    shop = Workshop()
    store = shop.open(SETTINGS)
    store.create_topic("t", 1, {"retention.ms": "-1"})
    for value in WRITTEN:
        shop.clock.now_ms += 10
        put_value(store, value)
    put_sequenced(store, 7, 0)
    store.flush()
    if clean:
        store.close()
    return shop.after_kill()


STORES = {"stopped": a_store(clean=True), "killed": a_store(clean=False)}
ALL = [*WRITTEN, b"7/0"]
SEGMENT_FILES = [
    f"t-0/{name}" for name in STORES["stopped"].names() if Path(name).suffix in SUFFIXES
]
SMALL_FILES = [*SEGMENT_FILES, *(f"t-0/{name}" for name in OF_THE_PARTITION), *OF_THE_ROOT]


@pytest.mark.parametrize("state", STORES)
@given(name=st.sampled_from(SMALL_FILES), data=garbage)
def test_no_record_depends_on_them(state: str, name: str, data: bytes) -> None:
    shop = STORES[state].after_kill()
    shop.put(ROOT / name, data)
    expected = set(ALL) - _below_start(name, data)
    with shop.open(SETTINGS, read_only=True) as store:
        assert set(values(store)) == expected
    with shop.open(SETTINGS) as store:
        assert set(values(store)) == expected
        _use(store)
        put_value(store, b"one more")
    with shop.open(SETTINGS) as store:
        assert set(values(store)) == {*expected, b"one more"}
        _use(store)
    assert shop.cut_dirs() == []


def _below_start(name: str, data: bytes) -> set[bytes]:
    """What a log start that can be read leaves out: all of it, should it lie beyond the end."""
    return set(ALL) if name == names.LOG_STARTS and b" 99" in data and len(data) < 28 else set()


def _use(store: LogStore) -> None:
    """Ask what the indexes answer, true or not."""
    for time_ms in (0, 1_700_000_000_050, 1 << 62):
        store.offset_for_time(T0, time_ms)
    store.find("t", key=b"none")
    store.new_producer_id()


def test_each_of_them_is_there() -> None:
    missing = [name for name in SMALL_FILES if not STORES["stopped"].fs.exists(ROOT / name)]
    assert missing == []
    assert len(SEGMENT_FILES) >= 8


@pytest.mark.parametrize("content", [b"", b"\xff\xfe", b"version=2\n", b"version=1\nnode.id=x\n"])
def test_a_directory_without_an_identity_is_refused(content: bytes) -> None:
    shop = STORES["stopped"].after_kill()
    shop.put(ROOT / names.META_PROPERTIES, content)
    for read_only in (True, False):
        with pytest.raises((Corrupt, UnsupportedFormat)) as refusal:
            shop.open(SETTINGS, read_only=read_only)
        assert str(ROOT / names.META_PROPERTIES) in refusal.value.message
    fs = shop.fs
    assert isinstance(fs, OverlayFileSystem)
    assert {path.name for path in fs.changed()} == {names.META_PROPERTIES}


@pytest.mark.parametrize("name", [names.PARTITION_METADATA, names.RECOVERY_POINTS, TOPICS_FILE])
def test_a_bad_file_is_reported(name: str) -> None:
    shop = STORES["stopped"].after_kill()
    path = ROOT / "t-0" / name if name == names.PARTITION_METADATA else ROOT / name
    shop.put(path, b"{ nonsense")
    with shop.open(SETTINGS) as store:
        found = [(f.code, f.path) for f in store.recovery.findings]
    of_partition = name == names.PARTITION_METADATA
    code = "bad-partition-metadata" if of_partition else "bad-root-file"
    assert found == [(code, str(path))]


def test_a_bad_marker_is_no_marker() -> None:
    shop = STORES["stopped"].after_kill()
    shop.put(ROOT / names.CLEAN_SHUTDOWN, b"{")
    with shop.open(SETTINGS) as store:
        assert not store.recovery.clean_shutdown


def test_bad_stored_configs_are_left_out_and_told() -> None:
    """The file may have been edited; a start must not break over it."""
    shop = STORES["stopped"].after_kill()
    text = b'{"t": {"segment.bytes": "abc", "index.interval.bytes": "100"}}'
    shop.put(ROOT / TOPICS_FILE, text)
    with shop.open(SETTINGS) as store:
        assert store.topics()["t"].configs == {"index.interval.bytes": "100"}
        (finding,) = store.recovery.findings
        assert (finding.code, finding.severity) == ("bad-root-file", "warning")


def test_another_version_of_our_own_file_is_refused() -> None:
    """What a later version wrote may mean something else."""
    shop = STORES["stopped"].after_kill()
    shop.put(ROOT / STORE_FILE, b'{"backend": "kafka", "version": 9}')
    with pytest.raises(UnsupportedFormat):
        shop.open(SETTINGS)
