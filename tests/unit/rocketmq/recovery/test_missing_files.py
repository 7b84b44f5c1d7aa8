"""Missing files: log files, queue folders and config files that other files still refer to.

A writable start never assigns an offset or a physical offset again that some file shows as used. Missing data is an
error of `verify` and a lost range of `salvage`.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from storage import Finding, LossReport, StoreOptions, TopicPartition, open_inspector, open_splitter
from storage.columns import OffsetRange
from storage.errors import Corrupt, DamagedStore, InvalidConfig
from storage.files import OverlayFileSystem
from storage.rocketmq.columns.queue_entries import SplitPlan
from storage.rocketmq.format.checkpoint import Checkpoint, decode_checkpoint, encode_checkpoint
from storage.rocketmq.format.names import file_name
from tests.robustness.crash.power import Power
from tests.unit.rocketmq.recovery.outage import mixed, tree
from tests.unit.rocketmq.workshop import (
    LOG_BYTES,
    ROOT,
    SMALL,
    T0,
    Workshop,
    on,
    place_of,
    put_file,
    put_value,
    values,
)

T1 = TopicPartition("t", 1)
COUNT = 30
OFFSETS = ROOT / "config" / "consumerOffset.json"


@pytest.fixture
def shop() -> Workshop:
    """A cleanly stopped store with COUNT records in each of two queues, in several log files."""
    shop = Workshop()
    with shop.open_with_topic(partitions=2) as store:
        for number in range(COUNT):
            shop.clock.now_ms += 10
            put_value(store, b"a%d" % number)
            put_value(store, b"b%d" % number, T1)
    assert len(shop.log_bases()) > 4
    return shop


def drop_log(shop: Workshop, *numbers: int) -> None:
    bases = shop.log_bases()
    for number in numbers:
        shop.fs.remove(shop.log_path(bases[number]))


def drop_folder(name: str) -> Callable[[Workshop], None]:
    return lambda shop: shop.fs.remove_tree(ROOT / name)


def last_log_file(shop: Workshop) -> None:
    drop_log(shop, -1)


def two_last_log_files(shop: Workshop) -> None:
    drop_log(shop, -1, -2)


def second_and_last_log_file(shop: Workshop) -> None:
    drop_log(shop, 1, -1)


def last_log_file_and_queues(shop: Workshop) -> None:
    """Remove the last log file and the queues; checkpoint and index refer to the lost records."""
    drop_log(shop, -1)
    drop_folder("consumequeue")(shop)


def last_log_file_queues_and_checkpoint(shop: Workshop) -> None:
    """Remove the checkpoint too; only the index refers to the lost records."""
    last_log_file_and_queues(shop)
    shop.fs.remove(ROOT / "checkpoint")


def all_but_queues(shop: Workshop) -> None:
    """Remove log, index and checkpoint; only the queue entries refer to the lost records."""
    drop_folder("commitlog")(shop)
    drop_folder("index")(shop)
    shop.fs.remove(ROOT / "checkpoint")


def all_but_checkpoint(shop: Workshop) -> None:
    for name in ("commitlog", "index", "consumequeue"):
        drop_folder(name)(shop)


def times_alone(shop: Workshop) -> None:
    """Remove last log file, queues and index; leave a checkpoint of 4.x, which has three times and no offset."""
    last_log_file_and_queues(shop)
    drop_folder("index")(shop)
    found = decode_checkpoint(shop.fs.read_bytes(ROOT / "checkpoint"))
    data = encode_checkpoint(Checkpoint(*found[:3]))[:24]
    shop.fs.remove(ROOT / "checkpoint")
    put_file(shop.fs, ROOT / "checkpoint", data)


def zeroed_last_log_file(shop: Workshop) -> None:
    """Fill the last log file with zeros after a clean stop, when no write was under way."""
    shop.overwrite(shop.log_path(shop.log_bases()[-1]), 0, bytes(LOG_BYTES))


LOST = [
    last_log_file,
    two_last_log_files,
    second_and_last_log_file,
    last_log_file_and_queues,
    last_log_file_queues_and_checkpoint,
    drop_folder("commitlog"),
    all_but_queues,
    all_but_checkpoint,
    times_alone,
    zeroed_last_log_file,
]


def verified(shop: Workshop) -> list[Finding]:
    inspector = open_inspector(ROOT, StoreOptions(settings=SMALL), fs=shop.fs, clock=shop.clock)
    try:
        return list(inspector.verify())
    finally:
        inspector.close()


def salvaged(shop: Workshop, target: Path = ROOT.parent / "new") -> LossReport:
    inspector = open_inspector(ROOT, StoreOptions(settings=SMALL), fs=shop.fs, clock=shop.clock)
    try:
        return inspector.salvage(target)
    finally:
        inspector.close()


def errors_of(findings: list[Finding]) -> set[str]:
    return {f.code for f in findings if f.severity == "error"}


@pytest.mark.parametrize("lose", LOST)
@pytest.mark.parametrize("abort", [False, True])
def test_used_physical_offsets_are_not_given_again(
    shop: Workshop, lose: Callable[[Workshop], None], abort: bool
) -> None:
    """The start fails and changes nothing; with `accept_loss` both kinds of offsets continue above the used ones."""
    end = shop.open(read_only=True).log.end
    lose(shop)
    if abort:
        if lose in (times_alone, zeroed_last_log_file):
            return  # a crash may leave this state
        put_file(shop.fs, ROOT / "abort", b"7")
    before = shop.files()
    with pytest.raises(
        DamagedStore, match=r"other files name later records|above the end"
    ) as refused:
        shop.open()
    assert "--accept-loss" in refused.value.message
    assert shop.files() == before
    assert "log-ends-early" in errors_of(verified(shop))
    has_entries = shop.names("consumequeue")
    opened = shop.open(accept_loss=True)
    with opened as store:
        assert opened.log.end > end - LOG_BYTES if lose is times_alone else opened.log.end > end
        placed = put_value(store, b"new")
        assert store.recovery.losses
        if has_entries:
            assert placed.base_offset == COUNT
        assert store.read(T0, placed.base_offset).records[0].value == b"new"
    with shop.open() as store:
        assert store.read(T0, placed.base_offset).records[0].value == b"new"
        assert put_value(store, b"newer").base_offset == placed.base_offset + 1


def test_lost_records_are_errors_of_their_readers_and_not_silence(shop: Workshop) -> None:
    last_log_file(shop)
    with shop.open(accept_loss=True) as store:
        bounds = store.bounds(T0)
        assert bounds.end == COUNT
        with pytest.raises(Corrupt):
            store.read(T0, COUNT - 1)
        put_value(store, b"new")
        assert store.read(T0, COUNT).records[0].value == b"new"


@pytest.mark.parametrize("lose", LOST[:-1])
def test_a_salvage_reports_what_only_other_files_name(
    shop: Workshop, lose: Callable[[Workshop], None]
) -> None:
    lose(shop)
    report = salvaged(shop)
    missing = [loss for loss in report.losses if loss.reason == "missing"]
    assert missing
    assert "log-ends-early" in {f.code for f in report.findings}


def test_a_middle_file_that_is_missing_is_told_and_nothing_is_given_again(shop: Workshop) -> None:
    drop_log(shop, 2)
    found = [f for f in verified(shop) if f.code == "missing-file"]
    assert [f.path for f in found] == [str(shop.log_path(2 * LOG_BYTES))]
    report = salvaged(shop)
    assert {loss.reason for loss in report.losses} == {"missing"}
    with shop.open() as store:
        assert "missing-log-file" in {f.code for f in store.recovery.findings}
        assert put_value(store, b"new").base_offset == COUNT


def dumped(shop: Workshop) -> dict[int, object]:
    """Return the values of all records, by physical offset."""
    inspector = open_inspector(ROOT, StoreOptions(settings=SMALL), fs=shop.fs, clock=shop.clock)
    rows = [row for run in inspector.dump("records") for row in run]
    inspector.close()
    return {int(str(row["physicalOffset"])): row["body"] for row in rows}


def test_a_missing_file_hides_no_record_of_another_file(shop: Workshop) -> None:
    """The first records after a hole are within reach of a read that failed in the hole."""
    base = shop.log_bases()[2]
    kept = {at: v for at, v in dumped(shop).items() if not base <= at < base + LOG_BYTES}
    assert len(kept) < 2 * COUNT
    drop_log(shop, 2)
    assert dumped(shop) == kept


def test_over_a_gap_the_log_goes_on_once_it_is_accepted(shop: Workshop) -> None:
    """All queues are lost too, so that a start has to walk across the gap."""
    drop_log(shop, 2)
    drop_folder("consumequeue")(shop)
    bases = shop.log_bases()
    with pytest.raises(DamagedStore):
        shop.open()
    with shop.open(accept_loss=True) as store:
        assert store.bounds(T0).end == COUNT
        put_value(store, b"new")
    assert shop.log_bases()[: len(bases)] == bases
    drop_folder("consumequeue")(shop)
    with shop.open() as store:
        assert store.bounds(T0).end == COUNT + 1


def test_a_missing_head_is_told_where_retention_leaves_no_such_queue_files(shop: Workshop) -> None:
    drop_log(shop, 0, 1, 2)
    assert "log-begins-late" in errors_of(verified(shop))
    assert "log-begins-late" in {f.code for f in salvaged(shop).findings}
    queues = shop.queue_bases()
    with shop.open() as store:
        assert "log-begins-late" in {f.code for f in store.recovery.findings}
        assert put_value(store, b"new").base_offset == COUNT
    assert shop.queue_bases()[: len(queues)] == queues, "they may be wanted again"


def group_at(offset: int, topic: str = "t", queue_id: int = 0) -> bytes:
    return json.dumps({"offsetTable": {f"{topic}@g": {str(queue_id): offset}}}).encode()


@pytest.mark.parametrize("offset", [COUNT + 1, COUNT + 7, 5000])
def test_an_offset_of_a_group_above_a_queue_is_used(shop: Workshop, offset: int) -> None:
    """The checkpoint is missing, so nothing proves the end of the log."""
    put_file(shop.fs, OFFSETS, group_at(offset))
    shop.fs.remove(ROOT / "checkpoint")
    with pytest.raises(DamagedStore, match=f"offset {offset} of group g"):
        shop.open()
    assert "queue-ends-early" in errors_of(verified(shop))
    report = salvaged(shop)
    assert (COUNT, offset) in {(loss.first_offset, loss.next_offset) for loss in report.losses}
    with shop.open(accept_loss=True) as store:
        assert put_value(store, b"new").base_offset == offset
        assert put_value(store, b"other", T1).base_offset == COUNT
        assert store.read(T0, offset).records[0].value == b"new"
    with shop.open() as store:
        assert put_value(store, b"newer").base_offset == offset + 1


def test_a_queue_of_which_nothing_is_left_goes_on_above_the_groups(shop: Workshop) -> None:
    """The queue's records were deleted by age, and its folder is missing."""
    bases = shop.log_bases()
    with shop.open() as store:
        for number in range(60):
            put_value(store, b"c%d" % number, T1)
    drop_log(shop, *range(len(bases)))
    shop.fs.remove_tree(ROOT / "consumequeue" / "t" / "0")
    shop.fs.remove_tree(ROOT / "index")
    put_file(shop.fs, OFFSETS, group_at(COUNT))
    with pytest.raises(DamagedStore, match="group g"):
        shop.open()
    with shop.open(accept_loss=True) as store:
        assert put_value(store, b"new").base_offset == COUNT
        assert values(store) == [b"new"]


