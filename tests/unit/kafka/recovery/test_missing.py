"""Missing partitions, segments and offsets that other files name: reported, refused, and never assigned twice."""

from __future__ import annotations

import struct
from collections.abc import Callable
from contextlib import closing
from itertools import pairwise
from pathlib import Path

import pytest

from storage import CommittedOffset, GroupCommit, StoreOptions
from storage.coding.checksum import crc32c
from storage.errors import DamagedStore, MissingPartitions
from storage.files import OverlayFileSystem
from storage.kafka.format import names
from storage.kafka.format.batch import encode_batch
from storage.kafka.format.names import segment_name
from storage.kafka.recovery.evidence import CHECKPOINTS
from storage.kafka.store import KafkaStore, open_kafka
from storage.kafka.tools import open_inspector
from storage.model import Finding, FindQuery, LossReport, TopicPartition
from storage.shared.loss_report import known_losses
from tests.unit.kafka.log.splitting import read_rows, splitter_of, whole
from tests.unit.kafka.workshop import ROOT, T0, Workshop, put_value, values

SETTINGS = {"internal.segment.bytes": "200", "offsets.topic.num.partitions": "2"}
DENSE = {"index.interval.bytes": "1"}
T1, T2 = TopicPartition("t", 1), TopicPartition("t", 2)
MARKER = ROOT / names.CLEAN_SHUTDOWN


def a_store(shop: Workshop, *, partitions: int = 3, records: int = 6) -> KafkaStore:
    """Create a store with `records` records in each partition of t, over several segments."""
    store = shop.open(SETTINGS)
    store.create_topic("t", partitions)
    for number in range(partitions):
        for n in range(records):
            put_value(store, b"%d" % n, TopicPartition("t", number))
    return store


def remove(
    shop: Workshop, of: TopicPartition, *suffixes: str, bases: Callable[[int], bool]
) -> None:
    """Remove segment files, chosen by base offset and suffix."""
    for name in shop.names(of):
        parsed = names.parse_segment_name(name)
        if parsed is not None and bases(parsed[0]) and (not suffixes or parsed[1] in suffixes):
            shop.fs.remove(ROOT / str(of) / name)


def verified(shop: Workshop) -> list[Finding]:
    """Return the findings of `verify` except info; check that the summary shows each error."""
    inspector = open_inspector(ROOT, StoreOptions(settings=SETTINGS), fs=shop.fs, clock=shop.clock)
    assert inspector is not None
    try:
        found = [f for f in inspector.verify() if f.severity != "info"]
        shown = inspector.summary()["findings"]
    finally:
        inspector.close()
    errors = {(f.code, f.topic, f.partition) for f in found if f.severity == "error"}
    assert isinstance(shown, list)
    assert errors <= {(row["code"], row["topic"], row["partition"]) for row in shown}
    return found


def salvaged(shop: Workshop) -> LossReport:
    """Salvage the store and return the report."""
    inspector = open_inspector(ROOT, StoreOptions(settings=SETTINGS), fs=shop.fs, clock=shop.clock)
    assert inspector is not None
    try:
        return inspector.salvage(ROOT.parent / "salvaged")
    finally:
        inspector.close()


def rebuild(shop: Workshop) -> None:
    """Rebuild the indexes; an index that names lost records stays."""
    inspector = open_inspector(ROOT, StoreOptions(settings=SETTINGS), fs=shop.fs, clock=shop.clock)
    assert inspector is not None
    try:
        inspector.rebuild("indexes", write=True)
    finally:
        inspector.close()


def dumped(shop: Workshop, partition: int | None) -> tuple[int, set[int | None]]:
    """Return the number of records in a dump, and the partitions that the dump reports as missing."""
    inspector = open_inspector(ROOT, StoreOptions(settings=SETTINGS), fs=shop.fs, clock=shop.clock)
    assert inspector is not None
    try:
        rows = sum(len(run) for run in inspector.dump("records", topic="t", partition=partition))
        return rows, {f.partition for f in inspector.findings() if f.severity == "error"}
    finally:
        inspector.close()


def found_in(shop: Workshop) -> set[tuple[str, str, int | None]]:
    return {(f.code, f.severity, f.partition) for f in verified(shop)}


