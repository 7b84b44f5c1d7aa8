"""A salvage reports as kept the records that the new store returns; each record with an entry is kept or lost."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from pathlib import Path

import pytest

from storage import Finding, LossReport, StoreOptions, TopicPartition, open_inspector
from storage.rocketmq.format.message import decode_message, encode_padding
from storage.rocketmq.format.names import file_name
from storage.rocketmq.store import open_rocketmq
from tests.formats.rocketmq_messages.cases import walked
from tests.unit.rocketmq.workshop import LOG_BYTES, ROOT, SMALL, Workshop, put_value, values

QUEUES = 3
ROUNDS = 20
NEW = ROOT.parent / "new"
ADDRESSES = [TopicPartition("topic", queue) for queue in range(QUEUES)]

Key = tuple[int, int]


@pytest.fixture
def shop() -> Workshop:
    """A cleanly stopped store with ROUNDS records in each of three queues, appended in turn."""
    shop = Workshop()
    fill(shop, SMALL)
    assert len(shop.log_bases()) > 6
    return shop


def fill(shop: Workshop, settings: Mapping[str, str]) -> None:
    with shop.open(settings) as store:
        store.create_topic("topic", QUEUES)
        for number in range(ROUNDS):
            shop.clock.now_ms += 10
            for address in ADDRESSES:
                put_value(store, b"%d-%d" % (address.partition, number), address)


def inspected(
    shop: Workshop, target: Path | None, settings: Mapping[str, str] = SMALL
) -> tuple[list[Finding], LossReport | None]:
    options = StoreOptions(settings=settings)
    inspector = open_inspector(ROOT, options, fs=shop.fs, clock=shop.clock)
    try:
        if target is None:
            return list(inspector.verify()), None
        report = inspector.salvage(target)
        return list(report.findings), report
    finally:
        inspector.close()


def salvaged(shop: Workshop, settings: Mapping[str, str] = SMALL) -> LossReport:
    report = inspected(shop, NEW, settings)[1]
    assert report is not None
    return report


def errors_of(findings: list[Finding]) -> set[str]:
    return {found.code for found in findings if found.severity == "error"}


def in_new_store(shop: Workshop, settings: Mapping[str, str] = SMALL) -> set[Key]:
    """Return (queue, number of the record) of all records that readers of the new store get."""
    options = StoreOptions(settings=settings)
    with open_rocketmq(NEW, options, fs=shop.fs, clock=shop.clock, read_only=True) as store:
        found = [value for address in ADDRESSES for value in values(store, address)]
    return {(int(value[:1]), int(value[2:])) for value in found if value is not None}


def check_whole(shop: Workshop) -> tuple[LossReport, set[Key]]:
    """Salvage, and compare the report with the new store; return the report and the records missing there."""
    report = salvaged(shop)
    kept = in_new_store(shop)
    missing = {(queue, n) for queue in range(QUEUES) for n in range(ROUNDS)} - kept
    named = {
        (loss.partition, offset)
        for loss in report.losses
        if loss.topic == "topic"
        for offset in range(loss.first_offset, loss.next_offset or 0)
    }
    assert named == missing
    of_topic = [kept for kept in report.kept if kept.topic == "topic"]
    assert sum(found.records for found in of_topic) == len(kept)
    others = sum(found.records for found in report.kept if found.topic != "topic")
    assert report.kept_records == len(kept) + others
    return report, missing


def place_of(shop: Workshop, queue: int, number: int) -> tuple[Path, int, int]:
    """Return the file, the position in the file and the size of a record."""
    for base in shop.log_bases():
        data = shop.fs.read_bytes(shop.log_path(base))
        records, _, _ = walked(data, 0, len(data), 0)
        for at, size in records:
            message = decode_message(data, at)
            if (message.queue_id, message.queue_offset) == (queue, number):
                return shop.log_path(base), at, size
    raise AssertionError("no such record")


# ---- the first files of the log are missing ----


@pytest.mark.parametrize("files", [3, 4, 6])
def test_records_before_the_log_are_lost_where_retention_left_their_queue_files(
    shop: Workshop, files: int
) -> None:
    """Queue files hold 5 entries here: the first file points only to missing records."""
    for base in shop.log_bases()[:files]:
        shop.fs.remove(shop.log_path(base))
    _, missing = check_whole(shop)
    assert len(missing) >= 15


@pytest.mark.parametrize("files", [1, 2, 3])
def test_records_before_the_log_are_none_of_the_lost_where_retention_explains_them(
    files: int,
) -> None:
    """All entries are in the last file of each queue, which retention keeps."""
    settings = {**SMALL, "mappedFileSizeConsumeQueue": "1000"}
    shop = Workshop()
    fill(shop, settings)
    for base in shop.log_bases()[:files]:
        shop.fs.remove(shop.log_path(base))
    report = salvaged(shop, settings)
    assert not report.losses
    assert report.kept_records == len(in_new_store(shop, settings))


# ---- fields that no checksum covers ----


@pytest.mark.parametrize(("number", "wrong"), [(0, 15), (0, 3), (7, 19), (12, 5), (9, 200)])
@pytest.mark.parametrize("queue", [0, 2])
def test_a_wrong_queue_offset_costs_no_record(
    shop: Workshop, queue: int, number: int, wrong: int
) -> None:
    """The record's entry and the next record show which offset is right."""
    path, at, _ = place_of(shop, queue, number)
    shop.overwrite(path, at + 20, struct.pack(">q", wrong))
    report, missing = check_whole(shop)
    assert not missing
    assert [(f.partition, f.offset) for f in report.findings if f.code == "suspect-header"] == [
        (queue, number)
    ]


