"""Files of an interrupted swap, cleaning or deletion: finished as Kafka's LogLoader does, also in a read-only view."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from storage import TopicPartition, open_inspector
from storage.kafka.columns.splits import KafkaSplitter
from storage.kafka.format.checkpoints import encode_clean_shutdown, encode_partition_metadata
from storage.kafka.format.names import segment_name
from tests.robustness.crash.power import Power, moments
from tests.unit.kafka.log.splitting import read_rows, splitter_of, whole
from tests.unit.kafka.recovery.outage import on, safe_place
from tests.unit.kafka.workshop import ROOT, T0, Workshop, put_value, values

SETTINGS = {"internal.segment.bytes": "150"}
WRITTEN = [b"value %d" % n for n in range(8)]
SUFFIXES = (".log", ".index", ".timeindex")


@pytest.fixture
def four(shop: Workshop) -> Workshop:
    """A cleanly stopped store with segments at 0, 2, 4 and 6 of two records each."""
    with shop.open_with_topic(SETTINGS) as store:
        for value in WRITTEN:
            put_value(store, value)
    assert shop.bases() == [0, 2, 4, 6]
    return shop


def merge(shop: Workshop, bases: list[int], suffix: str, *, indexes: bool = True) -> None:
    """Write the cleaner's result for these segments: one merged segment, with `suffix` on its file names."""
    log = b"".join(shop.bytes_of(base) for base in bases)
    shop.put(shop.path(bases[0], ".log" + suffix), log)
    for kind in SUFFIXES[1:] if indexes else ():
        shop.put(shop.path(bases[0], kind + suffix), b"")


def check(shop: Workshop, bases: list[int]) -> None:
    """Check that readers, splits and a writable start find all records, in segments with these bases."""
    with shop.open(SETTINGS, read_only=True) as reader:
        assert values(reader) == WRITTEN
    splitter = splitter_of(shop)
    for _ in range(2):
        splits = splitter.plan(whole(splitter), split_bytes=100)
        assert [row.value for row in read_rows(shop, splits)] == WRITTEN
        splitter.refresh()
    splitter.close()
    with shop.open(SETTINGS) as store:
        assert values(store) == WRITTEN
        assert (store.recovery.findings, store.recovery.losses) == ([], [])
        names = shop.names()
        assert [name for name in names if name.endswith((".swap", ".cleaned", ".deleted"))] == []
        assert shop.bases() == shop.bases(".index") == shop.bases(".timeindex") == bases
        put_value(store, b"more")
    assert values(shop.open(SETTINGS)) == [*WRITTEN, b"more"]


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("indexes", [True, False])
def test_a_swap_is_completed(four: Workshop, clean: bool, indexes: bool) -> None:
    merge(four, [0, 2, 4], ".swap", indexes=indexes)
    if not clean:
        four.fs.remove(ROOT / ".kafka_cleanshutdown")
    check(four, [0, 6])


def test_a_swap_is_completed_when_some_of_the_old_are_gone(four: Workshop) -> None:
    merge(four, [0, 2, 4], ".swap")
    for kind in SUFFIXES:
        four.fs.remove(four.path(0, kind))
        four.fs.rename(four.path(2, kind), four.path(2, kind + ".deleted"))
    check(four, [0, 6])


def test_a_swap_whose_log_has_its_name_already(four: Workshop) -> None:
    merge(four, [0, 2, 4], ".swap")
    for base in (0, 2, 4):
        for kind in SUFFIXES:
            four.fs.remove(four.path(base, kind))
    four.fs.rename(four.path(0, ".log.swap"), four.path(0, ".log"))
    check(four, [0, 6])


def test_a_swap_from_the_middle_on(four: Workshop) -> None:
    merge(four, [2, 4], ".swap")
    check(four, [0, 2, 6])


def test_what_was_being_cleaned_is_dropped(four: Workshop) -> None:
    merge(four, [0, 2], ".cleaned")
    check(four, [0, 2, 4, 6])


def test_a_swap_beside_one_that_was_being_cleaned_is_dropped(four: Workshop) -> None:
    merge(four, [2, 4], ".swap")
    merge(four, [0], ".cleaned")
    check(four, [0, 2, 4, 6])


def test_a_swap_before_one_that_was_being_cleaned_is_completed(four: Workshop) -> None:
    merge(four, [0, 2], ".swap")
    merge(four, [4], ".cleaned")
    check(four, [0, 4, 6])


def test_deleted_files_are_removed(four: Workshop) -> None:
    for kind in (*SUFFIXES, ".snapshot"):
        four.put(four.path(1, kind + ".deleted"), b"anything")
    check(four, [0, 2, 4, 6])


def test_indexes_without_a_log_are_removed(four: Workshop) -> None:
    for kind in (".index", ".timeindex", ".txnindex"):
        four.put(four.path(1, kind), b"anything")
    check(four, [0, 2, 4, 6])
    assert not four.fs.exists(four.path(1, ".txnindex"))