# ---- a missing folder ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("gone", [T0, T1, T2])
@pytest.mark.parametrize("clean", [True, False])
def test_a_folder_that_is_missing(shop: Workshop, gone: TopicPartition, clean: bool) -> None:
    store = a_store(shop)
    store.flush()
    store.checkpoint()
    if clean:
        store.close()
    shop = shop.after_kill()
    shop.fs.remove_tree(ROOT / str(gone))
    assert ("partition-without-folder", "error", gone.partition) in found_in(shop)
    for _ in range(2):  # a start and a stop keep the names of the missing partition
        with shop.open(SETTINGS) as again:
            assert ("partition-without-folder", gone.partition) in {
                (f.code, f.partition) for f in again.recovery.findings
            }
            info = again.topics()["t"]
            assert list(info.missing) == [gone.partition]
            assert len(info.partitions) == 2
            with pytest.raises(MissingPartitions, match="--accept-loss"):
                again.read(gone, 0)
            for other in {T0, T1, T2} - {gone}:
                put_value(again, b"more", other)
    with shop.open(SETTINGS, accept_loss=True) as accepted:
        assert [(loss.partition, loss.next_offset) for loss in accepted.recovery.losses] == [
            (gone.partition, 6)
        ]
        assert put_value(accepted, b"new", gone).base_offset == 6
        assert not accepted.topics()["t"].missing
    (losses,) = known_losses(shop.fs, ROOT).values()
    assert [loss.next_offset for loss in losses] == [6]
    assert not any(f.severity == "error" for f in verified(shop))


def test_a_gap_in_the_numbers_alone_is_told(shop: Workshop) -> None:
    """A gap in the partition numbers is reported without any checkpoint, as on one disk of several."""
    a_store(shop, partitions=4).close()
    for name in (*shop.fs.list_dir(ROOT),):
        if name in names.ROOT_FILES or name in {"t-0", "t-2"}:
            shop.fs.remove_tree(ROOT / name) if name.startswith("t-") else shop.fs.remove(
                ROOT / name
            )
    assert {p for code, _, p in found_in(shop) if code == "partition-without-folder"} == {0, 2}
    with shop.open(SETTINGS) as store:
        assert list(store.topics()["t"].missing) == [0, 2]


@pytest.mark.parametrize("gone", [T0, T1, T2])
@pytest.mark.parametrize("as_file", [True, False])
def test_dump_and_find_say_that_a_partition_is_missing(
    shop: Workshop, gone: TopicPartition, as_file: bool
) -> None:
    a_store(shop).close()
    shop.fs.remove_tree(ROOT / str(gone))
    if as_file:
        shop.put(ROOT / str(gone), b"a file")
    other = T1 if gone == T0 else T0
    for chosen, stated in ((None, {gone.partition}), (other.partition, set())):
        rows, missing = dumped(shop, chosen)
        assert (rows, missing) == (12 if chosen is None else 6, stated)
    inspector = open_inspector(ROOT, StoreOptions(settings=SETTINGS), fs=shop.fs, clock=shop.clock)
    assert inspector is not None
    list(inspector.find(FindQuery(topic="t", grep="nothing")))
    assert [f.partition for f in inspector.findings() if f.severity == "error"] == [gone.partition]
    inspector.close()
    if not as_file:
        return
    before = shop.fs.list_dir(ROOT)
    with pytest.raises(DamagedStore, match=f"{gone}: this is no folder.*Move the file away"):
        shop.open(SETTINGS, accept_loss=True)
    assert set(shop.fs.list_dir(ROOT)) == {*before, names.LOCK}
    shop.fs.remove(ROOT / str(gone))
    with shop.open(SETTINGS, accept_loss=True) as accepted:
        assert put_value(accepted, b"x", gone).base_offset == 6


def test_dump_is_complete_where_no_file_names_records_of_a_missing_number(shop: Workshop) -> None:
    """A missing partition number that no file names is no loss: the partition may be on another broker of a cluster."""
    a_store(shop, partitions=1).close()
    shop.fs.rename(ROOT / "t-0", ROOT / "t-3")
    for name in CHECKPOINTS:
        if shop.fs.exists(ROOT / name):
            shop.fs.remove(ROOT / name)
    assert dumped(shop, None) == (6, set())