def test_an_offset_of_an_earlier_topic_only_warns(shop: Workshop) -> None:
    """The checkpoint of a clean stop names the last record of the log: no later record is lost."""
    put_file(shop.fs, OFFSETS, group_at(COUNT + 5))
    found = {f.code: f.severity for f in verified(shop)}
    assert found["queue-ends-early"] == "warning"
    with shop.open() as store:
        assert put_value(store, b"new").base_offset == COUNT


def test_the_name_of_a_topic_alone_is_no_loss(shop: Workshop) -> None:
    put_file(shop.fs, OFFSETS, group_at(9, "gone"))
    found = {f.code: f.severity for f in verified(shop)}
    assert found["name-of-deleted-topic"] == "info"
    shop.open().close()


def test_a_topic_with_another_queue_exists(shop: Workshop) -> None:
    """topics.json is missing, queue 7 has no folder, and a group has read from it."""
    put_file(shop.fs, OFFSETS, group_at(9, "t", 7))
    shop.fs.remove(ROOT / "config" / "topics.json")
    shop.fs.remove(ROOT / "checkpoint")
    codes = errors_of(verified(shop))
    assert {"queue-ends-early", "missing-config-file"} <= codes
    with pytest.raises(DamagedStore):
        shop.open()
    with shop.open(accept_loss=True) as store:
        assert put_value(store, b"new", TopicPartition("t", 7)).base_offset == 9


