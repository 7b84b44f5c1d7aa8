"""`logserver verify` on RocketMQ's stores: each kind of damage is reported at its place, with its code."""

from __future__ import annotations

import json
import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple
from zlib import crc32

import pytest

from storage import Record, StoreOptions, TopicPartition, open_store
from storage.findings import catalogue
from tests.cli.runner import fine, run, settings_options
from tests.contract.harness import ManualClock
from tests.golden import rocketmq_stores as stores
from tests.golden.rocketmq_stores import GoldenStore, Row

QUEUE = ("order_s1", 0)
UNIT = struct.Struct(">qiq")
QUEUE_OFFSET, PHYSICAL_OFFSET, BODY_CRC, BODY = 20, 28, 8, 88
QUEUE_ID, SYS_FLAG, STORE_TIME, STORE_HOST = 12, 36, 56, 64


class Damage(NamedTuple):
    """A kind of damage: `inflict` damages a copy of a golden store and returns path and position of the finding."""

    code: str
    severity: str
    inflict: Callable[[Path], tuple[Path, int | None]]
    store: str = "small"


# ---- file positions --------------------------------------------------------------------------------------------------


def rows(store: str = "small", queue: tuple[str, int] = QUEUE) -> list[Row]:
    """Return the records of a queue."""
    return [r for r in stores.golden(store).expected() if (r["topic"], r["queueId"]) == queue]


def place(root: Path, physical_offset: int, store: str = "small") -> tuple[Path, int]:
    """Return the log file of a physical offset, and the position in it."""
    size = stores.golden(store).file_bytes
    base = physical_offset - physical_offset % size
    return root / "commitlog" / f"{base:020}", physical_offset - base


def unit_place(root: Path, offset: int, queue: tuple[str, int] = QUEUE) -> tuple[Path, int]:
    """Return the queue file of a queue offset, and the position in it."""
    size = int(stores.golden("small").settings["mappedFileSizeConsumeQueue"])
    base = offset * UNIT.size - offset * UNIT.size % size
    return root / "consumequeue" / queue[0] / str(queue[1]) / f"{base:020}", offset * 20 - base


def index_files(root: Path) -> list[Path]:
    return sorted((root / "index").iterdir())


def slots_of(store: str = "small") -> int:
    return int(stores.golden(store).settings["maxHashSlotNum"])


def entry_place(path: Path, number: int) -> int:
    return 40 + 4 * slots_of() + 20 * number