@pytest.mark.parametrize("number", [104, 10_000, 2_000_000_000, 2**31 - 1])
@pytest.mark.parametrize("as_folder", [True, False])
def test_a_wrong_partition_number_is_one_finding(
    shop: Workshop, number: int, as_folder: bool
) -> None:
    store = a_store(shop)
    store.close()
    if as_folder:
        shop.fs.make_dir(ROOT / f"t-{number}")
        shop.put(ROOT / f"t-{number}" / segment_name(0, names.LOG), b"")
    else:
        shop.put(ROOT / names.RECOVERY_POINTS, b"0\n2\nt 0 6\nt %d 5\n" % number)
    last = number - as_folder
    found = [f for f in verified(shop) if f.code == "partition-without-folder"]
    assert [(f.partition, f.severity) for f in found] == [(3, "error")]
    assert f"partitions 3 to {last} are missing" in found[0].message
    report = salvaged(shop)
    made = [n for n in shop.fs.list_dir(ROOT.parent / "salvaged") if n.startswith("t-")]
    assert set(made) == {"t-0", "t-1", "t-2", *([f"t-{number}"] if as_folder else [])}
    assert "partition-without-folder" in {f.code for f in report.findings}
    with shop.open(SETTINGS) as again:
        assert list(again.topics()["t"].missing) == [3]
        put_value(again, b"x")
    with shop.open(SETTINGS, accept_loss=True) as accepted:
        assert not accepted.topics()["t"].missing
    assert not shop.fs.exists(ROOT / "t-3")


def test_a_hundred_missing_partitions_are_each_reported_and_made_again(shop: Workshop) -> None:
    a_store(shop).close()
    shop.put(ROOT / names.RECOVERY_POINTS, b"0\n1\nt 103 5\n")
    found = [f.partition for f in verified(shop) if f.code == "partition-without-folder"]
    assert found == list(range(3, 104))
    with shop.open(SETTINGS, accept_loss=True) as accepted:
        assert len(accepted.topics()["t"].partitions) == 104
        assert accepted.bounds(TopicPartition("t", 103)).end == 5


def test_a_topic_with_settings_only_still_exists(shop: Workshop) -> None:
    store = a_store(shop, partitions=1)
    store.create_topic("kept", 2, {"retention.ms": "-1"})
    put_value(store, b"x", TopicPartition("kept", 1))
    store.close()
    for number in range(2):
        shop.fs.remove_tree(ROOT / f"kept-{number}")
    assert {p for code, _, p in found_in(shop) if code == "partition-without-folder"} == {0, 1}
    for _ in range(2):
        with shop.open(SETTINGS) as again:
            assert list(again.topics()["kept"].missing) == [0, 1]
            again.create_topic("other", 1, {"retention.ms": "-1"})
            with pytest.raises(MissingPartitions):
                put_value(again, b"y", TopicPartition("kept", 1))
    with shop.open(SETTINGS, accept_loss=True) as accepted:
        assert put_value(accepted, b"y", TopicPartition("kept", 1)).base_offset == 1


# ---- a topic known only by its name ----------------------------------------------------------------------------------


def test_a_name_alone_is_info_and_is_not_given_again(shop: Workshop) -> None:
    store = a_store(shop, partitions=2)
    store.create_topic("gone", 1)
    put_value(store, b"x", TopicPartition("gone", 0))
    store.close()
    shop.fs.remove_tree(ROOT / "gone-0")
    assert found_in(shop) == set()
    with shop.open(SETTINGS) as again:
        assert "gone" not in again.topics()
        for call in (again.create_topic, again.preview_topic):
            with pytest.raises(MissingPartitions, match="'gone' cannot be created"):
                call("gone")
    with shop.open(SETTINGS, accept_loss=True) as accepted:
        accepted.create_topic("gone", 2)
        assert put_value(accepted, b"y", TopicPartition("gone", 0)).base_offset == 1
        assert put_value(accepted, b"y", TopicPartition("gone", 1)).base_offset == 0


@pytest.mark.parametrize("clean", [True, False])
def test_a_topic_that_was_deleted_can_be_created_again(shop: Workshop, clean: bool) -> None:
    store = a_store(shop)
    store.checkpoint()
    store.delete_topic("t")
    if clean:
        store.close()
    shop = shop.after_kill()
    with shop.open(SETTINGS) as again:
        again.create_topic("t", 1)
        assert put_value(again, b"x").base_offset == 0


def test_a_deletion_that_was_interrupted_leaves_no_name(shop: Workshop) -> None:
    a_store(shop, partitions=1).close()
    shop.fs.rename(ROOT / "t-0", ROOT / names.deleted_dir_name("t", 0, "ab" * 16))
    assert found_in(shop) == set()
    for _ in range(2):
        with shop.open(SETTINGS) as again:
            again.create_topic("t", 1)