@pytest.mark.parametrize("flipped", [0, 3, 6])
def test_a_wrong_entry_is_no_evidence(shop: Workshop, flipped: int) -> None:
    """The log has the record with its offset: an error in a derived file does not block a start."""
    base = shop.queue_bases()[-1]
    path = ROOT / "consumequeue" / "t" / "0" / file_name(base)
    entry = (COUNT - 1) * 20 - base
    data = bytearray(shop.fs.read_bytes(path))
    data[entry + flipped] ^= 0x40
    shop.overwrite(path, 0, bytes(data))
    shop.fs.remove(ROOT / "checkpoint")
    with shop.open() as store:
        assert store.bounds(T0).end == COUNT


def test_a_delivered_delay_level_is_a_used_offset(shop: Workshop) -> None:
    put_file(shop.fs, ROOT / "config" / "delayOffset.json", b'{"offsetTable":{3:12}}')
    assert [f.code for f in verified(shop) if f.topic == "SCHEDULE_TOPIC_XXXX"] == [
        "name-of-deleted-topic"
    ]
    table = json.loads(shop.fs.read_bytes(ROOT / "config" / "topics.json"))
    table["topicConfigTable"]["SCHEDULE_TOPIC_XXXX"] = {
        **table["topicConfigTable"]["t"],
        "topicName": "SCHEDULE_TOPIC_XXXX",
        "readQueueNums": 18,
        "writeQueueNums": 18,
    }
    put_file(shop.fs, ROOT / "config" / "topics.json", json.dumps(table).encode())
    shop.fs.remove(ROOT / "checkpoint")
    with pytest.raises(DamagedStore, match="offset 12 of delay level 3"):
        shop.open()


