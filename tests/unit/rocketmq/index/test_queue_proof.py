"""The folder of a queue holds the entries of another queue: the queue is rebuilt from the log."""

from __future__ import annotations

import struct
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from storage.model import TopicPartition
from tests.unit.rocketmq.recovery.foreign_log import inspector
from tests.unit.rocketmq.workshop import ROOT, Workshop, place_of, put_file, put_value, values

COUNTS = (7, 3, 12)
QUEUES = [TopicPartition("t", number) for number in range(len(COUNTS))]
SETTINGS = {"mappedFileSizeConsumeQueue": "2000"}
TOPIC = ROOT / "consumequeue" / "t"
ABORT = ROOT / "abort"
QUEUE_ID_AT = 12


def value(queue: int, number: int) -> bytes:
    return b"q%d-%d" % (queue, number)


def fill(shop: Workshop, counts: tuple[int, ...] = COUNTS) -> list[int]:
    """Fill the queues one after another; return the physical offset of each queue's last record, -1 without records."""
    lasts = []
    with closing(shop.open_with_topic(SETTINGS, partitions=len(QUEUES))) as store:
        for queue, count in enumerate(counts):
            places = [
                place_of(put_value(store, value(queue, number), QUEUES[queue]))
                for number in range(count)
            ]
            lasts.append(places[-1] if places else -1)
    return lasts


def swap(one: int, other: int) -> Callable[[Workshop], None]:
    def change(shop: Workshop) -> None:
        fs = shop.fs
        fs.rename(TOPIC / str(one), TOPIC / "x")
        fs.rename(TOPIC / str(other), TOPIC / str(one))
        fs.rename(TOPIC / "x", TOPIC / str(other))

    return change


def turn(shop: Workshop) -> None:
    """Rotate the names of the three folders."""
    swap(0, 1)(shop)
    swap(1, 2)(shop)


def rename(one: int, other: int) -> Callable[[Workshop], None]:
    def change(shop: Workshop) -> None:
        shop.fs.remove_tree(TOPIC / str(other))
        shop.fs.rename(TOPIC / str(one), TOPIC / str(other))

    return change


def copy(one: int, other: int) -> Callable[[Workshop], None]:
    def change(shop: Workshop) -> None:
        (name,) = shop.fs.list_dir(TOPIC / str(one))
        put_file(shop.fs, TOPIC / str(other) / name, shop.fs.read_bytes(TOPIC / str(one) / name))

    return change


CHANGES: dict[str, Callable[[Workshop], None]] = {
    "two folders swapped": swap(0, 1),
    "a long and a short one swapped": swap(1, 2),
    "all in turn": turn,
    "a folder renamed over another": rename(0, 2),
    "a long one renamed over a short one": rename(2, 1),
    "a folder copied over another": copy(1, 0),
    "a long one copied over a short one": copy(2, 1),
}


def check_all(shop: Workshop, counts: tuple[int, ...] = COUNTS) -> None:
    """Check that no record is lost, read-only and after a writable start, and that no offset is assigned again."""
    with closing(shop.open(SETTINGS, read_only=True)) as store:
        for queue, count in enumerate(counts):
            assert values(store, QUEUES[queue]) == [value(queue, n) for n in range(count)]
    with closing(shop.open(SETTINGS)) as store:
        for queue, count in enumerate(counts):
            assert put_value(store, b"more", QUEUES[queue]).base_offset == count
            assert values(store, QUEUES[queue])[:-1] == [value(queue, n) for n in range(count)]


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_no_offset_is_given_again(
    change: Callable[[Workshop], None], clean: bool, shop: Workshop
) -> None:
    fill(shop)
    change(shop)
    if not clean:
        put_file(shop.fs, ABORT, b"")
    with closing(shop.open(SETTINGS, read_only=True)) as store:
        reported = [f for f in store.recovery.findings if f.code == "broken-queue"]
        assert reported
        assert all("another queue" in finding.message for finding in reported)
    check_all(shop)
    with closing(shop.open(SETTINGS)) as store:
        assert "broken-queue" not in [f.code for f in store.recovery.findings]


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_salvage_loses_nothing_and_says_so(
    change: Callable[[Workshop], None], shop: Workshop
) -> None:
    fill(shop)
    change(shop)
    with inspector(shop, SETTINGS) as tools:
        report = tools.salvage(Path("/w/new"))
    assert report.losses == []
    assert [(kept.next_offset, kept.records) for kept in report.kept] == [(n, n) for n in COUNTS]
    assert [found.code for found in report.findings] == []


@pytest.mark.parametrize(
    ("counts", "change"),
    [((1, 1, 1), swap(0, 1)), ((1, 1, 1), turn), ((1, 4, 5), swap(0, 1))],
)
def test_queues_of_one_record_that_were_swapped(
    counts: tuple[int, ...], change: Callable[[Workshop], None], shop: Workshop
) -> None:
    fill(shop, counts)
    change(shop)
    check_all(shop, counts)


@pytest.mark.parametrize(
    ("counts", "change"),
    [((1, 1, 5), copy(0, 1)), ((0, 1, 5), rename(1, 0)), ((5, 0, 1), rename(2, 1))],
)
def test_one_record_for_two_queues(
    counts: tuple[int, ...], change: Callable[[Workshop], None], shop: Workshop
) -> None:
    """The record's queue id or its entry's folder is wrong: neither queue assigns the offset again."""
    fill(shop, counts)
    for queue, count in enumerate(counts):
        if not count:
            shop.fs.make_dir(TOPIC / str(queue))
    change(shop)
    for _ in range(2):
        with closing(shop.open(SETTINGS)) as store:
            for queue, count in enumerate(counts):
                assert store.bounds(QUEUES[queue]).end >= count
    with closing(shop.open(SETTINGS)) as store:
        for queue, count in enumerate(counts):
            assert put_value(store, b"more", QUEUES[queue]).base_offset >= count


@pytest.mark.parametrize("queue", range(3))
def test_one_damaged_record_does_not_break_its_queue(queue: int, shop: Workshop) -> None:
    """The other entries point to records of the queue, so the queue id in this record is wrong."""
    lasts = fill(shop)
    base = lasts[queue] - lasts[queue] % 1024
    shop.overwrite(
        shop.log_path(base), lasts[queue] - base + QUEUE_ID_AT, struct.pack(">i", (queue + 1) % 3)
    )
    with closing(shop.open(SETTINGS)) as store:
        assert "broken-queue" not in [f.code for f in store.recovery.findings]
        assert put_value(store, b"more", QUEUES[queue]).base_offset == COUNTS[queue]
