"""Segments that repeat batches of later segments: each record is served once, as by the real consumer."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing

import pytest

from storage import FindQuery, StoreOptions
from storage.errors import DamagedStore
from storage.kafka.format import names
from storage.kafka.tools import open_inspector
from tests.unit.kafka.log.batches import data_batch
from tests.unit.kafka.log.splitting import split_offsets, splitter_of
from tests.unit.kafka.workshop import ROOT, T0, Workshop, put_value, values


def log(*offsets: int, key: bytes | None = b"k") -> bytes:
    return b"".join(data_batch(offset, key=key, value=b"%d" % offset) for offset in offsets)


Logs = Mapping[int, bytes]
FOUR, EIGHT = log(4, 5, 6, 7), log(8, 9)
EQUAL: Mapping[str, Logs] = {
    "copied under a lower name": {0: log(0, 1, 2, 3), 2: FOUR, 4: FOUR, 8: EIGHT},
    "tail": {0: log(0, 1, 2, 3, 4, 5), 4: FOUR, 8: EIGHT},
    "whole next": {0: log(0, 1, 2, 3, 4, 5, 6, 7), 4: FOUR, 8: EIGHT},
    "over two": {0: log(0, 1, 2, 3, 4, 5, 6, 7, 8), 4: FOUR, 8: EIGHT},
    "into the active one": {0: log(0, 1, 2, 3), 4: log(4, 5, 6, 7, 8), 8: EIGHT},
    "two copies": {0: log(0, 1, 2, 3), 1: FOUR, 3: FOUR, 4: FOUR, 8: EIGHT},
}
THREES = data_batch(0, count=3) + data_batch(3, count=3) + data_batch(6, count=4)
COPIED: Mapping[str, Logs] = {
    "in a batch": {0: THREES, 5: THREES},
    "between batches": {0: THREES, 6: THREES},
    "a part": {0: THREES, 4: THREES[: len(data_batch(0, count=3) + data_batch(3, count=3))]},
    "two copies": {0: THREES, 1: THREES, 8: THREES},
    "above the end": {0: THREES, 10: THREES},
    "before others": {0: data_batch(0, count=6), 4: data_batch(0, count=6), 6: log(6, 7, 8, 9)},
}
FIRST: Logs = {0: FOUR, 4: FOUR, 8: EIGHT}
DIFFERS: Mapping[str, Logs] = {
    "value": {0: log(0, 1, 2, 3) + data_batch(4, value=b"other"), 4: FOUR, 8: EIGHT},
    "bounds of a batch": {0: log(0, 1, 2) + data_batch(3, count=3), 4: FOUR, 8: EIGHT},
    "beyond the end": {0: log(0, 1, 2, 3), 4: log(4, 5, 6, 7, 8, 9), 8: log(8)},
}


def a_log(shop: Workshop, logs: Logs, *, clean: bool) -> None:
    shop.open_with_topic().close()
    for name in shop.names():
        if name[:20].isdigit():
            shop.fs.remove(ROOT / "t-0" / name)
    for base, data in logs.items():
        shop.put(shop.path(base), data)
    for name in (names.RECOVERY_POINTS, names.HIGH_WATERMARKS):
        shop.fs.remove(ROOT / name)
    if not clean:
        shop.fs.remove(ROOT / names.CLEAN_SHUTDOWN)


def found(shop: Workshop) -> set[tuple[str, str]]:
    inspector = open_inspector(ROOT, StoreOptions(), fs=shop.fs, clock=shop.clock)
    assert inspector is not None
    with closing(inspector):
        others = {
            "missing-index",
            "missing-snapshot",
            "unclean-stop",
        }  # files that `a_log` does not write
        return {(f.code, f.severity) for f in inspector.verify() if f.code not in others}


def dumped(shop: Workshop) -> list[object]:
    inspector = open_inspector(ROOT, StoreOptions(), fs=shop.fs, clock=shop.clock)
    assert inspector is not None
    with closing(inspector):
        return [row["offset"] for run in inspector.dump("records", topic="t") for row in run]


def searched(shop: Workshop) -> list[object]:
    inspector = open_inspector(ROOT, StoreOptions(), fs=shop.fs, clock=shop.clock)
    assert inspector is not None
    with closing(inspector):
        return [row["offset"] for row in inspector.find(FindQuery(topic="t", key="k", limit=99))]


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("case", EQUAL)
def test_equal_overlaps_are_read_once(shop: Workshop, case: str, clean: bool) -> None:
    a_log(shop, EQUAL[case], clean=clean)
    assert found(shop) == {("overlapping-segments", "warning")}
    assert dumped(shop) == searched(shop) == list(range(10))
    expected = [b"%d" % offset for offset in range(10)]
    with shop.open(read_only=True) as store:
        assert values(store) == expected
    for _ in range(2):
        with shop.open() as store:
            assert values(store) == expected
            assert not store.recovery.losses
            for offset in range(10):  # from every offset, one record at a time
                page = store.read(T0, offset, max_records=1)
                assert [record.offset for record in page.records] == [offset]
    with shop.open() as store:
        assert put_value(store, b"new").base_offset == 10


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("case", COPIED)
def test_a_copy_under_a_higher_name_is_left_out(shop: Workshop, case: str, clean: bool) -> None:
    a_log(shop, COPIED[case], clean=clean)
    assert found(shop) == {("overlapping-segments", "warning")}
    assert dumped(shop) == list(range(10))
    for _ in range(2):
        with shop.open() as store:
            assert len(values(store)) == 10
            assert not store.recovery.losses
            for offset in range(10):
                page = store.read(T0, offset, max_records=1)
                assert [record.offset for record in page.records] == [offset]
    with shop.open() as store:
        assert put_value(store, b"new").base_offset == 10


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("logs", [*EQUAL.values(), *COPIED.values()], ids=[*EQUAL, *COPIED])
def test_splits_hold_each_record_once_after_each_refresh(
    shop: Workshop, logs: Logs, clean: bool
) -> None:
    a_log(shop, logs, clean=clean)
    with closing(splitter_of(shop)) as splitter:
        assert split_offsets(shop, splitter) == list(range(10))
        for _ in range(2):
            splitter.refresh()
            assert split_offsets(shop, splitter) == list(range(10))


def test_a_first_segment_of_repeats_keeps_its_base(shop: Workshop) -> None:
    a_log(shop, FIRST, clean=True)
    assert ("overlapping-segments", "warning") in found(shop)
    with shop.open() as store:
        assert store.bounds(T0)[::2] == (0, 10)
        assert values(store) == [b"%d" % offset for offset in range(4, 10)]


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("case", DIFFERS)
def test_overlaps_that_differ_are_errors(shop: Workshop, case: str, clean: bool) -> None:
    a_log(shop, DIFFERS[case], clean=clean)
    assert ("misplaced-batch", "error") in found(shop)
    before = {name: shop.fs.size(ROOT / "t-0" / name) for name in shop.names()}
    if not clean:
        with pytest.raises(DamagedStore, match="do not fit"):
            shop.open()
    assert {name: shop.fs.size(ROOT / "t-0" / name) for name in shop.names()} == before