def patch(path: Path, position: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(position)
        file.write(data)


def peek(path: Path, position: int, size: int) -> bytes:
    return path.read_bytes()[position : position + size]


# ---- damage ----------------------------------------------------------------------------------------------------------


def in_a_record(root: Path, at: int, data: bytes, number: int = 5) -> tuple[Path, int]:
    """Overwrite bytes of a record; return the place of the finding, which is the beginning of the record."""
    path, position = place(root, rows()[number]["physicalOffset"])
    patch(path, position + at, data)
    return path, position


def a_flipped_bit(root: Path) -> tuple[Path, int]:
    return in_a_record(root, BODY + 3, b"\xff")


def a_zeroed_record(root: Path) -> tuple[Path, int]:
    return in_a_record(root, 0, bytes(rows()[5]["size"]))


def a_torn_record(root: Path) -> tuple[Path, int]:
    last = max(stores.golden("small").expected(), key=lambda row: int(row["physicalOffset"]))
    path, position = place(root, last["physicalOffset"])
    patch(path, position + 60, bytes(last["size"] - 60))
    return path, position


def another_place(root: Path) -> tuple[Path, int]:
    return in_a_record(root, PHYSICAL_OFFSET, struct.pack(">q", 7))


def in_properties(root: Path, at: int, data: bytes) -> tuple[Path, int]:
    """Overwrite bytes of a record's properties."""
    row = rows()[5]
    start = BODY + row["bodyLength"] + 1 + len(row["topic"]) + 2
    return in_a_record(root, start + at, data)


def zeros_in_properties(root: Path) -> tuple[Path, int]:
    return in_properties(root, 2, b"\0\0")


def no_name_and_value(root: Path) -> tuple[Path, int]:
    return in_properties(root, len(next(iter(rows()[5]["properties"]))), b"=")


def a_control_character_in_the_topic(root: Path) -> tuple[Path, int]:
    return in_a_record(root, BODY + rows()[5]["bodyLength"] + 2, b"\x07")


def no_store_time(root: Path) -> tuple[Path, int]:
    return in_a_record(root, STORE_TIME, struct.pack(">q", -1))


def a_store_time_of_other_years(root: Path) -> tuple[Path, int]:
    return in_a_record(root, STORE_TIME, struct.pack(">q", 1_000_000_000_000))


def an_unknown_flag(root: Path) -> tuple[Path, int]:
    return in_a_record(root, SYS_FLAG, struct.pack(">i", 1 << 20))


def a_later_flag(root: Path) -> tuple[Path, int]:
    return in_a_record(root, SYS_FLAG, struct.pack(">i", 1 << 11))


def later_flags_and_a_compression(root: Path) -> tuple[Path, int]:
    """Set all flags of later versions. The body is not compressed, so it is served whatever the compression type."""
    return in_a_record(root, SYS_FLAG, struct.pack(">i", 0xF400))


def a_later_compression(root: Path) -> tuple[Path, int]:
    return in_a_record(root, SYS_FLAG, struct.pack(">i", 0x501))


def a_negative_flag(root: Path) -> tuple[Path, int]:
    return in_a_record(root, SYS_FLAG, struct.pack(">i", -(1 << 31)))


def a_port_that_is_none(root: Path) -> tuple[Path, int]:
    return in_a_record(root, STORE_HOST + 4, struct.pack(">i", 1 << 24))


def a_wrong_crc_property(root: Path) -> tuple[Path, int]:
    return in_a_record(root, rows()[5]["size"] - 20, b"__CRC32#\x010123456789\x02")


def a_body_that_was_never_compressed(root: Path) -> tuple[Path, int]:
    row = next(r for r in stores.golden("bodies").expected() if "plainLength" in r)
    path, position = place(root, row["physicalOffset"], "bodies")
    body = b"\x5a" * row["bodyLength"]
    patch(path, position + BODY, body)
    patch(path, position + BODY_CRC, struct.pack(">I", crc32(body) & 0x7FFFFFFF))
    return path, position


def the_same_offset_twice(root: Path) -> tuple[Path, int]:
    in_a_record(root, QUEUE_OFFSET, struct.pack(">q", 4))
    return unit_place(root, 5)


def a_later_offset(root: Path) -> tuple[Path, int]:
    last = len(rows()) - 1
    in_a_record(root, QUEUE_OFFSET, struct.pack(">q", last + 3), last)
    return unit_place(root, last)


def a_jump_of_offsets(root: Path) -> tuple[Path, int]:
    a_later_offset(root)
    return unit_place(root, len(rows()) - 1)


def fillers_inside(root: Path) -> tuple[Path, int]:
    """Write fillers, as earlier versions of this project did in a queue with missing records."""
    a_later_offset(root)
    last, row = len(rows()) - 1, rows()[-1]
    for offset in range(last, last + 3):
        in_a_unit(root, offset, 0, 0x7FFFFFFF, 0)
    in_a_unit(root, last + 3, row["physicalOffset"], row["size"], row["tagsCode"])
    return unit_place(root, last)


def no_file_in_the_middle(root: Path) -> tuple[Path, int | None]:
    path = sorted((root / "commitlog").iterdir())[4]
    path.unlink()
    return path, None


def a_short_file(root: Path) -> tuple[Path, int]:
    path, _ = unit_place(root, 0)
    size = path.stat().st_size
    path.write_bytes(path.read_bytes()[:-20])
    return path, size - 20


def in_a_unit(root: Path, offset: int, *unit: int) -> tuple[Path, int]:
    path, position = unit_place(root, offset)
    patch(path, position, UNIT.pack(*unit))
    return path, position


def the_last_unit_zeroed(root: Path) -> tuple[Path, int]:
    return in_a_unit(root, len(rows()) - 1, 0, 0, 0)


def to_another_record(root: Path) -> tuple[Path, int]:
    other = rows()[7]
    return in_a_unit(root, 5, other["physicalOffset"], other["size"], other["tagsCode"])


def another_size(root: Path) -> tuple[Path, int]:
    row = rows()[5]
    return in_a_unit(root, 5, row["physicalOffset"], row["size"] + 1, row["tagsCode"])


def another_tag(root: Path) -> tuple[Path, int]:
    row = rows()[5]
    return in_a_unit(root, 5, row["physicalOffset"], row["size"], 4711)


def one_unit_more(root: Path, at: int, size: int = 100) -> tuple[Path, int]:
    return in_a_unit(root, len(rows()), at, size, 0)


def the_last_index_file_gone(root: Path) -> tuple[Path, None]:
    *_, before, last = index_files(root)
    last.unlink()
    return before, None


def in_an_entry(root: Path, at: int, data: bytes) -> tuple[Path, int]:
    path = index_files(root)[1]
    position = entry_place(path, 9)
    patch(path, position + at, data)
    return path, position


def another_hash(root: Path) -> tuple[Path, int]:
    path = index_files(root)[1]
    (hashed,) = struct.unpack(">i", peek(path, entry_place(path, 9), 4))
    return in_an_entry(root, 0, struct.pack(">i", hashed + slots_of()))


def another_record(root: Path) -> tuple[Path, int]:
    return in_an_entry(root, 4, struct.pack(">q", 1 << 40))


def another_time(root: Path) -> tuple[Path, int]:
    return in_an_entry(root, 12, struct.pack(">i", 77_777))


def another_chain(root: Path) -> tuple[Path, int]:
    return in_an_entry(root, 16, struct.pack(">i", 8))


def a_zeroed_slot(root: Path) -> tuple[Path, int]:
    path = index_files(root)[1]
    slots = struct.unpack(f">{slots_of()}i", peek(path, 40, 4 * slots_of()))
    used = next(slot for slot, value in enumerate(slots) if value)
    patch(path, 40 + 4 * used, bytes(4))
    return path, 40 + 4 * used


def another_slot_count(root: Path) -> tuple[Path, int]:
    path = index_files(root)[1]
    patch(path, 32, struct.pack(">i", 3))
    return path, 0


def a_zeroed_header(root: Path) -> tuple[Path, int]:
    path = index_files(root)[-1]
    patch(path, 0, bytes(40))
    return path, 0


def an_index_behind_the_log(root: Path) -> tuple[Path, int]:
    a_torn_record(root)
    path = index_files(root)[-1]
    at = max(row["physicalOffset"] for row in stores.golden("small").expected())
    entries = stores.golden("small").index_dump[-1]["entries"]
    first = next(number for number, entry in enumerate(entries) if entry[1] == at)
    return path, entry_place(path, first)


def an_index_of_another_size(root: Path) -> tuple[Path, None]:
    path = index_files(root)[1]
    path.write_bytes(path.read_bytes()[:-20])
    return path, None


def ahead(root: Path) -> tuple[Path, None]:
    patch(root / "checkpoint", 40, struct.pack(">q", 1 << 40))
    return root / "checkpoint", None


def a_damaged_config(root: Path) -> tuple[Path, None]:
    path = root / "config" / "delayOffset.json"
    path.write_bytes(b'{"offsetTable":{1:')
    return path, None


def damaged_topics(root: Path) -> tuple[Path, None]:
    path = root / "config" / "topics.json"
    path.write_bytes(b"nonsense")
    return path, None


def a_short_checkpoint(root: Path) -> tuple[Path, None]:
    (root / "checkpoint").write_bytes(b"\0" * 9)
    return root / "checkpoint", None


def a_strange_file(root: Path) -> tuple[Path, None]:
    (root / "index" / "notes.txt").write_text("hello")
    return root / "index" / "notes.txt", None


def a_running_server(root: Path) -> tuple[Path, None]:
    (root / "abort").write_text("7")
    return root, None


def a_log_file_where_none_can_begin(root: Path) -> tuple[Path, None]:
    stray = root / "commitlog/00000000000000000007"
    stray.write_bytes((root / "commitlog/00000000000000000000").read_bytes())
    return stray, None


def a_queue_file_where_none_can_begin(root: Path) -> tuple[Path, None]:
    path, _ = unit_place(root, 0)
    stray = path.with_name("00000000000000000007")
    stray.write_bytes(path.read_bytes())
    return stray, None


DAMAGES = {
    "a flipped bit": Damage("damaged-record", "error", a_flipped_bit),
    "a zeroed record": Damage("damaged-record", "error", a_zeroed_record),
    "a torn record": Damage("torn-tail", "warning", a_torn_record),
    "a body that cannot be unpacked": Damage(
        "undecodable-body", "error", a_body_that_was_never_compressed, "bodies"
    ),
    "another physical offset": Damage("wrong-physical-offset", "warning", another_place),
    "zeros in properties": Damage("suspect-header", "error", zeros_in_properties),
    "no 01 in a property": Damage("suspect-header", "error", no_name_and_value),
    "a control character in a topic": Damage(
        "suspect-header", "error", a_control_character_in_the_topic
    ),
    "a store time below 0": Damage("suspect-header", "warning", no_store_time),
    "a store time of other years": Damage("suspect-header", "warning", a_store_time_of_other_years),
    "a flag of no version": Damage("suspect-header", "warning", an_unknown_flag),
    "a flag below 0": Damage("suspect-header", "warning", a_negative_flag),
    "a flag of a later version": Damage("unknown-record-flags", "warning", a_later_flag),
    "all flags of a later version": Damage(
        "unknown-record-flags", "warning", later_flags_and_a_compression
    ),
    "a compression of a later version": Damage(
        "unknown-record-flags", "error", a_later_compression
    ),
    "a port above 65535": Damage("suspect-header", "warning", a_port_that_is_none),
    "a wrong CRC property": Damage("wrong-property-crc", "error", a_wrong_crc_property),
    "the same offset twice": Damage("offset-repeated", "warning", the_same_offset_twice),
    "a jump of offsets": Damage("offset-gap", "warning", a_jump_of_offsets),
    "a record under another offset": Damage("unit-offset-differs", "warning", a_later_offset),
    "fillers in a queue": Damage("filler-in-queue", "warning", fillers_inside),
    "no log file in the middle": Damage("missing-file", "error", no_file_in_the_middle, "many"),
    "a queue file that is short": Damage("wrong-file-length", "error", a_short_file),
    "a unit zeroed": Damage("missing-unit", "warning", the_last_unit_zeroed),
    "a unit to another record": Damage("wrong-unit", "error", to_another_record),
    "a unit of another size": Damage("wrong-unit", "error", another_size),
    "a unit of another tag": Damage("wrong-tags-code", "warning", another_tag),
    "a unit that is none": Damage("bad-unit", "error", lambda root: one_unit_more(root, -5)),
    "a unit into a record": Damage(
        "unit-points-nowhere", "error", lambda root: one_unit_more(root, 40)
    ),
    "a unit after the log": Damage(
        "unit-beyond-log", "error", lambda root: one_unit_more(root, 1 << 40)
    ),
    "no last index file": Damage("missing-index-entry", "warning", the_last_index_file_gone),
    "another hash": Damage("wrong-index-entry", "warning", another_hash),
    "an entry to another record": Damage("wrong-index-entry", "warning", another_record),
    "an entry of another time": Damage("wrong-index-entry", "warning", another_time),
    "an entry with another chain": Damage("wrong-index-entry", "warning", another_chain),
    "a zeroed slot": Damage("wrong-index-slot", "warning", a_zeroed_slot),
    "another count of slots": Damage("wrong-index-header", "warning", another_slot_count),
    "a zeroed index header": Damage("wrong-index-header", "warning", a_zeroed_header),
    "an index after the log": Damage("index-beyond-log", "warning", an_index_behind_the_log),
    "an index file of another size": Damage("index-file-size", "warning", an_index_of_another_size),
    "a checkpoint ahead": Damage("checkpoint-ahead", "warning", ahead),
    "a short checkpoint": Damage("bad-root-file", "warning", a_short_checkpoint),
    "a damaged config file": Damage("bad-config-file", "warning", a_damaged_config, "broker"),
    "a damaged topics.json": Damage("bad-topics-file", "warning", damaged_topics, "broker"),
    "a misnamed log file": Damage("wrong-file-name", "error", a_log_file_where_none_can_begin),
    "a misnamed queue file": Damage(
        "wrong-file-name", "warning", a_queue_file_where_none_can_begin
    ),
    "a strange file": Damage("unknown-file", "info", a_strange_file),
    "a running server": Damage("unclean-stop", "info", a_running_server),
}


@pytest.mark.parametrize("case", DAMAGES)
def test_damage(case: str, tmp_path: Path) -> None:
    damage = DAMAGES[case]
    golden = stores.golden(damage.store)
    root = stores.copy_store(golden, tmp_path / "store")
    path, position = damage.inflict(root)
    options = settings_options(golden.settings)
    ended = run("verify", root, *options)
    found = [row for row in ended.rows if (row["code"], row["path"]) == (damage.code, str(path))]
    assert [(row["severity"], row["position"]) for row in found[:1]] == [
        (damage.severity, position)
    ]
    assert found[0]["message"]
    wrong = {row["severity"] for row in ended.rows} - {"info"}
    assert ended.code == (1 if wrong else 0)
    shown = run("verify", root, "--output", "table", *options).out.decode()
    assert str(path) in shown
    assert f"[{damage.code}]" in shown


def test_a_unit_tells_what_was_expected(tmp_path: Path) -> None:
    golden = stores.golden("small")
    root = stores.copy_store(golden, tmp_path / "store")
    to_another_record(root)
    (found,) = run("verify", root, *settings_options(golden.settings)).rows
    row, other = rows()[5], rows()[7]
    assert (found["topic"], found["partition"], found["offset"]) == (*QUEUE, 5)
    assert found["expected"] == f"{row['size']} bytes at {row['physicalOffset']}"
    assert found["found"] == f"{other['size']} bytes at {other['physicalOffset']}"


def test_one_flipped_bit_is_one_finding(tmp_path: Path) -> None:
    """Consequences of a flipped bit (a missing offset, a queue entry that points to the record) are not reported."""
    golden = stores.golden("small")
    root = stores.copy_store(golden, tmp_path / "store")
    a_flipped_bit(root)
    (found,) = run("verify", root, *settings_options(golden.settings)).rows
    assert found["code"] == "damaged-record"
    assert "CRC" in found["found"]


@pytest.mark.parametrize("queue_id", [1, 9, 0x4000_0000])
def test_a_record_that_names_another_queue_than_its_entry(queue_id: int, tmp_path: Path) -> None:
    """The queue entry may be right, so the finding advises no command that rebuilds the entry from the record."""
    golden = stores.golden("small")
    root = stores.copy_store(golden, tmp_path / "store")
    in_a_record(root, QUEUE_ID, struct.pack(">i", queue_id))
    found = run("verify", root, *settings_options(golden.settings)).rows
    (named,) = [row for row in found if row["code"] == "suspect-header"]
    assert (named["topic"], named["partition"], named["offset"]) == (*QUEUE, 5)
    assert named["severity"] == "error"
    assert (named["expected"], named["found"]) == (
        str(TopicPartition(*QUEUE)),
        str(TopicPartition(QUEUE[0], queue_id)),
    )
    assert "unit-points-nowhere" not in {row["code"] for row in found}
    for code in CONTRADICTING:
        assert "rebuild" not in (catalogue()[code].command or "")


CONTRADICTING = ("suspect-header", "wrong-unit", "unit-points-nowhere", "wrong-tags-code")


@pytest.mark.parametrize("golden", stores.all_stores(), ids=str)
def test_no_golden_record_is_suspect(golden: GoldenStore) -> None:
    found = run("verify", golden.root, *settings_options(golden.settings)).rows
    assert "suspect-header" not in {row["code"] for row in found}
    dumped = run("dump", golden.root, "--what", "commitlog", *settings_options(golden.settings))
    assert not [row for row in dumped.rows if "suspect" in row]


def test_many_of_a_kind_are_counted(tmp_path: Path) -> None:
    golden = stores.golden("small")
    root = stores.copy_store(golden, tmp_path / "store")
    for path in (root / "consumequeue/order_s1/0").iterdir():
        path.unlink()
    (found,) = [
        row
        for row in run("verify", root, *settings_options(golden.settings)).rows
        if row["code"] == "missing-unit"
    ]
    assert f"{len(rows()) - 1} more like it" in found["message"]


@pytest.mark.parametrize("name", stores.UNCLEAN)
def test_what_the_next_start_makes_is_no_fault(name: str) -> None:
    golden = stores.golden(name)
    found = fine("verify", golden.root, *settings_options(golden.settings)).rows
    assert {row["severity"] for row in found} == {"info"}


def test_an_index_without_tags(tmp_path: Path) -> None:
    root = tmp_path / "store"
    settings = {
        "mappedFileSizeCommitLog": "16384",
        "mappedFileSizeConsumeQueue": "2000",
        "maxHashSlotNum": "10",
        "maxIndexNum": "50",
        "indexTags": "false",
    }
    options = StoreOptions(settings=settings)
    with open_store("rocketmq", root, options, clock=ManualClock()) as store:
        store.create_topic("t", 1)
        tagged = [Record(b"k", b"v", tag="a")] * 3
        store.append(TopicPartition("t", 0), tagged)
    del settings["indexTags"]
    found = fine("verify", root, *settings_options(settings)).rows
    assert [row["code"] for row in found] == ["index-without-tags"]
    settings["indexTags"] = "false"
    assert fine("verify", root, *settings_options(settings)).rows == []


def test_deleted_topics_are_no_fault(tmp_path: Path) -> None:
    """Records of deleted topics stay in log and index; a rebuild leaves them out of the index and reports this."""
    root = tmp_path / "store"
    settings = {
        "mappedFileSizeCommitLog": "16384",
        "mappedFileSizeConsumeQueue": "2000",
        "maxHashSlotNum": "10",
        "maxIndexNum": "50",
    }
    queues = TopicPartition("gone", 0), TopicPartition("kept", 0)
    clock = ManualClock()
    with open_store("rocketmq", root, StoreOptions(settings=settings), clock=clock) as store:
        for queue in queues:
            store.create_topic(queue.topic, 1)
        for number in range(40):
            for queue in queues:
                store.append(queue, [Record(b"k%d" % number, b"v", tag="a")])
            clock.now_ms += 700
        store.delete_topic("gone")
        store.create_topic("gone", 1)
        store.append(queues[0], [Record(b"new", b"v")])
    assert fine("verify", root).rows == []
    (left_out,) = json.loads(run("rebuild", root, "--what", "indexfile", "--write").out)[
        "findings"
    ][:1]
    assert (left_out["code"], left_out["severity"]) == ("deleted-left-out", "info")
    assert "40 records" in left_out["message"]
    assert fine("verify", root).rows == []
    assert fine("rebuild", root, "--what", "indexfile").document["changed"] == []
    assert len(fine("find", root, "--topic", "kept", "--key", "k7").rows) == 1
    path = index_files(root)[-1]
    patch(path, 40 + 4 * 10 + 20, b"\0\0\0\1")
    assert run("verify", root).code == 1


def test_a_log_that_ends_early_is_told_by_all_that_looks(tmp_path: Path) -> None:
    golden = stores.golden("small")
    root = stores.copy_store(golden, tmp_path / "store")
    sorted((root / "commitlog").iterdir())[-1].unlink()
    options = settings_options(golden.settings)
    ended = run("inspect", root, *options)
    assert ended.code == 1
    codes = {finding["code"] for finding in json.loads(ended.out)["findings"]}
    assert "log-ends-early" in codes
    ended = run("dump", root, *options)
    assert ended.code == 1
    assert "[log-ends-early]" in ended.err


def test_queues_that_can_be_rebuilt_are_no_lost_records(tmp_path: Path) -> None:
    """Groups read up to records that are in the log: their queues end early, but a rebuild brings them back."""
    golden = stores.golden("broker")
    root = stores.copy_store(golden, tmp_path / "store")
    options = settings_options(golden.settings)
    last = sorted((root / "commitlog").iterdir())[-1]
    with last.open("r+b") as file:
        file.truncate(1000)  # a torn log proves nothing about its end
        file.truncate(golden.file_bytes)
    shutil.rmtree(root / "consumequeue")
    codes = {row["code"] for row in run("verify", root, *options).rows}
    assert "missing-unit" in codes
    assert "queue-ends-early" not in codes


@pytest.mark.parametrize("with_backup", [True, False])
def test_an_empty_config_file_is_called_empty(with_backup: bool, tmp_path: Path) -> None:
    root = stores.copy_store(stores.golden("broker"), tmp_path / "store")
    path = root / "config" / "topics.json"
    path.write_bytes(b"")
    if not with_backup:
        path.with_name("topics.json.bak").write_bytes(b"")
    (found,) = run("verify", root).rows
    assert (found["code"], found["path"]) == ("bad-topics-file", str(path))
    assert "config file: it is empty" in found["message"]
    assert str(path) not in found["message"]