# ---- missing files of a partition ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "removed",
    [
        pytest.param((names.LOG,), id="logs"),
        pytest.param((names.LOG, names.INDEX, names.SNAPSHOT), id="logs and more"),
        pytest.param((), id="all files of segments"),
    ],
)
@pytest.mark.parametrize("checkpoints", [True, False])
def test_all_logs_of_a_folder_are_missing(
    shop: Workshop, removed: tuple[str, ...], checkpoints: bool
) -> None:
    a_store(shop, partitions=2).close()
    if not checkpoints:
        for name in (names.RECOVERY_POINTS, names.HIGH_WATERMARKS, names.CLEAN_SHUTDOWN):
            shop.fs.remove(ROOT / name)
    remove(shop, T1, *removed, bases=lambda _: True)
    before = shop.names(T1)
    assert ("partition-without-logs", "error", 1) in found_in(shop)
    with shop.open(SETTINGS) as again:
        assert list(again.topics()["t"].missing) == [1]
        with pytest.raises(MissingPartitions, match=r"no \.log file"):
            put_value(again, b"x", T1)
        put_value(again, b"x", T0)
    assert shop.names(T1) == before
    highest = (
        6 if checkpoints else max((int(n[:20]) for n in before if n[:20].isdigit()), default=0)
    )
    with shop.open(SETTINGS, accept_loss=True) as accepted:
        assert put_value(accepted, b"x", T1).base_offset >= highest
        assert values(accepted, T1) == [b"x"]


@pytest.mark.parametrize("suffixes", [(), (names.LOG,)])
@pytest.mark.parametrize("witness", ["checkpoint", "snapshot", "group", "epochs"])
def test_the_last_segment_is_missing(
    shop: Workshop, witness: str, suffixes: tuple[str, ...]
) -> None:
    """Each kind of file alone prevents that the lost offsets are assigned again."""
    store = a_store(shop, partitions=1)
    if witness == "group":
        store.commit_offsets([GroupCommit("g", {T0: CommittedOffset(6)})])
    store.close()
    if witness != "checkpoint":
        for name in (names.RECOVERY_POINTS, names.HIGH_WATERMARKS):
            shop.fs.remove(ROOT / name)
    last = shop.bases()[-1]
    kept = set() if witness != "snapshot" else {6}
    remove(shop, T0, *suffixes, bases=lambda base: base >= last and base not in kept)
    if witness != "snapshot":
        remove(shop, T0, names.SNAPSHOT, bases=lambda base: base >= last)
    if witness == "epochs":
        shop.put(ROOT / "t-0" / names.LEADER_EPOCHS, b"0\n2\n0 0\n3 6\n")
    code = "checkpoint-ahead" if witness == "checkpoint" else "log-ends-below-named"
    assert (code, "error", 0) in found_in(shop)
    with shop.open(SETTINGS, read_only=True) as shown:
        assert len(values(shown)) == last
    with shop.open(SETTINGS) as again, pytest.raises(MissingPartitions):
        put_value(again, b"x")
    with shop.open(SETTINGS, accept_loss=True) as accepted:
        assert put_value(accepted, b"x").base_offset == 6
        assert [(loss.first_offset, loss.next_offset) for loss in accepted.recovery.losses] == [
            (last, 6)
        ]
    with shop.open(SETTINGS) as later:
        assert not later.topics()["t"].missing
        assert len(values(later)) == last + 1


def an_indexed_store(shop: Workshop, *, clean: bool) -> Workshop:
    """Write nine records of 75 bytes in one segment, with an index entry for each but the first.

    No other file names an offset.
    """
    store = shop.open(DENSE)
    store.create_topic("t", 1)
    for n in range(9):
        shop.clock.now_ms += 10
        put_value(store, b"value %d" % n)
    store.flush()
    store.checkpoint()  # writes the index entries
    if clean:
        store.close()
    shop = shop.after_kill()
    for path in (*(ROOT / name for name in CHECKPOINTS), *snapshots(shop)):
        if shop.fs.exists(path):
            shop.fs.remove(path)
    return shop


