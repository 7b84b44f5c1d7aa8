"""A dump of records reports, by queue, the offsets that are missing between the records."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence

import pytest

from storage import Finding, StoreOptions, TopicPartition, open_inspector
from storage.rocketmq.format.queue_entry import UNIT_SIZE
from tests.unit.rocketmq.workshop import ROOT, SMALL, Workshop, put_value

OPTIONS = StoreOptions(settings=SMALL)
COUNT = 12
QUEUE_OFFSET, BODY = 20, 89
QUEUES = TopicPartition("t", 0), TopicPartition("t", 1)

Places = dict[tuple[int, int], tuple[int, int]]


@pytest.fixture
def shop() -> Workshop:
    """A store with two queues that were written in turn."""
    shop = Workshop()
    with shop.open_with_topic(partitions=2) as store:
        for number in range(COUNT):
            for queue in QUEUES:
                put_value(store, b"v%d" % number, queue)
    return shop


def places(shop: Workshop) -> Places:
    """Return (physical offset, size) of every record by queue and offset."""
    inspector = open_inspector(ROOT, OPTIONS, fs=shop.fs, clock=shop.clock)
    rows = [row for run in inspector.dump("commitlog") for row in run if row["kind"] == "log"]
    inspector.close()
    return {
        (int(str(r["queueId"])), int(str(r["queueOffset"]))): (
            int(str(r["physicalOffset"])),
            int(str(r["size"])),
        )
        for r in rows
    }


def dumped(shop: Workshop) -> Sequence[Finding]:
    inspector = open_inspector(ROOT, OPTIONS, fs=shop.fs, clock=shop.clock)
    for _ in inspector.dump("records"):
        pass
    found = inspector.findings()
    inspector.close()
    return found


def gaps(shop: Workshop) -> list[tuple[int | None, str, str | None]]:
    return [
        (f.partition, f.message.rpartition(": ")[2], f.severity)
        for f in dumped(shop)
        if f.code == "offset-gap"
    ]


def patch(shop: Workshop, physical_offset: int, data: bytes) -> None:
    bases = [base for base in shop.log_bases() if base <= physical_offset]
    shop.overwrite(shop.log_path(bases[-1]), physical_offset - bases[-1], data)


def queues_built_over_damage(shop: Workshop) -> None:
    """Damage records and remove their queue: a rebuild leaves no entry free for these records."""
    found = places(shop)
    for at, size in (found[1, 3], found[1, 4]):
        patch(shop, at, b"\xff" * size)
    shop.fs.remove_tree(ROOT / "consumequeue/t/1")


def fillers_between_entries(shop: Workshop) -> None:
    path = ROOT / "consumequeue/t/1" / f"{0:020}"
    for number in (3, 4):
        shop.overwrite(path, number * UNIT_SIZE, struct.pack(">qiq", 0, 0x7FFFFFFF, 0))


def a_number_that_jumps(shop: Workshop) -> None:
    """Raise the queue offset in all records from offset 3 on by two."""
    for (queue, offset), (at, _) in places(shop).items():
        if queue == 1 and offset >= 3:
            patch(shop, at + QUEUE_OFFSET, struct.pack(">q", offset + 2))


@pytest.mark.parametrize(
    "damage", [queues_built_over_damage, fillers_between_entries, a_number_that_jumps]
)
def test_missing_offsets_are_named(shop: Workshop, damage: Callable[[Workshop], None]) -> None:
    damage(shop)
    assert gaps(shop) == [(1, "3 to 4", "warning")]


def saying(*offsets: tuple[int, int]) -> Callable[[Workshop], None]:
    """Return a function that writes wrong queue offsets into records of queue 1."""

    def damage(shop: Workshop) -> None:
        found = places(shop)
        for offset, said in offsets:
            patch(shop, found[1, offset][0] + QUEUE_OFFSET, struct.pack(">q", said))

    return damage


def differing(shop: Workshop) -> list[tuple[str, str | None, int | None, int | None, str | None]]:
    return [(f.code, f.topic, f.partition, f.offset, f.found) for f in dumped(shop)]


@pytest.mark.parametrize(
    ("damage", "entries"),
    [
        (saying((5, 4)), [(5, 4)]),
        (saying((5, 0)), [(5, 0)]),
        (saying((5, 6)), [(5, 6)]),
        (saying((5, 1 << 40)), [(5, 1 << 40)]),
        (saying((0, 7)), [(0, 7)]),
        (saying((0, 1)), [(0, 1)]),
        (saying((COUNT - 1, 2)), [(COUNT - 1, 2)]),
        (saying((2, 1), (8, 90)), [(2, 1), (8, 90)]),
        (saying((5, 3), (6, 4), (7, 5)), [(5, 3)]),
        (saying((5, 6), (6, 5)), [(5, 6), (6, 5)]),
    ],
)
def test_a_record_with_a_wrong_offset_is_named(
    shop: Workshop, damage: Callable[[Workshop], None], entries: list[tuple[int, int]]
) -> None:
    """The entry and the neighbours contradict the record; no offsets are reported as missing because of it."""
    damage(shop)
    assert differing(shop) == [
        ("unit-offset-differs", "t", 1, entry, f"offset {said}") for entry, said in entries
    ]


@pytest.mark.parametrize("said", [COUNT, COUNT + 1, 1 << 33])
def test_a_last_record_that_jumps_may_be_either(shop: Workshop, said: int) -> None:
    saying((COUNT - 1, said))(shop)
    assert [row[0] for row in differing(shop)] == ["offset-gap", "unit-offset-differs"]
    assert {row[1:3] for row in differing(shop)} == {("t", 1)}


@pytest.mark.parametrize("damaged", [4, 6, 7])
def test_a_damaged_record_beside_a_wrong_offset(shop: Workshop, damaged: int) -> None:
    patch(shop, places(shop)[1, damaged][0] + BODY, b"\xff\xff")
    saying((5, 90))(shop)
    found = sorted((f.code, f.offset) for f in dumped(shop) if f.topic is not None)
    assert found == [("damaged-record", damaged), ("unit-offset-differs", 5)]


def test_a_damaged_record_is_no_gap_too(shop: Workshop) -> None:
    patch(shop, places(shop)[1, 3][0] + BODY, b"\xff\xff")
    assert [f.code for f in dumped(shop) if f.topic is not None] == ["damaged-record"]


def test_a_whole_store_has_none(shop: Workshop) -> None:
    assert dumped(shop) == []


def test_what_retention_deleted_is_none(shop: Workshop) -> None:
    shop.fs.remove(shop.log_path(0))
    assert gaps(shop) == []