@pytest.mark.parametrize("wrong", [3, 17, 40])
@pytest.mark.parametrize("queue", [0, 1])
def test_a_wrong_queue_offset_of_a_last_record_is_a_loss(
    shop: Workshop, queue: int, wrong: int
) -> None:
    """No later record shows which offset is right."""
    path, at, _ = place_of(shop, queue, ROUNDS - 1)
    shop.overwrite(path, at + 20, struct.pack(">q", wrong))
    report = salvaged(shop)
    lost = {
        offset
        for loss in report.losses
        if loss.partition == queue
        for offset in range(loss.first_offset, loss.next_offset or 0)
    }
    assert ROUNDS - 1 in lost
    assert "suspect-header" in errors_of(list(report.findings))
    assert report.kept_records == len(in_new_store(shop))


@pytest.mark.parametrize("number", [0, 8, 19])
@pytest.mark.parametrize("queue", [0, 1])
def test_a_wrong_queue_id_is_reported(shop: Workshop, queue: int, number: int) -> None:
    path, at, _ = place_of(shop, queue, number)
    shop.overwrite(path, at + 12, struct.pack(">i", 7))
    report = salvaged(shop)
    assert "suspect-header" in errors_of(list(report.findings))
    assert [(q.partition, q.first_offset, q.next_offset) for q in report.losses] == [
        (queue, number, number + 1)
    ]


@pytest.mark.parametrize("number", [0, 8, 19])
@pytest.mark.parametrize("letter", [b"X", b"t"])
def test_a_wrong_topic_is_reported(shop: Workshop, number: int, letter: bytes) -> None:
    path, at, size = place_of(shop, 1, number)
    data = shop.fs.read_bytes(path)[at : at + size]
    shop.overwrite(path, at + data.index(b"topic") + 2, letter)
    report = salvaged(shop)
    assert "suspect-header" in errors_of(list(report.findings))
    assert [(q.topic, q.partition, q.first_offset) for q in report.losses] == [("topic", 1, number)]


@pytest.mark.parametrize(("one", "other"), [(0, 1), (1, 3), (0, 4)])
def test_swapped_log_files_are_counted_as_they_are_read(
    shop: Workshop, one: int, other: int
) -> None:
    bases = shop.log_bases()
    first, second = (shop.log_path(bases[number]) for number in (one, other))
    data, rest = shop.fs.read_bytes(first), shop.fs.read_bytes(second)
    shop.overwrite(first, 0, rest)
    shop.overwrite(second, 0, data)
    _, missing = check_whole(shop)
    assert missing


# ---- a false padding, surplus files ----


@pytest.mark.parametrize(("queue", "number"), [(0, 0), (1, 5), (2, 11)])
@pytest.mark.parametrize("with_queues", [True, False])
def test_records_behind_a_false_padding_are_kept(
    shop: Workshop, queue: int, number: int, with_queues: bool
) -> None:
    path, at, size = place_of(shop, queue, number)
    shop.overwrite(path, at, encode_padding(LOG_BYTES - at))
    if not with_queues:
        shop.fs.remove_tree(ROOT / "consumequeue")
    report = salvaged(shop)
    kept = in_new_store(shop)
    assert len(kept) == QUEUES * ROUNDS - 1 == report.kept_records
    assert (str(path), at, size) in {(q.path, q.position, q.size_bytes) for q in report.losses}
    assert "damaged-record" in errors_of(inspected(shop, None)[0])


@pytest.mark.parametrize("source", [0, 2, -2])
@pytest.mark.parametrize("gap", [1, 2, 5])
def test_a_log_file_too_many_is_reported(shop: Workshop, source: int, gap: int) -> None:
    bases = shop.log_bases()
    base = bases[-1] + gap * LOG_BYTES
    data = shop.fs.read_bytes(shop.log_path(bases[source]))
    path = shop.log_path(base)
    copy_of(shop, path, data)
    report = salvaged(shop)
    size = len(data.rstrip(b"\0"))
    assert [(q.path, q.size_bytes) for q in report.losses] == [(str(path), size)]
    assert report.log_bytes == report.kept_bytes + report.blank_bytes + report.lost_bytes
    found = inspected(shop, None)[0]
    assert {f.path for f in found if f.code == "log-file-behind-end"} == {str(path)}


@pytest.mark.parametrize("count", [1, 2])
def test_empty_files_kept_ahead_are_no_finding(shop: Workshop, count: int) -> None:
    last = shop.log_bases()[-1]
    for number in range(count):
        copy_of(shop, shop.log_path(last + (number + 1) * LOG_BYTES), bytes(LOG_BYTES))
    assert not salvaged(shop).losses
    assert not errors_of(inspected(shop, None)[0])


def copy_of(shop: Workshop, path: Path, data: bytes) -> None:
    assert path.name == file_name(int(path.name))
    file = shop.fs.open(path, create=True)
    file.pwrite(data, 0)
    file.truncate(LOG_BYTES)
    file.close()