def snapshots(shop: Workshop) -> list[Path]:
    return [ROOT / "t-0" / name for name in shop.names() if name.endswith(names.SNAPSHOT)]


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize(
    ("size_bytes", "kept", "removed"),
    [
        pytest.param(0, 0, (), id="empty"),
        pytest.param(0, 0, (names.INDEX,), id="empty, time index alone"),
        pytest.param(0, 0, (names.TIME_INDEX,), id="empty, offset index alone"),
        pytest.param(75 * 4, 4, (), id="cut between batches"),
        pytest.param(75 * 8, 8, (), id="cut before the last batch"),
        pytest.param(75 * 6 - 9, 5, (), id="cut in a batch"),
    ],
)
def test_an_index_names_more_than_its_log(
    shop: Workshop, size_bytes: int, kept: int, removed: tuple[str, ...], clean: bool
) -> None:
    """After an unclean stop a power loss explains the missing records, and no client was promised them."""
    shop = an_indexed_store(shop, clean=clean)
    shop.truncate(size_bytes)
    for suffix in removed:
        shop.fs.remove(shop.path(0, suffix))
    torn = size_bytes % 75 != 0
    severity = "error" if clean else "warning"
    assert ("log-ends-below-named", severity, 0) in found_in(shop) or torn
    rebuild(shop)
    report = salvaged(shop)
    if clean or torn:
        assert [(x.first_offset, x.next_offset) for x in report.losses] == [(kept, 9)]
    with shop.open(DENSE, read_only=True) as shown:
        assert len(values(shown)) == kept
    if clean and not torn:
        before = {name: shop.fs.read_bytes(ROOT / "t-0" / name) for name in shop.names()}
        with shop.open(DENSE) as again, pytest.raises(MissingPartitions, match="names offset 9"):
            put_value(again, b"x")
        assert before == {n: shop.fs.read_bytes(ROOT / "t-0" / n) for n in shop.names()}
    if not clean:
        with shop.open(DENSE) as goes_on:
            assert put_value(goes_on, b"x").base_offset == kept
        return
    with shop.open(DENSE, accept_loss=True) as accepted:
        assert [(x.first_offset, x.next_offset) for x in accepted.recovery.losses] == [(kept, 9)]
        assert put_value(accepted, b"x").base_offset == 9
        assert len(values(accepted)) == kept + 1
    with shop.open(DENSE) as later:
        assert not [f for f in later.recovery.findings if f.severity == "error"]


def test_the_logs_of_the_last_two_segments_are_empty(shop: Workshop) -> None:
    a_store(shop, partitions=1).close()
    for path in (*(ROOT / name for name in CHECKPOINTS), *snapshots(shop)):
        if shop.fs.exists(path):
            shop.fs.remove(path)
    for base in shop.bases()[-2:]:
        shop.truncate(0, base_offset=base)
    with shop.open(SETTINGS) as again, pytest.raises(MissingPartitions, match="names offset"):
        put_value(again, b"x")


@pytest.mark.parametrize(
    "entry", [(20, 75 * 5), (1 << 30, 75 * 8), (8, 1 << 30), (9, 75 * 8 + 1)], ids=str
)
def test_an_entry_with_one_wrong_number_names_no_lost_record(
    shop: Workshop, entry: tuple[int, int]
) -> None:
    shop = an_indexed_store(shop, clean=True)
    whole = shop.bytes_of(0, names.INDEX)
    shop.put(shop.path(0, names.INDEX), whole[:-8] + struct.pack(">ii", *entry))
    with shop.open(DENSE) as store:
        assert [f.severity for f in store.recovery.findings] == ["warning"]
        assert put_value(store, b"x").base_offset == 9


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("start", [7, 400_000, 1 << 40])
def test_a_log_start_beyond_the_end_hides_nothing_in_silence(
    shop: Workshop, start: int, clean: bool
) -> None:
    store = a_store(shop, partitions=1)
    store.flush()
    store.checkpoint()
    if clean:
        store.close()
    shop = shop.after_kill()
    shop.put(ROOT / names.LOG_STARTS, b"0\n1\nt 0 %d\n" % start)
    assert ("log-start-beyond-end", "error", 0) in found_in(shop)
    report = salvaged(shop)
    assert [(kept.records, kept.next_offset) for kept in report.kept] == [(6, start)]
    assert "log-start-beyond-end" in {f.code for f in report.findings}
    copy = Workshop(shop.fs)
    with open_kafka(
        ROOT.parent / "salvaged", StoreOptions(), fs=copy.fs, clock=copy.clock, read_only=True
    ) as made:
        assert len(values(made)) == 6
    if clean:
        with (
            shop.open(SETTINGS) as again,
            pytest.raises(MissingPartitions, match="below its log start"),
        ):
            put_value(again, b"x")
    with shop.open(SETTINGS, accept_loss=clean) as accepted:
        assert [(x.first_offset, x.next_offset) for x in accepted.recovery.losses] == [(0, start)]
    with shop.open(SETTINGS) as later:
        assert put_value(later, b"x").base_offset == start
        assert values(later) == [b"x"]
    assert not [f for f in verified(shop) if f.severity == "error"]


@pytest.mark.parametrize("start", [0, 3, 6])
def test_a_log_start_up_to_the_end_is_legal(shop: Workshop, start: int) -> None:
    a_store(shop, partitions=1).close()
    shop.put(ROOT / names.LOG_STARTS, b"0\n1\nt 0 %d\n" % start)
    report = salvaged(shop)
    assert (report.losses, report.kept[0].first_offset) == ([], start)
    with shop.open(SETTINGS) as again:
        assert put_value(again, b"x").base_offset == 6
        assert len(values(again)) == 7 - start


