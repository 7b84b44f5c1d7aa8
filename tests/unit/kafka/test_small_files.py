"""Garbage in the small files next to the logs: all records stay readable and appends work, or the start is refused."""

from __future__ import annotations

import re
import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage import LogStore, StoreOptions
from storage.errors import Corrupt, UnsupportedFormat
from storage.files import STORE_FILE, OverlayFileSystem
from storage.kafka.format import names
from storage.kafka.state.root import TOPICS_FILE
from storage.kafka.tools import open_inspector
from storage.model import TopicPartition
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
    """Write twelve records to several segments, with a topic config and a producer; stop or kill the store."""
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
    with shop.open(SETTINGS) as store:  # a file may name offsets that the log never had
        refused = bool(store.topics()["t"].missing)
        lost = refused or bool(store.recovery.losses)
    with shop.open(SETTINGS, accept_loss=refused) as store:
        assert set(values(store)) == expected
        _use(store)
        put_value(store, b"one more")
    with shop.open(SETTINGS) as store:
        assert set(values(store)) == {*expected, b"one more"}
        _use(store)
    assert bool(shop.cut_dirs()) == lost


def _below_start(name: str, data: bytes) -> set[bytes]:
    """Return the values below a readable log start: all values if it is beyond the end."""
    return set(ALL) if name == names.LOG_STARTS and b" 99" in data and len(data) < 28 else set()


def _use(store: LogStore) -> None:
    """Run lookups that use the indexes, and ignore the results."""
    for time_ms in (0, 1_700_000_000_050, 1 << 62):
        store.offset_for_time(T0, time_ms)
    store.find("t", key=b"none")
    store.new_producer_id()


def test_each_of_them_is_there() -> None:
    missing = [name for name in SMALL_FILES if not STORES["stopped"].fs.exists(ROOT / name)]
    assert missing == []
    assert len(SEGMENT_FILES) >= 8


@pytest.mark.parametrize("content", [b"", b"\xff\xfe", b"version=2\n", b"version=1\nnode.id=x\n"])
def test_a_directory_without_an_identity_is_read_and_not_written(content: bytes) -> None:
    shop = STORES["stopped"].after_kill()
    shop.put(ROOT / names.META_PROPERTIES, content)
    with shop.open(SETTINGS, read_only=True) as reader:
        codes = {(f.code, f.path) for f in reader.recovery.findings}
        assert ("bad-root-file", str(ROOT / names.META_PROPERTIES)) in codes
        assert values(reader) == values(STORES["stopped"].after_kill().open(SETTINGS))
    with pytest.raises((Corrupt, UnsupportedFormat)) as refusal:
        shop.open(SETTINGS)
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


@pytest.mark.parametrize("content", [b"", b"{", b'{"version":7}', b"\r\n"])
def test_a_marker_counts_whatever_it_holds(content: bytes) -> None:
    """Any content of the marker counts: a broker before 3.7 wrote 0 bytes, and later brokers ignore the content."""
    shop = STORES["stopped"].after_kill()
    shop.put(ROOT / names.CLEAN_SHUTDOWN, content)
    with shop.open(SETTINGS) as store:
        assert store.recovery.clean_shutdown
        assert store.recovery.findings == []


LINE_ENDS = {"crlf": b"\r\n", "cr": b"\r", "lf": b"\n"}


def a_store_with_deleted_records() -> Workshop:
    """Return a cleanly stopped store with offsets 0 to 12 in t-0; 0 to 6 are deleted but still on the disk."""
    shop = STORES["stopped"].after_kill()
    shop.put(ROOT / names.LOG_STARTS, b"0\n1\nt 0 7\n")
    return shop


@pytest.mark.parametrize("unfinished", [False, True])
@pytest.mark.parametrize("line_end", LINE_ENDS)
def test_line_ends_of_another_system(line_end: str, unfinished: bool) -> None:
    """Deleted records stay deleted, epochs and ids stay, and the next stop writes the log start again."""
    shop = a_store_with_deleted_records()
    folder = ROOT / "t-0"
    topic_id = shop.open(read_only=True).topics()["t"].topic_id
    for path in (
        *(ROOT / name for name in (names.RECOVERY_POINTS, names.HIGH_WATERMARKS, names.LOG_STARTS)),
        *(folder / name for name in OF_THE_PARTITION),
        ROOT / names.META_PROPERTIES,
    ):
        content = shop.fs.read_bytes(path).replace(b"\n", LINE_ENDS[line_end])
        shop.put(path, content.rstrip() if unfinished else content)
    for _ in range(2):
        with shop.open(SETTINGS) as store:
            assert store.recovery.findings == []
            assert store.bounds(T0).start == 7
            assert store.topics()["t"].topic_id == topic_id
    assert shop.offsets(names.LOG_STARTS) == {T0: 7}


@pytest.mark.parametrize(
    "damaged",
    [
        b"0\n9\nt 0 7\ngone 3 40\n",
        b"1\n1\nt 0 7\n",
        b"\xff\nt 0 7\ngone 3 40\n",
        b"0\n3\nt 0 7\n\nt one 1\ngone 3 40\n",
    ],
)
def test_a_damaged_log_start_brings_no_deleted_record_back(damaged: bytes) -> None:
    """The readable lines count, and a copy of the damaged file is kept before a new file is written."""
    shop = a_store_with_deleted_records()
    shop.put(ROOT / names.LOG_STARTS, damaged)
    with shop.open(SETTINGS) as store:
        assert [(f.code, f.severity) for f in store.recovery.findings] == [
            ("bad-root-file", "error")
        ]
        assert store.bounds(T0).start == 7
        put_value(store, b"more")
    others = {TopicPartition("gone", 3): 40} if b"gone" in damaged else {}
    assert shop.offsets(names.LOG_STARTS) == {T0: 7, **others}
    kept = ROOT / f".logserver.{names.LOG_STARTS}.damaged"
    assert shop.fs.read_bytes(kept) == damaged


