"""A disk that fills up in the middle of a change to a RocketMQ store: nothing of the change remains."""

from __future__ import annotations

from pathlib import Path

import pytest

from storage.errors import DiskFull
from storage.files import OverlayFileSystem
from tests.contract.harness import copy_tree
from tests.robustness.crash.faulty import (
    FaultyFileSystem,
    at_change,
    disk_full,
    no_fault,
)
from tests.unit.rocketmq.workshop import (
    LOG_BYTES,
    ROOT,
    T0,
    Workshop,
    check_lookups,
    on,
    put_sequenced,
    put_value,
    values,
)

VALUES = [b"value-%02d" % n for n in range(14)]


@pytest.fixture
def shop(faulty: FaultyFileSystem) -> Workshop:
    """A workshop for one store on a disk that can be made to fail."""
    return Workshop(faulty)


@pytest.mark.parametrize("change", range(1, 9))
def test_nothing_of_an_append_over_several_files_stays(
    shop: Workshop, faulty: FaultyFileSystem, change: int
) -> None:
    store = shop.open_with_topic()
    put_value(store, b"before")
    faulty.fault = at_change(faulty, change, disk_full)
    try:
        put_sequenced(store, 7, 0, count=14)
    except DiskFull:
        assert store.log.end < LOG_BYTES
        assert shop.log_bytes().rstrip(b"\0").count(b"7/") == 0
        assert store.bounds(T0).end == 1
        assert not put_sequenced(store, 7, 0, count=14).duplicate
    assert values(store) == [b"before", *(b"7/%d" % n for n in range(14))]
    found = shop.after_kill()
    with found.open() as again:
        assert values(again) == values(store)
        check_lookups(again)


def test_a_topic_that_finds_no_space_is_not_there(shop: Workshop, faulty: FaultyFileSystem) -> None:
    store = shop.open()
    before = shop.files()
    faulty.fault = lambda operation, path: (
        disk_full(operation, path) if operation == "rename" and path.name == "topics.json" else None
    )
    with pytest.raises(DiskFull):
        store.create_topic("t", 3)
    assert store.topics() == {}
    assert shop.files() == before
    faulty.fault = no_fault
    store.create_topic("t", 3, {"topicSysFlag": "5"})
    store.close()
    with shop.open() as again:
        assert [(t.name, len(t.partitions), t.configs) for t in again.topics().values()] == [
            ("t", 3, {"topicSysFlag": "5"})
        ]


def test_all_that_is_written_lies_in_the_store(shop: Workshop, faulty: FaultyFileSystem) -> None:
    store = shop.open()
    touched: set[Path] = set()
    faulty.fault = lambda operation, path: touched.add(path)
    store.create_topic("t", 2)
    for value in VALUES:
        put_value(store, value)
    store.delete_topic("t")
    store.close()
    assert {path for path in touched if ROOT not in path.parents} <= {ROOT}


def test_a_kill_while_the_index_is_written_back(shop: Workshop, faulty: FaultyFileSystem) -> None:
    """Slots that point to entries beyond the header's count are detected, and every key is found."""
    many = {"maxIndexNum": "1000"}
    left: list[Workshop] = []

    def killed_here(operation: str, path: Path) -> None:
        copy = OverlayFileSystem()
        copy_tree(faulty, ROOT, copy, ROOT)
        left.append(on(copy, shop))

    with shop.open_with_topic(many) as store:
        faulty.fault = killed_here
        for number, value in enumerate(VALUES):
            put_value(store, value)
            if number % 4 == 3:
                store.checkpoint()
        faulty.fault = no_fault
    for killed in left:
        with killed.open(many) as again:
            put_value(again, b"afterwards")
            check_lookups(again)