@pytest.mark.parametrize("suffixes", [(), (names.LOG,), (names.LOG, names.INDEX)])
def test_the_first_segment_is_missing(shop: Workshop, suffixes: tuple[str, ...]) -> None:
    a_store(shop, partitions=1).close()
    second = shop.bases()[1]
    remove(shop, T0, *suffixes, bases=lambda base: base < second)
    assert ("log-starts-late", "error", 0) in found_in(shop)
    with shop.open(SETTINGS) as again:
        assert [(f.code, f.severity) for f in again.recovery.findings] == [
            ("log-starts-late", "error")
        ]
        assert again.bounds(T0)[::2] == (second, 6)
    losses = known_losses(shop.fs, ROOT)[T0]
    assert [(loss.first_offset, loss.next_offset) for loss in losses] == [(0, second)]
    assert shop.open(SETTINGS).recovery.findings == []


@pytest.mark.parametrize("suffixes", [(), (names.LOG,)])
def test_a_middle_segment_is_missing(shop: Workshop, suffixes: tuple[str, ...]) -> None:
    a_store(shop, partitions=1).close()
    middle = shop.bases()[1]
    remove(shop, T0, *suffixes, bases=lambda base: base == middle)
    assert ("offset-gap", "error", 0) in found_in(shop)
    for read_only in (True, False, False):  # every start reports the gap
        with shop.open(SETTINGS, read_only=read_only) as again:
            gaps = [(f.code, f.severity, f.offset) for f in again.recovery.findings]
            assert ("offset-gap", "error", middle) in gaps
            assert not again.topics()["t"].missing
    with shop.open(SETTINGS) as again:
        assert put_value(again, b"x").base_offset == 6


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("lost", [(1,), (1, 2), (2, 4)], ids=str)
def test_a_start_reports_the_segments_that_are_missing(
    shop: Workshop, lost: tuple[int, ...], clean: bool
) -> None:
    a_store(shop, partitions=1, records=12).close()
    bases = shop.bases()
    gone = {bases[at] for at in lost}
    remove(shop, T0, bases=lambda base: base in gone)
    if not clean:
        shop.fs.remove(MARKER)
    with shop.open(SETTINGS) as store:
        gaps = [f for f in store.recovery.findings if f.code == "offset-gap"]
        expected = [base for at, base in enumerate(bases) if at in lost and at - 1 not in lost]
        assert [f.offset for f in gaps] == expected
        assert put_value(store, b"x").base_offset == 12


@pytest.mark.parametrize("why", ["topic", "cleaner", "batch"])
def test_gaps_that_compaction_explains_are_not_reported(shop: Workshop, why: str) -> None:
    a_store(shop, partitions=1).close()
    middle, following = shop.bases()[1], shop.bases()[2]
    remove(shop, T0, bases=lambda base: base == middle)
    if why == "topic":
        shop.fs.rename(ROOT / "t-0", ROOT / "__transaction_state-0")
    elif why == "cleaner":
        shop.put(ROOT / names.CLEANER_OFFSETS, b"0\n1\nt 0 %d\n" % following)
    else:
        first = shop.bases()[0]
        count = middle - first
        data = encode_batch(
            [(b"k", b"v", (), 1)] * count, base_offset=first, leader_epoch=0, now_ms=1
        )
        horizon = bytearray(data)
        horizon[22] |= 1 << 6
        horizon[17:21] = crc32c(bytes(horizon[21:])).to_bytes(4, "big")
        shop.put(shop.path(first), bytes(horizon))
    with shop.open(SETTINGS) as store:
        assert "offset-gap" not in {f.code for f in store.recovery.findings}


