"""Segments with offsets 2^31 or more above the base: read in full, and split by a writable start as by the broker."""

from __future__ import annotations

from contextlib import closing

import pytest

from storage import StoreOptions
from storage.files import OverlayFileSystem
from storage.kafka.tools import open_inspector
from tests.robustness.crash.relay import Relay
from tests.unit.kafka.log.batches import data_batch, marker
from tests.unit.kafka.log.splitting import read_rows, splitter_of, whole
from tests.unit.kafka.log.test_odd_batches import directory_with
from tests.unit.kafka.workshop import ROOT, T0, Workshop, put_value, read_around

FAR = 1 << 31
TRANSACTION = data_batch(FAR + 9, count=2, producer=(7, 0, 0), transactional=True)

# The log, the offsets of its records, and the base offsets of the real broker's segments.
LOGS = {
    "three parts": (
        data_batch(0, count=2)
        + data_batch(FAR - 1)
        + data_batch(FAR + 5, count=2)
        + data_batch(2 * FAR + 7),
        [0, 1, FAR - 1, FAR + 5, FAR + 6, 2 * FAR + 7],
        [0, FAR + 5, 2 * FAR + 7],
    ),
    "a batch across the border": (
        data_batch(0, count=2) + data_batch(FAR - 1, count=3) + data_batch(FAR + 5, count=2),
        [0, 1, FAR - 1, FAR, FAR + 1, FAR + 5, FAR + 6],
        [0, FAR - 1],
    ),
    "the first batch after the base": (
        data_batch(5, count=2) + data_batch(FAR + 10, count=2),
        [5, 6, FAR + 10, FAR + 11],
        [5, FAR + 10],
    ),
    "an aborted transaction": (
        data_batch(0) + TRANSACTION + marker(FAR + 11, 7, commit=False) + data_batch(3 * FAR),
        [0, FAR + 9, FAR + 10, 3 * FAR],
        [0, FAR + 9, 3 * FAR],
    ),
    "none": (data_batch(0) + data_batch(FAR - 1), [0, FAR - 1], [0]),
}


@pytest.fixture(params=LOGS)
def case(request: pytest.FixtureRequest) -> tuple[bytes, list[int], list[int]]:
    return LOGS[request.param]


@pytest.mark.parametrize("stopped", [True, False])
def test_a_writable_start_splits(
    shop: Workshop, case: tuple[bytes, list[int], list[int]], stopped: bool
) -> None:
    log, offsets, bases = case
    found = directory_with(shop, log, stopped=stopped)
    for _ in range(2):
        with found.open() as store:
            assert [record.offset for record in read_around(store)[0]] == offsets
            assert store.recovery.losses == []
        assert found.bases() == bases
        assert b"".join(found.bytes_of(base) for base in bases) == log
    with found.open() as store:
        assert put_value(store, b"next").base_offset == offsets[-1] + 1
        assert len(read_around(store)[0]) == len(offsets) + 1
    assert found.cut_dirs() == []


@pytest.mark.parametrize("stopped", [True, False])
def test_looking_reads_all_and_splits_nothing(
    shop: Workshop, case: tuple[bytes, list[int], list[int]], stopped: bool
) -> None:
    log, offsets, bases = case
    found = directory_with(shop, log, stopped=stopped)
    with found.open(read_only=True) as store:
        assert [record.offset for record in read_around(store)[0]] == offsets
        for offset in offsets:
            assert store.read(T0, offset, max_records=1).records[0].offset == offset
    inspector = open_inspector(ROOT, StoreOptions(), fs=found.fs, clock=found.clock)
    assert inspector is not None
    with closing(inspector):
        rows = [row["offset"] for run in inspector.dump("records") for row in run]
        assert rows == offsets
        codes = {f.code for f in inspector.verify()}
        assert ("offset-overflow" in codes) is (len(bases) > 1)
        assert not codes & {"torn-tail", "damaged-batch", "misplaced-batch"}
        report = inspector.salvage(ROOT.parent / "salvaged")
    assert (report.kept_records, report.lost_bytes) == (len(offsets), 0)
    splitter = splitter_of(found)
    splits = splitter.plan(whole(splitter), min_splits=3)
    assert [row.offset for row in read_rows(found, splits)] == offsets
    splitter.close()
    assert found.bytes_of(0) == log
    salvaged = Workshop(found.fs)
    kept = open_inspector(ROOT.parent / "salvaged", StoreOptions(), fs=found.fs, clock=found.clock)
    assert kept is not None
    with closing(kept):
        assert [row["offset"] for run in kept.dump("records") for row in run] == offsets
        assert {f.code for f in kept.verify()} <= {"offset-gap", "missing-snapshot"}
    assert not [name for name in salvaged.fs.list_dir(ROOT.parent) if ".cut-" in name]


def test_a_full_segment_that_was_split_keeps_what_was_aborted(shop: Workshop) -> None:
    log, _, _ = LOGS["an aborted transaction"]
    found = directory_with(shop, log, stopped=True)
    found.open().close()
    assert found.bases(".txnindex") == [FAR + 9]


class Killed(Exception):
    """An exception that stands for the end of the process."""


class KilledAt(Relay):
    """A disk that ends the process at the n-th change of names."""

    left = 0

    def step(self, operation: str, path: object) -> None:
        if operation in {"rename", "remove", "sync_dir"}:
            self.left -= 1
            if self.left == 0:
                raise Killed


@pytest.mark.parametrize("name", ["three parts", "the first batch after the base"])
def test_a_kill_at_any_step_of_a_split(shop: Workshop, name: str) -> None:
    log, offsets, bases = LOGS[name]
    found = directory_with(shop, log, stopped=False)
    for step in range(1, 200):
        disk = OverlayFileSystem(found.fs)
        killing = KilledAt(disk)
        killing.left = step
        try:
            Workshop(killing).open().close()
        except Killed:
            after = Workshop(OverlayFileSystem(disk))
            with after.open() as store:
                assert [record.offset for record in read_around(store)[0]] == offsets
            assert after.bases() == bases
            assert b"".join(after.bytes_of(base) for base in bases) == log
        else:
            assert step > 10
            return
    pytest.fail("the start never ended")