@pytest.mark.parametrize("kind", [".index", ".timeindex"])
@pytest.mark.parametrize("base", [0, 6])
def test_missing_indexes_are_made_anew(four: Workshop, kind: str, base: int) -> None:
    before = four.bytes_of(base, kind)
    four.fs.remove(four.path(base, kind))
    with four.open(SETTINGS) as store:
        assert store.recovery.indexes_rebuilt == 1
        assert four.bytes_of(base, kind) == before
    check(four, [0, 2, 4, 6])


def test_other_names_are_left_alone(four: Workshop) -> None:
    others = [ROOT / "t-0" / name for name in ("notes.txt", "1.log", "x.index", "00000.log.bak")]
    others += [ROOT / "README", ROOT / f"t-9.{'a' * 32}-future" / "x", ROOT / "no topic" / "x"]
    for path in others:
        four.fs.make_dir(path.parent)
        four.put(path, b"mine")
    check(four, [0, 2, 4, 6])
    assert [four.fs.read_bytes(path) for path in others] == [b"mine"] * len(others)


def test_a_deleted_topic_is_finished(four: Workshop) -> None:
    gone = ROOT / f"u-0.{'b' * 32}-delete"
    four.fs.make_dir(gone)
    four.put(gone / segment_name(0, ".log"), b"anything")
    with four.open(SETTINGS, read_only=True) as reader:
        assert list(reader.topics()) == ["t"]
    assert four.fs.exists(gone)
    with four.open(SETTINGS) as store:
        assert list(store.topics()) == ["t"]
    assert not four.fs.exists(gone)


def test_the_cluster_metadata_is_never_touched(four: Workshop) -> None:
    folder = ROOT / "__cluster_metadata-0"
    four.fs.make_dir(folder)
    files = {"00000000000000000000.log": b"not for us", "x.checkpoint": b"", "quorum-state": b"{}"}
    for name, data in files.items():
        four.put(folder / name, data)
    four.fs.remove(ROOT / ".kafka_cleanshutdown")
    with four.open(SETTINGS) as store:
        assert list(store.topics()) == ["t"]
        assert store.stats().details["metadata_dirs"] == ["__cluster_metadata-0"]
    assert {name: four.fs.read_bytes(folder / name) for name in four.fs.list_dir(folder)} == files
    assert list(four.offsets("recovery-point-offset-checkpoint")) == [T0]


@pytest.mark.parametrize("swap", [b"", b"torn"], ids=["empty", "torn"])
def test_a_swap_that_is_not_whole_replaces_nothing(four: Workshop, swap: bytes) -> None:
    """A bad swap file replaces nothing: the segment that it should have replaced exists and is good."""
    four.put(four.path(0, ".log.swap"), swap)
    assert values(four.open(SETTINGS)) == WRITTEN


def test_a_torn_swap_alone_is_recovered(shop: Workshop) -> None:
    """The swap file is the only copy of its records: good batches stay, the rest is cut and copied aside."""
    store = shop.open_with_topic()
    put_value(store, b"kept")
    store.flush()
    found = shop.after_kill()
    found.put(found.path(0, ".log.swap"), found.bytes_of(0) + b"torn")
    found.fs.remove(found.path(0))
    again = found.open()
    assert values(again) == [b"kept"]
    (loss,) = again.recovery.losses
    assert loss.kept_at is not None
    assert found.fs.read_bytes(Path(loss.kept_at)) == b"torn"


def test_only_the_brokers_own_names_are_cleared_away(four: Workshop) -> None:
    """A folder that only ends in -delete, in another form than the broker's, stays."""
    own, other = ROOT / f"t-1.{'0' * 32}-delete", ROOT / "please-do-not-delete"
    for folder in (own, other):
        four.fs.make_dir(folder)
        four.put(folder / "file", b"x")
    four.open(SETTINGS).close()
    assert (four.fs.exists(own), four.fs.exists(other)) == (False, True)


# ---- a crash during the creation or deletion of a topic ----

PARTS = [TopicPartition("p", number) for number in range(3)]


def renamed(shop: Workshop, *partitions: TopicPartition) -> None:
    """Rename these folders as a deletion does."""
    for number, address in enumerate(partitions):
        gone = ROOT / f"{address}.{number:032x}-delete"
        shop.fs.rename(ROOT / str(address), gone)


def unclean(shop: Workshop) -> Workshop:
    """Write a store with topic p, one record in each of its three partitions, and remove the clean-stop marker."""
    with shop.open() as store:
        store.create_topic("p", 3)
        for address in PARTS:
            put_value(store, b"kept", address)
    shop.fs.remove(ROOT / ".kafka_cleanshutdown")
    return shop