@pytest.mark.parametrize(
    "kept", [(names.INDEX,), (names.TIME_INDEX,), (names.INDEX, names.TIME_INDEX)]
)
def test_of_the_last_segment_an_index_without_entries_is_left(
    shop: Workshop, kept: tuple[str, ...]
) -> None:
    """After an unclean stop the recovery point does not cover the last segment, which had a record."""
    a_store(shop, partitions=1).close()
    last = shop.bases()[-1]
    remove(shop, T0, bases=lambda base: base >= last)
    shop.fs.remove(MARKER)
    shop.put(ROOT / names.RECOVERY_POINTS, b"0\n1\nt 0 0\n")
    for name in (names.HIGH_WATERMARKS, names.LOG_STARTS):
        shop.put(ROOT / name, b"0\n0\n")
    for suffix in kept:
        shop.put(shop.path(last, suffix), bytes(24))
    assert ("segment-without-log", "warning", 0) in found_in(shop)
    for read_only in (True, False):
        with shop.open(SETTINGS, read_only=read_only) as store:
            found = {f.code: f.offset for f in store.recovery.findings}
            assert found["segment-without-log"] == last
            assert store.bounds(T0).end == last
    with shop.open(SETTINGS) as store:
        assert store.recovery.findings == []


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("lost", [(1,), (2, 3), (1, 3)], ids=str)
def test_of_a_compacted_log_segments_are_missing_and_their_indexes_are_there(
    shop: Workshop, lost: tuple[int, ...], clean: bool
) -> None:
    a_store(shop, partitions=1, records=12).close()
    bases = shop.bases()
    gone = {bases[at] for at in lost}
    remove(shop, T0, names.LOG, bases=lambda base: base in gone)
    shop.put(ROOT / names.CLEANER_OFFSETS, b"0\n1\nt 0 %d\n" % bases[-1])
    if not clean:
        shop.fs.remove(MARKER)
    assert [f.code for f in verified(shop)].count("segment-without-log") == len(lost)
    report = salvaged(shop)
    named = {n for loss in report.losses for n in range(loss.first_offset, loss.next_offset or 0)}
    following = dict(pairwise([*bases, 12]))
    assert named >= {n for base in gone for n in range(base, following[base])}
    with shop.open(SETTINGS) as again:
        found = [f.offset for f in again.recovery.findings if f.code == "segment-without-log"]
        assert found == sorted(gone)
    kept = known_losses(shop.fs, ROOT)[T0]
    assert [loss.first_offset for loss in kept] == sorted(gone)
    following = dict(pairwise([*shop.bases(), 12]))
    assert {loss.next_offset for loss in kept} <= following.keys()
    assert shop.open(SETTINGS).recovery.findings == [], "the report of the first start keeps it"


def test_what_compaction_leaves_of_merged_segments_is_no_loss(shop: Workshop) -> None:
    """The cleaner merges several segments into one, and a crash leaves the index of a merged segment."""
    a_store(shop, partitions=1, records=12).close()
    bases = shop.bases()
    merged = shop.bytes_of(bases[0]) + shop.bytes_of(bases[1])
    remove(shop, T0, names.LOG, bases=lambda base: base == bases[1])
    shop.put(shop.path(bases[0]), merged)
    shop.put(ROOT / names.CLEANER_OFFSETS, b"0\n1\nt 0 %d\n" % bases[-1])
    assert "segment-without-log" not in {code for code, _, _ in found_in(shop)}
    with shop.open(SETTINGS) as store:
        assert "segment-without-log" not in {f.code for f in store.recovery.findings}


def test_a_refused_partition_is_not_sealed_by_a_marker(shop: Workshop) -> None:
    """After an unclean stop the files of a refused partition stay unchanged, and a broker must still check them."""
    store = a_store(shop, partitions=2)
    store.checkpoint()
    shop = shop.after_kill()
    remove(shop, T0, names.LOG, bases=lambda _: True)
    shop.open(SETTINGS).close()
    assert not shop.fs.exists(MARKER)
    shop.open(SETTINGS, accept_loss=True).close()
    assert shop.fs.exists(MARKER)


def test_a_topic_with_a_refused_partition_can_be_deleted(shop: Workshop) -> None:
    a_store(shop, partitions=2).close()
    remove(shop, T0, names.LOG, bases=lambda _: True)
    with shop.open(SETTINGS) as store:
        store.delete_topic("t")
        store.create_topic("t", 1)
        assert put_value(store, b"x").base_offset == 0
    assert found_in(shop) == set()


# ---- committed offsets -----------------------------------------------------------------------------------------------


def test_groups_of_a_missing_home_are_told_so_and_others_go_on(shop: Workshop) -> None:
    """The home of a group depends on the number of all partitions, not of the partitions that are left."""
    store = a_store(shop, partitions=1)
    groups = [f"g{n}" for n in range(8)]
    for n, group in enumerate(groups):
        store.commit_offsets([GroupCommit(group, {T0: CommittedOffset(n % 6)})])
    store.close()
    shop.fs.remove_tree(ROOT / "__consumer_offsets-0")
    with closing(shop.open(SETTINGS)) as again:
        left = again.groups()
        assert 0 < len(left) < len(groups)
        for n, group in enumerate(groups):
            if group in left:
                assert again.committed(group)[T0].offset == n % 6
                again.commit_offsets([GroupCommit(group, {T0: CommittedOffset(1)})])
                continue
            with pytest.raises(MissingPartitions):
                again.committed(group)
            with pytest.raises(MissingPartitions):
                again.commit_offsets([GroupCommit(group, {T0: CommittedOffset(1)})])