# ---- log files in other folders ----

DISK = ROOT.parent / "disk2"
HERE = str(ROOT / "commitlog")


def moved(shop: Workshop, numbers: slice) -> None:
    """Move log files to another folder."""
    shop.fs.make_dir(DISK)
    for base in shop.log_bases()[numbers]:
        shop.fs.rename(shop.log_path(base), DISK / file_name(base))


FOLDERS = [
    (slice(1, None, 2), {"storePathCommitLog": f"{HERE},{DISK}"}),
    (slice(0, 3), {"storePathCommitLog": HERE, "readOnlyCommitLogStorePaths": str(DISK)}),
    (slice(None), {"storePathCommitLog": str(DISK)}),
    (slice(2, None), {"storePathCommitLog": f"{DISK} , {HERE}"}),
]


@pytest.mark.parametrize(("numbers", "setting"), FOLDERS)
def test_a_log_in_other_folders_is_whole(
    shop: Workshop, numbers: slice, setting: dict[str, str]
) -> None:
    before = verified(shop)
    with shop.open(read_only=True) as store:
        wanted = values(store), values(store, T1)
    moved(shop, numbers)
    with shop.open(setting, read_only=True) as store:
        assert (values(store), values(store, T1)) == wanted
        assert store.find("t", unique_id="a3").records
    options = StoreOptions(settings={**SMALL, **setting})
    inspector = open_inspector(ROOT, options, fs=shop.fs, clock=shop.clock)
    assert [f.code for f in inspector.verify()] == [f.code for f in before]
    report = inspector.salvage(ROOT.parent / "new")
    assert (report.kept_records, report.losses) == (2 * COUNT, [])
    inspector.close()
    splitter = open_splitter(ROOT, options, fs=shop.fs, clock=shop.clock)
    (split,) = splitter.plan([OffsetRange(T0, 0, COUNT)])
    splitter.close()
    assert isinstance(split.plan, SplitPlan)
    folders = [str(folder) for folder in split.plan.log_folders]
    assert {str(DISK)} <= set(folders) <= {str(DISK), HERE}