@pytest.mark.parametrize("gone", [(0,), (1,), (2,), (0, 1), (0, 2), (1, 2)])
def test_a_topic_that_is_partly_renamed_comes_back_whole(
    shop: Workshop, gone: tuple[int, ...]
) -> None:
    """A topic with an interrupted creation or deletion comes back: neither was acknowledged, and no folder is lost."""
    renamed(unclean(shop), *(PARTS[number] for number in gone))
    inspector = open_inspector(ROOT, fs=shop.fs, clock=shop.clock)
    try:
        found = list(inspector.verify())
        assert [f for f in found if f.severity == "error"] == []
        assert [f.partition for f in found if f.code == "renamed-folder"] == list(gone)
    finally:
        inspector.close()
    for read_only in (True, False):
        with shop.open(read_only=read_only) as store:
            assert {f.code for f in store.recovery.findings} == {"renamed-folder"}
            assert [values(store, address) for address in PARTS] == [[b"kept"]] * 3
    with shop.open() as store:
        assert store.recovery.findings == []
        assert [values(store, address) for address in PARTS] == [[b"kept"]] * 3
    assert not any(name.endswith("-delete") for name in shop.fs.list_dir(ROOT))


def shown(shop: Workshop, splitter: KafkaSplitter) -> list[tuple[TopicPartition, bytes | None]]:
    """Return the partition and the value of each record in the splits."""
    return [(row.partition, row.value) for row in read_rows(shop, splitter.plan(whole(splitter)))]


@pytest.mark.parametrize("gone", [(0,), (1,), (2,), (0, 1), (0, 2), (1, 2)])
def test_splits_hold_a_topic_that_is_partly_renamed(shop: Workshop, gone: tuple[int, ...]) -> None:
    """A splitter opened before or after the renames serves all partitions, also after the next start."""
    kept = [(address, b"kept") for address in PARTS]
    unclean(shop)
    with closing(splitter_of(shop)) as before:
        assert shown(shop, before) == kept
        renamed(shop, *(PARTS[number] for number in gone))
        with closing(splitter_of(shop)) as after:
            assert shown(shop, after) == kept
            for splitter in (before, after):
                for _ in range(2):
                    splitter.refresh()
                    assert splitter.partitions() == PARTS
                    assert shown(shop, splitter) == kept
                reported = [f.partition for f in splitter.findings() if f.code == "renamed-folder"]
                assert (reported, splitter.missing()) == (list(gone), [])
            shop.open().close()
            assert not any(name.endswith("-delete") for name in shop.fs.list_dir(ROOT))
            for splitter in (before, after):
                splitter.refresh()
                assert shown(shop, splitter) == kept


def test_a_topic_that_is_wholly_renamed_is_deleted(shop: Workshop) -> None:
    renamed(unclean(shop), *PARTS)
    assert splitter_of(shop).partitions() == []
    with shop.open() as store:
        assert list(store.topics()) == []
    assert not any(name.endswith("-delete") for name in shop.fs.list_dir(ROOT))


@pytest.mark.parametrize("other", ["another topic of the name", "a broker's store", "clean stop"])
def test_other_renamed_folders_do_not_come_back(shop: Workshop, other: str) -> None:
    """Renamed folders stay deleted after a clean stop, in a broker's store, and with another topic id.

    A broker also renames the folder of a partition that moves to another broker.
    """
    renamed(unclean(shop), PARTS[2])
    if other == "another topic of the name":
        (path,) = [name for name in shop.fs.list_dir(ROOT) if name.endswith("-delete")]
        shop.put(ROOT / path / "partition.metadata", encode_partition_metadata("B" * 21 + "g"))
    elif other == "a broker's store":
        shop.fs.remove(ROOT / ".logserver.store.json")
    else:
        shop.put(ROOT / ".kafka_cleanshutdown", encode_clean_shutdown(-1))
    assert splitter_of(shop).partitions() == PARTS[:2]
    with shop.open() as store:
        assert list(store.topics()["p"].partitions) == [0, 1]


def test_power_lost_while_a_topic_is_made_or_deleted(power: Power) -> None:
    """Each folder has one of its two names, whichever renames the disk keeps."""
    shop = safe_place(power)
    store = shop.open()
    wanted = {"retention.ms": "-1"}
    for act in (lambda: store.create_topic("p", 3, wanted), lambda: store.delete_topic("p")):
        for cut in moments(power, act):
            found = on(cut, shop)
            with found.open() as again:
                assert [f for f in again.recovery.findings if f.severity == "error"] == []
                topics = again.topics()
                assert not topics or len(topics["p"].partitions) == 3
                assert not topics or topics["p"].configs["retention.ms"] == "-1"
            if act.__code__.co_names[0] == "delete_topic":
                with found.open() as again:
                    assert again.recovery.findings == [], "no settings of a deleted topic are left"
    store.create_topic("p", 3)
    seen: list[set[str]] = []

    def look(operation: str, path: Path) -> None:
        if operation == "rename":
            kept = {name.partition(".")[0] for name in power.cut().list_dir(ROOT) if name[0] == "q"}
            seen.append(kept)

    power.before = look
    store.create_topic("q", 3)
    assert seen == [{"q-0", "q-1", "q-2"}] * 3