def test_a_commit_far_beyond_everything_counts_for_nothing(shop: Workshop) -> None:
    """Clients may commit any number, so a committed offset far beyond the log does not move the log end."""
    store = a_store(shop, partitions=1)
    store.commit_offsets([GroupCommit("g", {T0: CommittedOffset(1 << 60)})])
    store.flush()
    with shop.after_kill().open(SETTINGS) as again:
        assert put_value(again, b"x").base_offset == 6


def test_nothing_is_changed_by_looking(shop: Workshop) -> None:
    a_store(shop).close()
    remove(shop, T0, names.LOG, bases=lambda _: True)
    shop.fs.remove_tree(ROOT / "t-1")
    view = OverlayFileSystem(shop.fs)
    other = Workshop(view)
    verified(other)
    other.open(SETTINGS, read_only=True).close()
    assert view.changed() == []
    assert segment_name(0) not in shop.names()


# ---- splits of a store -----------------------------------------------------------------------------------------------

SPLIT_OF = {
    "the last segment": "checkpoint-ahead",
    "the last segments": "checkpoint-ahead",
    "the last log": "checkpoint-ahead",
    "named by a snapshot": "log-ends-below-named",
    "all logs": "partition-without-logs",
    "all files": "partition-without-logs",
    "hidden": "log-start-beyond-end",
}


def hurt(shop: Workshop, case: str, of: TopicPartition) -> None:
    """Remove or hide records at the end of a partition after a clean stop."""
    bases = shop.bases(of=of)
    if case.startswith("all"):
        remove(shop, of, *((names.LOG,) if case == "all logs" else ()), bases=lambda _: True)
    elif case == "named by a snapshot":
        for name in (names.RECOVERY_POINTS, names.HIGH_WATERMARKS):
            shop.fs.remove(ROOT / name)
        remove(shop, of, names.LOG, names.INDEX, names.TIME_INDEX, bases=lambda b: b >= bases[-1])
    elif case == "hidden":
        shop.put(ROOT / names.LOG_STARTS, b"0\n1\n%s %d 7\n" % (of.topic.encode(), of.partition))
    else:
        first = bases[-2] if case == "the last segments" else bases[-1]
        suffixes = (names.LOG,) if case == "the last log" else ()
        remove(shop, of, *suffixes, bases=lambda base: base >= first)


@pytest.mark.parametrize("of", [T0, T1, T2])
@pytest.mark.parametrize("case", SPLIT_OF)
def test_splits_name_a_partition_that_misses_its_end(
    shop: Workshop, case: str, of: TopicPartition
) -> None:
    """The partition is reported from its first request until its files are restored."""
    a_store(shop).close()
    before = {name: shop.fs.read_bytes(ROOT / str(of) / name) for name in shop.names(of)}
    hurt(shop, case, of)
    expected = [(SPLIT_OF[case], "error", of.partition)]
    with shop.open(SETTINGS, read_only=True) as shown:
        counts = [len(values(shown, at)) for at in (T0, T1, T2)]
    with closing(splitter_of(shop, SETTINGS)) as splitter:
        assert splitter.missing() == []
        for _ in range(3):
            rows = read_rows(shop, splitter.plan(whole(splitter)))
            assert [sum(row.partition == at for row in rows) for at in (T0, T1, T2)] == counts
            found = [(f.code, f.severity, f.partition) for f in splitter.missing()]
            assert found == expected
            splitter.refresh()
        for name, data in before.items():
            shop.put(ROOT / str(of) / name, data)
        if case == "hidden":  # no file of the partition has changed
            return
        splitter.refresh()
        assert len(read_rows(shop, splitter.plan(whole(splitter)))) == 18
        assert splitter.missing() == []


@pytest.mark.parametrize("clean", [True, False])
def test_splits_of_a_store_that_lacks_nothing_name_nothing(shop: Workshop, clean: bool) -> None:
    """A complete store is reported as complete, also while the server appends to it."""
    store = a_store(shop)
    store.checkpoint()
    if clean:
        store.close()
    with closing(splitter_of(shop, SETTINGS)) as splitter:
        for _ in range(3):
            whole(splitter)
            assert splitter.missing() == []
            if not clean:
                put_value(store, b"more")
                store.checkpoint()
            splitter.refresh()