@pytest.mark.parametrize(("numbers", "setting"), FOLDERS)
def test_a_log_in_several_folders_is_not_written(
    shop: Workshop, numbers: slice, setting: dict[str, str]
) -> None:
    moved(shop, numbers)
    if numbers.start in (None, 2):
        with pytest.raises(DamagedStore):
            shop.open()
    if "," in setting["storePathCommitLog"] or len(setting) > 1:
        with pytest.raises(InvalidConfig, match="several folders"):
            shop.open(setting)
        return
    with shop.open(setting) as store:
        assert put_value(store, b"new").base_offset == COUNT
    with shop.open(setting) as store:
        assert values(store)[-1] == b"new"
    assert not shop.log_bases()


@pytest.mark.parametrize("value", ["", "a,,b", ","])
def test_a_folder_has_a_name(shop: Workshop, value: str) -> None:
    with pytest.raises(InvalidConfig, match="storePathCommitLog"):
        shop.open({"storePathCommitLog": value})


def test_a_log_file_that_is_not_read_is_told(shop: Workshop) -> None:
    moved(shop, slice(2, None))
    setting = {"storePathCommitLog": str(DISK)}
    inspector = open_inspector(
        ROOT, StoreOptions(settings={**SMALL, **setting}), fs=shop.fs, clock=shop.clock
    )
    found = {f.path for f in inspector.verify() if f.code == "unknown-file"}
    assert found == {str(shop.log_path(base)) for base in shop.log_bases()}
    inspector.close()


def test_a_lost_first_log_file_leaves_entries_that_lead_before_the_log() -> None:
    """Retention leaves such entries too, so the finding is information only."""
    shop = Workshop()
    with shop.open_with_topic() as store:
        for number in range(8):
            put_value(store, b"value-%d" % number)
    shop.fs.remove(shop.log_path(0))
    options = StoreOptions(settings=SMALL)
    inspector = open_inspector(ROOT, options, fs=shop.fs, clock=shop.clock)
    try:
        found = [f for f in inspector.verify() if f.code == "entries-before-log"]
    finally:
        inspector.close()
    assert [(f.topic, f.partition, f.offset, f.severity) for f in found] == [("t", 0, 0, "info")]
    assert f"physical offset {LOG_BYTES}" in found[0].message


def all_but_index(shop: Workshop) -> None:
    for name in ("commitlog", "consumequeue"):
        drop_folder(name)(shop)
    shop.fs.remove(ROOT / "checkpoint")


def two_last_log_files_queues_and_checkpoint(shop: Workshop) -> None:
    drop_log(shop, -1)
    last_log_file_queues_and_checkpoint(shop)


@pytest.mark.parametrize(
    "lose",
    [
        last_log_file_queues_and_checkpoint,
        two_last_log_files_queues_and_checkpoint,
        all_but_index,
    ],
)
@pytest.mark.parametrize("abort", [False, True])
def test_no_crash_while_the_log_goes_on_above_takes_the_index_that_names_lost_records(
    shop: Workshop, lose: Callable[[Workshop], None], abort: bool
) -> None:
    """Only the index refers to the lost records: it is cut after the log's end above them is on disk."""
    end = shop.open(read_only=True).log.end
    lose(shop)
    if abort:
        put_file(shop.fs, ROOT / "abort", b"7")
    power, dice = Power(shop.fs), random.Random(0)
    left: dict[int, OverlayFileSystem] = {}

    def look(operation: str, path: Path) -> None:
        if operation != "open" and path.is_relative_to(ROOT):
            for disk in (power.cut(), mixed(power.cut(), power, dice, 512)):
                left.setdefault(hash(frozenset(tree(disk).items())), disk)

    power.before = look
    on(power, shop).open(accept_loss=True)
    went_on = 0
    for disk in left.values():
        found = on(disk, shop)
        try:
            store = found.open()
            went_on += 1
        except DamagedStore:
            store = found.open(accept_loss=True)
        with store:
            if "t" not in store.topics():
                store.create_topic("t", 2)
            assert place_of(put_value(store, b"new")) > end
    assert 0 < went_on < len(left)