@pytest.mark.parametrize("damaged", [b"garbage", b"0\n1\n-1 0\n", b"0\n1\n0\n", bytes(30)])
def test_damaged_epochs_are_kept_aside(damaged: bytes) -> None:
    shop = STORES["stopped"].after_kill()
    shop.put(ROOT / "t-0" / names.LEADER_EPOCHS, damaged)
    with shop.open(SETTINGS) as store:
        assert [(f.code, f.severity) for f in store.recovery.findings] == [
            ("bad-leader-epochs", "error")
        ]
    kept = ROOT / "t-0" / f".logserver.{names.LEADER_EPOCHS}.damaged"
    assert shop.fs.read_bytes(kept) == damaged
    assert shop.epochs() == [(0, 0)]


@pytest.mark.parametrize(
    ("lines", "kept"),
    [
        (b"0\n2\n0 0\n0 5\n", [(0, 0)]),
        (b"0\n2\n5 0\n3 4\n", [(3, 4)]),
        (b"0\n3\n1 0\n2 6\n3 2\n", [(1, 0), (3, 2)]),
    ],
)
def test_epochs_that_repeat_or_fall(lines: bytes, kept: list[tuple[int, int]]) -> None:
    """Such epochs are read as the broker reads them, and cause no finding and no loss."""
    shop = STORES["stopped"].after_kill()
    shop.put(ROOT / "t-0" / names.LEADER_EPOCHS, lines)
    with shop.open(SETTINGS) as store:
        assert store.recovery.findings == []
        assert values(store) == ALL
    assert shop.epochs() == kept


def test_bad_stored_configs_are_left_out_and_told() -> None:
    """The file may have been edited: bad configs are left out and reported, and the start does not fail."""
    shop = STORES["stopped"].after_kill()
    text = b'{"t": {"segment.bytes": "abc", "index.interval.bytes": "100"}}'
    shop.put(ROOT / TOPICS_FILE, text)
    with shop.open(SETTINGS) as store:
        assert store.topics()["t"].configs == {"index.interval.bytes": "100"}
        (finding,) = store.recovery.findings
        assert (finding.code, finding.severity) == ("bad-root-file", "warning")


def test_another_version_of_our_own_file_is_refused() -> None:
    """A file of a later version is refused, because its content may have another meaning."""
    shop = STORES["stopped"].after_kill()
    shop.put(ROOT / STORE_FILE, b'{"backend": "kafka", "version": 9}')
    with pytest.raises(UnsupportedFormat):
        shop.open(SETTINGS)


@pytest.mark.parametrize("text", [b"version=7\n", b"cluster.id=x\n", b"\xff\xfe\n"])
def test_a_finding_names_the_identity_once(text: bytes) -> None:
    shop = STORES["stopped"].after_kill()
    path = ROOT / names.META_PROPERTIES
    shop.put(path, text)
    with shop.open(SETTINGS, read_only=True) as store:
        (found,) = [f for f in store.recovery.findings if f.path == str(path)]
    assert str(path) not in found.message
    with pytest.raises((Corrupt, UnsupportedFormat), match=re.escape(f"{path}: ")):
        shop.open(SETTINGS)


@pytest.mark.parametrize("first", [1, 5, 12])
def test_batches_below_the_first_epoch_of_the_checkpoint(first: int) -> None:
    shop = STORES["stopped"].after_kill()
    shop.put(ROOT / "t-0" / names.LEADER_EPOCHS, b"0\n1\n0 %d\n" % first)
    inspector = open_inspector(ROOT, StoreOptions(settings=SETTINGS), fs=shop.fs, clock=shop.clock)
    assert inspector is not None
    found = [f for f in inspector.verify() if f.code == "leader-epoch-mismatch"]
    inspector.close()
    assert {f.expected for f in found} == {"no epoch"}


@pytest.mark.parametrize("data", [b"0", b"0\n", b"0\r\n"])
@pytest.mark.parametrize("name", [names.RECOVERY_POINTS, names.HIGH_WATERMARKS, names.LOG_STARTS])
def test_a_checkpoint_that_was_cut_after_its_version_is_named(name: str, data: bytes) -> None:
    """A broker reads such a file as empty, and never writes it: it may have named a partition without a folder."""
    shop = STORES["stopped"].after_kill()
    shop.put(ROOT / name, data)
    with shop.open(read_only=True) as store:
        found = [f for f in store.recovery.findings if f.path == str(ROOT / name)]
        assert [(f.code, f.severity) for f in found] == [("bad-root-file", "warning")]
        assert values(store) == ALL


@pytest.mark.parametrize("data", [b"", b"0\n0\n"])
def test_an_empty_checkpoint_is_no_damage(data: bytes) -> None:
    """An empty checkpoint is no damage: a broker creates one of 0 bytes when it starts."""
    shop = STORES["stopped"].after_kill()
    shop.put(ROOT / names.HIGH_WATERMARKS, data)
    with shop.open(read_only=True) as store:
        assert [f for f in store.recovery.findings if f.code == "bad-root-file"] == []
